"""CUDA through cuda-core and NVRTC from wheels: no toolkit, only the driver.

Host arrays travel through pinned memory, all inputs in one piece and all outputs in one piece, of
just the bytes that a call needs; large batches in chunks on two streams, so that copies and kernels
of neighbouring chunks overlap. Memory grows to the largest call and is kept. Arrays that lie on the
device (CuPy, PyTorch, JAX, anything with DLPack) stay there.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.runtime import arrays, cache, gpu_pieces
from rigidgrad.targets.gpu.kernel import Kernel

STATIC_BYTES = 48 * 1024  # of shared memory that need no permission
CHUNK_BYTES = 4 << 20  # of a chunk of a large batch
STREAMS = 2
APART = 32  # bytes: what a device reads at once, so that no two arrays share it
_CUDA, _CUDA_MANAGED = 2, 13  # DLPack's device types
_HELP = "pip install 'rigidgrad[gpu]' for the packages, and NVIDIA's driver for the device"


def _packages() -> tuple[Any, Any]:
    """cuda.core, and the driver's functions as they are."""
    import cuda.core
    import cuda.core.utils
    from cuda.bindings import driver

    return cuda.core, driver


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
    """One GPU. With a stream of the caller's all work is put there, in order with the caller's own,
    and nobody waits for arrays that stay on the device.
    """

    loops = True

    def __init__(self, device: Any = None, stream: Any = None):
        try:
            self.core, self.driver = _packages()
        except ImportError as error:
            raise InputError(
                f'robot.to("cuda") needs cuda-core, which cannot be imported ({error}): {_HELP}'
            ) from error
        try:
            self.device = self.core.Device(0 if device is None else int(device))
            self.device.set_current()
        except Exception as error:
            raise InputError(f'robot.to("cuda") finds no CUDA device ({error}): {_HELP}') from error
        self.name = self.device.name
        self.given = stream
        if stream is None:
            self.streams = [self.device.create_stream() for _ in range(STREAMS)]
        else:
            self.streams = [self._stream_of(stream)]
        self.pinned = self.core.LegacyPinnedMemoryResource()

    def _stream_of(self, stream: Any) -> Any:
        """Ours for a stream of cuda-core, PyTorch, CuPy, or its handle."""
        if hasattr(stream, "__cuda_stream__"):
            return self.device.create_stream(stream)
        handle = getattr(stream, "ptr", stream)  # CuPy before 14
        if isinstance(handle, int) and not isinstance(handle, bool):
            return self.core.Stream.from_handle(handle)
        raise InputError(
            f"stream is a CUDA stream (of PyTorch, CuPy, cuda-core) or its handle, not a"
            f" {type(stream).__name__}"
        )

    def shared_limit(self) -> int:
        return int(self.device.properties.max_shared_memory_per_block_optin)

    def processors(self) -> int:
        return int(self.device.properties.multiprocessor_count)

    def has(self, dtype: str) -> bool:
        return True

    def facts(self) -> dict[str, str]:
        _, version = self.driver.cuDriverGetVersion()
        return {
            "name": self.name,
            "architecture": f"sm_{self.device.arch}",
            "driver": f"CUDA {int(version) // 1000}.{int(version) % 1000 // 10}",
            "compiler": f"NVRTC {_version()}",
        }

    def load(self, kernel: Kernel, dtype: str) -> CudaKernel:
        self.device.set_current()
        code = compile_cubin(kernel.source("cuda", dtype), f"sm_{self.device.arch}", kernel.entry)
        entry = code.get_kernel(kernel.entry)
        shared = kernel.shared_bytes(dtype)
        dynamic = shared if shared > STATIC_BYTES else 0
        if dynamic:
            allow(self, entry, dynamic)
        return CudaKernel(self, kernel, entry, dynamic, dtype)

    def holds(self, array: Any) -> bool:
        where = getattr(array, "__dlpack_device__", None)
        return where is not None and int(where()[0]) in (_CUDA, _CUDA_MANAGED)

    def copy(self, to: int, start: int, size: int, stream: Any) -> None:
        """Starts a copy of so many bytes between addresses, on the host or the device."""
        (result,) = self.driver.cuMemcpyAsync(to, start, size, stream.handle)
        if result != self.driver.CUresult.CUDA_SUCCESS:
            raise InputError(f"copy of {size} bytes: {result.name} on {self.name}")

    def run_there(
        self, loaded: Any, inputs: Mapping[str, Any], kernel: Kernel, dtype: str, out: Any
    ) -> list[Any]:
        stream = self.streams[0]
        self.device.set_current()
        starts = {name: self._start_of(name, inputs[name], stream) for name in kernel.inputs}
        name, tail = next(iter(kernel.inputs.items()))
        leading = tuple(inputs[name].shape[: len(inputs[name].shape) - len(tail)])
        count, real = math.prod(leading), np.dtype(dtype)
        shapes = {k: leading + tuple(s) for k, s in kernel.outputs.items()}
        if out is None:
            made = [
                (self.device.allocate(max(math.prod(s) * real.itemsize, 8), stream=stream), s)
                for s in shapes.values()
            ]
            ends = [int(b.handle) for b, _ in made]
        else:
            ends = self._ends(out, shapes, real, starts, inputs, stream)
        if count:
            loaded.launch(stream, count, list(starts.values()), ends)
        if self.given is None:
            stream.sync()  # DLPack has no way to hand our stream on
        if out is not None:
            return list(out)
        back = arrays._way_back(inputs[name])
        view = self.core.utils.StridedMemoryView
        return [back(view.from_buffer(b, s, dtype=real)) for b, s in made]

    def _view(self, name: str, array: Any, stream: Any) -> Any:
        kind, number = (int(x) for x in array.__dlpack_device__())
        if kind == _CUDA and number != self.device.device_id:
            raise InputError(
                f"{name} lies on CUDA device {number}, the robot is on {self.device.device_id}: move"
                f' one of them, as by robot.to("cuda", device={number})'
            )
        # where there is more than one stream, this waits for what still writes the array
        return self.core.utils.StridedMemoryView.from_dlpack(array, stream_ptr=int(stream.handle))

    def _start_of(self, name: str, array: Any, stream: Any) -> int:
        v = self._view(name, array, stream)
        if v.strides is not None and not _contiguous(v.shape, v.strides):
            raise InputError(
                f"{name} is not contiguous: arrays on the device are taken as they are, make a"
                " contiguous copy"
            )
        return int(v.ptr)

    def _ends(
        self,
        out: Sequence[Any],
        shapes: Mapping[str, Sequence[int]],
        real: np.dtype,
        starts: Mapping[str, int],
        inputs: Mapping[str, Any],
        stream: Any,
    ) -> list[int]:
        """Addresses of arrays that the caller gave for results."""
        spans = {k: (p, p + math.prod(inputs[k].shape) * real.itemsize) for k, p in starts.items()}
        ends = []
        for (key, shape), array in zip(shapes.items(), out, strict=True):
            name = f"out for {key}"
            if not self.holds(array):
                raise InputError(f"{name} lies on the host and the inputs on the device")
            dtype = str(array.dtype).rpartition(".")[2]
            if tuple(array.shape) != tuple(shape) or dtype != real.name:
                raise InputError(
                    f"{name} is {dtype}{tuple(array.shape)}; it must be {real.name}{tuple(shape)}"
                )
            start = self._start_of(name, array, stream)
            if self._view(name, array, stream).readonly or _immutable(array):
                raise InputError(f"{name} is read-only")
            end = start + math.prod(shape) * real.itemsize
            for other, (low, high) in spans.items():
                if start < high and low < end:
                    raise InputError(f"{name} and {other} share memory; each needs its own")
            spans[name] = start, end
            ends.append(start)
        return ends


