"""Bring a frame to a position or a pose."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.algorithms import kinematics, tangent_maps
from rigidgrad.algorithms.joints import Vector
from rigidgrad.control.numeric_input import numbers, shape_of
from rigidgrad.control.system import System
from rigidgrad.control.terms.cost import Activated, Cost, Final, Weight
from rigidgrad.control.terms.notation import FRAME, POINT, POSE, halves
from rigidgrad.control.terms.robot import point_of, robot_of
from rigidgrad.control.terms.rotation import rotation_vector, rotation_vector_jacobian
from rigidgrad.control.terms.term import Jacobians
from rigidgrad.errors import InputError
from rigidgrad.spatial import Matrix3, Vector3, multiply3, sub3, transpose


class Reach(Cost):
    """Bring a frame, or the point at `offset` in it, to a position or a pose in the world.

    A position is (3,) or one per knot (knots, 3); then r = p - target. A pose is a homogeneous
    matrix (4, 4) or (knots, 4, 4); then r has three numbers more, the rotation vector log(R_targetᵀ
    R) in the target's axes. Weights of a pose are a number, a pair (position, orientation), or six
    numbers.
    """

    def __init__(
        self,
        frame: Annotated[str, FRAME, "the frame that goes to the target"],
        target: Annotated[
            ArrayLike, POINT | POSE, "a point in the world, in metres, or a 4x4 pose"
        ],
        offset: Annotated[
            ArrayLike, POINT, "the point of the frame that goes there, in its axes, in metres"
        ] = (0.0, 0.0, 0.0),
        weight: Weight = 0.0,
        final: Final = 0.0,
        activation: Activated = None,
    ):
        super().__init__(weight, final, activation)
        self.frame = frame
        self.target: Any = target
        self.offset = tuple(numbers("the offset of Reach", offset, (3,)).tolist())
        self.pose = shape_of(target)[-2:] == (4, 4)

    def key(self) -> str:
        return f"Reach {'pose' if self.pose else 'position'} {self.frame!r} {self.offset}"

    def label(self) -> str:
        return f"Reach {self.frame!r}"

    def size(self, system: System) -> int:
        return 6 if self.pose else 3

    def target_size(self, system: System) -> int:
        return 12 if self.pose else 3

    def units(self, system: System) -> tuple[str, ...]:
        return ("m",) * 3 + ("rad",) * 3 * self.pose

    def targets(self, system: System, knots: int) -> np.ndarray:
        robot = robot_of(system, "Reach")
        point_of(robot, self.frame, self.offset)
        if not self.pose:
            return numbers("the target of Reach (a position)", self.target, (knots, 3))
        T = numbers("the target of Reach (a pose)", self.target, (knots, 4, 4))
        R = T[:, :3, :3]
        if (
            not np.allclose(R @ R.transpose(0, 2, 1), np.eye(3), atol=1e-6)
            or (np.linalg.det(R) < 0).any()
        ):
            raise InputError("the upper left 3x3 part of a target of Reach must be a rotation")
        if not np.allclose(T[:, 3], (0, 0, 0, 1)):
            raise InputError("the last row of a target of Reach must be 0 0 0 1")
        return np.concatenate([T[:, :3, 3], R.reshape(knots, 9)], axis=1)

    def _spread(self, weight: Any) -> Any:
        return halves(weight) if self.pose else weight

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        robot = robot_of(system, "Reach")
        X = kinematics.frame_transform(
            robot.model, robot.split(x)[0], point_of(robot, self.frame, self.offset)
        )
        position = sub3(X.r, target[:3])
        return (*position, *self._turn(X.E, target)) if self.pose else position

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        robot = robot_of(system, "Reach")
        q, point = robot.split(x)[0], point_of(robot, self.frame, self.offset)
        J = kinematics.jacobian(robot.model, q, point, "world")
        rows = J[:3]
        if self.pose:
            E = kinematics.frame_transform(robot.model, q, point).E
            rows += tangent_maps.block_times(
                [rotation_vector_jacobian(E, self._turn(E, target))], J[3:]
            )
        return tuple((*row, *((0.0,) * robot.nv)) for row in rows), None

    def _turn(self, E: Matrix3, target: Vector) -> Vector3:
        goal = target[3:6], target[6:9], target[9:12]
        return rotation_vector(multiply3(transpose(goal), transpose(E)))
