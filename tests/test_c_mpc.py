"""A controller as C: its plans to the last bit those of `rg.MPC`, its controls as near as the order
of a product allows, and its fallbacks counted.
"""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from c_solver_builds import COMPILERS, COUNTS, FLAGS, NATIVE, Controller

import rigidgrad as rg
from rigidgrad.errors import InputError

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


def problem(**limits) -> rg.Problem:
    costs = [
        rg.costs.State([0.8, -0.4, 0, 0], weight=[1.0, 1.0, 0.01, 0.01], final=10.0),
        rg.costs.Effort(1e-3),
    ]
    robot = rg.load("double_pendulum")
    kept = rg.Limits(torque=15.0, **limits)
    return rg.Problem(robot, np.zeros(4), steps=20, dt=0.02, costs=costs, limits=kept)


BALL = {
    "obstacles": [rg.Obstacle((-0.7, 0.0, -1.2), 0.1)],
    "spheres": [rg.LinkSphere("lower_rod", 0.05, (0.0, 0.0, -0.5))],
}


def driven(mpc: rg.MPC, count: int, push: float, begin: float = 0.0):
    """(t, x, u) of a run on a robot that something pushes, with noise in what is measured."""
    robot, random, true = mpc.system.robot, np.random.default_rng(0), np.array([begin, 0, 0, 0])
    for k in range(count):
        t, x = 0.002 * k, true + 1e-4 * random.normal(size=4)
        u = mpc.step(x, t)
        yield t, x, u
        v = true[2:] + 0.002 * robot.aba(true[:2], true[2:], u + push)
        true = np.r_[true[:2] + 0.002 * v, v]


@pytest.mark.parametrize(
    ("options", "exact"),
    [
        ({}, True),
        ({"latency": 0.006}, False),
        ({"observer": True}, False),
        ({"payload": {"lower_rod": 0.5}, "target": [0.5, -0.2, 0.0, 0.0]}, True),
    ],
    ids=["plain", "latency", "observer", "payload and target"],
)
def test_plans_and_controls_are_those_of_python(options, exact, tmp_path):
    mpc = rg.MPC(problem(), rg.PDDP(iterations=1), period=0.01, **options)
    c = Controller(mpc, tmp_path, "swing")
    mpc.reset()
    for t, x, u in driven(mpc, 150, 0.5):
        found = c.step(x, t)
        np.testing.assert_allclose(found, u, rtol=0, atol=1e-9)
        if exact:
            assert np.array_equal(c.plan, mpc.plan.x), t
    assert c.counts["plans"] == mpc.log.solves > 20
    assert {k: c.counts[k] for k in COUNTS[1:6]} == dict.fromkeys(COUNTS[1:6], 0)


@pytest.mark.parametrize(
    ("limits", "options"),
    [
        ({"position": (-0.35, 0.7), "velocity": 2.0}, {}),
        ({"position": (-0.35, 0.7), "velocity": 2.0}, {"on_violation": "hold"}),
        ({"position": (-0.35, 0.7), "velocity": 2.0}, {"on_violation": "report"}),
        ({"position": (-0.35, 0.7)}, {"violation": 1e-4}),
        (BALL, {"on_violation": "report"}),
    ],
    ids=["slow", "hold", "report", "start outside", "ball"],
)
def test_limits_and_what_is_done_about_violations_are_those_of_python(limits, options, tmp_path):
    """Plans to the last bit, among them slow ones, held postures, bounds that come back."""
    mpc = rg.MPC(problem(**limits), rg.PDDP(iterations=1), period=0.01, **options)
    c = Controller(mpc, tmp_path, "swing")
    mpc.reset()
    begin = -0.5 if "violation" in options else 0.0  # outside: the bound begins there
    felt = 0.0
    for k, (t, x, u) in enumerate(driven(mpc, 160, 1.5, begin)):
        felt = max(felt, abs(mpc.problem.multipliers).max())
        np.testing.assert_allclose(c.step(x, t), u, rtol=0, atol=1e-9)
        assert np.array_equal(c.plan, mpc.plan.x), t
        if k == 100:  # weights change: penalties are scaled anew
            mpc.problem.costs[1].weight = 2e-3
            mpc.update()
            c.numbers("effort_weight", 2e-3)
    counts = c.counts
    assert {name: counts[name] for name in COUNTS[1:7]} == {n: mpc.counts[n] for n in COUNTS[1:7]}
    assert felt > 0.0 and (counts["violated"] > 0) == (limits is not BALL)
    assert (counts["held"] > 0) == ("hold" in options.values())


