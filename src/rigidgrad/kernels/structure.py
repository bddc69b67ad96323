"""What is known of a kernel without running it on numbers: which results are structurally zero, and how many operations a state takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from rigidgrad.kernels.interpret import Rounds, places, value
from rigidgrad.kernels.language import Call, Choose, Kernel, Loop, Product, Statement
from rigidgrad.program.program import Counts, Program


def steps(body: Sequence[Statement], rounds: Rounds | None = None) -> Iterator[tuple[Call | Product, Rounds]]:
    """Calls and products in the order in which they run, with the rounds of the loops around them."""
    rounds = rounds or {}
    for statement in body:
        match statement:
            case Loop(variable, count, inner, _, reverse):
                turns = range(value(count, rounds))
                for i in reversed(turns) if reverse else turns:
                    yield from steps(inner, rounds | {variable: i})
            case Choose(index, bodies):
                yield from steps(bodies[value(index, rounds)], rounds)
            case _:
                yield statement, rounds


def pattern(kernel: Kernel | Program) -> dict[str, list[bool]]:
    """Per output, which of its numbers are not structurally zero."""
    if isinstance(kernel, Program):
        return kernel.pattern()
    known = {a.name: np.full(a.size, a.role == "input") for a in kernel.arrays.values()}
    for a in kernel.of("constant"):
        known[a.name] = np.array(a.values) != 0.0
    for step, rounds in steps(kernel.body):
        if isinstance(step, Call):
            marks = step.program.pattern()
            for name, view in step.outputs.items():
                known[view.array.name][places(view, rounds).ravel()] = marks[name]
            continue
        left, right, target = (known[v.array.name][places(v, rounds)] for v in (step.left, step.right, step.target))
        filled = left.astype(np.float32) @ right.astype(np.float32) > 0
        if step.symmetric:
            filled |= filled.T
        known[step.target.array.name][places(step.target, rounds)] = (filled | target) if step.accumulate else filled
    return {a.name: known[a.name].tolist() for a in kernel.of("output")}


def counts(kernel: Kernel | Program) -> Counts:
    """Operations of one state. `depth` and `live` of a kernel are those of the largest Program in it."""
    if isinstance(kernel, Program):
        return kernel.counts()
    kinds: Counter[str] = Counter()
    largest: Counts | None = None
    of_program: dict[int, Counts] = {}
    for step, _ in steps(kernel.body):
        if isinstance(step, Call):
            found = of_program.setdefault(id(step.program), step.program.counts())
            kinds.update(found.kinds)
            if largest is None or found.instructions > largest.instructions:
                largest = found
        else:
            kinds.update(_of_product(step))
    return Counts(dict(kinds), largest.depth if largest else 0, largest.live if largest else 0)


def _of_product(product: Product) -> dict[str, int]:
    rows, columns = product.target.shape
    numbers = rows * (rows + 1) // 2 if product.symmetric else rows * columns
    terms = product.left.shape[1]
    if abs(product.factor) == 1.0:
        first = 0 if product.accumulate else 1
        return {"mul": first * numbers, "fma": (terms - first) * numbers}
    last = {"fma": numbers} if product.accumulate else {"mul": numbers}
    return dict(Counter({"mul": numbers, "fma": (terms - 1) * numbers}) + Counter(last))
