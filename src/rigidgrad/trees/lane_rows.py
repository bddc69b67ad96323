"""Rows whose numbers are lanes: an operator of rows, as users write it, then acts on as many rows
at once as a register has lanes.

That is so for operators that compute with numbers of their rows alone; one that branches on them,
or keeps them in arrays of its own, is not compiled this way.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from rigidgrad.targets.loops.arrays import Array, loop
from rigidgrad.targets.loops.source import emits
from rigidgrad.targets.loops.values import I32, Code, Number
from rigidgrad.trees.lanes import vector_type


class LaneArray(Array):
    """An array on the stack, of vectors of numbers of its dtype."""

    @property
    def element(self) -> Any:
        return vector_type(self.dtype)

    def load(self, place: Any) -> Number:
        return Number(self.code, self.code.builder.load(place))

    def part(self, key: Any) -> Array:
        found = super().part(key)
        return LaneArray(found.code, found.dtype, found.data, found.shape, found.strides)


@emits
def lane_row(code: Code, row: Array) -> Any:
    """A row of lanes with a row's numbers in all of them."""
    vector, (count,) = vector_type(row.dtype), row.shape
    result = LaneArray.contiguous(code, row.dtype, code.room(vector, count), (count,))
    loop(code, 0, count, 1, lambda c: result.store(row.item(c), result.at(c)))
    return result


@emits
def put_lane_rows(code: Code, to: LaneArray, rows: Array, first: Any, apart: Any) -> None:
    """Rows first, first + apart, … to the lanes."""

    def column(c: Number) -> None:
        value = ir.Constant(to.element, ir.Undefined)
        for j in range(to.element.count):
            number = rows.item((first + apart * j, c))
            value = code.builder.insert_element(value, number.ir, I32(j))
        to.store(Number(code, value), to.at(c))

    loop(code, 0, to.shape[0], 1, column)


@emits
def put_lane(code: Code, to: Array, rows: LaneArray, j: Any) -> None:
    """Lane j as a row."""

    def column(c: Number) -> None:
        value = rows.load(rows.at(c))
        to.store(Number(code, code.builder.extract_element(value.ir, code.index(j))), to.at(c))

    loop(code, 0, to.shape[0], 1, column)
