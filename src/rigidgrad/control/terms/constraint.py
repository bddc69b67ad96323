"""Constraints: terms between bounds.

Those of the state alone hold on knots 1 … N, since the start is given; those that use the control
on knots 0 … N - 1.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from rigidgrad.control.system import System
from rigidgrad.control.terms.term import Term
from rigidgrad.errors import InputError

Bounds = tuple[np.ndarray, np.ndarray]


class Constraint(Term):
    """lower ≤ r(x, u; target) ≤ upper."""

    @abstractmethod
    def asked(self, system: System, knots: int) -> Bounds:
        """Bounds (knots, size) as the user wrote them, ±inf where there is none."""

    def named_knots(self, knots: int) -> np.ndarray | None:
        """The knots that the user named; None for all."""
        return None

    def bounds(self, system: System, knots: int, start: np.ndarray | None = None) -> Bounds:
        """(lower, upper), each (knots, size), ±inf on the knot that it does not hold on. With a
        start (nx,), that is checked as well.
        """
        lower, upper = (np.array(b) for b in self.asked(system, knots))
        free = -1 if self.uses_control else 0
        lower[free], upper[free] = -np.inf, np.inf
        return lower, upper


def check_order(what: str, lower: np.ndarray, upper: np.ndarray) -> None:
    """An error where nothing lies between two bounds."""
    bad = np.argwhere((lower > upper) | (lower == np.inf) | (upper == -np.inf))
    if bad.size:
        knot, k = bad[0]
        raise InputError(
            f"{what} {k} at knot {knot} is from {lower[knot, k]:g} to {upper[knot, k]:g}, and"
            " nothing lies between: exchange or widen them"
        )
