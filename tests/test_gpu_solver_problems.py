"""What solvers on a device solve beside arms without limits, each to the CPU's optimum, by PoCL and
by the CUDA shim: states on a manifold, limits, obstacles, guesses of states, batches.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hopper import DRIVEN, START, foot, hopper
from test_control import p1
from test_gpu_cuda import needs_nvcc
from test_gpu_solvers import (
    check_feasible,
    compiled,
    direct,
    needs_opencl,
    needs_shim,
    swing,
    without_barrier,
)
from test_guess import light

import rigidgrad as rg
from rigidgrad.control import device_run
from rigidgrad.control.device import DeviceDirect
from rigidgrad.control.direct import Run
from rigidgrad.control.linear import box

SOLVERS = {"pddp": rg.PDDP, "direct": direct}


def quadrotor(**options):
    """Half a metre to the side, turned about the vertical."""
    robot = rg.load("quadrotor")
    start = np.r_[robot.neutral(), np.zeros(6)]
    goal = np.r_[0.5, -0.3, 0.4, 0, 0, np.sin(0.4), np.cos(0.4), np.zeros(6)]
    costs = [rg.costs.State(goal, weight=0.1, final=100.0), rg.costs.Effort(0.1)]
    return rg.Problem(robot, start=start, steps=12, dt=0.08, costs=costs, **options)


def flight(drift=0.0, **options):
    """HyQ in the air, its base not driven: legs to a pose, the trunk pitched by them; with a weight
    on the `drift` of the base, which nothing but the flight decides.
    """
    robot = rg.load("hyq", floating_base=True)
    start = np.r_[robot.neutral(), np.zeros(robot.nv)]
    goal = np.r_[
        start[:3],
        0,
        np.sin(0.05),
        0,
        np.cos(0.05),
        np.tile([0.1, 0.7, -1.3], 4),
        np.zeros(robot.nv),
    ]
    weight = np.r_[np.full(3, drift), np.ones(15), np.full(6, drift), np.full(12, 0.01)]
    costs = [rg.costs.State(goal, weight=weight, final=100.0), rg.costs.Effort(1e-3)]
    return rg.Problem(robot, start=start, steps=5, dt=0.04, costs=costs, **options)


def round_a_pole(**options):
    """A double pendulum past a sphere that its end would run through."""
    limits = rg.Limits(
        obstacles=[rg.Obstacle((-0.54, 0.0, -2.05), 0.1)],
        spheres=[rg.LinkSphere("lower_rod", 0.1, (0, 0, -1))],
    )
    return swing(limits=limits, **options)


def within_power(**options):
    """Power of the shoulder, a function of state and control."""
    return swing(
        limits=rg.Limits(constraints=[rg.Inequality(lambda x, u: x[2] * u[0], upper=10.0)]),
        **options,
    )


def moving_arm():
    """P1 within limits of torques, positions and velocities, all of which hold it back."""
    return p1(limits=rg.Limits(torque=100.0, position=1.6, velocity=6.0))


def check_like_cpu(problem, solution, cpu, tolerance, dtype="float64"):
    assert solution.converged and cpu.converged, (solution, cpu)
    assert solution.cost == pytest.approx(cpu.cost, rel=tolerance)
    check_feasible(problem, solution, 1e-10 if dtype == "float64" else 1e-5)
    if problem.constraints:
        assert (
            solution.stats["violation"] <= 1e-4
            and solution.multipliers.shape == cpu.multipliers.shape
        )


# --- states on a manifold -------------------------------------------------------------------------


FLYING = {
    "pddp": rg.PDDP(device="opencl"),
    "pddp in blocks": rg.PDDP(device="opencl", blocks=3),
    "direct": direct(device="opencl"),
}


@needs_opencl
@pytest.mark.parametrize("which", FLYING)
def test_pocl_flies_a_quadrotor(which):
    problem = quadrotor()
    solution = rg.solve(problem, FLYING[which])
    check_like_cpu(problem, solution, rg.solve(problem), 1e-9 if which == "pddp" else 1e-6)
    assert solution.gains.shape == (12, 4, 12)


@needs_shim
@pytest.mark.parametrize("which", [key for key in FLYING if key != "pddp"])
def test_the_shim_flies_a_quadrotor_without_races(shim, which):
    device, problem = shim(), quadrotor()
    solution, cpu = rg.solve(problem, replace(FLYING[which], device="cuda")), rg.solve(problem)
    assert device.report.clean, device.report
    check_like_cpu(problem, solution, cpu, 1e-6)


@needs_opencl
def test_the_direct_method_carries_derivatives_to_the_tangent_space_of_the_next_knot():
    """Where a guess has gaps in a rotation: as on the CPU."""
    turned = rg.load("quadrotor").random(seed=1)
    problem = quadrotor(guess=(np.tile(np.r_[turned.q, turned.v], (13, 1)), np.ones((12, 4))))
    cpu, ours = Run(problem, direct()), DeviceDirect([problem], direct(device="opencl"))
    cpu.begin()
    lq = cpu.linearize()
    ours.bring()
    ours.begin()
    ours.expand()
    F, gap = ours.F.read()[0, :-1], ours.after.read()[0, :-1]
    np.testing.assert_allclose(gap, lq.d[1:], atol=1e-12)
    np.testing.assert_allclose(F, np.concatenate([lq.A, lq.B], axis=2), atol=1e-11)
    bare = problem.linearize(cpu.x, cpu.u)
    assert np.abs(bare.A - lq.A).max() > 0.01


@needs_opencl
def test_pocl_moves_a_floating_hyq_in_flight():
    problem = flight()
    solution, cpu = rg.solve(problem, rg.PDDP(device="opencl")), rg.solve(problem)
    check_like_cpu(problem, solution, cpu, 1e-9)
    assert problem.system.nu == 12 and problem.system.ndx == 36


@needs_opencl
def test_pocl_moves_a_floating_hyq_within_its_limits_by_the_direct_method():
    problem = flight(drift=1e-3, limits=rg.Limits(torque=10.0))
    solution, cpu = rg.solve(problem, direct(device="opencl")), rg.solve(problem)
    check_like_cpu(problem, solution, cpu, 1e-8)
    assert held(solution, 10.0) == held(cpu, 10.0) > 0


@needs_shim
def test_the_shim_moves_a_floating_hyq_without_races(shim):
    device, problem = shim(), flight()
    solution, cpu = rg.solve(problem, rg.PDDP(device="cuda")), rg.solve(problem)
    assert device.report.clean, device.report
    check_like_cpu(problem, solution, cpu, 1e-9)


# --- contacts that come and go --------------------------------------------------------------------


def hop(**limits):
    """Push off, fly, land, stand. The impact weighs states, too, which the direct method needs."""
    goal = START.copy()
    goal[:2] += 0.1, 0.02
    near, foot_down = (
        [rg.costs.State(goal, [1.0, 1.0, 0.1, 0.1] + [0.01] * 4), rg.costs.Effort(1e-3)],
        rg.costs.Height("foot", 0.0, 1e4),
    )
    stand = [
        rg.costs.State(goal, [1.0, 1.0, 0.1, 0.1] + [0.01] * 4, final=100.0),
        rg.costs.Effort(1e-3),
    ]
    touch = [foot()]
    phases = [
        rg.Phase(8, touch, near, dt=0.02),
        rg.Phase(6, [], near),
        rg.Impact(touch, [foot_down, near[0]]),
        rg.Phase(8, touch, stand),
    ]
    return rg.Problem(
        hopper(),
        START,
        phases=phases,
        dt=0.01,
        actuation=DRIVEN,
        limits=rg.Limits(**limits) if limits else None,
    )


@needs_opencl
@pytest.mark.parametrize("which", SOLVERS)
def test_pocl_pushes_off_flies_and_lands(which):
    """Which contacts hold, and that a knot is an impact, are numbers of a knot on a device as on
    the CPU.
    """
    problem = hop()
    solution, cpu = rg.solve(problem, SOLVERS[which](device="opencl")), rg.solve(problem)
    check_like_cpu(problem, solution, cpu, 1e-8)


@needs_shim
@pytest.mark.parametrize("which", SOLVERS)
def test_the_shim_pushes_off_within_its_limits_without_races(shim, which):
    device, problem = shim(), hop(torque=8.0)
    solution, cpu = rg.solve(problem, SOLVERS[which](device="cuda")), rg.solve(problem)
    assert device.report.clean, device.report
    check_like_cpu(problem, solution, cpu, 1e-7)
    assert held(solution, 8.0) > 0


# --- limits of controls ---------------------------------------------------------------------------


def held(solution, limit):
    """How many controls are at their limits."""
    return int((np.abs(solution.u) >= limit * (1 - 1e-12)).sum())


@needs_opencl
@pytest.mark.parametrize("blocks", [1, 2])
def test_pocl_keeps_torques_within_limits(blocks):
    problem = swing(limits=rg.Limits(torque=12.0))
    solution, cpu = rg.solve(problem, rg.PDDP(device="opencl", blocks=blocks)), rg.solve(problem)
    check_like_cpu(problem, solution, cpu, 1e-8 if blocks == 1 else 1e-6)
    assert np.abs(solution.u).max() <= 12.0 and held(solution, 12.0) == held(cpu, 12.0) > 5


@needs_opencl
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_pocl_keeps_torques_within_limits_by_the_direct_method(dtype):
    problem = swing(limits=rg.Limits(torque=12.0))
    solution, cpu = rg.solve(problem, direct(device="opencl", dtype=dtype)), rg.solve(problem)
    check_like_cpu(problem, solution, cpu, 1e-8 if dtype == "float64" else 1e-5, dtype)
    assert np.abs(solution.u).max() <= 12.0
    if dtype == "float64":
        # where the cost is flat to 1e-8
        np.testing.assert_allclose(solution.u, cpu.u, atol=1e-4 * 12.0)
        assert held(solution, 12.0) == held(cpu, 12.0) > 5


@needs_shim
@pytest.mark.parametrize("sets", [box._SETS, 1])
def test_the_direct_method_keeps_torques_within_limits_without_races(shim, monkeypatch, sets):
    """With one active set tried, an interior point method has to find it."""
    monkeypatch.setattr(box, "_SETS", sets)
    device, problem = shim(), swing(limits=rg.Limits(torque=12.0))
    solution, cpu = rg.solve(problem, direct(device="cuda")), rg.solve(problem)
    assert device.report.clean, device.report
    check_like_cpu(problem, solution, cpu, 1e-8)
    assert np.abs(solution.u).max() <= 12.0
    # where the cost is flat to 1e-8
    np.testing.assert_allclose(solution.u, cpu.u, atol=1e-4 * 12.0)


# in the kernels of the LQ problems: barriers by number, the cost and the motion of held controls,
# what couples states and controls
CONDENSED = {
    "of held controls": 0,
    "of R and S": 1,
    "between pivots": 2,
    "of R^-1 S": 3,
    "the motion of held controls": "y = FMA(f[i * NZ + ND + c], ld(at, c), y);",
    "the cost of states with held controls": "y = FMA(h[(ND + c) * NZ + j], ld(at, c), y);",
    "what a gradient by controls is to states": "y = FMA(-ld(T, c * ND + j), ld(r, c), y);",
    "what is coupled": "y = FMA(-ld(S, c * ND + i), ld(T, c * ND + j), y);",
    "feedback": "y = FMA(feedback[(row * NU + i) * ND + j], z[j], y);",
    "the gradient by the motion": (
        "y = FMA(F[(row * ND + j) * NZ + ND + i], lambda[(row + 1) * ND + j], y);"
    ),
}


def lq_steps():
    """The first step of the direct method on the CPU and on the device: coupled, bounded, with
    gaps; some controls are held.
    """
    x = np.linspace(np.zeros(4), np.r_[1.0, -0.5, 2.0, -1.0], 7)
    costs = [
        rg.costs.State(np.r_[1.0, -0.5, 0, 0], weight=0.1, final=1000.0),
        rg.costs.Effort(0.01, reference="gravity"),
    ]
    robot, limits = rg.load("double_pendulum"), rg.Limits(torque=[12.0, 40.0])
    problem = rg.Problem(
        robot,
        start=np.zeros(4),
        steps=6,
        dt=0.03,
        costs=costs,
        limits=limits,
        guess=(x, np.full((6, 2), 5.0)),
    )
    cpu = Run(problem, direct())
    cpu.begin()
    expected = cpu.step(cpu.linearize(), 0.0)
    ours = DeviceDirect([problem], direct(device="cuda"))
    ours.bring()
    ours.begin()
    ours.expand()
    ours.keep_within_bounds()
    step = ours.step.read()[0]
    return (
        np.concatenate([expected.dx[:-1], expected.du], axis=1),
        step[:-1],
        cpu.held,
        ours.at_bounds[0],
    )


@needs_shim
def test_bounds_coupled_costs_and_gaps_lead_to_the_step_of_the_cpu(shim):
    device = shim()
    expected, step, held, at_bounds = lq_steps()
    assert device.report.clean, device.report
    np.testing.assert_allclose(step, expected, rtol=1e-7, atol=1e-7 * np.abs(expected).max())
    assert 0 < np.abs(held).sum() < held.size
    np.testing.assert_array_equal(at_bounds, held)


@needs_shim
@pytest.mark.parametrize("what", CONDENSED)
def test_bugs_planted_in_the_held_controls_are_found(shim, what):
    bug = CONDENSED[what]
    device = shim(
        1,
        (
            without_barrier("solver_condense", bug)
            if isinstance(bug, int)
            else lambda text: text.replace(bug, "")
        ),
    )
    expected, step, _, _ = lq_steps()
    assert not device.report.clean or not np.allclose(
        step, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max()
    )


UNCLAMPED = "y = within(y, lower[row * NU + j], upper[row * NU + j]);"
# what is planted in the kernels: barriers of the search for the active set, by number; a roll-out
# that does not clamp
PLANTED = {"the room": 5, "rows": 6, "ones": 7, "held": 8, "not clamped": UNCLAMPED}


@needs_shim
@pytest.mark.parametrize("order", [0, 1])
def test_the_shim_keeps_torques_within_limits_without_races(shim, order):
    device, problem = shim(order), swing(limits=rg.Limits(torque=12.0))
    solution, cpu = rg.solve(problem, rg.PDDP(device="cuda")), rg.solve(problem)
    assert device.report.clean, device.report
    check_like_cpu(problem, solution, cpu, 1e-8)
    assert np.abs(solution.u).max() <= 12.0
    np.testing.assert_allclose(solution.u, cpu.u, atol=1e-6)


@needs_shim
@pytest.mark.parametrize("what", PLANTED)
def test_bugs_planted_in_the_limits_are_found(shim, what):
    bug = PLANTED[what]
    device = shim(
        1,
        (
            without_barrier("backward_knot", bug)
            if isinstance(bug, int)
            else lambda text: text.replace(bug, "")
        ),
        blocks=1,
    )
    solution = rg.solve(swing(limits=rg.Limits(torque=12.0)), rg.PDDP(device="cuda", iterations=8))
    assert not device.report.clean or np.abs(solution.u).max() > 12.0


@needs_opencl
def test_pocl_keeps_all_limits_at_once_by_the_direct_method():
    problem = swing(limits=rg.Limits(torque=20.0, position=0.7, velocity=1.5))
    solution, cpu = rg.solve(problem, direct(device="opencl")), rg.solve(problem)
    check_like_cpu(problem, solution, cpu, 1e-6)
    assert held(solution, 20.0) == held(cpu, 20.0) > 0
    reached = np.abs(solution.x).max(axis=0)  # both limits of states hold it back, too
    assert reached[:2].max() == pytest.approx(0.7, abs=1e-3)
    assert reached[2:].max() == pytest.approx(1.5, abs=1e-3)


@needs_nvcc
def test_nvcc_takes_limits_on_a_manifold_without_warnings(tmp_path):
    bounded = device_run.solver_kernels(quadrotor(limits=rg.Limits(torque=3.0)).programs)
    free = device_run.solver_kernels(quadrotor().programs, direct=True)
    limited = device_run.solver_kernels(swing(limits=rg.Limits(torque=3.0)).programs, direct=True)
    for text in (
        bounded.source("cuda", "float32"),
        free.setup_source("cuda", "float32", False),
        limited.source("cuda", "float32"),
    ):
        assert all(spilled == 0 for _, spilled in compiled(tmp_path, text, "sm_80").values())


# --- positions, velocities, obstacles, constraints of one's own -----------------------------------

PROBLEMS = {
    "velocities": lambda: swing(limits=rg.Limits(velocity=1.5)),
    "an obstacle": round_a_pole,
    "power": within_power,
}


@needs_opencl
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_pocl_moves_the_arm_within_all_its_limits(dtype):
    problem = moving_arm()
    solution, cpu = rg.solve(problem, rg.PDDP(device="opencl", dtype=dtype)), rg.solve(problem)
    check_like_cpu(problem, solution, cpu, 1e-8 if dtype == "float64" else 1e-5, dtype)
    assert held(solution, 100.0) and (np.abs(solution.multipliers).max(axis=0) > 1e-6).sum() >= 2
    assert solution.cost > 1.01 * rg.solve(p1()).cost


@needs_shim
def test_the_shim_moves_the_arm_within_all_its_limits_without_races(shim):
    device, problem = shim(effort="-O1"), moving_arm()
    solution, cpu = rg.solve(problem, rg.PDDP(device="cuda")), rg.solve(problem)
    assert device.report.clean, device.report
    check_like_cpu(problem, solution, cpu, 1e-8)


@needs_opencl
@pytest.mark.parametrize(
    ("which", "what"),
    [(which, what) for which in SOLVERS for what in PROBLEMS],
)
def test_pocl_keeps_constraints(which, what):
    problem = PROBLEMS[what]()
    solution, cpu = rg.solve(problem, SOLVERS[which](device="opencl")), rg.solve(problem)
    check_like_cpu(problem, solution, cpu, 1e-6)
    assert solution.cost > 1.001 * rg.solve(swing()).cost  # they matter


@needs_shim
@pytest.mark.parametrize("which", SOLVERS)
def test_the_shim_goes_round_an_obstacle_without_races(shim, which):
    device, problem = shim(), round_a_pole()
    solution, cpu = rg.solve(problem, SOLVERS[which](device="cuda")), rg.solve(problem)
    assert device.report.clean, device.report
    check_like_cpu(problem, solution, cpu, 1e-6)


@needs_shim
def test_a_limit_that_cannot_be_kept_is_said(shim):
    shim()
    problem = swing(
        steps=8, limits=rg.Limits(constraints=[rg.Equality(lambda x, u: x[0] - 5.0)], torque=12.0)
    )
    ours, cpu = rg.solve(problem, rg.PDDP(device="cuda")), rg.solve(problem)
    assert ours.status == "infeasible" == cpu.status and ours.stats["violation"] > 1.0


# --- second derivatives of the dynamics -----------------------------------------------------------


SECOND = {
    "limits": lambda: swing(limits=rg.Limits(torque=12.0, velocity=2.0)),
    "a guess of states": lambda: along_a_line(),
    "contacts": hop,
}


@needs_opencl
@pytest.mark.parametrize("what", SECOND)
def test_pocl_bends_the_dynamics_as_the_cpu_does(what):
    problem = SECOND[what]()
    solution, cpu = (
        rg.solve(problem, rg.PDDP(second_order=True, device=device)) for device in ("opencl", None)
    )
    check_like_cpu(problem, solution, cpu, 1e-9)
    if what == "limits":
        # later ones are decided by rounding
        assert solution.stats["steps"][:10] == cpu.stats["steps"][:10]
        assert solution.iterations < rg.solve(problem).iterations


@needs_shim
@pytest.mark.parametrize("bug", [None, "plain", "barrier"])
def test_the_shim_bends_the_dynamics_without_races(shim, bug):
    """Its steps are the CPU's; without the second derivatives they are not, and without the barrier
    behind them the checker says so.
    """
    change = {
        None: lambda text: text,
        "plain": lambda text: text.replace("c + NEWTON", "c + SIGMA"),
        "barrier": without_barrier("backward_knot", 3),
    }[bug]
    device, problem = shim(1, change), swing(start=(0.6, -0.4), steps=12)
    solution, cpu = (
        rg.solve(problem, rg.PDDP(second_order=True, device=device)) for device in ("cuda", None)
    )
    same = np.allclose(solution.stats["history"][:4], cpu.stats["history"][:4], rtol=1e-9)
    assert device.report.clean == (bug != "barrier"), device.report
    assert same or bug is not None
    assert bug != "plain" or not same


# --- guesses of states ----------------------------------------------------------------------------


def along_a_line(**options):
    x = np.linspace(np.zeros(4), np.r_[1.0, -0.5, 0, 0], 21)
    return swing(guess=(x, np.zeros((20, 2))), **options)


@needs_opencl
def test_pocl_starts_from_states():
    problem = along_a_line(limits=rg.Limits(velocity=1.8, torque=20.0))
    solution, cpu = rg.solve(problem, rg.PDDP(device="opencl")), rg.solve(problem)
    check_like_cpu(problem, solution, cpu, 1e-8)
    assert solution.stats["steps"] == cpu.stats["steps"]
    # gaps are closed step by step
    assert solution.stats["defects"][0] > 0 == solution.stats["defects"][-1]


@needs_shim
def test_the_shim_starts_from_states_without_races(shim):
    device, problem = shim(), quadrotor(guess="line")
    solution, cpu = rg.solve(problem, rg.PDDP(device="cuda")), rg.solve(problem)
    assert device.report.clean, device.report
    check_like_cpu(problem, solution, cpu, 1e-8)
    with pytest.raises(rg.errors.InputError, match="a guess of states needs blocks=1"):
        rg.solve(problem, rg.PDDP(device="cuda", blocks=2))


@needs_opencl
def test_where_holding_the_start_runs_away_a_device_starts_from_states():
    problem, solver = light(), rg.PDDP(blocks=2, device="opencl")
    cpu = rg.solve(problem)
    for solution in (rg.solve(problem, solver), rg.solve([problem], solver)[0]):
        check_like_cpu(problem, solution, cpu, 1e-6)
        assert "held at the start" in solution.message


# --- batches of 16 --------------------------------------------------------------------------------


@needs_shim
def test_a_batch_with_limits_is_its_problems_one_by_one_by_the_direct_method(shim):
    """Whatever number of trials each needs to find which controls its limits hold."""
    device, solver = shim(blocks=3), direct(device="cuda")
    starts = np.c_[np.random.default_rng(6).uniform(-0.8, 0.8, (4, 2)), np.zeros((4, 2))]
    problems = swing(steps=8, limits=rg.Limits(torque=14.0)).batch(start=starts)
    together = rg.solve(problems, solver)
    assert device.report.clean, device.report
    for problem, solution in zip(problems, together, strict=True):
        alone = rg.solve(problem, solver)
        assert (solution.status, solution.iterations) == (alone.status, alone.iterations)
        for name in ("x", "u", "gains"):
            np.testing.assert_array_equal(getattr(solution, name), getattr(alone, name))


def sixteen(**options):
    """Starts around the one above; half of them begin with a guess of states."""
    starts = np.c_[np.random.default_rng(5).uniform(-0.5, 0.5, (16, 2)), np.zeros((16, 2))]
    problems = swing(limits=rg.Limits(torque=18.0, velocity=2.0), **options).batch(start=starts)
    for problem in problems[8:]:
        problem.update(guess="line")
    return problems


@needs_opencl
@pytest.mark.parametrize("which", SOLVERS)
def test_a_batch_of_sixteen_with_limits_on_pocl(which):
    problems = sixteen()
    for problem, ours, cpu in zip(
        problems,
        rg.solve(problems, SOLVERS[which](device="opencl")),
        rg.solve(problems),
        strict=True,
    ):
        check_like_cpu(problem, ours, cpu, 1e-6)
        assert np.abs(ours.u).max() <= 18.0


@needs_shim
def test_a_batch_of_sixteen_with_limits_is_its_problems_one_by_one(shim):
    device, solver = shim(blocks=3), rg.PDDP(device="cuda")
    problems = sixteen(steps=8)
    together = rg.solve(problems, solver)
    assert device.report.clean, device.report
    for k in (0, 7, 15):
        alone = rg.solve(problems[k], solver)
        assert (together[k].status, together[k].iterations) == (alone.status, alone.iterations)
        for name in ("x", "u", "gains", "multipliers"):
            np.testing.assert_array_equal(getattr(together[k], name), getattr(alone, name))
