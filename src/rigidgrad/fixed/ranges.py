"""Which format holds every value of a Program, and how far its results can be off: by intervals
(proved) and by samples (seen).

Intervals carry bounds of the inputs through the Program; they hold for every input within the
bounds, but forget that values depend on each other, so they grow along a chain of joints. Samples
show what happens at states of the robot's. Both carry an error bound along: with every product
rounded once,
|error of a·b| ≤ |a|·e_b + |b|·e_a + e_a·e_b + ½ unit, and errors of sums add up. At a sampled state
this bound is rigorous too (as long as nothing overflows).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.fixed.format import Fixed
from rigidgrad.program.program import Node, Program

TRIG_ERROR = 1.0  # of sine and cosine, in units of the resolution


@dataclass(frozen=True)
class Group:
    """Values of one kind: an input by its name, sines, products, sums, or an output by its name.
    `seen` and `proved` are their largest magnitudes.
    """

    name: str
    count: int
    seen: float | None
    proved: float | None

    def bits(self, magnitude: float | None) -> int | None:
        return (
            None if magnitude is None or not math.isfinite(magnitude) else integer_bits(magnitude)
        )


@dataclass(frozen=True)
class Ranges:
    """Of a Program in a format. `overflow` says what is known: "impossible" (proved), "not seen"
    (in the samples) or "seen".
    """

    format: Fixed
    groups: tuple[Group, ...]
    samples: int
    error_seen_bound: np.ndarray | None  # per output number: the largest bound at a sampled state
    error_proved: np.ndarray | None

    @property
    def overflow(self) -> str:
        if all(g.proved is not None and g.proved < self.format.limit for g in self.groups):
            return "impossible"
        seen = [g.seen for g in self.groups if g.seen is not None]
        return "seen" if any(x >= self.format.limit for x in seen) else "not seen"

    def proposed(self, width: int, *, proved: bool = False, margin: float = 2.0) -> Fixed:
        """The format of the given width whose range holds every group, with a margin over what was
        seen.
        """
        sizes = [g.proved if proved else g.seen and g.seen * margin for g in self.groups]
        if any(x is None or not math.isfinite(x) for x in sizes):
            raise InputError(
                "there are no bounds to propose a format from: give samples, or bounds of every"
                " input"
            )
        whole = integer_bits(max(x for x in sizes if x is not None))
        if whole > width:
            raise InputError(
                f"{width} bits are too few: the values need {whole} bits before the point alone"
            )
        return Fixed(whole, width - whole, self.format.rounding, self.format.overflow)

    def __str__(self) -> str:
        lines = [
            f"{self.format}, limit {self.format.limit:g}: overflow {self.overflow}",
            f"{'group':<16}{'values':>8}{'seen':>12}{'bits':>6}{'proved':>12}{'bits':>6}",
        ]
        for g in self.groups:
            cells = [
                ("-", "-") if x is None else (f"{x:.4g}", str(g.bits(x) or "-"))
                for x in (g.seen, g.proved)
            ]
            lines.append(
                f"{g.name:<16}{g.count:>8}"
                + "".join(f"{value:>12}{bits:>6}" for value, bits in cells)
            )
        return "\n".join(lines)


def integer_bits(magnitude: float) -> int:
    """Bits before the point, with the sign, that hold ±magnitude."""
    return max(math.frexp(magnitude)[1], 0) + 1


def constant_bits(program: Program, width: int) -> int:
    """Fraction bits that the factors of a Program's products leave in a word."""
    factors = [
        abs(program.nodes[node[1]][1])
        for node in program.nodes
        if node[0] == "mul" and program.nodes[node[1]][0] == "const"
    ]
    return width - integer_bits(max(factors)) if factors else width - 1


def analyse(
    program: Program,
    format: Fixed,
    *,
    samples: Mapping[str, np.ndarray] | None = None,
    bounds: Mapping[str, Any] | None = None,
) -> Ranges:
    """`samples`: arrays (states, numbers) of every input; `bounds`: the largest magnitude of every
    input's numbers, as a float or an array.

    The Program consists of sums, products, negations, sines, cosines and reciprocals, as those for
    circuits do. What is divided by an interval with zero in it has no proved bound.
    """
    if samples is None and bounds is None:
        raise InputError("give samples or bounds of the inputs")
    seen = _Carried(program, format).at(samples) if samples is not None else None
    proved = _Carried(program, format).within(bounds) if bounds is not None else None
    groups = _groups(program)
    members = [(name, nodes) for name, nodes in groups.items() if nodes]

    def largest(carried: tuple[list[float], list[float]] | None, nodes: list[int]) -> float | None:
        return None if carried is None else max(carried[0][i] for i in nodes)

    return Ranges(
        format,
        tuple(
            Group(name, len(nodes), largest(seen, nodes), largest(proved, nodes))
            for name, nodes in members
        ),
        0 if samples is None else len(next(iter(samples.values()))),
        None if seen is None else _of_results(program, format, seen[1]),
        None if proved is None else _of_results(program, format, proved[1]),
    )


def _groups(program: Program) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {
        name: []
        for name in (
            *(f"input {name}" for name in program.inputs),
            "sines",
            "reciprocals",
            "products",
            "sums",
        )
    }
    results: dict[int, str] = {}
    start = 0
    for name, shape in program.outputs.items():
        for r in program.results[start : start + math.prod(shape)]:
            if isinstance(r, tuple):
                results.setdefault(r[1], f"output {name}")
        start += math.prod(shape)
        groups[f"output {name}"] = []
    for i, node in enumerate(program.nodes):
        kind = node[0]
        if i in results:
            groups[results[i]].append(i)
        elif kind == "input":
            groups[f"input {node[1]}"].append(i)
        elif kind in ("sin", "cos"):
            groups["sines"].append(i)
        elif kind == "rcp":
            groups["reciprocals"].append(i)
        elif kind != "const":
            groups["products" if kind == "mul" else "sums"].append(i)
    return groups


