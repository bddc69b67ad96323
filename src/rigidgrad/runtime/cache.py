"""Object code on disk, so that a second process compiles nothing.

A file is trusted only if this user alone can have written it and its checksum holds. Trouble with
the cache never reaches the caller: what cannot be read is compiled again, what cannot be written is
not kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rigidgrad.runtime import native, sources

LIMIT = 512 * 2**20  # bytes of all entries together; the oldest go first
SUFFIX = ".rgo"

# A file: magic, checksum of all that follows, sizes of key, meta and code, then these three.
_MAGIC = b"rigidgrad\0\0\x01"
_HEADER = struct.Struct("<12s32sIIQ")
_CHECKED = len(_MAGIC) + 32
_STALE = 3600.0  # seconds after which a temporary file has no writer any more
_SOURCES, _SAME = "sources", ".same"  # a folder in the folder, and a suffix there
_SHARES = 32  # of the limit, that a process may write before it looks for what is to go
_written: dict[Path, int] = {}  # bytes since then, by folder
_KEPT_SOURCES = 8  # versions that are remembered
_TOUCH = 86400.0  # seconds after which a hit makes its file young again


@dataclass(frozen=True)
class Entry:
    """Object code and what is known of it; `meta` can be written as JSON. Listings show its
    "function" and "robot".
    """

    meta: dict[str, Any]
    code: bytes


@dataclass(frozen=True)
class Info:
    """One entry, as listings show it; `modified` in seconds since the epoch."""

    key: str
    function: str
    robot: str
    bytes: int
    modified: float


def folder() -> Path | None:
    """Where entries lie; None if there is no place for them. RIGIDGRAD_CACHE names another folder,
    or is "off".
    """
    chosen = os.environ.get("RIGIDGRAD_CACHE")
    if chosen is not None:
        if chosen.strip().lower() in ("", "0", "off"):
            return None
        try:
            return Path(os.path.abspath(os.path.expanduser(chosen)))
        except OSError:  # relative to a working folder that is gone
            return None
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA", "")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(base):
            base = os.path.expanduser("~/.cache")
    # without a home, "~" stays as it is
    return Path(base, "rigidgrad") if os.path.isabs(base) else None


def key(parts: Mapping[str, str]) -> str:
    """The name of an entry: a hash of `parts` and of all else that decides the code: CPU, LLVM,
    Python's ABI, our own code.
    """
    host = native.host()
    surroundings = (
        host.triple,
        host.cpu,
        host.features,
        native.version(),
        native.highest_level(),
        sys.implementation.cache_tag or "",
        source_identity(),
    )
    return hashlib.sha256(json.dumps([sorted(parts.items()), surroundings]).encode()).hexdigest()


def key_of(job: Any, **instead: Any) -> str:
    """The key of a dataclass that says what is compiled: its class and every field that is
    compared, so that none can be forgotten.

    `instead` has values that stand for those of some fields.
    """
    return key({"class": type(job).__qualname__} | _fields(job, instead))


def text_of(part: Any, **instead: Any) -> str:
    """The same of a dataclass that is a part of what is compiled, as text."""
    return f"{type(part).__qualname__} {sorted(_fields(part, instead).items())}"


def _fields(job: Any, instead: Mapping[str, Any]) -> dict[str, str]:
    values = {f.name: getattr(job, f.name) for f in fields(job) if f.compare} | dict(instead)
    return {f"field {name}": _text(value) for name, value in values.items()}


def _text(value: Any) -> str:
    """The same for equal values in every process."""
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(_text, value)))}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    if value is None or isinstance(value, (str, bytes, bool, int, float)):
        return repr(value)
    if is_dataclass(value) and not isinstance(value, type):
        return text_of(value)
    raise TypeError(f"a {type(value).__name__} has no place in a key: {value!r}")


def read(key: str) -> Entry | None:
    """The entry of that key, verified, or None."""
    path = _path(key)
    if path is None:
        return None
    try:
        with _trusted(path) as (file, status):
            content = file.read()
    except OSError:
        return None
    entry = _decode(key, content)
    with contextlib.suppress(OSError):
        if entry is None:
            os.unlink(path)
        elif time.time() - status.st_mtime > _TOUCH:
            os.utime(path)
    return entry


def write(key: str, entry: Entry) -> None:
    """Keeps an entry, for everyone at once or not at all; older ones make room for it."""
    path = _path(key)
    if path is None:
        return
    content = _encode(key, entry)
    with contextlib.suppress(OSError):
        _store(path, content)
        _make_room(path.parent, len(content))


def fetch(key: str, make: Callable[[], Entry]) -> Entry:
    """The entry of that key; if there is none, what `make` gives, which is kept."""
    entry = read(key)
    if entry is None:
        entry = make()
        write(key, entry)
    return entry


def clear() -> int:
    """Removes every entry; how many there were. The folder, and what else lies in it, stays."""
    count = 0
    for path, _ in _files(".tmp", SUFFIX):
        with contextlib.suppress(OSError):
            os.unlink(path)
            count += path.endswith(SUFFIX)
    where = folder()
    if where is not None:
        _keep_newest(where / _SOURCES, 0)
        with contextlib.suppress(OSError):
            os.rmdir(where / _SOURCES)
    return count


def contents() -> list[Info]:
    """What the cache holds, newest first. Files that would not be trusted are left out; checksums
    are not verified here.
    """
    found = []
    for path, _ in _files(SUFFIX):
        meta: Any = None
        with contextlib.suppress(OSError, ValueError, struct.error):
            with _trusted(Path(path)) as (file, status):
                magic, _, key_size, meta_size, _ = _HEADER.unpack(file.read(_HEADER.size))
                meta = json.loads(file.read(key_size + meta_size)[key_size:])
            if magic == _MAGIC and isinstance(meta, dict):
                names = str(meta.get("function", "")), str(meta.get("robot", ""))
                found.append(Info(Path(path).stem, *names, status.st_size, status.st_mtime))
    return sorted(found, key=lambda info: (-info.modified, info.key))


# --- the sources that made the entries ------------------------------------------------------------


def source_identity() -> str:
    """The same for all versions of this package that compile the same code."""
    return _identity(folder())


@cache
def _identity(where: Path | None) -> str:
    """The fingerprint of the sources, or that of others in the folder which differ in nothing that
    decides code.

    A file is the sources of an identity, under their fingerprint; or, with a suffix, the identity
    of a fingerprint.
    """
    own = sources.read()
    packed = sources.pack(own)
    if not packed:
        # nothing tells versions apart: such a process finds only its own entries
        return os.urandom(32).hex()
    name = sources.fingerprint(packed)
    if where is None:
        return name
    path, link = where / _SOURCES / name, where / _SOURCES / (name + _SAME)
    if os.path.exists(path):
        return name
    with contextlib.suppress(OSError, UnicodeDecodeError), _trusted(link) as (file, _):
        same: str = file.read().decode()
        return same
    found = next((other for other in _newest(path.parent, "") if _is_same(other, own)), path)
    with contextlib.suppress(OSError):
        if found is path:
            _store(path, packed)
        else:
            os.utime(found)
            _store(link, found.name.encode())
        _keep_newest(path.parent, _KEPT_SOURCES)
    return found.name


def _is_same(path: Path, own: sources.Sources) -> bool:
    """Whether a file holds whole sources that compile what our own do."""
    try:
        with _trusted(path) as (file, _):
            packed = file.read()
    except OSError:
        return False
    return sources.fingerprint(packed) == path.name and sources.same_code(
        sources.unpack(packed), own
    )


def _newest(where: Path, suffix: str) -> list[Path]:
    with contextlib.suppress(OSError):
        found = [path for path in where.iterdir() if path.suffix == suffix]
        return sorted(found, key=lambda path: -path.lstat().st_mtime)
    return []


def _keep_newest(where: Path, count: int) -> None:
    for suffix in ("", _SAME, ".tmp"):
        for path in _newest(where, suffix)[count:]:
            with contextlib.suppress(OSError):
                os.unlink(path)


# --- files ----------------------------------------------------------------------------------------


def _store(path: Path, content: bytes) -> None:
    """A private file, whole or not at all."""
    os.makedirs(path.parent, mode=0o700, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(".tmp", "rigidgrad-", path.parent)  # mode 0600
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _path(key: str) -> Path | None:
    where = folder()
    return None if where is None else where / (key + SUFFIX)


def _encode(key: str, entry: Entry) -> bytes:
    name, meta = key.encode(), json.dumps(entry.meta).encode()
    rest = (
        _HEADER.pack(_MAGIC, bytes(32), len(name), len(meta), len(entry.code))[_CHECKED:]
        + name
        + meta
        + entry.code
    )
    return _MAGIC + hashlib.sha256(rest).digest() + rest


def _decode(key: str, content: bytes) -> Entry | None:
    """The entry in a file's content, or None if a single bit of it is not as it was written, or it
    was written under another key.
    """
    if len(content) < _HEADER.size:
        return None
    magic, checksum, key_size, meta_size, code_size = _HEADER.unpack_from(content)
    if magic != _MAGIC or hashlib.sha256(memoryview(content)[_CHECKED:]).digest() != checksum:
        return None
    meta = _HEADER.size + key_size
    code = meta + meta_size
    if len(content) != code + code_size or content[_HEADER.size : meta] != key.encode():
        return None
    return Entry(json.loads(content[meta:code]), content[code:])


@contextlib.contextmanager
def _trusted(path: Path) -> Iterator[tuple[Any, os.stat_result]]:
    """An open file that this user alone can have written; otherwise an OSError. What was checked is
    what is read.
    """
    flags = (
        os.O_RDONLY
        | getattr(os, "O_BINARY", 0)
        | getattr(os, "O_NOFOLLOW", 0)
        | getattr(os, "O_NONBLOCK", 0)
    )
    with open(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError(f"{path} is not a file")
        if hasattr(os, "geteuid") and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
            raise PermissionError(f"others can write {path}")
        yield file, status


def _files(*suffixes: str) -> list[tuple[str, os.stat_result]]:
    """Paths and status of our files in the folder."""
    where = folder()
    found = []
    with contextlib.suppress(OSError):
        for item in os.scandir(where) if where is not None else ():
            ours = item.name.endswith(suffixes) and (
                item.name.startswith("rigidgrad-") or item.name.endswith(SUFFIX)
            )
            with contextlib.suppress(OSError):
                if ours and item.is_file(follow_symlinks=False):
                    found.append((item.path, item.stat(follow_symlinks=False)))
    return found


def _make_room(where: Path, size: int) -> None:
    """Counts what was written, and looks through the folder at a process's first write and after
    each share of the limit: with thousands of entries that takes longer than to compile one.
    """
    written = _written.get(where, LIMIT) + size
    _written[where] = written
    if written > LIMIT // _SHARES:
        _written[where] = 0
        _prune()


def _prune() -> None:
    """Removes what killed writers left behind, then the oldest entries, until the rest is small
    enough.
    """
    now = time.time()
    files = _files(SUFFIX, ".tmp")
    old = [
        path for path, status in files if path.endswith(".tmp") and now - status.st_mtime > _STALE
    ]
    entries = sorted(
        (status.st_mtime, status.st_size, path) for path, status in files if path.endswith(SUFFIX)
    )
    excess = sum(size for _, size, _ in entries) - LIMIT
    for _, size, path in entries:
        if excess <= 0:
            break
        old.append(path)
        excess -= size
    for path in old:
        with contextlib.suppress(OSError):
            os.unlink(path)
