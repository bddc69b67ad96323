"""The readable engine: a kernel's algorithm run on NumPy columns, one number of every state of a batch at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rigidgrad.algorithms.catalog import Kernel

# Rows at a time: long enough to hide Python's cost a call, short enough that the many intermediate columns stay small.
CHUNK = 1024


def evaluate(kernel: Kernel, rows: Mapping[str, np.ndarray], count: int, dtype: np.dtype) -> dict[str, np.ndarray]:
    """Outputs as arrays (count, size)."""
    results = {name: np.empty((count, math.prod(shape)), dtype) for name, shape in kernel.outputs.items()}
    for start in range(0, count, CHUNK):
        part = slice(start, min(start + CHUNK, count))
        values = {name: _nested(np.ascontiguousarray(rows[name][part].T), shape) for name, shape in kernel.inputs.items()}
        with np.errstate(all="ignore"):
            outputs = kernel.evaluate(values)
        for result, output in zip(results.values(), outputs, strict=True):
            for k, x in enumerate(flatten(output)):
                result[part, k] = x
    return results


def pattern(kernel: Kernel) -> dict[str, np.ndarray]:
    """Which entries of each output are not structurally zero, as boolean arrays of the outputs' shapes."""
    values = {name: _nested(np.ones((math.prod(shape), 1)), shape) for name, shape in kernel.inputs.items()}
    with np.errstate(all="ignore"):
        outputs = kernel.evaluate(values)
    return {
        name: np.array([not (type(x) is float and x == 0.0) for x in flatten(output)], dtype=bool).reshape(shape)
        for (name, shape), output in zip(kernel.outputs.items(), outputs, strict=True)
    }


def _nested(columns: np.ndarray, shape: tuple[int, ...]) -> Any:
    if len(shape) == 2:
        return tuple(tuple(columns[i * shape[1] + j] for j in range(shape[1])) for i in range(shape[0]))
    return tuple(columns)


def flatten(x: Any) -> Iterator[Any]:
    """The scalars of nested tuples, in order."""
    if isinstance(x, tuple | list):
        for y in x:
            yield from flatten(y)
    else:
        yield x
