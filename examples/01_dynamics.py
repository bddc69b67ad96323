"""Inverse and forward dynamics of a batch of states, their gradients, and a check of each against
the other.
"""

import time

import numpy as np

import rigidgrad as rg

robot = rg.load("iiwa14")
print(robot, end="\n\n")

q, v, tau = robot.random(batch=(256,), seed=0)


def timed(what, function):
    start = time.perf_counter()
    result = function()
    print(f"  {what:<58}{1e3 * (time.perf_counter() - start):8.1f} ms")
    return result


print(f"{len(q)} random states, {robot.nv} joints:")
a = timed("forward dynamics         a = robot.aba(q, v, tau)", lambda: robot.aba(q, v, tau))
back = timed("inverse dynamics         robot.rnea(q, v, a)", lambda: robot.rnea(q, v, a))
M = timed("mass matrix              robot.crba(q)", lambda: robot.crba(q))
d_id = timed(
    "gradient of inverse      robot.rnea_derivatives(q, v, a)",
    lambda: robot.rnea_derivatives(q, v, a),
)
d_fd = timed(
    "gradient of forward      robot.aba_derivatives(q, v, tau)",
    lambda: robot.aba_derivatives(q, v, tau),
)


def relative(x, y):
    return np.abs(x - y).max() / np.abs(y).max()


step = 1e-6
e = np.eye(robot.nv)[2]
numeric = (
    robot.aba(robot.integrate(q, step * e), v, tau)
    - robot.aba(robot.integrate(q, -step * e), v, tau)
) / (2 * step)
checks = {
    "rnea(aba(tau)) is tau": (relative(back, tau), 1e-10),
    "M times its inverse is one": (relative(M @ d_fd.dtau, np.eye(robot.nv)), 1e-10),
    "the two gradients agree:  dFD/dq = -M⁻¹ dID/dq": (
        relative(d_fd.dq, -d_fd.dtau @ d_id.dq),
        1e-10,
    ),
    "dFD/dq[2] against finite differences": (relative(d_fd.dq[..., 2], numeric), 1e-6),
}
print("\nchecked against each other:")
for claim, (error, allowed) in checks.items():
    print(f"  {claim:<58}{error:11.1e}   {'ok' if error < allowed else 'WRONG'}")
    assert error < allowed, claim

print("""
What to try next:
  python -c 'import rigidgrad as rg; print(rg.load("atlas", floating_base=True))'
  robot = rg.load("your_robot.urdf"); robot.jacobian(q, "your_frame")
  examples/ and docs/ go on from here.""")
