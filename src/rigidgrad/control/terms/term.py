"""Terms of a problem, over any scalar: vectors of numbers that depend on the state and the control
of one knot.

A Cost (cost.py) charges for a term, a Constraint (constraint.py) keeps it between bounds. Targets,
weights and bounds are inputs of the compiled problem and may change at any time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.system import System

Jacobians = tuple[Matrix | None, Matrix | None]


class Term(ABC):
    """A residual r(x, u; target). One that uses the control does not act on the last knot, which
    has none.
    """

    @property
    def uses_state(self) -> bool:
        """Whether r depends on the state."""
        return True

    @property
    def uses_control(self) -> bool:
        """Whether r depends on the control."""
        return False

    @abstractmethod
    def size(self, system: System) -> int:
        """Numbers in the residual."""

    @abstractmethod
    def target_size(self, system: System) -> int:
        """Numbers in the target, possibly none."""

    @abstractmethod
    def targets(self, system: System, knots: int) -> np.ndarray:
        """(knots, target_size). Checks all that can be wrong with the term for this system."""

    @abstractmethod
    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        """r(x, u; target), (size,)."""

    @abstractmethod
    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        """(∂r/∂dx, ∂r/∂du), of shapes (size, ndx) and (size, nu), in the tangent space at x; None
        where r does not depend on it.
        """

    def units(self, system: System) -> tuple[str, ...]:
        """Of each number of the residual: "m", "rad", "m/s", "rad/s", or "" where only the user
        knows.
        """
        return ("",) * self.size(system)

    def remaining(self, system: System, x: Vector, target: Vector) -> Vector:
        """What a state lacks of the target, in these units and the layout of the residual."""
        return self.residual(system, x, (0.0,) * system.nu, target)

    def key(self) -> str:
        """What distinguishes this term's recorded programs from others'."""
        return type(self).__name__

    def identity(self) -> str:
        """The same with what is charged for it."""
        return self.key()

    def label(self) -> str:
        """What a reader calls it."""
        return type(self).__name__
