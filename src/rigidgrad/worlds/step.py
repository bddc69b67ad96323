"""A step of a world as a kernel: smooth motion, contacts, Newton's method, integration.

What a slot does is skipped where none of the worlds that run together needs it. A world's own
numbers do not depend on that: a slot that is idle adds zeros.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from rigidgrad.algorithms import ltl
from rigidgrad.algorithms.sparsity import dense
from rigidgrad.kernels.language import Array, Index, Kernel, View
from rigidgrad.program.program import Program, Shape
from rigidgrad.scalars import Scalar, add, less, mul, select
from rigidgrad.spatial import rotate, rotate_back
from rigidgrad.worlds import newton, slots
from rigidgrad.worlds.finding import Finding
from rigidgrad.worlds.groups import Group, World
from rigidgrad.worlds.imu import imu
from rigidgrad.worlds.recording import everything, recorded
from rigidgrad.worlds.smooth import advance, drag_matrix, turn_of

_LINE_ROUNDS = 16


class Step(Finding):
    """Makes the kernel. `contacts`: whether places, frames and forces of slots are results, too;
    `moves`: whether the state is advanced; `touch`: shapes, of which the normal forces are results;
    `imu`: frames, of which accelerations and rates of turning are.
    """

    def __init__(
        self,
        world: World,
        *,
        contacts: bool = False,
        moves: bool = True,
        touch: tuple[str, ...] = (),
        imu: tuple[str, ...] = (),
    ):
        super().__init__(world)
        self.contacts, self.moves, self.touch, self.imu = contacts, moves, touch, imu

    # --- the kernel -------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        k, physics, n = self.k, self.physics, self.physics.nv
        warm = self._take_inputs()
        outputs: dict[str, Array] = {}
        if self.moves:
            outputs |= {
                "qpos": k.output("qpos after", physics.nq),
                "qvel": k.output("qvel after", n),
            }
        outputs["qacc"] = k.output("qacc", n)
        outputs["open"] = k.output("open", 1)
        if self.world.overflows:
            outputs["overflow"] = k.output("overflow", 1)
        self._prepare(warm)
        self._solve()
        self._end(outputs)
        return k

    def _take_inputs(self) -> Array:
        given = dict(self.smooth.inputs)
        given |= {"friction": ()} if "friction" in self.world.varied.names else {}
        self.inputs = {name: self.k.input(name, *shape) for name, shape in given.items()}
        warm = self.k.input("warm", self.physics.nv)
        if (size := sum(len(g.members) * g.patch_size for g in self.groups)) > 0:
            self.patches = self.k.input("patches", size)
        return warm

    def _prepare(self, warm: Array) -> None:
        """Smooth motion, contacts, and where Newton's method begins."""
        k, physics, n = self.k, self.physics, self.physics.nv
        self.at = {
            name: self._scratch(name, math.prod(s)) for name, s in self.smooth.outputs.items()
        }
        for name in ("z", "Mz", "p", "Mp", "g"):
            self.at[name] = self._scratch(name, n)
        self.H = k.scratch("H", n, n)
        rows = max(newton.row_count(physics), 1)
        self.row_D, self.row_aref = self._scratch("row D", rows), self._scratch("row aref", rows)
        self._numbers(
            "done",
            "last",
            "alpha",
            "falls",
            "linear",
            "square",
            "low",
            "high",
            "found",
            "first",
            "second",
            "tame",
            "over",
            "room",
        )
        k.call(
            self.smooth.program(),
            {x: everything(self.inputs[x]) for x in self.smooth.inputs},
            {x: everything(self.at[x]) for x in self.smooth.outputs},
        )
        k.call(
            newton.rows(physics),
            {"q": everything(self.at["q"]), "v": everything(self.at["v"])},
            {"D": everything(self.row_D), "aref": everything(self.row_aref)},
        )
        k.call(
            self._begin(),
            {"warm": everything(warm), "q": everything(self.at["q"])},
            {"z": everything(self.at["z"])},
        )
        self._times_mass("z", "Mz")
        self._lay_out_slots()
        self._find_contacts()
        self._set_up_slots()

    def _begin(self) -> Program:
        """z from MuJoCo's accelerations."""
        physics = self.physics

        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            z = [v["warm"][i] for i in physics.of_v]
            for f in physics.frees:
                R = turn_of(v["q"][f.q + 3 : f.q + 7])
                z[f.v : f.v + 3] = rotate_back(R, tuple(z[f.v : f.v + 3]))
            return (tuple(z),)

        return recorded({"warm": (physics.nv,), "q": (physics.nq,)}, {"z": (physics.nv,)}, evaluate)

    def _times_mass(self, x: str, y: str) -> None:
        if not hasattr(self, "_mass"):
            self._mass = newton.times_mass(self.world.supports)
        self.k.call(
            self._mass,
            {"M": everything(self.at["M"]), "x": everything(self.at[x])},
            {"y": everything(self.at[y])},
        )

    # --- Newton's method --------------------------------------------------------------------------

    def _solve(self) -> None:
        k, at, one = self.k, self.at, self.one
        rows = {"D": everything(self.row_D), "aref": everything(self.row_aref)}
        set_ = partial(_constant, k)
        set_(one["done"], 0.0)
        with k.along(self.world.rounds, unless=one["done"]):
            k.call(
                newton.start(self.physics),
                {x: everything(at[x]) for x in ("M", "Mz", "rhs", "z")} | rows,
                {"H": everything(self.H), "g": everything(at["g"])},
            )
            for group in self.groups:
                with self._busy(group) as i:
                    self._curve(group, i)
            self._direction()
            self._times_mass("p", "Mp")
            names = ("last", "alpha", "falls", "linear", "square", "low", "high")
            k.call(
                newton.judge(self.physics, self.world.tolerance),
                {x: everything(at[x]) for x in ("g", "p", "Mz", "Mp", "rhs")}
                | {"done": one["done"]},
                {x: one[x] for x in names},
            )
            k.call(_copy(), {"x": one["last"]}, {"y": one["found"]})
            for group in self.groups:
                with self._busy(group) as i:
                    self._project(group, i, at["p"], self._rows_of(group, i, self.j))
            with k.along(_LINE_ROUNDS, unless=one["found"]):
                self._search(rows)
            k.call(
                newton.update(self.physics),
                {x: everything(at[x]) for x in ("z", "p", "Mz", "Mp")}
                | {x: one[x] for x in ("alpha", "found", "low", "last")},
                {"z": everything(at["z"]), "Mz": everything(at["Mz"])}
                | {x: one[x] for x in ("done", "alpha")},
            )
            for group in self.groups:
                with self._busy(group) as i:
                    y, j = self._rows_of(group, i, self.y), self._rows_of(group, i, self.j)
                    views = {"y": y, "j": j, "alpha": one["alpha"]}
                    k.call(slots.moved(group.dim), views, {"y": y})

    def _direction(self) -> None:
        """p = -H⁻¹ g."""
        k, p = self.k, {"p": everything(self.at["p"])}
        views = {"H": everything(self.H), "g": everything(self.at["g"])}
        k.call(newton.direction(self.world.supports), views, p)
        if any(group.crosses for group in self.groups):
            # freedoms of several paths meet in a slot: H is not on the tree any more
            with k.along(1, unless=self.one["tame"]):
                k.call(newton.direction(dense(self.physics.nv)), views, p)

    def _curve(self, g: Group, i: Index) -> None:
        """H += Jᵀ W J, g -= Jᵀ f."""
        k, d, n = self.k, g.dim, self.physics.nv
        f, W = self.f.at(0, d), self.W.matrix(d, d)
        k.call(
            slots.state(g.rule.kind, d),
            {"y": self._rows_of(g, i, self.y)} | self._at_slot(g, i),
            {"f": f, "W": W},
        )
        J = self._jac(g, i)
        parts = self._segments(g, i, self.at["g"], "g")
        k.call(slots.gather(d, g.sizes), {"J": J, "f": f} | parts, parts)
        WJ = self.WJ.matrix(d, g.columns)
        k.product(WJ, W, J)
        over = 0
        for a, down in enumerate(g.segments):
            across = 0
            for b, beside in enumerate(g.segments[: a + 1]):
                place = g.starts[a][i] * n + g.starts[b][i]
                target = self.H.matrix(down.size, beside.size, place, n)
                left = J.part(range(d), range(over, over + down.size)).T
                right = WJ.part(range(d), range(across, across + beside.size))
                k.product(target, left, right, accumulate=True, symmetric=a == b)
                across += beside.size
            over += down.size

    def _search(self, rows: dict[str, View]) -> None:
        k, at, one = self.k, self.at, self.one
        k.call(
            newton.slope(self.physics),
            {x: one[x] for x in ("alpha", "linear", "square")}
            | {"p": everything(at["p"]), "z": everything(at["z"])}
            | rows,
            {"first": one["first"], "second": one["second"]},
        )
        sums = {"first": one["first"], "second": one["second"]}
        for g in self.groups:
            with self._busy(g) as i:
                views = {"y": self._rows_of(g, i, self.y), "j": self._rows_of(g, i, self.j)}
                views |= self._at_slot(g, i) | {"alpha": one["alpha"]} | sums
                k.call(slots.slope(g.rule.kind, g.dim), views, sums)
        names = ("alpha", "found", "low", "high")
        k.call(
            newton.propose(),
            {x: one[x] for x in (*names, "first", "second", "falls")},
            {x: one[x] for x in names},
        )

    # --- results ----------------------------------------------------------------------------------

    def _end(self, outputs: Mapping[str, Array]) -> None:
        k = self.k
        k.call(_flip(), {"x": self.one["done"]}, {"y": everything(outputs["open"])})
        if "overflow" in outputs:
            k.call(_copy(), {"x": self.one["over"]}, {"y": everything(outputs["overflow"])})
        k.call(
            self._qacc(),
            {"z": everything(self.at["z"]), "q": everything(self.at["q"])},
            {"qacc": everything(outputs["qacc"])},
        )
        if self.contacts:
            self._report()
        if self.touch:
            self._feel()
        if self.imu:
            views = {x: everything(self.at[x]) for x in ("q", "v", "z")}
            out = k.output("imu", len(self.imu), 6)
            k.call(imu(self.physics, self.imu), views, {"imu": everything(out)})
        if not self.moves:
            return
        views = {x: everything(self.at[x]) for x in ("M", "Mz", "z", "q", "v")}
        views |= self._resisting()
        views |= {x: everything(self.inputs[x]) for x in ("qpos", "qvel")}
        k.call(self._advance(), views, {x: everything(outputs[x]) for x in ("qpos", "qvel")})

    def _qacc(self) -> Program:
        physics = self.physics

        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            found: list[Scalar] = [0.0] * physics.nv
            for mine, theirs in enumerate(physics.of_v):
                found[theirs] = v["z"][mine]
            for f in physics.frees:
                R = turn_of(v["q"][f.q + 3 : f.q + 7])
                found[f.qvel : f.qvel + 3] = rotate(R, tuple(v["z"][f.v : f.v + 3]))
            return (tuple(found),)

        return recorded({"z": (physics.nv,), "q": (physics.nq,)}, {"qacc": (physics.nv,)}, evaluate)

    def _resisting(self) -> dict[str, View]:
        """What the integrator takes implicitly, where it is more than constants."""
        return {x: everything(self.at[x]) for x in ("slopes", "drag") if x in self.at}

    def _advance(self) -> Program:
        """The state after the step; with damping, (M + dt B) a = M z."""
        physics, n = self.physics, self.physics.nv
        supports = self.world.supports

        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            z = v["z"]
            if physics.damped:
                drag = drag_matrix(physics, v)
                H = [
                    [
                        add(v["M"][i][j], mul(physics.dt, drag[i][j])) if j <= i else 0.0
                        for j in range(n)
                    ]
                    for i in range(n)
                ]
                inside = all(
                    j in supports[i] or drag[i][j] == 0.0 for i in range(n) for j in range(i)
                )
                factor = ltl.factorize(H, supports if inside else dense(n))
                z = ltl.solve(factor, v["Mz"])
            return advance(physics, v["q"], v["v"], z, v["qpos"], v["qvel"])

        inputs: dict[str, Shape] = {
            "M": (n, n),
            "Mz": (n,),
            "z": (n,),
            "q": (physics.nq,),
            "v": (n,),
        }
        inputs |= {x: (self.at[x].size,) for x in self._resisting()}
        inputs |= {"qpos": (physics.nq,), "qvel": (n,)}
        return recorded(inputs, {"qpos": (physics.nq,), "qvel": (n,)}, evaluate)

    def _feel(self) -> None:
        """The sum of normal forces on each shape of `touch`."""
        k, names = self.k, self.touch
        out = k.output("touch", len(names))
        k.call(
            recorded({}, {"x": (len(names),)}, lambda v: ((0.0,) * len(names),)),
            {},
            {"x": everything(out)},
        )
        for g in self.groups:
            marks = [
                [
                    float(
                        name
                        in (
                            self.world.geoms[m.pair.first].name,
                            self.world.geoms[m.pair.second].name,
                        )
                    )
                    for name in names
                ]
                if g.kinds
                else [0.0] * len(names)
                for m in g.members
                for _ in range(g.slots)
            ]
            if not any(x for row in marks for x in row):
                continue
            of = k.constant(f"touch {g.number}", [x for row in marks for x in row])
            with self._busy(g) as i:
                f, W = self.f.at(0, g.dim), self.W.matrix(g.dim, g.dim)
                k.call(
                    slots.state(g.rule.kind, g.dim),
                    {"y": self._rows_of(g, i, self.y)} | self._at_slot(g, i),
                    {"f": f, "W": W},
                )
                total_ = everything(out)
                views = {"f": self.f.at(0, 1), "of": of.at(len(names) * i, len(names))}
                k.call(_added(len(names)), views | {"sum": total_}, {"sum": total_})

    def _report(self) -> None:
        """Distance, place, frame and force of each slot: distances of idle ones are positive."""
        k = self.k
        count = max(sum(g.count for g in self.groups), 1)
        out = k.output("contacts", count, 19)
        fill = recorded({}, {"x": (19,)}, lambda v: ((1.0, *(0.0,) * 18),))
        with k.each(count) as i:
            k.call(fill, {}, {"x": out.at(19 * i, 19)})
        for g in self.groups:
            with self._busy(g) as i:
                s, f, W = i + g.first, self.f.at(0, g.dim), self.W.matrix(g.dim, g.dim)
                y = self._rows_of(g, i, self.y)
                k.call(
                    slots.state(g.rule.kind, g.dim),
                    {"y": y} | self._at_slot(g, i),
                    {"f": f, "W": W},
                )
                inputs = {
                    "distance": self.distance.at(s, 1),
                    "idle": self.idle.at(s, 1),
                    "place": self.place.at(3 * s, 3),
                    "frame": self.frame.at(9 * s, 9),
                    "f": f,
                }
                program = _reported(g.dim, self.fixed_frames.get(g.number))
                k.call(program, inputs, {"x": out.at(19 * s, 19)})


