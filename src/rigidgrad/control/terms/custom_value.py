"""The number that a user's function returns, as it is."""

from __future__ import annotations

from rigidgrad.algorithms.joints import Vector
from rigidgrad.control.system import System
from rigidgrad.control.terms.cost import Quadratic
from rigidgrad.control.terms.custom import Custom
from rigidgrad.control.terms.function import at_zero
from rigidgrad.errors import InputError
from rigidgrad.program.differentiate import differentiate
from rigidgrad.scalars import Scalar, mul


class CustomValue(Custom):
    """w times the one number that a Python function returns (see `Function`), with exact second
    derivatives.

    Where these are indefinite, a solver regularises; a sum of squares converges better as `Custom`.
    On joints with quaternions, second derivatives are those along the exponential map.
    """

    def size(self, system: System) -> int:
        size = super().size(system)
        if self.activation is not None:
            raise InputError(
                f"{self.name}: a CustomValue is charged as it is; an activation goes with Custom"
            )
        if size != 1:
            raise InputError(
                f"{self.name} returned {size} numbers; a CustomValue is one, and Custom squares and"
                " adds several"
            )
        return size

    def value(self, system: System, x: Vector, u: Vector, target: Vector, weight: Vector) -> Scalar:
        return mul(weight[0], self.residual(system, x, u, target)[0])

    def expand(
        self, system: System, x: Vector, u: Vector, target: Vector, weight: Vector
    ) -> Quadratic:
        gradient = differentiate(self.perturbed(system), None, ["dx", "du"], "forward")
        hessian = differentiate(gradient, None, ["dx", "du"], "forward", values=True)
        (lx,), (lu,), (lxx,), _, (lux,), (luu,) = at_zero(system, hessian, x, u, target)
        w, of_x, of_u = weight[0], self.uses_state, self.uses_control
        return Quadratic(
            self.value(system, x, u, target, weight),
            _scaled(w, lx) if of_x else None,
            _scaled(w, lu) if of_u else None,
            tuple(_scaled(w, row) for row in lxx) if of_x else None,
            tuple(_scaled(w, row) for row in lux) if of_x and of_u else None,
            tuple(_scaled(w, row) for row in luu) if of_u else None,
        )


def _scaled(w: Scalar, row: Vector) -> Vector:
    return tuple(mul(w, a) for a in row)
