"""The fastest motion along straight lines: at each corner it stands still, as a velocity that turns at once would need a boundless acceleration."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from rigidgrad.planning.space import Space


def timed(
    space: Space, corners: np.ndarray, velocity: np.ndarray, acceleration: np.ndarray, dt: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times (n,), positions (n, nq) and velocities (n, nv), `dt` apart but for the last.

    Along a line s from 0 to 1, |ṡ| ≤ min velocity/|Δ| and |s̈| ≤ min acceleration/|Δ|: full acceleration, the greatest speed if there is time for it, full deceleration.
    """
    starts, plans = [0.0], []
    for a, b in pairwise(corners):
        way = space.difference(a, b)
        size = np.maximum(np.abs(way), 1e-12)
        speed, rate = float((velocity / size).min()), float((acceleration / size).min())
        ramp = min(speed / rate, 1 / np.sqrt(rate))
        top = rate * ramp
        total = 1 / top + ramp
        plans.append((a, way, ramp, rate, total))
        starts.append(starts[-1] + total)
    times = np.append(np.arange(0, starts[-1], dt), starts[-1]) if starts[-1] > 0 else np.zeros(1)
    if len(times) > 1 and times[-1] - times[-2] < 1e-9:
        times = np.delete(times, -2)
    part = np.clip(np.searchsorted(starts, times, side="right") - 1, 0, max(len(plans) - 1, 0))
    q, v = np.repeat(corners[:1], len(times), axis=0), np.zeros((len(times), space.robot.nv))
    for k, (a, way, ramp, rate, total) in enumerate(plans):
        rows = part == k
        t = np.clip(times[rows] - starts[k], 0, total)
        rising, falling = np.minimum(t, ramp), np.maximum(t - (total - ramp), 0)
        steady = np.clip(t - ramp, 0, max(total - 2 * ramp, 0.0))
        s = rate * rising**2 / 2 + rate * ramp * steady + rate * ramp * falling - rate * falling**2 / 2
        q[rows] = space.moved(np.repeat(a[None], rows.sum(), axis=0), s[:, None] * way)
        v[rows] = (rate * (rising - falling))[:, None] * way
    q[-1] = corners[-1]
    return times, q, v
