"""A system whose state also holds the control of the step before, for costs of how fast controls change."""

from __future__ import annotations

from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.system import System
from rigidgrad.scalars import Scalar, add, mul, sub


class Remembering(System):
    """State [x, u₋], tangent [dx, du₋], with the control u₋ of the step before: a step leads to [f(x, u), u]. `bare` is the system without it. An impact, which has no control, keeps u₋."""

    def __init__(self, bare: System):
        self._bare = bare
        self.nu, self.name, self.inputs = bare.nu, bare.name, bare.inputs
        self.nx, self.ndx = bare.nx + bare.nu, bare.ndx + bare.nu

    @property
    def bare(self) -> System:
        return self._bare

    def given(self, numbers: Vector) -> Remembering:
        return Remembering(self.bare.given(numbers)) if self.inputs else self

    @property
    def given_inputs(self) -> Vector:
        return self.bare.given_inputs

    def key(self) -> str:
        return f"{self.bare.key()} remembering its control"

    @property
    def driven(self) -> str:
        return self.bare.driven

    @property
    def at_rest(self) -> Scalar:
        return self.bare.at_rest

    def state(self, x: Vector) -> Vector:
        """The state of the system without memory."""
        return tuple(x[: self.bare.nx])

    def before(self, x: Vector) -> Vector:
        """The control of the step before."""
        return tuple(x[self.bare.nx :])

    def kept(self, x: Vector, u: Vector) -> Vector:
        """The control that the next state holds."""
        return tuple(add(mul(sub(1.0, self.at_rest), a), mul(self.at_rest, b)) for a, b in zip(u, self.before(x), strict=True))

    def plus(self, x: Vector, dx: Vector) -> Vector:
        n = self.bare.ndx
        return (*self.bare.plus(self.state(x), tuple(dx[:n])), *super().plus(self.before(x), tuple(dx[n:])))

    def minus(self, x: Vector, origin: Vector) -> Vector:
        controls = zip(self.before(x), self.before(origin), strict=True)
        return (*self.bare.minus(self.state(x), self.state(origin)), *(sub(a, b) for a, b in controls))

    def minus_jacobian(self, difference: Vector) -> list[Matrix]:
        one: Matrix = ((1.0,),)
        return self.bare.minus_jacobian(tuple(difference[: self.bare.ndx])) + [one] * self.nu
