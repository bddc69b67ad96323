"""Signed distances of convex cores, over any scalar: how far apart they are, in which direction,
and at which point of the first one.

A core is what a shape has within its radius: a sphere's is a point, a capsule's a segment, a box's
the box. Each function returns (d, n, x): the distance d of the cores, negative by the least
translation that parts them; the unit vector n from the second core to the first; the point x of the
first at which ∂d/∂q = nᵀ ∂x/∂q, x being fixed to its body. Comparisons are selections, so that the
functions can be recorded, and run in lanes. Reference: C. Ericson, Real-Time Collision Detection,
2005, chapter 5.
"""

from __future__ import annotations

from rigidgrad.scalars import Scalar, less, select, sqrt
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

Nearest = tuple[Scalar, Vector3, Vector3]

TINY = 1e-30  # below the square of every length that means something, in float32, too


def least(a: Scalar, b: Scalar) -> Scalar:
    return select(less(a, b), a, b)


def most(a: Scalar, b: Scalar) -> Scalar:
    return select(less(b, a), a, b)


def within(x: Scalar, low: Scalar, high: Scalar) -> Scalar:
    return least(most(x, low), high)


def choose3(condition: Scalar, a: Vector3, b: Vector3) -> Vector3:
    return (
        select(condition, a[0], b[0]),
        select(condition, a[1], b[1]),
        select(condition, a[2], b[2]),
    )


def nearer(a: Nearest, b: Nearest) -> Nearest:
    """The one of two whose distance is less."""
    first = less(a[0], b[0])
    return select(first, a[0], b[0]), choose3(first, a[1], b[1]), choose3(first, a[2], b[2])


def flipped(found: Nearest) -> Nearest:
    """Of the second and the first."""
    d, n, x = found
    return d, tuple(-k for k in n), sub3(x, scale3(d, n))


def points(p: Vector3, c: Vector3) -> Nearest:
    """Of a point and a point; where they coincide, n is z."""
    away = sub3(p, c)
    square = dot3(away, away)
    apart = less(TINY, square)
    length = sqrt(select(apart, square, 1.0))
    inverse = 1.0 / length
    return select(apart, length, 0.0), choose3(apart, scale3(inverse, away), (0.0, 0.0, 1.0)), p


def on_segment(a: Vector3, d: Vector3, p: Vector3) -> Vector3:
    """The point of a + t d, 0 ≤ t ≤ 1, that is nearest to p."""
    t = within(dot3(sub3(p, a), d) / most(dot3(d, d), TINY), 0.0, 1.0)
    return add3(a, scale3(t, d))


def segment_point(a: Vector3, d: Vector3, c: Vector3) -> Nearest:
    return points(on_segment(a, d, c), c)


def segments(a: Vector3, d: Vector3, c: Vector3, e: Vector3) -> Nearest:
    """Of the segments a + s d and c + t e. Where they cross, n is d × e, either way."""
    r = sub3(a, c)
    dd, ee, de = most(dot3(d, d), TINY), most(dot3(e, e), TINY), dot3(d, e)
    dr, er = dot3(d, r), dot3(e, r)
    across = dd * ee - de * de
    # parallel ones have nearest points everywhere along them
    skew = less(1e-12 * (dd * ee), across)
    s = select(skew, within((de * er - dr * ee) / select(skew, across, 1.0), 0.0, 1.0), 0.0)
    t = (de * s + er) / ee
    # where t leaves its segment, s follows the end
    s = select(
        less(t, 0.0),
        within(-dr / dd, 0.0, 1.0),
        select(less(1.0, t), within((de - dr) / dd, 0.0, 1.0), s),
    )
    t = within(t, 0.0, 1.0)
    x, y = add3(a, scale3(s, d)), add3(c, scale3(t, e))
    away, normal = sub3(x, y), cross3(d, e)
    square, sine = dot3(away, away), dot3(normal, normal)
    apart, crossing = less(TINY, square), less(TINY, sine)
    length = sqrt(select(apart, square, 1.0))
    unit = choose3(
        crossing, scale3(1.0 / sqrt(select(crossing, sine, 1.0)), normal), (0.0, 0.0, 1.0)
    )
    return select(apart, length, 0.0), choose3(apart, scale3(1.0 / length, away), unit), x


