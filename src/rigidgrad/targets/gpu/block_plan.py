"""How a block of threads runs a kernel: what its threads share out, where its arrays are, and where
threads wait for each other.

A `Leaf` is a statement that threads share out: item t of it is a thread's whose number is t modulo
theirs, so that one thread has item t of every leaf, whatever their number is. Leaves are run
through here with the places that their items read and write: two leaves need a barrier between them
where a number that an item of one writes is read or written by another item of the other. Arrays
that are in use at different times share their places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rigidgrad.kernels.interpret import Rounds, places, value
from rigidgrad.kernels.language import (
    Array,
    Call,
    Choose,
    Index,
    Kernel,
    Lookup,
    Loop,
    Product,
    Statement,
    Variable,
    View,
)
from rigidgrad.kernels.structure import statements, steps
from rigidgrad.targets.gpu.spread import Parts, Place, spread, used_inputs

_NOBODY, _EVERYBODY = (1 << 30, -1), (-1, 1 << 30)
_FEW = 3  # rounds that are not worth sharing out: their statements are


@dataclass(eq=False)
class Leaf:
    """A statement that threads share out, with all rounds of `outer`; or whole rounds of a loop,
    where it is one. Without `parts`, a call is one item.
    """

    statement: Statement
    outer: Loop | None = None
    parts: tuple[Parts, ...] = ()


@dataclass(eq=False)
class Ordered:
    """Rounds that all threads take together."""

    loop: Loop
    body: tuple[Step, ...]


@dataclass(eq=False)
class Choice:
    index: Index
    bodies: tuple[tuple[Step, ...], ...]


Step = Leaf | Ordered | Choice


# --- who touches what -----------------------------------------------------------------------------


def entries(product: Product) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the entries that are computed, in the order of items: of a symmetric
    product row i and row rows - 1 - i make one line of rows + 1 entries.
    """
    rows, columns = product.target.shape
    if not product.symmetric:
        i, j = np.divmod(np.arange(rows * columns), columns)
        return i, j
    line, place = np.divmod(np.arange(rows * (rows + 1) // 2), rows + 1)
    first = place <= line
    return np.where(first, line, rows - 1 - line), np.where(first, place, place - line - 1)


@dataclass
class Touched:
    """Of each number of an array, the first and the last of the items that touch it."""

    first: np.ndarray
    last: np.ndarray

    @classmethod
    def none(cls, size: int) -> Touched:
        return cls(np.full(size, _NOBODY[0]), np.full(size, _NOBODY[1]))

    def add(self, numbers: np.ndarray, items: np.ndarray | int) -> None:
        numbers, items = np.broadcast_arrays(numbers, items)
        np.minimum.at(self.first, numbers, items)
        np.maximum.at(self.last, numbers, items)

    def join(self, other: Touched) -> None:
        np.minimum(self.first, other.first, out=self.first)
        np.maximum(self.last, other.last, out=self.last)

    @property
    def any(self) -> np.ndarray:
        return self.last >= self.first

    def meets(self, other: Touched) -> bool:
        """Whether two different items touch the same number."""
        both = self.any & other.any
        first, last = (
            np.minimum(self.first, other.first),
            np.maximum(self.last, other.last),
        )
        return bool((both & (first != last)).any())


@dataclass
class Access:
    """What a leaf reads and writes, by arrays or by memories; without what nobody writes."""

    reads: dict[Array | str, Touched] = field(default_factory=dict)
    writes: dict[Array | str, Touched] = field(default_factory=dict)

    def note(
        self, writes: bool, array: Array, numbers: np.ndarray, items: np.ndarray | int
    ) -> None:
        own = self.writes if writes else self.reads
        if numbers.size and array.role not in ("constant", "input"):
            own.setdefault(array, Touched.none(array.size)).add(numbers, items)

    def meets(self, later: Access) -> bool:
        return any(
            mine[key].meets(touched)
            for mine, theirs in (
                (self.writes, later.writes),
                (self.writes, later.reads),
                (self.reads, later.writes),
            )
            for key, touched in theirs.items()
            if key in mine
        )

    def join(self, other: Access) -> None:
        for own, others in ((self.reads, other.reads), (self.writes, other.writes)):
            for key, touched in others.items():
                if key in own:
                    own[key].join(touched)
                else:
                    own[key] = Touched(touched.first.copy(), touched.last.copy())

    def copy(self) -> Access:
        found = Access()
        found.join(self)
        return found


def access(leaf: Leaf, rounds: Rounds) -> Access:
    found = Access()
    loop = leaf.statement if isinstance(leaf.statement, Loop) else leaf.outer
    for i, own in enumerate(_inside(loop, [rounds]) if loop else [rounds]):
        match leaf.statement:
            case Product() as product:
                _of_product(found, product, own, i * len(entries(product)[0]))
            case Call() as call if leaf.parts:
                for parts in leaf.parts:
                    _of_parts(found, call, parts, own, i * parts.count)
            case Loop(body=body):
                _of_rounds(found, body, own, i)
            case statement:
                _of_rounds(found, [statement], own, i)
    return found


def _of_rounds(found: Access, body: Sequence[Statement], rounds: Rounds, item: int) -> None:
    for step, at in steps(body, rounds):
        if isinstance(step, Call):
            _of_call(found, step, at, item)
        else:
            _of_product(found, step, at, item, alone=True)


def _of_product(found: Access, p: Product, rounds: Rounds, item: int, alone: bool = False) -> None:
    i, j = entries(p)
    items = np.full(len(i), item) if alone else item + np.arange(len(i))
    target, left, right = (places(v, rounds) for v in (p.target, p.left, p.right))
    found.note(False, p.left.array, left[i], items[:, None])
    found.note(False, p.right.array, right[:, j], items[None, :])
    if p.accumulate:
        found.note(False, p.target.array, target[i, j], items)
    found.note(True, p.target.array, target[i, j], items)
    if p.symmetric:
        found.note(True, p.target.array, target[j, i], items)


def _of_parts(found: Access, call: Call, parts: Parts, rounds: Rounds, item: int) -> None:
    items = np.arange(parts.count)

    def note(writes: bool, view: View, place: Place) -> None:
        numbers = value(view.offset, rounds) + place.first + place.step * items
        found.note(writes, view.array, numbers, item + items)

    for place in parts.reads:
        note(False, call.inputs[place.name], place)
    for place in parts.writes:
        note(True, call.outputs[place.name], place)


def _of_call(found: Access, call: Call, rounds: Rounds, item: int) -> None:
    own = {name: places(view, rounds).ravel() for name, view in call.inputs.items()}
    numbers: dict[str, list[int]] = {}
    for name, k in used_inputs(call.program):
        numbers.setdefault(name, []).append(k)
    for name, chosen in numbers.items():
        found.note(False, call.inputs[name].array, own[name][chosen], item)
    for view in call.outputs.values():
        found.note(True, view.array, places(view, rounds).ravel(), item)


# --- the plan -------------------------------------------------------------------------------------


@dataclass
class BlockPlan:
    """`first` are arrays whose places come first, in this order, since others than the kernel read
    or write them; scratch follows as far as there is room for `most` numbers, the rest is
    `outside`.
    """

    kernel: Kernel
    first: Sequence[Array] = ()
    most: int | None = None

    def __post_init__(self) -> None:
        self.body = tuple(self._shared_out(self.kernel.body, [{}]))
        self._known: dict[tuple[int, tuple[object, ...]], Access] = {}
        self._lay_out()
        self._place_barriers()

    # what is shared out ---------------------------------------------------------------------------

    def _shared_out(self, body: Sequence[Statement], all_rounds: list[Rounds]) -> Iterator[Step]:
        for s in body:
            match s:
                case Call():
                    yield Leaf(s, parts=spread(s))
                case Product():
                    yield Leaf(s)
                case Choose(index, bodies):
                    inner = [
                        [r for r in all_rounds if value(index, r) == k] for k in range(len(bodies))
                    ]
                    yield Choice(
                        index,
                        tuple(
                            tuple(self._shared_out(b, own))
                            for b, own in zip(bodies, inner, strict=True)
                        ),
                    )
                case Loop():
                    leaf = None if s.ordered else self._rounds_shared_out(s, all_rounds)
                    yield leaf or Ordered(
                        s, tuple(self._shared_out(s.body, _inside(s, all_rounds)))
                    )

    def _rounds_shared_out(self, loop: Loop, all_rounds: list[Rounds]) -> Leaf | None:
        """Rounds and items of one statement together; else whole rounds. None where there are few,
        or where rounds use the same scratch.
        """
        tried = []
        if len(loop.body) == 1:
            match loop.body[0]:
                case Product() as product:
                    tried.append(Leaf(product, loop))
                case Call() as call if parts := spread(call):
                    tried.append(Leaf(call, loop, parts))
        if max((value(loop.count, r) for r in all_rounds), default=0) > _FEW or not tried:
            tried.append(Leaf(loop))
        for leaf in tried:
            if not any((a := access(leaf, r)).meets(a) for r in all_rounds):
                return leaf
        return None

    # memory ---------------------------------------------------------------------------------------

    def _trace(
        self, body: Sequence[Step], rounds: Rounds
    ) -> Iterator[tuple[Leaf | Ordered, Rounds]]:
        """Leaves, and conditions of loops, in the order in which they run; all rounds are taken."""
        for step in body:
            match step:
                case Leaf():
                    yield step, rounds
                case Choice():
                    yield from self._trace(step.bodies[value(step.index, rounds)], rounds)
                case Ordered(loop, inner):
                    for own in _turns(loop, rounds):
                        if loop.done:
                            yield step, own
                        yield from self._trace(inner, own)

    def _touched(self, step: Leaf | Ordered, rounds: Rounds) -> Access:
        key = id(step), tuple(rounds.items())
        if key not in self._known:
            if isinstance(step, Leaf):
                found = access(step, rounds)
            else:
                found = Access()
                done = step.loop.done
                assert done is not None
                touched = found.reads.setdefault(done.array, Touched.none(done.array.size))
                for item in _EVERYBODY:
                    touched.add(places(done, rounds).ravel(), item)
            self._known[key] = found
        return self._known[key]

    def _lay_out(self) -> None:
        scratch = self.kernel.of("scratch")
        used: dict[Array, list[int]] = {}
        written = {a: np.zeros(a.size, bool) for a in scratch}
        early = set[Array]()  # read before they are written: zero at first
        for time, (step, rounds) in enumerate(self._trace(self.body, {})):
            found = self._touched(step, rounds)
            for a in scratch:
                if a in found.reads and (found.reads[a].any & ~written[a]).any():
                    early.add(a)
            for own in (found.reads, found.writes):
                for key in own:
                    assert isinstance(key, Array)
                    used.setdefault(key, [time, time])[1] = time
            for a in scratch:
                if a in found.writes:
                    written[a] |= found.writes[a].any
        self.zeroed = [a for a in scratch if a in early]
        for a in self.zeroed:
            used[a] = [-1, 1 << 30]
        self.offsets: dict[Array, int] = {}
        self.outside: dict[Array, int] = {}
        at = 0
        for a in self.first:
            self.offsets[a] = at
            at += a.size
        self.size, self.work = at, 0
        placed: list[tuple[Array, int]] = []
        for a in sorted((a for a in scratch if a in used), key=lambda a: -a.size):
            start = at
            for b, offset in sorted(placed, key=lambda x: x[1]):
                apart = used[a][0] > used[b][1] or used[b][0] > used[a][1]
                if not apart and start < offset + b.size and offset < start + a.size:
                    start = offset + b.size
            if self.most is not None and start + a.size > self.most:
                self.outside[a] = self.work
                self.work += a.size
                continue
            placed.append((a, start))
            self.offsets[a] = start
            self.size = max(self.size, start + a.size)

    @cached_property
    def _changed(self) -> set[Array]:
        """Arrays in global memory that are written."""
        return {
            a
            for found in self._known.values()
            for a in found.writes
            if isinstance(a, Array) and a not in self.offsets
        }

    def in_memory(self, step: Leaf | Ordered, rounds: Rounds) -> Access:
        """What a leaf touches, by memories; what is only read is left out."""
        key = id(step), tuple(rounds.items())
        if key not in self._by_memory:
            found, own = self._touched(step, rounds), Access()
            for theirs, mine in ((found.reads, own.reads), (found.writes, own.writes)):
                for a, touched in theirs.items():
                    assert isinstance(a, Array)
                    if a in self.offsets:
                        whole = mine.setdefault("shared", Touched.none(self.size))
                        here = slice(self.offsets[a], self.offsets[a] + a.size)
                        Touched(whole.first[here], whole.last[here]).join(touched)
                    elif a in self._changed:
                        mine[a] = touched
            self._by_memory[key] = own
        return self._by_memory[key]

    # barriers -------------------------------------------------------------------------------------

    def _place_barriers(self) -> None:
        self._by_memory: dict[tuple[int, tuple[object, ...]], Access] = {}
        found: list[Position] = []
        while missing := _Walk(self, found).missing:
            found.append(missing)
        for own in found.copy():
            rest = [p for p in found if p != own]
            if not _Walk(self, rest).missing:
                found = rest
        self._barriers = _Walk(self, found).met

    def barrier(self, where: str, step: Step) -> str | None:
        """What stands "before" a step, or "at" the condition of a loop: "SYNC", "SYNC_ALL" where it
        is one of global memory, too, or nothing.
        """
        found = self._barriers.get((where, step))
        return None if found is None else "SYNC_ALL" if found else "SYNC"

    @property
    def barriers(self) -> int:
        """In the text."""
        return len(self._barriers)


Position = tuple[str, Step]


class _Missing(Exception):
    pass


class _Walk:
    """A run of the plan with barriers at some positions: the first one that is `missing`, and
    whether the others `met` have numbers of global memory to wait for.
    """

    def __init__(self, plan: BlockPlan, positions: Sequence[Position]):
        self.plan, self.positions = plan, positions
        self.met: dict[Position, bool] = {}
        self.missing: Position | None = None
        self.loops: list[tuple[Ordered, int]] = []  # that are under way, and their rounds' numbers
        since = Access()  # the last barrier
        for a in plan.zeroed:
            size, start = (plan.size, plan.offsets[a]) if a in plan.offsets else (a.size, 0)
            whole = since.writes.setdefault(
                "shared" if a in plan.offsets else a, Touched.none(size)
            )
            whole.add(start + np.arange(a.size), np.arange(a.size))
        with suppress(_Missing):
            self.run(plan.body, {}, since)

    def run(self, body: Sequence[Step], rounds: Rounds, since: Access) -> Access:
        for step in body:
            since = self.pass_by(("before", step), since)
            match step:
                case Leaf():
                    since = self.touch(("before", step), rounds, since)
                case Choice():
                    since = self.run(step.bodies[value(step.index, rounds)], rounds, since)
                case Ordered():
                    since = self.run_loop(step, rounds, since)
        return since

    def run_loop(self, step: Ordered, rounds: Rounds, since: Access) -> Access:
        ends = Access()
        for turn, own in enumerate(_turns(step.loop, rounds)):
            self.loops.append((step, turn))
            if step.loop.done:
                since = self.pass_by(("at", step), since)
                since = self.touch(("at", step), own, since)
                ends.join(since)
            since = self.run(step.body, own, since)
            self.loops.pop()
        ends.join(since)
        return ends

    def pass_by(self, position: Position, since: Access) -> Access:
        if position not in self.positions:
            return since
        outside = any(key != "shared" for own in (since.reads, since.writes) for key in own)
        self.met[position] = self.met.get(position, False) or outside
        return Access()

    def touch(self, position: Position, rounds: Rounds, since: Access) -> Access:
        step = position[1]
        assert not isinstance(step, Choice)
        own = self.plan.in_memory(step, rounds)
        if since.meets(own):
            self.missing = self.outwards(position)
            raise _Missing
        after = since.copy()
        after.join(own)
        return after

    def outwards(self, position: Position) -> Position:
        """Before the outermost loop of several rounds whose first one this is; at the position
        itself where barriers are there already.
        """
        for depth, (step, _) in enumerate(self.loops):
            first = all(turn == 0 for _, turn in self.loops[depth:])
            several = step.loop.count != Index((), 1)
            if first and several and ("before", step) not in self.positions:
                return "before", step
        return position


def _inside(loop: Loop, all_rounds: Sequence[Rounds]) -> list[Rounds]:
    """Rounds of a loop; of an ordered one whose rounds do not differ, a few."""
    most = 3 if loop.ordered and not names(loop.body, loop.variable) else None

    def of(rounds: Rounds) -> Sequence[int]:
        count = value(loop.count, rounds)
        turns = range(count if most is None else min(count, most))
        return turns[::-1] if loop.reverse else turns

    return [rounds | {loop.variable: i} for rounds in all_rounds for i in of(rounds)]


def _turns(loop: Loop, rounds: Rounds) -> list[Rounds]:
    """Rounds that differ; where they do not, the third one meets what the second one has met."""
    found = _inside(loop, [rounds])
    return found if names(loop.body, loop.variable) else found[:2]


def names(body: Sequence[Statement], variable: Variable) -> bool:
    """Whether places or counts in a body depend on a variable."""

    def of_index(index: Index) -> bool:
        return any(
            of_index(atom.index) if isinstance(atom, Lookup) else atom == variable
            for atom, _ in index.terms
        )

    for s in statements(body):
        match s:
            case Call():
                found = [v.offset for v in (*s.inputs.values(), *s.outputs.values())]
            case Product():
                found = [s.target.offset, s.left.offset, s.right.offset]
            case Loop():
                found = [s.count, *([s.done.offset] if s.done else [])]
            case Choose():
                found = [s.index]
        if any(map(of_index, found)):
            return True
    return False
