"""Push against the ground without slipping."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np

from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.options import check_whole
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.control.terms.activation import Barrier
from rigidgrad.control.terms.cost import Activated, Weight
from rigidgrad.control.terms.notation import FRAME
from rigidgrad.control.terms.robot import robot_of
from rigidgrad.control.terms.term import Jacobians
from rigidgrad.control.terms.touching import ForceCost
from rigidgrad.model.contacts import Contact
from rigidgrad.scalars import add, div, mul, sqrt, sub, total
from rigidgrad.schema import only, whole

_ROUND = 1e-6  # newtons over which the tip of the cone is rounded
_FACETS = whole(3, 1000) | only("round").then(lambda _: None)


class FrictionCone(ForceCost):
    """How far a contact's force is outside of its friction cone, in newtons: |tangent| - μ normal ≤
    0, and -normal ≤ 0.

    With `facets` the cone is a pyramid of so many sides, whose force is at most μ normal along each
    of them; with `facets=None` it is the round cone itself. As a cost it charges the square of what
    lies outside (`Barrier`); `rg.Inequality(FrictionCone(contact), upper=0)` is the constraint. μ
    and the normal are the contact's.
    """

    def __init__(
        self,
        contact: Annotated[Contact, FRAME, "the frame of a contact"],
        weight: Weight = 0.0,
        facets: Annotated[
            int | None,
            _FACETS,
            'sides of the pyramid that stands for the cone, at least 3, or `"round"` for the cone'
            " itself",
        ] = 4,
        activation: Activated = None,
    ):
        super().__init__(
            weight, activation=Barrier(upper=0.0) if activation is None else activation
        )
        self._take(contact)
        if facets is not None:
            check_whole("facets", facets, 3)
        self.facets = facets

    def key(self) -> str:
        return f"{super().key()} {self.contact.friction} {self.contact.normal} {self.facets}"

    def size(self, system: System) -> int:
        return 2 if self.facets is None else self.facets + 1

    def units(self, system: System) -> tuple[str, ...]:
        return ("N",) * self.size(system)

    def matrix(self, system: RobotSystem, x: Vector) -> Matrix:
        n, axes = np.array(self.contact.normal), _tangents(self.contact.normal)
        none = [0.0] * (self.contact.rows - 3)
        rows = []
        for k in range(self.facets or 0):
            angle = 2.0 * math.pi * k / (self.facets or 1)
            along = math.cos(angle) * axes[0] + math.sin(angle) * axes[1]
            rows.append([*_clean(along - self.contact.friction * n), *none])
        rows.append([*_clean(-n), *none])
        return tuple(map(tuple, rows))

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        found = super().residual(system, x, u, target)
        if self.facets is not None:
            return found
        robot = robot_of(system, "FrictionCone")
        force = robot.contact_forces(*robot.split(x), u)[self._rows(robot)][:3]
        side, _ = self._side(force)
        return (add(side, mul(self.contact.friction, found[0])), found[0])

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        if self.facets is not None:
            return super().jacobian(system, x, u, target)
        by_x, by_u = super().jacobian(system, x, u, target)
        robot = robot_of(system, "FrictionCone")
        force, *by = robot.contact_force_gradient(*robot.split(x), u)
        own = self._rows(robot)
        _, along = self._side(force[own][:3])
        of_q, of_v, of_u = (
            [total(map(mul, along, column)) for column in zip(*d[own][:3], strict=True)] for d in by
        )
        assert by_x is not None and by_u is not None
        mu = self.contact.friction
        top_x = tuple(add(a, mul(mu, b)) for a, b in zip((*of_q, *of_v), by_x[0], strict=True))
        top_u = tuple(add(a, mul(mu, b)) for a, b in zip(of_u, by_u[0], strict=True))
        return (top_x, by_x[0]), (top_u, by_u[0])

    def _side(self, force: Vector) -> tuple[Any, Vector]:
        """The length of the tangential force, its tip rounded, and the direction that it grows
        in.
        """
        n = self.contact.normal
        normal = total(map(mul, n, force))
        tangent = tuple(sub(f, mul(k, normal)) for f, k in zip(force, n, strict=True))
        length = sqrt(add(total(mul(t, t) for t in tangent), _ROUND * _ROUND))
        return sub(length, _ROUND), tuple(div(t, length) for t in tangent)


def _tangents(normal: Any) -> tuple[np.ndarray, np.ndarray]:
    """Two directions across the normal; along x and y where that is z."""
    n = np.array(normal, dtype=float)
    y = np.cross(n, (1.0, 0.0, 0.0))
    y = np.cross(n, (0.0, 0.0, 1.0)) if np.linalg.norm(y) < 1e-3 else y
    y /= np.linalg.norm(y)
    return np.cross(y, n), y


def _clean(row: np.ndarray) -> list[float]:
    """Zeros where rounding left next to nothing, so that they are skipped."""
    return [0.0 if abs(x) < 1e-15 else float(x) for x in row]
