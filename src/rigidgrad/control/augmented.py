"""Constraints by an augmented Lagrangian whose penalties have rounded corners (programs.py): after
each descent, loose at first, multipliers, penalties and corners are renewed.

Nothing here depends on units: penalties begin as strong as the costs call for (penalty.py), corners
are as wide as what the costs would give way, and a constraint whose gradient is small is kept as
tightly as the distance that it stands for.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from rigidgrad.control.constrained import GAP
from rigidgrad.control.problem import Problem

FIRST_TOLERANCE, TIGHTEN = 1e-2, 0.2
# of the corners, as a part of what they are measured by
FIRST_WIDTH, SHARPEN, SHARPEN_AT_REST, LEAST_WIDTH = (0.03, 0.4, 0.03, 1e-6)
FALL = 0.25  # of a violation, each time; where it falls less, the penalty grows
GROW, MOST_GROWTH = 10.0, 1e7
TIMES = 60  # multipliers are renewed at most


class Options(Protocol):
    """What a solver says about when to stop."""

    @property
    def tolerance(self) -> float: ...
    @property
    def violation(self) -> float: ...
    @property
    def iterations(self) -> int: ...


class Outer:
    """Decides after each descent whether that was the end. Without constraints it always is."""

    def __init__(self, problem: Problem, options: Options):
        self.problem, self.options = problem, options

    def begin(self, x: np.ndarray, u: np.ndarray) -> None:
        """Forgets what earlier solves learnt, and measures penalties, corners and tolerances around
        the first guess; or takes over what a solution has learnt.
        """
        p, o = self.problem, self.options
        self.times, self.width, self.tolerance = 0, FIRST_WIDTH, o.tolerance
        if not p.constraints:
            return
        self.last = np.full(len(p.programs.controlled), np.inf)
        self.limit = o.violation * p.constraint_units(x, u)
        learnt = p.begin_multipliers(x, u)
        if learnt or not p.has_corners():
            self.width = LEAST_WIDTH
        if not learnt:
            self.tolerance = max(FIRST_TOLERANCE, self.tolerance)
        self.most = MOST_GROWTH * p.penalties
        p.soften(self.width)

    def take_over(self, other: Outer) -> None:
        self.times, self.width, self.tolerance = other.times, other.width, other.tolerance
        if self.problem.constraints:
            self.last, self.limit, self.most = other.last, other.limit, other.most

    def after(self, status: str, x: np.ndarray, u: np.ndarray, iterations: int) -> str:
        """The final status; or "" where the descent goes on, with new multipliers and the new
        `tolerance`.
        """
        p, o = self.problem, self.options
        if not p.constraints or status == "diverged":
            return status
        found = p.constraint_status(x, u)
        off = found.excess > self.limit
        settled = not off.any() and p.relative_gap(found.gap, p.cost(x, u)) <= GAP
        if settled and self.tolerance <= o.tolerance and self.width <= LEAST_WIDTH:
            return status
        if iterations >= o.iterations:
            return "iterations"
        self.times += 1
        if self.times >= TIMES:
            return "infeasible" if off.any() else "slow" if status == "converged" else status
        grow = np.where(off & (found.excess > FALL * self.last), GROW, 1.0)
        p.take_multipliers(found.multiplier, grow, self.most)
        # corners that are sharp before a descent has come to rest hide bounds from Newton's method
        # until it has stepped over them
        resting = settled and self.tolerance <= o.tolerance and status == "converged"
        self.width = max((SHARPEN_AT_REST if resting else SHARPEN) * self.width, LEAST_WIDTH)
        p.soften(self.width)
        self.tolerance = o.tolerance if settled else max(TIGHTEN * self.tolerance, o.tolerance)
        self.last = found.excess
        return ""
