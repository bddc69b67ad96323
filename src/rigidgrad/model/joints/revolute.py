"""A hinge: an angle about the joint's axis."""

from __future__ import annotations

from typing import ClassVar

from rigidgrad.model.joints.joint_type import Geometry, JointType, Vector
from rigidgrad.rotations import rotation_about
from rigidgrad.scalars import sincos
from rigidgrad.spatial import ZERO3, Motion, Transform, transpose


class Revolute(JointType):
    name = "revolute"
    units = ("rad",)
    axis = "own"
    bounded = True
    is_hinge = True

    urdf = "revolute"
    mujoco = (("mjJNT_HINGE", None),)
    pinocchio: ClassVar[tuple[str, ...]] = (
        "JointModelRX",
        "JointModelRY",
        "JointModelRZ",
        "JointModelRevoluteUnaligned",
    )
    moves_as = "revolute"
    hub = "cylinder"

    def transform(self, joint: Geometry, q: Vector) -> Transform:
        return Transform(transpose(rotation_about(joint.axis, *sincos(q[0]))), ZERO3)

    def subspace(self, joint: Geometry) -> tuple[Motion, ...]:
        return (Motion(joint.axis, ZERO3),)
