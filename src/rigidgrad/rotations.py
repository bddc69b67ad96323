"""Rotations over any scalar: as matrices, unit quaternions (x, y, z, w) and rotation vectors, and
the Jacobians between these.

Quotients of an angle that tend to 0/0 are summed as series near zero, exact to rounding there.
"""

from __future__ import annotations

from collections.abc import Sequence

from rigidgrad.scalars import Scalar, add, atan2, less, mul, neg, select, sincos, sqrt, sub
from rigidgrad.spatial import IDENTITY3, Matrix3, Vector3, dot3, multiply3, scale3, skew

Quaternion = tuple[Scalar, ...]  # four

_SERIES = 0.25  # below this angle squared, series are summed


# --- matrices -------------------------------------------------------------------------------------


def rotation_about(axis: Vector3, s: Scalar, c: Scalar) -> Matrix3:
    """R = c·1 + s·axis× + (1 - c)·axis axisᵀ, with sine and cosine of the angle given."""
    x, y, z = axis
    t = 1 - c

    def diagonal(k: Scalar) -> Scalar:
        if type(k) is float and k in (0.0, 1.0, -1.0):
            return c if k == 0.0 else 1.0
        return add(c, mul(t, mul(k, k)))

    xy, xz, yz = mul(t, mul(x, y)), mul(t, mul(x, z)), mul(t, mul(y, z))
    sx, sy, sz = mul(s, x), mul(s, y), mul(s, z)
    return (
        (diagonal(x), sub(xy, sz), add(xz, sy)),
        (add(xy, sz), diagonal(y), sub(yz, sx)),
        (sub(xz, sy), add(yz, sx), diagonal(z)),
    )


def rotation_from_quaternion(x: Scalar, y: Scalar, z: Scalar, w: Scalar) -> Matrix3:
    """R of a unit quaternion."""
    x2, y2, z2 = x + x, y + y, z + z
    xx, yy, zz = x2 * x, y2 * y, z2 * z
    xy, xz, yz = x2 * y, x2 * z, y2 * z
    wx, wy, wz = w * x2, w * y2, w * z2
    return (
        (1 - (yy + zz), xy - wz, xz + wy),
        (xy + wz, 1 - (xx + zz), yz - wx),
        (xz - wy, yz + wx, 1 - (xx + yy)),
    )


def combine_matrices(terms: list[tuple[Scalar, Matrix3]]) -> Matrix3:
    """Σ factor · matrix."""
    result: list[list[Scalar]] = [[0.0 for _ in range(3)] for _ in range(3)]
    for factor, m in terms:
        for i in range(3):
            for j in range(3):
                result[i][j] = add(result[i][j], mul(factor, m[i][j]))
    return tuple(tuple(row) for row in result)


# --- quaternions ----------------------------------------------------------------------------------


def quaternion_product(a: Quaternion, b: Quaternion) -> Quaternion:
    ax, ay, az, aw = a
    bx, by, bz, bw = b
    return (
        aw * bx + bw * ax + ay * bz - az * by,
        aw * by + bw * ay + az * bx - ax * bz,
        aw * bz + bw * az + ax * by - ay * bx,
        aw * bw - ax * bx - ay * by - az * bz,
    )


def conjugate(a: Quaternion) -> Quaternion:
    return -a[0], -a[1], -a[2], a[3]


