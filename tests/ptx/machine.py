"""Blocks of warps. Lanes of a warp that part go on in groups, the one furthest behind first, until
they meet again; warps run one after the other from barrier to barrier.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from ptx.blocks import Piece, Pieces
from ptx.counts import Counts
from ptx.memory import LANES, Findings, Global, Shared, Spaces, Stopped
from ptx.text import SHARED, Module

Mask = np.ndarray
_ALL = np.ones(LANES, bool)


class Program:
    """A module, ready to run."""

    def __init__(self, text: str):
        self.module = Module(text)
        self.functions = {n: Pieces(self.module, f) for n, f in self.module.functions.items()}
        self.module.places |= {
            n: SHARED + self.module.shared_bytes
            for n in ("rigidgrad_dynamic",)
            if n in text and n not in self.module.places
        }

    @property
    def local_bytes(self) -> int:
        return sum(p.function.local_bytes for p in self.functions.values())

    def launch(
        self,
        entry: str,
        blocks: int,
        threads: int,
        scalars: list[Any],
        arrays: list[np.ndarray],
        dynamic: int = 0,
        order: int = 0,
    ) -> tuple[list[np.ndarray], Counts, Findings]:
        """Runs `entry(scalars…, arrays…)`; the arrays afterwards. `order` 1: warps in descending
        order.
        """
        memory = Global(self.module.image)
        addresses = [memory.add(a) for a in arrays]
        memory.close()
        findings, counts = Findings(), Counts()
        values = [*scalars, *map(np.uint64, addresses)]
        pieces = self.functions[entry]
        given = dict(zip(pieces.function.parameters, values, strict=True))
        try:
            with np.errstate(all="ignore"):  # lanes under a mask compute, too
                for number in range(blocks):
                    Block(
                        self, pieces, memory, number, blocks, threads, dynamic, findings, counts
                    ).run(given, order)
        except Stopped:
            pass
        return (
            [memory.read(at, a) for at, a in zip(addresses, arrays, strict=True)],
            counts,
            findings,
        )


class Block:
    def __init__(
        self,
        program: Program,
        pieces: Pieces,
        memory: Global,
        number: int,
        count: int,
        threads: int,
        dynamic: int,
        findings: Findings,
        counts: Counts,
    ):
        self.program, self.pieces = program, pieces
        self.number, self.count, self.threads = number, count, threads
        self.findings, self.counts = findings, counts
        self.shared = Shared(program.module.shared_bytes + dynamic, findings)
        self.warps = [Warp(self, memory, w) for w in range(threads // LANES)]

    def run(self, given: dict[str, Any], order: int) -> None:
        waiting = [
            (w, w.run(self.pieces, _ALL, {(k, 0): np.full(LANES, x) for k, x in given.items()}))
            for w in self.warps
        ]
        while waiting:
            met: dict[int, list] = {}
            for warp, steps in waiting[::-1] if order else waiting:
                at = next(steps, None)
                if at is not None:
                    met.setdefault(at, []).append((warp, steps))
                else:
                    met.setdefault(-1, []).append(None)
            if len(met) > 1:
                self.findings.note("divergent", 1, f"warps at different barriers: {sorted(met)}")
                raise Stopped
            waiting = (
                [] if -1 in met else sorted(next(iter(met.values())), key=lambda x: x[0].number)
            )
            if waiting:
                self.shared.interval += 1
                self.counts.barriers += 1
                longest = max(w.cycles for w, _ in waiting)
                for w, _ in waiting:
                    w.cycles = longest
        self.counts.cycles.append(max(w.cycles for w in self.warps))


class Warp:
    def __init__(self, block: Block, memory: Global, number: int):
        self.block, self.number = block, number
        self.threads = np.arange(LANES * number, LANES * (number + 1))
        self.interval = 0  # of its own
        self.frame = self._top = 0  # of local memory
        self.cycles = 0.0
        program = block.program
        self.spaces = Spaces(
            memory,
            block.shared,
            program.local_bytes,
            program.module.constants,
            block.counts.traffic,
        )
        self._values: dict[tuple[str, int], np.ndarray] = {}

    # --- what pieces call ---

    def constant(self, x: int) -> np.ndarray:
        return np.full(LANES, x, np.uint32)

    def given(self, name: str, offset: int, dtype: str) -> np.ndarray:
        x = self._values[name, offset]
        kind = np.dtype(dtype)
        return (
            x
            if x.dtype == kind
            else x.view(kind)
            if x.dtype.itemsize == kind.itemsize
            else x.astype(kind)
        )

    def give(self, name: str, offset: int, value: np.ndarray, mask: Mask | None) -> None:
        old = self._values.get((name, offset))
        kept = old is not None and mask is not None and old.dtype == value.dtype
        self._values[name, offset] = np.where(mask, value, old) if kept else value

    # --- a function ---

    def run(
        self, pieces: Pieces, mask: Mask, values: dict[tuple[str, int], np.ndarray]
    ) -> Generator[int, None, None]:
        """Yields at barriers of the block: where in the code."""
        R = list(pieces.zeros)
        callers, self._values = self._values, values
        frame, self.frame = self.frame, self._top
        self._top += pieces.function.local_bytes
        live = mask.copy()
        groups: dict[int, Mask] = {0: mask}
        counts = self.block.counts
        while groups:
            at = min(groups)
            active = groups.pop(at)
            number = int(active.sum())
            if at >= len(pieces.pieces):
                live &= ~active
                continue
            piece = pieces.pieces[at]
            whole = number == LANES
            (piece.whole if whole else piece.partial)(R, self, None if whole else active)
            self.cycles += counts.add(piece, number)
            if piece.last is None:
                _join(groups, at + 1, active)
                continue
            taken = active
            if piece.guard is not None:
                taken = active & (~R[piece.guard] if piece.negated else R[piece.guard])
                if not taken.all() and (rest := active & ~taken).any():
                    _join(groups, at + 1, rest)
                if not taken.any():
                    continue
            match piece.last.name:
                case "bra":
                    assert piece.target is not None, piece.last
                    _join(groups, piece.target, taken)
                case "ret" | "exit":
                    live &= ~taken
                case "call":
                    yield from self._call(piece, taken, values)
                    _join(groups, at + 1, taken)
                case "bar":
                    if groups or not (taken == live).all():
                        self.block.findings.note(
                            "divergent", 1, f"a barrier that some lanes miss, at {piece.start}"
                        )
                        raise Stopped
                    if ".warp." in piece.last.operation:
                        self.interval += 1
                    else:
                        yield piece.start
                    _join(groups, at + 1, taken)
                case other:
                    raise NotImplementedError(other)
        self._values, self.frame = callers, frame
        self._top -= pieces.function.local_bytes

    def _call(self, piece: Piece, mask: Mask, values: dict) -> Generator[int, None, None]:
        assert piece.last is not None
        operands = list(piece.last.operands)
        results = (
            [x.strip() for x in operands.pop(0).strip("() ").split(",")]
            if operands[0].startswith("(")
            else []
        )
        called = self.block.program.functions[operands[0]]
        passed = (
            [x.strip() for x in operands[1].strip("() ").split(",")] if len(operands) > 1 else []
        )
        names = dict(zip(passed, called.function.parameters, strict=True))
        own = {(names[n], k): x for (n, k), x in values.items() if n in names}
        yield from self.run(called, mask, own)
        back = dict(zip(called.function.results, results, strict=True))
        for (n, k), x in own.items():
            if n in back:
                self.give(back[n], k, x, mask)


def _join(groups: dict[int, Mask], at: int, mask: Mask) -> None:
    groups[at] = groups[at] | mask if at in groups else mask
