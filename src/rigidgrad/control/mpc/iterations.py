"""Iterations of parallel DDP on a controller's problem: from the last plan shifted in time, with multipliers and penalties that go on from plan to plan."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from rigidgrad.control.mpc.live import LiveProblem
from rigidgrad.control.mpc.plan import Plan
from rigidgrad.control.mpc.posture import Posture
from rigidgrad.control.pddp import PDDP, Run
from rigidgrad.control.shooting import Forward

COLD = 20  # iterations of a plan from cold, at least
_ANY = 1_000_000  # more iterations than any budget allows
_FALL = 0.5  # of a violation, from one renewal of its multiplier to the next; where it falls less, its penalty grows
_GROW, _MOST = 3.0, 100.0  # by how much, and up to how many times what the costs call for
_SETTLED = 0.01  # a relative fall of the cost in an iteration, after which multipliers are renewed
_WAIT = 4  # iterations after which they are in any case
_SAME = 1e-3  # a relative change of multipliers that no longer matters
_RATIO = 100.0  # of the penalties' curvature to the costs': one iteration has to do what a solve may do in several
_RENEWED = 0.3  # the part of the way to new multipliers: taken whole, active bounds would chatter from plan to plan
_WIDTH = 0.003  # of the rounded corners: which bounds are active then changes gradually from plan to plan, and plans keep a little away from them
_FADE = 0.9  # of that, with every plan that keeps the limit


class Iterations:
    """`run` holds the trajectory; `multipliers` (knots, constraints) belong to the last plan that was kept. Violations up to `tolerance` (constraints,) are none."""

    def __init__(self, problem: LiveProblem, options: PDDP, tolerance: np.ndarray):
        self.run = Run(problem, options)
        assert isinstance(self.run.problem, LiveProblem)
        self.problem, self.options, self.tolerance = self.run.problem, options, tolerance
        # a step size of 0 leaves the controls of a shifted plan as they are
        self._simulated = Forward(self.problem, self.run.backward, np.zeros(1), reference=(self.run.x, self.run.u))
        self.reset()

    def reset(self) -> None:
        """Forgets multipliers and penalties."""
        self.problem.forget_multipliers()
        self.multipliers = self.problem.p[:, self.problem.programs.columns["multiplier"]]
        self.rescale()

    def rescale(self) -> None:
        """Costs have other weights: penalties are scaled to them with the next plan."""
        self._penalty: np.ndarray | None = None
        self.growth = np.ones(self.multipliers.shape[1])
        self._waited = 0
        self._worst = np.full(self.multipliers.shape[1], np.inf)  # violations at the last renewal

    # --- before the iterations -------------------------------------------------------------------------------------------------------

    def begin(self, last: Plan | None, begin: float, posture: Posture, prepared: bool) -> bool:
        """Rolls out what iterations start from, unless a preparation did; whether that stays finite."""
        self.run.forget()
        if prepared:
            self.measure()
        else:
            self.roll_out(last, begin, posture)
        return math.isfinite(self.run.J)

    def prepare(self, last: Plan, begin: float, posture: Posture) -> bool:
        """The first half of an iteration from where the plan will be; whether that stays finite."""
        self.roll_out(last, begin, posture)
        if not math.isfinite(self.run.J):
            return False
        self.run.linearize()
        return True

    def roll_out(self, last: Plan | None, begin: float, posture: Posture) -> None:
        """The last plan, shifted, or, without one, the start held, is rolled out from the problem's start."""
        p, rolled, run = self.problem, self._simulated, self.run
        run.backward.prepare()
        if last is not None:
            last.shifted_into(last.phase(begin), rolled.x, rolled.u, run.backward.gains, posture.resting(last.x[-1]))
        else:
            run.backward.gains[:] = 0.0
            rolled.x[:], rolled.u[:], run.backward.gains[:, :, run.backward.state_columns] = posture.stay(p.start)
        if p.constraints:
            self._place_multipliers(last, begin)
        self.measure()
        rolled.take(0)
        run.forward.gap[:] = 0.0
        if p.constraints and self._penalty is None and math.isfinite(run.J):
            p.scale_penalty(run.x, run.u, _RATIO)
            p.measure_corners(run.x, run.u)
            p.soften(_WIDTH)
            self._penalty = p.p[:, p.programs.columns["penalty"]]
            self._set_penalties()
            self.measure()

    def _place_multipliers(self, last: Plan | None, begin: float) -> None:
        """Those of the last plan, shifted with it; none for a plan from cold, with penalties scaled anew."""
        column = self.problem.programs.columns["multiplier"]
        if last is None:
            self.multipliers[:] = 0.0
            self.rescale()
        moved = self.multipliers.copy()
        if last is not None:
            last.shift_rows(last.phase(begin) - last.start, moved)
        self.problem.p[:, column] = moved
        if self._penalty is not None:
            self._set_penalties()

    def _set_penalties(self) -> None:
        assert self._penalty is not None
        self.problem.p[:, self.problem.programs.columns["penalty"]] = self._penalty * self.growth

    def measure(self) -> None:
        """The cost of following the reference from the start."""
        self.run.forward.prepare()
        self._simulated.prepare()
        self.run.J = float(self._simulated.run()[0])

    # --- the iterations ----------------------------------------------------------------------------------------------------------------

    def improve(self, began: float, warm: bool, prepared: bool, budget: float | None) -> None:
        """Iterates from what `roll_out` left; where `prepared`, the first iteration has been begun. `began` and `budget` are seconds of time.perf_counter."""
        run = self.run
        # a plan made from cold gets more iterations, within the budget if there is one
        most = self.options.iterations if warm else max(COLD, self.options.iterations)
        run.deadline = math.inf
        if budget is not None:
            most, run.deadline = _ANY, began + budget
        if self.problem.constraints:
            self._alternate(most, prepared)
        else:
            run.most = most
            self._descend(prepared)

    def _descend(self, prepared: bool) -> str:
        run = self.run
        status = run.descend(self.options.tolerance, prepared)
        if prepared and not run.steps_taken:
            self._simulated.take(0)
        if run.forward.open and np.any(run.forward.gap):
            run.roll_out(run.forward.u)
        return status

    def _alternate(self, most: int, prepared: bool) -> None:
        """Iterations, and a renewal of all multipliers whenever they have settled for those of now, until the plan is at rest within its limits."""
        run = self.run
        for done in range(1, most + 1):
            run.most, before = done, run.J
            status = self._descend(prepared)
            prepared = False
            settled = status == "converged" or before - run.J <= _SETTLED * abs(run.J)
            self._waited = 0 if settled else self._waited + 1
            moved = True
            if settled or self._waited >= _WAIT:
                self._waited, settled = 0, True
                moved = self._renew(status == "converged")
            if run.iterations < done or (status == "converged" and not moved) or time.perf_counter() > run.deadline:
                break
            if done < most and settled:
                self.measure()
        kept = self._worst <= self.tolerance
        self.growth[kept] = np.maximum(_FADE * self.growth[kept], 1.0)

    def _renew(self, settled: bool) -> bool:
        """Multipliers become the slopes of the penalties, and penalties grow where a violation did not fall although the descent had settled; whether that changed anything that matters."""
        run, p, columns = self.run, self.problem, self.problem.programs.columns
        old = p.p[:, columns["multiplier"]]
        found = p.stand(run.x, run.u).multiplier
        p.take_multipliers(old + _RENEWED * (found - old), 1.0, math.inf)
        worst = np.abs(p.excess(run.x, run.u)).max(axis=0)
        stuck = settled & (worst > self.tolerance) & (worst > _FALL * self._worst)
        self._worst = worst
        if stuck.any():
            self.growth[stuck] = np.minimum(_GROW * self.growth[stuck], _MOST)
            self._set_penalties()
        return bool(stuck.any() or np.abs(found - old).max(initial=0.0) > _SAME * np.abs(found).max(initial=0.0))

    def keep(self) -> None:
        """The multipliers found belong to the plan that is followed from now on."""
        self.multipliers = self.problem.p[:, self.problem.programs.columns["multiplier"]]

    def result(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, int]:
        """(states, controls, gains as the backward pass lays them out, cost, iterations)."""
        run: Any = self.run
        return run.x, run.u, run.backward.gains, run.J, run.iterations
