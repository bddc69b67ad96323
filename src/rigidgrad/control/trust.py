"""Steps of the direct method within a radius, instead of a line search along whole steps: what
Plancher 2022 (section 7) names as next, trust regions and the alternating direction method of
multipliers.

A step is dZ = n + t: n closes defects at the least cost, a part κ of them, and t is within the
radius Δ (the composite steps of Byrd and Omojokun: Nocedal and Wright 2006, section 18.5). The
radius follows the merit function M = J + μ|d|: where less than a quarter of the expected fall comes
about it shrinks to a quarter of the step, where more than three quarters do, at the edge, it
doubles (Algorithm 4.1); κ is halved where a step is refused, and doubled, up to 1, where one is
taken. The first radius is the length of the first step.

"trust_region": |t| ≤ Δ, by ½ ρ |t|² besides the costs, with a ρ that is found by bisection.
"admm": |t_i| ≤ Δ of each control, together with its bounds, as a box: in turns

    w = argmin ½ wᵀG w + gᵀw + ½ σ |w_u - z + y|²  with  C w = κ d,     z = w_u + y, clipped to the
    box,     y ← y + w_u - z

(S. Boyd et al., Distributed Optimization and Statistical Learning via ADMM, 2010, section 5.2). All
w of a σ have the same matrices, which are factored once; σ follows what the two copies differ by
and what z still moves by (section 3.4.1).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rigidgrad.control.linear.lq import LQ
from rigidgrad.control.linear.solvers import Step

if TYPE_CHECKING:
    from rigidgrad.control.direct import Run

_SHRUNK, _GROWN = 0.25, 2.0
_POOR, _GOOD = 0.25, 0.75  # parts of the expected fall
_EDGE = 0.8  # of the radius: a step beyond is at the edge
_LEAST = 1e-12  # of the first radius: below it nothing is left
_SECULAR = 14  # LQ problems for one ρ
_TURNS = 200  # of the alternating directions, at most
_AGREED = 1e-7  # relatively: two copies that are one
_BALANCED = (5, 10, 20, 40, 80, 120)  # turns after which σ is looked at


class Descent:
    """A descent of a run of the direct method by steps within a radius."""

    def __init__(self, run: Run):
        self.run = run
        self.radius = math.inf
        self.first = 0.0  # radius
        self.part = 1.0  # κ

    def descend(self, tolerance: float) -> str:
        """Iterates until a free step promises nothing; the status."""
        run, o = self.run, self.run.options
        while run.iterations < o.iterations:
            run.iterations += 1
            lq = run.timed("linearize", run.linearize)
            taken = False
            while not taken:
                step, size, free = run.timed("linear", self.step, lq)
                if not step.solved and step.status == "indefinite":
                    return "stalled"
                if not self.first:
                    self.first = self.radius = size
                expected = run.expect(lq, step)
                small = abs(expected) <= max(tolerance * abs(run.J), run.negligible)
                if free:
                    run.expected = abs(expected)
                # with constraints the last step is taken, too, as by a line search
                wanted = expected > 0 and (not small or not free or bool(run.problem.constraints))
                before = run.J + run.mu * float(np.abs(run.d).sum())
                chosen = run.timed("search", run.search, step) if wanted else None
                if chosen is not None:
                    taken, self.part = True, min(1.0, 2.0 * self.part)
                    fall = before - run.J - run.mu * float(np.abs(run.d).sum())
                    self._judge(fall / expected, size)
                    run.took(chosen, step)
                if small and self._at_rest(lq, tolerance):
                    return "converged"
                if not taken:
                    self.part *= 0.5
                    self.radius = _SHRUNK * min(self.radius, size)
                    if not self.radius > _LEAST * self.first:
                        return "stalled"
        return "iterations"

    def _at_rest(self, lq: LQ, tolerance: float) -> bool:
        """Whether a whole step promises nothing either."""
        run = self.run
        step = run.step(lq, 0.0)
        run.expected = abs(run.expect(lq, step)) if step.solved else math.inf
        return run.expected <= max(tolerance * abs(run.J), run.negligible)

    def _judge(self, part: float, size: float) -> None:
        if part < _POOR:
            self.radius = _SHRUNK * size
        elif part > _GOOD and size >= _EDGE * self.radius:
            self.radius *= _GROWN

    def step(self, lq: LQ) -> tuple[Step, float, bool]:
        """A step within the radius, how far it is from n, and whether the radius matters not."""
        raise NotImplementedError

    def closing(self, lq: LQ) -> tuple[LQ, np.ndarray, np.ndarray]:
        """The problem that closes a part κ of the defects, and n by states and by controls."""
        if not lq.d.any():
            return lq, np.zeros_like(lq.q), np.zeros_like(lq.r)
        lq = replace(lq, d=self.part * lq.d)
        alone = replace(lq, q=np.zeros_like(lq.q), r=np.zeros_like(lq.r))
        found = self.run.linear.solve(alone)
        if found.status == "indefinite":  # the shortest one then
            n, m = lq.Q.shape[1], lq.R.shape[1]
            flat = np.broadcast_to(np.eye(n), lq.Q.shape), np.broadcast_to(np.eye(m), lq.R.shape)
            alone = replace(alone, Q=flat[0], R=flat[1], S=np.zeros_like(lq.S))
            found = self.run.linear.solve(alone)
        self.run.linear_solves += 1
        return lq, found.dx, found.du


class TrustRegion(Descent):
    """|t| ≤ Δ."""

    rho = 0.0  # of the last step

    def step(self, lq: LQ) -> tuple[Step, float, bool]:
        low, high = self.run.options.regularization
        lq, nx, nu = self.closing(lq)

        def bent(rho: float) -> tuple[Step, float]:
            found = replace(lq.damped(rho), q=lq.q - rho * nx, r=lq.r - rho * nu) if rho else lq
            step = self.run.step(found, 0.0)
            if step.status == "indefinite":
                return step, math.inf
            return step, math.hypot(
                float(np.linalg.norm(step.dx - nx)), float(np.linalg.norm(step.du - nu))
            )

        rho = 0.0
        step, size = bent(rho)
        if step.status == "indefinite":
            rho = low
            step, size = bent(rho)
        if size <= self.radius and step.status != "indefinite":
            return step, size, self.part == 1.0
        if math.isinf(self.radius):  # nothing is known yet but that this is no minimum
            while step.status == "indefinite" and rho <= high:
                rho *= 10.0
                step, size = bent(rho)
            return step, size, False
        gx, gu = lq.cost_gradient(nx, nu)
        steepest = math.hypot(float(np.linalg.norm(gx)), float(np.linalg.norm(gu)))
        # between a ρ whose step is too long and one whose step is not, were G definite
        short, long = max(steepest / self.radius, low), low
        rho = min(max(self.rho, long), short) if self.rho else math.sqrt(1e-6 * short * short)
        for turn in range(_SECULAR):
            step, size = bent(rho)
            if _EDGE * self.radius <= size <= self.radius / _EDGE or rho > high:
                break
            short, long = (rho, long) if size < self.radius else (short, rho)
            short = max(short, 10.0 * long)
            ahead = rho * size / self.radius
            rho = ahead if turn % 2 == 0 and long < ahead < short else math.sqrt(long * short)
        self.rho = rho
        return step, size, False


class AlternatingDirections(Descent):
    """|t_i| ≤ Δ of controls, and their bounds."""

    def step(self, lq: LQ) -> tuple[Step, float, bool]:
        run = self.run
        lq, _, nu = self.closing(lq)
        least, most = (b - run.u for b in run.problem.bounds)
        low, high = np.maximum(least, nu - self.radius), np.minimum(most, nu + self.radius)
        low, high = np.minimum(low, most), np.maximum(high, least)
        run.linear_counts.append(0)
        sigma, lam = 0.0, run.lam
        z = np.clip(nu, low, high)
        y = np.zeros_like(z)
        weighted = lq
        found: Step | None = run.linear.solve(lq, lam)
        for turn in range(1, _TURNS + 1):
            run.linear_solves += found is not None
            if found is not None and found.status == "indefinite":
                sigma = max(10.0 * sigma, float(np.einsum("kii->ki", lq.R).mean()), 1e-12)
                if sigma > run.options.regularization[1]:
                    return found, math.inf, False
                weighted = replace(lq, R=lq.R + sigma * np.eye(lq.R.shape[1]))
                found = run.linear.solve(weighted, lam)
                continue
            run.linear.substitute(weighted, lq.q, lq.r - sigma * (z - y), lq.d)
            run.linear_counts[-1] += 1
            w, lam, old = run.linear.du.copy(), run.linear.lam.copy(), z
            z = np.clip(w + y, low, high)
            apart, moved = float(np.abs(w - z).max()), float(np.abs(z - old).max())
            y = y + w - z
            if apart == 0.0 and sigma == 0.0:  # nothing holds it back
                break
            found = None
            if sigma == 0.0:
                sigma, y = max(float(np.einsum("kii->ki", lq.R).mean()), 1e-12), np.zeros_like(y)
            elif max(apart, moved) <= _AGREED * max(float(np.abs(w).max()), 1e-300):
                break
            elif turn in _BALANCED and min(apart, moved) > 0.0:
                factor = min(max(math.sqrt(apart / moved), 0.1), 10.0)
                sigma, y = sigma * factor, y / factor
            else:
                continue
            weighted = replace(lq, R=lq.R + sigma * np.eye(lq.R.shape[1]))
            found = run.linear.solve(weighted, lam)
        step = Step(lq.propagate(z), z, lam)
        size = float(np.abs(z - nu).max(initial=0.0))
        if math.isinf(self.radius):
            return step, size, True
        return step, size, size < self.radius and self.part == 1.0


DESCENTS: dict[str, type[Descent]] = {"trust_region": TrustRegion, "admm": AlternatingDirections}
