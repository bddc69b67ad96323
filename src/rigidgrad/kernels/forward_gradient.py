"""The gradient of forward dynamics as a kernel: a Program up to the factor of the mass matrix and the gradient of inverse dynamics, then products of their blocks.

With M = LᵀDL, W = L⁻¹ and X the gradient of inverse dynamics, Z = -D⁻¹WᵀX and ∂a = W Z. Rows are taken in segments: neighbouring freedoms of one chain, s. With A(s) the freedoms that carry the segment,
S(s) those that it carries and R(s) the columns of its rows,

    Z[A(s), R(s)] += (-W D⁻¹)[s, A(s)]ᵀ X[s, R(s)],      ∂a[S(s), R(S(s))] += W[S(s), s] Z[s, R(S(s))],      M⁻¹[S(s), S(s)] += W[S(s), s] D⁻¹ W[S(s), s]ᵀ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rigidgrad.algorithms.fast.subtree_gradient import SolveParts
from rigidgrad.algorithms.sparsity import Supports
from rigidgrad.kernels.language import Array, Kernel, View
from rigidgrad.program.fuse import fuse
from rigidgrad.program.program import Program, Shape
from rigidgrad.program.recorder import record

_LONGEST = 8  # freedoms of a segment: the blocks on the diagonal of W are half zeros


def segments(supports: Supports) -> list[range]:
    """Freedoms in chains: each carries all that the next one carries, and is carried by what carries the one before."""
    above = [{k, *support} for k, support in enumerate(supports)]
    below = carried(supports)
    found: list[range] = []
    for k in range(len(supports)):
        chained = found and above[k] == above[k - 1] | {k} and below[k - 1] == below[k] | {k - 1}
        if chained and len(found[-1]) < _LONGEST:
            found[-1] = range(found[-1].start, k + 1)
        else:
            found.append(range(k, k + 1))
    return found


def carried(supports: Supports) -> list[set[int]]:
    """For each freedom those that its motion moves, itself included."""
    below: list[set[int]] = [{k} for k in range(len(supports))]
    for k, support in enumerate(supports):
        for i in support:
            below[i].add(k)
    return below


def runs(numbers: Iterable[int]) -> list[range]:
    """Sorted numbers as ranges."""
    found: list[range] = []
    for n in sorted(numbers):
        if found and found[-1].stop == n:
            found[-1] = range(found[-1].start, n + 1)
        else:
            found.append(range(n, n + 1))
    return found


def multiplications(supports: Supports) -> int:
    """Multiply-adds of W Z, both gradients together."""
    below = carried(supports)
    columns = [{*support, *below[i]} for i, support in enumerate(supports)]
    return sum(2 * len(b) * len(set().union(*(columns[k] for k in b))) for b in below)


class Matrix(NamedTuple):
    """A matrix under construction, and which of its numbers have been written."""

    whole: View
    written: np.ndarray

    @staticmethod
    def of(array: Array, n: int) -> Matrix:
        return Matrix(array.matrix(n, n), np.zeros((n, n), dtype=bool))

    def blocks(self, rows: Iterable[int], columns: Iterable[int]) -> Iterator[tuple[range, range, bool]]:
        """Blocks that cover some rows and columns, each either written already or not; they count as written from now on."""
        wanted = sorted(columns)
        for several in runs(rows):
            alike: list[range] = []
            for row in several:
                if alike and (self.written[row, wanted] == self.written[row - 1, wanted]).all():
                    alike[-1] = range(alike[-1].start, row + 1)
                else:
                    alike.append(range(row, row + 1))
            for group in alike:
                for there in (False, True):
                    for across in runs(c for c in wanted if self.written[group.start, c] == there):
                        yield group, across, there
                # marked only once the whole group is handed out
                self.written[np.ix_(list(group), wanted)] = True


def forward_gradient_kernel(
    inputs: Mapping[str, Shape],
    parts: Callable[[Mapping[str, Any]], SolveParts],
    supports: Supports,
    *,
    dtau: bool = True,
    factored: bool = False,
) -> Kernel:
    """The kernel from what gives its parts: ∂a/∂q, ∂a/∂v and M⁻¹, unless `dtau` is False; or W, Z_dq and Z_dv."""
    n = len(supports)
    head, free = _head(inputs, parts, n)
    k = Kernel()
    arguments = {name: k.input(name, *shape).matrix(1, _size(shape)) for name, shape in inputs.items()}
    w = k.output("W", n, n) if factored else k.scratch("W", n, n)
    names = ("Z_dq", "Z_dv") if factored else ("dq", "dv")
    q, v = (k.output(name, n, n) for name in names)
    minv = k.output("dtau", n, n) if dtau and not factored else None
    W, by_q, by_v, x_q, x_v = (a.matrix(n, n) for a in (w, *(k.scratch(name, n, n) for name in ("by_q", "by_v", "x_q", "x_v"))))
    results = {"W": W, "by_q": by_q, "by_v": by_v, "dq": x_q, "dv": x_v}
    rows = n if factored else 3
    if free:
        results |= {"gravity_turn": q.matrix(rows, 3, 3, n), "speed_turn": v.matrix(rows, 3, 0, n), "spin_turn": v.matrix(rows, 3, 3, n)}
    k.call(head, arguments, results)
    for source, scaled, output, closed in ((x_q, by_q, q, 6 * free), (x_v, by_v, v, 3 * free)):
        target = Matrix.of(output, n)
        if free:
            target.written[:rows, 3:6] = True
        z = target if factored else Matrix.of(k.scratch(f"Z_{output.name}", n, n), n)
        _reduce(k, supports, scaled, source, z, closed)
        if not factored:
            _expand(k, supports, W, z, target, closed)
    if minv is not None:
        _inverse(k, supports, W, by_q, Matrix.of(minv, n))
    return k


def _reduce(k: Kernel, supports: Supports, scaled: View, x: View, z: Matrix, closed: int) -> None:
    """z = scaledᵀ x, from column `closed` on."""
    columns = _columns(supports, closed)
    for s in segments(supports):
        above = {i for row in s for i in (row, *supports[row])}
        for rows, across, there in z.blocks(above, set().union(*(columns[row] for row in s))):
            k.product(z.whole.part(rows, across), scaled.part(s, rows).T, x.part(s, across), accumulate=there)


def _expand(k: Kernel, supports: Supports, W: View, z: Matrix, target: Matrix, closed: int) -> None:
    """target = W z, from column `closed` on."""
    below, columns = carried(supports), _columns(supports, closed)
    for s in segments(supports):
        moved = below[s.start]
        for rows, across, there in target.blocks(moved, set().union(*(columns[row] for row in moved))):
            k.product(target.whole.part(rows, across), W.part(rows, s), z.whole.part(s, across), accumulate=there)


def _columns(supports: Supports, closed: int) -> list[set[int]]:
    """Of each row of a joint-space gradient, the columns that can be non-zero."""
    below = carried(supports)
    return [{c for c in {*support, *below[i]} if c >= closed} for i, support in enumerate(supports)]


def _inverse(k: Kernel, supports: Supports, W: View, scaled: View, target: Matrix) -> None:
    """target = -W scaledᵀ, which is symmetric."""
    below = carried(supports)
    for s in segments(supports):
        for rows, across, there in target.blocks(below[s.start], below[s.start]):
            if rows == across:
                k.product(target.whole.part(rows, rows), W.part(rows, s), scaled.part(rows, s).T, -1.0, accumulate=there, symmetric=True)
            else:
                k.product(target.whole.part(rows, across), W.part(rows, s), scaled.part(across, s).T, -1.0, accumulate=there)


def _head(inputs: Mapping[str, Shape], parts: Callable[[Mapping[str, Any]], SolveParts], n: int) -> tuple[Program, bool]:
    """The Program of the parts, and whether the base is free."""
    shapes: dict[str, Shape] = {}

    def evaluate(values: dict[str, Any]) -> tuple:
        found = parts(values)
        for name, matrix in found._asdict().items():
            if matrix:
                shapes[name] = (len(matrix), len(matrix[0]))
        return tuple(getattr(found, name) for name in shapes)

    return fuse(record(inputs, shapes, evaluate)), "spin_turn" in shapes


def _size(shape: Shape) -> int:
    return int(np.prod(shape, dtype=int))
