"""Matrices along the sparsity of a tree, block by block: segments of chained freedoms, runs of
neighbouring ones, and matrices that are written in parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rigidgrad.algorithms.sparsity import Supports
from rigidgrad.kernels.language import Array, Kernel, View
from rigidgrad.program.fuse import fuse
from rigidgrad.program.program import Program, Shape
from rigidgrad.program.recorder import record

_LONGEST = 8  # freedoms of a segment: the blocks on the diagonal of a triangle are half zeros


def segments(supports: Supports) -> list[range]:
    """Freedoms in chains: each carries all that the next one carries, and is carried by what
    carries the one before.
    """
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


def columns_of(supports: Supports, first: int = 0) -> list[set[int]]:
    """Of each row of a joint-space gradient, the columns from `first` on that can be non-zero."""
    below = carried(supports)
    return [{c for c in {*support, *below[i]} if c >= first} for i, support in enumerate(supports)]


def runs(numbers: Iterable[int]) -> list[range]:
    """Sorted numbers as ranges."""
    found: list[range] = []
    for n in sorted(numbers):
        if found and found[-1].stop == n:
            found[-1] = range(found[-1].start, n + 1)
        else:
            found.append(range(n, n + 1))
    return found


class Matrix(NamedTuple):
    """A matrix under construction, and which of its numbers have been written."""

    whole: View
    written: np.ndarray

    @staticmethod
    def of(array: Array, n: int) -> Matrix:
        """A whole array as a square matrix."""
        return Matrix.within(array.matrix(n, n))

    @staticmethod
    def within(view: View) -> Matrix:
        return Matrix(view, np.zeros(view.shape, dtype=bool))

    def blocks(
        self, rows: Iterable[int], columns: Iterable[int]
    ) -> Iterator[tuple[range, range, bool]]:
        """Blocks that cover some rows and columns, each either written already or not; they count
        as written from now on.
        """
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
                # only once the whole group has been handed out
                self.written[np.ix_(list(group), wanted)] = True


def record_parts(
    inputs: Mapping[str, Shape], parts: Callable[[Mapping[str, Any]], Any], most: float = math.inf
) -> Program:
    """The Program of what a kernel multiplies, of at most so many nodes: the matrices of a named
    tuple that are not empty.
    """
    shapes: dict[str, Shape] = {}

    def evaluate(values: dict[str, Any]) -> tuple[Any, ...]:
        found = parts(values)
        for name, matrix in found._asdict().items():
            if matrix:
                shapes[name] = (len(matrix), len(matrix[0]))
        return tuple(getattr(found, name) for name in shapes)

    return fuse(record(inputs, shapes, evaluate, most))


def reduce(
    k: Kernel, supports: Supports, scaled: View, x: View, z: Matrix, columns: list[set[int]]
) -> None:
    """z = scaledᵀ x: to a freedom's row adds all that it carries, in the columns that the rows of x
    have.
    """
    below = carried(supports)
    for s in segments(supports):
        for rows, across in _alike(below[s.start], columns):
            _add(k, z, s, across, scaled.T, x, rows)


def expand(
    k: Kernel, supports: Supports, W: View, z: View, target: Matrix, columns: list[set[int]]
) -> None:
    """target = W z, for columns of x as above: to a freedom's row adds all that carries it."""
    # columns of the rows of z
    filled = [set().union(*(columns[i] for i in b)) for b in carried(supports)]
    for s in segments(supports):
        for rows, across in _alike({*supports[s.start], *s}, filled):
            _add(k, target, s, across, W, z, rows)


def _alike(rows: Iterable[int], columns: list[set[int]]) -> Iterator[tuple[list[int], range]]:
    """Neighbouring columns that the same ones of some rows have, and these rows."""
    several = sorted(rows)
    having: dict[int, tuple[int, ...]] = {}
    for c in set().union(*(columns[i] for i in several)):
        having[c] = tuple(i for i in several if c in columns[i])
    for those in sorted(set(having.values())):
        for across in runs(c for c, found in having.items() if found == those):
            yield list(those), across


def _add(
    k: Kernel,
    target: Matrix,
    rows: range,
    columns: range,
    left: View,
    right: View,
    terms: list[int],
) -> None:
    """Rows and columns of target += left · right, over some terms: products that follow each other
    are added up in registers.
    """
    for over, across, there in target.blocks(rows, columns):
        for several in runs(terms):
            k.product(
                target.whole.part(over, across),
                left.part(over, several),
                right.part(several, across),
                accumulate=there,
            )
            there = True


def inverse(k: Kernel, supports: Supports, W: View, scaled: View, target: Matrix) -> None:
    """target = -W scaledᵀ, which is symmetric."""
    below = carried(supports)
    for s in segments(supports):
        for rows, across, there in target.blocks(below[s.start], below[s.start]):
            square = rows == across
            k.product(
                target.whole.part(rows, across),
                W.part(rows, s),
                scaled.part(across, s).T,
                -1.0,
                accumulate=there,
                symmetric=square,
            )
