"""Solvers on a device: the CPU's optimum by PoCL and by the CUDA shim, batches, no races, and the
checker finds barriers that are taken away.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from gpu_shim.runner import CXX
from test_control import p1
from test_gpu_cuda import NVCC, needs_nvcc, resources

import rigidgrad as rg
from rigidgrad import errors, math
from rigidgrad.control import device_run
from rigidgrad.control.system import CustomSystem
from rigidgrad.targets.gpu import block_code

try:
    import pyopencl as cl

    OPENCL = bool([d for p in cl.get_platforms() for d in p.get_devices()])
except Exception:  # not installed, or no platform
    OPENCL = False
needs_opencl = pytest.mark.skipif(
    not OPENCL, reason="no OpenCL device: pip install pyopencl, apt-get install pocl-opencl-icd"
)
needs_shim = pytest.mark.skipif(not CXX, reason="there is no C++ compiler for the CUDA shim")

OPTIMUM = 23.234346  # of P1, as Crocoddyl and aligator find it
ACCURACY = {"float64": 1e-6, "float32": 1e-5}  # relatively, of the cost
# enough for that, so that the tests are short
ARM = {"pddp": {}, "direct": {"tolerance": 1e-6, "linear_tolerance": 1e-12}}


def pddp(**options):
    return rg.PDDP(**{"blocks": 2} | options)


def direct(**options):
    return rg.Direct(linear_solver="pcg", preconditioner="symmetric_stair", **options)


SOLVERS = {"pddp": pddp, "direct": direct}


def swing(steps=20, start=(0.0, 0.0), **options):
    """A double pendulum to a pose."""
    costs = [rg.costs.State(np.r_[1.0, -0.5, 0, 0], weight=0.1, final=100.0), rg.costs.Effort(1e-3)]
    return rg.Problem(
        rg.load("double_pendulum"),
        start=np.r_[start, 0, 0],
        steps=steps,
        dt=0.03,
        costs=costs,
        **options,
    )


def reach():
    """The end of a pendulum to a place: a cost that is not quadratic, and curved in few
    directions.
    """
    costs = [
        rg.costs.Reach("lower_rod", (1.2, 0.0, -1.2), offset=(0, 0, -1), weight=1.0, final=500.0),
        rg.costs.State(np.zeros(4), weight=0.01, final=0.1),
        rg.costs.Effort(1e-3),
    ]
    return rg.Problem(rg.load("double_pendulum"), start=np.zeros(4), steps=15, dt=0.04, costs=costs)


def check_feasible(problem, solution, tolerance):
    after, _ = problem.evaluate(solution.x, solution.u)
    np.testing.assert_allclose(
        after, solution.x[1:], rtol=0, atol=tolerance * max(1.0, abs(solution.x).max())
    )
    np.testing.assert_allclose(solution.x[0], problem.start, rtol=1e-6)


# --- the same optimum as on the CPU ---------------------------------------------------------------


@needs_opencl
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("which", SOLVERS)
def test_pocl_finds_the_optimum_of_the_arm(which, dtype):
    problem = p1()
    solution = rg.solve(problem, SOLVERS[which](device="opencl", dtype=dtype, **ARM[which]))
    assert solution.converged, solution
    assert abs(solution.cost - OPTIMUM) <= ACCURACY[dtype] * OPTIMUM
    check_feasible(problem, solution, 1e-10 if dtype == "float64" else 1e-5)
    if which == "pddp":
        assert solution.stats["history"][0] == pytest.approx(
            rg.solve(problem, rg.PDDP(iterations=0)).cost, rel=1e-5
        )


@needs_shim
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("which", SOLVERS)
def test_the_shim_finds_the_optimum_of_the_arm_without_races(shim, which, dtype):
    device = shim(effort="-O1")
    solution = rg.solve(p1(), SOLVERS[which](device="cuda", dtype=dtype, **ARM[which]))
    assert device.report.clean, device.report
    assert solution.converged, solution
    assert abs(solution.cost - OPTIMUM) <= ACCURACY[dtype] * OPTIMUM


@needs_shim
@pytest.mark.parametrize(
    "options",
    [{}, {"blocks": 3}, {"forward_blocks": 5}, {"backward_blocks": 2}, {"blocks": 20}],
    ids=str,
)
def test_shooting_blocks_agree_with_the_cpu(shim, options):
    device = shim()
    problem = swing()
    solution = rg.solve(problem, rg.PDDP(device="cuda", **options))
    cpu = rg.solve(problem, rg.PDDP(**options))
    assert device.report.clean and solution.converged
    check_feasible(problem, solution, 1e-12)
    exact = options.get("blocks", options.get("backward_blocks", 1)) == 1
    assert solution.cost == pytest.approx(rg.solve(problem).cost, rel=1e-8 if exact else 1e-6)
    if not options:  # step by step the same
        np.testing.assert_allclose(solution.stats["history"], cpu.stats["history"], rtol=1e-9)
        assert (
            solution.stats["steps"] == cpu.stats["steps"] and solution.iterations == cpu.iterations
        )
        np.testing.assert_allclose(solution.gains, cpu.gains, atol=1e-8)


@needs_opencl
@pytest.mark.parametrize(("blocks", "seed"), [(4, 0), (16, 0), (16, 1), (16, 2)])
def test_shooting_blocks_in_float32_need_no_more_iterations_than_the_cpu_in_float64(blocks, seed):
    """From starts that differ by rounding, too: where falls are lost in the rounding of costs,
    nothing is left to gain.
    """
    problem = p1()
    problem.start = problem.start + (
        1e-5 * np.random.default_rng(seed).normal(size=14) if seed else 0.0
    )
    cpu = rg.solve(problem, rg.PDDP(blocks=blocks, tolerance=1e-5))
    solution = rg.solve(problem, rg.PDDP(blocks=blocks, device="opencl", dtype="float32"))
    assert solution.converged and solution.iterations <= 1.5 * cpu.iterations
    assert abs(solution.cost - OPTIMUM) <= 1e-4 * OPTIMUM


@needs_opencl
@pytest.mark.parametrize("which", SOLVERS)
def test_a_point_reaches_its_place(which):
    problem = reach()
    cpu, solution = rg.solve(problem), rg.solve(problem, SOLVERS[which](device="opencl"))
    assert solution.converged and solution.cost == pytest.approx(cpu.cost, rel=1e-5)


@needs_shim
@pytest.mark.parametrize("which", SOLVERS)
def test_the_order_of_threads_changes_no_bit(shim, which):
    found = []
    for order in (0, 1):
        device = shim(order)
        found.append(rg.solve(swing(), SOLVERS[which](device="cuda")))
        assert device.report.clean
    assert all(
        np.array_equal(getattr(found[0], name), getattr(found[1], name))
        for name in ("x", "u", "gains")
    )


# --- batches --------------------------------------------------------------------------------------


@needs_shim
@pytest.mark.parametrize("blocks", [65535, 1])
@pytest.mark.parametrize("which", SOLVERS)
def test_a_batch_is_its_problems_one_by_one(shim, which, blocks):
    device = shim(blocks=blocks)  # with one block of threads, it takes all problems in turn
    problem, solver = swing(), SOLVERS[which](device="cuda")
    starts = np.random.default_rng(2).uniform(-1, 1, (3, 2))
    problems = problem.batch(start=np.c_[starts, np.zeros((3, 2))])
    # another length, another dt, and one that cannot begin
    problems += [swing(steps=7), swing(guess=np.full((20, 2), 1e200))]
    problems[0].update(dt=0.02)
    together = rg.solve(problems, solver)
    assert device.report.clean, device.report
    for one, solution in zip(problems, together, strict=True):
        alone = rg.solve(one, solver)
        assert solution.status == alone.status and solution.iterations == alone.iterations
        np.testing.assert_array_equal(solution.x, alone.x)
        np.testing.assert_array_equal(solution.gains, alone.gains)
    assert [s.status for s in together[:4]] == ["converged"] * 4
    assert together[4].status == (
        "diverged" if which == "pddp" else rg.solve(problems[4], direct()).status
    )


@needs_opencl
def test_a_batch_on_pocl():
    problems = swing().batch(
        start=np.c_[np.random.default_rng(3).uniform(-1, 1, (5, 2)), np.zeros((5, 2))]
    )
    for solver in (pddp(device="opencl"), direct(device="opencl")):
        for ours, cpu in zip(rg.solve(problems, solver), rg.solve(problems), strict=True):
            assert ours.converged and ours.cost == pytest.approx(cpu.cost, rel=1e-6)


# --- conjugate gradients with a block a knot ------------------------------------------------------


def check_same_bits(found, expected):
    for name in ("x", "u", "gains"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.stats["linear_iterations"] == expected.stats["linear_iterations"]


@needs_shim
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("processors", [128, 50])  # the latter have room for two trajectories
def test_blocks_of_knots_that_wait_for_each_other_give_the_same_bits(shim, order, processors):
    device = shim(order)
    device.properties.multiprocessor_count = processors
    starts = np.random.default_rng(2).uniform(-1, 1, (3, 2))
    problems = swing().batch(start=np.c_[starts, np.zeros((3, 2))])
    together = rg.solve(problems, direct(device="cuda", pcg_blocks="knot"))
    assert device.report.clean, device.report
    assert device.cooperative == (1 if processors > 60 else 2)  # recorded once, in a graph
    for ours, expected in zip(together, rg.solve(problems, direct(device="cuda")), strict=True):
        assert ours.converged
        check_same_bits(ours, expected)


@needs_opencl
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_launch_for_each_half_of_an_iteration_gives_the_same_bits(dtype):
    problems = swing().batch(start=np.array([[0.3, -0.2, 0, 0], [0.0, 1.0, 0, 0]]))
    found, expected = (
        rg.solve(problems, direct(device="opencl", dtype=dtype, pcg_blocks=blocks))
        for blocks in ("knot", "trajectory")
    )
    for ours, other in zip(found, expected, strict=True):
        assert ours.converged
        check_same_bits(ours, other)


@needs_shim
@pytest.mark.parametrize("number", [0, 1])
def test_a_barrier_of_blocks_that_is_taken_away_is_missed(shim, number):
    """Between blocks, numbers in global memory are watched."""
    meeting = "MEET_BLOCKS(meetings + problem, k == 0, KNOTS)"

    def change(text):
        parts = text.split(meeting)
        if len(parts) == 1:
            return text  # another of the sources
        return meeting.join([*parts[:number], "SYNC".join(parts[number : number + 2])]) + "".join(
            meeting + part for part in parts[number + 2 :]
        )

    for changed, clean in ((lambda text: text, True), (change, False)):
        device = shim(1, changed)
        options = {"iterations": 1, "linear_iterations": 3}
        rg.solve(swing(steps=6), direct(device="cuda", pcg_blocks="knot", **options))
        assert device.report.clean == clean, device.report
    assert device.report.races


@needs_shim
def test_blocks_that_some_never_meet_are_found(shim):
    """A knot that leaves its loop before the others."""

    def change(text):
        return text.replace(
            "if (ld(s, AT_NUMBERS + PCG_STOP) > 0) break;",
            "if (ld(s, AT_NUMBERS + PCG_STOP) > 0 || k == 2) break;",
        )

    device = shim(change=change)
    rg.solve(swing(steps=6), direct(device="cuda", pcg_blocks="knot", iterations=1))
    assert device.report.divergent and "never come" in device.report.message


@needs_shim
def test_more_knots_than_blocks_at_once_are_refused(shim):
    shim().properties.multiprocessor_count = 20
    with pytest.raises(errors.InputError, match=r"21 knots are more blocks than .* at once \(20\)"):
        rg.solve(swing(), direct(device="cuda", pcg_blocks="knot"))


# --- what ends a solve ----------------------------------------------------------------------------


@needs_shim
@pytest.mark.parametrize("which", SOLVERS)
def test_limits_of_iterations(shim, which):
    shim()
    problem, make = swing(), SOLVERS[which]
    for most in (0, 1, 2):
        solution = rg.solve(problem, make(device="cuda", iterations=most))
        assert solution.status == "iterations" and solution.iterations == most
        check_feasible(problem, solution, 1e-12)
    costs = [rg.solve(problem, make(device="cuda", iterations=most)).cost for most in (0, 1, 2, 3)]
    assert costs == sorted(costs, reverse=True)


@needs_opencl
def test_falls_that_stay_small_where_more_is_promised_are_called_slow():
    """Fuel: to Gauss and Newton, its cost is flat. On a device as on the CPU."""
    fuel = rg.costs.Custom(lambda x, u: (math.sqrt(math.sqrt(u[0] * u[0] + 0.01)),), weight=0.1)
    system = CustomSystem(lambda x, u: (x[1], u[0]), nx=2, nu=1)
    problem = rg.Problem(
        system,
        start=[1.0, 0.0],
        steps=20,
        dt=0.1,
        costs=[rg.costs.State([0.0, 0.0], weight=0.01, final=10.0), fuel],
    )
    cpu, ours = (
        rg.solve(problem, rg.PDDP(tolerance=1e-2, device=device)) for device in (None, "opencl")
    )
    assert ours.status == cpu.status == "slow" and ours.iterations == cpu.iterations < 100
    assert ours.cost == pytest.approx(cpu.cost, rel=1e-9)


@needs_shim
def test_a_control_that_costs_nothing_is_said_to_be_singular(shim):
    shim()
    system = CustomSystem(lambda x, u: (u[0],), nx=1, nu=2)  # the second control does nothing
    problem = rg.Problem(
        system,
        start=[0.0],
        steps=5,
        dt=0.1,
        costs=[rg.costs.State([1.0], weight=1.0), rg.costs.Effort([1.0, 0.0])],
    )
    assert (
        rg.solve(problem).status == "singular" == rg.solve(problem, rg.PDDP(device="cuda")).status
    )
    useful = rg.Problem(
        system,
        start=[0.0],
        steps=5,
        dt=0.1,
        costs=[rg.costs.State([1.0], weight=1.0), rg.costs.Effort([1.0, 0.1])],
    )
    assert rg.solve(useful, rg.PDDP(device="cuda")).cost == pytest.approx(
        rg.solve(useful).cost, rel=1e-12
    )


@needs_shim
def test_a_guess_of_states_is_taken_by_the_direct_method(shim):
    shim()
    x = np.linspace(np.zeros(4), np.r_[1.0, -0.5, 0, 0], 21)
    problem = swing(guess=(x, np.zeros((20, 2))))
    solution = rg.solve(problem, direct(device="cuda"))
    assert solution.converged and solution.cost == pytest.approx(rg.solve(swing()).cost, rel=1e-7)


# --- the checker finds what it must ---------------------------------------------------------------

BARRIERS = re.compile(r"^ +SYNC(_ALL)?\b", re.M)
# file of the code, or function of a rendered kernel; number of the barrier in it
REMOVED = [
    ("solver_ddp", 1),  # behind a knot
    ("solver_ddp", 2),  # before the next knot, where a block begins
    ("solver_ddp", 5),  # along the consensus sweep
    ("backward_knot", 0),  # before the products with V F
    ("backward_knot", 2),  # before H_uu is regularised
    ("backward_knot", 5),  # before the solution
    ("consensus_knot", 0),  # before dx goes on
    ("schur_knot", 0),  # before Q is factored
    ("schur_knot", 4),  # before the products
    ("schur_row", 0),  # before θ is factored
    ("schur_stair", 0),  # between two products
    ("schur_recover", 1),  # before the inverses
    ("schur_propagate", 0),  # before dx goes on
    ("solver_fused", 0),  # before the dynamics
    ("solver_fused", 1),  # after the dynamics
    ("solver_fused", 3),  # before the costs
    ("solver_fused", 5),  # before H is changed
    ("conjugate_gradients", 5),  # before the search direction is multiplied
    ("conjugate_gradients", 6),  # before Cᵀp is
    ("conjugate_gradients", 12),  # before the residual is preconditioned
    ("solver", 0),  # in a sum
]


def without_barrier(name, number):
    """A text without a barrier of a file of the code, or of a function."""
    file = block_code.CODE / f"{name}.h"

    def change(text):
        start = text.find(f"DEVICE void {name}(")
        if file.exists():
            code = file.read_text()
        elif start >= 0:
            code = text[start : text.index("\n}", start)]
        else:
            return text  # another of the sources
        place = list(BARRIERS.finditer(code))[number]
        return text.replace(code, code[: place.start()] + code[place.end() :])

    return change


@needs_shim
@pytest.mark.parametrize(("name", "number"), REMOVED)
def test_a_barrier_that_is_taken_away_is_missed(shim, name, number):
    which = (
        "pddp" if name in ("solver", "solver_ddp", "backward_knot", "consensus_knot") else "direct"
    )
    for change, clean in ((lambda text: text, True), (without_barrier(name, number), False)):
        device = shim(1, change, blocks=1)
        rg.solve(
            swing(steps=6).batch(start=np.eye(4)[:2]),
            SOLVERS[which](device="cuda", iterations=2),
        )
        assert device.report.clean == clean, device.report


@needs_shim
def test_the_barrier_of_global_memory_is_missed(shim):
    """The checker does not see global memory; the order of threads does."""
    costs = []
    for order in (0, 1):
        shim(order, without_barrier("solver_ddp", -1))
        costs.append(rg.solve(swing(), pddp(blocks=4, device="cuda")).cost)
    assert costs[0] != costs[1]


# --- compilers ------------------------------------------------------------------------------------


def compiled(folder, text, arch):
    """{kernel: (registers, bytes spilled)}, without warnings."""
    source = folder / "kernels.cu"
    source.write_text(text)
    command = [
        NVCC,
        "-cubin",
        "-arch",
        arch,
        "-std=c++17",
        "-Xptxas",
        "-v",
        "-o",
        folder / "x.cubin",
        source,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "warning" not in done.stderr.lower(), done.stderr[:2000]
    return resources(done.stderr)


@needs_nvcc
@pytest.mark.parametrize(("arch", "dtype"), [("sm_80", "float32"), ("sm_120", "float64")])
def test_nvcc_takes_the_kernels_without_warnings(tmp_path, arch, dtype):
    kernels = device_run.solver_kernels(swing().programs, direct=True)
    assert set(compiled(tmp_path, kernels.source("cuda", dtype), arch)) == set(kernels.entries())
    assert set(compiled(tmp_path, kernels.gradients_source("cuda", dtype, 64), arch)) == {
        "solver_pcg"
    }
    assert set(
        compiled(tmp_path, kernels.gradients_source("cuda", dtype, 64, "knot", True), arch)
    ) == {"solver_pcg_knots"}
    for fused in (True, False):
        assert set(compiled(tmp_path, kernels.setup_source("cuda", dtype, fused), arch)) == set(
            kernels.setup_entries(fused)
        )


def test_shared_memory_is_what_the_code_asks_for():
    """ARENA's sizes, as the compiler sees them, are those that the host counts with."""
    kernels = replace(device_run.solver_kernels(swing().programs, direct=True), bounded=True)
    parts = [
        kernels.source("opencl", "float64"),
        *(kernels.setup_source("opencl", "float64", fused) for fused in (True, False)),
    ]
    text = "".join([*parts, kernels.gradients_source("opencl", "float64", 21)])
    text += kernels.gradients_source("opencl", "float64", 21, "knot")
    sizes = {"ND": kernels.ndx, "NZ": kernels.ndx + kernels.nu, "SQUARE": kernels.ndx**2}
    sizes |= {k: int(v) for k, v in re.findall(r"#define (\w+_NUMBERS) (\d+)", text) if int(v)}
    found = re.findall(r"KERNEL THREADS\(\w+\) (\w+)\([^{]*\{\s*ARENA\(\w+, ([^)]+)\)", text)
    assert len(found) == 18  # roll-outs have none, rows and the stair come with both set-ups
    for entry, size in found:
        assert eval(size, {}, sizes) == kernels.shared_numbers(entry, 21), entry


