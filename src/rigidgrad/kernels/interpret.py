"""A kernel run by NumPy: the oracle of every target. Numbers are columns over states; multiply-adds
round twice, otherwise the order is that of the language.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from rigidgrad.kernels.language import (
    Call,
    Choose,
    Index,
    Kernel,
    Lookup,
    Loop,
    Product,
    Statement,
    Variable,
    View,
)
from rigidgrad.program.nesting import flatten
from rigidgrad.program.program import Program

Rounds = dict[Variable, int]


def interpret(kernel: Kernel, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs (states, size) of inputs (states, size); what is carried is both."""
    first = next(iter(inputs.values()))
    states, dtype = first.shape[0], first.dtype
    memory: dict[str, np.ndarray] = {}
    for array in kernel.arrays.values():
        match array.role:
            case "input" | "carried":
                memory[array.name] = inputs[array.name].T.copy()
            case "constant":
                memory[array.name] = np.repeat(
                    np.array(array.values, dtype)[:, None], states, axis=1
                )
            case _:
                memory[array.name] = np.zeros((array.size, states), dtype)
    # of a state that has ended, NaN is as good as any number
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        _run(kernel.body, memory, {})
    return {a.name: memory[a.name].T.copy() for a in (*kernel.of("output"), *kernel.of("carried"))}


def results_of(source: Kernel | Program, sample: Mapping[str, Any]) -> list[list[float]]:
    """The numbers of each output at one state, whose inputs are nested sequences."""
    if isinstance(source, Program):
        return [
            [float(x) for x in flatten(result)]
            for result in source.interpret({k: sample[k] for k in source.inputs})
        ]
    found = interpret(
        source, {k: np.array(sample[k], dtype=float).reshape(1, -1) for k in source.inputs}
    )
    return [x[0].tolist() for x in found.values()]


def value(index: Index, rounds: Rounds) -> int:
    total = index.constant
    for atom, coefficient in index.terms:
        total += coefficient * (
            atom.table.numbers[value(atom.index, rounds)]
            if isinstance(atom, Lookup)
            else rounds[atom]
        )
    return total


def _run(body: Sequence[Statement], memory: dict[str, np.ndarray], rounds: Rounds) -> None:
    for statement in body:
        match statement:
            case Call():
                _call(statement, memory, rounds)
            case Product():
                _product(statement, memory, rounds)
            case Loop(variable, count, inner, _, reverse, done):
                turns = range(value(count, rounds))
                for i in reversed(turns) if reverse else turns:
                    if done and (memory[done.array.name][value(done.offset, rounds)] > 0).all():
                        break
                    _run(inner, memory, rounds | {variable: i})
            case Choose(index, bodies):
                _run(bodies[value(index, rounds)], memory, rounds)


def places(view: View, rounds: Rounds) -> np.ndarray:
    """Where the numbers of a view are, in its shape."""
    near, last = _near(view.shape, view.strides)
    start = value(view.offset, rounds)
    if near.size and not (start >= 0 and start + last < view.array.size):
        raise IndexError(f"{view} is outside of its array in round {rounds}")
    return near + start


@cache
def _near(shape: tuple[int, int], strides: tuple[int, int]) -> tuple[np.ndarray, int]:
    """Places from the offset on, and the last of them; strides are not negative."""
    found = np.arange(shape[0])[:, None] * strides[0] + np.arange(shape[1])[None, :] * strides[1]
    return found, int(found.max(initial=0))


def _call(call: Call, memory: dict[str, np.ndarray], rounds: Rounds) -> None:
    values = {
        name: tuple(memory[view.array.name][places(view, rounds).ravel()])
        for name, view in call.inputs.items()
    }
    results = call.program.interpret(values)
    for result, view in zip(results, call.outputs.values(), strict=True):
        for place, x in zip(places(view, rounds).ravel(), flatten(result), strict=True):
            memory[view.array.name][place] = x


def _product(product: Product, memory: dict[str, np.ndarray], rounds: Rounds) -> None:
    left, right, target = (
        memory[v.array.name] for v in (product.left, product.right, product.target)
    )
    a, b, c = (places(v, rounds) for v in (product.left, product.right, product.target))
    rows, columns = c.shape
    unit = abs(product.factor) == 1.0
    for i in range(rows):
        for j in range(i + 1 if product.symmetric else columns):
            terms = [left[a[i, k]] * right[b[k, j]] for k in range(a.shape[1])]
            sign = product.factor if unit else 1.0
            total = target[c[i, j]] if product.accumulate and unit else 0.0
            for term in terms:
                total = total + sign * term
            if not unit:
                total = product.factor * total + (target[c[i, j]] if product.accumulate else 0.0)
            target[c[i, j]] = total
            if product.symmetric:
                target[c[j, i]] = total
