"""As many numbers as a register holds as a value in numba code: one SIMD lane a body.

`Lanes` values know +, -, * and / among themselves and with numbers, so that spatial algebra is written once and compiled for single numbers
and for lanes. `packs` reads and writes them.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numba.extending
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import overload, register_model

from rigidgrad.trees.compiled import inlined, kernel

W = 8  # slots of a pack
REGISTER = 32  # bytes; twice as much leaves too few registers for a body's numbers
intrinsic: Any = numba.extending.intrinsic  # what it returns is for compiled code only; its type is not worth checking


class Lanes(types.Type):
    """The numba type of some float64 or float32 numbers, as many as fill a register unless said."""

    def __init__(self, dtype: Any, count: int | None = None) -> None:
        self.dtype = dtype
        self.count = count or REGISTER * 8 // dtype.bitwidth
        super().__init__(name=f"lanes({dtype}x{self.count})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, type_: Lanes) -> None:
        number = ir.DoubleType() if type_.dtype == types.float64 else ir.FloatType()
        super().__init__(manager, type_, ir.VectorType(number, type_.count))


# --- arithmetic ----------------------------------------------------------------------------------------------------------------------


class _Binary(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        if len(args) != 2:
            return None
        left, right = args
        if isinstance(left, Lanes) and (left == right or isinstance(right, types.Number)):
            return signature(left, left, left if left == right else left.dtype)
        if isinstance(right, Lanes) and isinstance(left, types.Number):
            return signature(right, right.dtype, right)
        return None


class _Negative(AbstractTemplate):
    key = operator.neg

    def generic(self, args: Any, kws: Any) -> Any:
        return signature(args[0], args[0]) if len(args) == 1 and isinstance(args[0], Lanes) else None


infer_global(operator.neg)(_Negative)


@lower_builtin(operator.neg, Lanes)
def _negate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.fneg(args[0])


def splat_value(builder: Any, number: Any, count: int) -> Any:
    """The IR of a vector with the same number in all lanes."""
    vector = ir.VectorType(number.type, count)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.IntType(32)(0))
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), count), [0] * count))


def _define(op: Any, instruction: str) -> None:
    infer_global(op)(type(f"_{instruction}", (_Binary,), {"key": op}))

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        wide = [x if isinstance(x.type, ir.VectorType) else splat_value(builder, x, sig.return_type.count) for x in args]
        return getattr(builder, instruction)(*wide, flags=("contract",))

    for left, right in ((Lanes, Lanes), (Lanes, types.Number), (types.Number, Lanes)):
        lower_builtin(op, left, right)(lower)


for _op, _instruction in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv")):
    _define(_op, _instruction)


def _llvm_name(type_: Lanes) -> str:
    return f"v{type_.count}f{type_.dtype.bitwidth}"


@intrinsic
def _fma(typingctx, a, b, c):
    def code(context, builder, sig, args):
        vector = args[0].type
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.{_llvm_name(sig.return_type)}"
        )
        return builder.call(function, args)

    return a(a, a, a), code


@intrinsic
def _floor(typingctx, a):
    def code(context, builder, sig, args):
        vector = args[0].type
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector]), f"llvm.floor.{_llvm_name(sig.return_type)}"
        )
        return builder.call(function, args)

    return a(a), code


@intrinsic
def _where_less(typingctx, a, b, x, y):
    """x where a < b, else y."""

    def code(context, builder, sig, args):
        left, right, yes, no = args
        return builder.select(builder.fcmp_ordered("<", left, right), yes, no)

    return a(a, a, a, a), code


@intrinsic
def _all_within(typingctx, x, limit):
    """Whether every |lane| ≤ limit; NaN counts as within."""

    def code(context, builder, sig, args):
        value, bound = args
        bound = splat_value(builder, bound, sig.args[0].count)
        outside = builder.or_(builder.fcmp_ordered(">", value, bound), builder.fcmp_ordered("<", value, builder.fneg(bound)))
        bits = builder.bitcast(outside, ir.IntType(sig.args[0].count))
        return builder.icmp_unsigned("==", bits, bits.type(0))

    return types.boolean(x, x.dtype), code


@intrinsic
def lane(typingctx, x, j):
    """Lane j of x."""

    def code(context, builder, sig, args):
        return builder.extract_element(args[0], args[1])

    return x.dtype(x, types.int64), code


@intrinsic
def with_lane(typingctx, x, j, number):
    """x with lane j replaced."""

    def code(context, builder, sig, args):
        return builder.insert_element(args[0], args[2], args[1])

    return x(x, types.int64, x.dtype), code


@intrinsic
def filled(typingctx, like, number):
    """The same number in all lanes, in the dtype of an array or of other lanes."""

    def code(context, builder, sig, args):
        return splat_value(builder, args[1], sig.return_type.count)

    return (like if isinstance(like, Lanes) else Lanes(like.dtype))(like, like.dtype), code


@intrinsic
def filled_pack(typingctx, like, number):
    """The same number in W lanes, whatever the dtype."""

    def code(context, builder, sig, args):
        return splat_value(builder, args[1], W)

    return Lanes(like.dtype, W)(like, like.dtype), code


def width(x):
    """How many numbers lanes have, or those of an array's dtype."""
    raise NotImplementedError("for compiled code")


