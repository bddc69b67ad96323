"""What problems compare: elements of links, which move, and solids of a scene, whose numbers are
inputs; and the signed distance of two of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rigidgrad.algorithms.joints import Vector
from rigidgrad.collisions.covers import covered
from rigidgrad.errors import InputError
from rigidgrad.geometry import boxes, closest
from rigidgrad.geometry.closest import Nearest
from rigidgrad.geometry.links import BoxElement, Element
from rigidgrad.geometry.shapes import Box, Capsule, Mesh, Plane, Shape, Sphere
from rigidgrad.spatial import Transform, add3, rotate_back, sub3

BALL, CAPSULE, BOX, PLANE = range(4)
_TWO_BOXES = 12  # pairs that two boxes count for


class Solids(NamedTuple):
    """An object of a scene: the kind of its solids, and the numbers of each."""

    name: str
    kind: int
    rows: np.ndarray


class Placed(NamedTuple):
    """An element where its link is: a ball's centre, with a way of no length; a capsule's one end,
    and the way to the other; a box's middle, and its matrix.
    """

    element: Element | BoxElement
    at: Vector
    way: Any

    @property
    def kind(self) -> int:
        return kind_of(self.element)

    @property
    def row(self) -> Vector:
        """Its numbers, as those of a solid of a scene."""
        if isinstance(self.element, BoxElement):
            return (*self.at, *(x for row in self.way for x in row), *self.element.half)
        way = () if self.element.is_ball else self.way
        return (*self.at, *way, self.element.radius)


def kind_of(e: Element | BoxElement) -> int:
    return BOX if e.is_box else BALL if e.is_ball else CAPSULE


def pairs_of(e: Element | BoxElement, kind: int) -> int:
    """How many pairs an element and a solid of a kind count for."""
    return _TWO_BOXES if e.is_box and kind == BOX else 1


def placed(X: Transform, e: Element | BoxElement) -> Placed:
    """An element of a link; X is from the world to the link's body."""
    if isinstance(e, BoxElement):
        axes = [rotate_back(X.E, axis) for axis in zip(*e.rotation, strict=True)]
        at = add3(X.r, rotate_back(X.E, e.center))
        return Placed(e, at, tuple(zip(*axes, strict=True)))
    at = add3(X.r, rotate_back(X.E, e.start))
    return Placed(e, at, rotate_back(X.E, sub3(e.end, e.start)))


def solids(name: str, shape: Shape) -> Solids:
    match shape:
        case Sphere():
            return Solids(name, BALL, np.array([[*shape.center, shape.radius]]))
        case Capsule():
            way = shape.end - shape.start
            return Solids(name, CAPSULE, np.array([[*shape.start, *way, shape.radius]]))
        case Box():
            R = np.ravel(shape.pose.R)
            return Solids(name, BOX, np.concatenate([shape.pose.p, R, shape.size / 2])[None])
        case Plane():
            return Solids(name, PLANE, np.array([[*shape.normal, shape.offset]]))
        case Mesh():
            cover = shape.cover(covered)
            centers = cover.centers @ np.array(shape.pose.R).T + np.array(shape.pose.p)
            return Solids(name, BALL, np.column_stack([centers, cover.radii]))
    raise InputError(
        f"{name!r}: a problem's scene holds boxes, spheres, capsules, planes and meshes, not"
        f" {type(shape).__name__}: pass a few spheres around a cloud"
    )


def between(a: Placed, kind: int, row: Vector) -> Nearest:
    """Of an element and the solid of these numbers."""
    return _of_box(a, kind, row) if a.kind == BOX else _of_segment(a, kind, row)


def _of_box(a: Placed, kind: int, row: Vector) -> Nearest:
    assert isinstance(a.element, BoxElement)
    own = a.at, a.way, a.element.half
    if kind == BOX:
        return boxes.box_box(*own, *_box(row))
    if kind == PLANE:
        return boxes.box_plane(*own, row[:3], row[3])
    if kind == CAPSULE:
        found = closest.flipped(closest.segment_box(row[:3], row[3:6], *own))
        return found[0] - row[6], *found[1:]
    found = closest.flipped(closest.point_box(row[:3], *own))
    return found[0] - row[3], *found[1:]


def _of_segment(a: Placed, kind: int, row: Vector) -> Nearest:
    p, way, ball = a.at, a.way, a.kind == BALL
    if kind == BOX:
        box = _box(row)
        found = closest.point_box(p, *box) if ball else closest.segment_box(p, way, *box)
    elif kind == PLANE:
        plane = row[:3], row[3]
        found = closest.point_plane(p, *plane) if ball else closest.segment_plane(p, way, *plane)
    elif kind == CAPSULE:
        c, other = row[:3], row[3:6]
        found = (
            closest.points(p, closest.on_segment(c, other, p))
            if ball
            else closest.segments(p, way, c, other)
        )
        found = found[0] - row[6], *found[1:]
    else:
        found = closest.points(p, row[:3]) if ball else closest.segment_point(p, way, row[:3])
        found = found[0] - row[3], *found[1:]
    return found[0] - a.element.radius, found[1], found[2]


def _box(row: Vector) -> tuple[Vector, Any, Vector]:
    return row[:3], (row[3:6], row[6:9], row[9:12]), row[12:]
