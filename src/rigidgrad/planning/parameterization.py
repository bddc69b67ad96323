"""Time-optimal speeds along lines under torque limits, by reachability analysis.

Along a line Δ of joint space, torques are τ = a(s) s̈ + b(s) ṡ² + c(s). With x = ṡ² and u = s̈,
constant between grid points, x changes by 2 u ds, and all limits are linear in (u, x). Backward,
the interval of x from which the end can be reached; forward, the greatest u that stays in it.

H. Pham and Q.-C. Pham, A new approach to time-optimal path parameterization based on reachability
analysis, 2018. Limits hold at both ends of each interval, with the u of that interval.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.runtime.loops import kernel

_TINY = 1e-10  # of a torque's range: what the greatest s̈ must change it by, to count


@kernel
def at_least(row: np.ndarray, k: int, x: float) -> tuple[float, float, float]:
    """What row k of the bounds (rows, 4): α, β, and the least and greatest α u + β x, says of u:
    the least u, its slope in x, the greatest u, its slope.
    """
    alpha, beta, low, high = row[k, 0], row[k, 1], row[k, 2], row[k, 3]
    first, last = (low - beta * x) / alpha, (high - beta * x) / alpha
    least, most = first, last
    if alpha < 0:
        least, most = last, first
    return least, most, -beta / alpha


@kernel
def range_of_u(rows: np.ndarray, count: int, x: float) -> tuple[float, float, float, float]:
    """The greatest of all lower bounds of u at x, its slope, the least of all upper ones, its
    slope.
    """
    low, low_slope, high, high_slope = -1e300, 0.0, 1e300, 0.0
    for k in range(count):
        least, most, slope = at_least(rows, k, x)
        if least > low:
            low, low_slope = least, slope
        if most < high:
            high, high_slope = most, slope
    return low, low_slope, high, high_slope


@kernel
def written(
    rows: np.ndarray,
    count: int,
    box: np.ndarray,
    alpha: float,
    beta: float,
    low: float,
    high: float,
    most: float,
) -> int:
    """The number of rows with another one, or, where u hardly counts, the bounds of x narrowed:
    box[0] and box[1].
    """
    after = count
    if abs(alpha) * most > _TINY * (high - low):
        rows[count, 0] = alpha
        rows[count, 1] = beta
        rows[count, 2] = low
        rows[count, 3] = high
        after = count + 1
    else:
        if beta > 0:
            box[0] = max(box[0], low / beta)
            box[1] = min(box[1], high / beta)
        if beta < 0:
            box[0] = max(box[0], high / beta)
            box[1] = min(box[1], low / beta)
        if beta == 0:
            if low > 0:
                box[1] = -1.0
            if high < 0:
                box[1] = -1.0
    return after


@kernel
def interval(
    rows: np.ndarray,
    box: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    i: int,
    ds: float,
    top: float,
    most: float,
    least_after: float,
    most_after: float,
) -> int:
    """Writes what limits u and x at grid point i; gives how many rows there are."""
    box[0], box[1] = 0.0, top
    count = written(rows, 0, box, 1.0, 0.0, -most, most, most)
    count = written(rows, count, box, 2 * ds, 1.0, least_after, most_after, most)
    for j in range(a.shape[1]):
        count = written(
            rows, count, box, a[i, j], b[i, j], low[i, j] - c[i, j], high[i, j] - c[i, j], most
        )
        alpha, beta = a[i + 1, j] + 2 * ds * b[i + 1, j], b[i + 1, j]
        count = written(
            rows, count, box, alpha, beta, low[i, j] - c[i + 1, j], high[i, j] - c[i + 1, j], most
        )
    return count


@kernel
def edge(rows: np.ndarray, count: int, x: float, limit: float, upward: float) -> float:
    """The x nearest to `x`, on the way to `limit`, at which there is a u; beyond it if there is
    none: Newton's method, as the gap between bounds of u is convex and piecewise linear in x.
    """
    found, left = x, 100
    while left > 0:
        low, low_slope, high, high_slope = range_of_u(rows, count, found)
        gap, slope = low - high, low_slope - high_slope
        left -= 1
        if gap <= 1e-12 * (abs(low) + abs(high)):
            left = 0
        else:
            if upward * slope >= 0:
                found, left = limit + upward, 0
            else:
                found -= gap / slope
                if upward * (found - limit) > 0:
                    left = 0
    return found


@kernel
def fastest(
    part: int,
    start: int,
    stop: int,
    grid: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    tops: np.ndarray,
    rates: np.ndarray,
    rows: np.ndarray,
    box: np.ndarray,
    reach: np.ndarray,
    x: np.ndarray,
    u: np.ndarray,
    result: np.ndarray,
) -> None:
    """The fastest motions along lines from `start` to `stop`, from rest to rest: x (lines, n + 1)
    at the `grid` (n + 1,) of s, and u (lines, n) between them.

    a, b, c (lines, n + 1, nv) at grid points, `low` and `high` (lines, n, nv) of torques between
    them; `tops` and `rates` (lines,): the greatest x and |u|. result[line] is 1 where there is one.
    """
    n = u.shape[1]
    for line in range(start, stop):
        most = rates[line]
        fine = 1
        reach[n, 0], reach[n, 1] = 0.0, 0.0
        i = n - 1
        while i >= 0:
            count = interval(
                rows, box, a[line], b[line], c[line], low[line], high[line],
                i, grid[i + 1] - grid[i], tops[line], most, reach[i + 1, 0], reach[i + 1, 1],
            )  # fmt: skip
            greatest = edge(rows, count, box[1], box[0], -1.0)
            least = edge(rows, count, box[0], box[1], 1.0)
            if greatest < least:
                fine = 0
            reach[i, 0], reach[i, 1] = least, greatest
            i -= 1
            if fine == 0:
                i = -1
        if reach[0, 0] > 0:
            fine = 0
        x[line, 0] = 0.0
        if fine == 1:
            for k in range(n):
                count = interval(
                    rows, box, a[line], b[line], c[line], low[line], high[line],
                    k, grid[k + 1] - grid[k], tops[line], most, reach[k + 1, 0], reach[k + 1, 1],
                )  # fmt: skip
                bounds = range_of_u(rows, count, x[line, k])
                u[line, k] = bounds[2]
                x[line, k + 1] = min(
                    max(x[line, k] + 2 * (grid[k + 1] - grid[k]) * bounds[2], 0.0), tops[line]
                )
        result[line] = fine
