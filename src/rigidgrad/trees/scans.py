"""Prefix scans of rows under any associative operator: one after the other, Blelloch's work-efficient one, in blocks, and mapped over components.

An operator is a function op(x, y, out) of rows that writes x ⊕ y into out; it is compiled on first use, and out may be x or y.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rigidgrad.errors import InputError, unknown_name
from rigidgrad.runtime.loops import as_kernel, kernel
from rigidgrad.trees.parallel import parts, spread, thread_count

SCANS = ("native", "work_efficient", "blocked", "mapped")
BLOCK = 64


def scan(
    rows: np.ndarray,
    op: Callable[..., Any],
    identity,
    *,
    variant: str = "blocked",
    block: int = BLOCK,
    exclusive: bool = False,
    threads: int | None = None,
) -> np.ndarray:
    """out[k] = rows[0] ⊕ … ⊕ rows[k] (without rows[k] if exclusive), for rows (M, C).

    variant: native (one loop), work_efficient (up-sweep and down-sweep over a power of two), blocked (blocks of `block` rows on all cores), or mapped (each
    component by itself, for operators that act on components separately, such as vector addition).
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
    if variant == "mapped":
        out = np.empty_like(rows)
        columns = [np.ascontiguousarray(rows[:, k : k + 1]) for k in range(rows.shape[1])]
        results = [np.empty_like(c) for c in columns]

        def one(part: int, start: int, stop: int) -> None:
            for k in range(start, stop):
                _native(columns[k], function, neutral[k : k + 1], results[k], exclusive)

        spread(thread_count(threads), one, parts(len(columns), len(columns)))
        for k, column in enumerate(results):
            out[:, k] = column[:, 0]
        return out
    if variant == "blocked":
        return _blocked_scan(rows, function, neutral, block, exclusive, thread_count(threads))
    out = np.empty_like(rows)
    if variant == "native":
        _native(rows, function, neutral, out, exclusive)
    else:
        size = 1 << (len(rows) - 1).bit_length()
        _work_efficient(rows, function, neutral, np.empty((size, rows.shape[1]), rows.dtype), out, exclusive)
    return out


@kernel
def _native(rows, op, neutral, out, exclusive):
    total = neutral.copy()
    for k in range(len(rows)):
        if exclusive:
            for c in range(rows.shape[1]):
                out[k, c] = total[c]
        op(total, rows[k], total)
        if not exclusive:
            for c in range(rows.shape[1]):
                out[k, c] = total[c]


@kernel
def _work_efficient(rows, op, neutral, tree, out, exclusive):
    """Blelloch (1990): sums up a binary tree, then prefixes down it, in place. The tree has as many rows as the next power of two."""
    size = len(tree)
    for k in range(size):
        for c in range(rows.shape[1]):
            tree[k, c] = rows[k, c] if k < len(rows) else neutral[c]
    step = 1
    while step < size:
        for k in range(2 * step - 1, size, 2 * step):
            op(tree[k - step], tree[k], tree[k])
        step *= 2
    tree[size - 1] = neutral
    held = neutral.copy()
    while step > 1:
        half = step // 2
        for k in range(step - 1, size, step):
            held[:] = tree[k - half]
            tree[k - half] = tree[k]
            op(tree[k], held, tree[k])
        step = half
    for k in range(len(rows)):
        if exclusive:
            out[k] = tree[k]
        else:
            op(tree[k], rows[k], out[k])


def _blocked_scan(rows: np.ndarray, op: Any, neutral: np.ndarray, block: int, exclusive: bool, threads: int) -> np.ndarray:
    out = np.empty_like(rows)
    blocks = -(-len(rows) // block)
    totals = np.empty((blocks, rows.shape[1]), rows.dtype)
    ranges = parts(blocks, threads if len(rows) > 20_000 else 1)
    spread(threads, _block_scans, ranges, rows, op, neutral, block, exclusive, out, totals)
    starts = np.empty_like(totals)
    _native(totals, op, neutral, starts, True)
    spread(threads, _block_applies, ranges, op, block, starts, out)
    return out


@kernel
def _block_scans(part, first, last, rows, op, neutral, block, exclusive, out, totals):
    total = neutral.copy()
    for b in range(first, last):
        total[:] = neutral
        for k in range(b * block, min((b + 1) * block, len(rows))):
            if exclusive:
                out[k] = total
            op(total, rows[k], total)
            if not exclusive:
                out[k] = total
        totals[b] = total


@kernel
def _block_applies(part, first, last, op, block, starts, out):
    for b in range(max(first, 1), last):
        for k in range(b * block, min((b + 1) * block, len(out))):
            op(starts[b], out[k], out[k])
