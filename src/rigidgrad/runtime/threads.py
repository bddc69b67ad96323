"""A crew of reusable threads: after a job they wait for the next one for about 100 µs, spinning,
then sleep and use no CPU.

Workers are Python threads inside a native loop, without the GIL. A job is `void f(void* context,
i64 start, i64 stop)` over 0 … total: the caller and all workers awake take chunks of it until none
is left. Nothing of this calls Python, so that other compiled code can hand out work with `crew_run`
while the GIL is released. Threads that are kept between calls, each with an index, are the reusable
threads of B. Plancher's dissertation (2022).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import operator
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rigidgrad.errors import InputError, RigidgradError
from rigidgrad.runtime.crew_code import CREW, FIRST, MOST, WORKER, CrewCode

if TYPE_CHECKING:
    from concurrent.futures import Future

_EXIT = 0.5  # s that the end of the process may wait for workers


class _Team:
    """What workers share: all of a crew but the crew, which may end while they still work."""

    def __init__(self, size: int, code: CrewCode) -> None:
        self.size = size
        self.code = code
        self.memory = (ctypes.c_char * (FIRST + 128 * (size + 1)))()
        self.address = -(-ctypes.addressof(self.memory) // 128) * 128
        self.closed = False
        self.reset()
        with _guard:
            _teams.add(self)

    def field(self, name: str, index: int | None = None) -> ctypes.c_int64:
        """A field of the crew, or of one of its workers."""
        offset = CREW[name] if index is None else FIRST + 128 * index + WORKER[name]
        return ctypes.c_int64.from_buffer(
            self.memory, self.address - ctypes.addressof(self.memory) + offset
        )

    def reset(self) -> None:
        """The state before any worker has started: at first, and in the child of a fork."""
        self.guard = threading.Lock()
        self.threads: list[threading.Thread | None] = [None] * self.size
        self.tasks: list[deque[Any]] = [deque() for _ in range(self.size)]
        code = self.code
        functions = {"acquire": code.acquire, "release": code.release, "yield": code.give_way}
        for name, value in {
            "idle": self.size - 1,
            "size": self.size,
            "spins": code.spins,
            "busy": 0,
            "gate": 0,
            **functions,
        }.items():
            self.field(name).value = value
        for index in range(self.size):
            joins = int(index > 0)
            fields = {
                "state": 2,
                "mail": 0,
                "sleep_lock": 0,
                "seen": 0,
                "joins": joins,
                "patience": code.spins if joins else 1,
            }
            for name, value in fields.items():
                self.field(name, index).value = value

    def start(self, index: int) -> None:
        """Starts the worker if it is not there. Raises RuntimeError if the system has no more
        threads.
        """
        if self.threads[index] is None:
            with self.guard:
                if self.threads[index] is None and not self.closed:
                    sleep_lock = self.field("sleep_lock", index)
                    sleep_lock.value = sleep_lock.value or self.code.sleep_lock()
                    thread = threading.Thread(
                        target=_serve,
                        args=(self, index, _cpu()),
                        name=f"rigidgrad-{index}",
                        daemon=True,
                    )
                    thread.start()
                    self.threads[index] = thread

    def give(self, index: int, task: Any) -> None:
        """Puts a task into the worker's queue; a worker's own is done at once, for it could not
        wait for itself.
        """
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


def _serve(team: _Team, index: int, creator: int | None) -> None:
    """The life of a worker's thread; `creator` is the CPU on which it was asked for."""
    _here.team, _here.index = team, index
    _step_aside(index, creator)
    tasks = team.tasks[index]
    closed = False
    while not closed:
        team.code.work(team.address, index)
        closed = team.closed  # before the tasks: none is added after it
        while tasks:
            _perform(*tasks.popleft())
        # a task has forked: in the child, this thread is no worker any more
        if team.tasks[index] is not tasks:
            return
    team.code.leave(team.address, index)
    team.code.sleep_locks.append(team.field("sleep_lock", index).value)


def _cpu() -> int | None:
    """The CPU that this thread runs on, where the system tells."""
    try:
        return int(ctypes.CDLL(None).sched_getcpu())
    except (AttributeError, OSError, TypeError):
        return None


def _step_aside(index: int, creator: int | None) -> None:
    """Moves this new thread, once, to a CPU of its own: the creator's for worker 0, which works
    while the caller waits, and the ones after it for the others.

    Some schedulers leave a thread, and wake it ever after, where its creator runs, though other
    CPUs idle.
    """
    if creator is None or not hasattr(os, "sched_setaffinity"):
        return
    allowed = os.sched_getaffinity(0)
    # those after the creator's first, then around
    cpus = sorted(allowed, key=lambda cpu: (cpu <= creator, cpu))
    try:
        os.sched_setaffinity(0, {cpus[(index - 1) % len(cpus)]})
        os.sched_setaffinity(0, allowed)
    except OSError:  # not permitted, or the set has changed meanwhile
        pass


