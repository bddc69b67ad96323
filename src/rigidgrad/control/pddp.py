"""Differential dynamic programming without second derivatives of the dynamics (iLQR), single shooting.

The letters and equations are those of Plancher 2022, chapters 2 and 4: the backward pass (2.7-2.9, with the full V_x), the regularisation ρ of V_xx (4.4), and the
line search over all step sizes α at once, in lanes: of those that meet (4.2) the largest is taken, or the one with the lowest cost.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from rigidgrad.control import riccati
from rigidgrad.control.problem import Problem
from rigidgrad.control.solution import Solution
from rigidgrad.errors import InputError


@dataclass(frozen=True)
class PDDP:
    """Options of the solver. `tolerance`: relative fall of the cost at which it stops. `blocks` above 1 are not supported yet.

    Of `alphas` step sizes 1, ½, ¼, … those are acceptable whose actual fall of the cost is within `accept` times the expected one; `choose` the "largest"
    of them, or the "best", as the dissertation does. The largest needs fewer iterations where full steps are bold at first.
    """

    blocks: int = 1
    iterations: int = 200
    tolerance: float = 1e-9
    alphas: int = 8
    accept: tuple[float, float] = (0.1, 1e2)
    choose: str = "largest"
    regularization: tuple[float, float] = (1e-9, 1e9)

    def __post_init__(self) -> None:
        if self.blocks != 1:
            raise InputError(f"blocks={self.blocks}: shooting blocks are not supported yet; use blocks=1")
        if self.choose not in ("largest", "best"):
            raise InputError(f"choose is 'largest' or 'best', not {self.choose!r}")
        if self.iterations < 0 or self.alphas < 1:
            raise InputError("iterations must be 0 or more, alphas 1 or more")

    def solve(self, problem: Problem) -> Solution:
        return _Run(problem, self).solve()


class _Run:
    """One solve: its buffers and where the time goes."""

    def __init__(self, problem: Problem, options: PDDP):
        self.problem, self.options = problem, options
        s, n, a = problem.system, problem.steps, options.alphas
        self.alphas = 2.0 ** -np.arange(a)
        self.h, self.h_all = np.full(n, problem.dt), np.full(a, problem.dt)
        self.X, self.U = np.empty((n + 1, a, s.nx)), np.empty((n, a, s.nu))
        self.running, self.running_all = problem.parameters(), problem.parameters(a)
        self.final, self.final_all = problem.final_parameters(), problem.final_parameters(a)
        self.expanded = tuple(np.empty((n, *shape)) for shape in problem.expansion.outputs.values())
        self.kappa, self.K = np.empty((n, s.nu)), np.empty((n, s.nu, s.ndx))
        self.seconds: dict[str, float] = defaultdict(float)

    def timed(self, phase: str, function: Any, *arguments: Any) -> Any:
        start = time.perf_counter()
        result = function(*arguments)
        self.seconds[phase] += time.perf_counter() - start
        return result

    def solve(self) -> Solution:
        p, o = self.problem, self.options
        s, n = p.system, p.steps
        zero_k, zero_K = np.zeros((n, s.nu)), np.zeros((n, s.nu, s.ndx))
        x_ref = np.tile(p.start, (n + 1, 1))
        J_all = self.timed("forward", self.roll_out, x_ref, p.guess, zero_k, zero_K)
        if not np.isfinite(J_all[0]):
            return self.finish("diverged", float("inf"), self.X[:, 0].copy(), self.U[:, 0].copy(), zero_K, 0, [])
        x, u, J = self.X[:, 0].copy(), self.U[:, 0].copy(), float(J_all[0])
        gains, history = zero_K, [J]
        rho, low, high = 0.0, *o.regularization
        iteration = 0
        for iteration in range(1, o.iterations + 1):
            expansion = self.timed("expansion", self.expand, x, u)
            while True:
                back = self.timed("backward", self.backward, expansion, rho)
                if back is None:
                    rho = max(low, 10 * rho)
                    if rho > high:
                        return self.finish("stalled", J, x, u, gains, iteration, history)
                    continue
                kappa, K, slope, curve = back
                costs = self.timed("forward", self.roll_out, x, u, kappa, K)
                expected = -(self.alphas * slope + self.alphas**2 / 2 * curve)
                with np.errstate(all="ignore"):
                    z = (J - costs) / expected
                fine = np.isfinite(costs) & (z > o.accept[0]) & (z < o.accept[1])
                if fine.any() or expected[0] <= o.tolerance * max(abs(J), 1e-300):
                    break
                rho = max(low, 10 * rho)
                if rho > high:
                    return self.finish("stalled", J, x, u, gains, iteration, history)
            if not fine.any():  # there is nothing left to gain
                return self.finish("converged", J, x, u, K.copy(), iteration, history)
            best = int(np.argmax(fine)) if o.choose == "largest" else int(np.argmin(np.where(fine, costs, np.inf)))
            fall, J = J - float(costs[best]), float(costs[best])
            x, u, gains = self.X[:, best].copy(), self.U[:, best].copy(), K.copy()
            history.append(J)
            rho = 0.0 if rho <= low else rho / 10
            if fall <= o.tolerance * max(abs(J), 1e-300):
                return self.finish("converged", J, x, u, gains, iteration, history)
        return self.finish("iterations", J, x, u, gains, iteration, history)

    def finish(self, status: str, J: float, x: np.ndarray, u: np.ndarray, K: np.ndarray, iterations: int, history: list[float]) -> Solution:
        return Solution(status, J, x, u, K, iterations, {"seconds": dict(self.seconds), "history": history})

    def roll_out(self, x: np.ndarray, u: np.ndarray, kappa: np.ndarray, K: np.ndarray) -> np.ndarray:
        """Simulates all step sizes at once into X, U; their costs."""
        p, a = self.problem, len(self.alphas)
        x_ref, u_ref, kappas, Ks = (np.repeat(m[:, None], a, axis=1) for m in (x, u, kappa, K))
        self.X[0] = p.start
        for k in range(p.steps):
            out = (self.U[k], self.X[k + 1])
            p.policy(self.X[k], x_ref[k], u_ref[k], kappas[k], Ks[k], self.alphas, self.h_all, out=out)
        running = p.running_cost(self.X[:-1], self.U, *self.running_all)
        final = p.final_expansion(self.X[-1], *self.final_all)[0]
        return running.sum(axis=0) + final

    def expand(self, x: np.ndarray, u: np.ndarray) -> tuple[Any, Any]:
        p = self.problem
        return p.expansion(x[:-1], u, self.h, *self.running, out=self.expanded), p.final_expansion(x[-1:], *self.final)

    def backward(self, expansion: tuple[Any, Any], rho: float) -> tuple[np.ndarray, np.ndarray, float, float] | None:
        """κ, K, Σ κᵀQ_u and Σ κᵀQ_uu κ; None where Q_uu is not positive definite."""
        (A, B, lx, lu, lxx, luu), (_, final_lx, final_lxx) = expansion
        fine, slope, curve = riccati.backward(A, B, lx, lu, lxx, luu, final_lx[0], final_lxx[0], rho, self.kappa, self.K)
        return (self.kappa, self.K, slope, curve) if fine else None


def solve(problem: Problem, solver: PDDP | None = None) -> Solution:
    """The solution of a problem; by iLQR unless a solver is given."""
    if not isinstance(problem, Problem):
        raise InputError(f"solve needs a Problem, not {type(problem).__name__}")
    return (solver or PDDP()).solve(problem)