def _immutable(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] in ("jax", "jaxlib")


def _contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and stride != expected:
            return False
        expected *= n
    return True


def allow(device: CudaDevice, entry: Any, size: int) -> None:
    """More than 48 KB of shared memory have to be asked for."""
    driver = device.driver
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (result,) = driver.cuKernelSetAttribute(attribute, size, entry.handle, device.device.device_id)
    if result != driver.CUresult.CUDA_SUCCESS:
        raise InputError(
            f"the device does not give a block {size} bytes of shared memory ({result.name}): use"
            " shape='thread'"
        )


class _Piece:
    """Pinned memory and as much on the device; both grow to the largest call and are kept."""

    def __init__(self, device: CudaDevice, stream: Any):
        self._device, self._stream, self._size = device, stream, 0

    def reserve(self, size: int) -> None:
        if size <= self._size:
            return
        self._size = size
        self._host = self._device.pinned.allocate(size)
        self._there = self._device.device.allocate(size, stream=self._stream)
        self.memory = host_bytes(self._host, size)

    @property
    def start(self) -> int:
        """On the device."""
        return int(self._there.handle)

    def send(self, size: int) -> None:
        self._device.copy(self.start, int(self._host.handle), size, self._stream)

    def fetch(self, size: int) -> None:
        self._device.copy(int(self._host.handle), self.start, size, self._stream)


