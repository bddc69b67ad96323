"""How a tree is walked, worked out once: bodies sorted into packs of eight, packs into tasks that
fit a core's cache, tasks into strata.

The tree is cut from the leaves up into subtrees of some hundreds or thousands of bodies; what
remains is cut again, and so on: these are the strata. A stratum's subtrees know nothing of each
other. Neighbouring ones share a task, in which bodies are sorted by level, so that neighbours are
one step of the walk. The lowest stratum, usually most of the tree, goes down and up again while its
numbers are in the cache.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.heavy_paths import HeavyPaths, heavy_paths
from rigidgrad.trees.lanes import W
from rigidgrad.trees.topology import Topology

Kept = TypeVar("Kept")

SUBTREE = 128, 8192  # bodies: least and most of what `_sizes` may choose
TASK = 1024  # bodies at least, where there are enough
LINE = 64  # bytes of a cache line
SMALL = 1024  # bodies under which a plain loop is faster than any plan


class Levels(NamedTuple):
    """Tables of the walk by levels. A task's workspace has packs for the parents of its roots
    (entries) first, then one a body pack.
    """

    strata: list[tuple[int, int]]  # ranges of tasks, the root's first
    pack_start: np.ndarray  # (tasks + 1,) body packs of a task
    entry_start: np.ndarray  # (tasks + 1,) entry packs of a task
    # (tasks,) where a task's workspace starts among all, in packs; pack 0 is the world; those of
    # the lowest stratum come last
    home: np.ndarray
    upper_packs: int  # without the lowest stratum's workspaces
    all_packs: int
    largest: int  # packs of the largest workspace in the lowest stratum
    ring: int  # packs, a power of two, that hold two successive levels of any task there
    body: np.ndarray  # (packs·W,) which body sits in a slot, -1 for padding
    parent: np.ndarray  # (packs·W,) its parent's slot in the task's workspace, -1 for padding
    leaf: np.ndarray  # (packs,) whether nothing hangs on any body of a pack
    # (entry packs·W,) where an entry's body sits among the upper workspaces; 0, the world, for
    # padding
    source: np.ndarray
    hang_start: np.ndarray  # (tasks + 1,) the entries of other tasks that hang on a task's bodies
    hang_entry: np.ndarray
    hang_slot: np.ndarray  # … and on which slot among the upper workspaces


class Plan:
    """All that is worked out once for a tree, made when first needed, and workspaces that calls
    reuse.
    """

    def __init__(self, topology: Topology, data: np.ndarray) -> None:
        self.topology = topology
        self._data = data
        self._kept: dict[tuple[Any, ...], Any] = {}
        self._idle: dict[Any, list[np.ndarray]] = {}
        self._guard = threading.Lock()

    @cached_property
    def method(self) -> str:
        """The walk for this shape: a plain loop for few bodies; by levels if they are wide enough
        to fill lanes, else along heavy paths.
        """
        if self.topology.bodies < SMALL:
            return "sequential"
        return "levels" if self.topology.bodies >= 2 * W * self.topology.levels else "heavy_path"

    @cached_property
    def levels(self) -> Levels:
        return _levels(self.topology)

    @cached_property
    def heavy_paths(self) -> HeavyPaths:
        return heavy_paths(self.topology)

    @cached_property
    def preorder(self) -> np.ndarray:
        """Bodies in depth-first order."""
        result = np.empty(self.topology.bodies, np.int32)
        result[(self.topology.tour[0] + self.topology.depth) // 2] = np.arange(
            self.topology.bodies, dtype=np.int32
        )
        return result

    def rows(self, dtype: Any) -> np.ndarray:
        """The bodies' numbers (N, 24) in a dtype."""
        return (
            self._data
            if self._data.dtype == dtype
            else self.kept(("rows", np.dtype(dtype).name), lambda: _fixed(self._data.astype(dtype)))
        )

    def packed(self, kind: str, dtype: Any) -> np.ndarray:
        """The bodies' numbers in packs, in the order of a walk; padding has no mass, and no
        transform along heavy paths.
        """
        what = np.dtype(dtype)
        return self.kept(
            (kind, what.name),
            lambda: _fixed(
                pack(self._data, getattr(self, kind).body, what, identity=kind == "heavy_paths")
            ),
        )

    def kept(self, key: tuple[Any, ...], make: Callable[[], Kept]) -> Kept:
        """What `make` gave when it was first needed."""
        found: Kept | None = self._kept.get(key)
        if found is None:
            found = self._kept[key] = make()
        return found

    @contextmanager
    def workspace(self, shape: tuple[int, ...], dtype: Any) -> Iterator[np.ndarray]:
        """An array that an earlier call may have used: fresh memory costs more than the dynamics in
        it.
        """
        key = shape, np.dtype(dtype).name
        with self._guard:
            idle = self._idle.setdefault(key, [])
            array = idle.pop() if idle else None
        if array is None:
            array = aligned(shape, dtype)
        try:
            yield array
        finally:
            with self._guard:
                if len(idle) < 2:
                    idle.append(array)

    def release(self) -> None:
        """Gives back the memory that is kept between calls."""
        with self._guard:
            self._idle.clear()


