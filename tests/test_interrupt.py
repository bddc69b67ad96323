"""Ctrl-C reaches a long call and a long compile; code is compiled once and freed with what used
it.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import subprocess
import sys
import threading
import time

import llvmlite
import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import RigidgradError
from rigidgrad.runtime import cache, code, emit, lanes, native
from rigidgrad.runtime.shared import Shared

POSIX = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


def interrupted(code: str) -> list[str]:
    """What a process prints that gets SIGINT a moment after its first line."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=100)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, (process.returncode, errors[-2000:])
    return [first.strip(), *rest.splitlines()]


# --- a batch --------------------------------------------------------------------------------------

# rows that repeat one state take no memory, and results go where nobody looks: as long a batch as
# one likes
BATCH = """
import time, numpy as np, rigidgrad as rg
robot = rg.load("iiwa14")
fast = robot.compile("rnea", threads=THREADS)
state = robot.random(64, seed=0)
expected = fast(*state)
kernel = fast._kernel("float64", "batch")
rows = [x.reshape(64, 7) for x in state]
out = np.empty((64, 7))
print("begin")
begin = time.monotonic()
try:
    kernel.run([*(x[:1] for x in rows), out[:1]], [0, 0, 0, 0], 10**10, fast._team())  # minutes
    print("never interrupted")
except KeyboardInterrupt:
    print("interrupted")
np.testing.assert_array_equal(fast(*state), expected)
print("works")
"""


@POSIX
@pytest.mark.parametrize("threads", [1, 2])
def test_a_long_batch_can_be_interrupted(threads):
    assert interrupted(BATCH.replace("THREADS", str(threads))) == ["begin", "interrupted", "works"]


