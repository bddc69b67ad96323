"""Heavy paths as a device walks them: segments one after the other, by light depth, those of a path
side by side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rigidgrad.trees.lanes import W
from rigidgrad.trees.tree import Tree


class Depth(NamedTuple):
    """Segments first … last - 1, those of paths with several before `cut`; paths path … path_end -
    1.
    """

    first: int
    cut: int
    last: int
    path: int
    path_end: int


class Segments(NamedTuple):
    segment_start: np.ndarray  # (segments + 1,) in `body`
    body: np.ndarray  # (N,)
    path_start: np.ndarray  # (paths + 1,) segments
    above: np.ndarray  # (paths,) the body that a path hangs on, -1 for the world
    starts_path: np.ndarray  # (segments,) whether a segment is its path's first
    depths: list[Depth]


def segments_of(tree: Tree) -> Segments:
    t = tree.plan.heavy_paths
    packs = np.arange(int(t.group_start[-1]))
    group = np.searchsorted(t.group_start, packs, side="right") - 1
    step = np.repeat(packs - t.group_start[group], W)
    segment = np.repeat(group * W, W) + np.tile(np.arange(W), len(packs))
    used = np.flatnonzero(t.body >= 0)
    used = used[np.lexsort((step[used], segment[used]))]
    body = t.body[used]
    number, start = np.unique(segment[used], return_index=True)  # padding has no segment here
    starts = np.ones(len(number), bool)
    starts[1:] = ~(t.goes_on[number[1:] - 1] & (number[1:] == number[:-1] + 1))
    first = np.flatnonzero(starts)

    def place(groups: int) -> int:
        return int(np.searchsorted(number, groups * W))

    def path(groups: int) -> int:
        return int(np.searchsorted(first, place(groups)))

    return Segments(
        np.append(start, len(body)),
        body,
        np.append(first, len(number)),
        tree.parents[body[start[first]]],
        starts,
        [Depth(place(a), place(c), place(b), path(a), path(b)) for a, c, b in t.depths],
    )