def _fixed(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Zeros that start at a cache line, so that no vector crosses two."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.zeros(size + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    found: np.ndarray = raw[start : start + size].view(dtype).reshape(shape)
    return found


def pack(data: np.ndarray, body: np.ndarray, dtype: np.dtype, *, identity: bool) -> np.ndarray:
    result = aligned((len(body) // W, data.shape[1], W), dtype)
    _fill(data, body, result, identity)
    return result


@kernel
def _fill(data: np.ndarray, body: np.ndarray, result: np.ndarray, identity: bool) -> None:
    for slot in range(len(body)):
        i = body[slot]
        if i >= 0:
            for k in range(data.shape[1]):
                result[slot // W, k, slot % W] = data[i, k]
        elif identity:
            for k in range(0, 9, 4):
                result[slot // W, k, slot % W] = 1


@kernel
def world(motion: np.ndarray, base: np.ndarray) -> None:
    """What the roots stand on, in the first pack of motions."""
    for k in range(len(base)):
        for j in range(W):
            motion[0, k, j] = base[k]


def packed_weights(armature: np.ndarray, body: np.ndarray) -> np.ndarray:
    """Armature (packs, 1, W); 1 for padding, whose joint must not move anything."""
    result = aligned((len(body) // W, 1, W), armature.dtype)
    result.reshape(-1)[:] = np.where(body < 0, 1, armature[np.maximum(body, 0)])
    return result


def _sizes(bodies: int, leaves: int) -> tuple[int, int]:
    """Most bodies of a subtree and of a task. If each level has (1 + x) times the bodies of the one
    above, x being the share of leaves, the share of bodies above subtrees of S bodies is 1 / (1 + x
    S): it is kept near an eightieth where caches and threads allow it.
    """
    subtree = min(max(SUBTREE[0], min(80 * bodies // leaves, bodies // 16)), SUBTREE[1])
    return subtree, max(TASK, 2 * subtree)


def _levels(topology: Topology) -> Levels:
    n = topology.bodies
    parents, order = topology.parents, topology.order
    stratum, local, weight = np.zeros(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    is_leaf = np.diff(topology.child_start[1:]) == 0
    subtree, limit = _sizes(n, int(np.count_nonzero(is_leaf)))
    _strata(
        parents,
        order,
        subtree,
        stratum,
        local,
        weight,
        np.zeros(n, np.int32),
        np.zeros(n, np.int64),
    )
    roots = order[local[order] == 0]
    roots = roots[np.argsort(-stratum[roots], kind="stable")]
    task = np.empty(n, np.int32)
    tasks = _tasks(parents, order, roots, stratum, weight, local, limit, task)
    # bodies by task, then level, then leaves last, then breadth first
    level = task[order].astype(np.int64) << 32 | local[order].astype(np.int64) << 1 | is_leaf[order]
    ranked = order[np.argsort(level, kind="stable")]
    first = np.empty(n, bool)
    key = task[ranked].astype(np.int64) << 32 | local[ranked].astype(np.int64)
    first[0], first[1:] = True, key[1:] != key[:-1]
    starts = np.append(np.flatnonzero(first), n)
    widths = np.diff(starts)
    padded = -(-widths // W) * W
    slot_of_rank = np.repeat(np.cumsum(padded) - padded - starts[:-1], widths) + np.arange(n)
    packs = int(padded.sum()) // W
    body = np.full(packs * W, -1, np.int32)
    body[slot_of_rank] = ranked
    leaf = np.ones(packs * W, bool)
    leaf[slot_of_rank] = is_leaf[ranked]
    slot = np.empty(n, np.int64)
    slot[ranked] = slot_of_rank
    level_task = task[ranked[starts[:-1]]]
    pack_start = np.concatenate(
        [[0], np.cumsum(np.bincount(level_task, padded // W, tasks).astype(np.int64))]
    )
    roots_level = local[ranked[starts[:-1]]] == 0
    entry_start = np.concatenate(
        [
            [0],
            np.cumsum(
                np.bincount(level_task[roots_level], padded[roots_level] // W, tasks).astype(
                    np.int64
                )
            ),
        ]
    )
    task_stratum = np.empty(tasks, np.int32)
    task_stratum[task] = stratum
    entry_packs = np.diff(entry_start)
    size = np.diff(pack_start) + entry_packs
    upper = task_stratum > 0
    home = 1 + np.cumsum(size) - size
    # slots in workspaces
    # of a body within its task's workspace
    place = slot - pack_start[task] * W + entry_packs[task] * W
    parent = np.full(packs * W, -1, np.int32)
    inner = local > 0
    parent[slot[inner]] = place[parents[inner]]
    root = ~inner
    # the k-th root's entry is the k-th
    parent[slot[root]] = slot[root] - pack_start[task[root]] * W
    entry = np.full(n, -1, np.int64)
    entry[root] = entry_start[task[root]] * W + parent[slot[root]]
    source = np.zeros(int(entry_start[-1]) * W, np.int64)
    hanging = order[root[order] & (parents[order] >= 0)]
    holder = parents[hanging]
    where = home[task[holder]] * W + place[holder]
    source[entry[hanging]] = where
    by_task = np.argsort(task[holder], kind="stable")
    hang_start = np.concatenate([[0], np.cumsum(np.bincount(task[holder], minlength=tasks))])
    strata_of_tasks = np.flatnonzero(
        np.concatenate([[True], task_stratum[1:] != task_stratum[:-1], [True]])
    )
    strata = [(int(a), int(b)) for a, b in itertools.pairwise(strata_of_tasks)]
    return Levels(
        strata,
        pack_start,
        entry_start,
        home,
        1 + int(size[upper].sum()),
        1 + int(size.sum()),
        int(size[~upper].max()),
        1 << int(2 * max(padded.max() // W, entry_packs.max()) - 1).bit_length(),
        body,
        parent,
        np.asarray(leaf.reshape(packs, W).all(axis=1)),
        source,
        hang_start,
        entry[hanging][by_task],
        where[by_task],
    )


@kernel
def _strata(
    parents: np.ndarray,
    order: np.ndarray,
    limit: int,
    stratum: np.ndarray,
    local: np.ndarray,
    weight: np.ndarray,
    top: np.ndarray,
    below: np.ndarray,
) -> None:
    """Cuts subtrees of at most `limit` bodies from the leaves up. `local` is a body's depth in its
    subtree, `weight` the bodies under it there.

    `top` and `below` are zeros to begin with.
    """
    n = len(order)
    for k in range(n - 1, -1, -1):
        i = order[k]
        s, w = top[i], below[i] + 1
        if w > limit:
            s, w = s + 1, 1
        stratum[i], weight[i] = s, w
        p = parents[i]
        if p >= 0:
            if s > top[p]:
                top[p], below[p] = s, w
            elif s == top[p]:
                below[p] += w
    for k in range(n):
        i = order[k]
        p = parents[i]
        local[i] = local[p] + 1 if p >= 0 and stratum[p] == stratum[i] else 0


@kernel
def _tasks(
    parents: np.ndarray,
    order: np.ndarray,
    roots: np.ndarray,
    stratum: np.ndarray,
    weight: np.ndarray,
    local: np.ndarray,
    limit: int,
    task: np.ndarray,
) -> int:
    """Shares out subtrees, given by their roots, to tasks of at most `limit` bodies (or one
    subtree); how many there are.
    """
    count, filled, last = 0, 0, -1
    for k in range(len(roots)):
        i = roots[k]
        if last >= 0 and (stratum[i] != last or filled + weight[i] > limit):
            count, filled = count + 1, 0
        task[i] = count
        filled += weight[i]
        last = stratum[i]
    for k in range(len(order)):
        i = order[k]
        if local[i] > 0:
            task[i] = task[parents[i]]
    return count + 1
