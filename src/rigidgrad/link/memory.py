"""The file behind a link: opened safely, made by the first to come, mapped, locked by role."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import re
import stat
import struct
import sys
from pathlib import Path
from typing import Any

from rigidgrad.errors import InputError, RigidgradError
from rigidgrad.link import layout
from rigidgrad.link.layout import Shape

# locks of an open file, not of a process, so that two links in one process keep apart as well
_OPEN_FILE = {"set": 37, "wait": 38, "get": 36} if sys.platform == "linux" else None
_FLOCK = "hhqqi"  # kind, from where, first byte, how many, whose


def path_of(name: str | os.PathLike[str]) -> Path:
    """Where the memory of a link lies: a name is a file in /dev/shm (Linux; elsewhere /tmp), as
    POSIX shared memory is; a path is itself.
    """
    if os.name != "posix":
        raise RigidgradError(
            f"rg.link needs POSIX shared memory and locks, which {sys.platform} does not have"
        )
    text = os.fspath(name)
    if "/" in text:
        return Path(text)
    if not re.fullmatch(r"[\w.-]+", text, re.ASCII):
        raise InputError(
            f"a link is called by letters, digits, '.', '_' and '-', or by a path, not {text!r}"
        )
    return Path("/dev/shm" if sys.platform == "linux" else "/tmp", f"rigidgrad-{text}")


class Memory:
    """A mapped file; `address` is where it begins. `shape` None takes the one that is there."""

    def __init__(self, name: str | os.PathLike[str], role: str, shape: Shape | None, mode: int):
        self.path = path_of(name)
        self.role = role
        self._file = self._open(mode, make=shape is not None)
        try:
            number = layout.ROLES[role]
            if role != "observer" and not self._lock("set", number):
                raise InputError(
                    f"another process is the {role} of {self.path}: one at a time can be"
                )
            self._lock("wait", layout.MAKING)
            try:
                self.shape = self._check(shape)
                self.map = mmap.mmap(self._file, self.shape.size)
                if self.map[:8] != _words(layout.MAGIC):
                    self._make()
            finally:
                self._lock("set", layout.MAKING, free=True)
        except BaseException:
            os.close(self._file)
            raise
        self._view = (ctypes.c_char * self.shape.size).from_buffer(self.map)
        self.address = ctypes.addressof(self._view)

    def _open(self, mode: int, make: bool) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            file = os.open(self.path, flags | (os.O_CREAT if make else 0), mode)
        except FileNotFoundError:
            raise InputError(
                f"there is no link at {self.path}; start the process that makes it, or give states="
                " and controls= to make it here"
            ) from None
        except OSError as error:
            raise InputError(f"the link {self.path} cannot be opened: {error.strerror}") from None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise InputError(f"{self.path} is not a regular file, so no link")
        return file

    def _check(self, wanted: Shape | None) -> Shape:
        """The shape of what is there, or the wanted one if nothing is: the file then has its size,
        and no magic yet.
        """
        found = os.pread(self._file, 64, 0)
        if not found.strip(b"\0"):  # new, or its maker died before it was whole
            if wanted is None:
                raise InputError(f"the link {self.path} is not made yet: give states=, controls=")
            os.ftruncate(self._file, wanted.size)
            return wanted
        words = struct.unpack("8Q", found) if len(found) == 64 else ()
        if words[:2] != (layout.MAGIC, layout.VERSION):
            raise InputError(
                f"{self.path} is no link of this version: remove it with rg.link.remove, if it is"
                " one of another"
            )
        slots, states, controls = words[3:6]
        try:
            shape = Shape(states, controls, slots)
        except InputError as error:
            raise InputError(f"the link {self.path} is damaged: {error}") from None
        if words != shape.header or os.fstat(self._file).st_size != shape.size:
            raise InputError(f"the link {self.path} is damaged: remove it with rg.link.remove")
        if wanted not in (None, shape):
            raise InputError(
                f"the link {self.path} has {shape}, not {wanted}: remove it with rg.link.remove, or"
                " give it another name"
            )
        return shape

    def _make(self) -> None:
        """Every page is touched, and the magic comes last."""
        self.map[:] = bytes(self.shape.size)
        header = b"".join(map(_words, self.shape.header))
        self.map[8 : len(header)] = header[8:]
        self.map[:8] = header[:8]

    def is_held(self, role: str) -> bool:
        """Whether another process has a role."""
        return self._lock("get", layout.ROLES[role])

    def _lock(self, command: str, byte: int, free: bool = False) -> bool:
        """Locks a byte, or asks whether another has. Locks end with the process that holds them."""
        import fcntl

        kind = fcntl.F_UNLCK if free else fcntl.F_WRLCK
        numbers = _OPEN_FILE or {
            "set": fcntl.F_SETLK,
            "wait": fcntl.F_SETLKW,
            "get": fcntl.F_GETLK,
        }
        try:
            answer = fcntl.fcntl(
                self._file,
                numbers[command],
                struct.pack(_FLOCK, kind, os.SEEK_SET, byte, 1, 0)
                if sys.platform == "linux"
                # BSD and macOS order the fields otherwise
                else struct.pack("qqihh", byte, 1, 0, kind, os.SEEK_SET),
            )
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise InputError(f"{self.path} cannot be locked: {error.strerror}") from None
        if command != "get":
            return True
        found = struct.unpack(_FLOCK, answer)[0] if sys.platform == "linux" else _kind(answer)
        return bool(found != fcntl.F_UNLCK)

    def close(self) -> None:
        """Unmaps the memory, and gives up the role."""
        if self._file >= 0:
            del self._view
            with contextlib.suppress(BufferError):  # somebody else looks at it
                self.map.close()
            os.close(self._file)
            self._file = -1


def _kind(answer: bytes) -> Any:
    return struct.unpack("qqihh", answer)[3]


def _words(*numbers: int) -> bytes:
    return struct.pack(f"{len(numbers)}Q", *numbers)


def remove(name: str | os.PathLike[str]) -> bool:
    """Removes the memory of a link; whether it was there. Processes that have it open go on with
    what they have, and do not meet those that open the name later.
    """
    try:
        os.unlink(path_of(name))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise InputError(f"the link {name} cannot be removed: {error.strerror}") from None
    return True
