"""The slots of a step's kernel: which contacts there are, their Jacobians, and where y begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rigidgrad.kernels.language import Array, Index, Kernel, View
from rigidgrad.program.program import Program, Shape
from rigidgrad.rotations import logarithm
from rigidgrad.scalars import Scalar, add, less, mul, neg, select, sub, total
from rigidgrad.spatial import Vector3, dot3, rotate_back, scale3, sub3
from rigidgrad.worlds import hulls, slots
from rigidgrad.worlds.fielding import NUMBERS, Search, capped, room_of
from rigidgrad.worlds.grids import Grid
from rigidgrad.worlds.groups import Group, World
from rigidgrad.worlds.narrow import (
    CAPSULE,
    FAR,
    PLANE,
    SPHERE,
    Contact,
    Shape as Placed,
    frame,
    length,
    unit,
)
from rigidgrad.worlds.pairs import Geom
from rigidgrad.worlds.physics import Coupling, Tendon
from rigidgrad.worlds.recording import everything, recorded
from rigidgrad.worlds.slots import EQUAL, SINGLE
from rigidgrad.worlds.smooth import Smooth, geom_numbers
from rigidgrad.worlds.touching import FUNCTIONS
from rigidgrad.worlds.walking import Walk


class Finding:
    """Arrays and statements of a kernel that find contacts; `Step` goes on from there."""

    def __init__(self, world: World):
        self.world, self.physics = world, world.physics
        self.groups = world.groups
        self.smooth = Smooth(world.physics, world.geoms, world.varied)
        self.k = Kernel()
        self.one: dict[str, View] = {}
        self.at: dict[str, Array] = {}
        self.inputs: dict[str, Array] = {}
        self.patches: Array  # where there are height fields

    # --- arrays -----------------------------------------------------------------------------------

    def _scratch(self, name: str, size: int) -> Array:
        return self.k.scratch(name, max(size, 1))

    def _numbers(self, *names: str) -> None:
        for name in names:
            self.one[name] = self.k.scratch(name, 1).at(0, 1)

    @contextmanager
    def _busy(self, g: Group) -> Iterator[Index]:
        """Each slot of a group, by its number in it, where a world needs it."""
        with self.k.each(g.count) as i, self.k.along(1, unless=self.idle.at(i + g.first, 1)):
            yield i

    @contextmanager
    def _in_turn(self, g: Group) -> Iterator[Index]:
        """The same, one after the other, by the number of the slot."""
        with self.k.along(g.count) as i, self.k.along(1, unless=self.idle.at(i + g.first, 1)):
            yield i + g.first

    def _segments(self, g: Group, i: Index, array: Array, name: str) -> dict[str, View]:
        return {f"{name}{k}": array.at(g.starts[k][i], s.size) for k, s in enumerate(g.segments)}

    def _jac(self, g: Group, i: Index) -> View:
        size = g.dim * g.columns
        return self.J.matrix(g.dim, g.columns, i * size + g.entry)

    def _rows_of(self, g: Group, i: Index, array: Array) -> View:
        return array.at(i * g.dim + g.row, g.dim)

    # --- slots ------------------------------------------------------------------------------------

    def _lay_out_slots(self) -> None:
        k, groups = self.k, self.groups
        count = sum(g.count for g in groups)
        rows = sum(g.count * g.dim for g in groups)
        self.idle = self._scratch("idle", count)
        self.distance, self.D = self._scratch("distance", count), self._scratch("D", count)
        self.place, self.frame = (
            self._scratch("place", 3 * count),
            self._scratch("frame", 9 * count),
        )
        self.J = self._scratch("J", sum(g.count * g.dim * g.columns for g in groups))
        self.aref, self.y, self.j = (self._scratch(x, rows) for x in ("aref", "y", "j"))
        each = [(g, m) for g in groups for m in g.members for _ in range(g.slots)]
        self.margin = k.constant("margin", [m.margin for _, m in each] or [0.0])
        self.weight = k.constant("weight", [m.weights[0] for _, m in each] or [0.0])
        cone = [x for g, m in each for x in slots.cone_numbers(m.friction, g.rule.impratio)]
        self.plain_cone = k.constant("plain cone", cone or [0.0])
        self.varied_cone = "friction" in self.world.varied.names
        self.cone = self._scratch("cone", rows) if self.varied_cone else self.plain_cone
        self.f, self.W = self._scratch("f", 6), self._scratch("W", 36)
        self.WJ = self._scratch("WJ", max((g.dim * g.columns for g in groups), default=1))
        begin = recorded(
            {},
            {"idle": (max(count, 1),), "tame": (), "over": ()},
            lambda v: ((1.0,) * max(count, 1), 1.0, 0.0),
        )
        numbers = {x: self.one[x] for x in ("tame", "over")}
        k.call(begin, {}, {"idle": everything(self.idle), **numbers})

    def _find_contacts(self) -> None:
        """Of all pairs whose balls are near each other, distances and frames."""
        k, geoms = self.k, self.at["geoms"]
        self.fixed_frames: dict[int, Any] = {}
        pairs = [m.source for g in self.groups if g.kinds for m in g.members]
        if pairs:
            near = self._scratch("apart", len(pairs))
            k.call(self._broad(pairs), {"geoms": everything(geoms)}, {"apart": everything(near)})
        for g in self.groups:
            if not g.kinds:
                self._find_limits(g)
                continue
            program, self.fixed_frames[g.number] = self._narrow(g)
            sizes = k.constant(
                f"sizes {g.number}",
                [
                    x
                    for m in g.members
                    for part in (m.pair.first, m.pair.second)
                    for x in self.world.geoms[part].size
                ],
            )
            margins = k.constant(f"margins {g.number}", [m.margin for m in g.members])
            search = self._search_of(g) if g.patch_size else None
            walk = self._walk_of(g) if g.walks else None
            with k.each(len(g.members)) as i, k.along(1, unless=near.at(i + g.pair, 1)):
                inputs = {"sizes": sizes.at(6 * i, 6), "margin": margins.at(i, 1)}
                for name, part in (("a", "first"), ("b", "second")):
                    numbers = [getattr(m.pair, part) for m in g.members]
                    if numbers[0] in self.smooth.places:
                        table = g.table(f"shape {name}", (self.smooth.places[x] for x in numbers))
                        size = geom_numbers(self.world.geoms[numbers[0]])
                        inputs[name] = geoms.at(table[i], size)
                if search is not None:
                    far = near.at(i + g.pair, 1)
                    self._on_field(g, i, search, inputs, far, program)
                    continue
                if walk is not None:
                    walk.of_member(i, inputs)
                    inputs["feature"] = walk.feature(i)
                own = {
                    "distance": self.distance.at(i * g.slots + g.first, g.slots),
                    "idle": self.idle.at(i * g.slots + g.first, g.slots),
                    "place": self.place.at(i * (3 * g.slots) + 3 * g.first, 3 * g.slots),
                    "frame": self.frame.at(i * (9 * g.slots) + 9 * g.first, 9 * g.slots),
                }
                given = {x: inputs[x] for x in program.inputs}
                k.call(program, given, {x: own[x] for x in program.outputs})
                if g.crosses:
                    tame = self.one["tame"]
                    k.call(least(g.slots), {"idle": own["idle"], "tame": tame}, {"tame": tame})
        if self.world.most is not None:
            self._leave_out(self.world.most)

    def _search_of(self, g: Group) -> Search:
        shape = self._geoms(g)[1]
        inputs: dict[str, Shape] = {
            "sizes": (6,),
            "margin": (),
            "b": (geom_numbers(shape),),
        }
        return Search(
            self.k,
            g,
            self._geoms(g)[0],
            inputs,
            lambda v: self._shape(shape, v["sizes"][3:], v["b"]),
            lambda v: self._touch(g, v),
        )

    def _walk_of(self, g: Group) -> Walk:
        one, two = self._geoms(g)
        inputs: dict[str, Shape] = {"sizes": (6,)}
        for name, geom, fixed in zip("ab", (one, two), g.fixed, strict=True):
            if fixed is None:
                inputs[name] = (geom_numbers(geom),)

        def place(v: Mapping[str, Any]) -> tuple[Placed, Placed]:
            size = v["sizes"][:3]
            return self._shape(one, size, v.get("a")), self._shape(two, (), v.get("b"))

        return Walk(self.k, g, inputs, place, one.kind == CAPSULE)

    def _on_field(
        self, g: Group, i: Index, search: Search, inputs: dict[str, View], far: View, show: Program
    ) -> None:
        """The contacts of a shape on a height field: its deepest prisms, then a contact of each."""
        k = self.k
        idle = self.idle.at(i * g.slots + g.first, g.slots)
        search.of_member(i, self.patches, inputs, far, idle, self.one["over"])
        with k.each(g.slots) as j:
            s = i * g.slots + j + g.first
            with k.along(1, unless=self.idle.at(s, 1)):
                views = {"prism": search.prism(i * g.slots + j), **inputs}
                own = {
                    "distance": self.distance.at(s, 1),
                    "place": self.place.at(3 * s, 3),
                    "frame": self.frame.at(9 * s, 9),
                }
                k.call(show, {x: views[x] for x in show.inputs}, own)

    def _leave_out(self, most: int) -> None:
        """What is less deep than the `most` deepest contacts of a world, over all pairs."""
        k, kept = self.k, everything(self._scratch("kept", most))
        k.call(recorded({}, {"x": (most,)}, lambda v: ((FAR,) * most,)), {}, {"x": kept})
        insert, leave = capped(most)
        room, over = self.one["room"], self.one["over"]
        for program in (insert, leave):
            for g in self.groups:
                if not g.kinds:
                    continue
                with self._in_turn(g) as s:
                    views = {
                        "distance": self.distance.at(s, 1),
                        "margin": self.margin.at(s, 1),
                        "idle": self.idle.at(s, 1),
                        "kept": kept,
                        "room": room,
                        "over": over,
                    }
                    k.call(
                        program,
                        {x: views[x] for x in program.inputs},
                        {x: views[x] for x in program.outputs},
                    )
            if program is insert:
                k.call(room_of(most), {"kept": kept}, {"room": room})

    def _shape(self, geom: Geom, size: Any, numbers: Any) -> Placed:
        """A shape of recorded numbers, or of plain ones where it does not move."""
        if numbers is None:
            R = tuple(tuple(float(x) for x in row) for row in geom.pose.R)
            return Placed(size, tuple(float(x) for x in geom.pose.p), R)
        p = tuple(numbers[:3])
        if geom.kind == SPHERE:
            R = ((0.0,) * 3,) * 3
        elif len(numbers) == 6:
            R = tuple((0.0, 0.0, x) for x in numbers[3:6])
        else:
            R = tuple(tuple(numbers[3 + 3 * i : 6 + 3 * i]) for i in range(3))
        return Placed(size, p, R)

    def _broad(self, pairs: Sequence[Any]) -> Program:
        """For each pair whether it is certain not to touch."""
        places, geoms = self.smooth.places, self.world.geoms

        def part(g: int, numbers: Any) -> Any:
            if g not in places:
                return None
            return tuple(numbers[places[g] : places[g] + geom_numbers(geoms[g])])

        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            found = []
            for pair in pairs:
                one, two = (
                    self._shape(geoms[g], (), part(g, v["geoms"]))
                    for g in (pair.first, pair.second)
                )
                grid = geoms[pair.first].grid
                if grid is not None:
                    room = geoms[pair.second].reach + max(pair.margin, 0.0)
                    found.append(_off_field(grid, one, two.p, room))
                    continue
                way = sub3(two.p, one.p)
                room = geoms[pair.second].reach + max(pair.margin, 0.0)
                if geoms[pair.first].kind == PLANE:
                    found.append(select(less(dot3(way, one.axis), room), 0.0, 1.0))
                else:
                    room += geoms[pair.first].reach
                    found.append(select(less(dot3(way, way), room * room), 0.0, 1.0))
            return (tuple(found),)

        shape: dict[str, Shape] = {"geoms": (self.smooth.geom_count,)}
        return recorded(shape, {"apart": (len(pairs),)}, evaluate)

    def _geoms(self, g: Group) -> list[Geom]:
        """The shapes of a group's first pair."""
        pair = g.members[0].pair
        return [self.world.geoms[x] for x in (pair.first, pair.second)]

    def _touch(self, g: Group, v: Mapping[str, Any]) -> list[Contact]:
        """The contacts of a pair."""
        assert g.kinds is not None
        geoms = self._geoms(g)
        sizes = [
            geom.mesh or (v["sizes"][3 * k : 3 * k + 3] if name in v else geom.size)
            for k, (name, geom) in enumerate(zip("ab", geoms, strict=True))
        ]
        if g.patch_size:
            sizes[0] = v["prism"]
        if g.walks:
            sizes[1] = v["feature"]
        one, two = (
            self._shape(geom, size, v.get(name))
            for name, geom, size in zip("ab", geoms, sizes, strict=True)
        )
        return FUNCTIONS[g.kinds][0](one, two, v["margin"])

    def _narrow(self, g: Group) -> tuple[Program, Any]:
        """The Program of a group's pairs, and its contact frame if that is always the same."""
        count, geoms = 1 if g.patch_size else g.slots, self._geoms(g)
        inputs: dict[str, Shape] = {"sizes": (6,), "margin": ()}
        if g.patch_size:
            inputs = {"prism": (NUMBERS,)} | inputs
        if g.walks:
            inputs = {"feature": (hulls.NUMBERS,)} | inputs
        for name, geom, fixed in zip("ab", geoms, g.fixed, strict=True):
            if fixed is None:
                inputs[name] = (geom_numbers(geom),)
        frames: list[Any] = []

        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            found = self._touch(g, v)
            frames[:] = [frame(c.normal, c.tangent) for c in found]
            return (
                tuple(c.distance for c in found),
                tuple(select(less(c.distance, v["margin"]), 0.0, 1.0) for c in found),
                tuple(c.place for c in found),
                tuple(frames),
            )

        shapes: dict[str, Shape] = {
            "distance": (count,),
            "idle": (count,),
            "place": (count, 3),
            "frame": (count, 3, 3),
        }
        if g.patch_size:
            del shapes["idle"]
            return recorded(
                inputs, shapes, lambda v: tuple(evaluate(v)[x] for x in (0, 2, 3))
            ), None
        program = recorded(inputs, shapes, evaluate)
        if all(isinstance(x, float) for rows in frames for row in rows for x in row):
            del shapes["frame"]
            return recorded(inputs, shapes, lambda v: evaluate(v)[:3]), frames[0]
        return program, None

    def _find_limits(self, g: Group) -> None:
        """Of tendons (lower, upper) and ball joints: distance and J."""
        s = g.first
        for m in g.members:
            program = self._limit(m.source, g)
            size = g.slots * g.columns
            at = g.entry + (s - g.first) * g.columns
            idle = self.idle.at(s, g.slots)
            self.k.call(
                program,
                {"q": everything(self.at["q"])},
                {"distance": self.distance.at(s, g.slots), "idle": idle, "J": self.J.at(at, size)},
            )
            if g.crosses:
                tame = self.one["tame"]
                self.k.call(least(g.slots), {"idle": idle, "tame": tame}, {"tame": tame})
            s += g.slots

    @staticmethod
    def _limit_at(source: Any, q: Any) -> list[tuple[Scalar, list[Scalar]]]:
        """(distance, row of J) of a tendon at its lower and its upper limit, of a ball joint, or of
        joints that are coupled.
        """
        if isinstance(source, Tendon):
            reach = total(mul(c, q[k]) for k, _, c in source.parts)
            order = [c for _, _, c in sorted(source.parts, key=lambda part: part[1])]
            return [
                (reach - source.lower, list(order)),
                (source.upper - reach, [-c for c in order]),
            ]
        if isinstance(source, Coupling):
            return [_off_polynomial(source, q)]
        turn = logarithm(tuple(q[source.q : source.q + 4]))
        axis = unit(turn, (0.0, 0.0, 0.0))
        return [(sub(source.most, length(turn)), list(scale3(-1.0, axis)))]

    def _limit(self, source: Any, g: Group) -> Program:
        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            found = self._limit_at(source, v["q"])
            always = g.rule.kind == EQUAL
            idle = tuple(
                0.0 if always else select(less(d, source.margin), 0.0, 1.0) for d, _ in found
            )
            return tuple(d for d, _ in found), idle, tuple(tuple(J) for _, J in found)

        shapes: dict[str, Shape] = {"distance": (g.slots,), "idle": (g.slots,)}
        shapes["J"] = (g.slots, g.columns)
        return recorded({"q": (self.physics.nq,)}, shapes, evaluate)

    def _set_up_slots(self) -> None:
        """J, D, aref, and y at the warm start."""
        for g in self.groups:
            with self._busy(g) as i:
                if g.kinds:
                    self._jacobian(g, i)
                s = i + g.first
                y, aref = self._rows_of(g, i, self.y), self._rows_of(g, i, self.aref)
                self._project(g, i, self.at["v"], y)
                inputs = {
                    "distance": self.distance.at(s, 1),
                    "margin": self.margin.at(s, 1),
                    "weight": self.weight.at(s, 1),
                    "velocity": y,
                    "plain": self._rows_of(g, i, self.plain_cone),
                }
                outputs = {"D": self.D.at(s, 1), "aref": aref}
                if self.varied_cone:
                    inputs["friction"] = everything(self.inputs["friction"])
                    outputs["cone"] = self._rows_of(g, i, self.cone)
                self.k.call(slots.setup(g.rule, self.varied_cone), inputs, outputs)
                self._project(g, i, self.at["z"], y)
                self.k.call(slots.minus(g.dim), {"a": y, "b": aref}, {"y": y})

    def _jacobian(self, g: Group, i: Index) -> None:
        fixed, s, column = self.fixed_frames[g.number], i + g.first, 0
        for k, segment in enumerate(g.segments):
            inputs = {"frame": self.frame.at(9 * s, 9)} if fixed is None else {}
            inputs |= {
                "place": self.place.at(3 * s, 3),
                "origin": everything(self.at["origin"]),
                "twists": self.at["twists"].at(6 * g.starts[k][i], 6 * segment.size),
            }
            program = slots.jacobian(g.dim, segment.sign, segment.size, fixed)
            columns = range(column, column + segment.size)
            self.k.call(program, inputs, {"J": self._jac(g, i).part(range(g.dim), columns)})
            column += segment.size

    def _project(self, g: Group, i: Index, x: Array, y: View) -> None:
        views = {"J": self._jac(g, i)} | self._segments(g, i, x, "x")
        self.k.call(slots.times(g.dim, g.sizes), views, {"y": y})

    def _at_slot(self, g: Group, i: Index) -> dict[str, View]:
        found = {"D": self.D.at(i + g.first, 1)}
        if g.rule.kind not in SINGLE:
            found["cone"] = self._rows_of(g, i, self.cone)
        return found


