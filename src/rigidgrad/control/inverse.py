"""PDDP with dynamics in the form of the inverse: states, accelerations and contact forces are
unknowns, joint forces follow from inverse dynamics.

At each knot (x, a, f) has to satisfy, beside the step x' = x ⊕ h (v + h a, a),

    e = M a + c - Jᵀ f - B u = 0,        J a + γ = 0,        f = 0 of a contact that does not hold,

where u = B⁺(M a + c - Jᵀ f): joint forces are eliminated, and what is left of e are the freedoms
without motors. Newton's step solves the linearised equations; its directions are those of the joint
forces, so that

    da = a₀ + ∂a/∂x dx + ∂a/∂u du,        df = f₀ + ∂f/∂x dx + ∂f/∂u du

with the derivatives of `kernels.knot` from the gradient of inverse dynamics at (a, f), and the
linear-quadratic problem is that of `pddp`: the optimum is the same. No equations of motion are
solved along a trajectory: trial points are evaluated at all knots at once, without a roll-out, and
the merit function J + σ Σ|residuals| decides, and counts controls outside of their bounds among
them; steps within bounds are those of the linear-quadratic problem with a box (`linear.box`)
(Mastalli et al. 2023, "Inverse-dynamics MPC via
nullspace resolution", has multipliers and a basis by LU or QR instead). A solve ends with a
roll-out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rigidgrad.control.free_programs import FreePrograms
from rigidgrad.control.linear import box
from rigidgrad.control.linear.lq import LQ
from rigidgrad.control.linear.solvers import LinearSolver, Options, linear_solver
from rigidgrad.control.pddp import PDDP, Run, guess_with_gaps
from rigidgrad.control.problem import Problem
from rigidgrad.control.programs import whole_dynamics
from rigidgrad.control.riccati import Backward
from rigidgrad.control.search import ARMIJO
from rigidgrad.control.shooting import Forward
from rigidgrad.control.system import RobotSystem
from rigidgrad.errors import InputError
from rigidgrad.kernels import search as policy
from rigidgrad.runtime.arrays import aligned_zeros
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.riccati import Layout

_MET = 1e-12  # residuals below are none
# of the largest control: nearer to a bound than this, controls are at it
_AT_BOUND = 1e-9


def check_form(problem: Problem) -> None:
    """Raises where a problem has no inverse dynamics of this kind."""
    s = problem.system
    FreePrograms.of(problem.programs)
    assert isinstance(s, RobotSystem)
    if s.actuation is not None and np.linalg.matrix_rank(np.array(s.actuation)) < s.nu:
        raise InputError(
            'form="inverse" needs controls that the joint forces determine; two of these act alike:'
            " leave form out"
        )


class FreeBackward(Backward):
    """The pass over knots that are expanded at accelerations a and forces f."""

    def __init__(self, problem: Problem, dtype: str):
        steps, self.free = problem.steps, FreePrograms.of(problem.programs)
        n, r = problem.system.ndx // 2, self.free.forces
        self.a, self.f = aligned_zeros((steps, n)), aligned_zeros((steps, r))
        self.offset = aligned_zeros((steps, n + 3 * r), dtype)
        self.G = aligned_zeros((steps, r, problem.system.ndx + problem.system.nu), dtype)
        super().__init__(problem, dtype=dtype, gaps=True)

    def own_layout(self, o: Layout) -> Layout:
        return self.free.layout(o.dtype)

    def own_expansion(self, dtype: str) -> Compiled:
        return self.free.expansion(dtype)

    def expand_knots(self, x: np.ndarray, u: np.ndarray, p: np.ndarray) -> None:
        a, f = self.a.astype(self.dtype, copy=False), self.f.astype(self.dtype, copy=False)
        self.expansion(x, u, a, f, self.h, p, out=(*self.expanded, self.offset, self.G))


class Step(NamedTuple):
    """Changes of states, accelerations and forces; z (steps, columns) are those of states and
    controls as the backward pass has its columns, `own` the same without what is none of these,
    `moved` what they do to the forces.
    """

    dx: np.ndarray
    z: np.ndarray
    own: np.ndarray
    da: np.ndarray
    df: np.ndarray
    moved: np.ndarray


class Trial:
    """A point (x, a, f), and what it evaluates to."""

    def __init__(self, x: np.ndarray, a: np.ndarray, f: np.ndarray):
        self.x, self.a, self.f = x, a, f
        self.u = np.zeros(0)
        self.J = np.inf
        # of all equations, (steps, ndx + nv + forces), in metres, radians and velocities
        self.residuals = np.zeros(0)
        self.gap = np.zeros(0)  # of those, the steps'


class FreeForward:
    """Trial points in the place of `Forward`: of a step of α all unknowns move by their part of
    it.
    """

    open, closed, gaps = True, False, True

    def __init__(self, problem: Problem, backward: FreeBackward, alphas: np.ndarray):
        self.problem, self.backward, self.alphas = problem, backward, alphas
        s, steps = problem.system, problem.steps
        self.x, self.u = np.zeros((steps + 1, s.nx)), np.zeros((steps, s.nu))
        # its sweep of the linearised steps
        self.linear = Forward(problem, backward, np.ones(1), 1, True, (self.x, self.u))
        self.gap = np.zeros((steps, s.ndx))
        count = s.ndx + s.ndx // 2 + backward.free.forces
        self.residuals = np.zeros((steps, count + (s.nu if problem.programs.bounded else 0)))
        self.bounded = problem.programs.bounded
        self.quadratic: LinearSolver | None = None  # of steps within bounds
        self.held = np.zeros((steps, s.nu))  # which controls the last one held there
        self.h = np.zeros(steps)
        self.lasting = np.zeros((steps, 1))
        self.trials: dict[int, Trial] = {}

    def prepare(self) -> None:
        p = self.problem
        self.h[:] = p.h
        self.lasting[:, 0] = p.h
        s = p.system
        assert isinstance(s, RobotSystem)
        if s.held is not None and s.held.impacts:
            self.lasting[:, 0] += 1.0 - p.p[:-1, p.programs.inputs][:, -2]
        self.linear.h[:, 0] = p.h

    def evaluate(self, trial: Trial) -> Trial:
        """Costs with penalties, and how far all equations are from being solved: forces times the
        time they act.
        """
        p = self.problem
        trial.u, trial.residuals, costs = self.backward.free.evaluation(
            trial.x[:-1], trial.a, trial.f, self.h, p.p[:-1], trial.x[1:]
        )
        if self.bounded:
            outside = self.lasting * self.beyond(trial.u)
            trial.residuals = np.concatenate([trial.residuals, outside], axis=1)
        trial.gap = trial.residuals[:, : p.system.ndx]
        trial.J = float(costs.sum() + p.programs.final_evaluation(trial.x[-1:], p.p[-1:]).sum())
        return trial

    def beyond(self, u: np.ndarray) -> np.ndarray:
        """How far controls are outside of their bounds."""
        lower, upper = self.problem.bounds
        outside: np.ndarray = np.maximum(np.maximum(u - upper, lower - u), 0.0)
        return outside

    def at_bounds(self, u: np.ndarray) -> np.ndarray:
        """The same controls, those at a bound but for rounding exactly there."""
        near = _AT_BOUND * max(float(np.abs(u).max(initial=0.0)), 1e-300)
        for bound in self.problem.bounds:
            u = np.where(np.abs(u - bound) <= near, bound, u)
        return u

    def set(self, trial: Trial) -> None:
        """Makes a point the one that steps begin at."""
        if self.bounded:
            trial.u = self.at_bounds(trial.u)
        self.x[:], self.u[:] = trial.x, trial.u
        np.multiply(
            trial.residuals, np.abs(trial.residuals) >= _MET, out=self.residuals
        )  # but where they are met
        self.gap[:] = self.residuals[:, : self.gap.shape[1]]
        self.backward.a[:], self.backward.f[:] = trial.a, trial.f

    def defects(self) -> np.ndarray:
        """Of the steps in the linearised problem: their gaps, and what a₀ moves."""
        b, o, n = self.backward, self.backward.layout, self.gap.shape[1] // 2
        pushed = self.lasting * b.offset[:, :n]
        moved = self.h[:, None] * pushed
        if o.base:
            S = b.expanded[3][:, o.base * o.base_columns : 2 * o.base * o.base_columns].reshape(
                -1, o.base, o.base_columns
            )[:, :, : o.base]
            moved[:, : o.base] = (S @ pushed[:, : o.base, None])[:, :, 0]
        rest: np.ndarray = self.gap + np.concatenate([moved, pushed], axis=1)
        return rest

    def step(self) -> Step:
        """A whole step of the linearised problem."""
        b, n, r = self.backward, self.gap.shape[1] // 2, self.backward.f.shape[1]
        self.linear.gap[:] = b.defects
        o, z = b.layout, np.zeros((len(self.x) - 1, b.layout.columns))
        kept = self._within_bounds() if self.bounded else None
        if kept is None:
            self.linear.sweep()
            dx = self.linear.dx[0, :, :, 0].copy()
            z[:, b.state_columns] = dx[:-1]
            du = _times(b.gains[:, :, : o.state_columns], z[:, : o.state_columns]) + b.correction
        else:
            dx, du = kept
            z[:, b.state_columns] = dx[:-1]
        z[:, o.state_columns : o.state_columns + o.m] = du
        da = (_times(b.expanded[0], z) - dx[:-1, n:]) / self.lasting + b.offset[:, :n]
        own = z.take(b.own_columns, axis=1)
        df = _times(b.G, own)
        return Step(dx, z, own, da, df + b.offset[:, n : n + r], df)

    def _within_bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The step of the linearised problem whose controls are within their bounds, states and
        controls; None where the linear-quadratic problem has no minimum.
        """
        b, o, n, p = self.backward, self.backward.layout, self.gap.shape[1], self.problem
        F, l, L, *move = (x.astype(float) for x in b.expanded)
        own = b.own_columns
        F = whole_dynamics(o, F[:, :, own], p.h, move[0] if move else None)
        L, last = L[:, :, own], b.end[-1][:, b.state_columns].astype(float)
        rho = float(b.numbers[0, 0])
        lq = LQ(
            F[:, :, :n],
            F[:, :, n:],
            np.concatenate([L[:, :n, :n], last[None, :n]]),
            L[:, n:, :n],
            L[:, n:, n:],
            np.concatenate([l[:, own[:n]], last[None, n]]),
            l[:, own[n:]],
            np.concatenate([np.zeros((1, n)), b.defects]),
        )
        if rho:
            lq = lq.damped(rho)
        if self.quadratic is None:
            self.quadratic = linear_solver("riccati", *lq.sizes, Options())
        low, high = (bound - self.u for bound in p.bounds)
        step, self.held = box.solve(lq, low, high, self.held, self.quadratic.solve)
        return (step.dx, step.du) if step.status != "indefinite" else None

    def model_along(self, step: Step) -> tuple[float, float]:
        """The slope and curvature of the cost along a whole step."""
        b, n, r = self.backward, self.gap.shape[1] // 2, self.backward.f.shape[1]
        _, l, L, *_ = b.expanded
        last, dx = b.end[-1][:, b.state_columns], step.dx[-1]
        f0, g, bent = (b.offset[:, n + k * r : n + (k + 1) * r] for k in range(3))
        crossed = float(np.vdot(bent, step.moved))
        slope = float(np.vdot(l, step.z) + last[-1] @ dx + np.vdot(g, f0)) - crossed
        curve = (
            float(np.vdot(step.own, _times(L, step.z)) + dx @ last[:-1] @ dx + np.vdot(f0, bent))
            + 2 * crossed
        )
        return slope, curve

    def take(self, which: int) -> None:
        self.set(self.trials[which])


