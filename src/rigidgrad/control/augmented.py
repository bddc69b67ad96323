"""Constraints by an augmented Lagrangian whose penalties have rounded corners (programs.py): after each descent, loose at first, multipliers, penalties and corners are renewed."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from rigidgrad.control.problem import Problem

_FIRST_TOLERANCE, _TIGHTEN = 1e-2, 0.4
_FIRST_WIDTH, _SHARPEN, _LEAST_WIDTH = 0.03, 0.4, 1e-7  # of the corners, as a part of half the range
_FIRST_FALL = 0.25  # of the violation, each time; where it falls less, the penalty grows
_GROW, _MOST_PENALTY = 10.0, 1e8
_GAP = 1e-6  # relatively to the cost, what multipliers times distances to their bounds may still be
_TIMES = 60  # multipliers are renewed at most


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
        self.begin()

    def begin(self) -> None:
        """Forgets what earlier solves learnt."""
        self.times, self.last, self.width = 0, np.inf, _FIRST_WIDTH
        self.tolerance = self.options.tolerance
        if self.problem.constraints:
            self.problem.forget_multipliers()
            self.problem.soften(self.width)
            self.tolerance = max(_FIRST_TOLERANCE, self.tolerance)

    def take_over(self, other: Outer) -> None:
        self.times, self.last, self.tolerance, self.width = other.times, other.last, other.tolerance, other.width

    def after(self, status: str, x: np.ndarray, u: np.ndarray, iterations: int) -> str:
        """The final status; or "" where the descent goes on, with new multipliers and the new `tolerance`."""
        p, o = self.problem, self.options
        if not p.constraints or status == "diverged":
            return status
        stand = p.stand(x, u)
        kept = stand.violation <= o.violation
        settled = kept and stand.gap <= _GAP * abs(p.cost(x, u))
        if settled and self.tolerance <= o.tolerance:
            return status
        if iterations >= o.iterations:
            return "iterations"
        self.times += 1
        if self.times >= _TIMES:
            return status if kept else "infeasible"
        grow = 1.0 if stand.violation <= max(_FIRST_FALL * self.last, o.violation) else _GROW
        p.take_multipliers(stand.multiplier, grow, _MOST_PENALTY)
        self.width = max(_SHARPEN * self.width, _LEAST_WIDTH)
        p.soften(self.width)
        self.tolerance = o.tolerance if settled else max(_TIGHTEN * self.tolerance, o.tolerance)
        self.last = stand.violation
        return ""
