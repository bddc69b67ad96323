"""Bring a frame to a height."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.algorithms import kinematics
from rigidgrad.algorithms.joints import Vector
from rigidgrad.control.numeric_input import numbers, shape_of
from rigidgrad.control.system import System
from rigidgrad.control.terms.cost import Activated, Cost, Final, Weight
from rigidgrad.control.terms.notation import FRAME, POINT
from rigidgrad.control.terms.robot import point_of, robot_of
from rigidgrad.control.terms.term import Jacobians
from rigidgrad.schema import number


class Height(Cost):
    """How high a frame, or the point at `offset` in it, is above z = 0 in the world, less a target:
    metres, one number or one per knot (knots,). For feet in swing, and for feet that land.
    """

    def __init__(
        self,
        frame: Annotated[str, FRAME, "the frame whose height counts"],
        target: Annotated[ArrayLike, number(), "metres above z = 0"] = 0.0,
        weight: Weight = 0.0,
        final: Final = 0.0,
        offset: Annotated[ArrayLike, POINT, "the point of the frame, in its axes, in metres"] = (
            0.0,
            0.0,
            0.0,
        ),
        activation: Activated = None,
    ):
        super().__init__(weight, final, activation)
        self.frame, self.target = frame, target
        self.offset = tuple(numbers("the offset of Height", offset, (3,)).tolist())

    def key(self) -> str:
        return f"Height {self.frame!r} {self.offset}"

    def label(self) -> str:
        return f"Height {self.frame!r}"

    def size(self, system: System) -> int:
        return 1

    def target_size(self, system: System) -> int:
        return 1

    def units(self, system: System) -> tuple[str, ...]:
        return ("m",)

    def targets(self, system: System, knots: int) -> np.ndarray:
        point_of(robot_of(system, "Height"), self.frame, self.offset)
        shape = (knots, 1) if len(shape_of(self.target)) == 2 else (knots,)
        return numbers("the target of Height", self.target, shape).reshape(knots, 1)

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        robot = robot_of(system, "Height")
        X = kinematics.frame_transform(
            robot.model, robot.split(x)[0], point_of(robot, self.frame, self.offset)
        )
        return (X.r[2] - target[0],)

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        robot = robot_of(system, "Height")
        J = kinematics.jacobian(
            robot.model, robot.split(x)[0], point_of(robot, self.frame, self.offset), "world"
        )
        return ((*J[2], *((0.0,) * robot.nv)),), None
