"""Motions to show: positions at times, from a solution, a controller's log or an array."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.model.model import Model

_FALLBACK_DT = 0.01
_MOST_FRAMES = 4000


class Timed(Protocol):
    """Positions q (n, nq) at times (n,), in seconds, such as a planned path."""

    q: np.ndarray
    time: np.ndarray


@dataclass(frozen=True)
class Motion:
    """Positions q (frames, nq) at times t (frames,), in seconds, rising."""

    t: np.ndarray
    q: np.ndarray
    notes: tuple[str, ...] = ()

    @property
    def duration(self) -> float:
        return float(self.t[-1] - self.t[0])

    def thinned(self, most: int = _MOST_FRAMES) -> Motion:
        """At most so many frames, spread evenly, first and last kept."""
        if len(self.t) <= most:
            return self
        kept = np.unique(np.linspace(0, len(self.t) - 1, most).round().astype(int))
        return Motion(self.t[kept], self.q[kept], self.notes)

    def at(self, t: float, model: Model) -> np.ndarray:
        """The position at a time since the first frame, between frames along straight lines; unit
        parts are scaled back to length one.
        """
        t = min(max(t, 0.0), self.duration) + self.t[0]
        k = min(max(int(np.searchsorted(self.t, t, side="right")) - 1, 0), max(len(self.t) - 2, 0))
        if len(self.t) == 1:
            only: np.ndarray = self.q[0]
            return only
        part = (t - self.t[k]) / (self.t[k + 1] - self.t[k])
        a, b = self.q[k], self.q[k + 1].copy()
        units = [d.q for d in model.directions]
        for unit in units:
            if a[unit] @ b[unit] < 0:  # the same orientation, the nearer of its two quaternions
                b[unit] = -b[unit]
        q: np.ndarray = a + part * (b - a)
        for unit in units:
            q[unit] /= np.linalg.norm(q[unit]) or 1.0
        return q


def as_motion(model: Model, solution: Any, dt: float | None = None) -> Motion:
    """A motion from a Solution, a controller's log (t, x), or an array of positions (frames, nq) or
    states (frames, nq + nv), `dt` apart.

    Rows of a log without a measurement (NaN) are left out.
    """
    states = getattr(solution, "x", solution)
    try:
        x = np.array(states, dtype=float)
    except (TypeError, ValueError):
        raise InputError(
            f"a motion is a Solution, a log or an array of positions, not {type(solution).__name__}"
        ) from None
    if x.ndim == 1 and x.size:
        x = x[None]
    if x.size == 0 and getattr(solution, "status", None):
        raise InputError(f"there is no motion to show: {solution.status}")
    widths = (model.nq, model.nq + model.nv)
    if x.ndim != 2 or len(x) == 0 or x.shape[1] not in widths:
        raise InputError(
            f"a motion of {model.name!r} has shape (frames, {widths[0]}) or (frames, {widths[1]});"
            f" this has {x.shape}"
        )
    q = x[:, : model.nq]
    t, notes = _times(solution, q, dt)
    moved = np.ones(len(q), dtype=bool)
    # an impact takes no time and leaves positions
    moved[:-1] = (t[1:] > t[:-1]) | (q[1:] != q[:-1]).any(axis=1)
    t, q = t[moved], q[moved]
    if getattr(solution, "t", None) is not None:
        measured = np.isfinite(q).all(axis=1)
        t, q = t[measured], q[measured]
    if len(q) == 0 or not np.all(np.isfinite(q)):
        raise InputError("the motion holds NaN or infinity")
    return Motion(t, q, notes)


def _times(solution: Any, q: np.ndarray, dt: float | None) -> tuple[np.ndarray, tuple[str, ...]]:
    times, count = getattr(solution, "t", None), len(q)
    if times is None and getattr(solution, "dt", None) is not None:
        times = getattr(solution, "times", None)
    if dt is None and times is not None:
        t = np.array(times, dtype=float)
        if t.shape != (count,) or not _rise(t, q):
            raise InputError("the times of a motion are one rising number a frame")
        return t, ()
    notes: tuple[str, ...] = ()
    step: Any = getattr(solution, "dt", None) if dt is None else dt
    if step is None:
        step = _FALLBACK_DT
        if count > 1:
            notes = (
                f"The time step is not known; {step:g} s a frame is shown. Pass dt= to say it.",
            )
    if (
        isinstance(step, bool)
        or not isinstance(step, int | float | np.number)
        or not 0 < step < math.inf
    ):
        raise InputError(f"dt is a positive number of seconds, not {step!r}")
    return float(step) * np.arange(count), notes


def _rise(t: np.ndarray, q: np.ndarray) -> bool:
    """Whether times rise from frame to frame, but for impacts, which take none and leave
    positions.
    """
    steps, still = np.diff(t), (np.diff(q, axis=0) == 0).all(axis=1)
    return bool(np.all((steps > 0) | ((steps == 0) & still))) and (len(t) == 1 or t[-1] > t[0])


def row_times(solution: Any, dt: float | None) -> Callable[[int], np.ndarray]:
    """When the rows of the surroundings hold, by their number: at the knots of a solution, or
    equally far apart.
    """
    step = float(dt or getattr(solution, "dt", None) or 1.0)
    knots = None if dt else getattr(solution, "times", None)
    return lambda count: (
        knots if knots is not None and len(knots) == count else step * np.arange(count)
    )
