"""The direct method by steps within a radius: a trust region, and alternating directions."""

from __future__ import annotations

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.control.direct import Run
from rigidgrad.control.trust import AlternatingDirections, TrustRegion
from rigidgrad.errors import InputError, UnknownNameError
from rigidgrad.math import sin
from rigidgrad.tasks import Task

WAYS = ("trust_region", "admm")
ARM = rg.load("double_pendulum")


def swing(limits=None, **more):
    costs = [
        rg.costs.State(np.r_[2.0, -0.5, 0, 0], weight=0.1, final=100.0),
        rg.costs.Effort(1e-2),
    ]
    return rg.Problem(ARM, np.zeros(4), 40, 0.04, costs=costs, limits=limits, **more)


def pendulum():
    system = rg.CustomSystem(lambda x, u: (x[1], u[0] - 9.81 * sin(x[0])), 2, 1, name="pendulum")
    costs = [rg.costs.State([np.pi, 0.0], weight=0.01, final=1000.0), rg.costs.Effort(0.01)]
    limits = rg.Limits(torque=4.0)
    return rg.Problem(system, [0.0, 0.0], 100, 0.03, integrator="rk4", costs=costs, limits=limits)


@pytest.mark.parametrize("linear_solver", ["riccati", "red_black"])
@pytest.mark.parametrize("way", WAYS)
def test_the_optimum_is_that_of_a_line_search(way, linear_solver):
    known = rg.solve(swing(), rg.Direct())
    s = rg.solve(swing(), rg.Direct(globalization=way, linear_solver=linear_solver))
    assert s.converged and s.cost == pytest.approx(known.cost, rel=1e-7)
    np.testing.assert_allclose(s.u, known.u, atol=2e-3)


@pytest.mark.parametrize("way", WAYS)
def test_bounds_of_controls_are_kept_on_the_way_and_in_the_end(way):
    limits = rg.Limits(torque=8.0)
    known = rg.solve(swing(limits), rg.Direct())
    s = rg.solve(swing(limits), rg.Direct(globalization=way))
    assert np.abs(s.u).max() <= 8.0 and np.mean(np.abs(s.u) > 8.0 - 1e-6) > 0.05
    assert s.converged and s.cost == pytest.approx(known.cost, rel=1e-6)


def test_a_swing_up_with_all_the_torque_there_is():
    problem = pendulum()
    s = rg.solve(problem, rg.Direct(globalization="trust_region"))
    assert s.converged and np.abs(s.u).max() <= 4.0
    # a line search from there finds nothing better
    problem.update(guess=(s.x, s.u))
    again = rg.solve(problem, rg.Direct())
    assert again.converged and s.cost == pytest.approx(again.cost, rel=1e-6)


def test_limits_of_states_are_kept():
    limits = rg.Limits(velocity=3.0, torque=6.0)
    known = rg.solve(swing(limits), rg.Direct())
    s = rg.solve(swing(limits), rg.Direct(globalization="trust_region"))
    assert s.converged and s.stats["violation"] <= 1e-4
    assert s.cost == pytest.approx(known.cost, rel=1e-5)
    assert np.abs(s.x[:, 2:]).max() > 3.0 - 1e-3


@pytest.mark.parametrize("way", WAYS)
def test_defects_of_a_guess_are_closed(way):
    problem = swing()
    x = np.linspace(0, 1, 41)[:, None] * [2.0, -0.5, 0, 0] + 0.1 * np.sin(np.arange(41))[:, None]
    problem.update(guess=(x, np.zeros((40, 2))))
    s = rg.solve(problem, rg.Direct(globalization=way))
    assert s.converged and s.stats["gaps"][0] > 1.0 and s.stats["gaps"][-1] < 1e-6
    assert s.cost == pytest.approx(rg.solve(swing()).cost, rel=1e-6)


@pytest.mark.parametrize("made", [TrustRegion, AlternatingDirections])
def test_a_step_is_no_longer_than_its_radius_and_the_best_there(made):
    """Of all steps of the linearised problem that are as long: random ones promise less."""
    way = {TrustRegion: "trust_region", AlternatingDirections: "admm"}[made]
    run = Run(swing(), rg.Direct(globalization=way))
    run.begin()
    lq = run.linearize()
    descent = made(run)
    _, whole, free = descent.step(lq)
    assert free
    descent.radius = 0.1 * whole
    step, size, free = descent.step(lq)
    assert not free and size <= descent.radius * 1.26
    np.testing.assert_allclose(lq.defects(step.dx, step.du), 0.0, atol=1e-9)
    rng = np.random.default_rng(0)
    best = lq.value(step.dx, step.du)
    assert best < 0
    for _ in range(200):
        du = step.du + rng.normal(size=step.du.shape) * 0.05 * np.abs(step.du).max()
        if made is AlternatingDirections:
            du = np.clip(du, -size, size)
        dx = lq.propagate(du)
        if made is TrustRegion:
            long = np.hypot(np.linalg.norm(dx), np.linalg.norm(du))
            dx, du = dx * size / long, du * size / long
        assert lq.value(dx, du) > best - 1e-6 * abs(best)


def test_tasks_have_it_and_what_does_not_go_with_it_is_refused():
    cost = {"type": "effort", "weight": 0.1}
    said = {"type": "direct", "globalization": "trust_region"}
    task = Task({"robot": "pendulum", "steps": 8, "dt": 0.1, "costs": [cost], "solver": said})
    assert task.solver == rg.Direct(globalization="trust_region")
    with pytest.raises(UnknownNameError, match="Did you mean 'trust_region'"):
        rg.Direct(globalization="trust_regions")
    with pytest.raises(InputError, match="for the CPU"):
        rg.Direct(globalization="admm", device="opencl")
