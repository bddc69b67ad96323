"""Limits of joint positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from rigidgrad.algorithms.joints import Vector
from rigidgrad.control.numeric_input import numbers, shape_of
from rigidgrad.control.system import System
from rigidgrad.control.terms.constraint import Bounds
from rigidgrad.control.terms.limit import Limit, is_own, is_pair, own_limits, selection
from rigidgrad.control.terms.robot import robot_of
from rigidgrad.control.terms.term import Jacobians
from rigidgrad.errors import InputError
from rigidgrad.model.model import Joint


class Position(Limit):
    """The positions of all joints with one freedom."""

    def size(self, system: System) -> int:
        return len(self._joints(system))

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        return tuple(x[j.q] for j in self._joints(system))

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        return selection([j.v for j in self._joints(system)], system.ndx), None

    def asked(self, system: System, knots: int) -> Bounds:
        robot = robot_of(system, "a position limit")
        value: Any = self.limits.position
        if is_own(value):
            limits = own_limits(robot, value)
            value = limits.lower, limits.upper
        single = np.zeros(robot.nq, dtype=bool)
        single[[j.q for j in self._joints(robot)]] = True

        def spread(b: Any, beyond: float) -> Any:
            return (
                b
                if b is None or shape_of(b)
                else np.where(single, numbers("position limit", b, (), infinite=True), beyond)
            )

        value = (
            (spread(value[0], -np.inf), spread(value[1], np.inf))
            if is_pair(value)
            else spread(value, np.inf)
        )
        lower, upper = self.limits.bounds_of("position", value, (knots, robot.nq))
        if np.isfinite(lower[:, ~single]).any() or np.isfinite(upper[:, ~single]).any():
            raise InputError(
                "floating, spherical and planar joints have no position limits: leave ±inf there,"
                " or write an Inequality"
            )
        return lower[:, single], upper[:, single]

    def start_text(self, system: System, k: int, c: float) -> str:
        return (
            f"joint {self._joints(system)[k].name!r} starts at {c:g}, outside of its position"
            " limits"
        )

    def _joints(self, system: System) -> list[Joint]:
        """In the order of their numbers in q."""
        joints = robot_of(system, "a position limit").model.joints
        return sorted((j for j in joints if j.nq == 1 and not j.is_mimic), key=lambda j: j.q)
