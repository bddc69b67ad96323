"""Costs: Σ w φ(r) of a term, with Gauss-Newton's second derivatives."""

from __future__ import annotations

import copy
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.system import System
from rigidgrad.control.terms.activation import ACTIVATION, Activation, Barrier
from rigidgrad.control.terms.notation import WEIGHT
from rigidgrad.control.terms.term import Jacobians, Term
from rigidgrad.errors import InputError
from rigidgrad.scalars import Scalar, mul, total

Weight = Annotated[
    Any, WEIGHT, "of every knot but the last: a number, or one per number of the residual"
]
Final = Annotated[Any, WEIGHT, "of the last knot, likewise"]
Activated = Annotated[
    Activation | None,
    ACTIVATION,
    "how the cost grows with each number of the residual instead of ½ r²: `{ huber = … }`, `{"
    " smooth_absolute = … }`, or `{ lower = …, upper = … }` for what lies outside",
]


# lx, lu, lxx, lux, luu
SecondOrder = tuple[Vector | None, Vector | None, Matrix | None, Matrix | None, Matrix | None]


class Quadratic(NamedTuple):
    """A function of (dx, du) to second order around a knot: lx (ndx,), lu (nu,), lxx (ndx, ndx),
    lux (nu, ndx), luu (nu, nu); None where it is zero.
    """

    value: Scalar
    lx: Vector | None
    lu: Vector | None
    lxx: Matrix | None
    lux: Matrix | None
    luu: Matrix | None


class Cost(Term):
    """Σ w φ(r), with φ(r) = ½ r² unless `activation` says otherwise. `weight` of every knot but the
    last, `final` of the last: a number, one per number of the residual, or (for `weight`) one set
    per knot (knots - 1, size).
    """

    # arguments that say what is charged, not what for: a term between bounds does without
    price: ClassVar[tuple[str, ...]] = ("weight", "final", "activation")
    activation: Activation | None = None
    is_per_second: bool = False  # whether the weights of running knots are times their seconds

    def __init__(
        self, weight: Weight = 0.0, final: Final = 0.0, activation: Activation | None = None
    ):
        if activation is not None and not isinstance(activation, Activation):
            raise InputError(
                "an activation is rg.costs.Huber(…), SmoothAbsolute(…) or Barrier(…), not"
                f" {type(activation).__name__}"
            )
        self.weight, self.final, self.activation = weight, final, activation

    def identity(self) -> str:
        text = self.key() if self.activation is None else f"{self.key()} {self.activation}"
        return f"{text} per second" if self.is_per_second else text

    def per_second(self) -> Self:
        """The same cost with a weight per second instead of per knot: ∫ w φ(r) dt, a sum over the
        steps times their seconds, whatever these are. `final` stays as it is.
        """
        other = copy.copy(self)
        other.is_per_second = True
        return other

    def weights(self, system: System, knots: int) -> np.ndarray:
        """(knots, size)."""
        size, name = self.size(system), type(self).__name__
        if self.activation is not None:
            self.activation.check(size)
        if self.uses_control and np.any(np.asarray(self.final) != 0):
            raise InputError(
                f"{name} uses the control, which the last knot does not have: leave its final"
                " weight out"
            )
        result = np.zeros((knots, size))
        result[:-1] = numbers(f"the weight of {name}", self._spread(self.weight), (knots - 1, size))
        result[-1] = numbers(f"the final weight of {name}", self._spread(self.final), (size,))
        if (result < 0).any():
            raise InputError(f"a weight of {name} is negative; a cost must have a minimum")
        return result

    def _spread(self, weight: Any) -> Any:
        """A weight in a notation of this cost alone, as numbers that broadcast to the
        residual's.
        """
        return weight

    def remaining(self, system: System, x: Vector, target: Vector) -> Vector:
        """Of a Barrier, what lies outside of it."""
        r = super().remaining(system, x, target)
        return (
            tuple(self.activation.charge(k, a).slope for k, a in enumerate(r))
            if isinstance(self.activation, Barrier)
            else r
        )

    def value(self, system: System, x: Vector, u: Vector, target: Vector, weight: Vector) -> Scalar:
        """½ Σ weight r², or with an activation what that charges."""
        r = self.residual(system, x, u, target)
        if self.activation is not None:
            return total(
                mul(w, self.activation.charge(k, a).value)
                for k, (w, a) in enumerate(zip(weight, r, strict=True))
            )
        return mul(0.5, total(mul(w, mul(a, a)) for w, a in zip(weight, r, strict=True)))

    def expand(
        self, system: System, x: Vector, u: Vector, target: Vector, weight: Vector
    ) -> Quadratic:
        """The cost with its derivatives."""
        r = self.residual(system, x, u, target)
        if self.activation is not None:
            charges = [self.activation.charge(k, a) for k, a in enumerate(r)]
            value = total(mul(w, c.value) for w, c in zip(weight, charges, strict=True))
            first = tuple(mul(w, c.slope) for w, c in zip(weight, charges, strict=True))
            second = tuple(mul(w, c.bend) for w, c in zip(weight, charges, strict=True))
            return Quadratic(
                value, *gauss_newton(self.jacobian(system, x, u, target), first, second)
            )
        charged = tuple(mul(w, a) for w, a in zip(weight, r, strict=True))
        value = mul(0.5, total(mul(a, b) for a, b in zip(charged, r, strict=True)))
        return Quadratic(value, *gauss_newton(self.jacobian(system, x, u, target), charged, weight))


def gauss_newton(jacobians: Jacobians, first: Vector, second: Vector) -> SecondOrder:
    """(lx, lu, lxx, lux, luu): Jᵀ·first and Jᵀ·diag(second)·J."""
    J_x, J_u = jacobians
    lx, lxx = (None, None) if J_x is None else (_gradient(J_x, first), _square(J_x, second))
    lu, luu = (None, None) if J_u is None else (_gradient(J_u, first), _square(J_u, second))
    lux = None
    if J_x is not None and J_u is not None:
        scaled = [[mul(w, b) for b in row] for w, row in zip(second, J_u, strict=True)]
        columns = list(zip(*J_x, strict=True))
        lux = tuple(
            tuple(total(map(mul, a, b)) for b in columns) for a in zip(*scaled, strict=True)
        )
    return lx, lu, lxx, lux, luu


def _gradient(J: Matrix, first: Vector) -> Vector:
    return tuple(total(map(mul, first, column)) for column in zip(*J, strict=True))


def _square(J: Matrix, second: Vector) -> Matrix:
    columns = list(zip(*J, strict=True))
    rows = [tuple(map(mul, second, column)) for column in columns]
    lower = [
        [total(map(mul, rows[i], columns[j])) for j in range(i + 1)] for i in range(len(columns))
    ]
    return tuple(
        tuple(lower[max(i, j)][min(i, j)] for j in range(len(columns))) for i in range(len(columns))
    )
