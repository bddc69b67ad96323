"""Press on the ground within the sole."""

from __future__ import annotations

from typing import Annotated, Any

from numpy.typing import ArrayLike

from rigidgrad.algorithms import kinematics
from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.control.terms.activation import Barrier
from rigidgrad.control.terms.cost import Activated, Weight
from rigidgrad.control.terms.notation import FRAME
from rigidgrad.control.terms.robot import robot_of
from rigidgrad.control.terms.term import Jacobians
from rigidgrad.control.terms.touching import ForceCost, product
from rigidgrad.errors import InputError
from rigidgrad.model.contacts import Contact
from rigidgrad.scalars import add
from rigidgrad.schema import numbers as several
from rigidgrad.spatial import cross3, rotate


class CenterOfPressure(ForceCost):
    """How far the centre of pressure of a surface contact is outside of a rectangle around the
    contact's origin, times the normal force, in Nm: |m_y| - l_x f_z ≤ 0 and |m_x| - l_y f_z ≤ 0.

    Force f and moment m are in the foot's own axes, of which z is normal to the sole;
    `half_lengths` (l_x, l_y) are half the sole's length and width in metres. As a cost it charges
    the square of what lies outside (`Barrier`); `rg.Inequality(CenterOfPressure(contact,
    half_lengths), upper=0)` is the constraint.
    """

    def __init__(
        self,
        contact: Annotated[Contact, FRAME, "the frame of a surface contact"],
        half_lengths: Annotated[
            ArrayLike,
            several(2, least=0),
            "half the sole's length along x and its width along y, in metres",
        ],
        weight: Weight = 0.0,
        activation: Activated = None,
    ):
        super().__init__(
            weight, activation=Barrier(upper=0.0) if activation is None else activation
        )
        self._take(contact)
        if self.contact.rows != 6:
            raise InputError(
                f"CenterOfPressure is about a surface: rg.Contact({self.contact.frame!r},"
                ' kind="surface"); a point has no moment'
            )
        self.half_lengths = tuple(
            numbers("half_lengths of CenterOfPressure", half_lengths, (2,)).tolist()
        )
        if not min(self.half_lengths) > 0:
            raise InputError(
                f"half_lengths of CenterOfPressure are positive metres, not {half_lengths!r}"
            )

    def key(self) -> str:
        return f"{super().key()} {self.half_lengths}"

    def size(self, system: System) -> int:
        return 4

    def units(self, system: System) -> tuple[str, ...]:
        return ("Nm",) * 4

    def matrix(self, system: RobotSystem, x: Vector) -> Matrix:
        E = self._axes(system, x)
        none = (0.0, 0.0, 0.0)
        turn = tuple((*row, *none) for row in E) + tuple((*none, *row) for row in E)
        return product(self._sides(), turn)

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        """With the foot turns its rectangle: ∂(E f) = E ∂f + (E f) × ω."""
        by_x, by_u = super().jacobian(system, x, u, target)
        robot = robot_of(system, "CenterOfPressure")
        E, force = (
            self._axes(robot, x),
            robot.contact_force_gradient(*robot.split(x), u)[0][self._rows(robot)],
        )
        turns = kinematics.jacobian(
            robot.model, robot.split(x)[0], robot.model.frame(self.contact.frame), "local"
        )[3:]
        own = rotate(E, force[:3]), rotate(E, force[3:])
        columns = [(*cross3(own[0], w), *cross3(own[1], w)) for w in zip(*turns, strict=True)]
        turned = product(self._sides(), tuple(zip(*columns, strict=True)))
        assert by_x is not None
        rows = tuple(
            (*map(add, row[: robot.nv], more), *row[robot.nv :])
            for row, more in zip(by_x, turned, strict=True)
        )
        return rows, by_u

    def _sides(self) -> Matrix:
        """(4, 6): the rows, of a force and a moment in the foot's axes."""
        lx, ly = self.half_lengths
        return (
            (0.0, 0.0, -lx, 0.0, 1.0, 0.0),
            (0.0, 0.0, -lx, 0.0, -1.0, 0.0),
            (0.0, 0.0, -ly, 1.0, 0.0, 0.0),
            (0.0, 0.0, -ly, -1.0, 0.0, 0.0),
        )

    def _axes(self, robot: RobotSystem, x: Vector) -> Any:
        """E: from world axes to the foot's."""
        return kinematics.frame_transform(
            robot.model, robot.split(x)[0], robot.model.frame(self.contact.frame)
        ).E
