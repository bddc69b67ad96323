"""The gradient of a step, by the implicit function theorem.

A step solves R(θ, z) = M z - τ - Σ Jᵀ f = 0, then A z⁺ = M z with A = M + dt B, and ends at
F(θ, z⁺). For cotangents λ of F, with H = ∂R/∂z,

    A ν = (∂F/∂z⁺)ᵀ λ,        H μ = M ν,        dL/dθ = λᵀ ∂F - νᵀ ∂(A z⁺ - M z) - μᵀ ∂R,

which runs back through contacts, slot by slot, and then through the smooth motion. Where a contact
begins or ends, or begins to slip, it is the derivative of the side that the state is on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rigidgrad.algorithms import ltl
from rigidgrad.algorithms.sparsity import dense
from rigidgrad.kernels.language import Array, Index, Kernel, View
from rigidgrad.program.differentiate import pullback
from rigidgrad.program.fuse import fuse
from rigidgrad.program.program import Program, Shape
from rigidgrad.scalars import Scalar, add, less, mul, select, sub, total
from rigidgrad.spatial import add3, cross3, dot3, sub3
from rigidgrad.worlds import hulls, newton, slots
from rigidgrad.worlds.fielding import NUMBERS
from rigidgrad.worlds.groups import Group, World
from rigidgrad.worlds.narrow import frame
from rigidgrad.worlds.recording import everything, recorded
from rigidgrad.worlds.slots import SINGLE
from rigidgrad.worlds.smooth import advance, drag_matrix, geom_numbers
from rigidgrad.worlds.step import Step


class Backward(Step):
    """Makes the kernel: inputs of the step, its accelerations `warm`, and the cotangents
    `of qpos` and `of qvel` of what it led to; outputs `by …` for each input of the step but those.
    """

    def __init__(self, world: World):
        super().__init__(world, moves=False)

    def kernel(self) -> Kernel:
        k, physics, n = self.k, self.physics, self.physics.nv
        warm = self._take_inputs()
        cotangents = {
            x: k.input(f"of {x}", size) for x, size in (("qpos", physics.nq), ("qvel", n))
        }
        names = list(self.smooth.inputs)
        outputs = {x: k.output(f"by {x}", *self.inputs[x].shape) for x in self.inputs}
        self._prepare(warm)
        for name in ("after", "nu", "right"):
            self.at[name] = self._scratch(name, n)
        self.back = {x: self._scratch(f"back {x}", self.at[x].size) for x in self.smooth.outputs}
        k.call(
            newton.start(physics),
            {x: everything(self.at[x]) for x in ("M", "Mz", "rhs", "z")} | self._row_views(),
            {"H": everything(self.H), "g": everything(self.at["g"])},
        )
        for group in self.groups:
            with self._busy(group) as i:
                self._curve(group, i)
        direct = self._end_of_step(cotangents)
        self._direction()  # p = μ
        self._clear()
        if self.varied_cone:
            self.back["friction"] = outputs["friction"]
            k.call(_zeros(1), {}, {"x": everything(outputs["friction"])})
        self._through_rows()
        for group in self.groups:
            with self._busy(group) as i:
                self._through_slot(group, i)
        self._through_mass()
        program = _pulled(self.smooth.program(), None, None)
        views = {x: everything(self.inputs[x]) for x in self.smooth.inputs}
        views |= {f"cotangent:{x}": everything(self.back[x]) for x in self.smooth.outputs}
        k.call(program, views, {f"cotangent:{x}": everything(outputs[x]) for x in names})
        for name, array in direct.items():
            self._add(everything(outputs[name]), everything(array))
        return k

    # --- parts ------------------------------------------------------------------------------------

    def _row_views(self) -> dict[str, View]:
        return {"D": everything(self.row_D), "aref": everything(self.row_aref)}

    def _clear(self) -> None:
        """What is added to begins with zeros, or with what `_end_of_step` gave."""
        for name in ("twists", "geoms", "origin"):
            array = self.back[name]
            size = array.size
            self.k.call(_zeros(size), {}, {"x": everything(array)})

    def _add(self, target: View, more: View) -> None:
        size = target.shape[0] * target.shape[1]
        program = recorded(
            {"a": (size,), "b": (size,)},
            {"a": (size,)},
            lambda v: (tuple(x + y for x, y in zip(v["a"], v["b"], strict=True)),),
        )
        self.k.call(program, {"a": target, "b": more}, {"a": target})

    def _end_of_step(self, cotangents: Mapping[str, Array]) -> dict[str, Array]:
        """z⁺, ν, and g = -M ν; what λᵀF says of q, v, qpos and qvel."""
        k, physics, n = self.k, self.physics, self.physics.nv
        M, z = everything(self.at["M"]), everything(self.at["z"])
        solve = self._solve_damped()
        given = {"M": M} | self._resisting()
        after, nu, right = (everything(self.at[x]) for x in ("after", "nu", "right"))
        if physics.damped:
            k.call(solve, given | {"x": everything(self.at["Mz"])}, {"y": after})
        else:
            k.call(_copied(n), {"x": z}, {"y": after})
        end = recorded(
            {"q": (physics.nq,), "v": (n,), "z": (n,), "qpos": (physics.nq,), "qvel": (n,)},
            {"new_qpos": (physics.nq,), "new_qvel": (n,)},
            lambda v: advance(physics, v["q"], v["v"], v["z"], v["qpos"], v["qvel"]),
        )
        direct = {x: self._scratch(f"direct {x}", self.inputs[x].size) for x in ("qpos", "qvel")}
        views = {x: everything(self.at[x]) for x in ("q", "v")} | {"z": after}
        views |= {x: everything(self.inputs[x]) for x in ("qpos", "qvel")}
        views |= {f"cotangent:new_{x}": everything(cotangents[x]) for x in ("qpos", "qvel")}
        results = {f"cotangent:{x}": everything(self.back[x]) for x in ("q", "v")}
        results |= {"cotangent:z": right}
        results |= {f"cotangent:{x}": everything(direct[x]) for x in ("qpos", "qvel")}
        k.call(_pulled(end, None, None), views, results)
        if physics.damped:
            k.call(solve, given | {"x": right}, {"y": nu})
            self._times_mass("nu", "right")
        k.call(_negated(n), {"x": right}, {"y": everything(self.at["g"])})
        return direct

    def _solve_damped(self) -> Program:
        """A⁻¹ x."""
        physics, n, supports = self.physics, self.physics.nv, self.world.supports

        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            drag = drag_matrix(physics, v)
            H = [
                [
                    add(v["M"][i][j], mul(physics.dt, drag[i][j])) if j <= i else 0.0
                    for j in range(n)
                ]
                for i in range(n)
            ]
            inside = all(j in supports[i] or drag[i][j] == 0.0 for i in range(n) for j in range(i))
            return (ltl.solve(ltl.factorize(H, supports if inside else dense(n)), v["x"]),)

        inputs: dict[str, Shape] = {"M": (n, n)}
        inputs |= {x: (self.at[x].size,) for x in self._resisting()}
        return recorded(inputs | {"x": (n,)}, {"y": (n,)}, evaluate)

    def _through_rows(self) -> None:
        """Limits and dry friction: μᵀ of their forces."""
        physics, n = self.physics, self.physics.nv
        if not newton.row_count(physics):
            return

        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            D, aref = newton.row_numbers(physics, v["q"], v["v"])
            terms = newton.row_terms(physics, v["z"], D, aref)
            return (total(mul(mul(side, f), v["mu"][i]) for i, side, f, _ in terms),)

        shapes: dict[str, Shape] = {"q": (physics.nq,), "v": (n,), "z": (n,), "mu": (n,)}
        views = {x: everything(self.at[x]) for x in ("q", "v", "z")}
        self._pull(
            recorded(shapes, {"s": ()}, evaluate),
            views | {"mu": everything(self.at["p"])},
            {x: everything(self.back[x]) for x in ("q", "v")},
        )

    def _pull(self, program: Program, views: dict[str, View], targets: dict[str, View]) -> None:
        """Adds ∂s/∂… of a Program's one result to targets."""
        one = self.k.arrays.get("one") or self.k.constant("one", [1.0])
        found, places = {}, {}
        at = 0
        sizes = {x: v.shape[0] * v.shape[1] for x, v in targets.items()}
        room = self.k.arrays.get("pulled") or self.k.scratch("pulled", 1024)
        for name, size in sizes.items():
            found[f"cotangent:{name}"] = places[name] = room.at(at, size)
            at += size
        pulled = _pulled(program, None, list(targets))
        self.k.call(pulled, views | {"cotangent:s": one.at(0, 1)}, found)
        for name, target in targets.items():
            self._add(target, places[name])

    def _through_slot(self, g: Group, i: Index) -> None:
        s = i + g.first
        numbers = {
            "margin": self.margin.at(s, 1),
            "weight": self.weight.at(s, 1),
            "plain": self._rows_of(g, i, self.plain_cone),
        }
        if self.varied_cone:
            numbers["friction"] = everything(self.inputs["friction"])
        if self.world.most is not None:
            numbers["idle"] = self.idle.at(s, 1)
        views = dict(numbers)
        targets: dict[str, View] = {}
        if self.varied_cone and g.kinds and g.dim > 1:
            targets["friction"] = everything(self.back["friction"])
        for name, array in (("v", self.at["v"]), ("z", self.at["z"]), ("m", self.at["p"])):
            views |= self._segments(g, i, array, name)
        targets |= self._segments(g, i, self.back["v"], "v")
        shapes: dict[str, Shape] = {"margin": (), "weight": (), "plain": (g.dim,)}
        if self.varied_cone:
            shapes["friction"] = ()
        if self.world.most is not None:
            shapes["idle"] = ()
        shapes |= {f"{x}{j}": (c,) for x in "vzm" for j, c in enumerate(g.sizes)}
        if g.kinds is None:
            self._through_limit(g, i, shapes, views, targets)
            return
        more, places = self._places(g, i)
        for name, view in more.items():
            shapes[name] = (view.shape[0] * view.shape[1],)
        for j, segment in enumerate(g.segments):
            place = 6 * g.starts[j][i]
            shapes[f"t{j}"] = (segment.size, 6)
            views[f"t{j}"] = self.at["twists"].at(place, 6 * segment.size)
            targets[f"t{j}"] = self.back["twists"].at(place, 6 * segment.size)
        shapes["origin"] = (3,)
        views |= more | {"origin": everything(self.at["origin"])}
        targets |= places | {"origin": everything(self.back["origin"])}
        # a slot is one of several contacts of its pair: each has a Program of its own
        # of height fields one is of them all, as each slot has its own prism
        kinds = 1 if g.patch_size else g.slots
        which = g.table("contact", (c % kinds for _ in g.members for c in range(g.slots)))
        with self.k.choose(which[i]) as choice:
            for c in range(kinds):
                with choice.case():
                    program = recorded(shapes, {"s": ()}, self._work(g, c))
                    self._pull(program, {x: views[x] for x in shapes}, targets)

    def _places(self, g: Group, i: Index) -> tuple[dict[str, View], dict[str, View]]:
        """The shapes of a slot's pair, and where what is found of them goes."""
        views: dict[str, View] = {}
        targets: dict[str, View] = {}
        sizes = self.k.arrays[f"sizes {g.number}"]
        pairs = g.table("pair", (m for m in range(len(g.members)) for _ in range(g.slots)))
        views["sizes"] = sizes.at(pairs[i] * 6, 6)
        if g.walks:
            features = self.k.arrays[f"features {g.number}"]
            views["feature"] = features.at(pairs[i] * hulls.NUMBERS, hulls.NUMBERS)
        if g.patch_size:
            prisms = self.k.arrays[f"prisms {g.number}"]
            views["prism"] = prisms.at(i * NUMBERS, NUMBERS)
        for name, part in (("a", "first"), ("b", "second")):
            geoms = [getattr(m.pair, part) for m in g.members for _ in range(g.slots)]
            if geoms[0] in self.smooth.places:
                size = geom_numbers(self.world.geoms[geoms[0]])
                table = g.table(f"slot {name}", (self.smooth.places[x] for x in geoms))
                views[name] = self.at["geoms"].at(table[i], size)
                targets[name] = self.back["geoms"].at(table[i], size)
        return views, targets

    def _work(self, g: Group, contact: int) -> Any:
        """(J μ)ᵀ f of one contact of a pair."""

        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            c = self._touch(g, v)[contact]
            axes = frame(c.normal, c.tangent)
            arm = sub3(c.place, v["origin"])
            rows: list[list[Scalar]] = [[] for _ in range(g.dim)]
            for j, segment in enumerate(g.segments):
                for twist in v[f"t{j}"]:
                    at = add3(twist[3:], cross3(twist[:3], arm))
                    for r in range(g.dim):
                        way = at if r < 3 else twist[:3]
                        rows[r].append(mul(segment.sign, dot3(axes[r % 3], way)))
            return self._force_times(g, v, c.distance, rows)

        return evaluate

    def _force_times(
        self, g: Group, v: dict[str, Any], distance: Scalar, J: list[list[Scalar]]
    ) -> tuple[Any, ...]:
        def through(name: str) -> list[Scalar]:
            x = [y for j in range(len(g.segments)) for y in v[f"{name}{j}"]]
            return [total(mul(a, b) for a, b in zip(row, x, strict=True)) for row in J]

        D, aref, cone = slots.numbers(g.rule, distance, through("v"), v)
        if "idle" in v:  # it may touch and have been left out
            D = select(less(0.5, v["idle"]), 0.0, D)
        y = [sub(a, b) for a, b in zip(through("z"), aref, strict=True)]
        f, _ = slots.force(g.rule.kind, y, D, cone if g.rule.kind not in SINGLE else ())
        return (total(mul(a, b) for a, b in zip(f, through("m"), strict=True)),)

    def _through_limit(
        self,
        g: Group,
        i: Index,
        shapes: dict[str, Shape],
        views: dict[str, View],
        targets: dict[str, View],
    ) -> None:
        shapes["q"] = (self.physics.nq,)
        views["q"], targets["q"] = everything(self.at["q"]), everything(self.back["q"])
        which = g.table("limit", range(g.count))
        with self.k.choose(which[i]) as choice:
            for m in g.members:
                for c in range(g.slots):

                    def evaluate(v: dict[str, Any], m: Any = m, c: int = c) -> tuple[Any, ...]:
                        distance, J = self._limit_at(m.source, v["q"])[c]
                        return self._force_times(g, v, distance, [J])

                    with choice.case():
                        self._pull(recorded(shapes, {"s": ()}, evaluate), views, targets)

    def _through_mass(self) -> None:
        """What -νᵀ(A z⁺ - M z) - μᵀ(M z - τ) says of M, τ and what actuators resist with."""
        physics, n, supports = self.physics, self.physics.nv, self.world.supports

        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            z, after, nu = v["z"], v["after"], v["nu"]
            if not physics.damped:
                nu = (0.0,) * n
            rest = [sub(a, b) for a, b in zip(nu, v["mu"], strict=True)]
            M: list[list[Scalar]] = [[0.0] * n for _ in range(n)]
            for i in range(n):
                for j in (i, *supports[i]):
                    pairs = ((i, j),) if i == j else ((i, j), (j, i))
                    M[i][j] = total(sub(mul(rest[a], z[b]), mul(nu[a], after[b])) for a, b in pairs)
            slopes = [0.0] * physics.nu
            if physics.damped and physics.integrator == "implicitfast":
                slopes = [
                    mul(
                        physics.dt,
                        mul(
                            total(mul(c, nu[i]) for _, i, c in a.parts),
                            total(mul(c, after[i]) for _, i, c in a.parts),
                        ),
                    )
                    for a in physics.actuators
                ]
            scale = -physics.dt if physics.damped else 0.0
            drag = [mul(scale, mul(a, b)) for a, b in zip(nu, after, strict=True)]
            more = {"slopes": tuple(slopes), "drag": tuple(drag)}
            return (tuple(map(tuple, M)), v["mu"], *(more[x] for x in self._resisting()))

        inputs: dict[str, Shape] = dict.fromkeys(("z", "after", "nu", "mu"), (n,))
        outputs: dict[str, Shape] = {"M": (n, n), "rhs": (n,)}
        outputs |= {x: (self.at[x].size,) for x in self._resisting()}
        views = {x: everything(self.at[x]) for x in ("z", "after", "nu")}
        self.k.call(
            recorded(inputs, outputs, evaluate),
            views | {"mu": everything(self.at["p"])},
            {x: everything(self.back[x]) for x in outputs},
        )


def _pulled(program: Program, outputs: Any, inputs: Any) -> Program:
    return fuse(pullback(program, outputs, inputs))


def _zeros(n: int) -> Program:
    return recorded({}, {"x": (n,)}, lambda v: ((0.0,) * n,))


def _copied(n: int) -> Program:
    return recorded({"x": (n,)}, {"y": (n,)}, lambda v: (v["x"],))


def _negated(n: int) -> Program:
    return recorded({"x": (n,)}, {"y": (n,)}, lambda v: (tuple(-x for x in v["x"]),))
