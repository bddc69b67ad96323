"""An arm moves around an obstacle within its limits, to many goals, and says so when a goal cannot
be reached.
"""

import time

import numpy as np

import rigidgrad as rg
from rigidgrad.math import norm

robot = rg.load("iiwa14")
start = np.r_[-0.7, 0.9, 0.0, -1.2, 0.0, 1.0, 0.0, np.zeros(7)]
goal = np.r_[0.7, start[1:]]
obstacle, hand = (
    rg.Obstacle(center=(0.36, 0.0, 0.34), radius=0.1),
    rg.LinkSphere("iiwa_link_7", radius=0.08),
)
steps, dt = 60, 0.025


def problem(limits):
    costs = [
        rg.costs.State(goal, weight=np.r_[np.full(7, 0.1), np.full(7, 0.01)], final=1000.0),
        rg.costs.Effort(1e-4),
    ]
    return rg.Problem(robot, start=start, steps=steps, dt=dt, costs=costs, limits=limits)


def clearance(solution):
    """Metres between the hand's sphere and the obstacle, at the closest knot."""
    place = robot.forward_kinematics(solution.x[:, :7])["iiwa_link_7"][:, :3, 3]
    return np.linalg.norm(place - obstacle.center, axis=1).min() - obstacle.radius - hand.radius


own = {"torque": True, "position": True, "velocity": True}
# rad/s, of all joints together
gentle = rg.Inequality(lambda x, u: norm(x[7:], smooth=1e-3), upper=3.0)
for label, limits in {
    "no limits": None,
    "the robot's own": robot.limits,
    "and an obstacle": rg.Limits(**own, obstacles=[obstacle], spheres=[hand], clearance=0.01),
    "and gently": rg.Limits(
        **own, obstacles=[obstacle], spheres=[hand], clearance=0.01, constraints=[gentle]
    ),
}.items():
    solution = rg.solve(problem(limits))
    speed = np.linalg.norm(solution.x[:, 7:], axis=1).max()
    print(
        f"{label:<16} {solution.status}, {solution.iterations:2} iterations;"
        f" {100 * clearance(solution):5.1f} cm clear, {speed:.1f} rad/s"
    )
assert clearance(solution) > 0.01 - 1e-4 and speed < 3.0 + 1e-4

limited = problem(robot.limits)
goals = np.c_[
    np.random.default_rng(1).uniform(0.9 * robot.limits.lower, 0.9 * robot.limits.upper, (50, 7)),
    np.zeros((50, 7)),
]
problems = limited.batch(targets={0: goals})
rg.solve(problems[:2])  # the first solve compiles
begin = time.perf_counter()
solutions = rg.solve(problems)
seconds = time.perf_counter() - begin
missed = np.median([s.remaining["State"].angle for s in solutions])
print(
    f"{sum(s.converged for s in solutions)} of 50 goals converged, {1e3 * seconds / 50:.1f} ms"
    f" each; they end {missed:.3f} rad from their goals in the median"
)

reach = rg.costs.Reach("iiwa_link_7", (2.0, 0.0, 0.5), final=100.0)
far = rg.Problem(
    robot,
    start=start,
    steps=steps,
    dt=dt,
    costs=[reach, rg.costs.State(start, weight=0.1), rg.costs.Effort(1e-3)],
)
print(rg.solve(far, rg.PDDP(iterations=30)).message)
