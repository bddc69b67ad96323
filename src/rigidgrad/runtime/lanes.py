"""Code over rows of arrays, W states at a time: when threads pay, how long one native call is, and
from which size on results are sent past the caches.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rigidgrad.runtime import entry
from rigidgrad.runtime.code import Code
from rigidgrad.runtime.job import Job
from rigidgrad.runtime.threads import Crew
from rigidgrad.targets import llvm_stream

_ROWS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
# rough work of one core, to judge whether threads pay: flops a nanosecond, and nanoseconds of work
# worth a thread's chunk and a call's share
_FLOPS_PER_NS = {"float64": 12.0, "float32": 24.0}
_CHUNK_NS = 4000
_WORTH_NS = 12000
_PIECE_NS = 50_000_000  # nanoseconds of work after which Python may look for Ctrl-C
# bytes of results from which on a streaming kernel sends them past the caches, which would not keep
# them, and rows that are worth to compile it for
STREAM_BYTES = 6_000_000
STREAM_ROWS = 512
# where it pays: bytes of a row, flops for each of its numbers, and these where loops write the
# lines
_STREAM_ROW = 1024
_STREAM_FLOPS = 20
_STREAM_LOOPED = 64


class LaneKernel:
    """Code that runs over rows of arrays, and how these are shared out to threads."""

    def __init__(self, job: Job):
        self.job, self.code = job, Code.of(job)
        code = self.code
        self.inputs, self.outputs = code.inputs, code.outputs
        self.masks, self.counts = code.masks, code.counts
        self.address, self.linked = code.address, code.linked
        self._rows = _ROWS(self.address)
        self._sizes = [math.prod(s) for s in (*self.inputs.values(), *self.outputs.values())]
        self.least_numbers = self.least() * self._sizes[0]  # of the first input
        self.piece_numbers = self.piece() * self._sizes[0]
        # from here on, calls are worth a second look
        self.large_numbers = min(self.piece_numbers, self.stream_rows() * self._sizes[0])

    def grain(self) -> int:
        """Rows of a thread's chunk. A streaming kernel begins and ends a chunk without computing
        meanwhile, so its chunks are longer.
        """
        w, time = self.job.lanes, _CHUNK_NS * (1 if self.job.streaming is None else 64)
        return max(w, math.ceil(time / self.nanoseconds() / w) * w)

    def nanoseconds(self) -> float:
        """A guess at the time of one row."""
        return max(self.counts["flops"] + sum(self._sizes), 1) / _FLOPS_PER_NS[self.job.dtype]

    def least(self) -> int:
        """From how many rows on threads pay."""
        return max(2 * self.job.lanes, math.ceil(_WORTH_NS / self.nanoseconds()))

    def piece(self) -> int:
        """Rows of a native call; between two of them Python can be interrupted. Whole chunks, and
        each begins in its cache line where the first does.
        """
        whole = math.lcm(self.grain(), 64)
        return max(1, math.ceil(_PIECE_NS / self.nanoseconds() / whole)) * whole

    def stream_rows(self) -> float:
        """From how many rows on a streaming kernel is the faster one."""
        job, sizes, each = (
            self.job,
            self._sizes[len(self.inputs) :],
            8 if self.job.dtype == "float64" else 4,
        )
        row = sum(sizes) * each
        most = (
            _STREAM_LOOPED
            if self.counts["instructions"] >= llvm_stream.LOOPS_FROM
            else _STREAM_FLOPS
        )
        # else writing is a small part of the work
        written = row >= _STREAM_ROW and self.counts["flops"] <= most * sum(sizes)
        able = (
            job.lanes > 1
            and job.streaming is None
            and all(llvm_stream.fits(size, each, job.lanes) for size in sizes)
        )
        return max(STREAM_ROWS, math.ceil(STREAM_BYTES / row)) if written and able else math.inf

    def run(
        self, arrays: Sequence[np.ndarray], strides: Sequence[int], count: int, crew: Crew | None
    ) -> None:
        """Inputs, then outputs; each is `count` rows of consecutive numbers, `stride` numbers
        apart.
        """
        context = np.empty(2 * len(arrays) + len(self.linked), np.int64)
        last = 2 * len(arrays)
        context[0:last:2] = [a.ctypes.data for a in arrays]
        context[1:last:2] = strides
        context[last:] = self.linked
        address = context.ctypes.data
        advance = np.array(
            [a.itemsize * stride for a, stride in zip(arrays, strides, strict=True)], np.int64
        )
        piece = self.piece()
        for start in range(0, count, piece):
            rows = min(piece, count - start)
            if crew is not None and crew.threads > 1 and rows >= self.least():
                crew.run(self.address, address, rows, self.grain())
            else:
                self._rows(address, 0, rows)
            context[0:last:2] += piece * advance

    def entry(self, crew: Crew | None) -> Any:
        """A native Python function of all input and output arrays; see `runtime.entry`."""
        team = None
        if crew is not None and crew.threads > 1:
            team = entry.Team(crew.address, crew.run_address, self.grain(), self.least())
        shapes = [*self.inputs.values(), *self.outputs.values()]
        return entry.make_entry(
            self.address, len(self.inputs), shapes, self.job.dtype, self.linked, team
        )
