"""Derivatives of `integrate` and `difference` on the configuration manifold, joint by joint.

With q' = q ⊕ ξ, a change δ of q, in the tangent at q, changes q' by Ad(exp ξ)⁻¹ δ, and a change of ξ by J_r(ξ), the right Jacobian; with ξ = q1 ⊖ q0, a
change of q1 changes ξ by J_r(ξ)⁻¹. For SE(3), J_r = [[J, Q], [0, J]] on (linear, angular) with J of SO(3) and Q of Barfoot (2017, section 7.1.5).
Joints with one freedom have ones.
"""

from __future__ import annotations

from rigidgrad.algorithms.joints import Matrix, Vector, rotation_from_quaternion
from rigidgrad.algorithms.manifold import away_from_zero, cosc, cotangent_rest, exponential, half_sinc, series, sinc, small_angle, third
from rigidgrad.model.model import Joint, Model
from rigidgrad.scalars import Scalar, add, mul, neg, select, sincos, sqrt
from rigidgrad.spatial import IDENTITY3, Matrix3, add3, cross3, dot3, multiply3, scale3, skew, transpose

_ONE: Matrix = ((1.0,),)


def transport(model: Model, dv: Vector) -> list[Matrix]:
    """∂(q ⊕ dv)/∂q, one block a joint."""
    return [_transport(j, dv[j.v : j.v + j.nv]) for j in model.joints if not j.is_mimic]


def right_jacobian(model: Model, dv: Vector) -> list[Matrix]:
    """∂(q ⊕ dv)/∂dv, one block a joint."""
    return [_right_jacobian(j, dv[j.v : j.v + j.nv]) for j in model.joints if not j.is_mimic]


def right_jacobian_inverse(model: Model, dv: Vector) -> list[Matrix]:
    """∂(q1 ⊖ q0)/∂q1 where q1 ⊖ q0 = dv, one block a joint."""
    return [_right_jacobian_inverse(j, dv[j.v : j.v + j.nv]) for j in model.joints if not j.is_mimic]


def block_times(blocks: list[Matrix], matrix: Matrix) -> Matrix:
    """A block-diagonal matrix times a matrix."""
    rows: list[Vector] = []
    start = 0
    for block in blocks:
        part = matrix[start : start + len(block)]
        start += len(block)
        columns = list(zip(*part, strict=True))
        rows += [tuple(_dot(row, column) for column in columns) for row in block]
    return tuple(rows)


def _dot(a: Vector, b: Vector) -> Scalar:
    result: Scalar = 0.0
    for x, y in zip(a, b, strict=True):
        result = add(result, mul(x, y))
    return result


def _transport(joint: Joint, dv: Vector) -> Matrix:
    match joint.type:
        case "spherical":
            return transpose(rotation_from_quaternion(*exponential(dv)))
        case "planar":
            vx, vy, w = dv
            s, c = sincos(w)
            px, py = sinc(w) * vx - cosc(w) * vy, cosc(w) * vx + sinc(w) * vy
            # Ad⁻¹ of (R, p): linear part Rᵀ (δ + δω ẑ × p)
            return (c, s, s * px - c * py), (-s, c, c * px + s * py), (0.0, 0.0, 1.0)
        case "floating":
            linear, w = dv[:3], dv[3:]
            back = transpose(rotation_from_quaternion(*exponential(w)))
            t = dot3(w, w)
            half = half_sinc(t)
            wl = cross3(w, linear)
            p = add3(linear, add3(scale3(2 * half * half, wl), scale3(third(t), cross3(w, wl))))
            moved = multiply3(back, _minus(skew(p)))
            return _blocks(back, moved)
    return _ONE


def _right_jacobian(joint: Joint, dv: Vector) -> Matrix:
    match joint.type:
        case "spherical":
            return _rotation_jacobian(dv)
        case "planar":
            vx, vy, w = dv
            s, c = sinc(w), cosc(w)
            a, b = w * third(w * w), _planar_second(w)
            return (s, c, vx * a - vy * b), (neg(c), s, vy * a + vx * b), (0.0, 0.0, 1.0)
        case "floating":
            return _blocks(_rotation_jacobian(dv[3:]), _coupling(dv[:3], dv[3:]))
    return _ONE


