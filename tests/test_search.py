"""The policy of descents: one implementation decides for floats, for arrays and as recorded
Programs, and it is what the equations say.
"""

from __future__ import annotations

import math
from inspect import signature

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.control.search import Search
from rigidgrad.kernels import search as policy

NUMBERS = [-math.inf, -2.0, -0.5, 0.0, 1e-12, 0.3, 1.0, 7.0, math.inf, math.nan]


@pytest.mark.parametrize("name", policy.programs())
def test_floats_arrays_and_programs_agree(name):
    program, function = policy.programs()[name], getattr(policy, name)
    rng = np.random.default_rng(0)
    given = {x: rng.choice(NUMBERS, 200) for x in program.inputs}
    truths = {x for x, p in signature(function).parameters.items() if p.annotation == "Truth"}
    given |= {x: rng.integers(0, 2, 200).astype(float) for x in truths}
    if name == "penalty":
        # it is asked for only where defects are closed
        given["closing"] = rng.uniform(0.1, 2.0, 200)
    with np.errstate(invalid="ignore", over="ignore"):
        together = np.array(
            np.broadcast_arrays(
                *_tuple(function(**{x: v == 1.0 if x in truths else v for x, v in given.items()})),
                given[next(iter(given))],
            )[:-1]
        )
        recorded = np.array([np.broadcast_to(x, 200) for x in _tuple(program.interpret(given)[0])])
    alone = np.array(
        [
            _tuple(
                function(
                    **{
                        x: v[i].item() == 1.0 if x in truths else v[i].item()
                        for x, v in given.items()
                    }
                )
            )
            for i in range(200)
        ],
        float,
    ).T
    assert np.array_equal(together, alone, equal_nan=True)
    assert np.array_equal(recorded, alone, equal_nan=True)


def _tuple(x):
    return x if isinstance(x, tuple) else (x,)


def test_a_step_is_acceptable_where_the_cost_falls_as_expected():
    rng = np.random.default_rng(1)
    for fall, expected in rng.normal(size=(300, 2)):
        assert policy.acceptable(fall.item(), expected.item(), 0.1, 100.0) == (
            0.1 < fall / expected < 100.0
        )
    for fall, expected in (
        (math.nan, 1.0),
        (1.0, math.nan),
        (0.0, 0.0),
        (1.0, 0.0),
        (-math.inf, 1.0),
        (math.inf, 1.0),
    ):
        assert policy.acceptable(fall, expected, 0.1, 100.0) is False


@pytest.mark.parametrize("choose", ["largest", "best", "balanced"])
def test_one_problem_and_many_take_the_same_steps(choose):
    search = Search(rg.PDDP(choose=choose))
    rng = np.random.default_rng(2)
    J, slope, curve = 1.0 + rng.random(200), -rng.random(200), rng.random(200)
    alphas = np.array(search.alphas)
    costs = J[:, None] - rng.uniform(-0.5, 1.5, (200, 8)) * -(
        alphas * slope[:, None] + 0.5 * alphas**2 * curve[:, None]
    )
    costs[::7, 2] = np.nan
    for upto in (4, 8):
        each = search.pick_each(J, costs[:, :upto], slope, curve)
        one = [
            search.pick(J[i].item(), costs[i, :upto].tolist(), slope[i].item(), curve[i].item())
            for i in range(200)
        ]
        assert each.tolist() == [-1 if k is None else k for k in one]
        expected = -(alphas * slope[:, None] + 0.5 * alphas**2 * curve[:, None])[:, :upto]
        fine = ((J[:, None] - costs[:, :upto]) / expected > 0.1) & (
            (J[:, None] - costs[:, :upto]) / expected < 100.0
        )
        for i, k in enumerate(each):
            best = choose == "best" or (choose == "balanced" and fine[i, 1])
            rows = np.flatnonzero(fine[i])
            assert k == (
                -1 if not len(rows) else rows[np.argmin(costs[i, rows])] if best else rows[0]
            )
    assert len({*each.tolist()}) > 3


def test_the_regularisation_follows():
    assert policy.raised(0.0, 1e-9) == 1e-9 and policy.raised(1e-9, 1e-9) == 1e-8
    assert policy.lowered(1e-9, 1e-9) == 0.0 and policy.lowered(1e-7, 1e-9) == pytest.approx(1e-8)
    assert policy.nothing(1e-3, -5.0, 1e-6) == 5e-3 and policy.nothing(1e-3, 0.0, 1e-6) == 1e-6


