"""Inverse kinematics: tasks for `robot.inverse_kinematics`, and `Velocity` for control loops."""

from rigidgrad.ik.inverse import InverseKinematics
from rigidgrad.ik.tasks import CenterOfMass, Frame, LookAt, Posture, Task
from rigidgrad.ik.velocity import (
    AccelerationLimit,
    Apart,
    Clear,
    Halfspace,
    Velocity,
    VelocityLimit,
    VelocityStep,
)

__all__ = [
    "AccelerationLimit",
    "Apart",
    "CenterOfMass",
    "Clear",
    "Frame",
    "Halfspace",
    "InverseKinematics",
    "LookAt",
    "Posture",
    "Task",
    "Velocity",
    "VelocityLimit",
    "VelocityStep",
]
