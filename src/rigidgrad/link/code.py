"""The native side of a channel, as LLVM IR: loads and stores in the order that `rigidgrad_link.h`
has in C. Python itself promises nothing about what another process sees when.

A sequence lock: message n is written between its slot's counter 2n - 1 and 2n, and counts as read
only if the counter was 2n before and after. Values are relaxed atomic words, so that a read beside
a write is defined, and thrown away. See H.-J. Boehm, Can Seqlocks Get Along with Programming
Language Memory Models?, MSPC 2012.
"""

from __future__ import annotations

import ctypes
import functools
import string
from typing import Any

from rigidgrad.link import layout
from rigidgrad.runtime import cache, native
from rigidgrad.runtime.crew_code import pause_hint

# of a process's own description of a channel, in bytes: where it is; numbers in a message; bytes of
# a slot; slots less one; number of the last message received; then of the last read: its number,
# time, answers
FIELDS = {
    "memory": 0,
    "width": 8,
    "stride": 16,
    "mask": 24,
    "seen": 32,
    "number": 40,
    "time": 48,
    "answers": 56,
}
WORDS = len(FIELDS)

_IR = """
; Writes the next message; its number, negative if somebody sleeps and is to be woken.
define i64 @link_send(ptr %channel, ptr %values, double %time, i64 %answers) {
entry:
  $fields
  %last = load atomic i64, ptr %memory monotonic, align 8
  %number = add i64 %last, 1
  $slot
  %even = shl i64 %number, 1                           %odd = sub i64 %even, 1
  store atomic i64 %odd, ptr %slot monotonic, align 8
  fence release
  %bits = bitcast double %time to i64
  store atomic i64 %bits, ptr %slot.time monotonic, align 8
  store atomic i64 %answers, ptr %slot.answers monotonic, align 8
  br label %copy
copy:
  %i = phi i64 [ 0, %entry ], [ %following, %copy ]
  %from = getelementptr i64, ptr %values, i64 %i       %to = getelementptr i64, ptr %slot.values, i64 %i
  %value = load i64, ptr %from, align 8
  store atomic i64 %value, ptr %to monotonic, align 8
  %following = add i64 %i, 1                           %more = icmp ult i64 %following, %width
  br i1 %more, label %copy, label %publish
publish:
  store atomic i64 %even, ptr %slot release, align 8
  store atomic i64 %number, ptr %memory release, align 8
  ; either we see who sleeps, or who is about to sleep sees the head
  fence seq_cst
  %asleep = load atomic i32, ptr %asleep.at monotonic, align 4
  %somebody = icmp ne i32 %asleep, 0                   br i1 %somebody, label %wake, label %done
wake:
  %was = atomicrmw xchg ptr %asleep.at, i32 0 seq_cst
  %count = atomicrmw add ptr %signal.at, i32 1 seq_cst
  %negative = sub i64 0, %number
  ret i64 %negative
done:
  ret i64 %number
}

; 1 if a message can be sent that overwrites none that was not received.
define i64 @link_has_room(ptr %channel) {
  $fields
  %head = load atomic i64, ptr %memory monotonic, align 8
  %tail = load atomic i64, ptr %tail.at acquire, align 8
  %unread = sub i64 %head, %tail                       %room = icmp ule i64 %unread, %mask
  %result = zext i1 %room to i64
  ret i64 %result
}

; The newest message, or the next: 1, or 0 if there is none, or -1 if the counters make no sense.
define i64 @link_read(ptr %channel, ptr %values, i64 %newest, i64 %taking) {
entry:
  $fields
  %any = icmp ne i64 %newest, 0                        %takes = icmp ne i64 %taking, 0
  br label %try
try:
  %stuck = phi i64 [ 0, %entry ], [ %tried, %again ]
  %last = phi i64 [ 0, %entry ], [ %head, %again ]
  %least = phi i64 [ 0, %entry ], [ %beyond, %again ]
  %head = load atomic i64, ptr %memory acquire, align 8
  %seen = load i64, ptr %seen.at, align 8
  %new = icmp ugt i64 %head, %seen                     br i1 %new, label %choose, label %none
choose:
  %same = icmp eq i64 %head, %last                     %times = select i1 %same, i64 %stuck, i64 0
  %next = add i64 %seen, 1                             %wanted = select i1 %any, i64 %head, i64 %next
  %behind = sub i64 %head, %wanted                     %there = icmp ule i64 %behind, %mask
  %oldest = sub i64 %head, %mask                       %left = select i1 %there, i64 %wanted, i64 %oldest
  %later = call i64 @llvm.umax.i64(i64 %left, i64 %least)
  %number = call i64 @llvm.umin.i64(i64 %later, i64 %head)
  %beyond = add i64 %number, 1
  $slot
  %even = shl i64 %number, 1
  %before = load atomic i64, ptr %slot acquire, align 8
  %ready = icmp eq i64 %before, %even                  br i1 %ready, label %start, label %again
start:
  %time = load atomic i64, ptr %slot.time monotonic, align 8
  %answers = load atomic i64, ptr %slot.answers monotonic, align 8
  br label %copy
copy:
  %i = phi i64 [ 0, %start ], [ %following, %copy ]
  %from = getelementptr i64, ptr %slot.values, i64 %i  %to = getelementptr i64, ptr %values, i64 %i
  %value = load atomic i64, ptr %from monotonic, align 8
  store i64 %value, ptr %to, align 8
  %following = add i64 %i, 1                           %more = icmp ult i64 %following, %width
  br i1 %more, label %copy, label %check
check:
  fence acquire
  %after = load atomic i64, ptr %slot monotonic, align 8
  %whole = icmp eq i64 %after, %even                   br i1 %whole, label %take, label %again
again:
  %tried = add i64 %times, 1                           %patient = icmp ult i64 %tried, $retries
  br i1 %patient, label %try, label %damaged
take:
  store i64 %number, ptr %number.at, align 8           store i64 %time, ptr %time.at, align 8
  store i64 %answers, ptr %answers.at, align 8         store i64 %number, ptr %seen.at, align 8
  br i1 %takes, label %tell, label %done
tell:
  store atomic i64 %number, ptr %tail.at release, align 8
  br label %done
done:
  ret i64 1
none:
  ret i64 0
damaged:
  ret i64 -1
}

; Looks `spins` times for a message that was not received: 1, or 0 if there is none.
define i64 @link_spin(ptr %channel, i64 %spins) {
entry:
  $fields
  %seen = load i64, ptr %seen.at, align 8
  br label %look
look:
  %left = phi i64 [ %spins, %entry ], [ %fewer, %pause ]
  %head = load atomic i64, ptr %memory acquire, align 8
  %new = icmp ugt i64 %head, %seen                     br i1 %new, label %yes, label %pause
pause:
  $pause
  %fewer = sub i64 %left, 1                            %patient = icmp sgt i64 %fewer, 0
  br i1 %patient, label %look, label %no
yes:
  ret i64 1
no:
  ret i64 0
}

; About to sleep: the value of the signal to wait upon, or -1 if there is a message.
define i64 @link_park(ptr %channel) {
  $fields
  %seen = load i64, ptr %seen.at, align 8
  %signal = load atomic i32, ptr %signal.at seq_cst, align 4
  %was = atomicrmw xchg ptr %asleep.at, i32 1 seq_cst
  fence seq_cst
  %head = load atomic i64, ptr %memory acquire, align 8
  %new = icmp ugt i64 %head, %seen                     %wide = zext i32 %signal to i64
  %result = select i1 %new, i64 -1, i64 %wide
  ret i64 %result
}

; A word of the memory: read, or written after all that came before.
define i64 @link_word(ptr %word) {
  %value = load atomic i64, ptr %word acquire, align 8
  ret i64 %value
}
define void @link_set_word(ptr %word, i64 %value) {
  store atomic i64 %value, ptr %word release, align 8
  ret void
}

declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
"""


