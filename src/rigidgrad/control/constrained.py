"""Constraints of a problem, as the augmented Lagrangian sees them: multipliers and penalties, one
of each for every number of a constraint at every knot.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rigidgrad.control.limits import Constraint
from rigidgrad.control.penalty import RATIO, scaled_penalties
from rigidgrad.control.trajectories import Trajectories

FIRST_PENALTY = 10.0
FAR = 1e12  # stands for an infinite bound
GAP = (
    1e-6  # relative to the cost, what multipliers times distances to their bounds may be in the end
)
_NOTHING = 1e-12  # a residual as good as none
SHARP = 1e-30  # the softness of a corner that is as good as sharp


class ConstraintStatus(NamedTuple):
    """How a trajectory stands to its constraints: the largest excess of each (constraints,), the
    multipliers that it calls for (knots, constraints), and Σ |multiplier| · distance to the
    bound.
    """

    excess: np.ndarray
    multiplier: np.ndarray
    gap: float


class Constrained(Trajectories):
    """The part of a problem that is about its constraints."""

    constraints: tuple[Constraint, ...]
    # multipliers and penalties that came with the guess
    learnt: tuple[np.ndarray, np.ndarray] | None
    corner: np.ndarray | float  # what roundings of penalties are measured by, (constraints,)

    def negligible(self) -> float:
        """A cost as good as none: that of residuals of 1e-12."""
        return (
            0.5
            * _NOTHING**2
            * sum(
                float(self.p[:, part["weight"]].sum())
                for part in self.programs.slices[: len(self.programs.costs)]
            )
        )

    def forget_multipliers(self) -> None:
        """The next solve begins with multipliers of 0."""
        columns = self.programs.columns
        self.p[:, columns["multiplier"]] = 0.0
        self.p[:, columns["penalty"]] = FIRST_PENALTY
        self.p[:, columns["softness"]] = SHARP
        self.corner = 1.0

    @property
    def multipliers(self) -> np.ndarray:
        """λ (knots, constraints): positive at upper bounds, negative at lower ones."""
        return self.p[:, self.programs.columns["multiplier"]]

    @property
    def penalties(self) -> np.ndarray:
        """μ (knots, constraints)."""
        return self.p[:, self.programs.columns["penalty"]]

    def scale_penalty(self, x: np.ndarray, u: np.ndarray, ratio: float = RATIO) -> None:
        """Penalties become as strong as the costs around a trajectory call for, times `ratio`
        (penalty.py); multipliers stay.
        """
        scaled = scaled_penalties(self, x, u, ratio)
        self.p[:, self.programs.columns["penalty"]] = np.where(
            np.isfinite(scaled), scaled, FIRST_PENALTY
        )

    def begin_multipliers(self, x: np.ndarray, u: np.ndarray) -> bool:
        """Sets multipliers and penalties for a solve from a first guess: those that came with it
        (True), or none and as the costs call for.
        """
        self.forget_multipliers()
        if self.learnt is None:
            self.scale_penalty(x, u)
        else:
            (
                self.p[:, self.programs.columns["multiplier"]],
                self.p[:, self.programs.columns["penalty"]],
            ) = self.learnt
        self.measure_corners(x, u)
        return self.learnt is not None

    def measure_corners(self, x: np.ndarray, u: np.ndarray) -> None:
        """What roundings are measured by: how far a constraint moves at the cost of the whole
        trajectory, half of its range, and how far away from its bounds the trajectory is.
        """
        c, lower, upper = self._constraint_numbers(x, u)
        reach = np.sqrt(2.0 * RATIO * abs(self.cost(x, u)) / self.penalties).max(
            axis=0, initial=0.0
        )
        held = (lower > -FAR) | (upper < FAR)
        away = np.where(held, np.minimum(np.abs(c - lower), np.abs(c - upper)), 0.0).max(
            axis=0, initial=0.0
        )
        measure = np.where(away > 0.0, np.minimum(reach, away), reach)
        self.corner = np.where(measure > 0.0, measure, 1.0)

    def soften(self, width: float) -> None:
        """Rounds the corners of the penalties over `width` times what they are measured by;
        equalities have none.
        """
        columns = self.programs.columns
        lower, upper = self.p[:, columns["lower"]], self.p[:, columns["upper"]]
        half = np.where(
            (lower > -FAR) & (upper < FAR),
            np.minimum(0.5 * (upper - lower), self.corner),
            self.corner,
        )
        self.p[:, columns["softness"]] = (2.0 * width * half) ** 2 + SHARP * np.square(self.corner)

    def has_corners(self) -> bool:
        """Whether any constraint is more than an equality."""
        lower, upper = (self.p[:, self.programs.columns[name]] for name in ("lower", "upper"))
        return bool((((lower > -FAR) | (upper < FAR)) & (lower < upper)).any())

    def relative_gap(self, gap: float, cost: float) -> float:
        """Multipliers times distances to their bounds, as a part of the cost, or of the smallest
        one that counts.
        """
        return gap / max(abs(cost), self.negligible() / GAP, 1e-300)

    def constraint_units(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """What a violation of 1e-4 and the like is measured in, (constraints,): a constraint's own
        unit, or, where its gradient is smaller than 1, the state or control that it stands for.
        """
        gx, gu = self.programs.constraint_jacobians(x, np.concatenate([u, u[-1:]]), self.p)
        gu[-1] = 0.0
        size = np.sqrt((gx**2).sum(axis=2) + (gu**2).sum(axis=2)).max(axis=0, initial=0.0)
        return np.where((size > 0.0) & (size < 1.0), size, 1.0)

    def excess(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """How far each constraint is violated, signed, (knots, constraints); 0 where it holds."""
        c, lower, upper = self._constraint_numbers(x, u)
        excess: np.ndarray = c - np.clip(c, lower, upper)
        return excess

    def violation(self, x: np.ndarray, u: np.ndarray) -> float:
        """The largest excess."""
        return float(np.max(np.abs(self.excess(x, u)), initial=0.0)) if self.constraints else 0.0

    def constraint_status(self, x: np.ndarray, u: np.ndarray) -> ConstraintStatus:
        """How a trajectory stands to its constraints."""
        c, lower, upper = self._constraint_numbers(x, u)
        columns = self.programs.columns
        mu, softness = self.p[:, columns["penalty"]], self.p[:, columns["softness"]]
        y = c + self.p[:, columns["multiplier"]] / mu
        over, under = y - upper, lower - y
        above = over > under
        t = np.where(above, over, under)
        q = np.sqrt(t * t + softness)
        a = 0.5 * (q + np.abs(t))
        r = np.where(t < 0.0, 0.25 * softness / a, a)
        multiplier = mu * r * r / q
        gap = float(np.vdot(multiplier, np.abs(np.where(above, upper - c, c - lower))))
        excess = np.abs(c - np.clip(c, lower, upper)).max(axis=0, initial=0.0)
        return ConstraintStatus(excess, np.where(above, multiplier, -multiplier), gap)

    def take_multipliers(self, multiplier: np.ndarray, grow: Any = 1.0, most: Any = np.inf) -> None:
        """New multipliers; penalties grow by factors (constraints,), up to `most`."""
        columns = self.programs.columns
        self.p[:, columns["multiplier"]] = multiplier
        self.p[:, columns["penalty"]] = np.minimum(
            self.p[:, columns["penalty"]] * grow, np.maximum(most, self.p[:, columns["penalty"]])
        )

    def _constraint_numbers(
        self, x: np.ndarray, u: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values and bounds of all constraints; the last knot, which has no control, is free of
        those that use it.
        """
        c = self.programs.constraint_values(x, np.concatenate([u, u[-1:]]), self.p)
        lower, upper = (self.p[:, self.programs.columns[name]] for name in ("lower", "upper"))
        last = self.programs.controlled
        lower[-1, last], upper[-1, last] = -FAR, FAR
        return c, lower, upper

    def with_last_control(self) -> np.ndarray:
        """Parameters of all knots for those that give the last one a control, too: it is free of
        constraints that use it.
        """
        columns, last = self.programs.columns, self.programs.controlled
        p = self.p.copy()
        for name, value in (
            ("lower", -FAR),
            ("upper", FAR),
            ("multiplier", 0.0),
            ("penalty", 1.0),
            ("softness", SHARP),
        ):
            p[-1, columns[name][last]] = value
        return p
