"""A hinge without limits. Its position is one angle, never wrapped."""

from __future__ import annotations

from rigidgrad.model.joints.revolute import Revolute


class Continuous(Revolute):
    name = "continuous"
    bounded = False

    urdf = "continuous"
    # its Python has none along any axis: those are hinges there
    pinocchio = (
        "JointModelRUBX",
        "JointModelRUBY",
        "JointModelRUBZ",
        "JointModelRevoluteUnaligned",
        "JointModelRevoluteUnboundedUnaligned",
    )

    def pinocchio_widths(self) -> tuple[int, ...]:
        return 1, 2  # the angle, or (cos, sin)
