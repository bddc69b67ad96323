"""Move a frame with a given velocity."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.algorithms import kinematics
from rigidgrad.algorithms.joints import Vector
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.control.terms.cost import Activated, Cost, Final, Weight
from rigidgrad.control.terms.differentiated import state_jacobian
from rigidgrad.control.terms.notation import FRAME, POINT, halves
from rigidgrad.control.terms.robot import point_of, robot_of
from rigidgrad.control.terms.term import Jacobians
from rigidgrad.errors import unknown_name
from rigidgrad.schema import numbers as several, word

AXES = ("world", "local", "spatial")


class FrameVelocity(Cost):
    """The velocity of a frame, or of the point at `offset` in it, less a target: 6 numbers, linear
    first, or one set per knot (knots, 6).

    `expressed_in` as of `robot.frame_velocity`: "world" axes at the point, the frame's own
    ("local"), or the spatial velocity at the world's origin ("spatial"). Weights are a number, a
    pair (linear, angular), or six numbers: `weight=(1e2, 0)` lets a foot that lands turn as it
    likes.
    """

    def __init__(
        self,
        frame: Annotated[str, FRAME, "the frame that moves"],
        target: Annotated[
            ArrayLike, several(6), "linear, then angular velocity, in m/s and rad/s"
        ] = 0.0,
        weight: Weight = 0.0,
        final: Final = 0.0,
        expressed_in: Annotated[
            str, word(*AXES), "the axes: of the world, the frame's own, or at the world's origin"
        ] = "world",
        offset: Annotated[ArrayLike, POINT, "the point of the frame, in its axes, in metres"] = (
            0.0,
            0.0,
            0.0,
        ),
        activation: Activated = None,
    ):
        super().__init__(weight, final, activation)
        if not isinstance(expressed_in, str) or expressed_in not in AXES:
            raise unknown_name("choice of axes", expressed_in, AXES)
        self.frame, self.target, self.expressed_in = frame, target, expressed_in
        self.offset = tuple(numbers("the offset of FrameVelocity", offset, (3,)).tolist())

    def key(self) -> str:
        return f"FrameVelocity {self.frame!r} {self.expressed_in} {self.offset}"

    def label(self) -> str:
        return f"FrameVelocity {self.frame!r}"

    def size(self, system: System) -> int:
        return 6

    def target_size(self, system: System) -> int:
        return 6

    def units(self, system: System) -> tuple[str, ...]:
        return ("m/s",) * 3 + ("rad/s",) * 3

    def targets(self, system: System, knots: int) -> np.ndarray:
        point_of(robot_of(system, "FrameVelocity"), self.frame, self.offset)
        return numbers("the target of FrameVelocity", self.target, (knots, 6))

    def _spread(self, weight: Any) -> Any:
        return halves(weight)

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        found = self._velocity(robot_of(system, "FrameVelocity"), x)
        return tuple(a - b for a, b in zip(found, target, strict=True))

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        return state_jacobian(robot_of(system, "FrameVelocity"), 6, self._velocity, x), None

    def _velocity(self, robot: RobotSystem, x: Vector) -> Vector:
        return kinematics.frame_velocity(
            robot.model,
            *robot.split(x),
            point_of(robot, self.frame, self.offset),
            self.expressed_in,
        )
