"""Compiled code: what LLVM makes of text IR, and the cache on disk that keeps it, whatever happens
to the disk.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import math
import os
import random
import re
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from rigidgrad.errors import RigidgradError
from rigidgrad.runtime import cache, native

POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX owners and modes")
ENTRY = cache.Entry({"function": "rnea", "robot": "iiwa14", "widths": [4, 1]}, os.urandom(100_000))


@pytest.fixture
def where(tmp_path, monkeypatch):
    """A folder of entries alone: what it keeps of sources is in test_sources.py."""
    monkeypatch.setattr(cache, "source_identity", lambda: "0" * 64)
    monkeypatch.setenv("RIGIDGRAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def key():
    return cache.key({"function": "rnea", "robot": "iiwa14"})


def file_of(where: Path, key: str) -> Path:
    return where / (key + cache.SUFFIX)


def temporary_files(where: Path) -> list[Path]:
    return [path for path in where.iterdir() if path.suffix == ".tmp"]


# --- compiling ------------------------------------------------------------------------------------


def function(loaded: native.Loaded, name: str, result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)(loaded.address(name))


def load(ir: str) -> native.Loaded:
    return native.load_object(native.compile_ir(ir))


def sum_of_constants(count: int) -> str:
    """x + c_0 + c_1 + …: every constant is a load from the constant pool."""
    steps = [f"%x{i + 1} = fadd double %x{i}, {i + 0.37!r}" for i in range(count)]
    return "\n".join(["define double @f(double %x0) {", *steps, f"ret double %x{count}", "}"])


def test_the_host_is_described_once():
    host = native.host()
    assert host is native.host()
    assert host.vector_bits in (128, 256, 512)
    assert host.vector_bits == (
        512 if "+avx512f" in host.features else 256 if "+avx," in host.features else 128
    )
    assert host.triple and host.cpu


def test_importing_does_not_load_llvm():
    code = (
        "import sys, rigidgrad.runtime.cache, rigidgrad.runtime.threads; print('llvmlite' in"
        " sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )


def test_large_constant_pools_are_within_reach_in_every_one_of_many_objects():
    count = 8_000
    code = native.compile_ir(sum_of_constants(count))
    expected = 0.5
    for i in range(count):
        expected += i + 0.37
    kept = [native.load_object(code) for _ in range(20)]
    kept += [load(sum_of_constants(3)) for _ in range(30)]
    for loaded in kept[:20]:
        assert function(loaded, "f", ctypes.c_double, ctypes.c_double)(0.5) == expected
    for loaded in kept[20:]:
        assert (
            function(loaded, "f", ctypes.c_double, ctypes.c_double)(0.5) == 0.5 + 0.37 + 1.37 + 2.37
        )


def test_code_lives_as_long_as_what_was_loaded():
    loaded = load(sum_of_constants(3))
    f = function(loaded, "f", ctypes.c_double, ctypes.c_double)
    for _ in range(20):
        load(sum_of_constants(500))
    gc.collect()
    assert f(0.0) == 0.37 + 1.37 + 2.37


def test_functions_and_data_of_the_process_resolve():
    loaded = load("""
        declare double @sin(double)
        declare double @llvm.cos.f64(double)
        declare i32 @PyObject_GetBuffer(ptr, ptr, i32)
        @_Py_NoneStruct = external global i8
        define double @both(double %x) {
          %s = call double @sin(double %x)
          %c = call double @llvm.cos.f64(double %x)
          %r = fsub double %s, %c
          ret double %r
        }
        define ptr @buffer() {
          ret ptr @PyObject_GetBuffer
        }
        define ptr @none() {
          ret ptr @_Py_NoneStruct
        }
        """)
    assert function(loaded, "both", ctypes.c_double, ctypes.c_double)(0.7) == pytest.approx(
        math.sin(0.7) - math.cos(0.7), rel=1e-15
    )
    assert (
        function(loaded, "buffer", ctypes.c_void_p)()
        == ctypes.cast(ctypes.pythonapi.PyObject_GetBuffer, ctypes.c_void_p).value
    )
    assert function(loaded, "none", ctypes.c_void_p)() == id(None)


def test_what_cannot_work_is_an_error_not_the_end_of_the_process():
    with pytest.raises(RigidgradError, match="does not accept"):
        native.compile_ir("define double @f( {")
    with pytest.raises(RigidgradError, match="does not accept"):
        native.compile_ir(
            "define double @f(double %x) {\n %y = fadd double %z, %x\n ret double %y\n}"
        )
    with pytest.raises(RigidgradError, match="no_such_function_anywhere"):
        native.compile_ir(
            "declare void @no_such_function_anywhere()\ndefine void @f() {\n call void"
            " @no_such_function_anywhere()\n ret void\n}"
        )
    with pytest.raises(RigidgradError, match="no function 'g'"):
        load(sum_of_constants(1)).address("g")
    with pytest.raises(RigidgradError, match="not object code"):
        native.load_object(b"not object code")


def many_values_alive(count: int = 600) -> str:
    """A random straight-line program that a scheduler would reorder."""
    choose = random.Random(1)
    lines = ["define void @f(ptr %p, ptr %q) {"]
    lines += [
        f"%i{k} = getelementptr double, ptr %p, i64 {k}\n%v{k} = load double, ptr %i{k}"
        for k in range(40)
    ]
    for k in range(40, count):
        left, right = choose.randrange(max(0, k - 60), k), choose.randrange(max(0, k - 60), k)
        lines.append(f"%v{k} = {choose.choice(['fmul', 'fadd'])} double %v{left}, %v{right}")
    lines += [
        f"%o{k} = getelementptr double, ptr %q, i64 {k}\nstore double %v{count - 1 - k}, ptr %o{k}"
        for k in range(30)
    ]
    return "\n".join([*lines, "ret void", "}"])


STRAIGHT = many_values_alive()


def test_the_machine_scheduler_is_off_unless_asked_for_and_stays_as_others_had_it():
    plain, scheduled = native.compile_ir(STRAIGHT), native.compile_ir(STRAIGHT, misched=True)
    assert plain != scheduled
    assert native.compile_ir(STRAIGHT) == plain
    assert native.compile_ir(STRAIGHT, misched=True) == scheduled
    with pytest.raises(RigidgradError):
        native.compile_ir("nonsense")
    assert native.compile_ir(STRAIGHT, misched=True) == scheduled


def test_assembly_is_readable_and_shows_the_same_choice():
    text = native.assembly(STRAIGHT)
    assert re.search(r"^f:", text, re.MULTILINE) or re.search(r"^_f:", text, re.MULTILINE)
    assert text != native.assembly(STRAIGHT, misched=True)


def test_several_threads_compile_at_once():
    expected = native.compile_ir(STRAIGHT), native.compile_ir(STRAIGHT, misched=True)
    wrong = []

    def work(misched: bool) -> None:
        for _ in range(5):
            if native.compile_ir(STRAIGHT, misched=misched) != expected[misched]:
                wrong.append(misched)

    threads = [threading.Thread(target=work, args=(bool(i % 2),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_forked_while_another_thread_compiles_can_compile():
    code = """
