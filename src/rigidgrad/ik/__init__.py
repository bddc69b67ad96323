"""Inverse kinematics: tasks for `robot.inverse_kinematics`."""

from rigidgrad.ik.inverse import InverseKinematics
from rigidgrad.ik.tasks import CenterOfMass, Frame, LookAt, Task

__all__ = ["CenterOfMass", "Frame", "InverseKinematics", "LookAt", "Task"]
