"""The mass matrix of a tree, packed by ancestors (Featherstone 2008, table 6.2).

Column i of H is the force that unit acceleration of joint i takes, seen at i's ancestors. Eight
bodies that follow each other in depth-first order share all of their ancestors but the nearest few:
eight columns climb at a time, each by its own way first, then all by the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.errors import InputError, unknown_name
from rigidgrad.runtime.loops import kernel
from rigidgrad.trees import crba_euler_tour
from rigidgrad.trees.algebra import (
    Flat,
    force_to_parent,
    inertia_times,
    joint_momentum,
)
from rigidgrad.trees.ancestors import climb
from rigidgrad.trees.lanes import W, joint_transform
from rigidgrad.trees.memory import require
from rigidgrad.trees.operators import merge, of_composites
from rigidgrad.trees.packed import PackedMatrix, pattern_of
from rigidgrad.trees.packs import gather_rows, numbers, put_numbers, scatter
from rigidgrad.trees.parallel import parts, spread, thread_count
from rigidgrad.trees.scans import BLOCK
from rigidgrad.trees.sequential import inwards
from rigidgrad.trees.states import joints
from rigidgrad.trees.tours import Tour
from rigidgrad.trees.tree import Tree

if TYPE_CHECKING:
    from rigidgrad.runtime.arrays import Numbers

METHODS = ("ancestors", "euler_tour")
VARIANTS = ("native", "work_efficient", "blocked")

# numbers of a joint in a state: E 0-8, r 9-11, ang 12, lin 13; the rest keeps rows to whole cache
# lines
_C = 16
_STILL = np.pad(np.eye(3).ravel(), (0, _C - 9))  # row 0: no way at all, for columns that wait


def crba(
    tree: Tree,
    q: Numbers,
    *,
    method: str | None = None,
    device: str | None = None,
    threads: int | None = None,
    check: bool = False,
    variant: str = "blocked",
    block: int = BLOCK,
) -> PackedMatrix:
    """The mass matrix H, packed: `.to_dense()`, `.to_scipy()`, `.solve(b)`, `H @ x`. q (…, nq), any
    batch axes in front.

    method: "ancestors", which is chosen if it is left out, or "euler_tour" (Lynghus 2026), which
    loses digits, by a scan of this `variant` ("native", "work_efficient" or "blocked") and `block`.
    device: "cuda" or "opencl" computes there, by the Euler tour.
    A tree of depth d has up to N·d entries; what would not fit into memory is refused with a
    TooLargeError before it is tried. `threads` and `check` as for `rnea`.
    """
    if method is not None and method not in METHODS:
        raise unknown_name("method", method, METHODS)
    if device is not None and method == "ancestors":
        raise InputError("on a device the mass matrix is computed along the Euler tour")
    if variant not in VARIANTS:
        raise unknown_name("variant", variant, VARIANTS)
    if block < 1:
        raise InputError(f"a block has at least one row, not {block}")
    state = joints(tree, check=check, gravity=False, q=q)
    (rows,) = state.inputs
    count = thread_count(threads)
    require_room(tree, len(rows), rows.dtype)
    pattern = pattern_of(tree)
    values = np.empty((len(rows), pattern.entries), rows.dtype)
    if device is not None or method == "euler_tour":
        tour = Tour(tree, variant, block, count)
        for one, out in zip(rows, values, strict=True):
            if device is None:
                whole = crba_euler_tour.crba(tour, one, out)
            else:
                from rigidgrad.trees import device as on_device

                whole = on_device.crba(tree, one, out, device, variant, block)
            if tree.floating_base:
                put_base_rows(whole, out)
    else:
        _by_ancestors(tree, rows, count, values)
    if tree.has_armature:
        values[:, pattern.start[:-1][-tree.bodies :]] += tree.armature.astype(rows.dtype)
    return PackedMatrix(pattern, values.reshape(*state.batch.shape, pattern.entries))


def _by_ancestors(tree: Tree, rows: np.ndarray, count: int, values: np.ndarray) -> None:
    data = tree.plan.rows(rows.dtype)
    tables = tree.plan.kept(("columns",), lambda: _columns(tree))
    with (
        tree.plan.workspace((tree.bodies + 1, _C), rows.dtype) as X,
        tree.plan.workspace((tree.bodies + 1, 10), rows.dtype) as I,
    ):
        X[0] = _STILL
        for b in range(len(rows)):
            ranges = parts(tree.bodies, count if tree.bodies > 20_000 else 1)
            spread(count, _prepare, ranges, data, rows[b], X, I)
            I[0] = 0.0  # what hangs on the world
            _composite(tree.parents, tree.topology.order, X, I)
            _packed_rows(tree, count, tables, X, I, values[b])


def require_room(tree: Tree, count: int, dtype: np.dtype) -> None:
    """Refuses mass matrices that would not fit into memory."""
    entries = pattern_of(tree).entries
    size = (entries * count + (_C + 10) * tree.bodies) * dtype.itemsize
    require(
        f"a mass matrix with {entries:,} entries",
        size,
        "a tree this deep needs forward_dynamics, which forms no matrix",
    )


def _columns(tree: Tree) -> tuple[Any, ...]:
    """How columns climb, and where each writes: what it finds at depth d goes to end - d. A
    floating base is no body here, but where all columns end.

    A column that waits for deeper ones writes too, to where it is to begin.
    """
    base = int(tree.floating_base)
    depth = tree.topology.depth
    way = climb(tree.topology, tree.plan.preorder[base:])
    start = pattern_of(tree).start[5 * base :]
    end = start[way.body] + depth[way.body]
    lanes_of = np.repeat(
        np.arange(len(way.body)).reshape(-1, W), np.diff(way.start), axis=0
    ).ravel()
    to = np.where(way.at < 0, start[way.body][lanes_of], end[lanes_of] - depth[way.at])
    return (tree.parents, depth, end, to, *way)


def _packed_rows(
    tree: Tree, threads: int, tables: tuple[Any, ...], X: np.ndarray, I: np.ndarray, out: np.ndarray
) -> None:
    packs = -(-(tree.bodies - tree.floating_base) // W)
    pieces = 4 * threads if threads > 1 and len(out) > 50_000 else 1
    spread(threads, _rows, parts(packs, pieces), tables, tree.floating_base, X, I, out)
    if tree.floating_base:
        put_base_rows(I[1], out)


@kernel
def _prepare(
    part: int, start: int, stop: int, data: np.ndarray, q: np.ndarray, X: np.ndarray, I: np.ndarray
) -> None:
    """Joints in this state, and inertias of single bodies; body i has row i + 1."""
    for i in range(start, stop):
        c = numbers(data, i * 24, 24)
        E, r = joint_transform(c[0:9], c[9:12], c[22], c[23], q[i])
        put_numbers(X, (i + 1) * _C, E + r + c[22:24])
        put_numbers(I, (i + 1) * 10, c[12:22])


@kernel
def _composite(parents: np.ndarray, order: np.ndarray, X: np.ndarray, I: np.ndarray) -> None:
    """Inertias of whole subtrees, each in its root's frame."""
    inwards(parents, order, (of_composites, merge), (X, I))


