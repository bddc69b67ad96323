"""What the shapes of a scene look like: rows of numbers of a bounded size, for pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from rigidgrad.geometry.shapes import Box, Capsule, Mesh, Plane, Points, Shape, Sphere

MOST_TRIANGLES = 20_000  # of a scene's meshes together
MOST_POINTS = 4_000  # of its clouds together
_FEWEST = 200  # triangles of a mesh: two cells along each axis always are fewer
WIDTHS = {"box": 15, "sphere": 4, "capsule": 7, "plane": 4, "mesh": 9, "points": 4}


class Outline(NamedTuple):
    """A shape in the world, in metres: its kind, rows of numbers, and a note on what is drawn
    otherwise than it is.

    Rows: box (lengths, middle, rotation row by row), sphere and each of points (centre, radius),
    capsule (start, end, radius), plane (normal, offset), each triangle of a mesh (three corners).
    """

    name: str
    kind: str
    rows: np.ndarray
    note: str = ""


def outlines(shapes: Mapping[str, Shape]) -> tuple[Outline, ...]:
    """Those of named shapes. Large meshes are made coarser and large clouds thinner, and a note
    says so.
    """
    return tuple(_outlines(shapes))


def _outlines(shapes: Mapping[str, Shape]) -> Iterator[Outline]:
    triangles = sum(len(s.triangles.faces) for s in shapes.values() if isinstance(s, Mesh))
    points = sum(len(s.xyz) for s in shapes.values() if isinstance(s, Points))
    for name, shape in shapes.items():
        match shape:
            case Box():
                yield Outline(
                    name,
                    "box",
                    np.concatenate([shape.size, shape.pose.p, np.ravel(shape.pose.R)])[None],
                )
            case Sphere():
                yield Outline(name, "sphere", np.append(shape.center, shape.radius)[None])
            case Capsule():
                yield Outline(
                    name, "capsule", np.concatenate([shape.start, shape.end, [shape.radius]])[None]
                )
            case Plane():
                yield Outline(name, "plane", np.append(shape.normal, shape.offset)[None])
            case Mesh():
                corners, count = (
                    shape.triangles.moved(shape.pose.R, shape.pose.p).corners,
                    len(shape.triangles.faces),
                )
                note = ""
                if triangles > MOST_TRIANGLES:
                    corners, moved = coarser(
                        corners, max(MOST_TRIANGLES * count // triangles, _FEWEST)
                    )
                    note = (
                        f"Mesh {name!r} has {count} triangles; {len(corners)} are drawn, whose"
                        f" corners are up to {1e3 * moved:.2g} mm off."
                    )
                yield Outline(
                    name, "mesh", corners.reshape(-1, 9), note if len(corners) < count else ""
                )
            case Points():
                every = -(-points // MOST_POINTS)
                rows = np.column_stack([shape.xyz, shape.radius])[::every]
                note = (
                    f"Of the {len(shape.xyz)} points of {name!r}, {len(rows)} are drawn, evenly"
                    " chosen."
                    if every > 1
                    else ""
                )
                yield Outline(name, "points", rows, note)


def coarser(corners: np.ndarray, most: int) -> tuple[np.ndarray, float]:
    """At most so many triangles (m, 3, 3) in place of more: corners in one cell of a grid become
    one, their mean. Also how far a corner was moved at most.

    J. Rossignac and P. Borrel, Multi-resolution 3D approximations for rendering complex scenes,
    1993.
    """
    if len(corners) <= most:
        return corners, 0.0
    points = corners.reshape(-1, 3)
    low, span = points.min(axis=0), float(np.ptp(points, axis=0).max())
    area = (
        float(
            np.linalg.norm(
                np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1
            ).sum()
        )
        / 2
    )
    cell = max(np.sqrt(area / most), 1e-4 * span)
    while True:
        x, y, z = np.floor((points - low) / cell).astype(np.int64).T
        wide = int(span / cell) + 1
        _, which, count = np.unique(
            (x * wide + y) * wide + z, return_inverse=True, return_counts=True
        )
        faces = which.reshape(-1, 3)
        faces = faces[
            (faces[:, 0] != faces[:, 1])
            & (faces[:, 1] != faces[:, 2])
            & (faces[:, 2] != faces[:, 0])
        ]
        first = faces.argmin(axis=1)[:, None]  # the same triangle begins at the same corner
        faces = np.unique(np.take_along_axis(faces, (first + np.arange(3)) % 3, axis=1), axis=0)
        if len(faces) <= most:
            break
        cell *= 1.25
    if not len(faces):  # a needle
        return corners[:: -(-len(corners) // most)], 0.0
    mean = (
        np.stack([np.bincount(which, weights=points[:, k]) for k in range(3)], axis=1)
        / count[:, None]
    )
    return mean[faces], float(np.linalg.norm(mean[which] - points, axis=1).max())
