"""A capsule and a box touch in up to two places: balls on the capsule's axis against the box, as
MuJoCo places them.

In the box's frame the axis is p + t h, |t| ≤ 1. The first ball is where the axis comes nearest to a
face (with one of its ends) or to an edge. The second is further along the axis, in the direction in
which it stays above the box, as far as it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

from rigidgrad.scalars import Scalar, less, select
from rigidgrad.spatial import Vector3, add3, dot3, rotate_back, scale3, sub3
from rigidgrad.worlds.impedance import TINY
from rigidgrad.worlds.narrow import FAR, Contact, Shape, clip, sphere_box

_FAR_OFF = 1e30  # of a quotient whose divisor is zero


class Nearest(NamedTuple):
    """The place on the axis `t`, and what it is nearest to: a face (`face` 1), whose number is
    `side` (three numbers, all zero inside), or an edge along `edge` at `x` (from -1 to 1), or one
    of its `ends` (1). Of edges `corner` is on which side of the box, ±1 for each axis.
    """

    square: Scalar
    t: Scalar
    face: Scalar
    side: Sequence[Scalar]
    edge: Sequence[Scalar]
    x: Scalar
    ends: Scalar
    corner: Sequence[Scalar]


def capsule_box(capsule: Shape, box: Shape, margin: float) -> list[Contact]:
    radius, half = capsule.size[0], capsule.size[1]
    p = rotate_back(box.R, sub3(capsule.p, box.p))
    axis = rotate_back(box.R, capsule.axis)
    h = scale3(half, axis)
    near = _nearest(p, h, half, box.size)
    further = _further(p, h, axis, box.size, near)

    def ball(t: Scalar) -> Contact:
        at = add3(capsule.p, scale3(t * half, capsule.axis))
        return sphere_box(Shape((radius,), at, capsule.R), box, margin)[0]

    second = ball(near.t + further)
    there = less(abs(further), 0.5 * FAR)
    return [ball(near.t), second._replace(distance=select(there, second.distance, FAR))]


def _nearest(p: Vector3, h: Vector3, half: Scalar, size: Any) -> Nearest:
    none = [0.0, 0.0, 0.0]
    best = Nearest(FAR, 0.0, 0.0, none, none, 0.0, 0.0, none)
    for end in (-1.0, 1.0):
        at = add3(p, scale3(end, h))
        off = sub3(tuple(clip(x, -s, s) for x, s in zip(at, size, strict=True)), at)
        side = [select(less(s, abs(x)), 1.0, 0.0) for x, s in zip(at, size, strict=True)]
        square = dot3(off, off)
        alone = less(side[0] + side[1] + side[2], 1.5)
        square = select(alone, square, 2 * FAR)
        best = _closer(best, Nearest(square, end, 1.0, side, none, 0.0, 0.0, none), 0.0)
    cc = half * half
    for j in range(3):
        for signs in product((-1.0, 1.0), repeat=2):
            corner = list(signs)
            corner.insert(j, 0.0)
            way = sub3(tuple(c * s for c, s in zip(corner, size, strict=True)), p)
            a, b = size[j], -(size[j] * h[j])
            u, v = -(a * way[j]), dot3(h, way)
            det = a * a * cc - b * b
            askew = less(TINY, abs(det))
            inverse = 1.0 / select(askew, det, 1.0)
            x, t = (cc * u - b * v) * inverse, (a * a * v - b * u) * inverse
            held = clip(x, -1.0, 1.0)
            t = select(less(1.0, abs(x)), (v - b * held) / cc, t)
            kept = clip(t, -1.0, 1.0)
            x = select(less(1.0, abs(t)), clip((u - b * kept) / (a * a), -1.0, 1.0), held)
            rest = list(sub3(way, scale3(kept, h)))
            rest[j] = rest[j] + a * x
            square = select(askew, dot3(tuple(rest), tuple(rest)), 2 * FAR)
            along = [float(k == j) for k in range(3)]
            corner[j] = select(less(x, 1.0), -1.0, 1.0)
            ends = select(less(abs(x), 1.0), 0.0, 1.0)
            found = Nearest(square, kept, 0.0, none, along, x, ends, corner)
            best = _closer(best, found, TINY)
    return best


def _closer(best: Nearest, new: Nearest, by: float) -> Nearest:
    """The new one if its square is less, by more than `by`."""
    better = less(new.square, best.square - by)

    def pick(a: Any, b: Any) -> Any:
        if isinstance(a, list):
            return [pick(x, y) for x, y in zip(a, b, strict=True)]
        return select(better, a, b)

    return Nearest(*(pick(a, b) for a, b in zip(new, best, strict=True)))


def _further(p: Vector3, h: Vector3, axis: Vector3, size: Any, near: Nearest) -> Scalar:
    """From the first ball to the second along the axis; FAR where there is none."""
    # 1 where the axis, as it rises, goes away from the corner
    ups = [select(less(0.0, x), 1.0, 0.0) for x in h]
    crosses = [select(less(0.0, c), 1.0 - up, up) for c, up in zip(near.corner, ups, strict=True)]
    spans = [_over(2.0 * s, abs(x)) for s, x in zip(size, h, strict=True)]
    corner = _from_corner(near.t, axis, spans, crosses)
    edge: Scalar = 0.0
    for j in range(3):
        found = _from_edge(j, near, h, size, spans, ups, crosses)
        edge = select(less(0.5, near.edge[j]), found, edge)
    face = _from_face(p, h, size, near)
    on_edge = select(less(0.5, near.ends), corner, edge)
    return select(less(0.5, near.face), face, on_edge)


def _from_corner(t: Scalar, axis: Vector3, spans: Any, crosses: Any) -> Scalar:
    """Along an edge that begins in the corner, or over a face."""
    count = crosses[0] + crosses[1] + crosses[2]
    single = less(count, 1.5)
    way = select(single, 1.0, -1.0)
    found: Scalar = 0.0
    for k in range(3):
        # of one axis that differs, or of two that do the third
        mine = select(single, crosses[k], 1.0 - crosses[k])
        i, j = (k + 1) % 3, (k + 2) % 3
        along = _least(1.0 - way * t, spans[k])
        over = _least(_least(1.0 + way * t, spans[i]), spans[j])
        own = select(less(0.5, axis[k] * axis[k]), way * along, -(way * over))
        found = select(less(0.5, mine), own, found)
    between = less(0.5, count) & less(count, 2.5)
    return select(between, found, FAR)


def _from_edge(
    j: int, near: Nearest, h: Vector3, size: Any, spans: Any, ups: Any, crosses: Any
) -> Scalar:
    """Over the face that the axis is less inclined to."""
    one, two = (j + 1) % 3, (j + 2) % 3
    first = less(abs(h[two]), abs(h[one]))  # whether `one` is the axis to follow
    cross = select(first, crosses[one], crosses[two])
    way = select(less(0.5, cross), 1.0, -1.0)
    found = _least(1.0 - way * near.t, select(first, spans[one], spans[two]))
    same = less(abs(ups[j] - cross), 0.5)
    room = select(same, 1.0 - near.x, 1.0 + near.x)
    found = _least(found, _over(size[j] * room, abs(h[j])))
    across = less(abs(crosses[one] + crosses[two] - 1.0), 0.5)
    return select(across, way * found, FAR)


def _from_face(p: Vector3, h: Vector3, size: Any, near: Nearest) -> Scalar:
    """Towards the other end, while it is above the face."""
    begin = add3(p, scale3(near.t, h))
    found: Scalar = 2.0
    for k in range(3):
        speed = -(near.t * h[k])
        still = less(abs(speed), TINY)
        inverse = 1.0 / select(still, 1.0, speed)
        for wall in (size[k], -size[k]):
            time = (wall - begin[k]) * inverse
            hits = less(0.0, time) & less(time, found)
            # not for the face's own axis, nor where the axis runs along the wall
            counts = less(select(still, 1.0, near.side[k]), 0.5)
            found = select(hits & counts, time, found)
    outside = less(0.5, near.side[0] + near.side[1] + near.side[2])
    return select(outside, -(near.t * found), FAR)


def _least(a: Scalar, b: Scalar) -> Scalar:
    return select(less(b, a), b, a)


def _over(a: Scalar, b: Scalar) -> Scalar:
    """a / b of b ≥ 0, very much where b is zero."""
    none = less(b, TINY)
    return select(none, _FAR_OFF, a / select(none, 1.0, b))
