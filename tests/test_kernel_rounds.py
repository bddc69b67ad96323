"""Rounds until done: each state ends by itself, for a reason, and what it has then it keeps, on
every target.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_kernel_code import CLibrary
from test_kernels import run
from test_target_c import needs_compiler

from rigidgrad.codegen import write
from rigidgrad.kernels.interpret import interpret
from rigidgrad.kernels.language import Kernel
from rigidgrad.program.fuse import fuse
from rigidgrad.program.recorder import record
from rigidgrad.targets import c
from rigidgrad.targets.gpu.kernel import Kernel as GpuKernel
from rigidgrad.targets.gpu.thread_kernel import LoopFunction

N, LIMIT, TOLERANCE, INDEFINITE = 5, 12, {"float64": 1e-18, "float32": 1e-9}, 3


def numbers(inputs, outputs, function):
    return fuse(
        record(
            dict.fromkeys(inputs, ()), dict.fromkeys(outputs, ()), lambda v: tuple(function(**v))
        )
    )


def conjugate_gradients(tolerance: float) -> Kernel:
    """x of A x = b; stops where pᵀAp is not positive."""
    k = Kernel()
    A, b, x = k.input("A", N, N), k.input("b", N), k.output("x", N)
    done, failed, rounds = k.output("done", 1), k.output("failed", 1), k.output("rounds", 1)
    r, p, q = (k.scratch(name, N) for name in "rpq")
    rr, pq, new, alpha, beta = (k.scratch(name, 1) for name in ("rr", "pq", "new", "alpha", "beta"))
    start = numbers(["b"], ["x", "r", "p"], lambda b: (0.0, b, b))
    with k.each(N) as i:
        k.call(start, {"b": b.at(i, 1)}, {"x": x.at(i, 1), "r": r.at(i, 1), "p": p.at(i, 1)})
    k.call(numbers([], ["n"], lambda: (0.0,)), {}, {"n": rounds.at(0, 1)})
    k.product(rr.matrix(1, 1), r.matrix(1, N), r.matrix(N, 1))
    step = numbers(["a", "x", "y"], ["z"], lambda a, x, y: (x + a * y,))
    ratio = numbers(["a", "b"], ["c", "d"], lambda a, b: (a / b, -(a / b)))
    minus = k.scratch("minus", 1)
    with k.until(LIMIT, done, failed):
        k.call(
            numbers(["n"], ["m"], lambda n: (n + 1.0,)),
            {"n": rounds.at(0, 1)},
            {"m": rounds.at(0, 1)},
        )
        k.product(q.matrix(N, 1), A.matrix(N, N), p.matrix(N, 1))
        k.product(pq.matrix(1, 1), p.matrix(1, N), q.matrix(N, 1))
        k.require(pq.at(0, 1), INDEFINITE)
        k.call(
            ratio, {"a": rr.at(0, 1), "b": pq.at(0, 1)}, {"c": alpha.at(0, 1), "d": minus.at(0, 1)}
        )
        with k.each(N) as i:
            k.call(step, {"a": alpha.at(0, 1), "x": x.at(i, 1), "y": p.at(i, 1)}, {"z": x.at(i, 1)})
            k.call(step, {"a": minus.at(0, 1), "x": r.at(i, 1), "y": q.at(i, 1)}, {"z": r.at(i, 1)})
        k.product(new.matrix(1, 1), r.matrix(1, N), r.matrix(N, 1))
        k.call(
            ratio, {"a": new.at(0, 1), "b": rr.at(0, 1)}, {"c": beta.at(0, 1), "d": minus.at(0, 1)}
        )
        with k.each(N) as i:
            k.call(step, {"a": beta.at(0, 1), "x": r.at(i, 1), "y": p.at(i, 1)}, {"z": p.at(i, 1)})
        end = numbers(["s"], ["rr", "done"], lambda s: (s, (s < tolerance).select(1.0, 0.0)))
        k.call(end, {"s": new.at(0, 1)}, {"rr": rr.at(0, 1), "done": done.at(0, 1)})
    return k


def systems(count=23):
    """Well conditioned ones, which end after one to five rounds: the k-th has 1 + k mod 5 different
    eigenvalues; each seventh is indefinite.
    """
    rng = np.random.default_rng(0)
    A = np.empty((count, N, N))
    for k in range(count):
        Q = np.linalg.qr(rng.normal(size=(N, N)))[0]
        eigenvalues = 1.0 + np.minimum(np.arange(N), k % 5)
        A[k] = Q @ np.diag(-eigenvalues if k % 7 == 6 else eigenvalues) @ Q.T
    return A, rng.normal(size=(count, N))


def check(found, A, b, dtype):
    x, done, failed, rounds = (np.asarray(y).reshape(len(A), -1) for y in found)
    indefinite = np.arange(len(A)) % 7 == 6
    assert np.array_equal(failed[:, 0], np.where(indefinite, INDEFINITE, 0))
    assert np.array_equal(done[:, 0], np.ones(len(A)))
    # the round that failed is undone
    assert np.all(x[indefinite] == 0) and np.all(rounds[indefinite] == 0)
    fine = ~indefinite
    solved = np.linalg.solve(A[fine].astype(float), b[fine].astype(float)[..., None])[..., 0]
    assert np.abs(x[fine] - solved).max() < (1e-8 if dtype == "float64" else 1e-3)
    assert len({*rounds[fine, 0]}) >= 4 and rounds.max() < LIMIT


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_each_state_ends_by_itself_and_keeps_what_it_has(dtype):
    k = conjugate_gradients(TOLERANCE[dtype])
    A, b = (x.astype(dtype) for x in systems())
    check(interpret(k, {"A": A.reshape(len(A), -1), "b": b}).values(), A, b, dtype)
    inputs = {"A": A, "b": b}
    together = run(k, inputs, f"cg_{dtype}", dtype=dtype, width=1)
    check(together, A, b, dtype)
    for width in (2, 4, 8, 16):
        for x, y in zip(
            run(k, inputs, f"cg_{dtype}", dtype=dtype, width=width), together, strict=True
        ):
            assert np.array_equal(x, y), width


@needs_compiler
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_c_has_the_bits_of_lanes(tmp_path, dtype):
    k = conjugate_gradients(TOLERANCE[dtype])
    A, b = (x.astype(dtype) for x in systems())
    write(tmp_path, c.render({"cg": k}, "rounds"))
    library = CLibrary(tmp_path, "rounds", {"cg": k})
    expected = run(k, {"A": A, "b": b}, f"cg_{dtype}", dtype=dtype, width=4)
    for batch in (False, True):
        for x, y in zip(
            library.call("cg", [A, b], np.dtype(dtype).type, batch), expected, strict=True
        ):
            assert np.array_equal(x, y.reshape(x.shape)), batch


def on_opencl(k: Kernel, arrays, dtype):
    """The outputs of a kernel for rows of its inputs, by the first OpenCL device; a test without
    one is skipped.
    """
    cl = pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    try:
        device = next((d for p in cl.get_platforms() for d in p.get_devices()), None)
    except cl.Error:
        device = None
    if device is None:
        pytest.skip("no OpenCL device")
    kernel, context = GpuKernel("f", LoopFunction("f", k)), cl.Context([device])
    program = cl.Program(context, kernel.source("opencl", dtype)).build(["-cl-opt-disable"])
    queue, flags = cl.CommandQueue(context), cl.mem_flags
    inputs = [
        cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=np.ascontiguousarray(x))
        for x in arrays
    ]
    found = [np.full((len(arrays[0]), *shape), 7.0, dtype) for shape in k.outputs.values()]
    outputs = [cl.Buffer(context, flags.READ_WRITE, x.nbytes) for x in found]
    work = cl.Buffer(context, flags.READ_WRITE, kernel.work * kernel.threads * arrays[0].itemsize)
    getattr(program, kernel.entry)(
        queue,
        (kernel.threads,),
        (kernel.threads,),
        np.int32(len(arrays[0])),
        *inputs,
        *outputs,
        work,
    )
    for x, buffer in zip(found, outputs, strict=True):
        cl.enqueue_copy(queue, x, buffer)
    return found


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_opencl_ends_each_state_by_itself(dtype):
    k = conjugate_gradients(TOLERANCE[dtype])
    A, b = (x.astype(dtype) for x in systems())
    found = on_opencl(k, [A, b], dtype)
    check(found, A, b, dtype)
    for x, y in zip(
        found, run(k, {"A": A, "b": b}, f"cg_{dtype}", dtype=dtype, width=4), strict=True
    ):
        assert np.abs(x - y.reshape(x.shape)).max() <= 10 * np.finfo(dtype).eps * np.abs(y).max()


def test_what_require_needs():
    k = Kernel()
    x = k.input("x", 1)
    with pytest.raises(ValueError, match="until"):
        k.require(x.at(0, 1), 1)
    with (
        pytest.raises(ValueError, match="one number"),
        k.until(3, k.output("done", 2), k.output("failed", 1)),
    ):
        pass
