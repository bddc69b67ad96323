"""Solvers on a GPU: `rg.PDDP(device=…)` and `rg.Direct(device=…)`, for one problem or a batch that
differs in numbers alone.

Each goes the way of the CPU's (`pddp`, `direct`), with these differences: the expected fall of the
cost is that of the quadratic model along the step, also with stale cost-to-go; defects smaller than
the rounding of states count for nothing; in float32, and with blocks of the backward pass, how
little the cost falls may end a descent without constraints; and the direct method has no second
step that closes what a step leaves of the defects. Constraints are the CPU's business
(`augmented`), between descents; so is the choice which controls are at their bounds in a step of
the direct method (`linear.box`), whose LQ problems are the device's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from rigidgrad.control.device_run import (
    BEGIN,
    CONVERGED,
    DIVERGED,
    ITERATIONS,
    RUNNING,
    DeviceRun,
    with_last_row,
)
from rigidgrad.control.direct import FIRST_PENALTY, Direct, leads_elsewhere
from rigidgrad.control.linear import box
from rigidgrad.control.linear.solvers import Step
from rigidgrad.control.pddp import PDDP, check_blocks, guess_with_gaps
from rigidgrad.control.problem import Problem
from rigidgrad.control.search import ARMIJO, PATIENCE, TELLING, Search
from rigidgrad.control.solution import Solution
from rigidgrad.errors import InputError
from rigidgrad.runtime.gpu import DEVICES
from rigidgrad.runtime.gpu_solver import CONTROL, PCG_BLOCKS, STEP_SIZES, Numbers

_LINEAR = {"float64": 0.0, "float32": 1e-12}  # η falls no further, relatively
# of steps, relatively, when it is judged whether bounds hold controls
_BOX = {"float64": box.ACCURACY, "float32": 1e-4}
_FIRST_LAUNCHES, _MOST_LAUNCHES = 8, 64  # iterations before the host looks who has ended
_NOTHING = (
    1e-10  # of the direct method: a cost smaller than this share of the first one counts as zero
)


def check_options(solver: PDDP | Direct) -> None:
    """Raises where a solver's options are none for a device."""
    if solver.device not in DEVICES:
        raise InputError(
            f"device is None (the CPU), {' or '.join(map(repr, DEVICES))}, not {solver.device!r}"
        )
    if len(solver.step_sizes) > STEP_SIZES:
        raise InputError(
            f"on a device there are at most {STEP_SIZES} step sizes, not {len(solver.step_sizes)}"
        )
    if isinstance(solver, PDDP):
        return
    if (
        (solver.linear_solver, solver.preconditioner) != ("pcg", "symmetric_stair")
        or solver.polynomial
        or solver.reductions
    ):
        raise InputError(
            "the direct method on a device is linear_solver='pcg' with"
            " preconditioner='symmetric_stair', without polynomial= and reductions="
        )
    if solver.pcg_blocks not in PCG_BLOCKS:
        named = " or ".join(map(repr, PCG_BLOCKS))
        raise InputError(f"pcg_blocks is {named}, not {solver.pcg_blocks!r}")


