"""MPC by solvers that take whole problems: on the swing-ups of Plancher 2022, section 6.3.2, they
do what iLQR does.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import rigidgrad as rg

SOLVERS = {
    "iLQR": rg.PDDP(),
    "KKT": rg.Direct(linear_solver="kkt"),
    "Schur-PCG": rg.Direct(linear_solver="pcg", preconditioner="symmetric_stair"),
}


def cart_pole(x, u):
    s, c = rg.math.sin(x[1]), rg.math.cos(x[1])
    force, free = u[0] + s * x[3] * x[3], 1.0 + s * s
    return x[2], x[3], (force + 9.81 * s * c) / free, -(force * c + 19.62 * s) / free


SYSTEMS = {
    "pendulum": (rg.CustomSystem(lambda x, u: (x[1], u[0] - 9.81 * rg.math.sin(x[0])), 2, 1, name="pendulum"), (np.pi, 0.0), 1.0, 0.1, 100.0, 19, 0.1),
    "cart-pole": (rg.CustomSystem(cart_pole, 4, 1, name="cartpole"), (0.0, np.pi, 0.0, 0.0), (1.0, 1.0, 0.1, 0.1), 1e-3, 1000.0, 39, 0.0125),
}  # fmt: skip


@cache
def problem(name):
    system, goal, weight, effort, final, steps, dt = SYSTEMS[name]
    costs = [rg.costs.State(goal, weight=weight, final=final), rg.costs.Effort(effort)]
    return rg.Problem(
        system, start=np.zeros(len(goal)), steps=steps, dt=dt, integrator="euler", costs=costs
    )


@cache
def swung(name, solver, steps):
    """States and controls of the closed loop, a plan a step; the system moves by the model
    itself.
    """
    p = problem(name)
    mpc = rg.MPC(p, SOLVERS[solver], period=p.dt)
    x, states, controls = p.start, [], []
    for k in range(steps):
        u = mpc.step(x, k * p.dt)
        x = p.programs.step(x, u, np.array(p.dt))
        states.append(x)
        controls.append(u)
    assert not any(mpc.counts.values()), (mpc.counts, mpc.trouble)
    return np.array(states), np.array(controls)


@pytest.mark.parametrize(("name", "steps"), [("pendulum", 25), ("cart-pole", 30)])
def test_three_solvers_swing_up_alike(name, steps):
    found = {solver: swung(name, solver, steps) for solver in SOLVERS}
    if name == "pendulum":  # the cart takes longer
        for states, _ in found.values():
            np.testing.assert_allclose(states[-1], SYSTEMS[name][1], atol=0.2)
    for k, what in enumerate(("states", "controls")):
        exact, iterative, ilqr = (found[solver][k] for solver in ("KKT", "Schur-PCG", "iLQR"))
        size = np.abs(exact).max()
        # the same steps but for the tolerance of conjugate gradients; iLQR stops elsewhere within
        # 1e-8 of the same optimum, where controls are flat
        np.testing.assert_allclose(iterative, exact, atol=1e-7 * size, err_msg=what)
        np.testing.assert_allclose(ilqr, exact, atol=1e-3 * size, err_msg=what)


def test_a_cold_start_gets_more_iterations():
    p = problem("pendulum")
    mpc = rg.MPC(p, rg.Direct(linear_solver="kkt", iterations=1), period=p.dt)
    for k in range(3):
        mpc.step(p.start, k * p.dt)
    assert mpc.log.solve_iterations.tolist()[0] > 1 and mpc.log.solve_iterations.tolist()[1:] == [
        1,
        1,
    ]
    assert all(seconds > 0 for seconds in mpc.seconds.values())


def test_a_solver_that_fails_is_survived():
    class Broken:
        iterations = 1

        def solve(self, problem):
            raise ArithmeticError("made to fail")

    p = problem("pendulum")
    mpc = rg.MPC(p, Broken(), period=p.dt)
    assert np.isfinite(mpc.step(p.start, 0.0)).all()
    assert mpc.counts["held"] == 1 and "made to fail" in mpc.trouble
