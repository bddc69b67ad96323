"""Shapes against a height field, one prism at a time.

As in MuJoCo, each cell of a field is two upright prisms below its triangles, and a shape touches
each of them in one place at most. A prism is its three upper corners (nine numbers, anticlockwise
seen from above, in the field's axes); it has no lower end.

A shape is a core, the points p + Σ t h of |t| ≤ 1 over its half axes h (none of spheres, one of
capsules, three of boxes), with a radius around it. Apart from the prism, a point or a line has
one nearest place. Where the core is inside, and always of boxes, the contact is along the
direction that moves the shape out soonest: a normal of the prism or of the core, or a product of
their edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rigidgrad.scalars import Scalar, add, less, mul, neg, select, sqrt, sub
from rigidgrad.spatial import (
    Vector3,
    add3,
    cross3,
    dot3,
    multiply3,
    rotate,
    rotate_back,
    scale3,
    sub3,
    transpose,
)
from rigidgrad.worlds.impedance import TINY
from rigidgrad.worlds.narrow import FAR, Contact, Shape, blend, clip, length, unit
from rigidgrad.worlds.nearest import PARALLEL, Nearest, line_and_line

_DOWN = 1e-7  # how far a direction out of a prism may point down


class Prism(NamedTuple):
    corners: tuple[Vector3, ...]
    edges: tuple[Vector3, ...]  # from each corner to the next
    outward: tuple[Vector3, ...]  # of the walls below the edges, level and of length one
    up: Vector3  # the normal of the triangle


class Way(NamedTuple):
    """A direction out of the prism: how far the shape is in, and the place midway."""

    depth: Scalar
    normal: Vector3
    place: Vector3


def prism_of(numbers: Sequence[Scalar]) -> Prism:
    corners = tuple(tuple(numbers[3 * k : 3 * k + 3]) for k in range(3))
    edges = tuple(sub3(corners[(k + 1) % 3], corners[k]) for k in range(3))
    outward = tuple(unit((e[1], neg(e[0]), 0.0), (1.0, 0.0, 0.0)) for e in edges)
    up = unit(cross3(edges[0], sub3(corners[2], corners[0])), (0.0, 0.0, 1.0))
    return Prism(corners, edges, outward, up)


def field_sphere(field: Shape, ball: Shape, margin: Scalar) -> list[Contact]:
    return [_in_world(field, _touch(field, ball.p, [], ball.size[0]))]


def field_capsule(field: Shape, capsule: Shape, margin: Scalar) -> list[Contact]:
    half = rotate_back(field.R, scale3(capsule.size[1], capsule.axis))
    return [_in_world(field, _touch(field, capsule.p, [half], capsule.size[0]))]


def field_box(field: Shape, box: Shape, margin: Scalar) -> list[Contact]:
    R = multiply3(transpose(field.R), box.R)
    halves = [tuple(mul(box.size[k], row[k]) for row in R) for k in range(3)]
    return [_in_world(field, _touch(field, box.p, halves, 0.0))]


def _in_world(field: Shape, contact: Contact) -> Contact:
    place, normal = (rotate(field.R, x) for x in (contact.place, contact.normal))
    return Contact(contact.distance, add3(field.p, place), normal)


def _touch(field: Shape, at: Vector3, halves: list[Vector3], radius: Scalar) -> Contact:
    """The one contact, in the field's axes; `field.size` are the numbers of the prism."""
    prism, p = prism_of(field.size), rotate_back(field.R, sub3(at, field.p))
    ways = [*_by_faces(prism, p, halves), *_by_edges(prism, p, halves)]
    best = ways[0]
    for way in ways[1:]:
        better = less(way.depth, best.depth)
        best = Way(
            select(better, way.depth, best.depth),
            blend(better, way.normal, best.normal),
            blend(better, way.place, best.place),
        )
    distance, normal, place = neg(best.depth), best.normal, best.place
    if len(halves) < 2:
        inside = less(0.0, best.depth)
        gap, nearest = _nearest(prism, p, halves[0] if halves else None)
        outer = length(gap)
        distance = select(inside, distance, outer)
        normal = blend(inside, normal, unit(gap, prism.up))
        place = blend(inside, place, add3(nearest, scale3(0.5, gap)))
    # midway between prism and core; the radius moves that of the shape towards the prism
    return Contact(sub(distance, radius), sub3(place, scale3(mul(0.5, radius), normal)), normal)


# --- directions out -------------------------------------------------------------------------------


def _spread(halves: list[Vector3], n: Vector3) -> Scalar:
    """How far the core reaches along n."""
    found: Scalar = 0.0
    for h in halves:
        found = add(found, abs(dot3(h, n)))
    return found


def _lowest(p: Vector3, halves: list[Vector3], n: Vector3) -> Vector3:
    """The corner of the core that is the furthest against n."""
    for h in halves:
        up = less(0.0, dot3(h, n))
        p = add3(p, tuple(select(up, neg(x), x) for x in h))
    return p


def _by_faces(prism: Prism, p: Vector3, halves: list[Vector3]) -> list[Way]:
    found = []
    for corner, n in zip(
        (prism.corners[0], *prism.corners), (prism.up, *prism.outward), strict=True
    ):
        depth = sub(_spread(halves, n), dot3(n, sub3(p, corner)))
        place = add3(_lowest(p, halves, n), scale3(mul(0.5, depth), n))
        found.append(Way(depth, n, place))
    if len(halves) == 3:
        for h in halves:
            n = unit(h, (0.0, 0.0, 1.0))
            for sign in (1.0, -1.0):
                found.append(_by_core(prism, p, halves, scale3(sign, n)))
    return found


