"""What terms of a robot need: that there is one, and points of its frames."""

from __future__ import annotations

import dataclasses
from typing import Any

from rigidgrad.control.system import RobotSystem, System
from rigidgrad.errors import InputError
from rigidgrad.model.pose import IDENTITY_POSE, Pose


def robot_of(system: System, what: str) -> RobotSystem:
    if not isinstance(system, RobotSystem):
        raise InputError(
            f"{what} needs a robot, and the system is {system.name!r}; use a function (Custom,"
            " Inequality, Equality) instead"
        )
    return system


def point_of(robot: RobotSystem, frame: str, offset: tuple[float, ...]) -> Any:
    """A frame moved to a point in it."""
    found = robot.model.frame(frame)
    return dataclasses.replace(found, placement=found.placement @ Pose(IDENTITY_POSE.R, offset))
