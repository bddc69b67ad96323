"""What terms of a contact share: its force, and how that changes with state and control."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.control.terms.cost import Cost
from rigidgrad.control.terms.robot import robot_of
from rigidgrad.control.terms.term import Jacobians
from rigidgrad.errors import InputError
from rigidgrad.model.contacts import Contact
from rigidgrad.scalars import mul, total


class ForceCost(Cost):
    """A residual that is linear in the force of one contact, in world axes: r = A f - target. In an
    impact, of its impulse; where the contact does not hold, of 0.
    """

    uses_control = True
    contact: Contact

    @abstractmethod
    def matrix(self, system: RobotSystem, x: Vector) -> Matrix:
        """A, (size, rows of the contact)."""

    def _take(self, contact: Any) -> None:
        if not isinstance(contact, Contact):
            raise InputError(f"{type(self).__name__} is about a rg.Contact, not {contact!r}")
        self.contact = contact

    def key(self) -> str:
        return f"{type(self).__name__} {self.contact.constraint}"

    def label(self) -> str:
        return f"{type(self).__name__} {self.contact.frame!r}"

    def target_size(self, system: System) -> int:
        return 0

    def targets(self, system: System, knots: int) -> np.ndarray:
        self._rows(robot_of(system, type(self).__name__))
        return np.zeros((knots, 0))

    def _rows(self, robot: RobotSystem) -> slice:
        known = () if robot.held is None else robot.held.constraints
        if self.contact.constraint not in known:
            held = ", ".join(c.frame for c in known) or "none"
            raise InputError(
                f"{self.label()}: no phase of the problem has this contact; contacts of its phases:"
                f" {held}. Give the same rg.Contact to both"
            )
        assert robot.held is not None
        return robot.held.rows(self.contact.constraint)

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        robot = robot_of(system, type(self).__name__)
        force = robot.contact_forces(*robot.split(x), u)[self._rows(robot)]
        found = tuple(total(map(mul, row, force)) for row in self.matrix(robot, x))
        return tuple(a - b for a, b in zip(found, target, strict=True)) if target else found

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        robot = robot_of(system, type(self).__name__)
        own = self._rows(robot)
        _, *by = robot.contact_force_gradient(*robot.split(x), u)
        A = self.matrix(robot, x)
        by_q, by_v, by_u = (product(A, d[own]) for d in by)
        return tuple((*a, *b) for a, b in zip(by_q, by_v, strict=True)), by_u


def product(A: Matrix, B: Matrix) -> Matrix:
    """A B."""
    columns = list(zip(*B, strict=True))
    return tuple(tuple(total(map(mul, row, column)) for column in columns) for row in A)
