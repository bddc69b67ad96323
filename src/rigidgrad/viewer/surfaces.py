"""Surfaces ready to draw: made of few triangles, smooth but where they have edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

_CREASE = np.cos(np.radians(40.0))  # faces that meet at more have an edge between them
_MOST_AROUND = 32  # faces at a corner whose normals are averaged; the tips of wide fans are flat
_SHARP = 1e-3  # of a quadric's largest eigenvalue: what is smaller holds a corner nowhere
_FEWEST = 24  # triangles that are left of a surface
_DIRECTIONS = 96


@dataclass(frozen=True, eq=False)
class Surface:
    """Vertices (n, 3), their normals (n, 3) and faces (m, 3), each vertex with one normal; `moved`:
    how far a corner of the file was moved at most to save triangles, in metres.
    """

    vertices: np.ndarray
    normals: np.ndarray
    faces: np.ndarray
    moved: float = 0.0

    @cached_property
    def outermost(self) -> np.ndarray:
        """Those vertices that are the outermost along some direction (k, 3): as large as all."""
        k = np.arange(_DIRECTIONS) + 0.5
        z, turn = 1 - 2 * k / _DIRECTIONS, np.pi * (1 + 5**0.5) * k
        r = np.sqrt(1 - z * z)
        along = np.stack([r * np.cos(turn), r * np.sin(turn), z], axis=1)
        along = np.concatenate([along, np.eye(3), -np.eye(3)])
        found: np.ndarray = self.vertices[np.unique((self.vertices @ along.T).argmax(axis=0))]
        return found


def area(vertices: np.ndarray, faces: np.ndarray) -> float:
    a, b, c = vertices[faces].transpose(1, 0, 2)
    return float(np.linalg.norm(np.cross(b - a, c - a), axis=1).sum()) / 2


def shares(counts: Sequence[int], weights: Sequence[float], most: int) -> list[int]:
    """How many triangles each of several surfaces keeps, `most` together: shares by weight, but no
    more than it has.
    """
    count, weight = np.array(counts, dtype=float), np.maximum(weights, 1e-12)
    kept, left = np.zeros(len(count)), np.ones(len(count), dtype=bool)
    rest = float(most)
    while left.any():
        offered = rest * weight / weight[left].sum()
        full = left & (count <= offered)
        if not full.any():
            kept[left] = offered[left]
            break
        kept[full] = count[full]
        rest -= float(count[full].sum())
        left &= ~full
    return [int(k) for k in kept]


def surface(vertices: np.ndarray, faces: np.ndarray, most: int) -> Surface:
    """One to draw, of at most so many triangles."""
    points, which = np.unique(np.asarray(vertices, dtype=np.float32), axis=0, return_inverse=True)
    points, corners, moved = simplified(points.astype(float), which.reshape(-1)[faces], most)
    return Surface(*_creased(points, corners), moved)


def simplified(
    vertices: np.ndarray, faces: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """At most so many triangles in place of more: vertices in one cell of a grid become one, there
    where the planes of the triangles around them meet best. Also how far one was moved at most.

    P. Lindstrom, Out-of-core simplification of large polygonal models, SIGGRAPH 2000.
    """
    most = max(most, _FEWEST)
    if len(faces) <= most:
        return vertices, faces, 0.0
    low, span = vertices.min(axis=0), float(np.ptp(vertices, axis=0).max()) or 1.0
    cell = max(np.sqrt(1.2 * area(vertices, faces) / most), 1e-4 * span)
    while True:
        x, y, z = np.floor((vertices - low) / cell).astype(np.int64).T
        wide = int(span / cell) + 1
        _, which = np.unique((x * wide + y) * wide + z, return_inverse=True)
        kept = which.reshape(-1)[faces]
        kept = kept[
            (kept[:, 0] != kept[:, 1]) & (kept[:, 1] != kept[:, 2]) & (kept[:, 2] != kept[:, 0])
        ]
        first = kept.argmin(axis=1)[:, None]  # the same triangle begins at the same corner
        kept = np.unique(np.take_along_axis(kept, (first + np.arange(3)) % 3, axis=1), axis=0)
        if len(kept) <= most:
            break
        cell *= 1.07
    if not len(kept):  # a needle, smaller than a cell
        return vertices, faces[:: -(-len(faces) // most)], 0.0
    points = _meeting(vertices, faces, which.reshape(-1), cell)
    moved = float(np.linalg.norm(points[which.reshape(-1)] - vertices, axis=1).max())
    used, again = np.unique(kept, return_inverse=True)
    return points[used], again.reshape(-1, 3), moved


def _meeting(vertices: np.ndarray, faces: np.ndarray, which: np.ndarray, cell: float) -> np.ndarray:
    """For each cell the point that is nearest to the planes of the triangles with a corner in it,
    in the sense of least squares by area; no further than half a cell's diagonal from the mean of
    its vertices.
    """
    count = int(which.max()) + 1
    size = np.bincount(which, minlength=count)[:, None]
    mean = np.stack([np.bincount(which, vertices[:, k], count) for k in range(3)], axis=1) / size
    a, b, c = vertices[faces].transpose(1, 0, 2)
    n = np.cross(b - a, c - a)
    A, right = np.zeros((count, 3, 3)), np.zeros((count, 3))
    for k in range(3):
        at = which[faces[:, k]]
        d = np.einsum("ij,ij->i", n, a - mean[at])  # of the plane n·(x - mean) = d
        for i in range(3):
            right[:, i] += np.bincount(at, n[:, i] * d, count)
            for j in range(3):
                A[:, i, j] += np.bincount(at, n[:, i] * n[:, j], count)
    values, V = np.linalg.eigh(A)
    held = values > _SHARP * np.maximum(values[:, -1:], 1e-300)
    inverse = np.where(held, 1.0 / np.where(held, values, 1.0), 0.0)
    step = np.einsum("nij,nj,nkj,nk->ni", V, inverse, V, right)
    long = np.linalg.norm(step, axis=1, keepdims=True)
    points: np.ndarray = mean + step * np.minimum(1.0, 0.87 * cell / np.maximum(long, 1e-300))
    return points


def _creased(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vertices, normals and faces: a vertex at an edge is there once for each side."""
    a, b, c = vertices[faces].transpose(1, 0, 2)
    n = np.cross(b - a, c - a)
    length = np.linalg.norm(n, axis=1, keepdims=True)
    unit = n / np.maximum(length, 1e-300)
    corner = faces.reshape(-1)
    order = np.argsort(corner, kind="stable")
    size = np.bincount(corner)
    begin = np.concatenate([[0], np.cumsum(size)[:-1]])
    around = np.where(size[corner] <= _MOST_AROUND, size[corner], 0)
    left = np.repeat(np.arange(len(corner)), around)
    place = np.arange(len(left)) - np.repeat(np.cumsum(around) - around, around)
    right = order[begin[corner[left]] + place]
    alike = np.einsum("ij,ij->i", unit[left // 3], unit[right // 3]) > _CREASE
    left, right = left[alike], right[alike]
    normal = np.stack([np.bincount(left, n[right // 3, k], len(corner)) for k in range(3)], axis=1)
    own = np.linalg.norm(normal, axis=1, keepdims=True)
    normal = np.where(
        own > 1e-12 * length[np.arange(len(corner)) // 3], normal, unit[np.arange(len(corner)) // 3]
    )
    normal = normal / np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-300)
    rounded = np.round(127 * normal).astype(np.int64)
    key = ((corner * 256 + rounded[:, 0] + 128) * 256 + rounded[:, 1] + 128) * 256 + rounded[:, 2]
    _, chosen, which = np.unique(key, return_index=True, return_inverse=True)
    return vertices[corner[chosen]], rounded[chosen] / 127.0, which.reshape(-1, 3)
