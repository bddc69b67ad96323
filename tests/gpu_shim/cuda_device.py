"""CUDA without a device: what the runtime calls of cuda-core and of the driver, with memory of the
host for that of the device, and kernels run by the shim. It counts what a real one would do: bytes
copied, allocations, launches, graphs, and times that the host waits.
"""

from __future__ import annotations

import ctypes
import re
import types
from dataclasses import dataclass, field

import numpy as np

from gpu_shim import built
from gpu_shim.runner import HERE, Report

_KERNEL = re.compile(r"KERNEL(?: (?:THREADS|TEAM)\([\w, ]+\))? (\w+)\(([^)]*)\)\s*\{")


@dataclass
class Counts:
    """Of one device, since it was made or last `reset`."""

    copies: list[int] = field(default_factory=list)  # bytes of each
    allocations: int = 0
    launches: dict[str, int] = field(default_factory=dict)  # of kernels, also those in graphs
    calls: int = 0  # of the host that start kernels: a graph is one
    graphs: int = 0  # made
    waits: int = 0
    streams: list[int] = field(default_factory=list)  # where kernels were put

    def reset(self) -> None:
        self.__init__()


class Buffer:
    def __init__(self, device, size: int):
        self.device = device
        self.memory = np.full(size, 0xFF, np.uint8)  # NaN, until someone writes
        self.handle = self.memory.ctypes.data
        device.counts.allocations += 1

    def fill(self, value, stream):
        self.memory[...] = value

    def copy_from(self, other, stream):
        self.device.put(stream, self.device.copied, self.handle, other.handle, len(self.memory))

    def copy_to(self, other, stream):
        assert len(self.memory) == len(other.memory)
        self.device.put(stream, self.device.copied, other.handle, self.handle, len(self.memory))


class Stream:
    """Does its work at once; so a graph's stream keeps it for later."""

    def __init__(self, device, handle: int):
        self.device, self.handle = device, handle

    def sync(self):
        self.device.counts.waits += 1

    def create_graph_builder(self):
        return GraphBuilder(self.device)


class GraphBuilder:
    def __init__(self, device):
        self.device, self.work, self.building = device, [], False
        device.counts.graphs += 1

    def begin_building(self):
        self.building = True

    def end_building(self):
        self.building = False

    def complete(self):
        assert not self.building
        return Graph(self.device, self.work)


class Graph:
    def __init__(self, device, work):
        self.device, self.work = device, work

    def launch(self, stream):
        self.device.counts.calls += 1
        for do, arguments in self.work:
            do(*arguments)


