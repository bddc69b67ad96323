"""The mass matrix of a tree, packed by ancestors (Featherstone 2008, table 6.2).

Column i of H is the force that unit acceleration of joint i takes, seen at i's ancestors. Eight bodies that follow each other in depth-first order share
all of their ancestors but the nearest few: eight columns climb at a time, each by its own way first, then all by the same.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.algebra import force_to_parent, inertia_times, inertia_to_parent, joint_momentum
from rigidgrad.trees.ancestors import climb
from rigidgrad.trees.lanes import W, joint_transform
from rigidgrad.trees.memory import require
from rigidgrad.trees.packed import PackedMatrix, pattern_of
from rigidgrad.trees.packs import gather_rows, numbers, put_numbers, scatter
from rigidgrad.trees.parallel import parts, spread, thread_count
from rigidgrad.trees.states import joints
from rigidgrad.trees.tree import Tree

_C = 16  # numbers of a joint in a state: E 0-8, r 9-11, ang 12, lin 13; the rest keeps rows to whole cache lines
_STILL = np.pad(np.eye(3).ravel(), (0, _C - 9))  # row 0: no way at all, for columns that wait


def crba(tree: Tree, q, *, threads: int | None = None, check: bool = False) -> PackedMatrix:
    """The mass matrix H, packed: `.to_dense()`, `.to_scipy()`, `.solve(b)`, `H @ x`. q (…, nq), any batch axes in front.

    A tree of depth d has up to N·d entries; what would not fit into memory is refused with a TooLargeError before it is tried.
    """
    state = joints(tree, check=check, gravity=False, q=q)
    (rows,) = state.inputs
    count = thread_count(threads)
    require_room(tree, len(rows), rows.dtype)
    pattern = pattern_of(tree)
    values = np.empty((len(rows), pattern.entries), rows.dtype)
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
            _composite(tree.parents, tree.topology.order, X, I)
            _packed_rows(tree, count, tables, X, I, values[b])
    if tree.has_armature:
        values[:, pattern.start[:-1][-tree.bodies :]] += tree.armature.astype(rows.dtype)
    return PackedMatrix(pattern, values.reshape(*state.batch.shape, pattern.entries))


def require_room(tree: Tree, count: int, dtype: np.dtype) -> None:
    """Refuses mass matrices that would not fit into memory."""
    entries = pattern_of(tree).entries
    size = (entries * count + (_C + 10) * tree.bodies) * dtype.itemsize
    require(f"a mass matrix with {entries:,} entries", size, "a tree this deep needs forward_dynamics, which forms no matrix")


def _columns(tree: Tree) -> tuple:
    """How columns climb, and where each writes: what it finds at depth d goes to end - d. A floating base is no body here, but where all columns end.

    A column that waits for deeper ones writes too, to where it is to begin.
    """
    base = int(tree.floating_base)
    depth = tree.topology.depth
    way = climb(tree.topology, tree.plan.preorder[base:])
    start = pattern_of(tree).start[5 * base :]
    end = start[way.body] + depth[way.body]
    lanes_of = np.repeat(np.arange(len(way.body)).reshape(-1, W), np.diff(way.start), axis=0).ravel()
    to = np.where(way.at < 0, start[way.body][lanes_of], end[lanes_of] - depth[way.at])
    return (tree.parents, depth, end, to, *way)


def _packed_rows(tree: Tree, threads: int, tables: tuple, X, I, out: np.ndarray) -> None:
    packs = -(-(tree.bodies - tree.floating_base) // W)
    pieces = 4 * threads if threads > 1 and len(out) > 50_000 else 1
    spread(threads, _rows, parts(packs, pieces), tables, tree.floating_base, X, I, out)
    if tree.floating_base:
        _base_rows(I, out)


@kernel
def _prepare(part, start, stop, data, q, X, I):
    """Joints in this state, and inertias of single bodies; body i has row i + 1."""
    for i in range(start, stop):
        c = numbers(data, i * 24, 24)
        E, r = joint_transform(c[0:9], c[9:12], c[22], c[23], q[i])
        put_numbers(X, (i + 1) * _C, E + r + c[22:24])
        put_numbers(I, (i + 1) * 10, c[12:22])


@kernel
def _composite(parents, order, X, I):
    """Inertias of whole subtrees, each in its root's frame."""
    for k in range(len(order) - 1, -1, -1):
        i = order[k]
        p = parents[i]
        if p >= 0:
            x = numbers(X, (i + 1) * _C, 12)
            y = inertia_to_parent(x[0:9], x[9:12], numbers(I, (i + 1) * 10, 10))
            for j in range(10):
                I[p + 1, j] += y[j]


@kernel
def _rows(part, start, stop, tables, floating, X, I, out):
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
def _base_rows(I, out):
    """The six rows of a floating base."""
    put_numbers(out, 0, _lower_triangle(numbers(I, 10, 10)))


def _lower_triangle(I):
    """Of an inertia's matrix, freedoms [linear, angular], each row from its diagonal back."""
    rows = []
    for r in range(6):
        h = inertia_times(I, tuple(float(k == (r + 3) % 6) for k in range(6)))
        row = (*h[3:6], *h[0:3])
        rows += [row[c] for c in range(r, -1, -1)]
    return tuple(rows)
