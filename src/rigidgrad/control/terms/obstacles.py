"""Spheres on links that stay out of obstacles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad import schema
from rigidgrad.algorithms import kinematics
from rigidgrad.algorithms.joints import Vector
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.system import System
from rigidgrad.control.terms.constraint import Bounds
from rigidgrad.control.terms.limit import Limit
from rigidgrad.control.terms.notation import FRAME, POINT
from rigidgrad.control.terms.robot import point_of, robot_of
from rigidgrad.control.terms.term import Jacobians
from rigidgrad.errors import InputError
from rigidgrad.scalars import Scalar, sqrt
from rigidgrad.spatial import Vector3, dot3, sub3

# a distance d is smoothed to √(d² + (εR)²), R being the sum of radii, so that its gradient is
# finite at the centre, too; at contact it stays exact
_SOFT = 1e-3
_RADIUS = schema.number(above=0)


@dataclass
class Obstacle:
    """A sphere to keep out of."""

    center: Annotated[ArrayLike, POINT, "in the world, in metres"]
    """In the world, in metres: (3,), or one per knot (knots, 3)."""
    radius: Annotated[ArrayLike, _RADIUS, "in metres"]
    """In metres: one number, or one per knot (knots,)."""


@dataclass
class LinkSphere:
    """A sphere on a link: around a point of a frame."""

    frame: Annotated[str, FRAME, "the frame that it moves with"]
    """It moves with this frame."""
    radius: Annotated[float, _RADIUS, "in metres"]
    """In metres."""
    offset: Annotated[ArrayLike, POINT, "its centre in the frame, in metres"] = (0.0, 0.0, 0.0)
    """Its centre in the frame, in metres."""


class Clearance(Limit):
    """The distance between each sphere and each obstacle, in metres, negative inside; at the centre
    its gradient is smoothed to zero.

    A distance converges as well as its square, which has another unit and a weaker gradient inside.
    The target is centre and radius of each obstacle, then the radius of each sphere.
    """

    def key(self) -> str:
        return (
            f"Clearance {[(s.frame, self._offset(s)) for s in self.limits.spheres]}"
            f" {len(self.limits.obstacles)}"
        )

    def size(self, system: System) -> int:
        return len(self.limits.obstacles) * len(self.limits.spheres)

    def target_size(self, system: System) -> int:
        return 4 * len(self.limits.obstacles) + len(self.limits.spheres)

    def targets(self, system: System, knots: int) -> np.ndarray:
        robot = robot_of(system, "an obstacle")
        columns = []
        for i, o in enumerate(self.limits.obstacles):
            columns.append(numbers(f"the centre of obstacle {i}", o.center, (knots, 3)))
            columns.append(numbers(f"the radius of obstacle {i}", o.radius, (knots,))[:, None])
        for s in self.limits.spheres:
            point_of(robot, s.frame, self._offset(s))
            columns.append(
                numbers(f"the radius of the sphere on {s.frame!r}", s.radius, (knots,))[:, None]
            )
        radii = np.concatenate([c for c in columns if c.shape[1] == 1], axis=1)
        if (radii <= 0).any():
            raise InputError("radii of obstacles and of spheres are positive")
        return np.concatenate(columns, axis=1)

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        robot = robot_of(system, "an obstacle")
        q = robot.split(x)[0]
        result = []
        for k, s in enumerate(self.limits.spheres):
            p = kinematics.frame_transform(
                robot.model, q, point_of(robot, s.frame, self._offset(s))
            ).r
            for _, distance, radius in self._around(p, k, target):
                result.append(distance - radius * math.sqrt(1 + _SOFT**2))
        return tuple(result)

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        robot = robot_of(system, "an obstacle")
        q, rows = robot.split(x)[0], []
        for k, s in enumerate(self.limits.spheres):
            point = point_of(robot, s.frame, self._offset(s))
            p = kinematics.frame_transform(robot.model, q, point).r
            columns = list(
                zip(*kinematics.jacobian(robot.model, q, point, "world")[:3], strict=True)
            )
            for away, distance, _ in self._around(p, k, target):
                direction = tuple(a / distance for a in away)
                rows.append((*(dot3(direction, c) for c in columns), *((0.0,) * robot.nv)))
        return tuple(rows), None

    def asked(self, system: System, knots: int) -> Bounds:
        lower = numbers("clearance", self.limits.clearance, (knots, self.size(system)))
        if (lower < 0).any():
            raise InputError(
                "clearance is a distance to keep, so it is not negative; this is"
                f" {self.limits.clearance!r}"
            )
        return lower, np.full(lower.shape, np.inf)

    def start_text(self, system: System, k: int, c: float) -> str:
        sphere, obstacle = divmod(k, len(self.limits.obstacles))
        return (
            f"at the start, the sphere on {self.limits.spheres[sphere].frame!r} is {c:.3g} m from"
            f" obstacle {obstacle}, less than the clearance"
        )

    def _around(
        self, p: Vector3, sphere: int, target: Vector
    ) -> Iterator[tuple[Vector3, Scalar, Scalar]]:
        """For each obstacle the way from its centre to p, its smoothed length, and the sum of
        radii.
        """
        count = len(self.limits.obstacles)
        for i in range(count):
            away = sub3(p, target[4 * i : 4 * i + 3])
            radius = target[4 * i + 3] + target[4 * count + sphere]
            soft = _SOFT * radius
            yield away, sqrt(dot3(away, away) + soft * soft), radius

    @staticmethod
    def _offset(sphere: LinkSphere) -> tuple[float, ...]:
        return tuple(
            numbers(f"the offset of the sphere on {sphere.frame!r}", sphere.offset, (3,)).tolist()
        )
