"""Two boxes touch with a face or with two edges, as MuJoCo places their contacts.

Of the directions in which they might be apart, their six normals and nine products of edges, the
one with the most room between them decides. For a normal, the face of the other box that looks
against it is cut to the face that it belongs to, and each corner of what is left is a contact; for
a product, the nearest points of two edges are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

from rigidgrad.scalars import Scalar, less, select, sqrt
from rigidgrad.spatial import Vector3, add3, cross3, dot3, rotate, rotate_back, scale3, sub3
from rigidgrad.worlds.impedance import TINY
from rigidgrad.worlds.narrow import FAR, Contact, Shape, blend, clip

MOST = 8
_PARALLEL = 1e-8  # the squared sine of edges that have no product
_EDGE_BIAS, _ALIKE, _BETTER = 1e-6, 0.99, 0.05  # when an edge counts against a face
_INSIDE = 1 - 1e-7  # of a corner that is not on the border

Points = list[tuple[Scalar, Vector3]]  # 1 where it is one, and (x, y, height)


class Box(NamedTuple):
    """In the first box's frame."""

    axes: Sequence[Vector3]
    size: Sequence[Scalar]
    p: Vector3


def box_box(a: Shape, b: Shape, margin: float) -> list[Contact]:
    turn = [rotate_back(a.R, tuple(row[k] for row in b.R)) for k in range(3)]
    unit3 = [tuple(float(i == k) for i in range(3)) for k in range(3)]
    one = Box(unit3, a.size, (0.0, 0.0, 0.0))
    two = Box(turn, b.size, rotate_back(a.R, sub3(b.p, a.p)))
    face, normal, first = _best_face(one, two)
    edge, edge_room, axis, along = _best_edge(one, two, face)
    aligned = dot3(axis, normal)
    same = less(_ALIKE, abs(aligned)) & less(edge_room, face + _BETTER * abs(face) + TINY)
    wins = select(less(0.5, edge), select(same, 0.0, 1.0), 0.0)
    apart = less(margin, select(less(face, edge_room), edge_room, face))
    by_edge = less(0.5, wins)
    of_edge = _edge_contact(one, two, axis, along)
    points, way = _face_contacts(one, two, normal, first)
    found = []
    for k, (there, place, distance) in enumerate(points):
        d = select(less(0.5, there), distance, FAR)
        n = way
        if k == 0:
            d = select(by_edge, of_edge.distance, d)
            place = blend(by_edge, of_edge.place, place)
            n = blend(by_edge, of_edge.normal, way)
        else:
            d = select(by_edge, FAR, d)
        world = add3(a.p, rotate(a.R, place))
        found.append(Contact(select(apart, FAR, d), world, rotate(a.R, n)))
    return found


def _reach(box: Box, way: Vector3) -> Scalar:
    parts = [abs(dot3(axis, way)) * s for axis, s in zip(box.axes, box.size, strict=True)]
    return parts[0] + parts[1] + parts[2]


def _best_face(one: Box, two: Box) -> tuple[Scalar, Vector3, Scalar]:
    """The most room along a normal, that normal, and 1 where it is the first box's."""
    best: Scalar = -FAR
    normal: Vector3 = one.axes[0]
    first: Scalar = 1.0
    for own, other, mine in ((one, two, 1.0), (two, one, 0.0)):
        for k in range(3):
            way = own.axes[k]
            room = abs(dot3(two.p, way)) - own.size[k] - _reach(other, way)
            better = less(best, room)
            best, first = select(better, room, best), select(better, mine, first)
            normal = blend(better, way, normal)
    return best, normal, first


