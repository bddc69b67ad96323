"""What acts when plans fail or must not be followed as they are: the last plan goes on, its path is
followed slowly, or a posture is held.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.control.mpc.plan import Plan
from rigidgrad.control.mpc.posture import Bounds, Posture
from rigidgrad.control.mpc.schedule import Schedule

_FAILURES = 2  # in a row, after which the plan is made without a warm start


class Fallback:
    """Keeps account of failures, and of the state (nx,) whose posture is `held`, if any is."""

    def __init__(self, posture: Posture):
        self.posture = posture
        self.reset()

    def reset(self) -> None:
        self.failures = 0
        self.held: np.ndarray | None = None

    @property
    def exhausted(self) -> bool:
        """Whether the last plan is no warm start any more."""
        return self.failures >= _FAILURES

    def exhaust(self) -> None:
        """The last plan is no warm start, although nothing failed."""
        self.failures = _FAILURES

    def hold(self, x: np.ndarray) -> None:
        """The posture of a state is held from now on; one that is held already stays."""
        if self.held is None:
            self.held = x.copy()

    def release(self) -> None:
        """Plans are followed again."""
        self.held = None

    def wanted(
        self, schedule: Schedule, x: np.ndarray | None, t: float, bounds: Bounds
    ) -> np.ndarray:
        """The control of now, before it is cut at its bounds; x is None where nothing was
        measured.
        """
        if self.held is not None:
            with np.errstate(all="ignore"):
                return self.posture.holding(self.held, x, bounds, brisk=self.failures == 0)
        if schedule.empty:
            return self.posture.problem.guess[0].copy() if x is None else self.posture.resting(x)
        return self.follow(schedule.acting, x, t, bounds)

    def follow(self, plan: Plan, x: np.ndarray | None, t: float, bounds: Bounds) -> np.ndarray:
        """By the plan's feedback, or, at another pace than its own, along its path."""
        return plan.control(t, x) if plan.pace == 1.0 else self.posture.slowed(plan, t, x, bounds)