def _off_field(grid: Grid, field: Placed, p: Vector3, room: float) -> Scalar:
    """1 where a ball around p is above a height field, or beside it."""
    local = rotate_back(field.R, sub3(p, field.p))
    off = select(less(local[2], grid.top + room), 0.0, 1.0)
    for x, half in zip(local, grid.size, strict=False):
        off = select(less(abs(x), half + room), off, 1.0)
    return off


def _off_polynomial(c: Coupling, q: Any) -> tuple[Scalar, list[Scalar]]:
    """How far a joint is from where its coupling has it, and the row of J."""
    off = sub(q[c.q], c.rest + c.polynomial[0])
    if c.other is None:
        return off, [1.0]
    at, v, rest = c.other
    x = sub(q[at], rest)
    value: Scalar = 0.0
    rate: Scalar = 0.0
    for k, a in reversed(list(enumerate(c.polynomial[1:], start=1))):
        value, rate = mul(add(value, a), x), add(mul(rate, x), k * a)
    first, second = (1.0, neg(rate)) if c.v < v else (neg(rate), 1.0)
    return sub(off, value), [first, second]


def least(count: int) -> Program:
    """`tame` only where all are idle."""

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        found = v["tame"]
        for x in v["idle"]:
            found = select(less(x, found), x, found)
        return (found,)

    return recorded({"idle": (count,), "tame": ()}, {"tame": ()}, evaluate)