def _perform(
    future: Future[Any], function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    if future.set_running_or_notify_cancel():
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)


class Crew:
    """Threads that stay: `threads` of them in all (by default RIGIDGRAD_THREADS, or one for each
    CPU that this process may use).

    `run` shares a native job between the caller and the workers; `crew[i].submit(f, …)` runs Python
    on the i-th worker, always the same thread; `map` spreads a Python function over all. Workers
    start when first needed, do not survive a fork (the child starts its own), and end with
    `close()`, with the crew or with the process. Any thread may use a crew at any time: while
    another one's job is under way, `run` works alone.

    For compiled code, while this object lives: `run_address` is that of `void crew_run(void* crew,
    void* function, void* context, i64 total, i64 grain)`, which needs no GIL, and `address` its
    first argument. It wakes nobody: workers that are not awake take no part. The i64 at `address`
    counts these; where it is 0, `ensure_awake` has nothing to do.
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
        """Whether its threads have ended."""
        return self._team.closed

    def ensure_awake(self, workers: int | None = None) -> None:
        """Starts or wakes as many workers as can be of use beside the caller, by default all. It
        does not wait until they are awake.
        """
        if not self._idle.value or self.closed:
            return
        last = min(self.threads - 1, self.threads if workers is None else workers)
        try:
            for index in range(1, last + 1):
                self._team.start(index)
        except (
            RuntimeError
        ):  # no more threads to be had: those that are there, or the caller alone, do the work
            pass
        self._code.wake(self.address, last)

    def run(self, function: int, context: int | None, total: int, grain: int = 1) -> None:
        """Calls the native `void f(void* context, i64 start, i64 stop)` for all of 0 … total;
        returns when all is done.

        `start` is a multiple of `grain`, and `stop - start` is `grain` but for the last chunk, or
        all at once in the caller.
        """
        if not function or total < 0 or grain < 1:
            raise InputError(
                f"run needs the address of a function, total ≥ 0 and grain ≥ 1, not {function},"
                f" {total}, {grain}"
            )
        if total > grain:
            self.ensure_awake((total - 1) // grain)
        self._code.run(self.address, function, context, total, grain)

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """[function(x) for x in items], over all workers. Of several exceptions, that of the
        foremost item is raised.
        """
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
        """Ends the workers after what they were given, and waits for them. `run` still works, in
        the caller alone.
        """
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
        """Runs the function on this thread, after what it was given before; `.result()` waits, and
        raises what the function raised.
        """
        from concurrent.futures import Future

        future: Future[Any] = Future()
        self.crew._team.give(self.index, (future, function, args, kwargs))
        return future


def thread_count(threads: int | None = None) -> int:
    """`threads`, or what RIGIDGRAD_THREADS says, or the number of CPUs that this process may
    use.
    """
    wish: Any = threads
    name = "threads"
    if wish is None:
        wish, name = os.environ.get("RIGIDGRAD_THREADS", "").strip(), "RIGIDGRAD_THREADS"
        if not wish:
            return min(
                MOST,
                (
                    len(os.sched_getaffinity(0))
                    if hasattr(os, "sched_getaffinity")
                    else os.cpu_count() or 1
                ),
            )
    try:
        count = int(wish) if isinstance(wish, str) else operator.index(wish)
    except (TypeError, ValueError):
        count = 0
    if not 1 <= count <= MOST:
        raise InputError(f"{name} is {wish!r}; it must be a whole number from 1 to {MOST}")
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


def _code() -> CrewCode:
    global _loaded
    if _loaded is None:
        with _guard:
            _loaded = _loaded or CrewCode()
    return _loaded


class _Here(threading.local):
    """Which worker this thread is."""

    team: _Team | None = None
    index = -1


_here = _Here()
_guard = threading.Lock()
_teams: weakref.WeakSet[_Team] = weakref.WeakSet()
_shared: dict[int, Crew] = {}
_loaded: CrewCode | None = None


def _after_fork_in_child() -> None:
    global _guard
    _guard = threading.Lock()
    _here.team = None
    for team in list(_teams):
        team.reset()


@atexit.register
def _at_exit() -> None:
    """No worker may be left in code or memory that is about to go; one that is busy for long is
    left behind.
    """
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