def flight() -> rg.MPC:
    """A floating base that rotors drive: not in every freedom, on a manifold."""
    start = np.r_[0, 0, 1, 0, 0, 0, 1, np.zeros(6)].astype(float)
    goal = np.r_[0.5, 0.3, 1.2, start[3:]]
    costs = [rg.costs.State(goal, weight=1.0, final=100.0), rg.costs.Effort(0.1)]
    limits = rg.Limits(torque=True)
    problem = rg.Problem(rg.load("quadrotor"), start, steps=20, dt=0.03, costs=costs, limits=limits)
    return rg.MPC(problem, rg.PDDP(iterations=1), period=0.01, observer=True)


def balance() -> rg.MPC:
    """A cart that is driven and a pole that is not, between walls."""
    costs = [rg.costs.State(np.zeros(4), weight=1.0, final=50.0), rg.costs.Effort(1e-2)]
    limits = rg.Limits(torque=20.0, position=([-0.1, -9.0], [0.1, 9.0]))
    start = [0.0, 0.3, 0.0, 0.0]
    problem = rg.Problem(rg.load("cartpole"), start, steps=30, dt=0.02, costs=costs, limits=limits)
    return rg.MPC(problem, rg.PDDP(iterations=2), period=0.01, on_violation="hold")


def reach() -> rg.MPC:
    """Integral action on the point of a reach."""
    costs = [rg.costs.Reach("lower_rod", [0.02, 0.0, -0.99], weight=10.0, final=100.0)]
    costs += [rg.costs.Effort(1e-2), rg.costs.State(np.zeros(4), [0, 0, 0.1, 0.1])]
    robot = rg.load("double_pendulum")
    problem = rg.Problem(robot, np.zeros(4), steps=20, dt=0.02, costs=costs)
    return rg.MPC(problem, rg.PDDP(iterations=1), period=0.01, integral=3.0)


@pytest.mark.parametrize("make", [flight, balance, reach])
def test_other_robots_and_integral_action_are_those_of_python(make, tmp_path):
    mpc = make()
    c = Controller(mpc, tmp_path, "swing")
    mpc.reset()
    robot, x = mpc.system.robot, mpc.problem.start.copy()
    B = np.eye(robot.nv) if mpc.system.actuation is None else np.array(mpc.system.actuation)
    for k in range(150):
        measured = x if k % 17 else None
        u = mpc.step(measured, 0.002 * k)
        np.testing.assert_allclose(c.step(measured, 0.002 * k), u, rtol=0, atol=1e-9)
        np.testing.assert_allclose(c.plan, mpc.plan.x, rtol=0, atol=1e-9)
        q, v = x[: robot.nq], x[robot.nq :]
        v = v + 0.002 * robot.aba(q, v, B @ u + 0.05)
        x = np.r_[robot.integrate(q, 0.002 * v), v]
    assert {n: c.counts[n] for n in COUNTS[1:7]} == {n: mpc.counts[n] for n in COUNTS[1:7]}
    if mpc.integral:
        assert np.abs(mpc.integral.shift).max() > 1e-4


def test_fallbacks_are_counted_and_controls_stay_within_bounds(tmp_path):
    c = Controller(rg.MPC(problem(), rg.PDDP(iterations=1), period=0.01), tmp_path, "swing")
    for k in range(20):
        u = c.step(np.full(4, 0.1), 0.002 * k)
    for x in (None, np.full(4, np.nan), np.full(4, np.inf), np.full(4, 1e200)):
        u = c.step(x, 0.04)
        assert np.isfinite(u).all() and (abs(u) <= 15.0).all()
    assert c.counts["missing"] == 4
    for t in (0.01, np.nan):
        assert np.isfinite(c.step(np.full(4, 0.1), t)).all()
    assert c.counts["clock"] == 2
    for k in range(40):  # finite, and too fast for any plan
        u = c.step(np.full(4, 1e9), 0.05 + 0.01 * k)
        assert np.isfinite(u).all() and (abs(u) <= 15.0).all()
    counts = c.counts
    assert counts["kept"] and counts["held"]
    for k in range(60):
        u = c.step(np.full(4, 0.1), 0.5 + 0.002 * k)
    assert c.counts["held"] == counts["held"] and c.counts["cold"]


