"""Where two shapes touch, over any scalar: distance, place and normal of each contact, as MuJoCo
has them.

A shape is (kind, size, centre p, rotation R); of R, spheres need nothing and capsules and cylinders
the third column. A normal points from the first shape to the second, a place is midway between the
surfaces. Where a function has fewer contacts than slots, the distance of the others is `FAR`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rigidgrad.scalars import Scalar, add, less, mul, neg, select, sqrt, sub
from rigidgrad.spatial import (
    Matrix3,
    Vector3,
    add3,
    cross3,
    dot3,
    rotate,
    rotate_back,
    scale3,
    sub3,
)
from rigidgrad.worlds.impedance import TINY

PLANE, FIELD, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX, MESH = range(8)  # mjtGeom
NAMES = {
    0: "plane", 1: "height field", 2: "sphere", 3: "capsule", 4: "ellipsoid", 5: "cylinder",
    6: "box", 7: "mesh", 8: "sdf",
}  # fmt: skip
FAR = 1e6


class Shape(NamedTuple):
    """`R` as columns: x, y and z axis of the shape."""

    size: Any
    p: Vector3
    R: Matrix3

    @property
    def axis(self) -> Vector3:
        return tuple(row[2] for row in self.R)


class Contact(NamedTuple):
    """`tangent` is the wanted second axis of the contact frame, or None."""

    distance: Scalar
    place: Vector3
    normal: Vector3
    tangent: Vector3 | None = None


def clip(x: Scalar, low: Scalar, high: Scalar) -> Scalar:
    return select(less(x, low), low, select(less(high, x), high, x))


def length(a: Vector3) -> Scalar:
    """|a|, whose derivative at zero is zero."""
    square = dot3(a, a)
    tiny = less(square, TINY * TINY)
    return select(tiny, 0.0 * square, sqrt(select(tiny, 1.0 + 0.0 * square, square)))


def unit(a: Vector3, fallback: Vector3) -> Vector3:
    """a / |a|; the fallback where a is zero."""
    n = length(a)
    tiny = less(n, TINY)
    inverse = 1.0 / select(tiny, 1.0 + 0.0 * n, n)
    return tuple(select(tiny, f, mul(x, inverse)) for x, f in zip(a, fallback, strict=True))


def blend(condition: Any, a: Vector3, b: Vector3) -> Vector3:
    return tuple(select(condition, x, y) for x, y in zip(a, b, strict=True))


def frame(normal: Vector3, tangent: Vector3 | None) -> Matrix3:
    """Rows normal, t1, t2: t1 is `tangent`, or the y axis, or the z axis where y is near the
    normal, made orthogonal.
    """
    if tangent is None:
        upright = normal[1]
        if isinstance(upright, float):
            steep: Any = abs(upright) >= 0.5
            tangent = (0.0, 0.0, 1.0) if steep else (0.0, 1.0, 0.0)
        else:
            flat = less(abs(upright), 0.5)
            one, none = 1.0 + 0.0 * upright, 0.0 * upright
            tangent = (0.0, select(flat, one, none), select(flat, none, one))
    along = dot3(normal, tangent)
    t1 = unit(sub3(tangent, scale3(along, normal)), (0.0, 1.0, 0.0))
    return normal, t1, cross3(normal, t1)


# --- planes ---------------------------------------------------------------------------------------


def point_on_plane(plane: Shape, p: Vector3, radius: Scalar) -> Contact:
    n = plane.axis
    distance = sub(dot3(sub3(p, plane.p), n), radius)
    return Contact(distance, sub3(p, scale3(add(mul(0.5, distance), radius), n)), n)


def plane_sphere(plane: Shape, ball: Shape, margin: float) -> list[Contact]:
    return [point_on_plane(plane, ball.p, ball.size[0])]


def plane_capsule(plane: Shape, capsule: Shape, margin: float) -> list[Contact]:
    way = scale3(capsule.size[1], capsule.axis)
    ends = add3(capsule.p, way), sub3(capsule.p, way)
    found = [point_on_plane(plane, p, capsule.size[0]) for p in ends]
    return [c._replace(tangent=steady(capsule.axis, c.normal)) for c in found]


def steady(axis: Vector3, normal: Vector3) -> Vector3:
    """An axis to align a frame with, unless it is along the normal."""
    aligned = less(0.9999999, abs(dot3(axis, normal)))
    return blend(aligned, frame(normal, None)[1], axis)


def plane_box(plane: Shape, box: Shape, margin: float) -> list[Contact]:
    """Of each pair of opposite corners the one that is on the plane's side."""
    n = plane.axis
    distance = dot3(sub3(box.p, plane.p), n)
    down = rotate_back(box.R, n)
    found = []
    for sx, sy in ((-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0), (1.0, 1.0)):
        local = mul(sx, box.size[0]), mul(sy, box.size[1]), mul(-1.0, box.size[2])
        low = dot3(down, local)
        other = less(0.0, low)
        sign = select(other, -1.0 + 0.0 * low, 1.0 + 0.0 * low)
        d = add(distance, mul(sign, low))
        corner = add3(box.p, rotate(box.R, tuple(mul(sign, x) for x in local)))
        found.append(Contact(d, sub3(corner, scale3(mul(0.5, d), n)), n))
    return found


