"""What a motion goes around and to: obstacles, the spheres on links that keep out of them, targets.
Numbers copied from a problem, for pictures and reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rigidgrad.control.costs import Clearance, Reach
from rigidgrad.geometry.outlines import WIDTHS, Outline
from rigidgrad.geometry.scene import Scene

if TYPE_CHECKING:
    from rigidgrad.control.problem import Problem


class Sphere(NamedTuple):
    """A ball in the world, with one row or one per knot: centres (n, 3) and radii (n,) in
    metres.
    """

    center: np.ndarray
    radius: np.ndarray

    def during(self, first: int, knots: int) -> Sphere:
        """Its rows begin at a knot of a motion; before and after them it does not move."""
        if not first or len(self.radius) == 1:
            return self
        row = np.clip(np.arange(knots) - first, 0, len(self.radius) - 1)
        return Sphere(self.center[row], self.radius[row])


class BodySphere(NamedTuple):
    """A ball around a point of a frame."""

    frame: str
    offset: np.ndarray
    radius: float


class Target(NamedTuple):
    """Where a point of a frame shall be, in the world, with one row or one per knot: points (n, 3),
    and of poses also rotations (n, 3, 3).
    """

    frame: str
    offset: np.ndarray
    point: np.ndarray
    rotation: np.ndarray | None


class Force(NamedTuple):
    """Of the ground on a point of a frame, one row per step: where it acts (n, 3), and newtons (n,
    3), zero where nothing holds; in the world, with the normal of the ground (3,).
    """

    frame: str
    point: np.ndarray
    newtons: np.ndarray
    normal: np.ndarray

    @property
    def pressing(self) -> np.ndarray:
        """Its part along the normal (n,)."""
        found: np.ndarray = self.newtons @ self.normal
        return found


@dataclass(frozen=True)
class Surroundings:
    """Obstacles, link spheres and targets of a problem, as they were when it was copied, the shapes
    of its scene, and the forces of the ground along a motion.
    """

    obstacles: tuple[Sphere, ...] = ()
    spheres: tuple[BodySphere, ...] = ()
    targets: tuple[Target, ...] = ()
    solids: tuple[Outline, ...] = ()
    forces: tuple[Force, ...] = ()

    @classmethod
    def of(cls, problem: Problem) -> Surroundings:
        """Obstacles of a phase with one row per knot stay where they are first before it, and last
        after it. A scene of a phase, or of a cost, stands there all the time.
        """
        knots = problem.steps + 1
        obstacles = [
            _sphere(o.center, o.radius).during(part.first, knots)
            for part in problem.parts
            for o in part.limits.obstacles
        ]
        spheres = {
            (s.frame, tuple(s.offset), float(np.max(s.radius))): None
            for part in problem.parts
            for s in part.limits.spheres
        }
        scenes = {scene: None for part in problem.parts for scene in _scenes(part)}
        return cls(
            tuple(obstacles),
            tuple(
                BodySphere(frame, np.array(offset, dtype=float), radius)
                for frame, offset, radius in spheres
            ),
            tuple(
                _target(problem, k, cost)
                for k, cost in enumerate(problem.costs)
                if isinstance(cost, Reach)
            ),
            tuple(outline for scene in scenes for outline in scene.outlines),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """As arrays, for a file."""
        made = {
            f"obstacle_{k}": np.column_stack([o.center, o.radius])
            for k, o in enumerate(self.obstacles)
        }
        for k, s in enumerate(self.spheres):
            made |= {
                f"sphere_{k}": np.append(s.offset, s.radius),
                f"sphere_{k}_frame": np.array(s.frame),
            }
        for k, t in enumerate(self.targets):
            rows = (
                t.point
                if t.rotation is None
                else np.concatenate([t.point, t.rotation.reshape(-1, 9)], axis=1)
            )
            made |= {
                f"target_{k}": rows,
                f"target_{k}_frame": np.array(t.frame),
                f"target_{k}_offset": t.offset,
            }
        for k, o in enumerate(self.solids):
            made |= {f"solid_{k}": o.rows, f"solid_{k}_kind": np.array(o.kind)}
            made |= {f"solid_{k}_name": np.array(o.name), f"solid_{k}_note": np.array(o.note)}
        for k, f in enumerate(self.forces):
            made |= {f"force_{k}": np.column_stack([f.point, f.newtons])}
            made |= {f"force_{k}_frame": np.array(f.frame), f"force_{k}_normal": f.normal}
        return made

    @classmethod
    def from_arrays(cls, data: Mapping[str, np.ndarray]) -> Surroundings:
        """What `arrays` made; none where there is none. A ValueError where numbers are missing or
        not finite.
        """

        def each(kind: str) -> Iterator[str]:
            return takewhile(lambda name: name in data, (f"{kind}_{k}" for k in count()))

        def rows(name: str, *widths: int) -> np.ndarray:
            array = np.array(data[name], dtype=float)
            if not array.size or array.shape[-1] not in widths or not np.all(np.isfinite(array)):
                raise ValueError(f"{name} has shape {array.shape}")
            return array.reshape(-1, array.shape[-1])

        def target(name: str) -> Target:
            found = rows(name, 3, 12)
            rotation = found[:, 3:].reshape(-1, 3, 3) if found.shape[1] == 12 else None
            return Target(
                str(data[f"{name}_frame"]), rows(f"{name}_offset", 3)[0], found[:, :3], rotation
            )

        def solid(name: str) -> Outline:
            kind = str(data[f"{name}_kind"])
            return Outline(
                str(data[f"{name}_name"]), kind, rows(name, WIDTHS[kind]), str(data[f"{name}_note"])
            )

        def force(name: str) -> Force:
            found, normal = rows(name, 6), rows(f"{name}_normal", 3)[0]
            return Force(str(data[f"{name}_frame"]), found[:, :3], found[:, 3:], normal)

        obstacles = [rows(name, 4) for name in each("obstacle")]
        spheres = [(str(data[f"{name}_frame"]), rows(name, 4)[0]) for name in each("sphere")]
        return cls(
            tuple(Sphere(o[:, :3], o[:, 3]) for o in obstacles),
            tuple(BodySphere(frame, s[:3], float(s[3])) for frame, s in spheres),
            tuple(target(name) for name in each("target")),
            tuple(solid(name) for name in each("solid")),
            tuple(force(name) for name in each("force")),
        )

    @property
    def first_rows(self) -> Surroundings:
        """All of it as at the first knot."""
        return Surroundings(
            tuple(Sphere(o.center[:1], o.radius[:1]) for o in self.obstacles),
            self.spheres,
            tuple(
                t._replace(
                    point=t.point[:1], rotation=None if t.rotation is None else t.rotation[:1]
                )
                for t in self.targets
            ),
            self.solids,
        )


def _scenes(part: Any) -> list[Scene]:
    """What links keep out of, and what terms are about."""
    terms = [*part.costs, *[getattr(c, "term", None) for c in part.limits.added]]
    return [part.limits.scene, *[t.scene for t in terms if isinstance(t, Clearance)]]


def _target(problem: Problem, place: int, cost: Reach) -> Target:
    """Of a place in the programs, which phases with alike costs share."""
    if set(problem.cost_slots[place]) == {0}:
        return target_of(cost, cost.target)
    rows = problem.p[:, problem.programs.slices[place]["target"]]
    rows = rows if (rows != rows[0]).any() else rows[:1]
    return Target(
        cost.frame,
        np.array(cost.offset),
        rows[:, :3].copy(),
        rows[:, 3:].reshape(-1, 3, 3).copy() if cost.pose else None,
    )


def target_of(cost: Reach, value: Any) -> Target:
    """What a Reach cost aims at when its target is `value`."""
    rows = np.array(value, dtype=float)
    offset = np.array(cost.offset)
    if rows.shape[-2:] == (4, 4):
        rows = rows.reshape(-1, 4, 4)
        return Target(cost.frame, offset, rows[:, :3, 3], rows[:, :3, :3])
    return Target(cost.frame, offset, rows.reshape(-1, 3), None)


def _sphere(center: Any, radius: Any) -> Sphere:
    centers, radii = (
        np.array(center, dtype=float).reshape(-1, 3),
        np.array(radius, dtype=float).reshape(-1),
    )
    n = max(len(centers), len(radii))
    return Sphere(np.broadcast_to(centers, (n, 3)), np.broadcast_to(radii, (n,)))
