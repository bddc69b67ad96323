"""Crews: every item of a job is done exactly once, whoever calls, forks or leaves, and threads that
wait cost nothing.
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

from rigidgrad.errors import InputError, RigidgradError
from rigidgrad.runtime import crew_code, native, threads
from rigidgrad.runtime.threads import Crew

JOBS = """
; context[i] += i for i of the chunk
define void @add(ptr %a, i64 %start, i64 %stop) {
entry:
  br label %each
each:
  %i = phi i64 [ %start, %entry ], [ %next, %each ]
  %p = getelementptr i64, ptr %a, i64 %i
  %old = load i64, ptr %p
  %new = add i64 %old, %i
  store i64 %new, ptr %p
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %stop
  br i1 %more, label %each, label %done
done:
  ret void
}

; waits until as many chunks have begun as context[0] says, which takes that many threads at once; context[1] counts
define void @meet(ptr %a, i64 %start, i64 %stop) {
entry:
  %wanted = load i64, ptr %a
  %count = getelementptr i64, ptr %a, i64 1
  %old = atomicrmw add ptr %count, i64 1 seq_cst
  br label %wait
wait:
  %now = load atomic i64, ptr %count seq_cst, align 8
  %all = icmp sge i64 %now, %wanted
  br i1 %all, label %done, label %wait
done:
  ret void
}

