"""Spend little control."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad import schema
from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.algorithms.textbook import rnea
from rigidgrad.algorithms.textbook.rnea_derivatives import rnea_derivatives
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.control.terms.cost import Activated, Cost, Weight
from rigidgrad.control.terms.robot import robot_of
from rigidgrad.control.terms.term import Jacobians
from rigidgrad.errors import InputError
from rigidgrad.scalars import mul, neg, total

_REFERENCE = schema.only("gravity") | schema.number() | schema.numbers()


class Effort(Cost):
    """Spend little control: r = u - reference; the reference is 0 unless given, (nu,) or one per
    knot (knots - 1, nu).

    With `reference="gravity"` it is what holds a robot where it is, at every knot, so that the
    weight does not pull it down.
    """

    uses_control = True

    def __init__(
        self,
        weight: Weight = 0.0,
        reference: Annotated[
            ArrayLike,
            _REFERENCE,
            'what costs nothing: a number, one per control, or `"gravity"`: holding still is free',
        ] = 0.0,
        activation: Activated = None,
    ):
        super().__init__(weight, activation=activation)
        self.reference = reference

    @property
    def against_gravity(self) -> bool:
        """Whether holding still is free."""
        return isinstance(self.reference, str)

    @property
    def uses_state(self) -> bool:
        return self.against_gravity

    def key(self) -> str:
        return "Effort against gravity" if self.against_gravity else "Effort"

    def size(self, system: System) -> int:
        return system.nu

    def target_size(self, system: System) -> int:
        return 0 if self.against_gravity else system.nu

    def targets(self, system: System, knots: int) -> np.ndarray:
        result = np.zeros((knots, self.target_size(system)))
        if not self.against_gravity:
            result[:-1] = numbers("the reference of Effort", self.reference, (knots - 1, system.nu))
        elif self.reference != "gravity":
            raise InputError(
                f'the reference of Effort is numbers or "gravity", not {self.reference!r}'
            )
        else:
            robot_of(system, 'Effort(reference="gravity")')
        return result

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        if self.against_gravity:
            robot = robot_of(system, "gravity")
            target = _apply(
                self._holding(robot), rnea.gravity_torque(robot.model, robot.split(x)[0])
            )
        return tuple(a - b for a, b in zip(u, target, strict=True))

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        J_u = tuple(
            tuple(1.0 if i == j else 0.0 for j in range(system.nu)) for i in range(system.nu)
        )
        if not self.against_gravity:
            return None, J_u
        robot = robot_of(system, "gravity")
        still = (0.0,) * robot.nv
        by_q = rnea_derivatives(robot.model, robot.split(x)[0], still, still).dq
        columns = [_apply(self._holding(robot), column) for column in zip(*by_q, strict=True)]
        return tuple((*(neg(y) for y in row), *still) for row in zip(*columns, strict=True)), J_u

    @staticmethod
    def _holding(robot: RobotSystem) -> Matrix | None:
        """From joint forces to the controls that come nearest to them; None where these are the
        same.
        """
        if robot.actuation is None:
            return None
        return tuple(tuple(row) for row in np.linalg.pinv(np.array(robot.actuation)).tolist())


def _apply(matrix: Matrix | None, vector: Vector) -> Vector:
    return (
        tuple(vector) if matrix is None else tuple(total(map(mul, row, vector)) for row in matrix)
    )
