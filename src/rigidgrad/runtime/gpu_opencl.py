"""OpenCL through pyopencl: any GPU with a driver for it, or PoCL on the CPU."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.runtime import gpu_pieces
from rigidgrad.targets.gpu.kernel import Kernel

_HELP = (
    "pip install pyopencl, and a driver: the GPU's own, or PoCL for the CPU (Debian: apt-get"
    " install pocl-opencl-icd)"
)

_SIZES = 16  # sizes of batches whose parts of memory are kept


class OpenClDevice:
    """A context and a queue on one device."""

    loops = True

    def __init__(self, device: Any = None):
        try:
            import pyopencl
        except ImportError as error:
            raise InputError(
                f'robot.to("opencl") needs pyopencl, which cannot be imported ({error}): {_HELP}'
            ) from error
        self.cl = pyopencl
        self.device = self._choose(device)
        self.name = self.device.name.strip()
        self.context = pyopencl.Context([self.device])
        self.queue = pyopencl.CommandQueue(self.context)

    def _choose(self, wanted: Any) -> Any:
        try:
            devices = [d for p in self.cl.get_platforms() for d in p.get_devices()]
        except self.cl.Error as error:
            raise InputError(
                f'robot.to("opencl") finds no OpenCL platform ({error}): {_HELP}'
            ) from error
        if not devices:
            raise InputError(f'robot.to("opencl") finds no OpenCL device: {_HELP}')
        listed = ", ".join(f"{i}: {d.name.strip()}" for i, d in enumerate(devices))
        if wanted is None:
            gpus = [d for d in devices if d.type & self.cl.device_type.GPU]
            return (gpus or devices)[0]
        if isinstance(wanted, int) and 0 <= wanted < len(devices):
            return devices[wanted]
        named = [d for d in devices if isinstance(wanted, str) and wanted.lower() in d.name.lower()]
        if not named:
            raise InputError(f"there is no OpenCL device {wanted!r}; there are {listed}")
        return named[0]

    def shared_limit(self) -> int:
        return int(self.device.local_mem_size)

    def processors(self) -> int:
        return int(self.device.max_compute_units)

    def holds(self, array: Any) -> bool:
        return False

    def run_there(
        self, loaded: Any, inputs: Mapping[str, Any], kernel: Kernel, dtype: str, out: Any
    ) -> list[Any]:
        raise InputError("arrays on OpenCL devices are not taken: pass arrays on the host")

    def has(self, dtype: str) -> bool:
        return dtype == "float32" or "cl_khr_fp64" in self.device.extensions

    def facts(self) -> dict[str, str]:
        platform = self.device.platform
        return {
            "name": self.name,
            "platform": platform.name.strip(),
            "version": self.device.version.strip(),
            "driver": self.device.driver_version.strip(),
        }

    def check_dtype(self, dtype: str) -> None:
        if not self.has(dtype):
            raise InputError(f"{self.name} has no double precision: pass float32 arrays")

    def build(self, source: str) -> Any:
        """A compiled program."""
        options = []
        if "Portable Computing Language" in self.device.platform.name:
            # PoCL 3.1 (LLVM 14) optimises kernels with many barriers into wrong ones
            options.append("-cl-opt-disable")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the compiler, about its own headers
            return self.cl.Program(self.context, source).build(options=options)

    def load(self, kernel: Kernel, dtype: str) -> OpenClKernel:
        self.check_dtype(dtype)
        program = self.build(kernel.source("opencl", dtype))
        return OpenClKernel(self, kernel, getattr(program, kernel.entry), dtype)


class OpenClKernel:
    """Compiled, with a piece of memory for inputs and one for outputs, which grow to the largest
    batch. Kernels see parts of them, which are made once for each size of a batch.
    """

    def __init__(self, device: OpenClDevice, kernel: Kernel, entry: Any, dtype: str):
        self._device, self._kernel, self._entry = device, kernel, entry
        self._dtype = dtype
        self._inputs, self._outputs = _Piece(device), _Piece(device)
        self._work: Any = None

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], count: int) -> None:
        cl, queue = self._device.cl, self._device.queue
        given, found = self._inputs, self._outputs
        starts, parts = given.parts(inputs)
        ends, results = found.parts(outputs)
        gpu_pieces.put(given.memory, starts, inputs)
        if any(x.size for x in inputs):
            cl.enqueue_copy(queue, given.buffer, given.memory[: starts[-1]], is_blocking=False)
        self._last = count, parts, results
        self._launch()
        if any(x.size for x in outputs):
            cl.enqueue_copy(queue, found.memory[: ends[-1]], found.buffer, is_blocking=False)
        queue.finish()
        gpu_pieces.take(found.memory, ends, outputs)

    def _room(self, size: int) -> list[Any]:
        """The memory that loops compute in, if there are any."""
        if size and (self._work is None or self._work.size < size):
            flags = self._device.cl.mem_flags.READ_WRITE
            self._work = self._device.cl.Buffer(self._device.context, flags, size)
        return [self._work] if size else []

    def _launch(self) -> None:
        count, parts, results = self._last
        threads = self._kernel.threads
        blocks, work = self._kernel.grid(count, self._dtype)
        given = np.int32(count), *parts, *results, *self._room(work)
        self._entry(self._device.queue, (blocks * threads,), (threads,), *given)

    def alone(self, repeats: int) -> float:
        """Seconds of so many launches in a row, as that of the last call: without copies."""
        queue = self._device.queue
        queue.finish()
        start = time.perf_counter()
        for _ in range(repeats):
            self._launch()
        queue.finish()
        return time.perf_counter() - start


class _Piece:
    """Memory on the host and as much on the device."""

    def __init__(self, device: OpenClDevice):
        self._device = device
        self.memory = np.empty(0, np.uint8)
        self.buffer: Any = None
        self._parts: dict[tuple[int, ...], list[Any]] = {}

    def parts(self, arrays: Sequence[np.ndarray]) -> tuple[list[int], list[Any]]:
        """Where arrays start, with the size of all, and the parts of the buffer that hold them."""
        apart = self._device.device.mem_base_addr_align // 8
        starts = gpu_pieces.places(arrays, apart)
        if starts[-1] > len(self.memory):
            self._parts.clear()
            self.memory = np.empty(starts[-1], np.uint8)
            flags = self._device.cl.mem_flags.READ_WRITE
            self.buffer = self._device.cl.Buffer(self._device.context, flags, starts[-1])
        key = tuple(starts)
        if key not in self._parts:
            if len(self._parts) >= _SIZES:
                self._parts.clear()
            self._parts[key] = [
                self.buffer.get_sub_region(start, end - start) for start, end in pairwise(starts)
            ]
        return starts, self._parts[key]
