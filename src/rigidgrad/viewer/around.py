"""What is drawn around a robot: a scene, obstacles, the spheres on links that keep out of them, and
targets, still or moving; and forces of the ground, as arrows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rigidgrad.control.surroundings import Surroundings
from rigidgrad.geometry.outlines import Outline
from rigidgrad.geometry.scene import as_scene
from rigidgrad.model.model import WORLD, Model
from rigidgrad.model.pose import IDENTITY_POSE, Pose
from rigidgrad.viewer.shapes import Shape, along

Color = tuple[float, float, float, float]
OBSTACLE: Color = (0.86, 0.16, 0.14, 0.5)
SPHERE: Color = (0.16, 0.45, 0.95, 0.22)
PATCH: Color = (0.86, 0.16, 0.14, 0.18)  # of a plane
TARGET: Color = (0.12, 0.63, 0.37, 1.0)
FORCE: Color = (0.86, 0.24, 0.2, 1.0)
_PER_WEIGHT = 0.35  # of the robot's size: how long the arrow of its whole weight is
_AXES: tuple[Color, ...] = ((0.85, 0.15, 0.15, 1.0), (0.15, 0.65, 0.2, 1.0), (0.15, 0.3, 0.9, 1.0))
_SMALLEST = 0.003  # of the robot's size, of a point of a cloud
_LEGEND = (
    ("solids", "Red: the scene."),
    ("obstacles", "Red: obstacles."),
    ("spheres", "Blue: the spheres on links that keep out of them."),
    ("targets", "Green: targets."),
    ("forces", "Red arrows: forces of the ground."),
)


@dataclass(frozen=True)
class Ball:
    """A ball on a body, or in the world (WORLD is -1), with one row or one per time t: centres `at`
    (n, 3), radii (n,).
    """

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
class Arrow:
    """In the world, one row per time t (n,), from which on it holds: start (n, 3) and tip (n, 3),
    which are the same where nothing is drawn.
    """

    t: np.ndarray
    start: np.ndarray
    tip: np.ndarray
    color: Color

    def when(self, t: float) -> np.ndarray:
        """Segments (n, 2, 3) at a time."""
        k = max(int(np.searchsorted(self.t, t, side="right")) - 1, 0)
        return arrow(self.start[k], self.tip[k])


def arrow(start: np.ndarray, tip: np.ndarray) -> np.ndarray:
    """Segments (5, 2, 3): a shaft, and four strokes of its head; none (0, 2, 3) without length."""
    way = np.asarray(tip, dtype=float) - start
    length = float(np.linalg.norm(way))
    if not length > 0.0:
        return np.zeros((0, 2, 3))
    across = np.cross(way, np.eye(3)[np.argmin(np.abs(way))])
    across *= length / np.linalg.norm(across)
    other = np.cross(way, across) / length
    back = tip - 0.2 * way
    ends = [back + 0.08 * side * arm for arm in (across, other) for side in (-1.0, 1.0)]
    return np.array([(start, tip), *((tip, end) for end in ends)])


@dataclass(frozen=True)
class Around:
    """Balls; lines (n, 3) with their colours; a legend; solids in the world; and arrows."""

    balls: tuple[Ball, ...] = ()
    lines: tuple[tuple[np.ndarray, Color], ...] = ()
    notes: tuple[str, ...] = ()
    solids: tuple[Shape, ...] = ()
    arrows: tuple[Arrow, ...] = ()

    def points(self, most: float) -> np.ndarray:
        """What a camera should see (n, 3): corners around balls and solids in the world, but for
        those with radii above `most` (a sphere can stand for the ground), and lines.
        """
        found = [line for line, _ in self.lines]
        for ball in self.balls:
            if ball.body == WORLD and ball.radius.max() <= most:
                found += [ball.at - ball.radius[:, None], ball.at + ball.radius[:, None]]
        for low, high in (_box(s) for s in self.solids if s.color != PATCH):
            if np.linalg.norm(high - low) / 2 <= most:
                found.append(np.stack([low, high]))
        return np.concatenate(found) if found else np.zeros((0, 3))


def surroundings_of(solution: Any, problem: Any, scene: Any = None) -> Surroundings:
    """Those of a Problem or a controller, as at its first knot; else of a solution or a path that
    knows its own. A scene takes the place of theirs.
    """
    if problem is not None:
        found = Surroundings.of(getattr(problem, "problem", problem)).first_rows
    else:
        known = getattr(solution, "drawn", None) or getattr(solution, "surroundings", None)
        found = known or Surroundings()
    return found if scene is None else replace(found, solids=as_scene(scene).outlines)


def around(
    model: Model,
    what: Surroundings,
    times: Callable[[int], np.ndarray],
    size: float,
    middle: Any = (0.0, 0.0, 0.0),
) -> Around:
    """What is drawn of surroundings; `times` of so many rows say when they hold; `size` is that of
    the robot, in metres, and `middle` where it is.
    """
    balls = [
        Ball(WORLD, times(len(o.radius)), o.center, o.radius, OBSTACLE) for o in what.obstacles
    ]
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
            lines += [
                (np.stack([tip, tip + 0.08 * size * target.rotation[-1][:, k]]), _AXES[k])
                for k in range(3)
            ]
    notes = [text for name, text in _LEGEND if getattr(what, name)] + [
        solid.note for solid in what.solids if solid.note
    ]
    wide, smallest = 3 * size, _SMALLEST * size
    if any(solid.kind == "points" and solid.rows[:, 3].min() < smallest for solid in what.solids):
        notes.append(
            f"Points of clouds with radii below {1e3 * smallest:.2g} mm are drawn that large."
        )
    if any(solid.kind == "plane" for solid in what.solids):
        notes.append(f"Planes have no end; patches of {wide:.2g} m are drawn.")
    solids = tuple(
        _solid(outline, wide, smallest, np.asarray(middle, dtype=float)) for outline in what.solids
    )
    return Around(
        tuple(balls), tuple(lines), tuple(notes), solids, _arrows(model, what, times, size)
    )


def _arrows(
    model: Model, what: Surroundings, times: Callable[[int], np.ndarray], size: float
) -> tuple[Arrow, ...]:
    """Of forces, as long as they are parts of the robot's weight."""
    weight = float(np.linalg.norm(model.gravity)) * sum(m for m, *_ in model.inertias)
    most = max((float(np.linalg.norm(f.newtons, axis=1).max()) for f in what.forces), default=0.0)
    metres = _PER_WEIGHT * size / (weight or most or 1.0)
    return tuple(
        Arrow(times(len(f.point) + 1)[:-1], f.point, f.point + metres * f.newtons, FORCE)
        for f in what.forces
    )


