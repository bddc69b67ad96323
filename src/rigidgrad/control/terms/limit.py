"""Constraints that rg.Limits holds, and the notations of their bounds: True for the robot's own,
numbers, or a tuple (lower, upper).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.algorithms.joints import Matrix
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.control.terms.constraint import Bounds, Constraint
from rigidgrad.errors import InputError
from rigidgrad.model.model import Limits as JointLimits

if TYPE_CHECKING:
    from rigidgrad.control.limits import Limits

# how far outside a start may be by rounding alone
_ROUNDING = 1e-9


class Limit(Constraint):
    """A constraint that reads its bounds from Limits each time, so that they may change."""

    start_matters = True

    def __init__(self, limits: Limits):
        self.limits = limits

    def target_size(self, system: System) -> int:
        return 0

    def targets(self, system: System, knots: int) -> np.ndarray:
        return np.zeros((knots, 0))

    def start_text(self, system: System, k: int, c: float) -> str:
        """Says that number k of the residual, c, is outside at the start."""
        raise NotImplementedError

    def bounds(self, system: System, knots: int, start: np.ndarray | None = None) -> Bounds:
        lower, upper = super().bounds(system, knots)
        if start is None:
            return lower, upper
        at_start = (
            tuple(np.asarray(start, dtype=float).tolist()),
            (0.0,) * system.nu,
            tuple(self.targets(system, knots)[0].tolist()),
        )
        c = np.array(self.residual(system, *at_start), dtype=float)
        low, high = (b[0] for b in self.asked(system, knots))
        out = np.minimum(c - low, 0) + np.maximum(c - high, 0)
        out[abs(out) <= _ROUNDING * np.maximum(1, abs(c))] = 0
        if out.any() and not self.limits.recover:
            if self.start_matters:
                k = int(np.argmax(abs(out)))
                raise InputError(
                    f"{self.start_text(system, k, c[k])}; start inside, widen the limits, or pass"
                    " Limits(…, recover=True)"
                )
            return lower, upper
        remaining = 1 - np.arange(knots)[:, None] / (knots - 1)
        return lower + remaining * np.minimum(out, 0), upper + remaining * np.maximum(out, 0)


def is_own(value: Any) -> bool:
    return value is True or isinstance(value, JointLimits)


def is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def own_limits(robot: RobotSystem, value: Any) -> JointLimits:
    limits = robot.robot.limits if value is True else value
    if limits.lower.shape != (robot.nq,) or limits.effort.shape != (robot.nv,):
        raise InputError(
            f"these limits are another robot's: they have {len(limits.lower)} positions, and"
            f" {robot.name!r} has {robot.nq}"
        )
    return limits


def selection(columns: Iterable[int], n: int) -> Matrix:
    return tuple(tuple(1.0 if i == k else 0.0 for i in range(n)) for k in columns)
