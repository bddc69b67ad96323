"""Prefix scans of rows under any associative operator: in chunks, Blelloch's work-efficient one, in
blocks, and mapped over components; all of them on all cores.

An operator is a function op(x, y, out) of rows that writes x ⊕ y into out; it is compiled on first
use, and out may be x or y.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.errors import InputError, unknown_name
from rigidgrad.runtime.loops import AnyKernel, as_kernel, kernel
from rigidgrad.trees.lane_rows import lane_row, put_lane, put_lane_rows
from rigidgrad.trees.lanes import width
from rigidgrad.trees.parallel import parts, spread, thread_count

if TYPE_CHECKING:
    from rigidgrad.runtime.arrays import Numbers

SCANS = ("native", "work_efficient", "blocked", "mapped")
BLOCK = 64
_THREADED = 20_000  # rows from which on threads are worth their calls
_SUM = 0.5  # time of adding a row up, in lanes, relative to scanning it
_SUBTREE = 256  # leaves of a subtree that a thread sweeps while it is in the cache; a power of two
_STRIP = 256  # rows that a thread scans component by component while they are in the cache


def scan(
    rows: np.ndarray,
    op: Callable[..., Any],
    identity: Numbers,
    *,
    variant: str = "blocked",
    block: int = BLOCK,
    exclusive: bool = False,
    threads: int | None = None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """out[k] = rows[0] ⊕ … ⊕ rows[k] (without rows[k] if exclusive), for rows (M, C).

    variant: native (one loop; with threads, one chunk each, and one more), work_efficient (up-sweep
    and down-sweep over a power of two), blocked (blocks of `block` rows), or mapped (each component
    by itself, for operators that act on components separately, such as vector addition). op(x, y,
    out) writes x ⊕ y into out; `identity` is what changes nothing; `threads`: all cores unless
    given. Results of "native" depend on the number of threads in their last digits. `out` may be
    `rows`.
    """
    if variant not in SCANS:
        raise unknown_name("scan", variant, SCANS)
    if block < 1:
        raise InputError(f"a block has at least one row, not {block}")
    rows = np.ascontiguousarray(rows)
    if rows.ndim != 2:
        raise InputError(f"rows have shape (M, C), not {rows.shape}")
    neutral = np.broadcast_to(np.asarray(identity, rows.dtype), rows.shape[1:]).copy()
    function = as_kernel(op)
    count = thread_count(threads) if len(rows) > _THREADED else 1
    if out is None:
        out = np.empty_like(rows)
    elif (out.shape, out.dtype, out.flags.c_contiguous) != (rows.shape, rows.dtype, True):
        raise InputError(
            f"out is {out.dtype}{out.shape}; needed is a contiguous {rows.dtype}{rows.shape}"
        )
    if not len(rows):
        return out
    if variant == "native":
        _in_chunks(rows, function, neutral, exclusive, out, count)
    elif variant == "work_efficient":
        _swept(rows, function, neutral, exclusive, out, count)
    elif variant == "blocked":
        _in_blocks(rows, function, neutral, block, exclusive, out, count)
    else:
        ranges = parts(rows.shape[1], min(count, rows.shape[1]))
        spread(count, _components, ranges, rows, function, neutral, exclusive, out)
    return out


# --- native: chunk 0 is scanned while chunks 1 … p - 1 are added up; then all others are scanned,
# each from the sum of those before it. Where adding up takes r times as long as scanning, p threads
# take (1 + r)/(p + r) of one loop's time. No way needs fewer than 2/(p + 1) of its operations (Snir
# 1986); but sums, unlike scans, can be formed in lanes, and write nothing: r is about a half


def _in_chunks(
    rows: np.ndarray, op: Any, neutral: np.ndarray, exclusive: bool, out: np.ndarray, threads: int
) -> None:
    cuts = _chunks(len(rows), threads)
    starts = np.tile(neutral, (threads + 1, 1))
    totals = np.empty_like(starts)
    tables = cuts, rows, op, starts, exclusive, out, totals
    lanes = threads > 1 and _adds_up_in_lanes(op, rows, neutral)
    first = _first_chunks_in_lanes if lanes else _first_chunks
    spread(threads, first, [(c, c + 1) for c in range(threads)], *tables)
    if threads > 1:
        _scan_rows(totals, 0, threads, op, neutral.copy(), True, starts)
        op(starts[threads - 1], totals[threads - 1], starts[threads])
        spread(threads, _later_chunks, [(c, c + 1) for c in range(1, threads + 1)], *tables)


def _chunks(count: int, threads: int) -> np.ndarray:
    """Where chunks begin and end: the first is as long as adding up the next ones takes."""
    if threads == 1:
        return np.array([0, count])
    size = count / (threads + _SUM)
    return np.append(0, count - np.round(size * np.arange(threads, -1, -1)).astype(np.int64))


@kernel
def _first_chunks(
    part: int,
    first: int,
    last: int,
    cuts: np.ndarray,
    rows: np.ndarray,
    op: AnyKernel,
    starts: np.ndarray,
    exclusive: bool,
    out: np.ndarray,
    totals: np.ndarray,
) -> None:
    later = starts[0].copy()
    for c in range(first, last):
        total = totals[c]
        total[:] = starts[c]
        if c == 0:
            _scan_rows(rows, cuts[c], cuts[c + 1], op, total, exclusive, out)
        else:
            # both halves at once: a step of one need not wait for that of the other
            half = (cuts[c + 1] - cuts[c]) // 2
            for k in range(cuts[c], cuts[c] + half):
                op(total, rows[k], total)
                op(later, rows[k + half], later)
            op(total, later, total)
            if cuts[c] + 2 * half < cuts[c + 1]:
                op(total, rows[cuts[c + 1] - 1], total)


@kernel
def _first_chunks_in_lanes(
    part: int,
    first: int,
    last: int,
    cuts: np.ndarray,
    rows: np.ndarray,
    op: AnyKernel,
    starts: np.ndarray,
    exclusive: bool,
    out: np.ndarray,
    totals: np.ndarray,
) -> None:
    for c in range(first, last):
        totals[c] = starts[c]
        if c == 0:
            _scan_rows(rows, cuts[c], cuts[c + 1], op, totals[c], exclusive, out)
        else:
            _add_up(rows[cuts[c] : cuts[c + 1]], op, starts[0], totals[c])


@kernel
def _add_up(rows: np.ndarray, op: AnyKernel, neutral: np.ndarray, total: np.ndarray) -> None:
    """total ⊕ all rows: a part of them in each lane, then lane after lane."""
    sums, here, held = lane_row(neutral), lane_row(neutral), neutral.copy()
    lanes = width(rows)
    apart = len(rows) // lanes
    for k in range(apart):
        put_lane_rows(here, rows, k, apart)
        op(sums, here, sums)
    for j in range(lanes):
        put_lane(held, sums, j)
        op(total, held, total)
    for k in range(lanes * apart, len(rows)):
        op(total, rows[k], total)


def _adds_up_in_lanes(op: Any, rows: np.ndarray, neutral: np.ndarray) -> bool:
    """Whether an operator can be compiled for lanes, tried once for a dtype."""
    if rows.dtype.kind != "f":
        return False
    known = _in_lanes.setdefault(op, {})
    key = rows.dtype, rows.flags.c_contiguous
    if key not in known:
        try:
            _add_up(rows[:8], op, neutral, neutral.copy())
            known[key] = True
        except Exception:  # whatever stops it: rows of numbers do
            known[key] = False
    return known[key]


_in_lanes: weakref.WeakKeyDictionary[Any, dict[Any, bool]] = weakref.WeakKeyDictionary()


@kernel
def _later_chunks(
    part: int,
    first: int,
    last: int,
    cuts: np.ndarray,
    rows: np.ndarray,
    op: AnyKernel,
    starts: np.ndarray,
    exclusive: bool,
    out: np.ndarray,
    totals: np.ndarray,
) -> None:
    for c in range(first, last):
        _scan_rows(rows, cuts[c], cuts[c + 1], op, starts[c], exclusive, out)


@kernel
def _scan_rows(
    rows: np.ndarray,
    start: int,
    stop: int,
    op: AnyKernel,
    total: np.ndarray,
    exclusive: bool,
    out: np.ndarray,
) -> None:
    """Rows start … stop, from a total, which becomes that of all."""
    if exclusive:
        held = total.copy()
        for k in range(start, stop):
            held[:] = rows[k]
            out[k] = total
            op(total, held, total)
    else:
        for k in range(start, stop):
            op(total, rows[k], total)
            out[k] = total


# --- work-efficient


def _swept(
    rows: np.ndarray, op: Any, neutral: np.ndarray, exclusive: bool, out: np.ndarray, threads: int
) -> None:
    """Blelloch (1990): sums up a binary tree, then prefixes down it, in place. The tree has as many
    leaves as the next power of two; those beyond the last row are neutral and seldom touched.

    Every subtree of some hundred leaves is swept up, and later down, by one thread while it is in
    the cache; the levels above them, few nodes, by one thread. That changes the order in which
    nodes are computed, and no number.
    """
    block = min(_SUBTREE, 1 << (len(rows) - 1).bit_length())
    blocks = -(-len(rows) // block)
    # sums of subtrees, then what comes before each, and at last what all are
    tops = np.tile(neutral, ((1 << (blocks - 1).bit_length()) + 1, 1))
    rest = np.tile(neutral, (block, 1))  # the last subtree, where rows end in its middle
    ranges = parts(blocks, 4 * threads if threads > 1 else 1)
    spread(threads, _up, ranges, rows, op, out, rest, tops)
    _across(op, neutral, tops)
    spread(threads, _down, ranges, op, neutral, exclusive, out, rest, tops)


@kernel
def _up(
    part: int,
    first: int,
    last: int,
    rows: np.ndarray,
    op: AnyKernel,
    out: np.ndarray,
    rest: np.ndarray,
    tops: np.ndarray,
) -> None:
    block = len(rest)
    for b in range(first, last):
        start, stop = b * block, min((b + 1) * block, len(rows))
        own = out[start:stop]
        if stop - start < block:
            own = rest[0:block]
        for k in range(stop - start):
            own[k] = rows[start + k]
        _sweep_up(op, own)
        tops[b] = own[block - 1]


@kernel
def _across(op: AnyKernel, neutral: np.ndarray, tops: np.ndarray) -> None:
    size = len(tops) - 1
    tree = tops[0:size]
    _sweep_up(op, tree)
    tops[size] = tree[size - 1]
    tree[size - 1] = neutral
    _sweep_down(op, neutral, tree)


@kernel
def _down(
    part: int,
    first: int,
    last: int,
    op: AnyKernel,
    neutral: np.ndarray,
    exclusive: bool,
    out: np.ndarray,
    rest: np.ndarray,
    tops: np.ndarray,
) -> None:
    block = len(rest)
    for b in range(first, last):
        start, stop = b * block, min((b + 1) * block, len(out))
        own = out[start:stop]
        if stop - start < block:
            own = rest[0:block]
        own[block - 1] = tops[b]
        _sweep_down(op, neutral, own)
        if exclusive:
            if stop - start < block:
                for k in range(stop - start):
                    out[start + k] = own[k]
        else:  # what comes before the next row
            for k in range(stop - start - 1):
                out[start + k] = own[k + 1]
            if stop - start < block:
                out[stop - 1] = own[stop - start]
            else:
                out[stop - 1] = tops[b + 1]


@kernel
def _sweep_up(op: AnyKernel, tree: np.ndarray) -> None:
    """Node k of a level of nodes `step` apart becomes the sum of its two."""
    step = 1
    while step < len(tree):
        for k in range(2 * step - 1, len(tree), 2 * step):
            op(tree[k - step], tree[k], tree[k])
        step *= 2


@kernel
def _sweep_down(op: AnyKernel, neutral: np.ndarray, tree: np.ndarray) -> None:
    """A node hands on what comes before it: as it is to its left, with the left's sum to its
    right.
    """
    held = neutral.copy()
    step = len(tree)
    while step > 1:
        half = step // 2
        for k in range(step - 1, len(tree), step):
            held[:] = tree[k - half]
            tree[k - half] = tree[k]
            op(tree[k], held, tree[k])
        step = half


# --- blocked, mapped


def _in_blocks(
    rows: np.ndarray,
    op: Any,
    neutral: np.ndarray,
    block: int,
    exclusive: bool,
    out: np.ndarray,
    threads: int,
) -> None:
    blocks = -(-len(rows) // block)
    totals = np.empty((blocks, rows.shape[1]), rows.dtype)
    ranges = parts(blocks, threads)
    spread(threads, _block_scans, ranges, rows, op, neutral, block, exclusive, out, totals)
    starts = np.empty_like(totals)
    _scan_rows(totals, 0, blocks, op, neutral.copy(), True, starts)
    spread(threads, _block_applies, ranges, op, block, starts, out)


@kernel
def _block_scans(
    part: int,
    first: int,
    last: int,
    rows: np.ndarray,
    op: AnyKernel,
    neutral: np.ndarray,
    block: int,
    exclusive: bool,
    out: np.ndarray,
    totals: np.ndarray,
) -> None:
    for b in range(first, last):
        totals[b] = neutral
        _scan_rows(rows, b * block, min((b + 1) * block, len(rows)), op, totals[b], exclusive, out)


@kernel
def _block_applies(
    part: int, first: int, last: int, op: AnyKernel, block: int, starts: np.ndarray, out: np.ndarray
) -> None:
    for b in range(max(first, 1), last):
        for k in range(b * block, min((b + 1) * block, len(out))):
            op(starts[b], out[k], out[k])


@kernel
def _components(
    part: int,
    first: int,
    last: int,
    rows: np.ndarray,
    op: AnyKernel,
    neutral: np.ndarray,
    exclusive: bool,
    out: np.ndarray,
) -> None:
    totals = neutral.copy()
    for start in range(0, len(rows), _STRIP):
        stop = min(start + _STRIP, len(rows))
        for c in range(first, last):
            column, to = rows[:, c : c + 1], out[:, c : c + 1]
            _scan_rows(column, start, stop, op, totals[c : c + 1], exclusive, to)
