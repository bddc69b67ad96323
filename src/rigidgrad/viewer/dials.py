"""Sliders for a robot's position: one a degree of freedom, whatever the joint; a free-flyer's are
x, y, z, roll, pitch, yaw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rigidgrad.model.joints.joint_type import PAIR
from rigidgrad.model.model import Joint, Model
from rigidgrad.model.pose import rotation_from_rpy
from rigidgrad.viewer.poses import quaternions


@dataclass(frozen=True)
class Dial:
    """A slider: its label and range (radians or metres), and the joint it moves."""

    label: str
    low: float
    high: float
    joint: int
    start: float = 0.0


def dials(model: Model, q: np.ndarray) -> list[Dial]:
    """All of a robot, with their values at q. Joints without limits get a turn either way, or a
    metre.
    """
    found = []
    for i, joint in enumerate(model.joints):
        if joint.is_mimic:
            continue
        lower, upper = joint.kind.limits(joint.limit)
        values = dial_values(joint, q[joint.q : joint.q + joint.nq])
        for k, (coordinate, value) in enumerate(zip(joint.kind.coordinates, values, strict=True)):
            low, high = joint.kind.span(k, lower, upper)
            label = f"{joint.name} {coordinate}" if coordinate else joint.name
            found.append(Dial(label, min(low, value), max(high, value), i, value))
    return found


def dial_values(joint: Joint, q: np.ndarray) -> list[float]:
    """What the sliders of a joint show at its numbers in q."""
    plain = [float(x) for x in q[: joint.kind.plain]]
    if joint.kind.direction is None:
        return plain
    if joint.kind.direction == PAIR:
        return [*plain, math.atan2(q[-1], q[-2])]
    x, y, z, w = q[-4:] / np.linalg.norm(q[-4:])
    roll = math.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = math.asin(min(max(2 * (w * y - z * x), -1.0), 1.0))
    yaw = math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return [*plain, roll, pitch, yaw]


def position(model: Model, values: Sequence[float]) -> np.ndarray:
    """q (nq,) from the sliders' values, in the order of `dials`."""
    q = np.zeros(model.nq)
    rest = iter(values)
    for joint in model.joints:
        if joint.is_mimic:
            continue
        own = [next(rest) for _ in range(joint.nv)]
        part = q[joint.q : joint.q + joint.nq]
        if joint.kind.direction is None:
            part[:] = own
        elif joint.kind.direction == PAIR:
            part[:] = *own[:-1], math.cos(own[-1]), math.sin(own[-1])
        else:
            w, x, y, z = quaternions(rotation_from_rpy(own[-3:]))
            part[:] = *own[:-3], x, y, z, w
    return q
