"""Random constrained motions whose functions run on recorded numbers and on CasADi's alike: what
`constrained.py` solves twice.

Each family draws its parameters, weights, limits and the units of its costs and constraints from a
seed. A function takes (x, u, m), where m has sin, cos and sqrt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Function = Callable[[Any, Any, Any], Any]


@dataclass
class Held:
    """lower ≤ function ≤ upper on knots `at` ("all" or "final")."""

    function: Function
    lower: Any
    upper: Any
    at: str = "all"


@dataclass
class Case:
    """Minimise Σ ½ wᵀ(x - goal)² + ½ effort u² + `charge` · value(x, u), the last knot with weights
    `final`.
    """

    name: str
    dynamics: Function
    start: np.ndarray
    nu: int
    steps: int
    dt: float
    goal: np.ndarray
    weight: np.ndarray
    final: np.ndarray
    effort: np.ndarray
    integrator: str = "euler"
    torque: tuple[np.ndarray, np.ndarray] | None = None
    held: list[Held] = field(default_factory=list)
    value: Function | None = None
    charge: float = 0.0
    guess: np.ndarray | None = None

    @property
    def nx(self) -> int:
        return len(self.start)

    def scaled(self, cost: float, constraint: float) -> Case:
        """The same motion in other units: costs and constraints multiplied."""
        for name in ("weight", "final", "effort", "charge"):
            setattr(self, name, getattr(self, name) * cost)
        for h in self.held:
            h.function, h.lower, h.upper = (
                _times(h.function, constraint),
                np.multiply(h.lower, constraint),
                np.multiply(h.upper, constraint),
            )
        return self


def _times(function: Function, factor: float) -> Function:
    return lambda x, u, m: [factor * r for r in function(x, u, m)]


def linear(rng: np.random.Generator) -> Case:
    """A random linear system, stable or not, with bounds on states and controls, now and then with
    a given end.
    """
    n, m = int(rng.integers(1, 5)), int(rng.integers(1, 3))
    A, B = rng.normal(size=(n, n)) * 0.7, rng.normal(size=(n, m))

    def dynamics(x, u, _):
        return [
            sum(A[i, j] * x[j] for j in range(n)) + sum(B[i, j] * u[j] for j in range(m))
            for i in range(n)
        ]

    start = rng.uniform(-1, 1, n)
    most = np.abs(start) + rng.uniform(0.1, 1.0, n)
    case = Case(
        "linear",
        dynamics,
        start,
        m,
        30,
        0.1,
        np.zeros(n),
        rng.uniform(0.1, 2, n),
        rng.uniform(1, 50, n),
        rng.uniform(0.01, 0.3, m),
    )
    case.held.append(Held(lambda x, u, _: [x[i] for i in range(n)], -most, most))
    if rng.random() < 0.5:
        size = rng.uniform(3.0, 8.0, m)
        case.torque = -size, size
    if rng.random() < 0.3:
        case.held.append(Held(lambda x, u, _: [x[0]], 0.0, 0.0, "final"))
    return case


def point_mass(rng: np.random.Generator) -> Case:
    """Two coordinates, a disc in the way, a limit of speed and of acceleration."""
    goal = np.r_[rng.uniform(1.5, 3.0), rng.uniform(-0.5, 0.5), 0, 0]
    center, radius = (
        goal[:2] * rng.uniform(0.35, 0.65) + rng.normal(size=2) * 0.1,
        rng.uniform(0.2, 0.5),
    )
    fastest = rng.uniform(1.0, 3.0)
    case = Case(
        "point_mass", lambda x, u, _: [x[2], x[3], u[0], u[1]], np.zeros(4), 2, 40, 0.06, goal,
        np.r_[0.1, 0.1, 0.01, 0.01], np.r_[100.0, 100, 10, 10], np.full(2, 0.01), torque=(np.full(2, -6.0), np.full(2, 6.0)),
    )  # fmt: skip
    case.held += [
        Held(
            lambda x, u, m: [
                m.sqrt((x[0] - center[0]) ** 2 + (x[1] - center[1]) ** 2 + 1e-8) - radius
            ],
            0.0,
            np.inf,
        ),
        Held(lambda x, u, m: [x[2] ** 2 + x[3] ** 2], -np.inf, fastest**2),
    ]
    return case


def pendulum(rng: np.random.Generator) -> Case:
    """A swing-up with a torque that may be too weak to push straight up, upright and at rest in the
    end.
    """
    g, damping = rng.uniform(5, 15), rng.uniform(0, 0.3)
    most = g * rng.uniform(0.6, 1.5)
    case = Case(
        "pendulum", lambda x, u, m: [x[1], u[0] - g * m.sin(x[0]) - damping * x[1]], np.zeros(2), 1, 60, 0.04, np.r_[np.pi, 0],
        np.full(2, 0.05), np.full(2, 1.0), np.full(1, 0.02), "rk4", torque=(np.full(1, -most), np.full(1, most)),
    )  # fmt: skip
    case.held += [
        Held(lambda x, u, m: [x[0], x[1]], [np.pi, 0.0], [np.pi, 0.0], "final"),
        Held(lambda x, u, m: [x[1]], -9.0, 9.0),
    ]
    return case


def cart_pole(rng: np.random.Generator) -> Case:
    """A cart on a short track moves over with its pole up."""
    mass, pole, length = rng.uniform(0.5, 2), rng.uniform(0.1, 0.5), rng.uniform(0.3, 0.8)

    def dynamics(x, u, m):
        s, c = m.sin(x[1]), m.cos(x[1])  # angle from upright
        total = mass + pole * s * s
        a = (u[0] + pole * s * (length * x[3] * x[3] - 9.81 * c)) / total
        return [x[2], x[3], a, (9.81 * s - a * c) / length]

    track = rng.uniform(0.5, 0.8)
    case = Case(
        "cart_pole", dynamics, np.r_[-0.45, rng.uniform(-0.1, 0.1), 0, 0], 1, 50, 0.03, np.r_[0.4, 0, 0, 0],
        np.r_[0.5, 0.5, 0.05, 0.05], np.r_[50.0, 50, 5, 5], np.full(1, 0.01), "rk4", torque=(np.full(1, -15.0), np.full(1, 15.0)),
    )  # fmt: skip
    tilt = rng.uniform(0.15, 0.4)
    case.held += [
        Held(lambda x, u, m: [x[0]], -track, track),
        Held(lambda x, u, m: [x[1]], -tilt, tilt),
    ]
    return case


def car(rng: np.random.Generator) -> Case:
    """A car with bounded steering past two discs, to a pose."""
    goal = np.r_[4.0, rng.uniform(-1, 1), 0, 0.0]
    discs = [(goal[0] * s, rng.uniform(-0.4, 0.4), rng.uniform(0.25, 0.4)) for s in (0.35, 0.7)]

    def dynamics(x, u, m):
        return [x[3] * m.cos(x[2]), x[3] * m.sin(x[2]), x[3] * u[1], u[0]]

    case = Case(
        "car", dynamics, np.r_[0.0, 0, 0, 1.0], 2, 50, 0.07, goal, np.r_[0.02, 0.02, 0.02, 0.02], np.r_[50.0, 50, 20, 5],
        np.r_[0.05, 0.05], torque=(np.r_[-2.0, -1.5], np.r_[2.0, 1.5]), guess=np.zeros((50, 2)),
    )  # fmt: skip
    case.held.append(
        Held(
            lambda x, u, m: [(x[0] - a) ** 2 + (x[1] - b) ** 2 - r**2 for a, b, r in discs],
            0.0,
            np.inf,
        )
    )
    case.held.append(Held(lambda x, u, m: [x[3]], 0.0, 2.5))
    return case


def arm(rng: np.random.Generator) -> Case:
    """Two links in a vertical plane: the tip ends at a point and stays below a ceiling."""
    l1, l2, m1, m2 = rng.uniform(0.4, 0.8, 2).tolist() + rng.uniform(0.5, 2.0, 2).tolist()

    def dynamics(x, u, m):
        c2, s2 = m.cos(x[1]), m.sin(x[1])
        h11 = m1 * l1**2 / 3 + m2 * (l1**2 + l2**2 / 3 + l1 * l2 * c2)
        h12 = m2 * (l2**2 / 3 + l1 * l2 * c2 / 2)
        h22 = m2 * l2**2 / 3
        k = m2 * l1 * l2 * s2 / 2
        g2 = m2 * 9.81 * l2 / 2 * m.sin(x[0] + x[1])
        g1 = (m1 / 2 + m2) * 9.81 * l1 * m.sin(x[0]) + g2
        b1 = u[0] + k * (2 * x[2] * x[3] + x[3] ** 2) - g1
        b2 = u[1] - k * x[2] ** 2 - g2
        det = h11 * h22 - h12 * h12
        return [x[2], x[3], (h22 * b1 - h12 * b2) / det, (h11 * b2 - h12 * b1) / det]

    def tip(x, m):
        return l1 * m.sin(x[0]) + l2 * m.sin(x[0] + x[1]), -l1 * m.cos(x[0]) - l2 * m.cos(
            x[0] + x[1]
        )

    angles = rng.uniform(0.6, 1.4), rng.uniform(-0.8, 0.8)
    end = tip(angles, np)
    start = np.r_[-angles[0], 0.3, 0, 0]
    ceiling = max(end[1], tip(start, np)[1]) - rng.uniform(-0.05, 0.05)
    ceiling = max(ceiling, end[1], tip(start, np)[1]) + 0.01
    most = 9.81 * np.r_[(m1 / 2 + m2) * l1 + m2 * l2 / 2, m2 * l2 / 2] * rng.uniform(1.3, 2.5)
    case = Case(
        "arm", dynamics, start, 2, 40, 0.03, np.zeros(4), np.r_[0.0, 0, 0.02, 0.02], np.r_[0.0, 0, 1, 1], np.full(2, 0.001), "rk4",
        torque=(-most, most),
    )  # fmt: skip
    case.held += [
        Held(lambda x, u, m: list(tip(x, m)), end, end, "final"),
        Held(lambda x, u, m: [x[2], x[3]], 0.0, 0.0, "final"),
        Held(lambda x, u, m: [tip(x, m)[1]], -np.inf, ceiling),
    ]
    return case


def lander(rng: np.random.Generator) -> Case:
    """Least fuel from a height to rest on the ground: thrust between two sizes, a cone for its
    tilt, a glide slope, a mass that falls.
    """
    g = 3.7
    # lengths in hundreds of metres, masses in tonnes, thrusts in kN/10: thrust / mass in 100 m/s² ·
    # 0.1
    start = np.r_[
        rng.uniform(-5, 5),
        rng.uniform(-5, 5),
        rng.uniform(12, 18),
        rng.uniform(-0.3, 0.3),
        rng.uniform(-0.3, 0.3),
        -0.7,
        1.9,
    ]
    steps, dt = 50, 60 / 50

    def dynamics(x, u, m):
        size = m.sqrt(u[0] ** 2 + u[1] ** 2 + u[2] ** 2)
        return [
            x[3],
            x[4],
            x[5],
            u[0] / x[6] / 100,
            u[1] / x[6] / 100,
            u[2] / x[6] / 100 - g / 100,
            -5e-4 * size,
        ]

    def size(x, u, m):
        return m.sqrt(u[0] ** 2 + u[1] ** 2 + u[2] ** 2)

    case = Case(
        "lander",
        dynamics,
        start,
        3,
        steps,
        dt,
        np.zeros(7),
        np.zeros(7),
        np.zeros(7),
        np.zeros(3),
        value=size,
        charge=dt,
    )
    case.guess = np.tile(np.r_[0.0, 0.0, 1.9 * g], (steps, 1))
    case.held += [
        Held(lambda x, u, m: [size(x, u, m)], 4.0, 13.0),
        Held(lambda x, u, m: [u[2] - 0.7 * size(x, u, m)], 0.0, np.inf),
        Held(lambda x, u, m: [x[2] - 0.1 * m.sqrt(x[0] ** 2 + x[1] ** 2 + 1e-6)], -1e-3, np.inf),
        Held(lambda x, u, m: [x[0], x[1], x[2], x[3], x[4], x[5]], 0.0, 0.0, "final"),
    ]
    return case


def drone(rng: np.random.Generator) -> Case:
    """A planar drone with two rotors that only push, under a ceiling, around a disc."""
    goal = np.r_[rng.uniform(1.5, 2.5), 0.2, 0, 0, 0, 0]
    center, radius = (goal[0] / 2, rng.uniform(-0.1, 0.3)), rng.uniform(0.25, 0.4)

    def dynamics(x, u, m):
        lift = u[0] + u[1]
        return [
            x[3],
            x[4],
            x[5],
            -lift * m.sin(x[2]),
            lift * m.cos(x[2]) - 9.81,
            8.0 * (u[1] - u[0]),
        ]

    case = Case(
        "drone", dynamics, np.zeros(6), 2, 50, 0.04, goal, np.r_[0.1, 0.1, 0.1, 0.01, 0.01, 0.01], np.r_[50.0, 50, 20, 10, 10, 5],
        np.full(2, 0.01), torque=(np.zeros(2), np.full(2, 12.0)), guess=np.full((50, 2), 9.81 / 2),
    )  # fmt: skip
    case.held += [
        Held(
            lambda x, u, m: [m.sqrt((x[0] - center[0]) ** 2 + (x[1] - center[1]) ** 2 + 1e-8)],
            radius,
            np.inf,
        ),
        Held(lambda x, u, m: [x[2]], -0.7, 0.7),
    ]
    return case


FAMILIES = (linear, point_mass, pendulum, cart_pole, car, arm, lander, drone)


def case(number: int, seed: int = 0) -> Case:
    """Number k of the series of a seed, in units of its own."""
    rng = np.random.default_rng((seed, number))
    found = FAMILIES[number % len(FAMILIES)](rng)
    return found.scaled(10.0 ** rng.uniform(-3, 5), 10.0 ** rng.uniform(-2, 2))
