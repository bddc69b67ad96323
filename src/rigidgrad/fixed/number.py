"""The scalar: a raw value, or an array of them, that knows its format. Algorithms and Programs run
on it unchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.fixed.format import Fixed, Raw


class Number:
    """Arithmetic with a Python float takes the float as a constant: a factor keeps its own fraction
    bits (`Fixed.constant_bits`), a summand the format's.
    """

    __slots__ = ("format", "raw")
    __array_ufunc__ = None  # a NumPy number on the left leaves the work to us

    def __init__(self, format: Fixed, raw: Raw):
        self.format, self.raw = format, raw

    def __repr__(self) -> str:
        return f"{self.format}: {self.format.value(self.raw)}"

    def __float__(self) -> float:
        return float(self.format.value(self.raw))

    @property
    def real(self) -> Number:
        return self

    def value(self) -> Any:
        return self.format.value(self.raw)

    def _new(self, raw: Raw) -> Number:
        return Number(self.format, raw)

    def _raw(self, other: Any) -> Raw:
        if isinstance(other, Number):
            if other.format != self.format:
                raise InputError(
                    f"a number of {self.format} meets one of {other.format}: bring both to one"
                    " format first"
                )
            return other.raw
        return self.format.quantize(other)

    def __neg__(self) -> Number:
        return self._new(self.format.fit(-self.raw))

    def __pos__(self) -> Number:
        return self

    def __add__(self, other: Any) -> Number:
        return self._new(self.format.add(self.raw, self._raw(other)))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Number:
        return self._new(self.format.sub(self.raw, self._raw(other)))

    def __rsub__(self, other: Any) -> Number:
        return self._new(self.format.sub(self._raw(other), self.raw))

    def __mul__(self, other: Any) -> Number:
        if isinstance(other, Number):
            return self._new(self.format.multiply(self.raw, self._raw(other)))
        return self._new(self.format.times_constant(self.raw, other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Number:
        return self._new(self.format.divide(self.raw, self._raw(other)))

    def __rtruediv__(self, other: Any) -> Number:
        return self._new(self.format.divide(self._raw(other), self.raw))

    def __lt__(self, other: Any) -> Any:
        return _condition(self.raw < self._raw(other))

    def __gt__(self, other: Any) -> Any:
        return _condition(self._raw(other) < self.raw)

    def sincos(self) -> tuple[Number, Number]:
        table = self.format.trigonometry
        return self._new(table.sine(self.raw)), self._new(table.cosine(self.raw))

    def sqrt(self) -> Number:
        return self._new(self.format.square_root(self.raw))

    def atan2(self, y: Any, x: Any) -> Number:
        """By way of float64, which holds every number of a format exactly."""
        values = [v.value() if isinstance(v, Number) else v for v in (y, x)]
        angle = np.arctan2(*values)
        rounded: Number = self.format(angle if isinstance(angle, np.ndarray) else float(angle))
        return rounded


def _condition(truth: Any) -> Any:
    return Condition(truth) if isinstance(truth, np.ndarray) else bool(truth)


class Condition:
    """A comparison of many states at once."""

    __slots__ = ("truth",)

    def __init__(self, truth: np.ndarray):
        self.truth = truth

    def select(self, a: Any, b: Any) -> Any:
        number = a if isinstance(a, Number) else b
        if not isinstance(number, Number):
            return np.where(self.truth, a, b)
        return number._new(np.where(self.truth, number._raw(a), number._raw(b)))

    def __bool__(self) -> bool:
        raise TypeError(
            "a comparison of many states has no single truth: use"
            " rigidgrad.scalars.select(condition, a, b) instead of if"
        )
