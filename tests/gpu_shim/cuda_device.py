"""A CUDA device that is none: what `runtime.gpu_solver` calls of cuda-core, with kernels run by the shim."""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
import types
from pathlib import Path

import numpy as np

from gpu_shim.runner import CXX, HERE, Report

_KERNEL = re.compile(r"KERNEL THREADS\(\w+\) (\w+)\(([^)]*)\)\s*\{")


class FakeBuffer:
    def __init__(self, size: int):
        self.memory = np.full(size, 0xFF, np.uint8)  # NaN, until someone writes
        self.handle = self.memory.ctypes.data

    def fill(self, value, stream):
        self.memory[...] = value

    def copy_from(self, other, stream):
        self.memory[...] = other.memory

    def copy_to(self, other, stream):
        other.memory[...] = self.memory


class ShimDevice:
    """Stands for a CudaDevice, for its device, its streams, its pinned memory and for cuda-core. `change` edits the source: that is how bugs are planted."""

    name, arch = "the shim", "80"

    def __init__(self, folder: Path, order: int = 0, change=lambda text: text, effort: str = "-O0"):
        self.folder, self.order, self.change, self.effort = folder, order, change, effort
        self.device = self.core = self.pinned = self
        self.streams = [self]
        self.report = Report(0, 0, 0, 0, 0, "")
        self.launches: dict[str, int] = {}

    def shared_limit(self):
        return 99 * 1024

    def set_current(self):
        pass

    def sync(self):
        pass

    def allocate(self, size, stream=None):
        return FakeBuffer(size)

    def LaunchConfig(self, grid, block, shmem_size):
        return grid, block

    def compile_cubin(self, source: str, arch: str):
        """In place of NVRTC."""
        source = self.change(source)
        real = re.search(r"typedef (double|float) real;", source).group(1)
        text = "\n".join([f"typedef {real} real;", f'#include "{HERE / "shim.h"}"', source, *map(_runner, _KERNEL.finditer(source))])
        effort = "-O2" if self.effort == "-O1" and len(text) < 50_000 else self.effort  # conjugate gradients run long
        name = hashlib.sha256((text + effort).encode()).hexdigest()[:16]
        path, library = self.folder / f"{name}.cpp", self.folder / f"{name}.so"
        if not library.exists():
            path.write_text(text)
            subprocess.run(
                [CXX, "-std=c++17", effort, "-fno-math-errno", "-ffp-contract=off", "-w", "-shared", "-fPIC", "-o", library, path],
                check=True,
            )
        code = ctypes.CDLL(str(library))
        return types.SimpleNamespace(get_kernel=lambda entry: getattr(code, f"run_{entry}"))

    def launch(self, stream, config, kernel, *arguments):
        numbers, message = (ctypes.c_long * 5)(), ctypes.create_string_buffer(256)
        passed = [ctypes.c_int(int(x)) if isinstance(x, np.int32) else ctypes.c_void_p(x) for x in arguments]
        kernel(*config, self.order, *passed, numbers, message)
        found, r = Report(*numbers, message.value.decode()), self.report
        for field in ("races", "unwritten", "outside", "divergent", "barriers"):
            setattr(r, field, getattr(r, field) + getattr(found, field))
        r.message = r.message or (found.message and f"{kernel.__name__}: {found.message}")
        self.launches[kernel.__name__] = self.launches.get(kernel.__name__, 0) + 1


def _runner(kernel: re.Match) -> str:
    name, arguments = kernel.group(1), kernel.group(2)
    passed = ", ".join(re.search(r"(\w+)\s*$", a).group(1) for a in arguments.split(","))
    return f"""extern "C" void run_{name}(int shim_a, int shim_b, int shim_c, {arguments}, long *shim_n, char *shim_m) {{
  shim_found = {{}};
  shim_message[0] = 0;
  shim_launch(shim_a, shim_b, shim_c, [=] {{ {name}({passed}); }});
  const long found[5] = {{shim_found.races, shim_found.unwritten, shim_found.outside, shim_found.divergent, shim_found.barriers}};
  for (int i = 0; i < 5; ++i) shim_n[i] = found[i];
  for (int i = 0; i < 256; ++i) shim_m[i] = shim_message[i];
}}"""
