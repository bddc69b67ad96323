"""The native side of a crew, as LLVM IR: its memory, the loop of a worker, and how a job is shared.
`runtime.threads` is the Python side.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import string
import time

from rigidgrad.runtime import cache, native

# The memory of a crew: fields, in bytes from its address. What different threads write lies 128
# bytes apart, a pair of cache lines.
CREW = {
    "idle": 0,  # workers that would take part in jobs, but sleep or were never started
    # from here on constants: workers; spins before sleeping; functions to acquire and release a
    # lock, to yield the CPU
    "size": 128,
    "spins": 136,
    "acquire": 144,
    "release": 152,
    "yield": 160,
    "busy": 256,  # 1 while a caller has a job under way
    # number of the job (48 bits), whether it is open (1 bit), how many workers are at it (15 bits);
    # then the job itself
    "gate": 384,
    "function": 392,
    "context": 400,
    "total": 408,
    "grain": 416,
}
# The memory of worker i begins at 640 + 128 i.
WORKER = {
    "state": 0,  # 0 awake, 1 asleep, 2 not started
    "mail": 8,  # not 0: Python has something for this worker
    "sleep_lock": 16,  # the lock in which it sleeps
    "seen": 24,  # the last job it took part in
    "joins": 32,  # 1 if it takes part in jobs: all but worker 0, whose place is the caller's
    "patience": 40,  # spins before it sleeps
    "next": 64,  # how many chunks of its share are taken; the caller's share is worker 0's
}

_IR = """
; Each thread has a share of the chunks, always the same one, so that data stay in its cache from job to job; who is done helps the next.
define internal void @drain(ptr %crew, i64 %me, ptr %function, ptr %context, i64 %total, i64 %grain) {
entry:
  $crew
  %size = load i64, ptr %size.at, align 8            %more = add i64 %total, %grain
  %round = sub i64 %more, 1                          %chunks = udiv i64 %round, %grain
  br label %share
share:
  %helped = phi i64 [ 0, %entry ], [ %following, %take ]
  %over = icmp sge i64 %helped, %size                br i1 %over, label %done, label %open
open:
  %turn = add i64 %me, %helped                       %index = urem i64 %turn, %size
  $worker
  %above = add i64 %index, 1
  %low = mul i64 %chunks, %index                     %first.chunk = udiv i64 %low, %size
  %high = mul i64 %chunks, %above                    %last.chunk = udiv i64 %high, %size
  %following = add i64 %helped, 1                    br label %take
take:
  %taken = atomicrmw add ptr %next.at, i64 1 monotonic
  %mine = add i64 %first.chunk, %taken
  %left = icmp slt i64 %mine, %last.chunk            br i1 %left, label %chunk, label %share
chunk:
  %start = mul i64 %mine, %grain
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
  br label %clear
clear:
  %index = phi i64 [ 0, %open ], [ %after, %clear ]
  $worker
  store atomic i64 0, ptr %next.at monotonic, align 8
  %after = add i64 %index, 1                         %again = icmp slt i64 %after, %size
  br i1 %again, label %clear, label %cleared
cleared:
  %before = load atomic i64, ptr %gate.at monotonic, align 8
  %number = and i64 %before, -65536                  %opened = add i64 %number, 98304
  store atomic i64 %opened, ptr %gate.at release, align 8
  call void @drain(ptr %crew, i64 0, ptr %function, ptr %context, i64 %total, i64 %grain)
  %closing = atomicrmw and ptr %gate.at, i64 -32769 acq_rel
  %spins = load i64, ptr %spins.at, align 8          br label %wait
wait:
  %left = phi i64 [ %spins, %cleared ], [ %fewer, %pause ], [ 64, %yield ]
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
  %sleep_lock = load ptr, ptr %sleep_lock.at, align 8              %release = load ptr, ptr %release.at, align 8
  call void %release(ptr %sleep_lock)
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
  %sleep_lock = load ptr, ptr %sleep_lock.at, align 8              %acquire = load ptr, ptr %acquire.at, align 8
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
  call void @drain(ptr %crew, i64 %index, ptr %function, ptr %context, i64 %total, i64 %grain)
  %gone = atomicrmw sub ptr %gate.at, i64 1 release  br label %rest
look:
  %letter = load atomic i64, ptr %mail.at monotonic, align 8
  %called = icmp ne i64 %letter, 0                   br i1 %called, label %leave, label %pause
pause:
  $pause
  %fewer = sub i64 %left, 1                          %patient = icmp sgt i64 %fewer, 0
  br i1 %patient, label %spin, label %park
park:
  %counted = atomicrmw add ptr %idle.at, i64 %joins monotonic
  store atomic i64 1, ptr %state.at seq_cst, align 8 fence seq_cst
  %late = load atomic i64, ptr %mail.at seq_cst, align 8
  %recalled = icmp ne i64 %late, 0                   br i1 %recalled, label %stay, label %sleep
stay:
  call void @rouse(ptr %crew, i64 %index)
  br label %sleep
sleep:
  %woken = call i32 %acquire(ptr %sleep_lock, i32 1)        br label %rest
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
MOST = 1024  # threads
FIRST = 640  # bytes before the first worker


class CrewCode:
    """The native side, and what it takes from the system: Python's own locks, which need no GIL,
    and a way to yield the CPU.
    """

    def __init__(self) -> None:
        ir = render(native.host().triple)
        entry = cache.fetch(
            cache.key({"crew": ir}),
            lambda: cache.Entry({"function": "crew", "robot": ""}, native.compile_ir(ir)),
        )
        self.loaded = native.load_object(entry.code)
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        self.run = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, integer, integer)(
            self.loaded.address("crew_run")
        )
        self.work, self.post, self.wake, self.leave, self.spin = (
            ctypes.CFUNCTYPE(None, pointer, integer)(self.loaded.address(name))
            for name in ("crew_work", "crew_post", "crew_wake", "crew_leave", "crew_spin")
        )
        yielding = (
            ctypes.CDLL("kernel32").SwitchToThread
            if os.name == "nt"
            else ctypes.CDLL(None).sched_yield
        )
        functions = (
            ctypes.pythonapi.PyThread_acquire_lock,
            ctypes.pythonapi.PyThread_release_lock,
            yielding,
        )
        self.acquire, self.release, self.give_way = (
            ctypes.cast(function, pointer).value or 0 for function in functions
        )
        self._allocate = ctypes.PYFUNCTYPE(pointer)(("PyThread_allocate_lock", ctypes.pythonapi))
        self._acquire = ctypes.PYFUNCTYPE(ctypes.c_int, pointer, ctypes.c_int)(
            ("PyThread_acquire_lock", ctypes.pythonapi)
        )
        self.sleep_locks: list[
            int
        ] = []  # never freed: the thread that released one may still be about to return from it
        self.spins = self._calibrate()

    def sleep_lock(self) -> int:
        """A lock that is held, for a worker to sleep in until another thread releases it."""
        with contextlib.suppress(IndexError):
            return self.sleep_locks.pop()
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


