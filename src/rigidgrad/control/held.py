"""Contacts of a robot in a problem. Which of them hold, and whether a knot is an impact, are inputs
of the dynamics, one row per knot: one program serves all phases of a motion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rigidgrad.algorithms.fast.constraint_rows import Inputs
from rigidgrad.algorithms.joints import Vector
from rigidgrad.control.numeric_input import numbers
from rigidgrad.model.contacts import Constraint, Contact, Loop

Touch = Contact | Loop


@dataclass(frozen=True)
class Held:
    """The contacts and loops that any phase has. `impacts`: whether there are any; `redundant`:
    whether some set of them shares its forces, so that all are damped.
    """

    constraints: tuple[Constraint, ...]
    impacts: bool = False
    redundant: bool = False

    @property
    def count(self) -> int:
        """Numbers in a row: which hold, where placed ones belong, and for impacts two more."""
        return len(self.constraints) + sum(map(place_size, self.constraints)) + 2 * self.impacts

    def rows(self, constraint: Constraint) -> slice:
        """Where the force of a contact is among all forces."""
        k = self.constraints.index(constraint)
        start = sum(c.rows for c in self.constraints[:k])
        return slice(start, start + constraint.rows)

    def inputs(self, row: Vector) -> Inputs:
        """What the dynamics take of a row."""
        n = len(self.constraints)
        places: dict[int, object] = {}
        start = n
        for k, c in enumerate(self.constraints):
            if size := place_size(c):
                own = tuple(row[start : start + size])
                places[k] = own if size == 3 else tuple(own[4 * i : 4 * i + 4] for i in range(4))
                start += size
        flow, bounce = (row[start], row[start + 1]) if self.impacts else (1.0, 0.0)
        return Inputs(self.constraints, places, tuple(row[:n]), flow, bounce)

    def values(self, contacts: Sequence[Touch], restitution: float | None = None) -> np.ndarray:
        """A row: these contacts hold; with a restitution it is an impact."""
        own: Mapping[Constraint, Touch] = {c.constraint: c for c in contacts}
        row: list[float] = [float(c in own) for c in self.constraints]
        for c in self.constraints:
            if size := place_size(c):
                contact = own.get(c)
                shape = (3,) if size == 3 else (4, 4)
                place = (
                    numbers(f"the place of {c.frame}", contact.place, shape)
                    if isinstance(contact, Contact)
                    else np.zeros(shape)
                )
                row += place.ravel().tolist()
        if self.impacts:
            row += [1.0, 0.0] if restitution is None else [0.0, 1.0 + restitution]
        return np.array(row)


def place_size(c: Constraint) -> int:
    """Numbers of where a contact belongs; 0 for one that holds wherever it touches."""
    return 0 if not c.placed else 3 if c.rows == 3 else 16
