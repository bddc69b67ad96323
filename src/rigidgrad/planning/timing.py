"""Motions along the lines of a path. At each corner they stand still, as a velocity that turns at
once would need a boundless acceleration.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rigidgrad.planning.space import Space


class Profile(NamedTuple):
    """How a motion goes along lines, s from 0 to 1 on each: pieces of constant s̈, one after the
    other. Arrays (pieces,): the line of each, its duration, and s, ṡ and s̈ at its beginning.
    """

    line: np.ndarray
    duration: np.ndarray
    s: np.ndarray
    speed: np.ndarray
    rate: np.ndarray


def trapezoids(way: np.ndarray, velocity: np.ndarray, acceleration: np.ndarray) -> Profile:
    """The fastest motions along lines Δ (n, nv) within limits of velocity and acceleration (nv,).

    |ṡ| ≤ min velocity/|Δ| and |s̈| ≤ min acceleration/|Δ|: full acceleration, the greatest speed if
    there is time for it, full deceleration.
    """
    size = np.maximum(np.abs(way), 1e-12)
    speed, rate = (velocity / size).min(axis=1), (acceleration / size).min(axis=1)
    ramp = np.minimum(speed / rate, 1 / np.sqrt(rate))
    top = rate * ramp
    steady = np.maximum(1 / top - ramp, 0.0)
    gained = top * ramp / 2
    duration, s, slope, change = np.zeros((4, len(way), 3))
    duration[:, 0] = duration[:, 2] = ramp
    duration[:, 1] = steady
    s[:, 1], s[:, 2] = gained, 1 - gained
    slope[:, 1] = slope[:, 2] = top
    change[:, 0], change[:, 2] = rate, -rate
    line = np.repeat(np.arange(len(way)), 3)
    return Profile(line, *(x.ravel() for x in (duration, s, slope, change)))


def sampled(
    space: Space, corners: np.ndarray, way: np.ndarray, profile: Profile, dt: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Times (n,), positions (n, nq), velocities and accelerations (n, nv) of a profile along the
    lines `way` (m, nv) between corners (m + 1, nq), `dt` apart but for the last.
    """
    ends = np.cumsum(profile.duration)
    total = float(ends[-1])
    times = np.append(np.arange(0, total, dt), total)
    if len(times) > 2 and total - times[-2] < 1e-9:
        times = np.delete(times, -2)
    piece = np.minimum(np.searchsorted(ends, times, side="right"), len(ends) - 1)
    t = np.minimum(times - (ends - profile.duration)[piece], profile.duration[piece])
    speed, rate, line = profile.speed[piece], profile.rate[piece], profile.line[piece]
    s = profile.s[piece] + t * (speed + rate * t / 2)
    along = way[line]
    q = space.moved(corners[line], s[:, None] * along)
    q[-1] = corners[-1]
    v = np.maximum(speed + rate * t, 0.0)[:, None] * along
    v[-1] = 0.0
    return times, q, v, rate[:, None] * along
