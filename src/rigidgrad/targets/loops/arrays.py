"""Arrays in translated code, their parts, and the loop over a range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from rigidgrad.targets.loops.values import F32, F64, I8, I64, Code, Number

_MEMORY: dict[Any, ir.Type] = {
    np.dtype(np.float64): F64,
    np.dtype(np.float32): F32,
    np.dtype(np.bool_): I8,
    **{np.dtype(f"{sign}{size}"): ir.IntType(8 * size) for sign in "iu" for size in (1, 2, 4, 8)},
}


@dataclass(frozen=True, eq=False)
class Array:
    """Numbers in memory. `strides`, in elements, of axes whose elements do not follow each other
    without gaps.
    """

    code: Code
    dtype: np.dtype
    data: Any
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]

    @classmethod
    def contiguous(cls, code: Code, dtype: Any, data: Any, shape: Sequence[Any]) -> Array:
        strides: list[Any] = [1]
        for size in reversed(shape[1:]):
            strides.insert(0, strides[0] * size)
        return cls(code, np.dtype(dtype), data, tuple(shape), tuple(strides))

    @classmethod
    def fresh(cls, code: Code, shape: Any, dtype: Any) -> Array:
        """On the stack."""
        sizes = shape if isinstance(shape, tuple) else (shape,)
        count: Any = 1
        for size in sizes:
            count = count * size
        return cls.contiguous(code, dtype, code.room(memory_type(dtype), count), sizes)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def T(self) -> Array:
        return Array(self.code, self.dtype, self.data, self.shape[::-1], self.strides[::-1])

    @property
    def element(self) -> Any:
        """The IR type of a number in memory."""
        return memory_type(self.dtype)

    def at(self, index: Any, offset: int = 0) -> Any:
        """The address of an element of the flat array."""
        return self.code.builder.gep(
            self.data, [self.code.index(index + offset if offset else index)]
        )

    def load(self, place: Any) -> Number:
        value, b = self.code.builder.load(place), self.code.builder
        if self.dtype.kind == "b":
            return Number(self.code, b.icmp_unsigned("!=", value, I8(0)))
        if self.dtype.kind in "iu" and self.dtype.itemsize < 8:
            return Number(self.code, (b.sext if self.dtype.kind == "i" else b.zext)(value, I64))
        return Number(self.code, value)

    def store(self, value: Any, place: Any) -> None:
        self.code.builder.store(self.code.cast(value, self.element), place)

    def item(self, key: Any) -> Any:
        """A number, or an array of what the key leaves open."""
        part = self.part(key)
        return part.load(part.data) if part.ndim == 0 else part

    def part(self, key: Any) -> Array:
        """What lies at a key of integers and slices without steps."""
        keys = key if isinstance(key, tuple) else (key,)
        keys += (slice(None),) * (self.ndim - len(keys))
        if len(keys) > self.ndim:
            raise TypeError(f"an array with {self.ndim} axes has no index of {len(keys)}")
        start: Any = 0
        shape, strides = [], []
        for k, size, stride in zip(keys, self.shape, self.strides, strict=True):
            if isinstance(k, slice):
                if k.step is not None:
                    raise TypeError("slices have no steps")
                first = 0 if k.start is None else _from_end(k.start, size)
                shape.append((size if k.stop is None else _from_end(k.stop, size)) - first)
                strides.append(stride)
            else:
                first = _from_end(k, size)
            start = start + first * stride
        place = self.data if isinstance(start, int) and start == 0 else self.at(start)
        return Array(self.code, self.dtype, place, tuple(shape), tuple(strides))

    def reshape(self, *shape: Any) -> Array:
        """Of an array without gaps."""
        return Array.contiguous(self.code, self.dtype, self.data, shape)

    def copy(self) -> Array:
        result = Array.fresh(self.code, self.shape, self.dtype)
        result.fill(self)
        return result

    def fill(self, source: Any) -> None:
        """Sets every number to one, or to those of another array."""
        if isinstance(source, Array) and source.ndim != self.ndim:
            raise TypeError(f"an array with {source.ndim} axes does not fit one with {self.ndim}")

        def row(k: Number) -> None:
            part, value = self.part(k), source.item(k) if isinstance(source, Array) else source
            if part.ndim == 0:
                part.store(value, part.data)
            else:
                part.fill(value)

        loop(self.code, 0, self.shape[0], 1, row)


def _from_end(k: Any, size: Any) -> Any:
    return size + k if isinstance(k, int) and k < 0 else k


def memory_type(dtype: Any) -> Any:
    try:
        return _MEMORY[np.dtype(dtype)]
    except KeyError:
        raise TypeError(f"compiled code has no arrays of {np.dtype(dtype)}") from None


def loop(
    code: Code,
    start: Any,
    stop: Any,
    step: Any,
    body: Callable[[Number], None],
    leave: Any = None,
    again: Any = None,
) -> None:
    """for k in range(start, stop, step): body(k). `leave` and `again` are blocks for a `break` and
    a `continue`.
    """
    counter = code.room(I64)
    head, inside = code.block("head"), code.block("body")
    again, leave = again or code.block("next"), leave or code.block("after")
    code.builder.store(code.index(start), counter)
    last = code.index(stop)
    code.goto(head)
    k = Number(code, code.builder.load(counter))
    b = code.builder
    inner = [b.icmp_signed(sign, k.ir, last) for sign in "<>"]
    b.cbranch(
        b.select((step > 0).ir, *inner) if isinstance(step, Number) else inner[step < 0],
        inside,
        leave,
    )
    code.builder.position_at_end(inside)
    body(k)
    code.goto(again)
    code.builder.store(code.index(k + step), counter)
    code.jump(head)
    code.builder.position_at_end(leave)