class FreeRun(Run):
    """A problem in the hands of this form of the solver."""

    form = "inverse"
    forward: Any
    backward: FreeBackward

    def __init__(self, problem: Problem, options: PDDP):
        check_form(problem)
        super().__init__(problem, options)

    def make_passes(self) -> None:
        self.backward = FreeBackward(self.problem, self.options.dtype)
        self.forward = FreeForward(self.problem, self.backward, self.alphas)
        self.single = Forward(self.problem, self.backward, np.ones(1))

    def begin(self) -> bool:
        p, f, b = self.problem, self.forward, self.backward
        self.ended = False
        f.prepare()
        b.prepare()
        b.gains[:] = 0.0
        if self.gaps:
            x = guess_with_gaps(p)[0]
            u = p.guess
        else:
            f.x[:], f.u[:] = p.start, p.guess
            self.roll_out(p.guess)
            x, u = f.x.copy(), f.u.copy()
        a, force = b.free.accelerations(x[:-1], u, p.p[:-1])
        trial = f.evaluate(Trial(x, a, force))
        f.set(trial)
        self.J = trial.J
        self.cost, self.negligible = p.cost(f.x, f.u) if p.constraints else self.J, p.negligible()
        self.history.append(self.cost)
        return bool(np.isfinite(self.J)) and bool(np.all(np.isfinite(f.x)))

    def expand(self) -> None:
        self.backward.expand(self.x, self.u)
        self.backward.defects[:] = self.forward.defects()

    def roll_out(self, u: np.ndarray) -> None:
        """From the start, with controls u and the gains around the reference."""
        super().roll_out(u)
        f = self.forward
        f.residuals[:] = 0.0
        if not self.ended:
            self.backward.a[:], self.backward.f[:] = self.backward.free.accelerations(
                f.x[:-1], f.u, self.problem.p[:-1]
            )

    def search(self, slope: float, curve: float) -> tuple[int | None, float, float]:
        """The step size taken by the merit function, the cost with it, and the fall of the merit
        expected of a whole step: the whole step is tried first.
        """
        f, low = self.forward, ARMIJO
        step = f.step()
        slope, curve = f.model_along(step)
        before = float(np.abs(f.residuals).sum())
        if before > 0.0:
            self.sigma = policy.penalty(self.sigma, before, slope, curve)
        closing = self.sigma * before
        expected = closing - slope - 0.5 * curve
        f.trials = {}
        order = [self.choice.whole, *(k for k, alpha in enumerate(self.alphas) if alpha < 1.0)]
        for k in order:
            alpha = float(self.alphas[k])
            b = self.backward
            with np.errstate(all="ignore"):
                trial = f.evaluate(
                    Trial(
                        self.problem.plus(f.x, alpha * step.dx),
                        b.a + alpha * step.da,
                        b.f + alpha * step.df,
                    )
                )
                after = np.abs(trial.residuals).sum()
                fall = self.J - trial.J + self.sigma * (before - after)
                worst = float(np.abs(trial.gap).max(initial=0.0))
            if policy.acceptable_with_defects(
                fall, alpha, slope, closing, worst, low, self.options.defect
            ):
                f.trials[k] = trial
                return k, trial.J, expected
        return None, self.J, expected

    def finish(self, status: str) -> Any:
        self.forward.gap[:] = 1.0  # so that it ends with a roll-out
        self.ended = True
        return super().finish(status)


def _times(matrices: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Products of matrices (steps, rows, columns) with vectors (steps, columns)."""
    products: np.ndarray = np.matmul(matrices, vectors[:, :, None])[:, :, 0]
    return products
