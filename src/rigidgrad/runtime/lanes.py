"""The fast engine: a function recorded for a model, compiled for this CPU, and run over rows of
arrays, W states at a time.

Object code is cached on disk under everything that it depends on, so that a hit records nothing.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from rigidgrad.kernels import structure as facts
from rigidgrad.kernels.language import Kernel
from rigidgrad.model.contacts import ConstraintSet
from rigidgrad.model.model import Model
from rigidgrad.program.order import best_order
from rigidgrad.program.program import Program
from rigidgrad.runtime import cache, entry, native
from rigidgrad.runtime.formulation import source_of
from rigidgrad.runtime.shared import Shared
from rigidgrad.runtime.threads import Crew
from rigidgrad.targets import llvm, llvm_kernel, llvm_math, llvm_rows, llvm_stream

Shape = tuple[int, ...]
_ROWS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
OPTIMISATION = 1  # LLVM's level for kernels
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
# of a model: how it was described, and what it is called
_NOT_IN_RESULTS = frozenset(
    {"name", "body_names", "visuals", "description", "floating_base", "strict", "problems"}
)


@dataclass(frozen=True)
class Job:
    """What is compiled: a function of a model with its options."""

    model: Model = field(repr=False)
    name: str
    external: tuple[str, ...] = ()
    frame: str | None = None
    expressed_in: str = "world"
    parameters: tuple[str, ...] = ()
    packed: bool = False
    dtype: str = "float64"
    width: int = 0  # 0: what the CPU has
    streaming: tuple[int, ...] | None = (
        None  # for results larger than the caches: where in a cache line each begins
    )
    contacts: ConstraintSet | None = None

    @property
    def owner(self) -> str:
        return self.model.name

    @property
    def lanes(self) -> int:
        return self.width or host_lanes(self.dtype)

    def source(self) -> Program | Kernel:
        return source_of(
            self.model,
            self.name,
            external=self.external,
            frame=self.frame,
            expressed_in=self.expressed_in,
            contacts=self.contacts,
            parameters=self.parameters,
        )

    def ir(self) -> str:
        return render(self, ordered(self.source()))

    def key(self) -> str:
        return cache.key_of(self, model=digest(self.model), width=self.lanes)


@dataclass(frozen=True)
class Recording:
    """What is compiled: a Program of any origin, or a kernel. `identity` tells it from others of
    its name, so that a cached one need not be recorded.
    """

    name: str
    owner: str
    identity: str
    build: Callable[[], Program | Kernel] = field(repr=False, compare=False)
    packed: bool = False
    dtype: str = "float64"
    width: int = 0
    streaming: tuple[int, ...] | None = None

    @property
    def lanes(self) -> int:
        return self.width or host_lanes(self.dtype)

    def source(self) -> Program | Kernel:
        return self.build()

    def ir(self) -> str:
        return render(self, ordered(self.source()))

    def key(self) -> str:
        return cache.key_of(self, width=self.lanes)


def ordered(source: Program | Kernel) -> Program | Kernel:
    """With the operations of Programs in an order for this CPU's registers."""
    registers = native.host().registers
    if isinstance(source, Program):
        return best_order(source, registers)
    return source.with_programs(lambda program: best_order(program, registers))


def render(job: Job | Recording, source: Program | Kernel) -> str:
    """The IR of what a job compiles."""
    registers = native.host().registers
    if isinstance(source, Program):
        return llvm.render(
            source,
            job.dtype,
            job.lanes,
            packed=job.packed,
            streaming=job.streaming,
            registers=registers,
        )
    return llvm_kernel.render(
        source,
        job.dtype,
        job.lanes,
        packed=job.packed,
        streaming=job.streaming,
        registers=registers,
    )


def host_lanes(dtype: str) -> int:
    """How many numbers the CPU's vectors hold."""
    return native.host().vector_bits // (64 if dtype == "float64" else 32)


def digest(model: Model) -> str:
    """A hash of all of a model's numbers and names that results depend on."""
    return hashlib.sha256(described(model).encode()).hexdigest()


def described(model: Model) -> str:
    """These numbers and names."""
    parts = {f.name: getattr(model, f.name) for f in fields(model) if f.name not in _NOT_IN_RESULTS}
    return repr(parts)


class LaneKernel:
    """Compiled code of a job, and the shapes around it."""

    def __init__(self, job: Job | Recording):
        self.job = job
        key = job.key()
        stored = cache.read(key)
        if stored is None:
            stored = _compile(job)
            cache.write(key, stored)
        meta = stored.meta
        self.inputs: dict[str, Shape] = {k: tuple(s) for k, s in meta["inputs"].items()}
        self.dense: dict[str, Shape] = {k: tuple(s) for k, s in meta["outputs"].items()}
        self.masks = {k: _unpack(meta["masks"][k], shape) for k, shape in self.dense.items()}
        self.outputs: dict[str, Shape] = {
            k: (int(self.masks[k].sum()),) if job.packed else s for k, s in self.dense.items()
        }
        self.counts: dict[str, int] = meta["counts"]
        self.loaded = native.load_object(stored.code)
        self.address = self.loaded.address("rows")
        self._rows = _ROWS(self.address)
        self.linked = [
            native.symbol(name) for name in (*llvm_math.c_names(job.dtype), *llvm_rows.MEMORY)
        ]  # functions that the code calls by address
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


def _compile(job: Job | Recording) -> cache.Entry:
    source = ordered(job.source())
    ir = render(job, source)
    code = native.compile_ir(ir, opt=OPTIMISATION, join=not llvm.in_blocks(ir))
    meta = {
        "function": job.name,
        "robot": job.owner,
        "inputs": source.inputs,
        "outputs": source.outputs,
        "masks": {name: _pack(mask) for name, mask in facts.pattern(source).items()},
        "counts": dict(facts.counts(source)),
    }
    return cache.Entry(meta, code)


def _pack(mask: list[bool]) -> str:
    return np.packbits(np.array(mask, dtype=bool)).tobytes().hex()


def _unpack(text: str, shape: Shape) -> np.ndarray:
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8), count=math.prod(shape))
    return bits.astype(bool).reshape(shape)


_kernels: Shared[LaneKernel] = Shared()


def lane_kernel(job: Job | Recording) -> LaneKernel:
    """The kernel of a job; models that are equal share one, and its code goes with the last
    function that uses it.
    """
    return _kernels.get(job.key(), lambda: LaneKernel(job))
