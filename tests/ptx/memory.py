"""The spaces of memory of a launch: global memory with its bounds, local memory of threads, and
shared memory, whose every access is checked for races and for reads before any write.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ptx.text import GLOBAL, LOCAL, SHARED

LANES = 32
BANKS = 32
SECTOR = 32  # bytes
_SEVERAL = -2  # readers of one warp and one of its intervals
_MANY = -3  # readers of several warps


class Stopped(Exception):
    """An access that ends a kernel on a device, too."""


@dataclass
class Findings:
    races: int = 0
    unwritten: int = 0  # reads of shared memory that nobody has written
    outside: int = 0
    divergent: int = 0  # barriers that not all threads meet
    message: str = ""

    def note(self, what: str, count: int, text: str) -> None:
        if count:
            setattr(self, what, getattr(self, what) + int(count))
            self.message = self.message or text

    @property
    def clean(self) -> bool:
        return not (self.races or self.unwritten or self.outside or self.divergent)


@dataclass
class Traffic:
    """What accesses cost: of one kind."""

    requests: int = 0
    bytes: int = 0
    units: int = 0  # sectors of global and local memory, passes through the banks of shared memory
    best: int = 0  # how few they could be


class Global:
    """Memory of the device; between arrays there is nothing."""

    def __init__(self, image: bytes):
        self._parts = [np.frombuffer(bytes(image) + bytes(-len(image) % 256), np.uint8)]
        self._valid = [np.ones(len(self._parts[0]), bool)]
        self._valid[0][len(image) :] = False
        self._end = len(self._parts[0])

    def add(self, array: np.ndarray) -> int:
        """The address of a copy."""
        raw = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        room = -(-len(raw) // 256) * 256 + 256
        part, valid = np.zeros(room, np.uint8), np.zeros(room, bool)
        part[: len(raw)], valid[: len(raw)] = raw, True
        self._parts.append(part)
        self._valid.append(valid)
        start, self._end = self._end, self._end + room
        return GLOBAL + start

    def close(self) -> None:
        self.bytes, self.valid = np.concatenate(self._parts), np.concatenate(self._valid)

    def read(self, address: int, like: np.ndarray) -> np.ndarray:
        start = address - GLOBAL
        raw = self.bytes[start : start + like.nbytes]
        return raw.view(like.dtype).reshape(like.shape).copy()


@dataclass
class Shared:
    """One block's. An interval ends at a barrier of the block; within a warp, also at one of the
    warp.
    """

    size: int
    findings: Findings
    interval: int = 1
    bytes: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        words = -(-max(self.size, 16) // 16) * 4
        self.bytes = np.full(words, 0x7FF7FFFF, np.uint32).view(np.uint8)  # nan
        self.written = np.zeros(words, bool)
        # of the last write and of the last read: thread, interval of the block, warp, and its own
        self._write = np.full((4, words), -1, np.int32)
        self._read = np.full((4, words), -1, np.int32)

    def _unordered(self, marks: np.ndarray, words, threads, warp: int, own: int) -> np.ndarray:
        """Which words others have touched since the last barrier between them and us."""
        who, when, of, at = marks[:, words]
        ordered = (of == warp) & (at != own)
        return (when == self.interval) & (who != threads) & ~((who != _MANY) & ordered)

    def check(self, words, threads, warp: int, own: int, store: bool) -> None:
        """`words` and `threads` are what an instruction touches, and for whom."""
        f = self.findings

        def note(what: str, found: np.ndarray, text: str) -> None:
            if found.any():
                k = int(np.argmax(found))
                f.note(
                    what,
                    found.sum(),
                    f"{text} at byte {4 * int(words[k])}, thread {int(threads[k])}",
                )

        bad = self._unordered(self._write, words, threads, warp, own)
        if store:
            note("races", bad, "written twice")
            bad = self._unordered(self._read, words, threads, warp, own)
            note("races", bad, "written and read")
            self._write[0, words] = threads
            note("races", self._write[0, words] != threads, "written by two threads at once")
            self._write[1:, words] = [[self.interval], [warp], [own]]
            self.written[words] = True
            return
        note("races", bad, "read and written")
        note("unwritten", ~self.written[words], "read before anyone wrote")
        who, when, of, at = self._read[:, words]
        now = when == self.interval
        several = now & (of == warp) & (at == own) & (who != threads)
        many = now & ((of != warp) | (who == _MANY))
        marked = np.where(many, _MANY, np.where(several, _SEVERAL, threads))
        self._read[0, words] = marked
        shared = self._read[0, words] != marked  # by lanes of this very instruction
        self._read[0, words[shared & ~many]] = _SEVERAL
        self._read[1:, words] = [[self.interval], [warp], [own]]


class Spaces:
    """What the lanes of one warp see of memory."""

    def __init__(self, memory: Global, shared: Shared, local_bytes: int, constants, traffic):
        self.memory, self.shared, self.traffic = memory, shared, traffic
        self._constants = constants
        self._local = np.zeros((LANES, -(-max(local_bytes, 16) // 16) * 16), np.uint8)

    def _active(self, addresses: np.ndarray, mask):
        lanes = np.arange(LANES) if mask is None else np.nonzero(mask)[0]
        return lanes, addresses.astype(np.int64)[lanes]

    def _kind(self, addresses: np.ndarray) -> str:
        first = int(addresses[0])
        if first >= GLOBAL:
            return "const" if any(first in r for r in self._constants) else "global"
        return "local" if first >= LOCAL else "shared"

    def _checked(self, addresses: np.ndarray, size: int, limit: int, start: int, what: str):
        places = addresses - start
        if places.min() < 0 or places.max() + size > limit or (places % size).any():
            self.shared.findings.note("outside", 1, f"{what} memory at {int(places.max())}")
            raise Stopped
        return places

    def load(self, dtype: np.dtype, count: int, addresses, mask, warp) -> list[np.ndarray]:
        results = [np.zeros(LANES, dtype) for _ in range(count)]
        lanes, own = self._active(addresses, mask)
        if not len(lanes):
            return results
        view, index = self._place(dtype, count, lanes, own, warp, store=False)
        for k, result in enumerate(results):
            result[lanes] = view[(*index[:-1], index[-1] + k)]
        return results

    def store(self, dtype: np.dtype, values, addresses, mask, warp) -> None:
        lanes, own = self._active(addresses, mask)
        if not len(lanes):
            return
        view, index = self._place(dtype, len(values), lanes, own, warp, store=True)
        for k, value in enumerate(values):
            view[(*index[:-1], index[-1] + k)] = value[lanes]

    def _place(self, dtype, count: int, lanes, addresses, warp, *, store: bool):
        size, kind = dtype.itemsize * count, self._kind(addresses)
        name = f"{'st' if store else 'ld'} {kind}"
        if kind == "shared":
            places = self._checked(addresses, size, self.shared.size, SHARED, name)
            self._through_banks(self.traffic[name], places, size)
            words = -(-size // 4)
            touched = (places[:, None] // 4 + np.arange(words)).ravel()
            threads = np.repeat(warp.threads[lanes], words)
            self.shared.check(touched, threads, warp.number, warp.interval, store)
            return self.shared.bytes.view(dtype), (places // dtype.itemsize,)
        if kind == "local":
            places = self._checked(addresses, size, self._local.shape[1], LOCAL, name)
            # the same place of neighbouring threads lies side by side, four bytes each
            flat = places[:, None] // 4 * 4 * LANES + 4 * lanes[:, None]
            flat = flat + 4 * LANES * np.arange(-(-size // 4))
            self._sectors(self.traffic[name], flat.ravel(), 4, size * len(lanes))
            return self._local.view(dtype), (lanes, places // dtype.itemsize)
        places = self._checked(addresses, size, len(self.memory.bytes), GLOBAL, name)
        if not (self.memory.valid[places].all() and self.memory.valid[places + size - 1].all()):
            self.shared.findings.note("outside", 1, f"{name}: beyond an array")
            raise Stopped
        self._sectors(self.traffic[name], places, size, size * len(np.unique(places)))
        return self.memory.bytes.view(dtype), (places // dtype.itemsize,)

    def _sectors(self, traffic: Traffic, places, size: int, moved: int) -> None:
        traffic.requests += 1
        traffic.bytes += moved
        traffic.units += len(np.unique(places // SECTOR))
        traffic.best += -(-moved // SECTOR)

    def _through_banks(self, traffic: Traffic, places, size: int) -> None:
        """Half a warp passes at once where lanes move 8 bytes, a quarter where they move 16."""
        traffic.requests += 1
        traffic.bytes += size * len(places)
        key = (size, places.tobytes())
        known = _PASSES.get(key)
        if known is None:
            at_once = LANES * 4 // max(size, 4)
            known = passes = best = 0
            for start in range(0, len(places), at_once):
                part = places[start : start + at_once, None] // 4 + np.arange(-(-size // 4))
                words = np.unique(part)
                passes += int(np.bincount(words % BANKS).max())
                best += -(-len(words) // BANKS)
            known = _PASSES[key] = passes, best
        traffic.units += known[0]
        traffic.best += known[1]


_PASSES: dict[tuple[int, bytes], tuple[int, int]] = {}
