"""A path as the first guess of a trajectory optimisation problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.geometry.shapes import size
from rigidgrad.robot import Robot

if TYPE_CHECKING:
    from rigidgrad.control.problem import Problem
    from rigidgrad.planning.path import Path

# weights of the standard costs: of the end state, velocities and torques
_FINAL, _VELOCITY, _EFFORT = 1e4, 1e-2, 1e-5


def problem_of(
    path: Path,
    robot: Robot,
    steps: int,
    stretch: float,
    costs: Sequence[Any] | None,
    limits: Any,
) -> Problem:
    """See `Path.problem`."""
    from rigidgrad.control.costs import Effort, State
    from rigidgrad.control.limits import Limits
    from rigidgrad.control.problem import Problem

    if not path.solved:
        raise InputError(f"there is no path to start from: {path!r}")
    if path.q.shape[1] != robot.nq or path.v.shape[1] != robot.nv:
        raise InputError(f"the path is another robot's than {robot.name!r}")
    if not isinstance(steps, int) or steps < 2:
        raise InputError(f"steps is a whole number from 2 on, not {steps!r}")
    dt = size("stretch", stretch) * max(path.duration, 1e-6) / (steps - 1)
    start, goal = (np.concatenate([path.q[k], np.zeros(robot.nv)]) for k in (0, -1))
    if costs is None:
        weight = np.repeat([0.0, _VELOCITY], robot.nv)
        costs = [State(goal, weight=weight, final=_FINAL), Effort(_EFFORT)]
    if limits is None:
        limits = Limits(
            torque=True,
            position=True,
            velocity=True,
            scene=path.scene if len(path.scene) else None,
            clearance=path.clearance,
            self_clearance=path.clearance if robot.collisions.self_pairs else None,
        )
    return Problem(
        robot,
        start=start,
        steps=steps,
        dt=dt,
        costs=costs,
        limits=limits,
        guess=_guess(path, robot, steps, dt),
    )


def _guess(path: Path, robot: Robot, steps: int, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """States (steps + 1, nx) and torques (steps, nv) of steps of the semi-implicit Euler method
    through positions of the path, the last two of which are its end: it arrives at rest.
    """
    t = np.append(np.linspace(0.0, path.duration, steps), path.duration)
    k = np.clip(np.searchsorted(path.time, t, side="right") - 1, 0, len(path.time) - 2)
    part = (t - path.time[k]) / np.diff(path.time)[k]
    q = robot.integrate(path.q[k], part[:, None] * robot.difference(path.q[k], path.q[k + 1]))
    q[0], q[-2:] = path.q[0], path.q[-1]
    v = np.zeros((steps + 1, robot.nv))
    v[1:] = robot.difference(q[:-1], q[1:]) / dt
    tau = robot.rnea(q[:-1], v[:-1], np.diff(v, axis=0) / dt)
    return np.concatenate([q, v], axis=1), np.asarray(tau)
