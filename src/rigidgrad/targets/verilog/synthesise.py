"""A circuit through yosys: cells of an UltraScale+ device, with the hierarchy kept, and transistors
of generic CMOS cells.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from rigidgrad.targets.verilog import tools
from rigidgrad.targets.verilog.design import Design
from rigidgrad.targets.verilog.netlist import Resources, resources

VCU118_DSPS = 6840


@dataclass(frozen=True)
class Area:
    """Of generic cells: `transistors` of logic and registers as yosys estimates them, memories
    apart, in bits.
    """

    transistors: int
    memory_bits: int

    @property
    def gates(self) -> float:
        """In NAND gates of two inputs, of four transistors each."""
        return self.transistors / 4


@dataclass(frozen=True)
class Synthesis:
    resources: Resources
    seconds: float  # of CPU time


def synthesise(design: Design, folder: Path, timeout: float = 3600) -> Synthesis:
    """synth_xilinx -family xcup; resources by the netlist's cells."""
    yosys = _prepared(design, folder)
    script = (
        f"read_verilog {design.name}.v; synth_xilinx -family xcup -top {design.name} -noiopad;"
        " write_json netlist.json"
    )
    began = _children()
    tools.run([*yosys, "-q", "-p", script], folder, timeout)
    return Synthesis(resources(folder / "netlist.json", design.name), _children() - began)


def _children() -> float:
    """Seconds of CPU time that finished child processes took."""
    times = os.times()
    return times.children_user + times.children_system


def generic_area(design: Design, folder: Path, timeout: float = 3600) -> Area:
    """Simple gates and flip-flops of a CMOS library that exists nowhere: for comparing designs, not
    a chip's area.
    """
    yosys = _prepared(design, folder)
    steps = (
        "proc; opt -full; wreduce; alumacc; opt; memory -nomap; opt; techmap; opt; abc -g cmos2;"
        " opt_clean"
    )
    script = (
        f"read_verilog {design.name}.v; hierarchy -top {design.name}; {steps}; tee -q -o area.txt"
        " stat -tech cmos"
    )
    tools.run([*yosys, "-q", "-p", script], folder, timeout)
    found = re.findall(
        r"Estimated number of transistors:\s+(\d+)", (folder / "area.txt").read_text()
    )
    if not found:
        raise tools.ToolError("yosys gave no number of transistors")
    c = design.circuit
    W = design.format.width
    ports = sum(W << m.address_bits for m in c.memories.values())
    inputs = (
        len({u for u in c.codes if getattr(u, "kind", "") == "load"})
        * c.lanes
        * c.input_beats
        * c.input_slots
        * W
    )
    outputs = c.lanes * c.output_beats * c.output_slots * W
    return Area(int(found[-1]), c.code_bits + ports + inputs + outputs)


def _prepared(design: Design, folder: Path) -> list[str]:
    yosys = tools.need("yosys")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{design.name}.v").write_text(design.files()[f"{design.name}.v"], encoding="utf-8")
    return yosys