class _Slot:
    """Memory of one stream, in one piece for inputs and one for outputs."""

    def __init__(self, device: CudaDevice, stream: Any):
        self.stream = stream
        self.inputs, self.outputs = _Piece(device, stream), _Piece(device, stream)
        self.waiting: Any = None  # what to do when the stream is done


def host_bytes(buffer: Any, size: int) -> np.ndarray:
    """Memory of the host, as bytes."""
    return np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(int(buffer.handle)))


class CudaKernel:
    """Compiled, with memory that grows to the largest chunk."""

    def __init__(
        self, device: CudaDevice, kernel: Kernel, entry: Any, dynamic: int, dtype: str = "float64"
    ):
        self._device, self._kernel, self._entry, self._dynamic = device, kernel, entry, dynamic
        self._dtype = dtype
        self._work: dict[int, tuple[Any, int]] = {}
        self._slots = [_Slot(device, stream) for stream in device.streams]

    def launch(
        self, stream: Any, count: int, inputs: Sequence[int], outputs: Sequence[int]
    ) -> None:
        """Starts the kernel on `count` rows at device addresses."""
        blocks, work = self._kernel.grid(count, self._dtype)
        config = self._device.core.LaunchConfig(
            grid=blocks, block=self._kernel.threads, shmem_size=self._dynamic
        )
        given = (np.int32(count), *inputs, *outputs, *self._room(stream, work))
        self._device.core.launch(stream, config, self._entry, *given)

    def _room(self, stream: Any, size: int) -> list[int]:
        """Where loops compute, if there are any: memory of each stream."""
        if not size:
            return []
        if self._work.get(id(stream), (None, 0))[1] < size:
            self._work[id(stream)] = self._device.device.allocate(size, stream=stream), size
        return [int(self._work[id(stream)][0].handle)]

    def alone(self, repeats: int) -> float:
        """Seconds of so many launches in a row, as that of the last call: without copies."""
        slot, arguments = self._slots[0], self._last
        slot.stream.sync()
        start = time.perf_counter()
        for _ in range(repeats):
            self.launch(slot.stream, *arguments)
        slot.stream.sync()
        return time.perf_counter() - start

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], count: int) -> None:
        self._device.device.set_current()
        row = sum(x.shape[1] * x.itemsize for x in (*inputs, *outputs))
        step = max(
            self._kernel.states,
            CHUNK_BYTES // max(row, 1) // self._kernel.states * self._kernel.states,
        )
        for k, start in enumerate(range(0, count, step)):
            part = slice(start, min(start + step, count))
            self._start(
                self._slots[k % len(self._slots)],
                [x[part] for x in inputs],
                [x[part] for x in outputs],
            )
        for slot in self._slots:
            self._finish(slot)

    def _start(
        self, slot: _Slot, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        self._finish(slot)
        *starts, size = gpu_pieces.places(inputs, APART)
        *ends, results = gpu_pieces.places(outputs, APART)
        slot.inputs.reserve(size)
        slot.outputs.reserve(results)
        gpu_pieces.put(slot.inputs.memory, starts, inputs)
        slot.inputs.send(size)
        self._last = (
            len(inputs[0]),
            [slot.inputs.start + p for p in starts],
            [slot.outputs.start + p for p in ends],
        )
        self.launch(slot.stream, *self._last)
        slot.outputs.fetch(results)
        slot.waiting = lambda: gpu_pieces.take(slot.outputs.memory, ends, outputs)

    def _finish(self, slot: _Slot) -> None:
        if slot.waiting is not None:
            slot.stream.sync()
            slot.waiting()
            slot.waiting = None