def render(triple: str) -> str:
    """The IR, with the addresses of fields and the CPU's own way to wait in a loop."""
    pause, declaration = pause_hint(triple)
    crew = [
        f"%{name}.at = getelementptr i8, ptr %crew, i64 {offset}" for name, offset in CREW.items()
    ]
    worker = [
        "%line = mul i64 %index, 128",
        f"%first = getelementptr i8, ptr %crew, i64 {FIRST}",
        "%worker = getelementptr i8, ptr %first, i64 %line",
    ]
    worker += [
        f"%{name}.at = getelementptr i8, ptr %worker, i64 {offset}"
        for name, offset in WORKER.items()
    ]
    ir = string.Template(_IR).substitute(
        crew="\n  ".join(crew),
        worker="\n  ".join(worker),
        pause=pause,
    )
    return ir + declaration


def pause_hint(triple: str) -> tuple[str, str]:
    """The CPU's own way to wait in a loop, as IR: the call, and its declaration; empty where LLVM
    has none.
    """
    hints = {
        "x86_64": "llvm.x86.sse2.pause()",
        "aarch64": "llvm.aarch64.hint(i32 1)",
        "arm64": "llvm.aarch64.hint(i32 1)",
    }
    hint = hints.get(triple.partition("-")[0])
    if hint is None:
        return "", ""
    return f"call void @{hint}", f"declare void @{hint.replace('i32 1', 'i32')}\n"
