"""Height fields: their cells, and the part of one that a shape may touch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_CELLS = 12  # that are looked at, along each side
MOST_SLOTS = 16  # of a pair
SLACK = 1e-3  # of a cell, for rounding


@dataclass(frozen=True)
class Grid:
    """A height field of `rows` and `columns` of heights over x in ±size[0], y in ±size[1], below
    `top`.
    """

    rows: int
    columns: int
    size: tuple[float, float]
    top: float

    @property
    def cell(self) -> tuple[float, float]:
        """Its lengths along x and y."""
        return 2 * self.size[0] / (self.columns - 1), 2 * self.size[1] / (self.rows - 1)

    def window(self, reach: float) -> tuple[int, int]:
        """The rows and columns of cells that a ball may be above."""
        along, across = (1 + math.ceil(2 * reach / x + 2 * SLACK) for x in self.cell[::-1])
        return min(along, self.rows - 1), min(across, self.columns - 1)


def heights_of(m: Any, g: int) -> np.ndarray:
    """Of the height field of a geom, in metres, (rows, columns)."""
    h = int(m.geom_dataid[g])
    rows, columns, begin = int(m.hfield_nrow[h]), int(m.hfield_ncol[h]), int(m.hfield_adr[h])
    data = np.array(m.hfield_data[begin : begin + rows * columns], float)
    return float(m.hfield_size[h][2]) * data.reshape(rows, columns)


def grid_of(m: Any, g: int) -> Grid:
    heights = heights_of(m, g)
    x, y = (float(s) for s in m.hfield_size[int(m.geom_dataid[g])][:2])
    rows, columns = heights.shape
    return Grid(rows, columns, (x, y), float(heights.max()))