USE = """
#include "swing.h"
#include <math.h>
#include <stdlib.h>
int main(void)
{
    void *memory = malloc(swing_mpc_memory());
    swing_mpc *m = swing_mpc_init(memory, swing_mpc_memory());
    double x[SWING_NX], u[SWING_NU];
    int k, i;
    for (i = 0; i < SWING_NX; ++i) x[i] = swing_mpc_numbers(m)->start[i];
    for (k = 0; k < 60; ++k) {
        swing_mpc_step(m, k % 7 ? x : NULL, 0.002 * k, u);
        for (i = 0; i < SWING_NU; ++i)
            if (!isfinite(u[i])) return 1;
        x[0] += 1e-2;
    }
    for (i = 0; i < SWING_NX; ++i) x[i] = 1e9;
    for (; k < 120; ++k) swing_mpc_step(m, x, 0.01 * k, u);
    k = swing_mpc_counts(m)->held == 0;
    free(memory);
    return k;
}
"""


def watched() -> rg.MPC:
    walls = problem(position=(-0.35, 0.7))
    return rg.MPC(walls, rg.PDDP(iterations=1), period=0.01, observer=True, latency=0.004)


@pytest.mark.parametrize(
    ("make", "compiler"),
    [
        *((watched, compiler) for compiler in COMPILERS),
        *((make, COMPILERS[-1]) for make in (flight, balance, reach) if COMPILERS),
    ],
)
def test_the_controller_compiles_without_warnings_and_is_clean_under_sanitizers(
    make, compiler, tmp_path
):
    """Under those of both compilers once; of one, other controllers."""
    rg.generate(make(), target="c", out=tmp_path, name="swing")
    (tmp_path / "use.c").write_text(USE)
    sanitizers = ["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover"]
    files = [tmp_path / "swing.c", tmp_path / "use.c"]
    command = [compiler, *FLAGS, *NATIVE, *sanitizers, *files, "-o", tmp_path / "use", "-lm"]
    subprocess.run(command, check=True)
    subprocess.run([tmp_path / "use"], check=True)


def test_the_controller_is_a_class_of_cpp(tmp_path):
    rg.generate(watched(), target="c", out=tmp_path, name="swing")
    (tmp_path / "use.cpp").write_text(
        '#include "swing.hpp"\nint main() { swing::Mpc m; double u[2]; m.step(nullptr, 0.0, u);'
        " return m.counts().missing == 1 ? 0 : 1; }\n"
    )
    subprocess.run(
        ["c++", "-std=c++11", "-Wall", "-Werror", "-fsyntax-only", tmp_path / "use.cpp"], check=True
    )


def test_what_controllers_in_c_do_not_know_is_told(tmp_path):
    robot = rg.load("double_pendulum")
    bent = [rg.costs.CustomValue(lambda x, u: x[0] ** 2, weight=1.0)]
    limited = rg.Problem(robot, np.zeros(4), 20, 0.02, costs=bent, limits=robot.limits)
    with pytest.raises(InputError, match="CustomValue"):
        rg.generate(rg.MPC(limited, rg.PDDP(iterations=1)), target="c", out=tmp_path)
    one, path = rg.PDDP(iterations=1), [[0.1 * k, 0.0, 0.0, 0.0] for k in range(21)]
    steps = rg.CustomSystem(lambda x, u: (x[0] + u[0],), 1, 1, discrete=True)
    ones = [rg.costs.State([1.0]), rg.costs.Effort(1.0)]
    counted = rg.Problem(steps, [0.0], steps=5, dt=1.0, costs=ones)
    rate = [*problem().costs, rg.costs.ControlRate(0.1)]
    hurried = rg.Problem(robot, np.zeros(4), 20, 0.02, costs=rate)
    for mpc, word in (
        (rg.MPC(problem(), rg.Direct()), "PDDP"),
        (rg.MPC(problem(), rg.PDDP(blocks=2)), "blocks"),
        (rg.MPC(problem(), rg.PDDP(second_order=True)), "second_order"),
        (rg.MPC(problem(), rg.PDDP(dtype="float32")), "dtype"),
        (rg.MPC(problem(), one, target=lambda t: np.array(path)[: len(t)]), "function"),
        (rg.MPC(counted, one, period=1.0), "continuous"),
        (rg.MPC(hurried, one), "ControlRate"),
    ):
        with pytest.raises(InputError, match=word):
            rg.generate(mpc, target="c", out=tmp_path)
    assert not list(tmp_path.iterdir())