import os, sys, threading
from rigidgrad.runtime import native
ir = sys.stdin.read()
native.compile_ir(ir)
done = False
def work():
    while not done:
        native.compile_ir(ir)
thread = threading.Thread(target=work)
thread.start()
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        native.load_object(native.compile_ir(ir)).address("f")
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
done = True
thread.join()
"""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        input=sum_of_constants(1000),
        text=True,
        check=True,
        timeout=120,
    )


# --- keys and folders -----------------------------------------------------------------------------


def test_keys_depend_on_every_part_and_on_the_surroundings(monkeypatch):
    parts = {"model": "ab", "dtype": "float64"}
    key = cache.key(parts)
    assert re.fullmatch("[0-9a-f]{64}", key)
    assert cache.key(dict(reversed(parts.items()))) == key
    others = [
        {"model": "ab", "dtype": "float32"},
        {"model": "ab"},
        {"model": "a", "bdtype": "float64"},
        {"mode": "lab", "dtype": "float64"},
    ]
    assert len({key, *map(cache.key, others)}) == 5
    host = native.host()
    monkeypatch.setattr(
        native,
        "host",
        lambda: native.Host(host.triple, host.cpu, host.features + ",+new", host.vector_bits),
    )
    assert cache.key(parts) != key
    monkeypatch.undo()
    monkeypatch.setattr(native, "version", lambda: "99.0")
    assert cache.key(parts) != key
    monkeypatch.undo()
    monkeypatch.setattr(cache, "source_identity", lambda: "1" * 64)
    assert cache.key(parts) != key


def test_the_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RIGIDGRAD_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.folder() == tmp_path / "xdg" / "rigidgrad"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/paths/do/not/count")
    assert cache.folder() == tmp_path / ".cache" / "rigidgrad"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == tmp_path / ".cache" / "rigidgrad"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache.folder() == tmp_path / "Library" / "Caches" / "rigidgrad"
    monkeypatch.setenv("RIGIDGRAD_CACHE", "~/mine")
    assert cache.folder() == tmp_path / "mine"
    for off in ("off", "OFF", "0", "", " "):
        monkeypatch.setenv("RIGIDGRAD_CACHE", off)
        assert cache.folder() is None


@POSIX
def test_without_a_home_there_is_no_cache_and_no_error(monkeypatch, key):
    for name in ("RIGIDGRAD_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: (_ for _ in ()).throw(KeyError(uid)))
    assert cache.folder() is None
    works_without_a_cache(key)


def works_without_a_cache(key: str) -> None:
    cache.write(key, ENTRY)
    assert cache.read(key) is None
    assert cache.contents() == []
    assert cache.clear() == 0


def test_a_cache_that_is_off_keeps_nothing(monkeypatch, key, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGIDGRAD_CACHE", "off")
    works_without_a_cache(key)
    assert list(tmp_path.iterdir()) == []


# --- reading and writing --------------------------------------------------------------------------


def test_what_was_written_is_read(where, key):
    assert cache.read(key) is None
    cache.write(key, ENTRY)
    assert cache.read(key) == ENTRY
    cache.write(key, cache.Entry({}, b""))
    assert cache.read(key) == cache.Entry({}, b"")
    assert [path.name for path in where.iterdir()] == [key + cache.SUFFIX]


@POSIX
def test_folder_and_files_are_private_whatever_the_umask(where, key):
    old = os.umask(0)
    try:
        cache.write(key, ENTRY)
    finally:
        os.umask(old)
    assert stat.S_IMODE(where.stat().st_mode) == 0o700
    assert stat.S_IMODE(file_of(where, key).stat().st_mode) == 0o600


def test_no_single_damaged_byte_goes_unseen(where, key):
    entry = cache.Entry({"function": "f"}, b"some code")
    cache.write(key, entry)
    path = file_of(where, key)
    good = path.read_bytes()
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 1 << position % 8
        path.write_bytes(bad)
        assert cache.read(key) is None
        assert not path.exists(), "a damaged file of our own is removed"
        path.write_bytes(good)
        path.chmod(0o600)
    assert cache.read(key) == entry


def test_truncated_and_extended_files_are_ignored_and_removed(where, key):
    entry = cache.Entry({"function": "f"}, b"some code")
    cache.write(key, entry)
    path = file_of(where, key)
    good = path.read_bytes()
    for bad in [good[:size] for size in range(len(good))] + [
        good + b"\0",
        b"\0" * len(good),
        os.urandom(5000),
    ]:
        path.write_bytes(bad)
        path.chmod(0o600)
        assert cache.read(key) is None
        assert not path.exists()
    cache.write(key, entry)
    assert cache.read(key) == entry


def test_an_entry_under_another_name_is_not_taken_for_it(where, key):
    cache.write(key, ENTRY)
    other = cache.key({"function": "aba"})
    os.rename(file_of(where, key), file_of(where, other))
    assert cache.read(other) is None


@POSIX
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_ignored_until_it_is_written_again(where, key, mode):
    cache.write(key, ENTRY)
    file_of(where, key).chmod(mode)
    assert cache.read(key) is None
    assert cache.contents() == []
    assert file_of(where, key).exists()
    cache.write(key, ENTRY)
    assert cache.read(key) == ENTRY


@POSIX
def test_a_file_of_another_user_is_ignored(where, key, monkeypatch):
    cache.write(key, ENTRY)
    monkeypatch.setattr(os, "geteuid", lambda: file_of(where, key).stat().st_uid + 1)
    assert cache.read(key) is None
    assert cache.contents() == []
    assert file_of(where, key).exists()


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away"
)
def test_a_file_given_away_is_ignored(where, key):
    cache.write(key, ENTRY)
    os.chown(file_of(where, key), 12345, 12345)
    assert cache.read(key) is None


@POSIX
def test_links_pipes_and_folders_in_the_place_of_a_file_are_ignored(where, key, tmp_path):
    cache.write(key, ENTRY)
    path = file_of(where, key)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.read(key) is None
    cache.write(key, ENTRY)
    assert not path.is_symlink() and cache.read(key) == ENTRY
    path.unlink()
    os.mkfifo(path, 0o600)
    assert cache.read(key) is None
    path.unlink()
    path.mkdir()
    assert cache.read(key) is None
    cache.write(key, ENTRY)
    assert cache.read(key) is None
    assert temporary_files(where) == []


@POSIX
def test_the_folder_may_be_a_link(where, key, tmp_path):
    (tmp_path / "big_disk").mkdir()
    where.symlink_to(tmp_path / "big_disk")
    cache.write(key, ENTRY)
    assert cache.read(key) == ENTRY
    assert [info.key for info in cache.contents()] == [key]


# --- trouble --------------------------------------------------------------------------------------


def test_a_file_in_the_place_of_the_folder(where, key):
    where.write_text("not a folder")
    works_without_a_cache(key)
    assert where.read_text() == "not a folder"


def test_a_file_in_the_place_of_the_parent(monkeypatch, key, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("RIGIDGRAD_CACHE", str(tmp_path / "file" / "cache"))
    works_without_a_cache(key)


@POSIX
@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="needs a folder that even root cannot write"
)
def test_a_parent_that_nobody_can_write(monkeypatch, key):
    monkeypatch.setenv("RIGIDGRAD_CACHE", "/proc/self/rigidgrad")
    works_without_a_cache(key)


def test_a_folder_deleted_in_between(where, key):
    cache.write(key, ENTRY)
    file_of(where, key).unlink()
    where.rmdir()
    assert cache.read(key) is None
    cache.write(key, ENTRY)
    assert cache.read(key) == ENTRY


def test_a_folder_deleted_while_writing(where, key, monkeypatch):
    real = os.replace

    def replace(source, target):
        os.unlink(source)
        where.rmdir()
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    cache.write(key, ENTRY)
    assert not where.exists()


@POSIX
def test_a_working_folder_that_is_gone(monkeypatch, key, tmp_path):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("RIGIDGRAD_CACHE", "relative")
    works_without_a_cache(key)


READ_ONLY = """
import os, sys
from rigidgrad.runtime import cache
if os.geteuid() == 0:
    os.chown(sys.argv[1], 12345, 12345)
    for name in os.listdir(sys.argv[1]):
        os.chown(os.path.join(sys.argv[1], name), 12345, 12345)
    key, other = cache.key({"a": "1"}), cache.key({"a": "2"})
    os.setuid(12345)
