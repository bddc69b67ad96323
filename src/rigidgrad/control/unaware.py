"""Terms of a system, as terms of the same system with more states and controls: they do not depend
on these, but for how long a step lasts.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np

from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.extended import Extended
from rigidgrad.control.system import System
from rigidgrad.control.terms.constraint import Bounds, Constraint
from rigidgrad.control.terms.control_rate import rate_of
from rigidgrad.control.terms.cost import Cost, Quadratic
from rigidgrad.control.terms.duration import Duration
from rigidgrad.control.terms.term import Jacobians, Term
from rigidgrad.control.timed import Timed
from rigidgrad.scalars import Scalar, add, mul

Own = TypeVar("Own", bound=Term)


class Unaware(Term, Generic[Own]):
    """A term that sees the inner state and control alone."""

    def __init__(self, term: Own):
        self.term = term

    @property
    def uses_state(self) -> bool:
        return self.term.uses_state

    @property
    def uses_control(self) -> bool:
        return self.term.uses_control

    def size(self, system: System) -> int:
        return self.term.size(_inner(system))

    def target_size(self, system: System) -> int:
        return self.term.target_size(_inner(system))

    def targets(self, system: System, knots: int) -> np.ndarray:
        return self.term.targets(_inner(system), knots)

    def units(self, system: System) -> tuple[str, ...]:
        return self.term.units(_inner(system))

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        return self.term.residual(*_inside(system, x, u), target)

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        s = _extended(system)
        by_state, by_control = self.term.jacobian(*_inside(s, x, u), target)
        return (
            None if by_state is None else _wider(by_state, s.more_states),
            None if by_control is None else _wider(by_control, s.more_controls),
        )

    def key(self) -> str:
        return self.term.key()

    def identity(self) -> str:
        return self.term.identity()

    def label(self) -> str:
        return self.term.label()


class UnawareCost(Unaware[Cost], Cost):
    def value(self, system: System, x: Vector, u: Vector, target: Vector, weight: Vector) -> Scalar:
        return self.term.value(*_inside(system, x, u), target, weight)

    def expand(
        self, system: System, x: Vector, u: Vector, target: Vector, weight: Vector
    ) -> Quadratic:
        s = _extended(system)
        n, m = s.more_states, s.more_controls
        found: Quadratic = self.term.expand(*_inside(s, x, u), target, weight)
        return Quadratic(
            found.value,
            None if found.lx is None else (*found.lx, *(0.0,) * n),
            None if found.lu is None else (*found.lu, *(0.0,) * m),
            _larger(found.lxx, n, n),
            _larger(found.lux, m, n),
            _larger(found.luu, m, m),
        )


class StretchedCost(UnawareCost):
    """A cost l per second, where steps last σ times as long as its weights take them to last: σ l.

    Its second derivatives are those of l, times σ, and of σ as of an exponential. The mixed ones
    are left out, as are those of the dynamics: of σ (l + λᵀf) they vanish at an optimum for
    controls.
    """

    def value(self, system: System, x: Vector, u: Vector, target: Vector, weight: Vector) -> Scalar:
        return mul(_timed(system).stretch(x, u), super().value(system, x, u, target, weight))

    def expand(
        self, system: System, x: Vector, u: Vector, target: Vector, weight: Vector
    ) -> Quadratic:
        s = _timed(system)
        stretch = s.stretch(x, u)
        found = super().expand(system, x, u, target, weight)
        first = tuple(
            by_stretch if own is None else tuple(map(add, _times(stretch, own), by_stretch))
            for own, by_stretch in zip(
                (found.lx, found.lu), s.scaled_gradient(found.value), strict=True
            )
        )
        second = tuple(
            by_stretch
            if own is None
            else tuple(
                tuple(map(add, _times(stretch, row), more))
                for row, more in zip(own, by_stretch, strict=True)
            )
            for own, by_stretch in zip(
                (found.lxx, found.lux, found.luu),
                s.scaled_curvature(found.value, stretch),
                strict=True,
            )
        )
        return Quadratic(mul(stretch, found.value), *first, *second)


class UnawareConstraint(Unaware[Constraint], Constraint):
    def asked(self, system: System, knots: int) -> Bounds:
        return self.term.asked(_inner(system), knots)

    def named_knots(self, knots: int) -> np.ndarray | None:
        return self.term.named_knots(knots)


def unaware(term: Cost | Constraint) -> Any:
    """The term, of a system that remembers its control; ControlRate is the one that knows it."""
    return term if isinstance(term, Duration) or rate_of(term) is not None else _wrapped(term)


def untimed(term: Cost | Constraint) -> Any:
    """The term, of a system whose steps last as long as its state says."""
    if isinstance(term, Duration):
        return term
    if isinstance(term, Cost) and term.is_per_second:
        return StretchedCost(term)
    return _wrapped(term)


def _wrapped(term: Cost | Constraint) -> Any:
    if not isinstance(term, Cost):
        return UnawareConstraint(term)
    found = UnawareCost(term)
    found.is_per_second = term.is_per_second
    return found


def _extended(system: System) -> Extended:
    assert isinstance(system, Extended)
    return system


def _timed(system: System) -> Timed:
    assert isinstance(system, Timed)
    return system


def _inner(system: System) -> System:
    return _extended(system).inner


def _inside(system: System, x: Vector, u: Vector) -> tuple[System, Vector, Vector]:
    s = _extended(system)
    return s.inner, s.state(x), s.control(u)


def _times(factor: Scalar, row: Vector) -> Vector:
    return tuple(mul(factor, a) for a in row)


def _wider(matrix: Matrix, columns: int) -> Matrix:
    return tuple((*row, *(0.0,) * columns) for row in matrix)


def _larger(matrix: Matrix | None, rows: int, columns: int) -> Matrix | None:
    """With zeros below and to the right."""
    if matrix is None:
        return None
    wide = _wider(matrix, columns)
    width = len(wide[0]) if wide else columns
    return (*wide, *((0.0,) * width,) * rows)
