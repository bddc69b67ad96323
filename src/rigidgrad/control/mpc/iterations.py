"""Plans by iterations of parallel DDP: from the last plan shifted in time, with multipliers and
penalties that go on from plan to plan.
"""

from __future__ import annotations

import dataclasses
import math
import time
from functools import partial
from typing import Any

import numpy as np

from rigidgrad.control.mpc.clock import Stopwatch
from rigidgrad.control.mpc.live import LiveProblem
from rigidgrad.control.mpc.plan import Plan
from rigidgrad.control.mpc.planner import COLD, FURTHER, Planner
from rigidgrad.control.mpc.remembered import Remembered
from rigidgrad.control.pddp import PDDP, Iterate, Run
from rigidgrad.errors import InputError

_ANY = 1_000_000  # more iterations than any budget allows
# of a violation, from one renewal of its multiplier to the next; where it falls less, its penalty
# grows
FALL = 0.5
GROW, MOST = 3.0, 100.0  # by how much, and up to how many times what the costs call for
SETTLED = 0.01  # a relative fall of the cost in an iteration, after which multipliers are renewed
WAIT = 4  # iterations after which they are in any case
SAME = 1e-3  # a relative change of multipliers that no longer matters
# of the penalties' curvature to the costs': one iteration has to do what a solve may do in several
RATIO = 100.0
# the part of the way to new multipliers: taken whole, active bounds would chatter from plan to plan
RENEWED = 0.3
# of the rounded corners: which bounds are active then changes gradually from plan to plan, and
# plans keep a little away from them
WIDTH = 0.003
FADE = 0.9  # of that, with every plan that keeps the limit