@overload(width, jit_options={"forceinline": True})
def _width(x):
    count = x.count if isinstance(x, Lanes) else Lanes(x.dtype).count
    return lambda x: count


# --- sine and cosine -----------------------------------------------------------------------------------------------------------------

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


@kernel
def _far(x, limit, sine, cosine):
    """Sine and cosine with the lanes beyond the limit from the C library."""
    for j in range(width(x)):
        if not abs(lane(x, j)) <= limit:
            sine = with_lane(sine, j, math.sin(lane(x, j)))
            cosine = with_lane(cosine, j, math.cos(lane(x, j)))
    return sine, cosine


@inlined
def _sincos_lanes(x, half_pi, limit):
    """fdlibm's polynomials after a reduction by multiples of π/2 held in three pieces; beyond the limit, the C library."""
    one = filled(x, 1.0)
    n = _floor(x * 0.6366197723675814 + 0.5)
    r = _fma(-n, filled(x, half_pi[0]), x)
    r = _fma(-n, filled(x, half_pi[1]), r)
    r = _fma(-n, filled(x, half_pi[2]), r)
    z = r * r
    s = ((((z * _SIN[0] + _SIN[1]) * z + _SIN[2]) * z + _SIN[3]) * z + _SIN[4]) * z + _SIN[5]
    c = ((((z * _COS[0] + _COS[1]) * z + _COS[2]) * z + _COS[3]) * z + _COS[4]) * z + _COS[5]
    sine = r + r * z * s
    # 1 - z/2 is rounded; what the rounding lost is added back with the small terms
    half = 0.5 * z
    w = 1.0 - half
    cosine = w + (((1.0 - w) - half) + z * z * c)
    quadrant = n - 4.0 * _floor(n * 0.25)
    odd = n - 2.0 * _floor(n * 0.5)
    t = filled(x, 0.5)
    sine_, cosine_ = _where_less(t, odd, cosine, sine), _where_less(t, odd, sine, cosine)
    sine = _where_less(filled(x, 1.5), quadrant, -sine_, sine_)
    middle = (quadrant - 1.5) * (quadrant - 1.5)
    cosine = _where_less(middle, one, -cosine_, cosine_)
    if not _all_within(x, limit):
        sine, cosine = _far(x, limit, sine, cosine)
    return sine, cosine


def sincos(x):
    raise NotImplementedError("for compiled code")


@overload(sincos, jit_options={"forceinline": True})
def _sincos(x):
    if not isinstance(x, Lanes):
        return lambda x: (math.sin(x), math.cos(x))
    if x.dtype == types.float64:
        return lambda x: _sincos_lanes(x, _HALF_PI, 1073741824.0)
    return lambda x: _sincos_lanes(x, _HALF_PI_32, 131072.0)