; calls `crew_run` from compiled code: context = { run, crew, function, context, total, grain }, once for every item
define void @nested(ptr %c, i64 %start, i64 %stop) {
entry:
  %crew.at = getelementptr i64, ptr %c, i64 1
  %f.at = getelementptr i64, ptr %c, i64 2
  %a.at = getelementptr i64, ptr %c, i64 3
  %t.at = getelementptr i64, ptr %c, i64 4
  %g.at = getelementptr i64, ptr %c, i64 5
  %run = load ptr, ptr %c
  %crew = load ptr, ptr %crew.at
  %f = load ptr, ptr %f.at
  %a = load ptr, ptr %a.at
  %t = load i64, ptr %t.at
  %g = load i64, ptr %g.at
  br label %each
each:
  %i = phi i64 [ %start, %entry ], [ %next, %each ]
  %offset = mul i64 %i, %t
  %own = getelementptr i64, ptr %a, i64 %offset
  call void %run(ptr %crew, ptr %f, ptr %own, i64 %t, i64 %g)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %stop
  br i1 %more, label %each, label %done
done:
  ret void
}
"""
_loaded = native.load_object(native.compile_ir(JOBS))
ADD, MEET, NESTED = (_loaded.address(name) for name in ("add", "meet", "nested"))
FORK = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


@pytest.fixture(params=[1, 2, 4])
def crew(request):
    with Crew(request.param) as crew:
        yield crew


def check_add(crew: Crew, total: int, grain: int, times: int = 1) -> None:
    guarded = np.full(total + 2, -1)
    guarded[1:-1] = 0
    for _ in range(times):
        crew.run(ADD, guarded.ctypes.data + 8, total, grain)
    np.testing.assert_array_equal(guarded[1:-1], times * np.arange(total))
    assert guarded[0] == guarded[-1] == -1


def run_python(code: str) -> str:
    header = (
        "import os, sys, threading, time\nfrom rigidgrad.runtime.threads import Crew,"
        " default_crew\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", header + code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return run.stdout


# --- native jobs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("grain", [1, 2, 7, 64, 1000])
def test_every_item_is_done_exactly_once(crew, grain):
    for total in (0, 1, 2, 3, 7, 63, 64, 65, 1001):
        check_add(crew, total, grain)


def test_many_small_jobs(crew):
    check_add(crew, 5, 1, times=3000)


def test_many_jobs_with_sleep_between_them(crew):
    for _ in range(30):
        check_add(crew, 97, 3, times=3)
        time.sleep(0.001)


def test_chunks_start_at_multiples_of_the_grain(crew):
    seen = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        lambda _, start, stop: seen.append((start, stop))
    )
    crew.run(ctypes.cast(callback, ctypes.c_void_p).value, None, 23, 5)
    assert sorted(seen) in ([(0, 5), (5, 10), (10, 15), (15, 20), (20, 23)], [(0, 23)])


def wait_until_awake(crew: Crew) -> None:
    deadline = time.monotonic() + 30
    while crew._idle.value and time.monotonic() < deadline:
        crew.ensure_awake()
        time.sleep(0)
    assert crew._idle.value == 0


def test_all_threads_take_part():
    """A job that only ends when three threads are in it at the same time."""
    with Crew(3) as crew:
        idle = crew._team.field("idle")
        idle.value -= 100  # sleepers count as awake, so that the caller never takes all for itself
        over = threading.Event()

        def call() -> None:  # whoever fell asleep before the job began
            while not over.wait(0.001):
                crew.ensure_awake()

        caller = threading.Thread(target=call)
        caller.start()
        try:
            for _ in range(5):
                meeting = np.array([3, 0])
                crew.run(MEET, meeting.ctypes.data, 3, 1)
                assert meeting[1] == 3
        finally:
            over.set()
            caller.join()
            idle.value += 100


def test_workers_wake_again_after_sleep():
    with Crew(3) as crew:
        for _ in range(5):
            wait_until_awake(crew)
            deadline = time.monotonic() + 30
            while crew._idle.value < 2 and time.monotonic() < deadline:
                time.sleep(0.001)
            assert crew._idle.value == 2


def test_only_as_many_workers_are_started_as_are_of_use():
    with Crew(8) as crew:
        crew.run(ADD, np.zeros(1, np.int64).ctypes.data, 1, 1)
        assert [thread for thread in crew._team.threads if thread] == []
        check_add(crew, 3, 1)
        assert sum(thread is not None for thread in crew._team.threads) == 2


def test_wrong_arguments_are_told():
    with Crew(2) as crew:
        for arguments in [(0, 0, 1, 1), (ADD, 0, -1, 1), (ADD, 0, 1, 0)]:
            with pytest.raises(InputError, match="total"):
                crew.run(*arguments)
    for wrong in (0, -1, 2.5, "four", 100_000):
        with pytest.raises(InputError, match="threads"):
            Crew(wrong)


def test_the_number_of_threads_follows_the_environment(monkeypatch):
    monkeypatch.delenv("RIGIDGRAD_THREADS", raising=False)
    assert threads.thread_count() == (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    )
    monkeypatch.setenv("RIGIDGRAD_THREADS", "3")
    assert Crew().threads == len(Crew()) == 3
    assert threads.default_crew() is threads.default_crew(3)
    assert threads.default_crew(2) is not threads.default_crew(3)
    for wrong in ("many", "0", "-2", "1.5"):
        monkeypatch.setenv("RIGIDGRAD_THREADS", wrong)
        with pytest.raises(InputError, match="RIGIDGRAD_THREADS"):
            Crew()


def test_a_shared_crew_that_was_closed_is_replaced():
    first = threads.default_crew(2)
    first.close()
    assert threads.default_crew(2) is not first
    check_add(threads.default_crew(2), 100, 3)


# --- several at once ------------------------------------------------------------------------------


def test_several_python_threads_at_once(crew):
    errors = []

    def work() -> None:
        try:
            for total in range(0, 200, 3):
                check_add(crew, total, 4, times=5)
        except BaseException as error:
            errors.append(error)

    several = [threading.Thread(target=work) for _ in range(6)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()
    assert not errors


def test_a_job_that_hands_out_jobs_ends(crew):
    inner, outer = 50, 20
    for _ in range(50):
        result = np.zeros(inner * outer, np.int64)
        context = np.array([crew.run_address, crew.address, ADD, result.ctypes.data, inner, 3])
        crew.run(NESTED, context.ctypes.data, outer, 1)
        np.testing.assert_array_equal(result, np.tile(np.arange(inner), outer))


def test_a_python_callback_inside_a_job_may_use_the_crew(crew):
    results = []

    def inside(_, start, stop):
        for _ in range(start, stop):
            check_add(crew, 40, 3)
            results.append(crew.map(abs, [-1, -2]))

    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(inside)
    crew.run(ctypes.cast(callback, ctypes.c_void_p).value, None, 12, 1)
    assert results == [[1, 2]] * 12


def test_the_gil_is_released_during_a_job():
    """The job waits for a count that only Python, in another thread, brings about."""
    with Crew(2) as crew:
        meeting = np.array([1000, 0])
        thread = threading.Thread(target=crew.run, args=(MEET, meeting.ctypes.data, 1, 1))
        thread.start()
        while meeting[1] == 0:
            time.sleep(0)
        assert thread.is_alive()
        meeting[1] = 1000
        thread.join()


# --- Python on a worker ---------------------------------------------------------------------------


def test_each_worker_is_one_thread_and_keeps_its_state(crew):
    local = threading.local()

    def remember(value):
        local.value = value
        return threading.get_ident()

    idents = [worker.submit(remember, k).result() for k, worker in enumerate(crew)]
    assert len(set(idents)) == len(crew)
    assert threading.get_ident() not in idents
    for k in reversed(range(len(crew))):
        assert crew[k].submit(lambda: local.value).result() == k
        assert crew[k - len(crew)].submit(threading.get_ident).result() == idents[k]
    with pytest.raises(IndexError):
        crew[len(crew)]
    with pytest.raises(IndexError):
        crew[-len(crew) - 1]


def test_submitted_work_is_done_in_order_beside_native_jobs(crew):
    done: list[int] = []
    handles = []
    for k in range(300):
        handles.append(crew[-1].submit(done.append, k))
        check_add(crew, 7, 1)
    assert [handle.result() for handle in handles] == [None] * 300
    assert done == list(range(300))


def test_exceptions_reach_the_one_who_asks(crew):
    handle = crew[0].submit(int, "seven")
    with pytest.raises(ValueError, match="seven"):
        handle.result()
    with pytest.raises(SystemExit):
        crew[0].submit(sys.exit, 3).result()
    assert crew[0].submit(int, "7", base=8).result() == 7


def test_map_keeps_the_order_and_raises_the_foremost_exception(crew):
    assert crew.map(lambda x: x * x, range(100)) == [x * x for x in range(100)]
    assert crew.map(abs, []) == []
    with pytest.raises(ZeroDivisionError):
        crew.map(lambda x: 1 / x, [3, 2, 1, 0, 1])
    assert crew.map(abs, [-1]) == [1]


def test_a_worker_can_use_its_own_crew_without_waiting_for_itself(crew):
    def inside():
        check_add(crew, 100, 3)
        return crew[0].submit(threading.get_ident).result(), crew.map(abs, [-1, -2, -3])

    ident, values = crew[0].submit(inside).result(timeout=60)
    assert ident == crew[0].submit(threading.get_ident).result()
    assert values == [1, 2, 3]


# --- the end --------------------------------------------------------------------------------------


def test_closing_finishes_what_was_given_and_ends_the_threads(crew):
    done: list[int] = []
    for k in range(50):
        crew[k % len(crew)].submit(done.append, k)
    check_add(crew, 100, 1)
    started = [thread for thread in crew._team.threads if thread]
    crew.close()
    crew.close()
    assert sorted(done) == list(range(50))
    assert not any(thread.is_alive() for thread in started)
    check_add(crew, 100, 1, times=10)
    with pytest.raises(RigidgradError, match="closed"):
        crew[0].submit(abs, 1)
    with pytest.raises(RigidgradError, match="closed"):
        crew.map(abs, [1, 2])


def test_a_crew_that_nobody_holds_ends_its_threads():
    crew = Crew(3)
    check_add(crew, 100, 1)
    started = [thread for thread in crew._team.threads if thread]
    handle = crew[1].submit(time.sleep, 0.01)
    gone = weakref.ref(crew)
    del crew
    gc.collect()
    assert gone() is None
    for thread in started:
        thread.join(30)
        assert not thread.is_alive()
    assert handle.result() is None


def test_a_system_without_threads_still_does_the_work(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    with Crew(4) as crew:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        check_add(crew, 100, 3)
        with pytest.raises(RigidgradError, match="does not start a thread"):
            crew[0].submit(abs, 1)
        monkeypatch.undo()
        check_add(crew, 100, 3)
        assert crew[0].submit(abs, -1).result() == 1


def test_waiting_costs_no_cpu():
    with Crew(4) as crew:
        check_add(crew, 1000, 1, times=10)
        crew[0].submit(abs, 1).result()
        time.sleep(0.05)
        before = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - before < 0.1


@pytest.mark.parametrize(
    "ending",
    [
        "pass",
        "crew.close()",
        "del crew",
        "sys.exit()",
        "crew[0].submit(time.sleep, 60); crew[0].submit(print, 'never')",
        "crew[1].submit(crew.map, abs, [1])",
        (
            "threading.Thread(target=lambda: [crew.run(ADD, memory.ctypes.data, 100, 1) for _ in"
            " range(10**9)], daemon=True).start()"
        ),
        "import atexit; atexit.register(lambda: crew.ensure_awake())",
        "keep = crew; crew.self = crew",
        (
            "child = threading.Thread(target=lambda: (time.sleep(0.05), crew.map(abs, range(9))));"
            " child.start()"
        ),
    ],
)
def test_the_process_ends(ending):
    begin = f"""
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_threads import ADD, np
memory = np.zeros(100, np.int64)
crew = Crew(3)
crew.map(abs, range(9))
crew.run(ADD, memory.ctypes.data, 100, 1)
print("end")
"""
    assert run_python(begin + ending) == "end\n"


# --- fork -----------------------------------------------------------------------------------------


@FORK
def test_a_forked_child_starts_its_own_workers():
    assert (
        run_python("""
