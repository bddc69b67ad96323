"""A controller's time: that of its steps, when plans are due, and the seconds that making one
really takes.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from rigidgrad.errors import InputError

HUGE = 1e12  # times, and numbers of a state, beyond are none
ROUNDING = 1e-9  # seconds; times nearer to each other are the same
PHASES = ("predict", "shift", "iterate", "solve")


def check_seconds(name: str, value: Any, least: float) -> None:
    """An error unless the value is a finite number of at least `least`."""
    if not (isinstance(value, int | float | np.number) and math.isfinite(value) and value >= least):
        raise InputError(f"{name} is a number of seconds of at least {least:g}, not {value!r}")


class Clock:
    """`now` is the time of the last step. Plans are `due` every `period` seconds."""

    def __init__(self, period: float):
        self.period = period
        self.reset()

    def reset(self) -> None:
        self.now = self.due = -math.inf
        self.turned = 0.0  # seconds by which the last step turned it back, negative

    def tick(self, t: Any) -> InputError | None:
        """Goes on to the time of a step; what is wrong with it, if anything is. A time that is none
        lets the clock stand still, an earlier one turns it back.
        """
        self.turned = 0.0
        try:
            now = float(t)
        except (TypeError, ValueError, OverflowError):
            now = math.nan
        if not abs(now) < HUGE:
            self.now = max(self.now, 0.0)
            return InputError(f"the time {t!r} is not a number of seconds")
        before, self.now = self.now, now
        if now >= before:
            return None
        self.turned = now - before
        self.due += self.turned
        return InputError(f"the time went from {before!r} back to {now!r}")

    def is_due(self, t: float) -> bool:
        """Whether a plan is to be made at a time."""
        return t >= self.due - ROUNDING

    def set_next(self) -> None:
        """A plan is made now: the next one is due a period after this one was, or, where that is
        long past, a period from now.
        """
        late = self.now - self.due > self.period or self.due == -math.inf
        self.due = self.now + self.period if late else self.due + self.period


class Stopwatch:
    """`seconds` of each phase of the last plan, on this machine; it `began` at this time of
    time.perf_counter.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.start()

    def start(self) -> None:
        self.began = self._lap = time.perf_counter()

    def lap(self, phase: str) -> None:
        """A phase ends, and the next one begins."""
        now = time.perf_counter()
        self.seconds[phase], self._lap = now - self._lap, now

    def stop(self, phase: str) -> None:
        """All since the start was this."""
        self.seconds[phase] = time.perf_counter() - self.began
