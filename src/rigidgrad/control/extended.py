"""A system with more numbers in its state, and more controls, than users see: what solvers need to
know that x and u do not tell.
"""

from __future__ import annotations

from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.system import System
from rigidgrad.scalars import Scalar, add, sub


class Extended(System):
    """State [x, y], tangent [dx, dy], controls [u, w]; `inner` is the system without y and w, which
    are vector spaces.
    """

    def __init__(self, inner: System, states: int, controls: int = 0, inputs: int = 0):
        self.inner = inner
        self.more_states, self.more_controls = states, controls
        self.nx, self.ndx = inner.nx + states, inner.ndx + states
        self.nu, self.inputs, self.name = inner.nu + controls, inner.inputs + inputs, inner.name

    @property
    def bare(self) -> System:
        return self.inner.bare

    @property
    def driven(self) -> str:
        return self.inner.driven

    @property
    def at_rest(self) -> Scalar:
        return self.inner.at_rest

    @property
    def given_inputs(self) -> Vector:
        return self.inner.given_inputs

    def state(self, x: Vector) -> Vector:
        """The state of the inner system."""
        return tuple(x[: self.inner.nx])

    def more(self, x: Vector) -> Vector:
        """What the state has besides."""
        return tuple(x[self.inner.nx :])

    def control(self, u: Vector) -> Vector:
        """The controls of the inner system."""
        return tuple(u[: self.inner.nu])

    def plus(self, x: Vector, dx: Vector) -> Vector:
        n = self.inner.ndx
        moved = (add(a, b) for a, b in zip(self.more(x), dx[n:], strict=True))
        return (*self.inner.plus(self.state(x), tuple(dx[:n])), *moved)

    def minus(self, x: Vector, origin: Vector) -> Vector:
        apart = (sub(a, b) for a, b in zip(self.more(x), self.more(origin), strict=True))
        return (*self.inner.minus(self.state(x), self.state(origin)), *apart)

    def minus_jacobian(self, difference: Vector) -> list[Matrix]:
        one: Matrix = ((1.0,),)
        blocks = self.inner.minus_jacobian(tuple(difference[: self.inner.ndx]))
        return blocks + [one] * self.more_states
