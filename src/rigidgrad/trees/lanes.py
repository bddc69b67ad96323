"""Eight numbers at once as a value in numba code: one SIMD lane a body.

`Lanes` values know +, -, * and / among themselves and with numbers, so that spatial algebra is written once and compiled for single numbers
and for lanes. Arrays that lanes read hold packs: component k of the eight bodies of pack p lies at p·C·8 + k·8 … + 8.
Where a table of indices says -1, a lane is padding: it reads 0 and writes nothing.
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

from rigidgrad.trees.compiled import kernel

W = 8
intrinsic: Any = numba.extending.intrinsic  # what it returns is for compiled code only; its type is not worth checking
_I64 = ir.IntType(64)


class Lanes(types.Type):
    """The numba type of W float64 or float32 numbers."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"lanes({dtype}x{W})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, type_: Lanes) -> None:
        number = ir.DoubleType() if type_.dtype == types.float64 else ir.FloatType()
        super().__init__(manager, type_, ir.VectorType(number, W))


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


def splat_value(builder: Any, number: Any) -> Any:
    """The IR of a vector with the same number in all lanes."""
    vector = ir.VectorType(number.type, W)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.IntType(32)(0))
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), W), [0] * W))


def _define(op: Any, instruction: str) -> None:
    infer_global(op)(type(f"_{instruction}", (_Binary,), {"key": op}))

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        wide = [x if isinstance(x.type, ir.VectorType) else splat_value(builder, x) for x in args]
        return getattr(builder, instruction)(*wide, flags=("contract",))

    for left, right in ((Lanes, Lanes), (Lanes, types.Number), (types.Number, Lanes)):
        lower_builtin(op, left, right)(lower)


for _op, _instruction in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv")):
    _define(_op, _instruction)


def _llvm_name(type_: Lanes) -> str:
    return f"v{W}f{64 if type_.dtype == types.float64 else 32}"


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
        bound = splat_value(builder, bound)
        outside = builder.or_(builder.fcmp_ordered(">", value, bound), builder.fcmp_ordered("<", value, builder.fneg(bound)))
        bits = builder.bitcast(outside, ir.IntType(W))
        return builder.icmp_unsigned("==", bits, ir.IntType(W)(0))

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
        return splat_value(builder, args[1])

    return Lanes(like.dtype)(like, like.dtype), code


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
        for j in range(W):
            if not abs(lane(x, j)) <= limit:
                sine = with_lane(sine, j, math.sin(lane(x, j)))
                cosine = with_lane(cosine, j, math.cos(lane(x, j)))
    return sine, cosine


def sincos(x):
    raise NotImplementedError("for compiled code")


@overload(sincos)
def _sincos(x):
    if not isinstance(x, Lanes):
        return lambda x: (math.sin(x), math.cos(x))
    if x.dtype == types.float64:
        return lambda x: _sincos_lanes(x, _HALF_PI, 1073741824.0)
    return lambda x: _sincos_lanes(x, _HALF_PI_32, 131072.0)


# --- memory --------------------------------------------------------------------------------------------------------------------------


def _data(context: Any, builder: Any, type_: Any, value: Any) -> Any:
    return context.make_array(type_)(context, builder, value).data


def _at(builder: Any, data: Any, index: Any, offset: int = 0) -> Any:
    return builder.gep(data, [builder.add(index, _I64(offset)) if offset else index])


@intrinsic(prefer_literal=True)
def numbers(typingctx, array, start, count):
    """array.flat[start : start + count] as a tuple; count is a literal."""
    sig = types.UniTuple(array.dtype, count.literal_value)(array, types.int64, count)

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        values = [builder.load(_at(builder, data, args[1], k)) for k in range(sig.return_type.count)]
        return context.make_tuple(builder, sig.return_type, values)

    return sig, code


@intrinsic
def put_numbers(typingctx, array, start, values):
    """array.flat[start : …] = values, a tuple."""

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        for k in range(sig.args[2].count):
            builder.store(builder.extract_value(args[2], k), _at(builder, data, args[1], k))
        return context.get_dummy_value()

    return types.void(array, types.int64, values), code


@intrinsic(prefer_literal=True)
def lanes(typingctx, array, start, count):
    """`count` neighbouring vectors from array.flat[start] on, as a tuple."""
    sig = types.UniTuple(Lanes(array.dtype), count.literal_value)(array, types.int64, count)

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        vector = context.get_value_type(sig.return_type.dtype).as_pointer()
        size = sig.args[0].dtype.bitwidth // 8
        places = [builder.bitcast(_at(builder, data, args[1], W * k), vector) for k in range(sig.return_type.count)]
        return context.make_tuple(builder, sig.return_type, [builder.load(p, align=size) for p in places])

    return sig, code


