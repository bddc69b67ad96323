"""A disturbance observer: which joint forces, unknown to the model, explain how the robot really
moved.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rigidgrad.control.system import RobotSystem, System
from rigidgrad.errors import InputError

# rad/s²; without an effort limit, what the force of an estimate may do to the whole robot
_LARGEST_RATE = 100.0
_GRAVITIES = 3.0  # and so many times its weight


class DisturbanceObserver:
    """Estimates constant joint forces d (nv,) in M a + … = B u + d, by a low-pass of `bandwidth`
    (rad/s) on what the model did not foresee.

    A payload, friction or wrong masses appear in d; subtracting it from the controls makes tracking
    free of a steady offset. Its numbers stay within `most` (nv,): the joint's effort limit, or else
    what would be out of proportion to the robot. `forces(q, v, a)` is the model's inverse dynamics,
    the robot's own unless given.
    """

    def __init__(
        self,
        system: System,
        bandwidth: float = 20.0,
        forces: Callable[..., np.ndarray] | None = None,
    ):
        if not isinstance(system, RobotSystem):
            raise InputError("a disturbance observer needs a robot")
        if not (math.isfinite(bandwidth) and bandwidth > 0):
            raise InputError(
                f"the observer's bandwidth is a positive number of rad/s, not {bandwidth!r}"
            )
        self.system, self.bandwidth = system, float(bandwidth)
        self.B = np.eye(system.nv) if system.actuation is None else np.array(system.actuation)
        self._inverse = np.linalg.pinv(self.B)
        self._forces = forces or system.robot.compile("rnea", threads=1)
        neutral, effort = system.robot.neutral(), system.robot.limits.effort
        weight = np.abs(system.robot.gravity_torque(neutral)).max(initial=0.0)
        proportion = (
            _LARGEST_RATE * np.abs(system.robot.crba(neutral)).sum(axis=1) + _GRAVITIES * weight
        )
        self.most = np.where(np.isfinite(effort) & (effort > 0), effort, proportion)
        self.reset()

    def reset(self) -> None:
        self.force = np.zeros(self.system.nv)
        self.skip()

    def skip(self) -> None:
        """What was measured last says nothing of what is measured next."""
        self._last: tuple[float, np.ndarray, np.ndarray] | None = None

    def shift(self, seconds: float) -> None:
        """The clock was moved."""
        if self._last is not None:
            self._last = (self._last[0] + seconds, *self._last[1:])

    @property
    def control(self) -> np.ndarray:
        """The part of the estimate that controls can cancel, as a control (nu,)."""
        return self._inverse @ self.force

    def update(self, x: np.ndarray, t: float, u: Any) -> None:
        """A measurement, and the control that acts from now on."""
        if self._last is not None:
            before, state, force = self._last
            h = t - before
            if 0.0 < h < 0.05:  # after a gap the mean control is not known
                q, v = state[: self.system.nq], state[self.system.nq :]
                missing = self._forces(q, v, (x[self.system.nq :] - v) / h) - force - self.force
                if math.isfinite(missing.sum()):
                    moved = self.force + (1.0 - math.exp(-self.bandwidth * h)) * missing
                    np.minimum(np.maximum(moved, -self.most), self.most, out=self.force)
                else:
                    self.reset()
        self._last = (t, np.array(x), self.B @ np.asarray(u))
