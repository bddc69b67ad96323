"""Compiled code of a job, from the disk or made now, and what it is bound to."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.kernels import structure as facts
from rigidgrad.kernels.language import Kernel
from rigidgrad.program.program import Program
from rigidgrad.runtime import cache, native
from rigidgrad.runtime.arrays import aligned_zeros
from rigidgrad.runtime.bound import Bound, along
from rigidgrad.runtime.job import OPTIMISATION, Job
from rigidgrad.runtime.shared import Shared
from rigidgrad.targets import llvm, llvm_math, llvm_rows

Shape = tuple[int, ...]


class Code:
    """Compiled code of a job, and the shapes of its arguments: those of a backward pass are its
    layout's.
    """

    def __init__(self, job: Job):
        self.job, self.lanes, self.dtype = job, job.lanes, np.dtype(job.dtype)
        stored = cache.fetch(job.key(), lambda: _compile(job))
        meta = stored.meta
        self.inputs: dict[str, Shape] = {k: tuple(s) for k, s in meta["inputs"].items()}
        self.carried: dict[str, Shape] = {k: tuple(s) for k, s in meta["carried"].items()}
        dense = {k: tuple(s) for k, s in meta["outputs"].items()}
        # which numbers are not structurally zero, of code over rows
        self.masks = {k: _unpack(mask, dense[k]) for k, mask in meta["masks"].items()}
        self.outputs: dict[str, Shape] = {
            k: (int(self.masks[k].sum()),) if job.packed else s for k, s in dense.items()
        }
        self.work: int = meta["work"]  # numbers that a kernel along knots needs of each lane
        self.counts: dict[str, int] = meta["counts"]
        self._loaded = native.load_object(stored.code)
        self.address = self._loaded.address(meta["entry"])
        # functions that it calls by address
        self.linked = [native.symbol(name) for name in meta["linked"]]

    @staticmethod
    def of(job: Job) -> Code:
        """The code of a job, which all who ask for the same share; it goes with the last of
        them.
        """
        return _codes.get(job.key(), lambda: Code(job))

    def bind(self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Bound:
        """Fixes the buffers of code along knots: (groups, knots, size, W), or (groups, knots, size)
        of shared inputs. Leading axes may have any strides, also 0. What a kernel carries is in
        both, or in `outputs`.
        """
        knots_of = self.job.knots
        if knots_of is None:
            raise InputError(f"{self.job.name} was not compiled to run along knots")
        arrays = []
        for given, shapes in (
            (inputs, self.inputs),
            (outputs, self.carried),
            (outputs, self.outputs),
        ):
            for name, shape in shapes.items():
                shared = given is inputs and name in knots_of.shared
                self._check(name, given[name], math.prod(shape), shared, wide=name in knots_of.wide)
                arrays.append(given[name])
        groups, knots = arrays[0].shape[:2]
        if any(a.shape[:2] != (groups, knots) for a in arrays):
            found = {name: given[name].shape for given in (inputs, outputs) for name in given}
            raise InputError(f"buffers of {self.job.name} differ in groups and knots: {found}")
        if self.work:
            work = aligned_zeros((groups, 1, self.work, self.lanes), self.dtype)
            arrays.append(np.broadcast_to(work, (groups, knots, self.work, self.lanes)))
        words = [
            *(x for a in arrays for x in (a.ctypes.data, a.strides[1], a.strides[0])),
            *self.linked,
        ]
        own = np.array(words, np.int64)
        return along(((self.address, own.ctypes.data),), knots, groups, (self, arrays, own))

    def _check(self, name: str, array: np.ndarray, size: int, shared: bool, *, wide: bool) -> None:
        """Wherever native code will read or write: never an assert, which `python -O` leaves
        out.
        """
        numbers = (size,) if shared else (size, self.lanes)
        strides = (array.itemsize,) if shared else (array.itemsize * self.lanes, array.itemsize)
        dtype = np.dtype(np.float64) if wide else self.dtype
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
            and not wide
            and any(x % line for x in (array.ctypes.data, *array.strides[:2]))
        ):
            raise InputError(
                f"buffer {name} of {self.job.name} is not aligned to vectors of {line} bytes"
            )


_codes: Shared[Code] = Shared()


def _compile(job: Job) -> cache.Entry:
    source = job.made()
    ir = job.render(source)
    code = native.compile_ir(ir, opt=OPTIMISATION, join=not llvm.in_blocks(ir))
    meta = {
        "function": job.name,
        "robot": job.owner,
        "entry": "rows",
        "linked": (*llvm_math.c_names(job.dtype), *llvm_rows.MEMORY),
        "inputs": {},
        "carried": {},
        "outputs": {},
        "masks": {},
        "work": 0,
        "counts": {},
    }
    if not isinstance(source, Program | Kernel):  # a layout
        return cache.Entry(meta | {"entry": "riccati", "linked": ()}, code)
    meta |= {
        "inputs": source.inputs,
        "outputs": source.outputs,
        "counts": dict(facts.counts(source)),
    }
    if job.knots is None:
        masks = {name: _pack(mask) for name, mask in facts.pattern(source).items()}
        return cache.Entry(meta | {"masks": masks}, code)
    meta |= {"entry": "knot", "linked": llvm_math.c_names(job.dtype)}
    if isinstance(source, Kernel):
        meta["carried"] = {a.name: a.shape for a in source.of("carried")}
        meta["work"] = max(1, sum(a.size for a in source.of("scratch")))
    return cache.Entry(meta, code)


def _pack(mask: list[bool]) -> str:
    return np.packbits(np.array(mask, dtype=bool)).tobytes().hex()


def _unpack(text: str, shape: Shape) -> np.ndarray:
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8), count=math.prod(shape))
    return bits.astype(bool).reshape(shape)
