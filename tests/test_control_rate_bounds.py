"""Bounds of the control's rate: no control changes by more than is allowed from step to step, at
the least cost that this leaves.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize

import rigidgrad as rg
from rigidgrad.errors import InputError

STEPS, DT, MOST = 20, 0.1, 0.15
A, B = np.array([[1.0, DT], [0.0, 1.0]]), np.array([0.0, DT])
Q, LAST, R = np.diag([1.0, 0.3]), np.diag([10.0, 5.0]), 0.1
START = np.array([1.0, 0.2])
INTEGRATOR = rg.CustomSystem(
    lambda x, u: (x[0] + DT * x[1], x[1] + DT * u[0]), 2, 1, discrete=True, name="integrator"
)
COSTS = [
    rg.costs.State(np.zeros(2), weight=np.diag(Q), final=np.diag(LAST)),
    rg.costs.Effort(R),
]


def bounded(previous=None, most=MOST):
    rate = rg.costs.ControlRate(previous=previous)
    return rg.Limits(constraints=[rg.Inequality(rate, -most, most)])


def problem(previous=None, **more):
    return rg.Problem(INTEGRATOR, START, STEPS, DT, costs=COSTS, limits=bounded(previous), **more)


def changes(u, previous=None):
    return np.diff(u, axis=0) if previous is None else np.diff(u, axis=0, prepend=[[previous]])


def cost(u):
    x, total = START, 0.0
    for a in u:
        total += 0.5 * x @ Q @ x + 0.5 * R * a * a
        x = A @ x + B * a
    return total + 0.5 * x @ LAST @ x


def quadratic_program(previous):
    """By SciPy, from the costs alone."""
    D = np.eye(STEPS) - np.eye(STEPS, k=-1)
    shift = np.zeros(STEPS)
    if previous is None:
        D = D[1:]
        shift = shift[1:]
    else:
        shift[0] = previous
    bounds = LinearConstraint(D, shift - MOST, shift + MOST)
    found = minimize(
        cost, np.zeros(STEPS), method="SLSQP", constraints=bounds,
        options={"maxiter": 500, "ftol": 1e-14},
    )  # fmt: skip
    assert found.success
    return found.x


@pytest.mark.parametrize("previous", [None, -0.2])
@pytest.mark.parametrize(
    "solver",
    [rg.PDDP(), rg.PDDP(blocks=4, backward_blocks=2), rg.Direct()],
    ids=["iLQR", "blocks", "direct"],
)
def test_the_optimum_is_that_of_a_quadratic_program(solver, previous):
    p = problem(previous)
    s = rg.solve(p, solver)
    assert s.converged
    worst = np.abs(changes(s.u, previous)).max()
    assert MOST - 1e-3 < worst < MOST + 1e-4  # the bound is reached, and kept
    assert p.violation(s.x, s.u) == pytest.approx(max(worst - MOST, 0.0), abs=1e-12)
    known = quadratic_program(previous)
    np.testing.assert_allclose(s.u[:, 0], known, atol=1e-3)
    assert s.cost == pytest.approx(cost(known), rel=1e-4)
    free = rg.solve(rg.Problem(INTEGRATOR, START, STEPS, DT, costs=COSTS))
    assert np.abs(changes(free.u)).max() > 2 * MOST and free.cost < s.cost


def test_bounds_and_the_control_before_may_change():
    p = problem(-0.2)
    rate = p.limits.added[0]
    rate.lower, rate.upper = np.full((STEPS, 1), -0.3), 0.3
    rate.term.previous = 0.5
    p.update()
    s = rg.solve(p)
    assert s.converged and 0.29 < np.abs(changes(s.u, 0.5)).max() < 0.3 + 1e-4
    again = rg.solve(pickle.loads(pickle.dumps(_of_an_arm())))
    np.testing.assert_array_equal(again.u, rg.solve(_of_an_arm()).u)


def _of_an_arm(**more):
    arm = rg.load("double_pendulum")
    costs = [
        rg.costs.State(np.r_[1.0, -0.5, 0, 0], weight=0.01, final=100.0),
        rg.costs.Effort(1e-3),
        rg.costs.ControlRate(1e-3),
    ]
    return rg.Problem(arm, np.zeros(4), 25, 0.04, costs=costs, **more)


def test_a_cost_and_a_bound_of_an_arm_go_together():
    free = rg.solve(_of_an_arm())
    most = 0.5 * np.abs(changes(free.u)).max()
    torque = 1.1 * np.abs(free.u).max()
    limits = bounded(most=most)
    limits.torque = torque
    s = rg.solve(_of_an_arm(limits=limits))
    assert s.converged and s.cost > free.cost
    assert np.abs(changes(s.u)).max() == pytest.approx(most, abs=1e-3)
    assert np.abs(s.u).max() <= torque


def test_in_a_batch_each_has_its_own_start():
    starts = np.array([[1.0, 0.2], [0.5, -0.4], [-1.0, 0.0]])
    together = rg.solve(problem(-0.2).batch(starts))
    for start, s in zip(starts, together, strict=True):
        one = problem(-0.2)
        one.update(start=start)
        alone = rg.solve(one)
        assert s.converged
        np.testing.assert_allclose(s.u, alone.u, atol=1e-5)


def test_plans_under_control_change_the_control_that_acts_by_no_more():
    mpc = rg.MPC(problem(0.0), rg.PDDP(iterations=20), period=DT)
    x, given = START.copy(), []
    for k in range(30):
        u = mpc.step(x, DT * k)
        given.append(u.copy())
        x = A @ x + B * u[0]
    given = np.array(given)
    assert np.abs(np.diff(given, axis=0)).max() < 1.1 * MOST
    assert np.abs(np.diff(given, axis=0)).max() > 0.5 * MOST
    assert not mpc.counts["held"] and not mpc.trouble, (mpc.counts, mpc.trouble)


def test_what_does_not_go_with_it_is_refused():
    with pytest.raises(InputError, match="forward form"):
        rg.solve(_of_an_arm(limits=bounded()), rg.PDDP(form="inverse"))
    with pytest.raises(InputError, match="on the CPU"):
        rg.solve(problem(), rg.PDDP(device="opencl"))
    with pytest.raises(InputError, match="different previous"):
        rg.Problem(
            INTEGRATOR, START, STEPS, DT,
            costs=[*COSTS, rg.costs.ControlRate(0.1, previous=1.0)], limits=bounded(0.0),
        )  # fmt: skip
