"""Several plans, shared out to all cores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.geometry.scene import Scene, as_scene
from rigidgrad.geometry.shapes import Shape
from rigidgrad.planning.path import Path
from rigidgrad.robot import Robot
from rigidgrad.runtime.threads import default_crew, thread_count

Progress = Callable[[int, int], Any]


def plan_each(
    plan: Callable[..., Path],
    robot: Robot,
    starts: Any,
    goal: Any,
    scene: Any,
    threads: int | None,
    progress: Progress | None,
    options: Mapping[str, Any],
) -> list[Path]:
    """`plan` from each start (n, nq) to its goal in its scene. What all share, the robot's shapes
    and a scene's numbers, is made by the first one, alone.
    """
    count = len(starts)
    given = list(zip(starts, _goals(goal, count), _scenes(scene, count), strict=True))
    done, counting = [0], threading.Lock()

    def one(problem: tuple[Any, Any, Scene]) -> Path:
        start, own, world = problem
        path = plan(robot, start, own, world, **options)
        with counting:
            done[0] += 1
            if progress is not None:
                progress(done[0], count)
        return path

    workers = min(thread_count(threads), count)
    if workers == 1:
        return [one(problem) for problem in given]
    return [one(given[0]), *default_crew(workers).map(one, given[1:])]


def _goals(goal: Any, count: int) -> list[Any]:
    """One for each start."""
    if isinstance(goal, Mapping) or (isinstance(goal, np.ndarray) and goal.ndim == 1):
        return [goal] * count
    each = list(goal)
    if each and all(np.ndim(g) == 0 and not isinstance(g, Mapping) for g in each):
        return [goal] * count  # the numbers of one position
    if len(each) != count:
        raise InputError(
            f"{len(each)} goals for {count} starts: give one for all, or a list with one for each,"
            " such as [goals] * len(starts) where all have the same set"
        )
    return each


def _scenes(scene: Any, count: int) -> list[Scene]:
    several = isinstance(scene, Sequence) and any(not isinstance(s, Shape) for s in scene)
    if not several:
        return [as_scene(scene)] * count
    if len(scene) != count:
        raise InputError(
            f"{len(scene)} scenes for {count} starts: give one for all, or one for each"
        )
    return [as_scene(s) for s in scene]
