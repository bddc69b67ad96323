"""The set-up of the direct method on a device (Plancher 2022, Algorithm 6): the Schur complement,
from one kernel or from two, and which of them is taken.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_control import p1
from test_gpu_cuda import needs_nvcc
from test_gpu_solvers import compiled, direct, needs_shim, reach, swing

import rigidgrad as rg
from rigidgrad.control import device_run
from rigidgrad.control.device import DeviceDirect
from rigidgrad.control.system import CustomSystem, RobotSystem
from rigidgrad.runtime import gpu_solver


def cart():
    """Two joints, one motor."""
    costs = [rg.costs.State(np.r_[0.3, 0.2, 0, 0], weight=0.1, final=10.0), rg.costs.Effort(1e-2)]
    system = RobotSystem(rg.load("cartpole"), actuation=[[2.0], [0.3]])
    return rg.Problem(system, start=np.zeros(4), steps=8, dt=0.03, costs=costs)


def need(problem, entry, dtype="float64"):
    return (
        device_run.solver_kernels(problem.programs).shared_numbers(entry, 0)
        * np.dtype(dtype).itemsize
    )


@pytest.fixture
def allow(monkeypatch):
    """Makes the choice as for a device with so many bytes of shared memory; other kernels of a
    small robot may have more.
    """
    return lambda limit: monkeypatch.setattr(
        gpu_solver.CudaSession, "shared_limit", lambda session: limit
    )


SET_UP = {
    "swing": swing,
    "explicit": lambda: swing(integrator="euler"),
    "reach": reach,
    "cart": cart,
}


@needs_shim
@pytest.mark.parametrize(
    ("make", "dtype"), [*((m, "float64") for m in SET_UP), ("swing", "float32")]
)
def test_the_set_up_is_the_schur_complement_fused_or_split(shim, allow, make, dtype):
    problem, accuracy = SET_UP[make](), 1e-11 if dtype == "float64" else 2e-5
    found = {}
    for name, less in (("fused", 0), ("split", 1)):
        device = shim()
        allow(need(problem, "solver_setup", dtype) - less)
        run = DeviceDirect([problem], direct(device="cuda", dtype=dtype))
        run.bring()
        run.begin()
        for _ in range(2):
            at = run.x.read()[0].astype(float), run.u.read()[0].astype(float)
            run.round()
        assert device.report.clean and run.more_stats(0)["set_up"] == name
        names = ("F", "g", "H", "d", "W", "phi", "gamma", "lam", "delta")
        found[name] = {k: getattr(run, k).read()[0].astype(float) for k in names}
        found[name]["F"][-1] = 0  # nothing moves from the last knot
        check_schur(found[name], problem, at, accuracy)
    for k in ("F", "g", "H", "W", "phi", "lam"):
        ours, other = (found[name][k] for name in found)
        assert abs(ours - other).max() <= 100 * accuracy * abs(other).max(), k


def check_schur(a, problem, at, accuracy):
    """S = C G⁻¹ Cᵀ and γ by dense matrices, from F, g and H; defects by the CPU's dynamics."""
    knots, n, z = a["F"].shape
    C, G = np.zeros((knots * n, knots * z)), np.zeros((knots * z, knots * z))
    for k in range(knots):
        C[k * n : (k + 1) * n, k * z : k * z + n] = np.eye(n)
        if k:
            C[k * n : (k + 1) * n, (k - 1) * z : k * z] = -a["F"][k - 1]
        G[k * z : (k + 1) * z, k * z : (k + 1) * z] = a["H"][k]
    last = slice(-(z - n), None)
    G[last, last] = np.eye(z - n)  # the last knot has no control
    theta = (C @ np.linalg.solve(G, C.T)).reshape(knots, n, knots, n)
    gamma, inverse = a["gamma"], a["phi"][:, 1]
    lam = a["lam"] - a["delta"]  # of before the conjugate gradients
    expected = a["d"].ravel() + C @ np.linalg.solve(G, a["g"].ravel() - C.T @ lam.ravel())
    close = {"rtol": 0, "atol": 1000 * accuracy * max(1.0, abs(expected).max())}
    np.testing.assert_allclose(gamma.ravel(), expected, **close)
    for k in range(knots):
        one = np.eye(n)
        np.testing.assert_allclose(inverse[k] @ theta[k, :, k], one, rtol=0, atol=1000 * accuracy)
        if k:
            np.testing.assert_allclose(
                a["W"][k, :n],
                theta[k, :, k - 1].T,
                rtol=0,
                atol=100 * accuracy * abs(theta).max(),
            )
            stair = -inverse[k] @ theta[k, :, k - 1] @ inverse[k - 1]
            np.testing.assert_allclose(
                a["phi"][k, 0].T, stair, rtol=0, atol=1000 * accuracy * max(1.0, abs(stair).max())
            )
    after, _ = problem.evaluate(at[0], at[1][:-1])
    defects = np.concatenate([[problem.start - at[0][0]], after - at[0][1:]])
    np.testing.assert_allclose(a["d"], defects, rtol=0, atol=accuracy * max(1.0, abs(at[0]).max()))


