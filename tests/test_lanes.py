"""Compiled kernels: equal to the NumPy reference, the same bits whatever the width, batch or
thread, and never outside their arrays.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from random_trees import random_tree

import rigidgrad as rg
from rigidgrad.algorithms.catalog import FUNCTIONS
from rigidgrad.errors import InputError, UnknownNameError
from rigidgrad.program.recorder import record
from rigidgrad.runtime import code, lanes, native
from rigidgrad.runtime.formulation import program_of
from rigidgrad.runtime.job import function_job
from rigidgrad.runtime.shared import Shared
from rigidgrad.targets import llvm, llvm_lines, llvm_stream

EPS = np.finfo(float).eps
FORWARD = {
    "aba",
    "minv",
    "aba_derivatives",
    "aba_state_derivatives",
    "aba_derivatives_factored",
    "fused_gradient",
}
WIDTHS = (1, 2, 4, 8, 16)


def arguments(robot, name, batch, seed=0):
    """Random inputs of a function, by the names of its inputs."""
    rng = np.random.default_rng(seed)
    s = robot.random(batch, seed=seed)
    tau = rng.normal(size=s.v.shape)
    values = {
        "q": s.q,
        "q0": s.q,
        "v": s.v,
        "a": tau,
        "tau": tau,
        "w": tau[..., ::-1],
        "dv": 0.3 * rng.normal(size=s.v.shape),
    }
    values["q1"] = robot.random(batch, seed=seed + 1).q
    if "minv" in FUNCTIONS[name].inputs:
        values["minv"] = np.linalg.inv(reference(robot).crba(s.q))
    return [values[key] for key in FUNCTIONS[name].inputs]


def reference(robot):
    return rg.Robot(robot.model, engine="numpy")


def options(robot, name):
    function = FUNCTIONS[name]
    return {"frame": robot.frames[-1]} if function.frame else {}


def as_tuple(x):
    return x if isinstance(x, tuple) else (x,)


def call(robot, name, *args, **more):
    function = robot._function(
        name,
        more.pop("external", ()),
        more.pop("frame", None),
        more.pop("expressed_in", "world"),
        False,
    )
    return tuple(x for x in as_tuple(function(*args, **more)) if x is not None)


def robots():
    yield "iiwa14", lambda: rg.load("iiwa14")
    yield "hyq floating", lambda: rg.load("hyq", floating_base=True)
    yield "quadrotor", lambda: rg.load("quadrotor")
    yield "every joint", lambda: every_joint()
    yield "mimic", lambda: every_joint(mimic=True)


def every_joint(mimic=False, floating=False):
    b = rg.Builder("every").link("base", 1.0, (0.1, 0, 0), (1, 1, 1))
    kinds = ["revolute", "prismatic", "spherical", "helical", "planar", "continuous", "floating"]
    parents = ["base", "l0", "l1", "l0", "l3", "base", "l5"]
    rng = np.random.default_rng(5)
    for i, (kind, parent) in enumerate(zip(kinds, parents, strict=True)):
        A = rng.normal(size=(3, 3))
        B = A @ A.T + np.eye(3)
        b.link(f"l{i}", 1.0 + i / 3, rng.normal(size=3) * 0.2, np.trace(B) * np.eye(3) - B)
        axis = None if kind == "planar" else rng.normal(size=3)
        b.joint(
            f"j{i}",
            kind,
            parent,
            f"l{i}",
            rng.normal(size=3) * 0.3,
            rng.uniform(-3, 3, 3),
            axis,
            pitch=0.2,
            armature=0.1,
        )
    if mimic:
        b.link("m", 0.7, (0, 0.1, 0.1), (1, 1, 1)).joint(
            "copy", "revolute", "l3", "m", (0.1, 0, 0), axis=(0, 1, 1), mimic=("j0", -0.5, 0.2)
        )
    return b.build(floating_base=floating, gravity=(1.0, 2.0, -9.0))


@pytest.mark.parametrize(
    ("label", "make"), list(robots()), ids=lambda x: x if isinstance(x, str) else ""
)
def test_every_function_equals_the_reference_to_rounding(label, make):
    robot = make()
    slow = reference(robot)
    for name in (name for name, function in FUNCTIONS.items() if not function.contacts):
        # long to compile: tests/test_second_derivatives.py has small ones of every kind
        if name == "rnea_second_derivatives" and robot.nv > 7:
            continue
        args = arguments(robot, name, (9,), seed=3)
        expected = call(slow, name, *args, **options(robot, name))
        for x, y in zip(call(robot, name, *args, **options(robot, name)), expected, strict=True):
            # inverse-type results differ by the order of sums along a path; forward-type ones by
            # that times cond(M)
            loss = np.linalg.cond(slow.crba(args[0])).max() if name in FORWARD else 10.0
            assert abs(x - y).max(initial=0.0) <= 50 * EPS * loss * max(
                1.0, abs(y).max(initial=0.0)
            ), name


@pytest.mark.parametrize("seed", range(6))
def test_gradients_on_random_trees(seed):
    tree = random_tree(1000 + seed, 4 + 3 * seed)
    robot = tree.builder().build(floating_base=tree.floating, gravity=tuple(tree.gravity))
    slow = reference(robot)
    wrenches = tree.random_wrenches(np.random.default_rng(seed), (5,))
    for name in ("rnea", "aba", "rnea_derivatives", "aba_derivatives"):
        args = arguments(robot, name, (5,), seed=seed)
        cond = np.linalg.cond(slow.crba(args[0])).max() if name in FORWARD else 20.0
        for external in (None, wrenches):
            fast = as_tuple(getattr(robot, name)(*args, external=external))
            for x, y in zip(
                fast, as_tuple(getattr(slow, name)(*args, external=external)), strict=True
            ):
                assert abs(x - y).max(initial=0.0) <= 200 * EPS * cond * max(
                    1.0, abs(y).max(initial=0.0)
                ), (name, str(tree))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_bits_do_not_depend_on_width_batch_or_lane(dtype):
    robot = every_joint()
    for name in ("rnea", "aba_derivatives", "difference", "integrate"):
        args = [x.astype(dtype) for x in arguments(robot, name, (37,))]
        expected = as_tuple(robot.compile(name, dtype=dtype, width=1, threads=1)(*args))
        for width in WIDTHS[1:]:
            fast = robot.compile(name, dtype=dtype, width=width, threads=1)
            for count in sorted({0, 1, width - 1, width, width + 1, 37}):
                for x, y in zip(as_tuple(fast(*(a[:count] for a in args))), expected, strict=True):
                    np.testing.assert_array_equal(
                        x, y[:count], err_msg=f"{name}, width {width}, {count} rows"
                    )
            for row in range(5):  # one state alone
                for x, y in zip(as_tuple(fast(*(a[row] for a in args))), expected, strict=True):
                    np.testing.assert_array_equal(x, y[row])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_bits_do_not_depend_on_the_level_of_the_code_generator(monkeypatch, dtype):
    found = []
    for level in "30":  # most tests compile at level 0
        monkeypatch.setenv("RIGIDGRAD_LLVM_LEVEL", level)
        every, hyq = every_joint(), rg.load("hyq", floating_base=True)
        for robot, name in ((every, "rnea"), (every, "aba_derivatives"), (hyq, "aba")):
            fast = robot.compile(name, dtype=dtype, threads=1)
            args = [x.astype(dtype) for x in arguments(robot, name, (13,))]
            found.append((as_tuple(fast(*args)), fast.assembly))
    half = len(found) // 2
    for (one, fast), (other, slow) in zip(found[:half], found[half:], strict=True):
        assert len(slow.splitlines()) > 1.2 * len(fast.splitlines())
        for x, y in zip(one, other, strict=True):
            np.testing.assert_array_equal(x, y)
    monkeypatch.setenv("RIGIDGRAD_LLVM_LEVEL", "fast")
    with pytest.raises(InputError, match="RIGIDGRAD_LLVM_LEVEL is 0, 1, 2 or 3, not 'fast'"):
        rg.load("iiwa14").rnea(*([0.0] * 7 for _ in range(3)))


def test_bits_do_not_depend_on_threads():
    robot = rg.load("iiwa14")
    args = arguments(robot, "aba_derivatives", (1003,))
    one = robot.compile("aba_derivatives", threads=1)(*args)
    for threads in (2, 3):
        fast = robot.compile("aba_derivatives", threads=threads)
        for _ in range(20):
            for x, y in zip(fast(*args), one, strict=True):
                np.testing.assert_array_equal(x, y)


def test_float32_is_as_good_as_float32_can_be():
    robot = rg.load("iiwa14")
    for name in ("rnea", "aba", "rnea_derivatives", "aba_derivatives"):
        args = [x.astype(np.float32) for x in arguments(robot, name, (64,))]
        exact = call(reference(robot), name, *(x.astype(float) for x in args))
        loss = np.linalg.cond(robot.crba(args[0].astype(float))).max() if name in FORWARD else 10.0
        for x, y in zip(call(robot, name, *args), exact, strict=True):
            assert x.dtype == np.float32
            assert abs(x - y).max() <= 50 * np.finfo(np.float32).eps * loss * abs(y).max()


def test_nan_in_one_row_leaves_its_neighbours_alone():
    robot = rg.load("hyq", floating_base=True)
    args = arguments(robot, "aba_derivatives", (11,))
    clean = robot.aba_derivatives(*args)
    args[1][4, 7] = np.nan
    spoiled = robot.aba_derivatives(*args)
    for x, y in zip(spoiled, clean, strict=True):
        np.testing.assert_array_equal(np.delete(x, 4, axis=0), np.delete(y, 4, axis=0))
    assert np.isnan(spoiled.dv[4]).any()
    np.testing.assert_array_equal(spoiled.dtau[4], clean.dtau[4])  # M⁻¹ does not depend on v
    structural = np.ones((robot.nv, robot.nv), bool)
    structural[robot.pattern("aba_derivatives").dv] = False
    assert (spoiled.dv[4][structural] == 0).all() and structural.any()


# --- memory ---------------------------------------------------------------------------------------


class Guarded:
    """Arrays that end right before, or begin right after, a page that must not be touched."""

    def __init__(self):
        self.maps = []

    def array(self, like, at_end):
        page = mmap.PAGESIZE
        size = max(like.nbytes, 1)
        pages = -(-size // page)
        block = mmap.mmap(-1, (pages + 2) * page)
        self.maps.append(block)
        address = ctypes.addressof(ctypes.c_char.from_buffer(block))
        libc = ctypes.CDLL(None, use_errno=True)
        for guard in (address, address + (pages + 1) * page):
            assert libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0) == 0
        start = page + (pages * page - like.nbytes if at_end else 0)
        array = np.frombuffer(block, like.dtype, like.size, start).reshape(like.shape)
        array[...] = like
        return array


@pytest.mark.skipif(
    not hasattr(mmap, "PAGESIZE") or sys.platform == "win32", reason="needs mprotect"
)
@pytest.mark.parametrize("at_end", [True, False], ids=["end", "begin"])
@pytest.mark.parametrize("streaming", [False, True], ids=["", "streaming"])
def test_no_kernel_touches_memory_outside_its_arrays(at_end, streaming):
    """Runs in a process of its own: an access outside would end it."""
    code = f"""
