"""The control problems that are measured, as data: the arm across its workspace, the quadrotor's
flight (Plancher 2022, 4.3.1, 4.3.2), goals for batches.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import rigidgrad as rg
from rigidgrad.control.system import CustomSystem, RobotSystem
from rigidgrad.scalars import sincos


class Weights(NamedTuple):
    """Of joint angles, velocities and torques at every knot but the last, and of all states at the
    last. Costs are ½ w r², not times dt.
    """

    q: float
    v: float
    u: float
    final: float


# the dissertation's text and its published code differ
ARM_WEIGHTS = {
    "code": Weights(0.1, 0.001, 1e-4, 1000.0),
    "text": Weights(0.01, 0.001, 1e-3, 1000.0),
}
ARM_START = tuple(math.pi * x for x in (-0.5, 0.25, 0.167, -0.167, 0.125, 0.167, 0.5))
ARM_GOAL = tuple(math.pi * x for x in (0.0, 0.0, 0.0, -0.25, 0.0, 0.25, 0.5))
# found by Crocoddyl, aligator and rigidgrad alike
ARM_OPTIMA = {
    ("code", "semi_implicit_euler"): 23.234346,
    ("text", "semi_implicit_euler"): 69.18687,
    ("code", "euler"): 23.67524,
}
LONG = 1000  # iterations that find an optimum itself
# relatively above the optimum, where a solve counts as done
TARGET = {"float64": 1e-6, "float32": 1e-5}


def needed(history: list[float], optimum: float, accuracy: float) -> int | None:
    """Iterations until the cost is this near, relatively, to the optimum. (Crocoddyl's own counter
    starts at 0: it shows one less.)
    """
    return next((i for i, cost in enumerate(history) if cost <= optimum * (1 + accuracy)), None)


@dataclass(frozen=True)
class Arm:
    """The iiwa14 from rest to rest in half a second: 64 states, 63 torques, gravity, no damping, no
    limits.
    """

    weights: str = "code"
    integrator: str = "semi_implicit_euler"
    goal: tuple[float, ...] = ARM_GOAL
    steps: int = 63
    dt: float = 0.5 / 63
    noise: float = 0.0
    seed: int = 0

    @property
    def label(self) -> str:
        return f"arm, {self.weights} weights"

    @property
    def start(self) -> np.ndarray:
        """At rest, but for `noise` rad/s."""
        v = self.noise * np.random.default_rng(self.seed).normal(size=7)
        return np.r_[ARM_START, v]

    def problem(self) -> rg.Problem:
        w = ARM_WEIGHTS[self.weights]
        goal = np.r_[self.goal, np.zeros(7)]
        costs = [
            rg.costs.State(goal, weight=np.r_[np.full(7, w.q), np.full(7, w.v)], final=w.final),
            rg.costs.Effort(w.u),
        ]
        robot = rg.load("iiwa14")
        hold = np.tile(robot.gravity_torque(np.array(ARM_START)), (self.steps, 1))
        return rg.Problem(
            robot,
            start=self.start,
            steps=self.steps,
            dt=self.dt,
            integrator=self.integrator,
            costs=costs,
            guess=hold,
        )

    def as_data(self) -> dict[str, Any]:
        """For a process that knows nothing of rigidgrad."""
        fields = {
            "steps": self.steps,
            "dt": self.dt,
            "start": self.start.tolist(),
            "goal": [*self.goal, *[0.0] * 7],
        }
        return fields | {"weights": ARM_WEIGHTS[self.weights]._asdict()}


def goals(count: int, seed: int = 64) -> list[Arm]:
    """The arm to goals drawn evenly from within its joint limits."""
    limits = rg.load("iiwa14").limits
    drawn = np.random.default_rng(seed).uniform(limits.lower, limits.upper, (count, 7))
    return [Arm(goal=tuple(row)) for row in drawn.tolist()]


# --- the quadrotor --------------------------------------------------------------------------------

QUADROTOR_FROM, QUADROTOR_TO = (0.0, 0.0, 0.5), (7.0, 10.0, 0.5)
MASS, ARM_LENGTH, INERTIA, YAW_DRAG, GRAVITY = 0.5, 0.175, (0.0023, 0.0023, 0.004), 0.0245, 9.81
HOVER = MASS * GRAVITY / 4
# what four thrusts do to the body: force along z, torques about x, y, z
THRUSTS = (
    (1.0,) * 4,
    (0.0, ARM_LENGTH, 0.0, -ARM_LENGTH),
    (-ARM_LENGTH, 0.0, ARM_LENGTH, 0.0),
    (YAW_DRAG, -YAW_DRAG, YAW_DRAG, -YAW_DRAG),
)


def quadrotor_rate(x: tuple, u: tuple) -> tuple:
    """dx/dt for x = [position, roll, pitch, yaw, and the time derivatives of these six]; R =
    R_z(yaw) R_y(pitch) R_x(roll).
    """
    (sr, cr), (sp, cp), (sy, cy) = (sincos(angle) for angle in x[3:6])
    dr, dp, dy = x[9:12]
    thrust, *torque = (
        sum((k * f for k, f in zip(row, u, strict=True) if k != 0.0), 0.0) for row in THRUSTS
    )
    push = thrust / MASS
    linear = (
        push * (cr * sp * cy + sr * sy),
        push * (cr * sp * sy - sr * cy),
        push * (cr * cp) - GRAVITY,
    )
    w = (dr - sp * dy, cr * dp + sr * cp * dy, cr * cp * dy - sr * dp)  # body rates
    ix, iy, iz = INERTIA
    dw = (
        (torque[0] + (iy - iz) * (w[1] * w[2])) / ix,
        (torque[1] + (iz - ix) * (w[2] * w[0])) / iy,
        torque[2] / iz,
    )  # ix = iy
    # body accelerations are W [r'', p'', y''] plus these
    turning = (
        -(cp * dp * dy),
        -(sr * dr * dp) + (cr * cp * dr - sr * sp * dp) * dy,
        -(cr * dr * dp) - (sr * cp * dr + cr * sp * dp) * dy,
    )
    a, b, c = (x - y for x, y in zip(dw, turning, strict=True))
    yaw = (sr * b + cr * c) / cp
    return (*x[6:12], *linear, a + sp * yaw, cr * b - sr * c, yaw)


@dataclass(frozen=True)
class Quadrotor:
    """From hover to hover, 7 m along x and 10 m along y, in four seconds: 128 states, 127 times
    four thrusts.

    `coordinates`: "angles", the dissertation's twelve states; or "body", the bundled free-flying
    robot, with a quaternion, errors in the tangent space of SE(3) and velocities in the body frame.
    """

    coordinates: str = "angles"
    integrator: str = "rk3"
    steps: int = 127
    dt: float = 4.0 / 127
    noise: float = 0.0
    seed: int = 0

    @property
    def label(self) -> str:
        return f"quadrotor, {self.coordinates}"

    @property
    def start(self) -> np.ndarray:
        v = self.noise * np.random.default_rng(self.seed).normal(size=6)
        return np.r_[self.pose(QUADROTOR_FROM), v]

    def pose(self, position: tuple[float, ...]) -> np.ndarray:
        return (
            np.r_[position, np.zeros(3)]
            if self.coordinates == "angles"
            else np.r_[position, np.zeros(3), 1.0]
        )

    def problem(self) -> rg.Problem:
        weight = np.r_[np.full(3, 0.01), np.full(3, 0.001), np.full(6, 2.0)]
        goal = np.r_[self.pose(QUADROTOR_TO), np.zeros(6)]
        costs = [rg.costs.State(goal, weight=weight, final=1000.0), rg.costs.Effort(5.0)]
        if self.coordinates == "angles":
            system: Any = CustomSystem(quadrotor_rate, 12, 4, name="quadrotor_angles")
        else:
            system = RobotSystem(rg.load("quadrotor"), np.vstack([np.zeros((2, 4)), THRUSTS]))
        hold = np.full((self.steps, 4), HOVER)
        return rg.Problem(
            system,
            start=self.start,
            steps=self.steps,
            dt=self.dt,
            integrator=self.integrator,
            costs=costs,
            guess=hold,
        )


def noisy(task: Any, sigma: float, seed: int) -> Any:
    return dataclasses.replace(task, noise=sigma, seed=seed)
