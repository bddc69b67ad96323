"""Which plan acts when: the one of now, those that wait for the latency to pass, and room for the
next.
"""

from __future__ import annotations

import math
from collections import deque

from rigidgrad.control.mpc.clock import ROUNDING
from rigidgrad.control.mpc.live import LiveProblem
from rigidgrad.control.mpc.plan import Plan
from rigidgrad.control.pddp import Iterate


class Schedule:
    """`acting` is the plan that is followed now. Plans are made once, and used again."""

    def __init__(self, problem: LiveProblem, waiting: int):
        self.acting = Plan(problem)
        self._waiting: deque[Plan] = deque()
        self._spare = [Plan(problem) for _ in range(waiting + 2)]

    def clear(self) -> None:
        """There is no plan."""
        self.acting.start = -math.inf
        self._spare += self._waiting
        self._waiting.clear()

    @property
    def empty(self) -> bool:
        """Whether nothing acts yet."""
        return self.acting.start == -math.inf

    @property
    def latest(self) -> Plan:
        """The newest plan, which may have to wait."""
        return self._waiting[-1] if self._waiting else self.acting

    def add(self, start: float, found: Iterate) -> Plan:
        """A plan from a time on, copied from what a solver found."""
        plan = self._spare.pop() if self._spare else self._waiting.pop()
        plan.take(start, found)
        self._waiting.append(plan)
        return plan

    def activate(self, t: float) -> None:
        """The newest plan whose time has come acts."""
        while self._waiting and t >= self._waiting[0].start - ROUNDING:
            self._spare.append(self.acting)
            self.acting = self._waiting.popleft()

    def acting_at(self, t: float) -> Plan:
        """The plan that will act at a time to come, as far as that is known."""
        return next(
            (plan for plan in reversed(self._waiting) if plan.start <= t + ROUNDING), self.acting
        )

    def shift(self, seconds: float) -> None:
        """The clock was moved."""
        for plan in (self.acting, *self._waiting):
            plan.start += seconds