import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})
import numpy as np
from test_lanes import *
if {streaming}: stream_everything(setattr)
for robot in (rg.load("quadrotor" if {streaming} else "iiwa14"), rg.load("pendulum"), rg.load("hyq")):
    for name in ("rnea_derivatives",) if {streaming} else ("rnea", "aba_derivatives", "crba"):
        for dtype in ("float64", "float32"):
            for packed in (False, True):
                for width in (None,) if {streaming} else (None, 1, 16):
                    fast = robot.compile(name, dtype=dtype, packed=packed, threads=1, width=width)
                    for count in (1, 2, 3, 4, 5, 7, 8, 9, 31):
                        g = Guarded()
                        args = [g.array(x.astype(dtype), {at_end}) for x in arguments(robot, name, (count,))]
                        out = tuple(g.array(np.empty((count, *s), dtype), {at_end}) for s in fast.outputs.values())
                        fast(*args, out=out if len(out) > 1 else out[0])
                        expected = as_tuple(fast(*(np.array(a) for a in args)))
                        for x, y in zip(out, expected): assert (x == y).all()
print("fine")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0 and result.stdout == "fine\n", result.stderr[-2000:]


def test_outputs_may_overlap_inputs():
    robot = rg.load("iiwa14")
    q, v, a = arguments(robot, "rnea", (13,))
    expected = robot.rnea(q, v, a)
    for target in (q, v, a):
        copy = target.copy()
        np.testing.assert_array_equal(robot.rnea(q, v, a, out=target), expected)
        target[...] = copy
    memory = np.zeros(14 * 7)
    shifted, out = memory[7:].reshape(13, 7), memory[:-7].reshape(13, 7)
    shifted[...] = v
    np.testing.assert_array_equal(robot.rnea(q, shifted, a, out=out), expected)