def point_plane(p: Vector3, n: Vector3, offset: Scalar) -> Nearest:
    """Of a point and the half-space n·x ≤ offset."""
    return dot3(n, p) - offset, n, p


def segment_plane(a: Vector3, d: Vector3, n: Vector3, offset: Scalar) -> Nearest:
    return point_plane(choose3(less(dot3(n, d), 0.0), add3(a, d), a), n, offset)


# --- boxes ----------------------------------------------------------------------------------------


def point_box(p: Vector3, centre: Vector3, R: Matrix3, half: Vector3) -> Nearest:
    """Of a point and a box: R turns its axes into the world's. Inside, the nearest face counts."""
    local = rotate_back(R, sub3(p, centre))
    d, n = _point_box(local, half)
    return d, rotate(R, n), p


def point_box_distance(p: Vector3, centre: Vector3, R: Matrix3, half: Vector3) -> Scalar:
    """The d of `point_box` alone."""
    local = rotate_back(R, sub3(p, centre))
    square = square_of(outside(local, half))
    x, y, z = (abs(x) - h for x, h in zip(local, half, strict=True))
    return sqrt(square) + least(most(most(x, y), z), 0.0)


def point_box_square(p: Vector3, centre: Vector3, R: Matrix3, half: Vector3) -> Scalar:
    """The square of the distance of a point from a box, 0 inside."""
    return square_of(outside(rotate_back(R, sub3(p, centre)), half))


def segment_box_square(
    a: Vector3, d: Vector3, centre: Vector3, R: Matrix3, half: Vector3
) -> Scalar:
    a, d = rotate_back(R, sub3(a, centre)), rotate_back(R, d)
    t = nearest_on_segment(a, d, half)
    return square_of(outside(add3(a, scale3(t, d)), half))


def segment_box(a: Vector3, d: Vector3, centre: Vector3, R: Matrix3, half: Vector3) -> Nearest:
    """Of a segment and a box. Where they meet, the least translation is along a face's normal, or
    across an edge and the segment.
    """
    at, along = rotate_back(R, sub3(a, centre)), rotate_back(R, d)
    t = nearest_on_segment(at, along, half)
    x = add3(at, scale3(t, along))
    out = outside(x, half)
    square = square_of(out)
    apart = less(TINY, square)
    length = sqrt(select(apart, square, 1.0))
    found = select(apart, length, 0.0), scale3(1.0 / length, out), x
    depth, normal, deepest = _segment_in_box(at, along, half)
    distance = select(apart, found[0], depth)
    n, x = choose3(apart, found[1], normal), choose3(apart, x, deepest)
    return distance, rotate(R, n), add3(centre, rotate(R, x))


def outside(p: Vector3, half: Vector3) -> Vector3:
    """From the nearest point of a box to p."""
    return tuple(x - within(x, -h, h) for x, h in zip(p, half, strict=True))


def square_of(v: Vector3) -> Scalar:
    return dot3(v, v)


def _point_box(p: Vector3, half: Vector3) -> tuple[Scalar, Vector3]:
    out = outside(p, half)
    square = square_of(out)
    apart = less(TINY, square)
    length = sqrt(select(apart, square, 1.0))
    depths = [abs(x) - h for x, h in zip(p, half, strict=True)]
    signs = [select(less(x, 0.0), -1.0, 1.0) for x in p]
    second, third = less(depths[0], depths[1]), less(most(depths[0], depths[1]), depths[2])
    inside = choose3(
        third, (0.0, 0.0, signs[2]), choose3(second, (0.0, signs[1], 0.0), (signs[0], 0.0, 0.0))
    )
    depth = most(most(depths[0], depths[1]), depths[2])
    return select(apart, length, depth), choose3(apart, scale3(1.0 / length, out), inside)


