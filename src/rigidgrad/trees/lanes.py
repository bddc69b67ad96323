"""As many numbers as a register holds as one value of compiled code: one SIMD lane per body.
`packs` reads and writes them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir

from rigidgrad import scalars
from rigidgrad.runtime.loops import Kernel, kernel
from rigidgrad.scalars import Scalar
from rigidgrad.targets.loops.arrays import Array, memory_type
from rigidgrad.targets.loops.source import emits
from rigidgrad.targets.loops.values import F64, Code, Number, intrinsic_of, select
from rigidgrad.trees.algebra import Flat, Transform, across_joint

W = 8  # slots of a pack
REGISTER = 32  # bytes; twice as much leaves too few registers for a body's numbers


def vector_type(dtype: Any, count: int | None = None) -> Any:
    """Of some numbers of a dtype, as many as fill a register unless said."""
    return ir.VectorType(memory_type(dtype), count or REGISTER // np.dtype(dtype).itemsize)


@emits
def width(code: Code, x: Any) -> int:
    """How many numbers lanes have, or those of an array's dtype."""
    return int(vector_type(x.dtype).count) if isinstance(x, Array) else x.count


@emits
def lane(code: Code, x: Number, j: Any) -> Scalar:
    """Lane j of x."""
    if x.count == 1:
        return x
    return Number(code, code.builder.extract_element(x.ir, code.index(j)))


@emits
def with_lane(code: Code, x: Number, j: Any, number: Any) -> Scalar:
    """x with lane j replaced."""
    if x.count == 1:
        return Number(code, code.cast(number, x.ir.type))
    return Number(
        code, code.builder.insert_element(x.ir, code.cast(number, x.ir.type.element), code.index(j))
    )


@emits
def filled(code: Code, like: Any, number: float) -> Scalar:
    """The same number in all lanes, in the dtype of an array or of other lanes."""
    return Number(
        code,
        code.cast(number, vector_type(like.dtype) if isinstance(like, Array) else like.ir.type),
    )


@emits
def filled_pack(code: Code, like: Array, number: float) -> Scalar:
    """The same number in W lanes, whatever the dtype."""
    return Number(code, code.cast(number, vector_type(like.dtype, W)))


# --- sine and cosine ------------------------------------------------------------------------------

_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)
_HALF_PI_32 = (1.57079637050628662109375, -4.37113882867379e-08, -1.71512451e-15)
_SIN = (
    1.58969099521155e-10,
    -2.505076025340686e-08,
    2.755731370707007e-06,
    -1.984126982985795e-04,
    8.33333333332249e-03,
    -1.6666666666666632e-01,
)
_COS = (
    -1.1359647557788195e-11,
    2.087572321298175e-09,
    -2.7557314351390663e-07,
    2.480158728947673e-05,
    -1.388888888887411e-03,
    4.16666666666666e-02,
)


@emits
def _all_within(code: Code, x: Number, limit: float) -> Scalar:
    """Whether every |lane| ≤ limit; NaN counts as within."""
    b = code.builder
    bits = b.bitcast((abs(x) > limit).ir, ir.IntType(x.count))
    return Number(code, b.icmp_unsigned("==", bits, bits.type(0)))


@kernel
def _far(x: Scalar, limit: float, sine: Scalar, cosine: Scalar) -> tuple[Scalar, Scalar]:
    """Sine and cosine with the lanes beyond the limit from the C library."""
    for j in range(width(x)):
        if not abs(lane(x, j)) <= limit:
            sine = with_lane(sine, j, math.sin(lane(x, j)))
            cosine = with_lane(cosine, j, math.cos(lane(x, j)))
    return sine, cosine


def _near(x: Scalar, half_pi: Flat) -> tuple[Scalar, Scalar]:
    """Polynomials after a reduction by multiples of π/2 held in three pieces."""
    n = intrinsic_of("floor", x * 0.6366197723675814 + 0.5)
    r = x
    for piece in half_pi:
        r = intrinsic_of("fma", -n, piece, r)
    z = r * r
    s = ((((z * _SIN[0] + _SIN[1]) * z + _SIN[2]) * z + _SIN[3]) * z + _SIN[4]) * z + _SIN[5]
    c = ((((z * _COS[0] + _COS[1]) * z + _COS[2]) * z + _COS[3]) * z + _COS[4]) * z + _COS[5]
    sine = r + r * z * s
    # 1 - z/2 is rounded; what the rounding lost is added back with the small terms
    half = 0.5 * z
    w = 1.0 - half
    cosine = w + (((1.0 - w) - half) + z * z * c)
    quadrant = n - 4.0 * intrinsic_of("floor", n * 0.25)
    odd = n - 2.0 * intrinsic_of("floor", n * 0.5) > 0.5
    sine, cosine = select(odd, cosine, sine), select(odd, sine, cosine)
    middle = (quadrant - 1.5) * (quadrant - 1.5)
    return select(quadrant > 1.5, -sine, sine), select(middle < 1.0, -cosine, cosine)


def _sincos(x: Scalar) -> tuple[Scalar, Scalar]:
    """fdlibm's polynomials; beyond a limit, the C library."""
    half_pi, limit = _reduction(x)
    sine, cosine = _near(x, half_pi)
    if not _all_within(x, limit):
        sine, cosine = _far(x, limit, sine, cosine)
    return sine, cosine


sincos = Kernel(_sincos, recorded=scalars.sincos)


def _reduction(x: Scalar) -> tuple[Flat, float]:
    """π/2 in pieces, and the angle up to which they do."""
    scalar = getattr(x.ir.type, "element", x.ir.type)
    return (_HALF_PI, 1073741824.0) if scalar == F64 else (_HALF_PI_32, 131072.0)


@kernel
def joint_transform(E: Flat, r: Flat, ang: Scalar, lin: Scalar, q: Scalar) -> Transform:
    """From parent to child across a joint that turns by ang·q about z and moves by lin·q along
    it.
    """
    s, c = sincos(ang * q)
    return across_joint(E, r, s, c, lin * q)
