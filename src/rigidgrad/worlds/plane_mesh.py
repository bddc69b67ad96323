"""A plane against shapes that are known by their farthest points: ellipsoids and convex meshes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from rigidgrad.scalars import Scalar, less, mul, select, total
from rigidgrad.spatial import Vector3, add3, dot3, rotate, rotate_back, scale3, sub3
from rigidgrad.worlds.narrow import FAR, Contact, Shape, length

MOST = 4  # contacts of a mesh
_LINE = 1e-9  # the sine of a corner of a triangle that is none
_MOST_TRIANGLES = 1000  # that a step goes through
_MOST_FACES = 160  # that a step looks at for each pair


@dataclass(frozen=True)
class Face:
    """Of a convex hull: its normal, and up to four of its corners that count where one of `lowest`
    is the deepest of the hull.
    """

    normal: tuple[float, ...]
    lowest: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Mesh:
    """The convex hull of a mesh, around its centre of mass."""

    corners: tuple[tuple[float, ...], ...]
    faces: tuple[Face, ...]
    triangles: tuple[tuple[int, int, int], ...]  # of corners, anticlockwise seen from outside

    @property
    def small(self) -> bool:
        return 0 < len(self.faces) <= _MOST_FACES

    @property
    def walkable(self) -> bool:
        return 0 < len(self.triangles) <= _MOST_TRIANGLES


def mesh_of(m: Any, g: int) -> Mesh:
    """That of a geom; it has no faces where MuJoCo knows no hull of it."""
    data = int(m.geom_dataid[g])
    first, count = int(m.mesh_vertadr[data]), int(m.mesh_vertnum[data])
    vertices = np.array(m.mesh_vert[first : first + count], float)
    begin, faces, used = int(m.mesh_polyadr[data]), [], set()
    triangles: list[tuple[int, ...]] = []
    for k in range(begin, begin + int(m.mesh_polynum[data])):
        at = int(m.mesh_polyvertadr[k])
        ring = [int(x) for x in m.mesh_polyvert[at : at + int(m.mesh_polyvertnum[k])]]
        normal = tuple(float(x) for x in m.mesh_polynormal[k])
        used.update(ring)
        triangles += fan(vertices, ring, normal)
        if len(ring) <= MOST:
            faces.append(Face(normal, tuple(ring), tuple(ring)))
        else:
            faces += [Face(normal, (x,), widest(vertices, ring, x)) for x in ring]
    order = sorted(used)
    place = {x: k for k, x in enumerate(order)}
    return Mesh(
        tuple(tuple(vertices[x].tolist()) for x in order),
        tuple(
            Face(f.normal, tuple(place[x] for x in f.lowest), tuple(place[x] for x in f.counts))
            for f in faces
        ),
        tuple((place[a], place[b], place[c]) for a, b, c in triangles),
    )


def fan(
    vertices: np.ndarray, ring: Sequence[int], normal: Sequence[float]
) -> list[tuple[int, int, int]]:
    """A face as triangles around its first corner, without those that are lines."""
    found = []
    for b, c in pairwise(ring[1:]):
        sides = vertices[b] - vertices[ring[0]], vertices[c] - vertices[ring[0]]
        area = float(np.cross(*sides) @ np.asarray(normal))
        if abs(area) > _LINE * float(np.linalg.norm(sides[0]) * np.linalg.norm(sides[1])):
            found.append((ring[0], b, c) if area > 0 else (ring[0], c, b))
    return found


def widest(vertices: np.ndarray, ring: Sequence[int], corner: int) -> tuple[int, ...]:
    """Of a face of many corners the four of greatest area that this one is among; of long rings
    only every so many are tried.
    """
    at = list(ring).index(corner)
    others = [*ring[at + 1 :], *ring[:at]]
    others = others[:: max(1, len(others) // 16)]

    def area(quad: tuple[int, ...]) -> float:
        a, b, c, d = (vertices[x] for x in quad)
        return float(np.linalg.norm(np.cross(c - a, d - b)))

    return max(((corner, *three) for three in combinations(others, 3)), key=area)


def plane_ellipsoid(plane: Shape, shape: Shape, margin: float) -> list[Contact]:
    n = plane.axis
    stretched = tuple(mul(s, x) for s, x in zip(shape.size, rotate_back(shape.R, n), strict=True))
    scale = -1.0 / length(stretched)
    local = tuple(mul(mul(scale, s), x) for s, x in zip(shape.size, stretched, strict=True))
    return [_contact(plane, add3(shape.p, rotate(shape.R, local)))]


def _contact(plane: Shape, at: Vector3) -> Contact:
    distance = dot3(sub3(at, plane.p), plane.axis)
    return Contact(distance, sub3(at, scale3(mul(0.5, distance), plane.axis)), plane.axis)


def plane_mesh(plane: Shape, shape: Shape, margin: float) -> list[Contact]:
    """Of the faces around the deepest corner the one that looks down most: its corners that are
    below the centre of mass. `shape.size` is the Mesh.
    """
    mesh: Mesh = shape.size
    up = rotate_back(shape.R, plane.axis)
    heights = [total(mul(a, b) for a, b in zip(c, up, strict=True)) for c in mesh.corners]
    least = heights[0]
    for height in heights[1:]:
        least = select(less(height, least), height, least)
    best: Scalar = 2.0
    row: list[Scalar] = [0.0] * (3 * MOST + 1)
    for face in mesh.faces:
        low = heights[face.lowest[0]]
        for k in face.lowest[1:]:
            low = select(less(heights[k], low), heights[k], low)
        looks = total(mul(a, b) for a, b in zip(face.normal, up, strict=True))
        looks = select(less(least, low), 2.0, looks)  # not around the deepest corner
        chosen = [mesh.corners[k] for k in face.counts]
        full = float(len(chosen) == MOST)
        chosen += [chosen[0]] * (MOST - len(chosen))
        numbers = [*(x for c in chosen for x in c), full]
        better = less(looks, best)
        best = select(better, looks, best)
        row = [select(better, x, y) for x, y in zip(numbers, row, strict=True)]
    found = []
    for k in range(MOST):
        corner = tuple(row[3 * k : 3 * k + 3])
        height = dot3(corner, up)
        contact = _contact(plane, add3(shape.p, rotate(shape.R, corner)))
        shown = select(less(height, 0.0), 1.0, 0.0)
        if k == MOST - 1:
            shown = select(less(0.5, row[-1]), shown, 0.0)
        distance = select(less(0.5, shown), contact.distance, FAR)
        found.append(contact._replace(distance=distance))
    return found