def nearest_on_segment(a: Vector3, d: Vector3, half: Vector3) -> Scalar:
    """The t in [0, 1] at which a + t d is nearest to a box.

    Half the slope of the squared distance, Σ dᵢ·outsideᵢ(t), rises in straight pieces between the
    six t at which a face's plane is crossed: the zero lies between the last of these where it is
    not positive and the first where it is not negative. Within the box both are the ends of what is
    inside, and the middle is taken.
    """

    def slope(t: Scalar) -> Scalar:
        return dot3(d, outside(add3(a, scale3(t, d)), half))

    low: Scalar = 0.0
    high: Scalar = 1.0
    at_low, at_high = slope(0.0), slope(1.0)
    starts, ends = less(0.0, at_low), less(at_high, 0.0)  # the nearest point is an end
    for x, v, h in zip(a, d, half, strict=True):
        moving = less(1e-12, abs(v))
        inverse = 1.0 / select(moving, v, 1.0)
        for side in (-h, h):
            t = select(moving, within((side - x) * inverse, 0.0, 1.0), 0.0)
            s = slope(t)
            later = select(less(s, _SMALL), most(low, t), low)
            earlier = select(less(-_SMALL, s), least(high, t), high)
            at_low, at_high = (
                select(less(low, later), s, at_low),
                select(less(earlier, high), s, at_high),
            )
            low, high = later, earlier
    rise = at_high - at_low
    steep = less(_SMALL, rise)
    t = select(steep, low - at_low * (high - low) / select(steep, rise, 1.0), 0.5 * (low + high))
    return select(starts, 0.0, select(ends, 1.0, within(t, 0.0, 1.0)))


_SMALL = 1e-14  # square metres


def _segment_in_box(a: Vector3, d: Vector3, half: Vector3) -> Nearest:
    """The least translation out of a box, by the six directions in which the sum of a box and a
    segment has faces.
    """
    e = scale3(0.5, d)
    m = add3(a, e)
    best: Nearest | None = None
    for i in range(3):
        sign = select(less(m[i], 0.0), -1.0, 1.0)
        n = tuple(sign if k == i else 0.0 for k in range(3))
        back = select(less(e[i] * sign, 0.0), 1.0, -1.0)  # towards the end that is deeper
        found = abs(m[i]) - half[i] - abs(e[i]), n, add3(m, scale3(back, e))
        best = found if best is None else shallower(found, best)
    for k in range(3):
        i, j = (k + 1) % 3, (k + 2) % 3
        square = e[i] * e[i] + e[j] * e[j]
        usable = less(1e-12, square)
        inverse = 1.0 / sqrt(select(usable, square, 1.0))
        ni, nj = e[j] * inverse, -(e[i] * inverse)
        offset = m[i] * ni + m[j] * nj
        sign = select(less(offset, 0.0), -1.0, 1.0)
        ni, nj = sign * ni, sign * nj
        depth = abs(offset) - half[i] * abs(ni) - half[j] * abs(nj)
        ci, cj = select(less(ni, 0.0), -half[i], half[i]), select(less(nj, 0.0), -half[j], half[j])
        s = within(
            ((ci - m[i]) * e[i] + (cj - m[j]) * e[j]) / select(usable, square, 1.0), -1.0, 1.0
        )
        n = tuple(ni if axis == i else nj if axis == j else 0.0 for axis in range(3))
        assert best is not None
        best = shallower((select(usable, depth, -1e30), n, add3(m, scale3(s, e))), best)
    assert best is not None
    return best


def shallower(a: Nearest, b: Nearest) -> Nearest:
    first = less(b[0], a[0])
    return select(first, a[0], b[0]), choose3(first, a[1], b[1]), choose3(first, a[2], b[2])


def apart_square(p: Vector3, c: Vector3) -> Scalar:
    """The square of the distance of two points."""
    away = sub3(p, c)
    return dot3(away, away)
