"""A controller in Python serves a robot's process in C, through shared memory: 500 states and
controls a simulated second.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import rigidgrad as rg

ROBOT = """
#include "rigidgrad_link.h"
#include "iiwa14.h"

int main(int argc, char **argv) {          /* stands for a robot: generated dynamics, by steps of 2 ms */
  double x[14] = {0, 0.6, 0, -1.4, 0, 1.0, 0}, u[7] = {0}, a[7], t = 0;
  rg_link link;
  rg_message reply;
  int trouble = rg_link_open(&link, argv[argc - 1], RG_LINK_ROBOT, 14, 7, 64), missed = 0;
  if (trouble) return fprintf(stderr, "%s\\n", rg_link_error(trouble)), 1;
  for (int k = 0; k < 500; ++k, t += 0.002) {
    if (rg_link_exchange(&link, t, x, &reply, u, 20000000000) != 1) ++missed;   /* ns; on a robot 1 ms, and a fallback */
    iiwa14_aba(x, x + 7, u, a);
    for (int i = 0; i < 7; ++i) x[7 + i] += 0.002 * a[i];
    for (int i = 0; i < 7; ++i) x[i] += 0.002 * x[7 + i];
  }
  printf("the robot ends at q1 = %.4f rad, and missed %d answers\\n", x[0], missed);
  rg_link_close(&link);
  return 0;
}
"""

arm = rg.load("iiwa14")
still = np.zeros(7)
start = np.r_[0, 0.6, 0, -1.4, 0, 1.0, 0, still]
goal = start + np.r_[0.5, still, still[:6]]
costs = [rg.costs.State(goal, weight=0.1, final=100.0), rg.costs.Effort(1e-4, reference="gravity")]
problem = rg.Problem(arm, start=start, steps=30, dt=0.02, costs=costs)
mpc = rg.MPC(problem, rg.PDDP(iterations=1), period=0.01)

compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
if compiler is None:
    raise SystemExit("this example compiles a robot in C; no compiler is installed")
with tempfile.TemporaryDirectory() as folder:
    rg.generate(arm, ["aba"], dtypes=["float64"], out=folder)
    Path(folder, rg.link.HEADER).write_text(rg.link.header())
    Path(folder, "robot.c").write_text(ROBOT)
    command = [compiler, "-O2", "-std=gnu99", "robot.c", "iiwa14.c", "-lm", "-o", "robot"]
    subprocess.run(command, cwd=folder, check=True)

    name = str(
        Path(folder, "memory")
    )  # "arm" would be in /dev/shm, for all processes of the machine
    with rg.link.Link(name, "controller", states=14, controls=7) as link:
        robot = subprocess.Popen([str(Path(folder, "robot")), name])
        served = rg.link.serve(mpc, link)
        assert robot.wait() == 0
print(
    f"{served.answered} states answered, {served.skipped} passed over, median"
    f" {1e6 * served.percentile(50):.0f} µs, {mpc.log.solves} plans"
)
assert served.answered == 500 and served.skipped == 0
