"""What a link looks like in memory; `rigidgrad_link.h` says the same to C.

All words have 64 bits but the two of a futex, in the byte order of the machine. What one process
writes and the other reads often lies in cache lines of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from rigidgrad.errors import InputError

MAGIC = 0x6B6E696C64697267  # "rgidlink"
VERSION = 1
HEADER = 128  # bytes before the first channel
# of a channel, in bytes: messages sent; messages received; a count that wakes, whether one sleeps
HEAD, TAIL, SIGNAL, ASLEEP, SLOTS = 0, 128, 256, 260, 384
# of a slot: 2n - 1 while message n is being written, 2n when it is there; time; answers; values
COUNTER, TIME, ANSWERS, VALUES = 0, 8, 16, 24
MOST = 65536  # numbers in a message, and slots
RETRIES = 1000  # reads that may fail while nothing is sent, before the memory counts as damaged

# who may open a link, and the byte of the file that each locks; then that of who writes the header
ROLES = {"robot": 0, "controller": 1, "observer": 2}
MAKING = 2


@dataclass(frozen=True)
class Shape:
    """Numbers in a state and in a control, and how many messages each direction holds."""

    states: int
    controls: int
    slots: int

    def __post_init__(self) -> None:
        for name in ("states", "controls", "slots"):
            value = getattr(self, name)
            if not isinstance(value, int) or not 1 <= value <= MOST:
                raise InputError(f"{name} is {value!r}; it must be a whole number from 1 to {MOST}")
        if self.slots < 2 or self.slots & (self.slots - 1):
            raise InputError(f"slots is {self.slots}; it must be a power of two, 2 or more")

    @property
    def offsets(self) -> tuple[int, int]:
        """Where the channels of states and of controls begin."""
        return HEADER, HEADER + channel_bytes(self.states, self.slots)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.offsets[1] + channel_bytes(self.controls, self.slots)

    @property
    def header(self) -> tuple[int, ...]:
        """The first words of the file."""
        return (
            MAGIC,
            VERSION,
            self.size,
            self.slots,
            self.states,
            self.controls,
            *self.offsets,
        )


def stride(width: int) -> int:
    """Bytes of a slot of `width` values: whole cache lines."""
    return -(-(VALUES + 8 * width) // 64) * 64


def channel_bytes(width: int, slots: int) -> int:
    return -(-(SLOTS + slots * stride(width)) // 128) * 128
