"""Controllers as C over phases and contacts: step for step those of `rg.MPC`, to the last bit where
the first plan is, and to rounding where it stands on contacts.
"""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from c_solver_builds import COMPILERS, FLAGS, NATIVE, SHARED, Controller
from hopper import DRIVEN, START, foot, hopper

import rigidgrad as rg
from rigidgrad.errors import FallenError

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
FEET = ("lf", "rf", "lh", "rh")


def counted(mpc: rg.MPC, c: Controller) -> None:
    """Plans and fallbacks are the same."""
    assert c.counts["plans"] == mpc.log.solves
    assert {name: c.counts[name] for name in SHARED} == {name: mpc.counts[name] for name in SHARED}


def followed(mpc: rg.MPC, c: Controller, count: int, h: float, missing: bool = True):
    """(t, x) of a run of the model from the start, in which both give the same controls and plans;
    with `missing`, nothing is measured now and then.
    """
    mpc.reset()
    x = mpc.problem.start.copy()
    for k in range(count):
        t, measured = h * k, None if missing and k % 13 == 12 else x
        u, found = mpc.step(measured, t), c.step(measured, t)
        np.testing.assert_allclose(found, u, rtol=0, atol=1e-9)
        np.testing.assert_allclose(c.plan, mpc.plan.x, rtol=0, atol=1e-9)
        yield t, x
        x = mpc.problem.programs.step(x, u, np.array(h), *mpc.problem.inputs_at(0))


def there_and_back(**limits) -> rg.Problem:
    """Two links to one side, with less torque, to the other, and to rest."""
    phases = [
        rg.Phase(8, costs=[rg.costs.State([0.6, 0.0, 0, 0], 1.0)]),
        rg.Phase(6, costs=[rg.costs.State([0.0, 0.4, 0, 0], 5.0)], limits=rg.Limits(torque=4.0)),
        rg.Phase(8, costs=[rg.costs.State(np.zeros(4), 1.0, final=10.0)]),
    ]
    kept = rg.Limits(torque=15.0, **limits)
    effort = [rg.costs.Effort(1e-3)]
    robot = rg.load("double_pendulum")
    return rg.Problem(robot, np.zeros(4), dt=0.02, phases=phases, costs=effort, limits=kept)


@pytest.mark.parametrize("limits", [{}, {"position": (-0.1, 0.3)}], ids=["torques", "positions"])
def test_phases_pass_with_time_to_the_last_bit(limits, tmp_path):
    """Beyond the end of the motion, too, from a clock that goes back, and again after a reset."""
    mpc = rg.MPC(there_and_back(**limits), rg.PDDP(iterations=1), period=0.02, latency=0.0)
    c = Controller(mpc, tmp_path, "swing")
    for _ in range(2):
        bounds, turned = set(), 0
        for t, x in followed(mpc, c, 280, 0.0025):
            assert np.array_equal(c.plan, mpc.plan.x), t
            bounds.add(float(mpc.problem.own_bounds[1][0, 0]))
            if t == 0.2:
                back = mpc.step(x, 0.1), c.step(x, 0.1)
                np.testing.assert_allclose(*back, rtol=0, atol=1e-9)
                turned = 1
        counted(mpc, c)
        assert bounds == {4.0, 15.0} and c.counts["clock"] >= turned == 1
        c.reset()


def shifting(**more) -> rg.MPC:
    """The hopper over its foot, forward and back."""

    def lean(x):
        return [rg.costs.State(np.r_[x, START[1:]], [50, 50, 1, 1, 0.5, 0.5, 0.1, 0.1])]

    phases = [
        rg.Phase(8, [foot()], lean(0.02), dt=0.02),
        rg.Phase(8, [foot()], lean(-0.02), dt=0.02),
    ]
    limits = rg.Limits(torque=40.0)
    costs = [rg.costs.Effort(1e-3)]
    problem = rg.Problem(
        hopper(), START, phases=phases, costs=costs, actuation=DRIVEN, limits=limits
    )
    return rg.MPC(problem, rg.PDDP(iterations=2), period=0.01, **more)


@pytest.mark.parametrize("latency", [0.0, 0.006])
def test_a_robot_that_stands_is_driven_as_by_python(latency, tmp_path):
    mpc = shifting(latency=latency)
    c = Controller(mpc, tmp_path, "swing")
    for _ in followed(mpc, c, 180, 0.002):
        pass
    counted(mpc, c)
    k, plan = 3, mpc.plan
    inputs = mpc.problem.p[k, mpc.problem.programs.inputs]
    force = mpc.problem.programs.contact_forces(plan.x[k], plan.u[k], inputs)
    np.testing.assert_allclose(c.forces(k, plan.x[k], plan.u[k], 3), force, rtol=0, atol=1e-9)
    assert force[2] > 10.0


class Steering:
    """Moves the goal, lifts the foot's weight, does not accept some plans, and finds the robot
    fallen for a while.
    """

    def __init__(self) -> None:
        self.asked, self.begin = 0, 0.0

    def steer(self, problem: rg.Problem, begin: float) -> None:
        self.begin = begin
        if 0.1 <= begin < 0.14:
            raise FallenError("it lies")
        target = problem.programs.slices[0]["target"]
        problem.p[:, target.start] = 0.02 * np.sin(3.0 * (begin + problem.times))

    def accepts(self, problem: rg.Problem, x: np.ndarray, u: np.ndarray) -> bool:
        if self.begin < 0.03 or 0.13 < self.begin < 0.18:
            return True  # those that are at rest already, where the last bit would decide
        self.asked += 1
        return self.asked % 4 != 1 and abs(x[-1, 0]) < 0.003


