"""How a cost grows with each number of its residual: φ(r), by default ½ r². Every cost takes one as
`activation`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.control.numeric_input import numbers
from rigidgrad.errors import InputError
from rigidgrad.scalars import Scalar, add, div, less, mul, select, sqrt, sub
from rigidgrad.schema import Key, number, numbers as several, table


class Charge(NamedTuple):
    """φ, φ' and a curvature that is never negative."""

    value: Scalar
    slope: Scalar
    bend: Scalar


class Activation(ABC):
    """φ of each number of a residual."""

    @abstractmethod
    def charge(self, k: int, r: Scalar) -> Charge:
        """Of number k."""

    def check(self, size: int) -> None:
        """An error where it does not fit a residual of this size."""
        del size  # most fit all


class Huber(Activation):
    """½ r² up to |r| = width, and from there on a straight line: what is far away pulls no more
    than what is `width` away.
    """

    def __init__(self, width: float):
        self.width = _positive("the width of Huber", width)

    def charge(self, k: int, r: Scalar) -> Charge:
        w = self.width
        size = select(less(r, 0.0), -r, r)
        near = less(size, w)
        # beyond, the curvature of the parabola that touches the line: steps by it never overshoot
        bend = select(near, 1.0 + 0.0 * r, div(w, select(near, w + 0.0 * r, size)))
        return Charge(select(near, 0.5 * r * r, w * size - 0.5 * w * w), mul(bend, r), bend)

    def __repr__(self) -> str:
        return f"Huber({self.width!r})"


class SmoothAbsolute(Activation):
    """√(r² + width²) - width: |r|, with its corner rounded over `width`."""

    def __init__(self, width: float):
        self.width = _positive("the width of SmoothAbsolute", width)

    def charge(self, k: int, r: Scalar) -> Charge:
        root = sqrt(add(mul(r, r), self.width * self.width))
        bend = div(1.0, root)
        return Charge(div(mul(r, r), add(root, self.width)), mul(bend, r), bend)

    def __repr__(self) -> str:
        return f"SmoothAbsolute({self.width!r})"


class Barrier(Activation):
    """½ of the square of what lies outside of [lower, upper], and nothing inside. Bounds are
    numbers, or one for each number of the residual; None is no bound.
    """

    def __init__(self, lower: ArrayLike | None = None, upper: ArrayLike | None = None):
        self.lower, self.upper = _bounds("lower", lower, -np.inf), _bounds("upper", upper, np.inf)
        if not np.any(np.isfinite(self.lower)) and not np.any(np.isfinite(self.upper)):
            raise InputError("a Barrier needs a bound: give it lower= or upper=")
        if np.ndim(self.lower) and np.ndim(self.upper) and len(self.lower) != len(self.upper):
            raise InputError(
                f"the bounds of a Barrier have {len(self.lower)} and {len(self.upper)} numbers;"
                " give as many for both"
            )
        if np.any(self.lower > self.upper):
            raise InputError("a lower bound of a Barrier is above the upper one: exchange them")

    def check(self, size: int) -> None:
        for bound in (self.lower, self.upper):
            if np.ndim(bound) and len(bound) != size:
                raise InputError(
                    f"a Barrier with {len(bound)} bounds does not fit a residual of {size} numbers"
                )

    def charge(self, k: int, r: Scalar) -> Charge:
        lower, upper = (float(b[k] if np.ndim(b) else b) for b in (self.lower, self.upper))
        one, none = 1.0 + 0.0 * r, 0.0 * r
        outside, beyond = none, none
        if math.isfinite(upper):
            over = less(upper, r)
            outside, beyond = select(over, sub(r, upper), none), select(over, one, none)
        if math.isfinite(lower):
            under = less(r, lower)
            outside, beyond = select(under, sub(r, lower), outside), select(under, one, beyond)
        return Charge(mul(0.5, mul(outside, outside)), outside, beyond)

    def __repr__(self) -> str:
        return f"Barrier({np.asarray(self.lower).tolist()!r}, {np.asarray(self.upper).tolist()!r})"


def _positive(what: str, value: Any) -> float:
    width = float(numbers(what, value, ()))
    if width <= 0:
        raise InputError(f"{what} is positive, not {width:g}")
    return width


def _bounds(side: str, value: Any, absent: float) -> np.ndarray:
    shape = np.shape(value)[:1]
    found = (
        np.full(shape, absent)
        if value is None
        else numbers(f"the {side} bound of a Barrier", value, shape, infinite=True)
    )
    return np.asarray(found, dtype=float)


def _written(asked: dict[str, Any], robot: Any, start: Any) -> Activation:
    """As a task file has it."""
    chosen = {name: value for name, value in asked.items() if value is not None}
    if set(chosen) == {"huber"}:
        return Huber(chosen["huber"])
    if set(chosen) == {"smooth_absolute"}:
        return SmoothAbsolute(chosen["smooth_absolute"])
    if not chosen or not set(chosen) <= {"lower", "upper"}:
        raise InputError(
            "an activation has one of these: huber, smooth_absolute, or lower and upper"
        )
    return Barrier(chosen.get("lower"), chosen.get("upper"))


_WIDTH, _SIDE = Key(number(above=0)), Key(number() | several())
ACTIVATION = table(
    {"huber": _WIDTH, "smooth_absolute": _WIDTH, "lower": _SIDE, "upper": _SIDE}
).of_robot(_written)
