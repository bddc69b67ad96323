"""A whole solver for CUDA: nvcc takes it, and on the CPU behind the shim it finds what `rg.solve`
finds, of many problems at once, with every access to shared memory checked.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import pytest
from gpu_shim.runner import CXX, HERE
from hopper import START, foot, hopper, stance_costs
from test_c_direct import swing
from test_c_solver import starts_of
from test_gpu_cuda import NVCC, needs_nvcc

import rigidgrad as rg
from rigidgrad.errors import InputError
from rigidgrad.targets.c_solver.header import STATUSES

needs_cxx = pytest.mark.skipif(not CXX, reason="there is no C++ compiler for the CUDA shim")


def flight() -> rg.Problem:
    """A quadrotor to a point: on a manifold, with rotors that only push."""
    start = np.r_[0, 0, 1, 0, 0, 0, 1, np.zeros(6)].astype(float)
    goal = np.r_[0.5, 0.3, 1.2, start[3:]]
    costs = [rg.costs.State(goal, weight=1.0, final=100.0), rg.costs.Effort(0.1)]
    limits = rg.Limits(torque=True)
    return rg.Problem(rg.load("quadrotor"), start, steps=12, dt=0.05, costs=costs, limits=limits)


class Batch:
    """A generated solver on the shim, of so many problems."""

    def __init__(self, problem: rg.Problem, options: rg.PDDP, folder, count: int):
        rg.generate(problem, options, target="cuda", out=folder, name="swing")
        (folder / "swing.cpp").write_text((folder / "swing.cu").read_text())
        include = ["-I", HERE / "fake", "-I", folder]
        flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-w", "-shared", "-fPIC"]
        library = folder / "swing.so"
        subprocess.run([CXX, *flags, *include, "-o", library, folder / "swing.cpp"], check=True)
        self.code, self.count, self.problem = ctypes.CDLL(str(library)), count, problem
        d, s, N = ctypes.c_double, problem.system, problem.steps
        rows = [("start", d * s.nx), ("h", d * N), ("u", d * (N * s.nu))]
        if problem.programs.bounded:
            rows += [("lower", d * (N * s.nu)), ("upper", d * (N * s.nu))]
        rows += [("knot", d * problem.p.size)]
        Numbers = type("Numbers", (ctypes.Structure,), {"_fields_": rows})
        found = [("status", ctypes.c_int), ("iterations", ctypes.c_long), ("cost", d)]
        found += [("x", d * ((N + 1) * s.nx)), ("u", d * (N * s.nu)), ("K", d * (N * s.nu * s.ndx))]
        Solution = type("Solution", (ctypes.Structure,), {"_fields_": found})
        self.numbers, self.solutions = (Numbers * count)(), (Solution * count)()
        self.solver = ctypes.c_void_p()
        assert self.code.swing_init(ctypes.byref(self.solver), count) == 0
        for one in self.numbers:
            self.code.swing_defaults(ctypes.byref(one))

    def solve(self, starts: list[np.ndarray], guesses: list[np.ndarray]):
        for one, start, u in zip(self.numbers, starts, guesses, strict=True):
            np.ctypeslib.as_array(one.start)[:] = start
            np.ctypeslib.as_array(one.u)[:] = u.ravel()
        assert self.code.swing_solve(self.solver, self.numbers, self.solutions) == 0
        return self.solutions


@needs_cxx
@pytest.mark.parametrize(
    ("make", "options", "nearest"),
    [
        (swing, {}, 1e-9),
        (lambda: swing(torque=3.0), {}, 1e-9),
        (lambda: swing(torque=3.0), {"blocks": 4, "tolerance": 1e-12}, 1e-5),
        (lambda: swing(torque=3.0), {"dtype": "float32"}, 1e-3),
        (swing, {"second_order": True}, 1e-6),
        (flight, {}, 1e-7),
    ],
    ids=["free", "torque", "blocks", "float32", "second order", "flight"],
)
def test_a_batch_finds_what_python_finds(make, options, nearest, tmp_path):
    problem, solver = make(), rg.PDDP(**options)
    starts = starts_of(problem, 4, 0.3, 0.2)
    batch = Batch(problem, solver, tmp_path, len(starts))
    for moved in (0.0, 0.05):  # numbers change from solve to solve, and nothing else is left
        guesses, expected = [], []
        for start in starts:
            problem.update(start=start + moved * (np.arange(len(start)) == 0))
            guesses.append(problem.guess.copy())
            expected.append(rg.solve(problem, rg.PDDP(second_order="second_order" in options)))
        found = batch.solve([e.x[0] for e in expected], guesses)
        for f, e in zip(found, expected, strict=True):
            assert STATUSES[f.status] == "converged" == e.status
            np.testing.assert_allclose(np.array(f.x).reshape(e.x.shape), e.x, rtol=0, atol=nearest)
            np.testing.assert_allclose(f.cost, e.cost, rtol=nearest)
            assert np.isfinite(np.array(f.K)).all() and f.iterations >= 1
    if problem.programs.bounded and make is not flight:
        assert max(abs(np.array(f.u)).max() for f in found) == 3.0
    batch.code.swing_free(batch.solver)


@needs_cxx
def test_one_that_runs_away_leaves_the_others_alone(tmp_path):
    problem = swing()
    batch = Batch(problem, rg.PDDP(), tmp_path, 2)
    starts, guesses = [np.zeros(4)] * 2, [np.full((20, 2), 1e200), problem.guess]
    found = batch.solve(starts, guesses)
    assert [STATUSES[f.status] for f in found] == ["diverged", "converged"]
    assert batch.code.swing_init(ctypes.byref(ctypes.c_void_p()), 0) == -1
    batch.code.swing_free(batch.solver)


@needs_cxx
def test_the_example_runs_and_the_checker_finds_nothing(tmp_path):
    rg.generate(swing(torque=3.0), rg.PDDP(), target="cuda", out=tmp_path, name="swing")
    (tmp_path / "swing.cpp").write_text((tmp_path / "swing.cu").read_text())
    include = ["-I", HERE / "fake", "-I", tmp_path]
    files = [tmp_path / "main.cpp", tmp_path / "swing.cpp"]
    command = [CXX, "-std=c++17", "-O0", "-w", *include, *files, "-o", tmp_path / "run"]
    subprocess.run(command, check=True)
    ran = subprocess.run([tmp_path / "run"], capture_output=True, text=True, check=True)
    assert "left over: 0 allocations, 0 streams" in ran.stdout
    assert "races 0, unwritten 0, outside 0, divergent 0" in ran.stdout


@needs_nvcc
@pytest.mark.parametrize("make", [lambda: swing(torque=3.0), flight], ids=["swing", "flight"])
def test_nvcc_takes_it_without_warnings(make, tmp_path):
    rg.generate(make(), rg.PDDP(blocks=2), target="cuda", out=tmp_path, name="swing")
    command = [NVCC, "-std=c++17", "-arch", "sm_80", "--Werror", "all-warnings", "-c"]
    done = subprocess.run(
        [*command, tmp_path / "swing.cu", "-o", tmp_path / "swing.o"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "warning" not in done.stderr.lower(), done.stderr[:2000]
    listed = subprocess.run(["nm", tmp_path / "swing.o"], capture_output=True, text=True)
    assert " T swing_solve" in listed.stdout
    if compiler := shutil.which("g++"):
        header = [compiler, "-x", "c", "-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        subprocess.run([*header, tmp_path / "swing.h"], check=True)


def test_what_is_not_written_for_cuda_is_told(tmp_path):
    limited = swing(position=(-0.7, 0.7))
    stance = rg.Problem(
        hopper(),
        START,
        phases=[rg.Phase(5, [foot()], stance_costs(0.05), dt=0.02)],
        actuation=["hip", "knee"],
    )
    for problem, options, word in (
        (limited, rg.PDDP(), "constraints"),
        (stance, rg.PDDP(), "controls"),
        (swing(), rg.Direct(), "PDDP"),
        (swing(), rg.PDDP(form="inverse"), "form"),
        (swing(), rg.PDDP(blocks=50), "blocks"),
    ):
        with pytest.raises(InputError, match=word):
            rg.generate(problem, options, target="cuda", out=tmp_path)
    mpc = rg.MPC(swing(), rg.PDDP(iterations=1))
    with pytest.raises(InputError, match='target="c"'):
        rg.generate(mpc, target="cuda", out=tmp_path)
    assert not list(tmp_path.iterdir())
