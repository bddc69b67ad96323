"""One direction of a link, as this process sees it: to send, to receive, to wait."""

from __future__ import annotations

import ctypes
import platform
import sys
import time
from typing import Any, NamedTuple

import numpy as np

from rigidgrad.errors import RigidgradError
from rigidgrad.link import layout
from rigidgrad.link.code import FIELDS, WORDS, channel_code

_WAKE, _WAIT = 1, 0
_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_PIECE = 0.05  # s of sleep after which Python may look for Ctrl-C
_NAP = 50e-6  # s between looks where there are no futexes
_SPINS = 512  # looks between two of the clock


class Message(NamedTuple):
    """What was sent: its number, from 1 on; the sender's time, s; the number of the last message
    that the sender had received; the values; how many messages before it were passed over.
    """

    number: int
    time: float
    answers: int
    values: np.ndarray
    skipped: int


class _Span(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class Channel:
    """One direction; `address` is where it begins in memory that outlives this object."""

    def __init__(self, address: int, width: int, slots: int, taking: bool):
        self.width = width
        self._code = channel_code()
        self._own = (ctypes.c_int64 * WORDS)()
        own = {"memory": address, "width": width, "stride": layout.stride(width), "mask": slots - 1}
        for name, value in own.items():
            self._own[FIELDS[name] // 8] = value
        self._times = ctypes.c_double.from_buffer(self._own, FIELDS["time"])
        self._at = ctypes.addressof(self._own)
        self._address = address
        self._taking = int(taking)
        self._values = np.zeros(width)
        self._buffer = self._values.ctypes.data

    @property
    def seen(self) -> int:
        """The number of the last message that this process received."""
        return self._own[FIELDS["seen"] // 8]

    @seen.setter
    def seen(self, number: int) -> None:
        self._own[FIELDS["seen"] // 8] = number

    @property
    def sent(self) -> int:
        """How many messages were sent."""
        return self._word(layout.HEAD)

    @property
    def received(self) -> int:
        """The number of the last message that its receiver has taken."""
        return self._word(layout.TAIL)

    @received.setter
    def received(self, number: int) -> None:
        self._code.set_word(self._address + layout.TAIL, number)

    def _word(self, offset: int) -> int:
        return int(self._code.word(self._address + offset))

    def send(self, values: np.ndarray, time: float, answers: int) -> int:
        """Writes the next message, over the oldest one; its number."""
        self._values[:] = values
        number = int(self._code.send(self._at, self._buffer, time, answers))
        if number < 0:
            _futex(self._address + layout.SIGNAL, _WAKE, 2**31 - 1, None)
        return abs(number)

    def has_room(self) -> bool:
        """Whether a message would overwrite none that was not received."""
        return bool(self._code.has_room(self._at))

    def read(self, newest: bool) -> Message | None:
        """The newest message, or the next one, or None if there is none that was not received."""
        before = self.seen
        got = self._code.read(self._at, self._buffer, newest, self._taking)
        if got == 1:
            own = self._own
            number = own[FIELDS["number"] // 8]
            return Message(
                number,
                self._times.value,
                own[FIELDS["answers"] // 8],
                self._values.copy(),
                number - before - 1,
            )
        if got < 0:
            raise RigidgradError(
                "the counters of this link make no sense: its memory is damaged; remove it with"
                " rg.link.remove and start both processes again"
            )
        return None

    def wait(self, timeout: float, spin: float) -> bool:
        """Whether there is a message that was not received, after at most `timeout` s. Without the
        GIL; spins for the first `spin` s, and sleeps then.
        """
        begin = time.perf_counter()
        while not self._code.spin(self._at, _SPINS):
            passed = time.perf_counter() - begin
            if passed >= timeout:
                return False
            if passed >= spin:
                self._sleep(timeout - passed)
        return True

    def _sleep(self, seconds: float) -> None:
        if not has_futex():
            time.sleep(min(seconds, _NAP))
            return
        signal = self._code.park(self._at)
        if signal >= 0:
            _futex(self._address + layout.SIGNAL, _WAIT, signal, min(seconds, _PIECE))


def has_futex() -> bool:
    """Whether this system lets a process sleep upon a word of shared memory, as far as we know."""
    return sys.platform == "linux" and platform.machine() in _FUTEX


def _futex(address: int, operation: int, value: int, seconds: float | None) -> None:
    """Linux's call, without the GIL. Whatever it returns, who waited looks again."""
    if not has_futex():
        return
    span: Any = None
    if seconds is not None:
        whole = int(seconds)
        span = ctypes.byref(_Span(whole, int(1e9 * (seconds - whole))))
    channel_code().system.syscall(
        ctypes.c_long(_FUTEX[platform.machine()]),
        ctypes.c_void_p(address),
        ctypes.c_int(operation),
        ctypes.c_uint(value),
        span,
        None,
        ctypes.c_int(0),
    )
