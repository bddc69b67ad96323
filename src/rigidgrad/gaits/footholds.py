"""Where feet land, and how they get there: shared by motions that are planned and by walking under
control.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.gaits.stance import turn


def foothold(place: np.ndarray, trunk: np.ndarray, heading: float) -> np.ndarray:
    """The point under the hip, (3,), of a foot whose place is seen from the trunk, for a trunk over
    (x, y) with a heading. Its height is the caller's part.
    """
    found: np.ndarray = turn(heading) @ place
    found[:2] += trunk[:2]
    return found


def swing_curve(
    origin: np.ndarray, landing: np.ndarray, s: np.ndarray, height: float
) -> np.ndarray:
    """Points (knots, 3) of a swing at parts s of it from 0 to 1: over the ground along a cycloid,
    at rest at both ends, and up by `height` in the middle.
    """
    s = np.clip(s, 0.0, 1.0)
    way = s - np.sin(2.0 * np.pi * s) / (2.0 * np.pi)
    rows: np.ndarray = origin + way[:, None] * (landing - origin)
    rows[:, 2] += height * np.sin(np.pi * s) ** 2
    return rows
