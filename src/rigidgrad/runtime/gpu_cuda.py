"""CUDA through cuda-core and NVRTC from wheels: no toolkit, only the driver.

Host arrays travel through pinned memory, all inputs in one piece and all outputs in one piece; large batches in chunks on two streams, so that copies and
kernels of neighbouring chunks overlap. Arrays that lie on the device (CuPy, PyTorch, JAX, anything with DLPack) stay there.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.runtime import arrays, cache
from rigidgrad.targets.gpu.kernel import Kernel

STATIC_BYTES = 48 * 1024  # of shared memory that need no permission
CHUNK_BYTES = 4 << 20  # of a chunk of a large batch
STREAMS = 2
_CUDA, _CUDA_MANAGED = 2, 13  # DLPack's device types
_HELP = "pip install 'rigidgrad[gpu]' for the packages, and NVIDIA's driver for the device"


def compile_cubin(source: str, arch: str, name: str = "rigidgrad") -> Any:
    """An ObjectCode for an architecture such as "sm_90". Needs no device; kept on disk."""
    from cuda.core import ObjectCode, Program, ProgramOptions

    version = _version()
    key = cache.key({"cubin": source, "arch": arch, "nvrtc": version})
    stored = cache.read(key)
    if stored is None:
        program = Program(source, "c++", ProgramOptions(arch=arch, std="c++17"))
        code = program.compile("cubin").code
        stored = cache.Entry({"function": name, "robot": f"NVRTC {version}, {arch}"}, bytes(code))
        cache.write(key, stored)
    return ObjectCode.from_cubin(stored.code, name=name)


def _version() -> str:
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"


class CudaDevice:
    """One GPU."""

    def __init__(self, device: Any = None):
        try:
            import cuda.core
            from cuda.core import Device
        except ImportError as error:
            raise InputError(f'robot.to("cuda") needs cuda-core, which cannot be imported ({error}): {_HELP}') from error
        try:
            self.device = Device(0 if device is None else int(device))
            self.device.set_current()
        except Exception as error:
            raise InputError(f'robot.to("cuda") finds no CUDA device ({error}): {_HELP}') from error
        self.core = cuda.core
        self.name = self.device.name
        self.streams = [self.device.create_stream() for _ in range(STREAMS)]
        self.pinned = cuda.core.LegacyPinnedMemoryResource()

    def shared_limit(self) -> int:
        return int(self.device.properties.max_shared_memory_per_block_optin)

    def load(self, kernel: Kernel, dtype: str) -> CudaKernel:
        self.device.set_current()
        code = compile_cubin(kernel.source("cuda", dtype), f"sm_{self.device.arch}", kernel.entry)
        entry = code.get_kernel(kernel.entry)
        shared = kernel.shared_bytes(dtype)
        dynamic = shared if shared > STATIC_BYTES else 0
        if dynamic:
            _allow(entry, dynamic, self.device)
        return CudaKernel(self, kernel, entry, dynamic)

    def holds(self, array: Any) -> bool:
        where = getattr(array, "__dlpack_device__", None)
        return where is not None and int(where()[0]) in (_CUDA, _CUDA_MANAGED)

    def run_there(self, kernel: Any, inputs: Mapping[str, Any], kernel_shapes: Kernel, dtype: str) -> list[Any]:
        view = self.core.utils.StridedMemoryView
        stream = self.streams[0]
        self.device.set_current()
        views = {name: view.from_dlpack(x, stream_ptr=int(stream.handle)) for name, x in inputs.items()}
        for name, v in views.items():
            if v.strides is not None and not _contiguous(v.shape, v.strides):
                raise InputError(f"{name} is not contiguous: arrays on the device are taken as they are, make a contiguous copy")
        first = next(iter(kernel_shapes.inputs))
        leading = tuple(inputs[first].shape[: len(inputs[first].shape) - len(kernel_shapes.inputs[first])])
        count, real = math.prod(leading), np.dtype(dtype)
        shapes = [leading + tuple(s) for s in kernel_shapes.outputs.values()]
        buffers = [self.device.allocate(max(math.prod(s) * real.itemsize, 8), stream=stream) for s in shapes]
        if count:
            kernel.launch(stream, count, [int(views[name].ptr) for name in kernel_shapes.inputs], [int(b.handle) for b in buffers])
        stream.sync()  # DLPack has no way to hand our stream on
        back = arrays._way_back(next(iter(inputs.values())))
        return [back(view.from_buffer(b, s, dtype=real)) for b, s in zip(buffers, shapes, strict=True)]


def _contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and stride != expected:
            return False
        expected *= n
    return True


def _allow(entry: Any, size: int, device: Any) -> None:
    """More than 48 KB of shared memory have to be asked for."""
    from cuda.bindings import driver

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (result,) = driver.cuKernelSetAttribute(attribute, size, entry.handle, device.device_id)
    if result != driver.CUresult.CUDA_SUCCESS:
        raise InputError(f"the device does not give a block {size} bytes of shared memory ({result.name}): use shape='thread'")


class _Slot:
    """Pinned and device memory of one stream, in one piece for inputs and one for outputs."""

    def __init__(self, device: CudaDevice, stream: Any):
        self._device, self.stream = device, stream
        self._sizes = (0, 0)
        self.waiting: Any = None  # what to do when the stream is done

    def reserve(self, inputs: int, outputs: int) -> None:
        if inputs <= self._sizes[0] and outputs <= self._sizes[1]:
            return
        self._sizes = (max(inputs, self._sizes[0]), max(outputs, self._sizes[1]))
        allocate = self._device.pinned.allocate
        self.host = [allocate(size) for size in self._sizes]
        self.there = [self._device.device.allocate(size, stream=self.stream) for size in self._sizes]
        self.memory = [_bytes(b, size) for b, size in zip(self.host, self._sizes, strict=True)]


def _bytes(buffer: Any, size: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(int(buffer.handle)))


class CudaKernel:
    """Compiled, with memory that grows to the largest chunk."""

    def __init__(self, device: CudaDevice, kernel: Kernel, entry: Any, dynamic: int):
        self._device, self._kernel, self._entry, self._dynamic = device, kernel, entry, dynamic
        self._slots = [_Slot(device, stream) for stream in device.streams]

    def launch(self, stream: Any, count: int, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Starts the kernel on `count` rows at device addresses."""
        config = self._device.core.LaunchConfig(grid=self._kernel.blocks(count), block=self._kernel.threads, shmem_size=self._dynamic)
        self._device.core.launch(stream, config, self._entry, np.int32(count), *inputs, *outputs)

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], count: int) -> None:
        self._device.device.set_current()
        row = sum(x.shape[1] * x.itemsize for x in (*inputs, *outputs))
        step = max(self._kernel.states, CHUNK_BYTES // max(row, 1) // self._kernel.states * self._kernel.states)
        for k, start in enumerate(range(0, count, step)):
            part = slice(start, min(start + step, count))
            self._start(self._slots[k % len(self._slots)], [x[part] for x in inputs], [x[part] for x in outputs])
        for slot in self._slots:
            self._finish(slot)

    def _start(self, slot: _Slot, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        self._finish(slot)
        places, ends = _layout(inputs), _layout(outputs)
        slot.reserve(places[-1], ends[-1])
        for x, start in zip(inputs, places, strict=False):
            slot.memory[0][start : start + x.nbytes].view(x.dtype).reshape(x.shape)[...] = x
        slot.there[0].copy_from(slot.host[0], stream=slot.stream)
        base = [int(b.handle) for b in slot.there]
        self.launch(slot.stream, len(inputs[0]), [base[0] + p for p in places[:-1]], [base[1] + p for p in ends[:-1]])
        slot.there[1].copy_to(slot.host[1], stream=slot.stream)

        def collect() -> None:
            for x, start in zip(outputs, ends, strict=False):
                x[...] = slot.memory[1][start : start + x.nbytes].view(x.dtype).reshape(x.shape)

        slot.waiting = collect

    def _finish(self, slot: _Slot) -> None:
        if slot.waiting is not None:
            slot.stream.sync()
            slot.waiting()
            slot.waiting = None


def _layout(parts: Sequence[np.ndarray]) -> list[int]:
    """Where each part starts in one piece, and the whole size; 256 bytes apart as the device likes it."""
    places = [0]
    for x in parts:
        places.append(places[-1] + -(-max(x.nbytes, 1) // 256) * 256)
    return places
