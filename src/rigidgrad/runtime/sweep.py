"""Programs compiled to run along the knots of trajectories (`targets.llvm_sweep`), bound to fixed
buffers so that a run costs one native call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.kernels import structure as facts
from rigidgrad.kernels.language import Kernel
from rigidgrad.program.program import Program
from rigidgrad.runtime import cache, native
from rigidgrad.runtime.arrays import aligned_zeros
from rigidgrad.runtime.groups import Groups, Nested
from rigidgrad.runtime.lanes import host_lanes, ordered
from rigidgrad.runtime.shared import Shared
from rigidgrad.targets import llvm_math, llvm_sweep


@dataclass(frozen=True)
class SweepJob:
    """What is compiled: a Program, and which of its inputs all lanes share; or a kernel. `identity`
    tells it from others of its name.
    """

    name: str
    owner: str
    identity: str
    build: Callable[[], Program | Kernel] = field(repr=False, compare=False)
    shared: frozenset[str] = frozenset()
    dtype: str = "float64"
    width: int = 0  # 0: what the CPU has
    wide: frozenset[str] = frozenset()  # arrays of a kernel that are float64, whatever its type

    @property
    def lanes(self) -> int:
        return self.width or host_lanes(self.dtype)

    def key(self) -> str:
        return cache.key_of(self, width=self.lanes)


class Sweep:
    """Compiled code of a job."""

    def __init__(self, job: SweepJob):
        self.job, self.lanes = job, job.lanes
        self.dtype = np.dtype(job.dtype)
        key = job.key()
        stored = cache.read(key)
        if stored is None:
            stored = _compile(job)
            cache.write(key, stored)
        self.inputs = {k: tuple(s) for k, s in stored.meta["inputs"].items()}
        self.carried = {k: tuple(s) for k, s in stored.meta["carried"].items()}
        self.outputs = {k: tuple(s) for k, s in stored.meta["outputs"].items()}
        self.work: int = stored.meta["work"]  # numbers that a kernel needs of each lane
        self.counts: dict[str, int] = stored.meta["counts"]
        self._loaded = native.load_object(stored.code)
        self.address = self._loaded.address("knot")
        self.libm = [native.symbol(name) for name in llvm_math.c_names(job.dtype)]

    @staticmethod
    def of(job: SweepJob) -> Sweep:
        """The code of a job, which all who ask for the same share."""
        return _shared.get(job.key(), lambda: Sweep(job))

    def bind(self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Swept:
        """Fixes the buffers: (groups, knots, size, W), or (groups, knots, size) of shared inputs.
        Leading axes may have any strides, also 0. What a kernel carries is in both, or in
        `outputs`.
        """
        arrays = []
        for given, shapes in (
            (inputs, self.inputs),
            (outputs, self.carried),
            (outputs, self.outputs),
        ):
            for name, shape in shapes.items():
                self._check(
                    name, given[name], math.prod(shape), given is inputs and name in self.job.shared
                )
                arrays.append(given[name])
        groups, knots = arrays[0].shape[:2]
        if any(a.shape[:2] != (groups, knots) for a in arrays):
            found = {name: given[name].shape for given in (inputs, outputs) for name in given}
            raise InputError(f"buffers of {self.job.name} differ in groups and knots: {found}")
        if self.work:
            work = aligned_zeros((groups, 1, self.work, self.lanes), self.dtype)
            arrays.append(np.broadcast_to(work, (groups, knots, self.work, self.lanes)))
        return Swept(self, knots, groups, arrays)

    def _check(self, name: str, array: np.ndarray, size: int, shared: bool) -> None:
        """Wherever native code will read or write: never an assert, which `python -O` leaves
        out.
        """
        numbers = (size,) if shared else (size, self.lanes)
        strides = (array.itemsize,) if shared else (array.itemsize * self.lanes, array.itemsize)
        dtype = np.dtype(np.float64) if name in self.job.wide else self.dtype
        if array.dtype != dtype or array.shape[2:] != numbers:
            wanted = f"{dtype}(groups, knots, {', '.join(map(str, numbers))})"
            raise InputError(
                f"buffer {name} of {self.job.name} is {array.dtype}{array.shape}; it must be"
                f" {wanted}"
            )
        if any(
            n > 1 and own != right
            for n, own, right in zip(numbers, array.strides[2:], strides, strict=True)
        ):
            raise InputError(
                f"buffer {name} of {self.job.name} has strides {array.strides}; the last ones must"
                f" be {strides}"
            )
        line = self.dtype.itemsize * self.lanes
        if (
            self.work
            and name not in self.job.wide
            and any(x % line for x in (array.ctypes.data, *array.strides[:2]))
        ):
            raise InputError(
                f"buffer {name} of {self.job.name} is not aligned to vectors of {line} bytes"
            )


_shared: Shared[Sweep] = Shared()


class Swept(Nested):
    """A sweep over fixed buffers: all knots of each group."""

    def __init__(self, kernel: Sweep, knots: int, groups: int, arrays: list[np.ndarray]):
        words = [
            *(x for a in arrays for x in (a.ctypes.data, a.strides[1], a.strides[0])),
            *kernel.libm,
        ]
        own = np.array(words, np.int64)
        self.knots, self.call = knots, (kernel.address, own.ctypes.data)
        super().__init__([self.call], knots, groups, (kernel, arrays, own))


def interleave(sweeps: Sequence[Swept]) -> Groups:
    """Several sweeps in step, knot by knot, so that what they share of a knot is read from far away
    once.
    """
    sizes = {(sweep.knots, sweep.count) for sweep in sweeps}
    if len(sizes) != 1:
        raise InputError(f"sweeps in step differ in (knots, groups): {sorted(sizes)}")
    return Nested([sweep.call for sweep in sweeps], sweeps[0].knots, sweeps[0].count, tuple(sweeps))


def _compile(job: SweepJob) -> cache.Entry:
    source, registers = ordered(job.build()), native.host().registers
    code = native.compile_ir(
        llvm_sweep.render(source, job.dtype, job.lanes, job.shared, job.wide, registers), opt=1
    )
    meta = {
        "function": job.name,
        "robot": job.owner,
        "inputs": source.inputs,
        "carried": (
            {a.name: a.shape for a in source.of("carried")} if isinstance(source, Kernel) else {}
        ),
        "outputs": source.outputs,
        "work": (
            max(1, sum(a.size for a in source.of("scratch"))) if isinstance(source, Kernel) else 0
        ),
        "counts": dict(facts.counts(source)),
    }
    return cache.Entry(meta, code)
