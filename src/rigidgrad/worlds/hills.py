"""Uneven ground for environments: a random height field around the origin, on a plane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rigidgrad.errors import InputError, unknown_name

BELOW = 0.01  # metres from the lowest ground down to the plane around the field
_BASE = 0.2  # metres that the field reaches below its lowest point
_MOST = 4_000_000  # heights
KINDS = ("rough", "steps")


@dataclass(frozen=True)
class Hills:
    """`size` (x, y) metres of ground between 0 and `height`, in cells of `cell` metres.

    `kind` "rough" has a random height at each corner of squares of `width` metres, and slopes
    between them; "steps" has level squares of that width. All of it is lower towards the border,
    over `edge` metres. `heights` (rows along y, columns along x), in metres, is in place of all
    that.
    """

    size: tuple[float, float] = (16.0, 16.0)
    cell: float = 0.1
    height: float = 0.08
    width: float = 0.4
    kind: str = "rough"
    edge: float = 0.5
    seed: int = 0
    heights: Any = None

    def __post_init__(self) -> None:
        positive = {"size": min(self.size), "cell": self.cell, "width": self.width}
        for name, value in positive.items():
            if not value > 0:
                raise InputError(f"{name} of a terrain is in metres, above 0, not {value!r}")
        if not 0 <= self.height < 10:
            raise InputError(f"height of a terrain is in metres, from 0 on, not {self.height!r}")
        if self.kind not in KINDS:
            raise unknown_name("kind of terrain", self.kind, KINDS)
        columns, rows = self._shape()
        if rows * columns > _MOST or min(rows, columns) < 2:
            raise InputError(
                f"a terrain has 2 x 2 to {_MOST:,} heights, and this one {rows} x {columns}: size"
                " over cell"
            )

    @classmethod
    def of(cls, table: Any) -> Hills:
        """From a table of a TOML."""
        if not isinstance(table, Mapping):
            raise InputError(f"terrain is a table, such as {{height = 0.08}}, not {table!r}")
        for name in table:
            if name not in cls.__dataclass_fields__:
                raise unknown_name("number of a terrain", name, cls.__dataclass_fields__)
        numbers = dict(table)
        try:
            if "size" in numbers:
                x, y = (float(s) for s in numbers["size"])
                numbers["size"] = (x, y)
            for name in ("cell", "height", "width", "edge"):
                if name in numbers:
                    numbers[name] = float(numbers[name])
        except (TypeError, ValueError):
            raise InputError(
                "of a terrain, size is two numbers in metres, and cell, height, width and edge are"
                f" one each, not {numbers}"
            ) from None
        return cls(**numbers)

    def _shape(self) -> tuple[int, int]:
        """Heights along x and y."""
        if self.heights is not None:
            rows, columns = np.shape(self.heights) if np.ndim(self.heights) == 2 else (0, 0)
            return columns, rows
        x, y = (1 + round(s / self.cell) for s in self.size)
        return x, y

    def ground(self) -> np.ndarray:
        """Heights in metres (rows, columns), from 0 on."""
        if self.heights is not None:
            given = np.asarray(self.heights, float)
            if not np.isfinite(given).all():
                raise InputError("heights of a terrain are finite numbers of metres")
            return np.asarray(given - given.min())
        rng = np.random.default_rng(self.seed)
        columns, rows = self._shape()
        x, y = (
            np.arange(n) * (s / (n - 1)) for n, s in zip((columns, rows), self.size, strict=True)
        )
        u, w = x / self.width, y / self.width
        table = rng.random((int(w[-1]) + 2, int(u[-1]) + 2))
        i, j = w.astype(int)[:, None], u.astype(int)[None, :]
        if self.kind == "steps":
            found = table[i, j]
        else:
            a, b = (w % 1)[:, None], (u % 1)[None, :]
            found = (1 - a) * ((1 - b) * table[i, j] + b * table[i, j + 1])
            found = found + a * ((1 - b) * table[i + 1, j] + b * table[i + 1, j + 1])
        from_border = [np.minimum(z, z[-1] - z) for z in (x, y)]
        inward = np.minimum(from_border[1][:, None], from_border[0][None, :])
        fade = np.clip(inward / self.edge, 0, 1) if self.edge > 0 else 1.0
        return np.asarray(self.height * found * fade)

    def build(self, spec: Any, library: Any, friction: float) -> None:
        """Adds the field to a MuJoCo model that is being made, and lowers the plane around it."""
        ground = self.ground()
        top = max(float(ground.max()), 1e-6)
        spec.add_hfield(
            name="terrain",
            size=(self.size[0] / 2, self.size[1] / 2, top, _BASE),
            nrow=ground.shape[0],
            ncol=ground.shape[1],
            userdata=(ground / top).ravel(),
        )
        for geom in spec.geoms:
            if geom.name == "ground":
                geom.pos = (0.0, 0.0, -BELOW)
        spec.worldbody.add_geom(
            name="terrain",
            type=library.mjtGeom.mjGEOM_HFIELD,
            hfieldname="terrain",
            friction=(friction, 0.005, 0.0001),
            contype=2,
            conaffinity=1,
        )