def standing() -> rg.Problem:
    costs = [
        rg.costs.State(START, [50, 50, 1, 1, 0.5, 0.5, 0.1, 0.1]),
        rg.costs.Effort(1e-3),
    ]
    phases = [rg.Phase(10, [foot()], costs, dt=0.02)]
    limits = rg.Limits(torque=40.0)
    return rg.Problem(hopper(), START, phases=phases, actuation=DRIVEN, limits=limits)


def test_what_steers_python_steers_c(tmp_path):
    ours, theirs = Steering(), Steering()
    mpc = rg.MPC(standing(), rg.PDDP(iterations=1), period=0.01, target=ours)
    c = Controller(mpc, tmp_path, "swing")
    c.steer_by(theirs, mpc.problem)
    for _ in followed(mpc, c, 160, 0.002):
        pass
    counted(mpc, c)
    assert c.counts["fallen"] == 4 and c.counts["slips"] > 0 and ours.asked == theirs.asked > 20


def hyq(ground: float = 0.0):
    robot = rg.load("hyq", floating_base=True)
    feet = [rg.Contact(f"{leg}_lowerleg", offset=(0.33, 0, 0), friction=0.6) for leg in FEET]
    return robot, feet, rg.gaits.standing(robot, feet, ground=ground)


def test_a_quadruped_trots_by_c(tmp_path):
    """The phases of HyQ's trot, and its last one that goes on."""
    robot, feet, start = hyq()
    trot = rg.gaits.trot(robot, feet, start, step_length=0.1, dt=0.02)
    phases = [p for p in trot if isinstance(p, rg.Phase)]
    problem = rg.Problem(robot, start, phases=phases, limits=rg.Limits(torque=True))
    mpc = rg.MPC(problem, rg.PDDP(iterations=1), period=0.02)
    c = Controller(mpc, tmp_path, "swing", "-O0")
    *_, (_, x) = followed(mpc, c, 90, 0.01)
    counted(mpc, c)
    np.testing.assert_allclose(x[:3], start[:3] + [0.1, 0.0, 0.0], rtol=0, atol=0.03)


def test_a_walker_steers_c(tmp_path):
    """HyQ as it is commanded: contacts, feet and trunk of each plan come from `rg.gaits.Walker`."""
    robot, feet, start = hyq()
    ours, theirs = (rg.gaits.Walker(robot, feet, start) for _ in range(2))
    ours.command = theirs.command = (0.3, 0.0, 0.1)
    mpc = rg.MPC(ours.problem(), rg.PDDP(iterations=1), period=0.02, target=ours)
    c = Controller(mpc, tmp_path, "swing", "-O0")
    c.steer_by(theirs, mpc.problem)
    *_, (_, x) = followed(mpc, c, 120, 0.01, missing=False)
    counted(mpc, c)
    assert x[0] - start[0] > 0.15


USE = """
#include "swing.h"
#include <math.h>
#include <stdlib.h>
static int steer(void *context, const double *start, double begin, swing_numbers *numbers)
{
    numbers->knot[SWING_STEPS].state_target[0] = 0.01 * start[0];
    return begin < *(double *)context;
}
static int accepts(void *context, const double *x, const double *u)
{
    (void)context;
    return x[0] > 1e9 || u[0] > 1e9;
}
int main(void)
{
    void *memory = malloc(swing_mpc_memory());
    swing_mpc *m = swing_mpc_init(memory, swing_mpc_memory());
    double x[SWING_NX], u[SWING_NU], force[SWING_FORCES], falls = 0.3;
    int k, i;
    swing_mpc_set_steering(m, steer, accepts, &falls);
    for (i = 0; i < SWING_NX; ++i) x[i] = swing_mpc_numbers(m)->start[i];
    for (k = 0; k < 100; ++k) {
        swing_mpc_step(m, k % 7 ? x : NULL, 0.004 * k, u);
        for (i = 0; i < SWING_NU; ++i)
            if (!isfinite(u[i])) return 1;
    }
    swing_mpc_forces(m, 0, x, u, force);
    for (i = 0; i < SWING_NX; ++i) x[i] = 1e9;
    falls = 1e9;
    for (; k < 120; ++k) swing_mpc_step(m, x, 0.01 * k, u);
    k = swing_mpc_counts(m)->fallen == 0 || swing_mpc_counts(m)->slips == 0;
    free(memory);
    return k;
}
"""


@pytest.mark.parametrize("compiler", COMPILERS)
def test_controllers_on_contacts_are_clean_under_sanitizers(compiler, tmp_path):
    rg.generate(shifting(latency=0.006), target="c", out=tmp_path, name="swing")
    (tmp_path / "use.c").write_text(USE)
    sanitizers = ["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover"]
    files = [tmp_path / "swing.c", tmp_path / "use.c"]
    command = [compiler, *FLAGS, *NATIVE, *sanitizers, *files, "-o", tmp_path / "use", "-lm"]
    subprocess.run(command, check=True)
    subprocess.run([tmp_path / "use"], check=True)


def test_the_header_says_which_contacts_and_what_steers(tmp_path):
    rg.generate(shifting(), target="c", out=tmp_path, name="swing")
    text = (tmp_path / "swing.h").read_text()
    assert "double contacts[1]; /* 1 where a contact holds, 0 where it does not: foot */" in text
    assert "#define SWING_FORCES 3" in text and "several phases" in text
    assert "swing_mpc_set_steering" in text
