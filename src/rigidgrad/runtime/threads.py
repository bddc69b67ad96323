"""A crew of reusable threads: after a job they wait for the next one for about 100 µs, spinning, then sleep and use no CPU.

Workers are Python threads inside a native loop, without the GIL. A job is `void f(void* context, i64 start, i64 stop)` over 0 … total:
the caller and all workers awake take chunks of it until none is left. Nothing of this calls Python, so that other compiled code can
hand out work with `crew_run` while the GIL is released. Threads that are kept between calls, each with an index, are the reusable
threads of B. Plancher's dissertation (2022).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import operator
import os
import string
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rigidgrad.errors import InputError, RigidgradError
from rigidgrad.runtime import cache, native

if TYPE_CHECKING:
    from concurrent.futures import Future

# The memory of a crew: fields, in bytes from its address. What different threads write lies 128 bytes apart, a pair of cache lines.
_CREW = {
    "idle": 0,  # workers that would take part in jobs, but sleep or were never started
    "size": 128,  # from here on constants: workers; spins before sleeping; functions to acquire and release a lock, to yield the CPU
    "spins": 136,
    "acquire": 144,
    "release": 152,
    "yield": 160,
    "busy": 256,  # 1 while a caller has a job under way
    "gate": 384,  # number of the job (48 bits), whether it is open (1 bit), how many workers are at it (15 bits); then the job itself
    "function": 392,
    "context": 400,
    "total": 408,
    "grain": 416,
    "next": 512,  # where the next chunk starts
}
# The memory of worker i begins at 640 + 128 i.
_WORKER = {
    "state": 0,  # 0 awake, 1 asleep, 2 not started
    "mail": 8,  # not 0: Python has something for this worker
    "bed": 16,  # the lock in which it sleeps
    "seen": 24,  # the last job it took part in
    "joins": 32,  # 1 if it takes part in jobs: all but worker 0, whose place is the caller's
    "patience": 40,  # spins before it sleeps
}

_IR = """
define internal void @drain(ptr %crew, ptr %function, ptr %context, i64 %total, i64 %grain) {
  $crew
  br label %take
take:
  %start = atomicrmw add ptr %next.at, i64 %grain monotonic
  %left = icmp slt i64 %start, %total                br i1 %left, label %chunk, label %done
chunk:
  %end = add i64 %start, %grain                      %stop = call i64 @llvm.smin.i64(i64 %end, i64 %total)
  call void %function(ptr %context, i64 %start, i64 %stop)
  br label %take
done:
  ret void
}

define void @crew_run(ptr %crew, ptr %function, ptr %context, i64 %total, i64 %wish) {
  $crew
  %grain = call i64 @llvm.smax.i64(i64 %wish, i64 1)
  %many = icmp sgt i64 %total, %grain                %idle = load atomic i64, ptr %idle.at monotonic, align 8
  %size = load i64, ptr %size.at, align 8            %others = sub i64 %size, 1
  %awake = icmp slt i64 %idle, %others               %share = and i1 %many, %awake
  br i1 %share, label %claim, label %alone
claim:
  %claimed = cmpxchg ptr %busy.at, i64 0, i64 1 acquire monotonic
  %mine = extractvalue { i64, i1 } %claimed, 1       br i1 %mine, label %open, label %alone
open:
  store ptr %function, ptr %function.at, align 8     store ptr %context, ptr %context.at, align 8
  store i64 %total, ptr %total.at, align 8           store i64 %grain, ptr %grain.at, align 8
  store atomic i64 0, ptr %next.at monotonic, align 8
  %before = load atomic i64, ptr %gate.at monotonic, align 8
  %number = and i64 %before, -65536                  %opened = add i64 %number, 98304
  store atomic i64 %opened, ptr %gate.at release, align 8
  call void @drain(ptr %crew, ptr %function, ptr %context, i64 %total, i64 %grain)
  %closing = atomicrmw and ptr %gate.at, i64 -32769 acq_rel
  %spins = load i64, ptr %spins.at, align 8          br label %wait
wait:
  %left = phi i64 [ %spins, %open ], [ %fewer, %pause ], [ 64, %yield ]
  %now = load atomic i64, ptr %gate.at acquire, align 8
  %workers = and i64 %now, 32767                     %over = icmp eq i64 %workers, 0
  br i1 %over, label %free, label %pause
pause:
  $pause
  %fewer = sub i64 %left, 1                          %patient = icmp sgt i64 %fewer, 0
  br i1 %patient, label %wait, label %yield
yield:
  %give = load ptr, ptr %yield.at, align 8           %given = call i32 %give()
  br label %wait
free:
  store atomic i64 0, ptr %busy.at release, align 8  ret void
alone:
  %some = icmp sgt i64 %total, 0                     br i1 %some, label %all, label %done
all:
  call void %function(ptr %context, i64 0, i64 %total)
  br label %done
done:
  ret void
}

