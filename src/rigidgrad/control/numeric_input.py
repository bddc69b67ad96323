"""Numbers that users give: finite, and of the shape that is needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from rigidgrad.errors import InputError


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of what may be an array; of what is none, the empty one."""
    try:
        return np.shape(value)
    except ValueError:  # rows of different lengths
        return ()


def plain(value: Any) -> np.ndarray:
    """As an array of float64; a TypeError, ValueError or OverflowError where it is none. Complex
    numbers and texts are none.
    """
    array = np.asarray(value)
    if array.dtype.kind not in "fiubO":
        raise TypeError(array.dtype)
    return array.astype(float, copy=False)


def numbers(what: str, value: Any, shape: tuple[int, ...], *, infinite: bool = False) -> np.ndarray:
    """Numbers broadcast to a shape: finite ones, unless infinities are allowed."""
    try:
        array = plain(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{what} must be numbers, not {type(value).__name__}") from None
    if np.isnan(array).any() or not (infinite or np.isfinite(array).all()):
        raise InputError(f"{what} holds NaN{'' if infinite else ' or infinity'}")
    try:
        return np.array(np.broadcast_to(array, shape))
    except ValueError:
        raise InputError(
            f"{what} has shape {array.shape}; it must be, or broadcast to, {shape}"
        ) from None
