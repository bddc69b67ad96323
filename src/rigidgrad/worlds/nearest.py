"""Nearest places of two things, the first of which is part of a solid."""

from __future__ import annotations

from typing import Any

from rigidgrad.scalars import Scalar, less, select
from rigidgrad.spatial import Vector3, dot3, sub3
from rigidgrad.worlds.narrow import FAR, blend, clip

PARALLEL = 1e-10  # the squared sine of lines that are


class Nearest:
    """The shortest of several gaps from a solid to a core."""

    def __init__(self, start: Vector3):
        self.square: Scalar = FAR * FAR
        self.gap: Vector3 = start
        self.at: Vector3 = start

    def offer(self, q: Vector3, x: Vector3, valid: Any = None) -> None:
        """From q on the solid to x on the core."""
        gap = sub3(x, q)
        square = dot3(gap, gap)
        if valid is not None:
            square = select(valid, square, 4 * FAR * FAR)
        better = less(square, self.square)
        self.square = select(better, square, self.square)
        self.gap, self.at = blend(better, gap, self.gap), blend(better, q, self.at)


def line_and_line(a: Vector3, u: Vector3, b: Vector3, v: Vector3) -> tuple[Scalar, Scalar]:
    """Of a + s u, 0 ≤ s ≤ 1, and b + t v, |t| ≤ 1, the nearest (s, t)."""
    gap = sub3(b, a)
    uu, uv, vv = dot3(u, u), dot3(u, v), dot3(v, v)
    du, dv = dot3(u, gap), dot3(v, gap)
    det = uu * vv - uv * uv
    askew = less(PARALLEL * uu * vv, det)
    s = select(askew, (du * vv - dv * uv) / select(askew, det, 1.0 + 0.0 * det), 0.0)
    t = clip((clip(s, 0.0, 1.0) * uv - dv) / vv, -1.0, 1.0)
    return clip((du + t * uv) / uu, 0.0, 1.0), t
