"""Corners left out of a path where straight lines are free."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rigidgrad.planning.edges import Edges
from rigidgrad.planning.space import Space

_MOST = 24  # corners whose lines are all considered
_CUTS = 16  # random points of a round
_CORNER = 0.2  # metres that a corner counts as, as the motion stands still there


def shortened(
    space: Space,
    edges: Edges,
    corners: np.ndarray,
    rng: np.random.Generator,
    rounds: int,
    more: Callable[[], bool],
) -> np.ndarray:
    """The shortest way along free lines between the corners; then in so many rounds between random
    points of the path, too.
    """
    if rounds > 0 and len(corners) > 2:
        number = np.arange(len(corners))
        corners = _best(space, edges, corners, number - 1, number)
    for _ in range(rounds):
        if len(corners) <= 2 or not more():
            break
        corners = _cut(space, edges, corners, rng)
    return corners


def _best(
    space: Space, edges: Edges, points: np.ndarray, came: np.ndarray, goes: np.ndarray
) -> np.ndarray:
    """The corners of the shortest way through some of the points of a path, each of which lies
    between the path's lines `came` and `goes`.

    Lines that look free are candidates; those on the best way are checked in full, and where one is
    not free, the best way without it is next.
    """
    n = len(points)
    first, last = np.triu_indices(n, 1)
    near = last - first <= _MOST
    first, last = first[near], last[near]
    known = goes[first] == came[last]  # on one line of the path, which is free
    cost = np.full((n, n), np.inf)
    length = space.distance(points[first], points[last]) + _CORNER
    open_ = np.flatnonzero(~known)
    possible, way, counts = edges.possible(points[first[open_]], points[last[open_]])
    row = np.full((n, n), -1)  # of a line that is to be checked in full
    row[first[open_], last[open_]] = np.arange(len(open_))
    usable = known.copy()
    usable[open_] = possible
    cost[first[usable], last[usable]] = length[usable]
    while True:
        kept = _shortest(cost)
        a, b = kept[:-1], kept[1:]
        asked = np.flatnonzero(row[a, b] >= 0)
        if not len(asked):
            corners: np.ndarray = points[kept]
            return corners
        a, b = a[asked], b[asked]
        rows = row[a, b]
        free = edges.rest_free(points[a], way[rows], counts[rows])
        row[a, b] = -1
        cost[a[~free], b[~free]] = np.inf


def _shortest(cost: np.ndarray) -> np.ndarray:
    """The way of least cost from the first to the last point (k,), of steps (n, n) forward."""
    n = len(cost)
    best, before = np.zeros(n), np.zeros(n, int)
    for j in range(1, n):
        sums = best[:j] + cost[:j, j]
        before[j] = sums.argmin()
        best[j] = sums[before[j]]
    kept = [n - 1]
    while kept[-1]:
        kept.append(int(before[kept[-1]]))
    return np.array(kept[::-1])


def _cut(space: Space, edges: Edges, corners: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The best way through the corners and points at random places of the lines between them."""
    sizes = space.distance(corners[:-1], corners[1:])
    ends = np.concatenate([[0], np.cumsum(sizes)])
    places = rng.uniform(0, ends[-1], min(_CUTS, 2 * len(corners)))
    k = np.clip(np.searchsorted(ends, places, side="right") - 1, 0, len(sizes) - 1)
    t = (places - ends[k]) / np.maximum(sizes[k], 1e-12)
    between = space.moved(corners[k], t[:, None] * space.difference(corners[k], corners[k + 1]))
    number = np.arange(len(corners))
    order = np.argsort(np.concatenate([ends, places]), kind="stable")
    return _best(
        space,
        edges,
        np.concatenate([corners, between])[order],
        np.concatenate([number - 1, k])[order],
        np.concatenate([number, k])[order],
    )
