"""Scans over a tree's Euler tour with inverses: a forest is one array of 2N steps, in which what
entering a body did is undone when it is left (Blelloch 1990).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rigidgrad.runtime.loops import AnyKernel, kernel
from rigidgrad.trees.parallel import parts, spread
from rigidgrad.trees.scans import BLOCK, scan
from rigidgrad.trees.tree import Tree

THREADED = 20_000  # bodies from which on threads are worth their calls


class Tour(NamedTuple):
    """Of a tree: by which scan it is walked, and by how many threads."""

    tree: Tree
    variant: str = "blocked"
    block: int = BLOCK
    threads: int = 1

    def rootfix(
        self,
        rows: np.ndarray,
        op: AnyKernel,
        inverse: AnyKernel,
        neutral: np.ndarray,
        out: np.ndarray,
    ) -> np.ndarray:
        """out[i] = rows[root] ⊕ … ⊕ rows[i], rows (N, C)."""
        lp, rp = self.tree.topology.tour
        with self.tree.plan.workspace((2 * len(rows), rows.shape[1]), rows.dtype) as steps:
            self._each(_enter_and_leave, rows, inverse, lp, rp, steps)
            self._scan(steps, op, neutral)
            self._each(_collect, steps, lp, out)
        return out

    def leaffix(
        self,
        rows: np.ndarray,
        op: AnyKernel,
        inverse: AnyKernel,
        neutral: np.ndarray,
        out: np.ndarray,
    ) -> np.ndarray:
        """out[i] = ⊕ over the subtree under i: what the tour has when it leaves i, without what it
        had before it entered it.
        """
        lp, rp = self.tree.topology.tour
        with self.tree.plan.workspace((2 * len(rows), rows.shape[1]), rows.dtype) as steps:
            self._each(_enter, rows, neutral, lp, rp, steps)
            self._scan(steps, op, neutral)
            self._each(_differences, steps, lp, rp, op, inverse, neutral, out)
        return out

    def each(self, function: AnyKernel, count: int, *args: object) -> None:
        """function(part, first, last, *args) for parts of 0 … count."""
        spread(self.threads, function, parts(count, self.shares(count)), *args)

    def shares(self, count: int) -> int:
        return self.threads if count > THREADED else 1

    def _each(self, function: AnyKernel, *args: object) -> None:
        self.each(function, self.tree.bodies, *args)

    def _scan(self, steps: np.ndarray, op: AnyKernel, neutral: np.ndarray) -> None:
        scan(
            steps,
            op,
            neutral,
            variant=self.variant,
            block=self.block,
            threads=self.threads,
            out=steps,
        )


@kernel
def _enter_and_leave(
    part: int,
    first: int,
    last: int,
    rows: np.ndarray,
    inverse: AnyKernel,
    lp: np.ndarray,
    rp: np.ndarray,
    steps: np.ndarray,
) -> None:
    for i in range(first, last):
        steps[lp[i]] = rows[i]
        inverse(rows[i], steps[rp[i]])


@kernel
def _enter(
    part: int,
    first: int,
    last: int,
    rows: np.ndarray,
    neutral: np.ndarray,
    lp: np.ndarray,
    rp: np.ndarray,
    steps: np.ndarray,
) -> None:
    for i in range(first, last):
        steps[lp[i]] = rows[i]
        steps[rp[i]] = neutral


@kernel
def _collect(
    part: int, first: int, last: int, steps: np.ndarray, lp: np.ndarray, out: np.ndarray
) -> None:
    for i in range(first, last):
        out[i] = steps[lp[i]]


@kernel
def _differences(
    part: int,
    first: int,
    last: int,
    steps: np.ndarray,
    lp: np.ndarray,
    rp: np.ndarray,
    op: AnyKernel,
    inverse: AnyKernel,
    neutral: np.ndarray,
    out: np.ndarray,
) -> None:
    held = neutral.copy()
    for i in range(first, last):
        if lp[i] > 0:
            inverse(steps[lp[i] - 1], held)
            op(held, steps[rp[i]], out[i])
        else:
            out[i] = steps[rp[i]]
