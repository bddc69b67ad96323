"""What a motion goes around and to: obstacles, the spheres on links that keep out of them, targets. Numbers copied from a problem, for pictures and reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rigidgrad.control.costs import Reach

if TYPE_CHECKING:
    from rigidgrad.control.problem import Problem


class Sphere(NamedTuple):
    """A ball in the world, with one row or one per knot: centres (n, 3) and radii (n,) in metres."""

    center: np.ndarray
    radius: np.ndarray


class BodySphere(NamedTuple):
    """A ball around a point of a frame."""

    frame: str
    offset: np.ndarray
    radius: float


class Target(NamedTuple):
    """Where a point of a frame shall be, in the world, with one row or one per knot: points (n, 3), and of poses also rotations (n, 3, 3)."""

    frame: str
    offset: np.ndarray
    point: np.ndarray
    rotation: np.ndarray | None


@dataclass(frozen=True)
class Surroundings:
    """Obstacles, link spheres and targets of a problem, as they were when it was copied."""

    obstacles: tuple[Sphere, ...] = ()
    spheres: tuple[BodySphere, ...] = ()
    targets: tuple[Target, ...] = ()

    @classmethod
    def of(cls, problem: Problem) -> Surroundings:
        limits = problem.limits
        return cls(
            tuple(_sphere(o.center, o.radius) for o in limits.obstacles),
            tuple(BodySphere(s.frame, np.array(s.offset, dtype=float), float(np.max(s.radius))) for s in limits.spheres),
            tuple(target_of(cost, cost.target) for cost in problem.costs if isinstance(cost, Reach)),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """As arrays, for a file."""
        made = {f"obstacle_{k}": np.column_stack([o.center, o.radius]) for k, o in enumerate(self.obstacles)}
        for k, s in enumerate(self.spheres):
            made |= {f"sphere_{k}": np.append(s.offset, s.radius), f"sphere_{k}_frame": np.array(s.frame)}
        for k, t in enumerate(self.targets):
            rows = t.point if t.rotation is None else np.concatenate([t.point, t.rotation.reshape(-1, 9)], axis=1)
            made |= {f"target_{k}": rows, f"target_{k}_frame": np.array(t.frame), f"target_{k}_offset": t.offset}
        return made

    @classmethod
    def from_arrays(cls, data: Mapping[str, np.ndarray]) -> Surroundings:
        """What `arrays` made; none where there is none. A ValueError where numbers are missing or not finite."""

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
            return Target(str(data[f"{name}_frame"]), rows(f"{name}_offset", 3)[0], found[:, :3], rotation)

        obstacles = [rows(name, 4) for name in each("obstacle")]
        spheres = [(str(data[f"{name}_frame"]), rows(name, 4)[0]) for name in each("sphere")]
        return cls(
            tuple(Sphere(o[:, :3], o[:, 3]) for o in obstacles),
            tuple(BodySphere(frame, s[:3], float(s[3])) for frame, s in spheres),
            tuple(target(name) for name in each("target")),
        )

    @property
    def first_rows(self) -> Surroundings:
        """All of it as at the first knot."""
        return Surroundings(
            tuple(Sphere(o.center[:1], o.radius[:1]) for o in self.obstacles),
            self.spheres,
            tuple(t._replace(point=t.point[:1], rotation=None if t.rotation is None else t.rotation[:1]) for t in self.targets),
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
    centers, radii = np.array(center, dtype=float).reshape(-1, 3), np.array(radius, dtype=float).reshape(-1)
    n = max(len(centers), len(radii))
    return Sphere(np.broadcast_to(centers, (n, 3)), np.broadcast_to(radii, (n,)))
