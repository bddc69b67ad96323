"""Triangles: read from STL, OBJ and COLLADA files that nobody vouches for, of bounded size, and
checked to enclose a solid.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.errors import InputError, printable
from rigidgrad.files import Unreadable, file_name, read_regular
from rigidgrad.geometry.collada import MAX_TRIANGLES, read_collada

MAX_BYTES = 64 << 20
# of a mesh' size: within this, corners that rounding in a file has parted are one where that closes
# the surface
_PARTED = (1e-6, 3e-6, 1e-5)
_LARGEST = 1e7  # of coordinates before scaling: meshes in millimetres or smaller are common
_STL = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("rest", "<u2")])


@dataclass(frozen=True, eq=False)
class Triangles:
    """A surface: vertices (n, 3), and the vertices of each triangle (m, 3), counter-clockwise seen
    from outside.
    """

    vertices: np.ndarray
    faces: np.ndarray
    origin: str = "the mesh"
    rounded: float = 0.0
    """How far its vertices are, at most, from those that were given."""

    @cached_property
    def corners(self) -> np.ndarray:
        """(m, 3 corners, 3)."""
        corners: np.ndarray = self.vertices[self.faces]
        return corners

    @cached_property
    def identity(self) -> str:
        """A hash of its numbers."""
        return hashlib.sha256(self.vertices.tobytes() + b"|" + self.faces.tobytes()).hexdigest()

    @property
    def volume(self) -> float:
        """Enclosed; negative if its triangles are clockwise."""
        a, b, c = self.corners.transpose(1, 0, 2)
        return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6)

    def scaled(self, scale: np.ndarray) -> Triangles:
        """Mirrored ones keep their outside."""
        if np.all(scale == 1):
            return self
        faces = self.faces if np.prod(scale) > 0 else self.faces[:, ::-1]
        return replace(
            self,
            vertices=self.vertices * scale,
            faces=faces,
            rounded=self.rounded * float(np.abs(scale).max()),
        )

    def moved(self, R: ArrayLike, p: ArrayLike) -> Triangles:
        return replace(self, vertices=self.vertices @ np.asarray(R).T + np.asarray(p))

    def on_grid(self, spacing: float) -> Triangles:
        """With vertices rounded to a grid. Those in one place become one. What becomes thin stays,
        so that each point of the surface has moved by no more than `rounded`; a closed surface
        stays closed, as neighbours keep their common edge.
        """
        cells, which = np.unique(np.round(self.vertices / spacing), axis=0, return_inverse=True)
        faces = which.reshape(-1)[self.faces]
        thin = ~_distinct(faces)
        lines = np.unique(np.sort(faces[thin], axis=1), axis=0)
        return Triangles(
            cells * spacing,
            np.ascontiguousarray(np.concatenate([faces[~thin], lines])),
            self.origin,
            self.rounded + spacing * math.sqrt(3) / 2,
        )

    @cached_property
    def open_edges(self) -> int:
        """Edges whose triangles do not go round them as often one way as the other: none where the
        surface is closed.
        """
        edges = np.concatenate(
            [self.faces[:, [0, 1]], self.faces[:, [1, 2]], self.faces[:, [2, 0]]]
        )
        edges = edges[edges[:, 0] != edges[:, 1]]
        low, high = edges.min(axis=1), edges.max(axis=1)
        key = low.astype(np.int64) * len(self.vertices) + high
        _, which = np.unique(key, return_inverse=True)
        balance = np.bincount(which, weights=np.where(edges[:, 0] < edges[:, 1], 1.0, -1.0))
        return int(np.count_nonzero(balance))

    def check_closed(self) -> None:
        if self.open_edges:
            raise InputError(
                f"{self.origin} is open: {self.open_edges} edges lack a neighbour, so there is no"
                " inside. Close it (MeshLab, trimesh's convex_hull), or pass its vertices as"
                " rg.Points"
            )
        if abs(self.volume) < 1e-12:
            raise InputError(f"{self.origin} encloses no volume")


def read_mesh(source: Any) -> Triangles:
    """Of a file, or of (vertices, faces)."""
    if isinstance(source, Triangles):
        return source
    if isinstance(source, tuple | list) and len(source) == 2:
        return triangles(source[0], source[1], "the mesh")
    if not isinstance(source, str | os.PathLike):
        raise InputError(f"a mesh is a path or (vertices, faces), not {type(source).__name__}")
    name = file_name(source)
    shown = f"mesh {printable(name)!r}"
    try:
        data = read_regular(source, MAX_BYTES)
    except Unreadable as reason:
        raise InputError(f"{shown}: {reason}") from None
    kind = os.path.splitext(name)[1].lower()
    try:
        if kind == ".stl":
            return _stl(data, shown)
        if kind == ".obj":
            return _obj(data, shown)
        if kind == ".dae":
            return _collada(data, shown)
    except (ValueError, IndexError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{shown} is damaged: {error}") from None
    return _by_trimesh(data, kind, shown)


def triangles(vertices: Any, faces: Any, origin: str) -> Triangles:
    """Checked; corners in one place become one vertex, and the outside is where the volume is
    positive.
    """
    try:
        points, corners = np.asarray(vertices, dtype=float), np.asarray(faces)
    except (TypeError, ValueError):
        raise InputError(f"{origin}: vertices and faces are arrays of numbers") from None
    if (
        points.ndim != 2
        or points.shape[1] != 3
        or corners.ndim != 2
        or corners.shape[1] != 3
        or corners.dtype.kind not in "iu"
    ):
        raise InputError(
            f"{origin}: vertices are (n, 3) and faces (m, 3) whole numbers; these have shapes"
            f" {points.shape} and {corners.shape}"
        )
    if not len(corners):
        raise InputError(f"{origin} has no triangles")
    if len(corners) > MAX_TRIANGLES:
        raise InputError(
            f"{origin} has {len(corners)} triangles, more than {MAX_TRIANGLES}: simplify it"
        )
    if corners.min() < 0 or corners.max() >= len(points):
        raise InputError(
            f"{origin}: a face names vertex"
            f" {int(corners.max() if corners.max() >= len(points) else corners.min())}, and there"
            f" are {len(points)}"
        )
    if not np.all(np.abs(points) < _LARGEST):
        raise InputError(
            f"{origin} has vertices that are NaN, infinite or further away than {_LARGEST:g}"
        )
    merged, which = np.unique(points, axis=0, return_inverse=True)
    corners = which.reshape(-1)[corners.astype(np.int64)]
    found = Triangles(merged, np.ascontiguousarray(corners[_distinct(corners)]), origin)
    if not len(found.faces):
        raise InputError(f"{origin} has no triangle of positive area")
    if found.open_edges:
        size = float(np.ptp(merged, axis=0).max())
        closer = (found.on_grid(size * parted) for parted in _PARTED)
        found = next((t for t in closer if not t.open_edges), found)
    return (
        found
        if found.volume >= 0
        else replace(found, faces=np.ascontiguousarray(found.faces[:, ::-1]))
    )


def _distinct(faces: np.ndarray) -> np.ndarray:
    """Of which all three corners differ."""
    a, b, c = faces.T
    found: np.ndarray = (a != b) & (b != c) & (c != a)
    return found


def _stl(data: bytes, shown: str) -> Triangles:
    count = int.from_bytes(data[80:84], "little") if len(data) >= 84 else -1
    if count >= 0 and len(data) == 84 + count * _STL.itemsize:
        if count > MAX_TRIANGLES:
            raise InputError(
                f"{shown} has {count} triangles, more than {MAX_TRIANGLES}: simplify it"
            )
        points = np.frombuffer(data, _STL, count, 84)["corners"].reshape(-1, 3).astype(float)
    elif data[:512].lstrip().startswith(b"solid"):
        words = data.split()
        at = [k for k, word in enumerate(words) if word == b"vertex"]
        if not at or len(at) % 3 or at[-1] + 3 >= len(words):
            raise InputError(
                f"{shown} is no text STL: it has {len(at)} vertices, not three for each triangle"
            )
        points = np.array([[float(x) for x in words[k + 1 : k + 4]] for k in at])
    else:
        raise InputError(
            f"{shown} is no STL: a binary one with {count} triangles has"
            f" {84 + count * _STL.itemsize} bytes, this has {len(data)}"
        )
    return triangles(points, np.arange(len(points)).reshape(-1, 3), shown)


def _obj(data: bytes, shown: str) -> Triangles:
    vertices: list[list[float]] = []
    faces: list[tuple[int, int, int]] = []
    for line in data.decode("utf-8", "replace").splitlines():
        words = line.split()
        if not words:
            continue
        if words[0] == "v":
            vertices.append([float(x) for x in words[1:4]])
            if len(vertices[-1]) != 3:
                raise InputError(f"{shown}: a vertex has three numbers, not {line.strip()[:60]!r}")
        elif words[0] == "f":
            corners = [int(word.split("/")[0]) for word in words[1:]]
            corners = [k - 1 if k > 0 else len(vertices) + k for k in corners]
            if len(corners) < 3:
                raise InputError(
                    f"{shown}: a face has three corners at least, not {line.strip()[:60]!r}"
                )
            faces += [(corners[0], corners[k], corners[k + 1]) for k in range(1, len(corners) - 1)]
            if len(faces) > MAX_TRIANGLES:
                raise InputError(f"{shown} has more than {MAX_TRIANGLES} triangles: simplify it")
    return triangles(
        np.array(vertices).reshape(-1, 3), np.array(faces, dtype=np.int64).reshape(-1, 3), shown
    )


def _collada(data: bytes, shown: str) -> Triangles:
    """All parts of its scene as one surface, in metres."""
    parts = read_collada(data, shown)
    first = np.cumsum([0] + [len(part.vertices) for part in parts])
    faces = [part.faces + k for part, k in zip(parts, first, strict=False)]
    return triangles(np.concatenate([p.vertices for p in parts]), np.concatenate(faces), shown)


def _by_trimesh(data: bytes, kind: str, shown: str) -> Triangles:
    try:
        import trimesh
    except ModuleNotFoundError:
        raise InputError(
            f"{shown}: STL, OBJ and DAE are read as they are; for"
            f" {kind or 'a file without an ending'} install trimesh"
        ) from None
    import io

    try:
        scene: Any = trimesh.load(io.BytesIO(data), file_type=kind.lstrip("."), force="mesh")
        return triangles(scene.vertices, np.asarray(scene.faces, dtype=np.int64), shown)
    except InputError:
        raise
    except Exception as error:  # whatever its many readers make of a file
        raise InputError(
            f"{shown} cannot be read by trimesh: {type(error).__name__}: {str(error)[:200]}"
        ) from None
