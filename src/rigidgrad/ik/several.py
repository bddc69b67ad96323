"""Several solutions of each target: all starts run to their end, and those that differ are kept."""

from __future__ import annotations

import numpy as np

from rigidgrad.ik.search import Advance, Found, Refused, Starts, nothing, search
from rigidgrad.model.model import Model

_APART = 1e-2  # two solutions differ if a number of q does by more than this


def several(
    model: Model,
    advance: Advance,
    targets: np.ndarray,
    starts: Starts,
    count: int,
    best: int,
    begin: np.ndarray | None,
    refused: Refused | None,
) -> Found:
    """For each target `best` rows: solutions that differ, those near `begin` first, else in the
    order of starts; then, without success, what came nearest.
    """
    n = len(targets)
    row, number = np.repeat(np.arange(n), count), np.tile(np.arange(count), n)

    def one(rows: np.ndarray, _: np.ndarray) -> np.ndarray:
        return starts(row[rows], number[rows])

    all_ = search(advance, targets[row], one, 1, refused)
    result = nothing(n * best, model.nq)
    for t in range(n):
        own = np.arange(t * count, (t + 1) * count)
        rank = (
            number[own].astype(float)
            if begin is None
            else np.linalg.norm(all_.q[own] - begin[t], axis=1)
        )
        own = own[
            np.lexsort((np.where(all_.arrived[own], rank, all_.left[own, 2]), ~all_.arrived[own]))
        ]
        kept: list[int] = []
        for k in own:
            if len(kept) == best:
                break
            if all(np.abs(all_.q[k] - all_.q[other]).max(initial=0.0) > _APART for other in kept):
                kept.append(int(k))
        place = slice(t * best, t * best + len(kept))
        for whole, mine in zip(result, all_, strict=True):
            whole[place] = mine[kept]
    return result
