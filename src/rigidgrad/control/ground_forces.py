"""What the ground does to a robot along a motion, for pictures and charts: found when it is asked
for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rigidgrad.control.surroundings import Force
from rigidgrad.control.system import RobotSystem
from rigidgrad.model.contacts import Contact

if TYPE_CHECKING:
    from rigidgrad.control.problem import Problem


@dataclass(frozen=True)
class Holding:
    """Copied from a problem with contacts: the inputs of its dynamics at each step (steps, n), the
    seconds of each (steps,), and its contacts.
    """

    inputs: np.ndarray
    seconds: np.ndarray
    contacts: tuple[Contact, ...]

    @classmethod
    def of(cls, problem: Problem) -> Holding | None:
        """None of a problem without contacts."""
        if not isinstance(problem.system, RobotSystem) or problem.system.held is None:
            return None
        # phases have many in common
        every = {id(c): c for phase in problem.phases for c in phase.contacts}
        contacts = tuple(c for c in every.values() if isinstance(c, Contact))
        inputs = problem.p[:-1, problem.programs.inputs]
        return cls(inputs.copy(), problem.h.copy(), contacts) if contacts else None

    def forces(self, system: RobotSystem, x: np.ndarray, u: np.ndarray) -> tuple[Force, ...]:
        """Along states x (steps + 1, nx) and controls u (steps, nu); none in an impact."""
        assert system.held is not None
        rows = np.zeros((len(u), sum(c.rows for c in system.held.constraints)))
        for k in np.flatnonzero(self.seconds > 0.0).tolist():
            given = system.given(tuple(self.inputs[k].tolist()))
            q, v = given.split(tuple(x[k].tolist()))
            rows[k] = given.contact_forces(q, v, tuple(u[k].tolist()))
        holds = self.inputs[:, system.contact_numbers]
        frames = system.robot.forward_kinematics(x[:-1, : system.nq])
        normals = {c.constraint: tuple(c.normal) for c in self.contacts}
        found = []
        for row, c in enumerate(system.held.constraints):
            if c not in normals:
                continue
            newtons = np.where(
                holds[:, row : row + 1] > 0.0, rows[:, system.held.rows(c)][:, :3], 0.0
            )
            at = (frames[c.frame] @ np.append(c.offset, 1.0))[:, :3]
            normal = np.array(normals[c])
            found.append(Force(c.frame, at, newtons, normal))
        return tuple(found)
