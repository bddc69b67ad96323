"""What was executed, and the report of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from ptx.blocks import Piece
from ptx.memory import LANES, Traffic

# cycles from issue until a result can be used, of Ampere and its successors, rounded
LATENCY = {
    "floating point": 4,
    "other": 4,
    "ld shared": 29,
    "ld const": 8,
    "ld param": 8,
    "ld global": 200,
    "ld local": 38,
    "branch": 8,
    "barrier": 20,
}
_SLOW = {"rcp": 40, "div": 40, "sqrt": 40, "rem": 40}
_DOUBLE = 16  # of floating point in float64


@dataclass
class Counts:
    """Of a launch."""

    pieces: Counter[Piece] = field(default_factory=Counter)
    lanes: Counter[Piece] = field(default_factory=Counter)
    traffic: defaultdict[str, Traffic] = field(default_factory=lambda: defaultdict(Traffic))
    barriers: int = 0
    cycles: list[float] = field(default_factory=list)  # of each block, by a model
    _lengths: dict[Piece, float] = field(default_factory=dict)

    def add(self, piece: Piece, lanes: int) -> float:
        """Counts a piece; its length in cycles."""
        self.pieces[piece] += 1
        self.lanes[piece] += lanes
        if piece not in self._lengths:
            self._lengths[piece] = _length(piece)
        return self._lengths[piece]

    def report(self, states: int) -> Report:
        classes: Counter[str] = Counter()
        control = lanes = 0
        for piece, count in self.pieces.items():
            for name in piece.classes:
                classes[name] += count
            lanes += self.lanes[piece] * len(piece.classes)
            if not _works(piece):
                control += count * len(piece.classes)
        total = sum(classes.values())
        shared = [self.traffic[k] for k in ("ld shared", "st shared")]
        moved = [self.traffic[k] for k in ("ld global", "st global")]
        local = [self.traffic[k] for k in ("ld local", "st local")]
        return Report(
            instructions=total / states,
            floating=classes["floating point"] / total,
            control=control / total,
            lanes=lanes / total,
            barriers=self.barriers / states,
            conflicts=sum(t.units for t in shared) / max(sum(t.best for t in shared), 1),
            sectors=sum(t.units for t in moved) / states,
            sectors_best=sum(t.best for t in moved) / states,
            local=sum(t.requests for t in local) / states,
            local_bytes=sum(t.bytes for t in local) / states,
            cycles=sum(self.cycles) / max(len(self.cycles), 1),
            classes={k: n / states for k, n in classes.most_common()},
        )


@dataclass(frozen=True)
class Report:
    """Per state, but for shares. Control is what stands in straight pieces without arithmetic on
    real numbers and without shared memory: loops, switches, tables.
    """

    instructions: float  # of warps
    floating: float
    control: float
    lanes: float  # active ones of an instruction, of 32
    barriers: float
    conflicts: float  # passes through the banks of shared memory, over as few as there could be
    sectors: float  # of global memory
    sectors_best: float
    local: float  # accesses of a warp to local memory
    local_bytes: float
    cycles: float  # of a block alone, by the latencies above
    classes: dict[str, float]

    def row(self) -> dict[str, float]:
        return {
            "instructions": round(self.instructions, 1),
            "floating": round(self.floating, 3),
            "control": round(self.control, 3),
            "lanes": round(self.lanes, 1),
            "barriers": round(self.barriers, 2),
            "conflicts": round(self.conflicts, 2),
            "sectors": round(self.sectors, 1),
            "sectors_best": round(self.sectors_best, 1),
            "local": round(self.local, 1),
            "local_bytes": round(self.local_bytes),
            "cycles": round(self.cycles),
        }


def _works(piece: Piece) -> bool:
    return any(k in ("floating point", "ld shared", "st shared") for k in piece.classes)


def _length(piece: Piece) -> float:
    """Cycles of a piece that a warp issues in order, alone on its scheduler."""
    ready: dict[str, float] = {}
    clock = end = 0.0
    for s, kind in zip(
        piece.owner.function.code[piece.start : piece.end], piece.classes, strict=True
    ):
        words = [
            w
            for o in s.operands
            for w in o.replace("{", " ")
            .replace("}", " ")
            .replace("[", " ")
            .replace("]", " ")
            .replace(",", " ")
            .split()
        ]
        if s.guard:
            words.append(s.guard)
        clock = max([clock, *(ready.get(w, 0.0) for w in words)])
        latency = _SLOW.get(s.name, LATENCY.get(kind, 4))
        if ".nc." in s.operation:
            latency = LATENCY["ld local"]  # tables, which lie in the cache
        if kind == "floating point" and s.type == "f64":
            latency = max(latency, _DOUBLE)
        if s.name not in ("st", "bra", "ret", "bar", "call"):
            written = s.operands[0].strip("{} ").split(",")
            for w in written:
                ready[w.strip()] = clock + latency
            end = max(end, clock + latency)
        clock += 1
    last = piece.last
    return max(clock, end) + (
        LATENCY["branch"]
        if last and last.name == "bra"
        else LATENCY["barrier"]
        if last and last.name == "bar"
        else 0
    )


__all__ = ["LANES", "Counts", "Report"]
