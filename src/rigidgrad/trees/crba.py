"""The mass matrix of a tree, packed by ancestors (Featherstone 2008, table 6.2).

Column i of H is the force that unit acceleration of joint i takes, seen at i's ancestors. Eight bodies that follow each other in depth-first order share
all of their ancestors but the nearest few: those are walked one body at a time, the others eight at a time.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.trees.compiled import kernel
from rigidgrad.trees.lanes import W, filled_pack, lane, with_lane
from rigidgrad.trees.memory import require
from rigidgrad.trees.operations import force_to_parent, inertia_times, inertia_to_parent, joint_transform
from rigidgrad.trees.packed import PackedMatrix, pattern_of
from rigidgrad.trees.packs import numbers, put_numbers
from rigidgrad.trees.parallel import parts, spread, thread_count
from rigidgrad.trees.states import joints
from rigidgrad.trees.tree import Tree


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
    data, armature = tree.plan.rows(rows.dtype), tree.armature.astype(rows.dtype)
    preorder = tree.plan.preorder
    tables = (tree.parents, tree.topology.depth, preorder, pattern.start)
    with (
        tree.plan.workspace((tree.bodies, 12), rows.dtype) as X,
        tree.plan.workspace((tree.bodies, 10), rows.dtype) as I,
    ):
        for b in range(len(rows)):
            ranges = parts(tree.bodies, count if tree.bodies > 20_000 else 1)
            spread(count, _prepare, ranges, data, rows[b], X, I)
            _composite(tree.parents, tree.topology.order, X, I)
            _packed_rows(tree, count, tables, data, armature, X, I, values[b])
    return PackedMatrix(pattern, values.reshape(*state.batch.shape, pattern.entries))


def require_room(tree: Tree, count: int, dtype: np.dtype) -> None:
    """Refuses mass matrices that would not fit into memory."""
    entries = int(tree.topology.depth.sum(dtype=np.int64)) + tree.bodies + (6 * tree.nv if tree.floating_base else 0)
    size = (entries * count + 22 * tree.bodies) * dtype.itemsize
    require(f"a mass matrix with {entries:,} entries", size, "a tree this deep needs forward_dynamics, which forms no matrix")


def _packed_rows(tree: Tree, threads: int, tables: tuple, data, armature, X, I, out: np.ndarray) -> None:
    packs = -(-tree.bodies // W)
    pieces = 8 * threads if threads > 1 and len(out) > 50_000 else 1
    spread(threads, _rows, parts(packs, pieces), tables, tree.floating_base, data, armature, X, I, out)
    if tree.floating_base:
        _base_rows(I, out)


@kernel
def _prepare(part, start, stop, data, q, X, I):
    for i in range(start, stop):
        c = numbers(data, i * 24, 24)
        E, r = joint_transform(c[0:9], c[9:12], c[22], c[23], q[i])
        put_numbers(X, i * 12, E + r)
        put_numbers(I, i * 10, c[12:22])


@kernel
def _composite(parents, order, X, I):
    """Inertias of whole subtrees, each in its root's frame."""
    for k in range(len(order) - 1, -1, -1):
        i = order[k]
        p = parents[i]
        if p >= 0:
            x = numbers(X, i * 12, 12)
            y = inertia_to_parent(x[0:9], x[9:12], numbers(I, i * 10, 10))
            for j in range(10):
                I[p, j] += y[j]


@kernel
def _common(parents, depth, preorder, first, last):
    """The nearest body that all of preorder[first : last] are or hang on; -1 for the world."""
    a = preorder[first]
    for k in range(first + 1, last):
        b = preorder[k]
        while a >= 0 and depth[b] > depth[a]:
            b = parents[b]
        while a != b:
            if depth[a] >= depth[b]:
                a = parents[a]
            else:
                b = parents[b]
            if a < 0 or b < 0:
                return -1
            while depth[a] > depth[b]:
                a = parents[a]
            while depth[b] > depth[a]:
                b = parents[b]
    return a


@kernel
def _rows(part, start, stop, tables, floating, data, armature, X, I, out):
    parents, depth, preorder, row_start = tables
    shift = 5 if floating else 0
    n = len(parents)
    place = np.empty(W, np.int64)
    o = out.dtype.type(0)
    for pack in range(start, stop):
        first, last = pack * W, min(pack * W + W, n)
        meet = _common(parents, depth, preorder, first, last)
        z = filled_pack(out, 0.0)
        f8 = (z, z, z, z, z, z)
        for j in range(last - first):
            i = preorder[first + j]
            at = row_start[i + shift]
            s, t = data[i, 22], data[i, 23]
            f = inertia_times(numbers(I, i * 10, 10), (o, o, s, o, o, t))
            if not (floating and i == 0):
                out[at] = s * f[2] + t * f[5] + armature[i]
                at += 1
            while i != meet:
                x = numbers(X, i * 12, 12)
                f = force_to_parent(x[0:9], x[9:12], f)
                i = parents[i]
                if i < 0:
                    break
                if not (floating and i == 0):
                    out[at] = data[i, 22] * f[2] + data[i, 23] * f[5]
                    at += 1
            place[j] = at
            f8 = (
                with_lane(f8[0], j, f[0]),
                with_lane(f8[1], j, f[1]),
                with_lane(f8[2], j, f[2]),
                with_lane(f8[3], j, f[3]),
                with_lane(f8[4], j, f[4]),
                with_lane(f8[5], j, f[5]),
            )
        i = meet
        while i >= 0 and parents[i] >= 0:
            x = numbers(X, i * 12, 12)
            f8 = force_to_parent(x[0:9], x[9:12], f8)
            i = parents[i]
            if not (floating and i == 0):
                h = f8[2] * data[i, 22] + f8[5] * data[i, 23]
                for j in range(last - first):
                    out[place[j]] = lane(h, j)
                    place[j] += 1
        if floating:
            for j in range(last - first):
                if preorder[first + j] > 0:
                    at = place[j]
                    out[at], out[at + 1], out[at + 2] = lane(f8[2], j), lane(f8[1], j), lane(f8[0], j)
                    out[at + 3], out[at + 4], out[at + 5] = lane(f8[5], j), lane(f8[4], j), lane(f8[3], j)


@kernel
def _base_rows(I, out):
    """The six rows of a floating base, freedoms [linear, angular]: the composite inertia's lower triangle, each row from its diagonal back."""
    at = 0
    for r in range(6):
        u = np.zeros(6, I.dtype)
        u[(r + 3) % 6] = 1
        h = inertia_times(numbers(I, 0, 10), (u[0], u[1], u[2], u[3], u[4], u[5]))
        row = (h[3], h[4], h[5], h[0], h[1], h[2])
        for c in range(r, -1, -1):
            out[at] = row[c]
            at += 1
