"""How high what does not move is, seen from above."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.model.model import WORLD
from rigidgrad.worlds.grids import heights_of
from rigidgrad.worlds.narrow import BOX, FIELD, NAMES, PLANE
from rigidgrad.worlds.pairs import Geom

_FLAT = 1e-12


@dataclass(frozen=True)
class Field:
    """A level height field: `heights` (rows, columns) over x in ±size[0], y in ±size[1]."""

    p: np.ndarray
    R: np.ndarray
    size: tuple[float, float]
    heights: np.ndarray

    def top(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Of the two triangles of each cell, as MuJoCo draws them; nothing is -inf."""
        away = np.stack([x - self.p[0], y - self.p[1]], axis=-1) @ self.R[:2, :2]
        rows, columns = self.heights.shape
        # in cells, from the corner with the least x and y
        across = (away[..., 0] / self.size[0] + 1) * 0.5 * (columns - 1)
        along = (away[..., 1] / self.size[1] + 1) * 0.5 * (rows - 1)
        c = np.clip(np.floor(across).astype(int), 0, columns - 2)
        r = np.clip(np.floor(along).astype(int), 0, rows - 2)
        u, w = across - c, along - r
        z = self.heights
        low, high = z[r, c], z[r + 1, c + 1]
        above = low + w * (z[r + 1, c] - low) + u * (high - z[r + 1, c])
        below = low + u * (z[r, c + 1] - low) + w * (high - z[r, c + 1])
        found = self.p[2] + np.where(w > u, above, below)
        inside = (across >= 0) & (across <= columns - 1) & (along >= 0) & (along <= rows - 1)
        return np.asarray(np.where(inside, found, -np.inf))


class Terrain:
    """Planes, boxes and height fields that do not move; `unseen` are the kinds of other shapes that
    do not.
    """

    def __init__(self, m: Any, geoms: Sequence[Geom]):
        self.flat: list[tuple[np.ndarray, np.ndarray]] = []
        self.boxes: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.fields: list[Field] = []
        self.unseen: set[str] = set()
        for number, g in enumerate(geoms):
            if g.body != WORLD:
                continue
            p, R = np.array(g.pose.p, float), np.array(g.pose.R, float)
            if g.kind == PLANE:
                self.flat.append((p, R[:, 2]))
            elif g.kind == BOX:
                self.boxes.append((p, R, np.array(g.size)))
            elif g.kind == FIELD:
                self.fields.append(_field(m, number, g, p, R))
            else:
                self.unseen.add(NAMES.get(g.kind, "?"))

    def top(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The highest point at each place, -inf where there is nothing."""
        found = np.full(x.shape, -np.inf)
        for p, n in self.flat:
            if n[2] > _FLAT:
                found = np.maximum(found, p[2] - ((x - p[0]) * n[0] + (y - p[1]) * n[1]) / n[2])
        for p, R, size in self.boxes:
            begin = np.stack([x - p[0], y - p[1], np.zeros_like(x)], axis=-1) @ R
            up = np.where(np.abs(R[2]) < _FLAT, _FLAT, R[2])
            ends = np.stack([(-size - begin) / up, (size - begin) / up])
            low, high = ends.min(axis=0).max(axis=-1), ends.max(axis=0).min(axis=-1)
            found = np.maximum(found, np.where(low <= high, p[2] + high, -np.inf))
        for field in self.fields:
            found = np.maximum(found, field.top(x, y))
        return found


def _field(m: Any, number: int, g: Geom, p: np.ndarray, R: np.ndarray) -> Field:
    if R[2, 2] < 1 - 1e-9:
        raise InputError(
            f"the height field {g.name!r} is tilted, and heights are of level ones alone"
        )
    x, y = (float(s) for s in m.hfield_size[int(m.geom_dataid[number])][:2])
    return Field(p, R, (x, y), heights_of(m, number))
