"""Parallel differential dynamic programming (Plancher 2022, chapter 4, Algorithm 2); with one block
it is iLQR, single shooting.

The letters and equations are the dissertation's: the backward pass (2.7-2.9, with the full V_x),
stale cost-to-go between blocks and its re-centring (4.3), the regularisation ρ of V_xx (4.4),
defects between blocks (4.5), the consensus sweep (4.7), and the line search over all step sizes α
at once, in lanes: of those that meet (4.2) and (4.6) one is taken. Two things are ours: the first
pass hands the cost-to-go through all blocks, so that it starts out fresh, unless
`first_pass="stale"` starts each block with its own cost-to-go, as the dissertation does; and a
solve ends with a roll-out from the start, so that the trajectory returned has no defects.

Where there are defects, a step of α closes the part α of them in the linear model, and the L1 merit
function J + σ Σ|d| decides (2.11, 2.12), since a cost alone can fall by opening defects. A guess of
states is met in the same way, with a gap at every knot that a step of α contracts to its part 1 -
α, as Crocoddyl's FDDP does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rigidgrad.control import hidden
from rigidgrad.control.augmented import Outer
from rigidgrad.control.options import check_number, check_range, check_whole
from rigidgrad.control.problem import Problem
from rigidgrad.control.riccati import Backward
from rigidgrad.control.search import PATIENCE, STALLED, TELLING, Search
from rigidgrad.control.shooting import Forward
from rigidgrad.control.solution import Solution, relative_fall
from rigidgrad.errors import InputError
from rigidgrad.kernels import search as policy
from rigidgrad.runtime.threads import default_crew, thread_count


@dataclass(frozen=True)
class PDDP:
    """Options of parallel differential dynamic programming, iLQR unless `second_order` is set."""

    blocks: int = 1
    """Shooting blocks of both passes; with more than one, threads and lanes work on them."""
    forward_blocks: int | None = None
    """Blocks of the forward pass, `blocks` unless given."""
    backward_blocks: int | None = None
    """Blocks of the backward pass, `blocks` unless given."""
    first_pass: str = "fresh"
    """With "fresh" the first backward pass hands the cost-to-go through all blocks; with "stale"
    nothing is known of what comes after a block until the second one, as in the dissertation."""
    iterations: int = 500
    """At most so many."""
    tolerance: float = 1e-8
    """The part of the cost that the gradient may still promise when it stops."""
    violation: float = 1e-4
    """How far constraints may be off in the end."""
    alphas: int | tuple[float, ...] = (1.25, 1.0, 0.7, 0.5, 0.3, 0.15, 0.05, 0.01)
    """Step sizes, the largest first; a number n of them means 1, ½, ¼, …"""
    accept: tuple[float, float] = (0.1, 1e2)
    """A step size is acceptable if the actual fall of the cost is between these, times the expected
    one.
    """
    choose: str = "balanced"
    """Of acceptable step sizes the "largest"; the "best", as the dissertation does; or "balanced":
    the largest until a whole step is acceptable, then the best. But for "best", only if none of the
    first four is acceptable do the others count.
    """
    defect: float = 1e2
    """Defects of an acceptable step are below this."""
    regularization: tuple[float, float] = (1e-9, 1e9)
    """The least and the greatest that is added to the Hessian of the controls."""
    second_order: bool = False
    """Adds the second derivatives of the dynamics."""
    dtype: str = "float64"
    """With "float32" it computes derivatives and gains in single precision; roll-outs and costs
    stay in double.
    """
    threads: int = 1
    """So many work on blocks."""
    device: str | None = None
    """With "opencl" or "cuda" it solves on a GPU, all of it in `dtype`, one problem or a batch
    (docs/gpu.md).
    """
    form: str = "forward"
    """With "inverse" it has accelerations and contact forces as unknowns (`inverse`,
    docs/phases.md).
    """

    def __post_init__(self) -> None:
        for name in ("blocks", "forward_blocks", "backward_blocks"):
            if name == "blocks" or getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1)
        if self.form not in ("forward", "inverse"):
            raise InputError(f"form is 'forward' or 'inverse', not {self.form!r}")
        if self.form == "inverse" and (
            self.M_f > 1
            or self.M_b > 1
            or self.second_order
            or self.device is not None
            or self.dtype != "float64"
        ):
            raise InputError(
                'form="inverse" works in float64 on the CPU, with blocks=1 and without second_order'
            )
        if self.first_pass not in ("fresh", "stale"):
            raise InputError(f"first_pass is 'fresh' or 'stale', not {self.first_pass!r}")
        if self.first_pass == "stale" and self.device is not None:
            raise InputError('first_pass="stale" is for the CPU: leave device out')
        if self.choose not in ("largest", "best", "balanced"):
            raise InputError(f"choose is 'largest', 'best' or 'balanced', not {self.choose!r}")
        check_whole("iterations", self.iterations, 0)
        check_number("tolerance", self.tolerance)
        check_number("violation", self.violation, positive=True)
        check_number("defect", self.defect, positive=True)
        check_range("accept", self.accept)
        check_range("regularization", self.regularization)
        try:
            sizes = self.step_sizes
        except (TypeError, ValueError):
            sizes = np.zeros(0)
        if not (
            len(sizes)
            and np.all(np.isfinite(sizes))
            and np.all(sizes > 0)
            and np.all(np.diff(sizes) < 0)
        ):
            raise InputError(
                "alphas are positive step sizes, the largest first, or how many of 1, ½, ¼, …; not"
                f" {self.alphas!r}"
            )
        if self.dtype not in ("float64", "float32"):
            raise InputError(f"dtype is 'float64' or 'float32', not {self.dtype!r}")
        if self.second_order and self.M_b > 1:
            raise InputError("second_order passes from knot to knot: use backward_blocks=1")
        if self.device is not None:
            from rigidgrad.control.device import check_options

            check_options(self)
        elif self.dtype == "float32" and (self.M_f > 1 or self.second_order):
            raise InputError("float32 works with forward_blocks=1 and second_order=False")

    @property
    def step_sizes(self) -> np.ndarray:
        """The largest first."""
        return (
            2.0 ** -np.arange(self.alphas)
            if isinstance(self.alphas, int)
            else np.array(self.alphas, dtype=float)
        )

    @property
    def M_f(self) -> int:
        """Blocks of the forward pass."""
        return self.forward_blocks or self.blocks

    @property
    def M_b(self) -> int:
        """Blocks of the backward pass."""
        return self.backward_blocks or self.blocks

    def solve(self, problem: Problem) -> Solution:
        """Buffers stay with the problem, for the next solve."""
        if problem.hides:
            return hidden.solved(self, problem)
        if self.device is not None:
            from rigidgrad.control.device import solve_on_device

            return solve_on_device([problem], self)[0]
        key = (self, problem.guess_states is None)
        run = problem.workspaces.pop(key, None)  # out of the way of other threads meanwhile
        if run is None:
            from rigidgrad.control.inverse import FreeRun

            run = Run(problem, self) if self.form == "forward" else FreeRun(problem, self)
        else:
            run.adopt(problem)
        solution: Solution = run.solve()
        problem.workspaces[key] = run
        return solution


def check_blocks(problem: Problem, options: PDDP) -> None:
    """Raises where a problem cannot be cut into these shooting blocks."""
    for blocks in (options.M_f, options.M_b):
        if blocks > problem.steps:
            raise InputError(f"{blocks} blocks are more than the problem's {problem.steps} steps")
    if problem.guess_states is not None and (options.M_f > 1 or options.M_b > 1):
        own = isinstance(problem.asked_guess, str) and problem.asked_guess == "hold"
        raise InputError(
            "the first guess of a problem with contacts is states that stand at the start, and"
            " blocks need controls alone: give guess=problem.guess, or leave the blocks out"
            if own
            else "a guess of states needs blocks=1; leave the states out, or the blocks"
        )


def guess_with_gaps(problem: Problem) -> tuple[np.ndarray, np.ndarray, float]:
    """The guess of states x (steps + 1, nx), its gaps f(x_k, u_k) ⊖ x_{k+1} and its cost with
    penalties.
    """
    assert problem.guess_states is not None
    x = problem.guess_states.copy()
    x[0] = problem.start
    after, costs = problem.evaluate(x, problem.guess)
    return x, problem.minus(after, x[1:]), float(costs.sum())


class Iterate(NamedTuple):
    """Where a run is: states x (N + 1, nx), controls u (N, nu), gains as the backward pass lays
    them out, the cost J with penalties, and how many iterations led there.
    """

    x: np.ndarray
    u: np.ndarray
    gains: np.ndarray
    J: float
    iterations: int


class Run:
    """A problem in the hands of this solver: buffers are made once, and solves may follow one
    another.

    `solve` does everything. A controller goes step by step instead: `forget` what was counted,
    start from the last plan (`warm_start`) or from a state that is held (`cold_start`), or `follow`
    what was prepared; `linearize` ahead of time, `iterate`, and read the `result`. In between it
    may change the numbers of `problem`; where it does, `follow` says what the cost is now.
    """

    form = "forward"

    def __init__(self, problem: Problem, options: PDDP):
        if options.device is not None:
            raise InputError("this runs on the CPU: leave device out; rg.solve takes it")
        if options.form != self.form:
            raise InputError(
                'plans under control have the forward form: leave form="inverse" out; rg.solve'
                " takes it"
            )
        check_blocks(problem, options)
        self.problem, self.options = problem.private_copy(), options
        problem = self.problem
        self.gaps = problem.guess_states is not None
        self.alphas, self.choice = options.step_sizes, Search(options)
        self.make_passes()
        self.crew = default_crew(options.threads) if thread_count(options.threads) > 1 else None
        self.seconds = {"expansion": 0.0, "backward": 0.0, "forward": 0.0}
        self.passed = (False, math.nan, math.nan)  # what the last backward pass gave
        self._followed: Forward | None = None  # what `follow` simulates
        self.forget()

    def make_passes(self) -> None:
        """Buffers and code of the backward pass and of trial points; `single` rolls out."""
        problem, options = self.problem, self.options
        self.backward = Backward(
            problem,
            options.M_b,
            options.dtype,
            gaps=self.gaps or options.M_f > 1,
            second_order=options.second_order,
        )
        self.forward = Forward(problem, self.backward, self.alphas, options.M_f, self.gaps)
        self.single = (
            self.forward
            if not self.gaps and options.M_f == 1
            else Forward(problem, self.backward, np.ones(1))
        )

    def forget(self) -> None:
        """What a solve keeps account of begins again."""
        self.history: list[float] = []
        self.steps_taken: list[float] = []
        self.defects: list[float] = []
        self.iterations, self.sigma, self.J, self.negligible = 0, 0.0, math.inf, 0.0
        # the fall that the last step promised with the smallest regularisation that gives one, at
        # most the least
        self.expected = math.inf
        self.forward.sweep_seconds = 0.0
        for phase in self.seconds:
            self.seconds[phase] = 0.0

    @property
    def x(self) -> np.ndarray:
        return self.forward.x

    @property
    def u(self) -> np.ndarray:
        return self.forward.u

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
        if self.problem.constraints:  # whose penalties may be others now
            self.J = float(self.problem.evaluate(self.x, self.u)[1].sum())
        status = ""
        while not status:
            ended = self.descend(outer.tolerance, self.options.iterations)
            if self.problem.constraints and ended == "converged" and self.forward.gap.any():
                self.roll_out(self.u.copy())  # so that constraints are judged on a motion
            status = outer.after(ended, self.x, self.u, self.iterations)
            if not status:
                self.J = float(self.problem.evaluate(self.x, self.u)[1].sum())
        return self.finish(status)

    def begin(self) -> bool:
        """Simulates the first guess, or measures its gaps; whether that stays finite."""
        p, f = self.problem, self.forward
        f.prepare()
        self.backward.prepare()
        self.backward.forget()
        f.gap[:] = 0.0
        if self.gaps:
            f.x[:], f.gap[:], self.J = guess_with_gaps(p)
            f.u[:] = p.guess
        else:
            f.x[:] = p.start  # gains are zero, but zero times what a solve left may be none
            self.roll_out(p.guess)
        self.cost, self.negligible = p.cost(f.x, f.u) if p.constraints else self.J, p.negligible()
        self.history.append(self.cost)
        return math.isfinite(self.J) and bool(np.all(np.isfinite(f.x)))

    def roll_out(self, u: np.ndarray) -> None:
        """From the start, with controls u and the gains around the reference; it becomes the
        reference.
        """
        s, f = self.single, self.forward
        s.prepare()
        s.x[:], s.u[:] = f.x, u
        kappa = self.backward.gains[:, :, self.backward.layout.gradient]
        kept = kappa.copy()
        kappa[:] = 0.0
        self.J = float(s.run()[0])
        kappa[:] = kept
        s.take(0)
        if s is not f:
            f.x[:], f.u[:] = s.x, s.u
            f.gap[:] = 0.0

    def descend(
        self, tolerance: float, most: int, deadline: float = math.inf, linearized: bool = False
    ) -> str:
        """Iterates until the gradient promises no more than `tolerance` of the cost; the status.
        With `linearized` the first iteration has been begun.

        The measure is the fall that a Newton step without regularisation promises, ½ gᵀH⁻¹g with
        the gradient g of the cost and penalties by the controls; where H is singular, with the
        least regularisation, and where that is not enough, H is indefinite and the point no
        optimum. How much the cost really falls says nothing of an optimum: only in descents between
        two renewals of multipliers, which need not be exact, does a small fall end them.
        """
        o = self.options
        rho, low, high = 0.0, *o.regularization
        fresh, slow = self.options.first_pass == "fresh", 0
        while self.iterations < most:
            self.iterations += 1
            if not linearized:
                self.timed("expansion", self.expand)
            # least: the smallest ρ of which it is not known that H is indefinite
            newton, least = (o.second_order, 0.0)
            while True:
                if not linearized:
                    self.passed = self.timed(
                        "backward", self.backward.run, rho, self.crew, fresh, newton
                    )
                fine, slope, curve = self.passed
                linearized = False
                if not fine or not math.isfinite(slope):
                    # the bent dynamics may make H_uu indefinite; without them it never is
                    if newton:
                        newton = False
                        continue
                    least = rho = policy.raised(rho, low)
                    if rho > high:
                        return self.backward.failure_status()
                    if time.perf_counter() > deadline:
                        return "time"
                    continue
                fresh = False
                chosen, cost, expected = self.timed("forward", self.search, slope, curve)
                measured = rho <= min(least, low)
                if measured:
                    self.expected = expected
                if chosen is not None or expected <= policy.nothing(
                    tolerance, self.J, self.negligible
                ):
                    break
                if newton:
                    newton = False
                    continue
                self.backward.hand_over(np.zeros((self.problem.steps + 1, self.problem.system.ndx)))
                rho = policy.raised(rho, low)
                if rho > high:
                    return "converged" if self.nothing_left(STALLED * tolerance) else "stalled"
                if time.perf_counter() > deadline:
                    return "time"
            if chosen is None:
                return (
                    "converged"
                    if (measured and o.M_b == 1) or self.nothing_left(STALLED * tolerance)
                    else "stalled"
                )
            before = self.x.copy() if self.options.M_b > 1 else self.x
            self.forward.take(chosen)
            if self.options.M_b > 1:
                self.backward.hand_over(self.problem.minus(self.x, before))
            fall, self.J = self.J - cost, cost
            self.history.append(self.J)
            self.steps_taken.append(float(self.alphas[chosen]))
            left = 0.0  # of the defects
            if self.forward.open and not self.forward.closed:
                off = np.abs(self.forward.gap)
                self.defects.append(float(off.max()))
                left = float(off.sum())
            elif self.forward.open:
                self.defects.append(0.0)
            small = policy.nothing(tolerance, self.J, self.negligible)
            # a step that regularisation holds back tells nothing
            light, closed = rho <= low, self.sigma * left <= 10 * small
            rho = policy.lowered(rho, low)
            if light and closed:
                if expected <= small and (
                    (measured and o.M_b == 1) or self.nothing_left(tolerance)
                ):
                    return "converged"
                if (
                    tolerance > o.tolerance
                    and abs(fall) <= small
                    and self.alphas[chosen] >= TELLING
                ):
                    return "converged"
            slow = slow + 1 if abs(fall) <= small else 0
            if slow >= PATIENCE and o.M_b == 1:  # a stale cost-to-go makes steps uneven
                return "slow"
            if time.perf_counter() > deadline:
                return "time"
        return "iterations"

    def nothing_left(self, tolerance: float) -> bool:
        """Whether a whole step without regularisation, and with a cost-to-go that is not stale,
        promises nothing either.
        """
        known = None
        if self.options.M_b > 1:
            self.expand()
            known = self.backward.end.copy(), self.backward.start.copy()
        low = self.options.regularization[0]
        for newton, rho in (
            ((True, 0.0), (False, 0.0), (False, low))
            if self.options.second_order
            else ((False, 0.0), (False, low))
        ):
            fine, slope, curve = self.backward.run(rho, self.crew, True, newton)
            if fine and math.isfinite(slope):
                self.expected = -(slope + 0.5 * curve)
                left = self.expected > max(tolerance * abs(self.J), self.negligible)
                if left and known is not None and self.options.first_pass == "stale":
                    # it goes on with what it knew
                    self.backward.end[:], self.backward.start[:] = known
                return not left
        return False

    def expand(self) -> None:
        self.backward.expand(self.x, self.u)
        if self.backward.layout.gaps:
            np.copyto(self.backward.defects, self.forward.gap)

    def search(self, slope: float, curve: float) -> tuple[int | None, float, float]:
        """(the step size taken or None, the cost with it, the fall expected of a whole step)."""
        f, choice = self.forward, self.choice
        if f.open and not f.closed:
            return self.search_merit(f.run(self.crew))
        tried = 0
        for upto in choice.turns:
            J = f.run(self.crew, tried, upto)[:upto].tolist()
            chosen = choice.pick(self.J, J, slope, curve)
            if chosen is not None:
                return chosen, J[chosen], choice.expected(slope, curve)
            tried = upto
        return None, self.J, choice.expected(slope, curve)

    def search_merit(self, J: np.ndarray) -> tuple[int | None, float, float]:
        """With defects: steps that lower J + σ Σ|d| enough, with σ large enough for the step to go
        downhill (Nocedal and Wright, 18.36).
        """
        f = self.forward
        slope, curve = f.model_along_step()
        before = float(np.abs(f.gap).sum())
        if before > 0.0:
            self.sigma = policy.penalty(self.sigma, before, slope, curve)
        with np.errstate(all="ignore"):
            sums = np.abs(f.defects()).sum(axis=2)  # (alphas, defects)
            after = sums.sum(axis=1)
            falls = self.J - J + self.sigma * (before - after)
            merits, closing = J + self.sigma * after, self.sigma * before
        expected = closing - slope - 0.5 * curve
        chosen = self.choice.pick_by_merit(
            falls.tolist(),
            merits.tolist(),
            sums.max(axis=1).tolist(),
            slope,
            closing,
            self.options.defect,
        )
        return chosen, self.J if chosen is None else float(J[chosen]), expected

    # --- from plan to plan ------------------------------------------------------------------------

    def warm_start(self, write: Callable[[np.ndarray, np.ndarray, np.ndarray], None]) -> bool:
        """Starts from what `write(x, u, gains)` writes into the run's own arrays, followed from the
        problem's start; whether that stays finite.
        """
        self.backward.prepare()
        write(self.x, self.u, self.backward.gains)
        return self._follow_and_settle()

    def cold_start(self, x: np.ndarray, u: np.ndarray, K: np.ndarray) -> bool:
        """Starts from a state x (nx,) held by controls u (nu,) and feedback K (nu, ndx), followed
        from the problem's start; whether that stays finite.
        """
        self.backward.prepare()
        self.backward.forget()
        self.x[:], self.u[:], self.backward.gains[:, :, self.backward.state_columns] = x, u, K
        return self._follow_and_settle()

    def follow(self) -> bool:
        """Measures the cost of following the reference by its gains from where the problem starts
        now; whether it is finite. The reference stays as it is.
        """
        if self._followed is None:  # a step size of 0 leaves the controls as they are
            self._followed = Forward(
                self.problem, self.backward, np.zeros(1), reference=(self.x, self.u)
            )
        self.forward.prepare()
        self._followed.prepare()
        self.J = float(self._followed.run()[0])
        return math.isfinite(self.J)

    def _follow_and_settle(self) -> bool:
        finite = self.follow()
        self._settle()
        return finite

    def _settle(self) -> None:
        """What `follow` simulated becomes the reference."""
        assert self._followed is not None
        self._followed.take(0)
        self.forward.gap[:] = 0.0

    def count_from(self, iterations: int) -> None:
        """What it starts from took so many."""
        self.iterations = iterations

    def linearize(self) -> None:
        """The first half of an iteration, before it is known where exactly it starts: what
        `iterate` then goes on from.
        """
        self.timed("expansion", self.expand)
        self.passed = self.timed(
            "backward",
            self.backward.run,
            0.0,
            self.crew,
            self.options.first_pass == "fresh",
            self.options.second_order,
        )

    def iterate(self, most: int, deadline: float = math.inf, linearized: bool = False) -> str:
        """Iterates until it has converged, up to `most` iterations since `forget`, or past a
        `deadline` of time.perf_counter; the status. It ends with a trajectory from the problem's
        start.

        With `linearized` the first iteration has been begun, and `follow` has measured what it
        starts from.
        """
        status = self.descend(self.options.tolerance, most, deadline, linearized)
        if linearized and not self.steps_taken:
            self._settle()
        if self.forward.open and np.any(self.forward.gap):
            self.roll_out(self.u)
        return status

    def result(self) -> Iterate:
        """The arrays are the run's own: copy what is to last."""
        return Iterate(self.x, self.u, self.backward.gains, self.J, self.iterations)

    # --- the end ----------------------------------------------------------------------------------

    def timed(self, phase: str, function: Any, *arguments: Any) -> Any:
        start = time.perf_counter()
        result = function(*arguments)
        self.seconds[phase] += time.perf_counter() - start
        return result

    def finish(self, status: str) -> Solution:
        if status != "diverged" and np.any(self.forward.gap):
            self.roll_out(self.u.copy())
        stats: dict[str, Any] = {
            "seconds": dict(self.seconds),
            "history": self.history,
            "steps": self.steps_taken,
        }
        stats["optimality"] = relative_fall(
            self.expected, self.J, self.negligible, self.options.tolerance
        )
        if self.forward.open:
            stats["defects"] = self.defects  # after each iteration, the largest
            stats["sweep_seconds"] = self.forward.sweep_seconds  # part of "forward"
        return Solution.of(
            self.problem, status, self.x, self.u, self.backward.feedback, self.iterations, stats
        )
