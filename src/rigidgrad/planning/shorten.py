"""Corners left out of a path where straight lines are free."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rigidgrad.planning.space import Edges, Space

_MOST = 24  # corners whose lines are all looked at
_CUTS = 16  # lines of a round
_CORNER = 0.2  # metres that a corner counts as, as the motion stands still there


def shortened(
    space: Space, edges: Edges, corners: np.ndarray, rng: np.random.Generator, rounds: int, more: Callable[[], bool]
) -> np.ndarray:
    """The shortest way along free lines between the corners; then in so many rounds between random points of the path, too."""
    corners = _best(space, edges, corners)
    for _ in range(rounds):
        if len(corners) <= 2 or not more():
            break
        corners = _cut(space, edges, corners, rng)
    return corners


def _lengths(space: Space, corners: np.ndarray) -> np.ndarray:
    return space.distance(corners[:-1], corners[1:])


def _best(space: Space, edges: Edges, corners: np.ndarray) -> np.ndarray:
    """The shortest way through corners, each of which may be left out."""
    n = len(corners)
    if n <= 2:
        return corners
    spread = min(n - 1, _MOST)
    pairs = [(i, j) for i in range(n) for j in range(i + 2, min(n, i + spread + 1))]
    first, last = (np.array(x) for x in zip(*pairs, strict=True))
    free = edges.free(corners[first], corners[last])
    length = space.distance(corners[first], corners[last])
    best, came = np.full(n, np.inf), np.zeros(n, int)
    best[0] = 0
    steps = {(k, k + 1): d for k, d in enumerate(_lengths(space, corners))} | {
        p: d for p, d, ok in zip(pairs, length, free, strict=True) if ok
    }
    for j in range(1, n):
        for i in range(max(0, j - spread), j):
            d = steps.get((i, j))
            if d is not None and best[i] + d + _CORNER < best[j]:
                best[j], came[j] = best[i] + d + _CORNER, i
    kept = [n - 1]
    while kept[-1]:
        kept.append(int(came[kept[-1]]))
    return corners[kept[::-1]]


def _cut(space: Space, edges: Edges, corners: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """With points in the middle of lines, at random places, and the best way through all of them."""
    sizes = _lengths(space, corners)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    places = np.unique(np.concatenate([ends, rng.uniform(0, ends[-1], min(_CUTS, 2 * len(corners)))]))
    k = np.clip(np.searchsorted(ends, places, side="right") - 1, 0, len(sizes) - 1)
    t = (places - ends[k]) / np.maximum(sizes[k], 1e-12)
    points = space.moved(corners[k], t[:, None] * space.difference(corners[k], corners[k + 1]))
    points[0], points[-1] = corners[0], corners[-1]
    return _best(space, edges, points)
