"""Lanes and memory: how compiled code reads and writes single numbers, lanes of packs, and lanes
that tables of indices name.

Arrays that lanes read hold packs of eight slots: component k of slot s lies at (s // 8)·C·8 + k·8 +
s % 8, so a pack is two steps of a loop in float64 and one in float32. Where a table of indices says
-1, a lane is padding: it reads 0 and writes nothing.

Arrays with two axes have a row of components for each slot: a walk from body to body reads single
numbers of them by the same words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from rigidgrad.scalars import Scalar
from rigidgrad.targets.loops.arrays import Array
from rigidgrad.targets.loops.source import emits
from rigidgrad.targets.loops.values import I8, I32, I64, Code, Number, select
from rigidgrad.trees.lanes import W, vector_type

if TYPE_CHECKING:
    pass


@emits
def numbers(code: Code, array: Array, start: Any, count: int) -> tuple[Scalar, ...]:
    """array.flat[start : start + count]."""
    return tuple(array.load(array.at(start, k)) for k in range(count))


@emits
def put_numbers(code: Code, array: Array, start: Any, values: tuple[Any, ...]) -> None:
    """array.flat[start : …] = values."""
    for k, value in enumerate(values):
        array.store(value, array.at(start, k))


def _place(slot: Any, components: Any, first: Any) -> Any:
    """Where component `first` of a slot lies."""
    return (slot // W * components + first) * W + slot % W


@emits
def fetch(code: Code, array: Array, start: Any, count: int) -> None:
    """Asks for `count` cache lines from array.flat[start] on, which may lie outside of the
    array.
    """
    first = code.builder.bitcast(array.at(start), I8.as_pointer())
    for k in range(count):
        code.call(
            "llvm.prefetch.p0",
            ir.VoidType(),
            [code.builder.gep(first, [I64(64 * k)]), I32(0), I32(3), I32(1)],
        )


def _vector_at(code: Code, array: Array, vector: Any, index: Any, offset: int) -> Any:
    return code.builder.bitcast(array.at(index, offset), vector.as_pointer())


@emits
def lanes(
    code: Code,
    array: Array,
    slot: Any,
    components: Any,
    first: Any,
    count: int,
    wide: int | None = None,
) -> tuple[Scalar, ...]:
    """Components first … first + count of the slots from `slot` on in an array of packs with so
    many components.

    Lanes are as a register holds them, or as many as `wide` says: more hide latency where each step
    needs the one before. Of an array of rows, the numbers of one.
    """
    if array.ndim == 2:
        place = slot * components + first
        return tuple(array.load(array.at(place, k)) for k in range(count))
    vector, start = vector_type(array.dtype, wide), _place(slot, components, first)
    size = array.dtype.itemsize
    return tuple(
        Number(code, code.builder.load(_vector_at(code, array, vector, start, W * k), align=size))
        for k in range(count)
    )


@emits
def put_lanes(
    code: Code, array: Array, slot: Any, components: Any, first: Any, values: tuple[Number, ...]
) -> None:
    """The inverse of `lanes`."""
    if array.ndim == 2:
        place = slot * components + first
        for k, value in enumerate(values):
            array.store(value, array.at(place, k))
        return
    start = _place(slot, components, first)
    vector = vector_type(array.dtype, next(x.count for x in values if isinstance(x, Number)))
    for k, value in enumerate(values):
        code.builder.store(
            code.cast(value, vector),
            _vector_at(code, array, vector, start, W * k),
            align=array.dtype.itemsize,
        )


def _slots(table: Array, place: Any, count: int, shift: Any) -> list[tuple[Number, Any]]:
    """Of `count` slots from a table: whether each is real, and which one it is, `shift` slots up;
    padding reads what is there, and keeps it to itself.
    """
    found = []
    for j in range(count):
        slot = table.load(table.at(place, j))
        real = slot >= 0
        found.append((real, select(real, slot, 0) + shift))
    return found


def _collected(code: Code, vector: Any, values: Sequence[Number]) -> Number:
    """Numbers as lanes."""
    result: Any = ir.Constant(vector, ir.Undefined)
    for j, value in enumerate(values):
        result = code.builder.insert_element(result, value.ir, I32(j))
    return Number(code, result)


@emits
def gather(
    code: Code,
    array: Array,
    slots: Array,
    place: Any,
    shift: Any,
    mask: Any,
    components: Any,
    first: Any,
    count: int,
) -> tuple[Scalar, ...]:
    """Components first … first + count, as lanes, of the slots (slots[place : …] + shift) & mask in
    an array of packs with so many components.
    """
    vector = vector_type(array.dtype)
    places = [
        _place(slot & mask, components, first)
        for _, slot in _slots(slots, place, vector.count, shift)
    ]
    return tuple(
        _collected(code, vector, [array.load(array.at(start, W * k)) for start in places])
        for k in range(count)
    )


@emits
def scatter_add(
    code: Code,
    array: Array,
    slots: Array,
    place: Any,
    shift: Any,
    components: Any,
    first: Any,
    values: tuple[Number, ...],
) -> None:
    """Adds components to the slots slots[place : …] + shift, one lane after the other: several
    lanes may add to one slot. Slot -1 is left out.
    """
    for j, (real, slot) in enumerate(_slots(slots, place, values[0].count, shift)):
        with code.builder.if_then(real.ir, likely=True):
            start = _place(slot, components, first)
            for k, value in enumerate(values):
                at = array.at(start, W * k)
                array.store(
                    array.load(at) + Number(code, code.builder.extract_element(value.ir, I32(j))),
                    at,
                )


@emits
def take(
    code: Code,
    array: Array,
    first: Any,
    indices: Array | tuple[()],
    place: Any,
    wide: int | None = None,
) -> Scalar:
    """array.flat[first + indices[place : …]] as lanes; 0 where the index is -1. Without indices,
    array.flat[first + place].
    """
    if isinstance(indices, tuple):
        return array.load(array.at(first + place))
    vector = vector_type(array.dtype, wide)
    table = ir.VectorType(indices.element, vector.count)
    b = code.builder
    index = b.load(_vector_at(code, indices, table, place, 0), align=indices.dtype.itemsize)
    zero = ir.Constant(table, [0] * vector.count)
    real = b.icmp_signed(">=", index, zero)
    index = b.select(real, index, zero)
    values = []
    for j in range(vector.count):
        at = first + Number(code, b.sext(b.extract_element(index, I32(j)), I64))
        values.append(array.load(array.at(at)))
    return Number(
        code,
        b.select(
            real, _collected(code, vector, values).ir, ir.Constant(vector, [0.0] * vector.count)
        ),
    )


@emits
def give(
    code: Code, array: Array, first: Any, indices: Array | tuple[()], place: Any, value: Number
) -> None:
    """array.flat[first + indices[place : …]] = value, lane by lane; nothing where the index is
    -1. Without indices, array.flat[first + place].
    """
    if isinstance(indices, tuple):
        array.store(value, array.at(first + place))
        return
    for j in range(value.count):
        index = indices.load(indices.at(place, j))
        with code.builder.if_then((index >= 0).ir, likely=True):
            array.store(
                Number(code, code.builder.extract_element(value.ir, I32(j))),
                array.at(first + index),
            )


@emits
def scatter(
    code: Code, array: Array, first: Any, indices: Array, place: Any, value: Number
) -> None:
    """array.flat[first + indices[place : …]] = value, lane by lane, in tables without padding:
    branches would part what is read before from its use.
    """
    for j in range(value.count):
        index = indices.load(indices.at(place, j))
        array.store(
            Number(code, code.builder.extract_element(value.ir, I32(j))), array.at(first + index)
        )


@emits
def take_rows(
    code: Code,
    array: Array,
    row: Any,
    columns: int,
    first: int,
    count: int,
    wide: int | None = None,
) -> tuple[Scalar, ...]:
    """Columns first … first + count of the rows from `row` on, a lane each, in an array with so
    many columns.
    """
    vector = vector_type(array.dtype, wide)
    return _transposed(
        code, array, vector, [(row + j) * columns + first for j in range(vector.count)], count
    )


@emits
def put_rows(
    code: Code, array: Array, row: Any, columns: int, first: int, values: tuple[Number, ...]
) -> None:
    """The inverse of `take_rows`."""
    for j in range(values[0].count):
        start = (row + j) * columns + first
        for k, value in enumerate(values):
            array.store(
                Number(code, code.builder.extract_element(value.ir, I32(j))), array.at(start, k)
            )


@emits
def gather_rows(
    code: Code,
    array: Array,
    rows: Array,
    place: Any,
    columns: int,
    first: int,
    count: int,
    wide: int | None = None,
) -> tuple[Scalar, ...]:
    """Columns first … first + count of the rows rows[place : …] + 1, a lane each, in an array with
    so many columns; its first row stands for padding.
    """
    vector = vector_type(array.dtype, wide)
    starts = [(rows.load(rows.at(place, j)) + 1) * columns + first for j in range(vector.count)]
    return _transposed(code, array, vector, starts, count)


def _transposed(
    code: Code, array: Array, vector: Any, starts: list[Any], count: int
) -> tuple[Scalar, ...]:
    """Lanes of the numbers that follow each other from each of `starts` on."""
    return tuple(
        _collected(code, vector, [array.load(array.at(start, k)) for start in starts])
        for k in range(count)
    )
