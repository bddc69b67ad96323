"""Generated solvers, built by a C compiler and called from here."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np

from rigidgrad import solver_code
from rigidgrad.targets.c_solver.header import STATUSES

FLAGS = ["-std=c99", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
NATIVE = ["-march=native"]
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]


def compiled(folder: Path, name: str, *flags: str, compiler: str = "gcc", more=()) -> Path:
    """A shared library of a folder of generated files."""
    library = folder / f"lib{name}_{compiler}.so"
    sources = [str(folder / f"{name}.c"), *map(str, more)]
    subprocess.run(
        [compiler, *FLAGS, *flags, "-shared", "-fPIC", *sources, "-o", str(library), "-lm"],
        check=True,
    )
    return library


class Solver:
    """A built solver of a problem, as `rg.solve` is called."""

    def __init__(self, library: Path, name: str, problem, options):
        self.code, self.name = ctypes.CDLL(str(library)), name
        p = self.parts = solver_code.parts_of(problem, options)
        N, nx, m, n = p.steps, p.nx, p.nu, p.ndx
        d = ctypes.c_double
        rows = [("start", d * nx), ("h", d * N), ("u", d * (N * m))]
        rows += [("x", d * ((N + 1) * nx))] if p.gaps else []
        rows += [("lower", d * (N * m)), ("upper", d * (N * m))] if p.layout.bounded else []
        rows += [("knot", d * ((N + 1) * p.parameters))]
        rows += [("learnt", ctypes.c_int)] if p.controlled else []
        self.Numbers = type("Numbers", (ctypes.Structure,), {"_fields_": rows})
        found = [("status", ctypes.c_int), ("iterations", ctypes.c_long)]
        found += [("cost", d), ("expected", d), ("violation", d)]
        found += [("x", d * ((N + 1) * nx)), ("u", d * (N * m)), ("K", d * (N * m * n))]
        self.Solution = type("Solution", (ctypes.Structure,), {"_fields_": found})
        self.numbers, self.solution = self.Numbers(), self.Solution()
        memory = self.function("memory", ctypes.c_size_t)
        self.memory = ctypes.create_string_buffer(memory())
        init = self.function("init", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        self.solver = init(self.memory, memory())
        assert self.solver
        self._solve = self.function("solve", ctypes.c_int, *[ctypes.c_void_p] * 3)
        self.function("defaults", None, ctypes.c_void_p)(ctypes.byref(self.numbers))

    def function(self, name: str, result, *arguments):
        found = getattr(self.code, f"{self.name}_{name}")
        found.restype, found.argtypes = result, arguments
        return found

    def __getitem__(self, name: str) -> np.ndarray:
        """Numbers that may be set, as an array that is theirs."""
        return np.ctypeslib.as_array(getattr(self.numbers, name))

    def set(self, problem) -> None:
        """All numbers of a problem."""
        self["start"][:], self["h"][:], self["u"][:] = (
            problem.start,
            problem.h,
            problem.guess.ravel(),
        )
        if self.parts.gaps:
            self["x"][:] = problem.guess_states.ravel()
        if self.parts.layout.bounded:
            self["lower"][:], self["upper"][:] = (b.ravel() for b in problem.bounds)
        self["knot"][:] = problem.p.ravel()

    def solve(self):
        self._solve(self.solver, ctypes.byref(self.numbers), ctypes.byref(self.solution))
        p, s = self.parts, self.solution
        return (
            STATUSES[s.status],
            s.iterations,
            s.cost,
            np.array(s.x).reshape(p.steps + 1, p.nx),
            np.array(s.u).reshape(p.steps, p.nu),
            np.array(s.K).reshape(p.steps, p.nu, p.ndx),
        )


def differences(found, solution) -> list[str]:
    """In what a generated solver and Python's solution are not the same, to the last bit."""
    status, iterations, cost, x, u, K = found
    same = {
        "status": status == solution.status,
        "iterations": iterations == solution.iterations,
        "cost": cost == solution.cost or (np.isinf(cost) and np.isinf(solution.cost)),
        "x": np.array_equal(x, solution.x, equal_nan=True),
        "u": np.array_equal(u, solution.u, equal_nan=True),
        "K": np.array_equal(K, solution.gains, equal_nan=True),
    }
    return [name for name, fine in same.items() if not fine]