def plane_cylinder(plane: Shape, cylinder: Shape, margin: float) -> list[Contact]:
    """The lowest point of the nearer disk, that of the other one, and two more on the nearer."""
    n, radius, half = plane.axis, cylinder.size[0], cylinder.size[1]
    along = dot3(n, cylinder.axis)
    up = less(0.0, along)
    axis = tuple(select(up, neg(x), x) for x in cylinder.axis)
    along = select(up, neg(along), along)
    distance = dot3(sub3(cylinder.p, plane.p), n)
    across = sub3(scale3(along, axis), n)
    square = dot3(across, across)
    upright = less(square, 1e-24)
    scale = radius / sqrt(select(upright, 1.0 + 0.0 * square, square))
    own = scale3(radius, tuple(row[0] for row in cylinder.R))
    across = blend(upright, own, scale3(scale, across))
    drop = dot3(across, n)
    axis, along = scale3(half, axis), mul(half, along)

    def contact(d: Scalar, p: Vector3) -> Contact:
        return Contact(d, sub3(add3(cylinder.p, p), scale3(mul(0.5, d), n)), n)

    first = add(add(distance, along), drop)
    found = [
        contact(first, add3(across, axis)),
        contact(add(sub(distance, along), drop), sub3(across, axis)),
    ]
    d = sub(add(distance, along), mul(0.5, drop))
    side = scale3(radius * 3**0.5 / 2, unit(cross3(across, axis), (1.0, 0.0, 0.0)))
    for sign in (1.0, -1.0):
        p = sub3(add3(scale3(sign, side), axis), scale3(0.5, across))
        found.append(contact(d, p))
    # where the nearest point is beyond the margin there are no others
    near = less(margin, first)
    return [c._replace(distance=select(near, FAR, c.distance)) for c in found]


# --- balls and capsules ---------------------------------------------------------------------------


def balls(a: Vector3, ra: Scalar, b: Vector3, rb: Scalar) -> Contact:
    way = sub3(b, a)
    apart = length(way)
    n = unit(way, (1.0, 0.0, 0.0))
    distance = sub(sub(apart, ra), rb)
    return Contact(distance, add3(a, scale3(add(ra, mul(0.5, distance)), n)), n)


def sphere_sphere(a: Shape, b: Shape, margin: float) -> list[Contact]:
    return [balls(a.p, a.size[0], b.p, b.size[0])]


def on_axis(shape: Shape, x: Scalar) -> Vector3:
    return add3(shape.p, scale3(x, shape.axis))


def sphere_capsule(ball: Shape, capsule: Shape, margin: float) -> list[Contact]:
    half = capsule.size[1]
    x = clip(dot3(capsule.axis, sub3(ball.p, capsule.p)), -half, half)
    return [balls(ball.p, ball.size[0], on_axis(capsule, x), capsule.size[0])]


def sphere_cylinder(ball: Shape, cylinder: Shape, margin: float) -> list[Contact]:
    """On the side, on a cap, or on the edge between them."""
    radius, half, axis = cylinder.size[0], cylinder.size[1], cylinder.axis
    way = sub3(ball.p, cylinder.p)
    x = dot3(axis, way)
    out = sub3(way, scale3(x, axis))
    off = length(out)
    sign = select(less(0.0, x), 1.0 + 0.0 * x, -1.0 + 0.0 * x)
    beside, above = less(abs(x), half), less(off, radius)
    deep = less(half - abs(x), radius - off)  # of a centre inside: whether the cap is nearer
    side = balls(ball.p, ball.size[0], on_axis(cylinder, x), radius)
    n = scale3(neg(sign), axis)
    d = sub(sub(abs(x), half), ball.size[0])
    cap = Contact(d, add3(ball.p, scale3(add(mul(0.5, d), ball.size[0]), n)), n)
    around = scale3(radius, unit(out, (1.0, 0.0, 0.0)))
    edge = balls(ball.p, ball.size[0], add3(on_axis(cylinder, mul(half, sign)), around), 0.0)

    def pick(a: Any, b: Any, c: Any) -> Any:
        inside = select(deep, b, a)
        return select(beside, select(above, inside, a), select(above, b, c))

    return [
        Contact(
            pick(side.distance, cap.distance, edge.distance),
            tuple(pick(*z) for z in zip(side.place, cap.place, edge.place, strict=True)),
            tuple(pick(*z) for z in zip(side.normal, cap.normal, edge.normal, strict=True)),
        )
    ]


