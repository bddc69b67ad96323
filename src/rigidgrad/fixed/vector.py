"""A Program over fixed-point numbers for many states at once: what a circuit gives, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.fixed.format import Fixed
from rigidgrad.fixed.number import Number
from rigidgrad.program.nesting import flatten, nest
from rigidgrad.program.program import Program

CHUNK = 4096  # states at a time, so that the columns in between stay in the cache


def run_raw(program: Program, format: Fixed, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Raw results (states, numbers of all outputs) for raw inputs (states, numbers) by name."""
    count = len(next(iter(inputs.values())))
    results = np.empty((count, len(program.results)), np.int64)
    for start in range(0, count, CHUNK):
        part = slice(start, min(start + CHUNK, count))
        columns = {name: np.ascontiguousarray(inputs[name][part].T) for name in program.inputs}
        numbers = {
            name: nest([Number(format, column) for column in columns[name]], shape)
            for name, shape in program.inputs.items()
        }
        for k, x in enumerate(flatten(program.interpret(numbers))):
            results[part, k] = x.raw if isinstance(x, Number) else format.quantize(x)
    return results


def run(program: Program, format: Fixed, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs by name as float64 arrays (states, *shape), for float inputs (states, numbers) that
    are rounded to the format first.
    """
    for name, shape in program.inputs.items():
        if name not in inputs:
            raise InputError(f"the input {name!r} is missing")
        if np.ndim(inputs[name]) != 2 or np.shape(inputs[name])[1] != math.prod(shape):
            raise InputError(
                f"{name} is an array of (states, {math.prod(shape)}), not {np.shape(inputs[name])}"
            )
    values = format.value(
        run_raw(
            program,
            format,
            {name: format.quantize(np.asarray(inputs[name])) for name in program.inputs},
        )
    )
    outputs, start = {}, 0
    for name, shape in program.outputs.items():
        size = math.prod(shape)
        outputs[name] = values[:, start : start + size].reshape(len(values), *shape)
        start += size
    return outputs
