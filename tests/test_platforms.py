"""Other processors and systems: kernels for ARM and for x86 without its newer instructions give the
same bits under QEMU; what code for Windows and macOS asks for is known; and what other systems lack
is simulated here.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import RigidgradError
from rigidgrad.runtime import cache, emit, job, native

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import cross  # noqa: E402

linux = pytest.mark.skipif(
    sys.platform != "linux" or native.host().triple.split("-")[0] != "x86_64",
    reason="compares with x86-64 Linux",
)


def emulated(name: str) -> cross.Target:
    target = cross.TARGETS[name]
    if gone := target.missing():
        pytest.skip(f"{gone} not installed: apt-get install {target.packages}")
    return target


# --- processors -----------------------------------------------------------------------------------


@linux
@pytest.mark.parametrize(
    ("robot", "function", "dtype"),
    [
        ("iiwa14", "rnea", "float64"),
        ("iiwa14", "rnea", "float32"),
        ("iiwa14", "aba_derivatives", "float64"),
        ("hyq-floating", "rnea", "float64"),
        ("double_pendulum", "energy", "float64"),
    ],
)
def test_arm_gives_the_bits_of_x86(robot, function, dtype):
    """27 states: whole blocks of lanes, and a last one that is not full."""
    found = cross.compare(emulated("neon"), cross.load(robot), function, 27, dtype)
    assert found["finite"] and found["numbers"] > 0
    assert found["differing"] == 0


@linux
@pytest.mark.parametrize(
    ("target", "dtype"),
    [("sse2", "float64"), ("sse2", "float32"), ("avx-without-fma", "float64"), ("avx2", "float64")],
)
def test_older_x86_gives_the_same_bits(target, dtype):
    """QEMU's processor has none of the newer instructions: one of them would end the program."""
    found = cross.compare(emulated(target), cross.load("iiwa14"), "rnea", 27, dtype)
    assert found["finite"] and found["differing"] == 0


@linux
def test_a_processor_without_multiply_adds_runs_in_this_process(monkeypatch):
    robot = rg.load("iiwa14")
    s = robot.random(batch=(33,), seed=0)
    fast = robot.rnea_derivatives(s.q, s.v, s.tau)
    with cross.compiling_for(cross.TARGETS["sse2"].host):
        assert not native.host().fused
        other = rg.load("iiwa14")
        assert ", fma" not in other.compile("rnea").assembly
        slow = other.rnea_derivatives(s.q, s.v, s.tau)
    assert all(np.array_equal(a, b) for a, b in zip(fast, slow, strict=True))


@linux
def test_code_reaches_the_functions_of_the_process_from_wherever_it_lies():
    """What it calls may be beyond the reach of a relative address: it has jumps of its own."""
    clear = """
define void @f(ptr %to) {
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 4096, i1 false)
  ret void
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""
    assert "memset" in native.assembly(clear)
    assert cross.symbols(native.compile_ir(clear)) == set()
    filled = np.ones(513)
    loaded = native.load_object(native.compile_ir(clear))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded.address("f"))(filled.ctypes.data)
    assert not filled[:512].any() and filled[512] == 1.0


def test_code_for_arm_has_multiply_adds_and_vectors():
    job = cross.job_of(rg.load("double_pendulum"), "rnea")
    text = cross.kernel(cross.TARGETS["neon"].host, job, "assembly").decode()
    assert "fmla\tv" in text or "fmls\tv" in text
    assert ".2d" in text


@pytest.mark.parametrize("system", cross.ELSEWHERE)
def test_code_for_other_systems_asks_for_functions_that_are_checked(system):
    """Code of kernels, threads, links and calls: what it takes from the system by name."""
    host = cross.ELSEWHERE[system]
    with mock.patch.dict(cross.ELSEWHERE, {system: host}, clear=True):
        asked = cross.asked(["double_pendulum", "iiwa14"], ["rnea"])
    known = set(native._LIBRARY) | (
        set(native._LIBRARY_WINDOWS) if "windows" in host.triple else set()
    )
    if "macos" in host.triple:
        known = {f"_{name}" for name in known} | {"_bzero"}  # which the system always has
    assert asked[system] <= known


def test_windows_touches_the_pages_of_large_frames():
    """Its stacks grow page by page: without the call, blocks of lanes would be out of reach."""
    job = cross.job_of(rg.load("iiwa14"), "rnea_derivatives")
    assert "__chkstk" in cross.symbols(cross.kernel(cross.ELSEWHERE["windows"], job))


def test_a_function_that_is_missing_is_an_error_and_not_the_end_of_the_process(monkeypatch):
    code = native.compile_ir("define i64 @f() {\n  ret i64 1\n}\n")
    native.missing_symbols.cache_clear()
    monkeypatch.setattr(native, "_LIBRARY", ("fma", "no_such_function"))
    try:
        with pytest.raises(RigidgradError, match=r"lacks .*no_such_function.*engine='numpy'"):
            native.load_object(code)
    finally:
        native.missing_symbols.cache_clear()
    monkeypatch.undo()
    assert native.load_object(code).address("f")


# --- systems --------------------------------------------------------------------------------------

WITHOUT_POSIX = """
import os, sys
for name in ("fcntl", "resource", "termios", "pwd", "grp", "pty", "tty", "syslog", "readline",
             "jax", "torch", "mujoco", "viser", "pyarrow", "distributed", "scipy", "pinocchio"):
    sys.modules[name] = None
