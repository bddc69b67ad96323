"""Arrays of a call in one piece of memory, so that one copy takes all of them to a device, and one
brings all results back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def places(arrays: Sequence[np.ndarray], apart: int) -> list[int]:
    """Where each array starts in the piece, at multiples of `apart` bytes; last, its size."""
    found = [0]
    for x in arrays:
        found.append(found[-1] + -(-max(x.nbytes, 1) // apart) * apart)
    return found


def put(memory: np.ndarray, starts: Sequence[int], arrays: Sequence[np.ndarray]) -> None:
    """Writes arrays, which need not be contiguous, into a piece of bytes."""
    for x, place in zip(arrays, starts, strict=False):
        _numbers(memory, place, x)[...] = x


def take(memory: np.ndarray, starts: Sequence[int], arrays: Sequence[np.ndarray]) -> None:
    """Reads arrays from a piece of bytes."""
    for x, place in zip(arrays, starts, strict=False):
        x[...] = _numbers(memory, place, x)


def _numbers(memory: np.ndarray, place: int, like: np.ndarray) -> np.ndarray:
    return memory[place : place + like.nbytes].view(like.dtype).reshape(like.shape)
