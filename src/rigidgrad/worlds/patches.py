"""The part of a height field that is below a shape. Which part that is differs from world to world:
before each step the heights around the shapes' centres are fetched, so that a step finds those of
each pair in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rigidgrad.worlds.grids import SLACK, Grid, heights_of
from rigidgrad.worlds.groups import World


class Patch:
    """Of one field and several shapes with equal windows: fills `(count, shapes, size)` with the
    window's first corner (x, y) in the field's axes, and its heights, row by row.
    """

    def __init__(
        self,
        grid: Grid,
        pose: Any,
        heights: np.ndarray,
        window: tuple[int, int],
        reaches: Sequence[float],
        dtype: np.dtype,
    ):
        self.grid, self.window = grid, window
        R = np.array(pose.R, float)[:, :2]
        half = np.array(grid.size)
        self.turn, self.begin = R.astype(dtype), (np.array(pose.p) @ R - half).astype(dtype)
        self.heights = np.ascontiguousarray(heights, dtype).ravel()
        self.reaches = np.array(reaches, dtype)
        rows, columns = np.arange(window[0] + 1), np.arange(window[1] + 1)
        self._offsets = (rows[:, None] * grid.columns + columns).ravel()

    def fill(self, centres: np.ndarray, into: np.ndarray) -> None:
        """Of centres (count, shapes, 3) in the world."""
        local = centres @ self.turn - self.begin
        first = []
        for axis, most in ((0, self.grid.columns), (1, self.grid.rows)):
            cell, half = self.grid.cell[axis], self.grid.size[axis]
            low = np.floor((local[..., axis] - self.reaches) * (1 / cell) - SLACK)
            # NaN is 0, too
            low = np.fmin(np.fmax(low, 0), most - 1 - self.window[1 - axis])
            into[..., axis] = low * cell - half
            first.append(low.astype(np.intp))
        base = first[1] * self.grid.columns + first[0]
        for k, offset in enumerate(self._offsets):
            into[..., 2 + k] = self.heights[base + offset]


class Patches:
    """Those of all pairs of a shape and a height field, in the order of their groups."""

    def __init__(self, m: Any, world: World, count: int, dtype: np.dtype):
        self.shapes = tuple(x.pair.second for g in world.on_fields for x in g.members)
        self.parts: list[tuple[Patch, slice, int]] = []
        begin = 0
        for g in world.on_fields:
            first, n = g.members[0].pair.first, len(g.members)
            field = world.geoms[first]
            assert field.grid is not None
            reaches = [world.geoms[x.pair.second].reach + max(x.margin, 0.0) for x in g.members]
            heights = heights_of(m, first)
            patch = Patch(field.grid, field.pose, heights, g.window, reaches, dtype)
            self.parts.append((patch, slice(begin, begin + n), g.patch_size))
            begin += n
        size = sum((part.stop - part.start) * n for _, part, n in self.parts)
        self._found = np.empty((count, size), dtype)

    def around(self, centres: np.ndarray) -> np.ndarray:
        """Of centres (count, shapes, 3), one after the other."""
        count, at = len(centres), 0
        found = self._found
        if count != len(found):
            found = np.empty((count, found.shape[1]), found.dtype)
        for patch, part, size in self.parts:
            n = part.stop - part.start
            into = found[:, at : at + n * size].reshape(count, n, size)
            patch.fill(centres[:, part], into)
            at += n * size
        return found
