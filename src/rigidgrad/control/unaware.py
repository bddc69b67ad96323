"""Terms of a system, as terms of the same system that remembers its control: they do not depend on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.remembering import Remembering
from rigidgrad.control.system import System
from rigidgrad.control.terms.constraint import Bounds, Constraint
from rigidgrad.control.terms.control_rate import ControlRate
from rigidgrad.control.terms.cost import Cost, Quadratic
from rigidgrad.control.terms.term import Jacobians, Term
from rigidgrad.scalars import Scalar


class Unaware(Term):
    """A term that sees the state without the control of the step before."""

    def __init__(self, term: Any):
        self.term = term

    @property
    def uses_state(self) -> bool:
        return self.term.uses_state

    @property
    def uses_control(self) -> bool:
        return self.term.uses_control

    def size(self, system: System) -> int:
        return self.term.size(_bare(system))

    def target_size(self, system: System) -> int:
        return self.term.target_size(_bare(system))

    def targets(self, system: System, knots: int) -> np.ndarray:
        return self.term.targets(_bare(system), knots)

    def units(self, system: System) -> tuple[str, ...]:
        return self.term.units(_bare(system))

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        return self.term.residual(_bare(system), x[: _bare(system).nx], u, target)

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        by_state, by_control = self.term.jacobian(_bare(system), x[: _bare(system).nx], u, target)
        return None if by_state is None else _wider(by_state, system.nu), by_control

    def key(self) -> str:
        return self.term.key()

    def identity(self) -> str:
        return self.term.identity()

    def label(self) -> str:
        return self.term.label()


class UnawareCost(Unaware, Cost):
    def value(self, system: System, x: Vector, u: Vector, target: Vector, weight: Vector) -> Scalar:
        return self.term.value(_bare(system), x[: _bare(system).nx], u, target, weight)

    def expand(self, system: System, x: Vector, u: Vector, target: Vector, weight: Vector) -> Quadratic:
        found: Quadratic = self.term.expand(_bare(system), x[: _bare(system).nx], u, target, weight)
        nothing = (0.0,) * system.nu
        return found._replace(
            lx=None if found.lx is None else (*found.lx, *nothing),
            lxx=None if found.lxx is None else (*_wider(found.lxx, system.nu), *((0.0,) * system.ndx,) * system.nu),
            lux=None if found.lux is None else _wider(found.lux, system.nu),
        )


class UnawareConstraint(Unaware, Constraint):
    def asked(self, system: System, knots: int) -> Bounds:
        return self.term.asked(_bare(system), knots)

    def named_knots(self, knots: int) -> np.ndarray | None:
        return self.term.named_knots(knots)


def unaware(term: Cost | Constraint) -> Any:
    """The term, seen so; ControlRate is the one that knows."""
    if isinstance(term, ControlRate):
        return term
    return UnawareCost(term) if isinstance(term, Cost) else UnawareConstraint(term)


def _bare(system: System) -> System:
    assert isinstance(system, Remembering)
    return system.bare


def _wider(matrix: Matrix, columns: int) -> Matrix:
    return tuple((*row, *(0.0,) * columns) for row in matrix)
