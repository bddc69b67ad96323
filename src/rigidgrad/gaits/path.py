"""The way of a trunk over the ground: along an arc, from rest to rest."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rigidgrad.gaits.stance import turn


@dataclass(frozen=True)
class Path:
    """From `begin` (x, y) with a `heading`, forward and to the left by `shift` in the trunk's axes
    while it turns by `turning`, in `duration` seconds; it speeds up and slows down for `ramp`
    seconds each.
    """

    begin: np.ndarray
    heading: float
    shift: np.ndarray
    turning: float
    duration: float
    ramp: float

    def part(self, t: float) -> tuple[float, float]:
        """At a time, the part of the way that is done, from 0 to 1, and its rate, 1/s."""
        T, r = self.duration, min(self.ramp, 0.5 * self.duration)
        t = min(max(t, 0.0), T)
        most = 1.0 / (T - r)
        if t < r:
            return 0.5 * most * t * t / r, most * t / r
        if t > T - r:
            return 1.0 - 0.5 * most * (T - t) ** 2 / r, most * (T - t) / r
        return most * (t - 0.5 * r), most

    def at(self, t: float) -> tuple[np.ndarray, float]:
        """Position (2,) and heading at a time."""
        s, _ = self.part(t)
        angle = self.turning * s
        # ∫ R(turning σ) dσ from 0 to s = s sinc(angle / 2) R(angle / 2)
        chord = s * float(np.sinc(0.5 * angle / math.pi)) * self.shift
        return self.begin + (turn(self.heading + 0.5 * angle)[:2, :2] @ chord), self.heading + angle

    def velocity(self, t: float) -> tuple[np.ndarray, float]:
        """At a time: forward and to the left, (2,), and the turning rate."""
        _, rate = self.part(t)
        return rate * self.shift, rate * self.turning
