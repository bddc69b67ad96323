"""Slots that differ in numbers alone: code is made once for each group of them, and loops over
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from rigidgrad.algorithms.sparsity import Supports, supports as supports_of
from rigidgrad.kernels.language import Table
from rigidgrad.model.model import WORLD
from rigidgrad.worlds.narrow import MESH, PLANE
from rigidgrad.worlds.pairs import Geom, Pair, chain, columns_of
from rigidgrad.worlds.physics import BallLimit, Coupling, Physics, Tendon
from rigidgrad.worlds.plane_mesh import Mesh
from rigidgrad.worlds.slots import ELLIPSE, EQUAL, NORMAL, PYRAMID, Rule
from rigidgrad.worlds.smooth import Varied


@dataclass(frozen=True)
class Segment:
    """Velocities that follow each other and move a slot's bodies apart with one sign."""

    sign: float
    size: int


@dataclass(frozen=True)
class Member:
    """A pair of shapes, or a limit, with the first velocity of each segment."""

    source: Pair | Tendon | BallLimit | Coupling
    starts: tuple[int, ...]
    weights: tuple[float, float]
    friction: tuple[float, ...]
    margin: float

    @property
    def pair(self) -> Pair:
        assert isinstance(self.source, Pair)
        return self.source


@dataclass(frozen=True)
class Group:
    """`slots` of each member, one after the other, from slot `first` on, whose numbers begin at
    `row` and whose Jacobians at `entry`. `crosses`: their freedoms are on several paths of the
    tree.
    """

    rule: Rule
    segments: tuple[Segment, ...]
    crosses: bool
    slots: int
    kinds: tuple[int, int] | None  # of the shapes of pairs
    fixed: tuple[Geom | None, Geom | None]  # those that do not move
    meshes: tuple[Mesh | None, Mesh | None]
    window: tuple[int, int]  # rows and columns of the cells of a height field that are looked at
    members: tuple[Member, ...]
    number: int = 0
    first: int = 0
    row: int = 0
    entry: int = 0
    pair: int = 0  # the first of its members among all pairs
    patch: int = 0  # where the heights of its members begin

    @property
    def dim(self) -> int:
        return self.rule.dim

    @property
    def count(self) -> int:
        """Slots of all members."""
        return self.slots * len(self.members)

    @property
    def patch_size(self) -> int:
        """Numbers that a member reads of a height field: a corner, and heights."""
        rows, columns = self.window
        return 2 + (rows + 1) * (columns + 1) if rows else 0

    @property
    def walks(self) -> bool:
        """Whether its contacts come from a walk through the triangles of a mesh."""
        return self.kinds is not None and self.kinds[1] == MESH and self.kinds[0] != PLANE

    @property
    def columns(self) -> int:
        return sum(s.size for s in self.segments)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(s.size for s in self.segments)

    def table(self, name: str, numbers: Any) -> Table:
        return Table(f"{name} {self.number}", tuple(numbers))

    @cached_property
    def starts(self) -> tuple[Table, ...]:
        """The first velocity of each segment, slot by slot."""
        return tuple(
            self.table(f"start {k}", (m.starts[k] for m in self.members for _ in range(self.slots)))
            for k in range(len(self.segments))
        )