def _by_core(prism: Prism, p: Vector3, halves: list[Vector3], n: Vector3) -> Way:
    corner = prism.corners[0]
    most = dot3(n, corner)
    for other in prism.corners[1:]:
        height = dot3(n, other)
        more = less(most, height)
        most, corner = select(more, height, most), blend(more, other, corner)
    depth = sub(add(most, _spread(halves, n)), dot3(n, p))
    place = sub3(corner, scale3(mul(0.5, depth), n))
    return Way(select(less(n[2], -_DOWN), FAR, depth), n, place)


def _by_edges(prism: Prism, p: Vector3, halves: list[Vector3]) -> list[Way]:
    """Products of the prism's edges, upright ones too, and the core's."""
    found = []
    level = tuple(zip(prism.corners, prism.edges, strict=True))
    for j, h in enumerate(halves):
        rest = [x for k, x in enumerate(halves) if k != j]
        for corner, edge in (*level, *((c, (0.0, 0.0, 1.0)) for c in prism.corners)):
            n = cross3(edge, h)
            square = dot3(n, n)
            askew = less(PARALLEL * dot3(edge, edge) * dot3(h, h), square)
            n = scale3(1.0 / sqrt(select(askew, square, 1.0 + 0.0 * square)), n)
            # up; of level directions, away from the prism's middle
            middle = scale3(1 / 3, add3(prism.corners[0], add3(*prism.corners[1:])))
            flat = less(abs(n[2]), _DOWN)
            back = less(select(flat, dot3(n, sub3(p, middle)), n[2]), 0.0)
            n = tuple(select(back, neg(x), x) for x in n)
            most = dot3(n, prism.corners[0])
            for other in prism.corners[1:]:
                height = dot3(n, other)
                most = select(less(most, height), height, most)
            depth = sub(add(most, _spread(halves, n)), dot3(n, p))
            place = _between(corner, edge, _lowest(p, rest, n), h)
            found.append(Way(select(askew, depth, FAR), n, place))
    return found


def _between(a: Vector3, u: Vector3, b: Vector3, v: Vector3) -> Vector3:
    """Midway between the nearest points of the lines a + s u and b + t v."""
    gap = sub3(b, a)
    uu, uv, vv = dot3(u, u), dot3(u, v), dot3(v, v)
    det = uu * vv - uv * uv
    inverse = 1.0 / select(less(TINY, det), det, 1.0 + 0.0 * det)
    du, dv = dot3(u, gap), dot3(v, gap)
    s, t = (du * vv - dv * uv) * inverse, (du * uv - dv * uu) * inverse
    return scale3(0.5, add3(add3(a, scale3(s, u)), add3(b, scale3(t, v))))


# --- nearest places -------------------------------------------------------------------------------


def _nearest(prism: Prism, p: Vector3, half: Vector3 | None) -> tuple[Vector3, Vector3]:
    """The gap from the prism to a point or a line that is not in it, and where it begins."""
    found = Nearest(p)
    for x in (p,) if half is None else (sub3(p, half), add3(p, half)):
        _of_point(prism, x, found)
    if half is not None:
        for corner, edge in zip(prism.corners, prism.edges, strict=True):
            s, t = line_and_line(corner, edge, p, half)
            found.offer(add3(corner, scale3(s, edge)), add3(p, scale3(t, half)))
            s, t = _line_and_upright(corner, p, half)
            found.offer((corner[0], corner[1], sub(corner[2], s)), add3(p, scale3(t, half)))
    return found.gap, found.at


def _of_point(prism: Prism, x: Vector3, found: Nearest) -> None:
    height = dot3(prism.up, sub3(x, prism.corners[0]))
    foot = sub3(x, scale3(height, prism.up))
    within = less(0.0, height)
    for corner, n in zip(prism.corners, prism.outward, strict=True):
        within = within & less(dot3(n, sub3(foot, corner)), 0.0)
    found.offer(foot, x, within)
    for corner, edge in zip(prism.corners, prism.edges, strict=True):
        way = sub3(x, corner)
        s = clip(dot3(way, edge) / dot3(edge, edge), 0.0, 1.0)
        found.offer(add3(corner, scale3(s, edge)), x)
        # on the wall below the edge, as high as the point
        level = edge[0] * edge[0] + edge[1] * edge[1]
        s = clip((way[0] * edge[0] + way[1] * edge[1]) / level, 0.0, 1.0)
        top = add3(corner, scale3(s, edge))
        found.offer((top[0], top[1], x[2]), x, less(x[2], top[2]))


def _line_and_upright(a: Vector3, b: Vector3, v: Vector3) -> tuple[Scalar, Scalar]:
    """The same of a - s ez, 0 ≤ s."""
    gap = sub3(b, a)
    level = v[0] * v[0] + v[1] * v[1]
    askew = less(PARALLEL * dot3(v, v), level)
    t = -(gap[0] * v[0] + gap[1] * v[1]) / select(askew, level, 1.0 + 0.0 * level)
    t = clip(select(askew, t, 0.0), -1.0, 1.0)
    s = neg(add(gap[2], mul(t, v[2])))
    low = less(s, 0.0)
    # above the corner: the nearest place of the line to it
    again = clip(-dot3(gap, v) / dot3(v, v), -1.0, 1.0)
    return select(low, 0.0, s), select(low, again, t)
