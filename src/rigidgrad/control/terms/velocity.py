"""Limits of joint velocities."""

from __future__ import annotations

from rigidgrad.algorithms.joints import Vector
from rigidgrad.control.system import System
from rigidgrad.control.terms.constraint import Bounds
from rigidgrad.control.terms.limit import Limit, is_own, own_limits, selection
from rigidgrad.control.terms.robot import robot_of
from rigidgrad.control.terms.term import Jacobians


class Velocity(Limit):
    """All joint velocities. A start that is too fast may slow down within a step, so it is no
    error.
    """

    start_matters = False

    def size(self, system: System) -> int:
        return robot_of(system, "a velocity limit").nv

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        return robot_of(system, "a velocity limit").split(x)[1]

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        n = self.size(system)
        return selection(range(n, 2 * n), 2 * n), None

    def asked(self, system: System, knots: int) -> Bounds:
        robot, value = robot_of(system, "a velocity limit"), self.limits.velocity
        if is_own(value):
            value = own_limits(robot, value).velocity
        return self.limits.bounds_of("velocity", value, (knots, robot.nv))
