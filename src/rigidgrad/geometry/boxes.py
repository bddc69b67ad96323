"""Signed distances of two boxes, and of a box and a half-space, over any scalar; see `closest`.

Boxes that are apart are as far from each other as the nearest edge of the first from the second, or
the nearest corner of the second from the first: one of these is among the nearest points of two
convex polyhedra. Boxes that meet are parted by the least translation along a normal of a face or
across two edges, fifteen directions (S. Gottschalk, M. Lin, D. Manocha, OBBTree, 1996).
"""

from __future__ import annotations

from itertools import product

from rigidgrad.geometry.closest import (
    TINY,
    Nearest,
    choose3,
    most,
    nearest_on_segment,
    outside,
    shallower,
    square_of,
    within,
)
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
    transpose,
)

_UNIT = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
_PARALLEL = 1e-12  # square of the sine between edges that have no direction across them
_NEVER = -1e30


def box_plane(c: Vector3, R: Matrix3, half: Vector3, n: Vector3, offset: Scalar) -> Nearest:
    """Of a box and the half-space n·x ≤ offset."""
    local = rotate_back(R, n)
    corner = tuple(select(less(0.0, k), -h, h) for k, h in zip(local, half, strict=True))
    x = add3(c, rotate(R, corner))
    return dot3(n, x) - offset, n, x


def box_box(a: Vector3, A: Matrix3, own: Vector3, b: Vector3, B: Matrix3, half: Vector3) -> Nearest:
    """Of two boxes: their middles, rotations and half lengths."""
    t, C = _between(a, A, b, B)
    depth, normal, deepest = _overlap(t, C, own, half)
    distance, out, point = _gap(t, C, own, half)
    apart = less(TINY, distance)
    length = sqrt(select(apart, distance, 1.0))
    # faces that touch have no way between nearest points: the normal is that of the overlap
    meets = less(depth, 0.0)
    d = select(meets, depth, select(apart, length, 0.0))
    use = select(meets, 0.0, select(apart, 1.0, 0.0))
    n = choose3(less(0.5, use), scale3(1.0 / length, out), normal)
    x = choose3(less(0.5, use), point, deepest)
    return d, rotate(B, n), add3(b, rotate(B, x))


def boxes_overlap(
    a: Vector3, A: Matrix3, own: Vector3, b: Vector3, B: Matrix3, half: Vector3
) -> Scalar:
    """The d of `box_box` where they meet; where they do not, it is positive and no more than d."""
    return _separation(*_between(a, A, b, B), own, half)


def boxes_square(
    a: Vector3, A: Matrix3, own: Vector3, b: Vector3, B: Matrix3, half: Vector3
) -> Scalar:
    """The square of the distance of two boxes that are apart."""
    return _gap(*_between(a, A, b, B), own, half)[0]


def _between(a: Vector3, A: Matrix3, b: Vector3, B: Matrix3) -> tuple[Vector3, Matrix3]:
    """The middle of the first, and its axes as columns, in the frame of the second."""
    columns = [rotate_back(B, axis) for axis in transpose(A)]
    return rotate_back(B, sub3(a, b)), transpose(tuple(columns))


def _gap(t: Vector3, C: Matrix3, own: Vector3, half: Vector3) -> tuple[Scalar, Vector3, Vector3]:
    """The square of the distance, the way from the second box to the first, and its end there."""
    axes = transpose(C)
    arms = [scale3(h, axis) for h, axis in zip(own, axes, strict=True)]
    best: tuple[Scalar, Vector3, Vector3] | None = None
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        along = scale3(2.0, arms[i])
        low = sub3(t, arms[i])
        for sj, sk in product((-1.0, 1.0), repeat=2):
            start = add3(add3(low, scale3(sj, arms[j])), scale3(sk, arms[k]))
            x = add3(start, scale3(nearest_on_segment(start, along, half), along))
            out = outside(x, half)
            found = square_of(out), out, x
            best = found if best is None else _closer(found, best)
    assert best is not None
    # corners of the second, in the frame of the first
    middle = rotate_back(C, t)
    columns = [scale3(h, row) for h, row in zip(half, C, strict=True)]
    near: tuple[Scalar, Vector3, Vector3] | None = None
    for signs in product((-1.0, 1.0), repeat=3):
        p = tuple(-m for m in middle)
        for s, column in zip(signs, columns, strict=True):
            p = add3(p, scale3(s, column))
        x = tuple(within(y, -h, h) for y, h in zip(p, own, strict=True))
        out = sub3(x, p)
        found = square_of(out), out, x
        near = found if near is None else _closer(found, near)
    assert near is not None
    first = less(near[0], best[0])
    return (
        select(first, near[0], best[0]),
        choose3(first, rotate(C, near[1]), best[1]),
        choose3(first, add3(t, rotate(C, near[2])), best[2]),
    )