def test_strided_and_broadcast_inputs_are_read_in_place():
    robot = rg.load("iiwa14")
    wide = np.random.default_rng(0).normal(size=(20, 3, 7))
    q, v, a = wide[:, 0], wide[:, 1], wide[0, 2]
    np.testing.assert_array_equal(
        robot.rnea(q, v, a), robot.rnea(q.copy(), v.copy(), np.tile(a, (20, 1)))
    )
    out = np.zeros((20, 14))
    robot.rnea(q, v, a, out=out[:, :7])
    np.testing.assert_array_equal(out[:, :7], robot.rnea(q, v, a))
    assert not out[:, 7:].any()


# --- results larger than the caches ---------------------------------------------------------------


def stream_everything(set_attribute):
    """From now on, all batches count as too large for the caches."""
    set_attribute(lanes, "STREAM_BYTES", 1)
    set_attribute(lanes, "STREAM_ROWS", 1)
    set_attribute(lanes, "_STREAM_FLOPS", math.inf)
    set_attribute(lanes, "_STREAM_LOOPED", math.inf)
    set_attribute(lanes, "_STREAM_ROW", 0)
    set_attribute(code, "_codes", Shared())


def inside(shape, dtype, skew):
    """An array that begins `skew` bytes after the begin of a cache line, and the memory around
    it.
    """
    memory = np.full(math.prod(shape) * np.dtype(dtype).itemsize + 256, 7, np.uint8)
    first = 64 - memory.ctypes.data % 64 + skew
    size = memory.size - 256
    return memory[first : first + size].view(dtype).reshape(shape), (
        memory[:first],
        memory[first + size :],
    )