def _right_jacobian_inverse(joint: Joint, dv: Vector) -> Matrix:
    match joint.type:
        case "spherical":
            return _rotation_jacobian_inverse(dv)
        case "planar":
            (a, b, c), (d, e, f), _ = _right_jacobian(joint, dv)
            det = a * e - b * d
            ia, ib, id_, ie = e / det, neg(b) / det, neg(d) / det, a / det
            return (ia, ib, neg(ia * c + ib * f)), (id_, ie, neg(id_ * c + ie * f)), (0.0, 0.0, 1.0)
        case "floating":
            inverse = _rotation_jacobian_inverse(dv[3:])
            coupled = multiply3(multiply3(inverse, _coupling(dv[:3], dv[3:])), inverse)
            return _blocks(inverse, _minus(coupled))
    return _ONE


def _blocks(diagonal: Matrix3, corner: Matrix3) -> Matrix:
    """[[D, C], [0, D]]."""
    top = tuple((*d, *c) for d, c in zip(diagonal, corner, strict=True))
    return top + tuple((0.0, 0.0, 0.0, *d) for d in diagonal)


def _minus(m: Matrix3) -> Matrix3:
    return tuple(tuple(neg(x) for x in row) for row in m)


def _combine(terms: list[tuple[Scalar, Matrix3]]) -> Matrix3:
    result = [[0.0 for _ in range(3)] for _ in range(3)]
    for factor, m in terms:
        for i in range(3):
            for j in range(3):
                result[i][j] = add(result[i][j], mul(factor, m[i][j]))
    return tuple(tuple(row) for row in result)


def _rotation_jacobian(w: Vector) -> Matrix3:
    """J_r of SO(3): 1 - (1 - cos θ)/θ² ω× + (θ - sin θ)/θ³ ω×ω×."""
    t = dot3(w, w)
    half, wx = half_sinc(t), skew(w)
    return _combine([(1.0, IDENTITY3), (neg(2 * half * half), wx), (third(t), multiply3(wx, wx))])


def _rotation_jacobian_inverse(w: Vector) -> Matrix3:
    """1 + ½ ω× + (1 - θ/2 cot θ/2)/θ² ω×ω×."""
    wx = skew(w)
    return _combine([(1.0, IDENTITY3), (0.5, wx), (cotangent_rest(dot3(w, w)), multiply3(wx, wx))])


def _coupling(linear: Vector, w: Vector) -> Matrix3:
    """Q of the right Jacobian of SE(3), which is the left one's at (-linear, -ω)."""
    p, f = skew(tuple(neg(x) for x in linear)), skew(tuple(neg(x) for x in w))
    t = dot3(w, w)
    fp, pf, ff = multiply3(f, p), multiply3(p, f), multiply3(f, f)
    fpf = multiply3(fp, f)
    second = _combine([(1.0, multiply3(f, fp)), (1.0, multiply3(pf, f)), (-3.0, fpf)])
    last = _combine([(1.0, multiply3(fpf, f)), (1.0, multiply3(ff, pf))])
    first = _combine([(1.0, fp), (1.0, pf), (1.0, fpf)])
    return _combine([(0.5, p), (third(t), first), (_quartic(t), second), (_quintic(t), last)])


def _quartic(t: Scalar) -> Scalar:
    """(θ² + 2 cos θ - 2)/(2 θ⁴) for t = θ²."""
    small = small_angle(t)
    safe = away_from_zero(t, small)
    _, c = sincos(sqrt(safe))
    coefficients = (1 / 24, -1 / 720, 1 / 40320, -1 / 3628800, 1 / 479001600, -1 / 87178291200, 1 / 20922789888000)
    return select(small, series(t, coefficients), (safe + 2 * c - 2) / (2 * safe * safe))


def _quintic(t: Scalar) -> Scalar:
    """(2θ - 3 sin θ + θ cos θ)/(2 θ⁵) for t = θ²."""
    small = small_angle(t)
    safe = away_from_zero(t, small)
    theta = sqrt(safe)
    s, c = sincos(theta)
    coefficients = (1 / 120, -1 / 2520, 1 / 120960, -1 / 9979200, 1 / 1245404160, -1 / 217945728000, 1 / 50812489728000)
    return select(small, series(t, coefficients), (2 * theta - 3 * s + theta * c) / (2 * safe * safe * theta))


def _planar_second(w: Scalar) -> Scalar:
    """(1 - cos w) / w²: ½ at 0."""
    half = sinc(w / 2)
    return half * half / 2
