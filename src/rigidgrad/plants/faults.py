"""What is wrong with measurements: noise, rounding, delay, and samples that are lost, repeated or
not numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.control.numeric_input import numbers
from rigidgrad.errors import InputError, unknown_name

KINDS = ("drop", "repeat", "nan")
_INSTANT = 1e-9  # times nearer than this are the same


@dataclass(frozen=True)
class Faults:
    """What is wrong with measurements. Noise is normal, in the tangent space; a sample is never
    older than the one before.
    """

    noise_position: ArrayLike = 0.0
    """Standard deviation of positions, in v's layout: one number or one a velocity."""
    noise_velocity: ArrayLike = 0.0
    """Standard deviation of velocities, likewise."""
    latency: float = 0.0
    """Seconds that each sample is old."""
    jitter: float = 0.0
    """Up to so many seconds more, evenly drawn."""
    drop: float = 0.0
    """Probability that a measurement is lost."""
    repeat: float = 0.0
    """Probability that it is the last one again."""
    nan: float = 0.0
    """Probability that one of its numbers is NaN."""
    quantisation_position: ArrayLike = 0.0
    """Positions are rounded to multiples of this, as differences from neutral."""
    quantisation_velocity: ArrayLike = 0.0
    """Velocities are rounded to multiples of this."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            single = field.name in ("latency", "jitter", *KINDS)
            checked = numbers(field.name, value, () if single else np.shape(value))
            if (checked < 0).any():
                raise InputError(f"{field.name} is not negative, unlike {value!r}")
        if self.drop + self.repeat + self.nan > 1.0 + 1e-12:
            raise InputError(
                "drop, repeat and nan are probabilities of one choice: together they are at most 1"
            )

    @property
    def delay(self) -> float:
        """The oldest that a sample can be."""
        return self.latency + self.jitter


@dataclass(slots=True)
class Counts:
    """What has happened."""

    steps: int = 0
    """Of the integrator."""
    measurements: int = 0
    """Taken."""
    dropped: int = 0
    """Measurements that were lost."""
    repeated: int = 0
    """Measurements that were the last one again."""
    nan: int = 0
    """Measurements with a number that is NaN."""
    refused: int = 0
    """Controls that were refused."""
    clamped: int = 0
    """Controls that were clamped."""


class Sample(NamedTuple):
    """A state and the time at which it was that of the plant."""

    x: np.ndarray
    t: float


class Space(NamedTuple):
    """Where states live: `positions` and `velocities` count the tangent's numbers, `neutral` is the
    origin from which positions are rounded.
    """

    positions: int
    velocities: int
    neutral: np.ndarray
    plus: Callable[[np.ndarray, np.ndarray], np.ndarray]
    minus: Callable[[np.ndarray, np.ndarray], np.ndarray]


class Sensor:
    """Sees the true states and hands out samples of them as `faults` has it."""

    def __init__(self, faults: Faults, space: Space, counts: Counts, seed: int):
        self._space, self._seed = space, seed
        self.counts = counts
        self._history: deque[Sample] = deque()
        self.faults = faults
        self.reset(counts)

    def reset(self, counts: Counts) -> None:
        """Forgets all samples and starts its random numbers again."""
        self.counts = counts
        self._random = np.random.default_rng([self._seed, 1])
        self._history.clear()
        self._forced: deque[str] = deque()
        self._last: Sample | None = None

    @property
    def faults(self) -> Faults:
        return self._faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        if not isinstance(faults, Faults):
            raise InputError(f"faults is an rg.plants.Faults(…), not {type(faults).__name__}")
        self._noise = self._spread(faults, "noise")
        self._step = self._spread(faults, "quantisation")
        self._faults = faults
        self.delayed = faults.delay > 0
        if not self.delayed:
            self._history.clear()  # from now on it would have gaps

    def _spread(self, faults: Faults, kind: str) -> np.ndarray | None:
        """Numbers of positions and velocities as one tangent; None where all are zero."""
        parts = []
        for name, count in (
            ("position", self._space.positions),
            ("velocity", self._space.velocities),
        ):
            value = getattr(faults, f"{kind}_{name}")
            if not count and np.any(value):
                raise InputError(
                    f"{kind}_{name}: all of this system's state counts as positions; use"
                    f" {kind}_position"
                )
            parts.append(numbers(f"{kind}_{name}", value, (count,)) if count else np.empty(0))
        spread = np.concatenate(parts)
        return spread if spread.any() else None

    def force(self, kind: str, count: int) -> None:
        if kind not in KINDS:
            raise unknown_name("fault", kind, KINDS)
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise InputError(f"count is a whole number of at least 1, not {count!r}")
        self._forced.extend([kind] * count)

    def see(self, x: np.ndarray, t: float) -> None:
        """The plant's state at a new time; needed where samples are delayed."""
        history = self._history
        history.append(Sample(x.copy(), t))
        horizon = t - self._faults.delay + _INSTANT
        while len(history) > 1 and history[1].t <= horizon:
            history.popleft()

    def read(self, x: np.ndarray, now: float) -> Sample | None:
        """A measurement of the plant, whose state is x."""
        self.counts.measurements += 1
        kind = self._kind()
        if kind == "drop":
            self.counts.dropped += 1
            return None
        if kind == "repeat" and self._last is not None:
            self.counts.repeated += 1
            return Sample(self._last.x.copy(), self._last.t)
        true = self._delayed(x, now)
        seen = self._blurred(true.x)
        if kind == "nan":
            self.counts.nan += 1
            seen[self._random.integers(len(seen))] = np.nan
        self._last = Sample(seen.copy(), true.t)
        return Sample(seen, true.t)

    def _kind(self) -> str:
        f = self._faults
        if self._forced:
            return self._forced.popleft()
        if not (f.drop or f.repeat or f.nan):
            return ""
        chance = self._random.random()
        for kind, probability in (("drop", f.drop), ("repeat", f.repeat), ("nan", f.nan)):
            if chance < probability:
                return kind
            chance -= probability
        return ""

    def _delayed(self, x: np.ndarray, now: float) -> Sample:
        if not self.delayed:
            return Sample(x, now)
        delay = self._faults.latency
        if self._faults.jitter:
            delay += self._faults.jitter * self._random.random()
        newest = now - delay
        if self._last is not None:
            newest = max(newest, self._last.t)
        sample: Sample
        for sample in reversed(self._history):
            if sample.t <= newest + _INSTANT:
                return sample
        return self._history[0] if self._history else Sample(x, now)

    def _blurred(self, x: np.ndarray) -> np.ndarray:
        """A copy of x with noise, then rounding."""
        space = self._space
        seen = x.copy()
        if self._noise is not None:
            seen = space.plus(seen, self._noise * self._random.standard_normal(self._noise.size))
        if self._step is not None:
            step = np.where(self._step > 0, self._step, 1.0)
            tangent = space.minus(seen, space.neutral)
            seen = space.plus(
                space.neutral, np.where(self._step > 0, np.round(tangent / step) * step, tangent)
            )
        return seen
