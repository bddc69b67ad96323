"""The shape of a tree: order, depth, subtree sizes, the Euler tour, heavy paths. No recursion, so a
chain of millions is fine.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rigidgrad.errors import InputError, ModelError
from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.parallel import parts, spread, thread_count

if TYPE_CHECKING:
    from rigidgrad.runtime.arrays import Numbers

_SPLIT = 50_000  # bodies in a level from which on threads are worth their call


class Topology:
    """A forest from its parent array: parents[i] is the parent of body i, -1 the world. Bodies may
    be numbered in any order.
    """

    def __init__(self, parents: Numbers) -> None:
        self.parents = _checked(parents)
        self.parents.setflags(write=False)
        n = len(self.parents)
        # children of body i: child[child_start[i + 1] : child_start[i + 2]]; of the world: from 0
        self.child_start = np.zeros(n + 2, np.int64)
        self.child = np.empty(n, np.int32)
        _children(self.parents, self.child_start, np.empty(n + 1, np.int64), self.child)
        # breadth first: parents before children, siblings side by side
        self.order = np.empty(n, np.int32)
        starts = np.empty(n + 1, np.int64)
        found, count = _breadth_first(self.child_start, self.child, self.order, starts)
        if found < n:
            outside = np.ones(n, bool)
            outside[self.order[:found]] = False
            raise ModelError(
                f"the parents form no tree: body {int(np.flatnonzero(outside)[0])} is its own"
                " ancestor, or hangs below one that is; every body must lead to a root (parent -1)"
            )
        self.level_start = starts[: count + 1].copy()  # of level l in `order`

    @property
    def bodies(self) -> int:
        return len(self.parents)

    @property
    def levels(self) -> int:
        return len(self.level_start) - 1

    @cached_property
    def roots(self) -> np.ndarray:
        return self.order[: self.level_start[1]]

    @cached_property
    def ordered(self) -> bool:
        """Whether every body comes after its parent, as in most models."""
        return bool(np.all(self.parents < np.arange(self.bodies)))

    @cached_property
    def depth(self) -> np.ndarray:
        """Bodies between a body and the world: 0 for a root."""
        result = np.empty(self.bodies, np.int32)
        result[self.order] = np.repeat(
            np.arange(self.levels, dtype=np.int32), np.diff(self.level_start)
        )
        return result

    @cached_property
    def size(self) -> np.ndarray:
        """Bodies in the subtree under a body, itself included."""
        result = np.ones(self.bodies, np.int64)
        _sizes(self.parents, self.order, result)
        return result

    @cached_property
    def tour(self) -> tuple[np.ndarray, np.ndarray]:
        """The Euler tour (lp, rp): when each body is entered first and left last, of 2·bodies steps
        (Blelloch 1990).
        """
        return self.euler_tour()

    def euler_tour(self, threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(lp, rp), level by level; the bodies of a wide level are shared by threads."""
        count = thread_count(threads)
        lp, rp = np.empty(self.bodies, np.int64), np.empty(self.bodies, np.int64)
        size, start = self.size, self.level_start
        _enter_roots(self.child_start, self.child, size, lp, rp)
        level = 0
        while level < self.levels - 1:
            last = level + 1
            tables = self.order, self.child_start, self.child, size, lp, rp
            if count > 1 and start[last] - start[level] >= _SPLIT:
                first = int(start[level])
                ranges = [(first + a, first + b) for a, b in parts(int(start[last]) - first, count)]
                spread(count, _enter, ranges, *tables)
            else:  # narrow levels, which may be many, in one call
                while last < self.levels - 1 and (
                    count == 1 or start[last + 1] - start[last] < _SPLIT
                ):
                    last += 1
                _enter(0, start[level], start[last], *tables)
            level = last
        return lp, rp

    def path(self, body: int) -> np.ndarray:
        """The bodies from a root to `body`, both included."""
        if not 0 <= body < self.bodies:
            raise InputError(f"there is no body {body}; there are 0 to {self.bodies - 1}")
        result = np.empty(self.depth[body] + 1, np.int32)
        for k in range(len(result) - 1, -1, -1):
            result[k], body = body, self.parents[body]
        return result

    @cached_property
    def heavy_child(self) -> np.ndarray:
        """The child with the largest subtree, -1 for a leaf."""
        result = np.full(self.bodies, -1, np.int32)
        _heavy(self.parents, self.order, self.size, result)
        return result