@intrinsic
def put_lanes(typingctx, array, start, values):
    """Neighbouring vectors from array.flat[start] on = values, a tuple of lanes."""

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        size = sig.args[0].dtype.bitwidth // 8
        for k in range(sig.args[2].count):
            value = builder.extract_value(args[2], k)
            for half in (0, W // 2):
                mask = ir.Constant(ir.VectorType(ir.IntType(32), W // 2), list(range(half, half + W // 2)))
                part = builder.shuffle_vector(value, value, mask)
                place = builder.bitcast(_at(builder, data, args[1], W * k + half), part.type.as_pointer())
                builder.store(part, place, align=size)
        return context.get_dummy_value()

    return types.void(array, types.int64, values), code


def _slot_bases(builder: Any, slots: Any, place: Any, components: Any, first: Any) -> list[Any]:
    """Where component 0 of each of W slots lies: first + (slot // W)·C·W + slot % W."""
    bases = []
    shift = W.bit_length() - 1
    pack = builder.mul(components, _I64(W))
    for j in range(W):
        slot = builder.sext(builder.load(_at(builder, slots, place, j)), _I64)
        real = builder.select(
            builder.icmp_signed(">=", slot, _I64(0)), slot, _I64(0)
        )  # padding reads what is there, and keeps it to itself
        start = builder.mul(builder.lshr(real, _I64(shift)), pack)
        bases.append((slot, builder.add(builder.add(start, builder.and_(real, _I64(W - 1))), first)))
    return bases


@intrinsic(prefer_literal=True)
def gather(typingctx, array, first, components, slots, place, count):
    """`count` components, as lanes, of the slots slots[place : place + W] in an array of packs with so many components, from `first` on."""
    sig = types.UniTuple(Lanes(array.dtype), count.literal_value)(array, types.int64, types.int64, slots, types.int64, count)

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        table = _data(context, builder, sig.args[3], args[3])
        bases = _slot_bases(builder, table, args[4], args[2], args[1])
        vector = context.get_value_type(sig.return_type.dtype)
        values = []
        for k in range(sig.return_type.count):
            value: Any = ir.Constant(vector, ir.Undefined)
            for j, (_, base) in enumerate(bases):
                value = builder.insert_element(value, builder.load(_at(builder, data, base, W * k)), ir.IntType(32)(j))
            values.append(value)
        return context.make_tuple(builder, sig.return_type, values)

    return sig, code


@intrinsic
def scatter_add(typingctx, array, first, components, slots, place, values):
    """Adds components to slots, one lane after the other: several lanes may add to one slot. Slot -1 is left out."""

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        table = _data(context, builder, sig.args[3], args[3])
        bases = _slot_bases(builder, table, args[4], args[2], args[1])
        for j, (slot, base) in enumerate(bases):
            with builder.if_then(builder.icmp_signed(">=", slot, _I64(0)), likely=True):
                for k in range(sig.args[5].count):
                    place = _at(builder, data, base, W * k)
                    number = builder.extract_element(builder.extract_value(args[5], k), ir.IntType(32)(j))
                    builder.store(builder.fadd(builder.load(place), number), place)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, slots, types.int64, values), code


@intrinsic
def take(typingctx, array, first, indices, place):
    """array.flat[first + indices[place : place + W]] as lanes; 0 where the index is -1."""
    sig = Lanes(array.dtype)(array, types.int64, indices, types.int64)

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        table = _data(context, builder, sig.args[2], args[2])
        vector = context.get_value_type(sig.return_type)
        value: Any = ir.Constant(vector, ir.Undefined)
        for j in range(W):
            index = builder.sext(builder.load(_at(builder, table, args[3], j)), _I64)
            real = builder.icmp_signed(">=", index, _I64(0))
            number = builder.load(_at(builder, data, builder.add(args[1], builder.select(real, index, _I64(0)))))
            number = builder.select(real, number, ir.Constant(number.type, 0.0))
            value = builder.insert_element(value, number, ir.IntType(32)(j))
        return value

    return sig, code


@intrinsic
def give(typingctx, array, first, indices, place, value):
    """array.flat[first + indices[place : place + W]] = value, lane by lane; nothing where the index is -1."""

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        table = _data(context, builder, sig.args[2], args[2])
        for j in range(W):
            index = builder.sext(builder.load(_at(builder, table, args[3], j)), _I64)
            with builder.if_then(builder.icmp_signed(">=", index, _I64(0)), likely=True):
                number = builder.extract_element(args[4], ir.IntType(32)(j))
                builder.store(number, _at(builder, data, builder.add(args[1], index)))
        return context.get_dummy_value()

    return types.void(array, types.int64, indices, types.int64, value), code


@intrinsic(prefer_literal=True)
def take_segments(typingctx, array, group, width, first, count):
    """Components first … first + count of the W rows of a group, rows of `width` numbers, as lanes."""
    sig = types.UniTuple(Lanes(array.dtype), count.literal_value)(array, types.int64, types.int64, types.int64, count)

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        start = builder.add(builder.mul(builder.mul(args[1], _I64(W)), args[2]), args[3])
        rows = [builder.add(start, builder.mul(args[2], _I64(j))) for j in range(W)]
        values = []
        for k in range(sig.return_type.count):
            value: Any = ir.Constant(context.get_value_type(sig.return_type.dtype), ir.Undefined)
            for j, row in enumerate(rows):
                value = builder.insert_element(value, builder.load(_at(builder, data, row, k)), ir.IntType(32)(j))
            values.append(value)
        return context.make_tuple(builder, sig.return_type, values)

    return sig, code


@intrinsic
def put_segments(typingctx, array, group, width, first, values):
    """The inverse of `take_segments`."""

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        start = builder.add(builder.mul(builder.mul(args[1], _I64(W)), args[2]), args[3])
        for j in range(W):
            row = builder.add(start, builder.mul(args[2], _I64(j)))
            for k in range(sig.args[4].count):
                number = builder.extract_element(builder.extract_value(args[4], k), ir.IntType(32)(j))
                builder.store(number, _at(builder, data, row, k))
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, types.int64, values), code
