"""What is drawn around a robot: obstacles, the spheres on links that keep out of them, and targets, still or moving."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rigidgrad.control.surroundings import Surroundings
from rigidgrad.model.model import WORLD, Model

Color = tuple[float, float, float, float]
OBSTACLE: Color = (0.86, 0.16, 0.14, 0.5)
SPHERE: Color = (0.16, 0.45, 0.95, 0.22)
TARGET: Color = (0.12, 0.63, 0.37, 1.0)
_AXES: tuple[Color, ...] = ((0.85, 0.15, 0.15, 1.0), (0.15, 0.65, 0.2, 1.0), (0.15, 0.3, 0.9, 1.0))
_LEGEND = (
    ("obstacles", "Red: obstacles."),
    ("spheres", "Blue: the spheres on links that keep out of them."),
    ("targets", "Green: targets."),
)


@dataclass(frozen=True)
class Ball:
    """A ball on a body, or in the world (WORLD is -1), with one row or one per time t: centres `at` (n, 3), radii (n,)."""

    body: int
    t: np.ndarray
    at: np.ndarray
    radius: np.ndarray
    color: Color

    def when(self, t: float) -> tuple[np.ndarray, float]:
        """Centre and radius at a time, between rows along straight lines."""
        centre = np.array([np.interp(t, self.t, self.at[:, k]) for k in range(3)])
        return centre, float(np.interp(t, self.t, self.radius))


@dataclass(frozen=True)
class Around:
    """Balls; lines (n, 3) with their colours; and a legend."""

    balls: tuple[Ball, ...] = ()
    lines: tuple[tuple[np.ndarray, Color], ...] = ()
    notes: tuple[str, ...] = ()

    def points(self, most: float) -> np.ndarray:
        """What a camera should see (n, 3): corners around balls in the world, but for those with radii above `most` (a sphere can stand for the ground), and lines."""
        found = [line for line, _ in self.lines]
        for ball in self.balls:
            if ball.body == WORLD and ball.radius.max() <= most:
                found += [ball.at - ball.radius[:, None], ball.at + ball.radius[:, None]]
        return np.concatenate(found) if found else np.zeros((0, 3))


def surroundings_of(solution: Any, problem: Any) -> Surroundings:
    """Those of a Problem or a controller, as at its first knot; else of a solution that knows its own."""
    if problem is not None:
        return Surroundings.of(getattr(problem, "problem", problem)).first_rows
    return getattr(solution, "surroundings", None) or Surroundings()


def around(model: Model, what: Surroundings, times: Callable[[int], np.ndarray], size: float) -> Around:
    """What is drawn of surroundings; `times` of so many rows say when they hold; `size` is that of the robot, in metres."""
    balls = [Ball(WORLD, times(len(o.radius)), o.center, o.radius, OBSTACLE) for o in what.obstacles]
    for s in what.spheres:
        found = model.frame(s.frame)
        at = (found.placement.matrix() @ np.append(s.offset, 1.0))[None, :3]
        balls.append(Ball(found.body, np.zeros(1), at, np.array([s.radius]), SPHERE))
    lines: list[tuple[np.ndarray, Color]] = []
    for target in what.targets:
        n = len(target.point)
        balls.append(Ball(WORLD, times(n), target.point, np.full(n, 0.012 * size), TARGET))
        if n > 1 and np.ptp(target.point, axis=0).any():
            lines.append((target.point, TARGET))
        if target.rotation is not None:
            tip = target.point[-1]
            lines += [(np.stack([tip, tip + 0.08 * size * target.rotation[-1][:, k]]), _AXES[k]) for k in range(3)]
    return Around(tuple(balls), tuple(lines), tuple(text for name, text in _LEGEND if getattr(what, name)))