def _checked(parents: Numbers) -> np.ndarray:
    try:
        given = np.asarray(parents)
    except (TypeError, ValueError) as error:
        raise InputError(f"parents is a list of whole numbers: {error}") from None
    if given.ndim != 1 or given.size == 0:
        raise InputError(
            f"parents has shape {given.shape}; needed is one number for each of at least one body"
        )
    if given.dtype.kind not in "iu":
        raise InputError(f"parents holds {given.dtype}, not whole numbers")
    if given.size >= 2**31 - 1:
        raise InputError(f"{given.size} bodies are too many: at most {2**31 - 2}")
    bad = np.flatnonzero((given < -1) | (given >= given.size))
    if bad.size:
        i = int(bad[0])
        raise ModelError(
            f"body {i} has parent {int(given[i])}; parents are -1 (the world) to {given.size - 1}"
        )
    return np.ascontiguousarray(given, np.int32).copy()


@kernel
def _children(parents: np.ndarray, start: np.ndarray, fill: np.ndarray, child: np.ndarray) -> None:
    n = len(parents)
    for i in range(n):
        start[parents[i] + 2] += 1
    for i in range(1, n + 2):
        start[i] += start[i - 1]
    for i in range(n + 1):
        fill[i] = start[i]
    for i in range(n):
        p = parents[i] + 1
        child[fill[p]] = i
        fill[p] += 1


@kernel
def _breadth_first(
    start: np.ndarray, child: np.ndarray, order: np.ndarray, level_start: np.ndarray
) -> tuple[int, int]:
    found = 0
    for k in range(start[0], start[1]):
        order[found] = child[k]
        found += 1
    level = 0
    level_start[0] = 0
    begin = 0
    while begin < found:
        level += 1
        level_start[level] = found
        end = found
        for k in range(begin, end):
            i = order[k]
            for c in range(start[i + 1], start[i + 2]):
                order[found] = child[c]
                found += 1
        begin = end
    return found, level


@kernel
def _sizes(parents: np.ndarray, order: np.ndarray, size: np.ndarray) -> None:
    for k in range(len(order) - 1, -1, -1):
        i = order[k]
        if parents[i] >= 0:
            size[parents[i]] += size[i]


@kernel
def _enter_roots(
    start: np.ndarray, child: np.ndarray, size: np.ndarray, lp: np.ndarray, rp: np.ndarray
) -> None:
    time = 0
    for k in range(start[0], start[1]):
        i = child[k]
        lp[i] = time
        time += 2 * size[i]
        rp[i] = time - 1


@kernel
def _enter(
    part: int,
    begin: int,
    end: int,
    order: np.ndarray,
    start: np.ndarray,
    child: np.ndarray,
    size: np.ndarray,
    lp: np.ndarray,
    rp: np.ndarray,
) -> None:
    for k in range(begin, end):
        i = order[k]
        time = lp[i] + 1
        for c in range(start[i + 1], start[i + 2]):
            j = child[c]
            lp[j] = time
            time += 2 * size[j]
            rp[j] = time - 1


@kernel
def _heavy(parents: np.ndarray, order: np.ndarray, size: np.ndarray, heavy: np.ndarray) -> None:
    for k in range(len(order)):
        i = order[k]
        p = parents[i]
        if p >= 0 and (heavy[p] < 0 or size[i] > size[heavy[p]]):
            heavy[p] = i
