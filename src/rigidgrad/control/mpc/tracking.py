"""How well a controller followed its target: the tool's path, the target's, and the distance
between them, over time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rigidgrad.control.costs import Reach
from rigidgrad.control.mpc.controller import MPC
from rigidgrad.control.mpc.log import Log
from rigidgrad.control.surroundings import Surroundings, Target, target_of
from rigidgrad.control.terms.robot import robot_of
from rigidgrad.errors import InputError
from rigidgrad.robot import Robot

_MOST_ROWS = 500  # of the target's path in a picture


@dataclass(frozen=True, eq=False)
class Tracking:
    """At times t (n,), the ones at which a state x (n, nx) was measured: the point that follows and
    its target, each (n, 3), and their distance `error` (n,), in metres.

    Figures of the error count from `after` seconds on, and name that window. `rg.view(robot,
    tracking)` plays it, with both paths.
    """

    log: Log
    robot: Robot
    t: np.ndarray
    x: np.ndarray
    path: np.ndarray
    target: np.ndarray
    error: np.ndarray
    after: float
    # obstacles and spheres as they are at the end of the run; the target as it moved, `dt` seconds
    # from row to row
    surroundings: Surroundings
    dt: float

    @property
    def counted(self) -> np.ndarray:
        """Which times count (n,): those from `after` seconds after the first on."""
        counted: np.ndarray = self.t >= self.t[0] + self.after - 1e-9
        return counted

    @property
    def window(self) -> str:
        """Which times count, in words."""
        return (
            f"after the first {self.after:.1f} s of {self.seconds:.1f} s"
            if self.after
            else f"over all {self.seconds:.1f} s"
        )

    @property
    def seconds(self) -> float:
        return float(self.t[-1] - self.t[0])

    def summary(self) -> dict[str, str]:
        """Mean and largest error of the times that count, and of all."""
        lines = {f"tracking error {self.window}": _spread(self.error[self.counted])}
        if self.after:
            lines[f"over all {self.seconds:.1f} s"] = _spread(self.error)
        return lines

    def __str__(self) -> str:
        return "; ".join(f"{name}: {value}" for name, value in self.summary().items())


def tracking(log: Log, controller: MPC, after: float = 0.0) -> Tracking:
    """A run of a controller against its target. `after`: seconds at the beginning that do not
    count, for instance those in which the first target is approached. `log` is that of the run.
    """
    cost = next((c for c in controller.problem.costs if isinstance(c, Reach)), None)
    if cost is None:
        raise InputError(
            "tracking is about a point and its target: it needs a controller with a Reach cost"
        )
    if (
        isinstance(after, bool)
        or not isinstance(after, int | float | np.number)
        or not 0 <= after < math.inf
    ):
        raise InputError(f"after is a number of seconds, not {after!r}")
    seen = np.isfinite(log.x).all(axis=1)
    t, x = log.t[seen], log.x[seen]
    if len(t) < 2 or t[-1] - t[0] <= after:
        raise InputError(f"the log has no two measured states later than after={after:g} s")
    robot = robot_of(controller.problem.system, "tracking").robot
    T = robot.forward_kinematics(x[:, : robot.nq])[cost.frame]
    path = T[:, :3, 3] + T[:, :3, :3] @ np.array(cost.offset)
    target = _targets(cost, controller.target, t)
    error = np.linalg.norm(path - target, axis=1)
    grid = np.linspace(t[0], t[-1], min(len(t), _MOST_ROWS))
    moved = np.stack([np.interp(grid, t, target[:, k]) for k in range(3)], axis=1)
    around = replace(
        Surroundings.of(controller.problem).first_rows,
        targets=(Target(cost.frame, np.array(cost.offset), moved, None),),
    )
    return Tracking(
        log, robot, t, x, path, target, error, float(after), around, float(grid[1] - grid[0])
    )


def _targets(cost: Reach, value: Any, t: np.ndarray) -> np.ndarray:
    """The target's points (n, 3) at times (n,)."""
    rows = target_of(
        cost, value(t) if callable(value) else cost.target if value is None else value
    ).point
    if len(rows) not in (1, len(t)):
        raise InputError(
            "a target with one row per knot moves with the plan, so it is not known over the run;"
            " give the controller a function of time"
        )
    return np.broadcast_to(rows, (len(t), 3))


def _spread(error: np.ndarray) -> str:
    return f"{1e3 * error.mean():.1f} mm mean, {1e3 * error.max():.1f} mm at most"
