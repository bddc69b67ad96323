"""Systems of equations with small symmetric matrices, in kernels: A = L D Lᵀ without roots, and
what solves with it.

Up to `SMALL` rows a factor is one Program, and a solution one for a few columns; larger matrices
are cut into blocks of that size, with products between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from rigidgrad.kernels.language import Index, Kernel, View
from rigidgrad.program.fuse import fuse
from rigidgrad.program.program import Program, Shape
from rigidgrad.program.recorder import record
from rigidgrad.scalars import less, select, sqrt

SMALL = 12  # rows of a block
_REGISTERS = 28  # numbers of right-hand sides that a Program works on at once


def factorize(k: Kernel, A: View, factor: View, fine: View, singular: float | View = 0.0) -> None:
    """factor = -L below the diagonal and 1/D on it, of A = L D Lᵀ, of which the lower triangle is
    read. `fine`, a number, becomes 0 unless all of D is positive, and more than `singular` times
    the diagonal of A.
    """
    blocks = _blocks(A.shape[0])
    if len(blocks) == 1:
        _small(k, A, factor, fine)
    else:
        _factorize_blocks(k, A, factor, fine, blocks)
    if not singular:
        return
    n, share = A.shape[0], {"share": singular} if isinstance(singular, View) else {}
    k.call(
        _regular(n, None if isinstance(singular, View) else singular),
        {"fine": fine, "inverse": diagonal(factor), "own": diagonal(A)} | share,
        {"fine": fine},
    )


def _factorize_blocks(
    k: Kernel, A: View, factor: View, fine: View, blocks: Sequence[range]
) -> None:
    n = A.shape[0]
    rest = k.scratch(f"rest of {factor.array.name}", n, n).matrix(n, n)  # of A, what is left of it
    scaled = k.scratch(f"L D of {factor.array.name}", n, SMALL).matrix(n, SMALL)
    copy_rows(k, A, rest)
    for s in blocks:
        _small(k, rest.part(s, s), factor.part(s, s), fine)
        below = range(s.stop, n)
        if not below:
            continue
        LD = scaled.part(below, range(len(s)))
        with k.each(len(below)) as i:  # a row of L D solves with L_ss
            row, result, own = (
                _moved(v.part(range(below.start, below.start + 1), c), i)
                for v, c in ((rest, s), (factor, s), (scaled, range(len(s))))
            )
            k.call(
                _row(len(s)),
                {"factor": factor.part(s, s), "row": row},
                {"LD": own, "minus": result},
            )
        k.product(
            rest.part(below, below), LD, factor.part(below, s).T, accumulate=True, symmetric=True
        )


def _small(k: Kernel, A: View, factor: View, fine: View) -> None:
    n = A.shape[0]
    columns = {f"column {j}": factor.part(range(j, n), range(j, j + 1)) for j in range(n)}
    k.call(_factor(n), {"A": A, "fine": fine}, columns | {"fine": fine})


def solve(k: Kernel, factor: View, right: View, solution: View, half: View | None = None) -> None:
    """solution = -A⁻¹ right, of a factor as above; not in place. `half` becomes D^-½ L⁻¹ right, of
    which halfᵀhalf = rightᵀA⁻¹ right: what a Schur complement takes, as exact as A allows.
    """
    n, columns = right.shape
    blocks = _blocks(n)
    if len(blocks) == 1:
        _by_columns(
            k,
            right,
            {"x": solution} | ({} if half is None else {"half": half}),
            partial(_substitution, n, half is not None),
            factor,
        )
        return
    copy_rows(k, right, solution, -1.0)
    every = range(columns)
    for s in blocks:
        own = solution.part(s, every)
        _by_columns(k, own, {"x": own}, partial(_forward, len(s)), factor.part(s, s))
        below = range(s.stop, n)
        if below:
            k.product(solution.part(below, every), factor.part(below, s), own, accumulate=True)
    with k.each(n) as i:
        row, d = (
            row_of(solution, i),
            View(factor.array, factor.offset + i * sum(factor.strides), (1, 1), (0, 1)),
        )
        k.call(
            _scaled(columns, half is not None),
            {"row": row, "by": d},
            {"row": row} | ({} if half is None else {"half": row_of(half, i)}),
        )
    for s in reversed(blocks):
        own, below = solution.part(s, every), range(s.stop, n)
        if below:
            k.product(own, factor.part(below, s).T, solution.part(below, every), accumulate=True)
        _by_columns(k, own, {"x": own}, partial(_backward, len(s)), factor.part(s, s))


def invert(k: Kernel, factor: View, inverse: View) -> None:
    """The inverse of a matrix from its factor, symmetric to the last bit."""
    n = factor.shape[0]
    name = f"identity of {n}"
    one = k.arrays.get(name) or k.constant(
        name, [float(i == j) for i in range(n) for j in range(n)]
    )
    minus = k.scratch(f"minus inverse of {factor.array.name}", n, n).matrix(n, n)
    solve(k, factor, one.matrix(n, n), minus)
    with k.each(n) as i:
        both = {"row": row_of(minus, i), "column": row_of(minus.T, i)}
        k.call(_minus_mean(n), both, {"y": row_of(inverse, i)})


def add_to_diagonal(k: Kernel, A: View, rho: View) -> None:
    n = A.shape[0]
    program = record(
        {"x": (n,), "rho": ()}, {"y": (n,)}, lambda v: (tuple(x + v["rho"] for x in v["x"]),)
    )
    k.call(program, {"x": diagonal(A), "rho": rho}, {"y": diagonal(A)})


def diagonal(view: View) -> View:
    return View(view.array, view.offset, (1, view.shape[0]), (0, sum(view.strides)))


def copy_rows(k: Kernel, source: View, target: View, factor: float = 1.0) -> None:
    """target = factor · source, row by row."""
    with k.each(source.shape[0]) as i:
        k.call(_copy(source.shape[1], factor), {"x": row_of(source, i)}, {"y": row_of(target, i)})


def add_rows(k: Kernel, source: View, target: View, factor: float = 1.0) -> None:
    """target += factor · source, row by row."""
    with k.each(source.shape[0]) as i:
        row = row_of(target, i)
        k.call(_sum(source.shape[1], factor), {"x": row_of(source, i), "y": row}, {"y": row})


def row_of(view: View, i: Index | int) -> View:
    """A row as a matrix of one."""
    return _moved(view.part(range(1), range(view.shape[1])), i)


def _moved(view: View, rows: Any) -> View:
    return View(view.array, view.offset + rows * view.strides[0], view.shape, view.strides)


def _blocks(n: int) -> list[range]:
    """Blocks of about equal size."""
    count = -(-n // SMALL)
    starts = [n * b // count for b in range(count + 1)]
    return [range(a, b) for a, b in pairwise(starts)]


def _by_columns(
    k: Kernel,
    right: View,
    results: Mapping[str, View],
    program: Callable[[int], Program],
    factor: View,
) -> None:
    """A Program for a few columns at a time."""
    n, columns = right.shape
    some = max(1, min(columns, _REGISTERS // n))
    rows = range(n)

    def part(view: View, start: int, count: int, i: Any = 0) -> View:
        found = view.part(rows, range(start, start + count))
        return View(
            found.array, found.offset + i * (count * view.strides[1]), found.shape, found.strides
        )

    def call(start: int, count: int, i: Any = 0) -> None:
        inputs = {"factor": factor, "right": part(right, start, count, i)}
        k.call(
            program(count),
            inputs,
            {name: part(view, start, count, i) for name, view in results.items()},
        )

    with k.each(columns // some) as i:
        call(0, some, i)
    if rest := columns % some:
        call(columns - rest, rest)


# --- Programs -------------------------------------------------------------------------------------


def _factor(n: int) -> Program:
    """Columns of the factor from the diagonal on."""

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        A, fine = v["A"], v["fine"]
        LD: dict[tuple[int, int], Any] = {}
        minus: dict[tuple[int, int], Any] = {}
        columns = []
        for j in range(n):
            for i in range(j, n):
                x = A[i][j]
                for l in range(j):
                    x = x + LD[i, l] * minus[j, l]
                LD[i, j] = x
            fine = select(less(0.0, LD[j, j]), fine, 0.0)
            inverse = 1.0 / LD[j, j]
            for i in range(j + 1, n):
                minus[i, j] = -(LD[i, j] * inverse)
            columns.append((inverse, *(minus[i, j] for i in range(j + 1, n))))
        return (*columns, fine)

    outputs: dict[str, Shape] = {f"column {j}": (n - j,) for j in range(n)}
    return fuse(record({"A": (n, n), "fine": ()}, outputs | {"fine": ()}, evaluate))


def _row(n: int) -> Program:
    """A row of L D below a block, and of -L, from what is left of A there."""

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        F, found = v["factor"], list[Any]()
        for j in range(n):
            x = v["row"][j]
            for l in range(j):
                x = x + found[l] * F[j][l]
            found.append(x)
        return tuple(found), tuple(-(x * F[j][j]) for j, x in enumerate(found))

    return fuse(record({"factor": (n, n), "row": (n,)}, {"LD": (n,), "minus": (n,)}, evaluate))


def _go_forward(F: Any, x: list[list[Any]]) -> list[list[Any]]:
    for i in range(len(x)):
        for l in range(i):
            x[i] = [b + F[i][l] * a for a, b in zip(x[l], x[i], strict=True)]
    return x


def _go_back(F: Any, x: list[list[Any]]) -> list[list[Any]]:
    for i in reversed(range(len(x))):
        for l in range(i + 1, len(x)):
            x[i] = [b + F[l][i] * a for a, b in zip(x[l], x[i], strict=True)]
    return x


def _of_columns(
    n: int, columns: int, names: tuple[str, ...], evaluate: Callable[[Any, list[list[Any]]], Any]
) -> Program:
    def run(v: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(evaluate(v["factor"], [list(row) for row in v["right"]]))

    return fuse(
        record({"factor": (n, n), "right": (n, columns)}, dict.fromkeys(names, (n, columns)), run)
    )


def _substitution(n: int, with_half: bool, columns: int) -> Program:
    """-(L D Lᵀ)⁻¹ times some columns, and D^-½ L⁻¹ times them."""

    def evaluate(F: Any, x: list[list[Any]]) -> list[Any]:
        y = _go_forward(F, [[-a for a in row] for row in x])
        roots = [[sqrt(F[i][i]) * -a for a in row] for i, row in enumerate(y)] if with_half else []
        found = _go_back(F, [[F[i][i] * a for a in row] for i, row in enumerate(y)])
        return [found, roots] if with_half else [found]

    return _of_columns(n, columns, ("x", "half") if with_half else ("x",), evaluate)


def _forward(n: int, columns: int) -> Program:
    return _of_columns(n, columns, ("x",), lambda F, x: [_go_forward(F, x)])


def _backward(n: int, columns: int) -> Program:
    return _of_columns(n, columns, ("x",), lambda F, x: [_go_back(F, x)])


def _scaled(n: int, with_half: bool) -> Program:
    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        row = tuple(v["by"] * x for x in v["row"])
        return (row, tuple(sqrt(v["by"]) * -x for x in v["row"])) if with_half else (row,)

    return record(
        {"row": (n,), "by": ()}, {"row": (n,)} | ({"half": (n,)} if with_half else {}), evaluate
    )


def _copy(n: int, factor: float) -> Program:
    return record({"x": (n,)}, {"y": (n,)}, lambda v: (tuple(x * factor for x in v["x"]),))


def _minus_mean(n: int) -> Program:
    """Rows of a symmetric matrix from those of another one and of its transpose, halved."""
    return record(
        {"row": (n,), "column": (n,)},
        {"y": (n,)},
        lambda v: (tuple(-0.5 * (a + b) for a, b in zip(v["row"], v["column"], strict=True)),),
    )


def _regular(n: int, singular: float | None) -> Program:
    """0 where 1 / D shows a pivot that is at most a share of its diagonal entry, else `fine`."""

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        fine, share = v["fine"], v["share"] if singular is None else singular
        for x, y in zip(v["inverse"], v["own"], strict=True):
            fine = select(less(share * select(less(y, 0.0), -y, y) * x, 1.0), fine, 0.0)
        return (fine,)

    shapes: dict[str, Shape] = {"fine": (), "inverse": (n,), "own": (n,)}
    return fuse(
        record(shapes | ({"share": ()} if singular is None else {}), {"fine": ()}, evaluate)
    )


def _sum(n: int, factor: float) -> Program:
    return record(
        {"x": (n,), "y": (n,)},
        {"y": (n,)},
        lambda v: (tuple(y + factor * x for x, y in zip(v["x"], v["y"], strict=True)),),
    )
