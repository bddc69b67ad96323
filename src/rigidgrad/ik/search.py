"""Global search: Levenberg-Marquardt from several starts of each target, in lanes, until one of
them arrives.

A row is one target with one start. After every few steps, rows that arrived or are stuck leave, and
stuck ones come back with another start; so lanes stay full. Which start wins does not depend on how
many targets there are: it is the first, in the order of starts, that arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_BESIDE = 32  # rows that are worth a call
# rows to which small remainders are padded, so that they run on the kernel for many: multiples of
# all numbers of lanes
_PADS = (8, 64)
_SETTLING = 16  # rounds, at most, for what does not arrive
ALONE = 8  # starts of one target that run side by side

Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Advance = Callable[[np.ndarray, np.ndarray, np.ndarray], Rows]
Starts = Callable[[np.ndarray, np.ndarray], np.ndarray]
Refused = Callable[[np.ndarray], np.ndarray]  # which configurations (N, nq) are none, (N,)


class Found(NamedTuple):
    """For each row: q, the three numbers of `step.errors`, whether it arrived, and after how many
    steps from its start.
    """

    q: np.ndarray
    left: np.ndarray
    arrived: np.ndarray
    steps: np.ndarray


def nothing(n: int, nq: int) -> Found:
    return Found(
        np.full((n, nq), np.nan), np.full((n, 3), np.nan), np.zeros(n, bool), np.zeros(n, int)
    )


def fresh(n: int) -> np.ndarray:
    """The state of starts."""
    state = np.zeros((n, 2))
    state[:, 1] = np.inf
    return state


def search_one(
    finish: Advance, target: np.ndarray, starts: Starts, count: int, refused: Refused | None = None
) -> Found:
    """The same as `search` for one target (1, size), a few starts at a time, each to its end in one
    call.
    """
    T, state, zero = target.repeat(ALONE, axis=0), fresh(ALONE), np.zeros(ALONE, int)
    nearest: tuple[float, Rows, int] | None = None
    for first in range(0, count, ALONE):
        rows = finish(
            starts(zero, np.minimum(np.arange(first, first + ALONE), count - 1)), state, T
        )
        arrived = _arrived(rows[0], rows[3], refused)
        k = int(arrived.argmax())
        if arrived[k]:
            return _one(rows, k, True)
        k = int(np.fmin(rows[2][:, 2], np.inf).argmin())
        if nearest is None or rows[2][k, 2] < nearest[0]:
            nearest = (float(rows[2][k, 2]), rows, k)
    assert nearest is not None
    return _one(nearest[1], nearest[2], False)


def _one(rows: Rows, k: int, arrived: bool) -> Found:
    q, state, left, _ = rows
    return Found(
        q[k : k + 1], left[k : k + 1], np.array([arrived]), state[k : k + 1, 0].astype(int)
    )


def search(
    advance: Advance,
    targets: np.ndarray,
    starts: Starts,
    count: int,
    refused: Refused | None = None,
) -> Found:
    """The first of `count` starts that arrives, or what comes nearest; `starts(rows, numbers)` are
    configurations.
    """
    n = len(targets)
    beside = min(count, max(1, -(-_BESIDE // max(n, 1))))
    row, number = np.repeat(np.arange(n), beside), np.tile(np.arange(beside), n)
    q, state = starts(row, number), fresh(len(row))
    T = targets[row] if beside > 1 else targets
    found = nothing(n, q.shape[1])
    found.left[:, 2] = np.inf
    won = np.full(n, count)  # the first start that arrived
    while len(row):
        q, state, left, status = _padded(advance, q, state, T)
        over = status[:, 0] > 0.0
        if not over.any():
            continue
        where = np.flatnonzero(over)
        arrived = _arrived(q[where], status[where], refused)
        _keep(
            found,
            won,
            row[where],
            number[where],
            q[where],
            left[where],
            arrived,
            state[where, 0].astype(int),
        )
        stays = number < won[row] if beside > 1 else np.ones(len(row), bool)
        stays[where[arrived]] = False
        stuck = where[~arrived]
        number[stuck] += beside
        more = number[stuck] < won[row[stuck]]
        stays[stuck[~more]] = False
        stuck = stuck[more]
        if len(stuck):
            q[stuck] = starts(row[stuck], number[stuck])
            state[stuck] = fresh(1)
        row, number, q, state, T = row[stays], number[stays], q[stays], state[stays], T[stays]
    return found


def _arrived(q: np.ndarray, status: np.ndarray, refused: Refused | None) -> np.ndarray:
    """Which rows are at their targets, and not refused."""
    arrived: np.ndarray = status[:, 0] == 1.0
    if refused is not None and arrived.any():
        arrived[arrived] = ~refused(q[arrived])
    return arrived


def _padded(advance: Advance, q: np.ndarray, state: np.ndarray, T: np.ndarray) -> Rows:
    n = len(q)
    if n >= _PADS[1]:
        return advance(q, state, T)
    rows = np.zeros(next(pad for pad in _PADS if n <= pad), int)
    rows[:n] = np.arange(n)
    after, state, left, status = advance(q[rows], state[rows], T[rows])
    return after[:n], state[:n], left[:n], status[:n]


def settled(
    advance: Advance, targets: np.ndarray, found: Found, refused: Refused | None = None
) -> Found:
    """Rows that did not arrive, after further steps: the nearest, not only near. Those that were
    refused stay.
    """
    if found.arrived.all():
        return found
    away = (found.left[:, :2] > targets[:, -3:-1]).any(axis=1)
    rows = np.flatnonzero(~found.arrived & away & np.isfinite(found.left[:, 2]))
    if not len(rows):
        return found
    q, left, T = found.q[rows], found.left[rows], targets[rows]
    for _ in range(_SETTLING):
        after, _, now, status = _padded(advance, q, np.full((len(q), 2), np.inf), T)
        nearer = now[:, 2] < left[:, 2]
        q[nearer], left[nearer] = after[nearer], now[nearer]
        found.arrived[rows] |= nearer & _arrived(q, status, refused)
        if not (nearer & (status[:, 0] != 1.0)).any():
            break
    found.q[rows], found.left[rows] = q, left
    return found


def _keep(
    found: Found,
    won: np.ndarray,
    row: np.ndarray,
    number: np.ndarray,
    q: np.ndarray,
    left: np.ndarray,
    arrived: np.ndarray,
    steps: np.ndarray,
) -> None:
    """Notes starts that are over. Of those that arrived the first counts, else the one that came
    nearest.
    """
    # of several starts of a target, the one that counts is written last
    order = np.lexsort((-number, np.where(arrived, 0.0, -left[:, 2]), arrived))
    row, number, arrived = row[order], number[order], arrived[order]
    better = np.where(
        arrived, number < won[row], ~found.arrived[row] & (left[order, 2] < found.left[row, 2])
    )
    row, order = row[better], order[better]
    found.q[row], found.left[row], found.arrived[row], found.steps[row] = (
        q[order],
        left[order],
        arrived[better],
        steps[order],
    )
    won[row[arrived[better]]] = number[better][arrived[better]]
