"""Solvers on a GPU: `rg.PDDP(device=…)` and `rg.Direct(device=…)`, for one problem or a batch that differs in numbers alone.

Each goes the way of the CPU's (`pddp`, `direct`), with these differences: the expected fall of the cost is that of the quadratic model along the step, also with stale
cost-to-go; defects smaller than the rounding of states count for nothing; how little the cost falls may end a descent without constraints; and the direct method has no second step that
closes what a step leaves of the defects. Constraints are the CPU's business (`augmented`), between descents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from rigidgrad.control.device_run import BEGIN, CONVERGED, DIVERGED, RUNNING, DeviceRun, with_last_row
from rigidgrad.control.direct import FIRST_PENALTY, Direct, leads_elsewhere
from rigidgrad.control.pddp import PDDP, check_blocks, guess_with_gaps
from rigidgrad.control.problem import Problem
from rigidgrad.control.search import ARMIJO, TELLING, Search
from rigidgrad.control.solution import Solution
from rigidgrad.errors import InputError
from rigidgrad.runtime.gpu import DEVICES
from rigidgrad.runtime.gpu_solver import CONTROL, STEP_SIZES, Numbers

_LINEAR = {"float64": 0.0, "float32": 1e-12}  # η falls no further, relatively
_NOTHING = 1e-10  # of the direct method: a cost smaller than this share of the first one counts as zero


def check_options(solver: PDDP | Direct) -> None:
    """Raises where a solver's options are none for a device."""
    if solver.device not in DEVICES:
        raise InputError(f"device is None (the CPU), {' or '.join(map(repr, DEVICES))}, not {solver.device!r}")
    if len(solver.step_sizes) > STEP_SIZES:
        raise InputError(f"on a device there are at most {STEP_SIZES} step sizes, not {len(solver.step_sizes)}")
    if isinstance(solver, PDDP):
        if solver.second_order:
            raise InputError("second_order is for the CPU: leave it out, or device")
    elif (solver.linear_solver, solver.preconditioner) != ("pcg", "symmetric_stair") or solver.polynomial or solver.reductions:
        raise InputError(
            "the direct method on a device is linear_solver='pcg' with preconditioner='symmetric_stair', without polynomial= and reductions="
        )


def solve_on_device(problems: Sequence[Problem], solver: Any) -> list[Solution]:
    """Of each problem; those that share programs and length are solved together."""
    groups: dict[tuple, list[int]] = {}
    for k, p in enumerate(problems):
        groups.setdefault((id(p.programs), p.steps, p.guess_states is None), []).append(k)
    found: dict[int, Solution] = {}
    for numbers in groups.values():
        own = [problems[k] for k in numbers]
        run = DevicePDDP(own, solver) if isinstance(solver, PDDP) else DeviceDirect(own, solver)
        found |= dict(zip(numbers, run.solve(), strict=True))
    return [found[k] for k in range(len(problems))]


