"""Which unit does which operation in which cycle: what the scheduler decides and the circuit is
made from.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from rigidgrad.program.program import Program
from rigidgrad.targets.verilog.lower import Delays


class Unit(NamedTuple):
    """kind: multiplier, adder, trig, reciprocal or load; the number counts within its kind."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind}{self.number}"


class Port(NamedTuple):
    unit: Unit
    side: int


@dataclass(frozen=True)
class Resources:
    """Units of each kind; `lanes` words of a stream's beat, which is also the number of output
    banks.
    """

    multipliers: int
    adders: int
    trig: int = 0
    reciprocals: int = 0
    loads: int = 4
    lanes: int = 16

    def units(self, kind: str) -> list[Unit]:
        count = {
            "multiplier": self.multipliers,
            "adder": self.adders,
            "trig": self.trig,
            "reciprocal": self.reciprocals,
            "load": self.loads,
        }[kind]
        return [Unit(kind, k) for k in range(count)]


@dataclass
class Operation:
    """`operands` by port side: (node, cycle in which it was written to the port), or a constant. A
    move makes its operand once more.
    """

    node: int
    unit: Unit
    start: int
    operands: tuple[tuple[int, int] | float, ...]
    move: bool = False


@dataclass
class Load:
    node: int
    unit: Unit
    start: int


@dataclass
class Delivery:
    """A word that a port keeps: taken from `source` in cycle `written`, read for the last time in
    cycle `last`.
    """

    node: int
    source: Unit
    written: int
    last: int


@dataclass
class Schedule:
    program: Program
    resources: Resources
    delays: Delays
    interval: int
    cycles: int  # from the start of a state to its last result in the output banks
    operations: list[Operation]
    loads: list[Load]
    deliveries: dict[Port, list[Delivery]]
    constants: dict[Port, list[float]]
    # (result, source, cycle, node)
    writes: list[tuple[int, Unit, int, int]] = field(default_factory=list)

    @property
    def instances(self) -> int:
        """States under way at a time."""
        return -(-self.cycles // self.interval)

    @property
    def last_load(self) -> int:
        return max((load.start for load in self.loads), default=0)

    def utilisation(self) -> dict[str, float]:
        busy: dict[str, int] = defaultdict(int)
        for operation in self.operations:
            busy[operation.unit.kind] += 1
        return {
            kind: n / (self.interval * len(self.resources.units(kind))) for kind, n in busy.items()
        }
