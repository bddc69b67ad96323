"""Direct trajectory optimisation: sequential quadratic programming over states and controls at once
(Plancher 2022, chapter 6, Algorithm 7).

Each iteration linearises the trajectory, solves the LQ problem of its step dZ by one of the solvers
in `linear`, and looks at all step sizes α at once: of those whose fall of the L1 merit function M =
J + μ|d| (2.11) is within `accept` times the expected one (2.12), one is taken (6.9). The defects d,
of the dynamics and of the start, are closed on the way; a solve ends with a roll-out from the
start, so that the trajectory returned has none.

Bounds on controls are part of the LQ problem, see `linear.box`.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from rigidgrad.algorithms import tangent_maps
from rigidgrad.control import hidden
from rigidgrad.control.augmented import Outer
from rigidgrad.control.linear import box, preconditioners
from rigidgrad.control.linear.lq import LQ
from rigidgrad.control.linear.solvers import SOLVERS, Options, Step, linear_solver
from rigidgrad.control.options import check_number, check_range, check_whole
from rigidgrad.control.problem import Problem
from rigidgrad.control.riccati import Backward
from rigidgrad.control.shooting import Forward
from rigidgrad.control.solution import Solution, relative_fall
from rigidgrad.control.system import RobotSystem
from rigidgrad.control.trust import DESCENTS
from rigidgrad.errors import InputError, unknown_name
from rigidgrad.kernels import search as policy

FIRST_PENALTY = 1e-2  # of the defects, as a share of the largest multiplier
_ELSEWHERE = 1e-2  # a roll-out whose cost differs by more than this share of it is another motion
_ROUNDING = 1e-13  # of the states: defects that are none
# defects left by a step are closed if they weigh more than this share of the fall expected of it
_WORTH = 1e-2


@dataclass(frozen=True)
class Direct:
    """Options of the direct method: sequential quadratic programming, whose linear systems are
    solved by one of several solvers.
    """

    linear_solver: str = "riccati"
    """One of riccati, block_cholesky, pcg, red_black, cyclic_reduction, kkt."""
    preconditioner: str = "symmetric_stair"
    """Of the conjugate gradients of pcg and red_black: none, jacobi, block_jacobi, alternating,
    overlapping, stair or symmetric_stair.
    """
    polynomial: int = 0
    """The order of the preconditioner's polynomial."""
    reductions: int | None = None
    """Levels of cyclic reduction before the conjugate gradients."""
    linear_tolerance: float = 1e-17
    """Of conjugate gradients, on η = rᵀΦ⁻¹r relative to its first value."""
    linear_iterations: int | None = None
    """Of conjugate gradients, at most."""
    pcg_blocks: str = "trajectory"
    """On a device, who computes conjugate gradients: a block of threads per "trajectory", or one
    per "knot". The results are the same.
    """
    iterations: int = 500
    """At most so many."""
    tolerance: float = 1e-8
    """The relative fall of the merit function, as expected of a whole step, at which it stops."""
    violation: float = 1e-4
    """How far constraints may be off in the end."""
    alphas: int = 8
    """How many step sizes 1, ½, ¼, … are tried."""
    accept: tuple[float, float] = (1e-2, 1e2)
    """A step size is acceptable if the actual fall of the merit function is between these, times
    the expected one.
    """
    choose: str = "best"
    """Of acceptable step sizes the one with the "best" merit function, or the "largest"."""
    globalization: str = "line_search"
    """Or a radius within which whole steps are looked for, "trust_region" or "admm"
    (control/trust.py), on the CPU."""
    regularization: tuple[float, float] = (1e-9, 1e9)
    """The least and the greatest that is added to Hessians."""
    dtype: str = "float64"
    """Is "float64", or "float32" on a device."""
    device: str | None = None
    """With "opencl" or "cuda" it solves on a GPU, in `dtype`, one problem or a batch (docs/gpu.md).
    """

    def __post_init__(self) -> None:
        if self.linear_solver not in SOLVERS:
            raise unknown_name("linear solver", self.linear_solver, SOLVERS)
        preconditioners.check(self.preconditioner, self.polynomial)
        if self.choose not in ("largest", "best"):
            raise InputError(f"choose is 'largest' or 'best', not {self.choose!r}")
        if self.globalization not in ("line_search", *DESCENTS):
            raise unknown_name("globalization", self.globalization, ("line_search", *DESCENTS))
        if self.globalization != "line_search" and self.device is not None:
            raise InputError(
                f'globalization="{self.globalization}" is for the CPU: leave device out'
            )
        check_whole("iterations", self.iterations, 0)
        check_whole("alphas", self.alphas, 1)
        check_number("tolerance", self.tolerance)
        check_number("linear_tolerance", self.linear_tolerance)
        check_number("violation", self.violation, positive=True)
        check_range("accept", self.accept)
        check_range("regularization", self.regularization)
        if self.reductions is not None and self.linear_solver not in ("pcg", "red_black"):
            raise InputError(
                f"reductions are for linear_solver='pcg' or 'red_black'; {self.linear_solver!r} has"
                " none"
            )
        if self.linear_iterations is not None:
            check_whole("linear_iterations", self.linear_iterations, 1)
        self.linear_options()
        if self.dtype not in ("float64", "float32") or (
            self.device is None and self.dtype == "float32"
        ):
            raise InputError(f"dtype is 'float64' or, on a device, 'float32'; not {self.dtype!r}")
        if self.device is None and self.pcg_blocks != "trajectory":
            raise InputError(
                f"pcg_blocks is an option of devices: with pcg_blocks={self.pcg_blocks!r} name one,"
                " as device='cuda'"
            )
        if self.device is not None:
            from rigidgrad.control.device import check_options

            check_options(self)

    @property
    def step_sizes(self) -> np.ndarray:
        """1, ½, ¼, …; of steps within a radius the whole one."""
        one_of_many = self.globalization == "line_search"
        return 2.0 ** -np.arange(self.alphas if one_of_many else 1)

    def linear_options(self) -> Options:
        """Of the linear solver."""
        return Options(
            self.preconditioner,
            self.polynomial,
            self.linear_tolerance,
            limit=self.linear_iterations,
            reductions=self.reductions,
        )

    def solve(self, problem: Problem) -> Solution:
        """The solution of a problem; `rg.solve` does the same."""
        if problem.hides:
            return hidden.solved(self, problem)
        if self.device is not None:
            from rigidgrad.control.device import solve_on_device

            return solve_on_device([problem], self)[0]
        return Run(problem, self).solve()


