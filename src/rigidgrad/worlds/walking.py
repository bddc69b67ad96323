"""Statements of a kernel that go through the triangles of a mesh, for a feature of `hulls`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rigidgrad.kernels.language import Index, Kernel, View
from rigidgrad.program.program import Program, Shape
from rigidgrad.scalars import Scalar, add, less, select
from rigidgrad.spatial import dot3, scale3, sub3
from rigidgrad.worlds.groups import Group
from rigidgrad.worlds.hulls import (
    FACE,
    FLAT,
    INSIDE,
    NUMBERS,
    OUT,
    PLANES,
    TILT,
    core_of,
    offer,
    seen,
    triangle_of,
)
from rigidgrad.worlds.impedance import TINY
from rigidgrad.worlds.narrow import FAR, Shape as Placed, length, unit
from rigidgrad.worlds.nearest import Nearest
from rigidgrad.worlds.recording import everything, recorded

_ON_FACE = 1e-6  # metres between a place on a face and its plane
_SAME_PLANE = 1e-9  # one minus the cosine between triangles of one face
# numbers of the state: the least square, the way out, from where to where the core is in the mesh,
# from where to where it is on the face, its tilt against that, the nearest place and the normal
_TILT, _PLACE, _STATE = 6, 7, 13
_KEPT: Mapping[str, Shape] = {"state": (_STATE,), "feature": (NUMBERS,)}
_CORNER = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0)  # a triangle before any was found

Placing = Callable[[Mapping[str, Any]], tuple[Placed, Placed]]


class Walk:
    """Through the triangles of the mesh that all pairs of a group have."""

    def __init__(self, k: Kernel, g: Group, shapes: dict[str, Shape], place: Placing, rod: bool):
        mesh = g.meshes[1]
        assert mesh is not None
        self.k, self.g, self.shapes, self.place, self.rod = k, g, shapes, place, rod
        self.features = k.scratch(f"features {g.number}", len(g.members) * NUMBERS)
        corners = [x for t in mesh.triangles for i in t for x in mesh.corners[i]]
        self.count = len(mesh.triangles)
        self.triangles = k.constant(f"triangles {g.number}", corners)
        self.core = k.scratch(f"core {g.number}", 7)
        self.state = k.scratch(f"state {g.number}", _STATE)
        self._begin = self._core()
        self._rounds: list[tuple[Program, Program | None]] = [(self._look(), self._judge())]
        if rod:
            self._rounds += [(self._choose(), None), (self._clip(), None)]

    def feature(self, member: Index | int) -> View:
        return self.features.at(member * NUMBERS, NUMBERS)

    def of_member(self, i: Index, views: dict[str, View]) -> None:
        k, core = self.k, everything(self.core)
        kept = {"state": everything(self.state), "feature": self.feature(i)}
        given = {x: views[x] for x in self._begin.inputs}
        k.call(self._begin, given, {"core": core, **kept})
        for each, after in self._rounds:
            with k.along(self.count) as t:
                triangle = self.triangles.at(t * 9, 9)
                k.call(each, {"triangle": triangle, "core": core, **kept}, kept)
            if after is not None:
                k.call(after, {"core": core, **kept}, kept)

    # --- Programs ---------------------------------------------------------------------------------

    def _core(self) -> Program:
        """c, h and the radius; nothing is found yet."""
        state = (FAR * FAR, FAR, -1.0, 1.0, -1.0, 1.0, TILT, *(0.0,) * 6)
        feature = (*_CORNER * 3, *(0.0,) * (NUMBERS - 27))

        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            shape, hull = self.place(v)
            c, h = core_of(shape, hull, self.rod)
            return (*c, *h, shape.size[0]), state, feature

        return recorded(self.shapes, {"core": (7,)} | dict(_KEPT), evaluate)

    def _recorded(self, function: Any, walks: bool = True) -> Program:
        inputs: dict[str, Shape] = {"triangle": (9,)} if walks else {}
        return recorded(inputs | {"core": (7,)} | dict(_KEPT), _KEPT, function)

    def _look(self) -> Program:
        """The nearest triangle, the way out, and where the core is in the mesh."""

        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            c, h = tuple(v["core"][:3]), tuple(v["core"][3:6])
            square, out, begin, end, *rest = v["state"]
            triangle = corners, up = triangle_of(v["triangle"])
            near = Nearest(c)
            offer(near, triangle, c, h, self.rod)
            nearer = less(near.square, square)
            room, rate = dot3(up, sub3(corners[0], c)), dot3(up, h) if self.rod else 0.0
            depth = add(room, abs(rate))
            sooner = less(depth, out)
            if self.rod:
                begin, end = _cut(begin, end, rate, room)
            f = v["feature"]
            nearest = _either(nearer, v["triangle"], f[:OUT])
            way = _either(sooner, v["triangle"], f[OUT:FACE])
            square, out = select(nearer, near.square, square), select(sooner, depth, out)
            return (square, out, begin, end, *rest), (*nearest, *way, *f[FACE:])

        return self._recorded(evaluate)

    def _judge(self) -> Program:
        """Whether the core is in the mesh; the nearest place, and the normal there."""

        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            c, h = tuple(v["core"][:3]), tuple(v["core"][3:6])
            f, state = v["feature"], list(v["state"])
            inside = select(less(0.0, state[1]), 1.0, 0.0)
            if self.rod:
                inside = select(less(state[2], state[3]), inside, 0.0)
                triangle = _, up = triangle_of(f[:OUT])
                near = Nearest(c)
                offer(near, triangle, c, h, rod=True)
                state[_PLACE:] = [*near.at, *unit(near.gap, up)]
            return tuple(state), (*f[:INSIDE], inside, *f[FLAT:])

        return self._recorded(evaluate, walks=False)

    def _choose(self) -> Program:
        """Of the faces that the nearest place is on, the one that the rod is most along."""

        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            h, f, state = tuple(v["core"][3:6]), v["feature"], list(v["state"])
            corners, up = triangle_of(v["triangle"])
            at = tuple(state[_PLACE : _PLACE + 3])
            off = abs(dot3(up, sub3(at, corners[0])))
            tilt = abs(dot3(up, h)) / length(h)
            on = select(less(off, _ON_FACE), 1.0 - f[INSIDE], 0.0)
            better = less(0.5, select(less(tilt, state[_TILT]), on, 0.0))
            state[_TILT] = select(better, tilt, state[_TILT])
            face = _either(better, v["triangle"], f[FACE:PLANES])
            flat = select(better, 1.0, f[FLAT])
            return tuple(state), (*f[:FACE], *face, *f[PLANES:FLAT], flat)

        return self._recorded(evaluate)

    def _clip(self) -> Program:
        """The planes through which the line on a rod's surface leaves its face."""

        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            c, h, radius = tuple(v["core"][:3]), tuple(v["core"][3:6]), v["core"][6]
            state, f = list(v["state"]), v["feature"]
            begin, end = state[4:6]
            (corner, *_), up = triangle_of(f[FACE:PLANES])
            line = sub3(c, scale3(radius, tuple(state[_PLACE + 3 :])))
            corners, n = triangle_of(v["triangle"])
            plane = (*n, dot3(n, corners[0]))
            rate, room = seen(plane, up, corner, line, h)
            still = less(abs(rate), TINY)
            t = room / select(still, 1.0 + 0.0 * rate, rate)
            counts = select(still, 0.0, select(less(dot3(n, up), 1 - _SAME_PLANE), 1.0, 0.0))
            later = less(0.5, select(less(rate, 0.0), select(less(begin, t), counts, 0.0), 0.0))
            sooner = less(0.5, select(less(0.0, rate), select(less(t, end), counts, 0.0), 0.0))
            first = _either(later, plane, f[PLANES : PLANES + 4])
            last = _either(sooner, plane, f[PLANES + 4 : INSIDE])
            state[4:6] = [select(later, t, begin), select(sooner, t, end)]
            return tuple(state), (*f[:PLANES], *first, *last, *f[INSIDE:])

        return self._recorded(evaluate)


def _either(condition: Any, a: Sequence[Scalar], b: Sequence[Scalar]) -> list[Scalar]:
    return [select(condition, x, y) for x, y in zip(a, b, strict=True)]


def _cut(begin: Scalar, end: Scalar, rate: Scalar, room: Scalar) -> tuple[Scalar, Scalar]:
    """Of t in [begin, end] what keeps t rate ≤ room."""
    still = less(abs(rate), TINY)
    t = room / select(still, 1.0 + 0.0 * rate, rate)
    down = select(still, 0.0, select(less(rate, 0.0), 1.0, 0.0))
    up = select(still, 0.0, select(less(0.0, rate), 1.0, 0.0))
    beyond = select(less(room, 0.0), select(still, 1.0, 0.0), 0.0)
    begin = select(less(0.5, down), select(less(begin, t), t, begin), begin)
    end = select(less(0.5, up), select(less(t, end), t, end), end)
    return begin, select(less(0.5, beyond), -2.0, end)
