"""Lanes and memory: how compiled code reads and writes single numbers, lanes of packs, and lanes that tables of indices name.

Arrays that lanes read hold packs of eight slots: component k of slot s lies at (s // 8)·C·8 + k·8 + s % 8, so a pack is two steps of a loop in
float64 and one in float32. Where a table of indices says -1, a lane is padding: it reads 0 and writes nothing.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from rigidgrad.trees.lanes import Lanes, W, intrinsic

_I64 = ir.IntType(64)


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


def _kind(array: Any, wide: Any) -> Lanes:
    """Lanes as a register holds them, or as many as the literal `wide` says: more hide latency where each step needs the one before."""
    return Lanes(array.dtype, None if wide is None else wide.literal_value)


def _place(builder: Any, slot: Any, components: Any, first: Any) -> Any:
    """Where component `first` of a slot lies."""
    pack = builder.add(builder.mul(builder.lshr(slot, _I64(W.bit_length() - 1)), components), first)
    return builder.add(builder.mul(pack, _I64(W)), builder.and_(slot, _I64(W - 1)))


@intrinsic(prefer_literal=True)
def fetch(typingctx, array, start, count):
    """Asks for `count` cache lines from array.flat[start] on, which may lie outside of the array."""

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        pointer = ir.IntType(8).as_pointer()
        word = ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [pointer, word, word, word]), "llvm.prefetch.p0"
        )
        first = builder.bitcast(_at(builder, data, args[1]), pointer)
        for k in range(sig.args[2].literal_value):
            builder.call(function, [builder.gep(first, [_I64(64 * k)]), word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64, count), code


@intrinsic(prefer_literal=True)
def lanes(typingctx, array, slot, components, first, count, wide=None):
    """Components first … first + count of the slots from `slot` on in an array of packs with so many components, as a tuple."""
    sig = types.UniTuple(_kind(array, wide), count.literal_value)(array, types.int64, types.int64, types.int64, count, wide or types.none)

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        vector = context.get_value_type(sig.return_type.dtype).as_pointer()
        size = sig.args[0].dtype.bitwidth // 8
        start = _place(builder, *args[1:4])
        places = [builder.bitcast(_at(builder, data, start, W * k), vector) for k in range(sig.return_type.count)]
        return context.make_tuple(builder, sig.return_type, [builder.load(p, align=size) for p in places])

    return sig, code


@intrinsic
def put_lanes(typingctx, array, slot, components, first, values):
    """The inverse of `lanes`."""

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        size = sig.args[0].dtype.bitwidth // 8
        start = _place(builder, *args[1:4])
        for k in range(sig.args[4].count):
            value = builder.extract_value(args[4], k)
            builder.store(value, builder.bitcast(_at(builder, data, start, W * k), value.type.as_pointer()), align=size)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, types.int64, values), code


def _slots(builder: Any, table: Any, place: Any, count: int, shift: Any) -> list[tuple[Any, Any]]:
    """Of `count` slots from a table: whether each is real, and which one it is, `shift` slots up; padding reads what is there, and keeps it to itself."""
    found = []
    for j in range(count):
        slot = builder.sext(builder.load(_at(builder, table, place, j)), _I64)
        real = builder.icmp_signed(">=", slot, _I64(0))
        found.append((real, builder.add(builder.select(real, slot, _I64(0)), shift)))
    return found


def _real(builder: Any, table: Any, place: Any, count: int) -> tuple[Any, Any]:
    """`count` indices of a table with 0 in place of -1, and a mask of those that were not -1."""
    wide = ir.VectorType(table.type.pointee, count)
    index = builder.load(builder.bitcast(_at(builder, table, place), wide.as_pointer()), align=4)
    zero = ir.Constant(wide, [0] * count)
    real = builder.icmp_signed(">=", index, zero)
    return builder.select(real, index, zero), real


@intrinsic(prefer_literal=True)
def gather(typingctx, array, slots, place, shift, mask, components, first, count):
    """Components first … first + count, as lanes, of the slots (slots[place : …] + shift) & mask in an array of packs with so many components."""
    sig = types.UniTuple(Lanes(array.dtype), count.literal_value)(array, slots, *(types.int64,) * 5, count)

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        table = _data(context, builder, sig.args[1], args[1])
        kind = sig.return_type.dtype
        slots = _slots(builder, table, args[2], kind.count, args[3])
        places = [_place(builder, builder.and_(slot, args[4]), args[5], args[6]) for _, slot in slots]
        values = []
        for k in range(sig.return_type.count):
            value: Any = ir.Constant(context.get_value_type(kind), ir.Undefined)
            for j, start in enumerate(places):
                value = builder.insert_element(value, builder.load(_at(builder, data, start, W * k)), ir.IntType(32)(j))
            values.append(value)
        return context.make_tuple(builder, sig.return_type, values)

    return sig, code


@intrinsic
def scatter_add(typingctx, array, slots, place, shift, components, first, values):
    """Adds components to the slots slots[place : …] + shift, one lane after the other: several lanes may add to one slot. Slot -1 is left out."""

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        table = _data(context, builder, sig.args[1], args[1])
        for j, (real, slot) in enumerate(_slots(builder, table, args[2], sig.args[6].dtype.count, args[3])):
            with builder.if_then(real, likely=True):
                start = _place(builder, slot, args[4], args[5])
                for k in range(sig.args[6].count):
                    at = _at(builder, data, start, W * k)
                    number = builder.extract_element(builder.extract_value(args[6], k), ir.IntType(32)(j))
                    builder.store(builder.fadd(builder.load(at), number), at)
        return context.get_dummy_value()

    return types.void(array, slots, *(types.int64,) * 4, values), code


@intrinsic(prefer_literal=True)
def take(typingctx, array, first, indices, place, wide=None):
    """array.flat[first + indices[place : …]] as lanes; 0 where the index is -1."""
    sig = _kind(array, wide)(array, types.int64, indices, types.int64, wide or types.none)

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        table = _data(context, builder, sig.args[2], args[2])
        count = sig.return_type.count
        vector = context.get_value_type(sig.return_type)
        index, real = _real(builder, table, args[3], count)
        value: Any = ir.Constant(vector, ir.Undefined)
        for j in range(count):
            at = builder.add(args[1], builder.sext(builder.extract_element(index, ir.IntType(32)(j)), _I64))
            value = builder.insert_element(value, builder.load(_at(builder, data, at)), ir.IntType(32)(j))
        return builder.select(real, value, ir.Constant(vector, [0.0] * count))

    return sig, code


@intrinsic
def give(typingctx, array, first, indices, place, value):
    """array.flat[first + indices[place : …]] = value, lane by lane; nothing where the index is -1."""

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        table = _data(context, builder, sig.args[2], args[2])
        for j in range(sig.args[4].count):
            index = builder.sext(builder.load(_at(builder, table, args[3], j)), _I64)
            with builder.if_then(builder.icmp_signed(">=", index, _I64(0)), likely=True):
                number = builder.extract_element(args[4], ir.IntType(32)(j))
                builder.store(number, _at(builder, data, builder.add(args[1], index)))
        return context.get_dummy_value()

    return types.void(array, types.int64, indices, types.int64, value), code


@intrinsic
def scatter(typingctx, array, first, indices, place, value):
    """array.flat[first + indices[place : …]] = value, lane by lane, in tables without padding: branches would part what is read before from its use."""

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        table = _data(context, builder, sig.args[2], args[2])
        for j in range(sig.args[4].count):
            index = builder.sext(builder.load(_at(builder, table, args[3], j)), _I64)
            builder.store(builder.extract_element(args[4], ir.IntType(32)(j)), _at(builder, data, builder.add(args[1], index)))
        return context.get_dummy_value()

    return types.void(array, types.int64, indices, types.int64, value), code


@intrinsic(prefer_literal=True)
def take_rows(typingctx, array, row, columns, first, count, wide=None):
    """Columns first … first + count of the rows from `row` on, a lane each, in an array with so many columns."""
    sig = types.UniTuple(_kind(array, wide), count.literal_value)(array, types.int64, types.int64, types.int64, count, wide or types.none)

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        kind = sig.return_type.dtype
        starts = _rows(builder, kind.count, *args[1:4])
        return context.make_tuple(builder, sig.return_type, _transposed(context, builder, sig.return_type, data, starts))

    return sig, code


@intrinsic
def put_rows(typingctx, array, row, columns, first, values):
    """The inverse of `take_rows`."""

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        for j, start in enumerate(_rows(builder, sig.args[4].dtype.count, *args[1:4])):
            for k in range(sig.args[4].count):
                number = builder.extract_element(builder.extract_value(args[4], k), ir.IntType(32)(j))
                builder.store(number, _at(builder, data, start, k))
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, types.int64, values), code


@intrinsic(prefer_literal=True)
def gather_rows(typingctx, array, rows, place, columns, first, count, wide=None):
    """Columns first … first + count of the rows rows[place : …] + 1, a lane each, in an array with so many columns; its first row stands for padding."""
    sig = types.UniTuple(_kind(array, wide), count.literal_value)(array, rows, *(types.int64,) * 3, count, wide or types.none)

    def code(context, builder, sig, args):
        data = _data(context, builder, sig.args[0], args[0])
        table = _data(context, builder, sig.args[1], args[1])
        kind = sig.return_type.dtype
        starts = []
        for j in range(kind.count):
            row = builder.add(builder.sext(builder.load(_at(builder, table, args[2], j)), _I64), _I64(1))
            starts.append(builder.add(builder.mul(row, args[3]), args[4]))
        return context.make_tuple(builder, sig.return_type, _transposed(context, builder, sig.return_type, data, starts))

    return sig, code


def _transposed(context: Any, builder: Any, type_: Any, data: Any, starts: list[Any]) -> list[Any]:
    """Lanes of the numbers that follow each other from each of `starts` on."""
    values = []
    for k in range(type_.count):
        value: Any = ir.Constant(context.get_value_type(type_.dtype), ir.Undefined)
        for j, start in enumerate(starts):
            value = builder.insert_element(value, builder.load(_at(builder, data, start, k)), ir.IntType(32)(j))
        values.append(value)
    return values


def _rows(builder: Any, count: int, row: Any, columns: Any, first: Any) -> list[Any]:
    return [builder.add(builder.mul(builder.add(row, _I64(j)), columns), first) for j in range(count)]
