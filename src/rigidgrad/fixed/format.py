"""A fixed-point format and its arithmetic on integers: the meaning that Python, NumPy and the
generated circuits share, bit for bit.

A number x is held as the integer round(x·2^fraction_bits), its raw value, in integer_bits +
fraction_bits bits of two's complement. Raw values are Python integers, or NumPy int64 arrays for
many states at once. Every product is rounded by itself; sums of products are sums of rounded
products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rigidgrad.errors import InputError

ROUNDINGS = ("nearest", "truncate", "even")
OVERFLOWS = ("saturate", "wrap")
WIDEST = 40

Raw = Any  # int, or an int64 array


@dataclass(frozen=True)
class Fixed:
    """`integer_bits` counts the sign: Fixed(16, 16) holds -32768 to 32768 - 2⁻¹⁶.

    rounding: "nearest" (halves upwards), "truncate" (downwards) or "even" (halves to the even
    neighbour). overflow: "saturate" or "wrap". constant_bits: fraction bits of a constant that
    multiplies, by default those of every other number. Constants of a robot are small and known, so
    they can use bits of the word that the numbers keep for their range.
    """

    integer_bits: int
    fraction_bits: int
    rounding: str = "nearest"
    overflow: str = "saturate"
    constant_bits: int | None = None

    def __post_init__(self) -> None:
        for name in ("integer_bits", "fraction_bits"):
            if not isinstance(getattr(self, name), int):
                raise InputError(f"{name} is a whole number of bits, not {getattr(self, name)!r}")
        if self.integer_bits < 1 or self.fraction_bits < 0 or not 2 <= self.width <= WIDEST:
            raise InputError(
                f"Fixed({self.integer_bits}, {self.fraction_bits}) is not a format: at least 1"
                f" integer bit (the sign), no negative fraction_bits, 2 to {WIDEST} bits together"
            )
        if self.rounding not in ROUNDINGS:
            raise InputError(
                f"rounding is one of {', '.join(map(repr, ROUNDINGS))}, not {self.rounding!r}"
            )
        if self.overflow not in OVERFLOWS:
            raise InputError(
                f"overflow is one of {', '.join(map(repr, OVERFLOWS))}, not {self.overflow!r}"
            )
        if self.constant_bits is not None and not 0 <= self.constant_bits <= WIDEST:
            raise InputError(f"constant_bits is 0 to {WIDEST}, not {self.constant_bits}")

    def __str__(self) -> str:
        return f"Fixed({self.integer_bits}, {self.fraction_bits})"

    def __call__(self, x: Any) -> Any:
        """A float, or an array of them, as a scalar of this format that the algorithms take."""
        from rigidgrad.fixed.number import Number

        return Number(self, self.quantize(x))

    @property
    def width(self) -> int:
        return self.integer_bits + self.fraction_bits

    @property
    def lowest(self) -> int:
        return -(1 << (self.width - 1))

    @property
    def highest(self) -> int:
        return (1 << (self.width - 1)) - 1

    @property
    def resolution(self) -> float:
        return math.ldexp(1.0, -self.fraction_bits)

    @property
    def limit(self) -> float:
        """The first number that is too large."""
        return math.ldexp(1.0, self.integer_bits - 1)

    @cached_property
    def constant_fraction(self) -> int:
        return self.fraction_bits if self.constant_bits is None else self.constant_bits

    # --- to and from floats -----------------------------------------------------------------------

    def quantize(self, x: Any, fraction_bits: int | None = None) -> Raw:
        """The raw value nearest to x (rounded as the format says); what is too large saturates
        whatever the overflow mode; NaN becomes 0.
        """
        f = self.fraction_bits if fraction_bits is None else fraction_bits
        if isinstance(x, np.ndarray):
            scaled = np.ldexp(x.astype(np.float64), f)
            with np.errstate(invalid="ignore"):
                whole = self._whole(scaled)
                # highest is not a float64 beyond 53 bits; up to 40 it is
                return np.nan_to_num(np.clip(whole, self.lowest, self.highest), nan=0.0).astype(
                    np.int64
                )
        x = float(x)
        if math.isnan(x):
            return 0
        if math.isinf(x):
            return self.highest if x > 0 else self.lowest
        near = math.ldexp(x, f) if abs(x) < 2.0**900 else x
        return min(max(int(self._whole(np.float64(near))), self.lowest), self.highest)

    def _whole(self, scaled: Any) -> Any:
        if self.rounding == "even":
            return np.rint(scaled)
        floor = np.floor(scaled)
        return floor if self.rounding == "truncate" else floor + (scaled - floor >= 0.5)

    def value(self, raw: Raw) -> Any:
        """Exact: a float64 holds every number of a format."""
        return (
            np.ldexp(raw.astype(np.float64), -self.fraction_bits)
            if isinstance(raw, np.ndarray)
            else math.ldexp(raw, -self.fraction_bits)
        )

    # --- arithmetic on raw values -----------------------------------------------------------------

    def fit(self, raw: Raw) -> Raw:
        """What the word keeps of a result that may be too large for it."""
        if self.overflow == "wrap":
            half = 1 << (self.width - 1)
            return ((raw + half) & ((1 << self.width) - 1)) - half
        if isinstance(raw, np.ndarray):
            return np.clip(raw, self.lowest, self.highest)
        return min(max(raw, self.lowest), self.highest)

    def add(self, a: Raw, b: Raw) -> Raw:
        return self.fit(a + b)

    def sub(self, a: Raw, b: Raw) -> Raw:
        return self.fit(a - b)

    def multiply(self, a: Raw, b: Raw, shift: int | None = None) -> Raw:
        """a·b/2^shift, rounded; the shift is the fraction bits of the factor that is not of this
        format.
        """
        shift = self.fraction_bits if shift is None else shift
        if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray):
            return self.fit(self._shifted(a * b, shift))
        a, b = np.asarray(a, np.int64), np.asarray(b, np.int64)
        if self.width <= 32:
            return self.fit(self._shifted(a * b, shift))
        return self.fit(self._wide_product(a, b, shift))

    def _shifted(self, product: Raw, shift: int) -> Raw:
        if shift == 0:
            return product
        if self.rounding == "truncate":
            return product >> shift
        half = 1 << (shift - 1)
        if self.rounding == "nearest":
            return (product + half) >> shift
        return (product + (half - 1) + ((product >> shift) & 1)) >> shift

    def _wide_product(self, a: np.ndarray, b: np.ndarray, shift: int) -> np.ndarray:
        """Products of more than 63 bits, in two parts: a·b = a·high·2²⁰ + a·low."""
        cut = 20
        high, low = b >> cut, b & ((1 << cut) - 1)
        if shift >= cut:
            if self.rounding == "even":
                truncated = (a * high + ((a * low) >> cut)) >> (shift - cut)
                extra = (1 << (shift - 1)) - 1 + (truncated & 1)
            else:
                extra = np.int64(0 if self.rounding == "truncate" else 1 << (shift - 1))
            below = (a * low + (extra & ((1 << cut) - 1))) >> cut
            product: np.ndarray = (a * high + (extra >> cut) + below) >> (shift - cut)
            return product
        # a result of at most `width` bits has a product of at most 62: elsewhere only the sign
        # matters, unless the result wraps
        if self.overflow == "wrap":
            exact = [
                self._shifted(int(x) * int(y), shift)
                for x, y in zip(*map(np.ravel, np.broadcast_arrays(a, b)), strict=True)
            ]
            return np.array([self.fit(x) for x in exact], np.int64).reshape(
                np.broadcast_shapes(a.shape, b.shape)
            )
        estimate = np.ldexp(a.astype(np.float64) * b.astype(np.float64), -shift)
        small = np.abs(estimate) < 2.0**self.width
        with np.errstate(over="ignore"):
            exact_product = self._shifted(a * b, shift)
        return np.where(small, exact_product, np.where(estimate > 0, self.highest, self.lowest))

    def times_constant(self, a: Raw, constant: float) -> Raw:
        return self.multiply(
            a, self.quantize(constant, self.constant_fraction), self.constant_fraction
        )

    def divide(self, a: Raw, b: Raw) -> Raw:
        """a/b, rounded; a division by zero gives the largest number of the sign of a."""
        if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
            top, bottom = np.broadcast_arrays(np.asarray(a, np.int64), np.asarray(b, np.int64))
            if int(np.max(np.abs(top), initial=0)) << self.fraction_bits < 1 << 62:
                return self._divide_many(top, bottom)
        return _each(self._divide, a, b)

    def _divide_many(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        sign, divisor = np.where(b < 0, -1, 1), np.where(b == 0, 1, np.abs(b))
        whole, rest = np.divmod((sign * a) << self.fraction_bits, divisor)
        if self.rounding != "truncate":
            half = (2 * rest == divisor) & ((self.rounding == "nearest") | (whole & 1 == 1))
            whole = whole + ((2 * rest > divisor) | half)
        return np.where(b == 0, np.where(a >= 0, self.highest, self.lowest), self.fit(whole))

    def _divide(self, a: int, b: int) -> int:
        if b == 0:
            return self.highest if a >= 0 else self.lowest
        if b < 0:
            a, b = -a, -b
        # quotient and remainder decide as for a product: with 2b as the step of half units
        whole, rest = divmod(a << self.fraction_bits, b)
        if self.rounding != "truncate" and (
            2 * rest > b or (2 * rest == b and (self.rounding == "nearest" or whole & 1))
        ):
            whole += 1
        quotient: int = self.fit(whole)
        return quotient

    def square_root(self, a: Raw) -> Raw:
        """The root, rounded; of a negative number 0."""
        return _each(self._square_root, a)

    def _square_root(self, a: int) -> int:
        if a <= 0:
            return 0
        if self.rounding == "truncate":
            root: int = self.fit(math.isqrt(a << self.fraction_bits))
        else:  # a root is never half-way between two raw values
            root = self.fit((math.isqrt(a << (self.fraction_bits + 2)) + 1) >> 1)
        return root

    @cached_property
    def trigonometry(self) -> Any:
        from rigidgrad.fixed.trigonometry import SineTable

        return SineTable(self)


def _each(function: Any, *raws: Raw) -> Raw:
    if not any(isinstance(r, np.ndarray) for r in raws):
        return function(*raws)
    columns = np.broadcast_arrays(*raws)
    results = [
        function(*(int(x) for x in row)) for row in zip(*(c.ravel() for c in columns), strict=True)
    ]
    return np.array(results, np.int64).reshape(columns[0].shape)
