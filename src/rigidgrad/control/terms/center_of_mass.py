"""Bring the centre of mass to a position."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.algorithms.joints import Vector
from rigidgrad.algorithms.textbook import momentum
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.system import System
from rigidgrad.control.terms.cost import Activated, Cost, Final, Weight
from rigidgrad.control.terms.notation import POINT
from rigidgrad.control.terms.robot import robot_of
from rigidgrad.control.terms.term import Jacobians
from rigidgrad.spatial import sub3


class CenterOfMass(Cost):
    """Bring the robot's centre of mass to a position in the world: r = c - target, with target (3,)
    or one per knot (knots, 3).
    """

    def __init__(
        self,
        target: Annotated[ArrayLike, POINT, "a point in the world, in metres"],
        weight: Weight = 0.0,
        final: Final = 0.0,
        activation: Activated = None,
    ):
        super().__init__(weight, final, activation)
        self.target = target

    def size(self, system: System) -> int:
        return 3

    def target_size(self, system: System) -> int:
        return 3

    def units(self, system: System) -> tuple[str, ...]:
        return ("m",) * 3

    def targets(self, system: System, knots: int) -> np.ndarray:
        momentum.total_mass(robot_of(system, "CenterOfMass").model)
        return numbers("the target of CenterOfMass", self.target, (knots, 3))

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        robot = robot_of(system, "CenterOfMass")
        return sub3(momentum.center_of_mass(robot.model, robot.split(x)[0]), target)

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        robot = robot_of(system, "CenterOfMass")
        J = momentum.center_of_mass_jacobian(robot.model, robot.split(x)[0])
        return tuple((*row, *((0.0,) * robot.nv)) for row in J), None
