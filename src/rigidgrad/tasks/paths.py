"""Targets that move: functions of time, (…,) seconds to (…, 3) metres."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rigidgrad.errors import InputError

_AXES = {"xy": (0, 1), "xz": (0, 2), "yz": (1, 2)}


def path_of(said: Mapping[str, Any]) -> Callable[[Any], np.ndarray]:
    """The path that a table of type point, figure_eight, circle or waypoints describes."""
    if said["type"] == "waypoints":
        return _waypoints(np.array(said["points"]), np.array(said["times"]))
    if said["type"] == "point":
        point = np.array(said["at"])
        return lambda t: np.broadcast_to(point, (*np.shape(t), 3))
    center, (first, second), period = (
        np.array(said["center"], dtype=float),
        _AXES[said["plane"]],
        said["period"],
    )
    if said["type"] == "figure_eight":
        # after Plancher 2022, section 4.4.1: once along the first axis while twice along the second
        (wide, high), phases = said["size"], ((1.0, 0.0), (2.0, 0.0))
    else:
        (wide, high), phases = (said["radius"], said["radius"]), ((1.0, 0.0), (1.0, 0.5 * np.pi))

    def path(t: Any) -> np.ndarray:
        turn = 2 * np.pi * np.asarray(t, dtype=float) / period
        result = np.broadcast_to(center, (*turn.shape, 3)).copy()
        for axis, size, (times, ahead) in zip((first, second), (wide, high), phases, strict=True):
            result[..., axis] += size * np.sin(times * turn + ahead)
        return result

    return path


def _waypoints(points: np.ndarray, times: np.ndarray) -> Callable[[Any], np.ndarray]:
    """Straight lines from point to point; before the first time and after the last it rests."""
    if len(points) != len(times):
        raise InputError(
            f"'points' and 'times' are one each: these are {len(points)} points and {len(times)}"
            " times"
        )
    if np.any(np.diff(times) <= 0):
        raise InputError("'times' must increase")

    def path(t: Any) -> np.ndarray:
        t = np.asarray(t, dtype=float)
        return np.stack([np.interp(t, times, column) for column in points.T], axis=-1)

    return path