else:
    key, other = cache.key({"a": "1"}), cache.key({"a": "2"})
os.environ["RIGIDGRAD_CACHE"] = sys.argv[1]
os.chmod(sys.argv[1], 0o500)
cache.write(other, cache.Entry({}, b"new"))
print(cache.read(key), cache.read(other))
os.chmod(sys.argv[1], 0o700)
"""


@POSIX
def test_a_read_only_folder_is_read(monkeypatch):
    key = cache.key({"a": "1"})
    # not pytest's, which is closed to the user that root becomes here
    with tempfile.TemporaryDirectory() as base:
        os.chmod(base, 0o711)
        where = Path(base, "cache")
        monkeypatch.setenv("RIGIDGRAD_CACHE", str(where))
        cache.write(key, cache.Entry({}, b"old"))
        run = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(where)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout == "Entry(meta={}, code=b'old') None\n"
        assert temporary_files(where) == []


def test_a_folder_that_refuses_new_files(where, key, monkeypatch):
    cache.write(key, ENTRY)
    other = cache.key({"another": "one"})

    def refuse(*arguments, **options):
        raise PermissionError(errno.EACCES, "read-only")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    cache.write(other, ENTRY)
    assert cache.read(other) is None
    assert cache.read(key) == ENTRY


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_leaves_nothing_behind(where, key, monkeypatch):
    real = cache.tempfile.mkstemp

    def mkstemp(*arguments, **options):
        descriptor, name = real(*arguments, **options)
        os.close(descriptor)
        return os.open("/dev/full", os.O_WRONLY), name

    monkeypatch.setattr("tempfile.mkstemp", mkstemp)
    cache.write(key, ENTRY)
    cache.write(key, cache.Entry({}, b"short enough for a buffer, so that only closing fails"))
    assert cache.read(key) is None
    assert list(where.iterdir()) == []


def test_an_interrupted_write_leaves_nothing_behind(where, key, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache.write(key, ENTRY)
    assert list(where.iterdir()) == []


TWO = """
import sys
from rigidgrad.runtime import cache
key = cache.key({"a": "1"})
entries = [cache.Entry({"who": str(n)}, bytes([n]) * 300_000) for n in range(4)]
seen = set()
for n in range(150):
    cache.write(key, entries[int(sys.argv[1]) + n % 2])
    entry = cache.read(key)
    assert entry in entries, "a mixture, or nothing"
    seen.add(entry.meta["who"])
    if n % 50 == 49:
        cache.write(cache.key({"own": sys.argv[1] + str(n)}), entries[0])
