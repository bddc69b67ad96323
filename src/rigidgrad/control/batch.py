"""Many problems of one kind at once: iLQR in lockstep, step sizes and knots in lanes, problems on threads.

A few slots hold a problem each. Every round expands, passes backward and rolls out all slots, each with its own regularisation, and each takes its own step or none.
A problem that has ended makes room for the next one waiting, so that no slot runs empty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rigidgrad.control.augmented import Outer
from rigidgrad.control.pddp import FIRST, PDDP, TELLING, Search
from rigidgrad.control.problem import Problem
from rigidgrad.control.riccati import keep_to_touched, trouble
from rigidgrad.control.solution import Solution
from rigidgrad.runtime.riccati import Riccati
from rigidgrad.runtime.sweep import Bound
from rigidgrad.runtime.threads import Crew, default_crew

_SLOTS = 6  # of each thread: what keeps the caches and hides Python's part


def supported(options: PDDP) -> bool:
    """Whether these options can run in lockstep: single shooting, first order."""
    return options.M_f == options.M_b == 1 and not options.second_order


class Lockstep:
    """Buffers for problems that share `problem`'s programs and length."""

    def __init__(self, problem: Problem, options: PDDP, threads: int, count: int):
        self.options, self.programs, self.steps = options, problem.programs, problem.steps
        self.threads = max(1, threads)
        self.crew: Crew | None = default_crew(threads) if threads > 1 else None
        S = self.slots = max(1, min(count, _SLOTS * self.threads))
        s, knots = problem.system, problem.steps + 1
        self.layout = o = problem.programs.layout_in(options.dtype)
        self.dtype = np.dtype(options.dtype)
        self.problems = [problem.private_copy() for _ in range(S)]
        self.p = np.zeros((S, knots, problem.p.shape[1]))
        for slot, own in enumerate(self.problems):
            own.p = self.p[slot]
        self.expansion = problem.programs.expansion(options.dtype, self.threads)
        self.final_expansion = problem.programs.final_expansion(options.dtype)
        # every row has a knot more than there are controls, so that states and controls of all slots are rows of one array
        self.x, self.u, self.h = np.zeros((S, knots, s.nx)), np.zeros((S, knots, s.nu)), np.zeros((S, knots, 1))
        self.gains = np.zeros((S, knots, o.m, o.columns))
        self.lower, self.upper = np.zeros((S, knots, s.nu)), np.zeros((S, knots, s.nu))
        self.active = np.zeros((S, knots, s.nu))
        self.box = np.zeros((S, knots, s.nu)), np.zeros((S, knots, s.nu))
        shapes = ((o.rows, o.columns), (o.columns,), (o.columns,) if o.diagonal else (o.n + o.m, o.columns))
        self.expanded = tuple(np.zeros((S, knots, *shape), self.dtype) for shape in shapes)
        self.end = np.zeros((S, o.n + 1, o.state_columns), self.dtype)
        self.numbers, self.results = np.zeros((S, 2)), np.zeros((S, 3))
        self.alphas, self.choice = options.step_sizes, Search(options)
        self._bind_backward()
        self._bind_forward()
        self.J, self.rho, self.negligible = np.zeros(S), np.zeros(S), np.zeros(S)
        self.outer = [Outer(own, options) for own in self.problems]
        self.which = np.full(S, -1)  # the number of the problem in each slot
        self.histories: list[list[float]] = [[] for _ in range(S)]
        self.rounds = np.zeros(S, int)  # iterations; -1 of a problem that has not begun
        self.last_try = np.zeros(S, bool)  # whether this round, without regularisation, tells converged from stalled
        self.again = np.zeros(S, bool)  # whether the last step was refused, so that the next is no new iteration

    def _bind_backward(self) -> None:
        S, knots = self.slots, self.steps + 1
        first = np.arange(S) * knots
        F, l, L = self.expanded
        arrays = {
            "ranges": np.stack([first, first + self.steps], axis=1),
            "F": F,
            "l": l,
            "L": L,
            "gains": self.gains,
            "end": self.end,
            "start": np.zeros_like(self.end),
            "numbers": self.numbers,
            "results": self.results,
            "lower": self.box[0],
            "upper": self.box[1],
            "u": self.u,
            "active": self.active,
            "scratch": np.zeros((S, self.layout.scratch_size), self.dtype),
        }
        self.backward = Riccati.of(self.layout).bind(arrays)

    def _bind_forward(self) -> None:
        S, steps, s = self.slots, self.steps, self.problems[0].system
        kernel = self.programs.roll_out()
        W = self.W = kernel.lanes
        parts = -(-len(self.alphas) // W)
        self.X, self.U = np.zeros((parts, S, steps + 1, s.nx, W)), np.zeros((parts, S, steps, s.nu, W))
        self.C, self.totals = np.zeros((parts, S, steps + 1, 2, W)), np.zeros((parts, S, 1, 2, W))
        alpha = np.resize(self.alphas, parts * W).reshape(parts, 1, 1, 1, W)
        alpha = np.broadcast_to(alpha, (parts, S, steps, 1, W)).copy()
        shared = {"x_ref": self.x, "u_ref": self.u, "gains": self.gains, "h": self.h, "p": self.p}
        if self.programs.bounded:
            shared |= {"lower": self.lower, "upper": self.upper}
        common = {name: a.reshape(S, steps + 1, -1)[:, :steps] for name, a in shared.items()}
        self.sweeps: list[Bound] = []
        self.finals: list[Bound] = []
        for part in range(parts):
            X, U, C = self.X[part], self.U[part], self.C[part]
            inputs = common | {"x": X[:, :-1], "cost": C[:, :-1], "alpha": alpha[part]}
            self.sweeps.append(kernel.bind(inputs, {"u": U, "x": X[:, 1:], "cost": C[:, 1:]}))
            inputs = {"x": X[:, -1:], "cost": C[:, -1:], "p": self.p[:, -1:]}
            self.finals.append(self.programs.final_cost.bind(inputs, {"cost": self.totals[part]}))

    # --- solving -----------------------------------------------------------------------------------------------------------------

    def solve(self, problems: Sequence[Problem]) -> list[Solution]:
        waiting = list(range(len(problems)))[::-1]
        self.given = problems
        self.found: list[Solution | None] = [None] * len(problems)
        self.count = 0  # slots in use are the first ones
        while waiting and self.count < self.slots:
            self._load(self.count, waiting.pop())
            self.count += 1
        self._begin(range(self.count))
        while self.count:
            ended = self._round()
            for slot in sorted(ended, reverse=True):
                self._finish(slot, ended[slot])
                if waiting:
                    self._load(slot, waiting.pop())
                else:
                    self.count -= 1
                    self._move(self.count, slot)
            fresh = [slot for slot in range(self.count) if self.rounds[slot] < 0]
            if fresh:
                self._begin(fresh)
        return [s for s in self.found if s is not None]

    def _load(self, slot: int, number: int) -> None:
        own = self.problems[slot]
        own.copy_numbers(self.given[number])
        self.which[slot] = number
        self.h[slot], self.numbers[slot, 1] = own.dt, own.dt
        self.lower[slot, :-1], self.upper[slot, :-1] = own.bounds
        self.u[slot, :-1] = own.guess
        self.gains[slot], self.active[slot] = 0.0, 0.0
        self.x[slot] = own.start
        self.X[:, slot, 0] = own.start[:, None]
        self.negligible[slot] = own.negligible()
        self.rounds[slot] = -1

    def _move(self, source: int, target: int) -> None:
        """What is in the last slot goes into one that became free."""
        if source == target:
            return
        for array in (
            self.x,
            self.u,
            self.h,
            self.gains,
            self.lower,
            self.upper,
            self.active,
            self.numbers,
            self.J,
            self.rho,
            self.negligible,
            self.which,
            self.rounds,
            self.again,
            self.last_try,
        ):
            array[target] = array[source]
        self.X[:, target, 0] = self.X[:, source, 0]
        self.problems[target].copy_numbers(self.problems[source])
        self.histories[target], self.histories[source] = self.histories[source], []
        self.outer[target].take_over(self.outer[source])

    def _begin(self, slots: Sequence[int] | range) -> None:
        """Simulates first guesses: slots just loaded have no gains yet."""
        self._roll_out(0, FIRST, list(slots))
        costs = self._costs()
        for slot in slots:
            self.rounds[slot], self.again[slot] = 0, False
            self.J[slot], self.rho[slot] = costs[slot, 0].sum(), 0.0
            self._take(slot, 0)
            self.histories[slot] = [float(costs[slot, 0, 0])]
            self.outer[slot].begin()

    def _roll_out(self, tried: int, upto: int, slots: list[int]) -> None:
        """Simulates step sizes from `tried` to `upto` of some slots in use."""
        most = len(slots) * self.threads > self.count or len(slots) == self.count  # all of them on all threads take no longer
        for part in range(-(-tried // self.W), min(-(-upto // self.W), len(self.sweeps))):
            for bound, crew in ((self.sweeps[part], self.crew), (self.finals[part], None)):
                if most:
                    bound.run(crew, self.count)
                else:
                    for slot in slots:
                        bound.run_group(slot)

    def _costs(self) -> np.ndarray:
        """(slots, alphas, 2): costs and penalties."""
        both = self.totals[:, :, 0].transpose(1, 0, 3, 2)  # (slots, parts, W, 2)
        return both.reshape(self.slots, -1, 2)[:, : len(self.alphas)]

    def _take(self, slot: int, which: int) -> None:
        part, lane = divmod(which, self.W)
        self.x[slot] = self.X[part, slot, :, :, lane]
        self.u[slot, :-1] = self.U[part, slot, :, :, lane]

    def _round(self) -> dict[int, str]:
        """One iteration of every slot in use; what ended and how."""
        n = self.count
        self._expand(n)
        self.numbers[:n, 0] = self.rho[:n]
        self.backward.run(self.crew, n)
        results, J = self.results[:n].tolist(), self.J[:n].tolist()
        usable = [fine == 1.0 and math.isfinite(slope) for slope, _, fine in results]
        taken: list[tuple[int, float] | None] = [None] * n  # which step size, and by how much the cost falls with it
        tried, waiting = 0, [slot for slot in range(n) if usable[slot]]
        for upto in self.choice.turns:
            self._roll_out(tried, upto, waiting)
            costs = self._costs().sum(axis=2).tolist()
            for slot in waiting:
                which = self.choice.pick(J[slot], costs[slot][:upto], *results[slot][:2])
                if which is not None:
                    taken[slot] = which, J[slot] - costs[slot][which]
                    self._take(slot, which)
            waiting = [slot for slot in waiting if taken[slot] is None]
            tried = upto
            if not waiting:
                break
        ended: dict[int, str] = {}
        for slot in range(n):
            expected = self.choice.expected(*results[slot][:2])
            status = self._judge(slot, taken[slot], expected, usable[slot])
            if status:
                self.again[slot] = self.last_try[slot] = False
                status = self._outer(slot, status)
            if status:
                ended[slot] = status
        return ended

    def _judge(self, slot: int, taken: tuple[int, float] | None, expected: float, usable: bool) -> str:
        """Accounts for a step or its refusal; a status if that was the last."""
        low, high = self.options.regularization
        rho, J = float(self.rho[slot]), float(self.J[slot])
        self.rounds[slot] += not self.again[slot]
        self.again[slot] = taken is None
        tolerance = max(self.outer[slot].tolerance * abs(J), float(self.negligible[slot]))
        status = ""
        if taken is not None:
            which, fall = taken
            J -= fall
            self.J[slot] = J
            self.histories[slot].append(J)
            little = expected <= tolerance or (fall <= tolerance and self.choice.alphas[which] >= TELLING)
            status = "converged" if little and rho <= low else ""
            self.rho[slot], self.last_try[slot] = 0.0 if rho <= low else rho / 10.0, False
        elif usable and expected <= tolerance:
            if rho == 0.0:
                status = "converged"
            else:  # so small a step may be due to the regularisation: once more without
                self.rho[slot], self.last_try[slot] = 0.0, True
        elif self.last_try[slot]:
            status = "stalled"
        else:
            self.rho[slot] = max(low, 10.0 * rho)
            if self.rho[slot] > high:
                status = "stalled" if usable else trouble(tuple(a[slot, :-1] for a in self.expanded))
        if not math.isfinite(J):
            return "diverged"
        return status or ("iterations" if self.rounds[slot] >= self.options.iterations else "")

    def _expand(self, n: int) -> None:
        if self.layout.bounded:
            keep_to_touched(self.u[:n], (self.lower[:n], self.upper[:n]), (self.box[0][:n], self.box[1][:n]), self.active[:n])
        x, u, h, p = self.x[:n], self.u[:n], self.h[:n, :, 0], self.p[:n]
        if self.dtype != np.float64:
            x, u, h, p = (a.astype(self.dtype) for a in (x, u, h, p))
        rows = n * (self.steps + 1)
        self.expansion(*(_rows(a, rows) for a in (x, u, h, p)), out=tuple(_rows(a[:n], rows) for a in self.expanded))
        # whole arrays take the quick way into a kernel
        self.final_expansion(np.ascontiguousarray(x[:, -1]), np.ascontiguousarray(p[:, -1]), out=self.end[:n])

    def _outer(self, slot: int, status: str) -> str:
        """With constraints, the end of a descent need not be the end: multipliers are renewed."""
        own = self.problems[slot]
        if not own.constraints or status == "diverged":
            return status
        x, u = self.x[slot], self.u[slot, :-1]
        result = self.outer[slot].after(status, x, u, int(self.rounds[slot]))
        if not result:
            self.J[slot] = float(own.evaluate(x, u)[1].sum())
            self.rho[slot] = 0.0
        return result

    def _finish(self, slot: int, status: str) -> None:
        o, stats = self.layout, {"history": self.histories[slot]}
        K = self.gains[slot, :-1][:, :, [o.state(i) for i in range(o.n)]]
        x, u = self.x[slot], self.u[slot, :-1]
        self.found[self.which[slot]] = Solution.of(self.problems[slot], status, x, u, K, int(self.rounds[slot]), stats)


def _rows(array: np.ndarray, rows: int) -> np.ndarray:
    """Knots of all slots as one batch axis, without a copy."""
    return array.reshape(rows, *array.shape[2:])
