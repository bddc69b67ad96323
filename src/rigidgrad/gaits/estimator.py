"""Where a robot on legs is, from what it carries: an inertial unit in the trunk, encoders in the
joints, and which feet touch the ground.

An error-state Kalman filter (Bloesch et al. 2012, "State estimation for legged robots"): the
inertial unit moves the trunk, and feet that stand say how it moved. In the trunk's frame, with the
rotation R, a specific force f and a rate ω of which biases are taken away,

    p' = p + h v + ½ h² (R f + g),    v' = v + h (R f + g),    R' = R exp(h ω),

and a standing foot at c is seen by the joints at s(q) = Rᵀ (c - p). Errors are (δp, δv, δθ, δc of
each foot, biases of both), with R exp(δθ).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.control.numeric_input import numbers
from rigidgrad.errors import InputError
from rigidgrad.gaits.stance import Stance
from rigidgrad.model.contacts import Contact
from rigidgrad.robot import Robot
from rigidgrad.rotations import rotation_from_quaternion

_LONGEST = 0.1  # seconds between two readings
_UNKNOWN = 1.0  # metres, of a foot in the air


@dataclass(frozen=True)
class SensorNoise:
    """Standard deviations."""

    gyro: float = 0.01
    """Of single readings, rad/s."""
    accelerometer: float = 0.2
    """Of single readings, m/s²."""
    kinematics: float = 3e-3
    """Of where joints see a foot, metres."""
    slip: float = 0.01
    """How far standing feet slip, metres per √second."""
    gyro_wander: float = 1e-3
    """How the gyro's bias wanders, rad/s per √second."""
    accelerometer_wander: float = 1e-2
    """How the accelerometer's bias wanders, m/s² per √second."""
    tilt: float = 0.02
    """At first, radians."""
    velocity: float = 0.05
    """At first, m/s."""
    gyro_bias: float = 0.03
    """At first, rad/s."""
    accelerometer_bias: float = 0.2
    """At first, m/s²."""
    ground: float = 0.02
    """Of the height at which feet stand, metres."""