class ChannelCode:
    """The native functions. Those that take no time keep the GIL; `spin` gives it up."""

    def __init__(self) -> None:
        ir = render(native.host().triple)
        entry = cache.fetch(
            cache.key({"link": ir}),
            lambda: cache.Entry({"function": "link", "robot": ""}, native.compile_ir(ir)),
        )
        self.loaded = native.load_object(entry.code)
        pointer, integer, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
        self.send = self._function("send", integer, pointer, pointer, number, integer)
        self.has_room = self._function("has_room", integer, pointer)
        self.read = self._function("read", integer, pointer, pointer, integer, integer)
        self.park = self._function("park", integer, pointer)
        self.word = self._function("word", integer, pointer)
        self.set_word = self._function("set_word", None, pointer, integer)
        self.system = ctypes.CDLL(None)
        self.spin = ctypes.CFUNCTYPE(integer, pointer, integer)(self.loaded.address("link_spin"))

    def _function(self, name: str, result: type[Any] | None, *types: type[Any]) -> Any:
        return ctypes.PYFUNCTYPE(result, *types)(self.loaded.address(f"link_{name}"))


@functools.cache
def channel_code() -> ChannelCode:
    """Compiled on first use."""
    return ChannelCode()


def render(triple: str) -> str:
    """The IR, with the addresses of fields and the CPU's own way to wait in a loop."""
    own = [
        f"%{name}.at = getelementptr i8, ptr %channel, i64 {offset}"
        for name, offset in FIELDS.items()
    ]
    constant = [
        f"%{name} = load {kind}, ptr %{name}.at, align 8"
        for name, kind in {"memory": "ptr", "width": "i64", "stride": "i64", "mask": "i64"}.items()
    ]
    shared = [
        f"%{name}.at = getelementptr i8, ptr %memory, i64 {offset}"
        for name, offset in {
            "tail": layout.TAIL,
            "signal": layout.SIGNAL,
            "asleep": layout.ASLEEP,
            "slots": layout.SLOTS,
        }.items()
    ]
    slot = [
        "%turn = and i64 %number, %mask",
        "%place = mul i64 %turn, %stride",
        "%slot = getelementptr i8, ptr %slots.at, i64 %place",
    ]
    slot += [
        f"%slot.{name} = getelementptr i8, ptr %slot, i64 {offset}"
        for name, offset in {
            "time": layout.TIME,
            "answers": layout.ANSWERS,
            "values": layout.VALUES,
        }.items()
    ]
    pause, declaration = pause_hint(triple)
    ir = string.Template(_IR).substitute(
        fields="\n  ".join([*own, *constant, *shared]),
        slot="\n  ".join(slot),
        pause=pause,
        retries=layout.RETRIES,
    )
    return ir + declaration