def _added(n: int) -> Program:
    """sum + f · of."""

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        return (tuple(s + v["f"] * x for s, x in zip(v["sum"], v["of"], strict=True)),)

    return recorded({"f": (), "of": (n,), "sum": (n,)}, {"sum": (n,)}, evaluate)


def _reported(dim: int, fixed: Any) -> Program:
    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        axes = v["frame"] if fixed is None else fixed
        force = [*v["f"], *[0.0] * (6 - dim)]
        numbers = [v["distance"], *v["place"], *(x for row in axes for x in row), *force]
        off = less(0.5, v["idle"])
        return (tuple(select(off, y, x) for x, y in zip(numbers, [1.0] + [0.0] * 18, strict=True)),)

    inputs: dict[str, Shape] = {"distance": (), "idle": (), "place": (3,), "frame": (3, 3)}
    return recorded(inputs | {"f": (dim,)}, {"x": (19,)}, evaluate)


def _constant(k: Kernel, target: View, value: float) -> None:
    k.call(recorded({}, {"x": ()}, lambda v: (value,)), {}, {"x": target})


def _copy() -> Program:
    return recorded({"x": ()}, {"y": ()}, lambda v: (v["x"],))


def _flip() -> Program:
    """1 - x."""
    return recorded({"x": ()}, {"y": ()}, lambda v: (1.0 - v["x"],))
