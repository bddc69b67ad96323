"""A free body: SE(3) as (position, quaternion (x, y, z, w)), velocities (linear, angular) along the
moving axes.

Its right Jacobian is J_r = [[J, Q], [0, J]] on (linear, angular), with J of SO(3) and Q of Barfoot
(2017, section 7.1.5).
"""

from __future__ import annotations

from rigidgrad import rotations
from rigidgrad.model.joints.joint_type import (
    QUATERNION,
    Geometry,
    JointType,
    Matrix,
    Vector,
    X,
    Y,
    Z,
)
from rigidgrad.rotations import (
    away_from_zero,
    combine_matrices,
    conjugate,
    cotangent_rest,
    exponential,
    half_sinc,
    logarithm,
    nearly_unit,
    quaternion_product,
    quaternion_rates,
    rotation_from_quaternion,
    series,
    small_angle,
    third,
)
from rigidgrad.scalars import Scalar, neg, select, sincos, sqrt
from rigidgrad.spatial import (
    IDENTITY3,
    ZERO3,
    Matrix3,
    Motion,
    Transform,
    Vector3,
    add3,
    cross3,
    dot3,
    multiply3,
    rotate,
    rotate_back,
    scale3,
    skew,
    sub3,
    transpose,
)


class Floating(JointType):
    name = "floating"
    units = ("m", "m", "m", "rad", "rad", "rad")
    freedoms = ("x", "y", "z", "rx", "ry", "rz")
    coordinates = ("x", "y", "z", "roll", "pitch", "yaw")
    direction = QUATERNION
    flies = True

    urdf = "floating"
    mujoco = (("mjJNT_SLIDE", X), ("mjJNT_SLIDE", Y), ("mjJNT_SLIDE", Z), ("mjJNT_BALL", Z))
    pinocchio = ("JointModelFreeFlyer",)
    moves_as = "floating"

    def is_free(self, at_root: bool) -> bool:
        return True

    def transform(self, joint: Geometry, q: Vector) -> Transform:
        return Transform(transpose(rotation_from_quaternion(*q[3:])), (q[0], q[1], q[2]))

    def subspace(self, joint: Geometry) -> tuple[Motion, ...]:
        return tuple(Motion(ZERO3, e) for e in IDENTITY3) + tuple(
            Motion(e, ZERO3) for e in IDENTITY3
        )

    def integrate(self, q: Vector, dv: Vector) -> Vector:
        linear, w = dv[:3], dv[3:]
        moved = _moved(linear, w)
        position = add3(q[:3], rotate(rotation_from_quaternion(*q[3:]), moved))
        return (*position, *nearly_unit(quaternion_product(q[3:], exponential(w))))

    def separation(self, q0: Vector, q1: Vector) -> Vector:
        turn = logarithm(quaternion_product(conjugate(q0[3:]), q1[3:]))
        p = rotate_back(rotation_from_quaternion(*q0[3:]), sub3(q1[:3], q0[:3]))
        return (*p, *turn)

    def difference(self, q0: Vector, q1: Vector) -> Vector:
        apart = self.separation(q0, q1)
        p, turn = apart[:3], apart[3:]
        wp = cross3(turn, p)
        rest = cotangent_rest(dot3(turn, turn))
        # V⁻¹ p = p - ½ ω×p + (1 - θ/2 cot θ/2)/θ² ω×(ω×p)
        linear = add3(sub3(p, tuple(x / 2 for x in wp)), scale3(rest, cross3(turn, wp)))
        return (*linear, *turn)

    def transport(self, dv: Vector) -> Matrix:
        linear, w = dv[:3], dv[3:]
        back = transpose(rotation_from_quaternion(*exponential(w)))
        return _blocks(back, multiply3(back, _minus(skew(_moved(linear, w)))))

    def right_jacobian(self, dv: Vector) -> Matrix:
        return _blocks(rotations.right_jacobian(dv[3:]), _coupling(dv[:3], dv[3:]))

    def right_jacobian_inverse(self, dv: Vector) -> Matrix:
        inverse = rotations.right_jacobian_inverse(dv[3:])
        coupled = multiply3(multiply3(inverse, _coupling(dv[:3], dv[3:])), inverse)
        return _blocks(inverse, _minus(coupled))

    def rates(self, q: Vector) -> Matrix:
        back = transpose(rotation_from_quaternion(*q[3:]))
        zero = (0.0, 0.0, 0.0)
        return tuple((*row, *zero, 0.0) for row in back) + tuple(
            (*zero, *row) for row in quaternion_rates(*q[3:])
        )


def _moved(linear: Vector3, w: Vector3) -> Vector3:
    """Where the screw leads: V v = v + (1 - cos θ)/θ² ω×v + (θ - sin θ)/θ³ ω×(ω×v)."""
    wl = cross3(w, linear)
    t = dot3(w, w)
    half = half_sinc(t)
    return add3(linear, add3(scale3(2 * half * half, wl), scale3(third(t), cross3(w, wl))))


def _blocks(diagonal: Matrix3, corner: Matrix3) -> Matrix:
    """[[D, C], [0, D]]."""
    top = tuple((*d, *c) for d, c in zip(diagonal, corner, strict=True))
    return top + tuple((0.0, 0.0, 0.0, *d) for d in diagonal)


def _minus(m: Matrix3) -> Matrix3:
    return tuple(tuple(neg(x) for x in row) for row in m)


def _coupling(linear: Vector3, w: Vector3) -> Matrix3:
    """Q of the right Jacobian of SE(3), which is the left one's at (-linear, -ω)."""
    p, f = skew(tuple(neg(x) for x in linear)), skew(tuple(neg(x) for x in w))
    t = dot3(w, w)
    fp, pf, ff = multiply3(f, p), multiply3(p, f), multiply3(f, f)
    fpf = multiply3(fp, f)
    second = combine_matrices([(1.0, multiply3(f, fp)), (1.0, multiply3(pf, f)), (-3.0, fpf)])
    last = combine_matrices([(1.0, multiply3(fpf, f)), (1.0, multiply3(ff, pf))])
    first = combine_matrices([(1.0, fp), (1.0, pf), (1.0, fpf)])
    return combine_matrices(
        [(0.5, p), (third(t), first), (_quartic(t), second), (_quintic(t), last)]
    )


def _quartic(t: Scalar) -> Scalar:
    """(θ² + 2 cos θ - 2)/(2 θ⁴) for t = θ²."""
    small = small_angle(t)
    safe = away_from_zero(t, small)
    _, c = sincos(sqrt(safe))
    coefficients = (
        1 / 24,
        -1 / 720,
        1 / 40320,
        -1 / 3628800,
        1 / 479001600,
        -1 / 87178291200,
        1 / 20922789888000,
    )
    return select(small, series(t, coefficients), (safe + 2 * c - 2) / (2 * safe * safe))


def _quintic(t: Scalar) -> Scalar:
    """(2θ - 3 sin θ + θ cos θ)/(2 θ⁵) for t = θ²."""
    small = small_angle(t)
    safe = away_from_zero(t, small)
    theta = sqrt(safe)
    s, c = sincos(theta)
    coefficients = (
        1 / 120,
        -1 / 2520,
        1 / 120960,
        -1 / 9979200,
        1 / 1245404160,
        -1 / 217945728000,
        1 / 50812489728000,
    )
    return select(
        small, series(t, coefficients), (2 * theta - 3 * s + theta * c) / (2 * safe * safe * theta)
    )
