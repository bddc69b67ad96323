"""Motion in the xy plane of the joint's frame: SE(2) as (x, y, cos, sin), velocities along the
moving axes.
"""

from __future__ import annotations

from rigidgrad.model.joints.joint_type import PAIR, Geometry, JointType, Matrix, Vector, X, Y, Z
from rigidgrad.rotations import cosc, cotangent_rest, nearly_unit, sinc, third
from rigidgrad.scalars import Scalar, atan2, neg, sincos
from rigidgrad.spatial import ZERO3, Motion, Transform


class Planar(JointType):
    name = "planar"
    units = ("m", "m", "rad")
    freedoms = ("x", "y", "rz")
    coordinates = ("x", "y", "angle")
    direction = PAIR
    axis = "z"

    urdf = "planar"
    mujoco = (("mjJNT_SLIDE", X), ("mjJNT_SLIDE", Y), ("mjJNT_HINGE", Z))
    pinocchio = ("JointModelPlanar",)
    moves_as = "planar"

    def is_free(self, at_root: bool) -> bool:
        return at_root

    def transform(self, joint: Geometry, q: Vector) -> Transform:
        x, y, c, s = q
        return Transform(((c, s, 0.0), (neg(s), c, 0.0), (0.0, 0.0, 1.0)), (x, y, 0.0))

    def subspace(self, joint: Geometry) -> tuple[Motion, ...]:
        return Motion(ZERO3, X), Motion(ZERO3, Y), Motion(Z, ZERO3)

    def integrate(self, q: Vector, dv: Vector) -> Vector:
        x, y, c, s = q
        vx, vy, w = dv
        sw, cw = sincos(w)
        along, across = sinc(w), cosc(w)
        dx, dy = along * vx - across * vy, across * vx + along * vy
        turned = nearly_unit((c * cw - s * sw, s * cw + c * sw))
        return (x + c * dx - s * dy, y + s * dx + c * dy, *turned)

    def separation(self, q0: Vector, q1: Vector) -> Vector:
        x, y, c, s = q0
        dx, dy = q1[0] - x, q1[1] - y
        px, py = c * dx + s * dy, c * dy - s * dx
        return px, py, atan2(c * q1[3] - s * q1[2], c * q1[2] + s * q1[3])

    def difference(self, q0: Vector, q1: Vector) -> Vector:
        px, py, w = self.separation(q0, q1)
        alpha = 1 - w * w * cotangent_rest(w * w)
        return alpha * px + (w / 2) * py, alpha * py - (w / 2) * px, w

    def transport(self, dv: Vector) -> Matrix:
        vx, vy, w = dv
        s, c = sincos(w)
        px, py = sinc(w) * vx - cosc(w) * vy, cosc(w) * vx + sinc(w) * vy
        # Ad⁻¹ of (R, p): linear part Rᵀ (δ + δω ẑ × p)
        return (c, s, s * px - c * py), (-s, c, c * px + s * py), (0.0, 0.0, 1.0)

    def right_jacobian(self, dv: Vector) -> Matrix:
        vx, vy, w = dv
        s, c = sinc(w), cosc(w)
        a, b = w * third(w * w), _second(w)
        return (s, c, vx * a - vy * b), (neg(c), s, vy * a + vx * b), (0.0, 0.0, 1.0)

    def right_jacobian_inverse(self, dv: Vector) -> Matrix:
        (a, b, c), (d, e, f), _ = self.right_jacobian(dv)
        det = a * e - b * d
        ia, ib, id_, ie = e / det, neg(b) / det, neg(d) / det, a / det
        return (ia, ib, neg(ia * c + ib * f)), (id_, ie, neg(id_ * c + ie * f)), (0.0, 0.0, 1.0)

    def rates(self, q: Vector) -> Matrix:
        _, _, c, s = q
        return (c, s, 0.0, 0.0), (-s, c, 0.0, 0.0), (0.0, 0.0, -s, c)


def _second(w: Scalar) -> Scalar:
    """(1 - cos w) / w²: ½ at 0."""
    half = sinc(w / 2)
    return half * half / 2