class Iterations(Planner):
    """`run` holds the trajectory; `multipliers` (knots, constraints) belong to the last plan that
    was kept. Violations up to `tolerance` (constraints,) are none. `budget` is in seconds.
    """

    prepares = True

    def __init__(
        self,
        problem: LiveProblem,
        options: PDDP,
        period: float,
        tolerance: np.ndarray,
        budget: float | None = None,
    ):
        self.run = Remembered(problem, options) if problem.charges_rate else Run(problem, options)
        own = self.run.problem  # with numbers of its own
        assert isinstance(own, LiveProblem)
        super().__init__(own, options, period)
        self.options, self.tolerance, self.budget = options, tolerance, budget
        self._iterated = False  # whether the plan made last is the run's
        self._from_elsewhere: Iterate  # it, where it is not
        self.reset()

    def reset(self) -> None:
        """Forgets multipliers and penalties."""
        self.problem.forget_multipliers()
        self.multipliers = self.problem.multipliers
        self.rescale()

    def rescale(self) -> None:
        """Costs have other weights: penalties are scaled to them with the next plan."""
        self._penalty: np.ndarray | None = None
        self.growth = np.ones(self.multipliers.shape[1])
        self._waited = 0
        self._worst = np.full(self.multipliers.shape[1], np.inf)  # violations at the last renewal

    def make(self, last: Plan | None, begin: float, watch: Stopwatch, prepared: bool) -> Iterate:
        finite = self._iterated = self.begin(last, begin, prepared)
        watch.lap("shift")
        if finite:
            self._improve(
                last is not None,
                prepared,
                math.inf if self.budget is None else watch.began + self.budget,
            )
        if finite:
            found = self.run.result()
        elif (
            self.posture.touching is not None
        ):  # feet lift off and land: what stood in the last plan may fall in this one
            found = self._from_states(*self._guess(last, begin))
        else:
            found = (
                self.run.result()
                if last is not None
                else self._from_states(*self.problem.held_states())
            )
        if not finite:
            self._from_elsewhere = found
        self.further = FURTHER if finite else COLD
        watch.lap("iterate")
        return found

    def improve(self, deadline: float) -> Iterate | None:
        """By one more iteration of the run, which goes on from a plan that is from elsewhere."""
        if time.perf_counter() > deadline:
            return None
        if not self._iterated:
            self._iterated = self._adopt(self._from_elsewhere)
            if not self._iterated:
                return None
        elif self.problem.constraints:  # multipliers may be others now
            self.run.follow()
        before = self.run.result()
        self.run.iterate(before.iterations + 1, deadline)
        now = self.run.result()
        return now if now.J < before.J else None

    def _adopt(self, found: Iterate) -> bool:
        """Makes a plan that was found in another way the run's; whether its roll-out stays
        finite.
        """

        def write(x: np.ndarray, u: np.ndarray, gains: np.ndarray) -> None:
            x[:], u[:], gains[:] = found.x, found.u, found.gains

        finite = self.run.warm_start(write)
        self.run.count_from(found.iterations)
        return finite

    def keep(self) -> None:
        """The multipliers found belong to the plan that is followed from now on."""
        self.multipliers = self.problem.multipliers

    # --- before the iterations --------------------------------------------------------------------

    def begin(self, last: Plan | None, begin: float, prepared: bool) -> bool:
        """Rolls out what iterations start from, unless a preparation did; whether that stays
        finite.
        """
        self.run.forget()
        return self.run.follow() if prepared else self._roll_out(last, begin)

    def prepare(self, last: Plan, begin: float) -> bool:
        """The first half of an iteration from where the plan will be; whether that stays finite."""
        finite = self._roll_out(last, begin)
        if finite:
            self.run.linearize()
        return finite

    def _roll_out(self, last: Plan | None, begin: float) -> bool:
        """The last plan, shifted, or, without one, the start held, is rolled out from the problem's
        start; whether that stays finite.
        """
        p, run = self.problem, self.run
        if p.constraints:
            self._place_multipliers(last, begin)
        if last is not None:
            finite = run.warm_start(
                partial(last.shifted_into, last.phase(begin), tail=self.posture.tail(last))
            )
        elif self.posture.touching is not None:
            return False  # from states held on the contacts
        else:
            finite = run.cold_start(*self.posture.stay(p.start))
        if p.constraints and self._penalty is None and finite:
            x, u = run.result()[:2]
            p.scale_penalty(x, u, RATIO)
            p.measure_corners(x, u)
            p.soften(WIDTH)
            self._penalty = p.penalties
            self._set_penalties()
            finite = run.follow()
        return finite

    def _place_multipliers(self, last: Plan | None, begin: float) -> None:
        """Those of the last plan, shifted with it; none for a plan without a warm start, with
        penalties scaled again.
        """
        if last is None:
            self.multipliers[:] = 0.0
            self.rescale()
        moved = self.multipliers.copy()
        if last is not None:
            last.shift_rows(last.phase(begin) - last.start, moved)
        self.problem.set_multipliers(moved)
        if self._penalty is not None:
            self._set_penalties()

    def _set_penalties(self) -> None:
        assert self._penalty is not None
        self.problem.set_penalties(self._penalty * self.growth)

    def _guess(self, last: Plan | None, begin: float) -> tuple[np.ndarray, np.ndarray]:
        """States and controls of the last plan, shifted, or of standing still."""
        p = self.problem
        if last is None or self.posture.touching is None:
            return p.held_states()
        x, u = np.empty_like(last.x), np.empty_like(last.u)
        last.shifted_into(last.phase(begin), x, u, self.gains, self.posture.tail(last))
        return x, np.clip(u, *p.bounds)

    def _from_states(self, x: np.ndarray, u: np.ndarray) -> Iterate:
        """From a guess of states, where no roll-out from the start stays finite: very light links
        run away even from a posture held by feedback, if steps are long.
        """
        p, options = self.problem, self.options
        p.guess_states, p.guess = x, u
        try:
            cold = dataclasses.replace(
                options,
                iterations=max(COLD, options.iterations),
                blocks=1,
                forward_blocks=None,
                backward_blocks=None,
            )
            found = cold.solve(p)
        finally:
            p.guess_states = None
        if found.multipliers is not None:
            p.set_multipliers(found.multipliers)
        self.gains[:, :, self.columns] = found.gains
        return Iterate(found.x, found.u, self.gains, found.cost, found.iterations)

    # --- the iterations ---------------------------------------------------------------------------

    def _improve(self, warm: bool, prepared: bool, deadline: float) -> None:
        """Iterates from what was rolled out; where `prepared`, the first iteration has been
        begun.
        """
        if self.budget is not None:
            most = _ANY
        else:  # a plan without a warm start gets more iterations
            most = self.options.iterations if warm else max(COLD, self.options.iterations)
        if self.problem.constraints:
            self._alternate(most, deadline, prepared)
        else:
            self.run.iterate(most, deadline, prepared)

    def _alternate(self, most: int, deadline: float, prepared: bool) -> None:
        """Iterations, and a renewal of all multipliers whenever they have settled for those of now,
        until the plan is at rest within its limits.
        """
        run = self.run
        for done in range(1, most + 1):
            before = run.result().J
            status = run.iterate(done, deadline, prepared)
            prepared = False
            now = run.result()
            settled = status == "converged" or before - now.J <= SETTLED * abs(now.J)
            self._waited = 0 if settled else self._waited + 1
            moved = True
            if settled or self._waited >= WAIT:
                self._waited, settled = 0, True
                moved = self._renew(now, status == "converged")
            if (
                now.iterations < done
                or (status == "converged" and not moved)
                or time.perf_counter() > deadline
            ):
                break
            if done < most and settled:
                run.follow()
        kept = self._worst <= self.tolerance
        self.growth[kept] = np.maximum(FADE * self.growth[kept], 1.0)

    def _renew(self, now: Iterate, settled: bool) -> bool:
        """Multipliers become the slopes of the penalties, and penalties grow where a violation did
        not fall although the descent had settled; whether that changed anything that matters.
        """
        p = self.problem
        old, found = p.multipliers, p.constraint_status(now.x, now.u).multiplier
        p.set_multipliers(old + RENEWED * (found - old))
        worst = np.abs(p.excess(now.x, now.u)).max(axis=0)
        stuck = settled & (worst > self.tolerance) & (worst > FALL * self._worst)
        self._worst = worst
        if stuck.any():
            self.growth[stuck] = np.minimum(GROW * self.growth[stuck], MOST)
            self._set_penalties()
        return bool(
            stuck.any()
            or np.abs(found - old).max(initial=0.0) > SAME * np.abs(found).max(initial=0.0)
        )


def planner_of(
    problem: LiveProblem, solver: Any, period: float, tolerance: np.ndarray, budget: float | None
) -> Planner:
    """What makes plans by a solver: of parallel DDP by its iterations, of another by whole
    solves.
    """
    if isinstance(solver, PDDP):
        return Iterations(problem, solver, period, tolerance, budget)
    if budget is not None:
        raise InputError("a time budget needs rg.PDDP; give other solvers a number of iterations")
    return Planner(problem, solver, period)
