"""Ways from bodies to the root, eight at a time.

Bodies that follow each other in depth-first order share all of their ancestors but the nearest few.
A pack of eight climbs in step, deepest first, a lane each, until they meet; from there on their way
is one. The steps before they meet are a table, of at most two steps a body.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.lanes import W
from rigidgrad.trees.topology import Topology


class Climb(NamedTuple):
    """Packs of bodies on their way up; -1 is the world. The last body fills up the last pack."""

    body: np.ndarray  # (packs·W,) where each lane starts
    meet: np.ndarray  # (packs,) the nearest body that all of a pack are or hang on
    start: np.ndarray  # (packs + 1,) the steps of a pack before they meet
    at: np.ndarray  # (steps·W,) where a lane is; -1 while it waits for deeper ones


def climb(topology: Topology, bodies: np.ndarray) -> Climb:
    """How those bodies, in this order, climb."""
    packs = -(-len(bodies) // W)
    body = np.concatenate([bodies, np.repeat(bodies[-1:], packs * W - len(bodies))])
    meet, start = np.empty(packs, np.int32), np.zeros(packs + 1, np.int64)
    tables = topology.parents, topology.depth, body, meet, start, np.empty(W, np.int32)
    _climb(*tables, np.empty(0, np.int32))
    at = np.full(start[-1] * W, -1, np.int32)
    _climb(*tables, at)
    return Climb(body, meet, start, at)


@kernel
def _climb(
    parents: np.ndarray,
    depth: np.ndarray,
    body: np.ndarray,
    meet: np.ndarray,
    start: np.ndarray,
    now: np.ndarray,
    at: np.ndarray,
) -> None:
    """Counts steps; writes them too if there is room."""
    for pack in range(len(meet)):
        d, k = 0, start[pack]
        for j in range(W):
            now[j] = body[pack * W + j]
            d = max(d, depth[now[j]])
        while _apart(now):
            for j in range(W):
                i = now[j]
                if i >= 0 and depth[i] == d:
                    if len(at) > 0:
                        at[k * W + j] = i
                    now[j] = parents[i]
            k += 1
            d -= 1
        meet[pack] = now[0]
        start[pack + 1] = k


@kernel
def _apart(now: np.ndarray) -> bool:
    count = 0
    for j in range(1, W):
        count += now[j] != now[0]
    return count > 0
