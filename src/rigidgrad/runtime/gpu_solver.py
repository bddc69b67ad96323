"""Solvers on a device: kernels and arrays that stay there from launch to launch.

A session loads sources, makes arrays of one dtype and launches kernels on them in order; only what
is read comes back to the host. Launches that repeat with the same arguments can be recorded: on
CUDA they are one graph then, which one call starts.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.program.program import Shape
from rigidgrad.runtime.gpu import open_device
from rigidgrad.runtime.gpu_cuda import STATIC_BYTES, CudaDevice, allow, compile_cubin, host_bytes
from rigidgrad.runtime.gpu_opencl import OpenClDevice
from rigidgrad.targets.gpu.solver import (
    CHOICES,
    CONTROL,
    OPTIONS,
    PCG_BLOCKS,
    STATUS,
    STEP_SIZES,
    SolverKernels,
)
from rigidgrad.targets.gpu.solver_setup import RobotStep

__all__ = [  # all that control needs to know of a device
    "CHOICES",
    "CONTROL",
    "OPTIONS",
    "PCG_BLOCKS",
    "STATUS",
    "STEP_SIZES",
    "Numbers",
    "RobotStep",
    "Session",
    "SolverKernels",
    "open_session",
]

_MOST_BLOCKS = 65535


class Numbers(Protocol):
    """An array on a device."""

    def read(self) -> np.ndarray: ...

    def write(self, values: np.ndarray) -> None: ...

    def fetch(self) -> None:
        """Starts to bring the numbers to the host; may be part of what is recorded."""

    def fetched(self) -> np.ndarray:
        """What the last `fetch` brought, once it is there."""


class Session(Protocol):
    """A device with kernels; `load` names them with the threads of a block and its bytes of shared
    memory.
    """

    language: str

    @property
    def blocks_meet(self) -> bool:
        """Whether blocks of a launch can wait for each other."""

    def shared_limit(self) -> int:
        """Bytes of shared memory that a block can have."""

    def load(self, source: str, entries: Mapping[str, tuple[int, int]]) -> None: ...

    def array(self, *shape: int) -> Numbers:
        """Zeros."""

    def table(self, values: np.ndarray) -> Numbers:
        """Whole numbers of 32 bits."""

    def launch(self, entry: str, items: int, *arguments: Any) -> None:
        """Runs a kernel in blocks of threads, one an item as far as there may be so many."""

    def most_together(self, entry: str) -> int:
        """Blocks of a kernel that run at once; none where they cannot wait for each other."""

    def launch_together(self, entry: str, blocks: int, *arguments: Any) -> None:
        """Runs a kernel in so many blocks at once."""

    def recorded(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        """What repeats all that `enqueue` launches and fetches, with the same arguments."""


def open_session(name: str, dtype: str) -> Session:
    """A session on "cuda" or "opencl"."""
    device = _device(name)
    return CudaSession(device, dtype) if name == "cuda" else OpenClSession(device, dtype)


def device_of(name: str) -> Any:
    """The device that sessions of this name run on."""
    return _device(name)


@lru_cache
def _device(name: str) -> Any:
    return open_device(name).device


def _check_shared(device: Any, entries: Mapping[str, tuple[int, int]]) -> None:
    limit = device.shared_limit()
    for entry, (_, shared) in entries.items():
        if shared > limit:
            raise InputError(
                f"{entry} needs {shared} bytes of shared memory a block for this robot and horizon,"
                f" {device.name} has {limit}: use dtype='float32', fewer steps, or the CPU"
                " (device=None)"
            )


class OpenClSession:
    language = "opencl"
    blocks_meet = False

    def __init__(self, device: OpenClDevice, dtype: str):
        device.check_dtype(dtype)
        self.device, self.dtype = device, np.dtype(dtype)
        self._kernels: dict[str, tuple[Any, int]] = {}

    def shared_limit(self) -> int:
        return self.device.shared_limit()

    def load(self, source: str, entries: Mapping[str, tuple[int, int]]) -> None:
        _check_shared(self.device, entries)
        program = self.device.build(source)
        self._kernels |= {
            entry: (getattr(program, entry), threads) for entry, (threads, _) in entries.items()
        }

    def array(self, *shape: int) -> OpenClNumbers:
        return OpenClNumbers(self.device, shape, self.dtype)

    def table(self, values: np.ndarray) -> OpenClNumbers:
        result = OpenClNumbers(self.device, values.shape, np.dtype(np.int32))
        result.write(values)
        return result

    def launch(self, entry: str, items: int, *arguments: Any) -> None:
        kernel, threads = self._kernels[entry]
        passed = [x.buffer if isinstance(x, OpenClNumbers) else np.int32(x) for x in arguments]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pyopencl, about kernels with many arguments
            kernel(self.device.queue, (min(items, _MOST_BLOCKS) * threads,), (threads,), *passed)

    def most_together(self, entry: str) -> int:
        return 0

    def launch_together(self, entry: str, blocks: int, *arguments: Any) -> None:
        raise AssertionError("blocks of OpenCL cannot wait for each other")

    def recorded(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        return enqueue  # OpenCL 1.2 has no graphs


class OpenClNumbers:
    def __init__(self, device: OpenClDevice, shape: Shape, dtype: np.dtype):
        self._device, self.shape, self._dtype = device, shape, dtype
        self._bytes = max(math.prod(shape), 1) * dtype.itemsize
        cl = device.cl
        self.buffer = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, self._bytes)
        cl.enqueue_fill_buffer(device.queue, self.buffer, np.zeros(1, dtype), 0, self._bytes)

    def read(self) -> np.ndarray:
        values = np.empty(self.shape, self._dtype)
        self._device.cl.enqueue_copy(self._device.queue, values, self.buffer)
        return values

    def fetch(self) -> None:
        """`fetched` does it."""

    def fetched(self) -> np.ndarray:
        return self.read()

    def write(self, values: np.ndarray) -> None:
        self._device.cl.enqueue_copy(
            self._device.queue,
            self.buffer,
            np.ascontiguousarray(values.reshape(self.shape), self._dtype),
        )


class CudaSession:
    language = "cuda"

    def __init__(self, device: CudaDevice, dtype: str):
        self.device, self.dtype = device, np.dtype(dtype)
        self.stream = device.streams[0]
        self.target = self.stream  # where work is put: the stream, or a graph that is being built
        self._kernels: dict[str, tuple[Any, Any, int]] = {}

    @property
    def blocks_meet(self) -> bool:
        return bool(self.device.device.properties.cooperative_launch)

    def shared_limit(self) -> int:
        return self.device.shared_limit()

    def load(self, source: str, entries: Mapping[str, tuple[int, int]]) -> None:
        _check_shared(self.device, entries)
        self.device.device.set_current()
        code = compile_cubin(source, f"sm_{self.device.device.arch}")
        for entry, (threads, shared) in entries.items():
            kernel, dynamic = code.get_kernel(entry), shared if shared > STATIC_BYTES else 0
            if dynamic:
                allow(self.device, kernel, dynamic)
            self._kernels[entry] = kernel, threads, dynamic

    def array(self, *shape: int) -> CudaNumbers:
        return CudaNumbers(self, shape)

    def table(self, values: np.ndarray) -> CudaNumbers:
        result = CudaNumbers(self, values.shape, np.dtype(np.int32))
        result.write(values)
        return result

    def launch(self, entry: str, items: int, *arguments: Any) -> None:
        self._launch(entry, min(items, _MOST_BLOCKS), False, arguments)

    def most_together(self, entry: str) -> int:
        kernel, threads, dynamic = self._kernels[entry]
        each = kernel.occupancy.max_active_blocks_per_multiprocessor(threads, dynamic)
        return int(each) * int(self.device.device.properties.multiprocessor_count)

    def launch_together(self, entry: str, blocks: int, *arguments: Any) -> None:
        self._launch(entry, blocks, True, arguments)

    def _launch(self, entry: str, blocks: int, together: bool, arguments: Sequence[Any]) -> None:
        kernel, threads, dynamic = self._kernels[entry]
        self.device.device.set_current()
        config = self.device.core.LaunchConfig(
            grid=blocks, block=threads, shmem_size=dynamic, is_cooperative=together
        )
        passed = [
            int(x.buffer.handle) if isinstance(x, CudaNumbers) else np.int32(x) for x in arguments
        ]
        self.device.core.launch(self.target, config, kernel, *passed)

    def recorded(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        self.device.device.set_current()
        builder = self.stream.create_graph_builder()
        builder.begin_building()
        self.target = builder
        try:
            enqueue()
        finally:
            self.target = self.stream
            builder.end_building()
        graph = builder.complete()
        return lambda: graph.launch(self.stream)


class CudaNumbers:
    """Pinned memory is made when first read or written."""

    def __init__(self, session: CudaSession, shape: Shape, dtype: np.dtype | None = None):
        self._session, self.shape, self._dtype = session, shape, dtype or session.dtype
        self._size = max(math.prod(shape), 1) * self._dtype.itemsize
        self._pinned: Any = None
        device, stream = session.device.device, session.stream
        device.set_current()
        self.buffer = device.allocate(self._size, stream=stream)
        self.buffer.fill(0, stream=stream)

    def _host(self) -> np.ndarray:
        if self._pinned is None:
            self._pinned = self._session.device.pinned.allocate(self._size)
        return (
            host_bytes(self._pinned, self._size)
            .view(self._dtype)[: math.prod(self.shape)]
            .reshape(self.shape)
        )

    def read(self) -> np.ndarray:
        self.fetch()
        return self.fetched()

    def fetch(self) -> None:
        self._host()
        self.buffer.copy_to(self._pinned, stream=self._session.target)

    def fetched(self) -> np.ndarray:
        self._session.stream.sync()
        return self._host().copy()

    def write(self, values: np.ndarray) -> None:
        # a copy that is still under way reads what is written here
        self._session.stream.sync()
        self._host()[...] = values.reshape(self.shape)
        self.buffer.copy_from(self._pinned, stream=self._session.stream)
