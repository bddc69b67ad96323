"""Several problems that are solved one after the other share buffers: what is found is what each
finds alone, and is told of each one's own targets.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_mpc_impacts import STAND, hop, hopping
from test_mpc_phases import HOPPER

import rigidgrad as rg

TOPS = (0.7, 0.8, 0.75, 0.65)


@pytest.fixture(scope="module")
def hopper():
    return rg.load(HOPPER)


def hops(hopper):
    last = rg.Phase(10, hop()[0].contacts, dt=0.02)
    base = hopping(hopper, [*hop(), last])
    starts = STAND + np.array([[0.01 * k, 0.01 * k, 0.0, 0.0] for k in range(len(TOPS))])
    return base.batch(starts, targets={(1, 0): [(0.0, 0.0, top) for top in TOPS]})


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("form", ["forward", "inverse"])
def test_problems_with_guesses_of_states(hopper, form, threads):
    solver = rg.PDDP(form=form)
    alone = [rg.solve(problem, solver) for problem in hops(hopper)]
    problems = hops(hopper)
    for _ in range(2):  # with new buffers, and with those of before
        together = rg.solve(problems, solver, threads=threads)
        for one, same, top in zip(together, alone, TOPS, strict=True):
            assert one.converged and one.iterations == same.iterations
            np.testing.assert_array_equal(one.x, same.x)
            np.testing.assert_array_equal(one.u, same.u)
            np.testing.assert_array_equal(one.gains, same.gains)
            assert one.cost == same.cost
            points = [t.point.max(axis=0)[2] for t in one.surroundings.targets]
            assert top in points
    # one set of buffers for each thread at most, kept with the first problem
    assert sum(len(problem.workspaces) for problem in problems) == 1


def test_what_is_kept_of_lanes_is_each_one_s_own():
    robot = rg.load("double_pendulum")
    frame = robot.frames[-1]
    costs = [rg.costs.Reach(frame, (0, 0, 1), weight=1.0, final=10.0), rg.costs.Effort(1e-2)]
    problem = rg.Problem(robot, np.zeros(4), 20, 0.02, costs=costs)
    points = [(0.1 * k, 0.0, 1.0) for k in range(5)]
    found = rg.solve(problem.batch(targets={0: points}))
    for one, point in zip(found, points, strict=True):
        np.testing.assert_array_equal(one.surroundings.targets[0].point, [point])
