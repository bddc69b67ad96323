"""A system whose state and controls also hold how long steps last, for durations that a solve
chooses.
"""

from __future__ import annotations

from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.extended import Extended
from rigidgrad.control.system import System
from rigidgrad.scalars import Scalar, add, mul, sub, total


class Timed(Extended):
    """State [x, τ], controls [u, w]. Each τ_i is a duration over its first guess, so that a knot
    which is h seconds long at first lasts h σ:

        τ_i' = s_i w + (1 - s_i) τ_i,        σ = 1 + Σ_i a_i (τ_i' - 1).

    Inputs are two numbers of each i at each knot: a_i, 1 where the knot belongs to a phase of this
    duration, else 0; and s_i, 1 at the first of its knots, where w sets it. Where no s_i is 1, w
    does nothing.
    """

    def __init__(self, inner: System, count: int, marks: Vector = ()):
        super().__init__(inner, count, 1, 2 * count)
        self.count, self.marks = count, tuple(marks)

    def given(self, numbers: Vector) -> Timed:
        n = self.inner.inputs
        return Timed(self.inner.given(tuple(numbers[:n])), self.count, tuple(numbers[n:]))

    @property
    def given_inputs(self) -> Vector:
        return (*self.inner.given_inputs, *self.marks)

    def key(self) -> str:
        return f"{self.inner.key()} with {self.count} durations"

    @property
    def _acts(self) -> Vector:
        return self.marks[: self.count]

    @property
    def _sets(self) -> Vector:
        return self.marks[self.count :]

    @property
    def idle(self) -> Vector:
        return (*self.inner.idle, sub(1.0, total(self._sets)))

    def kept(self, x: Vector, u: Vector) -> Vector:
        """The durations that the next state holds."""
        w = u[-1]
        return tuple(
            add(mul(s, w), mul(sub(1.0, s), old))
            for s, old in zip(self._sets, self.more(x), strict=True)
        )

    def stretch(self, x: Vector, u: Vector) -> Scalar:
        """σ."""
        return add(
            1.0,
            total(mul(a, sub(t, 1.0)) for a, t in zip(self._acts, self.kept(x, u), strict=True)),
        )

    def stretch_gradient(self) -> tuple[Vector, Vector]:
        """∂σ/∂τ and, one number, ∂σ/∂w."""
        pairs = list(zip(self._acts, self._sets, strict=True))
        return tuple(mul(a, sub(1.0, s)) for a, s in pairs), (total(mul(a, s) for a, s in pairs),)

    def scaled_gradient(self, rate: Scalar) -> tuple[Vector, Vector]:
        """Of rate · σ, by the whole state and control."""
        by_state, by_control = self.stretch_gradient()
        return (
            (*(0.0,) * self.inner.ndx, *(mul(rate, b) for b in by_state)),
            (*(0.0,) * self.inner.nu, *(mul(rate, a) for a in by_control)),
        )

    def scaled_curvature(self, rate: Scalar, stretch: Scalar) -> tuple[Matrix, Matrix, Matrix]:
        """Second derivatives of rate · σ by state and control, (xx, ux, uu), as if it bent with σ
        like an exponential: rate / σ. As it is, it is straight, and steps that only know the first
        derivatives of the dynamics go too far; the minimum is the same.
        """
        rate = rate / stretch
        by_state, by_control = self.scaled_gradient(1.0)
        return (
            tuple(tuple(mul(rate, mul(a, b)) for b in by_state) for a in by_state),
            tuple(tuple(mul(rate, mul(a, b)) for b in by_state) for a in by_control),
            tuple(tuple(mul(rate, mul(a, b)) for b in by_control) for a in by_control),
        )

    def kept_gradient(self) -> tuple[Matrix, Matrix]:
        """∂τ'/∂τ and ∂τ'/∂w."""
        n = self.count
        by_state = tuple(
            tuple(sub(1.0, s) if i == j else 0.0 for j in range(n))
            for i, s in enumerate(self._sets)
        )
        return by_state, tuple((s,) for s in self._sets)
