"""A screw: an angle about the joint's axis, with a length along it of pitch metres per radian."""

from __future__ import annotations

from rigidgrad.model.joints.joint_type import Geometry, JointType, Vector
from rigidgrad.rotations import rotation_about
from rigidgrad.scalars import mul, sincos
from rigidgrad.spatial import Motion, Transform, scale3, transpose


class Helical(JointType):
    name = "helical"
    units = ("rad",)
    axis = "own"
    has_pitch = True
    bounded = True

    pinocchio = ("JointModelHX", "JointModelHY", "JointModelHZ", "JointModelHelicalUnaligned")
    moves_as = "helical"
    hub = "cylinder"

    def transform(self, joint: Geometry, q: Vector) -> Transform:
        return Transform(
            transpose(rotation_about(joint.axis, *sincos(q[0]))),
            scale3(mul(joint.pitch, q[0]), joint.axis),
        )

    def subspace(self, joint: Geometry) -> tuple[Motion, ...]:
        return (Motion(joint.axis, scale3(joint.pitch, joint.axis)),)
