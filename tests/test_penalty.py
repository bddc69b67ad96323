"""Penalties are as strong as the costs set against them, whatever weights and units."""

from __future__ import annotations

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.control import penalty
from rigidgrad.control.penalty import RATIO, STEPS, scaled_penalties


def swinging(scale=1.0, unit=1.0, steps=6):
    robot = rg.load("double_pendulum")
    costs = [
        rg.costs.State(
            [1.0, 0.5, 0.0, 0.0], weight=scale * np.array([1.0, 2.0, 0.1, 0.2]), final=50.0 * scale
        ),
        rg.costs.Effort(0.01 * scale),
    ]
    held = rg.Inequality(
        lambda x, u: (unit * (x[0] + 0.3 * x[1] * x[1]), unit * (x[2] + u[1])), upper=unit
    )
    limits = rg.Limits(velocity=3.0, constraints=[held])
    return rg.Problem(
        robot, start=[0.1, -0.2, 0.3, 0.0], steps=steps, dt=0.05, costs=costs, limits=limits
    )


def trajectory(problem):
    u = 0.3 * np.random.default_rng(0).normal(size=(problem.steps, problem.system.nu))
    x = [problem.start]
    for control in u:
        x.append(problem.programs.step(x[-1], control, np.array(problem.dt)))
    return np.array(x), u


def test_a_penalty_is_the_costs_resistance_times_the_ratio(monkeypatch):
    """Against the inverse of the whole Hessian over the controls, densely."""
    monkeypatch.setattr(penalty, "FLATTEST", 0.0)
    monkeypatch.setattr(penalty, "STEPS", 2.0**50)  # as good as not rounded
    monkeypatch.setattr(penalty, "_GROWTH", 100)  # every knot
    p = swinging()
    x, u = trajectory(p)
    for name, value in (("lower", -1e12), ("upper", 1e12)):  # `linearize` sees the costs alone
        p.p[:, p.programs.columns[name]] = value
    e, n, m, N = p.linearize(x, u), 4, 2, p.steps
    by = np.zeros((N + 1, n, N * m))  # of the states by all controls
    for k in range(N):
        by[k + 1] = e.A[k] @ by[k]
        by[k + 1][:, k * m : k * m + m] += e.B[k]
    pick = np.eye(N * m).reshape(N, m, N * m)
    H = sum(by[k].T @ e.lxx[k] @ by[k] for k in range(N + 1))
    for k in range(N):
        H = (
            H
            + pick[k].T @ e.luu[k] @ pick[k]
            + pick[k].T @ e.lux[k] @ by[k]
            + by[k].T @ e.lux[k].T @ pick[k]
        )
    gx, gu = p.programs.constraint_jacobians(x, np.concatenate([u, u[-1:]]), p.p)
    found = scaled_penalties(p, x, u)
    for k in range(1, N + 1):
        g = gx[k] @ by[k] + (gu[k] @ pick[k] if k < N else 0.0)
        held = np.ones(4, bool) if k < N else ~p.programs.controlled
        np.testing.assert_allclose(
            found[k][held],
            (RATIO / np.einsum("ci,ij,cj->c", g, np.linalg.inv(H), g))[held],
            rtol=1e-6,
        )


@pytest.mark.parametrize(("scale", "unit"), [(1e3, 1.0), (1e-3, 1.0), (1.0, 100.0)])
def test_weights_and_units_scale_penalties_and_nothing_else(scale, unit):
    x, u = trajectory(swinging())
    one, other = scaled_penalties(swinging(), x, u), scaled_penalties(swinging(scale, unit), x, u)
    np.testing.assert_allclose(other[1:, 2:], one[1:, 2:] * scale / unit**2, rtol=2.0 / STEPS)
    np.testing.assert_allclose(other[1:, :2], one[1:, :2] * scale, rtol=2.0 / STEPS)


def test_what_no_control_changes_keeps_the_first_penalty():
    system = rg.CustomSystem(lambda x, u: (u[0], 0.0 * x[1]), 2, 1)
    limits = rg.Limits(constraints=[rg.Inequality(lambda x, u: (x[0], x[1]), upper=5.0)])
    p = rg.Problem(
        system,
        start=[0.0, 0.0],
        steps=4,
        dt=0.1,
        costs=[rg.costs.State([1.0, 0.0], 1.0), rg.costs.Effort(1.0)],
        limits=limits,
    )
    p.scale_penalty(*trajectory(p))
    penalty = p.p[:, p.programs.columns["penalty"]]
    assert (
        (penalty[:, 1] == 10.0).all() and np.isfinite(penalty).all() and (penalty[:, 0] > 0).all()
    )


def test_of_a_trajectory_that_runs_away_nothing_is_known():
    """No warning, no error: the first penalty stays."""
    p = swinging()
    x, u = trajectory(p)
    p.scale_penalty(1e200 * x, u)
    assert (p.penalties == 10.0).all()
