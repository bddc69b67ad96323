"""Kernels in the interpreter: compiled by NVRTC, run on rows of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from ptx.counts import Report
from ptx.machine import Program
from ptx.memory import Findings
from rigidgrad.targets.gpu.kernel import Kernel

STATIC_BYTES = 48 * 1024
ARCHITECTURE = "compute_80"


@cache
def compiled(source: str, arch: str = ARCHITECTURE) -> str:
    """The PTX that NVRTC makes of a source."""
    from cuda.bindings import nvrtc

    def done(result):
        if result[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            size = nvrtc.nvrtcGetProgramLogSize(program)[1]
            log = bytearray(size)
            nvrtc.nvrtcGetProgramLog(program, log)
            raise RuntimeError(log.decode())
        return result[1] if len(result) > 1 else None

    program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])[1]
    options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17"]
    done(nvrtc.nvrtcCompileProgram(program, len(options), options))
    text = bytearray(done(nvrtc.nvrtcGetPTXSize(program)))
    done(nvrtc.nvrtcGetPTX(program, text))
    nvrtc.nvrtcDestroyProgram(program)
    return text.rstrip(b"\0").decode()


@dataclass
class Run:
    outputs: list[np.ndarray]
    findings: Findings
    report: Report


class Interpreted:
    """A kernel in one type of number. `change` edits its PTX, `edit` its source: that is how bugs
    are planted.
    """

    def __init__(
        self,
        kernel: Kernel,
        dtype: str,
        change: Callable[[str], str] = lambda text: text,
        edit: Callable[[str], str] = lambda text: text,
    ):
        self.kernel, self.dtype = kernel, np.dtype(dtype)
        self.program = Program(change(compiled(edit(kernel.source("cuda", dtype)))))

    def run(self, inputs, *, blocks: int | None = None, order: int = 0) -> Run:
        kernel, count = self.kernel, len(inputs[0])
        arrays = [np.ascontiguousarray(x, self.dtype).reshape(count, -1) for x in inputs]
        arrays += [
            np.full((count, math.prod(s)), np.nan, self.dtype) for s in kernel.outputs.values()
        ]
        shared = kernel.shared_bytes(self.dtype.name)
        arrays, counts, findings = self.program.launch(
            kernel.entry,
            blocks or kernel.blocks(count),
            kernel.threads,
            [np.int32(count)],
            arrays,
            dynamic=shared if shared > STATIC_BYTES else 0,
            order=order,
        )
        outputs = [
            x.reshape(count, *s)
            for x, s in zip(arrays[len(inputs) :], kernel.outputs.values(), strict=True)
        ]
        return Run(outputs, findings, counts.report(count))
