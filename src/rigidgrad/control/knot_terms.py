"""The terms of one knot, over any scalar: costs, and constraints as terms of an augmented
Lagrangian. Numbers that may change (targets, weights, bounds, …) are parameters.

All parameters of one knot are one row; each term reads its own part of it. A constraint l ≤ c ≤ u
enters with one signed multiplier λ and one penalty μ a number: with y = c + λ/μ and t = max(y - u,
l - y), how far y is beyond its nearer bound, it costs μ/2 r², where r is max(t, 0) with its corner
rounded: r = (t + √(t² + s))/2 with the softness s. Newton's method then sees a bound before it gets
there, and the set of active bounds settles step by step while s shrinks (a smoothing after Chen,
Harker, Kanzow and Smale; as in an interior point method r (r - t) = s/4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rigidgrad.algorithms.joints import Vector
from rigidgrad.control.costs import Cost, Term
from rigidgrad.control.expansion import Whole, by_force
from rigidgrad.control.limits import Constraint
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.control.terms.cost import Quadratic, gauss_newton
from rigidgrad.scalars import Scalar, add, less, mul, select, sqrt, total

Acting = tuple[Term, dict[str, slice]]  # with its parts of a row of parameters
CONSTRAINT_NUMBERS = ("lower", "upper", "multiplier", "penalty", "softness")


class KnotTerms:
    """Costs and constraints of a system, and where their numbers are in a row of parameters."""

    def __init__(self, system: System, costs: Sequence[Cost], constraints: Sequence[Constraint]):
        self.system = system
        self.costs, self.constraints = tuple(costs), tuple(constraints)
        self.terms: tuple[Term, ...] = (*self.costs, *self.constraints)
        self.slices: list[dict[str, slice]] = []
        self.parameters = 0
        for term in self.terms:
            size, target = term.size(system), term.target_size(system)
            names = ("weight",) if isinstance(term, Cost) else CONSTRAINT_NUMBERS
            parts = {}
            for name, count in (("target", target), *((n, size) for n in names)):
                parts[name] = slice(self.parameters, self.parameters + count)
                self.parameters += count
            self.slices.append(parts)
        self.inputs = slice(self.parameters, self.parameters + system.inputs)  # of the dynamics
        self.parameters += system.inputs
        held = self.slices[len(self.costs) :]
        self.controlled = np.concatenate(
            [np.full(t.size(system), t.uses_control) for t in self.constraints]
            or [np.zeros(0, bool)]
        )
        # of all numbers of all constraints, where in a row each of their parameters is
        self.columns = {
            name: np.concatenate(
                [np.arange(part[name].start, part[name].stop) for part in held]
                or [np.zeros(0, int)]
            )
            for name in CONSTRAINT_NUMBERS
        }

    def values(
        self, x: Vector, u: Vector | None, p: Vector, system: System | None = None
    ) -> tuple[Scalar, Scalar]:
        """The cost of a knot, and the penalty for its constraints. Without a control it is the last
        knot. `system`: as it is given by p, with what else is known.
        """
        cost: list[Scalar] = []
        penalty: list[Scalar] = []
        s = self.given(p) if system is None else system
        for term, part in self._acting(u):
            control = self._zero() if u is None else u
            target = p[part["target"]]
            if isinstance(term, Cost):
                cost.append(term.value(s, x, control, target, p[part["weight"]]))
            else:
                beyond = _beyond(term.residual(s, x, control, target), p, part)
                penalty.append(
                    mul(
                        0.5,
                        total(
                            mul(m, mul(b.r, b.r))
                            for m, b in zip(p[part["penalty"]], beyond, strict=True)
                        ),
                    )
                )
        return total(cost), total(penalty)

    def expand(self, x: Vector, u: Vector | None, p: Vector) -> Whole:
        """The sum of all terms, to second order."""
        s = self.given(p)
        whole = self._expand(s, x, u, p, self._acting(u), s.nu)
        if u is not None:
            self._keep_controls(s, whole)
        return whole

    def _expand_some(
        self, s: RobotSystem, x: Vector, u: Vector, p: Vector, touching: bool
    ) -> Whole:
        """The sum of the terms of contact forces, by these, or of all others."""
        acting = [(t, part) for t, part in self._acting(u) if by_force(t) == touching]
        if touching:
            assert s.held is not None
            return self._expand(s, x, u, p, acting, sum(c.rows for c in s.held.constraints))
        whole = self._expand(s, x, u, p, acting, s.nu)
        self._keep_controls(s, whole)
        return whole

    def _keep_controls(self, s: System, whole: Whole) -> None:
        """Controls that do nothing, as in an impact, are best kept."""
        for k, idle in enumerate(s.idle):
            whole.luu[k][k] = add(whole.luu[k][k], idle)

    def _expand(
        self, s: System, x: Vector, u: Vector | None, p: Vector, acting: Iterable[Acting], m: int
    ) -> Whole:
        n = s.ndx
        value: Scalar = 0.0
        lx, lu = [0.0] * n, [0.0] * m
        lxx, lux, luu = (
            [[0.0] * n for _ in range(n)],
            [[0.0] * n for _ in range(m)],
            [[0.0] * m for _ in range(m)],
        )
        control = self._zero() if u is None else u
        for term, part in acting:
            target = p[part["target"]]
            if isinstance(term, Cost):
                q = term.expand(s, x, control, target, p[part["weight"]])
            else:
                mu = p[part["penalty"]]
                beyond = _beyond(term.residual(s, x, control, target), p, part)
                first = tuple(mul(m, b.slope) for m, b in zip(mu, beyond, strict=True))
                second = tuple(mul(m, b.bend) for m, b in zip(mu, beyond, strict=True))
                q = Quadratic(
                    0.0, *gauss_newton(term.jacobian(s, x, control, target), first, second)
                )
            value = add(value, q.value)
            for have, more in ((lx, q.lx), (lu, q.lu)):
                if more is not None:
                    have[:] = map(add, have, more)
            for rows, addition in ((lxx, q.lxx), (lux, q.lux), (luu, q.luu)):
                if addition is not None:
                    for row, other in zip(rows, addition, strict=True):
                        row[:] = map(add, row, other)
        return Whole(value, lx, lu, lxx, lux, luu)

    def given(self, p: Vector) -> System:
        """The system with its inputs from a row of parameters."""
        return self.system.given(p[self.inputs])

    def _acting(self, u: Vector | None) -> list[Acting]:
        return [
            (t, part)
            for t, part in zip(self.terms, self.slices, strict=True)
            if u is not None or not t.uses_control
        ]

    def _zero(self) -> Vector:
        return (0.0,) * self.system.nu


class Beyond(NamedTuple):
    """½ r² of a number of a constraint has these derivatives by it; `slope` has the sign of the
    side.
    """

    r: Scalar
    slope: Scalar
    bend: Scalar


def _beyond(values: Vector, p: Vector, part: Mapping[str, slice]) -> list[Beyond]:
    found = []
    for c, low, high, multiplier, penalty, softness in zip(
        values, *(p[part[name]] for name in CONSTRAINT_NUMBERS), strict=True
    ):
        y = c + multiplier / penalty
        over, under = y - high, low - y
        above = less(under, over)
        t = select(above, over, under)
        inside = less(t, 0.0)
        q = sqrt(t * t + softness)
        a = 0.5 * (q + select(inside, -t, t))
        r = select(inside, 0.25 * softness / a, a)  # inside (t + q)/2 would cancel
        share = r / q
        found.append(Beyond(r, mul(select(above, r, -r), share), share * share * (2.0 - t / q)))
    return found