def _closer(
    a: tuple[Scalar, Vector3, Vector3], b: tuple[Scalar, Vector3, Vector3]
) -> tuple[Scalar, Vector3, Vector3]:
    first = less(a[0], b[0])
    return select(first, a[0], b[0]), choose3(first, a[1], b[1]), choose3(first, a[2], b[2])


def _separation(t: Vector3, C: Matrix3, own: Vector3, half: Vector3) -> Scalar:
    """The largest gap of the two boxes' shadows on fifteen lines; negative where they meet."""
    axes, ta = transpose(C), rotate_back(C, t)
    best: Scalar = _NEVER
    for i in range(3):
        best = most(best, abs(ta[i]) - own[i] - _reach(axes[i], half))
        best = most(best, abs(t[i]) - half[i] - _reach(C[i], own))
    for i in range(3):
        for j in range(3):
            n, usable = _across(axes[i], j)
            gap = abs(dot3(n, t)) - _reach(n, half) - _reach(rotate_back(C, n), own)
            best = most(best, select(usable, gap, _NEVER))
    return best


def _overlap(t: Vector3, C: Matrix3, own: Vector3, half: Vector3) -> Nearest:
    """`_separation` with its direction, and the point of the first that moves it."""
    axes = transpose(C)
    best: Nearest | None = None
    for i in range(3):
        n = _towards(axes[i], t)
        corner = _corner(n, half)  # as the first box turns, its face turns about it
        found = dot3(n, t) - own[i] - dot3(n, corner), n, corner
        best = found if best is None else shallower(found, best)
        n = _towards(_UNIT[i], t)
        found = dot3(n, t) - half[i] - _reach(C[i], own), n, _lowest(t, axes, own, n)
        best = shallower(found, best)
    assert best is not None
    for i in range(3):
        for j in range(3):
            n, usable = _across(axes[i], j)
            n = _towards(n, t)
            d = dot3(n, t) - _reach(n, half) - _reach(rotate_back(C, n), own)
            # the point of the first's edge that is nearest to the second's
            middles = sub3(_lowest(t, axes, own, n, i), _corner(n, half, j))
            cosine = axes[i][j]
            sine = select(usable, 1.0 - cosine * cosine, 1.0)
            s = (cosine * middles[j] - dot3(axes[i], middles)) / most(sine, _PARALLEL)
            s = within(s, -own[i], own[i])
            x = add3(_lowest(t, axes, own, n, i), scale3(s, axes[i]))
            best = shallower((select(usable, d, _NEVER), n, x), best)
    return best


def _reach(n: Vector3, half: Vector3) -> Scalar:
    return abs(n[0]) * half[0] + abs(n[1]) * half[1] + abs(n[2]) * half[2]


def _across(axis: Vector3, j: int) -> tuple[Vector3, Scalar]:
    """The unit vector across an axis and the j-th one of the frame, and whether there is one."""
    n = cross3(axis, _UNIT[j])
    square = dot3(n, n)
    usable = less(_PARALLEL, square)
    return scale3(1.0 / sqrt(select(usable, square, 1.0)), n), usable


def _towards(n: Vector3, t: Vector3) -> Vector3:
    side = select(less(dot3(n, t), 0.0), -1.0, 1.0)
    return scale3(side, n)


def _corner(n: Vector3, half: Vector3, but: int = -1) -> Vector3:
    """The corner of a box in its own frame that is furthest along n; the middle of the edge along
    the axis `but` there.
    """
    return tuple(
        0.0 if k == but else select(less(x, 0.0), -h, h)
        for k, (x, h) in enumerate(zip(n, half, strict=True))
    )


def _lowest(
    t: Vector3, axes: tuple[Vector3, ...], own: Vector3, n: Vector3, but: int = -1
) -> Vector3:
    """The corner, or the middle of the edge, of the first box that is furthest against n."""
    x = t
    for k, (axis, h) in enumerate(zip(axes, own, strict=True)):
        if k != but:
            x = add3(x, scale3(select(less(dot3(n, axis), 0.0), h, -h), axis))
    return x
