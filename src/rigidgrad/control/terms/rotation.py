"""How far a rotation is from another, as a rotation vector, and how that changes."""

from __future__ import annotations

from rigidgrad.algorithms.joints import Vector
from rigidgrad.rotations import cotangent_rest
from rigidgrad.scalars import atan2, less, select, sqrt
from rigidgrad.spatial import Matrix3, Vector3, add3, cross3, dot3, scale3, transpose


def rotation_vector(R: Matrix3) -> Vector3:
    """log R, of length up to π. Of four multiples of its quaternion the one with the longest
    divisor is taken (Shepperd 1978), so it is right near π, too.
    """
    (a, b, c), (d, e, f), (g, h, i) = R
    best: Vector = (1 + a + e + i, h - f, c - g, d - b)
    largest = best[0]
    others: list[Vector] = [
        (h - f, 1 + a - e - i, b + d, c + g),
        (c - g, b + d, 1 - a + e - i, f + h),
        (d - b, c + g, f + h, 1 - a - e + i),
    ]
    for k, other in enumerate(others, 1):
        better = less(largest, other[k])
        best = tuple(select(better, y, x) for x, y in zip(best, other, strict=True))
        largest = select(better, other[k], largest)
    w, v = best[0], best[1:]
    sign = select(less(w, 0.0), -1.0, 1.0)
    w, n2 = sign * w, dot3(v, v)
    tiny = less(n2, 1e-30)
    n = sqrt(select(tiny, 1 + 0 * n2, n2))
    ratio = select(tiny, 1 / select(tiny, w, 1 + 0 * w), atan2(n, w) / n)
    return scale3(2 * sign * ratio, v)


def rotation_vector_jacobian(E: Matrix3, r: Vector3) -> Matrix3:
    """Takes an angular velocity in world axes to the rate of r = log(R_targetᵀ R): J_r(r)⁻¹ E with
    E = Rᵀ and J_r⁻¹ = 1 + ½ r× + (1 - θ/2 cot θ/2)/θ² r×r×.
    """
    rest = cotangent_rest(dot3(r, r))
    columns = []
    for e in transpose(E):
        re = cross3(r, e)
        columns.append(add3(e, add3(scale3(0.5, re), scale3(rest, cross3(r, re)))))
    return transpose(tuple(columns))
