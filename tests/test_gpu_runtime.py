"""What `robot.to("cuda")` and solvers ask of CUDA, on a device that is none and counts: bytes that
are copied, allocations, launches, and where arrays lie.
"""

from __future__ import annotations

import numpy as np
import pytest
from gpu_shim.cuda_device import Counts, Lying
from gpu_shim.runner import CXX

import rigidgrad as rg
from rigidgrad import errors
from rigidgrad.runtime import formulation, gpu_cuda

pytestmark = pytest.mark.skipif(not CXX, reason="there is no C++ compiler for the CUDA shim")


def states(robot, count, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, (count, robot.nv)).astype(dtype) for _ in range(3)]


def close(found, expected, tolerance):
    for x, y in zip(found, expected, strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        assert np.max(abs(x - y)) <= tolerance * np.max(abs(y))


def test_a_call_copies_what_it_needs_and_allocates_once(mock_cuda):
    """One state of iiwa14's gradient in float32 is 672 bytes."""
    robot = rg.load("iiwa14")
    device, counts = robot.to("cuda", shape="block"), mock_cuda.counts
    many, one = states(robot, 600), states(robot, 1, seed=1)
    close(device.aba_derivatives(*many), robot.aba_derivatives(*many), 1e-4)
    assert sum(counts.copies) > 400_000
    counts.reset()
    for _ in range(3):
        close(device.aba_derivatives(*one), robot.aba_derivatives(*one), 1e-4)
    assert counts.allocations == 0 and counts.calls == 3 and counts.waits == 3
    assert len(counts.copies) == 6  # one each way
    assert 672 <= sum(counts.copies) / 3 <= 1024
    device.aba_derivatives(*many)
    assert counts.allocations == 0
    assert not mock_cuda.report.message


def test_chunks_reach_every_row_and_rows_may_repeat(mock_cuda, monkeypatch):
    monkeypatch.setattr(gpu_cuda, "CHUNK_BYTES", 20_000)
    robot = rg.load("double_pendulum")
    device = robot.to("cuda", shape="thread")
    q, v, a = states(robot, 2000, np.float64)
    close([device.rnea(q, v[0], a)], [robot.rnea(q, v[0], a)], 1e-12)
    assert mock_cuda.counts.calls > 3 and len(set(mock_cuda.counts.streams)) == 2
    apart = np.empty((2000, 4))[:, ::2]  # not contiguous
    assert device.rnea(q, v, a, out=apart) is apart
    close([apart], [robot.rnea(q, v, a)], 1e-12)
    assert device.energy(q[0], v[0]).kinetic.shape == ()
    # results a row below the inputs that they come from
    rows = np.vstack([q, np.zeros((1, 2))])
    device.rnea(rows[:-1], v, a, out=rows[1:])
    close([rows[1:]], [robot.rnea(q, v, a)], 1e-12)


def test_loops_compute_in_memory_that_is_kept(mock_cuda, monkeypatch):
    """Those of large robots; here of a small one's tensors, in chunks on two streams."""
    monkeypatch.setattr(formulation, "_TENSOR_LOOPS_FROM", 1)
    monkeypatch.setattr(gpu_cuda, "CHUNK_BYTES", 20_000)
    robot, counts = rg.load("double_pendulum"), mock_cuda.counts
    device = robot.to("cuda", shape="thread")
    many = states(robot, 300, np.float64)
    expected = rg.load("double_pendulum", engine="numpy").rnea_second_derivatives(*many)
    for _ in range(2):
        counts.reset()
        close(device.rnea_second_derivatives(*many), expected, 1e-12)
    assert counts.allocations == 0 and counts.calls > 1 and len(set(counts.streams)) == 2
    assert not mock_cuda.report.message


def test_arrays_on_the_device_are_not_copied(mock_cuda):
    robot = rg.load("iiwa14")
    device, counts = robot.to("cuda"), mock_cuda.counts
    given = states(robot, 5)
    lying = [Lying(x) for x in given]
    found = device.aba_derivatives(*lying)
    close([x.memory for x in (found.dq, found.dv, found.dtau)], robot.aba_derivatives(*given), 1e-4)
    assert counts.copies == [] and counts.allocations == 3 and counts.waits == 1
    out = tuple(Lying(np.empty((5, 7, 7), np.float32)) for _ in range(3))
    counts.reset()
    assert device.aba_derivatives(*lying, out=out) is out
    close([x.memory for x in out], robot.aba_derivatives(*given), 1e-4)
    assert counts.copies == [] and counts.allocations == 0 and counts.waits == 1
    tau = Lying(np.empty((5, 7), np.float32))
    assert device.rnea(*lying, out=tau) is tau


class Theirs:
    """A stream of another library."""

    def __cuda_stream__(self):
        return (0, 77)


@pytest.mark.parametrize("stream", [Theirs(), type("Cupy", (), {"ptr": 77})(), 77])
def test_a_stream_of_the_caller_takes_all_work_and_nobody_waits(mock_cuda, stream):
    robot = rg.load("double_pendulum")
    device, counts = robot.to("cuda", stream=stream), mock_cuda.counts
    given = states(robot, 5)
    out = Lying(np.empty((5, 2), np.float32))
    device.rnea(*[Lying(x) for x in given], out=out)
    assert counts.waits == 0 and counts.streams == [77]
    close([out.memory], [robot.rnea(*given)], 1e-5)
    close([device.rnea(*given)], [robot.rnea(*given)], 1e-5)  # from the host: waits for the result
    assert counts.waits == 1 and counts.streams == [77, 77]


def test_wrong_arrays_and_streams_are_refused(mock_cuda):
    robot = rg.load("double_pendulum")
    device = robot.to("cuda", device=1)
    q, v, a = states(robot, 5)

    def lying(*arrays, number=1):
        return [Lying(x, number) for x in arrays]

    with pytest.raises(errors.InputError, match=r"q lies on CUDA device 0, .* device=0"):
        device.rnea(*lying(q, v, a, number=0))
    with pytest.raises(errors.InputError, match="v is not contiguous"):
        device.rnea(*lying(q, np.empty((5, 4), np.float32)[:, ::2], a))
    with pytest.raises(errors.InputError, match="check= is for arrays on the host"):
        device.rnea(*lying(q, v, a), check=True)
    empty = np.empty((5, 2), np.float32)
    for out, message in (
        (empty, "lies on the host"),
        (Lying(np.empty((5, 3), np.float32), 1), "must be float32"),
        (Lying(np.empty((5, 2)), 1), "must be float32"),
        (Lying(empty, 1, readonly=True), "read-only"),
        (Lying(q, 1), "out for tau and q share memory"),
        (Lying(empty, 0), "lies on CUDA device 0"),
    ):
        with pytest.raises(errors.InputError, match=message):
            device.rnea(*lying(q, v, a), out=out)
    same = Lying(np.empty((5, 2, 2), np.float32), 1)
    with pytest.raises(errors.InputError, match="out for dv and out for dq share"):
        device.rnea_derivatives(*lying(q, v, a), out=(same, same, same))
    with pytest.raises(errors.InputError, match="must be 3 arrays"):
        device.rnea_derivatives(*lying(q, v, a), out=same)
    with pytest.raises(errors.InputError, match="stream is a CUDA stream"):
        robot.to("cuda", stream="fast")
    with pytest.raises(errors.InputError, match="stream= is for"):
        robot.to("opencl", stream=77)


# --- solvers ----------------------------------------------------------------------------------


def swing(**options):
    robot = rg.load("double_pendulum")
    costs = [rg.costs.State([1.0, -0.5, 0, 0], weight=0.1, final=100.0), rg.costs.Effort(1e-3)]
    return rg.Problem(robot, start=np.zeros(4), steps=10, dt=0.03, costs=costs, **options)


@pytest.mark.parametrize(
    "make", [rg.PDDP, lambda **o: rg.Direct(linear_solver="pcg", **o)], ids=["pddp", "direct"]
)
def test_a_round_of_a_solver_is_one_graph_one_copy_and_one_wait(shim, make):
    device = shim()
    found = []
    for most in (2, 5):
        device.counts = Counts()
        solution = rg.solve(swing(), make(device="cuda", iterations=most, tolerance=0.0))
        last = "run_solver_select" if make is rg.PDDP else "run_solver_judge"
        rounds = device.launches[last] - 1  # one is the guess's
        assert solution.iterations <= most <= rounds and device.counts.graphs == 1
        found.append((rounds, device.counts))
    (a, first), (b, second) = found
    assert b > a and device.report.clean
    for key in ("calls", "waits"):
        assert getattr(second, key) - getattr(first, key) == b - a, key
    assert len(second.copies) - len(first.copies) == b - a
    assert second.allocations == first.allocations
    kernels = sum(second.launches.values()) - sum(first.launches.values())
    assert kernels == (b - a) * (5 if make is rg.PDDP else 8)
