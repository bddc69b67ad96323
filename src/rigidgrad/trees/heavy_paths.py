"""The walk along heavy paths, for deep trees: paths are cut into segments, and eight segments are
walked at once.

Every body continues the path of its parent if its subtree is the largest among siblings, else it
starts a path of its own. A path's light depth is the number of paths above it: at most log2 of the
bodies. Paths of one light depth know nothing of each other. What a long path's segments start from
is found by a scan over segments (blocked scan).
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from rigidgrad.runtime.loops import AnyKernel, kernel
from rigidgrad.trees.algebra import Flat, plus
from rigidgrad.trees.lanes import W
from rigidgrad.trees.operators import State
from rigidgrad.trees.packs import lanes, put_lanes
from rigidgrad.trees.topology import Topology

# bodies of a segment, unless its path is shorter: eight of them should fit a core's cache
SHORTEST, LONGEST = (64, 128)
SEGMENTS = 256  # of the longest path, where these lengths allow it


class HeavyPaths(NamedTuple):
    """Tables of the walk. Eight segments are a group: pack k of a group holds the k-th body of
    each. Workspace pack 0 is the world, so slots are one pack up.
    """

    # by light depth: groups start … cut … stop; before `cut` are those with segments of cut paths
    depths: list[tuple[int, int, int]]
    group_start: np.ndarray  # (groups + 1,) packs of a group
    body: np.ndarray  # (packs·W,) which body sits in a slot, -1 for padding
    # (groups·W,) workspace slot of the body that a path hangs on, for its first segment; 0, the
    # world, otherwise
    source: np.ndarray
    goes_on: np.ndarray  # (groups·W,) whether the next segment continues this one's path
    hang_start: np.ndarray  # (groups + 1,) the paths that hang on a group's bodies
    hang_segment: np.ndarray
    hang_slot: np.ndarray  # … and on which workspace slot
    base_segment: int  # where the first root's path starts


def heavy_paths(topology: Topology) -> HeavyPaths:
    n = topology.bodies
    parents, order = topology.parents, topology.order
    path, position = np.empty(n, np.int32), np.empty(n, np.int32)
    head, light = np.empty(n, np.int32), np.empty(n, np.int32)
    paths = _paths(parents, order, topology.heavy_child, path, position, head, light)
    head, light = head[:paths], light[:paths]
    length = np.bincount(path, minlength=paths)
    limit = min(max(SHORTEST, -(-int(length.max()) // SEGMENTS)), LONGEST)
    pieces = -(-length // limit)
    step = -(-length // pieces)  # bodies of a path's segments
    pieces = -(-length // step)
    first_segment = np.concatenate([[0], np.cumsum(pieces)])
    owner = np.repeat(np.arange(paths), pieces)
    rank = np.arange(len(owner)) - first_segment[owner]
    size = np.minimum(step[owner], length[owner] - rank * step[owner])
    whole = pieces[owner] == 1
    # cut paths keep their segments side by side; whole ones are sorted by length, so that lanes end
    # together
    ranked = np.lexsort((np.where(whole, -size, 0), whole, light[owner]))
    # segments of one light depth fill groups of their own
    depth_of, whole_of, size_of = light[owner[ranked]], whole[ranked], size[ranked]
    change = np.flatnonzero(
        np.concatenate([[True], (depth_of[1:] != depth_of[:-1]) | (whole_of[1:] != whole_of[:-1])])
    )
    counts = np.diff(np.append(change, len(ranked)))
    padded = -(-counts // W) * W
    number = np.repeat(np.cumsum(padded) - padded - change, counts) + np.arange(len(ranked))
    segment = np.empty(len(ranked), np.int64)  # a segment's place among groups·W
    segment[ranked] = number
    groups = int(padded.sum()) // W
    longest = np.zeros(groups * W, np.int64)
    longest[number] = size_of
    group_start = np.concatenate([[0], np.cumsum(longest.reshape(groups, W).max(axis=1))])
    group_depth = np.repeat(depth_of[change], padded // W)
    group_whole = np.repeat(whole_of[change], padded // W)
    depths = []
    for d in range(int(light.max()) + 1):
        inside = np.flatnonzero(group_depth == d)
        depths.append(
            (
                int(inside[0]),
                int(inside[0] + np.count_nonzero(~group_whole[inside])),
                int(inside[-1]) + 1,
            )
        )
    # slots
    place = first_segment[path] + position // step[path]
    home = segment[place]
    slot = (group_start[home // W] + position % step[path]) * W + home % W
    body = np.full(int(group_start[-1]) * W, -1, np.int32)
    body[slot] = np.arange(n, dtype=np.int32)
    source = np.zeros(groups * W, np.int64)
    hanging = np.flatnonzero(parents[head] >= 0)
    holder = parents[head[hanging]]
    source[segment[first_segment[hanging]]] = slot[holder] + W
    group = home[holder] // W
    by_group = np.argsort(group, kind="stable")
    hang_start = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=groups))])
    goes_on = np.zeros(groups * W, np.bool_)
    goes_on[segment[rank < pieces[owner] - 1]] = True
    return HeavyPaths(
        depths,
        group_start,
        body,
        source,
        goes_on,
        hang_start,
        segment[first_segment[hanging]][by_group],
        slot[holder][by_group] + W,
        int(segment[first_segment[path[order[0]]]]),
    )


@kernel
def _paths(
    parents: np.ndarray,
    order: np.ndarray,
    heavy: np.ndarray,
    path: np.ndarray,
    position: np.ndarray,
    head: np.ndarray,
    light: np.ndarray,
) -> int:
    count = 0
    for k in range(len(order)):
        i = order[k]
        p = parents[i]
        if p >= 0 and heavy[p] == i:
            path[i], position[i] = path[p], position[p] + 1
        else:
            path[i], position[i] = count, 0
            head[count] = i
            light[count] = light[path[p]] + 1 if p >= 0 else 0
            count += 1
    return count


def shares(t: HeavyPaths, start: int, stop: int, pieces: int) -> list[tuple[int, int]]:
    """Groups start … stop shared out evenly by bodies; all at once where there are few."""
    packs = int(t.group_start[stop] - t.group_start[start])
    if pieces == 1 or packs < 2048:
        return [(start, stop)] if stop > start else []
    cuts = [int(t.group_start[start]) + packs * k // pieces for k in range(1, pieces)]
    edges = [start, *t.group_start.searchsorted(cuts).tolist(), stop]
    return [(a, b) for a, b in itertools.pairwise(edges) if b > a]


@kernel
def outwards(
    part: int,
    start: int,
    stop: int,
    operator: tuple[AnyKernel, ...],
    group_start: np.ndarray,
    shift: int,
    kept: tuple[np.ndarray, ...],
    state: State,
) -> None:
    """Along the segments of groups start … stop, as many at a time as the operator has lanes.

    An operator is (lanes, begin, prepare, ahead, step, end): what `begin` gives for a segment goes
    from body to body through `step`, and what is left goes to `end`. Workspaces are `shift` slots
    up. What is handed on stays in the array `kept`, one pack up, if there is one: (array,) or ().
    """
    lanes_of, begin, prepare, ahead, step, end = operator
    wide = lanes_of(state)
    for e in range(start * W, stop * W, wide):
        first, last = group_start[e // W] * W + e % W, group_start[e // W + 1] * W
        for s in range(first, last, W):
            prepare((s, s + shift, wide, s + shift), state)
        carried = begin(e, state)
        for s in range(first, last, W):
            ahead(s, state)
            carried = step(carried, (s, s + shift, wide, s + shift), state)
            if len(kept) > 0:
                put_lanes(kept[0], s + W, len(carried), 0, carried)
        end(carried, e, state)


@kernel
def inwards(
    part: int,
    start: int,
    stop: int,
    operator: tuple[AnyKernel, ...],
    group_start: np.ndarray,
    shift: int,
    state: State,
) -> None:
    """… and from the last body of each segment to its first: with an operator (lanes, begin,
    memory, ahead, step, end), whose memory has what is collected at bodies, or nothing.
    """
    lanes_of, begin, memory, ahead, step, end = operator
    wide = lanes_of(state)
    share = memory(state)
    for e in range(start * W, stop * W, wide):
        first, last = group_start[e // W] * W + e % W, group_start[e // W + 1] * W
        carried = begin(e, state)
        for s in range(last - W + e % W, first - 1, -W):
            ahead(s, state)
            own = lanes(share[0], s + shift, share[1], share[2], share[3], wide) if share else ()
            carried = step(
                plus(carried, own) if share else carried, (s, s + shift, wide, s + shift), state
            )
        end(carried, e, state)


@kernel
def nothing(carried: Flat, e: int, state: State) -> None:
    """The end of an operator that leaves nothing behind."""
