"""Nested tuples of scalars and their flat order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def nest(flat: Any, shape: tuple[int, ...]) -> Any:
    """A flat sequence, or the rows of an array, as nested tuples of the given shape; a scalar for
    the empty shape.
    """
    if not shape:
        return flat[0]
    if len(shape) == 1:
        return tuple(flat)
    step = len(flat) // shape[0] if shape[0] else 0
    return tuple(nest(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))


def flatten(x: Any) -> Iterator[Any]:
    """The scalars of nested tuples, in order."""
    if isinstance(x, tuple | list):
        for y in x:
            yield from flatten(y)
    else:
        yield x
