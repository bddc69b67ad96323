"""`rg.plan`: a path for a robot from a start to a goal that touches nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, overload
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.collisions.checker import Check
from rigidgrad.errors import InputError
from rigidgrad.geometry.scene import Scene, as_scene
from rigidgrad.geometry.shapes import Shape, size
from rigidgrad.planning.connect import connect, straight
from rigidgrad.planning.edges import Edges
from rigidgrad.planning.many import Progress, plan_each
from rigidgrad.planning.motors import Motors
from rigidgrad.planning.path import Path
from rigidgrad.planning.shorten import shortened
from rigidgrad.planning.space import Space, check_shape
from rigidgrad.planning.timing import sampled, trapezoids
from rigidgrad.robot import Robot

STEP = 0.01  # metres that a point of the robot moves at most between two positions that are checked
_FINEST = 0.002
_STARTS = 16  # positions of a goal that is a pose
_ACCELERATION = 4.0  # of the greatest velocity a second: full speed after a quarter of a second
_MOST_IDLE = 8
# checks that wait for another plan in their scene, by robot and margin, so many of a scene at most;
# a plan takes one out while it runs, as a check is for one thread
_idle: WeakKeyDictionary[Scene, dict[Any, Check]] = WeakKeyDictionary()


@overload
def plan(
    robot: Robot,
    start: Sequence[np.ndarray],
    goal: Any,
    scene: Any = None,
    *,
    margin: float = 0.0,
    step: float = STEP,
    velocity: Any = None,
    acceleration: Any = None,
    torque: Any = None,
    dt: float = 0.01,
    seconds: float = 5.0,
    rounds: int = 4000,
    smoothing: int = 4,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Path]: ...
@overload
def plan(
    robot: Robot,
    start: ArrayLike,
    goal: ArrayLike | Mapping[str, ArrayLike] | Sequence[ArrayLike | Mapping[str, ArrayLike]],
    scene: Scene | Sequence[Shape] | None = None,
    *,
    margin: float = 0.0,
    step: float = STEP,
    velocity: ArrayLike | None = None,
    acceleration: ArrayLike | None = None,
    torque: bool | ArrayLike | None = None,
    dt: float = 0.01,
    seconds: float = 5.0,
    rounds: int = 4000,
    smoothing: int = 4,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Path: ...
def plan(
    robot: Robot,
    start: Any,
    goal: Any,
    scene: Any = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Any:
    """A path from `start` (nq,) to `goal` that keeps more than `margin` metres away from the scene,
    and from the robot itself, and the fastest motion along it.

    `goal`: a position (nq,), several (m, nq), of which one is reached, {"frame": pose (4, 4) or
    point (3,), or several (m, 4, 4), (m, 3)}, through inverse kinematics, or a list of such goals,
    of which one is reached. The motion is made of straight lines in joint space.
    Between two positions that are checked no point of the robot moves further than `step` metres,
    and each keeps `margin + step / 2` away, so nothing is touched between them either; near a start
    or goal that is closer than that to something, the step is made smaller, down to 2 mm, and
    beyond that such a start or goal counts as touching.

    `velocity` and `acceleration` (nv,) or a number; without them the robot's own velocity limits (1
    where it has none), and four times the velocity a second. `torque`: None (no limit), True (the
    robot's own limits), a number or (nv,): the motion then is the fastest within all three, and
    positions that take more than 98% of these torques to hold count as blocked. `smoothing`: rounds
    of shortening. The search ends after `seconds` or `rounds`; apart from running out of seconds it
    is the same for a `seed`. `dt`: seconds between the rows of the motion.

    Several starts, (n, nq) or a list, are several plans, shared out to `threads` (all cores unless
    given); the result is a list of paths. `goal` is then one for all, in a notation above, or a
    list or array with one for each; `scene` likewise. `progress(done, of)` is called with how many
    of them are done, or of a single plan with how many rounds of its search are.

    Example:

        >>> import rigidgrad as rg
        >>> box = rg.Box(size=(0.2, 0.2, 0.2), pose=(0.5, -0.3, 0.3))
        >>> ball = {"iiwa_link_7": [rg.Sphere(0.07, (0, 0, 0.05))]}
        >>> robot = rg.load("iiwa14").with_collisions(shapes=ball)
        >>> rg.plan(robot, robot.neutral(), {"iiwa_link_7": [0.5, 0.2, 0.6]}, [box]).status
        'solved'
    """
    if not isinstance(robot, Robot):
        raise InputError(f"plan takes a robot first, not {type(robot).__name__}")
    if isinstance(start, Sequence | np.ndarray) and np.ndim(start[:1]) > 1:
        return plan_each(_plan, robot, start, goal, scene, threads, progress, options)
    return _plan(robot, start, goal, scene, progress=progress, **options)


def _plan(
    robot: Robot,
    start: Any,
    goal: Any,
    scene: Any = None,
    *,
    margin: float = 0.0,
    step: float = STEP,
    velocity: Any = None,
    acceleration: Any = None,
    torque: Any = None,
    dt: float = 0.01,
    seconds: float = 5.0,
    rounds: int = 4000,
    smoothing: int = 4,
    seed: int = 0,
    progress: Progress | None = None,
) -> Path:
    """A single path."""
    began = time.perf_counter()
    scene, space = as_scene(scene), _space(robot)
    if scene.names:
        robot.collisions.clear_of(scene)
    first = check_shape(space, "start", start)
    if len(first) != 1:
        raise InputError("start is one position")
    step = size("step", step)
    fastest = _per_joint("velocity", velocity, space.velocity)
    rates = _per_joint("acceleration", acceleration, _ACCELERATION * fastest)
    motors = None if torque is None else Motors(robot, _torques(robot, torque))
    dt = size("dt", dt)

    def failed(status: str, **stats: Any) -> Path:
        empty = np.zeros((0, robot.nq))
        return Path(
            status,
            empty,
            np.zeros((0, robot.nv)),
            np.zeros(0),
            empty,
            0.0,
            stats | {"seconds": time.perf_counter() - began},
            scene,
            np.zeros((0, robot.nv)),
        )

    if not space.within(first).all():
        return failed("start outside limits")
    goals = _goals(robot, space, first[0], goal, seed)
    if goals is None:
        return failed("goal out of reach")
    goals = goals[space.within(goals)]
    if not len(goals):
        return failed("goal outside limits")
    ends, searched = np.concatenate([first, goals]), not _has_pose(goal)
    if motors is not None:
        heavy = motors.cannot_hold(ends)
        if heavy[0] or heavy[1:].all():
            return failed(f"{'start' if heavy[0] else 'goal'} beyond torque limits")
        ends = ends[~heavy]
    while True:  # a finer step keeps less away
        key = (robot.collisions, margin + step / 2)
        check = _taken(scene, key)
        touching = check(ends)
        if not touching[0] and not touching[1:].all():
            break
        _given_back(scene, key, check)
        if not touching[0] and not searched:  # positions that touch nothing are rarer
            searched = True
            room = {"scene": scene, "margin": margin + step / 2}
            others = _goals(robot, space, first[0], goal, seed, **room)
            if others is not None:
                others = others[space.within(others)]
                others = others if motors is None else others[~motors.cannot_hold(others)]
                ends = np.concatenate([first, others]) if len(others) else ends
                continue
        if step / 2 < _FINEST:
            return failed("start in collision" if touching[0] else "goal in collision")
        step /= 2
    goals = ends[1:][~touching[1:]]

    def in_time() -> bool:
        return time.perf_counter() - began < seconds

    def touches(q: np.ndarray) -> np.ndarray:
        return check(q) if motors is None else check(q) | motors.cannot_hold(q)

    edges, count, before = Edges(space, touches, step), 0, check.count
    corners = straight(edges, first[0], goals)
    if corners is None:
        rng = np.random.default_rng(seed)

        def more(k: int) -> bool:
            if progress is not None:
                progress(k, rounds)
            return k < rounds and in_time()

        corners, count = connect(space, edges, first[0], goals, rng, more)
        if corners is not None:
            corners = shortened(space, edges, corners, rng, smoothing, in_time)
    stats = {"rounds": count, "checked": check.count - before, "step": step}
    _given_back(scene, key, check)
    if corners is None:
        return failed("no path", **stats)
    way = space.difference(corners[:-1], corners[1:])
    profile = (
        trapezoids(way, fastest, rates)
        if motors is None
        else motors.fastest(space, corners, way, fastest, rates)
    )
    if profile is None:
        return failed("path beyond torque limits", **stats)
    times, q, v, a = sampled(space, corners, way, profile, dt)
    stats["seconds"] = time.perf_counter() - began
    return Path("solved", q, v, times, corners, margin, stats, scene, a)


def _taken(scene: Scene, key: Any) -> Check:
    waiting = _idle.get(scene)
    check = None if waiting is None else waiting.pop(key, None)
    return check or key[0].check(scene, margin=key[1], dtype=np.float32)


def _given_back(scene: Scene, key: Any, check: Check) -> None:
    waiting = _idle.setdefault(scene, {})
    if len(waiting) >= _MOST_IDLE:
        waiting.clear()
    waiting[key] = check


def _space(robot: Robot) -> Space:
    kept = robot.collisions._kept
    if "space" not in kept:
        kept["space"] = Space(robot)
    space: Space = kept["space"]
    return space


def _has_pose(goal: Any) -> bool:
    several = isinstance(goal, Sequence) and any(isinstance(g, Mapping) for g in goal)
    return several or isinstance(goal, Mapping)


def _goals(
    robot: Robot, space: Space, start: np.ndarray, goal: Any, seed: int, **room: Any
) -> np.ndarray | None:
    if _has_pose(goal) and not isinstance(goal, Mapping):
        each = [_goals(robot, space, start, g, seed, **room) for g in goal]
        reached = [q for q in each if q is not None]
        return np.concatenate(reached) if reached else None
    if not isinstance(goal, Mapping):
        return check_shape(space, "goal", goal)
    found = robot.inverse_kinematics(goal, start=start, best=_STARTS, seed=seed, **room)
    q = np.reshape(found.q, (-1, robot.nq))[np.ravel(found.success)]
    return q if len(q) else None


def _per_joint(what: str, given: Any, standard: np.ndarray, infinite: bool = False) -> np.ndarray:
    if given is None:
        return standard
    try:
        found = np.broadcast_to(np.asarray(given, dtype=float), standard.shape)
    except (TypeError, ValueError):
        raise InputError(f"{what} is a number, or {len(standard)} of them") from None
    if np.isnan(found).any() or (found <= 0).any() or not (infinite or np.isfinite(found).all()):
        raise InputError(
            f"{what} is positive and finite for each of {len(standard)} joints; this is {given!r}"
        )
    return np.asarray(found)


def _torques(robot: Robot, torque: Any) -> np.ndarray:
    if torque is not True:
        return _per_joint("torque", torque, np.zeros(robot.nv), infinite=True)
    none = np.flatnonzero(robot.limits.effort <= 0)
    if len(none):
        raise InputError(
            f"the robot's own torque limits are zero for freedoms {none.tolist()}: give torque=, a"
            f" number or {robot.nv} of them"
        )
    return robot.limits.effort
