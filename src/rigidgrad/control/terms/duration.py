"""Take little time."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.algorithms.joints import Vector
from rigidgrad.control.system import System
from rigidgrad.control.terms.cost import Cost, Quadratic
from rigidgrad.control.terms.notation import WEIGHT
from rigidgrad.control.terms.term import Jacobians
from rigidgrad.control.timed import Timed
from rigidgrad.scalars import Scalar, mul


class Duration(Cost):
    """Take little time: the weight times the seconds of each step, of a phase or of the whole
    motion, w T. It has a minimum where the duration is free: `rg.Phase(…, duration=(low, high))`.
    """

    uses_control = True
    is_per_second = True

    def __init__(self, weight: Annotated[ArrayLike, WEIGHT, "per second"] = 0.0):
        super().__init__(weight)

    @property
    def uses_state(self) -> bool:
        return False

    def size(self, system: System) -> int:
        return 1

    def target_size(self, system: System) -> int:
        return 0

    def targets(self, system: System, knots: int) -> np.ndarray:
        return np.zeros((knots, 0))

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        """How much longer than its first guess a step lasts: the weights have the guess."""
        return (system.stretch(x, u) if isinstance(system, Timed) else 1.0,)

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        if not isinstance(system, Timed):
            return None, ((0.0,) * system.nu,)
        by_state, by_control = system.stretch_gradient()
        return ((*(0.0,) * system.inner.ndx, *by_state),), (
            (*(0.0,) * system.inner.nu, *by_control),
        )

    def value(self, system: System, x: Vector, u: Vector, target: Vector, weight: Vector) -> Scalar:
        return mul(weight[0], self.residual(system, x, u, target)[0])

    def expand(
        self, system: System, x: Vector, u: Vector, target: Vector, weight: Vector
    ) -> Quadratic:
        value = self.value(system, x, u, target, weight)
        if not isinstance(system, Timed):
            return Quadratic(value, None, None, None, None, None)
        first = system.scaled_gradient(weight[0])
        return Quadratic(value, *first, *system.scaled_curvature(weight[0], system.stretch(x, u)))
