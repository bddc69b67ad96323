"""The work of one state for the threads of a block: operations on vectors in shared memory, put
into stages with a barrier after each.

An algorithm records operations (`Block.add`). Every operation reads and writes vectors; one thread
does one operation, and neighbouring threads the same kind of operation on other vectors, told apart
only by tables of addresses. The stages follow from what depends on what, so that sweeps over the
tree that do not depend on each other share their barriers. Vectors of the topology's zero columns
are never recorded, and a vector's place is used again after its last reader: that is the
compression of shared memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

WARP = 32
ALIGNMENT = 2  # numbers: vectors are moved two numbers at a time
LARGEST = 0xFFFF  # of a table entry
PROCESSOR = 100 * 1024 // 4  # numbers of shared memory that a processor has, in float32
FULL = 16  # warps that keep one busy
# kinds that are rendered by name, without tables: inputs of the first stage, matrices of the last
SPECIAL = ("load:", "dense:")


@dataclass(frozen=True)
class Value:
    """A vector of `size` numbers in shared memory; `array` means that several operations write it,
    each its own numbers.
    """

    index: int
    size: int
    array: bool = False

    def __getitem__(self, k: int) -> Number:
        if not 0 <= k < self.size:
            raise IndexError(k)
        return Number(self, k)


@dataclass(frozen=True)
class Number:
    """One number of a vector."""

    value: Value
    k: int


Field = Value | Number | int


@dataclass(frozen=True)
class Operation:
    kind: str
    fields: tuple[Field, ...]  # in the order of the table
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    together: str | None
    needed: tuple[Value, ...]  # read without a field of their own
    # operands of variable number, in the list table: their start and count become two more fields
    listed: tuple[tuple[Field, ...], ...] | None


@dataclass(frozen=True)
class Group:
    """Operations of one kind in one stage: `start`, `count` in the kind's table, and the first
    thread that takes part.
    """

    kind: str
    start: int
    count: int
    thread: int


@dataclass(frozen=True)
class Schedule:
    """What is rendered: stages, tables by kind, the list table, addresses."""

    stages: tuple[tuple[Group, ...], ...]
    tables: Mapping[str, tuple[tuple[int, ...], ...]]
    lists: tuple[int, ...]
    address: Mapping[int, int]  # of a value by its index
    size: int  # numbers of shared memory
    unshared: int  # numbers that all vectors would take without using places again
    threads: int

    @property
    def barriers(self) -> int:
        return len(self.stages)

    def place(self, x: Value | Number) -> int:
        return self.address[x.index] if isinstance(x, Value) else self.address[x.value.index] + x.k


@dataclass
class Block:
    """Records operations."""

    operations: list[Operation] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    kept: list[Value] = field(default_factory=list)  # read after the last stage
    # values that lie one after the other, by their indices
    pieces: dict[int, tuple[Value, ...]] = field(default_factory=dict)

    def value(self, size: int, array: bool = False) -> Value:
        value = Value(len(self.values), size, array)
        self.values.append(value)
        return value

    def piece(self, sizes: Sequence[int]) -> list[Value]:
        """Vectors of even sizes that lie one after the other."""
        values = [self.value(size) for size in sizes]
        self.pieces |= dict.fromkeys((v.index for v in values), tuple(values))
        return values

    def add(
        self,
        kind: str,
        reads: Sequence[Field],
        writes: Sequence[Value | Number | int],
        *,
        stores: Sequence[Value] = (),
        listed: Sequence[Sequence[Field]] | None = None,
        together: str | None = None,
        needs: Sequence[Value] = (),
    ) -> tuple[Value, ...]:
        """One operation. `writes` may give sizes, for which vectors are made; returns those
        written.

        `stores`: arrays among the fields that are written, at places which the operation works out
        itself. `needs`: values that are read at places which the operation works out. `together`:
        operations with this label wait for each other and share a stage, so that they fill warps.
        """
        targets = [self.value(w) if isinstance(w, int) else w for w in writes]
        inner = [f for entry in listed or () for f in entry]
        read = [f for f in (*reads, *inner) if not isinstance(f, int)]
        whole = [
            v for v in (f.value if isinstance(f, Number) else f for f in read) if v not in stores
        ]
        written = [t.value if isinstance(t, Number) else t for t in targets]
        fields = (*reads, *targets)
        self.operations.append(
            Operation(
                kind,
                fields,
                tuple(dict.fromkeys((*whole, *needs))),
                tuple(dict.fromkeys((*written, *stores))),
                together,
                tuple(needs),
                None if listed is None else tuple(tuple(e) for e in listed),
            )
        )
        return tuple(written)

    def keep(self, values: Iterable[Value | Number]) -> None:
        """These are read after the last stage."""
        self.kept += [v.value if isinstance(v, Number) else v for v in values]

    def schedule(self, threads: int | None = None) -> Schedule:
        stage_of = self._stages()
        count = max(stage_of, default=-1) + 1
        stages: list[dict[str, list[Operation]]] = [defaultdict(list) for _ in range(count)]
        for operation, s in zip(self.operations, stage_of, strict=True):
            stages[s][operation.kind].append(operation)
        address, size = self._places(stages, stage_of)
        warps = (threads or _threads(stages, size)) // WARP

        def number(f: Field) -> int:
            x = (
                f
                if isinstance(f, int)
                else address[f.index]
                if isinstance(f, Value)
                else address[f.value.index] + f.k
            )
            if not 0 <= x <= LARGEST:
                raise ValueError(f"{x} does not fit a table of 16 bits")
            return x

        tables: dict[str, list[tuple[int, ...]]] = defaultdict(list)
        lists: list[int] = []
        known: dict[tuple[int, ...], int] = {}  # where a list is already

        def entry(operation: Operation) -> tuple[int, ...]:
            fields = tuple(number(f) for f in operation.fields)
            if operation.kind.startswith(SPECIAL) or operation.listed is None:
                return fields
            width = len(operation.listed[0]) if operation.listed else 1
            flat = tuple(number(f) for e in operation.listed for f in e)
            if (width, *flat) not in known:
                lists.extend([0] * (-len(lists) % width))
                known[width, *flat] = len(lists) // width
                lists.extend(flat)
            return *fields, known[width, *flat], len(operation.listed)

        grouped = []
        for stage in stages:
            groups, busy = [], [0] * warps
            for kind, operations in stage.items():
                start = len(tables[kind])
                tables[kind] += [entry(operation) for operation in operations]
                first = busy.index(min(busy))
                for k in range(_warps(kind, operations)):
                    busy[(first + k) % warps] += 1
                groups.append(Group(kind, start, len(operations), first * WARP))
            grouped.append(tuple(groups))
        total = sum(-(-v.size // ALIGNMENT) * ALIGNMENT for v in self.values)
        return Schedule(
            tuple(grouped),
            {k: tuple(t) for k, t in tables.items()},
            tuple(lists),
            address,
            size,
            total,
            warps * WARP,
        )

    # --- when -------------------------------------------------------------------------------------

    def _stages(self) -> list[int]:
        """The earliest stage of each operation; those with one label in the latest of theirs."""
        writers: dict[int, list[int]] = defaultdict(list)
        for i, operation in enumerate(self.operations):
            for v in operation.writes:
                writers[v.index].append(i)
        stage = [0] * len(self.operations)
        changed = True
        while changed:
            changed = False
            label: dict[str, int] = {}
            for i, operation in enumerate(self.operations):
                earliest = 1 + max(
                    (stage[j] for v in operation.reads for j in writers[v.index] if j != i),
                    default=-1,
                )
                stage[i] = max(stage[i], earliest)
                if operation.together:
                    label[operation.together] = max(label.get(operation.together, 0), stage[i])
            for i, operation in enumerate(self.operations):
                if operation.together and stage[i] != label[operation.together]:
                    stage[i] = label[operation.together]
                    changed = True
        return stage

    # --- where ------------------------------------------------------------------------------------

    def _places(
        self, stages: Sequence[Mapping[str, Sequence[Operation]]], stage_of: Sequence[int]
    ) -> tuple[dict[int, int], int]:
        """The address of every vector; a place is free again in the stage after its last reader,
        and for that reader's own result at once.
        """
        last: dict[int, int] = {}
        readers: dict[tuple[int, int], set[int]] = defaultdict(set)
        for i, (operation, s) in enumerate(zip(self.operations, stage_of, strict=True)):
            for v in (*operation.reads, *operation.writes):
                last[v.index] = max(last.get(v.index, 0), s)
            for v in operation.reads:
                readers[v.index, s].add(i)
        for v in self.kept:
            last[v.index] = len(stages)
        for values in self.pieces.values():
            used = [last[v.index] for v in values if v.index in last]
            last |= dict.fromkeys((v.index for v in values), max(used, default=-1))
        index = {id(operation): i for i, operation in enumerate(self.operations)}
        arena = _Arena()
        address: dict[int, int] = {}
        for s, stage in enumerate(stages):
            inherited: set[int] = set()
            for operations in stage.values():
                # by place among the results: neighbouring threads write neighbouring vectors
                fresh: dict[int, list[tuple[Value, ...]]] = defaultdict(list)
                for operation in operations:
                    own = {index[id(operation)]}
                    ending = [
                        v
                        for v in operation.reads
                        if last[v.index] == s
                        and readers[v.index, s] == own
                        and not v.array
                        and v.index not in self.pieces
                        and v.index not in inherited
                    ]
                    for position, w in enumerate(operation.writes):
                        if w.index in address:
                            continue
                        if piece := self.pieces.get(w.index):
                            address |= dict.fromkeys((v.index for v in piece), -1)
                            fresh[position].append(piece)
                            continue
                        heir = next((v for v in ending if v.size == w.size and not w.array), None)
                        if heir is not None:
                            ending.remove(heir)
                            inherited.add(heir.index)
                            address[w.index] = address[heir.index]
                        else:
                            address[w.index] = -1
                            fresh[position].append((w,))
                for taken in fresh.values():
                    arena.take_all(taken, address)
            for v in self.values:
                if last.get(v.index) == s and v.index not in inherited:
                    arena.free(address[v.index], v.size)
        return address, arena.size


def _warps(kind: str, operations: Sequence[Operation]) -> int:
    return 0 if kind.startswith(SPECIAL) else -(-len(operations) // WARP)


def _threads(stages: Sequence[Mapping[str, Sequence[Operation]]], size: int) -> int:
    """One warp, which needs no barriers, unless more take less than two thirds of its rounds, or
    memory leaves so few states on a processor that these do not fill it.
    """
    counts = [sum(_warps(kind, o) for kind, o in stage.items()) for stage in stages]
    rounds = {w: sum(-(-count // w) for count in counts) for w in (1, 2, 4)}
    wanted = FULL / (PROCESSOR // max(size, 1) or 1)
    warps = 1
    for more in (2, 4):
        if rounds[more] < rounds[warps] * (2 / 3 if warps >= wanted else 1):
            warps = more
    return warps * WARP


class _Arena:
    """Free intervals of shared memory."""

    def __init__(self) -> None:
        self.size = 0
        self._holes: list[tuple[int, int]] = []  # (start, end), sorted, never touching

    def take_all(self, pieces: Sequence[tuple[Value, ...]], address: dict[int, int]) -> None:
        """Places for the results of a group: in one piece where there is one, so that neighbouring
        threads write neighbouring places.
        """
        if not pieces:
            return
        total = sum(_rounded(v.size) for values in pieces for v in values)
        hole = next((h for h in self._holes if h[1] - h[0] >= total), None)
        if hole is None and len(pieces) > 1 and sum(e - s for s, e in self._holes) >= total // 2:
            for values in pieces:
                self.take_all([values], address)
            return
        start = hole[0] if hole else self._end()
        self._occupy(start, total)
        for v in (v for values in pieces for v in values):
            address[v.index] = start
            start += _rounded(v.size)

    def free(self, start: int, size: int) -> None:
        self._holes = sorted([*self._holes, (start, start + _rounded(size))])
        merged: list[tuple[int, int]] = []
        for s, e in self._holes:
            if merged and merged[-1][1] == s:
                merged[-1] = (merged[-1][0], e)
            else:
                merged.append((s, e))
        self._holes = merged

    def _end(self) -> int:
        """Where memory has to grow: from a hole at the end, if there is one."""
        return self._holes[-1][0] if self._holes and self._holes[-1][1] == self.size else self.size

    def _occupy(self, start: int, total: int) -> None:
        end = start + total
        holes = []
        for s, e in self._holes:
            if e <= start or s >= end:
                holes.append((s, e))
                continue
            if s < start:
                holes.append((s, start))
            if e > end:
                holes.append((end, e))
        self._holes = holes
        self.size = max(self.size, end)


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
