"""Motions under torque limits: kept by Pinocchio's word, and as fast as a linear program finds."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest
from scipy.optimize import linprog
from scipy.sparse import lil_matrix

import rigidgrad as rg
from rigidgrad.errors import InputError
from rigidgrad.planning.motors import Motors
from rigidgrad.planning.parameterization import fastest
from rigidgrad.planning.space import Space
from rigidgrad.planning.timing import trapezoids

SHAPES = {"iiwa_link_6": [rg.Sphere(0.08)], "iiwa_link_7": [rg.Sphere(0.06, (0, 0, 0.06))]}
POST = rg.Scene([rg.Capsule(0.05, start=(0.5, 0, 0), end=(0.5, 0, 1.2))])


@pytest.fixture(scope="module")
def arm():
    return rg.load("iiwa14").with_collisions(shapes=SHAPES)


def free(robot, count, seed):
    q = robot.random(4 * count, seed=seed).q
    return q[~robot.in_collision(q, POST, margin=0.01)][:count]


@pytest.mark.parametrize("torque", [65.0, np.r_[np.inf, 90.0, np.inf, np.full(4, 40.0)]])
def test_torques_of_motions_are_within_limits_by_pinocchio(arm, torque):
    model = arm.to_pinocchio()
    data = model.createData()
    solved, at_limit, bent = 0, [], 0
    q = free(arm, 40, seed=5)
    for a, b in zip(q[::2], q[1::2], strict=True):
        path = rg.plan(arm, a, b, POST, torque=torque, acceleration=50.0, dt=0.002)
        for x, end in ((a, "start"), (b, "goal")):
            if (np.abs(pin.rnea(model, data, x, 0 * x, 0 * x)) > 0.98 * np.asarray(torque)).any():
                assert path.status == f"{end} beyond torque limits"
                assert "larger torque=" in path.advice
                break
        else:
            assert path.status == "solved"
            solved += 1
            bent += len(path.corners) > 2
            tau = np.array(
                [pin.rnea(model, data, *row) for row in zip(path.q, path.v, path.a, strict=True)]
            )
            part = np.abs(tau) / torque
            assert part.max() <= 1 + 1e-6
            assert (np.abs(path.v) <= arm.limits.velocity * (1 + 1e-9)).all()
            assert np.abs(path.a).max() <= 50.0 * (1 + 1e-9)
            assert np.all(path.v[[0, -1]] == 0)
            at_limit.append(part.max(axis=1) > 0.98)
            moved = path.v[:-1] + np.diff(path.time)[:, None] * path.a[:-1]  # but where a changes
            assert np.quantile(np.abs(moved - path.v[1:]).max(axis=1), 0.4) < 1e-9
    assert solved > 5
    assert bent
    assert max(np.mean(rows) for rows in at_limit) > 0.5  # torques are what such motions wait for


def test_speeds_along_a_line_are_those_of_a_linear_program():
    """Of all speeds within limits the pointwise greatest ones also have the greatest sum."""
    rng = np.random.default_rng(0)
    n, nv, most, top = 40, 3, 30.0, 4.0
    grid = np.linspace(0, 1, n + 1) ** 1.5
    phase = rng.uniform(0, 6, (3, nv))
    a, b, c = (
        scale * np.sin(4 * grid[:, None] + phase[k])[None]
        for k, scale in enumerate((1.0, 2.0, 3.0))
    )
    high = np.full((1, n, nv), 5.0)
    x, u, done = np.zeros((1, n + 1)), np.zeros((1, n)), np.zeros(1, np.int64)
    room = np.empty((2 + 2 * nv, 4)), np.empty(2), np.empty((n + 1, 2))
    tops, rates = np.array([top]), np.array([most])
    fastest(0, 0, 1, grid, a, b, c, -high, high, tops, rates, *room, x, u, done)
    assert done[0]
    assert np.allclose(np.diff(x[0]), 2 * np.diff(grid) * u[0], atol=1e-12)
    rows, bounds = [], []
    for i in range(n):
        ds = 2 * (grid[i + 1] - grid[i])
        rate = np.zeros(n + 1)
        rate[i], rate[i + 1] = -1 / ds, 1 / ds
        rows.append(rate)
        bounds.append((-most, most))
        for j in range(nv):
            for k in (i, i + 1):
                row = a[0, k, j] * rate
                row[k] += b[0, k, j]
                rows.append(row)
                bounds.append((-5.0 - c[0, k, j], 5.0 - c[0, k, j]))
    A, (low, up) = np.array(rows), np.array(bounds).T
    best = linprog(
        -np.ones(n + 1),
        A_ub=lil_matrix(np.vstack([A, -A])).tocsr(),
        b_ub=np.concatenate([up, -low]),
        bounds=[(0, 0), *[(0, top)] * (n - 1), (0, 0)],
    )
    assert best.status == 0
    assert x[0] == pytest.approx(best.x, abs=1e-7)
    assert (x[0] < 0.9 * top).mean() > 0.3  # torques count, not the speed alone


def test_motors_that_are_strong_enough_leave_the_motion_as_it_is(arm):
    space = Space(arm)
    corners = free(arm, 4, seed=3)
    way = np.diff(corners, axis=0)
    velocity, acceleration = np.full(7, 1.5), np.full(7, 4.0)
    strong = Motors(arm, np.full(7, 1e6)).fastest(space, corners, way, velocity, acceleration)
    plain = trapezoids(way, velocity, acceleration)
    assert strong is not None
    for k in range(3):
        own, other = (p.duration[p.line == k].sum() for p in (strong, plain))
        assert other * (1 - 1e-9) <= own < other * 1.01


def test_what_no_torque_limit_can_be_is_told(arm):
    a, b = free(arm, 2, seed=3)
    for wrong in (0.0, -1.0, np.nan, np.ones(3), "strong"):
        with pytest.raises(InputError, match="torque is"):
            rg.plan(arm, a, b, POST, torque=wrong)
    own = rg.plan(arm, a, b, POST, torque=True)
    assert own.solved
    assert (np.abs(arm.rnea(own.q, own.v, own.a)) <= arm.limits.effort * (1 + 1e-6)).all()
