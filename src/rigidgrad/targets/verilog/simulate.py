"""A circuit in Verilator, against its final Program over fixed-point numbers: every bit of every state."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rigidgrad.targets.verilog import tools
from rigidgrad.targets.verilog.design import Design
from rigidgrad.targets.verilog.driver import Coprocessor

QUICK = 3000  # states up to which compiling the model without optimisation takes less time than it costs


@dataclass(frozen=True)
class Simulation:
    """`mismatches` of `numbers` result words; `round_trip`: cycles from a lone state's first beat in to its last beat out; `between`: of the last two states' ends."""

    states: int
    numbers: int
    mismatches: int
    saturated: int
    invalid: int
    cycles: int
    round_trip: int
    between: int

    def summary(self) -> dict[str, Any]:
        return asdict(self)


class Simulator:
    """A compiled model of the circuit."""

    def __init__(self, design: Design, folder: Path, *, optimised: bool = False):
        verilator = tools.need("verilator")
        self.design, self.folder = design, folder.resolve()  # the model runs there, not in the caller's folder
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in design.files().items():
            (folder / name).write_text(text, encoding="utf-8")
        level = "-O1" if optimised else "-O0"
        warnings = ["-Wall", "-Wno-DECLFILENAME", "-Wno-UNUSED", "-Wno-WIDTH", "-Wno-BLKSEQ"]
        split = ["--output-split", "4000", "--output-split-cfuncs", "400"]
        build = ["--build", "-j", str(min(os.cpu_count() or 1, 4)), "-CFLAGS", level, "-MAKEFLAGS", f"OPT_FAST={level}"]
        files = ["--top-module", design.name, "--Mdir", "model", f"{design.name}.v", f"{design.name}_harness.cpp"]
        tools.run(
            [*verilator, *warnings, *split, "-O3", "--x-assign", "unique", "--x-initial", "unique", "--cc", "--exe", *build, *files], folder
        )

    def run(self, words: np.ndarray, *, in_stall: int = 0, out_stall: int = 0, seed: int = 1) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """Result words and flags of each state; states, cycles, round trip and interval as the harness counts them. Stalls in percent of the cycles."""
        inputs, outputs = self.folder / "inputs.bin", self.folder / "outputs.bin"
        np.ascontiguousarray(words, np.int64).tofile(inputs)
        model = str(self.folder / "model" / f"V{self.design.name}")
        said = tools.run([model, str(inputs), str(outputs), str(in_stall), str(out_stall), str(seed)], self.folder)
        rows = np.fromfile(outputs, np.int64).reshape(-1, self.design.circuit.output_words + 1)
        return rows[:, :-1], rows[:, -1], [int(x) for x in said.split()]

    def compare(self, words: np.ndarray, **stalls: int) -> Simulation:
        results, flags, (states, cycles, round_trip, between) = self.run(words, **stalls)
        expected = Coprocessor(self.design, 1.0).expected(words)
        if results.shape != expected.shape:
            raise tools.ToolError(f"the circuit gave {len(results)} states for {len(expected)}")
        return Simulation(
            states,
            expected.size,
            int(np.count_nonzero(results != expected)),
            int(np.count_nonzero(flags & 1)),
            int(np.count_nonzero(flags & 2)),
            cycles,
            round_trip,
            between,
        )


def simulate(design: Design, words: np.ndarray, folder: Path, **stalls: int) -> Simulation:
    return Simulator(design, folder, optimised=len(words) > QUICK).compare(words, **stalls)