def capsule_capsule(a: Shape, b: Shape, margin: float) -> list[Contact]:
    """One contact, or two where the axes are parallel."""
    u, v = scale3(a.size[1], a.axis), scale3(b.size[1], b.axis)
    apart = sub3(a.p, b.p)
    uu, uv, vv = dot3(u, u), neg(dot3(u, v)), dot3(v, v)
    p, q = neg(dot3(u, apart)), dot3(v, apart)
    det = uu * vv - uv * uv
    parallel = less(abs(det), TINY)
    inverse = 1.0 / select(parallel, 1.0 + 0.0 * det, det)
    x1, x2 = (vv * p - uv * q) * inverse, (uu * q - uv * p) * inverse
    y1 = clip(x1, -1.0, 1.0)
    moved = less(1.0, abs(x1))
    x2 = select(moved, (q - uv * y1) / vv, x2)
    y2 = clip(x2, -1.0, 1.0)
    y1 = select(less(1.0, abs(x2)), clip((p - uv * y2) / uu, -1.0, 1.0), y1)

    def contact(s: Scalar, t: Scalar) -> Contact:
        return balls(add3(a.p, scale3(s, u)), a.size[0], add3(b.p, scale3(t, v)), b.size[0])

    general = contact(y1, y2)
    # parallel: the first two of four pairs of ends that are within the margin
    ends = [
        contact(1.0, clip((q - uv) / vv, -1.0, 1.0)),
        contact(-1.0, clip((q + uv) / vv, -1.0, 1.0)),
        contact(clip((p - uv) / uu, -1.0, 1.0), 1.0),
        contact(clip((p + uv) / uu, -1.0, 1.0), -1.0),
    ]
    taken: list[Contact] = [ends[0]._replace(distance=FAR), ends[0]._replace(distance=FAR)]
    count: Scalar = 0.0
    for e in ends:
        near = less(e.distance, margin)
        for k in range(2):
            here = less(abs(count - float(k)), 0.5)
            use = select(near, select(here, 1.0, 0.0), 0.0)
            taken[k] = choose(less(0.5, use), e, taken[k])
        count = count + select(near, 1.0, 0.0)
    return [
        choose(parallel, taken[0], general),
        taken[1]._replace(distance=select(parallel, taken[1].distance, FAR)),
    ]


def choose(condition: Any, a: Contact, b: Contact) -> Contact:
    return Contact(
        select(condition, a.distance, b.distance),
        blend(condition, a.place, b.place),
        blend(condition, a.normal, b.normal),
    )


def sphere_box(ball: Shape, box: Shape, margin: float) -> list[Contact]:
    """The nearest point of the box; of a centre inside, the nearest face."""
    local = rotate_back(box.R, sub3(ball.p, box.p))
    nearest = tuple(clip(x, -s, s) for x, s in zip(local, box.size, strict=True))
    way = sub3(nearest, local)
    inside = less(dot3(way, way), 1e-24)
    outer = unit(way, (1.0, 0.0, 0.0))
    rooms = [s - abs(x) for x, s in zip(local, box.size, strict=True)]
    room, face = rooms[0], [1.0, 0.0, 0.0]
    for k in (1, 2):
        closer = less(rooms[k], room)
        room = select(closer, rooms[k], room)
        face = [select(closer, float(i == k), f) for i, f in enumerate(face)]
    # from the ball into the box
    sign = [select(less(0.0, x), -1.0, 1.0) for x in local]
    inner = tuple(mul(s, f) for s, f in zip(sign, face, strict=True))
    apart = select(inside, neg(room), length(way))
    n = rotate(box.R, blend(inside, inner, outer))
    distance = sub(apart, ball.size[0])
    place = add3(ball.p, scale3(add(ball.size[0], mul(0.5, distance)), n))
    return [Contact(distance, place, n)]
