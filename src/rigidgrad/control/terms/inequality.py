"""Bounds of what a user's function returns, or of a term."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.algorithms.joints import Vector
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.system import System
from rigidgrad.control.terms.constraint import Bounds, Constraint, check_order
from rigidgrad.control.terms.function import Function
from rigidgrad.control.terms.term import Jacobians, Term
from rigidgrad.errors import InputError


class Inequality(Constraint):
    """lower ≤ r ≤ upper, where r is what a Python function of x and u returns (as for
    `costs.Function`), or the residual of a term: `Inequality(Reach(…), …)`.

    Bounds are a number, one per number of r, or one set per knot, (knots, size), or (knots - 1,
    size) if r depends on the control. `at` is "all", "final", or the knots to hold on. Parameters
    may be changed as `constraint.term.parameters`. `name` is what reports call it.
    """

    def __init__(
        self,
        function: Callable[..., Any] | Term,
        lower: ArrayLike = -np.inf,
        upper: ArrayLike = np.inf,
        *,
        at: ArrayLike = "all",
        parameters: ArrayLike | None = None,
        name: str | None = None,
    ):
        if isinstance(function, Term) and parameters is not None:
            raise InputError("parameters belong to a function; a term has its own targets")
        self.term = function if isinstance(function, Term) else Function(function, parameters, name)
        self.lower, self.upper, self.at = lower, upper, at

    def __copy__(self) -> Inequality:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.term = copy.copy(self.term)
        return other

    def label(self) -> str:
        return f"{type(self).__name__} {self.term.label()}"

    @property
    def uses_state(self) -> bool:
        return self.term.uses_state

    @property
    def uses_control(self) -> bool:
        return self.term.uses_control

    def key(self) -> str:
        return f"Constraint {self.term.key()}"

    def size(self, system: System) -> int:
        return self.term.size(system)

    def target_size(self, system: System) -> int:
        return self.term.target_size(system)

    def targets(self, system: System, knots: int) -> np.ndarray:
        return self.term.targets(system, knots)

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        return self.term.residual(system, x, u, target)

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        return self.term.jacobian(system, x, u, target)

    def asked(self, system: System, knots: int) -> Bounds:
        size, name = self.size(system), self._name()
        acting = np.arange(knots - 1) if self.uses_control else np.arange(knots)
        given = [
            numbers(f"the {side} bound of {name}", b, (len(acting), size), infinite=True)
            for side, b in self._sides()
        ]
        check_order(name, *given)
        if not np.isfinite(given).any():
            raise InputError(f"{name} has no finite bound: give it a lower or an upper one")
        lower, upper = np.full((knots, size), -np.inf), np.full((knots, size), np.inf)
        held = acting if (named := self.named_knots(knots)) is None else named
        lower[held], upper[held] = given[0][held], given[1][held]
        return lower, upper

    def bounds(self, system: System, knots: int, start: np.ndarray | None = None) -> Bounds:
        found, named = super().bounds(system, knots, start), self.named_knots(knots)
        if named is not None and not self.uses_control and (named == 0).any():
            raise self._misplaced(1, knots - 1, "the start is given")
        return found

    def _sides(self) -> tuple[tuple[str, Any], tuple[str, Any]]:
        return ("lower", self.lower), ("upper", self.upper)

    def _name(self) -> str:
        return getattr(self.term, "name", type(self.term).__name__)

    def named_knots(self, knots: int) -> np.ndarray | None:
        if isinstance(self.at, str) and self.at == "all":
            return None
        last = knots - 1 - self.uses_control
        chosen = [knots - 1] if isinstance(self.at, str) and self.at == "final" else self.at
        try:
            held = np.atleast_1d(
                np.array([operator.index(k) for k in np.atleast_1d(chosen).tolist()], dtype=int)
            )
        except TypeError:
            raise InputError(
                f'at is "all", "final", or knots as whole numbers, not {self.at!r}'
            ) from None
        held = np.where(held < 0, held + knots, held)
        if held.size == 0 or (held < 0).any() or (held > last).any():
            raise self._misplaced(
                0 if self.uses_control else 1,
                last,
                "the last knot has no control" if self.uses_control else "the start is given",
            )
        return held

    def _misplaced(self, first: int, last: int, reason: str) -> InputError:
        return InputError(
            f"{self._name()} can hold on the knots {first} to {last} ({reason}), not at {self.at!r}"
        )