def streams(fast):
    """Kernels for large results that a function has compiled: where outputs begin in their cache
    lines.
    """
    return {kind for _, kind in fast._entries if isinstance(kind, tuple)}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("name", "widths", "by"),
    [
        ("hyq", (2, 4, 8, 16), "windows"),
        ("quadrotor", (4, 8, 16), "windows"),
        ("hyq floating", (4, 8), "windows"),
        ("iiwa14", (8,), "windows"),
        ("hyq", (2, 4, 8), "loops"),
        ("quadrotor", (4, 8, 16), "loops"),
        ("hyq floating", (4, 8), "loops"),
        ("hyq", (8, 16), "lines"),
    ],
)
def test_streamed_results_are_the_same(monkeypatch, tmp_path, name, widths, by, dtype):
    """Every bit is there, also at the seams of rows and blocks, wherever in a cache line they
    begin, and nothing around them changes.
    """
    robot = dict(robots()).get(name, lambda: rg.load(name))()
    args = [x.astype(dtype) for x in arguments(robot, "rnea_derivatives", (83,))]
    plain = robot.compile("rnea_derivatives", dtype=dtype, threads=1)
    expected = {count: plain(*(a[:count] for a in args)) for count in range(84)}
    stream_everything(monkeypatch.setattr)
    monkeypatch.setattr(llvm_stream, "LOOPS_FROM", 0 if by == "loops" else math.inf)
    if by == "lines":
        monkeypatch.setattr(llvm, "PLANNED_FROM", 0)
    # the limit is part of our sources, not of a kernel's key
    monkeypatch.setenv("RIGIDGRAD_CACHE", str(tmp_path))
    skews = [(0, 0, 0), (16, 16, 16), (48, 0, 32)]
    for width in widths:
        for packed in (False, True) if width == 4 else (False,):
            fast = robot.compile(
                "rnea_derivatives", dtype=dtype, width=width, packed=packed, threads=1
            )
            for count in (2, width - 1, width, width + 1, 2 * width, 3 * width, 5 * width + 3):
                for skew in [*skews, (np.dtype(dtype).itemsize, 16, 0), (8, 8, 8)]:
                    placed = [
                        inside((count, *shape), dtype, s)
                        for s, shape in zip(skew, fast.outputs.values(), strict=True)
                    ]
                    out = tuple(array for array, _ in placed)
                    fast(*(a[:count] for a in args), out=out)
                    for x, y, mask, (_, around) in zip(
                        out, expected[count], fast.masks.values(), placed, strict=True
                    ):
                        np.testing.assert_array_equal(
                            x,
                            y[:, mask] if packed else y,
                            err_msg=f"width {width}, {count} rows, skew {skew}",
                        )
                        assert all((memory == 7).all() for memory in around)
            sizes = [math.prod(shape) * np.dtype(dtype).itemsize for shape in fast.outputs.values()]
            able = (
                all(size % 16 == 0 and size >= 128 for size in sizes)
                and width * np.dtype(dtype).itemsize >= 16
            )
            assert streams(fast) == (set(skews) if able else set())
            assert able or packed or width == 2 or name == "iiwa14"


