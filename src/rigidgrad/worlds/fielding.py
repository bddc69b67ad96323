"""Statements of a kernel that find the prisms of height fields that shapes touch: of all cells
below a shape, the deepest contacts are kept, one in each slot, and the others counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rigidgrad.kernels.language import Array, Index, Kernel, View
from rigidgrad.program.program import Program, Shape
from rigidgrad.scalars import Scalar, add, less, mul, select, sub
from rigidgrad.spatial import Vector3, multiply3, rotate_back, sub3, transpose
from rigidgrad.worlds.groups import Group
from rigidgrad.worlds.narrow import BOX, FAR, SPHERE, Contact, Shape as Placed
from rigidgrad.worlds.pairs import Geom
from rigidgrad.worlds.recording import everything, recorded

NUMBERS = 9  # of a prism
_NOWHERE = (0.0, 0.0, -FAR, 1.0, 1.0, -FAR, 0.0, 1.0, -FAR)

Touch = Callable[[Mapping[str, Any]], list[Contact]]


class Search:
    """The prisms of one group: `shapes` are the inputs of a shape and their sizes, `place` makes
    the shape of them, `touch` its contact with a prism.
    """

    def __init__(
        self, k: Kernel, g: Group, field: Geom, shapes: dict[str, Shape], place: Any, touch: Touch
    ):
        assert field.grid is not None
        self.k, self.g, self.field, self.grid = k, g, field, field.grid
        self.shapes, self.place, self.touch = shapes, place, touch
        self.prisms = k.scratch(f"prisms {g.number}", len(g.members) * g.slots * NUMBERS)
        self.depths = k.scratch(f"depths {g.number}", g.slots)
        self.cell = k.scratch(f"cell {g.number}", 2 * NUMBERS)
        self.flags = k.scratch(f"flags {g.number}", 2)  # whether to skip a cell; contacts found
        along, across = self.grid.cell
        self.xs = k.constant(f"xs {g.number}", [along * c for c in range(g.window[1])])
        self.ys = k.constant(f"ys {g.number}", [across * r for r in range(g.window[0])])
        self._begin, self._corners, self._keep = self._start(), self._cells(), self._insert()
        self._there, self._left = self._status(), _over(g.slots)

    def prism(self, slot: Index | int) -> View:
        return self.prisms.at(slot * NUMBERS, NUMBERS)

    def of_member(
        self, i: Index, patches: Array, views: dict[str, View], far: View, idle: View, over: View
    ) -> None:
        """Prisms of a pair, and which of its slots are `idle`; `over` grows by what has none."""
        k, g = self.k, self.g
        skip, count = self.flags.at(0, 1), self.flags.at(1, 1)
        depths, kept = everything(self.depths), self.prisms.at(i * (g.slots * NUMBERS), g.slots * 9)
        patch = i * g.patch_size + g.patch
        margin = views["margin"]
        k.call(self._begin, {}, {"depths": depths, "prisms": kept, "count": count})
        rows, columns = g.window
        with k.along(rows) as r, k.along(columns) as c:
            low = patch + 2 + r * (columns + 1) + c
            k.call(
                self._corners,
                {
                    "corner": patches.at(patch, 2),
                    "x": self.xs.at(c, 1),
                    "y": self.ys.at(r, 1),
                    "low": patches.at(low, 2),
                    "high": patches.at(low + (columns + 1), 2),
                    "far": far,
                    **views,
                },
                {"skip": skip, "cell": everything(self.cell)},
            )
            with k.along(1, unless=skip), k.along(2) as t:
                state = {"depths": depths, "prisms": kept, "count": count}
                prism = self.cell.at(t * NUMBERS, NUMBERS)
                k.call(self._keep, {"skip": skip, "prism": prism, **state, **views}, state)
        k.call(self._there, {"depths": depths, "margin": margin}, {"idle": idle})
        k.call(self._left, {"count": count, "over": over}, {"over": over})

    # --- Programs ---------------------------------------------------------------------------------

    def _start(self) -> Program:
        s = self.g.slots
        shapes: dict[str, Shape] = {"depths": (s,), "prisms": (s, NUMBERS), "count": ()}
        return recorded({}, shapes, lambda v: ((FAR,) * s, (_NOWHERE,) * s, 0.0))

    def _cells(self) -> Program:
        """The two prisms of a cell, and whether the shape is certain not to touch them."""
        dx, dy = self.grid.cell
        inputs: dict[str, Shape] = {"corner": (2,), "x": (), "y": (), "low": (2,), "high": (2,)}

        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            x0, y0 = add(v["corner"][0], v["x"]), add(v["corner"][1], v["y"])
            x1, y1 = x0 + dx, y0 + dy
            (a, b), (c, d) = v["low"], v["high"]
            cell = (x0, y0, a, x1, y1, d, x0, y1, c, x0, y0, a, x1, y0, b, x1, y1, d)
            top = a
            for z in (b, c, d):
                top = select(less(top, z), z, top)
            p, reach = self._bounds(self.place(v))
            reach = tuple(add(r, v["margin"]) for r in reach)
            skip = v["far"]
            for low, high in (
                (sub(p[0], reach[0]), x1),
                (x0, add(p[0], reach[0])),
                (sub(p[1], reach[1]), y1),
                (y0, add(p[1], reach[1])),
                (sub(p[2], reach[2]), top),
            ):
                skip = select(less(high, low), 1.0, skip)
            return skip, cell

        outputs: dict[str, Shape] = {"skip": (), "cell": (2 * NUMBERS,)}
        return recorded(inputs | {"far": ()} | self.shapes, outputs, evaluate)

    def _bounds(self, shape: Placed) -> tuple[Vector3, Vector3]:
        """The centre and how far the shape reaches, along the field's axes."""
        kind = self.g.kinds[1] if self.g.kinds else SPHERE
        pose = self.field.pose
        R = tuple(tuple(float(x) for x in row) for row in pose.R)
        p = rotate_back(R, sub3(shape.p, tuple(float(x) for x in pose.p)))
        turn = multiply3(transpose(R), shape.R)
        if kind == BOX:
            reach = [
                add(
                    add(*(mul(shape.size[k], abs(row[k])) for k in (0, 1))),
                    mul(shape.size[2], abs(row[2])),
                )
                for row in turn
            ]
        elif kind == SPHERE:
            reach = [shape.size[0]] * 3
        else:
            reach = [add(shape.size[0], mul(shape.size[1], abs(row[2]))) for row in turn]
        return p, tuple(reach)

    def _insert(self) -> Program:
        """The deepest prisms so far, and this one, where it touches."""
        s = self.g.slots
        state: dict[str, Shape] = {"depths": (s,), "prisms": (s, NUMBERS), "count": ()}

        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            depth: Scalar = self.touch(v)[0].distance
            touches = select(less(0.5, v["skip"]), 0.0, select(less(depth, v["margin"]), 1.0, 0.0))
            depth = select(less(0.5, touches), depth, FAR)
            prism = v["prism"]
            depths, prisms = [], []
            for old, kept in zip(v["depths"], v["prisms"], strict=True):
                deeper = less(depth, old)
                depths.append(select(deeper, depth, old))
                prisms.append(tuple(select(deeper, x, y) for x, y in zip(prism, kept, strict=True)))
                depth = select(deeper, old, depth)
                prism = tuple(select(deeper, y, x) for x, y in zip(prism, kept, strict=True))
            return tuple(depths), tuple(prisms), add(v["count"], touches)

        return recorded({"skip": (), "prism": (NUMBERS,)} | state | self.shapes, state, evaluate)

    def _status(self) -> Program:
        s = self.g.slots
        return recorded(
            {"depths": (s,), "margin": ()},
            {"idle": (s,)},
            lambda v: (tuple(select(less(d, v["margin"]), 0.0, 1.0) for d in v["depths"]),),
        )


