"""How a robot stands: where its feet are under its trunk."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.control.numeric_input import numbers, shape_of
from rigidgrad.errors import InputError
from rigidgrad.model.contacts import Contact, listed
from rigidgrad.robot import Robot

_TILTED = 0.6  # the cosine of how far a trunk may tilt


class Stance:
    """A posture of a floating-base robot from which it walks: `x` (nx,), at rest; `places` (feet,
    3) of the feet seen from the trunk, turned about the vertical alone. `start` is q or x.
    """

    def __init__(self, robot: Robot, feet: Iterable[Contact], start: ArrayLike):
        if not robot.model.joints or not robot.model.joints[0].kind.flies:
            raise InputError(
                f"gaits are for robots on a floating base: load {robot.name!r} with"
                " floating_base=True"
            )
        self.robot = robot
        given = listed(feet)
        self.feet: tuple[Contact, ...] = tuple(c for c in given if isinstance(c, Contact))
        if not self.feet or len(self.feet) != len(given):
            raise InputError("feet are a list of rg.Contact, one for each foot")
        for foot in self.feet:
            robot.model.frame(foot.frame)
        posture = shape_of(start) == (robot.nq,)
        self.x = numbers(
            "the start of a gait", start, (robot.nq if posture else robot.nq + robot.nv,)
        )
        self.x = np.concatenate([self.x[: robot.nq], np.zeros(robot.nv)])
        if not np.allclose(
            robot.normalize(self.x[: robot.nq]), self.x[: robot.nq], rtol=0, atol=1e-6
        ):
            raise InputError(
                "the start of a gait has a quaternion whose length is not 1; pass its q through"
                " robot.normalize"
            )
        self.yaw = heading(self.x[3:7])
        here = self.feet_of(self.x)
        self.places = (here - self.x[:3]) @ turn(self.yaw)
        self.ground = float(here[:, 2].min())

    @property
    def height(self) -> float:
        """Of the trunk above the feet."""
        return float(self.x[2]) - self.ground

    def has_fallen(self, x: np.ndarray, ground: float) -> bool:
        """Whether the trunk lies on its side, or nearer to the ground's height there than half of
        how it stands.
        """
        upright = 1.0 - 2.0 * (x[3] ** 2 + x[4] ** 2)
        return bool(upright < _TILTED or x[2] - ground < 0.5 * self.height)

    def contacts(self, dt: float) -> list[Contact]:
        """The feet as problems of steps dt hold them: half of a foot's velocity is gone after a
        step.
        """
        return [
            Contact(f.frame, f.kind, f.offset, f.friction, f.normal, gains=(0.0, 0.5 / dt))
            for f in self.feet
        ]

    def feet_of(self, x: np.ndarray) -> np.ndarray:
        """Where the feet are in the world, (feet, 3)."""
        T = self.robot.forward_kinematics(x[: self.robot.nq])
        return np.array(
            [T[f.frame][:3, 3] + T[f.frame][:3, :3] @ np.array(f.offset) for f in self.feet]
        )

    def rotations_of(self, x: np.ndarray) -> np.ndarray:
        """How the frames of the feet are turned in the world, (feet, 3, 3)."""
        T = self.robot.forward_kinematics(x[: self.robot.nq])
        return np.array([T[f.frame][:3, :3] for f in self.feet])


def heading(quaternion: Any) -> float:
    """The angle about the vertical of a rotation (x, y, z, w)."""
    x, y, z, w = quaternion
    return math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))


def turn(angle: float) -> np.ndarray:
    """A rotation about the vertical."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def turned(quaternion: np.ndarray, angle: float) -> np.ndarray:
    """A rotation (x, y, z, w), turned about the vertical besides."""
    x, y, z, w = quaternion
    c, s = math.cos(0.5 * angle), math.sin(0.5 * angle)
    return np.array([c * x - s * y, c * y + s * x, c * z + s * w, c * w - s * z])
