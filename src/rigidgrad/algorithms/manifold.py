"""Positions as points of a manifold: integrate, difference, normalize, neutral. Tangents are laid out as v, in each joint's own frame.

Revolute, prismatic and helical joints are vectors; a continuous joint is one angle, never wrapped. Spherical joints are unit quaternions (x, y, z, w),
planar joints SE(2) as (x, y, cos, sin), floating joints SE(3) as (position, quaternion).
"""

from __future__ import annotations

from rigidgrad.algorithms.joints import Vector, rotation_from_quaternion
from rigidgrad.model.model import Joint, Model
from rigidgrad.scalars import Scalar, atan2, less, select, sincos, sqrt
from rigidgrad.spatial import add3, cross3, dot3, rotate, rotate_back, scale3, sub3

# below this angle squared, quotients that tend to 0/0 are summed as series (exact to rounding there)
_SERIES = 0.25


def neutral(model: Model) -> Vector:
    """The position in which every joint is at its zero."""
    unit = {"spherical": (0.0, 0.0, 0.0, 1.0), "planar": (0.0, 0.0, 1.0, 0.0), "floating": (0.0,) * 6 + (1.0,)}
    return tuple(x for j in model.joints if not j.is_mimic for x in unit.get(j.type, (0.0,)))


def integrate(model: Model, q: Vector, dv: Vector) -> Vector:
    """q ⊕ dv: where the tangent dv (velocity times time) leads from q."""
    return _per_joint(model, lambda j: _integrate(j, q[j.q : j.q + j.nq], dv[j.v : j.v + j.nv]))


def difference(model: Model, q0: Vector, q1: Vector) -> Vector:
    """q1 ⊖ q0: the tangent at q0 that leads to q1."""
    return _per_joint(model, lambda j: _difference(j, q0[j.q : j.q + j.nq], q1[j.q : j.q + j.nq]))


def separation(model: Model, q0: Vector, q1: Vector) -> Vector:
    """How far apart positions are, in the layout of `difference` and the axes at q0: bases along straight lines, where `difference` goes along the screw that leads from one to the other."""
    return _per_joint(model, lambda j: _separation(j, q0[j.q : j.q + j.nq], q1[j.q : j.q + j.nq]))


def normalize(model: Model, q: Vector) -> Vector:
    """q with quaternions and (cos, sin) pairs scaled to length one."""
    return _per_joint(model, lambda j: _normalize(j, q[j.q : j.q + j.nq]))


def _per_joint(model: Model, function) -> Vector:
    return tuple(x for j in model.joints if not j.is_mimic for x in function(j))


def _integrate(joint: Joint, q: Vector, dv: Vector) -> Vector:
    match joint.type:
        case "spherical":
            return _nearly_unit(_quaternion_product(q, exponential(dv)))
        case "planar":
            x, y, c, s = q
            vx, vy, w = dv
            sw, cw = sincos(w)
            along, across = sinc(w), cosc(w)
            dx, dy = along * vx - across * vy, across * vx + along * vy
            turned = _nearly_unit((c * cw - s * sw, s * cw + c * sw))
            return (x + c * dx - s * dy, y + s * dx + c * dy, *turned)
        case "floating":
            linear, w = dv[:3], dv[3:]
            wl = cross3(w, linear)
            t = dot3(w, w)
            half = half_sinc(t)
            # V v = v + (1 - cos θ)/θ² ω×v + (θ - sin θ)/θ³ ω×(ω×v)
            moved = add3(linear, add3(scale3(2 * half * half, wl), scale3(third(t), cross3(w, wl))))
            position = add3(q[:3], rotate(rotation_from_quaternion(*q[3:]), moved))
            return (*position, *_nearly_unit(_quaternion_product(q[3:], exponential(w))))
    return (q[0] + dv[0],)


def _separation(joint: Joint, q0: Vector, q1: Vector) -> Vector:
    match joint.type:
        case "spherical":
            return _logarithm(_quaternion_product(_conjugate(q0), q1))
        case "planar":
            x, y, c, s = q0
            dx, dy = q1[0] - x, q1[1] - y
            px, py = c * dx + s * dy, c * dy - s * dx
            return px, py, atan2(c * q1[3] - s * q1[2], c * q1[2] + s * q1[3])
        case "floating":
            turn = _logarithm(_quaternion_product(_conjugate(q0[3:]), q1[3:]))
            p = rotate_back(rotation_from_quaternion(*q0[3:]), sub3(q1[:3], q0[:3]))
            return (*p, *turn)
    return (q1[0] - q0[0],)