class View:
    """In place of a StridedMemoryView."""

    def __init__(self, memory: np.ndarray, readonly: bool = False):
        self.memory, self.readonly = memory, readonly
        self.ptr, self.shape = memory.ctypes.data, memory.shape
        self.strides = tuple(s // memory.itemsize for s in memory.strides)

    @classmethod
    def from_dlpack(cls, array, stream_ptr):
        memory = array.memory if hasattr(array, "memory") else np.from_dlpack(array)
        return cls(memory, getattr(array, "readonly", False))

    @classmethod
    def from_buffer(cls, buffer, shape, dtype):
        size = int(np.prod(shape)) * dtype.itemsize
        return cls(buffer.memory[:size].view(dtype).reshape(shape))

    def __dlpack__(self, **options):
        return self.memory.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.memory.__dlpack_device__()


class ShimDevice:
    """Stands for a CudaDevice's packages, its device, its pinned memory, and, for solvers, for the
    CudaDevice. `change` edits the source: that is how bugs are planted.
    """

    name, arch, device_id = "the shim", "80", 0

    def __init__(self, order: int = 0, change=lambda text: text, effort: str = "-O0"):
        self.order, self.change, self.effort = order, change, effort
        self.cooperative = 0  # launches
        self.device = self.core = self.pinned = self
        self.counts = Counts()
        self.streams = [Stream(self, 1)]
        self.report = Report(0, 0, 0, 0, 0, "")
        self.properties = types.SimpleNamespace(
            max_shared_memory_per_block_optin=self.shared_limit(),
            cooperative_launch=1,
            multiprocessor_count=128,
        )
        self.utils = types.SimpleNamespace(StridedMemoryView=View)
        self.Stream = types.SimpleNamespace(from_handle=lambda handle: Stream(self, handle))
        success = types.SimpleNamespace(name="CUDA_SUCCESS")
        self.driver = types.SimpleNamespace(
            cuMemcpyAsync=self._memcpy,
            cuDriverGetVersion=lambda: (success, 13040),
            cuKernelSetAttribute=lambda *_: (success,),
            CUresult=types.SimpleNamespace(CUDA_SUCCESS=success),
            CUfunction_attribute=types.SimpleNamespace(
                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8
            ),
        )
        self._success = success

    @property
    def launches(self) -> dict[str, int]:
        return self.counts.launches

    def packages(self):
        return self, self.driver

    def Device(self, number: int):
        self.device_id = number
        return self

    def LegacyPinnedMemoryResource(self):
        return self

    def create_stream(self, given=None):
        if given is not None:
            return Stream(self, given.__cuda_stream__()[1])
        self.streams.append(Stream(self, 1 + len(self.streams)))
        return self.streams[-1]

    def shared_limit(self):
        return 99 * 1024

    def set_current(self):
        pass

    def allocate(self, size, stream=None):
        return Buffer(self, size)

    def LaunchConfig(self, grid, block, shmem_size, is_cooperative=False):
        self.cooperative += is_cooperative
        return grid, block, int(is_cooperative)

    def put(self, stream, do, *arguments):
        """Now, or when a graph is launched."""
        if isinstance(stream, GraphBuilder):
            assert stream.building
            stream.work.append((do, arguments))
        else:
            do(*arguments)

    def copied(self, to, start, size):
        ctypes.memmove(to, start, size)
        self.counts.copies.append(size)

    def _memcpy(self, to, start, size, stream):
        self.copied(to, start, size)
        return (self._success,)

    def compile_cubin(self, source: str, arch: str, name: str = ""):
        """In place of NVRTC."""
        source = self.change(source)
        real = re.search(r"typedef (double|float) real;", source).group(1)
        text = "\n".join(
            [
                f"typedef {real} real;",
                f'#include "{HERE / "shim.h"}"',
                source,
                *map(_runner, _KERNEL.finditer(source)),
            ]
        )
        # conjugate gradients run long
        effort = "-O2" if self.effort == "-O1" and len(text) < 50_000 else self.effort
        code = ctypes.CDLL(str(built.library(text, effort)))

        def get_kernel(entry):
            kernel = getattr(code, f"run_{entry}")
            kernel.handle = entry
            kernel.occupancy = types.SimpleNamespace(
                max_active_blocks_per_multiprocessor=lambda threads, shared: 1
            )
            return kernel

        return types.SimpleNamespace(get_kernel=get_kernel)

    def launch(self, stream, config, kernel, *arguments):
        if not isinstance(stream, GraphBuilder):
            self.counts.calls += 1
            self.counts.streams.append(stream.handle)
        self.put(stream, self._run, config, kernel, arguments)

    def _run(self, config, kernel, arguments):
        numbers, message = (ctypes.c_long * 5)(), ctypes.create_string_buffer(256)
        passed = [
            ctypes.c_int(int(x)) if isinstance(x, np.int32) else ctypes.c_void_p(x)
            for x in arguments
        ]
        kernel(*config, self.order, *passed, numbers, message)
        found, r = Report(*numbers, message.value.decode()), self.report
        for field_ in ("races", "unwritten", "outside", "divergent", "barriers"):
            setattr(r, field_, getattr(r, field_) + getattr(found, field_))
        r.message = r.message or (found.message and f"{kernel.__name__}: {found.message}")
        self.launches[kernel.__name__] = self.launches.get(kernel.__name__, 0) + 1


class Lying:
    """An array that lies on a device of the shim, whose memory is the host's."""

    def __init__(self, memory: np.ndarray, number: int = 0, readonly: bool = False):
        self.memory, self.number, self.readonly = memory, number, readonly
        self.shape, self.dtype = memory.shape, memory.dtype

    def __dlpack_device__(self):
        return (2, self.number)

    def __array_namespace__(self):
        return types.SimpleNamespace(from_dlpack=lambda view: Lying(view.memory, self.number))

    def __dlpack__(self, **options):
        return self.memory.__dlpack__(**options)


def _runner(kernel: re.Match) -> str:
    name, arguments = kernel.group(1), kernel.group(2)
    passed = ", ".join(re.search(r"(\w+)\s*$", a).group(1) for a in arguments.split(","))
    return f"""extern "C" void run_{name}(int shim_a, int shim_b, int shim_d, int shim_c, {arguments}, long *shim_n, char *shim_m) {{
  shim_found = {{}};
  shim_message[0] = 0;
  if (shim_d)
    shim_launch_together(shim_a, shim_b, shim_c, [=] {{ {name}({passed}); }});
  else
    shim_launch(shim_a, shim_b, shim_c, [=] {{ {name}({passed}); }});
  const long found[5] = {{shim_found.races, shim_found.unwritten, shim_found.outside, shim_found.divergent, shim_found.barriers}};
  for (int i = 0; i < 5; ++i) shim_n[i] = found[i];
  for (int i = 0; i < 256; ++i) shim_m[i] = shim_message[i];
}}"""
