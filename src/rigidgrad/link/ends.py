"""A link between two processes: what users hold."""

from __future__ import annotations

import math
import os
import time
from types import TracebackType
from typing import Any

import numpy as np

from rigidgrad.errors import InputError, RigidgradError, unknown_name
from rigidgrad.link.channel import Channel, Message
from rigidgrad.link.layout import ROLES, Shape
from rigidgrad.link.memory import Memory

_LOOK = 0.02  # s between looks for a link that is not there yet


class Link:
    """Shared memory of a robot's process, which sends states, and a controller's, which sends
    controls: a ring of `slots` messages in each direction.

    Whoever comes first makes the memory: with `states` and `controls`, the numbers in a message;
    without them it must be there, within `wait` seconds. One process at a time has a role ("robot",
    "controller"); an "observer" sees both directions and takes nothing. Sending never waits. A
    reader gets whole messages only, in order, and is told how many it missed. What a process sent
    that has gone since is not received. `spin` is for how many seconds `receive` looks in a loop
    before it sleeps.

    A link belongs to one thread at a time, and is not passed on by a fork.
    """

    def __init__(
        self,
        name: str | os.PathLike[str],
        role: str,
        *,
        states: int | None = None,
        controls: int | None = None,
        slots: int = 64,
        wait: float = 0.0,
        spin: float = 50e-6,
        mode: int = 0o600,
    ):
        if role not in ROLES:
            raise unknown_name("role of a link", role, ROLES)
        if (states is None) != (controls is None):
            raise InputError("states= and controls= come together, or neither of them")
        shape = None if states is None or controls is None else Shape(states, controls, slots)
        self.name, self.role, self.spin = str(name), role, spin
        self._memory = _open(name, role, shape, mode, wait)
        self.path = self._memory.path
        self.shape = self._memory.shape
        taking = role != "observer"
        of_states, of_controls = (
            Channel(self._memory.address + offset, width, self.shape.slots, taking)
            for offset, width in zip(
                self.shape.offsets, (self.shape.states, self.shape.controls), strict=True
            )
        )
        self._channels: dict[str, Channel] | None = {"states": of_states, "controls": of_controls}
        self._out, self._in = (
            (of_controls, of_states) if role == "controller" else (of_states, of_controls)
        )
        if taking:
            if not self.connected:
                self._in.received = self._in.sent
            self._in.seen = self._in.received

    def __repr__(self) -> str:
        s = self.shape
        return (
            f"<Link {self.name!r}, {self.role}: {s.states} states, {s.controls} controls,"
            f" {s.slots} slots>"
        )

    # --- both ends --------------------------------------------------------------------------------

    def send(
        self,
        values: Any,
        time: float | None = None,
        answers: int | None = None,
        *,
        wait: float | None = None,
    ) -> int:
        """Sends values; the number of the message, from 1 on.

        `time`, by default this machine's monotonic clock, and `answers`, by default the number of
        the last message received, go along. Without `wait` the oldest message is overwritten,
        received or not, and the call takes a microsecond; with it, none is lost: if the ring is
        full of messages not received, the call waits for that many seconds, and an error follows.
        """
        self._check_end("send")
        out = self._out
        numbers = np.asarray(values, float)
        if numbers.shape != (out.width,):
            raise InputError(
                f"the {self.role} of {self.name!r} sends {out.width} numbers, not an array of shape"
                f" {numbers.shape}"
            )
        if wait is not None:
            self._wait_for_room(wait)
        return out.send(
            numbers,
            _now() if time is None else float(time),
            self._in.seen if answers is None else answers,
        )

    def receive(self, timeout: float | None = 0.0, *, order: str = "newest") -> Message | None:
        """The newest message that was not received yet, or the next one (`order="next"`); None if
        there is none after `timeout` seconds (None: for ever).

        `.number`, `.time`, `.answers`, `.values`, and `.skipped`: how many messages between the
        last one and this were passed over, or overwritten before they were read.
        """
        self._check_end("receive")
        if order not in ("newest", "next"):
            raise unknown_name("order of messages", order, ("newest", "next"))
        message = self._in.read(order == "newest")
        if message is None and timeout != 0.0:
            limit = math.inf if timeout is None else timeout
            if self._in.wait(limit, self.spin):
                message = self._in.read(order == "newest")
        return message

    def exchange(
        self, values: Any, time: float | None = None, *, timeout: float = 1.0
    ) -> Message | None:
        """Sends values, and waits for a message of the other side that answers them, or later ones;
        None after `timeout` seconds.
        """
        end = _now() + timeout
        number = self.send(values, time)
        skipped = 0
        while True:
            message = self.receive(max(0.0, end - _now()))
            if message is None:
                return None
            if message.answers >= number:
                return message._replace(skipped=skipped + message.skipped)
            skipped += message.skipped + 1

    @property
    def connected(self) -> bool:
        """Whether another process has the other role now; of an observer, whether both are had."""
        self._check_end()
        others = [role for role in ("robot", "controller") if role != self.role]
        return all(self._memory.is_held(role) for role in others)

    # --- observers --------------------------------------------------------------------------------

    def observe(self, what: str) -> Message | None:
        """The newest of the "states" or "controls" that this process has not seen, or None; nobody
        notices.
        """
        self._check_end()
        if self.role != "observer":
            raise InputError(
                'observe is for role="observer"; the others receive what is sent to them'
            )
        assert self._channels is not None
        if what not in self._channels:
            raise unknown_name("direction of a link", what, self._channels)
        return self._channels[what].read(True)

    # ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Gives up the role. The memory stays for the next process: `rg.link.remove` removes it."""
        if self._channels is not None:
            self._channels = None
            self._memory.close()

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_channels", None) is not None:
            self.close()

    def _check_end(self, action: str | None = None) -> None:
        if self._channels is None:
            raise RigidgradError(f"the link {self.name!r} is closed; open it again")
        if action and self.role == "observer":
            raise InputError(f"an observer does not {action}; open the link as robot or controller")

    def _wait_for_room(self, seconds: float) -> None:
        end = _now() + seconds
        while not self._out.has_room():
            if _now() >= end:
                raise RigidgradError(
                    f"the ring of {self.name!r} is full: nobody has received"
                    f" {self.shape.slots} messages for {seconds} s"
                )
            time.sleep(0)


def _open(
    name: str | os.PathLike[str], role: str, shape: Shape | None, mode: int, wait: float
) -> Memory:
    """The memory; if another process is to make it, after some time."""
    end = _now() + wait
    while True:
        try:
            return Memory(name, role, shape, mode)
        except InputError:
            if shape is not None or _now() >= end:
                raise
        time.sleep(_LOOK)


def _now() -> float:
    return time.monotonic()  # rg_link_clock of the header
