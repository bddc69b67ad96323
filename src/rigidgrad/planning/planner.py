"""`rg.plan`: a path for a robot from a start to a goal that touches nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.geometry.scene import as_scene
from rigidgrad.geometry.shapes import size
from rigidgrad.planning.connect import connect
from rigidgrad.planning.path import Path
from rigidgrad.planning.shorten import shortened
from rigidgrad.planning.space import Edges, Space, check_shape
from rigidgrad.planning.timing import timed
from rigidgrad.robot import Robot

STEP = 0.01  # metres that a point of the robot moves at most between two positions that are checked
_FINEST = 0.002
_STARTS = 16  # positions of a goal that is a pose
_ACCELERATION = 4.0  # of the greatest velocity a second: full speed after a quarter of a second


def plan(
    robot: Robot,
    start: Any,
    goal: Any,
    scene: Any = None,
    *,
    margin: float = 0.0,
    step: float = STEP,
    velocity: Any = None,
    acceleration: Any = None,
    dt: float = 0.01,
    seconds: float = 5.0,
    rounds: int = 4000,
    smoothing: int = 4,
    seed: int = 0,
) -> Path:
    """A path from `start` (nq,) to `goal` that keeps more than `margin` metres away from the scene, and from the robot itself, and the fastest motion along it.

    `goal`: a position (nq,), several (m, nq), of which one is reached, or {"frame": pose (4, 4) or point (3,)}, through inverse kinematics. The motion is made of straight lines in joint space. Between two positions that are checked no point
    of the robot moves further than `step` metres, and each keeps `margin + step / 2` away, so nothing is touched between them either; near a start or goal that is closer than that to something, the step is made smaller, down to 2 mm, and
    beyond that such a start or goal counts as touching.

    `velocity` and `acceleration` (nv,) or a number; without them the robot's own velocity limits (1 where it has none), and four times the velocity a second. `smoothing`: rounds of shortening. The search ends after `seconds` or `rounds`;
    apart from running out of seconds it is the same for a `seed`.
    """
    began = time.perf_counter()
    if not isinstance(robot, Robot):
        raise InputError(f"plan takes a robot first, not {type(robot).__name__}")
    scene, space = as_scene(scene), _space(robot)
    first = check_shape(space, "start", start)
    if len(first) != 1:
        raise InputError("start is one position")
    step, fastest = size("step", step), _per_joint("velocity", velocity, robot.limits.velocity, robot.nv)
    rates = _per_joint("acceleration", acceleration, _ACCELERATION * fastest, robot.nv)
    dt = size("dt", dt)

    def failed(status: str, **stats: Any) -> Path:
        empty = np.zeros((0, robot.nq))
        return Path(
            status, empty, np.zeros((0, robot.nv)), np.zeros(0), empty, 0.0, stats | {"seconds": time.perf_counter() - began}, scene
        )

    if not space.within(first).all():
        return failed("start outside limits")
    goals = _goals(robot, space, first[0], goal, seed)
    if goals is None:
        return failed("goal out of reach")
    goals = goals[space.within(goals)]
    if not len(goals):
        return failed("goal outside limits")
    while True:  # a finer step keeps less away
        check = robot.collisions.check(scene, margin=margin + step / 2, dtype=np.float32)
        touching = check(np.concatenate([first, goals]))
        if not touching[0] and not touching[1:].all():
            break
        if step / 2 < _FINEST:
            return failed("start in collision" if touching[0] else "goal in collision")
        step /= 2
    goals = goals[~touching[1:]]

    def in_time() -> bool:
        return time.perf_counter() - began < seconds

    rng = np.random.default_rng(seed)
    edges = Edges(space, check, step)
    corners, count = connect(space, edges, first[0], goals, rng, lambda k: k < rounds and in_time())
    if corners is None:
        return failed("no path", rounds=count, checked=check.count)
    corners = shortened(space, edges, corners, rng, smoothing, in_time)
    times, q, v = timed(space, corners, fastest, rates, dt)
    stats = {"rounds": count, "checked": check.count, "step": step, "seconds": time.perf_counter() - began}
    return Path("solved", q, v, times, corners, margin, stats, scene)


def _space(robot: Robot) -> Space:
    kept = robot.collisions._kept
    if "space" not in kept:
        kept["space"] = Space(robot)
    return kept["space"]


def _goals(robot: Robot, space: Space, start: np.ndarray, goal: Any, seed: int) -> np.ndarray | None:
    if not isinstance(goal, Mapping):
        return check_shape(space, "goal", goal)
    found = robot.inverse_kinematics(goal, start=start, best=_STARTS, seed=seed)
    q = np.atleast_2d(found.q)[np.atleast_1d(found.success)]
    return q if len(q) else None


def _per_joint(what: str, given: Any, own: np.ndarray, nv: int) -> np.ndarray:
    try:
        found = np.where(np.isfinite(own), own, 1.0) if given is None else np.broadcast_to(np.asarray(given, dtype=float), (nv,))
    except (TypeError, ValueError):
        raise InputError(f"{what} is a number, or {nv} of them") from None
    if given is None:
        found = np.where(found > 0, found, 1.0)
    if not (np.isfinite(found).all() and (found > 0).all()):
        raise InputError(f"{what} is positive and finite for each of {nv} joints; this is {given!r}")
    return np.asarray(found)
