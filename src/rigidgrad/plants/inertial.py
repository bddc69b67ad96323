"""What a robot on a floating base measures by itself in a plant: rates and specific forces of its
trunk, positions and speeds of its joints, with noise and biases.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.control.numeric_input import numbers
from rigidgrad.errors import InputError
from rigidgrad.plants.plant import Plant
from rigidgrad.rotations import rotation_from_quaternion


class Reading(NamedTuple):
    """What an inertial unit and encoders give."""

    t: float
    """Seconds."""
    gyro: np.ndarray
    """Angular velocity in the trunk's axes (3,), rad/s."""
    accelerometer: np.ndarray
    """Specific force in the trunk's axes (3,), m/s²."""
    joints: np.ndarray
    """Positions of the joints."""
    speeds: np.ndarray
    """Velocities of the joints."""


class Inertial:
    """Sensors of a plant: `read()` after each step. Noise is a standard deviation of single
    readings, biases are (3,) or one number; SI units. What accelerates is taken from the velocities
    of two readings, so that each is the mean over the time between them. `gyro_noise` in rad/s,
    `accelerometer_noise` in m/s², `joint_noise` in rad, `speed_noise` in rad/s; `gyro_bias` and
    `accelerometer_bias` likewise; `seed` of the noise.
    """

    def __init__(
        self,
        plant: Plant,
        *,
        gyro_noise: float = 0.0,
        accelerometer_noise: float = 0.0,
        gyro_bias: ArrayLike = 0.0,
        accelerometer_bias: ArrayLike = 0.0,
        joint_noise: float = 0.0,
        speed_noise: float = 0.0,
        seed: int = 0,
    ):
        self.plant, self.robot = plant, plant._need_robot("an inertial unit")
        if not self.robot.model.joints or not self.robot.model.joints[0].kind.flies:
            raise InputError(
                f"an inertial unit is for robots on a floating base: load {self.robot.name!r} with"
                " floating_base=True"
            )
        self.noise = {
            name: float(numbers(name, value, ()))
            for name, value in (
                ("gyro", gyro_noise),
                ("accelerometer", accelerometer_noise),
                ("joint", joint_noise),
                ("speed", speed_noise),
            )
        }
        if min(self.noise.values()) < 0:
            raise InputError(
                f"noise is a standard deviation of at least 0, not {min(self.noise.values())!r}"
            )
        self.gyro_bias, self.accelerometer_bias = (
            numbers("a bias", bias, (3,)).copy() for bias in (gyro_bias, accelerometer_bias)
        )
        self._gravity = np.array(self.robot.model.gravity, dtype=float)
        self._random = np.random.default_rng(seed)
        self._last: tuple[float, np.ndarray] | None = None

    def read(self) -> Reading:
        """The sensors now."""
        x, t, nq = self.plant.x, float(self.plant.time), self.robot.nq
        R: np.ndarray = np.array(rotation_from_quaternion(*x[3:7]))
        velocity = R @ x[nq : nq + 3]
        before = self._last
        a = (
            np.zeros(3)
            if before is None or t <= before[0]
            else (velocity - before[1]) / (t - before[0])
        )
        self._last = t, velocity
        gyro, force = (
            x[nq + 3 : nq + 6] + self.gyro_bias,
            R.T @ (a - self._gravity) + self.accelerometer_bias,
        )
        values = {"gyro": gyro, "accelerometer": force, "joint": x[7:nq], "speed": x[nq + 6 :]}
        return Reading(
            t,
            *(
                v + self.noise[name] * self._random.standard_normal(len(v))
                for name, v in values.items()
            ),
        )
