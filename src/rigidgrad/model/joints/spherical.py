"""A ball: SO(3) as a unit quaternion (x, y, z, w)."""

from __future__ import annotations

from rigidgrad import rotations
from rigidgrad.model.joints.joint_type import QUATERNION, Geometry, JointType, Matrix, Vector, Z
from rigidgrad.rotations import (
    conjugate,
    exponential,
    logarithm,
    nearly_unit,
    quaternion_product,
    quaternion_rates,
    rotation_from_quaternion,
)
from rigidgrad.spatial import IDENTITY3, ZERO3, Motion, Transform, transpose


class Spherical(JointType):
    name = "spherical"
    units = ("rad", "rad", "rad")
    freedoms = ("rx", "ry", "rz")
    coordinates = ("roll", "pitch", "yaw")
    direction = QUATERNION

    mujoco = (("mjJNT_BALL", Z),)
    pinocchio = ("JointModelSpherical",)
    moves_as = "spherical"
    hub = "sphere"

    def is_free(self, at_root: bool) -> bool:
        return at_root

    def transform(self, joint: Geometry, q: Vector) -> Transform:
        return Transform(transpose(rotation_from_quaternion(*q)), ZERO3)

    def subspace(self, joint: Geometry) -> tuple[Motion, ...]:
        return tuple(Motion(e, ZERO3) for e in IDENTITY3)

    def integrate(self, q: Vector, dv: Vector) -> Vector:
        return nearly_unit(quaternion_product(q, exponential(dv)))

    def separation(self, q0: Vector, q1: Vector) -> Vector:
        return logarithm(quaternion_product(conjugate(q0), q1))

    def transport(self, dv: Vector) -> Matrix:
        return transpose(rotation_from_quaternion(*exponential(dv)))

    def right_jacobian(self, dv: Vector) -> Matrix:
        return rotations.right_jacobian(dv)

    def right_jacobian_inverse(self, dv: Vector) -> Matrix:
        return rotations.right_jacobian_inverse(dv)

    def rates(self, q: Vector) -> Matrix:
        return quaternion_rates(*q)