@dataclass(frozen=True)
class World:
    """What all worlds of a batch have in common."""

    physics: Physics
    geoms: tuple[Geom, ...]
    pairs: tuple[Pair, ...]
    varied: Varied
    rounds: int
    tolerance: float
    most: int | None = None  # contacts of a world

    @property
    def supports(self) -> Supports:
        return supports_of(self.physics.model)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Of pairs first, then of limits."""
        kept: dict[Any, list[Member]] = {}
        for key, member in (*map(self._of_pair, self.pairs), *self._of_limits()):
            kept.setdefault(key, []).append(member)
        found: list[Group] = []
        first = row = entry = pair = patch = 0
        for number, (key, members) in enumerate(kept.items()):
            g = replace(
                key,
                members=tuple(members),
                number=number,
                first=first,
                row=row,
                entry=entry,
                pair=pair,
                patch=patch,
            )
            found.append(g)
            first += g.count
            row += g.count * g.dim
            entry += g.count * g.dim * g.columns
            pair += len(members) if g.kinds else 0
            patch += len(members) * g.patch_size
        return tuple(found)

    @property
    def on_fields(self) -> tuple[Group, ...]:
        """Those of height fields."""
        return tuple(g for g in self.groups if g.patch_size)

    @property
    def overflows(self) -> bool:
        """Whether there may be more contacts than slots."""
        scarce = any(2 * g.window[0] * g.window[1] > g.slots for g in self.on_fields)
        return self.most is not None or scarce

    @property
    def owners(self) -> tuple[Pair | Tendon | BallLimit | Coupling, ...]:
        """What each slot is of."""
        return tuple(m.source for g in self.groups for m in g.members for _ in range(g.slots))

    def _of_pair(self, pair: Pair) -> tuple[Group, Member]:
        model, geoms = self.physics.model, self.geoms
        one, two = geoms[pair.first], geoms[pair.second]
        columns = columns_of(model, one.body, two.body)
        mine = set(chain(model, two.body))
        signs = tuple(1.0 if c in mine else -1.0 for c in columns)
        kind = NORMAL if pair.dim == 1 else ELLIPSE if self.physics.elliptic else PYRAMID
        drag = pair.drag if kind == ELLIPSE else pair.soft.B
        rule = Rule(kind, pair.dim, pair.soft, drag, self.physics.impratio)
        kinds = one.kind, two.kind
        fixed = tuple(replace(g, name="") if g.body == WORLD else None for g in (one, two))
        return self._member(
            rule,
            columns,
            signs,
            pair,
            pair.slots,
            kinds,
            fixed,
            (one.mesh, two.mesh),
            pair.weights,
            pair.friction[: pair.dim - 1],
            pair.window,
        )

    def _of_limits(self) -> Iterator[tuple[Group, Member]]:
        for t in self.physics.tendons:
            if t.limited:
                columns = tuple(sorted(v for _, v, _ in t.parts))
                yield self._of_limit(t, columns, 2)
        for b in self.physics.ball_limits:
            yield self._of_limit(b, (b.v, b.v + 1, b.v + 2), 1)
        for c in self.physics.couplings:
            columns = tuple(sorted({c.v, *([c.other[1]] if c.other else [])}))
            yield self._of_limit(c, columns, 1, EQUAL)

    def _of_limit(
        self,
        limit: Tendon | BallLimit | Coupling,
        columns: tuple[int, ...],
        slots: int,
        kind: str = NORMAL,
    ) -> tuple[Group, Member]:
        rule = Rule(kind, 1, limit.soft, limit.soft.B, 1.0)
        signs = (1.0,) * len(columns)
        weights = (limit.soft.weight, 0.0)
        return self._member(
            rule, columns, signs, limit, slots, None, (None, None), (None, None), weights, ()
        )

    def _member(
        self,
        rule: Rule,
        columns: Any,
        signs: Any,
        source: Any,
        slots: int,
        kinds: Any,
        fixed: Any,
        meshes: Any,
        weights: Any,
        friction: Any,
        window: tuple[int, int] = (0, 0),
    ) -> tuple[Group, Member]:
        breaks = [0]
        for k, (a, b) in enumerate(pairwise(columns), start=1):
            if b != a + 1 or signs[k] != signs[k - 1]:
                breaks.append(k)
        ends = tuple(pairwise([*breaks, len(columns)]))
        segments = tuple(Segment(signs[a], b - a) for a, b in ends)
        last = max(columns)
        crosses = not set(columns) <= {last, *self.supports[last]}
        rule = replace(rule, soft=rule.soft.times(1.0))
        group = Group(rule, segments, crosses, slots, kinds, fixed, meshes, window, ())
        starts = tuple(columns[a] for a, _ in ends)
        return group, Member(source, starts, weights, friction, source.margin)
