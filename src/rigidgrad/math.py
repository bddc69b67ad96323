"""Mathematics for functions that users write: costs, constraints, dynamics. Each works on floats,
NumPy arrays and recorded numbers alike.

A recorded function has no branches: compare with `<` or `>` and take `select(condition, a, b)`
where Python would take `if`. Vectors are sequences of numbers (`norm`, `dot`, `cross`).

Programs know additions, products, quotients, roots, sines, cosines and arctangents; the rest is
made of these. `exp` and `log` of recorded numbers are reduced by comparisons to a short interval
and summed there: right to a few units of the last place, in about a hundred operations each. What
is not here (powers with fractional exponents, special functions) is not supported: write it with
`exp` and `log`, or as a series.

Derivatives follow the branch taken. `sqrt`, `norm` and `hypot` have none at 0: give `norm` a
`smooth` length, or square.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.scalars import Scalar, add, atan2, less, mul, neg, select, sincos, sqrt, sub, total

__all__ = [
    "absolute", "acos", "asin", "atan", "atan2", "clamp", "cos", "cosh", "cross", "dot", "exp", "hypot", "less", "log", "maximum", "minimum", "norm",
    "pi", "power", "select", "sign", "sin", "sincos", "sinh", "sqrt", "square", "tan", "tanh",
]  # fmt: skip

pi = math.pi

# ln 2 in two pieces: the first fits into float32, so that multiples of it by powers of two are
# subtracted without rounding in either precision
_LN2 = 0.693147182464599609375
_LN2_REST = -1.9046542999577679e-9


def sin(x: Scalar) -> Scalar:
    """Of `x` radians."""
    return sincos(x)[0]


def cos(x: Scalar) -> Scalar:
    """Of `x` radians."""
    return sincos(x)[1]


def tan(x: Scalar) -> Scalar:
    """Of `x` radians."""
    s, c = sincos(x)
    return s / c


def atan(x: Scalar) -> Scalar:
    """In radians, of `x`."""
    return atan2(x, 1.0)


def asin(x: Scalar) -> Scalar:
    """In radians, of `x` from -1 to 1."""
    return atan2(x, sqrt((1 - x) * (1 + x)))


def acos(x: Scalar) -> Scalar:
    """In radians, of `x` from -1 to 1."""
    return atan2(sqrt((1 - x) * (1 + x)), x)


def square(x: Scalar) -> Scalar:
    """x²."""
    return mul(x, x)


def power(x: Scalar, n: int) -> Scalar:
    """xⁿ for a whole number n, by repeated squaring."""
    if not isinstance(n, int | np.integer) or isinstance(n, bool):
        raise InputError(f"power takes a whole exponent, not {n!r}; for others use exp(n·log(x))")
    if n < 0:
        return 1.0 / power(x, -int(n))
    result: Scalar = 1.0
    while n:
        if n & 1:
            result = mul(result, x)
        n >>= 1
        x = mul(x, x) if n else x
    return result


def minimum(x: Scalar, y: Scalar) -> Scalar:
    """The lesser; NaN where x is NaN, or y beside a plain number x."""
    x, y = _data_first(x, y)
    return select(less(y, x), y, x)


def maximum(x: Scalar, y: Scalar) -> Scalar:
    """The greater; NaN where x is NaN, or y beside a plain number x."""
    x, y = _data_first(x, y)
    return select(less(x, y), y, x)


def clamp(x: Scalar, lower: Scalar, upper: Scalar) -> Scalar:
    """The number of [lower, upper] that is nearest to x."""
    return select(less(x, lower), lower, select(less(upper, x), upper, x))


def absolute(x: Scalar) -> Scalar:
    """|x|."""
    return select(less(x, 0.0), neg(x), x)


def sign(x: Scalar) -> Scalar:
    """-1, 0 or 1."""
    return select(less(x, 0.0), -1.0, select(less(0.0, x), 1.0, 0.0))


# --- vectors --------------------------------------------------------------------------------------


def dot(a: Sequence[Scalar], b: Sequence[Scalar]) -> Scalar:
    """Σ a b of vectors of equal length."""
    if len(a) != len(b):
        raise InputError(
            f"dot takes two vectors of one length, not of {len(a)} and {len(b)} numbers"
        )
    return total(mul(x, y) for x, y in zip(a, b, strict=True))


def cross(a: Sequence[Scalar], b: Sequence[Scalar]) -> tuple[Scalar, Scalar, Scalar]:
    """a × b of vectors of three numbers."""
    if len(a) != 3 or len(b) != 3:
        raise InputError(f"cross takes two vectors of 3 numbers, not of {len(a)} and {len(b)}")
    (ax, ay, az), (bx, by, bz) = a, b
    return (
        sub(mul(ay, bz), mul(az, by)),
        sub(mul(az, bx), mul(ax, bz)),
        sub(mul(ax, by), mul(ay, bx)),
    )


def norm(a: Sequence[Scalar], smooth: float = 0.0) -> Scalar:
    """√(Σ x² + smooth²), which with `smooth` > 0 has derivatives everywhere."""
    return sqrt(add(dot(a, a), float(smooth) ** 2))


def hypot(x: Scalar, y: Scalar) -> Scalar:
    """√(x² + y²)."""
    return norm((x, y))


# --- exponential and logarithm --------------------------------------------------------------------


def exp(x: Scalar) -> Scalar:
    """eˣ."""
    if not _is_recorded(x):
        return _known("exp", x)
    # |x| = n ln 2 + r; the bits of n from the highest on, while eˣ = 2^±n e^±r
    negative = less(x, 0.0)
    r, scale, rest = select(negative, -x, x), 1.0, 0.0
    r = minimum(r, 1400.0)
    base = select(negative, 0.5, 2.0)
    for k in range(10, -1, -1):
        step = 2.0**k * _LN2
        within = less(r, step)
        scale = mul(scale, scale)
        scale = select(within, scale, mul(scale, base))
        rest = select(within, rest, add(rest, 2.0**k * _LN2_REST))
        r = select(within, r, r - step)
    r = r - rest
    return mul(scale, _series(select(negative, -r, r), [1 / math.factorial(k) for k in range(17)]))


def log(x: Scalar) -> Scalar:
    """The natural logarithm: -inf at 0, NaN below."""
    if not _is_recorded(x):
        return _known("log", x)
    # beyond 2^±120 the sixteenth root; then x = 2^n m with m between ½ and 2, and ln m = 2
    # artanh((m - 1)/(m + 1))
    far = select(less(x, 2.0**-120), -1.0, select(less(2.0**120, x), -1.0, 1.0))
    m = select(less(far, 0.0), sqrt(sqrt(sqrt(sqrt(x)))), x)
    n: Scalar = 0.0
    for k in range(6, -1, -1):
        large, small = less(2.0**2**k, m), less(m, 2.0 ** -(2**k))
        n = add(n, select(large, 2.0**k, select(small, -(2.0**k), 0.0)))
        m = mul(m, select(large, 2.0 ** -(2**k), select(small, 2.0**2**k, 1.0)))
    t = (m - 1) / (m + 1)
    # (t up to 1/3: the 17th term is below rounding)
    near = mul(t, _series(t * t, [2 / (2 * k + 1) for k in range(17)]))
    value = mul(select(less(far, 0.0), 16.0, 1.0), n * _LN2 + (near + n * _LN2_REST))
    return select(less(0.0, x), value, -1.0 / square(sqrt(x)))


def sinh(x: Scalar) -> Scalar:
    """Right to a few units of the last place of cosh x: absolutely, not relatively, near 0."""
    return (exp(x) - exp(-x)) / 2


def cosh(x: Scalar) -> Scalar:
    """(eˣ + e⁻ˣ)/2."""
    return (exp(x) + exp(-x)) / 2


def tanh(x: Scalar) -> Scalar:
    """Right to a few units of the last place of 1: absolutely, not relatively, near 0."""
    return 1 - 2 / (exp(2 * clamp(x, -20.0, 20.0)) + 1)


def _series(t: Scalar, coefficients: list[float]) -> Scalar:
    result: Scalar = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        result = add(mul(result, t), c)
    return result


def _is_recorded(x: Scalar) -> bool:
    return not isinstance(x, float | int | complex | np.ndarray | np.generic) and not hasattr(
        x, "context"
    )


def _data_first(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    return (y, x) if isinstance(x, float | int) else (x, y)


def _known(name: str, x: Scalar) -> Scalar:
    """A function that the libraries of plain numbers have."""
    if isinstance(x, complex) and not isinstance(x, np.generic):
        return getattr(cmath, name)(x)
    if hasattr(x, "context"):  # mpmath
        return getattr(x.context, "ln" if name == "log" else name)(x)
    with np.errstate(all="ignore"):
        result = getattr(np, name)(x)
    return result if isinstance(x, np.ndarray | np.generic) else float(result)
