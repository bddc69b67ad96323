"""Which lines are free."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rigidgrad.planning.space import Space
from rigidgrad.runtime.loops import kernel

_TOGETHER = 1600  # positions that are checked in one call, without a coarse look before
STRIDE = 16  # of the coarse look: most lines that are not free are found there
ALL, COARSE, FINE = 0, 1, 2  # the fine look takes what the coarse one did not


class Edges:
    """Which lines are free: checked so closely that no point of the robot moves more than `step`
    metres between two positions, each of which keeps half of that away from everything.
    """

    def __init__(self, space: Space, touches: Callable[[np.ndarray], np.ndarray], step: float):
        self.space, self.touches, self.step = space, touches, step

    def ways(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of lines from a (n, nq) to b (n, nq): the way (n, nv), and how many positions are checked
        on it (n,), the last of them b.
        """
        way = self.space.difference(a, b)
        counts = np.ceil(np.abs(way) @ (self.space.weights / self.step))
        return way, np.maximum(counts, 1).astype(np.int64)

    def reached(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """How much of each line from a (n, nq), which is free, to b (n, nq) is free from a on:
        (n,), 1 where all is.
        """
        way, counts = self.ways(a, b)
        clear = counts.copy()  # positions from a on that are free
        looks = (ALL,) if counts.sum() <= _TOGETHER else (COARSE, FINE)
        for look in looks:
            line, k = self._hit(a, way, counts, clear, look)
            clear[line[::-1]] = k[::-1] - 1  # the first on each line, which is written last
        part: np.ndarray = clear / counts
        return part

    def free(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Whether each whole line is free (n,)."""
        if len(a) == 1:  # often all that there is to do
            whole: np.ndarray = self.reached(a, b) == 1
            return whole
        possible, way, counts = self.possible(a, b)
        rows = np.flatnonzero(possible)
        possible[rows] = self.rest_free(a[rows], way[rows], counts[rows])
        return possible

    def possible(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Whether lines are free at the positions of a coarse look (n,), with their ways and
        counts: `rest_free` checks the others.
        """
        way, counts = self.ways(a, b)
        free = np.ones(len(a), bool)
        free[self._hit(a, way, counts, counts, COARSE)[0]] = False
        return free, way, counts

    def rest_free(self, a: np.ndarray, way: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Whether lines that are `possible` are free (n,)."""
        free = np.ones(len(a), bool)
        free[self._hit(a, way, counts, counts, FINE)[0]] = False
        return free

    def _hit(
        self, a: np.ndarray, way: np.ndarray, counts: np.ndarray, last: np.ndarray, look: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which positions of a look touch, up to the last ones (n,) asked for: their lines and
        numbers, in order.
        """
        most = int(last.sum()) if look != COARSE else int(((last + STRIDE) // STRIDE).sum())
        line, k = np.empty((2, most), np.int64)
        count = numbered(counts, last, look, line, k)
        line, k = line[:count], k[:count]
        if not count:
            return line, k
        if self.space.is_flat:
            q = np.empty((count, a.shape[1]), np.float32)
            along(np.ascontiguousarray(a), way, counts, line, k, q)
        else:
            q = self.space.moved(a[line], (k / counts[line])[:, None] * way[line])
        touching = np.flatnonzero(self.touches(q))
        return line[touching], k[touching]


@kernel
def numbered(
    counts: np.ndarray, last: np.ndarray, look: int, line: np.ndarray, number: np.ndarray
) -> int:
    """Writes the lines and numbers of the positions of a look, from 1 to last[i] on line i; gives
    how many there are. A line's last position, counts[i], is part of the coarse look.
    """
    written = 0
    for i in range(last.shape[0]):
        step = 1
        if look == COARSE:
            step = STRIDE
        k = step
        while k <= last[i]:
            wanted = look != FINE
            if look == FINE:
                wanted = k % STRIDE != 0 and k != counts[i]
            if wanted:
                line[written] = i
                number[written] = k
                written += 1
            k += step
        if look == COARSE and last[i] == counts[i] and counts[i] % STRIDE != 0:
            line[written] = i
            number[written] = counts[i]
            written += 1
    return written


@kernel
def along(
    a: np.ndarray,
    way: np.ndarray,
    counts: np.ndarray,
    line: np.ndarray,
    number: np.ndarray,
    q: np.ndarray,
) -> None:
    """Writes the positions q (m, nq): a + number / counts · way of each one's line."""
    for m in range(q.shape[0]):
        i = line[m]
        part = number[m] / counts[i]
        for j in range(q.shape[1]):
            q[m, j] = a[i, j] + part * way[i, j]