def _over(slots: int) -> Program:
    """Contacts that have no slot."""

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        more = v["count"] - float(slots)
        return (v["over"] + select(less(0.0, more), more, 0.0),)

    return recorded({"count": (), "over": ()}, {"over": ()}, evaluate)


def capped(most: int) -> tuple[Program, Program]:
    """Of all contacts of a world, taken in turn, the `most` that are deepest: first, `kept` are how
    deep these are; then what is less deep is left out, and counted in `over`. Of equally deep ones
    the first are kept; `room` is for how many.
    """

    def insert(v: dict[str, Any]) -> tuple[Any, ...]:
        depth = select(less(0.5, v["idle"]), FAR, v["distance"] - v["margin"])
        kept = []
        for old in v["kept"]:
            deeper = less(depth, old)
            kept.append(select(deeper, depth, old))
            depth = select(deeper, old, depth)
        return (tuple(kept),)

    def leave(v: dict[str, Any]) -> tuple[Any, ...]:
        depth, last = v["distance"] - v["margin"], v["kept"][most - 1]
        used = select(less(0.5, v["idle"]), 0.0, 1.0)
        above = select(
            less(depth, last), 0.0, used
        )  # not among those that are deeper than the last
        equal = select(less(last, depth), 0.0, above)
        fits = select(less(0.5, v["room"]), equal, 0.0)
        out = above - fits
        off = less(0.5, out)
        return (
            select(off, FAR, v["distance"]),
            select(off, 1.0, v["idle"]),
            v["room"] - fits,
            v["over"] + out,
        )

    given: dict[str, Shape] = {"distance": (), "margin": (), "idle": (), "kept": (most,)}
    first = recorded(given, {"kept": (most,)}, insert)
    numbers: dict[str, Shape] = {"distance": (), "idle": (), "room": (), "over": ()}
    return first, recorded(given | {"room": (), "over": ()}, numbers, leave)


def room_of(most: int) -> Program:
    """How many of `kept` are as deep as the last."""

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        found: Scalar = 0.0
        for x in v["kept"]:
            found = add(found, select(less(x, v["kept"][most - 1]), 0.0, 1.0))
        return (found,)

    return recorded({"kept": (most,)}, {"room": ()}, evaluate)
