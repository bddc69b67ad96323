"""What motors can do along a path: hold its positions, and move along its lines."""

from __future__ import annotations

import numpy as np

from rigidgrad.planning import parameterization
from rigidgrad.planning.space import Space
from rigidgrad.planning.timing import Profile
from rigidgrad.robot import Robot

_HOLDING = 0.98  # of the torques: what holding a position may take, so that it can be left again
_INTERVALS = 100  # of a line
# from 0 to 1, finer at the ends, so that intervals of a motion from rest to rest last about as long
_GRID = (1 - np.cos(np.pi * np.arange(_INTERVALS + 1) / _INTERVALS)) / 2
_BETWEEN = np.linspace(0.0, 1.0, 5)  # of an interval: where torques are looked at
_EXCESS = 1e-7  # of the torques: what is too much there
_TRIES = 6
_SLOWEST = 1e-6  # of the squared speed: what is left of a motion that still counts as one


class Motors:
    """Torques |τ| ≤ `limit` (nv,) of a robot; infinite where a joint has none."""

    def __init__(self, robot: Robot, limit: np.ndarray):
        self.robot, self.limit = robot, limit
        self._few = np.flatnonzero(np.isfinite(limit))  # joints that are limited

    def cannot_hold(self, q: np.ndarray) -> np.ndarray:
        """Whether standing still at positions (n, nq) takes too much torque (n,)."""
        still = np.zeros((len(q), self.robot.nv))
        tau = self.robot.rnea(np.asarray(q, dtype=float), still, still)
        beyond: np.ndarray = (np.abs(tau) > _HOLDING * self.limit).any(axis=1)
        return beyond

    def fastest(
        self,
        space: Space,
        corners: np.ndarray,
        way: np.ndarray,
        velocity: np.ndarray,
        acceleration: np.ndarray,
    ) -> Profile | None:
        """The fastest motions along lines `way` (m, nv) from corners (m + 1, nq), at rest in each,
        within limits of velocity, acceleration (nv,) and torque; None if some line has none.

        Limits hold at grid points. Torques are looked at between them, too: where they are exceeded
        there, the interval's limits are narrowed, and what is left is made slower.
        """
        lines, n, few = len(way), _INTERVALS, self._few
        size, limit = np.maximum(np.abs(way), 1e-12), self.limit[self._few]
        top, most = (velocity / size).min(axis=1) ** 2, (acceleration / size).min(axis=1)
        still = np.zeros((lines, n + 1))
        c = self._torques(space, corners, way, _GRID, still, still)
        a, b = (
            self._torques(space, corners, way, _GRID, *u) - c
            for u in ((still, still + 1), (still + 1, still))
        )
        a, b, c = (np.ascontiguousarray(m[..., few]) for m in (a, b, c))
        high = np.tile(limit, (lines, n, 1))
        low = -high
        x, u, done = np.zeros((lines, n + 1)), np.zeros((lines, n)), np.zeros(lines, np.int64)
        room = np.empty((2 + 2 * len(few), 4)), np.empty(2), np.empty((n + 1, 2))
        found = None
        for _ in range(_TRIES):
            parameterization.fastest(
                0, 0, lines, _GRID, a, b, c, low, high, top, most, *room, x, u, done
            )
            if not done.all():
                break
            found = x.copy(), u.copy()
            greatest, least = _range(self._between(space, corners, way, x, u))
            above, below = np.maximum(greatest - limit, 0.0), np.maximum(-limit - least, 0.0)
            if (above + below <= _EXCESS * limit).all():
                return _pieces(x, u)
            high -= 1.02 * above
            low += 1.02 * below
        return None if found is None else self._slowed(space, corners, way, *found)

    def _slowed(
        self, space: Space, corners: np.ndarray, way: np.ndarray, x: np.ndarray, u: np.ndarray
    ) -> Profile | None:
        """The same motion so much slower, line by line, that torques are within limits: all but
        those that hold the robot fall with the square of the time.
        """
        limit = self.limit[self._few]
        part = np.ones((len(way), 1))
        while part.min() > _SLOWEST:
            greatest, least = _range(self._between(space, corners, way, part * x, part * u))
            over = np.maximum(greatest - limit, -limit - least) > _EXCESS * limit
            if not over.any():
                return _pieces(part * x, part * u)
            part[over.any(axis=(1, 2))] *= 0.95
        return None

    def _between(
        self, space: Space, corners: np.ndarray, way: np.ndarray, x: np.ndarray, u: np.ndarray
    ) -> np.ndarray:
        """Torques of the limited joints in all intervals (m, n, places, joints)."""
        n, places = u.shape[1], len(_BETWEEN)
        s = (_GRID[:-1, None] + _BETWEEN * np.diff(_GRID)[:, None]).ravel()
        square = x[:, :-1, None] + _BETWEEN * np.diff(x)[..., None]
        tau = self._torques(
            space,
            corners,
            way,
            s,
            np.sqrt(np.maximum(square, 0.0)).reshape(len(way), -1),
            np.repeat(u, places, axis=1),
        )
        return tau.reshape(len(way), n, places, -1)[..., self._few]

    def _torques(
        self,
        space: Space,
        corners: np.ndarray,
        way: np.ndarray,
        s: np.ndarray,
        speed: np.ndarray,
        rate: np.ndarray,
    ) -> np.ndarray:
        """τ (m, k, nv) at s (k,) on each line, with ṡ and s̈ (m, k)."""
        lines, count = len(way), len(s)
        line = np.repeat(np.arange(lines), count)
        along = way[line]
        q = space.moved(corners[line], np.tile(s, lines)[:, None] * along)
        tau = self.robot.rnea(q, speed.reshape(-1, 1) * along, rate.reshape(-1, 1) * along)
        return np.asarray(tau).reshape(lines, count, -1)


def _range(tau: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The greatest and the least of torques (m, n, places, joints) in each interval, with what a
    parabola through the places can add between them.
    """
    more = np.abs(np.diff(tau, 2, axis=2)).max(axis=2) / 8
    return tau.max(axis=2) + more, tau.min(axis=2) - more


def _pieces(x: np.ndarray, u: np.ndarray) -> Profile:
    """From x = ṡ² at grid points (m, n + 1) and s̈ between them (m, n)."""
    lines, n = u.shape
    speed = np.sqrt(np.maximum(x, 0.0))
    return Profile(
        np.repeat(np.arange(lines), n),
        (2 * np.diff(_GRID) / (speed[:, :-1] + speed[:, 1:])).ravel(),
        np.tile(_GRID[:-1], lines),
        speed[:, :-1].ravel(),
        u.ravel(),
    )