@pytest.mark.parametrize(("dtype", "width"), [("float64", 4), ("float32", 8), ("float64", 8)])
@pytest.mark.parametrize("skews", [(0, 0, 0), (16, 48, 32)])
def test_streamed_lines_are_written_once_and_whole(dtype, width, skews):
    """Every byte of W rows by one store past the caches, and a whole line by two that follow each
    other.
    """
    job = function_job(
        rg.load("hyq", floating_base=True).model,
        "rnea_derivatives",
        dtype=dtype,
        width=width,
        streaming=skews,
    )
    size = np.dtype(dtype).itemsize
    text = job.ir()
    starts = {
        name: (int(k), int(place))
        for name, k, place in re.findall(
            r"(%t\d+) = getelementptr \w+, ptr %p(\d), i64 (\d+)", text
        )
    }
    stores = re.findall(r"store <(\d+) x \w+> \S+, ptr (%t\d+), align (\d+), !nontemporal", text)
    written = [
        (starts[name][0], skews[starts[name][0]] + starts[name][1] * size, int(n) * size)
        for n, name, _ in stores
    ]
    rows = 18 * 18 * size * width
    for output in range(3):
        bytes_of = sorted(
            byte
            for k, begin, length in written
            if k == output
            for byte in range(begin, begin + length)
        )
        assert bytes_of == list(range(skews[output], skews[output] + rows))
    assert all(
        int(align) == length and begin % length == 0
        for (_, begin, length), (_, _, align) in zip(written, stores, strict=True)
    )
    lines = [(k, begin // 64) for k, begin, _ in written]
    visits = [line for line, before in zip(lines, [None, *lines], strict=False) if line != before]
    assert len(visits) == len(set(lines))


@pytest.mark.parametrize(("dtype", "width"), [("float64", 8), ("float32", 16)])
def test_rows_of_whole_lines_are_written_from_registers(monkeypatch, dtype, width):
    """Every line of every output once, and no result goes to a buffer."""
    monkeypatch.setattr(llvm, "PLANNED_FROM", 0)
    robot = rg.load("hyq").model
    text, begun = (
        llvm.render(
            program_of(robot, "aba_derivatives"), dtype, width, streaming=skews, registers=32
        )
        for skews in ((0, 0, 0), (16, 0, 0))
    )
    places = dict(re.findall(r"(%t\d+) = getelementptr \w+, ptr (%p\d, i64 -?\d+)\n", text))
    stores = re.findall(rf"store <{width} x \w+> \S+, ptr (%t\d+), align 64, !nontemporal", text)
    assert sorted(places[x] for x in stores) == sorted(
        f"%p{k}, i64 {n}" for k in range(3) for n in range(0, 144 * width, width)
    )
    assert "%o0" not in text and "call void @llvm.masked" not in text
    # the first line of the first row has something of what is before it, as its last has of what
    # is behind
    assert begun.count("call void @llvm.masked") == 2 * width


def test_values_in_memory_are_near_a_register(monkeypatch):
    """Within what one byte of an instruction of AVX-512 says, for which LLVM must not count from
    the first one.
    """
    program = program_of(rg.load("atlas").model, "rnea_derivatives")
    monkeypatch.setattr(llvm, "PLANNED_FROM", 0)
    text = llvm.render(program, "float64", 8, registers=8)
    places = re.findall(r"getelementptr <8 x double>, ptr %slots(\d+), i64 (-?\d+)", text)
    assert {-128 <= int(k) < 128 for _, k in places} == {True}
    assert len({base for base, _ in places}) == text.count("load volatile ptr") > 1
    assert "%middle" not in llvm.render(program, "float64", 4, registers=8)


def test_sums_are_put_off_only_where_nothing_but_results_is_made_of_them():
    def evaluate(values):
        x, y = values["x"], values["y"]
        product = x[0] * y[0]
        shared = product + x[1]
        return ((shared + y[1]) + x[2], shared * shared, x[0] + y[2])

    program = record({"x": (3,), "y": (3,)}, {"a": (), "b": (), "c": ()}, evaluate)
    late = llvm_lines.put_off(program)
    kinds = [node[0] for node, later in zip(program.nodes, late, strict=True) if later]
    assert kinds == ["add", "add", "add"]
    results = [program.results[k][1] for k in range(3)]
    assert [late[i] for i in results] == [True, False, True]
    shared = program.nodes[results[1]][1]
    assert not late[shared] and program.nodes[shared][0] == "add"


def test_arrays_that_begin_anywhere_do_not_have_kernels_compiled_for_ever(monkeypatch):
    robot = rg.load("quadrotor")
    args = arguments(robot, "rnea_derivatives", (20,))
    expected = robot.rnea_derivatives(*args)
    stream_everything(monkeypatch.setattr)
    fast = robot.compile("rnea_derivatives", threads=1)
    for k in range(12):
        out = tuple(
            inside(x.shape, x.dtype, 16 * (k // 4**n % 4))[0] for n, x in enumerate(expected)
        )
        for x, y in zip(fast(*args, out=out), expected, strict=True):
            np.testing.assert_array_equal(x, y)
    assert len(streams(fast)) == 7
    assert all(x.ctypes.data % 64 == 16 for x in fast(*args))


@pytest.mark.parametrize("threads", [1, 2])
def test_large_batches_are_streamed_with_any_number_of_threads(monkeypatch, threads):
    robot = rg.load("hyq")
    count = 1501
    args = arguments(robot, "rnea_derivatives", (count,))
    expected = robot.compile("rnea_derivatives", threads=1)(*args)
    monkeypatch.setattr(lanes, "STREAM_BYTES", 3_000_000)
    monkeypatch.setattr(code, "_codes", Shared())
    fast = robot.compile("rnea_derivatives", threads=threads)
    fast(*(a[:800] for a in args))
    assert not streams(fast)
    for _ in range(10):
        for x, y in zip(fast(*args), expected, strict=True):
            np.testing.assert_array_equal(x, y)
    assert streams(fast) == {(16, 16, 16)}
    # by the general way: an input for all rows, an output whose numbers do not follow each other,
    # and one that no number is aligned in
    wide = np.zeros((count, 12, 24))
    odd = np.zeros(count * 1152 + 3, np.uint8)[3:].view(np.float64).reshape(count, 12, 12)
    out = (wide[..., :12], odd, np.empty((count, 12, 12)))
    fast(args[0], args[1], args[2][0], out=out)
    for x, y in zip(
        out, robot.rnea_derivatives(args[0], args[1], np.tile(args[2][0], (count, 1))), strict=True
    ):
        np.testing.assert_array_equal(x, y)
    assert not wide[..., 12:].any()


# --- sine and cosine ------------------------------------------------------------------------------


def sincos_of(x, dtype):
    """Through a joint's placement: [cos, -sin] in the first row."""
    robot = (
        rg.Builder("turn")
        .link("a")
        .link("b", 1, (0, 0, 0), (1, 1, 1))
        .joint("j", "continuous", "a", "b", axis=(0, 0, 1))
        .build()
    )
    T = robot.compile("frame_placement", frame="b", dtype=dtype)(np.asarray(x, dtype)[:, None])
    return T[:, 1, 0], T[:, 0, 0]


@pytest.mark.parametrize(("dtype", "allowed"), [("float64", 1.5), ("float32", 1.5)])
def test_sine_and_cosine_are_accurate_for_every_finite_angle(dtype, allowed):
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(0)
    scales = [1e-8, 1e-3, 1.0, 3.2, 100.0, 1e4, 1e6, 1e9]
    x = np.concatenate([rng.uniform(-s, s, 400) for s in scales])
    k = rng.integers(-(10**8), 10**8, 400)
    near = (k * (np.pi / 2)).astype(dtype)  # next to multiples of π/2, where reduction is hard
    extreme = np.array(
        [
            0.0,
            -0.0,
            2.0**30,
            np.nextafter(2.0**30, np.inf),
            1e15,
            1e22,
            1e38,
            1.7e308 if dtype == "float64" else 3e38,
        ]
    )
    x = np.concatenate([x, near, extreme, -extreme]).astype(dtype)
    s, c = sincos_of(x, dtype)
    mpmath.mp.prec = 1200
    tiny = np.finfo(dtype).tiny
    worst = 0.0
    for xi, si, ci in zip(x.tolist(), s.tolist(), c.tolist(), strict=True):
        for got, want in ((si, mpmath.sin(mpmath.mpf(xi))), (ci, mpmath.cos(mpmath.mpf(xi)))):
            unit = float(np.spacing(np.asarray(max(abs(float(want)), tiny), dtype)))
            worst = max(worst, abs(float((mpmath.mpf(got) - want) / unit)))
    assert worst <= allowed, worst


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_angles_taken_by_twos_do_not_disturb_each_other(width):
    """Angles beyond the limit take the C library's sine, in one place of a pair, in the other, in
    both; seven joints leave one without a neighbour.
    """
    robot = rg.load("iiwa14", engine="numpy")
    q = np.random.default_rng(1).uniform(-3, 3, (23, 7))
    far = np.random.default_rng(2).random(q.shape) < 0.2
    q[far] *= 1e10
    q[5, 3], q[11, 1], q[11, 5] = np.nan, np.inf, 1e300
    zero = np.zeros_like(q)
    fast = lanes.LaneKernel(function_job(robot.model, "rnea", width=width))
    tau = np.empty_like(q)
    fast.run([q, zero, zero, tau], [7] * 4, len(q), None)
    np.testing.assert_allclose(tau, robot.rnea(q, zero, zero), rtol=1e-12, atol=1e-12)
    assert (
        np.isnan(tau[[5, 11]]).any(axis=1).all()
        and np.isfinite(np.delete(tau, [5, 11], axis=0)).all()
    )


def test_angles_without_a_sine_give_nan():
    for dtype in ("float64", "float32"):
        s, c = sincos_of([np.inf, -np.inf, np.nan, 0.5], dtype)
        assert np.isnan(s[:3]).all() and np.isnan(c[:3]).all() and np.isfinite(s[3])


# --- compile --------------------------------------------------------------------------------------


def test_a_compiled_function_tells_what_it_is():
    fast = rg.load("iiwa14").compile("aba_derivatives", dtype="float64", threads=1)
    assert list(fast.inputs) == ["q", "v", "tau"] and fast.outputs["dq"] == (7, 7)
    assert 0 < fast.counts["instructions"] < fast.counts["flops"]
    assert "define" in fast.llvm and "llvm.fma" in fast.llvm
    assert len(fast.assembly.splitlines()) > fast.counts["instructions"] / 2
    assert "aba_derivatives" in repr(fast) and "iiwa14" in repr(fast)


def test_the_assembly_is_that_of_the_code_that_runs(monkeypatch):
    monkeypatch.setenv("RIGIDGRAD_CACHE", "off")
    emitted = []

    real = native._emit

    def emit(ir, opt, misched, form, passes=False, join=True):
        emitted.append((ir, opt, misched, passes, join))
        return real(ir, opt, misched, form, passes, join)

    monkeypatch.setattr(native, "_emit", emit)
    robot = rg.load("double_pendulum", gravity=(0, 0, -1.25))  # compiled by no other test
    fast = robot.compile("rnea", threads=1)
    fast(*robot.random(8, seed=0))
    runs = emitted[0]
    emitted.clear()
    assert "ret" in fast.assembly
    assert emitted == [runs]


def test_the_work_of_a_state_stays_small():
    """Operations of one state; a change that needs more has to say why."""
    limits = {
        ("iiwa14", False): {
            "rnea": 426,
            "aba": 830,
            "rnea_derivatives": 1941,
            "aba_derivatives": 3807,
        },
        ("hyq", False): {
            "rnea": 776,
            "aba": 1036,
            "rnea_derivatives": 1392,
            "aba_derivatives": 2572,
        },
        ("hyq", True): {
            "rnea": 1483,
            "aba": 3403,
            "rnea_derivatives": 5609,
            "aba_derivatives": 17120,
        },
        ("atlas", False): {
            "rnea": 2278,
            "aba": 5652,
            "rnea_derivatives": 14290,
            "aba_derivatives": 29207,
        },
    }
    from rigidgrad.runtime.formulation import program_of

    for (name, floating), functions in limits.items():
        robot = rg.load(name, floating_base=floating)
        for function, most in functions.items():
            assert program_of(robot.model, function).counts().flops <= most, (name, function)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("rneaa",), UnknownNameError),
        (("jacobian",), InputError),
    ],
)
def test_wrong_functions_are_named(arguments, error):
    with pytest.raises(error):
        rg.load("pendulum").compile(*arguments)


@pytest.mark.parametrize(
    "options", [{"dtype": "float16"}, {"width": 3}, {"threads": 0}, {"threads": "many"}]
)
def test_wrong_options_are_refused(options):
    with pytest.raises(InputError):
        rg.load("pendulum").compile("rnea", **options)
    with pytest.raises(UnknownNameError):
        rg.load("pendulum").compile("rnea", parameters=("mass",))(
            np.zeros(1), np.zeros(1), np.zeros(1)
        )


def test_a_compiled_function_converts_what_it_must():
    fast = rg.load("iiwa14").compile("rnea", dtype="float32")
    args = arguments(rg.load("iiwa14"), "rnea", (5,))
    assert fast(*args).dtype == np.float32
    np.testing.assert_array_equal(fast(*args), fast(*(x.astype(np.float32) for x in args)))
    with pytest.raises(InputError, match="takes 3 arrays"):
        fast(args[0])
    with pytest.raises(InputError, match="shape"):
        fast(args[0][:, :6], *args[1:])


def parameters_of(robot):
    return np.array([[m, *h, *i] for m, h, i in robot.model.inertias])


@pytest.mark.parametrize(
    "name", ["rnea", "aba", "crba", "rnea_derivatives", "aba_derivatives", "center_of_mass"]
)
def test_parameters_become_inputs(name):
    robot = every_joint()
    names = ("inertia", "gravity", "armature")
    fast = robot.compile(name, parameters=names)
    args = arguments(robot, name, (6,))
    own = (parameters_of(robot), np.array(robot.model.gravity), np.array(robot.model.armature))
    expected = as_tuple(getattr(robot, name)(*args))
    loss = np.linalg.cond(robot.crba(args[0])).max()
    for x, y in zip(as_tuple(fast(*args, *own)), expected, strict=True):
        assert abs(x - y).max() <= 100 * EPS * loss * max(1, abs(y).max())


def test_one_set_of_parameters_a_row():
    robot = rg.load("iiwa14")
    fast = robot.compile("rnea", parameters=("inertia",))
    args = arguments(robot, "rnea", (4,))
    payloads = np.repeat(parameters_of(robot)[None], 4, axis=0)
    payloads[:, -1, 0] += [0.0, 1.0, 2.0, 3.0]  # a point mass at the last link's origin
    result = fast(*args, payloads)
    for k in range(4):
        np.testing.assert_array_equal(result[k], fast(*(x[k] for x in args), payloads[k]))
    Y = robot.torque_regressor(*args)
    np.testing.assert_allclose(
        result, np.einsum("nij,nj->ni", Y, payloads.reshape(4, -1)), rtol=1e-10, atol=1e-10
    )


# --- the cache ------------------------------------------------------------------------------------


def test_a_second_process_records_nothing(tmp_path):
    code = """
import sys, numpy as np, rigidgrad as rg
from rigidgrad.runtime import job, native
if sys.argv[1] == "second":
    def refuse(*a, **k): raise AssertionError("must come from the cache")
    job.source_of = refuse; native.compile_ir = refuse
robot = rg.load("iiwa14")
print(robot.aba(*robot.random((3,), seed=0)).tobytes().hex())
"""
    outputs = []
    for word in ("first", "second"):
        environment = os.environ | {"RIGIDGRAD_CACHE": str(tmp_path / "cache")}
        result = subprocess.run(
            [sys.executable, "-c", code, word], env=environment, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stderr[-1500:]
        outputs.append(result.stdout)
    assert outputs[0] == outputs[1]


def test_a_changed_model_is_another_entry():
    keys = {
        function_job(robot.model, name, dtype=dtype, packed=packed).key()
        for robot in (
            rg.load("iiwa14"),
            rg.load("iiwa14", gravity=(0, 0, 0)),
            rg.load("iiwa14").reduced(lock={"iiwa_joint_3": 0.1}),
        )
        for name in ("rnea", "aba")
        for dtype in ("float64", "float32")
        for packed in (False, True)
    }
    assert len(keys) == 24
    assert function_job(rg.load("iiwa14").model, "rnea").key() in keys


def test_a_kernel_that_outlives_all_modules_does_no_harm():
    code = """
import sys
import numpy as np
import rigidgrad as rg
robot = rg.load("iiwa14")
fast = robot.compile("rnea")
q = np.zeros((4, 7))
fast(q, q, q), fast(q, q, q)
class Late:  # is there until the very end, as cycles and caches are
    pass
sys.late = Late()
sys.late.kept, sys.late.itself = fast, sys.late
"""
    # freed memory is overwritten, so that reading it shows
    environment = os.environ | {"PYTHONMALLOC": "malloc", "MALLOC_PERTURB_": "2"}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, timeout=120).returncode == 0
    )
