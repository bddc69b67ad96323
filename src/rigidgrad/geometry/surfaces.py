"""Closed surfaces of triangles: of boxes, around and within cylinders, around ellipsoids, under
fields of heights.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.geometry.meshes import Triangles, triangles

SIDES = 24  # of what stands for a cylinder
_MOST_SIDES = 400  # of what stands for an ellipsoid


def round_prism(radius: float, length: float) -> Triangles:
    """Along z about the origin, its edges at this radius."""
    angle = 2 * np.pi * np.arange(SIDES) / SIDES
    ring = radius * np.column_stack([np.cos(angle), np.sin(angle)])
    vertices = np.concatenate(
        [np.column_stack([ring, np.full(SIDES, z)]) for z in (-length / 2, length / 2)]
    )
    vertices = np.concatenate([vertices, [[0, 0, -length / 2], [0, 0, length / 2]]])
    k = np.arange(SIDES)
    nxt = (k + 1) % SIDES
    low, high = np.full(SIDES, 2 * SIDES), np.full(SIDES, 2 * SIDES + 1)
    faces = np.concatenate(
        [
            np.column_stack([k, nxt, nxt + SIDES]),
            np.column_stack([k, nxt + SIDES, k + SIDES]),
            np.column_stack([nxt, k, low]),
            np.column_stack([k + SIDES, nxt + SIDES, high]),
        ]
    )
    return triangles(vertices, faces, "a cylinder")


def around_ellipsoid(radii: np.ndarray, most: float) -> tuple[Triangles, float]:
    """Around an ellipsoid along the axes about the origin, and by how much it sticks out at most:
    no more than `most` metres.

    A surface with its corners on the unit ball, whose faces are m away from the middle, holds the
    ball when it is 1/m times as large, and is in one of radius 1/m; so it is when stretched.
    """
    sides = SIDES
    while True:
        vertices, faces = _globe(sides)
        a, b, c = vertices[faces].transpose(1, 0, 2)
        n = np.cross(b - a, c - a)
        m = float((np.einsum("ij,ij->i", n, a) / np.linalg.norm(n, axis=1)).min())
        beyond = (1.0 / m - 1.0) * float(radii.max())
        if beyond <= most:
            return triangles(vertices * radii / m, faces, "an ellipsoid"), beyond
        if sides >= _MOST_SIDES:
            raise InputError(
                f"an ellipsoid with radii {radii.tolist()} is too large to be covered with an error"
                f" of {4 * most:g} m: allow a larger one, error=…"
            )
        sides *= 2


def _globe(sides: int) -> tuple[np.ndarray, np.ndarray]:
    """Corners on the unit ball, on circles about z, and faces."""
    rows = sides // 2
    up, across = np.pi * np.arange(1, rows) / rows, 2 * np.pi * np.arange(sides) / sides
    x, y = (np.sin(up)[:, None] * f(across) for f in (np.cos, np.sin))
    z = np.tile(np.cos(up)[:, None], sides)
    poles = [(0.0, 0.0, 1.0), (0.0, 0.0, -1.0)]
    vertices = np.concatenate([np.stack([x, y, z], axis=-1).reshape(-1, 3), poles])
    number = np.arange(len(vertices) - 2).reshape(rows - 1, sides)
    nxt = np.roll(number, -1, axis=1)
    a, b, c, d = (k.ravel() for k in (number[:-1], nxt[:-1], number[1:], nxt[1:]))
    top, bottom = (np.full(sides, len(vertices) - k) for k in (2, 1))
    faces = [(a, c, d), (a, d, b), (top, number[0], nxt[0]), (bottom, nxt[-1], number[-1])]
    return vertices, np.concatenate([np.column_stack(f) for f in faces])


def field_surface(heights: np.ndarray, size: np.ndarray, bottom: float) -> Triangles:
    """Heights (rows, columns) over a rectangle about the origin, columns along x, closed by a floor
    at `bottom`.
    """
    rows, columns = heights.shape
    x = np.linspace(-size[0] / 2, size[0] / 2, columns)
    y = np.linspace(-size[1] / 2, size[1] / 2, rows)
    X, Y = np.meshgrid(x, y)
    top = np.stack([X, Y, heights], axis=-1).reshape(-1, 3)
    floor = np.stack([X, Y, np.full_like(X, bottom)], axis=-1).reshape(-1, 3)
    number = np.arange(rows * columns).reshape(rows, columns)
    a, b, c, d = (
        number[:-1, :-1].ravel(),
        number[:-1, 1:].ravel(),
        number[1:, 1:].ravel(),
        number[1:, :-1].ravel(),
    )
    up = np.concatenate([np.column_stack([a, b, c]), np.column_stack([a, c, d])])
    down = up[:, ::-1] + rows * columns
    edge = np.concatenate([number[0, :-1], number[:-1, -1], number[-1, :0:-1], number[:0:-1, 0]])
    after = np.roll(edge, -1)
    under, next_under = edge + rows * columns, after + rows * columns
    sides = np.concatenate(
        [np.column_stack([edge, under, next_under]), np.column_stack([edge, next_under, after])]
    )
    return triangles(
        np.concatenate([top, floor]), np.concatenate([up, down, sides]), "a height field"
    )