# --- what is not there ----------------------------------------------------------------------------


def test_what_a_device_does_not_solve_is_said():
    with pytest.raises(errors.InputError, match="'cuda' or 'opencl'"):
        rg.PDDP(device="tpu")
    with pytest.raises(errors.InputError, match="at most 32 step sizes"):
        rg.PDDP(device="cuda", alphas=33)
    with pytest.raises(errors.InputError, match="symmetric_stair"):
        rg.Direct(device="cuda")
    with pytest.raises(errors.InputError, match="pcg_blocks is 'trajectory' or 'knot', not 'row'"):
        direct(device="cuda", pcg_blocks="row")
    with pytest.raises(errors.InputError, match="option of devices"):
        direct(pcg_blocks="knot")
    with pytest.raises(errors.InputError, match="on a device, 'float32'"):
        rg.Direct(dtype="float32")
    with pytest.raises(errors.InputError, match="leave device out"):
        rg.MPC(swing(), rg.PDDP(device="opencl"), period=0.01)
    with pytest.raises(errors.InputError, match="more than the problem's 20 steps"):
        rg.solve(swing(), rg.PDDP(device="opencl", blocks=21))


@needs_shim
def test_too_little_shared_memory_is_said(shim, monkeypatch):
    monkeypatch.setattr(shim(), "shared_limit", lambda: 1000)
    with pytest.raises(errors.InputError, match="bytes of shared memory"):
        rg.solve(swing(), rg.PDDP(device="cuda"))
