"""An arm moves across its workspace: trajectory optimisation by iLQR, checked by simulating the
feedback with a disturbance.
"""

import time

import numpy as np

import rigidgrad as rg

robot = rg.load("iiwa14")
start = np.r_[np.pi * np.array([-0.5, 0.25, 0.167, -0.167, 0.125, 0.167, 0.5]), np.zeros(7)]
goal = np.r_[np.pi * np.array([0, 0, 0, -0.25, 0, 0.25, 0.5]), np.zeros(7)]
steps, dt = 63, 0.5 / 63

problem = rg.Problem(
    robot,
    start=start,
    steps=steps,
    dt=dt,
    costs=[
        rg.costs.State(goal, weight=np.r_[np.full(7, 0.1), np.full(7, 0.001)], final=1000.0),
        rg.costs.Effort(weight=1e-4),
    ],
)
rg.solve(problem, rg.PDDP(iterations=1))  # the first solve compiles
begin = time.perf_counter()
solution = rg.solve(problem)
seconds = time.perf_counter() - begin
print(
    f"{solution.status} after {solution.iterations} iterations in {1e3 * seconds:.1f} ms, cost"
    f" {solution.cost:.6f}"
)
for phase, spent in solution.stats["seconds"].items():
    print(f"  {phase:<10} {1e3 * spent / solution.iterations:6.3f} ms an iteration")


def simulate(feedback):
    """Semi-implicit Euler from a start that is off by 0.05 rad, with or without the solution's
    gains.
    """
    q, v = start[:7] + 0.05, start[7:].copy()
    for x_k, u_k, K in zip(solution.x, solution.u, solution.gains, strict=False):
        u = u_k + feedback * K @ (np.r_[q, v] - x_k)
        v = v + dt * robot.aba(q, v, u)
        q = q + dt * v
    return np.linalg.norm(q - goal[:7])


print(
    f"from a disturbed start, distance to the goal: {simulate(0.0):.3f} rad open loop,"
    f" {simulate(1.0):.3f} rad with feedback"
)
assert simulate(1.0) < simulate(0.0)
