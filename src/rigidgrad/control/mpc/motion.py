"""A motion of several phases as it passes: which of its steps the knots of a plan are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rigidgrad.control.phases import Impact, Phase
from rigidgrad.errors import InputError

_SHORT = 1e-3  # of a step; one of which less is left is over
_INSTANT = 1e-6  # seconds; an impact that was longer ago is over


class Motion:
    """Numbers `p` (steps + 1, …) of all knots, `bounds` of the controls, (steps, nu) each, and
    seconds `h` (steps,) of all steps, 0 of an impact.

    After the last step the ones from `again` on come once more; where that is None, the last one
    goes on. With `even` steps plans have steps of their own, which begin when the plan does; else
    the knots of plans are those of the motion, but for the first one, which is somewhere in a step.
    """

    def __init__(
        self,
        p: np.ndarray,
        bounds: tuple[np.ndarray, np.ndarray],
        h: np.ndarray,
        even: bool,
        again: int | None,
    ):
        self.p, self.bounds, self.h, self.even, self.again = p, bounds, h, even, again
        self._ends = np.cumsum(h)
        # steps that come again and again, and their seconds
        self.cycle = 0 if again is None else len(h) - again
        self._period = float(h[len(h) - self.cycle :].sum())

    def passed(self, seconds: float) -> tuple[int, float]:
        """(how many steps are over after some seconds, the seconds that are left of the next one).
        An impact at this very moment is still to come.
        """
        h, ends, n = self.h, self._ends, len(self.h)
        seconds = max(seconds, 0.0)
        if self.even:
            return int(seconds / h[0] + 1e-6), float(h[0])
        rounds = max(int((seconds - ends[-1]) / self._period), 0) if self.cycle else 0
        over = self._over(seconds - rounds * self._period, rounds)
        while self.cycle and over.all():
            rounds += 1
            over = self._over(seconds - rounds * self._period, rounds)
        seconds -= rounds * self._period
        if over.all():
            more = int((seconds - ends[-1]) / h[-1] + _SHORT)
            return n + more, float(ends[-1] + (more + 1) * h[-1] - seconds)
        k = int(np.argmin(over))
        return k + rounds * self.cycle, float(ends[k] - seconds) if h[k] else 0.0

    def _over(self, seconds: float, rounds: int) -> np.ndarray:
        over = np.where(
            self.h > 0.0, self._ends <= seconds + _SHORT * self.h, self._ends < seconds - _INSTANT
        )
        if rounds:
            over[: self.again] = True
        return over

    def rows(self, passed: int, count: int) -> np.ndarray:
        """Which steps of the motion the next ones are, (count,), after so many."""
        n, ahead = len(self.h), passed + np.arange(count)
        if self.cycle:
            found: np.ndarray = np.where(
                ahead < n, ahead, n - self.cycle + (ahead - n) % self.cycle
            )
            return found
        return np.minimum(ahead, n - 1)

    def between(self, since: float, until: float) -> Iterator[tuple[int, float]]:
        """What happens from one moment to another: (the row of a step, the seconds of it), those of
        an impact being 0.
        """
        passed, left = self.passed(since)
        left -= min(since, 0.0)  # the first step has not begun
        while until - since > _INSTANT:
            row = int(self.rows(passed, 1)[0])
            if not self.h[row]:
                yield row, 0.0
            else:
                seconds = min(left, until - since)
                yield row, seconds
                since += seconds
            passed += 1
            left = float(self.h[self.rows(passed, 1)[0]])


def first_again(phases: Sequence[Phase | Impact], repeat: int | None) -> int | None:
    """The step with which a motion goes on after its last one; None where that one goes on."""
    if repeat is None:
        if phases and isinstance(phases[-1], Impact):
            raise InputError(
                "the last phase goes on for ever, and an impact cannot: end with an rg.Phase, or"
                " give repeat=, the number of the phase that comes next"
            )
        return None
    if not phases:
        raise InputError("repeat= is for problems with phases: this one has steps alone")
    if (
        isinstance(repeat, bool)
        or not isinstance(repeat, int | np.integer)
        or not 0 <= repeat < len(phases)
    ):
        raise InputError(
            f"repeat is the number of the phase that comes after the last one, from 0 to"
            f" {len(phases) - 1}, not {repeat!r}"
        )
    if all(isinstance(phase, Impact) for phase in phases[repeat:]):
        raise InputError(
            f"the phases from {repeat} on are impacts, which take no time: repeat from an rg.Phase"
            " before them on"
        )
    return sum(phase.steps for phase in phases[:repeat])
