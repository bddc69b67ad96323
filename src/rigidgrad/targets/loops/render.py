"""The module of a translated function, for the types of its arguments."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import numpy as np

from rigidgrad.targets.loops.arrays import Array, memory_type
from rigidgrad.targets.loops.source import Loops
from rigidgrad.targets.loops.translate import AgainError, Translation
from rigidgrad.targets.loops.values import CONTRACT, F64, I1, I64, REORDER, Code, Number


class ArrayType(NamedTuple):
    """Of an argument."""

    dtype: str
    ndim: int
    contiguous: bool


class Fixed(NamedTuple):
    """An argument that is known while the code is written."""

    value: Any


def render(function: Loops, types: tuple[Any, ...]) -> tuple[str, Any]:
    """The module's text, and the shape of what the function returns: a type, or a tuple of types;
    None for nothing.

    `types` are "int", "bool" or "float", an ArrayType, a Fixed, or a tuple of these. `kernel(i64
    *words, i64 *results, i64 *library)` finds all arguments in `words`, an array as the address of
    NumPy's object, and writes what is returned to `results`. `library` has the addresses of
    `C_FUNCTIONS`.
    """
    while True:
        with contextlib.suppress(AgainError):
            return _render(function, types)


def _render(function: Loops, types: tuple[Any, ...]) -> tuple[str, Any]:
    code = Code(function.__name__, REORDER if function.reorder else CONTRACT)
    words = code.function.args[0]
    place = [0]

    def word() -> Any:
        place[0] += 1
        return code.builder.load(code.builder.gep(words, [I64(place[0] - 1)]))

    def argument(type_: Any) -> Any:
        if isinstance(type_, Fixed):
            return type_.value
        if isinstance(type_, ArrayType):
            return _numpy_array(code, type_, word())
        if isinstance(type_, tuple):
            return tuple(argument(t) for t in type_)
        value = word()
        if type_ == "float":
            return Number(code, code.builder.bitcast(value, F64))
        return Number(code, code.builder.trunc(value, I1) if type_ == "bool" else value)

    arguments = [argument(t) for t in types]
    returned = Translation(code, function, arguments).run()
    place[0] = 0
    results = code.function.args[1]

    def put(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(put(x) for x in value)
        number = code.number(value)
        to = code.builder.gep(results, [I64(place[0])])
        place[0] += 1
        if number.is_float:
            code.builder.store(code.builder.bitcast(code.cast(number, F64), I64), to)
            return "float"
        code.builder.store(code.index(number), to)
        return "bool" if number.ir.type == I1 else "int"

    kind = None if returned is None else put(returned)
    return code.finish(), kind


def _numpy_array(code: Code, type_: ArrayType, address: Any) -> Array:
    """From NumPy's object: after what every object has come the address of the data, the number of
    axes, and the addresses of sizes and strides.
    """
    dtype = np.dtype(type_.dtype)
    b, fields = (
        code.builder,
        code.builder.inttoptr(
            code.builder.add(address, I64(object.__basicsize__)), I64.as_pointer()
        ),
    )

    def numbers(field: int) -> list[Number]:
        first = b.inttoptr(b.load(b.gep(fields, [I64(field)])), I64.as_pointer())
        return [Number(code, b.load(b.gep(first, [I64(k)]))) for k in range(type_.ndim)]

    data = b.inttoptr(b.load(fields), memory_type(dtype).as_pointer())
    if type_.contiguous:
        return Array.contiguous(code, dtype, data, numbers(2))
    return Array(
        code, dtype, data, tuple(numbers(2)), tuple(x // dtype.itemsize for x in numbers(3))
    )