def solve_on_device(problems: Sequence[Problem], solver: Any) -> list[Solution]:
    """Of each problem; those that share programs and length are solved together."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for k, p in enumerate(problems):
        groups.setdefault((id(p.programs), p.steps, p.guess_states is None), []).append(k)
    found: dict[int, Solution] = {}
    for numbers in groups.values():
        own = [problems[k] for k in numbers]
        run = DevicePDDP(own, solver) if isinstance(solver, PDDP) else DeviceDirect(own, solver)
        found |= dict(zip(numbers, run.solve(), strict=True))
    return [found[k] for k in range(len(problems))]


def pddp_options(o: PDDP, open_: bool) -> dict[str, float]:
    """What kernels of parallel DDP read besides; `open_`: there may be defects."""
    search = Search(o)
    return {
        "defect": o.defect,
        "whole": search.whole,
        "first_sizes": len(o.step_sizes) if open_ else search.turns[0],
        "armijo": ARMIJO,
        "telling": TELLING,
        "patience": PATIENCE,
    }


class DevicePDDP(DeviceRun):
    """Parallel DDP on a device."""

    def __init__(self, problems: Sequence[Problem], options: PDDP):
        check_blocks(problems[0], options)
        self.gaps = problems[0].guess_states is not None
        super().__init__(
            problems, options, options.M_f, options.M_b, options.step_sizes, len(options.step_sizes)
        )

    def begin(self) -> None:
        self.write_options(**pddp_options(self.options, self.open))
        if self.gaps:
            self.measure_gaps()
        else:
            self.simulate_guess()
        self.note_first()

    def measure_gaps(self) -> None:
        """What guesses of states leave of the dynamics."""
        found = [guess_with_gaps(p) for p in self.problems]
        J = np.array([one[2] for one in found])
        self.x.write(np.array([one[0] for one in found]))
        self.gap.write(np.array([with_last_row(one[1]) for one in found]))
        self.write_account(slice(None), cost=J, status=np.where(np.isfinite(J), RUNNING, DIVERGED))

    def round(self) -> None:
        self.together("round", self.iterate)

    def iterate(self) -> None:
        self.expand()
        self.backward()
        sizes = self.count, self.steps, self.blocks
        self.launch(
            "solver_consensus",
            self.count,
            *sizes,
            self.control,
            self.fine,
            self.gains,
            self.closed,
            self.step,
        )
        self.roll_out(self.shooting, self.alphas, len(self.step_sizes), self.gaps)

    def settle(self, ended: np.ndarray) -> None:
        if self.open:
            self.close(ended & (self.status == CONVERGED))

    def finish(self) -> None:
        if self.open:
            self.close(self.status != DIVERGED)

    @property
    def open(self) -> bool:
        """Whether there may be defects."""
        return self.shooting > 1 or self.gaps

    def more_stats(self, k: int) -> dict[str, Any]:
        return {"defects": self.defects[k]} if self.open else {}


class DeviceDirect(DeviceRun):
    """Direct optimisation on a device: the Schur complement by a block of threads a knot, conjugate
    gradients by one per problem or per knot, all step sizes at once.
    """

    direct = True
    # with new multipliers it is another problem, with another penalty of defects
    forgotten: ClassVar[Mapping[str, float]] = {"sigma": 0.0}

    def __init__(self, problems: Sequence[Problem], options: Direct):
        super().__init__(problems, options, 1, 1, options.step_sizes, 1)
        n, m = self.kernels.ndx, self.kernels.nu
        P, K, a = self.count, self.knots, self.session.array
        self.origin = a(P, self.kernels.nx)
        self.d, self.lam, self.delta = (a(P, K, n) for _ in range(3))
        # parts of the Schur complement, its matrices and their preconditioner (`kernels.schur`)
        self.theta, self.left = a(P, K, n, n), a(P, K, n + m)
        self.own, self.part, self.gamma = (a(P, K, n) for _ in range(3))
        self.W, self.R_inverse, self.phi = a(P, K, 2 * n + m, n), a(P, K, m, m), a(P, K, 3, n, n)
        # the states of the next knots, and the gaps to them
        self.ahead, self.after = (a(P, K, self.kernels.nx), a(P, K, n))
        self.definite = a(P, K)
        if options.pcg_blocks == "trajectory":
            self.work = a(P, self.kernels.gradients_work(K))
        else:
            # what knots hand on: Φr and S p, with a knot of zeros at each end, and products of them
            self.conditioned, self.multiplied = (a(P, K + 2, n) for _ in range(2))
            self.falls, self.curvatures = a(P, K), a(P, K)
            if self.session.blocks_meet:
                self.meetings = self.session.table(np.zeros(P, np.int32))
            else:
                self.kept, self.going = a(P, K, self.kernels.gradients_kept(K)), a(P)
        self.costs, self.gaps = a(P, len(self.step_sizes), K), a(P, len(self.step_sizes), K)
        self.limit = 10 * K * n if options.linear_iterations is None else options.linear_iterations
        self.counts: list[list[int]] = [[] for _ in problems]
        self.counted = np.zeros(P)  # linear iterations before this round
        # LQ problems with controls held, and the knots' matrices that are left
        if self.kernels.condensed:
            self.which, self.values, self.weight, self.push = (a(P, K, m) for _ in range(4))
            self.own_after, self.own_F, self.own_g, self.own_H = (
                a(P, K, n),
                a(P, K, n, n + m),
                a(P, K, n + m),
                a(P, K, n + m, n + m),
            )
            self.own_d, self.feedback = a(P, K, n), a(P, K, m, n)
            self.gradient, self.diagonal = a(P, K, m), a(P, K, m)
            # -1, 0, 1: at the lower bound, free, at the upper one
            self.at_bounds = np.zeros((P, self.steps, m))

    def begin(self) -> None:
        o = self.options
        self.write_options(
            first_penalty=FIRST_PENALTY,
            nothing=_NOTHING,
            linear_tolerance=max(o.linear_tolerance, _LINEAR[o.dtype]),
            linear_limit=self.limit,
            constrained=bool(self.problems[0].constraints),
        )
        self.origin.write(np.array([p.start for p in self.problems]))
        self.simulate_guess()
        x = self.x.read()
        self.simulated_guess = np.isfinite(x).all(axis=(1, 2)) & [
            p.guess_states is None for p in self.problems
        ]
        for k in np.flatnonzero(~self.simulated_guess).tolist():
            states = self.problems[k].guess_states
            x[k] = self.problems[k].start if states is None else states
        self.x.write(x)
        self.first = x, self.u.read()
        self.write_account(slice(None), status=BEGIN)
        self.judge(self.none, 1)
        self.read_account()
        self.note_first()

    def round(self) -> None:
        self.counted = self.column("linear_iterations").copy()
        if self.kernels.bounded:
            self.expand()
            self.keep_within_bounds()
            self.together("judge", self.judge_all)
        else:
            self.together("round", self.iterate)

    def iterate(self) -> None:
        """A round without bounds of controls, all of it on the device."""
        if self.kernels.condensed:
            self.expand()
            self.solve_condensed()
        else:
            self.solve_linear(self.d, (self.after, self.F, self.g, self.H))
        self.judge_all()

    def judge_all(self) -> None:
        self.judge(self.alphas, len(self.step_sizes))

    def solve_condensed(self) -> None:
        """The LQ problems with controls held, and with products of states and controls."""
        rows, sizes = self.count * self.knots, (self.count, self.knots)
        whole, held = (self.F, self.g, self.H), (self.which, self.values)
        own = self.own_after, self.own_F, self.own_g, self.own_H
        added = self.weight, self.push
        self.launch(
            "solver_condense",
            rows,
            *sizes,
            self.control,
            self.origin,
            self.x,
            self.after,
            *whole,
            *held,
            *added,
            self.d,
            *own,
            self.feedback,
        )
        self.solve_linear(self.own_d, own)
        items = -(-rows // self.kernels.threads("solver_complete"))
        found = self.step, self.gradient, self.diagonal
        self.launch(
            "solver_complete",
            items,
            *sizes,
            self.control,
            self.definite,
            *whole,
            *held,
            self.feedback,
            self.lam,
            *found,
        )

    def keep_within_bounds(self) -> None:
        """Each problem's step within the bounds of its controls. Which trial is next is `box`'s:
        those of all problems are solved together, and problems whose step is found sit the others
        out.
        """
        running = self.status == RUNNING
        u, (lower, upper) = (
            self.trajectories()[1],
            (np.array([p.bounds[k] for p in self.problems]) for k in (0, 1)),
        )
        asking = {
            k: box.trials(
                lower[k] - u[k], upper[k] - u[k], self.at_bounds[k], _BOX[self.options.dtype]
            )
            for k in np.flatnonzero(running).tolist()
        }
        asked = {k: next(trials) for k, trials in asking.items()}
        steps, lam, definite = (a.read() for a in (self.step, self.lam, self.definite))
        solved = np.zeros(self.count)
        while asked:
            self.write_account(
                running,
                status=[RUNNING if k in asked else ITERATIONS for k in np.flatnonzero(running)],
            )
            for name in ("which", "values", "weight", "push"):
                rows = np.zeros((self.count, self.knots, self.kernels.nu))
                for k, trial in asked.items():
                    rows[k, :-1] = getattr(trial, name)
                getattr(self, name).write(rows)
            self.together("solve", self.solve_condensed)
            self.account = self.control.fetched().astype(float)
            for k, found in self.found(list(asked)).items():
                try:
                    asked[k] = asking[k].send(found)
                except StopIteration as ended:
                    step, self.at_bounds[k] = ended.value
                    del asked[k]
                    steps[k], lam[k] = (
                        np.concatenate([step.dx, with_last_row(step.du)], axis=1),
                        step.lam,
                    )
                    definite[k], solved[k] = step.status != "indefinite", step.solved
        for own, values in ((self.step, steps), (self.lam, lam), (self.definite, definite)):
            own.write(values)
        self.write_account(running, status=RUNNING, solved=solved[running])

    def found(self, numbers: list[int]) -> dict[int, box.Found]:
        """The solutions of the LQ problems of these numbers."""
        n, solved = self.kernels.ndx, self.column("solved")
        read = (
            a.read().astype(float)
            for a in (self.step, self.lam, self.definite, self.gradient, self.diagonal)
        )
        steps, lam, definite, gradient, diagonal = read
        found = {}
        for k in numbers:
            status = "indefinite" if not definite[k].all() else "solved" if solved[k] else "limit"
            step = Step(steps[k, :, :n], steps[k, :-1, n:], lam[k], status)
            found[k] = box.Found(step, gradient[k, :-1], diagonal[k, :-1])
        return found

    def solve_linear(self, defects: Numbers, own: tuple[Numbers, ...]) -> None:
        """The LQ problems of these gaps and matrices F, g, H, by conjugate gradients; fills
        `defects`, the multipliers and the step.
        """
        rows, sizes = self.count * self.knots, (self.count, self.knots)
        after, F, g, H = own
        parts = self.theta, self.own, self.part
        known = defects, self.W, self.R_inverse, *parts, self.left, self.definite
        first = *sizes, self.numbers, self.control, self.origin
        if self.fused:
            trajectory = self.h, self.p, self.x, self.u, self.lam
            self.launch("solver_setup", rows, *first, *trajectory, F, g, H, *known)
        else:
            if not self.kernels.condensed:
                self.expand()
            self.launch("solver_schur", rows, *first, self.x, self.lam, after, F, g, H, *known)
        system = self.gamma, self.phi, self.definite
        self.launch("solver_row", rows, *sizes, self.control, defects, self.W, *parts, *system)
        judged = self.control, self.definite
        self.launch("solver_stair", rows, *sizes, *judged, self.W, self.phi)
        self.conjugate_gradients(F)
        inverses = self.W, self.R_inverse
        self.launch(
            "solver_recover", rows, *sizes, *judged, F, self.left, *inverses, self.delta, self.step
        )
        self.launch("solver_propagate", self.count, *sizes, *judged, F, defects, self.step)

    def conjugate_gradients(self, F: Numbers) -> None:
        options = self.numbers, self.definite
        matrices = F, self.W, self.phi, self.gamma
        found = self.control, self.lam, self.delta
        if self.options.pcg_blocks == "trajectory":
            self.launch(
                "solver_pcg", self.count, self.count, *options, *matrices, *found, self.work
            )
        elif self.session.blocks_meet:
            handed_on = self.conditioned, self.multiplied, self.falls, self.curvatures
            entry = "solver_pcg_knots"
            at_once = self.session.most_together(entry)
            if not (most := at_once // self.knots):
                raise InputError(
                    f"{self.knots} knots are more blocks than the device runs at once ({at_once}):"
                    " use pcg_blocks='trajectory'"
                )
            for first in range(0, self.count, most):
                blocks = min(most, self.count - first) * self.knots
                own = *options, *matrices, *found, *handed_on, self.meetings
                self.session.launch_together(entry, blocks, first, *own)
        else:
            self.conjugate_gradients_by_launches(F)

    def conjugate_gradients_by_launches(self, F: Numbers) -> None:
        """Two launches an iteration, of which the host asks for more until all problems have
        ended.
        """
        items = self.count * self.knots
        ready, turned = (self.conditioned, self.falls), (self.multiplied, self.curvatures)
        first = self.definite, self.phi, self.gamma, self.control
        self.launch("solver_pcg_begin", items, self.count, *first, *ready, self.kept, self.going)
        found = self.control, self.lam, self.delta
        along = self.numbers, F, self.W, *found, *ready, *turned, self.kept, self.going
        iterations = _FIRST_LAUNCHES
        while self.going.read().any():
            for _ in range(iterations):
                self.launch("solver_pcg_direction", items, self.count, *along)
                own = self.phi, *turned, *ready, self.kept
                self.launch("solver_pcg_step", items, self.count, *own)
            iterations = min(2 * iterations, _MOST_LAUNCHES)

    def between(self) -> tuple[Numbers, ...]:
        items = -(
            -self.count * self.knots * self.kernels.nx // self.kernels.threads("solver_ahead")
        )
        self.launch("solver_ahead", items, self.count, self.knots, self.x, self.ahead)
        return self.ahead, self.after

    def judge(self, alphas: Any, count: int) -> None:
        """The line search (Algorithm 7)."""
        sizes = self.count, self.knots, count, len(self.step_sizes)
        items = -(-self.count * count * self.knots // self.kernels.threads("solver_search"))
        inputs = (
            self.control,
            self.definite,
            alphas,
            self.h,
            self.p,
            self.origin,
            self.x,
            self.u,
            self.lower,
            self.upper,
            self.step,
        )
        self.launch("solver_search", items, *sizes, *inputs, self.costs, self.gaps)
        known = (
            self.numbers,
            alphas,
            self.definite,
            self.F,
            self.g,
            self.H,
            self.d,
            self.lam,
            self.lower,
            self.upper,
            self.step,
            self.costs,
            self.gaps,
        )
        self.launch("solver_judge", self.count, *sizes, *known, self.control, self.x, self.u)

    def read_account(self, fetched: bool = False) -> None:
        running = self.status == RUNNING
        super().read_account(fetched)
        for k in np.flatnonzero(running).tolist():
            self.counts[k].append(int(self.column("linear_iterations")[k] - self.counted[k]))

    def settle(self, ended: np.ndarray) -> None:
        """What is left of the defects goes into a roll-out, but where that leads elsewhere."""
        x, u, J = self.x.read(), self.u.read(), self.column("cost")
        self.roll(ended)
        closed = self.x.read().astype(float), self.u.read().astype(float)
        elsewhere = np.zeros(self.count, bool)
        for k in np.flatnonzero(ended).tolist():
            elsewhere[k] = leads_elsewhere(J[k], self.problems[k], closed[0][k], closed[1][k, :-1])
        for own, before, after in ((self.x, x, closed[0]), (self.u, u, closed[1])):
            after[elsewhere] = before[elsewhere]
            own.write(after)

    def finish(self) -> None:
        """Gains by a backward pass, and with them a trajectory without defects; the guess where
        that is better.
        """
        alive = self.status != DIVERGED
        self.roll(alive)
        x, u = self.x.read().astype(float), self.u.read().astype(float)
        worse = alive & self.simulated_guess
        for k in np.flatnonzero(worse).tolist():
            p, (x0, u0) = self.problems[k], (a[k].astype(float) for a in self.first)
            worse[k] = not p.cost(x[k], u[k, :-1]) <= p.cost(x0, u0[:-1])
        if worse.any():
            x[worse], u[worse] = self.first[0][worse], self.first[1][worse]
            self.x.write(x)
            self.u.write(u)
            self.roll(worse)

    def roll(self, which: np.ndarray) -> None:
        """Gains by a backward pass, and with them the trajectories without defects. Accounts stay
        as they are.
        """
        kept, rho, left = self.account.copy(), 0.0, which.copy()
        self.expand()
        while left.any() and rho <= self.options.regularization[1]:
            self.write_account(~left, status=DIVERGED)  # they stay as they are
            self.write_account(left, status=RUNNING, rho=rho, fresh=1)
            self.backward()
            left &= self.fine.read()[:, 0] == 0
            rho = max(1e-9, 10.0 * rho)
        self.write_account(slice(None), **{name: kept[:, k] for k, name in enumerate(CONTROL)})
        if left.any():
            gains = self.gains.read()
            gains[left] = 0.0
            self.gains.write(gains)
        self.close(which)

    def more_stats(self, k: int) -> dict[str, Any]:
        return {
            "set_up": "fused" if self.fused else "split",
            "pcg_blocks": self.options.pcg_blocks,
            "gaps": self.defects[k],
            "linear_iterations": self.counts[k],
            "penalty": float(self.column("sigma")[k]),
        }
