"""Lanes of the width that the CPU has, in translated loops: read, written, and asked whether
something holds in any of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from rigidgrad.runtime import native
from rigidgrad.scalars import Scalar
from rigidgrad.spatial import Vector3
from rigidgrad.targets.loops.arrays import Array, memory_type
from rigidgrad.targets.loops.source import emits
from rigidgrad.targets.loops.values import I32, I64, Code, Number


def lanes_of(dtype: Any) -> int:
    lanes: int = native.host().vector_bits // (8 * np.dtype(dtype).itemsize)
    return lanes


def _type(array: Array) -> Any:
    return ir.VectorType(memory_type(array.dtype), lanes_of(array.dtype))


def _at(code: Code, array: Array, place: Any) -> Any:
    return code.builder.bitcast(array.at(place), _type(array).as_pointer())


@emits
def width(code: Code, array: Array) -> int:
    return lanes_of(array.dtype)


@emits
def vector(code: Code, array: Array, place: Any) -> Scalar:
    """The lanes from array.flat[place] on."""
    return Number(code, code.builder.load(_at(code, array, place), align=array.dtype.itemsize))


@emits
def vector3(code: Code, array: Array, number: Any) -> Vector3:
    """Three lanes after each other, from the lanes with this number on."""
    w = lanes_of(array.dtype)
    first = number * w
    return tuple(
        Number(code, code.builder.load(_at(code, array, first + w * k), align=array.dtype.itemsize))
        for k in range(3)
    )


@emits
def filled(code: Code, like: Array, number: Any) -> Scalar:
    """One number in all lanes."""
    return Number(code, code.cast(number, _type(like)))


@emits
def transpose(code: Code, rows: Array, row: Any, columns: Any, column: Any, lanes: Array) -> None:
    """lanes[column] = a number of each of the rows from `row` on."""
    kind = _type(rows)
    result: Any = ir.Constant(kind, ir.Undefined)
    start = row * columns + column
    for j in range(kind.count):
        number = code.builder.load(rows.at(start + columns * j))
        result = code.builder.insert_element(result, number, I32(j))
    code.builder.store(result, _at(code, lanes, column * kind.count), align=rows.dtype.itemsize)


@emits
def spread(code: Code, array: Array, first: Any, stride: Any, value: Number) -> None:
    """array.flat[first + j stride] = lane j."""
    for j in range(value.count):
        array.store(
            Number(code, code.builder.extract_element(value.ir, I32(j))),
            array.at(first + stride * j),
        )


@emits
def bits(code: Code, condition: Number) -> Scalar:
    """A whole number with bit j set where the condition holds in lane j."""
    count = condition.count
    whole = code.builder.bitcast(condition.ir, ir.IntType(count))
    return Number(code, code.builder.zext(whole, I64))


@emits
def anywhere(code: Code, condition: Number) -> Scalar:
    """Whether it holds in one lane at least."""
    whole = code.builder.bitcast(condition.ir, ir.IntType(condition.count))
    return Number(code, code.builder.icmp_unsigned("!=", whole, whole.type(0)))


@emits
def everywhere(code: Code, condition: Number) -> Scalar:
    whole = code.builder.bitcast(condition.ir, ir.IntType(condition.count))
    return Number(code, code.builder.icmp_signed("==", whole, whole.type(-1)))