def judged(**changes):
    """What follows from a trial that took a good step from J = 1 to 0.5 by a whole step, but for
    these numbers.
    """
    given = {
        "taken": 1.0,
        "usable": 1.0,
        "expected": 0.5,
        "fall": 0.5,
        "cost": 0.5,
        "alpha": 1.0,
        "left": 0.0,
        "rho": 0.0,
    }
    given |= {
        "low": 1e-9,
        "high": 1e9,
        "tolerance": 1e-3,
        "negligible": 0.0,
        "loose": 0.0,
        "telling": 0.5,
        "doubtful": 0.0,
    }
    given |= {"last_try": 0.0, "singular": 0.0, "slow": 0.0, "patience": 3.0}
    said, *rest = policy.judged(**given | changes)
    return policy.JUDGED[int(said)], *rest


def test_a_descent_ends_where_a_step_without_regularisation_promises_nothing():
    assert judged() == ("running", 0.0, 0.0, 0.0, 0.0)
    assert judged(expected=1e-4)[0] == "converged" == judged(expected=1e-4, taken=0.0)[0]
    # held back by ρ, a step tells nothing: once more without
    assert judged(expected=1e-4, taken=0.0, rho=1e-3) == ("running", 0.0, 1.0, 0.0, 0.0)
    # but where there is none without, the least ρ will do
    assert judged(taken=0.0, usable=0.0, last_try=1.0) == ("running", 1e-9, 1.0, 1.0, 0.0)
    assert judged(expected=1e-4, taken=0.0, rho=1e-9, singular=1.0)[0] == "converged"
    # defects that are open weigh more than the fall
    assert judged(expected=1e-4, left=0.1)[0] == "running"


def test_a_descent_ends_where_nothing_helps():
    assert judged(taken=0.0) == ("running", 1e-9, 0.0, 0.0, 0.0)
    assert (
        judged(taken=0.0, rho=1e9)[0] == "stalled"
        and judged(taken=0.0, usable=0.0, rho=1e9)[0] == "trouble"
    )
    assert judged(taken=0.0, last_try=1.0, expected=0.1)[0] == "stalled"
    # it may be lost in rounding
    assert judged(taken=0.0, last_try=1.0, expected=0.1, doubtful=0.2)[0] == "converged"


def test_small_falls_end_descents_that_are_loose_or_slow():
    small = {"fall": 1e-4}
    assert (
        judged(**small) == ("running", 0.0, 0.0, 0.0, 1.0)
        and judged(**small, slow=2.0)[0] == "slow"
    )
    assert judged(slow=2.0)[-1] == 0.0
    assert (
        judged(**small, loose=1.0)[0] == "converged"
        and judged(**small, loose=1.0, alpha=0.25)[0] == "running"
    )


def judged_direct(**changes):
    given = {
        "taken": 0.0,
        "definite": 1.0,
        "small": 0.0,
        "rho": 0.0,
        "low": 1e-9,
        "high": 1e9,
        "least": 0.0,
        "refused": 0.0,
    }
    said, *rest = policy.judged_direct(**given | changes)
    return policy.JUDGED[int(said)], *rest


def test_the_direct_method_ends_at_optima_alone():
    assert judged_direct(taken=1.0, rho=1e-6) == ("running", pytest.approx(1e-7), 0.0, 0.0)
    assert (
        judged_direct(small=1.0)[0]
        == "converged"
        == judged_direct(small=1.0, rho=1e-9, least=1e-9)[0]
    )
    # without so large a ρ there is no minimum
    assert judged_direct(small=1.0, rho=1.0, least=1.0)[0] == "stalled"
    # a small step that a larger ρ than is needed may hold back: once more without, unless a step
    # was refused there
    assert judged_direct(small=1.0, rho=1e-3) == ("running", 0.0, 0.0, 0.0)
    assert judged_direct(small=1.0, rho=1e-3, refused=1.0)[0] == "stalled"
    assert judged_direct(definite=0.0) == ("running", 1e-9, 1e-9, 0.0) and judged_direct() == (
        "running",
        1e-9,
        0.0,
        1.0,
    )
    assert judged_direct(rho=1e9)[0] == "stalled"