; Wakes a worker if it sleeps; of several threads that try, exactly one releases its lock.
define internal void @rouse(ptr %crew, i64 %index) {
  $crew
  $worker
  %swap = cmpxchg ptr %state.at, i64 1, i64 0 seq_cst seq_cst
  %slept = extractvalue { i64, i1 } %swap, 1         br i1 %slept, label %wake, label %done
wake:
  %joins = load i64, ptr %joins.at, align 8          %old = atomicrmw sub ptr %idle.at, i64 %joins monotonic
  %bed = load ptr, ptr %bed.at, align 8              %release = load ptr, ptr %release.at, align 8
  call void %release(ptr %bed)
  br label %done
done:
  ret void
}

; Calls a worker back to Python. Either it sees the mail before it sleeps, or we see that it sleeps.
define void @crew_post(ptr %crew, i64 %index) {
  $worker
  store atomic i64 1, ptr %mail.at seq_cst, align 8  fence seq_cst
  call void @rouse(ptr %crew, i64 %index)
  ret void
}

; Wakes those of the workers 1 … last that sleep.
define void @crew_wake(ptr %crew, i64 %last) {
entry:
  br label %each
each:
  %index = phi i64 [ 1, %entry ], [ %following, %one ]
  %inside = icmp sle i64 %index, %last               br i1 %inside, label %ask, label %done
ask:
  $worker
  %state = load atomic i64, ptr %state.at monotonic, align 8
  %asleep = icmp eq i64 %state, 1                    br i1 %asleep, label %wake, label %one
wake:
  call void @rouse(ptr %crew, i64 %index)
  br label %one
one:
  %following = add i64 %index, 1                     br label %each
done:
  ret void
}

