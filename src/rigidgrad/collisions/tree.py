"""Many balls as a tree of balls around them, laid out so that a walk needs no stack: each node
knows where to go on if nothing below it counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LEAF = 8  # balls of a leaf
_BITS = 20


class BallTree(NamedTuple):
    """`nodes` (n, 4): centre and radius of a ball around all below; `steps` (n, 3): the node after
    all below, and for a leaf its first ball and how many; `balls` (m, 4).
    """

    nodes: np.ndarray
    steps: np.ndarray
    balls: np.ndarray


def ball_tree(centers: np.ndarray, radii: np.ndarray) -> BallTree:
    """Balls in the order of a curve that fills space (Morton's), cut into leaves, two and two of
    which are joined: a complete binary tree, in depth-first order.
    """
    order = np.argsort(_along_curve(centers), kind="stable")
    centers, radii = centers[order], radii[order]
    count = len(centers)
    leaves = -(-count // LEAF)
    height = max(0, int(leaves - 1).bit_length())
    size = 1 << height
    first = np.minimum(np.arange(size) * LEAF, count)
    held = np.minimum(first + LEAF, count) - first
    low, high = np.full((size, 3), np.inf), np.full((size, 3), -np.inf)
    low[:leaves] = np.minimum.reduceat(centers - radii[:, None], first[:leaves])
    high[:leaves] = np.maximum.reduceat(centers + radii[:, None], first[:leaves])
    nodes, steps = np.zeros((2 * size - 1, 4)), np.zeros((2 * size - 1, 3), np.int64)
    place = [np.zeros(1, np.int64)]
    # a left child follows its parent, a right one all that is below the left one
    for level in range(height):
        below = (1 << (height - level)) - 1
        place.append(np.stack([place[-1] + 1, place[-1] + 1 + below], axis=1).reshape(-1))
    for level in range(height, -1, -1):
        at = place[level]
        empty = ~np.isfinite(low[:, 0])
        with np.errstate(invalid="ignore"):
            nodes[at, :3] = np.where(empty[:, None], 0.0, (low + high) / 2)
            nodes[at, 3] = np.where(empty, -np.inf, np.linalg.norm(high - low, axis=1) / 2)
        steps[at, 0] = at + (1 << (height - level + 1)) - 1
        if level == height:
            steps[at, 1], steps[at, 2] = first, held
        else:
            steps[at, 2] = 0
        low, high = (
            low.reshape(-1, 2, 3).min(axis=1) if len(low) > 1 else low,
            high.reshape(-1, 2, 3).max(axis=1) if len(high) > 1 else high,
        )
    nodes[nodes[:, 3] == -np.inf, 3] = -1e18  # finite, so that sums with it are
    return BallTree(nodes, steps, np.column_stack([centers, radii]))


def _along_curve(points: np.ndarray) -> np.ndarray:
    low, span = points.min(axis=0), max(float(np.ptp(points, axis=0).max()), 1e-12)
    cells = np.minimum((points - low) / span * (1 << _BITS), (1 << _BITS) - 1).astype(np.uint64)
    key = np.zeros(len(points), np.uint64)
    for bit in range(_BITS):
        for axis in range(3):
            key |= ((cells[:, axis] >> np.uint64(bit)) & np.uint64(1)) << np.uint64(3 * bit + axis)
    return key
