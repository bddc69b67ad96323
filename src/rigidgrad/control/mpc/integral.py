"""Integral action: a target is moved until what follows it leaves no lasting distance from where it
should be.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rigidgrad.control.costs import Cost, Reach
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.errors import InputError

NEAR = 0.05  # metres; what is farther away is on its way, and not an offset
LONGEST = (
    0.05  # seconds between measurements; after a longer gap nothing is known of the time between
)
MOST = 0.1  # metres that a target is moved at most


class Integral:
    """The sum over time of `rate` (1/s) times the distance between a point and where it should be,
    as a shift (3,) of its target.

    A plan is the best compromise of its costs, and a cost of speed or effort keeps the point short
    of a target that moves or is hard to hold. Weights that track better cost smoothness; the shift
    costs none, but answers no faster than its rate, and overshoots where a target jumps by less
    than 5 cm.
    """

    def __init__(self, system: System, cost: Cost | None, rate: float):
        if not (isinstance(system, RobotSystem) and isinstance(cost, Reach) and not cost.pose):
            raise InputError(
                "integral action needs a robot and a Reach cost whose target is a position"
            )
        if not (math.isfinite(rate) and rate > 0):
            raise InputError(f"the rate of the integral is a positive number of 1/s, not {rate!r}")
        self.cost, self.rate, self.shift = cost, float(rate), np.zeros(3)
        self._nq, self._offset = system.nq, np.array(cost.offset)
        self._placement = system.robot.compile("frame_placement", frame=cost.frame, threads=1)
        self.reset()

    def reset(self) -> None:
        self.shift[:] = 0.0
        self._last = -math.inf

    def shift_time(self, seconds: float) -> None:
        """The clock was moved."""
        self._last += seconds

    def update(self, x: np.ndarray, t: float, wanted: Any) -> None:
        """The state at a time, and where the point should have been (the first row of several)."""
        h, self._last = t - self._last, t
        T = self._placement(x[: self._nq])
        away = (
            np.reshape(np.asarray(wanted, dtype=float), (-1, 3))[0]
            - T[:3, 3]
            - T[:3, :3] @ self._offset
        )
        distance = math.sqrt(away @ away)
        if h < LONGEST and distance < NEAR:
            self.shift += self.rate * h * away
            self.shift *= min(1.0, MOST / max(math.sqrt(self.shift @ self.shift), MOST))