class Estimator:
    """Estimates the state x = [q, v] of a robot on a floating base. `update(…)` takes each reading,
    and gives it.

    `feet`: one `rg.Contact` for each; `start`: q or x, near which it begins. The inertial unit is
    at the origin of the trunk, along its axes. `terrain(x, y)`: the height at which feet stand (for
    round feet, of their centres), by default that of the start; with `terrain=None` heights are not
    known, and drift as the position over the ground and the heading do, which nothing that is
    carried sees. `noise`: of the sensors, an `rg.gaits.SensorNoise`.
    """

    def __init__(
        self,
        robot: Robot,
        feet: Iterable[Contact],
        start: ArrayLike,
        *,
        noise: SensorNoise | None = None,
        terrain: Callable[[Any, Any], Any] | str | None = "start",
    ):
        self.stance = Stance(robot, feet, start)
        self.robot, self.noise = robot, SensorNoise() if noise is None else noise
        if isinstance(terrain, str) and terrain != "start":
            raise InputError(f'terrain is a function of (x, y), "start" or None, not {terrain!r}')
        self._gravity = np.array(robot.model.gravity, dtype=float)
        self._terrain: Any = (lambda x, y: self.stance.ground) if terrain == "start" else terrain
        self._size = 15 + 3 * len(self.stance.feet)
        self._joints = robot.nq - 7
        self.reset()

    def reset(self, start: ArrayLike | None = None) -> None:
        """Begins at a state, by default that of the stance, at rest."""
        nq = self.robot.nq
        x = (
            self.stance.x
            if start is None
            else numbers("the start of an estimator", start, self.stance.x.shape)
        )
        self.rotation: np.ndarray = np.array(rotation_from_quaternion(*x[3:7]), dtype=float)
        self.position, self.velocity = x[:3].copy(), self.rotation @ x[nq : nq + 3]
        self.feet = self.stance.feet_of(x)
        self.gyro_bias, self.accelerometer_bias = np.zeros(3), np.zeros(3)
        n, feet = self.noise, 3 * len(self.stance.feet)
        deviations = (
            [1e-3] * 3
            + [n.velocity] * 3
            + [n.tilt] * 2
            + [1e-3]
            + [_UNKNOWN] * feet
            + [n.accelerometer_bias] * 3
            + [n.gyro_bias] * 3
        )
        self.covariance = np.diag(np.square(deviations))
        self._time = math.nan
        self._x = x.copy()

    @property
    def x(self) -> np.ndarray:
        """The state as it was estimated last."""
        return self._x.copy()

    def update(
        self,
        t: float,
        gyro: ArrayLike,
        accelerometer: ArrayLike,
        joints: ArrayLike,
        speeds: ArrayLike,
        touching: ArrayLike,
    ) -> np.ndarray:
        """The state (nx,) at a time, from rates (3,) in rad/s and specific forces (3,) in m/s² in
        the trunk's axes, positions and speeds of the joints, and which feet touch the ground
        (feet,).

        A reading with numbers that are not finite is passed over, and the state before it stays; so
        is one that is not later than the last.
        """
        now = (
            np.asarray(gyro, dtype=float),
            np.asarray(accelerometer, dtype=float),
            np.asarray(joints, dtype=float),
            np.asarray(speeds, dtype=float),
        )
        for name, value, size in zip(
            ("gyro", "accelerometer", "joints", "speeds"),
            now,
            (3, 3, self._joints, self._joints),
            strict=True,
        ):
            if value.shape != (size,):
                raise InputError(f"{name} of a reading has shape {value.shape}; expected ({size},)")
        stands = np.asarray(touching, dtype=bool)
        if stands.shape != (len(self.stance.feet),):
            raise InputError(
                f"touching has shape {stands.shape}; expected ({len(self.stance.feet)},), one for"
                " each foot"
            )
        passed = 0.0 if math.isnan(self._time) else t - self._time
        if (
            not all(np.isfinite(value).all() for value in now)
            or not math.isfinite(t)
            or passed < 0.0
        ):
            return self.x
        self._time = float(t)
        rate = now[0] - self.gyro_bias
        self._predict(min(passed, _LONGEST), rate, now[1] - self.accelerometer_bias, stands)
        seen = self._seen(now[2])
        for k in np.flatnonzero(stands):
            self._correct_foot(int(k), seen[k])
        self._x = np.concatenate(
            [
                self.position,
                _quaternion(self.rotation),
                now[2],
                self.rotation.T @ self.velocity,
                now[0] - self.gyro_bias,
                now[3],
            ]
        )
        return self.x

    # --- the filter -------------------------------------------------------------------------------

    def _predict(self, h: float, rate: np.ndarray, force: np.ndarray, stands: np.ndarray) -> None:
        n, R, size = self.noise, self.rotation, self._size
        a = R @ force + self._gravity
        self.position = self.position + h * self.velocity + 0.5 * h * h * a
        self.velocity = self.velocity + h * a
        turned = _exp(h * rate)
        self.rotation = _orthonormal(R @ turned)
        F = np.eye(size)
        F[0:3, 3:6] = h * np.eye(3)
        F[3:6, 6:9] = -h * R @ _cross(force)
        F[3:6, size - 6 : size - 3] = -h * R
        F[6:9, 6:9] = turned.T
        F[6:9, size - 3 :] = -h * np.eye(3)
        Q = np.zeros(size)
        Q[3:6], Q[6:9] = (h * n.accelerometer) ** 2, (h * n.gyro) ** 2
        Q[9 : size - 6] = np.repeat(np.where(stands, h * n.slip**2, 0.0), 3)
        Q[size - 6 : size - 3], Q[size - 3 :] = h * n.accelerometer_wander**2, h * n.gyro_wander**2
        P = F @ self.covariance @ F.T
        P[np.diag_indices(size)] += Q
        for k in np.flatnonzero(~stands):  # where a foot in the air is says nothing
            own = slice(9 + 3 * k, 12 + 3 * k)
            P[own, :], P[:, own] = 0.0, 0.0
            P[own, own] = _UNKNOWN**2 * np.eye(3)
        self.covariance = P

    def _seen(self, joints: np.ndarray) -> np.ndarray:
        """The feet in the trunk's frame, (feet, 3), by the joints."""
        x = np.concatenate([np.zeros(6), [1.0], joints, np.zeros(self.robot.nv)])
        return self.stance.feet_of(x)

    def _correct_foot(self, k: int, seen: np.ndarray) -> None:
        own = slice(9 + 3 * k, 12 + 3 * k)
        if self.covariance[own.start, own.start] > 0.5 * _UNKNOWN**2:  # it has landed
            self.feet[k] = self.position + self.rotation @ seen
        expected = self.rotation.T @ (self.feet[k] - self.position)
        H = np.zeros((4, self._size))
        H[:3, 0:3], H[:3, 6:9], H[:3, own] = -self.rotation.T, _cross(expected), self.rotation.T
        residual, deviations = list(seen - expected), [self.noise.kinematics] * 3
        rows = 3
        if self._terrain is not None:
            H[3, own.start + 2], rows = 1.0, 4
            residual.append(
                float(self._terrain(self.feet[k, 0], self.feet[k, 1])) - self.feet[k, 2]
            )
            deviations.append(self.noise.ground)
        self._correct(H[:rows], np.array(residual), np.square(deviations))

    def _correct(self, H: np.ndarray, residual: np.ndarray, variances: np.ndarray) -> None:
        P, size = self.covariance, self._size
        K = np.linalg.solve(H @ P @ H.T + np.diag(variances), H @ P).T
        found = K @ residual
        keep = np.eye(size) - K @ H
        P = keep @ P @ keep.T + (K * variances) @ K.T  # Joseph's form stays positive
        self.covariance = 0.5 * (P + P.T)
        self.position = self.position + found[0:3]
        self.velocity = self.velocity + found[3:6]
        self.rotation = _orthonormal(self.rotation @ _exp(found[6:9]))
        self.feet = self.feet + found[9 : size - 6].reshape(-1, 3)
        self.accelerometer_bias = self.accelerometer_bias + found[size - 6 : size - 3]
        self.gyro_bias = self.gyro_bias + found[size - 3 :]


