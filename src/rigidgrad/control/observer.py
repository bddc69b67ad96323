"""A disturbance observer: which joint forces, unknown to the model, explain how the robot really moved."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rigidgrad.control.system import RobotSystem, System
from rigidgrad.errors import InputError


class DisturbanceObserver:
    """Estimates constant joint forces d (nv,) in M a + … = B u + d, by a low-pass of `bandwidth` (rad/s) on what the model did not foresee.

    A payload, friction or wrong masses appear in d; subtracting it from the controls makes tracking free of a steady offset.
    """

    def __init__(self, system: System, bandwidth: float = 20.0):
        if not isinstance(system, RobotSystem):
            raise InputError("a disturbance observer needs a robot")
        if not (math.isfinite(bandwidth) and bandwidth > 0):
            raise InputError(f"the observer's bandwidth is a positive number of rad/s, not {bandwidth!r}")
        self.system, self.bandwidth = system, float(bandwidth)
        self.B = np.eye(system.nv) if system.actuation is None else np.array(system.actuation)
        self._inverse = np.linalg.pinv(self.B)
        self._aba = system.robot.compile("aba", threads=1)
        self._crba = system.robot.compile("crba", threads=1)
        self.reset()

    def reset(self) -> None:
        self.force = np.zeros(self.system.nv)
        self._last: tuple[float, np.ndarray, np.ndarray] | None = None

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
                foreseen = v + h * self._aba(q, v, force + self.force)
                missing = self._crba(q) @ (x[self.system.nq :] - foreseen) / h
                self.force += (1.0 - math.exp(-self.bandwidth * h)) * missing
        self._last = (t, np.array(x), self.B @ np.asarray(u))
