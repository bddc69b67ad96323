"""Move as a whole with a given momentum."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.algorithms.joints import Vector
from rigidgrad.algorithms.textbook import momentum
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.control.terms.cost import Activated, Cost, Final, Weight
from rigidgrad.control.terms.differentiated import state_jacobian
from rigidgrad.control.terms.notation import halves
from rigidgrad.control.terms.robot import robot_of
from rigidgrad.control.terms.term import Jacobians
from rigidgrad.schema import numbers as several


class CentroidalMomentum(Cost):
    """The robot's momentum about its centre of mass, as `robot.centroidal_momentum`, less a target:
    6 numbers, or one set per knot (knots, 6).

    The first three are linear (kg m/s), the others angular (kg m²/s), in world axes. Weights are a
    number, a pair (linear, angular), or six numbers.
    """

    def __init__(
        self,
        target: Annotated[
            ArrayLike, several(6), "linear, then angular momentum, in kg m/s and kg m²/s"
        ] = 0.0,
        weight: Weight = 0.0,
        final: Final = 0.0,
        activation: Activated = None,
    ):
        super().__init__(weight, final, activation)
        self.target = target

    def size(self, system: System) -> int:
        return 6

    def target_size(self, system: System) -> int:
        return 6

    def units(self, system: System) -> tuple[str, ...]:
        return ("kg m/s",) * 3 + ("kg m²/s",) * 3

    def targets(self, system: System, knots: int) -> np.ndarray:
        momentum.total_mass(robot_of(system, "CentroidalMomentum").model)
        return numbers("the target of CentroidalMomentum", self.target, (knots, 6))

    def _spread(self, weight: Any) -> Any:
        return halves(weight)

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        found = _momentum(robot_of(system, "CentroidalMomentum"), x)
        return tuple(a - b for a, b in zip(found, target, strict=True))

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        return state_jacobian(robot_of(system, "CentroidalMomentum"), 6, _momentum, x), None


def _momentum(robot: RobotSystem, x: Vector) -> Vector:
    return momentum.centroidal_momentum(robot.model, *robot.split(x))
