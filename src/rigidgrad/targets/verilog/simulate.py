"""A circuit in a simulator, against its final Program over fixed-point numbers: every bit of every
state, while both sides wait at random and resets come at random moments.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rigidgrad.targets.verilog import tools
from rigidgrad.targets.verilog.design import Design
from rigidgrad.targets.verilog.driver import Coprocessor
from rigidgrad.targets.verilog.render import lane_bits

# states up to which compiling the model without optimisation takes less time than it costs
QUICK = 3000


@dataclass(frozen=True)
class Simulation:
    """`mismatches` of `numbers` result words; `round_trip`: cycles from a lone state's first beat
    in to its last beat out; `between`: of the last two states' ends.
    """

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


Run = tuple[np.ndarray, np.ndarray, list[int]]


class Simulator(ABC):
    """A compiled model of the circuit."""

    def __init__(self, design: Design, folder: Path):
        # the model runs there, not in the caller's folder
        self.design, self.folder = (design, folder.resolve())
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in design.files().items():
            (folder / name).write_text(text, encoding="utf-8")

    @abstractmethod
    def run(
        self,
        words: np.ndarray,
        *,
        in_stall: int = 0,
        out_stall: int = 0,
        resets: int = 0,
        seed: int = 1,
    ) -> Run:
        """Result words and flags of each state; states, cycles, round trip and interval as the
        testbench counts them. Stalls in percent of the cycles; mean cycles between resets, 0 for
        none but the first.
        """

    def compare(self, words: np.ndarray, **disturbed: int) -> Simulation:
        """A run against the final Program; `disturbed` as for `run`."""
        results, flags, (states, cycles, round_trip, between) = self.run(words, **disturbed)
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


_WHOLE = "VM_PARALLEL_BUILDS"  # of Verilator's makefile: 0 compiles all classes as one file


class Verilator(Simulator):
    """Two states, so quick; registers start with random values."""

    def __init__(self, design: Design, folder: Path, *, optimised: bool = False):
        verilator = tools.need("verilator")
        super().__init__(design, folder)
        level = "-O1" if optimised else "-O0"
        warnings = ["-Wall", "-Wno-DECLFILENAME", "-Wno-UNUSED", "-Wno-WIDTH", "-Wno-BLKSEQ"]
        split = ["--output-split", "4000", "--output-split-cfuncs", "400"]
        # unoptimised, most of the time goes into headers: so all of the model is one file
        made = [f"OPT_FAST={level}"] + ([] if optimised else ["OPT_GLOBAL=-O0", f"{_WHOLE}=0"])
        flags = [word for text in made for word in ("-MAKEFLAGS", text)]
        jobs = ["-j", str(min(os.cpu_count() or 1, 4))]
        build = ["--build", *jobs, "-CFLAGS", level, *flags]
        files = [
            "--top-module",
            design.name,
            "--Mdir",
            "model",
            f"{design.name}.v",
            f"{design.name}_harness.cpp",
        ]
        unknown = ["--x-assign", "unique", "--x-initial", "unique"]
        tools.run(
            [*verilator, *warnings, *split, "-O3", *unknown, "--cc", "--exe", *build, *files],
            self.folder,
        )

    def run(
        self,
        words: np.ndarray,
        *,
        in_stall: int = 0,
        out_stall: int = 0,
        resets: int = 0,
        seed: int = 1,
    ) -> Run:
        inputs, outputs = self.folder / "inputs.bin", self.folder / "outputs.bin"
        np.ascontiguousarray(words, np.int64).tofile(inputs)
        model = str(self.folder / "model" / f"V{self.design.name}")
        numbers = [str(x) for x in (in_stall, out_stall, seed, resets)]
        said = tools.run([model, str(inputs), str(outputs), *numbers], self.folder)
        rows = np.fromfile(outputs, np.int64).reshape(-1, self.design.circuit.output_words + 1)
        return rows[:, :-1], rows[:, -1], [int(x) for x in said.split()]


class Icarus(Simulator):
    """Four states, so slow; registers start unknown."""

    def __init__(self, design: Design, folder: Path):
        self.compiler, self.runner = tools.need("iverilog"), tools.need("vvp")
        super().__init__(design, folder)

    def run(
        self,
        words: np.ndarray,
        *,
        in_stall: int = 0,
        out_stall: int = 0,
        resets: int = 0,
        seed: int = 1,
    ) -> Run:
        name, bits = self.design.name, lane_bits(self.design.circuit)
        top = f"{name}_testbench"
        size = f"-P{top}.STATES={len(words)}"
        sources = [f"{name}.v", f"{top}.v"]
        tools.run([*self.compiler, "-g2005", "-s", top, size, "-o", "model", *sources], self.folder)
        masked = words.astype(np.int64).view(np.uint64) & np.uint64((1 << bits) - 1)
        (self.folder / "inputs.hex").write_text(
            "\n".join(" ".join(f"{x:x}" for x in row) for row in masked.tolist()), encoding="ascii"
        )
        numbers = [f"+in_stall={in_stall}", f"+out_stall={out_stall}"]
        numbers += [f"+resets={resets}", f"+seed={seed}"]
        files = ["+inputs=inputs.hex", "+outputs=outputs.hex"]
        said = tools.run([*self.runner, "-n", "model", *files, *numbers], self.folder).split("\n")
        counts = next((x.split() for x in reversed(said) if x.strip()), [])
        if not all(x.isdigit() for x in counts) or len(counts) != 4:
            raise tools.ToolError(f"{name} in Icarus: {' '.join(said).strip()}")
        text = (self.folder / "outputs.hex").read_text(encoding="ascii")
        if "x" in text or "z" in text:
            raise tools.ToolError(f"{name} in Icarus: a result has unknown bits")
        raw = np.array([int(x, 16) for x in text.split()], np.uint64)
        rows = raw.reshape(-1, self.design.circuit.output_words + 1)
        shift = np.int64(64 - bits)
        return (
            (rows[:, :-1].view(np.int64) << shift) >> shift,
            rows[:, -1].astype(np.int64),
            [int(x) for x in counts],
        )


def simulate(design: Design, words: np.ndarray, folder: Path, **disturbed: int) -> Simulation:
    """One comparison in Verilator."""
    return Verilator(design, folder, optimised=len(words) > QUICK).compare(words, **disturbed)
