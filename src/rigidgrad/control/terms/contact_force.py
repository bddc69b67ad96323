"""Push with a given force."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.control.terms.cost import Activated, Weight
from rigidgrad.control.terms.notation import FRAME
from rigidgrad.control.terms.touching import ForceCost
from rigidgrad.model.contacts import Contact
from rigidgrad.schema import numbers as several


class ContactForce(ForceCost):
    """The force of a contact, in world axes, less a target: 0 unless given, 3 numbers, or 6 of a
    surface (a moment follows), or one set per knot. Small weights share loads between feet.
    """

    def __init__(
        self,
        contact: Annotated[Contact, FRAME, "the frame of a contact"],
        weight: Weight = 0.0,
        target: Annotated[
            ArrayLike, several(), "newtons in world axes, and of a surface newton metres after them"
        ] = 0.0,
        activation: Activated = None,
    ):
        super().__init__(weight, activation=activation)
        self._take(contact)
        self.target = target

    def size(self, system: System) -> int:
        return self.contact.rows

    def target_size(self, system: System) -> int:
        return self.contact.rows

    def units(self, system: System) -> tuple[str, ...]:
        return ("N", "N", "N", "Nm", "Nm", "Nm")[: self.contact.rows]

    def targets(self, system: System, knots: int) -> np.ndarray:
        super().targets(system, knots)
        result = np.zeros((knots, self.contact.rows))
        result[:-1] = numbers(
            "the target of ContactForce", self.target, (knots - 1, self.contact.rows)
        )
        return result

    def matrix(self, system: RobotSystem, x: Vector) -> Matrix:
        n = self.contact.rows
        return tuple(tuple(1.0 if i == j else 0.0 for j in range(n)) for i in range(n))
