"""A kernel of `kernels` with a block of a system in each lane."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rigidgrad.runtime.arrays import aligned_zeros
from rigidgrad.runtime.code import Code
from rigidgrad.runtime.job import Job


class BlocksInLanes:
    """The kernel of a job, and its buffers (groups, 1, numbers, lanes) for `count` blocks. What
    fills the last group up has the numbers `default`, of other inputs zeros.
    """

    def __init__(self, job: Job, count: int, default: Mapping[str, np.ndarray]):
        code = Code.of(job)
        self.lanes = code.lanes
        groups = -(-count // self.lanes)
        buffers = {
            name: aligned_zeros((groups, 1, math.prod(shape), self.lanes))
            for name, shape in (code.inputs | code.carried | code.outputs).items()
        }
        self.rows = {name: a[:, 0].swapaxes(1, 2) for name, a in buffers.items()}
        for name, numbers in default.items():
            self.rows[name][:] = numbers.ravel()
        self._bound = code.bind(buffers, buffers)

    def run(self, count: int | None = None) -> None:
        """All blocks, or at least the first few."""
        self._bound.run(count=None if count is None else -(-count // self.lanes))

    def write(self, name: str, values: np.ndarray) -> None:
        """Of the first blocks."""
        rows, flat = self.rows[name], values.reshape(len(values), -1)
        full, rest = divmod(len(flat), rows.shape[1])
        rows[:full] = flat[: len(flat) - rest].reshape(full, *rows.shape[1:])
        if rest:
            rows[full, :rest] = flat[len(flat) - rest :]

    def read(self, name: str, count: int, *shape: int) -> np.ndarray:
        """Of the first `count` blocks."""
        rows = self.rows[name]
        used = rows[: -(-count // rows.shape[1])]
        return used.reshape(-1, rows.shape[2])[:count].reshape(count, *shape)
