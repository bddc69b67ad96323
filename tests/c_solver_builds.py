"""Generated solvers, built by a C compiler and called from here."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np

import rigidgrad as rg
from rigidgrad import solver_code
from rigidgrad.errors import FallenError
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


COUNTS = (
    *("plans", "missing", "clock", "kept", "cold", "held", "late", "violated", "iterations"),
    *("fallen", "slips"),
)
SHARED = ("missing", "clock", "kept", "cold", "held", "late", "violated", "fallen", "slips")


class Controller:
    """A built controller, as `rg.MPC` is called; its name is "swing"."""

    def __init__(self, mpc: rg.MPC, folder, name: str, *flags: str):
        rg.generate(mpc, target="c", out=folder, name=name)
        self.code = ctypes.CDLL(str(compiled(folder, name, *NATIVE, *flags)))
        self.header = (folder / f"{name}.h").read_text()
        self.name, self.nu, self.steps = name, mpc.system.nu, mpc.problem.steps
        self.nx = mpc.system.nx
        size = self.function("mpc_memory", ctypes.c_size_t)()
        self.memory = ctypes.create_string_buffer(size)
        init = self.function("mpc_init", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        self.mpc = init(self.memory, size)
        pointer = np.ctypeslib.ndpointer(float)
        arguments = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double, pointer)
        self._step = self.function("mpc_step", None, *arguments)

    def function(self, name, result, *arguments):
        found = getattr(self.code, f"{self.name}_{name}")
        found.restype, found.argtypes = result, arguments
        return found

    def reset(self) -> None:
        self.function("mpc_reset", None, ctypes.c_void_p)(self.mpc)

    def step(self, x, t: float) -> np.ndarray:
        u = np.zeros(self.nu)
        x = None if x is None else np.ascontiguousarray(x, dtype=float)
        self._step(self.mpc, None if x is None else x.ctypes.data, t, u)
        return u

    @property
    def knots(self) -> np.ndarray:
        """The numbers of all knots, (knots, numbers), as an array that is theirs."""
        head = self.nx + self.steps * (1 + self.nu)
        head += (self.steps + 1) * self.nx * ("states; x[0] is the start" in self.header)
        head += 2 * self.steps * self.nu * ("upper[SWING_STEPS][SWING_NU]" in self.header)
        width = sum(size for _, size in self.members)
        d = ctypes.POINTER(ctypes.c_double)
        numbers = self.function("mpc_numbers", d, ctypes.c_void_p)(self.mpc)
        all_ = np.ctypeslib.as_array(numbers, (head + (self.steps + 1) * width,))
        return all_[head:].reshape(-1, width)

    @property
    def members(self) -> list[tuple[str, int]]:
        """Of a knot, with their sizes, as the header has them."""
        text = self.header[self.header.index("typedef struct swing_knot {") :]
        found = re.findall(r"double (\w+)\[(\d+)\];", text[: text.index("} swing_knot")])
        return [(member, int(size)) for member, size in found]

    def numbers(self, name: str, value: float) -> None:
        """Sets a number of all knots, where the header says that it is."""
        names = [member for member, size in self.members for _ in range(size)]
        self.knots[:, np.array(names) == name] = value

    def steer_by(self, target, problem: rg.Problem) -> None:
        """What steers an `rg.MPC` writes the numbers of this one."""
        problem = problem.private_copy()
        problem.p = self.knots
        sizes = (self.steps + 1) * self.nx, self.steps * self.nu

        def steer(_, start, begin, numbers):
            problem.start = np.array(start[: self.nx])
            try:
                target.steer(problem, begin)
            except FallenError:
                return 0
            return 1

        def accepts(_, x, u):
            rows = np.array(x[: sizes[0]]), np.array(u[: sizes[1]])
            return int(
                target.accepts(
                    problem,
                    *(r.reshape(-1, n) for r, n in zip(rows, (self.nx, self.nu), strict=True)),
                )
            )

        d, any_ = ctypes.POINTER(ctypes.c_double), ctypes.c_void_p
        self._steering = (
            ctypes.CFUNCTYPE(ctypes.c_int, any_, d, ctypes.c_double, any_)(steer),
            ctypes.CFUNCTYPE(ctypes.c_int, any_, d, d)(accepts),
        )
        kinds = map(type, self._steering)
        self.function("mpc_set_steering", None, any_, *kinds, any_)(self.mpc, *self._steering, None)

    def forces(self, k: int, x: np.ndarray, u: np.ndarray, rows: int) -> np.ndarray:
        """Of the contacts in a step of the last plan."""
        pointer, found = np.ctypeslib.ndpointer(float), np.zeros(rows)
        ask = self.function("mpc_forces", None, ctypes.c_void_p, ctypes.c_int, *[pointer] * 3)
        ask(self.mpc, k, np.ascontiguousarray(x), np.ascontiguousarray(u), found)
        return found

    @property
    def counts(self) -> dict[str, int]:
        found = self.function("mpc_counts", ctypes.POINTER(ctypes.c_long), ctypes.c_void_p)
        return dict(zip(COUNTS, found(self.mpc)[: len(COUNTS)], strict=True))

    @property
    def plan(self) -> np.ndarray:
        d = ctypes.POINTER(ctypes.c_double)
        ask = self.function("mpc_plan", d, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        start, u = ctypes.c_double(), d()
        x = ask(self.mpc, ctypes.byref(start), ctypes.byref(u))
        return np.array(x[: (self.steps + 1) * self.nx]).reshape(-1, self.nx)