def _solid(outline: Outline, wide: float, smallest: float, middle: np.ndarray) -> Shape:
    def shape(
        kind: str,
        size: Any,
        placement: Pose = IDENTITY_POSE,
        color: Color = OBSTACLE,
        corners: np.ndarray | None = None,
    ) -> Shape:
        return Shape(kind, tuple(float(x) for x in size), placement, color, WORLD, "", corners)

    row = outline.rows[0]
    match outline.kind:
        case "box":
            return shape("box", row[:3], _pose(row[6:].reshape(3, 3), row[3:6]))
        case "sphere":
            return shape("sphere", row[3:], _pose(np.eye(3), row[:3]))
        case "capsule":
            start, end, length = row[:3], row[3:6], float(np.linalg.norm(row[3:6] - row[:3]))
            turned = along((end - start) / length).R if length > 0 else IDENTITY_POSE.R
            return shape("capsule", (row[6], length), _pose(turned, (start + end) / 2))
        case "plane":
            normal, thick = row[:3], 1e-3 * wide
            # its upper face is the plane
            at = middle + (row[3] - normal @ middle - thick / 2) * normal
            return shape("box", (wide, wide, thick), _pose(along(normal).R, at), PATCH)
        case "mesh":
            return shape("mesh", (), corners=outline.rows.reshape(-1, 3, 3))
        case _:
            radius = np.maximum(outline.rows[:, 3], smallest)
            return shape(
                "mesh", (), corners=np.concatenate(list(_octahedra(outline.rows[:, :3], radius)))
            )


def _octahedra(centers: np.ndarray, radii: np.ndarray) -> Iterator[np.ndarray]:
    """Triangles (n, 3, 3), counter-clockwise seen from outside, that stand for small balls: one of
    each ball at a time.
    """
    for signs in np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T:
        corners = np.diag(signs) if np.prod(signs) > 0 else np.diag(signs)[::-1]
        yield centers[:, None] + radii[:, None, None] * corners


def _pose(rotation: Any, at: np.ndarray) -> Pose:
    x, y, z = (float(c) for c in at)
    return Pose(tuple(tuple(float(c) for c in row) for row in rotation), (x, y, z))


def _box(solid: Shape) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest corner of the box around a solid in the world."""
    if solid.corners is not None:
        return solid.corners.min(axis=(0, 1)), solid.corners.max(axis=(0, 1))
    at, reach = np.array(solid.placement.p), solid.reach(np.eye(3))
    return at - reach, at + reach
