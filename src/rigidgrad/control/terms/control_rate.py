"""Change controls little from step to step."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad import schema
from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.remembering import Remembering
from rigidgrad.control.system import System
from rigidgrad.control.terms.cost import Activated, Cost, Weight
from rigidgrad.control.terms.term import Jacobians
from rigidgrad.errors import InputError
from rigidgrad.scalars import sub


class ControlRate(Cost):
    """Change controls little: r_k = u_k - u_{k-1}, from one step to the next, not divided by its
    seconds.

    `previous` is the control before the first one, a number or (nu,). Unless it is given the first
    control is free, and the sum begins with u_1 - u_0. Under `rg.MPC` it is the control that acts
    when a plan begins. A weight per knot (steps, nu) is that of the change to this knot's control.

    `rg.Inequality(ControlRate(), lower, upper)` keeps changes between bounds. Solvers find the
    optimum with the control of the step before as a part of the state (`control.memory`).
    """

    uses_control = True

    def __init__(
        self,
        weight: Weight = 0.0,
        previous: Annotated[
            ArrayLike | None,
            schema.number() | schema.numbers(),
            "the control before the first one: a number, or one per control; unless given, the"
            " first one is free",
        ] = None,
        activation: Activated = None,
    ):
        super().__init__(weight, activation=activation)
        self.previous = previous

    def control_before(self, system: System) -> np.ndarray | None:
        """(nu,), or None where it was not given."""
        return (
            None
            if self.previous is None
            else numbers("the previous control of ControlRate", self.previous, (system.nu,))
        )

    def size(self, system: System) -> int:
        return system.nu

    def target_size(self, system: System) -> int:
        return 0

    def targets(self, system: System, knots: int) -> np.ndarray:
        self.control_before(system)
        return np.zeros((knots, 0))

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        return tuple(map(sub, u, _remembering(system).before(x)))

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        still = (0.0,) * _remembering(system).inner.ndx
        return tuple((*still, *row) for row in _diagonal(-1.0, system.nu)), _diagonal(
            1.0, system.nu
        )


def rate_of(term: Any) -> ControlRate | None:
    """The ControlRate that a cost or a constraint is, or is about; None for others."""
    found = getattr(term, "term", term)
    return found if isinstance(found, ControlRate) else None


def _remembering(system: System) -> Remembering:
    if not isinstance(system, Remembering):
        raise InputError(
            "ControlRate is for problems that rg.solve or rg.MPC solves with rg.PDDP or rg.Direct"
            " on the CPU; nothing else knows the control of the step before"
        )
    return system


def _diagonal(value: float, n: int) -> Matrix:
    return tuple(tuple(value if i == j else 0.0 for j in range(n)) for i in range(n))
