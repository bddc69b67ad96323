"""Kernels by a block of threads: what the interpreter gives, whatever the number of threads, by the
CUDA shim without races and by PoCL; barriers stand where they are needed and nowhere else.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_gpu_solvers import needs_shim
from test_kernel_rounds import (
    TOLERANCE as ROUNDS,
    check as check_rounds,
    conjugate_gradients,
    systems,
)
from test_kernels import everything

from rigidgrad.kernels.interpret import interpret
from rigidgrad.runtime.gpu_solver import open_session
from rigidgrad.targets.gpu.block_kernel import BlockLoops
from rigidgrad.targets.gpu.kernel import Kernel as GpuKernel

WIDTHS = [1, 7, 32, 64]
BLOCKS = 3  # fewer than states, so that shared memory is used again
TOLERANCE = {"float64": 1e-13, "float32": 1e-5}


def on_device(name, kernel, inputs, dtype, threads=64, most=4000):
    """The outputs of a kernel for rows of its inputs."""
    session = open_session(name, dtype)
    f = GpuKernel("f", BlockLoops("f", kernel, threads, most))
    session.load(
        f.source(session.language, dtype), {f.entry: (threads, f.function.shared_bytes(dtype))}
    )
    count = len(next(iter(inputs.values())))

    def array(size, values=None):
        found = session.array(*size)
        found.write(np.full(size, 7.0) if values is None else values)
        return found

    ins = [array((count, a.size), inputs[a.name]) for a in kernel.of("input")]
    outs = [array((count, a.size)) for a in kernel.of("output")]
    session.launch(f.entry, BLOCKS, count, *ins, *outs, array((BLOCKS, max(f.work, 1))))
    return {a.name: x.read() for a, x in zip(kernel.of("output"), outs, strict=True)}


def random_numbers(kernel, count=5):
    rng = np.random.default_rng(0)
    return {a.name: rng.normal(size=(count, a.size)) for a in kernel.of("input")}


@needs_shim
@pytest.mark.parametrize("threads", WIDTHS)
@pytest.mark.parametrize(("rows", "columns", "terms"), [(1, 1, 1), (5, 4, 14), (13, 7, 20)])
def test_blocks_of_any_width_give_what_the_interpreter_gives(shim, rows, columns, terms, threads):
    k = everything(rows, columns, terms)
    inputs = random_numbers(k)
    expected, device = interpret(k, inputs), shim()
    found = on_device("cuda", k, inputs, "float64", threads)
    assert device.report.clean, device.report
    for name, x in expected.items():
        assert np.abs(found[name] - x).max() <= 1e-13 * max(1.0, np.abs(x).max()), name


@needs_shim
@pytest.mark.parametrize("threads", WIDTHS)
def test_rounds_end_by_themselves(shim, threads):
    k, device = conjugate_gradients(ROUNDS["float64"]), shim(order=1)
    A, b = systems()
    found = on_device("cuda", k, {"A": A.reshape(len(A), -1), "b": b}, "float64", threads)
    assert device.report.clean, device.report
    check_rounds(found.values(), A, b, "float64")
