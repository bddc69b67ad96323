"""A small robot with contacts, which compiles quickly: a body that slides along x and z on a leg of
two links, with the foot on the ground at the start.
"""

from __future__ import annotations

import numpy as np

import rigidgrad as rg

DRIVEN = ["hip", "knee"]
CROUCH = np.array([0.0, 0.4 * np.cos(0.5), 0.5, -1.0])
START = np.r_[CROUCH, np.zeros(4)]
FREE = 4  # velocities


TASK = """
robot = "hopper.urdf"
start = { z = %.12g, hip = 0.5, knee = -1.0 }
actuation = ["hip", "knee"]
dt = 0.01

[[costs]]
type = "effort"
weight = 1e-3

[[phases]]
steps = 8
dt = 0.02
contacts = [{ frame = "foot", friction = 0.3, gains = [0.0, 50.0] }]
limits = { torque = 40.0 }
costs = [
  { type = "center_of_mass", target = [0.1, 0.0, 0.34], weight = [10.0, 0.0, 10.0] },
  { type = "friction_cone", contact = "foot", weight = 1.0, facets = "round" },
]

[[phases]]
impact = true
contacts = [{ frame = "foot", friction = 0.3, gains = [0.0, 50.0] }]
restitution = 0.25

[[phases]]
steps = 6
costs = [
  { type = "height", frame = "foot", target = 0.05, weight = 10.0 },
  { type = "state", goal = "start", weight = { velocity = 0.1 }, final = 1.0, activation = { huber = 0.5 } },
]
""" % START[1]  # noqa: UP031 (braces are TOML's)


def hopper() -> rg.Robot:
    build = (
        rg.Builder("hopper").link("rail").link("cart").link("body", 4.0, (0, 0, 0), (0.1, 0.1, 0.1))
    )
    build.joint("x", "prismatic", "rail", "cart", axis=(1, 0, 0)).joint(
        "z", "prismatic", "cart", "body", axis=(0, 0, 1)
    )
    build.link("thigh", 0.5, (0, 0, -0.1), (0.004, 0.004, 0.001)).link(
        "shin", 0.3, (0, 0, -0.1), (0.003, 0.003, 0.0005)
    )
    build.joint("hip", "revolute", "body", "thigh", axis=(0, 1, 0), limit=(-2.0, 2.0, 20.0, 80.0))
    build.joint(
        "knee",
        "revolute",
        "thigh",
        "shin",
        xyz=(0, 0, -0.2),
        axis=(0, 1, 0),
        limit=(-2.5, 2.5, 20.0, 80.0),
    )
    return build.frame("foot", "shin", (0, 0, -0.2)).build()


def foot(**options) -> rg.Contact:
    return rg.Contact("foot", **{"friction": 0.3, "gains": (0.0, 50.0)} | options)


def torques(u: np.ndarray) -> np.ndarray:
    """Joint forces of controls: nothing drives the slides."""
    return np.concatenate([np.zeros((*u.shape[:-1], 2)), u], axis=-1)


def forces(robot: rg.Robot, solution: rg.Solution, knots: slice, contact: rg.Contact) -> np.ndarray:
    """(knots, 3): of the foot, as `robot.contact_dynamics` has them."""
    x, u = solution.x[:-1][knots], solution.u[knots]
    return np.asarray(
        robot.contact_dynamics(x[:, :4], x[:, 4:], torques(u), [contact]).force
    ).reshape(len(u), 3)


def stance_costs(forward: float = 0.15) -> list[rg.costs.Cost]:
    """To go forward on the spot that the foot holds."""
    goal = START.copy()
    goal[0] = forward
    running, final = [10.0, 10.0, 0.1, 0.1] + [0.1] * 4, [1e3, 1e3, 1.0, 1.0, 10.0, 10.0, 1.0, 1.0]
    return [rg.costs.State(goal, running, final), rg.costs.Effort(1e-3)]
