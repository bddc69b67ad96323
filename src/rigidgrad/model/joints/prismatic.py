"""A slide: a length along the joint's axis."""

from __future__ import annotations

from rigidgrad.model.joints.joint_type import Geometry, JointType, Vector
from rigidgrad.spatial import IDENTITY3, ZERO3, Motion, Transform, scale3


class Prismatic(JointType):
    name = "prismatic"
    units = ("m",)
    axis = "own"
    bounded = True

    urdf = "prismatic"
    mujoco = (("mjJNT_SLIDE", None),)
    pinocchio = ("JointModelPX", "JointModelPY", "JointModelPZ", "JointModelPrismaticUnaligned")
    moves_as = "prismatic"

    def transform(self, joint: Geometry, q: Vector) -> Transform:
        return Transform(IDENTITY3, scale3(q[0], joint.axis))

    def subspace(self, joint: Geometry) -> tuple[Motion, ...]:
        return (Motion(ZERO3, joint.axis),)
