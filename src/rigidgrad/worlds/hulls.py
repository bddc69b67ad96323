"""Balls and rods against convex meshes.

In the mesh's axes the core of a shape is c + t h, |t| ≤ 1, with h = 0 for balls. Where it is not in
the mesh, the contact is with the triangle that is nearest; where it is, with the triangle out of
which it is moved soonest. A rod that lies nearly along a face that the nearest place is on touches
it in two places, as in MuJoCo: where the line on its surface ends, or leaves the face.

What a pair depends on is a feature: the nearest triangle, the one that is the way out, one of the
face that a rod lies on, the two planes at which it leaves that, and which of the cases it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rigidgrad.scalars import Scalar, add, less, mul, neg, select, sub
from rigidgrad.spatial import Vector3, add3, cross3, dot3, rotate, rotate_back, scale3, sub3
from rigidgrad.worlds.impedance import TINY
from rigidgrad.worlds.narrow import FAR, Contact, Shape, blend, length, unit
from rigidgrad.worlds.nearest import Nearest, line_and_line

# of a feature: where the way out begins, the face of a rod that lies flat, the planes at its ends,
# and two flags
OUT, FACE, PLANES, INSIDE, FLAT, NUMBERS = 9, 18, 27, 35, 36, 37


# the most that the axis of a rod which touches a face twice is along its normal: found by trying
# capsules on plates in MuJoCo
TILT = 0.0888


def triangle_of(numbers: Sequence[Scalar]) -> tuple[tuple[Vector3, ...], Vector3]:
    """Corners and normal."""
    a, b, c = (tuple(numbers[3 * k : 3 * k + 3]) for k in range(3))
    return (a, b, c), unit(cross3(sub3(b, a), sub3(c, a)), (0.0, 0.0, 1.0))


def core_of(shape: Shape, hull: Shape, rod: bool) -> tuple[Vector3, Vector3]:
    """c and h."""
    c = rotate_back(hull.R, sub3(shape.p, hull.p))
    h = rotate_back(hull.R, scale3(shape.size[1], shape.axis)) if rod else (0.0, 0.0, 0.0)
    return c, h


def sphere_mesh(ball: Shape, hull: Shape, margin: Scalar) -> list[Contact]:
    """`hull.size` is a feature."""
    c, h = core_of(ball, hull, rod=False)
    return [_in_world(hull, _single(hull.size, c, h, ball.size[0], rod=False))]


def capsule_mesh(rod: Shape, hull: Shape, margin: Scalar) -> list[Contact]:
    c, h = core_of(rod, hull, rod=True)
    feature, radius = hull.size, rod.size[0]
    single = _single(feature, c, h, radius, rod=True)
    (corner, *_), up = triangle_of(feature[FACE : FACE + 9])
    # the line on the rod's surface that is nearest to the mesh
    line = add3(c, scale3(radius, single.normal))
    found = []
    ts: list[Scalar] = []
    for side, begin in ((-1.0, PLANES), (1.0, PLANES + 4)):
        t = _crossing(feature[begin : begin + 4], up, corner, line, h, side)
        x = add3(line, scale3(t, h))
        height = dot3(up, sub3(x, corner))
        place = sub3(x, scale3(mul(0.5, height), up))
        found.append(Contact(height, place, tuple(neg(n) for n in up)))
        ts.append(t)
    one, two = found
    flat = less(ts[0], ts[1]) & less(one.distance, margin)
    flat = flat & less(two.distance, margin) & less(0.5, feature[FLAT])
    first = Contact(
        select(flat, one.distance, single.distance),
        blend(flat, one.place, single.place),
        blend(flat, one.normal, single.normal),
    )
    second = two._replace(distance=select(flat, two.distance, FAR))
    return [_in_world(hull, first), _in_world(hull, second)]


def _in_world(hull: Shape, contact: Contact) -> Contact:
    place, normal = (rotate(hull.R, x) for x in (contact.place, contact.normal))
    return Contact(contact.distance, add3(hull.p, place), normal)


def _single(
    feature: Sequence[Scalar], c: Vector3, h: Vector3, radius: Scalar, rod: bool
) -> Contact:
    near = Nearest(c)
    offer(near, triangle_of(feature[:9]), c, h, rod)
    distance, way = length(near.gap), unit(near.gap, (0.0, 0.0, 1.0))
    outer = add3(near.at, scale3(mul(0.5, sub(distance, radius)), way))
    (corner, *_), up = triangle_of(feature[OUT : OUT + 9])
    x = c
    if rod:
        rising = less(0.0, dot3(up, h))
        x = add3(c, tuple(select(rising, neg(y), y) for y in h))
    height = dot3(up, sub3(x, corner))
    inner = sub3(x, scale3(mul(0.5, add(height, radius)), up))
    inside = less(0.5, feature[INSIDE])
    normal = blend(inside, up, way)
    return Contact(
        sub(select(inside, height, distance), radius),
        blend(inside, inner, outer),
        tuple(neg(n) for n in normal),
    )


def offer(near: Nearest, triangle: Any, c: Vector3, h: Vector3, rod: bool) -> None:
    """The gaps from a triangle to the core."""
    corners, up = triangle
    edges = [sub3(corners[(k + 1) % 3], corners[k]) for k in range(3)]
    for x in (sub3(c, h), add3(c, h)) if rod else (c,):
        height = dot3(up, sub3(x, corners[0]))
        foot = sub3(x, scale3(height, up))
        within = less(0.0, height)
        for corner, edge in zip(corners, edges, strict=True):
            within = within & less(0.0, dot3(cross3(edge, sub3(foot, corner)), up))
        near.offer(foot, x, within)
        if not rod:
            for corner, edge in zip(corners, edges, strict=True):
                s = dot3(sub3(x, corner), edge) / dot3(edge, edge)
                s = select(less(s, 0.0), 0.0, select(less(1.0, s), 1.0, s))
                near.offer(add3(corner, scale3(s, edge)), x)
    for corner, edge in zip(corners, edges, strict=True) if rod else ():
        s, t = line_and_line(corner, edge, c, h)
        near.offer(add3(corner, scale3(s, edge)), add3(c, scale3(t, h)))


def _crossing(
    plane: Sequence[Scalar], up: Vector3, corner: Vector3, c: Vector3, h: Vector3, side: float
) -> Scalar:
    """t where the core, seen along `up`, leaves the face through a plane; its end where there is no
    plane (all zero).
    """
    rate, room = seen(plane, up, corner, c, h)
    none = less(abs(rate), TINY)
    return select(none, side, room / select(none, 1.0 + 0.0 * rate, rate))


def seen(
    plane: Sequence[Scalar], up: Vector3, corner: Vector3, c: Vector3, h: Vector3
) -> tuple[Scalar, Scalar]:
    """(rate, room): in the plane of a face the core is behind another plane while t rate ≤ room."""
    n, d = tuple(plane[:3]), plane[3]
    low = sub3(c, scale3(dot3(up, sub3(c, corner)), up))
    along = sub3(h, scale3(dot3(up, h), up))
    return dot3(n, along), sub(d, dot3(n, low))
