"""What is known of a kernel without running it on numbers: which results are structurally zero, and
how many operations a state takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from rigidgrad.kernels.interpret import Rounds, places, value
from rigidgrad.kernels.language import (
    Array,
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
from rigidgrad.program.program import Counts, Program


def steps(
    body: Sequence[Statement], rounds: Rounds | None = None
) -> Iterator[tuple[Call | Product, Rounds]]:
    """Calls and products in the order in which they run, with the rounds of the loops around
    them.
    """
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


def uses(body: Sequence[Statement], variable: Variable) -> bool:
    """Whether rounds of a loop with this variable differ from each other."""

    def within(index: Index) -> bool:
        return any(
            within(atom.index) if isinstance(atom, Lookup) else atom == variable
            for atom, _ in index.terms
        )

    for s in statements(body):
        match s:
            case Call():
                views = (*s.inputs.values(), *s.outputs.values())
            case Product():
                views = (s.target, s.left, s.right)
            case Loop():
                views = () if s.done is None else (s.done,)
                if within(s.count):
                    return True
            case Choose():
                views = ()
                if within(s.index):
                    return True
        if any(within(view.offset) for view in views):
            return True
    return False


def statements(body: Sequence[Statement]) -> Iterator[Statement]:
    """All statements, each once, those of inner bodies too."""
    for s in body:
        yield s
        match s:
            case Loop():
                yield from statements(s.body)
            case Choose():
                for inner in s.bodies:
                    yield from statements(inner)


def programs(kernel: Kernel) -> list[Program]:
    """The Programs that a kernel calls, each once."""
    return list(
        {id(s.program): s.program for s in statements(kernel.body) if isinstance(s, Call)}.values()
    )


def written_once(body: Sequence[Statement]) -> set[Array]:
    """Arrays that one call outside of loops writes and nothing else: what it leaves zero is zero
    already.
    """
    writers: Counter[Array] = Counter()

    def visit(body: Sequence[Statement], times: int) -> None:
        for s in body:
            match s:
                case Call():
                    writers.update(
                        dict.fromkeys({view.array for view in s.outputs.values()}, times)
                    )
                case Product():
                    writers[s.target.array] += 2
                case Loop():
                    visit(s.body, 2)
                case Choose():
                    for inner in s.bodies:
                        visit(inner, 2)

    visit(body, 1)
    return {array for array, count in writers.items() if count == 1 and array.role != "carried"}


def pattern(kernel: Kernel | Program) -> dict[str, list[bool]]:
    """Per output, which of its numbers are not structurally zero."""
    if isinstance(kernel, Program):
        return kernel.pattern()
    if kernel.known_pattern is None:
        kernel.known_pattern = _pattern(kernel)
    return kernel.known_pattern


def _pattern(kernel: Kernel) -> dict[str, list[bool]]:
    known = {
        a.name: np.full(a.size, a.role in ("input", "carried")) for a in kernel.arrays.values()
    }
    for a in kernel.of("constant"):
        known[a.name] = np.array(a.values) != 0.0
    marks: dict[int, dict[str, np.ndarray]] = {}  # of each Program
    products = [s for s in statements(kernel.body) if isinstance(s, Product)]
    needed = {a.name for a in kernel.of("output")} | {
        v.array.name for p in products for v in (p.left, p.right, p.target)
    }

    def write(view: View, rounds: Rounds, filled: np.ndarray) -> None:
        known[view.array.name][places(view, rounds).ravel()] = filled.ravel()

    def run(body: Sequence[Statement], rounds: Rounds) -> None:
        for step in body:
            match step:
                case Call():
                    if id(step.program) not in marks:
                        marks[id(step.program)] = {
                            name: np.array(x) for name, x in step.program.pattern().items()
                        }
                    for name, view in step.outputs.items():
                        if view.array.name in needed:
                            write(view, rounds, marks[id(step.program)][name])
                case Product():
                    left, right, target = (
                        known[v.array.name][places(v, rounds)]
                        for v in (step.left, step.right, step.target)
                    )
                    filled = left.astype(np.float32) @ right.astype(np.float32) > 0
                    if step.symmetric:
                        filled |= filled.T
                    write(step.target, rounds, (filled | target) if step.accumulate else filled)
                case Loop(variable, count, inner, _, reverse):
                    turns = range(value(count, rounds))
                    alike = len(turns) > 1 and not uses(inner, variable)
                    for i in reversed(turns) if reverse else turns:
                        before = {name: known[name].copy() for name in needed} if alike else {}
                        run(inner, rounds | {variable: i})
                        if alike and all(np.array_equal(x, known[n]) for n, x in before.items()):
                            break
                case Choose(index, bodies):
                    run(bodies[value(index, rounds)], rounds)

    run(kernel.body, {})
    return {a.name: known[a.name].tolist() for a in kernel.of("output")}


def counts(kernel: Kernel | Program) -> Counts:
    """Operations of one state. `depth` and `live` of a kernel are those of the largest Program in
    it.
    """
    if isinstance(kernel, Program):
        return kernel.counts()
    times: Counter[int] = Counter()  # how often each statement runs
    statements: dict[int, Call | Product] = {}

    def count(body: Sequence[Statement], rounds: Rounds, factor: int) -> None:
        for step in body:
            match step:
                case Loop(variable, number, inner):
                    turns = value(number, rounds)
                    if uses(inner, variable):
                        for i in range(turns):
                            count(inner, rounds | {variable: i}, factor)
                    elif turns:
                        count(inner, rounds, factor * turns)
                case Choose(index, bodies):
                    count(bodies[value(index, rounds)], rounds, factor)
                case _:
                    times[id(step)] += factor
                    statements[id(step)] = step

    count(kernel.body, {}, 1)
    kinds: Counter[str] = Counter()
    largest = Counts({}, 0, 0)
    for key, step in statements.items():
        found = step.program.counts() if isinstance(step, Call) else Counts(_of_product(step), 0, 0)
        for kind, n in found.kinds.items():
            kinds[kind] += n * times[key]
        largest = max(largest, found, key=lambda c: c.instructions if c.depth else 0)
    return Counts(dict(kinds), largest.depth, largest.live)


def _of_product(product: Product) -> dict[str, int]:
    rows, columns = product.target.shape
    numbers = rows * (rows + 1) // 2 if product.symmetric else rows * columns
    terms = product.left.shape[1]
    if abs(product.factor) == 1.0:
        first = 0 if product.accumulate else 1
        return {"mul": first * numbers, "fma": (terms - first) * numbers}
    last = {"fma": numbers} if product.accumulate else {"mul": numbers}
    return dict(Counter({"mul": numbers, "fma": (terms - 1) * numbers}) + Counter(last))
