"""What a controller's target is for: the first Reach or State cost, whose numbers follow a value or
a function of time over the horizon.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.control.costs import Cost, Reach, State
from rigidgrad.control.problem import Problem
from rigidgrad.errors import InputError

if TYPE_CHECKING:
    from rigidgrad.control.mpc.live import LiveProblem


class Steering(Protocol):
    """A target that writes numbers of several costs, such as `rg.gaits.Walker`."""

    def steer(self, problem: LiveProblem, begin: float) -> None:
        """For a plan that begins at a time."""


Target = ArrayLike | Callable[[Any], ArrayLike] | Steering | None


class TargetedCost(NamedTuple):
    """The cost that the target is for, what it calls it, and where its numbers are."""

    cost: Cost
    name: str
    part: slice

    @classmethod
    def of(cls, problem: Problem) -> TargetedCost | None:
        for kind, name in ((Reach, "target"), (State, "goal")):
            for k, cost in enumerate(problem.costs):
                if isinstance(cost, kind):
                    return cls(cost, name, problem.programs.slices[k]["target"])
        return None

    def rows(self, problem: Problem, value: Any, times: np.ndarray) -> np.ndarray:
        """A target as numbers: one row per knot of a horizon at these times, or one for all."""
        knots = len(times)
        if callable(value):
            value = sampled(value, times)
        size = self.part.stop - self.part.start
        with contextlib.suppress(TypeError, ValueError):
            rows = np.asarray(value, dtype=float)
            if (
                rows.shape in ((size,), (knots, size))
                and problem.system.flat
                and math.isfinite(rows.sum())
            ):
                return rows
        cost = copy.copy(self.cost)
        setattr(cost, self.name, value)
        return cost.targets(problem.system, knots)


def aim_of(problem: Problem) -> TargetedCost:
    """The cost that a target is for; an error where there is none."""
    aim = TargetedCost.of(problem)
    if aim is None:
        raise InputError(
            "this problem has neither a Reach nor a State cost that a target could be for"
        )
    return aim


def sampled(function: Callable[[Any], Any], times: np.ndarray) -> np.ndarray:
    """A function of time at many times: at once where it can, else one after the other."""
    try:
        rows = np.asarray(function(times), dtype=float)
        if rows.ndim >= 2 and len(rows) == len(times):
            return rows
    except (TypeError, ValueError):
        pass
    one_by_one = [function(float(t)) for t in times]
    try:
        return np.array(one_by_one, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"a target is a function of time that gives numbers, as many at every time: {error}"
        ) from None
