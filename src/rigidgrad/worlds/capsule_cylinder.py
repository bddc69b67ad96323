"""A capsule and a cylinder touch where the capsule's axis is nearest to the cylinder. A capsule
that lies nearly flat on an end touches it in two places, as in MuJoCo.

How far a point c + t h of the axis is from the cylinder is a convex function of t: its slope is
halved in on, and a last step of Newton's method makes t, and its derivatives, exact.
"""

from __future__ import annotations

from typing import Any

from rigidgrad.scalars import Scalar, less, select, sqrt
from rigidgrad.spatial import Vector3, add3, rotate, rotate_back, scale3, sub3
from rigidgrad.worlds.hulls import TILT
from rigidgrad.worlds.impedance import TINY
from rigidgrad.worlds.narrow import FAR, Contact, Shape, choose, clip, sphere_cylinder

_ROUNDS = 32


def capsule_cylinder(capsule: Shape, cylinder: Shape, margin: Scalar) -> list[Contact]:
    radius, half = cylinder.size[0], cylinder.size[1]
    c = rotate_back(cylinder.R, sub3(capsule.p, cylinder.p))
    axis = rotate_back(cylinder.R, capsule.axis)
    h = scale3(capsule.size[1], axis)
    t = _nearest(c, h, radius, half)
    at = add3(capsule.p, scale3(t * capsule.size[1], capsule.axis))
    single = sphere_cylinder(Shape((capsule.size[0],), at, capsule.R), cylinder, margin)[0]
    flat, pair = _on_end(c, h, t, single, capsule.size[0], cylinder, margin)
    flat = select(less(abs(axis[2]), TILT), flat, 0.0)
    two = less(0.5, flat)
    second = pair[1]._replace(distance=select(two, pair[1].distance, FAR))
    return [choose(two, pair[0], single), second]


def _parts(c: Vector3, h: Vector3, t: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """Of c + t h: z, its distance from the cylinder's axis, and how fast that grows."""
    x, y, z = add3(c, scale3(t, h))
    square = x * x + y * y
    on = less(square, TINY)
    off = sqrt(select(on, 1.0 + 0.0 * square, square))
    return z, select(on, 0.0, off), select(on, 0.0, (x * h[0] + y * h[1]) / off)


def _nearest(c: Vector3, h: Vector3, radius: Scalar, half: Scalar) -> Scalar:
    low, high = 0.0 * c[0] - 1.0, 0.0 * c[0] + 1.0
    for _ in range(_ROUNDS):
        t = 0.5 * (low + high)
        z, off, rate = _parts(c, h, t)
        up = select(less(z, 0.0), -h[2], h[2])
        above, beside = abs(z) - half, off - radius
        # within: towards the nearer of end and side; without: of the sum of squares
        within = less(0.0, above) & less(0.0, beside)
        slope = select(less(beside, above), up, rate)
        slope = select(within, above * up + beside * rate, slope)
        falls = less(slope, 0.0)
        low, high = select(falls, t, low), select(falls, high, t)
    t = 0.5 * (low + high)
    z, off, rate = _parts(c, h, t)
    up = select(less(z, 0.0), -h[2], h[2])
    above, beside = (select(less(0.0, x), x, 0.0) for x in (abs(z) - half, off - radius))
    none = less(off, TINY)
    bend = (h[0] * h[0] + h[1] * h[1] - rate * rate) / select(none, 1.0, off)
    slope = above * up + beside * rate
    curve = beside * bend
    curve = curve + select(less(0.0, above), up * up, 0.0)
    curve = curve + select(less(0.0, beside), rate * rate, 0.0)
    # only where the least is inside the axis, and the distance bends there
    end = less(1.0 - 1e-6, abs(t))
    bends = select(less(TINY, curve), select(end, 0.0, 1.0), 0.0)
    step = slope / select(less(0.5, bends), curve, 1.0)
    step = select(less(abs(step), 1e-3), step, 0.0)
    held = select(less(t, 0.0), -1.0 + 0.0 * t, 1.0 + 0.0 * t)
    return select(end, held, t - select(less(0.5, bends), step, 0.0))


def _on_end(
    c: Vector3,
    h: Vector3,
    t: Scalar,
    single: Contact,
    radius: Scalar,
    cylinder: Shape,
    margin: Scalar,
) -> tuple[Scalar, list[Contact]]:
    """1 where the line on the capsule's surface touches an end of the cylinder twice, and where."""
    wide, half = cylinder.size[0], cylinder.size[1]
    z = add3(c, scale3(t, h))[2]
    side = select(less(z, 0.0), -1.0 + 0.0 * z, 1.0 + 0.0 * z)
    line = add3(c, scale3(radius, rotate_back(cylinder.R, single.normal)))
    # where it crosses the circle
    a = h[0] * h[0] + h[1] * h[1]
    b = line[0] * h[0] + line[1] * h[1]
    rest = b * b - a * (line[0] * line[0] + line[1] * line[1] - wide * wide)
    crosses = less(TINY, a) & less(TINY, rest)
    root = sqrt(select(crosses, rest, 1.0 + 0.0 * rest))
    scale = 1.0 / select(crosses, a, 1.0 + 0.0 * a)
    ts = [clip((sign * root - b) * scale, -1.0, 1.0) for sign in (-1.0, 1.0)]
    found = []
    normal = scale3(-1.0 * side, tuple(row[2] for row in cylinder.R))
    for s in ts:
        x = add3(line, scale3(s, h))
        height = side * x[2] - half
        x = (x[0], x[1], x[2] - 0.5 * side * height)
        found.append(Contact(height, add3(cylinder.p, rotate(cylinder.R, x)), normal))
    touch: Any = crosses & less(ts[0], ts[1]) & less(half, abs(z))
    touch = touch & less(found[0].distance, margin) & less(found[1].distance, margin)
    return select(touch, 1.0, 0.0), found
