"""The mass matrix by scans over the Euler tour, as Lynghus (2026, listings 8 to 10) has it:
composite inertias are summed in the root's frame, and every entry is computed by itself, across
transforms from and to the root.

Work is O(N·depth), every entry a transform of a force; the longest way through the scans has
O(log N) operations, and the entries do not wait for each other. Kept for comparison: sums over the
whole tree, in the root's frame, lose digits, and a step to the parent takes fewer operations than
one from the root.
"""

from __future__ import annotations

import itertools

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.scalars import Scalar
from rigidgrad.trees.algebra import (
    Flat,
    force_to_child,
    force_to_parent,
    inertia_to_parent,
    joint_momentum,
)
from rigidgrad.trees.packed import pattern_of
from rigidgrad.trees.packs import numbers, put_numbers
from rigidgrad.trees.parallel import spread
from rigidgrad.trees.rnea_euler_tour import add_rows, inverted, negate_row, transforms
from rigidgrad.trees.tours import Tour


def crba(tour: Tour, q: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Fills in the packed entries of one state but for the rows of a floating base, q (N,); the
    inertia (10,) of all that hangs on body 0, in its frame.
    """
    tree, n, dtype = tour.tree, tour.tree.bodies, out.dtype
    data, sums = tree.plan.rows(dtype), tour._replace(variant="mapped")
    start = pattern_of(tree).start[5 * tree.floating_base :]
    with (
        tree.plan.workspace((n, 12), dtype) as X,
        tree.plan.workspace((2, n, 10), dtype) as inertias,
        tree.plan.workspace((n, 7), dtype) as momenta,
    ):
        own, total = inertias
        transforms(tour, data, q, X)
        tour.each(_to_root, n, data, X, own)
        sums.leaffix(own, add_rows, negate_row, np.zeros(10, dtype), total)
        tour.each(_momenta, n, data, X, total, momenta)
        # as many entries for each thread, not as many bodies
        cuts = np.searchsorted(
            start, np.linspace(start[0], start[-1], 4 * tour.shares(len(out)) + 1)
        )
        ranges = [(int(a), int(b)) for a, b in itertools.pairwise(cuts) if b > a]
        tables = tree.parents, start, tree.floating_base, data, X, momenta, out
        spread(tour.threads, _entries, ranges, *tables)
        whole: np.ndarray = total[0].copy()
        return whole


@kernel
def _to_root(
    part: int, first: int, last: int, data: np.ndarray, X: np.ndarray, out: np.ndarray
) -> None:
    for i in range(first, last):
        x = numbers(X, i * 12, 12)
        put_numbers(out, i * 10, inertia_to_parent(x[0:9], x[9:12], numbers(data, i * 24 + 12, 10)))


@kernel
def _momenta(
    part: int,
    first: int,
    last: int,
    data: np.ndarray,
    X: np.ndarray,
    total: np.ndarray,
    out: np.ndarray,
) -> None:
    """Of composite bodies under unit velocities of their joints, in the root's frame, and along
    these joints.
    """
    for i in range(first, last):
        x = numbers(X, i * 12, 12)
        y = inverted(x)
        I = inertia_to_parent(y[0:9], y[9:12], numbers(total, i * 10, 10))
        h = joint_momentum(I, data[i, 22], data[i, 23])
        own = data[i, 22] * h[2] + data[i, 23] * h[5]
        put_numbers(out, i * 7, force_to_parent(x[0:9], x[9:12], h) + (own,))


@kernel
def entry(X: np.ndarray, data: np.ndarray, j: int, f: Flat) -> Scalar:
    """What a force in the root's frame is along joint j."""
    y = numbers(X, j * 12, 12)
    g = force_to_child(y[0:9], y[9:12], f)
    own: Scalar = data[j, 22] * g[2] + data[j, 23] * g[5]
    return own


@kernel
def _entries(
    part: int,
    first: int,
    last: int,
    parents: np.ndarray,
    start: np.ndarray,
    floating: bool,
    data: np.ndarray,
    X: np.ndarray,
    momenta: np.ndarray,
    out: np.ndarray,
) -> None:
    base = 1 if floating else 0
    for i in range(max(first, base), last):
        f = numbers(momenta, i * 7, 6)
        k: int = start[i]
        out[k] = momenta[i, 6]
        k += 1
        j = parents[i]
        while j >= base:
            out[k] = entry(X, data, j, f)
            k += 1
            j = parents[j]
        if floating:
            put_numbers(out, k, (f[2], f[1], f[0], f[5], f[4], f[3]))
