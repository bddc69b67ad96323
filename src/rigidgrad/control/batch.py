"""Many problems of one kind at once: iLQR in lockstep, a problem in each lane; each thread has a
few groups of lanes.

Every round expands and passes backward, knot by knot, and rolls out each step size, for all lanes
in use; each problem has its own regularisation and takes its own step or none. A problem that has
ended makes room for the next one waiting, so that no lane runs empty. Threads share nothing but the
problems waiting: they need not meet. The last problem of a thread is alone in its group, in all
lanes, which then take a step size each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from rigidgrad.control.augmented import Outer
from rigidgrad.control.pddp import PDDP
from rigidgrad.control.problem import Problem
from rigidgrad.control.riccati import failure_status
from rigidgrad.control.search import PATIENCE, TELLING, Search
from rigidgrad.control.solution import Solution, relative_fall
from rigidgrad.kernels import search as policy
from rigidgrad.runtime.arrays import aligned_zeros
from rigidgrad.runtime.bound import Bound, chain, interleave
from rigidgrad.runtime.job import host_lanes
from rigidgrad.runtime.riccati import RESULTS, bind_side_by_side
from rigidgrad.runtime.threads import default_crew

_GROUPS = 4  # of lanes, of each thread: what hides Python's part
_FEWEST = 3  # problems that are solved sooner side by side than one after the other
_LARGEST = 32  # states of a problem; beyond, SIMD inside each is as fast, and compiled sooner


def supported(options: PDDP, problems: Sequence[Problem]) -> bool:
    """Whether problems that differ in numbers alone are to be solved side by side: single shooting,
    first order, not just one or two, not too large.
    """
    plain = (
        options.M_f == options.M_b == 1 and not options.second_order and options.form == "forward"
    )
    return plain and len(problems) >= _FEWEST and problems[0].system.ndx <= _LARGEST


class Batch:
    """Problems, each of which some thread takes when it has room, and their solutions."""

    def __init__(self, problems: Sequence[Problem]):
        self.problems = problems
        self.found: list[Solution | None] = [None] * len(problems)
        self._waiting = iter(range(len(problems)))
        self.empty = False  # whether all have been taken

    def next(self) -> int | None:
        """The number of a problem that nobody has taken yet."""
        # one step of an iterator in C: no other thread comes between
        number = next(self._waiting, None)
        self.empty = self.empty or number is None
        return number


def solve_side_by_side(problems: Sequence[Problem], options: PDDP, threads: int) -> list[Solution]:
    """Problems for which `supported` holds."""
    batch = Batch(problems)
    threads = max(1, min(threads, len(problems) // host_lanes(options.dtype)))
    # made here one after the other, so that nothing is compiled twice; kept with the first problem,
    # for its next solve, and out of the way of other threads meanwhile
    key = ("side by side", options, threads, len(problems))
    parts = problems[0].workspaces.pop(key, None) or [
        Lockstep(problems[0], options, -(-len(problems) // threads)) for _ in range(threads)
    ]
    if threads > 1:
        default_crew(threads).map(lambda part: part.solve(batch), parts)
    else:
        parts[0].solve(batch)
    problems[0].workspaces[key] = parts
    return [solution for solution in batch.found if solution is not None]


class Lockstep:
    """Buffers of one thread, for up to `count` problems that share `problem`'s programs and length.
    All arrays have the shape (groups, …, lanes).
    """

    def __init__(self, problem: Problem, options: PDDP, count: int):
        self.options, self.programs, self.steps = options, problem.programs, problem.steps
        self.dtype = np.dtype(options.dtype)
        W = self.W = host_lanes(options.dtype)
        G = self.groups = min(-(-count // W), _GROUPS)
        self.slots = G * W
        s, knots, steps = problem.system, problem.steps + 1, problem.steps
        self.layout = o = problem.programs.side_by_side
        self.problems = [problem.private_copy() for _ in range(self.slots)]
        self.p = aligned_zeros((G, knots, problem.p.shape[1], W))
        self.x, self.u, self.h = (
            aligned_zeros((G, knots, s.nx, W)),
            aligned_zeros((G, steps, s.nu, W)),
            aligned_zeros((G, steps, 1, W)),
        )
        self.gains = aligned_zeros((G, steps, o.m, o.gain_columns, W))
        self.lower, self.upper, self.active = (aligned_zeros((G, steps, s.nu, W)) for _ in range(3))
        self.regularization, self.results = (
            aligned_zeros((G, W)),
            aligned_zeros((G, len(RESULTS), W)),
        )
        self.alphas, self.choice = options.step_sizes, Search(options)
        self._bind_backward()
        self._bind_forward()
        self.J, self.rho, self.negligible = (
            np.zeros(self.slots),
            np.zeros(self.slots),
            np.zeros(self.slots),
        )
        self.tolerance, self.expected = np.zeros(self.slots), np.zeros(self.slots)
        self.slow = np.zeros(self.slots, int)  # steps in a row that hardly lowered the cost
        self.outer = [Outer(own, options) for own in self.problems]
        self.which = np.full(self.slots, -1)  # the number of the problem in each slot
        self.histories: list[list[float]] = [[] for _ in range(self.slots)]
        self.rounds = np.zeros(self.slots, int)  # iterations; -1 of a problem that has not begun
        # whether this round, without regularisation, tells converged from stalled
        self.last_try = np.zeros(self.slots, bool)
        # whether there is no step here without regularisation
        self.singular = np.zeros(self.slots, bool)
        # whether the last step was refused, so that the next is no new iteration
        self.again = np.zeros(self.slots, bool)

    def _of(self, array: np.ndarray, slot: int) -> np.ndarray:
        """The part of an array that belongs to a slot."""
        return array[slot // self.W, ..., slot % self.W]

    def _bind_backward(self) -> None:
        o, G, W, steps = self.layout, self.groups, self.W, self.steps
        # what the expansions read: the same arrays, or copies in the shorter type
        self.read = [
            a if a.dtype == self.dtype else a.astype(self.dtype)
            for a in (self.x, self.u, self.h, self.p)
        ]
        running, last = self.programs.expansions_side_by_side(self.options.dtype, W)
        self.end = aligned_zeros((G, o.n + 1, o.state_columns, W), self.dtype)
        self.expanded = {
            name: aligned_zeros((G, steps, math.prod(shape), W), self.dtype)
            for name, shape in running.outputs.items()
        }
        x, u, h, p = self.read
        inputs = {"x": x[:, :-1], "u": u, "h": h, "p": p[:, :-1]}
        self.expansion = running.bind(inputs, self.expanded)
        self.final_expansion = last.bind(
            {"x": x[:, -1:], "p": p[:, -1:]}, {"V": self.end.reshape(G, 1, -1, W)}
        )
        arrays = {
            "V": self.end,
            "gains": self.gains,
            "rho": self.regularization,
            "results": self.results,
            "h": self.h,
        }
        arrays |= {"lower": self.lower, "upper": self.upper, "u": self.u, "held": self.active}
        self.backward = bind_side_by_side(o, self.expanded | arrays, self.options.dtype)

    def _at_all_knots(self, array: np.ndarray) -> np.ndarray:
        """(groups, steps, …) of an array that has the same for all steps."""
        return np.broadcast_to(array[:, None], (len(array), self.steps, *array.shape[1:]))

    def _bind_forward(self) -> None:
        G, W, A, steps, s = (
            self.groups,
            self.W,
            len(self.alphas),
            self.steps,
            self.problems[0].system,
        )
        kernel, last = self.programs.roll_out(problems=W), self.programs.final_cost(W)
        self.X, self.U = (
            aligned_zeros((A, G, steps + 1, s.nx, W)),
            aligned_zeros((A, G, steps, s.nu, W)),
        )
        self.C, self.totals = aligned_zeros((A, G, steps + 1, 2, W)), aligned_zeros((A, G, 1, 2, W))
        common = {
            "x_ref": self.x[:, :-1],
            "u_ref": self.u,
            "gains": self.gains.reshape(G, steps, -1, W),
            "h": self.h,
            "p": self.p[:, :-1],
        }
        if self.programs.bounded:
            common |= {"lower": self.lower, "upper": self.upper}
        self.sizes = aligned_zeros((A, G, 1, W))
        self.sweeps: list[Bound] = []
        self.finals: list[Bound] = []
        for k, (X, U, C) in enumerate(zip(self.X, self.U, self.C, strict=True)):
            inputs = common | {
                "x": X[:, :-1],
                "cost": C[:, :-1],
                "alpha": self._at_all_knots(self.sizes[k]),
            }
            self.sweeps.append(kernel.bind(inputs, {"u": U, "x": X[:, 1:], "cost": C[:, 1:]}))
            inputs = {"x": X[:, -1:], "cost": C[:, -1:], "p": self.p[:, -1:]}
            self.finals.append(last.bind(inputs, {"cost": self.totals[k]}))
        # which of them becomes the reference, in each lane; -1: none
        self.which_step = np.full((G, 1, W), -1.0)
        self.take: list[Bound] = []
        for name, now, candidates in (("x", self.x, self.X), ("u", self.u, self.U)):
            which = np.broadcast_to(self.which_step[:, None], (G, now.shape[1], 1, W))
            inputs = {"which": which, "now": now} | {
                str(k): each for k, each in enumerate(candidates)
            }
            self.take.append(self.programs.choice(name, A, W).bind(inputs, {"now": now}))

    def _chained(self, sweeps: int) -> Bound:
        """An iteration of a group, with its first sweeps."""
        roll_outs = interleave(self.sweeps[:sweeps])
        return chain(
            [self.final_expansion, self.expansion, self.backward, roll_outs, *self.finals[:sweeps]]
        )

    # --- solving ----------------------------------------------------------------------------------

    def solve(self, batch: Batch) -> None:
        """Solves problems of a batch until none is left."""
        self.batch, self.count, self.alone = batch, 0, False  # slots in use are the first ones
        self.sizes[:] = self.alphas[:, None, None, None]
        self.which_step[:] = -1.0
        self.iteration = self._chained(min(self.choice.turns[0], len(self.alphas)))
        while self.count < self.slots and self._load_next(self.count):
            self.count += 1
        self._begin(range(self.count))
        while self.count:
            ended = self._round()
            for slot in sorted(ended, reverse=True):
                self._finish(slot, ended[slot])
                if not self._load_next(slot):
                    self.count -= 1
                    self._move(self.count, slot)
            if self.count == 1 and batch.empty and not self.alone:
                self._spread()
            fresh = [slot for slot in range(self.count) if self.rounds[slot] < 0]
            if fresh:
                self._begin(fresh)
        del self.batch  # buffers stay, problems need not

    def _spread(self) -> None:
        """The last problem goes into all lanes of the first group, each with a step size of its
        own.
        """
        self._take()
        self.alone = True
        for array in (
            self.p,
            self.x,
            self.u,
            self.h,
            self.gains,
            self.lower,
            self.upper,
            self.active,
        ):
            array[0] = array[0, ..., :1]
        self.X[:, 0, 0] = self.problems[0].start[:, None]
        sweeps = -(-len(self.alphas) // self.W)
        self.sizes[:sweeps, 0, 0] = np.resize(self.alphas, (sweeps, self.W))
        self.iteration = self._chained(-(-min(self.choice.turns[0], len(self.alphas)) // self.W))

    def _load_next(self, slot: int) -> bool:
        number = self.batch.next()
        if number is not None:
            self._load(slot, number)
        return number is not None

    def _load(self, slot: int, number: int) -> None:
        own = self.problems[slot]
        own.copy_numbers(self.batch.problems[number])
        self.which[slot] = number
        self._share(slot)
        self._of(self.h, slot)[:, 0] = own.h
        self._of(self.lower, slot)[:], self._of(self.upper, slot)[:] = own.bounds
        self._of(self.u, slot)[:] = own.guess
        self._of(self.gains, slot)[:] = self._of(self.active, slot)[:] = 0.0
        self._of(self.x, slot)[:] = own.start
        self._start(slot, own.start)
        self.negligible[slot] = own.negligible()
        self.rounds[slot] = -1

    def _share(self, slot: int) -> None:
        """Lanes get to know a problem's targets, weights and multipliers."""
        own = self.problems[slot].p
        if self.alone:
            self.p[0] = own[..., None]
        else:
            self._of(self.p, slot)[:] = own

    def _move(self, source: int, target: int) -> None:
        """What is in the last slot goes into one that became free."""
        if source == target:
            return
        for array in (
            self.p,
            self.x,
            self.u,
            self.h,
            self.gains,
            self.lower,
            self.upper,
            self.active,
        ):
            self._of(array, target)[...] = self._of(array, source)
        per_slot = (
            self.J,
            self.rho,
            self.tolerance,
            self.expected,
            self.slow,
            self.negligible,
            self.which,
            self.rounds,
            self.again,
            self.last_try,
            self.singular,
        )
        for numbers in per_slot:
            numbers[target] = numbers[source]
        self._start(target, self.problems[source].start)
        self.problems[target].copy_numbers(self.problems[source])
        self.histories[target], self.histories[source] = self.histories[source], []
        self.outer[target].take_over(self.outer[source])

    def _start(self, slot: int, state: np.ndarray) -> None:
        self.X[:, slot // self.W, 0, :, slot % self.W] = state

    def _begin(self, slots: Iterable[int]) -> None:
        """Simulates first guesses: slots just loaded have no gains yet, so that any step size will
        do.
        """
        self._roll_out(0, 1, slots)
        costs = self._costs()
        for slot in slots:
            self.rounds[slot], self.again[slot], self.last_try[slot] = 0, False, False
            self.J[slot], self.rho[slot] = costs[slot, 0].sum(), 0.0
            self.which_step.reshape(-1)[slot] = 0.0
            self.slow[slot], self.expected[slot], self.singular[slot] = 0, np.inf, False
            self.histories[slot] = [float(costs[slot, 0, 0])]
            if not math.isfinite(self.J[slot]):
                continue
            own, guess = (
                self.problems[slot],
                (self._of(self.X[0], slot).copy(), self._of(self.U[0], slot).copy()),
            )
            self.outer[slot].begin(*guess)
            self.tolerance[slot] = self.outer[slot].tolerance
            if own.constraints:
                self.J[slot] = float(own.evaluate(*guess)[1].sum())
            self._share(slot)

    def _roll_out(self, tried: int, upto: int, slots: Iterable[int]) -> None:
        """Simulates step sizes from `tried` to `upto` of the groups that have these slots."""
        if self.alone:
            tried, upto = -(-tried // self.W), -(-upto // self.W)
        groups, used = sorted({slot // self.W for slot in slots}), -(-self.count // self.W)
        for k in range(tried, min(upto, len(self.sweeps))):
            for bound in (self.sweeps[k], self.finals[k]):
                if len(groups) == used:
                    bound.run_short(0, used)
                else:
                    for group in groups:
                        bound.run_short(group, group + 1)

    def _costs(self) -> np.ndarray:
        """(slots, alphas, 2): costs and penalties."""
        if self.alone:
            return self.totals[:, 0, 0].transpose(0, 2, 1).reshape(1, -1, 2)[:, : len(self.alphas)]
        return self.totals[:, :, 0].transpose(1, 3, 0, 2).reshape(self.slots, len(self.alphas), 2)

    def _take(self) -> None:
        """Steps that were chosen become the references."""
        if self.alone:
            number, lane = divmod(int(self.which_step[0, 0, 0]), self.W)
            if number >= 0:
                self.x[0], self.u[0] = (
                    self.X[number, 0, ..., lane, None],
                    self.U[number, 0, ..., lane, None],
                )
        else:
            for part in self.take:
                part.run_short(0, -(-self.count // self.W))
        self.which_step[:] = -1.0

    def _round(self) -> dict[int, str]:
        """One iteration of every slot in use; what ended and how."""
        n = self.count
        self._iterate()
        slope, curve, fine = (a.reshape(-1)[:n] for a in self.results.transpose(1, 0, 2))
        usable = (fine == 1.0) & np.isfinite(slope)
        which, waiting, tried = np.full(n, -1), usable.copy(), 0
        for upto in self.choice.turns:
            if tried:
                self._roll_out(tried, upto, np.flatnonzero(waiting).tolist())
            costs = self._costs().sum(axis=2)[:n]
            found = self.choice.pick_each(self.J[:n], costs[:, :upto], slope, curve)
            which[waiting] = found[waiting]
            waiting &= which < 0
            tried = upto
            if not waiting.any():
                break
        self.which_step.reshape(-1)[:n] = which
        ended = self._judge(
            which, costs[np.arange(n), which], self.choice.expected(slope, curve), usable
        )
        if ended:
            self._take()
        results = {}
        for slot, status in ended.items():
            self.again[slot] = self.last_try[slot] = False
            left = self._outer(slot, status)
            if left:
                results[slot] = left
        return results

    def _judge(
        self, which: np.ndarray, costs: np.ndarray, expected: np.ndarray, usable: np.ndarray
    ) -> dict[int, str]:
        """Accounts for steps and refusals; the status of each slot for which that was the last."""
        n, o = len(which), self.options
        low, high = o.regularization
        J, again, singular = self.J[:n], self.again[:n], self.singular[:n]
        self.rounds[:n] += ~again
        taken = which >= 0
        again[:] = ~taken
        measured = usable & ((self.rho[:n] == 0.0) | (singular & (self.rho[:n] <= low)))
        self.expected[:n][measured] = expected[measured]
        with np.errstate(invalid="ignore"):
            fall = np.where(taken, J - costs, 0.0)
            J[:] = np.where(taken, costs, J)
            said, self.rho[:n], self.last_try[:n], singular[:], self.slow[:n] = policy.judged(
                taken=taken.astype(float),
                usable=usable.astype(float),
                expected=expected,
                fall=fall,
                cost=J,
                alpha=self.alphas[which],
                left=0.0,
                rho=self.rho[:n].copy(),
                low=low,
                high=high,
                tolerance=self.tolerance[:n],
                negligible=self.negligible[:n],
                # how little the cost falls ends only descents that need not be exact
                loose=(self.tolerance[:n] > o.tolerance).astype(float),
                telling=TELLING,
                doubtful=0.0,
                last_try=self.last_try[:n].astype(float),
                singular=singular.astype(float),
                slow=self.slow[:n].astype(float),
                patience=PATIENCE,
            )
        for slot, cost in enumerate(J.tolist()):
            if taken[slot]:
                self.histories[slot].append(cost)
        lost, late = ~np.isfinite(J), self.rounds[:n] >= o.iterations
        ended: dict[int, str] = {}
        for slot in np.flatnonzero((said > 0) | lost | late).tolist():
            word = policy.JUDGED[int(said[slot])]
            if lost[slot]:
                ended[slot] = "diverged"
            elif word == "trouble":
                ended[slot] = failure_status(
                    tuple(self._of(a, slot) for a in self.expanded.values())
                )
            else:
                ended[slot] = word if said[slot] else "iterations"
        return ended

    def _iterate(self) -> None:
        """Expands and passes backward all slots in use, and rolls out their first step sizes."""
        self._take()
        used = -(-self.count // self.W)
        if self.dtype != np.float64:
            for short, exact in zip(self.read, (self.x, self.u, self.h, self.p), strict=True):
                short[:used] = exact[:used]
        self.rho[self.count :] = (
            0.0  # of lanes that nobody uses, so that they do not hold up their group
        )
        self.regularization[:] = (
            self.rho[0] if self.alone else self.rho.reshape(self.groups, self.W)
        )
        self.results[:, :2], self.results[:, 2] = 0.0, 1.0
        self.iteration.run(None, used)

    def _outer(self, slot: int, status: str) -> str:
        """With constraints, the end of a descent need not be the end: multipliers are renewed."""
        own = self.problems[slot]
        if not own.constraints or status == "diverged":
            return status
        x, u = self._trajectory(slot)
        result = self.outer[slot].after(status, x, u, int(self.rounds[slot]))
        if not result:
            self._share(slot)
            self.J[slot] = float(own.evaluate(x, u)[1].sum())
            self.rho[slot], self.tolerance[slot], self.slow[slot] = (
                0.0,
                self.outer[slot].tolerance,
                0,
            )
        return result

    def _trajectory(self, slot: int) -> tuple[np.ndarray, np.ndarray]:
        return np.ascontiguousarray(self._of(self.x, slot)), np.ascontiguousarray(
            self._of(self.u, slot)
        )

    def _finish(self, slot: int, status: str) -> None:
        K = np.ascontiguousarray(self._of(self.gains, slot)[:, :, : self.layout.n])
        expected, J, negligible = (
            float(numbers[slot]) for numbers in (self.expected, self.J, self.negligible)
        )
        stats = {
            "history": self.histories[slot],
            "optimality": relative_fall(expected, J, negligible, self.options.tolerance),
        }
        self.batch.found[self.which[slot]] = Solution.of(
            self.problems[slot], status, *self._trajectory(slot), K, int(self.rounds[slot]), stats
        )
