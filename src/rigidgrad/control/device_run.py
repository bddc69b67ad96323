"""Trajectories on a device: what both solvers there share.

The host launches kernels, and renews multipliers between descents; each problem keeps its own
account (status, cost, regularisation, …) on the device, takes its own steps and ends when it has
ended. A round is an iteration or a refused one; problems that have ended sit the other rounds out.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from rigidgrad.algorithms import tangent_maps
from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.augmented import Outer
from rigidgrad.control.curvature import curvature
from rigidgrad.control.integrators import is_structured, linearize, step
from rigidgrad.control.problem import Problem
from rigidgrad.control.programs import Programs, Shapes
from rigidgrad.control.riccati import failure_status
from rigidgrad.control.solution import Solution
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.program.fuse import fuse
from rigidgrad.program.order import best_order
from rigidgrad.program.program import Program
from rigidgrad.program.recorder import record
from rigidgrad.runtime.gpu_solver import (
    CHOICES,
    CONTROL,
    OPTIONS,
    STATUS,
    Numbers,
    RobotStep,
    Session,
    SolverKernels,
    open_session,
)
from rigidgrad.scalars import add, mul

_REGISTERS = 200
_KNOWN = {"float64": 0.0, "float32": 1e-5}  # how well the cost of a trajectory is known, relatively
# a pivot that is a smaller share of its diagonal entry is rounding
_SINGULAR = {"float64": 1e-13, "float32": 1e-7}
_DOUBTFUL = 4.0  # a fall of so many times that may be lost in the difference of two costs
BEGIN, RUNNING, CONVERGED, ITERATIONS, DIVERGED, TROUBLE = (
    STATUS.index(word)
    for word in ("begin", "running", "converged", "iterations", "diverged", "trouble")
)


_kernels: weakref.WeakKeyDictionary[Programs, dict[tuple[bool, bool], SolverKernels]] = (
    weakref.WeakKeyDictionary()
)
_sessions: weakref.WeakKeyDictionary[Programs, dict[tuple[Any, ...], tuple[Session, bool]]] = (
    weakref.WeakKeyDictionary()
)


def solver_kernels(
    programs: Programs, direct: bool = False, second_order: bool = False
) -> SolverKernels:
    """What is rendered for a system, an integrator and costs. The last knot is one like the others:
    costs of the control have no weight there.
    """
    kept, key = _kernels.setdefault(programs, {}), (direct, second_order)
    if key not in kept:
        s = programs.system
        n, z = s.ndx, s.ndx + s.nu

        def expand(a: dict[str, Any]) -> tuple[Any, ...]:
            moved, A, B = linearize(
                programs.given(a["p"]), programs.integrator, a["x"], a["u"], a["h"]
            )
            q = programs.expand(a["x"], a["u"], a["p"])
            F = tuple((*x, *y) for x, y in zip(A, B, strict=True))
            first: tuple[Any, ...] = ()
            if direct:
                gap = s.minus(moved, a["ahead"])
                first, F = (gap,), _carried(s, gap, F)
            columns = list(zip(*q.lux, strict=True)) if q.lux else [()] * n
            H = [(*x, *y) for x, y in zip(q.lxx, columns, strict=True)] + [
                (*x, *y) for x, y in zip(q.lux, q.luu, strict=True)
            ]
            return *first, F, (*q.lx, *q.lu), tuple(H)

        def knot(a: dict[str, Any]) -> tuple[Any, ...]:
            moved = step(programs.given(a["p"]), programs.integrator, a["x"], a["u"], a["h"])
            return moved, add(*programs.values(a["x"], a["u"], a["p"]))

        def bent(a: dict[str, Any]) -> tuple[Any, ...]:
            return (
                curvature(
                    programs.given(a["p"]), programs.integrator, a["x"], a["u"], a["h"], a["v"]
                ),
            )

        def along(a: dict[str, Any]) -> tuple[Any, ...]:
            return (s.plus(a["x"], tuple(mul(a["alpha"], d) for d in a["dx"])),)

        def recorded(
            inputs: Shapes, outputs: Shapes, function: Callable[[dict[str, Any]], tuple[Any, ...]]
        ) -> Program:
            return best_order(fuse(record(inputs, outputs, function)), _REGISTERS)

        x, dx = (s.nx,), (n,)
        inputs = {"x": x, "u": (s.nu,), "h": (), "p": (programs.parameters,)}
        ahead, gap = ({"ahead": x}, {"gap": dx}) if direct else ({}, {})
        weighted = {"x": x, "u": (s.nu,), "h": (), "v": dx, "p": (programs.parameters,)}
        kept[key] = SolverKernels(
            recorded(inputs | ahead, gap | {"F": (n, z), "g": (z,), "H": (z, z)}, expand),
            recorded(inputs, {"next": x, "cost": ()}, knot),
            recorded({"x": x, "dx": dx, "alpha": ()}, {"moved": x}, along),
            recorded({"x": x, "origin": x}, {"dx": dx}, lambda a: (s.minus(a["x"], a["origin"]),)),
            programs.bounded,
            _robot_step(programs),
            recorded(weighted, {"C": (z, z)}, bent) if second_order else None,
        )
    return kept[key]


def _carried(system: System, gap: Vector, F: Matrix) -> Matrix:
    """F leads into the tangent space at f(x, u); this brings it to that at the state ahead, `gap`
    away.
    """
    if not isinstance(system, RobotSystem) or system.flat:
        return F
    n = system.nv
    return (
        tangent_maps.block_times(
            tangent_maps.transport(system.model, tuple(-g for g in gap[:n])), F[:n]
        )
        + F[n:]
    )


def _robot_step(programs: Programs) -> RobotStep | None:
    """The step, if blocks of threads can compute it."""
    s = programs.system
    if (
        not (isinstance(s, RobotSystem) and is_structured(s, programs.integrator))
        or s.model.has_mimic
        or s.inputs
        or not s.model.joints
    ):
        return None
    return RobotStep(s.model, programs.integrator == "semi_implicit_euler", s.actuation)


def option_numbers(o: Any, **own: float) -> np.ndarray:
    """Of options what kernels read, those of both solvers and those of one, in their order."""
    options = {
        "accept_low": o.accept[0],
        "accept_high": o.accept[1],
        "rho_low": o.regularization[0],
        "rho_high": o.regularization[1],
        "choose": CHOICES.index(o.choose),
        "most": o.iterations,
        "rounding": 2.0 * float(np.finfo(o.dtype).eps),
        "doubtful": _DOUBTFUL * _KNOWN[o.dtype],
        "singular_pivot": _SINGULAR[o.dtype],
    } | own
    return np.array([options.get(name, 0.0) for name in OPTIONS])


def descent_of(
    dtype: str, blocks: int, constrained: bool, asked: float, tolerances: Any
) -> tuple[Any, Any]:
    """Of descents that shall end at these tolerances: those that numbers of this dtype can, and
    whether a small fall of the cost ends them.

    As on the CPU, how little a cost falls ends only descents that need not be exact; float32 and a
    stale cost-to-go know no better.
    """
    tolerance = np.maximum(tolerances, _KNOWN[dtype])
    knows_better = dtype == "float64" and blocks == 1
    return tolerance, (tolerance > asked) | (not constrained and not knows_better)


class DeviceRun:
    """Trajectories of problems of one kind on a device: arrays, the kernels that both solvers use,
    and the account of each problem.
    """

    direct = False
    forgotten: ClassVar[
        Mapping[str, float]
    ] = {}  # what a descent begins again, beside what both solvers do

    def __init__(
        self,
        problems: Sequence[Problem],
        options: Any,
        shooting: int,
        blocks: int,
        step_sizes: np.ndarray,
        simulated: int,
    ):
        first = problems[0]
        self.problems, self.options = [p.private_copy() for p in problems], options
        self.outer = [Outer(p, options) for p in self.problems]
        self.ended = ["iterations"] * len(problems)  # how each did, once it has
        self.shooting, self.blocks, self.step_sizes, self.simulated = (
            shooting,
            blocks,
            step_sizes,
            simulated,
        )
        self.count, self.steps, self.knots = len(problems), first.steps, first.steps + 1
        self.kernels = solver_kernels(
            first.programs, self.direct, getattr(options, "second_order", False)
        )
        self.session, self.fused = self._open(first.programs)
        P, K, x, n, m, z = (
            self.count,
            self.knots,
            self.kernels.nx,
            self.kernels.ndx,
            self.kernels.nu,
            self.kernels.ndx + self.kernels.nu,
        )
        a = self.session.array
        self.x, self.u, self.h, self.p = a(P, K, x), a(P, K, m), a(P, K), a(P, K, first.p.shape[1])
        self.lower, self.upper, self.held = a(P, K, m), a(P, K, m), a(P, K, m)
        self.F, self.g, self.H = a(P, K, n, z), a(P, K, z), a(P, K, z, z)
        # of the cost and the bent dynamics
        self.curved = a(P, K, z, z) if self.kernels.curvature else self.H
        self.gap, self.step = a(P, K, n), a(P, K, z)
        self.gains, self.closed = a(P, K, m, n + 1), a(P, K, n, n + 1)
        self.end, self.start, self.fine = (
            a(P, blocks, n + 1, n),
            a(P, blocks, n + 1, n),
            a(P, blocks),
        )
        self.X, self.U = a(P, simulated, K, x), a(P, simulated, K, m)
        self.C, self.D = a(P, simulated, shooting), a(P, simulated, shooting, n)
        self.alphas, self.none = a(len(step_sizes)), a(1)  # the latter: a step size of 0
        self.control, self.numbers = a(P, len(CONTROL)), a(len(OPTIONS))
        self.history: list[list[float]] = [[] for _ in problems]
        self.steps_taken: list[list[float]] = [[] for _ in problems]
        self.defects: list[list[float]] = [[] for _ in problems]
        self.account = np.zeros((P, len(CONTROL)))
        self._recorded: dict[str, Callable[[], None]] = {}

    def _open(self, programs: Programs) -> tuple[Session, bool]:
        """A session with the kernels, which stays with the programs; and whether the set-up of the
        direct method is fused, which depends on the device's memory.
        """
        o = self.options
        kept = _sessions.setdefault(programs, {})
        key = (
            o.device,
            o.dtype,
            self.direct,
            self.knots if self.direct else 0,
            self.kernels.curvature is not None,
            getattr(o, "pcg_blocks", ""),
        )
        if key not in kept:
            session, size = open_session(o.device, o.dtype), np.dtype(o.dtype).itemsize
            k = self.kernels

            def entries(*names: str) -> dict[str, tuple[int, int]]:
                return {
                    name: (k.threads(name), k.shared_numbers(name, self.knots) * size)
                    for name in names
                }

            session.load(k.source(session.language, o.dtype), entries(*k.entries()))
            fused = self.direct and k.fuses(o.dtype, session.shared_limit())
            if self.direct:
                session.load(
                    k.setup_source(session.language, o.dtype, fused),
                    entries(*k.setup_entries(fused)),
                )
                how = o.pcg_blocks, session.blocks_meet
                session.load(
                    k.gradients_source(session.language, o.dtype, self.knots, *how),
                    entries(*k.gradients_entries(*how)),
                )
            kept[key] = session, fused
        return kept[key]

    def write_options(self, **own: float) -> None:
        """Those of both solvers, and those of one."""
        self.numbers.write(option_numbers(self.options, **own))

    # --- what happens in a round ------------------------------------------------------------------

    def launch(self, entry: str, items: int, *arguments: Any) -> None:
        self.session.launch(entry, items, *arguments)

    def together(self, name: str, enqueue: Callable[[], None]) -> None:
        """Launches that are the same whenever they come, as one, and a copy of the account."""
        if name not in self._recorded:

            def all_of_it() -> None:
                enqueue()
                self.control.fetch()

            self._recorded[name] = self.session.recorded(all_of_it)
        self._recorded[name]()

    def expand(self) -> None:
        rows = self.count * self.knots
        items = -(-rows // self.kernels.threads(self.kernels.expansion.entry))
        arguments = self.x, self.u, self.h, self.p, *self.between(), self.F, self.g, self.H
        self.launch(self.kernels.expansion.entry, items, rows, *arguments)

    def between(self) -> tuple[Numbers, ...]:
        """Of the expansion, what it takes and gives between the parameters and F."""
        return ()

    def backward(self) -> None:
        sizes = self.count, self.steps, self.blocks
        inputs = (
            self.numbers,
            self.control,
            self.F,
            self.g,
            self.H,
            self.gap,
            self.end,
            self.u,
            self.lower,
            self.upper,
        )
        knots = self.x, self.h, self.p
        results = self.curved, self.held, self.start, self.gains, self.closed, self.fine
        self.launch("solver_backward", self.count * self.blocks, *sizes, *inputs, *knots, *results)

    def roll_out(self, shooting: int, alphas: Numbers, count: int, gaps: bool = False) -> None:
        simulations = self.count * count * shooting
        items = -(-simulations // self.kernels.threads("solver_roll_out"))
        sizes = self.count, self.steps, shooting, self.blocks, count, self.simulated, int(gaps)
        inputs = (
            self.control,
            self.fine,
            alphas,
            self.h,
            self.p,
            self.x,
            self.u,
            self.lower,
            self.upper,
            self.gains,
            self.step,
            self.gap,
        )
        self.launch("solver_roll_out", items, *sizes, *inputs, self.X, self.U, self.C, self.D)
        known = (
            self.numbers,
            alphas,
            self.fine,
            self.g,
            self.curved,
            self.step,
            self.X,
            self.U,
            self.C,
            self.D,
            self.start,
        )
        self.launch(
            "solver_select",
            self.count,
            *sizes,
            *known,
            self.control,
            self.x,
            self.u,
            self.gap,
            self.end,
        )

    # --- the account ------------------------------------------------------------------------------

    def column(self, name: str) -> np.ndarray:
        """A number of all problems, as last read."""
        return self.account[:, CONTROL.index(name)]

    @property
    def status(self) -> np.ndarray:
        return self.column("status").astype(int)

    def read_account(self, fetched: bool = False) -> None:
        """`fetched`: after `together`."""
        # iterations that took a step
        before = self.column("iterations_done") - self.column("again")
        self.account = (self.control.fetched() if fetched else self.control.read()).astype(float)
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
        for k in np.flatnonzero(self.status == DIVERGED).tolist():
            self.ended[k] = "diverged"
        self.begin_descents()
        while self.options.iterations and (running := self.status == RUNNING).any():
            self.round()
            self.read_account(fetched=True)
            self.after_descents(running & (self.status != RUNNING))
        self.finish()
        return self.solutions(time.perf_counter() - started)

    def bring(self) -> None:
        """Takes the problems' numbers to the device."""
        ps = self.problems
        self.h.write(np.array([np.append(p.h, p.h[-1]) for p in ps]))
        self.p.write(np.array([p.with_last_control() for p in ps]))
        self.x.write(np.array([np.tile(p.start, (self.knots, 1)) for p in ps]))
        self.u.write(np.array([with_last_row(p.guess) for p in ps]))
        for own, which in ((self.lower, 0), (self.upper, 1)):
            own.write(np.array([with_last_row(p.bounds[which]) for p in ps]))
        self.alphas.write(self.step_sizes)
        self.write_account(slice(None), fresh=1, newton=1, negligible=[p.negligible() for p in ps])

    def simulate_guess(self) -> None:
        """The states that the guess of controls leads to."""
        self.roll_out(1, self.none, 1)
        self.read_account()

    # --- constraints: the policy is the CPU's -----------------------------------------------------

    def begin_descents(self) -> None:
        """Multipliers, penalties and tolerances for the first descents."""
        alive = np.flatnonzero(self.status == RUNNING).tolist()
        x, u = self.trajectories()
        for k in alive:
            self.outer[k].begin(x[k], u[k])
        self.descend(alive, x, u)

    def after_descents(self, ended: np.ndarray) -> None:
        """Of problems whose descents have ended, the final status; or another descent, with new
        multipliers.
        """
        for k in np.flatnonzero(ended).tolist():
            self.ended[k] = self.word(k)
        alive = ended & (self.status != DIVERGED)
        if not (self.problems[0].constraints and alive.any()):
            return
        self.settle(alive)
        x, u = self.trajectories()
        numbers, done = np.flatnonzero(alive).tolist(), self.column("iterations_done").astype(int)
        for k in numbers:
            self.ended[k] = self.outer[k].after(self.ended[k], x[k], u[k], int(done[k]))
        self.descend([k for k in numbers if not self.ended[k]], x, u)

    def descend(self, numbers: list[int], x: np.ndarray, u: np.ndarray) -> None:
        """Problems of these numbers begin a descent from where they are."""
        tolerance, loose = descent_of(
            self.options.dtype,
            self.blocks,
            bool(self.problems[0].constraints),
            self.options.tolerance,
            np.array([self.outer[k].tolerance for k in numbers]),
        )
        self.write_account(numbers, tolerance=tolerance, loose=loose)
        if numbers and self.problems[0].constraints:
            self.p.write(np.array([p.with_last_control() for p in self.problems]))
            J = [float(self.problems[k].evaluate(x[k], u[k])[1].sum()) for k in numbers]
            self.write_account(
                numbers,
                status=RUNNING,
                cost=J,
                fresh=1,
                newton=1,
                rho=0,
                again=0,
                last_try=0,
                least=0,
                refused=0,
                small_falls=0,
                flat=0,
                **self.forgotten,
            )

    def settle(self, ended: np.ndarray) -> None:
        """Closes what defects there are, so that constraints are judged on a motion."""
        raise NotImplementedError

    def trajectories(self) -> tuple[np.ndarray, np.ndarray]:
        """x (problems, steps + 1, nx) and u (problems, steps, nu)."""
        return self.x.read().astype(float), self.u.read().astype(float)[:, :-1]

    def word(self, k: int) -> str:
        """How a descent ended."""
        number = self.status[k]
        return (
            STATUS[number]
            if number != TROUBLE
            else failure_status(tuple(a.read()[k] for a in (self.F, self.g, self.H)))
        )

    def note_first(self) -> None:
        for history, cost in zip(self.history, self.column("cost"), strict=True):
            history.append(float(cost))

    def begin(self) -> None:
        raise NotImplementedError

    def round(self) -> None:
        """An iteration, or one that is refused; its launches are `together`."""
        raise NotImplementedError

    def finish(self) -> None:
        raise NotImplementedError

    def close(self, which: np.ndarray) -> None:
        """Simulates from the start with the gains around the trajectory: what comes out has no
        defects. Accounts stay as they are.
        """
        if which.any():
            kept = self.account.copy()
            # the others sit it out
            self.write_account(slice(None), status=np.where(which, BEGIN, DIVERGED))
            self.roll_out(1, self.none, 1)
            self.account = kept
            self.control.write(kept)

    def solutions(self, seconds: float) -> list[Solution]:
        x, u, gains = (a.read().astype(float) for a in (self.x, self.u, self.gains))
        done, found = self.column("iterations_done").astype(int), []
        for k, (p, status) in enumerate(zip(self.problems, self.ended, strict=True)):
            stats = {
                "seconds": {"device": seconds},
                "history": self.history[k],
                "steps": self.steps_taken[k],
            } | self.more_stats(k)
            found.append(
                Solution.of(
                    p, status, x[k], u[k, :-1], gains[k, :-1, :, :-1].copy(), int(done[k]), stats
                )
            )
        return found

    def more_stats(self, k: int) -> dict[str, Any]:
        return {}


def with_last_row(rows: np.ndarray) -> np.ndarray:
    """Rows of the steps, and zeros for the last knot."""
    return np.concatenate([rows, np.zeros((1, rows.shape[1]))])
