"""A session in a process of its own: what draws, and the browser's messages, cannot hold it up.

The two processes send each other pickles through pipes: names of methods and arguments one way,
what is to be shown the other way.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rigidgrad.errors import RigidgradError
from rigidgrad.play.balancing import Balance, BalanceScene
from rigidgrad.play.live import Live
from rigidgrad.play.scenes import scene
from rigidgrad.play.session import Session
from rigidgrad.play.walking import Walk, WalkingScene

_RATE = 40.0  # times a second that what happened is sent
_SAMPLES = 8  # of them, one with the samples of the plots
_STARTS = (
    "import sys; sys.path.insert(0, sys.argv[1]); from rigidgrad.play.remote import serve; serve()"
)


def session_of(made: Any) -> Live:
    """The session of a scene, in this process."""
    session: Live = kind_of(made)(made)
    return session


def kind_of(made: Any) -> Any:
    """The class of its session."""
    if isinstance(made, WalkingScene):
        return Walk
    return Balance if isinstance(made, BalanceScene) else Session


class Remote:
    """Stands for the session of a scene that `scenes.scene` makes of these arguments. What a page
    reads is what came last; a method returns at once, and runs there.
    """

    def __init__(self, robot: Any, frame: str | None, feet: Sequence[str] | None, made: Any):
        self._kind = kind_of(made)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _STARTS, str(Path(__file__).parents[2])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._sending, self._seen = threading.Lock(), dict[str, Any]()
        self._watched: Any = None
        self._stopped = False
        self._send(robot, frame, feet)
        first = self._receive()
        if isinstance(first, BaseException):
            self.stop()
            raise first
        if first is None:
            self.stop()
            raise RigidgradError(
                "the controller's process ended before it began; its message is above"
            )
        self._seen.update(first)
        self._reader = threading.Thread(target=self._read, name="rigidgrad-remote", daemon=True)
        self._reader.start()

    @property
    def process(self) -> int:
        """The number of the other process."""
        return self._process.pid

    def start(self, watched: Any = lambda: True) -> None:
        """Moves on by the clock while somebody watches."""
        self._watched = watched
        self._send("start", (), {})

    def stop(self) -> None:
        """Ends the other process."""
        self._stopped = True
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        seen = self.__dict__.get("_seen", {})
        if name in seen:
            value = seen[name]
            return (lambda: value) if callable(getattr(self._kind, name, None)) else value
        if not callable(getattr(self._kind, name, None)):
            raise AttributeError(name)
        return lambda *arguments, **named: self._send(name, arguments, named)

    def _send(self, *message: Any) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError), self._sending:  # it has ended
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        try:
            return pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            return None

    def _read(self) -> None:
        was = None
        while (seen := self._receive()) is not None:
            self._seen.update(seen)
            now = self._watched is not None and bool(self._watched())
            if now != was:
                was = now
                self._send("watched", (now,), {})
        if not self._stopped:
            trouble = "the controller's process has ended; start the page again"
            self._seen["now"] = replace(self._seen["now"], trouble=trouble)


def serve() -> None:
    """The other process: makes the session, does what comes in and sends what happened, until the
    pipe ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asked for the page ends it
    incoming, outgoing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed is no message

    def send(message: Any) -> bool:
        try:
            pickle.dump(message, outgoing)
            outgoing.flush()
        except OSError:
            return False
        return True

    try:
        session = session_of(scene(*pickle.load(incoming)))
    except RigidgradError as error:
        send(error)
        return
    watched, ended = threading.Event(), threading.Event()
    send(session.shown() | session.fixed() | {"samples": session.samples})

    def heed() -> None:
        while True:
            try:
                name, arguments, named = pickle.load(incoming)
            except (EOFError, OSError):
                ended.set()
                return
            if name == "watched":
                (watched.set if arguments[0] else watched.clear)()
            elif name == "start":
                session.start(watched.is_set)
            else:
                getattr(session, name)(*arguments, **named)

    threading.Thread(target=heed, name="rigidgrad-heed", daemon=True).start()
    count = 0
    while not ended.wait(1.0 / _RATE):
        count += 1
        more = {"samples": session.samples} if count % _SAMPLES == 0 else {}
        if not send(session.shown() | more):
            break
    session.stop()
