"""The readable engine: a kernel's algorithm run on NumPy columns, one number of every state of a
batch at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from rigidgrad.algorithms.catalog import BoundFunction
from rigidgrad.errors import InputError
from rigidgrad.program.nesting import flatten, nest
from rigidgrad.runtime import arrays

# Rows at a time: long enough to hide Python's cost a call, short enough that the many intermediate
# columns stay small.
CHUNK = 1024


class Interpreted:
    """A function of a model, evaluated by running its algorithm; called as a compiled one is."""

    def __init__(
        self,
        kernel: BoundFunction,
        *,
        packed: bool = False,
        result: Callable[..., Any] | None = None,
        check: Callable[[arrays.Batch], None] | None = None,
    ):
        self._kernel, self._packed, self._result, self._check = kernel, packed, result, check

    @cached_property
    def masks(self) -> Mapping[str, np.ndarray]:
        """Which entries of each output are not structurally zero."""
        return pattern(self._kernel)

    def __call__(self, *inputs: Any, out: Any = None, check: bool = False) -> Any:
        kernel = self._kernel
        if len(inputs) != len(kernel.inputs):
            raise InputError(
                f"{kernel.name} takes {len(kernel.inputs)} arrays ({', '.join(kernel.inputs)}), not"
                f" {len(inputs)}"
            )
        batch = arrays.gather(dict(zip(kernel.inputs, inputs, strict=True)), kernel.inputs)
        if check and self._check:
            self._check(batch)
        shapes = dict(kernel.outputs)
        if self._packed:
            shapes = {name: (int(mask.sum()),) for name, mask in self.masks.items()}
        results = arrays.allocate(batch, shapes, out)
        computed = evaluate(kernel, batch.rows, math.prod(batch.shape), batch.dtype)
        for name, array in results.items():
            values = computed[name][:, self.masks[name].ravel()] if self._packed else computed[name]
            array[...] = values.reshape(array.shape)
        if out is not None:
            return (
                self._result(*results.values()) if self._result and arrays.has_remark(out) else out
            )
        outputs = [batch.back(array) if batch.back else array for array in results.values()]
        if len(outputs) == 1:
            return outputs[0]
        return self._result(*outputs) if self._result else tuple(outputs)


def evaluate(
    kernel: BoundFunction, rows: Mapping[str, np.ndarray], count: int, dtype: np.dtype
) -> dict[str, np.ndarray]:
    """Outputs as arrays (count, size)."""
    results = {
        name: np.empty((count, math.prod(shape)), dtype) for name, shape in kernel.outputs.items()
    }
    for start in range(0, count, CHUNK):
        part = slice(start, min(start + CHUNK, count))
        values = {
            name: nest(np.ascontiguousarray(rows[name][part].T), shape)
            for name, shape in kernel.inputs.items()
        }
        with np.errstate(all="ignore"):
            outputs = kernel.evaluate(values)
        for result, output in zip(results.values(), outputs, strict=True):
            for k, x in enumerate(flatten(output)):
                result[part, k] = x
    return results


def pattern(kernel: BoundFunction) -> dict[str, np.ndarray]:
    """Which entries of each output are not structurally zero, as boolean arrays of the outputs'
    shapes.
    """
    values = {
        name: nest(np.ones((math.prod(shape), 1)), shape) for name, shape in kernel.inputs.items()
    }
    with np.errstate(all="ignore"):
        outputs = kernel.evaluate(values)
    return {
        name: (
            np.array(
                [not (type(x) is float and x == 0.0) for x in flatten(output)], dtype=bool
            ).reshape(shape)
        )
        for (name, shape), output in zip(kernel.outputs.items(), outputs, strict=True)
    }