def _cross(a: np.ndarray) -> np.ndarray:
    return np.array([[0.0, -a[2], a[1]], [a[2], 0.0, -a[0]], [-a[1], a[0], 0.0]])


def _exp(w: np.ndarray) -> np.ndarray:
    """Rodrigues' formula."""
    angle, W = float(np.linalg.norm(w)), _cross(w)
    half = 0.5 * float(np.sinc(0.5 * angle / math.pi)) ** 2
    R: np.ndarray = np.eye(3) + float(np.sinc(angle / math.pi)) * W + half * W @ W
    return R


def _orthonormal(R: np.ndarray) -> np.ndarray:
    """The rotation next to a matrix that is one but for rounding."""
    orthogonal: np.ndarray = R @ (1.5 * np.eye(3) - 0.5 * R.T @ R)
    return orthogonal


def _quaternion(R: np.ndarray) -> np.ndarray:
    """(x, y, z, w) of a rotation, by the largest of its numbers (Shepperd)."""
    trace = float(np.trace(R))
    four = np.array(
        [
            1.0 + 2.0 * R[0, 0] - trace,
            1.0 + 2.0 * R[1, 1] - trace,
            1.0 + 2.0 * R[2, 2] - trace,
            1.0 + trace,
        ]
    )
    k = int(four.argmax())
    x, y, z = R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]
    xy, xz, yz = R[0, 1] + R[1, 0], R[0, 2] + R[2, 0], R[1, 2] + R[2, 1]
    rows = ((four[0], xy, xz, x), (xy, four[1], yz, y), (xz, yz, four[2], z), (x, y, z, four[3]))
    q = np.array(rows[k])
    q = q / np.linalg.norm(q)
    unit: np.ndarray = q if q[3] >= 0 else -q
    return unit
