"""rootfix and leaffix: what flows from the root to every body, and from every subtree to its root,
under any associative operator (Blelloch 1990).

By levels and along heavy paths no inverse is needed; the Euler tour needs one, and loses digits
where x ⊕ x⁻¹ is not exactly neutral.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.errors import InputError, unknown_name
from rigidgrad.runtime.loops import AnyKernel, as_kernel, kernel
from rigidgrad.trees.heavy_paths import HeavyPaths
from rigidgrad.trees.lanes import W
from rigidgrad.trees.parallel import parts, spread, thread_count
from rigidgrad.trees.scans import BLOCK
from rigidgrad.trees.tours import Tour
from rigidgrad.trees.tree import Tree

if TYPE_CHECKING:
    from rigidgrad.runtime.arrays import Numbers

METHODS = ("levels", "heavy_path", "euler_tour")
_SPLIT = 20_000  # bodies in a level from which on threads are worth their call


def rootfix(
    tree: Tree,
    values: Numbers,
    op: Callable[..., Any],
    identity: Numbers,
    *,
    inverse: Callable[..., Any] | None = None,
    method: str | None = None,
    variant: str = "blocked",
    block: int = BLOCK,
    threads: int | None = None,
) -> np.ndarray:
    """For each body i: values[root] ⊕ … ⊕ values[parent of i] ⊕ values[i]. values: (N, C) or (N,),
    any dtype.

    op(x, y, out) writes x ⊕ y into out, for rows; inverse(x, out) writes x⁻¹, and is needed by
    method="euler_tour", which scans by `variant` (see `scan`). `identity`: what changes nothing, a
    number or a row. `block` and `threads` as for `scan`; the shape is `tree`'s.
    """
    rows, shape = _rows(tree, values)
    how, function, neutral = _prepared(tree, method, op, identity, inverse, rows)
    count = thread_count(threads)
    if how == "euler_tour":
        down = Tour(tree, variant, block, count).rootfix
        return down(rows, function, as_kernel(inverse), neutral, np.empty_like(rows)).reshape(shape)
    out = np.empty_like(rows)
    if how == "levels":
        for band in _bands(tree.topology.level_start, count, up=False):
            spread(
                count,
                _root_level,
                band,
                tree.topology.order,
                tree.parents,
                function,
                neutral,
                rows,
                out,
            )
    else:
        t = tree.plan.heavy_paths
        carry = np.empty((len(t.source), rows.shape[1]), rows.dtype)
        total = np.empty_like(carry)
        for start, cut, stop in t.depths:
            spread(
                count,
                _root_totals,
                _groups(start, cut, count),
                t.group_start,
                t.body,
                function,
                neutral,
                rows,
                total,
            )
            _root_carry(
                start, stop, t.source, t.goes_on, t.body, function, neutral, total, carry, out
            )
            spread(
                count,
                _root_apply,
                _groups(start, stop, count),
                t.group_start,
                t.body,
                function,
                rows,
                carry,
                out,
            )
    return out.reshape(shape)


def leaffix(
    tree: Tree,
    values: Numbers,
    op: Callable[..., Any],
    identity: Numbers,
    *,
    inverse: Callable[..., Any] | None = None,
    method: str | None = None,
    variant: str = "blocked",
    block: int = BLOCK,
    threads: int | None = None,
) -> np.ndarray:
    """For each body i: ⊕ over the subtree under i, itself first. Arguments as for `rootfix`.

    By levels and by the Euler tour, bodies count in the tour's order; along heavy paths the
    operator has to be commutative.
    """
    rows, shape = _rows(tree, values)
    how, function, neutral = _prepared(tree, method, op, identity, inverse, rows)
    count = thread_count(threads)
    if how == "euler_tour":
        up = Tour(tree, variant, block, count).leaffix
        return up(rows, function, as_kernel(inverse), neutral, np.empty_like(rows)).reshape(shape)
    out = rows.copy()
    topology = tree.topology
    if how == "levels":
        for band in _bands(topology.level_start, count, up=True):
            spread(
                count,
                _leaf_level,
                band,
                topology.order,
                topology.child_start,
                topology.child,
                function,
                out,
            )
    else:
        t: HeavyPaths = tree.plan.heavy_paths
        total = np.empty((len(t.source), rows.shape[1]), rows.dtype)
        for start, cut, stop in reversed(t.depths):
            hangs = (t.hang_start, t.hang_segment, t.hang_slot)
            spread(
                count,
                _leaf_totals,
                _groups(start, stop, count),
                t.group_start,
                t.body,
                cut,
                *hangs,
                function,
                neutral,
                out,
                total,
            )
            _leaf_carry(start, cut, t.goes_on, function, neutral, total)
            spread(
                count,
                _leaf_apply,
                _groups(start, stop, count),
                t.group_start,
                t.body,
                t.goes_on,
                cut,
                function,
                out,
                total,
            )
    return out.reshape(shape)


def _rows(tree: Tree, values: Numbers) -> tuple[np.ndarray, tuple[int, ...]]:
    array = np.asarray(values)
    if array.ndim < 1 or array.shape[0] != tree.bodies or array.dtype.kind not in "iuf":
        raise InputError(
            f"values is {array.dtype}{array.shape}; needed are numbers, one row for each of"
            f" {tree.bodies} bodies"
        )
    return np.ascontiguousarray(array.reshape(tree.bodies, -1)), array.shape


def _prepared(
    tree: Tree,
    method: str | None,
    op: Callable[..., Any],
    identity: Numbers,
    inverse: Callable[..., Any] | None,
    rows: np.ndarray,
) -> tuple[str, Any, np.ndarray]:
    how = method or ("heavy_path" if tree.plan.method == "heavy_path" else "levels")
    if how not in METHODS:
        raise unknown_name("method", method, METHODS)
    if how == "euler_tour" and inverse is None:
        raise InputError(
            "the Euler tour needs inverse=; by levels or along heavy paths there is no need for one"
        )
    neutral = np.asarray(identity, rows.dtype).reshape(-1)
    if neutral.size not in (1, rows.shape[1]):
        raise InputError(f"identity has {neutral.size} numbers, and a row has {rows.shape[1]}")
    return how, as_kernel(op), np.broadcast_to(neutral, rows.shape[1]).copy()


def _bands(level_start: np.ndarray, threads: int, up: bool) -> list[list[tuple[int, int]]]:
    """Ranges of the breadth-first order, band after band: a wide level in as many parts as threads,
    narrow levels together in one.
    """
    bands: list[list[tuple[int, int]]] = []
    narrow = False
    for a, b in zip(level_start[:-1].tolist(), level_start[1:].tolist(), strict=True):
        if threads > 1 and b - a >= _SPLIT:
            bands.append([(a + x, a + y) for x, y in parts(b - a, threads)])
            narrow = False
        elif narrow:
            bands[-1] = [(bands[-1][0][0], b)]
        else:
            bands.append([(a, b)])
            narrow = True
    return bands[::-1] if up else bands


def _groups(start: int, stop: int, threads: int) -> list[tuple[int, int]]:
    pieces = threads if stop - start >= 64 else 1
    return [(start + a, start + b) for a, b in parts(stop - start, pieces)]


@kernel
def _root_level(
    part: int,
    start: int,
    stop: int,
    order: np.ndarray,
    parents: np.ndarray,
    op: AnyKernel,
    neutral: np.ndarray,
    rows: np.ndarray,
    out: np.ndarray,
) -> None:
    for k in range(start, stop):
        i = order[k]
        op(out[parents[i]] if parents[i] >= 0 else neutral, rows[i], out[i])


@kernel
def _leaf_level(
    part: int,
    start: int,
    stop: int,
    order: np.ndarray,
    child_start: np.ndarray,
    child: np.ndarray,
    op: AnyKernel,
    out: np.ndarray,
) -> None:
    for k in range(stop - 1, start - 1, -1):
        i = order[k]
        for c in range(child_start[i + 1], child_start[i + 2]):
            op(out[i], out[child[c]], out[i])


@kernel
def _root_totals(
    part: int,
    start: int,
    stop: int,
    group_start: np.ndarray,
    body: np.ndarray,
    op: AnyKernel,
    neutral: np.ndarray,
    rows: np.ndarray,
    total: np.ndarray,
) -> None:
    for g in range(start, stop):
        for j in range(W):
            s = g * W + j
            total[s] = neutral
            for p in range(group_start[g], group_start[g + 1]):
                i = body[p * W + j]
                if i >= 0:
                    op(total[s], rows[i], total[s])


@kernel
def _root_carry(
    start: int,
    stop: int,
    source: np.ndarray,
    goes_on: np.ndarray,
    body: np.ndarray,
    op: AnyKernel,
    neutral: np.ndarray,
    total: np.ndarray,
    carry: np.ndarray,
    out: np.ndarray,
) -> None:
    goes = False
    for s in range(start * W, stop * W):
        if goes:
            op(carry[s - 1], total[s - 1], carry[s])
        elif source[s] > 0:
            carry[s] = out[body[source[s] - W]]
        else:
            carry[s] = neutral
        goes = goes_on[s]


@kernel
def _root_apply(
    part: int,
    start: int,
    stop: int,
    group_start: np.ndarray,
    body: np.ndarray,
    op: AnyKernel,
    rows: np.ndarray,
    carry: np.ndarray,
    out: np.ndarray,
) -> None:
    held = np.empty(carry.shape[1], carry.dtype)
    for g in range(start, stop):
        for j in range(W):
            held[:] = carry[g * W + j]
            for p in range(group_start[g], group_start[g + 1]):
                i = body[p * W + j]
                if i >= 0:
                    op(held, rows[i], held)
                    out[i] = held


@kernel
def _leaf_totals(
    part: int,
    start: int,
    stop: int,
    group_start: np.ndarray,
    body: np.ndarray,
    cut: int,
    hang_start: np.ndarray,
    hang_segment: np.ndarray,
    hang_slot: np.ndarray,
    op: AnyKernel,
    neutral: np.ndarray,
    out: np.ndarray,
    total: np.ndarray,
) -> None:
    for g in range(start, stop):
        for h in range(hang_start[g], hang_start[g + 1]):
            i = body[hang_slot[h] - W]
            op(out[i], total[hang_segment[h]], out[i])
        for j in range(W):
            s = g * W + j
            total[s] = neutral
            for p in range(group_start[g + 1] - 1, group_start[g] - 1, -1):
                i = body[p * W + j]
                if i >= 0:
                    if g >= cut:
                        op(out[i], total[s], out[i])
                        total[s] = out[i]
                    else:
                        op(out[i], total[s], total[s])


@kernel
def _leaf_carry(
    start: int, cut: int, goes_on: np.ndarray, op: AnyKernel, neutral: np.ndarray, total: np.ndarray
) -> None:
    """Turns totals of segments into totals from their heads to the ends of their paths."""
    for s in range(cut * W - 1, start * W - 1, -1):
        if goes_on[s]:
            op(total[s], total[s + 1], total[s])


@kernel
def _leaf_apply(
    part: int,
    start: int,
    stop: int,
    group_start: np.ndarray,
    body: np.ndarray,
    goes_on: np.ndarray,
    cut: int,
    op: AnyKernel,
    out: np.ndarray,
    total: np.ndarray,
) -> None:
    """The bodies of cut paths, each segment starting from the total of the next one."""
    for g in range(start, min(stop, cut)):
        for j in range(W):
            last = -1
            s = g * W + j
            for p in range(group_start[g + 1] - 1, group_start[g] - 1, -1):
                i = body[p * W + j]
                if i >= 0:
                    if last >= 0:
                        op(out[i], out[last], out[i])
                    elif goes_on[s]:
                        op(out[i], total[s + 1], out[i])
                    last = i
