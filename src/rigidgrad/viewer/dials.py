"""Sliders for a robot's position: one a degree of freedom, whatever the joint; a free-flyer's are x, y, z, roll, pitch, yaw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rigidgrad.model.model import Joint, Model
from rigidgrad.model.pose import rotation_from_rpy
from rigidgrad.viewer.poses import quaternions

_PARTS = {"spherical": ("roll", "pitch", "yaw"), "planar": ("x", "y", "angle"), "floating": ("x", "y", "z", "roll", "pitch", "yaw")}
_LENGTHS = ("x", "y", "z")


@dataclass(frozen=True)
class Dial:
    """A slider: its label and range (radians or metres), and the joint it moves."""

    label: str
    low: float
    high: float
    joint: int
    start: float = 0.0


def dials(model: Model, q: np.ndarray) -> list[Dial]:
    """All of a robot, with their values at q. Joints without limits get a turn either way, or a metre."""
    found = []
    for i, joint in enumerate(model.joints):
        if joint.is_mimic:
            continue
        values = dial_values(joint, q[joint.q : joint.q + joint.nq])
        if joint.nq == 1:
            reach = 1.0 if joint.type == "prismatic" else math.pi
            low, high = float(model.limits.lower[joint.q]), float(model.limits.upper[joint.q])
            low = low if math.isfinite(low) else (high - 2 * reach if math.isfinite(high) else -reach)
            high = high if math.isfinite(high) else low + 2 * reach
            found.append(Dial(joint.name, min(low, values[0]), max(high, values[0]), i, values[0]))
            continue
        for part, value in zip(_PARTS[joint.type], values, strict=True):
            reach = 1.0 if part in _LENGTHS else math.pi
            found.append(Dial(f"{joint.name} {part}", min(-reach, value), max(reach, value), i, value))
    return found


def dial_values(joint: Joint, q: np.ndarray) -> list[float]:
    """What the sliders of a joint show at its numbers in q."""
    if joint.nq == 1:
        return [float(q[0])]
    if joint.type == "planar":
        return [float(q[0]), float(q[1]), math.atan2(q[3], q[2])]
    x, y, z, w = q[-4:] / np.linalg.norm(q[-4:])
    roll = math.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = math.asin(min(max(2 * (w * y - z * x), -1.0), 1.0))
    yaw = math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return [*(float(p) for p in q[:-4]), roll, pitch, yaw]


def position(model: Model, values: Sequence[float]) -> np.ndarray:
    """q (nq,) from the sliders' values, in the order of `dials`."""
    q = np.zeros(model.nq)
    rest = iter(values)
    for joint in model.joints:
        if joint.is_mimic:
            continue
        own = [next(rest) for _ in range(joint.nv)]
        part = q[joint.q : joint.q + joint.nq]
        if joint.nq == 1:
            part[:] = own
        elif joint.type == "planar":
            part[:] = own[0], own[1], math.cos(own[2]), math.sin(own[2])
        else:
            w, x, y, z = quaternions(rotation_from_rpy(own[-3:]))
            part[:] = *own[:-3], x, y, z, w
    return q