def test_a_batch_in_pieces_gives_the_same_bits(monkeypatch):
    robot = rg.load("iiwa14", gravity=(0, 0, -3.5))
    state = robot.random(1000, seed=0)
    whole = [robot.compile(f, threads=1)(*state) for f in ("rnea", "aba_derivatives")]
    gc.collect()
    monkeypatch.setattr(lanes, "_PIECE_NS", 1)
    monkeypatch.setattr(code, "_codes", Shared())  # others know of longer pieces
    for threads in (1, 2):
        fast = robot.compile("rnea", threads=threads)
        np.testing.assert_array_equal(fast(*state), whole[0])
        out = np.empty((1000, 7))
        assert fast(*state, out=out) is out
        np.testing.assert_array_equal(out, whole[0])
        kernel = fast._kernel("float64", "batch")
        calls = []
        monkeypatch.setattr(
            kernel,
            "_rows",
            lambda *a, _rows=kernel._rows, calls=calls: calls.append(a) or _rows(*a),
        )
        if threads == 1:
            fast(*state)
            assert len(calls) == -(-1000 // kernel.piece()) > 1
        for found, expected in zip(
            robot.compile("aba_derivatives", threads=threads)(*state), whole[1], strict=True
        ):
            np.testing.assert_array_equal(found, expected)


# --- a compile ------------------------------------------------------------------------------------

COMPILE = """
import numpy as np, time
from rigidgrad.program.recorder import record
from rigidgrad.runtime import cache, native
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.job import Job

long = "define double @f(double %x0) {\\n" + "".join(f"  %x{k + 1} = fadd double %x{k}, {float(k)}\\n" for k in range(400_000)) + "  ret double %x400000\\n}"
emit = native.emit.emit_apart
def begin(*arguments):
    print("begin")
    code = emit(*arguments)
    print("compiled to the end")
    return code
native.emit.emit_apart = begin
try:
    native.compile_ir(long)
    print("never interrupted")
except KeyboardInterrupt:
    print("interrupted")
start = time.monotonic()
double = Compiled(Job("double", "tests", "double", lambda: record({"x": (1,)}, {"y": (1,)}, lambda v: ((v["x"][0] * 2,),))), threads=1)
print(double(np.ones((5, 1))).sum())
"""


@POSIX
def test_a_long_compile_can_be_interrupted():
    assert interrupted(COMPILE) == ["begin", "interrupted", "10.0"]


@POSIX
def test_a_compile_ends_with_the_process_that_asked_for_it():
    """Also where that one is killed, and can stop nothing any more."""
    packages = os.path.dirname(os.path.dirname(llvmlite.__file__))
    ask = (
        "import os, subprocess, sys; subprocess.Popen([sys.executable, '-I', '-S',"
        f" {emit.__file__!r}, {packages!r}, str(os.getpid())]); os._exit(9)"
    )
    request, never = os.pipe()
    answer, write = os.pipe()
    assert subprocess.run([sys.executable, "-c", ask], stdin=request, stdout=write).returncode == 9
    os.close(write)
    with os.fdopen(answer) as pipe, selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        ended = bool(selector.select(timeout=20))  # nobody holds the other end any more
    os.close(never)
    os.close(request)
    assert ended


IR = "define i64 @f(i64 %x) {\n  %y = add i64 %x, 1\n  ret i64 %y\n}"


def test_code_compiled_in_a_process_of_its_own_is_the_same(monkeypatch):
    here = native.compile_ir(IR), native.assembly(IR)
    monkeypatch.setattr(native, "_LONG", 0)
    used = []

    def apart(*arguments, _apart=emit.emit_apart):
        used.append(_apart(*arguments))
        return used[-1]

    monkeypatch.setattr(emit, "emit_apart", apart)
    assert (native.compile_ir(IR), native.assembly(IR)) == here
    assert [x is not None for x in used] == [True, True]
    with pytest.raises(RigidgradError, match="LLVM does not accept"):
        native.compile_ir("define nonsense")
    with pytest.raises(RigidgradError, match="no_such_function"):
        native.compile_ir(
            "declare void @no_such_function()\ndefine void @f() {\n  call void"
            " @no_such_function()\n  ret void\n}"
        )


@pytest.mark.parametrize("executable", ["", "/nowhere/python3", "/bin/false", "/usr/bin/blender"])
def test_without_another_process_code_is_compiled_in_this_one(monkeypatch, executable):
    expected = native.compile_ir(IR)
    monkeypatch.setattr(native, "_LONG", 0)
    monkeypatch.setattr(sys, "executable", executable)
    assert native.compile_ir(IR) == expected


# --- once, and not for ever -----------------------------------------------------------------------


def test_many_threads_compile_a_function_once(monkeypatch):
    monkeypatch.setenv("RIGIDGRAD_CACHE", "off")
    robot = rg.load("double_pendulum", gravity=(0, 0, -2.25))  # compiled by no other test
    state = robot.random(8, seed=0)
    robot.compile("crba", threads=1)(state.q)  # what all functions share is there
    compiled, results, gate = [], [], threading.Barrier(8)
    monkeypatch.setattr(
        code,
        "_compile",
        lambda job, _compile=code._compile: (
            compiled.append(job.lanes) or time.sleep(0.05) or _compile(job)
        ),
    )

    def work():
        gate.wait()
        results.append(robot.rnea(*state))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and all((x == results[0]).all() for x in results)
    assert len(compiled) == len(set(compiled)) == 1


def test_after_a_failure_the_next_thread_tries():
    shared: Shared[Loaded] = Shared()
    inside, asked = threading.Event(), threading.Event()

    def fail() -> Loaded:
        inside.set()
        asked.wait(10)
        time.sleep(0.05)
        raise KeyboardInterrupt

    def first() -> None:
        with pytest.raises(KeyboardInterrupt):
            shared.get("key", fail)

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait(10)
    asked.set()
    kept = shared.get("key", Loaded)
    thread.join()
    assert shared.get("key", Loaded) is kept and len(shared) == 1
    del kept
    assert len(shared) == 0 and len(shared._turns) == 0


class Loaded:
    pass


def test_code_of_robots_that_are_gone_is_freed():
    before = len(code._codes)
    gc.disable()  # nothing waits for the collector
    try:
        most = 0
        for k in range(12):
            robot = rg.load("pendulum", gravity=(0, 0, -1.0 - k))
            tau = robot.rnea([0.1], [0.2], [0.3])
            robot.gravity_torque(np.zeros((3, 1)))
            most = max(most, len(code._codes) - before)
        del robot
    finally:
        gc.enable()
    assert most <= 8 and tau.shape == (1,)
    assert len(code._codes) <= before


def test_a_compiled_function_outlives_its_robot():
    fast = rg.load("pendulum", gravity=(0, 0, -77.0)).compile("rnea", threads=1)
    gc.collect()
    np.testing.assert_allclose(
        fast(np.zeros((5, 1)), np.zeros((5, 1)), np.zeros((5, 1))), 0.0, atol=1e-12
    )


def test_an_entry_is_written_whole_or_not_at_all(monkeypatch):
    """Whatever is interrupted while it compiles has written nothing yet."""
    written = []
    monkeypatch.setattr(cache, "write", lambda *arguments: written.append(arguments))
    monkeypatch.setattr(
        native, "compile_ir", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    robot = rg.load("pendulum", gravity=(0, 0, -78.0))
    with pytest.raises(KeyboardInterrupt):
        robot.rnea([0.1], [0.2], [0.3])
    assert written == []
