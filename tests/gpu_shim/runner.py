"""Kernels on the CPU: generated CUDA text behind `shim.h`, compiled by the host's C++ compiler."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass

import numpy as np

from gpu_shim import built
from gpu_shim.built import CXX, HERE
from rigidgrad.targets.gpu import block_code
from rigidgrad.targets.gpu.block import BlockFunction
from rigidgrad.targets.gpu.kernel import Kernel

__all__ = ["CXX", "HERE", "Library", "Report"]
GUARD = 64  # numbers around each array: what is written there, or read from there, shows


@dataclass
class Report:
    """What the checker found; `barriers` is how many a launch met."""

    races: int
    unwritten: int
    outside: int
    divergent: int
    barriers: int
    message: str

    @property
    def clean(self) -> bool:
        return not (self.races or self.unwritten or self.outside or self.divergent)


class Library:
    """Kernels of one robot in one shared library. `change` edits the generated text: that is how
    bugs are planted.
    """

    def __init__(self, kernels: list[Kernel], dtype: str, change=lambda text: text):
        self.kernels, self.dtype = {(k.prefix, k.shape): k for k in kernels}, np.dtype(dtype)
        real = "double" if dtype == "float64" else "float"
        parts = [f"typedef {real} real;", f'#include "{HERE / "shim.h"}"']
        models = [k.function.model for k in kernels if isinstance(k.function, BlockFunction)]
        if models:
            parts += [block_code.common_code(), block_code.robot_code(models[0])]
        parts += [k.text() for k in kernels]
        text = change("\n".join(parts)) + "\n" + "\n".join(_entry(k, real) for k in kernels)
        self.code = ctypes.CDLL(str(built.library(text, "-O1")))

    def run(self, name, shape, inputs, *, order=0, blocks=3, threads=None):
        """The outputs and the checker's report."""
        kernel = self.kernels[name, shape]
        count = len(inputs[0])
        arrays = [_guarded(np.asarray(x, self.dtype)) for x in inputs]
        arrays += [
            _guarded(np.zeros((count, math.prod(s)), self.dtype)) for s in kernel.outputs.values()
        ]
        work = [_guarded(np.full(kernel.work * kernel.threads * blocks, np.nan, self.dtype))]
        numbers, message = (ctypes.c_long * 5)(), ctypes.create_string_buffer(256)
        results = slice(len(inputs), len(arrays))
        arrays += work if kernel.work else []
        pointers = [ctypes.c_void_p(a.ctypes.data + GUARD * a.itemsize) for a in arrays]
        getattr(self.code, f"run_{kernel.entry}")(
            blocks, threads or kernel.threads, order, count, *pointers, numbers, message
        )
        report = Report(*numbers, message.value.decode())
        outputs = []
        for a in arrays[len(inputs) :]:
            if not (np.isnan(a[:GUARD]).all() and np.isnan(a[-GUARD:]).all()):
                report.outside += 1
        for a, shape_ in zip(arrays[results], kernel.outputs.values(), strict=True):
            outputs.append(a[GUARD:-GUARD].reshape(count, *shape_))
        return outputs, report


def _guarded(x: np.ndarray) -> np.ndarray:
    edge = np.full(GUARD, np.nan, x.dtype)
    return np.concatenate([edge, np.ascontiguousarray(x).ravel(), edge])


def _entry(kernel: Kernel, real: str) -> str:
    ins = [f"const {real} *{name}" for name in kernel.names[0].values()]
    outs = [f"{real} *{name}" for name in kernel.names[1].values()]
    passed = ", ".join((*kernel.names[0].values(), *kernel.names[1].values()))
    if kernel.work:
        outs, passed = [*outs, f"{real} *work"], f"{passed}, work"
    return f"""extern "C" void run_{kernel.entry}(int blocks, int threads, int order, int count, {", ".join(ins + outs)}, long *numbers, char *message) {{
  shim_found = {{}};
  shim_message[0] = 0;
  shim_launch(blocks, threads, order, [=] {{ {kernel.entry}(count, {passed}); }});
  const long found[5] = {{shim_found.races, shim_found.unwritten, shim_found.outside, shim_found.divergent, shim_found.barriers}};
  for (int k = 0; k < 5; ++k) numbers[k] = found[k];
  for (int k = 0; k < 256; ++k) message[k] = shim_message[k];
}}"""
