"""Durations that a solve chooses: which knots they belong to, and where they are in the state that
solvers see (`timed`).

Users give and get states x (N + 1, nx) and controls u (N, nu). A solver works on [x, τ] and [u, w],
where each τ is a duration over its first guess, and w sets it at the first knot of its first phase;
limits of w are those of the duration. A τ whose last phase is over makes room for the next one, so
that a motion of many free phases has as many more states as there are durations at the same time:
one, unless phases far apart share one.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from rigidgrad.control.system import CustomSystem, System
from rigidgrad.errors import InputError

_LONGEST = 1e9  # seconds


class Duration:
    """Seconds that a solve chooses between `low` and `high`, of a phase or of a problem without
    phases. Phases that are given the same object last equally long:

        stance = rg.Duration(0.2, 0.5)
        phases = [rg.Phase(20, left, duration=stance), rg.Phase(20, right, duration=stance)]

    The first guess is what the steps are given as `dt`, moved into these bounds; without `dt`, the
    middle of them. Bounds may change before `problem.update()`.
    """

    def __init__(self, low: float, high: float):
        self.low, self.high = low, high
        self.bounds()

    def bounds(self) -> tuple[float, float]:
        """Checked."""
        low, high = self.low, self.high
        fine = all(isinstance(t, Real) and not isinstance(t, bool | np.bool_) for t in (low, high))
        if not fine or not 0.0 < low < high <= _LONGEST:
            raise InputError(
                "a free duration lies between two positive numbers of seconds, the smaller one"
                f" first, not ({low!r}, {high!r}); for one that is given, set dt"
            )
        return float(low), float(high)

    def __repr__(self) -> str:
        return f"rg.Duration({self.low!r}, {self.high!r})"


def as_duration(asked: Any) -> Duration | None:
    """What a user gave: a Duration, a pair (low, high), or None: steps of given length."""
    if asked is None or isinstance(asked, Duration):
        return asked
    if isinstance(asked, Sequence | np.ndarray) and not isinstance(asked, str) and len(asked) == 2:
        low, high = (t.item() if isinstance(t, np.generic) else t for t in asked)
        return Duration(low, high)
    raise InputError(
        f"duration is (low, high) in seconds, or rg.Duration(low, high), not {asked!r}; for one"
        " that is given, set dt"
    )


class Span(NamedTuple):
    """Consecutive knots of one length: `dt` seconds, or as long as a solve chooses."""

    first: int
    steps: int
    dt: float | None
    duration: Duration | None

    @property
    def knots(self) -> slice:
        return slice(self.first, self.first + self.steps)


class Timing(NamedTuple):
    """Of all steps: the first guess `h` (steps,) of their seconds; `marks` (steps + 1, 2 count),
    the inputs of `Timed`; and bounds of w (steps,), infinite where it does nothing.
    """

    h: np.ndarray
    marks: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    @property
    def size(self) -> int:
        """How many durations the state holds."""
        return int(self.marks.shape[1]) // 2


def check_timed(system: System) -> None:
    if isinstance(system.bare, CustomSystem) and system.bare.discrete:
        raise InputError("discrete dynamics have no time between their steps: leave duration= out")


def timing_of(spans: Sequence[Span], known: np.ndarray | None) -> Timing:
    """`known`: seconds of all steps (steps,) of an earlier solution, which free ones begin with."""
    steps = spans[-1].first + spans[-1].steps
    h, lower, upper = np.zeros(steps), np.full(steps, -np.inf), np.full(steps, np.inf)
    free: dict[int, list[Span]] = {}
    for span in spans:
        if span.duration is None:
            assert span.dt is not None
            h[span.knots] = span.dt
        else:
            free.setdefault(id(span.duration), []).append(span)
    places, count = _places(list(free.values()))
    marks = np.zeros((steps + 1, 2 * count))
    for own, place in zip(free.values(), places, strict=True):
        first = own[0]
        assert first.duration is not None
        low, high = first.duration.bounds()
        if known is not None:
            guess = float(known[first.knots].sum())
        else:
            guess = 0.5 * (low + high) if first.dt is None else first.steps * first.dt
        guess = min(max(guess, low), high)
        lower[first.first], upper[first.first] = low / guess, high / guess
        marks[first.first, count + place] = 1.0
        for span in own:
            h[span.knots] = guess / span.steps
            marks[span.knots, place] = 1.0
    return Timing(h, marks, lower, upper)


def _places(durations: Sequence[Sequence[Span]]) -> tuple[list[int], int]:
    """Of durations in the order in which they begin, which τ each is, and how many there are."""
    last: list[int] = []  # the step with which each τ is free again
    places = []
    for own in durations:
        first, end = own[0].first, own[-1].first + own[-1].steps
        place = next((k for k, until in enumerate(last) if until <= first), len(last))
        last[place : place + 1] = [end]
        places.append(place)
    return places, len(last)