; The life of a worker, until Python has something for it.
define void @crew_work(ptr %crew, i64 %index) {
  $crew
  $worker
  %bed = load ptr, ptr %bed.at, align 8              %acquire = load ptr, ptr %acquire.at, align 8
  %joins = load i64, ptr %joins.at, align 8          %patience = load i64, ptr %patience.at, align 8
  %former = atomicrmw xchg ptr %state.at, i64 0 seq_cst
  %novice = icmp eq i64 %former, 2                   %enlist = select i1 %novice, i64 %joins, i64 0
  %enlisted = atomicrmw sub ptr %idle.at, i64 %enlist monotonic
  %joiner = icmp ne i64 %joins, 0                    br label %rest
rest:
  br label %spin
spin:
  %left = phi i64 [ %patience, %rest ], [ %fewer, %pause ], [ %left, %join ]
  %now = load atomic i64, ptr %gate.at acquire, align 8
  %number = lshr i64 %now, 16                        %seen = load i64, ptr %seen.at, align 8
  %new = icmp ne i64 %number, %seen                  %bit = and i64 %now, 32768
  %open = icmp ne i64 %bit, 0                        %offer = and i1 %new, %open
  %fresh = and i1 %offer, %joiner                    br i1 %fresh, label %join, label %look
join:
  %entered = add i64 %now, 1                         %swap = cmpxchg ptr %gate.at, i64 %now, i64 %entered acq_rel monotonic
  %in = extractvalue { i64, i1 } %swap, 1            br i1 %in, label %work, label %spin
work:
  store i64 %number, ptr %seen.at, align 8
  %function = load ptr, ptr %function.at, align 8    %context = load ptr, ptr %context.at, align 8
  %total = load i64, ptr %total.at, align 8          %grain = load i64, ptr %grain.at, align 8
  call void @drain(ptr %crew, ptr %function, ptr %context, i64 %total, i64 %grain)
  %gone = atomicrmw sub ptr %gate.at, i64 1 release  br label %rest
look:
  %letter = load atomic i64, ptr %mail.at monotonic, align 8
  %called = icmp ne i64 %letter, 0                   br i1 %called, label %leave, label %pause
pause:
  $pause
  %fewer = sub i64 %left, 1                          %patient = icmp sgt i64 %fewer, 0
  br i1 %patient, label %spin, label %doze
doze:
  %counted = atomicrmw add ptr %idle.at, i64 %joins monotonic
  store atomic i64 1, ptr %state.at seq_cst, align 8 fence seq_cst
  %late = load atomic i64, ptr %mail.at seq_cst, align 8
  %recalled = icmp ne i64 %late, 0                   br i1 %recalled, label %stay, label %sleep
stay:
  call void @rouse(ptr %crew, i64 %index)
  br label %sleep
sleep:
  %woken = call i32 %acquire(ptr %bed, i32 1)        br label %rest
leave:
  %read = atomicrmw xchg ptr %mail.at, i64 0 acquire ret void
}

define void @crew_leave(ptr %crew, i64 %index) {
  $crew
  $worker
  %joins = load i64, ptr %joins.at, align 8          store atomic i64 2, ptr %state.at seq_cst, align 8
  %old = atomicrmw add ptr %idle.at, i64 %joins monotonic
  ret void
}

; How a worker waits, `count` times over.
define void @crew_spin(ptr %word, i64 %count) {
entry:
  br label %spin
spin:
  %left = phi i64 [ %count, %entry ], [ %fewer, %spin ]
  %now = load atomic i64, ptr %word acquire, align 8
  $pause
  %fewer = sub i64 %left, 1                          %patient = icmp sgt i64 %fewer, 0
  br i1 %patient, label %spin, label %done
done:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
"""

_SPIN = 100_000  # ns that a worker spins before it sleeps
_EXIT = 0.5  # s that the end of the process may wait for workers
_MOST = 1024  # threads
_FIRST = 640  # bytes before the first worker


class _Code:
    """The native side, and what it takes from the system: Python's own locks, which need no GIL, and a way to yield the CPU."""

    def __init__(self) -> None:
        ir = _render(native.host().triple)
        key = cache.key({"crew": ir})
        entry = cache.read(key)
        if entry is None:
            entry = cache.Entry({"function": "crew", "robot": ""}, native.compile_ir(ir))
            cache.write(key, entry)
        self.loaded = native.load_object(entry.code)
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        self.run = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, integer, integer)(self.loaded.address("crew_run"))
        self.work, self.post, self.wake, self.leave, self.spin = (
            ctypes.CFUNCTYPE(None, pointer, integer)(self.loaded.address(name))
            for name in ("crew_work", "crew_post", "crew_wake", "crew_leave", "crew_spin")
        )
        yielding = ctypes.CDLL("kernel32").SwitchToThread if os.name == "nt" else ctypes.CDLL(None).sched_yield
        functions = ctypes.pythonapi.PyThread_acquire_lock, ctypes.pythonapi.PyThread_release_lock, yielding
        self.acquire, self.release, self.give_way = (ctypes.cast(function, pointer).value or 0 for function in functions)
        self._allocate = ctypes.PYFUNCTYPE(pointer)(("PyThread_allocate_lock", ctypes.pythonapi))
        self._acquire = ctypes.PYFUNCTYPE(ctypes.c_int, pointer, ctypes.c_int)(("PyThread_acquire_lock", ctypes.pythonapi))
        self.beds: list[int] = []  # never freed: the thread that released one may still be about to return from it
        self.spins = self._calibrate()

    def bed(self) -> int:
        """A lock that is held, for a worker to sleep in until another thread releases it."""
        with contextlib.suppress(IndexError):
            return self.beds.pop()
        lock = self._allocate()
        if not lock:
            raise RuntimeError("no memory for a lock")
        self._acquire(lock, 1)
        return int(lock)

    def _calibrate(self) -> int:
        """How many spins take as long as a worker shall wait."""
        word, count, best = ctypes.c_int64(), 64, 0
        while best < _SPIN // 4:
            count *= 4
            times = []
            for _ in range(3):
                start = time.perf_counter_ns()
                self.spin(ctypes.addressof(word), count)
                times.append(time.perf_counter_ns() - start)
            best = min(times)
        return count * _SPIN // best


