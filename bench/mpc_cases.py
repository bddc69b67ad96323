"""The closed loop that is measured: the arm follows a figure eight (Plancher 2022, section 4.4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import rigidgrad as rg

FRAME, POINT = "iiwa_link_7", (0.0, 0.0, 0.0635)
LAP = 10.0  # seconds
TICK = 1e-3  # seconds that the plant holds a control
NEAR, SLOW = 0.05, 0.05  # metres and rad/s at which the goal begins to move
PATIENCE = 10.0  # seconds, after which it moves in any case


class Weights(NamedTuple):
    """Of the point, joint velocities and torques at every knot but the last, and of point and
    velocities at the last. Costs are ½ w r², not times dt.
    """

    point: float
    v: float
    u: float
    final_point: float
    final_v: float


# the dissertation's, and others with which the solver, not the weights, decides the error
WEIGHTS = {
    "text": Weights(0.01, 0.1, 1e-4, 1000.0, 10.0),
    "mid": Weights(10.0, 0.1, 1e-4, 1000.0, 10.0),
}


def eight(t: Any) -> np.ndarray:
    """Where the point should be, (…, 3) metres."""
    t = np.asarray(t, dtype=float)
    found = np.empty((*t.shape, 3))
    phase = (2 * math.pi / LAP) * t
    found[..., 0] = 0.6556
    found[..., 1] = 0.30 * np.sin(phase)
    found[..., 2] = 0.486 + 0.20 * np.sin(2 * phase)
    return found


class Course:
    """The goal: at the figure's first point, until it is let go."""

    def __init__(self) -> None:
        self.since = math.inf

    def __call__(self, t: Any) -> np.ndarray:
        return eight(np.maximum(np.asarray(t, dtype=float) - self.since, 0.0))


@dataclass(frozen=True)
class Tracking:
    """The iiwa14 follows the figure eight: 64 states over half a second; MuJoCo is the plant,
    without damping, from q = 0.

    With `gravity` (m/s²) the torques that count are those beyond what holds the arm. `mass_error`:
    how much heavier the plant's bodies are. `limits`: torques stay within the robot's, in plan and
    plant.
    """

    weights: str = "mid"
    gravity: float = 0.0
    mass_error: float = 0.0
    limits: bool = False
    steps: int = 63
    dt: float = 0.5 / 63

    @property
    def robot(self) -> rg.Robot:
        return rg.load("iiwa14", gravity=(0.0, 0.0, -self.gravity))

    def problem(self) -> rg.Problem:
        w, zero, one = WEIGHTS[self.weights], np.zeros(7), np.ones(7)
        costs = [
            rg.costs.Reach(FRAME, eight(0.0), offset=POINT, weight=w.point, final=w.final_point),
            rg.costs.State(
                np.zeros(14), weight=np.r_[zero, w.v * one], final=np.r_[zero, w.final_v * one]
            ),
            rg.costs.Effort(w.u, reference="gravity" if self.gravity else 0.0),
        ]
        limits = rg.Limits(torque=True) if self.limits else None
        return rg.Problem(
            self.robot, start=np.zeros(14), steps=self.steps, dt=self.dt, costs=costs, limits=limits
        )

    def plant(self, tick: float = TICK) -> Any:
        return rg.plants.MuJoCo(
            self.robot, np.zeros(14), tick, mass_error=self.mass_error, clamp=self.limits
        )

    def as_data(self) -> dict[str, Any]:
        """For a process that knows nothing of rigidgrad."""
        bound = self.robot.limits.effort.tolist() if self.limits else None
        fields = {
            "frame": FRAME,
            "point": POINT,
            "gravity": self.gravity,
            "steps": self.steps,
            "dt": self.dt,
            "bound": bound,
        }
        return fields | {"weights": WEIGHTS[self.weights]._asdict()}


class Tracked(NamedTuple):
    """Metres from the goal, one a tick, over one lap after `settled` seconds; None if it never
    settled.
    """

    settled: float | None
    errors: np.ndarray

    def summary(self) -> dict[str, Any]:
        mm = 1e3 * self.errors
        return {"settled_s": self.settled, "mean_mm": float(mm.mean()), "max_mm": float(mm.max())}


def tracked(
    mpc: rg.MPC, plant: Any, course: Course, lap: float = LAP, known: bool = True
) -> Tracked:
    """Drives to the first point until both error and speed are small, then once around. `known`:
    the controller is told how old measurements are.
    """
    robot, goal = plant.robot, eight(0.0)
    settled = None
    while plant.time < PATIENCE and settled is None:
        advance(mpc, plant, known)
        x = plant.x
        if np.linalg.norm(tip(robot, x) - goal) < NEAR and np.linalg.norm(x[7:]) < SLOW:
            settled = plant.time
    course.since = plant.time
    states = np.empty((round(lap / plant.dt), 14))
    times = np.empty(len(states))
    for k in range(len(states)):
        advance(mpc, plant, known)
        states[k], times[k] = plant.x, plant.time
    return Tracked(settled, np.linalg.norm(tip(robot, states) - course(times), axis=-1))


def advance(mpc: rg.MPC, plant: Any, known: bool = True) -> None:
    """One tick: measure, control, move."""
    x, seen = plant.measure()
    plant.advance(mpc.step(x, plant.time, seen if known else None))


def tip(robot: rg.Robot, x: np.ndarray) -> np.ndarray:
    """The point that should follow, (…, 3)."""
    T = robot.forward_kinematics(x[..., :7])[FRAME]
    return T[..., :3, 3] + T[..., :3, :3] @ np.array(POINT)
