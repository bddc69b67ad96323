"""A compiled function: what `robot.compile` returns, and what every method of a Robot calls.

Arrays that need no conversion go straight into native code (`runtime.entry`); all others are
checked, converted and broadcast first (`runtime.arrays`). One state runs on a kernel without lanes,
batches on one with; both give the same bits.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.runtime import arrays, native
from rigidgrad.runtime.job import OPTIMISATION, Job
from rigidgrad.runtime.lanes import LaneKernel
from rigidgrad.runtime.threads import Crew, default_crew, thread_count
from rigidgrad.targets import llvm, llvm_stream

Shape = tuple[int, ...]
# of kernel: "single", "batch", or one that streams to arrays that begin there in their cache lines
Kind = str | tuple[int, ...]


_DTYPES = {"d": "float64", "f": "float32"}
# of a function, before arrays that begin at yet other places in their cache lines are no reason to
# compile another one
_MOST_KERNELS = 8


class Compiled:
    """`fast(q, v, a, out=…)`: inputs in the order of `.inputs`, any batch axes; `out` an array, or
    a tuple of them where there are several outputs.

    dtype "float64" or "float32" fixes it; None follows the arrays. `.counts` are the operations of
    one state, `.llvm` and `.assembly` its code.
    """

    def __init__(
        self,
        job: Job,
        *,
        dtype: str | None = None,
        threads: int | None = None,
        result: Callable[..., Any] | None = None,
        check: Callable[[arrays.Batch], None] | None = None,
    ):
        if dtype not in (None, "float64", "float32"):
            raise InputError(f"dtype is 'float64' or 'float32', not {dtype!r}")
        self._job = dataclasses.replace(job, dtype=dtype or "float64")
        self._dtype = dtype
        self._threads = thread_count(threads)
        self._result = result
        self._check = check
        self._entries: dict[
            tuple[str, Kind], tuple[Any, LaneKernel]
        ] = {}  # by dtype and kind of kernel
        self._crew: Crew | None = None
        self._input_dims: int | None = None
        self._input_size = 0

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name} {shape}" for name, shape in self.inputs.items())
        return f"<{self._job.name} of {self._job.owner!r}: {arguments} → {', '.join(self.outputs)}>"

    # --- what it is -------------------------------------------------------------------------------

    @property
    def job(self) -> Job:
        """What is compiled."""
        return self._job

    @property
    def inputs(self) -> Mapping[str, Shape]:
        """Shapes of one state's inputs, in order."""
        return self._kernel(self._job.dtype, "batch").inputs

    @property
    def outputs(self) -> Mapping[str, Shape]:
        """Shapes of one state's outputs, in order."""
        return self._kernel(self._job.dtype, "batch").outputs

    @property
    def masks(self) -> Mapping[str, np.ndarray]:
        """Which entries of each output are not structurally zero."""
        return self._kernel(self._job.dtype, "batch").masks

    @property
    def counts(self) -> Mapping[str, int]:
        """Operations of one state: by kind, `flops`, `instructions`, `depth`, `live`."""
        return self._kernel(self._job.dtype, "batch").counts

    @property
    def llvm(self) -> str:
        """The code as LLVM IR."""
        return self._job.ir()

    @property
    def assembly(self) -> str:
        """The code of this CPU, as batches run it."""
        ir = self._job.ir()
        return native.assembly(ir, opt=OPTIMISATION, join=not llvm.in_blocks(ir))

    def single(self) -> Any:
        """The native function of one state's arrays, inputs and then outputs, for callers whose
        arrays need no conversion: False where they do, and then nothing is done. It lives as long
        as this object.
        """
        return self._prepared(self._job.dtype, "single")[0]

    def _kernel(self, dtype: str, kind: Kind) -> LaneKernel:
        return self._prepared(dtype, kind)[1]

    def _prepared(self, dtype: str, kind: Kind) -> tuple[Any, LaneKernel]:
        found = self._entries.get((dtype, kind))
        if found is None:
            single = kind == "single"
            streaming = kind if isinstance(kind, tuple) else None
            job = dataclasses.replace(
                self._job, dtype=dtype, width=1 if single else self._job.width, streaming=streaming
            )
            kernel = LaneKernel(job)
            crew = None if single else self._team()
            found = (kernel.entry(crew), kernel)
            self._input_size = max(1, math.prod(next(iter(kernel.inputs.values()))))
            self._input_dims = len(next(iter(kernel.inputs.values())))
            self._entries[dtype, kind] = found
        return found

    def _streaming(self, dtype: str, outs: Sequence[Any]) -> tuple[int, ...] | None:
        """The kind of kernel that streams to these arrays, if there is one, and if it would not be
        one of too many to compile.
        """
        if not all(isinstance(a, np.ndarray) for a in outs):
            return None
        kind = llvm_stream.skews([a.ctypes.data for a in outs])
        return (
            kind if (dtype, kind) in self._entries or len(self._entries) < _MOST_KERNELS else None
        )

    def _team(self) -> Crew | None:
        if self._crew is None and self._threads > 1:
            self._crew = default_crew(self._threads)
        return self._crew

    # --- calling it -------------------------------------------------------------------------------

    def __call__(self, *inputs: Any, out: Any = None, check: bool = False) -> Any:
        first = inputs[0] if inputs else None
        # before the first kernel is there, the size of an input is not known either: the general
        # way finds out
        if type(first) is np.ndarray and not check and self._input_dims is not None:
            dtype = _DTYPES.get(first.dtype.char)  # the name of a dtype takes long to ask for
            if dtype is not None and dtype == (self._dtype or dtype):
                single = first.size == self._input_size
                kind = "single" if single else "batch"
                native_entry, kernel = self._entries.get((dtype, kind)) or self._prepared(
                    dtype, kind
                )
                large = first.size >= kernel.large_numbers
                if large and first.size >= kernel.piece_numbers:  # in pieces
                    return self._general(inputs, out, check)
                if out is None:
                    batch = first.shape[: first.ndim - self._input_dims]
                    make = arrays.fresh if large else np.empty
                    outs: Any = [
                        make(batch + shape, first.dtype) for shape in kernel.outputs.values()
                    ]
                elif len(kernel.outputs) == 1:
                    outs = (out,)
                else:
                    outs = out if isinstance(out, tuple | list) else ()
                    if len(outs) > len(kernel.outputs) and arrays.has_remark(out):
                        outs = outs[: len(kernel.outputs)]
                if large and (streaming := self._streaming(dtype, outs)):
                    native_entry, kernel = self._prepared(dtype, streaming)
                if self._crew is not None and not single and first.size >= kernel.least_numbers:
                    self._crew.ensure_awake()
                if native_entry(*inputs, *outs):
                    if out is not None:
                        return self._wrapped(outs) if arrays.has_remark(out) else out
                    return outs[0] if len(outs) == 1 else self._wrapped(outs)
        return self._general(inputs, out, check)

    def _wrapped(self, outs: Sequence[Any]) -> Any:
        return self._result(*outs) if self._result else tuple(outs)

    def _general(self, inputs: Sequence[Any], out: Any, check: bool) -> Any:
        """Any arrays: checked, converted, broadcast; the results in the caller's kind."""
        shapes = self.inputs
        if len(inputs) != len(shapes):
            raise InputError(
                f"{self._job.name} takes {len(shapes)} arrays ({', '.join(shapes)}), not"
                f" {len(inputs)}"
            )
        batch = arrays.gather(dict(zip(shapes, inputs, strict=True)), shapes, self._dtype)
        if check and self._check:
            self._check(batch)
        count = math.prod(batch.shape)
        kernel = self._kernel(batch.dtype.name, "single" if count == 1 else "batch")
        results = arrays.allocate(batch, kernel.outputs, out)
        rows = [_rows(batch.rows[name]) for name in kernel.inputs]
        targets = [
            (
                array.reshape(count, math.prod(kernel.outputs[name]))
                if array.flags.carray
                and (out is None or not any(np.may_share_memory(array, r) for r in rows))
                else arrays.fresh((count, math.prod(kernel.outputs[name])), batch.dtype)
            )
            for name, array in results.items()
        ]
        if count >= kernel.stream_rows() and (
            streaming := self._streaming(batch.dtype.name, targets)
        ):
            kernel = self._kernel(batch.dtype.name, streaming)
        if count:
            used = [*rows, *targets]
            kernel.run(
                used,
                [a.strides[0] // a.itemsize for a in used],
                count,
                self._team() if count >= kernel.least() else None,
            )
        for array, target in zip(results.values(), targets, strict=True):
            if not np.may_share_memory(array, target):
                array[...] = target.reshape(array.shape)
        if out is not None:
            return self._wrapped(tuple(results.values())) if arrays.has_remark(out) else out
        outputs = [batch.back(a) if batch.back else a for a in results.values()]
        return outputs[0] if len(outputs) == 1 else self._wrapped(outputs)


def _rows(array: np.ndarray) -> np.ndarray:
    """Rows of consecutive numbers; the distance between rows is free."""
    return (
        array
        if array.shape[1] <= 1 or array.strides[1] == array.itemsize
        else np.ascontiguousarray(array)
    )
