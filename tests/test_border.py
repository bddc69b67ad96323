"""The border between Python and compiled code: no call, however odd its arrays, reads or writes
memory that is not its own.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import InputError
from rigidgrad.program.recorder import record
from rigidgrad.runtime import code, lanes
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.job import Job
from rigidgrad.runtime.shared import Shared
from rigidgrad.targets import llvm_rows


def run(code: str, *flags: str) -> str:
    """What a process prints that must not crash."""
    result = subprocess.run(
        [sys.executable, *flags, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, (result.returncode, result.stderr[-2000:])
    return result.stdout


def compiled(name: str, inputs, outputs, evaluate, **options) -> Compiled:
    return Compiled(
        Job(name, "tests", name, lambda: record(inputs, outputs, evaluate), **options),
        threads=1,
    )


# --- many arrays ----------------------------------------------------------------------------------

WRENCHES = """
import numpy as np, rigidgrad as rg
robot, reference = rg.load("hyq"), rg.load("hyq", engine="numpy")
rng = np.random.default_rng(0)
for batch in ((), (9,)):
    state = robot.random(batch, seed=1)
    external = {link: rng.normal(size=(*batch, 6)) for link in robot.frames[:COUNT]}
    for function in ("rnea", "rnea_derivatives"):
        for _ in range(2):  # the first call is not yet the fast one
            found = getattr(robot, function)(*state, external=external)
        expected = getattr(reference, function)(*state, external=external)
        for x, y in zip(found, expected) if function != "rnea" else ((found, expected),):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
print("fine")
"""


@pytest.mark.parametrize("count", [19, 25])
def test_a_call_may_have_any_number_of_arrays(count):
    assert run(WRENCHES.replace("COUNT", str(count))) == "fine\n"


MANY = """
import numpy as np
from rigidgrad.program.recorder import record
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.job import Job

names = [f"x{k}" for k in range(800)]
build = lambda: record(dict.fromkeys(names, (1,)), {"y": (1,)}, lambda v: ((sum(v[n][0] for n in names),),))
add = Compiled(Job("add", "tests", "add", build), threads=1)
values = np.random.default_rng(0).normal(size=(800, 5, 1))
for _ in range(2):
    np.testing.assert_allclose(add(*values), values.sum(axis=0), rtol=1e-12)
print("fine")
"""


def test_more_arrays_than_an_entry_ever_holds_go_the_general_way():
    assert run(MANY) == "fine\n"


# --- large results --------------------------------------------------------------------------------

SMALL_STACK = """
import threading, numpy as np
from rigidgrad.program.recorder import record
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.job import Job

def evaluate(values):
    x = values["x"][0]
    return (tuple(x if k % 2 else x + 1 for k in range(3000)),)

wide = Compiled(Job("wide", "tests", "wide", lambda: record({"x": (1,)}, {"y": (3000,)}, evaluate), width=16), threads=1)
x = np.arange(35.0)[:, None]  # two whole blocks of lanes and a part of one; the lanes of a block take 384 kB

def work():
    for _ in range(3):
        y = wide(x)
        assert (y[:, 1::2] == x).all() and (y[:, ::2] == x + 1).all()
    done.append("fine")