@needs_shim
def test_launches_of_an_iteration(shim, allow):
    later = dict.fromkeys(("row", "stair", "pcg", "recover", "propagate", "search", "judge"), 1)
    limit, cpu = need(swing(), "solver_setup"), rg.solve(swing()).cost
    for less, first in (
        (0, {"setup": 1}),
        (1, {"ahead": 1, "expand_thread_kernel": 1, "schur": 1}),
    ):
        counts = []
        for most in (1, 2, 100):
            device = shim()
            allow(limit - less)
            solution = rg.solve(swing(), direct(device="cuda", iterations=most))
            counts.append(
                {
                    k.removeprefix("run_").removeprefix("solver_"): n
                    for k, n in device.launches.items()
                }
            )
        assert {
            k: n - counts[0][k] for k, n in counts[1].items() if n != counts[0][k]
        } == first | later
        assert solution.stats["set_up"] == ("split" if less else "fused")
        assert solution.converged and solution.cost == pytest.approx(cpu, rel=1e-7)


def test_the_set_up_is_fused_where_a_block_has_room_for_it():
    kernels = device_run.solver_kernels(p1().programs)
    for dtype in ("float64", "float32"):
        assert kernels.fuses(dtype, 13 * 1024) and need(p1(), "solver_setup", dtype) <= 13 * 1024
        assert not kernels.fuses(dtype, need(p1(), "solver_setup", dtype) - 1)
    own = rg.Problem(
        CustomSystem(lambda x, u: (u[0],), nx=1, nu=1),
        start=[0.0],
        steps=5,
        dt=0.1,
        costs=[rg.costs.Effort(1.0)],
    )
    for other in (swing(integrator="rk4"), own):  # no step of a robot by Euler's methods
        assert not device_run.solver_kernels(other.programs).fuses("float32", 10**9)


@needs_nvcc
@pytest.mark.parametrize(
    ("arch", "dtype", "most"), [("sm_75", "float32", 168), ("sm_90", "float64", 232)]
)
def test_the_fused_set_up_of_the_arm_spills_no_register(tmp_path, arch, dtype, most):
    text = device_run.solver_kernels(p1().programs).setup_source("cuda", dtype, True)
    registers, spilled = compiled(tmp_path, text, arch)["solver_setup"]
    # with so many, as many blocks fit a processor as with 136 and 208
    assert registers <= most and spilled == 0


@pytest.mark.parametrize(
    ("name", "fused", "split"), [("iiwa14", 5.4, 3.0), ("hyq", 14.2, 7.9), ("atlas", 84.7, 45.0)]
)
def test_the_shared_memory_that_the_documentation_names(name, fused, split):
    robot = rg.load(name)
    x = np.zeros(robot.nq + robot.nv)
    problem = rg.Problem(
        robot,
        start=x,
        steps=2,
        dt=0.01,
        costs=[rg.costs.State(x, weight=1.0), rg.costs.Effort(1e-3)],
    )
    for kernel, kilobytes in (("solver_setup", fused), ("solver_schur", split)):
        assert need(problem, kernel, "float32") / 1024 == pytest.approx(kilobytes, abs=0.06)
