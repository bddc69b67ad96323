"""Variables that are assigned in several places: memory on the stack, which LLVM turns into
registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rigidgrad.targets.loops.arrays import Array
from rigidgrad.targets.loops.values import I1, I64, Code, Number


class Cell:
    """Memory on the stack for a number, an array, or a tuple."""

    def __init__(self, code: Code, value: Any, scope: tuple[int, ...] = ()) -> None:
        self.code, self.scope = code, scope
        self.parts: list[Cell] | None = None
        self.like: Any = None
        if isinstance(value, tuple):
            self.parts = [Cell(code, x) for x in value]
        elif isinstance(value, Array):
            self.like = value
            self.parts = [Cell(code, code.number(x)) for x in (*value.shape, *value.strides)]
            self.room = code.room(value.data.type)
        else:
            self.type = code.number(value).ir.type
            self.room = code.room(self.type)

    def fits(self, value: Any) -> bool:
        if isinstance(value, tuple):
            parts = self.parts if self.like is None else None
            return (
                parts is not None
                and len(parts) == len(value)
                and all(p.fits(x) for p, x in zip(parts, value, strict=True))
            )
        if isinstance(value, Array):
            return self.like is not None and (self.like.dtype, self.like.ndim) == (
                value.dtype,
                value.ndim,
            )
        if self.parts is not None or not isinstance(
            value, Number | int | float | np.number | np.bool_
        ):
            return False
        if isinstance(value, Number):
            return bool(value.ir.type == self.type)
        return self.type not in (I1, I64) or isinstance(value, int | np.integer | np.bool_)

    def store(self, value: Any) -> None:
        if self.like is not None:
            self.code.builder.store(value.data, self.room)
            value = (*value.shape, *value.strides)
        if self.parts is not None:
            for part, x in zip(self.parts, value, strict=True):
                part.store(x)
        else:
            self.code.builder.store(self.code.cast(value, self.type), self.room)

    def load(self) -> Any:
        if self.parts is None:
            return Number(self.code, self.code.builder.load(self.room))
        values = tuple(part.load() for part in self.parts)
        if self.like is None:
            return values
        n = self.like.ndim
        return Array(
            self.code, self.like.dtype, self.code.builder.load(self.room), values[:n], values[n:]
        )
