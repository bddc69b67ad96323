"""A model of the circuit as a coprocessor: what a host gets back from a batch, and when.

Numbers are those of the circuit, bit for bit, from its final Program. Times follow from the
schedule's cycles at a clock that the caller states, and from a link that the caller assumes: beats
move while states are computed, so a batch takes the link's latency twice, and then what is slowest
of sending, computing and receiving.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.fixed.vector import run, run_raw
from rigidgrad.targets.verilog.converters import INPUT_STAGES, OUTPUT_STAGES
from rigidgrad.targets.verilog.design import Design
from rigidgrad.targets.verilog.render import lane_bits

BATCHES = (16, 32, 64, 128)


@dataclass(frozen=True)
class Link:
    """An assumption, not a measurement: bytes a second each way, and seconds from the start of a
    transfer to its first byte on the other side.
    """

    name: str
    bandwidth: float
    latency: float


PCIE1 = Link("PCIe 1 x8, 1.6 GB/s, 5 µs", 1.6e9, 5e-6)
PCIE3 = Link("PCIe 3 x16, 12 GB/s, 1 µs", 12e9, 1e-6)
LINKS = {"pcie1": PCIE1, "pcie3": PCIE3}


@dataclass(frozen=True)
class Timing:
    """Seconds of one batch."""

    states: int
    send: float
    compute: float
    receive: float
    total: float


@dataclass(frozen=True)
class Coprocessor:
    design: Design
    clock: float  # Hz, the user's
    link: Link = PCIE3

    def __post_init__(self) -> None:
        if not self.clock > 0:
            raise InputError(f"the clock is a positive number of Hz, not {self.clock}")

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs (states, *shape) for inputs by name, (states, *shape) or flat: of the function
        itself, with q also where the circuit takes sines.
        """
        flat = self.prepare(inputs)
        if not self.design.floats:
            return run(self.design.program, self.design.format, flat)
        single = {name: x.astype(np.float32) for name, x in flat.items()}
        return {
            name: x.astype(np.float32)
            for name, x in run(self.design.program, self.design.format, single).items()
        }

    def prepare(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The stream's numbers by name, (states, numbers)."""
        given = dict(inputs)
        if "sin" in self.design.program.inputs and "sin" not in given and "q" in given:
            given |= {"sin": np.sin(given["q"]), "cos": np.cos(given["q"])}
        for name in self.design.program.inputs:
            if name not in given:
                raise InputError(
                    f"the input {name!r} is missing: the circuit takes"
                    f" {', '.join(self.design.program.inputs)}"
                )
        return {
            name: np.asarray(given[name], np.float64).reshape(len(given[name]), -1)
            for name in self.design.program.inputs
        }

    def stream(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        """Words of the stream, (states, words), as integers: raw values, or the bits of float32."""
        flat = np.concatenate(list(self.prepare(inputs).values()), axis=1)
        if self.design.floats:
            return np.ascontiguousarray(flat.astype(np.float32)).view(np.int32).astype(np.int64)
        raw: np.ndarray = self.design.format.quantize(flat)
        return raw

    def expected(self, words: np.ndarray) -> np.ndarray:
        """Words of results for words of the stream."""
        raw, start = {}, 0
        form = self.design.format
        values = (
            form.quantize(words.astype(np.int32).view(np.float32).astype(np.float64))
            if self.design.floats
            else words
        )
        for name, shape in self.design.program.inputs.items():
            size = int(np.prod(shape))
            raw[name] = values[:, start : start + size]
            start += size
        results = run_raw(self.design.program, form, raw)
        if not self.design.floats:
            return results
        return (
            np.ascontiguousarray(form.value(results).astype(np.float32))
            .view(np.int32)
            .astype(np.int64)
        )

    def latency(self) -> float:
        """Seconds of one state in the circuit, from the start to the last result."""
        return self.design.schedule.cycles / self.clock

    def timing(self, states: int) -> Timing:
        """Of a batch, conversion of numbers aside: with float32 streams there is none on the
        host.
        """
        c, s = self.design.circuit, self.design.schedule
        word = lane_bits(c) // 8
        send = states * c.input_beats * c.lanes * word / self.link.bandwidth
        receive = states * c.output_beats * c.lanes * word / self.link.bandwidth
        extra = (
            c.input_beats
            + c.output_beats
            + (INPUT_STAGES + OUTPUT_STAGES if self.design.floats else 1)
        )
        one = (s.cycles + extra) / self.clock
        compute = one + (states - 1) * max(s.interval, c.input_beats, c.output_beats) / self.clock
        # the first state has to arrive before anything is computed, the last to be computed before
        # it leaves
        total = 2 * self.link.latency + max(
            compute + (send + receive) / states,
            send + one + receive / states,
            send / states + one + receive,
        )
        return Timing(states, send, compute, receive, total)
