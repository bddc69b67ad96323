"""OpenCL through pyopencl: any GPU with a driver for it, or PoCL on the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.targets.gpu.kernel import Kernel

_HELP = "pip install pyopencl, and a driver: the GPU's own, or PoCL for the CPU (Debian: apt-get install pocl-opencl-icd)"


class OpenClDevice:
    """A context and a queue on one device."""

    def __init__(self, device: Any = None):
        try:
            import pyopencl
        except ImportError as error:
            raise InputError(f'robot.to("opencl") needs pyopencl, which cannot be imported ({error}): {_HELP}') from error
        self.cl = pyopencl
        self.device = self._choose(device)
        self.name = self.device.name.strip()
        self.context = pyopencl.Context([self.device])
        self.queue = pyopencl.CommandQueue(self.context)

    def _choose(self, wanted: Any) -> Any:
        try:
            devices = [d for p in self.cl.get_platforms() for d in p.get_devices()]
        except self.cl.Error as error:
            raise InputError(f'robot.to("opencl") finds no OpenCL platform ({error}): {_HELP}') from error
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

    def holds(self, array: Any) -> bool:
        return False

    def run_there(self, kernel: Any, inputs: Mapping[str, Any], kernel_shapes: Kernel, dtype: str) -> list[Any]:
        raise InputError("arrays on OpenCL devices are not taken: pass arrays on the host")

    def check_dtype(self, dtype: str) -> None:
        if dtype == "float64" and "cl_khr_fp64" not in self.device.extensions:
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
        return OpenClKernel(self, kernel, getattr(program, kernel.entry))


class OpenClKernel:
    """Compiled, with buffers that grow to the largest batch."""

    def __init__(self, device: OpenClDevice, kernel: Kernel, entry: Any):
        self._device, self._kernel, self._entry = device, kernel, entry
        self._buffers: list[Any] = []

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], count: int) -> None:
        cl, queue = self._device.cl, self._device.queue
        self._reserve([max(x.nbytes, 8) for x in (*inputs, *outputs)])
        for buffer, x in zip(self._buffers, inputs, strict=False):
            if x.size:
                cl.enqueue_copy(queue, buffer, x, is_blocking=False)
        threads = self._kernel.threads
        self._entry(queue, (self._kernel.blocks(count) * threads,), (threads,), np.int32(count), *self._buffers)
        for buffer, x in zip(self._buffers[len(inputs) :], outputs, strict=True):
            if x.size:
                cl.enqueue_copy(queue, x, buffer, is_blocking=False)
        queue.finish()

    def _reserve(self, sizes: Sequence[int]) -> None:
        if len(self._buffers) == len(sizes) and all(b.size >= size for b, size in zip(self._buffers, sizes, strict=True)):
            return
        flags = self._device.cl.mem_flags.READ_WRITE
        self._buffers = [self._device.cl.Buffer(self._device.context, flags, size) for size in sizes]