import subprocess, tempfile, ctypes, threading, multiprocessing, asyncio, numpy, llvmlite.binding  # what is not ours keeps all
for name in ("geteuid", "getuid", "fork", "register_at_fork", "sched_getaffinity", "sched_setaffinity",
             "sched_yield", "O_NOFOLLOW", "O_NONBLOCK", "getloadavg", "sysconf", "setsid", "mkfifo"):
    if hasattr(os, name):
        delattr(os, name)
import importlib, pathlib
import rigidgrad as rg
failed = []
root = pathlib.Path(rg.__file__).parent
for path in sorted(root.rglob("*.py")):
    name = ".".join(("rigidgrad", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
    if name.endswith("__main__") or "jax" in name or "torch" in name:
        continue
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("rigidgrad", "fcntl", "resource", "termios", "pwd", "grp"):
            failed.append(f"{name}: {error}")
    except Exception as error:
        if "pip install" not in str(error):
            failed.append(f"{name}: {type(error).__name__}: {error}")
assert not failed, failed
robot = rg.load("double_pendulum")
s = robot.random(batch=(4096,), seed=0)
a = robot.aba(s.q, s.v, s.tau)
assert abs(robot.rnea(s.q, s.v, a) - s.tau).max() < 1e-9
from rigidgrad.runtime import cache
assert cache.contents()
with rg.Crew(2) as crew:
    assert crew.map(abs, [-1, 2]) == [1, 2]
print("ok")
"""


def test_nothing_of_posix_is_needed_to_import_and_compute(tmp_path):
    """As on Windows, where modules and functions of the system are not there."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX],
        capture_output=True,
        text=True,
        env=os.environ | {"RIGIDGRAD_CACHE": str(tmp_path)},
        timeout=120,
        check=False,
    )
    assert done.stdout == "ok\n", done.stderr


@pytest.mark.parametrize("command", ["", "info pendulum", "check pendulum"])
def test_commands_print_into_files_of_windows(command):
    """Their encoding has no rules and arrows; nor do files open in it by default."""
    done = subprocess.run(
        [
            *(sys.executable, "-X", "warn_default_encoding"),
            *("-W", "error::EncodingWarning:rigidgrad"),
            *("-m", "rigidgrad", *command.split()),
        ],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "cp1252"},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode("cp1252")
    assert done.stdout.decode("cp1252").strip()


def test_the_compiling_process_does_not_end_because_of_a_launcher(monkeypatch):
    """On Windows, the Python of a virtual environment is a launcher: the parent that the process
    sees is not the one that asked.
    """
    code = (
        "import os, runpy, sys, llvmlite.binding; sys.argv = sys.argv[1:]; os.name = sys.argv.pop();"
        " runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    import json

    import llvmlite.binding as llvm

    packages = str(Path(llvm.__file__).parents[2])
    host = native.host()
    request = emit.Request(
        "define i64 @f() {\n  ret i64 1\n}\n",
        host.triple,
        host.cpu,
        host.features,
        1,
        False,
        "object",
    )
    # nobody's number, so that a process that looks for it ends at once
    command = [sys.executable, "-c", code, emit.__file__, packages, "999999999"]
    done = subprocess.run(
        [*command, "nt"],
        input=json.dumps(request).encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and done.stdout[:1] == b"+"


def test_where_the_cache_lies_on_other_systems(monkeypatch, tmp_path):
    monkeypatch.delenv("RIGIDGRAD_CACHE")
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "Library" / "Caches" / "rigidgrad"
    monkeypatch.setattr(cache.os, "name", "nt")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "Local"))
    with mock.patch.object(cache, "Path", type(tmp_path)):
        assert cache.folder() == tmp_path / "Local" / "rigidgrad"


def test_links_say_that_windows_has_none(monkeypatch):
    from rigidgrad.link import memory

    monkeypatch.setattr(memory.os, "name", "nt")
    with pytest.raises(RigidgradError, match="POSIX"):
        memory.path_of("arm")


def test_lanes_follow_the_processor():
    for target, count in {"neon": 2, "sse2": 2, "avx2": 4}.items():
        with cross.compiling_for(cross.TARGETS[target].host):
            assert job.host_lanes("float64") == count
            assert job.host_lanes("float32") == 2 * count
    assert cross.TARGETS["neon"].host.registers == 32
