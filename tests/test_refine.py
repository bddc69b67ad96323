"""A path refined by the trajectory optimiser: what its problem is, and what comes of it."""

from __future__ import annotations

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import InputError

SHAPES = {
    "base": [rg.Sphere(0.12, (0, 0, 0.05))],
    "iiwa_link_6": [rg.Sphere(0.08)],
    "iiwa_link_7": [rg.Sphere(0.06, (0, 0, 0.06))],
}
POST = rg.Scene([rg.Capsule(0.05, start=(0.68, 0, 0), end=(0.68, 0, 0.6))])
START = np.array([-0.7, 0.9, 0.0, -1.2, 0.0, 1.0, 0.0])
GOAL = START * [-1, 1, 1, 1, 1, 1, 1]
CLEAR = 0.02


@pytest.fixture(scope="module")
def arm():
    return rg.load("iiwa14").with_collisions(shapes=SHAPES)


@pytest.fixture(scope="module")
def path(arm):
    found = rg.plan(arm, START, GOAL, POST, margin=CLEAR, torque=True)
    assert found.solved and len(found.corners) > 2
    return found


@pytest.fixture(scope="module")
def refined(arm, path):
    problem = path.problem(arm, 40)
    return problem, rg.solve(problem, rg.PDDP(iterations=200))


def test_the_guess_follows_the_path_from_rest_to_rest(arm, path):
    problem = path.problem(arm, 40, stretch=1.5)
    assert problem.dt == pytest.approx(1.5 * path.duration / 39)
    x, u = problem.asked_guess
    q, v = x[:, :7], x[:, 7:]
    assert np.array_equal(q[0], START) and not v[[0, -1]].any()
    assert np.allclose(q[-1], path.q[-1])
    # each of its positions is on a line of the path
    near = np.abs(q[:, None] - path.q[None]).max(axis=2).min(axis=1)
    assert near.max() < 0.5 * np.abs(np.diff(path.q, axis=0)).max() + 1e-9
    # and its torques are those of its own steps
    forces = arm.rnea(q[:-1], v[:-1], np.diff(v, axis=0) / problem.dt)
    assert np.allclose(u, forces) and np.allclose(q[1:] - q[:-1], problem.dt * v[1:])


def test_it_converges_within_all_limits_and_keeps_clear(arm, path, refined):
    problem, solution = refined
    assert solution.status == "converged"
    q, v = solution.x[:, :7], solution.x[:, 7:]
    assert np.abs(q[-1] - path.q[-1]).max() < 1e-2 and np.abs(v[-1]).max() < 1e-2
    assert (np.abs(solution.u) <= arm.limits.effort * (1 + 1e-9)).all()
    assert (np.abs(v) <= arm.limits.velocity * (1 + 1e-4)).all()
    assert (q >= arm.limits.lower - 1e-4).all() and (q <= arm.limits.upper + 1e-4).all()
    least = arm.distances(q, POST).least.min()
    assert least == pytest.approx(CLEAR, abs=2e-4), "it passes the post as near as it may"
    assert problem.limits.self_clearance == problem.limits.clearance == CLEAR


def test_it_is_smoother_than_the_path(arm, path, refined):
    """No corner is left: the torque that changes it most is a fraction of the path's."""
    problem, solution = refined
    guess = problem.asked_guess[1]
    jump = [np.abs(np.diff(u, axis=0)).max() for u in (solution.u, guess)]
    assert jump[0] < 0.3 * jump[1]
    start = rg.solve(problem, rg.PDDP(iterations=0))
    assert solution.cost < 0.9 * start.cost


def test_costs_and_limits_may_be_others(arm, path):
    costs = [rg.costs.State(np.r_[GOAL, np.zeros(7)], final=10.0), rg.costs.Effort(1e-3)]
    problem = path.problem(arm, 10, costs=costs, limits=rg.Limits(torque=50.0))
    assert problem.limits.torque == 50.0 and not len(problem.limits.scene)
    assert [type(c).__name__ for c in problem.costs] == ["State", "Effort"]
    # without a scene, or links that can touch, there is nothing to keep clear of
    alone = rg.load("iiwa14")
    free = rg.plan(alone, START, GOAL)
    assert free.solved
    limits = free.problem(alone, 10).limits
    assert not len(limits.scene) and limits.self_clearance is None


def test_what_it_cannot_start_from_is_told(arm, path):
    blocked = rg.plan(arm, START, GOAL, [rg.Box((2.0, 2.0, 2.0))])
    assert blocked.status == "start in collision"
    with pytest.raises(InputError, match="no path to start from: <Path: start in collision"):
        blocked.problem(arm)
    with pytest.raises(InputError, match="the path is another robot's than 'pendulum'"):
        path.problem(rg.load("pendulum"))
    for steps in (1, 2.5, "many"):
        with pytest.raises(InputError, match="steps is a whole number from 2 on"):
            path.problem(arm, steps)
    for stretch in (0.0, -1.0, np.nan):
        with pytest.raises(InputError, match="stretch"):
            path.problem(arm, stretch=stretch)
