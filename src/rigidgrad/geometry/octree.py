"""A solid of which it is known how deep points are, filled with balls: all of it is in one of them,
and none sticks out by more than a stated error.

Cubes are cut into eight until the ball around each sticks out by little enough, or the cube is
clear of the solid. With f(c) the depth of its middle, negative outside, the ball of radius r around
a cube sticks out by at most r - f, and nothing of the solid is in it if f < -r. f may also be less
than the depth; outside -f may be less than the distance from the solid, of which `beyond` then is
an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.geometry.cover import Cover

_MOST = 2_000_000  # balls, and cubes at a time
_FEW = 8  # cubes at first along the shortest side, at most


def filled(
    depth: Callable[[np.ndarray], np.ndarray],
    beyond: Callable[[np.ndarray], np.ndarray],
    low: np.ndarray,
    high: np.ndarray,
    error: float,
    what: str,
) -> Cover:
    """A cover of the solid between two corners of a box; `depth` and `beyond` (n, 3) → (n,)."""
    size = np.maximum(high - low, 1e-9)
    half = max(float(size.min()), float(size.max()) / _FEW) / 2
    counts = np.maximum(np.ceil(size / (2 * half) - 1e-9), 1).astype(int)
    axes = [half * (2 * np.arange(n) + 1) for n in counts]
    centers = low + np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    eighths = np.array(list(product((-0.5, 0.5), repeat=3)))
    kept: list[np.ndarray] = []
    worst = 0.0
    while len(centers):
        r = math.sqrt(3.0) * half
        f = depth(centers)
        centers, f = centers[f >= -r], f[f >= -r]
        out = r + np.where(f < 0.0, beyond(centers), -f)
        fits = out <= error
        if fits.any():
            kept.append(np.column_stack([centers[fits], np.full(int(fits.sum()), r)]))
            worst = max(worst, float(out[fits].max()))
        rest = centers[~fits]
        if 8 * len(rest) + sum(map(len, kept)) > _MOST:
            raise InputError(
                f"{what} is too large to be covered with an error of {error:g} m: allow a larger"
                " one, error=…"
            )
        centers = (rest[:, None] + half * eighths).reshape(-1, 3)
        half /= 2
    balls = np.concatenate(kept)
    return Cover(balls[:, :3].copy(), balls[:, 3].copy(), max(worst, 0.0))
