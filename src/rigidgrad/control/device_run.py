"""Trajectories on a device: what both solvers there share.

The host only launches kernels; each problem keeps its own account (status, cost, regularisation, …) on the device, takes its own steps and ends when it has ended. A
round is an iteration or a refused one; problems that have ended sit the other rounds out.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from rigidgrad.control.integrators import is_structured, linearize, step
from rigidgrad.control.problem import Problem
from rigidgrad.control.programs import Programs
from rigidgrad.control.riccati import trouble
from rigidgrad.control.solution import Solution
from rigidgrad.control.system import RobotSystem
from rigidgrad.errors import InputError
from rigidgrad.program.fuse import fuse
from rigidgrad.program.order import best_order
from rigidgrad.program.recorder import record
from rigidgrad.runtime.gpu_solver import CHOICES, CONTROL, OPTIONS, STATUS, Numbers, RobotStep, Session, SolverKernels, open_session

_REGISTERS = 200
_KNOWN = {"float64": 0.0, "float32": 1e-5}  # how well the cost of a trajectory is known, relatively
_DOUBTFUL = 4.0  # a fall of so many times that may be lost in the difference of two costs
BEGIN, RUNNING, DIVERGED, TROUBLE = (STATUS.index(word) for word in ("begin", "running", "diverged", "trouble"))


_kernels: weakref.WeakKeyDictionary[Programs, SolverKernels] = weakref.WeakKeyDictionary()
_sessions: weakref.WeakKeyDictionary[Programs, dict[tuple, tuple[Session, bool]]] = weakref.WeakKeyDictionary()


def solver_kernels(programs: Programs) -> SolverKernels:
    """What is rendered for a system, an integrator and costs. The last knot is one like the others: costs of the control have no weight there."""
    if programs not in _kernels:
        s = programs.system
        n, z = s.nx, s.nx + s.nu

        def expand(a: dict[str, Any]) -> tuple:
            moved, A, B = linearize(programs.given(a["p"]), programs.integrator, a["x"], a["u"], a["h"])
            q = programs.expand(a["x"], a["u"], a["p"])
            F = tuple((*x, *y) for x, y in zip(A, B, strict=True))
            columns = list(zip(*q.lux, strict=True)) if q.lux else [()] * n
            H = [(*x, *y) for x, y in zip(q.lxx, columns, strict=True)] + [(*x, *y) for x, y in zip(q.lux, q.luu, strict=True)]
            return moved, F, (*q.lx, *q.lu), tuple(H)

        def knot(a: dict[str, Any]) -> tuple:
            return step(programs.given(a["p"]), programs.integrator, a["x"], a["u"], a["h"]), programs.values(a["x"], a["u"], a["p"])[0]

        inputs = {"x": (n,), "u": (s.nu,), "h": (), "p": (programs.parameters,)}
        outputs = {"next": (n,), "F": (n, z), "g": (z,), "H": (z, z)}
        _kernels[programs] = SolverKernels(
            best_order(fuse(record(inputs, outputs, expand)), _REGISTERS),
            best_order(fuse(record(inputs, {"next": (n,), "cost": ()}, knot)), _REGISTERS),
            _robot_step(programs),
        )
    return _kernels[programs]


def _robot_step(programs: Programs) -> RobotStep | None:
    """The step, if blocks of threads can compute it."""
    s = programs.system
    if not (isinstance(s, RobotSystem) and is_structured(s, programs.integrator)) or s.model.has_mimic or s.inputs or not s.model.joints:
        return None
    return RobotStep(s.model, programs.integrator == "semi_implicit_euler", s.actuation)


class DeviceRun:
    """Trajectories of problems of one kind on a device: arrays, the kernels that both solvers use, and the account of each problem."""

    direct = False

    def __init__(self, problems: Sequence[Problem], options: Any, shooting: int, blocks: int, step_sizes: np.ndarray, simulated: int):
        first = problems[0]
        self._check(first, options.device)
        self.problems, self.options = problems, options
        self.shooting, self.blocks, self.step_sizes, self.simulated = shooting, blocks, step_sizes, simulated
        self.count, self.steps, self.knots = len(problems), first.steps, first.steps + 1
        self.kernels = solver_kernels(first.programs)
        self.session, self.fused = self._open(first.programs)
        P, K, n, m, z = self.count, self.knots, self.kernels.nx, self.kernels.nu, self.kernels.nx + self.kernels.nu
        a = self.session.array
        self.x, self.u, self.h, self.p = a(P, K, n), a(P, K, m), a(P, K), a(P, K, first.p.shape[1])
        self.next, self.F, self.g, self.H = a(P, K, n), a(P, K, n, z), a(P, K, z), a(P, K, z, z)
        self.gap, self.step = a(P, K, n), a(P, K, z)
        self.gains, self.closed = a(P, K, m, n + 1), a(P, K, n, n + 1)
        self.end, self.start, self.fine = a(P, blocks, n + 1, n), a(P, blocks, n + 1, n), a(P, blocks)
        self.X, self.U = a(P, simulated, K, n), a(P, simulated, K, m)
        self.C, self.D = a(P, simulated, shooting), a(P, simulated, shooting, n)
        self.alphas, self.none = a(len(step_sizes)), a(1)  # the latter: a step size of 0
        self.control, self.numbers = a(P, len(CONTROL)), a(len(OPTIONS))
        self.history: list[list[float]] = [[] for _ in problems]
        self.steps_taken: list[list[float]] = [[] for _ in problems]
        self.defects: list[list[float]] = [[] for _ in problems]
        self.account = np.zeros((P, len(CONTROL)))

    def _check(self, problem: Problem, device: str) -> None:
        where = f"device={device!r} solves problems"
        if problem.constraints or problem.programs.bounded:
            raise InputError(f"{where} without limits: leave limits out, or solve on the CPU (device=None)")
        if not problem.system.flat:
            raise InputError(f"{where} of robots with a fixed base and joints without quaternions: solve this one on the CPU (device=None)")
        if self.direct and solver_kernels(problem.programs).couples:
            raise InputError(
                "the direct method on a device is for costs that do not couple states and controls, as Effort(reference='gravity') does: "
                "take rg.PDDP, or the CPU (device=None)"
            )

    def _open(self, programs: Programs) -> tuple[Session, bool]:
        """A session with the kernels, which stays with the programs; and whether the set-up of the direct method is fused, which depends on the device's memory."""
        o = self.options
        kept = _sessions.setdefault(programs, {})
        key = (o.device, o.dtype, self.direct, self.knots if self.direct else 0)
        if key not in kept:
            session, size = open_session(o.device, o.dtype), np.dtype(o.dtype).itemsize
            k = self.kernels

            def entries(*names: str) -> dict[str, tuple[int, int]]:
                return {name: (k.threads(name), k.shared_numbers(name, self.knots) * size) for name in names}

            session.load(k.source(session.language, o.dtype, self.direct), entries(*k.entries(self.direct)))
            fused = self.direct and k.fuses(o.dtype, session.shared_limit())
            if self.direct:
                session.load(k.setup_source(session.language, o.dtype, fused), entries(*k.setup_entries(fused)))
                session.load(k.gradients_source(session.language, o.dtype, self.knots), entries("solver_pcg"))
            kept[key] = session, fused
        return kept[key]

    def write_options(self, **own: float) -> None:
        """Those of both solvers, and those of one."""
        o = self.options
        options = {
            "tolerance": max(o.tolerance, _KNOWN[o.dtype]),
            "accept_low": o.accept[0],
            "accept_high": o.accept[1],
            "rho_low": o.regularization[0],
            "rho_high": o.regularization[1],
            "choose": CHOICES.index(o.choose),
            "most": o.iterations,
            "rounding": 2.0 * float(np.finfo(o.dtype).eps),
            "doubtful": _DOUBTFUL * _KNOWN[o.dtype],
        } | own
        self.numbers.write(np.array([options.get(name, 0.0) for name in OPTIONS]))

    # --- what happens in a round -----------------------------------------------------------------------------------------------------

    def launch(self, entry: str, items: int, *arguments: Any) -> None:
        self.session.launch(entry, items, *arguments)

    def expand(self) -> None:
        rows = self.count * self.knots
        items = -(-rows // self.kernels.threads(self.kernels.expansion.entry))
        self.launch(self.kernels.expansion.entry, items, rows, self.x, self.u, self.h, self.p, self.next, self.F, self.g, self.H)

    def backward(self) -> None:
        sizes = self.count, self.steps, self.blocks
        inputs = self.control, self.F, self.g, self.H, self.gap, self.end
        self.launch("solver_backward", self.count * self.blocks, *sizes, *inputs, self.start, self.gains, self.closed, self.fine)

    def roll_out(self, shooting: int, alphas: Numbers, count: int) -> None:
        simulations = self.count * count * shooting
        items = -(-simulations // self.kernels.threads("solver_roll_out"))
        sizes = self.count, self.steps, shooting, self.blocks, count, self.simulated
        inputs = self.control, self.fine, alphas, self.h, self.p, self.x, self.u, self.gains, self.step
        self.launch("solver_roll_out", items, *sizes, *inputs, self.X, self.U, self.C, self.D)
        known = self.numbers, alphas, self.fine, self.g, self.H, self.step, self.X, self.U, self.C, self.D, self.start
        self.launch("solver_select", self.count, *sizes, *known, self.control, self.x, self.u, self.gap, self.end)

    # --- the account -------------------------------------------------------------------------------------------------------------------

    def column(self, name: str) -> np.ndarray:
        """A number of all problems, as last read."""
        return self.account[:, CONTROL.index(name)]

    @property
    def status(self) -> np.ndarray:
        return self.column("status").astype(int)

    def read_account(self) -> None:
        before = self.column("iterations_done") - self.column("again")  # iterations that took a step
        self.account = self.control.read().astype(float)
        taken = self.column("iterations_done") - self.column("again") > before
        for k in np.flatnonzero(taken).tolist():
            self.history[k].append(float(self.column("cost")[k]))
            self.steps_taken[k].append(float(self.column("alpha")[k]))
            self.defects[k].append(float(self.column("largest_defect")[k]))

    def write_account(self, which: Any, **values: Any) -> None:
        """Changes numbers of some problems."""
        for name, value in values.items():
            self.account[which, CONTROL.index(name)] = value
        self.control.write(self.account)

    def solve(self) -> list[Solution]:
        started = time.perf_counter()
        self.bring()
        self.begin()
        if self.options.iterations:
            while (self.status == RUNNING).any():
                self.round()
                self.read_account()
        ended = self.status.copy()
        self.finish()
        return self.solutions(ended, time.perf_counter() - started)

    def bring(self) -> None:
        """Takes the problems' numbers to the device."""
        ps = self.problems
        self.h.write(np.array([np.full(self.knots, p.dt) for p in ps]))
        self.p.write(np.array([p.p for p in ps]))
        self.x.write(np.array([np.tile(p.start, (self.knots, 1)) for p in ps]))
        self.u.write(np.array([np.concatenate([p.guess, np.zeros((1, p.guess.shape[1]))]) for p in ps]))
        self.alphas.write(self.step_sizes)
        self.write_account(slice(None), fresh=1, negligible=[p.negligible() for p in ps])

    def simulate_guess(self) -> None:
        """The states that the guess of controls leads to."""
        self.roll_out(1, self.none, 1)
        self.read_account()

    def note_first(self) -> None:
        for history, cost in zip(self.history, self.column("cost"), strict=True):
            history.append(float(cost))

    def begin(self) -> None:
        raise NotImplementedError

    def round(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        raise NotImplementedError

    def close(self, which: np.ndarray) -> None:
        """Simulates from the start with the gains around the trajectory: what comes out has no defects."""
        if which.any():
            self.write_account(which, status=BEGIN)
            self.roll_out(1, self.none, 1)

    def solutions(self, ended: np.ndarray, seconds: float) -> list[Solution]:
        x, u, gains = (a.read().astype(float) for a in (self.x, self.u, self.gains))
        done, found = self.column("iterations_done").astype(int), []
        for k, p in enumerate(self.problems):
            status = STATUS[ended[k]]
            if ended[k] == TROUBLE:
                status = trouble(tuple(a.read()[k] for a in (self.F, self.g, self.H)))
            if ended[k] == RUNNING:  # there was no iteration to be done
                status = "iterations"
            stats = {"seconds": {"device": seconds}, "history": self.history[k], "steps": self.steps_taken[k]} | self.more_stats(k)
            found.append(Solution.of(p, status, x[k], u[k, :-1], gains[k, :-1, :, :-1].copy(), int(done[k]), stats))
        return found

    def more_stats(self, k: int) -> dict[str, Any]:
        return {}