def _best_edge(
    one: Box, two: Box, face: Scalar
) -> tuple[Scalar, Scalar, Vector3, list[list[Scalar]]]:
    """1 where a product of edges has more room than all faces; the most room along any product;
    the direction; and which edge of each box it is of.
    """
    edge: Scalar = 0.0
    best, most = face, -FAR
    axis: Vector3 = (1.0, 0.0, 0.0)
    along: list[list[Scalar]] = [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    for i, j in product(range(3), repeat=2):
        way = cross3(one.axes[i], two.axes[j])
        square = dot3(way, way)
        askew = less(_PARALLEL, square)
        way = scale3(1.0 / sqrt(select(askew, square, 1.0)), way)
        room = abs(dot3(two.p, way)) - _reach(one, way) - _reach(two, way)
        room = select(askew, room, -FAR)
        most = select(less(most, room), room, most)
        better = less(best, room - _EDGE_BIAS * abs(room))
        best, edge = select(better, room, best), select(better, 1.0, edge)
        axis = blend(better, way, axis)
        for box, number in ((0, i), (1, j)):
            along[box] = [select(better, float(k == number), along[box][k]) for k in range(3)]
    return edge, select(less(best, most), most, best), axis, along


def _edge_contact(one: Box, two: Box, axis: Vector3, along: list[list[Scalar]]) -> Contact:
    back = less(dot3(axis, two.p), 0.0)
    n = tuple(select(back, -x, x) for x in axis)
    ends, ways, halves = [], [], []
    for box, side, edge in ((one, 1.0, along[0]), (two, -1.0, along[1])):
        at, way = box.p, (0.0, 0.0, 0.0)
        half: Scalar = 0.0
        for k in range(3):
            up = select(less(dot3(box.axes[k], n), 0.0), -side, side)
            at = add3(at, scale3(up * (1.0 - edge[k]) * box.size[k], box.axes[k]))
            way = add3(way, scale3(edge[k], box.axes[k]))
            half = half + edge[k] * box.size[k]
        ends.append(at)
        ways.append(way)
        halves.append(half)
    gap = sub3(ends[1], ends[0])
    b, x, y = dot3(ways[0], ways[1]), dot3(ways[0], gap), dot3(ways[1], gap)
    rest = 1.0 - b * b
    askew = less(TINY, rest)
    s = clip((x - b * y) / select(askew, rest, 1.0), -halves[0], halves[0])
    t = clip(b * s - y, -halves[1], halves[1])
    s = clip(x + b * t, -halves[0], halves[0])
    p, q = add3(ends[0], scale3(s, ways[0])), add3(ends[1], scale3(t, ways[1]))
    return Contact(dot3(sub3(q, p), n), scale3(0.5, add3(p, q)), n)


def _rolled(values: Sequence[Any], number: Sequence[Scalar]) -> list[Any]:
    """The values from the one whose number is 1 on, cyclically."""
    found = []
    for k in range(3):
        x, y, z = (values[(k + i) % 3] for i in range(3))
        at = less(0.5, number[0]), less(0.5, number[1])
        if isinstance(x, tuple):
            found.append(blend(at[0], x, blend(at[1], y, z)))
        else:
            found.append(select(at[0], x, select(at[1], y, z)))
    return found


def _largest(values: Sequence[Scalar]) -> list[Scalar]:
    """1 for the first of the largest of three numbers."""
    a, b, c = values
    second, third = less(a, b), less(select(less(a, b), b, a), c)
    last = select(third, 1.0, 0.0)
    middle = select(third, 0.0, select(second, 1.0, 0.0))
    return [1.0 - last - middle, middle, last]


def _face_contacts(
    one: Box, two: Box, normal: Vector3, first: Scalar
) -> tuple[list[tuple[Scalar, Vector3, Scalar]], Vector3]:
    """Up to eight of (1 where it is one, place, distance), and the normal from `one` to `two`."""
    mine = less(0.5, first)

    def chosen(of_one: Any, of_two: Any) -> Any:
        if isinstance(of_one, tuple):
            return blend(mine, of_one, of_two)
        return select(mine, of_one, of_two)

    axes, others = (
        [chosen(x, y) for x, y in zip(p.axes, q.axes, strict=True)]
        for p, q in ((one, two), (two, one))
    )
    size, other_size = (
        [chosen(x, y) for x, y in zip(p.size, q.size, strict=True)]
        for p, q in ((one, two), (two, one))
    )
    centre = chosen(one.p, two.p)
    to_other = sub3(chosen(two.p, one.p), centre)
    which = _largest([abs(dot3(x, normal)) for x in axes])
    A, X, Y = _rolled(axes, which)
    high, wide, deep = _rolled(size, which)
    down = less(dot3(to_other, A), 0.0)
    out = tuple(select(down, -x, x) for x in A)
    against = _largest([abs(dot3(x, A)) for x in others])
    B, U, V = _rolled(others, against)
    reach, u, v = _rolled(other_size, against)
    side = select(less(0.0, dot3(out, B)), -1.0, 1.0)

    def seen(x: Vector3) -> Vector3:
        return dot3(X, x), dot3(Y, x), dot3(out, x)

    middle = seen(add3(to_other, scale3(side * reach, B)))
    middle = (middle[0], middle[1], middle[2] - high)
    du, dv = scale3(u, seen(U)), scale3(v, seen(V))
    points = _packed(_cut(middle, du, dv, wide, deep))
    found = []
    for there, (x, y, z) in points:
        at = add3(centre, add3(scale3(x, X), add3(scale3(y, Y), scale3(high + 0.5 * z, out))))
        found.append((there, at, z))
    return found, tuple(select(mine, x, -x) for x in out)


def _cut(middle: Vector3, du: Vector3, dv: Vector3, wide: Scalar, deep: Scalar) -> Points:
    """The corners of a parallelogram, cut to |x| ≤ wide, |y| ≤ deep: its own that are inside, where
    its sides cross the border, and the border's corners that are inside of it.
    """
    corners = [
        add3(middle, add3(scale3(su, du), scale3(sv, dv)))
        for su, sv in ((1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0), (1.0, -1.0))
    ]
    found: Points = []
    for c in corners:
        out = select(less(wide, abs(c[0])), 1.0, select(less(deep, abs(c[1])), 1.0, 0.0))
        found.append((1.0 - out, c))
    for p, q in zip(corners, corners[1:] + corners[:1], strict=True):
        way = sub3(q, p)
        begin: Scalar = 0.0
        end: Scalar = 1.0
        for k, limit in ((0, wide), (1, deep)):
            still = less(abs(way[k]), TINY)
            inverse = 1.0 / select(still, 1.0, way[k])
            low, high = (-limit - p[k]) * inverse, (limit - p[k]) * inverse
            low, high = select(less(high, low), high, low), select(less(high, low), low, high)
            # alongside: all of it is inside, or nothing
            beyond = less(limit, abs(p[k]))
            low = select(still, select(beyond, 2.0, 0.0), low)
            high = select(still, select(beyond, -1.0, 1.0), high)
            begin = select(less(begin, low), low, begin)
            end = select(less(high, end), high, end)
        meets = select(less(begin, end), 1.0, 0.0)
        found.append((select(less(0.0, begin), meets, 0.0), add3(p, scale3(begin, way))))
        found.append((select(less(end, 1.0), meets, 0.0), add3(p, scale3(end, way))))
    area = du[0] * dv[1] - du[1] * dv[0]
    flat = less(abs(area), TINY)
    inverse = 1.0 / select(flat, 1.0, area)
    for sx, sy in product((1.0, -1.0), repeat=2):
        x, y = sx * wide - middle[0], sy * deep - middle[1]
        s, t = (x * dv[1] - y * dv[0]) * inverse, (du[0] * y - du[1] * x) * inverse
        inside = select(less(abs(s), _INSIDE), 1.0, 0.0)
        inside = select(less(abs(t), _INSIDE), inside, 0.0)
        at = sx * wide, sy * deep, middle[2] + s * du[2] + t * dv[2]
        found.append((select(flat, 0.0, inside), at))
    return found


def _packed(points: Points) -> Points:
    """The first eight that are there."""
    slots: Points = [(0.0, points[0][1])] * MOST
    count: Scalar = 0.0
    for k, (there, at) in enumerate(points):
        for s in range(min(k + 1, MOST)):
            here = less(0.5, select(less(abs(count - float(s)), 0.5), there, 0.0))
            slots[s] = select(here, 1.0, slots[s][0]), blend(here, at, slots[s][1])
        count = count + there
    return slots