class DevicePDDP(DeviceRun):
    """Parallel DDP on a device."""

    def __init__(self, problems: Sequence[Problem], options: PDDP):
        check_blocks(problems[0], options)
        self.gaps = problems[0].guess_states is not None
        super().__init__(problems, options, options.M_f, options.M_b, options.step_sizes, len(options.step_sizes))

    def begin(self) -> None:
        o, search = self.options, Search(self.options)
        self.write_options(
            defect=o.defect,
            whole=search.whole,
            first_sizes=len(self.step_sizes) if self.open else search.turns[0],
            armijo=ARMIJO,
            telling=TELLING,
        )
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
        self.expand()
        self.backward()
        sizes = self.count, self.steps, self.blocks
        self.launch("solver_consensus", self.count, *sizes, self.control, self.fine, self.gains, self.closed, self.step)
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
    """Direct optimisation on a device: the Schur complement by a block of threads a knot, conjugate gradients by one a problem, all step sizes at once."""

    direct = True
    forgotten: ClassVar[Mapping[str, float]] = {"sigma": 0.0}  # with new multipliers it is another problem, with another penalty of defects

    def __init__(self, problems: Sequence[Problem], options: Direct):
        super().__init__(problems, options, 1, 1, options.step_sizes, 1)
        n, m = self.kernels.ndx, self.kernels.nu
        P, K, a = self.count, self.knots, self.session.array
        self.origin, self.d, self.lam, self.delta, self.reduced = a(P, self.kernels.nx), a(P, K, n), a(P, K, n), a(P, K, n), a(P, K, n + m)
        self.inverse, self.beside, self.beside_t = a(P, K, n, n), a(P, K, n, n), a(P, K, n, n)
        self.before, self.Q_inverse, self.R_inverse = a(P, K, n + m, n), a(P, K, n, n), a(P, K, m, m)
        self.ahead, self.after = a(P, K, self.kernels.nx), a(P, K, n)  # the states of the next knots, and the gaps to them
        self.definite, self.gamma = a(P, K), a(P, K, 2, n)
        self.costs, self.gaps = a(P, len(self.step_sizes), K), a(P, len(self.step_sizes), K)
        self.limit = 10 * K * n if options.linear_iterations is None else options.linear_iterations
        self.counts: list[list[int]] = [[] for _ in problems]

    def begin(self) -> None:
        o = self.options
        self.write_options(
            first_penalty=FIRST_PENALTY,
            nothing=_NOTHING,
            linear_tolerance=max(o.linear_tolerance, _LINEAR[o.dtype]),
            constrained=bool(self.problems[0].constraints),
        )
        self.origin.write(np.array([p.start for p in self.problems]))
        self.simulate_guess()
        x = self.x.read()
        self.simulated_guess = np.isfinite(x).all(axis=(1, 2)) & [p.guess_states is None for p in self.problems]
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
        rows, sizes = self.count * self.knots, (self.count, self.knots)
        known = self.d, self.inverse, self.before, self.Q_inverse, self.R_inverse, self.gamma, self.reduced, self.definite
        if self.fused:
            trajectory = self.h, self.p, self.x, self.u, self.lam
            self.launch("solver_setup", rows, *sizes, self.control, self.origin, *trajectory, self.F, self.g, self.H, *known)
        else:
            self.expand()
            derivatives = self.after, self.F, self.g, self.H
            self.launch("solver_schur", rows, *sizes, self.control, self.origin, self.x, self.lam, *derivatives, *known)
        self.launch("solver_stair", rows, *sizes, self.control, self.definite, self.before, self.inverse, self.beside, self.beside_t)
        schur, stair = (self.F, self.gamma, self.Q_inverse, self.before), (self.inverse, self.beside, self.beside_t)
        self.launch(
            "solver_pcg",
            self.count,
            self.count,
            self.limit,
            self.numbers,
            self.definite,
            *schur,
            *stair,
            self.control,
            self.lam,
            self.delta,
        )
        inverses = self.Q_inverse, self.R_inverse
        self.launch("solver_recover", rows, *sizes, self.control, self.definite, self.F, self.reduced, *inverses, self.delta, self.step)
        self.launch("solver_propagate", self.count, *sizes, self.control, self.definite, self.F, self.d, self.step)
        self.judge(self.alphas, len(self.step_sizes))

    def between(self) -> tuple[Numbers, ...]:
        items = -(-self.count * self.knots * self.kernels.nx // self.kernels.threads("solver_ahead"))
        self.launch("solver_ahead", items, self.count, self.knots, self.x, self.ahead)
        return self.ahead, self.after

    def judge(self, alphas: Any, count: int) -> None:
        """The line search (Algorithm 7)."""
        sizes = self.count, self.knots, count, len(self.step_sizes)
        items = -(-self.count * count * self.knots // self.kernels.threads("solver_search"))
        inputs = self.control, self.definite, alphas, self.h, self.p, self.origin, self.x, self.u, self.step
        self.launch("solver_search", items, *sizes, *inputs, self.costs, self.gaps)
        known = self.numbers, alphas, self.definite, self.F, self.g, self.H, self.d, self.lam, self.step, self.costs, self.gaps
        self.launch("solver_judge", self.count, *sizes, *known, self.control, self.x, self.u)

    def read_account(self) -> None:
        before, running = self.column("linear_iterations"), self.status == RUNNING
        super().read_account()
        for k in np.flatnonzero(running).tolist():
            self.counts[k].append(int(self.column("linear_iterations")[k] - before[k]))

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
        """Gains by a backward pass, and with them a trajectory without defects; the guess where that is better."""
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
        """Gains by a backward pass, and with them the trajectories without defects. Accounts stay as they are."""
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
            "gaps": self.defects[k],
            "linear_iterations": self.counts[k],
            "penalty": float(self.column("sigma")[k]),
        }
