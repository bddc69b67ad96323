"""From a Program and a few choices to the files of a circuit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rigidgrad.errors import InputError
from rigidgrad.fixed.format import Fixed
from rigidgrad.fixed.ranges import constant_bits
from rigidgrad.program.program import Program
from rigidgrad.targets.names import comment, identifiers
from rigidgrad.targets.verilog import render as text
from rigidgrad.targets.verilog.circuit import Circuit, assemble
from rigidgrad.targets.verilog.datapaths import by_columns
from rigidgrad.targets.verilog.lower import Delays, critical_path, lower, operation_counts
from rigidgrad.targets.verilog.reciprocal import dsps_of_reciprocal
from rigidgrad.targets.verilog.schedule import Resources, Schedule
from rigidgrad.targets.verilog.scheduler import schedule, shortest_interval
from rigidgrad.targets.verilog.testbench import harness, testbench
from rigidgrad.targets.verilog.units import dsps_per_product

TRIG = ("inputs", "table")
OPTIONS = (
    "multipliers",
    "adders",
    "format",
    "trig",
    "interval",
    "floats",
    "lanes",
    "loads",
    "multiplier_stages",
    "adder_stages",
    "code_stages",
    "dsps",
    "datapaths",
)
DATAPATHS = ("shared", "columns")
FEWEST = 16  # multipliers that a budget is first tried with
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
        W = self.format.width
        return r.multipliers * dsps_per_product(W) + r.trig + r.reciprocals * dsps_of_reciprocal(W)

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
            "code_stages": s.delays.code,
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
            "port_sources_mean": round(
                sum(len(m.sources) for m in c.memories.values()) / max(len(c.memories), 1), 2
            ),
            "port_sources_most": max((len(m.sources) for m in c.memories.values()), default=0),
            "inputs": {name: list(shape) for name, shape in self.program.inputs.items()},
            "outputs": {name: list(shape) for name, shape in self.program.outputs.items()},
        }

    def files(self) -> dict[str, str]:
        """The circuit, what runs it in simulators, and a description."""
        d = self.describe()
        about = "\n".join(
            [
                (
                    f"{comment(self.function)}, {self.format}, {d['multipliers']} multipliers,"
                    f" {d['adders']} adders: {d['cycles']} cycles, a state every {d['interval']}."
                ),
                "Stream in:  "
                + ", ".join(f"{comment(k)} {tuple(s)}" for k, s in d["inputs"].items())
                + f", {d['words_per_beat']} words a beat, row-major.",
                "Stream out: "
                + ", ".join(f"{comment(k)} {tuple(s)}" for k, s in d["outputs"].items())
                + ".",
                (
                    "out_flags: bit 0, a number of this state saturated; bit 1, an input was no"
                    " number of the format."
                ),
            ]
        )
        return {
            f"{self.name}.v": text.verilog(
                self.circuit, self.name, floats=self.floats, comment=about
            ),
            f"{self.name}_harness.cpp": harness(self.circuit, self.name),
            f"{self.name}_testbench.v": testbench(self.circuit, self.name),
            f"{self.name}.json": json.dumps({"about": MARK} | d, indent=1) + "\n",
        }


def design(
    program: Program,
    function: str,
    name: str,
    *,
    multipliers: int | None = None,
    adders: int | None = None,
    format: Fixed | tuple[int, int] = (16, 16),
    trig: str = "inputs",
    interval: int | str | None = None,
    floats: bool = False,
    lanes: int = 16,
    loads: int | None = None,
    multiplier_stages: int = 4,
    adder_stages: int = 2,
    code_stages: int = 1,
    dsps: int | None = None,
    datapaths: str = "shared",
) -> Design:
    """`interval`: None for the least latency, "shortest" for the most states a second, or a number
    of cycles. Constants get the fraction bits that they leave free.

    `multipliers` is 32, or with `dsps` as many as shorten the schedule within so many DSPs.
    `datapaths`: "columns" gives each column of a gradient units of its own.
    """
    chosen = format if isinstance(format, Fixed) else Fixed(*format)
    _check(chosen, trig, interval, multiplier_stages, adder_stages)
    if datapaths not in DATAPATHS:
        raise InputError(
            f"datapaths is one of {', '.join(map(repr, DATAPATHS))}, not {datapaths!r}"
        )
    if datapaths == "columns" and interval == "shortest":
        raise InputError(
            "datapaths of columns are for least latency: leave interval='shortest' out"
        )
    if code_stages not in (1, 2):
        raise InputError(
            f"code_stages, registers behind the microcode, is 1 or 2, not {code_stages}"
        )
    if dsps is not None and multipliers is not None:
        raise InputError("give multipliers or a budget of dsps, not both")
    delays = Delays(multiplier=multiplier_stages, adder=adder_stages, code=code_stages)
    try:
        final = lower(program, trig=trig, lanes=lanes, delays=delays)
    except InputError as error:
        raise InputError(f"{function} cannot be a circuit: {error}") from None
    if chosen.constant_bits is None:
        chosen = Fixed(
            chosen.integer_bits,
            chosen.fraction_bits,
            chosen.rounding,
            chosen.overflow,
            constant_bits(final, chosen.width),
        )
    kinds = {node[0] for node in final.nodes}
    if "rcp" in kinds and chosen.overflow == "wrap":
        raise InputError(f"{function} divides: its numbers saturate, overflow='wrap' cannot be")

    def resources(count: int) -> Resources:
        return Resources(
            count,
            count if adders is None else adders,
            int(bool(kinds & {"sin", "cos"})),
            int("rcp" in kinds),
            loads or min(max(count // 4, 4), 16),
            lanes,
        )

    def scheduled(count: int) -> Schedule:
        units = resources(count)
        if interval == "shortest":
            return shortest_interval(final, units, delays)
        paths = by_columns(final, units) if datapaths == "columns" else None
        return schedule(final, units, delays, interval, paths)  # type: ignore[arg-type]

    def made(count: int) -> Design:
        return Design(name, function, assemble(scheduled(count), chosen), floats, trig)

    if dsps is None:
        return made(32 if multipliers is None else multipliers)
    return _within(dsps, made, critical_path(final, delays))


def _within(dsps: int, made: Callable[[int], Design], chain: int) -> Design:
    """Twice as many multipliers as long as that shortens the schedule, within the budget."""
    best, count = made(FEWEST), FEWEST
    if best.dsps > dsps:
        raise InputError(f"{FEWEST} multipliers take {best.dsps} DSPs, more than {dsps}")
    while best.schedule.cycles > chain:
        count *= 2
        found = made(count)
        if found.dsps > dsps or found.schedule.cycles >= best.schedule.cycles:
            break
        best = found
    return best


def _check(
    format: Fixed, trig: str, interval: int | str | None, multiplier_stages: int, adder_stages: int
) -> None:
    if trig not in TRIG:
        raise InputError(f"trig is one of {', '.join(map(repr, TRIG))}, not {trig!r}")
    if format.rounding == "even":
        raise InputError(
            "a circuit rounds to the nearest number or truncates, not to the even neighbour"
        )
    if format.integer_bits < 2 or format.fraction_bits < 1:
        raise InputError(
            f"a circuit's numbers have at least 2 integer bits and 1 fraction bit, not {format}"
        )
    if trig == "table" and format.trigonometry.exact:
        raise InputError(
            f"the table of sines for {format} is too large: choose trig='inputs', or fewer bits"
        )
    if multiplier_stages < 1 or adder_stages < 1:
        raise InputError(f"a unit has at least 1 stage, not {min(multiplier_stages, adder_stages)}")
    if not (interval is None or interval == "shortest" or isinstance(interval, int)):
        raise InputError(f"interval is None, 'shortest' or a number of cycles, not {interval!r}")


def render(
    programs: Mapping[str, Program],
    name: str,
    *,
    notes: Any = None,
    samples: Any = None,
    dtypes: Any = None,
    **options: Any,
) -> dict[str, str]:
    """The files of a circuit for each program; options as for `design`."""
    del notes, samples, dtypes
    files: dict[str, str] = {}
    names = identifiers(f"{name}_{function}" for function in programs)
    for function, program in programs.items():
        files |= design(program, function, names[f"{name}_{function}"], **options).files()
    return files
