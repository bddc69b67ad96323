"""The main job, start to end: a motion across the workspace, then a figure eight under model
predictive control, and a page about both.

`make run` runs this.
"""

import sys
import time
from pathlib import Path

import numpy as np

import rigidgrad as rg

arm = rg.load("iiwa14")
start = np.pi * np.array([-0.5, 0.25, 0.167, -0.167, 0.125, 0.167, 0.5])
goal = np.pi * np.array([0, 0, 0, -0.25, 0, 0.25, 0.5])
still = np.zeros(7)

# 1. an optimal motion: 63 steps in half a second
costs = [
    rg.costs.State(np.r_[goal, still], weight=np.r_[0.1 + still, 0.001 + still], final=1000.0),
    rg.costs.Effort(1e-4),
]
problem = rg.Problem(arm, start=np.r_[start, still], steps=63, dt=0.5 / 63, costs=costs)
rg.solve(problem)  # compiles, the first time on a machine
began = time.perf_counter()
motion = rg.solve(problem)
spent = time.perf_counter() - began

# 2. the tip on a figure eight, replanned 500 times a second, on a simulated arm whose masses are
# 10% off


def eight(t):
    t = np.asarray(t)
    return np.stack(
        [0.6556 + 0 * t, 0.3 * np.sin(0.2 * np.pi * t), 0.486 + 0.2 * np.sin(0.4 * np.pi * t)],
        axis=-1,
    )


costs = [
    rg.costs.Reach("iiwa_link_7", eight(0.0), offset=(0, 0, 0.0635), weight=10.0, final=1000.0),
    rg.costs.State(
        np.zeros(14), weight=np.r_[still, 0.1 + still], final=np.r_[still, 10.0 + still]
    ),
    rg.costs.Effort(1e-4, reference="gravity"),
]
ready = np.r_[0, 0.6, 0, -1.4, 0, 1.0, 0, still]
task = rg.Problem(
    arm, start=ready, steps=63, dt=0.5 / 63, costs=costs, limits=rg.Limits(torque=True)
)
mpc = rg.MPC(task, period=0.002, latency=0.002, target=eight, observer=True)
log = mpc.run(rg.plants.Simulator(arm, ready, mass_error=0.1), duration=10.0)  # a whole lap
lap = rg.tracking(log, mpc, after=2.0)  # seconds in which the tip comes to the path

table = {
    "motion": f"cost {motion.cost:.6f} after {motion.iterations} iterations, {1e3 * spent:.2f} ms",
    "figure eight": str(lap),
    "plan time": f"{1e6 * np.median(log.solve_seconds):.0f} µs median, of a period of 2000 µs",
}
for name, value in table.items():
    print(f"{name:>14}  {value}")
page = rg.report(
    {"Summary": table, "Across the workspace": motion, "Figure eight": lap},
    "report.html",
    robot=arm,
)
print(
    f"\nPictures: {Path(page).resolve()}\nTo drag the target yourself (needs rigidgrad[view]):"
    f" {sys.executable} -m rigidgrad play iiwa14"
)
