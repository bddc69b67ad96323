"""RRT-Connect, with many edges at once: two trees grow from start and goals towards random
positions, and towards each other.

J. J. Kuffner and S. M. LaValle, RRT-Connect: an efficient approach to single-query path planning,
2000. An edge is checked as a whole, in lanes, and followed as far as it is free; each round grows
one tree towards several positions, and then the other tree towards what was added.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rigidgrad.planning.edges import Edges
from rigidgrad.planning.space import Space

# positions that a tree grows towards in a round: more when the search turns out to be hard
_FIRST, _WIDEST = (4, 24)
_LEAST = 0.02  # metres that an edge gains at least
_LONGEST = (
    2.5  # metres, by the space's distance, of an edge: a line right across the space is seldom free
)


class Tree:
    """Positions, each with the one that it was reached from."""

    def __init__(self, roots: np.ndarray):
        self.q = np.empty((256, roots.shape[1]))
        self.parents = np.full(256, -1)
        self.count = 0
        self.add(roots, np.full(len(roots), -1))

    def add(self, q: np.ndarray, parents: np.ndarray) -> np.ndarray:
        """The numbers of what is added."""
        last = self.count + len(q)
        while last > len(self.q):
            self.q = np.concatenate([self.q, np.empty_like(self.q)])
            self.parents = np.concatenate([self.parents, np.full_like(self.parents, -1)])
        self.q[self.count : last], self.parents[self.count : last] = q, parents
        first, self.count = self.count, last
        return np.arange(first, last)

    def nearest(self, space: Space, q: np.ndarray) -> np.ndarray:
        """The number of the nearest of its positions to each of q (n, nq)."""
        away = space.difference(self.q[None, : self.count], q[:, None])
        nearest: np.ndarray = (np.abs(away) @ space.weights).argmin(axis=1)
        return nearest

    def branch(self, number: int) -> list[np.ndarray]:
        """From a position back to its root."""
        found = []
        while number >= 0:
            found.append(self.q[number].copy())
            number = int(self.parents[number])
        return found


def straight(edges: Edges, start: np.ndarray, goals: np.ndarray) -> np.ndarray | None:
    """The ends (2, nq) of the shortest free line from the start (nq,) to one of the goals (m, nq),
    or None.
    """
    starts = np.broadcast_to(start, goals.shape)
    free = edges.free(starts, goals)
    if not free.any():
        return None
    k = 0
    if len(goals) > 1:
        k = int(np.where(free, edges.space.distance(starts, goals), np.inf).argmin())
    return np.stack([start, goals[k]])


def connect(
    space: Space,
    edges: Edges,
    start: np.ndarray,
    goals: np.ndarray,
    rng: np.random.Generator,
    more: Callable[[int], bool],
) -> tuple[np.ndarray | None, int]:
    """Corners of a free path (n, nq) from the start (nq,) to one of the goals (m, nq), or None; and
    how many rounds it took.
    """
    trees = [Tree(start[None]), Tree(goals)]
    rounds = 0
    wide = _FIRST
    while more(rounds):
        rounds += 1
        # the smaller tree grows, so that both see the same share of the space
        here, there = sorted((0, 1), key=lambda k: trees[k].count)
        added = _grown(space, edges, trees[here], space.random(rng, wide), longest=_LONGEST)
        if len(added):
            targets = trees[here].q[added]
            near = trees[there].nearest(space, targets)
            part = edges.reached(trees[there].q[near], targets)
            if (part == 1).any():
                k = int(np.flatnonzero(part == 1)[0])
                ends = {
                    here: trees[here].branch(int(added[k])),
                    there: trees[there].branch(int(near[k])),
                }
                return np.array([*reversed(ends[0]), *ends[1]]), rounds
            _keep(space, trees[there], near, targets, part)
        wide = min(_WIDEST, wide + 2)
    return None, rounds


def _grown(
    space: Space, edges: Edges, tree: Tree, targets: np.ndarray, longest: float
) -> np.ndarray:
    near = tree.nearest(space, targets)
    way = space.difference(tree.q[near], targets)
    length = np.abs(way) @ space.weights
    ends = space.moved(
        tree.q[near], np.minimum(1.0, longest / np.maximum(length, 1e-9))[:, None] * way
    )
    return _keep(space, tree, near, ends, edges.reached(tree.q[near], ends))


def _keep(
    space: Space, tree: Tree, near: np.ndarray, ends: np.ndarray, part: np.ndarray
) -> np.ndarray:
    way = space.difference(tree.q[near], ends)
    gained = part * (np.abs(way) @ space.weights) > _LEAST
    if not gained.any():
        return np.zeros(0, np.int64)
    return tree.add(
        space.moved(tree.q[near[gained]], part[gained, None] * way[gained]), near[gained]
    )