crew, shared = Crew(3), default_crew(2)
address = crew.address
def idents(c): return [worker.submit(os.getpid).result() for worker in c]
parent = idents(crew), idents(shared)
crew.ensure_awake()
def busy():
    while not done:
        crew.map(abs, range(20))
done = False
thread = threading.Thread(target=busy); thread.start()
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        assert crew.address == address
        assert idents(crew) == [os.getpid()] * 3 and idents(shared) == [os.getpid()] * 2
        grandchild = os.fork()
        if grandchild == 0:
            assert crew.map(abs, [-1, -2, -3]) == [1, 2, 3]
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]) == 7
        crew.close()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
done = True
thread.join()
assert (idents(crew), idents(shared)) == parent
print('good')
""")
        == "good\n"
    )


@FORK
def test_a_child_forked_by_a_worker_can_use_the_crew():
    assert (
        run_python("""
crew = Crew(2)
def fork():
    pid = os.fork()
    if pid == 0:
        good = crew[0].submit(os.getpid).result() == os.getpid() and crew.map(abs, [-1, -2]) == [1, 2]
        os._exit(7 if good else 8)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print([crew[k].submit(fork).result() for k in range(2)])
""")
        == "[7, 7]\n"
    )


@FORK
def test_native_jobs_work_in_a_child():
    with Crew(3) as crew:
        check_add(crew, 1000, 7)
        pid = os.fork()
        if pid == 0:
            try:
                check_add(crew, 1000, 7, times=20)
                os._exit(7)
            finally:
                os._exit(8)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        check_add(crew, 1000, 7)


@pytest.mark.parametrize(
    "triple", ["x86_64-unknown-linux-gnu", "aarch64-apple-darwin", "riscv64-unknown-linux-gnu"]
)
def test_the_native_loop_is_valid_for_other_cpus(triple):
    import llvmlite.binding as llvm

    native.host()
    llvm.parse_assembly(crew_code.render(triple)).verify()
