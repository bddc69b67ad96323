"""What a scalar must offer, and the arithmetic that skips structural zeros.

The algorithms are written over abstract scalars. A scalar may be a Python `float` or `complex`, a
NumPy array (one number per state of a batch), an `mpmath` number, a `fractions.Fraction` with
angles given as `Angle(cos, sin)`, or any object that brings its own `+ - * /`, negation,
`sincos()`, `sqrt()`, `atan2(x)` and `select(a, b)`.

Only an exact Python `float` counts as a constant: `0.0` and `±1.0` are skipped, so a structural
zero costs nothing and stays `0.0` whatever NaN it would have met. A NumPy float is data.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

Scalar = Any


@dataclass(frozen=True)
class Angle:
    """A joint angle known by its cosine and sine alone, so that rational numbers stay exact."""

    cos: Scalar
    sin: Scalar

    def sincos(self) -> tuple[Scalar, Scalar]:
        return self.sin, self.cos


def is_constant(x: Scalar, value: float) -> bool:
    """Whether x is structurally `value`."""
    return type(x) is float and x == value


def neg(x: Scalar) -> Scalar:
    return 0.0 if is_constant(x, 0.0) else -x


def add(x: Scalar, y: Scalar) -> Scalar:
    if is_constant(x, 0.0):
        return y
    return x if is_constant(y, 0.0) else x + y


def sub(x: Scalar, y: Scalar) -> Scalar:
    if is_constant(y, 0.0):
        return x
    return neg(y) if is_constant(x, 0.0) else x - y


def mul(x: Scalar, y: Scalar) -> Scalar:
    if type(x) is not float:
        x, y = y, x
    if type(x) is float:
        if x == 0.0:
            return 0.0
        if x == 1.0:
            return y
        if x == -1.0:
            return neg(y)
        if is_constant(y, 0.0):
            return 0.0
        if is_constant(y, 1.0):
            return x
    return x * y


def div(x: Scalar, y: Scalar) -> Scalar:
    return 0.0 if is_constant(x, 0.0) else x / y


def total(terms: Iterable[Scalar]) -> Scalar:
    """Sum of an iterable, skipping structural zeros; 0.0 if there is nothing to add."""
    result: Scalar = 0.0
    for term in terms:
        result = add(result, term)
    return result


def sincos(x: Scalar) -> tuple[Scalar, Scalar]:
    """(sin x, cos x)."""
    if isinstance(x, float | int):
        return math.sin(x), math.cos(x)
    if isinstance(x, np.ndarray | np.generic):
        return np.sin(x), np.cos(x)
    if isinstance(x, complex):
        return cmath.sin(x), cmath.cos(x)
    if hasattr(x, "sincos"):
        found: tuple[Scalar, Scalar] = x.sincos()
        return found
    return x.context.sin(x), x.context.cos(x)  # mpmath


def sqrt(x: Scalar) -> Scalar:
    """√x."""
    if isinstance(x, float | int):
        return math.sqrt(x)
    if isinstance(x, np.ndarray | np.generic):
        return np.sqrt(x)
    if isinstance(x, complex):
        return cmath.sqrt(x)
    return x.context.sqrt(x) if hasattr(x, "context") else x.sqrt()


def atan2(y: Scalar, x: Scalar) -> Scalar:
    """The angle of the point (x, y); for complex numbers the analytic continuation around the real
    one.
    """
    if isinstance(y, np.ndarray | np.generic | complex) or isinstance(
        x, np.ndarray | np.generic | complex
    ):
        if np.iscomplexobj(y) or np.iscomplexobj(x):
            at = np.arctan2(np.real(y), np.real(x))
            return at + np.arcsin((y * np.cos(at) - x * np.sin(at)) / np.sqrt(x * x + y * y))
        return np.arctan2(y, x)
    if isinstance(x, float | int) and isinstance(y, float | int):
        return math.atan2(y, x)
    number = y if not isinstance(y, float | int) else x
    return number.context.atan2(y, x) if hasattr(number, "context") else number.atan2(y, x)


def less(x: Scalar, y: Scalar) -> Scalar:
    """x < y, compared by the real part."""
    return (x.real if isinstance(x, complex | np.ndarray | np.generic) else x) < (
        y.real if isinstance(y, complex | np.ndarray | np.generic) else y
    )


def select(condition: Scalar, a: Scalar, b: Scalar) -> Scalar:
    """a where the condition holds, else b. Both are evaluated."""
    if isinstance(condition, bool):
        return a if condition else b
    if isinstance(condition, np.ndarray | np.generic):
        return np.where(condition, a, b)
    return condition.select(a, b)