def _of_results(program: Program, format: Fixed, error: list[float]) -> np.ndarray:
    return np.array(
        [
            error[r[1]] if isinstance(r, tuple) else abs(format.value(format.quantize(r)) - r)
            for r in program.results
        ]
    )


class _Carried:
    """Magnitudes and error bounds of every node: of arrays of states, or of intervals."""

    def __init__(self, program: Program, format: Fixed):
        self.program = program
        self.unit = format.resolution
        # a rounding to the nearest moves by half a unit, a truncation by a whole one
        self.rounding = self.unit * (1.0 if format.rounding == "truncate" else 0.5)
        self.constant_error = math.ldexp(self.rounding / self.unit, -format.constant_fraction)

    def at(self, samples: Mapping[str, np.ndarray]) -> tuple[list[float], list[float]]:
        x: list[Any] = []
        e: list[Any] = []
        for node in self.program.nodes:
            kind = node[0]
            if kind == "input":
                value, error = np.asarray(samples[node[1]], np.float64)[:, node[2]], self.rounding
            elif kind == "const":
                value, error = node[1], 0.0
            else:
                value, error = self._step(node, x, e, np.abs, lambda v: (np.sin(v), np.cos(v)))
            x.append(value)
            e.append(error)
        return [float(np.max(np.abs(v))) for v in x], [float(np.max(v)) for v in e]

    def _step(
        self, node: Node, x: list[Any], e: list[Any], size: Any, sincos: Any
    ) -> tuple[Any, Any]:
        kind, a = node[0], node[1]
        b = node[2] if len(node) > 2 else a
        if kind in ("add", "sub"):
            exact = [self.rounding if self.program.nodes[j][0] == "const" else e[j] for j in (a, b)]
            return (x[a] + x[b] if kind == "add" else x[a] - x[b]), exact[0] + exact[1]
        if kind == "mul":
            ea = self.constant_error if self.program.nodes[a][0] == "const" else e[a]
            with np.errstate(invalid="ignore"):
                error = size(x[a]) * e[b] + size(x[b]) * ea + ea * e[b] + self.rounding
            return x[a] * x[b], np.where(np.isnan(error), np.inf, error)  # nothing times no bound
        if kind == "neg":
            return -x[a], e[a]
        if kind in ("sin", "cos"):
            return sincos(x[a])[kind == "cos"], e[a] + TRIG_ERROR * self.unit
        if kind == "rcp":
            return self._quotient(x[a], e[a])
        raise InputError(f"no range is known for {kind!r}")

    def _quotient(self, x: Any, e: Any) -> tuple[Any, Any]:
        """1/x, and |1/x - 1/(x ± e)| ≤ e/(|x|·(|x| - e)) where that is known to keep off zero."""
        least = x.least() if isinstance(x, _Interval) else np.abs(x)
        off = np.maximum(least - e, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return 1.0 / x, np.where(off > 0, e / (least * off), np.inf) + self.rounding

    def within(self, bounds: Mapping[str, Any]) -> tuple[list[float], list[float]]:
        """Intervals, widened by the error of each value, so that the fixed-point values are inside
        too.
        """
        x: list[_Interval] = []
        e: list[float] = []
        for node in self.program.nodes:
            kind = node[0]
            if kind == "input":
                limit = float(
                    np.broadcast_to(
                        np.asarray(bounds[node[1]], np.float64).ravel(),
                        (math.prod(self.program.inputs[node[1]]),),
                    )[node[2]]
                )
                value, error = _Interval(-limit, limit), self.rounding
            elif kind == "const":
                value, error = _Interval(node[1], node[1]), 0.0
            else:
                value, error = self._step(
                    node,
                    x,
                    e,
                    _Interval.size,
                    lambda _: (_Interval(-1.0, 1.0), _Interval(-1.0, 1.0)),
                )
                if kind == "mul" and node[1] == node[2]:
                    value = _Interval(max(value.low, 0.0), value.high)
            x.append(value)
            e.append(error)
        return [v.size() + float(err) for v, err in zip(x, e, strict=True)], [float(v) for v in e]


@dataclass(frozen=True)
class _Interval:
    low: float
    high: float

    def size(self) -> float:
        return max(abs(self.low), abs(self.high))

    def least(self) -> float:
        """The smallest magnitude in it."""
        return 0.0 if self.low <= 0.0 <= self.high else min(abs(self.low), abs(self.high))

    def __rtruediv__(self, one: float) -> _Interval:
        if self.least() == 0.0:
            return _Interval(-math.inf, math.inf)
        return _Interval(one / self.high, one / self.low)

    def __add__(self, other: _Interval) -> _Interval:
        return _Interval(self.low + other.low, self.high + other.high)

    def __sub__(self, other: _Interval) -> _Interval:
        return _Interval(self.low - other.high, self.high - other.low)

    def __neg__(self) -> _Interval:
        return _Interval(-self.high, -self.low)

    def __mul__(self, other: _Interval) -> _Interval:
        products = [
            0.0 if x == 0.0 or y == 0.0 else x * y  # no number is infinite, bounds may be
            for x in (self.low, self.high)
            for y in (other.low, other.high)
        ]
        return _Interval(min(products), max(products))