print(len(seen))
"""


def test_two_processes_at_once_see_whole_entries(where):
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", TWO, n],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in "02"
    ]
    for run in runs:
        output, errors = run.communicate(timeout=120)
        assert run.returncode == 0, errors
        assert int(output) >= 2
    assert len(cache.contents()) == 7
    assert temporary_files(where) == []


# --- size and listing -----------------------------------------------------------------------------


def test_the_oldest_make_room(where, monkeypatch):
    monkeypatch.setattr(cache, "LIMIT", 5 * 1200)
    keys = [cache.key({"number": str(n)}) for n in range(12)]
    for age, key in enumerate(reversed(keys)):
        cache.write(key, cache.Entry({"n": age}, b"\0" * 1000))
        os.utime(file_of(where, key), (time.time() - 1000 + age,) * 2)
    kept = [info.key for info in cache.contents()]
    assert kept == keys[: len(kept)]
    assert 2 <= len(kept) <= 5
    assert sum(path.stat().st_size for path in where.iterdir()) <= 5 * 1200


def test_one_look_at_the_folder_serves_many_entries(where, monkeypatch):
    looks = []
    prune = cache._prune
    monkeypatch.setattr(cache, "_prune", lambda: looks.append(prune()))
    monkeypatch.setattr(cache, "LIMIT", 32 * 10_000)
    for n in range(31):  # 1,000 bytes and a header each
        cache.write(cache.key({"number": str(n)}), cache.Entry({}, b"\0" * 1000))
    assert 3 <= len(looks) <= 5
    assert len(cache.contents()) == 31


def test_a_hit_keeps_an_entry_young(where, key):
    cache.write(key, ENTRY)
    month = 30 * 86400
    os.utime(file_of(where, key), (time.time() - month,) * 2)
    assert cache.read(key) == ENTRY
    assert time.time() - file_of(where, key).stat().st_mtime < month / 2


def test_what_a_killed_writer_left_is_removed_later(where, key):
    where.mkdir()
    old, new, foreign = (
        where / "rigidgrad-old.tmp",
        where / "rigidgrad-new.tmp",
        where / "notes.tmp",
    )
    for path in (old, new, foreign):
        path.write_bytes(b"half")
        if path is not new:
            os.utime(path, (time.time() - 1e5,) * 2)
    cache.write(key, ENTRY)
    assert not old.exists() and new.exists() and foreign.exists()


def test_contents_and_clear(where):
    for robot in ("iiwa14", "hyq"):
        cache.write(
            cache.key({"robot": robot}),
            cache.Entry({"function": "crba", "robot": robot}, b"\0" * 5000),
        )
    (where / "notes.txt").write_text("mine")
    (where / ("0" * 64 + cache.SUFFIX)).write_bytes(b"damaged")
    listed = cache.contents()
    assert sorted((info.function, info.robot) for info in listed) == [
        ("crba", "hyq"),
        ("crba", "iiwa14"),
    ]
    assert all(info.bytes > 5000 and abs(info.modified - time.time()) < 600 for info in listed)
    assert {info.key for info in listed} == {
        cache.key({"robot": "iiwa14"}),
        cache.key({"robot": "hyq"}),
    }
    assert cache.clear() == 3
    assert cache.contents() == []
    assert [path.name for path in where.iterdir()] == ["notes.txt"]
