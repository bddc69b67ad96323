"""From a Program and a few choices to the files of a circuit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rigidgrad.errors import InputError
from rigidgrad.fixed.format import Fixed
from rigidgrad.fixed.ranges import constant_bits
from rigidgrad.program.program import Program
from rigidgrad.targets.names import comment, identifiers
from rigidgrad.targets.verilog import render as text
from rigidgrad.targets.verilog.circuit import Circuit, assemble
from rigidgrad.targets.verilog.lower import Delays, critical_path, lower, operation_counts
from rigidgrad.targets.verilog.schedule import Resources, Schedule
from rigidgrad.targets.verilog.scheduler import schedule, shortest_interval
from rigidgrad.targets.verilog.testbench import harness
from rigidgrad.targets.verilog.units import dsps_per_product

TRIG = ("inputs", "table")
OPTIONS = ("multipliers", "adders", "format", "trig", "interval", "floats", "lanes", "loads", "multiplier_stages", "adder_stages")
MARK = text.MARK


@dataclass(frozen=True)
class Design:
    name: str
    function: str
    circuit: Circuit
    floats: bool
    trig: str

    @property
    def format(self) -> Fixed:
        return self.circuit.format

    @property
    def program(self) -> Program:
        """The final Program: over the format it gives the circuit's results."""
        return self.circuit.program

    @property
    def schedule(self) -> Schedule:
        return self.circuit.schedule

    @property
    def dsps(self) -> int:
        """Of the multipliers, as a synthesis tool will find them."""
        r = self.schedule.resources
        return r.multipliers * dsps_per_product(self.format.width) + r.trig

    def describe(self) -> dict[str, Any]:
        s, r, c = self.schedule, self.schedule.resources, self.circuit
        return {
            "name": self.name,
            "function": self.function,
            "format": [self.format.integer_bits, self.format.fraction_bits],
            "constant_bits": self.format.constant_fraction,
            "rounding": f"{self.format.rounding}, after each product",
            "overflow": self.format.overflow,
            "sines": self.trig,
            "stream": "float32" if self.floats else "fixed point",
            "multipliers": r.multipliers,
            "adders": r.adders,
            "load_lanes": r.loads,
            "words_per_beat": r.lanes,
            "multiplier_stages": s.delays.multiplier,
            "adder_stages": s.delays.adder,
            "operations": operation_counts(self.program),
            "critical_path": critical_path(self.program, s.delays),
            "cycles": s.cycles,
            "interval": s.interval,
            "states_under_way": s.instances,
            "utilisation": {kind: round(x, 3) for kind, x in s.utilisation().items()},
            "moves": sum(o.move for o in s.operations),
            "loads": len(s.loads),
            "dsps_of_multipliers": self.dsps,
            "microcode_bits": c.code_bits,
            "port_sources_mean": round(sum(len(m.sources) for m in c.memories.values()) / max(len(c.memories), 1), 2),
            "port_sources_most": max((len(m.sources) for m in c.memories.values()), default=0),
            "inputs": {name: list(shape) for name, shape in self.program.inputs.items()},
            "outputs": {name: list(shape) for name, shape in self.program.outputs.items()},
        }

    def files(self) -> dict[str, str]:
        """The circuit, its harness for Verilator, and a description."""
        d = self.describe()
        about = "\n".join(
            [
                f"{comment(self.function)}, {self.format}, {d['multipliers']} multipliers, {d['adders']} adders: {d['cycles']} cycles, a state every {d['interval']}.",
                "Stream in:  "
                + ", ".join(f"{comment(k)} {tuple(s)}" for k, s in d["inputs"].items())
                + f", {d['words_per_beat']} words a beat, row-major.",
                "Stream out: " + ", ".join(f"{comment(k)} {tuple(s)}" for k, s in d["outputs"].items()) + ".",
                "out_flags: bit 0, a number of this state saturated; bit 1, an input was no number of the format.",
            ]
        )
        return {
            f"{self.name}.v": text.verilog(self.circuit, self.name, floats=self.floats, comment=about),
            f"{self.name}_harness.cpp": harness(self.circuit, self.name),
            f"{self.name}.json": json.dumps({"about": MARK} | d, indent=1) + "\n",
        }


def design(
    program: Program,
    function: str,
    name: str,
    *,
    multipliers: int = 32,
    adders: int | None = None,
    format: Fixed | tuple[int, int] = (16, 16),
    trig: str = "inputs",
    interval: int | str | None = None,
    floats: bool = False,
    lanes: int = 16,
    loads: int | None = None,
    multiplier_stages: int = 4,
    adder_stages: int = 2,
) -> Design:
    """`interval`: None for the least latency, "shortest" for the most states a second, or a number of cycles. Constants get the fraction bits that they leave free."""
    chosen = format if isinstance(format, Fixed) else Fixed(*format)
    _check(chosen, trig, interval, multiplier_stages, adder_stages)
    delays = Delays(multiplier=multiplier_stages, adder=adder_stages)
    try:
        final = lower(program, trig=trig, lanes=lanes, delays=delays)
    except InputError as error:
        raise InputError(
            f"{function} cannot be a circuit: {error}. The gradient of forward dynamics is 'fused_gradient', which takes q, v, a and Minv as inputs."
        ) from None
    if chosen.constant_bits is None:
        chosen = Fixed(chosen.integer_bits, chosen.fraction_bits, chosen.rounding, chosen.overflow, constant_bits(final, chosen.width))
    sines = any(node[0] in ("sin", "cos") for node in final.nodes)
    resources = Resources(
        multipliers, multipliers if adders is None else adders, int(sines), loads or min(max(multipliers // 4, 4), 16), lanes
    )
    if interval == "shortest":
        found = shortest_interval(final, resources, delays)
    else:
        found = schedule(final, resources, delays, interval)  # type: ignore[arg-type]
    return Design(name, function, assemble(found, chosen), floats, trig)


def _check(format: Fixed, trig: str, interval: int | str | None, multiplier_stages: int, adder_stages: int) -> None:
    if trig not in TRIG:
        raise InputError(f"trig is one of {', '.join(map(repr, TRIG))}, not {trig!r}")
    if format.rounding == "even":
        raise InputError("a circuit rounds to the nearest number or truncates, not to the even neighbour")
    if format.integer_bits < 2 or format.fraction_bits < 1:
        raise InputError(f"a circuit's numbers have at least 2 integer bits and 1 fraction bit, not {format}")
    if trig == "table" and format.trigonometry.exact:
        raise InputError(f"the table of sines for {format} is too large: choose trig='inputs', or fewer bits")
    if multiplier_stages < 4 or adder_stages < 2:
        raise InputError(f"a multiplier has at least 4 stages and an adder 2, not {multiplier_stages} and {adder_stages}")
    if not (interval is None or interval == "shortest" or isinstance(interval, int)):
        raise InputError(f"interval is None, 'shortest' or a number of cycles, not {interval!r}")


def render(
    programs: Mapping[str, Program], name: str, *, notes: Any = None, samples: Any = None, dtypes: Any = None, **options: Any
) -> dict[str, str]:
    """The files of a circuit for each program; options as for `design`."""
    del notes, samples, dtypes
    files: dict[str, str] = {}
    names = identifiers(f"{name}_{function}" for function in programs)
    for function, program in programs.items():
        files |= design(program, function, names[f"{name}_{function}"], **options).files()
    return files
