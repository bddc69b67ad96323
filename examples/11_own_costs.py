"""Costs, constraints and dynamics of your own: plain functions of numbers, recorded once and
differentiated exactly.
"""

import numpy as np

import rigidgrad as rg
from rigidgrad.math import cos, norm, sin

# 1. an arm that keeps its elbow joint near a right angle and its speed low, past an obstacle
arm = rg.load("iiwa14")
start = np.r_[-0.7, 0.9, 0.0, -1.2, 0.0, 1.0, 0.0, np.zeros(7)]
goal = np.r_[0.7, start[1:]]
elbow = rg.costs.Custom(lambda x, u: cos(x[3]), weight=2.0)
limits = rg.Limits(
    torque=True,
    obstacles=[rg.Obstacle(center=(0.36, 0.0, 0.34), radius=0.1)],
    spheres=[rg.LinkSphere("iiwa_link_7", radius=0.08)],
    constraints=[rg.Inequality(lambda x, u: norm(x[7:], smooth=1e-3), upper=2.5)],
    clearance=0.01,
)
weight = np.r_[np.full(7, 0.1), np.full(7, 0.01)]
bent = {}
for name, extra in {"without": [], "with": [elbow]}.items():
    costs = [rg.costs.State(goal, weight=weight, final=1000.0), rg.costs.Effort(1e-4), *extra]
    solution = rg.solve(
        rg.Problem(arm, start=start, steps=60, dt=0.025, costs=costs, limits=limits)
    )
    bent[name] = np.abs(np.cos(solution.x[:, 3])).mean()
    speed = np.linalg.norm(solution.x[:, 7:], axis=1).max()
    print(
        f"{name:>8} a cost of the elbow: {solution.status}, |cos| {bent[name]:.3f} in the mean,"
        f" {speed:.2f} rad/s at most"
    )
    assert solution.converged and speed < 2.5 + 1e-3
assert bent["with"] < bent["without"]

# 2. a car with a trailer: five states, two controls, no robot at all
LENGTH, HITCH = 0.5, 0.8


def car(x, u):
    """x, y, heading, heading of the trailer, speed; acceleration and steering curvature."""
    _, _, heading, trailer, speed = x
    return (
        speed * cos(heading),
        speed * sin(heading),
        speed * u[1] / LENGTH,
        speed * sin(heading - trailer) / HITCH,
        u[0],
    )


system = rg.CustomSystem(car, nx=5, nu=2, name="car")
problem = rg.Problem(
    system,
    start=np.zeros(5),
    steps=100,
    dt=0.05,
    integrator="rk4",
    costs=[
        rg.costs.State([0.0, 1.0, 0.0, 0.0, 0.0], weight=0.001, final=1000.0),
        rg.costs.Effort(0.01),
    ],
    limits=rg.Limits(
        torque=[2.0, 0.6],
        constraints=[rg.Inequality(lambda x, u: x[2] - x[3], lower=-0.9, upper=0.9)],
    ),
    guess=np.tile([0.3, 0.1], (100, 1)),
)
parked = rg.solve(problem, rg.PDDP(iterations=500))
print(
    f"parked: {parked.status}, ends at {np.round(parked.x[-1], 3)}, hitch at most"
    f" {np.abs(parked.x[:, 2] - parked.x[:, 3]).max():.2f} rad"
)
assert np.abs(parked.x[-1] - [0, 1, 0, 0, 0]).max() < 0.05