done = []
wide.inputs  # compiled on a large stack
threading.stack_size(256 * 1024)
threads = [threading.Thread(target=work) for _ in range(2)]
[t.start() for t in threads], [t.join() for t in threads]
print(*done)
"""


def test_lanes_of_large_results_are_not_on_the_stack():
    assert run(SMALL_STACK) == "fine fine\n"


# --- odd outputs ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cube() -> Compiled:
    """An output of three axes."""

    def evaluate(values):
        x = values["x"][0]
        return (tuple(tuple(tuple(x for _ in range(4)) for _ in range(3)) for _ in range(2)),)

    function = compiled("cube", {"x": (1,)}, {"y": (2, 3, 4)}, evaluate)
    function(np.zeros(1)), function(np.zeros((5, 1)))
    return function


@pytest.mark.parametrize("batch", [(), (5,)])
@pytest.mark.parametrize(
    "shape",
    [(2, 3, 1), (2, 3, 5), (2, 1, 4), (1, 3, 4), (5, 3, 4), (2, 3), (3, 2, 4), (2, 3, 4, 1)],
)
def test_every_axis_of_an_output_is_checked(cube, batch, shape):
    around = np.full(1000, 7.0)
    out = around[: np.prod(batch + shape, dtype=int)].reshape(batch + shape)
    with pytest.raises(InputError, match=r"out for y is float64.*it must be float64"):
        cube(np.ones((*batch, 1)), out=out)
    assert (around == 7.0).all()
    right = np.empty((*batch, 2, 3, 4))
    assert cube(np.ones((*batch, 1)), out=right) is right and (right == 1.0).all()


@pytest.fixture(scope="module", params=["lanes", "numpy"])
def arm(request):
    robot = rg.load("double_pendulum", engine=request.param)
    state = robot.random(4, seed=0)
    return robot, state, robot.aba_derivatives(*state)


def matrices(count: int = 3) -> list[np.ndarray]:
    return [np.empty((4, 2, 2)) for _ in range(count)]


@pytest.mark.parametrize(
    ("out", "fragment"),
    [
        (matrices(1)[0], "out is ndarray; it must be a tuple of 3 arrays, for dq, dv, dtau"),
        (np.empty((3, 4, 2, 2)), "out is ndarray"),
        (7, "out is int"),
        ("abc", "out is str"),
        ({"dq": matrices(1)[0]}, "out is dict"),
        (tuple(matrices(2)), "out has 2 arrays; it needs 3"),
        (tuple(matrices(4)), "out has 4 arrays; it needs 3"),
        ((), "out has 0 arrays"),
        ((*matrices(2), None), "out for dtau is NoneType"),
        ((*matrices(2), [[0.0]]), "out for dtau is list"),
        ((*matrices(2), bytearray(128)), "out for dtau is bytearray"),
        ((*matrices(2), np.empty((4, 2, 2), np.float32)), r"out for dtau is float32\(4, 2, 2\)"),
        ((*matrices(2), np.empty((4, 2, 2), object)), "out for dtau is object"),
        ((*matrices(2), np.empty((4, 2, 2), ">f8")), "out for dtau is >f8"),
        ((*matrices(2), np.empty((4, 4))), "out for dtau is float64"),
        ((*matrices(2), np.empty((8, 2, 2))[:3]), "out for dtau is float64"),
        ((*matrices(2), np.broadcast_to(np.empty((2, 2)), (4, 2, 2))), "out for dtau is read-only"),
        (
            (
                *matrices(2),
                np.lib.stride_tricks.as_strided(np.empty((2, 2)), (4, 2, 2), (0, 16, 8)),
            ),
            "out for dtau has the same memory",
        ),
        (
            (
                *matrices(2),
                np.lib.stride_tricks.as_strided(np.empty((5, 2)), (4, 2, 2), (16, 16, 8)),
            ),
            "out for dtau has the same memory",
        ),
    ],
)
def test_wrong_outs_say_what_is_wrong(arm, out, fragment):
    robot, state, _ = arm
    with pytest.raises(InputError, match=fragment):
        robot.aba_derivatives(*state, out=out)


def test_two_outputs_on_the_same_memory_are_refused(arm):
    robot, state, expected = arm
    a, b, c = matrices()
    both = np.empty((4, 2, 3))
    for out in (
        (a, a, b),
        (a, b, a),
        (a, b, b[:]),
        (a, b, b[::-1]),
        (a, both[..., :2], both[..., 1:]),
    ):
        with pytest.raises(InputError, match="share memory; each needs its own"):
            robot.aba_derivatives(*state, out=out)
    side = np.empty((4, 2, 6))  # interleaved, and yet apart
    out = side[..., :2], side[..., 2:4], side[..., 4:]
    robot.aba_derivatives(*state, out=out)
    for found, right in zip(out, expected, strict=True):
        np.testing.assert_array_equal(found, right)
    robot.aba_derivatives(*state, out=(a, b, c))


def test_outputs_on_the_memory_of_inputs_hold_the_results_of_the_inputs_before(arm):
    robot, state, _ = arm
    expected = robot.rnea(*state)
    block = np.stack(state)
    robot.rnea(*block, out=block[1])
    np.testing.assert_array_equal(block[1], expected)


# --- bound kernels --------------------------------------------------------------------------------

BOUND = """
import numpy as np
from rigidgrad.errors import InputError
from rigidgrad.program.recorder import record
from rigidgrad.runtime import riccati
from rigidgrad.runtime.code import Code
from rigidgrad.runtime.job import Job, Knots

build = lambda: record({"x": (2,)}, {"y": (2,)}, lambda v: ((v["x"][0] + 1, v["x"][1]),))
sweep = Code(Job("step", "tests", "step", build, width=4, knots=Knots()))
good = np.zeros((3, 5, 2, 4))
sweep.bind({"x": good}, {"y": good.copy()})
for bad in (good[:, :, :1], good[:2], good[:, :4], np.zeros((3, 5, 4, 2)).swapaxes(2, 3), good.astype("f4"), np.zeros((3, 5, 2, 8))[..., ::2]):
    try:
        sweep.bind({"x": good}, {"y": bad})
    except InputError as error:
        print("refused")
try:
    riccati.bind(None, {"ranges": np.zeros((4, 4)).T[:3]})
except InputError as error:
    print(error)
"""


def test_buffers_of_bound_kernels_are_checked_without_assertions_too():
    assert run(BOUND, "-O").splitlines() == ["refused"] * 6 + [
        "buffers of a backward pass are contiguous; these are not: ranges"
    ]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("function", ["rnea", "aba_derivatives", "jacobian_derivative"])
def test_buffers_on_the_heap_and_batches_in_pieces_give_the_same_bits(
    monkeypatch, function, streaming
):
    robot = rg.load("iiwa14", gravity=(0.5, 0, -9))
    options = {"frame": robot.frames[-1]} if function == "jacobian_derivative" else {}
    state = robot.random(301, seed=0)[: 2 if options else 3]
    whole = robot.compile(function, threads=1, **options)(*state)
    monkeypatch.setenv("RIGIDGRAD_CACHE", "off")  # the key knows nothing of what is changed here
    monkeypatch.setattr(llvm_rows, "_MOST_STACK", 0)
    monkeypatch.setattr(code, "_codes", Shared())
    monkeypatch.setattr(lanes, "_PIECE_NS", 1)
    if streaming:
        monkeypatch.setattr(lanes, "STREAM_BYTES", 0)
        monkeypatch.setattr(lanes, "STREAM_ROWS", 1)
        monkeypatch.setattr(lanes, "_STREAM_ROW", 0)
        monkeypatch.setattr(lanes, "_STREAM_FLOPS", 10**9)
    fast = robot.compile(function, threads=2, **options)
    found = fast(*state)
    assert "@no_memory" in fast.llvm
    streamed = any(isinstance(kind, tuple) for _, kind in fast._entries)
    # rows of the others are no whole 16 bytes
    assert streamed == (streaming and function == "jacobian_derivative")
    for x, y in zip(found, whole, strict=True) if isinstance(whole, tuple) else [(found, whole)]:
        np.testing.assert_array_equal(x, y)