def nearly_unit(x: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    """One Newton step towards length one: rounding does not pile up over many steps."""
    scale = (3 - sum(y * y for y in x)) / 2
    return tuple(y * scale for y in x)


def exponential(w: Vector3) -> Quaternion:
    """The unit quaternion of a rotation vector."""
    t = dot3(w, w)
    half = half_sinc(t)
    small = small_angle(t)
    _, c = sincos(sqrt(select(small, 1 + 0 * t, t)) / 2)
    cosine = select(
        small,
        series(t / 4, (1, -1 / 2, 1 / 24, -1 / 720, 1 / 40320, -1 / 3628800, 1 / 479001600)),
        c,
    )
    return (*scale3(half, w), cosine)


def logarithm(q: Quaternion) -> Vector3:
    """The rotation vector, of length up to π, of a unit quaternion."""
    x, y, z, w = q
    sign = select(less(w, 0), -1, 1)
    n2 = x * x + y * y + z * z
    tiny = less(n2, 1e-30)
    n = sqrt(select(tiny, 1 + 0 * n2, n2))
    scale = sign * select(tiny, 2 + 0 * n2, 2 * atan2(n, sign * w) / n)
    return scale * x, scale * y, scale * z


def quaternion_rates(x: Scalar, y: Scalar, z: Scalar, w: Scalar) -> tuple[Quaternion, ...]:
    """The angular velocity, in the turned frame, that the rates of a unit quaternion's numbers are:
    3 x 4.
    """
    return (
        (2 * w, 2 * z, -2 * y, -2 * x),
        (-2 * z, 2 * w, 2 * x, -2 * y),
        (2 * y, -2 * x, 2 * w, -2 * z),
    )


def right_jacobian(w: Vector3) -> Matrix3:
    """J_r of SO(3): 1 - (1 - cos θ)/θ² ω× + (θ - sin θ)/θ³ ω×ω×."""
    t = dot3(w, w)
    half, wx = half_sinc(t), skew(w)
    return combine_matrices(
        [(1.0, IDENTITY3), (neg(2 * half * half), wx), (third(t), multiply3(wx, wx))]
    )


def right_jacobian_inverse(w: Vector3) -> Matrix3:
    """1 + ½ ω× + (1 - θ/2 cot θ/2)/θ² ω×ω×."""
    wx = skew(w)
    return combine_matrices(
        [(1.0, IDENTITY3), (0.5, wx), (cotangent_rest(dot3(w, w)), multiply3(wx, wx))]
    )


# --- quotients of an angle ------------------------------------------------------------------------


def series(t: Scalar, coefficients: Sequence[float]) -> Scalar:
    """Σ c_k t^k by Horner's rule."""
    result: Scalar = 0 * t + coefficients[-1]
    for c in reversed(coefficients[:-1]):
        result = result * t + c
    return result


def small_angle(t: Scalar) -> Scalar:
    return less(t, _SERIES)


def away_from_zero(t: Scalar, small: Scalar) -> Scalar:
    return select(small, 1 + 0 * t, t)


def half_sinc(t: Scalar) -> Scalar:
    """sin(θ/2)/θ for t = θ²."""
    small = small_angle(t)
    theta = sqrt(away_from_zero(t, small))
    s, _ = sincos(theta / 2)
    near = series(
        t / 4, (1 / 2, -1 / 12, 1 / 240, -1 / 10080, 1 / 725760, -1 / 79833600, 1 / 12454041600)
    )
    return select(small, near, s / theta)


def third(t: Scalar) -> Scalar:
    """(θ - sin θ)/θ³ for t = θ²."""
    small = small_angle(t)
    safe = away_from_zero(t, small)
    theta = sqrt(safe)
    s, _ = sincos(theta)
    near = series(
        t,
        (1 / 6, -1 / 120, 1 / 5040, -1 / 362880, 1 / 39916800, -1 / 6227020800, 1 / 1307674368000),
    )
    return select(small, near, (theta - s) / (safe * theta))


def cotangent_rest(t: Scalar) -> Scalar:
    """(1 - θ/2 cot θ/2)/θ² for t = θ²."""
    small = small_angle(t)
    safe = away_from_zero(t, small)
    theta = sqrt(safe)
    s, c = sincos(theta / 2)
    near = series(
        t,
        (
            1 / 12,
            1 / 720,
            1 / 30240,
            1 / 1209600,
            1 / 47900160,
            691 / 1307674368000,
            1 / 74724249600,
            3617 / 10670622842880000,
        ),
    )
    return select(small, near, (1 - (theta / 2) * c / s) / safe)


def sinc(w: Scalar) -> Scalar:
    """sin w / w."""
    t = w * w
    small = small_angle(t)
    safe = select(small, 1 + 0 * w, w)
    near = series(t, (1, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800, 1 / 6227020800))
    return select(small, near, sincos(safe)[0] / safe)


def cosc(w: Scalar) -> Scalar:
    """(1 - cos w) / w."""
    half = sinc(w / 2)
    return half * half * (w / 2)