def _difference(joint: Joint, q0: Vector, q1: Vector) -> Vector:
    apart = _separation(joint, q0, q1)
    match joint.type:
        case "planar":
            px, py, w = apart
            alpha = 1 - w * w * cotangent_rest(w * w)
            return alpha * px + (w / 2) * py, alpha * py - (w / 2) * px, w
        case "floating":
            p, turn = apart[:3], apart[3:]
            wp = cross3(turn, p)
            rest = cotangent_rest(dot3(turn, turn))
            # V⁻¹ p = p - ½ ω×p + (1 - θ/2 cot θ/2)/θ² ω×(ω×p)
            linear = add3(sub3(p, tuple(x / 2 for x in wp)), scale3(rest, cross3(turn, wp)))
            return (*linear, *turn)
    return apart


def _normalize(joint: Joint, q: Vector) -> Vector:
    start = {"spherical": 0, "planar": 2, "floating": 3}.get(joint.type)
    if start is None:
        return q
    length = sqrt(sum(x * x for x in q[start:]))
    return (*q[:start], *(x / length for x in q[start:]))


def _nearly_unit(x: Vector) -> Vector:
    """One Newton step towards length one: rounding does not pile up over many steps."""
    scale = (3 - sum(y * y for y in x)) / 2
    return tuple(y * scale for y in x)


def _quaternion_product(a: Vector, b: Vector) -> Vector:
    ax, ay, az, aw = a
    bx, by, bz, bw = b
    return (
        aw * bx + bw * ax + ay * bz - az * by,
        aw * by + bw * ay + az * bx - ax * bz,
        aw * bz + bw * az + ax * by - ay * bx,
        aw * bw - ax * bx - ay * by - az * bz,
    )


def _conjugate(a: Vector) -> Vector:
    return -a[0], -a[1], -a[2], a[3]


def exponential(w: Vector) -> Vector:
    """The unit quaternion of a rotation vector."""
    t = dot3(w, w)
    half = half_sinc(t)
    small = small_angle(t)
    _, c = sincos(sqrt(select(small, 1 + 0 * t, t)) / 2)
    cosine = select(small, series(t / 4, (1, -1 / 2, 1 / 24, -1 / 720, 1 / 40320, -1 / 3628800, 1 / 479001600)), c)
    return (*scale3(half, w), cosine)


def _logarithm(q: Vector) -> Vector:
    """The rotation vector, of length up to π, of a unit quaternion."""
    x, y, z, w = q
    sign = select(less(w, 0), -1, 1)
    n2 = x * x + y * y + z * z
    tiny = less(n2, 1e-30)
    n = sqrt(select(tiny, 1 + 0 * n2, n2))
    scale = sign * select(tiny, 2 + 0 * n2, 2 * atan2(n, sign * w) / n)
    return scale * x, scale * y, scale * z


def series(t: Scalar, coefficients) -> Scalar:
    """Σ c_k t^k by Horner's rule."""
    result: Scalar = 0 * t + coefficients[-1]
    for c in reversed(coefficients[:-1]):
        result = result * t + c
    return result


def small_angle(t: Scalar) -> Scalar:
    return less(t, _SERIES)


def away_from_zero(t: Scalar, small) -> Scalar:
    return select(small, 1 + 0 * t, t)


def half_sinc(t: Scalar) -> Scalar:
    """sin(θ/2)/θ for t = θ²."""
    small = small_angle(t)
    theta = sqrt(away_from_zero(t, small))
    s, _ = sincos(theta / 2)
    near = series(t / 4, (1 / 2, -1 / 12, 1 / 240, -1 / 10080, 1 / 725760, -1 / 79833600, 1 / 12454041600))
    return select(small, near, s / theta)


def third(t: Scalar) -> Scalar:
    """(θ - sin θ)/θ³ for t = θ²."""
    small = small_angle(t)
    safe = away_from_zero(t, small)
    theta = sqrt(safe)
    s, _ = sincos(theta)
    near = series(t, (1 / 6, -1 / 120, 1 / 5040, -1 / 362880, 1 / 39916800, -1 / 6227020800, 1 / 1307674368000))
    return select(small, near, (theta - s) / (safe * theta))


def cotangent_rest(t: Scalar) -> Scalar:
    """(1 - θ/2 cot θ/2)/θ² for t = θ²."""
    small = small_angle(t)
    safe = away_from_zero(t, small)
    theta = sqrt(safe)
    s, c = sincos(theta / 2)
    near = series(
        t, (1 / 12, 1 / 720, 1 / 30240, 1 / 1209600, 1 / 47900160, 691 / 1307674368000, 1 / 74724249600, 3617 / 10670622842880000)
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