@kernel
def _rows(
    part: int,
    start: int,
    stop: int,
    tables: tuple[np.ndarray, ...],
    floating: bool,
    X: np.ndarray,
    I: np.ndarray,
    out: np.ndarray,
) -> None:
    """Columns of the packs start … stop, which are rows of the packed matrix."""
    parents, depth, end, to, body, meet, steps, at = tables
    base = 1 if floating else 0
    for pack in range(start, stop):
        first = pack * W
        s = gather_rows(X, body, first, _C, 12, 2, W)
        f = joint_momentum(gather_rows(I, body, first, 10, 0, 10, W), s[0], s[1])
        for k in range(steps[pack], steps[pack + 1]):
            x = gather_rows(X, at, k * W, _C, 0, 14, W)
            scatter(out, 0, to, k * W, x[12] * f[2] + x[13] * f[5])
            f = force_to_parent(x[0:9], x[9:12], f)
        i = meet[pack]
        d = depth[max(i, 0)]
        while i >= base:
            y = numbers(X, (i + 1) * _C, 14)
            scatter(out, -d, end, first, y[12] * f[2] + y[13] * f[5])
            f = force_to_parent(y[0:9], y[9:12], f)
            i = parents[i]
            d -= 1
        if floating:
            for k in range(3):
                scatter(out, k, end, first, f[2 - k])
                scatter(out, 3 + k, end, first, f[5 - k])


@kernel
def put_base_rows(I: np.ndarray, out: np.ndarray) -> None:
    """The six rows of a floating base, from the inertia of all."""
    put_numbers(out, 0, _lower_triangle(numbers(I, 0, 10)))


def _lower_triangle(I: Flat) -> Flat:
    """Of an inertia's matrix, freedoms [linear, angular], each row from its diagonal back."""
    rows = []
    for r in range(6):
        h = inertia_times(I, tuple(float(k == (r + 3) % 6) for k in range(6)))
        row = (*h[3:6], *h[0:3])
        rows += [row[c] for c in range(r, -1, -1)]
    return tuple(rows)