def _render(triple: str) -> str:
    """The IR, with the addresses of fields and the CPU's own way to wait in a loop."""
    hints = {"x86_64": "llvm.x86.sse2.pause()", "aarch64": "llvm.aarch64.hint(i32 1)", "arm64": "llvm.aarch64.hint(i32 1)"}
    hint = hints.get(triple.partition("-")[0])
    crew = [f"%{name}.at = getelementptr i8, ptr %crew, i64 {offset}" for name, offset in _CREW.items()]
    worker = [
        "%line = mul i64 %index, 128",
        f"%first = getelementptr i8, ptr %crew, i64 {_FIRST}",
        "%worker = getelementptr i8, ptr %first, i64 %line",
    ]
    worker += [f"%{name}.at = getelementptr i8, ptr %worker, i64 {offset}" for name, offset in _WORKER.items()]
    ir = string.Template(_IR).substitute(crew="\n  ".join(crew), worker="\n  ".join(worker), pause=f"call void @{hint}" if hint else "")
    return ir + (f"declare void @{hint.replace('i32 1', 'i32')}\n" if hint else "")


class _Team:
    """What workers share: all of a crew but the crew, which may end while they still work."""

    def __init__(self, size: int, code: _Code) -> None:
        self.size = size
        self.code = code
        self.memory = (ctypes.c_char * (_FIRST + 128 * (size + 1)))()
        self.address = -(-ctypes.addressof(self.memory) // 128) * 128
        self.closed = False
        self.reset()
        with _guard:
            _teams.add(self)

    def field(self, name: str, index: int | None = None) -> ctypes.c_int64:
        """A field of the crew, or of one of its workers."""
        offset = _CREW[name] if index is None else _FIRST + 128 * index + _WORKER[name]
        return ctypes.c_int64.from_buffer(self.memory, self.address - ctypes.addressof(self.memory) + offset)

    def reset(self) -> None:
        """The state before any worker has started: at first, and in the child of a fork."""
        self.guard = threading.Lock()
        self.threads: list[threading.Thread | None] = [None] * self.size
        self.tasks: list[deque[Any]] = [deque() for _ in range(self.size)]
        code = self.code
        functions = {"acquire": code.acquire, "release": code.release, "yield": code.give_way}
        for name, value in {"idle": self.size - 1, "size": self.size, "spins": code.spins, "busy": 0, "gate": 0, **functions}.items():
            self.field(name).value = value
        for index in range(self.size):
            joins = int(index > 0)
            fields = {"state": 2, "mail": 0, "bed": 0, "seen": 0, "joins": joins, "patience": code.spins if joins else 1}
            for name, value in fields.items():
                self.field(name, index).value = value

    def start(self, index: int) -> None:
        """Starts the worker if it is not there. Raises RuntimeError if the system has no more threads."""
        if self.threads[index] is None:
            with self.guard:
                if self.threads[index] is None and not self.closed:
                    bed = self.field("bed", index)
                    bed.value = bed.value or self.code.bed()
                    thread = threading.Thread(target=_serve, args=(self, index), name=f"rigidgrad-{index}", daemon=True)
                    thread.start()
                    self.threads[index] = thread

    def give(self, index: int, task: Any) -> None:
        """Puts a task into the worker's queue; a worker's own is done at once, for it could not wait for itself."""
        if _here.team is self and _here.index == index:
            _perform(*task)
            return
        try:
            self.start(index)
        except RuntimeError as error:
            raise RigidgradError(f"the system does not start a thread: {error}") from None
        with self.guard:
            if self.closed:
                raise RigidgradError("this crew is closed; make another one")
            self.tasks[index].append(task)
        self.code.post(self.address, index)

    def dismiss(self) -> None:
        """Lets the workers end after what they were given."""
        with self.guard:
            self.closed = True
        for index, thread in enumerate(self.threads):
            if thread is not None:
                self.code.post(self.address, index)


def _serve(team: _Team, index: int) -> None:
    """The life of a worker's thread."""
    _here.team, _here.index = team, index
    tasks = team.tasks[index]
    closed = False
    while not closed:
        team.code.work(team.address, index)
        closed = team.closed  # before the tasks: none is added after it
        while tasks:
            _perform(*tasks.popleft())
        if team.tasks[index] is not tasks:  # a task has forked: in the child, this thread is no worker any more
            return
    team.code.leave(team.address, index)
    team.code.beds.append(team.field("bed", index).value)


def _perform(future: Future[Any], function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)


class Crew:
    """Threads that stay: `threads` of them in all (by default RIGIDGRAD_THREADS, or one for each CPU that this process may use).

    `run` shares a native job between the caller and the workers; `crew[i].submit(f, …)` runs Python on the i-th worker, always the
    same thread; `map` spreads a Python function over all. Workers start when first needed, do not survive a fork (the child starts
    its own), and end with `close()`, with the crew or with the process. Any thread may use a crew at any time: while another one's
    job is under way, `run` works alone.

    For compiled code, while this object lives: `run_address` is that of `void crew_run(void* crew, void* function, void* context,
    i64 total, i64 grain)`, which needs no GIL, and `address` its first argument. It wakes nobody: workers that are not awake take no
    part. The i64 at `address` counts these; where it is 0, `ensure_awake` has nothing to do.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = thread_count(threads)
        self._code = _code()
        self._team = _Team(self.threads, self._code)
        self._idle = self._team.field("idle")
        self.address = self._team.address
        self.run_address = self._code.loaded.address("crew_run")
        weakref.finalize(self, self._team.dismiss).atexit = False

    @property
    def closed(self) -> bool:
        return self._team.closed

    def ensure_awake(self, workers: int | None = None) -> None:
        """Starts or wakes as many workers as can be of use beside the caller, by default all. It does not wait until they are awake."""
        if not self._idle.value or self.closed:
            return
        last = min(self.threads - 1, self.threads if workers is None else workers)
        try:
            for index in range(1, last + 1):
                self._team.start(index)
        except RuntimeError:  # no more threads to be had: those that are there, or the caller alone, do the work
            pass
        self._code.wake(self.address, last)

    def run(self, function: int, context: int | None, total: int, grain: int = 1) -> None:
        """Calls the native `void f(void* context, i64 start, i64 stop)` for all of 0 … total; returns when all is done.

        `start` is a multiple of `grain`, and `stop - start` is `grain` but for the last chunk, or all at once in the caller.
        """
        if not function or total < 0 or grain < 1:
            raise InputError(f"run needs the address of a function, total ≥ 0 and grain ≥ 1, not {function}, {total}, {grain}")
        if total > grain:
            self.ensure_awake((total - 1) // grain)
        self._code.run(self.address, function, context, total, grain)

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """[function(x) for x in items], over all workers. Of several exceptions, that of the foremost item is raised."""
        things = list(items)
        if _here.team is self._team:
            return [function(thing) for thing in things]
        results: list[Any] = [None] * len(things)
        errors: dict[int, BaseException] = {}
        numbers = itertools.count()

        def work() -> None:
            for k in numbers:
                if k >= len(things) or errors:
                    return
                try:
                    results[k] = function(things[k])
                except BaseException as error:
                    errors[k] = error

        for future in [worker.submit(work) for worker, _ in zip(self, things, strict=False)]:
            future.result()
        if errors:
            raise errors[min(errors)]
        return results

    def __len__(self) -> int:
        return self.threads

    def __getitem__(self, index: int) -> Worker:
        if not -self.threads <= index < self.threads:
            raise IndexError(f"this crew has {self.threads} workers; there is no number {index}")
        return Worker(self, index % self.threads)

    def __iter__(self) -> Iterator[Worker]:
        return (Worker(self, index) for index in range(self.threads))

    def close(self) -> None:
        """Ends the workers after what they were given, and waits for them. `run` still works, in the caller alone."""
        self._team.dismiss()
        for thread in self._team.threads:
            if thread is not None and thread is not threading.current_thread():
                thread.join()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Worker:
    """One thread of a crew."""

    def __init__(self, crew: Crew, index: int) -> None:
        self.crew = crew
        self.index = index

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Runs the function on this thread, after what it was given before; `.result()` waits, and raises what the function raised."""
        from concurrent.futures import Future

        future: Future[Any] = Future()
        self.crew._team.give(self.index, (future, function, args, kwargs))
        return future


def thread_count(threads: int | None = None) -> int:
    """`threads`, or what RIGIDGRAD_THREADS says, or the number of CPUs that this process may use."""
    wish: Any = threads
    name = "threads"
    if wish is None:
        wish, name = os.environ.get("RIGIDGRAD_THREADS", "").strip(), "RIGIDGRAD_THREADS"
        if not wish:
            return min(_MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    try:
        count = int(wish) if isinstance(wish, str) else operator.index(wish)
    except (TypeError, ValueError):
        count = 0
    if not 1 <= count <= _MOST:
        raise InputError(f"{name} is {wish!r}; it must be a whole number from 1 to {_MOST}")
    return count


def default_crew(threads: int | None = None) -> Crew:
    """The crew of that size which all of this process shares."""
    count = thread_count(threads)
    crew = _shared.get(count)
    if crew is None or crew.closed:
        crew = Crew(count)
        with _guard:
            other = _shared.get(count)
            crew = _shared[count] = crew if other is None or other.closed else other
    return crew


def _code() -> _Code:
    global _loaded
    if _loaded is None:
        with _guard:
            _loaded = _loaded or _Code()
    return _loaded


class _Here(threading.local):
    """Which worker this thread is."""

    team: _Team | None = None
    index = -1


_here = _Here()
_guard = threading.Lock()
_teams: weakref.WeakSet[_Team] = weakref.WeakSet()
_shared: dict[int, Crew] = {}
_loaded: _Code | None = None


def _after_fork_in_child() -> None:
    global _guard
    _guard = threading.Lock()
    _here.team = None
    for team in list(_teams):
        team.reset()


@atexit.register
def _at_exit() -> None:
    """No worker may be left in code or memory that is about to go; one that is busy for long is left behind."""
    with _guard:
        teams = list(_teams)
    for team in teams:
        for tasks in team.tasks:
            with contextlib.suppress(IndexError):
                while True:
                    tasks.popleft()[0].cancel()
        team.dismiss()
    end = time.monotonic() + _EXIT
    for thread in [thread for team in teams for thread in team.threads if thread is not None]:
        thread.join(max(0.0, end - time.monotonic()))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