class Run:
    """A problem in the hands of this solver: buffers are made once, and solves may follow one
    another.
    """

    def __init__(self, problem: Problem, options: Direct):
        self.problem, self.options = problem.private_copy(), options
        s, N = problem.system, problem.steps
        self.alphas = options.step_sizes
        self.linear = linear_solver(options.linear_solver, N, s.ndx, s.nu, options.linear_options())
        self.exact = options.linear_solver == "riccati"  # its states follow from its controls
        self.x, self.u = np.zeros((N + 1, s.nx)), np.zeros((N, s.nu))
        self.backward = Backward(self.problem)  # for the gains of the end
        self.simulation = Forward(self.problem, self.backward, np.ones(1))
        self.forget()

    def forget(self) -> None:
        """What a solve keeps account of, and what it learnt, begins again."""
        N, n, m = self.linear.sizes
        self.seconds = dict.fromkeys(("linearize", "linear", "search", "roll_out"), 0.0)
        self.history: list[float] = []
        self.gaps: list[float] = []
        self.steps_taken: list[float] = []
        self.linear_counts: list[int] = []
        self.iterations, self.linear_solves, self.unsolved, self.corrections = 0, 0, 0, 0
        self.lam = np.zeros((N + 1, n))
        self.held = np.zeros((N, m))  # -1, 0, 1: at the lower bound, free, at the upper one
        self.mu = 0.0  # the penalty of defects
        # the fall that the last step promised with the smallest regularisation that gives one, at
        # most the least; infinite where H is indefinite
        self.expected = math.inf

    def adopt(self, problem: Problem) -> None:
        """Goes over to another problem of the same programs and length: only numbers are copied."""
        self.problem.copy_numbers(problem)

    # --- a solve ----------------------------------------------------------------------------------

    def solve(self) -> Solution:
        self.forget()
        if not self.begin():
            return self.finish("diverged")
        outer = Outer(self.problem, self.options)
        outer.begin(self.x, self.u)
        status = ""
        while not status:
            ended = self.descend(outer.tolerance)
            if self.problem.constraints:
                self.close()
            status = outer.after(ended, self.x, self.u, self.iterations)
            if not status:  # with new multipliers it is another problem
                self.mu = 0.0
                self.measure()
        return self.finish(status)

    def begin(self) -> bool:
        """The first guess: states and controls as given, or controls with the states they lead to,
        or, where these are not finite, the start held.
        """
        p = self.problem
        self.simulation.prepare()
        self.backward.prepare()
        if p.guess_states is not None:
            self.x[:], self.u[:] = p.guess_states, p.guess
        else:
            self.backward.gains[:] = 0.0
            self.simulate(np.tile(p.start, (p.steps + 1, 1)), p.guess)
            self.x[:], self.u[:] = self.simulation.x, p.guess
            if not np.isfinite(self.x).all():
                self.x[:] = p.start
        self.first, self.negligible = (self.x.copy(), self.u.copy()), p.negligible()
        return self.measure()

    def measure(self) -> bool:
        """Takes stock of the trajectory: J with penalties, and defects; whether they are finite."""
        J, d = self.evaluate(self.x[None], self.u[None])
        self.J, self.d = float(J[0]), d[0]
        self.record()
        return math.isfinite(self.J) and bool(np.isfinite(self.d).all())

    def evaluate(self, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """J (a,) and defects (a, N + 1, n) of trajectories (a, N + 1, nx), (a, N, nu)."""
        p = self.problem
        after, costs = p.evaluate(x, u)
        target = np.concatenate(
            [np.broadcast_to(p.start, (len(x), 1, len(p.start))), after], axis=1
        )
        return costs.sum(axis=-1), p.minus(target, x)

    def record(self) -> None:
        self.history.append(self.J)
        self.gaps.append(float(np.abs(self.d).sum()))

    def descend(self, tolerance: float) -> str:
        """Iterates until the merit function no longer falls; the status."""
        o = self.options
        if o.globalization != "line_search":
            return DESCENTS[o.globalization](self).descend(tolerance)
        rho, low, high = 0.0, *o.regularization
        while self.iterations < o.iterations:
            self.iterations += 1
            lq = self.timed("linearize", self.linearize)
            # least: the smallest ρ with which the LQ problem has a minimum
            least, refused = (0.0, 0.0)
            chosen: int | None = None
            while chosen is None:
                step = self.timed("linear", self.step, lq, rho)
                expected = self.expect(lq, step)
                measured = step.solved and rho <= least
                if measured:
                    self.expected = abs(expected) if rho <= low else math.inf
                small = step.solved and abs(expected) <= max(
                    tolerance * abs(self.J), self.negligible
                )
                # with constraints the last step is taken too: without it, renewed multipliers would
                # find the same violations again and again
                wanted = expected > 0 and (not small or bool(self.problem.constraints))
                chosen = (
                    self.timed("search", self.search, step)
                    if wanted and (measured or not small)
                    else None
                )
                taken, definite = float(chosen is not None), float(step.status != "indefinite")
                said, rho, least, refused = policy.judged_direct(
                    taken, definite, float(small), rho, low, high, least, refused
                )
                if chosen is not None:
                    self.took(chosen, step)
                if said:
                    return policy.JUDGED[int(said)]
        return "iterations"

    def took(self, chosen: int, step: Step) -> None:
        """Keeps account of a step."""
        self.lam = step.lam
        self.record()
        self.steps_taken.append(float(self.alphas[chosen]))

    # --- one iteration ----------------------------------------------------------------------------

    def linearize(self) -> LQ:
        e = self.problem.linearize(self.x, self.u)
        A, B = transport(self.problem, e.A, e.B, self.d[1:])
        return LQ(A, B, e.lxx, e.lux, e.luu, e.lx, e.lu, self.d)

    def step(self, lq: LQ, rho: float) -> Step:
        """The step of the LQ problem with ρ added to its Hessians, within the bounds of the
        controls.
        """
        if rho:
            lq = lq.damped(rho)
        self.linear_counts.append(0)
        lower, upper = (b - self.u for b in self.problem.bounds)
        if not (np.isfinite(lower).any() or np.isfinite(upper).any()):
            return self.solve_linear(lq)
        step, self.held = box.solve(lq, lower, upper, self.held, self.solve_linear)
        return step

    def solve_linear(self, lq: LQ) -> Step:
        step = self.linear.solve(lq, self.lam)
        self.linear_counts[-1] += step.iterations
        self.linear_solves += 1
        self.unsolved += not step.solved
        if not self.exact and step.status != "indefinite":
            self.make_consistent(lq, step)
        return step

    def make_consistent(self, lq: LQ, step: Step) -> None:
        """Multipliers with an error, of conjugate gradients or of rounding, break the linearised
        dynamics. The states that the controls lead to have none: they are taken where they promise
        more.
        """
        dx = lq.propagate(step.du)
        mu = self.mu or FIRST_PENALTY * float(np.abs(step.lam).max())
        if (
            lq.value(dx, step.du)
            < lq.value(step.dx, step.du) + mu * np.abs(lq.defects(step.dx, step.du)).sum()
        ):
            step.dx = dx

    def expect(self, lq: LQ, step: Step) -> float:
        """The fall of the merit function that the LQ problem expects of the whole step; the penalty
        μ is raised for it where it must be.
        """
        if step.status == "indefinite":
            return math.nan
        gx, gu = lq.cost_gradient(step.dx, step.du)
        self.slope = float((lq.q * step.dx).sum() + (lq.r * step.du).sum())
        curve = float(((gx - lq.q) * step.dx).sum() + ((gu - lq.r) * step.du).sum())
        left = lq.defects(step.dx, step.du)
        # what the step takes off the defects: all of them, but for the error of conjugate gradients
        self.closing = float(np.abs(lq.d).sum() - np.abs(left).sum())
        first = FIRST_PENALTY * float(np.abs(step.lam).max())
        if self.mu == 0.0 or 0.0 < policy.FORGOTTEN * first < self.mu:
            self.mu = first
        # Nocedal and Wright 2006, (18.36); rounding alone would raise it without end
        if self.closing > _ROUNDING * float(np.abs(self.x).sum()):
            self.mu = policy.penalty(self.mu, self.closing, self.slope, curve)
        return -(self.slope + 0.5 * curve) + self.mu * self.closing

    def search(self, step: Step) -> int | None:
        """Looks at all step sizes and takes one; None where none is acceptable."""
        a = self.alphas[:, None, None]
        tried = self.trajectories(a * step.dx, a * step.du)
        merit, fine = self.judge(tried, self.alphas)
        found, best = None, math.inf
        if (
            first := int(
                policy.choose(fine.tolist(), merit.tolist(), self.options.choose == "best")
            )
        ) >= 0:
            found, best, chosen = first, float(merit[first]), tuple(t[first] for t in tried)
        for i in range(len(a) if found is None else found + 1):
            left = tried[3][i] - (1.0 - self.alphas[i]) * self.d
            if not self.mu * np.abs(left).sum() > _WORTH * self.alphas[i] * abs(
                self.slope - self.mu * self.closing
            ):
                continue  # so, too, where it is NaN
            dx, du = self.linear.close(left)
            self.corrections += self.linear.iterations
            if not self.exact:
                dx = self.linear.problem.propagate(du, left)
            corrected = self.trajectories(
                (self.alphas[i] * step.dx + dx)[None], (self.alphas[i] * step.du + du)[None]
            )
            merit, fine = self.judge(corrected, self.alphas[i : i + 1])
            if fine[0] and merit[0] < best:
                found, best, chosen = i, float(merit[0]), tuple(t[0] for t in corrected)
            elif fine[0]:
                break
            if fine[0] and self.options.choose == "largest":
                break
        if found is None:
            return None
        self.x[:], self.u[:], J, self.d = chosen
        self.J = float(J)
        return found

    def trajectories(
        self, dx: np.ndarray, du: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """x ⊕ dx, u + du within its bounds, and J and defects there."""
        x = self.problem.plus(np.broadcast_to(self.x, (len(dx), *self.x.shape)), dx)
        u = np.clip(self.u + du, *self.problem.bounds)
        return x, u, *self.evaluate(x, u)

    def judge(
        self, tried: tuple[np.ndarray, ...], alphas: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Merit functions, and which of them fell as they should (2.12)."""
        low, high = self.options.accept
        with np.errstate(all="ignore"):
            merit = tried[2] + self.mu * np.abs(tried[3]).sum(axis=(1, 2))
            fall, expected = (
                self.J + self.mu * np.abs(self.d).sum() - merit,
                alphas * (self.mu * self.closing - self.slope),
            )
            return merit, policy.acceptable(fall, expected, low, high)

    def timed(self, phase: str, function: Any, *arguments: Any) -> Any:
        start = time.perf_counter()
        result = function(*arguments)
        self.seconds[phase] += time.perf_counter() - start
        return result

    # --- the end ----------------------------------------------------------------------------------

    def simulate(self, x: np.ndarray, u: np.ndarray) -> None:
        """From the start, with controls u and the gains around x; `simulation` has the
        trajectory.
        """
        s = self.simulation
        s.x[:], s.u[:] = x, u
        self.backward.gains[:, :, self.backward.layout.gradient] = 0.0
        s.run()
        s.take(0)

    def close(self) -> None:
        """What is left of the defects goes into a roll-out, so that constraints are judged on a
        motion; where that leads elsewhere, they stay.
        """
        before = self.x.copy(), self.u.copy()
        self.timed("roll_out", self.roll_out)
        if leads_elsewhere(self.J, self.problem, self.x, self.u):
            self.x[:], self.u[:] = before

    def finish(self, status: str) -> Solution:
        p = self.problem
        if status != "diverged":
            self.timed("roll_out", self.roll_out)
            if (
                self.gaps[0] == 0.0
                and not p.evaluate(self.x, self.u)[1].sum() <= p.evaluate(*self.first)[1].sum()
            ):
                # broken off while defects were open: the guess was better
                self.x[:], self.u[:] = self.first
                self.roll_out()
            if not np.isfinite(self.x).all():
                status = "diverged"
        stats: dict[str, Any] = {
            "seconds": dict(self.seconds),
            "history": self.history,
            "gaps": self.gaps,
            "steps": self.steps_taken,
            "linear_iterations": self.linear_counts,
            "linear_solves": self.linear_solves,
            "linear_unsolved": self.unsolved,
            "correction_iterations": self.corrections,
            "penalty": self.mu,
            "optimality": relative_fall(
                self.expected, self.J, self.negligible, self.options.tolerance
            ),
        }
        return Solution.of(
            p, status, self.x, self.u, self.backward.feedback, self.iterations, stats
        )

    def roll_out(self) -> None:
        """Gains by a backward pass, and with them the trajectory without defects."""
        self.backward.expand(self.x, self.u)
        rho = 0.0
        while not self.backward.run(rho)[0]:
            rho = max(1e-9, 10.0 * rho)
            if rho > self.options.regularization[1]:
                self.backward.gains[:] = 0.0
                break
        self.simulate(self.x, self.u)
        self.x[:], self.u[:] = self.simulation.x, self.simulation.u


def leads_elsewhere(J: float, problem: Problem, x: np.ndarray, u: np.ndarray) -> bool:
    """Whether a roll-out is another motion than the one with defects, whose cost with penalties was
    J.
    """
    return not (
        np.isfinite(x).all() and abs(problem.evaluate(x, u)[1].sum() - J) <= _ELSEWHERE * abs(J)
    )


def transport(
    problem: Problem, A: np.ndarray, B: np.ndarray, gap: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A and B lead into the tangent space at f(x_k, u_k); this brings them to that at x_{k+1},
    `gap` = f(x_k, u_k) ⊖ x_{k+1} away.
    """
    s = problem.system
    if not isinstance(s, RobotSystem) or s.flat or not gap.any():
        return A, B
    A, B, start = A.copy(), B.copy(), 0
    for block in tangent_maps.transport(s.model, tuple(-gap[:, i] for i in range(s.nv))):
        rows = slice(start, start + len(block))
        start += len(block)
        if len(block) > 1:
            T = np.array([[np.broadcast_to(y, len(gap)) for y in row] for row in block]).transpose(
                2, 0, 1
            )
            A[:, rows], B[:, rows] = T @ A[:, rows], T @ B[:, rows]
    return A, B
