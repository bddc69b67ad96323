"""What is compiled for a problem: one step, its derivatives, the costs. Numbers that may change
(targets, weights, bounds, dt, …) are inputs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeVar, TypeVarTuple

import numpy as np

from rigidgrad.algorithms.fast.newton_euler import newton_euler
from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.costs import Cost, Effort, State, Term
from rigidgrad.control.curvature import curvature
from rigidgrad.control.expansion import by_force, knot_kernel, pays
from rigidgrad.control.integrators import (
    base_maps,
    free_base,
    is_structured,
    linearize,
    moved_with_velocity,
    step,
    velocity_gradient,
)
from rigidgrad.control.knot_terms import KnotTerms
from rigidgrad.control.limits import Constraint, Position, Velocity
from rigidgrad.control.system import CustomSystem, RobotSystem, System
from rigidgrad.kernels.knot import Place
from rigidgrad.kernels.language import Kernel
from rigidgrad.program.fuse import fuse
from rigidgrad.program.program import Program
from rigidgrad.program.recorder import record
from rigidgrad.runtime.code import Code
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.job import Job, Knots, host_lanes
from rigidgrad.runtime.riccati import Layout, Sizes
from rigidgrad.scalars import Scalar, add, less, mul, select, total

Shapes = Mapping[str, tuple[int, ...]]
Arguments = TypeVarTuple("Arguments")
Made = TypeVar("Made")
_DIAGONAL_UP_TO = 32  # states up to which the backward pass reads a diagonal alone
_LONGEST_VECTOR = 8
_FREE_BASE_FROM = 24  # states from which on a backward pass pays that knows how a free base moves


class Programs(KnotTerms):
    """The compiled functions of a system, an integrator and terms. `bounded`: controls are clamped
    to bounds; `uniform`: all steps last equally long.
    """

    def __init__(
        self,
        system: System,
        integrator: str,
        costs: Sequence[Cost],
        constraints: Sequence[Constraint],
        bounded: bool,
        uniform: bool = True,
    ):
        super().__init__(system, costs, constraints)
        self.integrator, self.bounded, self.uniform = integrator, bounded, uniform
        self._made: dict[tuple[Any, ...], Any] = {}

    # --- along the knots: all step sizes at once, or a problem in each lane -----------------------

    def roll_out(self, gaps: bool = False, problems: int = 1) -> Code:
        """(x, cost, alpha; x_ref, u_ref, gains, h, p [, lower, upper] [, gap]) → u = u_ref + alpha
        κ + K (x ⊖ x_ref), the next x, the cost so far.

        `cost` is (cost, penalty). With `gaps` the next state keeps (1 - alpha) of a gap. Lanes
        share what follows alpha, unless each has a problem of its own.
        """
        return self.once(self._roll_out, gaps, problems)

    def _roll_out(self, gaps: bool, problems: int) -> Code:
        s, o = self.system, self.layout if problems == 1 else self.side_by_side
        shapes: dict[str, tuple[int, ...]] = {"x": (s.nx,), "cost": (2,), "alpha": ()}
        shared: dict[str, tuple[int, ...]] = {
            "x_ref": (s.nx,),
            "u_ref": (s.nu,),
            "gains": (s.nu, o.gain_columns),
            "h": (),
            "p": (self.parameters,),
        }
        if self.bounded:
            shared |= {"lower": (s.nu,), "upper": (s.nu,)}
        if gaps:
            shared |= {"gap": (s.ndx,)}

        def evaluate(a: dict[str, Any]) -> tuple[Any, ...]:
            dx = s.minus(a["x"], a["x_ref"])
            u = []
            for i in range(s.nu):
                row = a["gains"][i]
                feedback = total(mul(row[o.state(j)], d) for j, d in enumerate(dx))
                value = add(add(a["u_ref"][i], mul(a["alpha"], row[o.correction])), feedback)
                if self.bounded:
                    value = _clamp(value, a["lower"][i], a["upper"][i])
                u.append(value)
            control = tuple(u)
            after = step(self.given(a["p"]), self.integrator, a["x"], control, a["h"])
            if gaps:
                rest = a["alpha"] - 1.0
                after = s.plus(after, tuple(mul(rest, d) for d in a["gap"]))
            cost, penalty = self.values(a["x"], control, a["p"])
            return control, after, (add(a["cost"][0], cost), add(a["cost"][1], penalty))

        outputs = {"u": (s.nu,), "x": (s.nx,), "cost": (2,)}
        name = f"roll_out{' with gaps' if gaps else ''} {o}"
        return self._sweep(
            name,
            shapes | shared,
            outputs,
            evaluate,
            shared if problems == 1 else (),
            width=_width(problems),
        )

    def final_cost(self, problems: int = 1) -> Code:
        """(x, cost; p) → the cost with the last knot's."""
        return self.once(self._final_cost, problems)

    def _final_cost(self, problems: int) -> Code:
        s = self.system

        def evaluate(a: dict[str, Any]) -> tuple[Any, ...]:
            cost, penalty = self.values(a["x"], None, a["p"])
            return ((add(a["cost"][0], cost), add(a["cost"][1], penalty)),)

        shapes = {"x": (s.nx,), "cost": (2,), "p": (self.parameters,)}
        return self._sweep(
            "final_cost",
            shapes,
            {"cost": (2,)},
            evaluate,
            ["p"] if problems == 1 else (),
            width=_width(problems),
        )

    def choice(self, name: str, count: int, problems: int) -> Code:
        """(which, candidates 0, 1, …, now) → of the states ("x") or controls ("u") of a knot the
        candidate with that number, or as they are now.
        """
        return self.once(self._choice, name, count, problems)

    def _choice(self, name: str, count: int, problems: int) -> Code:
        size = self.system.nx if name == "x" else self.system.nu
        shapes = {"which": ()} | {str(k): (size,) for k in range(count)} | {"now": (size,)}

        def evaluate(a: dict[str, Any]) -> tuple[Any, ...]:
            chosen = a["now"]
            for k in range(count):
                taken = less(abs(a["which"] - float(k)), 0.5)
                chosen = tuple(
                    select(taken, new, old) for new, old in zip(a[str(k)], chosen, strict=True)
                )
            return (chosen,)

        return self._sweep(
            f"choice of {name}", shapes, {"now": (size,)}, evaluate, (), width=_width(problems)
        )

    def consensus(self, o: Layout) -> Code:
        """(dx, alpha; F, gains, gap, h) → (A + B K) dx + alpha (B κ + gap): how states move by the
        linearised dynamics (Plancher 2022, 4.7).

        There the whole gap is closed whatever alpha is, which can be far more of a step than alpha
        asks for.
        """
        return self.once(self._consensus, replace(o, dtype="float64", diagonal=False, gaps=False))

    def _consensus(self, o: Layout) -> Code:
        s = self.system
        shared: dict[str, tuple[int, ...]] = {
            "F": (o.rows, o.columns),
            "gains": (s.nu, o.columns),
            "gap": (s.ndx,),
            "h": (),
        }
        if o.form == "floating":
            shared["move"] = (o.move_size,)

        def evaluate(a: dict[str, Any]) -> tuple[Any, ...]:
            dx = a["dx"]
            du = [
                add(
                    mul(a["alpha"], row[o.gradient]),
                    total(mul(row[o.state(j)], dx[j]) for j in range(o.n)),
                )
                for row in a["gains"]
            ]
            moved = [
                add(
                    total(mul(row[o.state(j)], dx[j]) for j in range(o.n)),
                    total(mul(row[o.control(j)], du[j]) for j in range(o.m)),
                )
                for row in a["F"]
            ]
            if o.form == "floating":
                T, S = (_base_matrix(o, a["move"], which) for which in (0, 1))
                both = [*zip(T, S, strict=True)]
                base = [
                    add(total(map(mul, t, dx[: o.base])), total(map(mul, r, moved[: o.base])))
                    for t, r in both
                ]
                joints = [
                    add(d, mul(a["h"], w))
                    for d, w in zip(dx[o.base : o.half], moved[o.base :], strict=True)
                ]
                moved = base + joints + moved
            elif o.form != "dense":
                by = moved if o.form == "implicit" else dx[o.half :]
                moved = [
                    add(d, mul(a["h"], w)) for d, w in zip(dx[: o.half], by, strict=True)
                ] + moved
            return (
                tuple(add(x, mul(a["alpha"], g)) for x, g in zip(moved, a["gap"], strict=True)),
            )

        return self._sweep(
            f"consensus {o.form} {o.base}",
            {"dx": (s.ndx,), "alpha": ()} | shared,
            {"dx": (s.ndx,)},
            evaluate,
            list(shared),
        )

    # --- all knots at once ------------------------------------------------------------------------

    @cached_property
    def layout(self) -> Layout:
        """How the backward pass wants F, l and L."""
        s = self.system
        form, base = "dense", free_base(s, self.integrator) or 0
        if s.ndx < _FREE_BASE_FROM:
            base = 0
        if base:
            form = "floating"
        if self.uniform and is_structured(s, self.integrator):
            form = "implicit" if self.integrator == "semi_implicit_euler" else "explicit"
        width = min(host_lanes("float64"), _LONGEST_VECTOR)
        diagonal = s.ndx <= _DIAGONAL_UP_TO and all(self._is_diagonal(t) for t in self.terms)
        return Layout(
            s.ndx, s.nu, form, "float64", width, diagonal=diagonal, bounded=self.bounded, base=base
        )

    def layout_in(self, dtype: str) -> Layout:
        """The same columns in either type, so that gains look the same; of float32 longer vectors,
        where whole ones fit.
        """
        o = self.layout
        if dtype == "float64":
            return o
        longer = replace(o, dtype=dtype, width=min(host_lanes(dtype), _LONGEST_VECTOR))
        return (
            longer
            if (longer.columns, longer.state_columns) == (o.columns, o.state_columns)
            else replace(o, dtype=dtype)
        )

    @property
    def side_by_side(self) -> Sizes:
        """The same for a problem in each lane."""
        o = self.layout
        return Sizes(o.n, o.m, "dense" if o.form == "floating" else o.form, o.diagonal, o.bounded)

    def _is_diagonal(self, term: Term) -> bool:
        if isinstance(term, Effort):
            return not term.against_gravity
        return self.system.flat and isinstance(term, State | Position | Velocity)

    def expansion(self, dtype: str = "float64", threads: int = 1) -> Compiled:
        """(x, u, h, p) → F (or G), l and L of the running knots, as `targets.llvm_riccati` reads
        them.
        """
        return self.once(self._expansion, dtype, threads)

    def _expansion(self, dtype: str, threads: int) -> Compiled:
        o = self.layout_in(dtype)
        return self.compiled(
            f"expansion {o}",
            {"h": ()},
            expanded_shapes(o),
            partial(self._expand_knot, o),
            dtype,
            threads,
            self._tiled(o),
        )

    def _tiled(self, o: Layout | Sizes) -> Callable[[], Kernel] | None:
        """The expansion of a knot with contacts as a kernel, where that is quicker."""
        s = self.system
        touching = any(by_force(t) for t in self.terms)
        if (
            not isinstance(s, RobotSystem)
            or s.held is None
            or self.integrator not in ("euler", "semi_implicit_euler")
        ):
            return None
        if o.form not in ("dense", "floating") or o.diagonal or not pays(s, touching):
            return None
        inputs = {"x": (s.nx,), "u": (s.nu,), "h": (), "p": (self.parameters,)}
        return self.knot(s, o, inputs, expanded_shapes(o))

    def knot(
        self, s: RobotSystem, o: Layout | Sizes, inputs: Shapes, outputs: Shapes
    ) -> Callable[[], Kernel]:
        """The kernel that expands a knot (`expansion.knot_kernel`)."""
        starts, sizes = (o.state(0), o.state(s.nv), o.control(0)), (s.nv, s.nv, s.nu)
        place, touching = Place(starts, sizes, o.columns), any(by_force(t) for t in self.terms)
        return partial(
            knot_kernel,
            s,
            inputs,
            outputs,
            place,
            self.given,
            self._expand_some,
            touching,
            partial(self._moved, o),
        )

    def _moved(
        self,
        o: Layout | Sizes,
        s: RobotSystem,
        a: Mapping[str, Any],
        after: Vector,
        v_q: Matrix,
        v_v: Matrix,
        v_u: Matrix,
    ) -> tuple[Any, ...]:
        """What the backward pass reads of the dynamics, from v' and its derivatives."""
        if o.form != "dense":
            rows = tuple(
                self._spread(o, (*x, *y, *z)) for x, y, z in zip(v_q, v_v, v_u, strict=True)
            )
            return (
                (rows, self._move(o, s, a["h"], after))
                if isinstance(o, Layout) and o.form == "floating"
                else (rows,)
            )
        implicit = self.integrator == "semi_implicit_euler"
        A, B = moved_with_velocity(
            s, a["h"], after if implicit else s.split(a["x"])[1], v_q, v_v, v_u, implicit
        )
        return (tuple(self._spread(o, (*x, *y)) for x, y in zip(A, B, strict=True)),)

    @staticmethod
    def _move(o: Layout, s: RobotSystem, h: Scalar, after: Vector) -> tuple[Any, ...]:
        """How positions move with velocities, as the backward pass reads it."""
        found: list[Scalar] = []
        for matrix in base_maps(s, h, after) if o.base else ():
            for row in matrix:
                found += [*row, *(0.0,) * (o.base_columns - o.base)]
        return (*found, *(h,) * o.width)

    @staticmethod
    def _spread(o: Layout | Sizes, row: Sequence[Scalar]) -> tuple[Any, ...]:
        """Numbers by states and controls as a row."""
        result: list[Scalar] = [0.0] * o.columns
        columns = [o.state(i) for i in range(o.n)] + [o.control(i) for i in range(o.m)]
        for c, value in zip(columns, row, strict=True):
            result[c] = value
        return tuple(result)

    def _expand_knot(self, o: Layout | Sizes, a: dict[str, Any]) -> tuple[Any, ...]:
        s, spread = self.given(a["p"]), partial(self._spread, o)
        if o.form == "dense":
            _, A, B = linearize(s, self.integrator, a["x"], a["u"], a["h"])
            F = [(*x, *y) for x, y in zip(A, B, strict=True)]
        else:
            assert isinstance(s, RobotSystem)
            after, v_q, v_v, v_u = velocity_gradient(s, a["x"], a["u"], a["h"])
            F = [(*x, *y, *z) for x, y, z in zip(v_q, v_v, v_u, strict=True)]
        q = self.expand(a["x"], a["u"], a["p"])
        xu = list(zip(*q.lux, strict=True)) if q.lux else [()] * o.n
        whole = [(*x, *y) for x, y in zip(q.lxx, xu, strict=True)] + [
            (*x, *y) for x, y in zip(q.lux, q.luu, strict=True)
        ]
        L = (
            spread([whole[i][i] for i in range(o.n + o.m)])
            if o.diagonal
            else tuple(map(spread, whole))
        )
        found = tuple(map(spread, F)), spread((*q.lx, *q.lu)), L
        if isinstance(o, Layout) and o.form == "floating":
            assert isinstance(s, RobotSystem)
            return (*found, self._move(o, s, a["h"], after))
        return found

    def final_expansion(self, dtype: str = "float64") -> Compiled:
        """(x, p) → V and v at the last knot, as `targets.llvm_riccati` reads them."""
        return self.once(self._final_expansion, dtype)

    def _final_expansion(self, dtype: str) -> Compiled:
        o = self.layout_in(dtype)
        return self.compiled(
            f"final_expansion {o}", None, _final_shapes(o), partial(self._expand_last, o), dtype
        )

    def _expand_last(self, o: Layout | Sizes, a: dict[str, Any]) -> tuple[Any, ...]:
        q = self.expand(a["x"], None, a["p"])
        rows = []
        for row in (*q.lxx, q.lx):
            spread: list[Scalar] = [0.0] * o.state_columns
            for i, value in enumerate(row):
                spread[o.state(i)] = value
            rows.append(tuple(spread))
        return (tuple(rows),)

    def expansions_side_by_side(self, dtype: str, problems: int) -> tuple[Code, Code]:
        """Of the running knots and of the last one, a problem in each lane."""
        return self.once(self._expansions_side_by_side, dtype, problems)

    def _expansions_side_by_side(self, dtype: str, problems: int) -> tuple[Code, Code]:
        o, last = self.side_by_side, {"x": (self.system.nx,), "p": (self.parameters,)}
        inputs = last | {"u": (self.system.nu,), "h": ()}
        running, final = partial(self._expand_knot, o), partial(self._expand_last, o)
        return (
            self._sweep(
                f"expansion {o}",
                inputs,
                expanded_shapes(o),
                running,
                (),
                dtype,
                problems,
                self._tiled(o),
            ),
            self._sweep(f"final_expansion {o}", last, _final_shapes(o), final, (), dtype, problems),
        )

    @cached_property
    def linearization(self) -> Compiled:
        """(x, u, h, p) → the next state, A, B, and the cost of the knot with all derivatives."""
        s = self.system
        n, m = s.ndx, s.nu
        outputs = {
            "next": (s.nx,),
            "A": (n, n),
            "B": (n, m),
            "l": (),
            "lx": (n,),
            "lu": (m,),
            "lxx": (n, n),
            "lux": (m, n),
            "luu": (m, m),
        }

        def evaluate(a: dict[str, Any]) -> tuple[Any, ...]:
            moved = linearize(self.given(a["p"]), self.integrator, a["x"], a["u"], a["h"])
            q = self.expand(a["x"], a["u"], a["p"])
            return (*moved, add(*self.values(a["x"], a["u"], a["p"])), *q[1:])

        return self.compiled("linearization", {"h": ()}, outputs, evaluate)

    @cached_property
    def final_linearization(self) -> Compiled:
        """(x, p) → the last knot's cost, lx, lxx."""
        n = self.system.ndx

        def evaluate(a: dict[str, Any]) -> tuple[Any, ...]:
            q = self.expand(a["x"], None, a["p"])
            return add(*self.values(a["x"], None, a["p"])), q.lx, q.lxx

        return self.compiled(
            "final_linearization", None, {"l": (), "lx": (n,), "lxx": (n, n)}, evaluate
        )

    @cached_property
    def evaluation(self) -> Compiled:
        """(x, u, h, p) → the next state, the knot's cost and penalty."""
        s = self.system

        def evaluate(a: dict[str, Any]) -> tuple[Any, ...]:
            return step(self.given(a["p"]), self.integrator, a["x"], a["u"], a["h"]), self.values(
                a["x"], a["u"], a["p"]
            )

        return self.compiled("evaluation", {"h": ()}, {"next": (s.nx,), "l": (2,)}, evaluate)

    @cached_property
    def final_evaluation(self) -> Compiled:
        return self.compiled(
            "final_evaluation", None, {"l": (2,)}, lambda a: (self.values(a["x"], None, a["p"]),)
        )

    @cached_property
    def constraint_values(self) -> Compiled:
        """(x, u, p) → the values c of all constraints at a knot, one after the other; those that
        use the control are 0 where u is NaN-free but absent.
        """
        count = sum(c.size(self.system) for c in self.constraints)

        def evaluate(a: dict[str, Any]) -> tuple[Any, ...]:
            found: list[Scalar] = []
            for term, part in zip(self.constraints, self.slices[len(self.costs) :], strict=True):
                found += term.residual(self.given(a["p"]), a["x"], a["u"], a["p"][part["target"]])
            return (tuple(found),)

        return self.compiled("constraint_values", {}, {"c": (count,)}, evaluate)

    @cached_property
    def constraint_jacobians(self) -> Compiled:
        """(x, u, p) → the derivatives of all constraints at a knot by the state, (constraints,
        ndx), and by the control, (constraints, nu).
        """
        n, m = self.system.ndx, self.system.nu
        count = sum(c.size(self.system) for c in self.constraints)

        def evaluate(a: dict[str, Any]) -> tuple[Any, ...]:
            by_state: list[Vector] = []
            by_control: list[Vector] = []
            for term, part in zip(self.constraints, self.slices[len(self.costs) :], strict=True):
                gx, gu = term.jacobian(self.given(a["p"]), a["x"], a["u"], a["p"][part["target"]])
                by_state += gx if gx is not None else [(0.0,) * n] * term.size(self.system)
                by_control += gu if gu is not None else [(0.0,) * m] * term.size(self.system)
            return tuple(by_state), tuple(by_control)

        return self.compiled(
            "constraint_jacobians", {}, {"gx": (count, n), "gu": (count, m)}, evaluate
        )

    @cached_property
    def step_curvature(self) -> Compiled:
        """(x, u, h, v [, inputs]) → the step's second derivatives weighted by v, in the layout of
        L.
        """
        s, o = self.system, replace(self.layout, diagonal=False)
        n, m = o.n, o.m

        def evaluate(a: dict[str, Any]) -> tuple[Any, ...]:
            H = curvature(
                s.given(a.get("inputs", ())), self.integrator, a["x"], a["u"], a["h"], a["v"]
            )
            rows = []
            for row in H:
                spread: list[Scalar] = [0.0] * o.columns
                for i, value in enumerate(row):
                    spread[o.state(i) if i < n else o.control(i - n)] = value
                rows.append(tuple(spread))
            return (tuple(rows),)

        shapes = {"x": (s.nx,), "u": (m,), "h": (), "v": (n,)} | self._input_shape()
        return Compiled(
            self.recording(f"curvature {o}", shapes, {"L": (n + m, o.columns)}, evaluate),
            dtype="float64",
            threads=1,
        )

    @cached_property
    def step(self) -> Compiled:
        """(x, u, h [, inputs]) → the next state."""
        s = self.system
        shapes = {"x": (s.nx,), "u": (s.nu,), "h": ()} | self._input_shape()

        def evaluate(a: dict[str, Any]) -> tuple[Any, ...]:
            return (step(s.given(a.get("inputs", ())), self.integrator, a["x"], a["u"], a["h"]),)

        return Compiled(
            self.recording("step", shapes, {"x": (s.nx,)}, evaluate, terms=False),
            dtype="float64",
            threads=1,
        )

    @cached_property
    def inverse_dynamics(self) -> Compiled:
        """(q, v, a [, inputs]) → a robot's joint forces."""
        s = self.system
        assert isinstance(s, RobotSystem)
        shapes = {"q": (s.nq,), "v": (s.nv,), "a": (s.nv,)} | self._input_shape()

        def evaluate(a: dict[str, Any]) -> tuple[Any, ...]:
            given = s.given(a.get("inputs", ()))
            assert isinstance(given, RobotSystem)
            return (newton_euler(given.canonical_model, a["q"], a["v"], a["a"], given.external),)

        return Compiled(
            self.recording("inverse_dynamics", shapes, {"tau": (s.nv,)}, evaluate, terms=False),
            dtype="float64",
            threads=1,
        )

    @cached_property
    def contact_forces(self) -> Compiled:
        """(x, u, inputs) → the forces of all contacts in turn, of a robot that has some."""
        s = self.system
        assert isinstance(s, RobotSystem) and s.held is not None
        shapes = {"x": (s.nx,), "u": (s.nu,)} | self._input_shape()
        rows = sum(c.rows for c in s.held.constraints)

        def evaluate(a: dict[str, Any]) -> tuple[Any, ...]:
            given = s.given(a["inputs"])
            assert isinstance(given, RobotSystem)
            return (given.contact_forces(*given.split(a["x"]), a["u"]),)

        return Compiled(
            self.recording("contact_forces", shapes, {"force": (rows,)}, evaluate, terms=False),
            dtype="float64",
            threads=1,
        )

    @cached_property
    def difference(self) -> Compiled:
        s = self.system
        shapes = {"x": (s.nx,), "origin": (s.nx,)}
        return Compiled(
            self.recording(
                "minus",
                shapes,
                {"dx": (s.ndx,)},
                lambda a: (s.minus(a["x"], a["origin"]),),
                terms=False,
            ),
            threads=1,
        )

    @cached_property
    def displacement(self) -> Compiled:
        s = self.system
        shapes = {"x": (s.nx,), "dx": (s.ndx,)}
        return Compiled(
            self.recording(
                "plus", shapes, {"x": (s.nx,)}, lambda a: (s.plus(a["x"], a["dx"]),), terms=False
            ),
            threads=1,
        )

    def _input_shape(self) -> dict[str, tuple[int, ...]]:
        return {"inputs": (self.system.inputs,)} if self.system.inputs else {}

    def once(self, make: Callable[[*Arguments], Made], *arguments: *Arguments) -> Made:
        """What `make` gave for these arguments when it was first needed."""
        key = make.__name__, *arguments
        if key not in self._made:
            self._made[key] = make(*arguments)
        made: Made = self._made[key]
        return made

    # --- compiling --------------------------------------------------------------------------------

    def identity(self, inputs: Shapes, build: Callable[[], Any], terms: bool = True) -> str:
        text = f"{self.system.key()} {self.integrator} {self.bounded} {dict(inputs)}"
        if terms:
            text += " ".join(t.identity() for t in self.terms)
        if isinstance(self.system.bare, CustomSystem):
            text += str(build())
        return text

    def recording(
        self,
        name: str,
        inputs: Shapes,
        outputs: Shapes,
        evaluate: Callable[[dict[str, Any]], tuple[Any, ...]],
        terms: bool = True,
    ) -> Job:
        def build() -> Program:
            return fuse(record(inputs, outputs, evaluate))

        return Job(name, self.system.name, self.identity(inputs, build, terms), build)

    def compiled(
        self,
        name: str,
        more: Shapes | None,
        outputs: Shapes,
        evaluate: Callable[[dict[str, Any]], tuple[Any, ...]],
        dtype: str = "float64",
        threads: int = 1,
        tiled: Callable[[], Kernel] | None = None,
    ) -> Compiled:
        """`more`: inputs between the control and the parameters; None where there is no control.
        `tiled`: a kernel that gives the same.
        """
        middle = {} if more is None else {"u": (self.system.nu,)} | dict(more)
        inputs = {"x": (self.system.nx,)} | middle | {"p": (self.parameters,)}
        recording = self.recording(name, inputs, outputs, evaluate)
        if tiled is not None:
            recording = _in_tiles(recording, tiled)
        return Compiled(recording, dtype=dtype, threads=threads)

    def _sweep(
        self,
        name: str,
        inputs: Shapes,
        outputs: Shapes,
        evaluate: Callable[[dict[str, Any]], tuple[Any, ...]],
        shared: Iterable[str],
        dtype: str = "float64",
        width: int = 0,
        tiled: Callable[[], Kernel] | None = None,
    ) -> Code:
        job = self.recording(name, inputs, outputs, evaluate)
        if tiled is not None:
            job = _in_tiles(job, tiled)
        knots = Knots(frozenset(shared))
        return self.swept(replace(job, dtype=dtype, width=width, knots=knots))

    def swept(self, job: Job) -> Code:
        """The code of a sweep."""
        return Code.of(job)


_kept: weakref.WeakValueDictionary[tuple[Any, ...], Programs] = weakref.WeakValueDictionary()


def shared_programs(
    system: System,
    integrator: str,
    costs: Sequence[Cost],
    constraints: Sequence[Constraint],
    bounded: bool,
    uniform: bool,
) -> Programs:
    """Programs as above; problems that differ in numbers alone have the same ones."""
    terms = (*costs, *constraints)
    # a system that a user wrote is only the same if it is the same object
    own = id(system) if isinstance(system, CustomSystem) else system.key()
    sizes = tuple((t.size(system), t.target_size(system)) for t in terms)
    key = (own, integrator, tuple(t.identity() for t in terms), sizes, bounded, uniform)
    found = _kept.get(key)
    if found is None:
        found = Programs(system, integrator, costs, constraints, bounded, uniform)
        _kept[key] = found
    return found


def _in_tiles(job: Job, tiled: Callable[[], Kernel]) -> Job:
    """By a kernel that gives the same."""
    return replace(job, name=f"{job.name} in tiles", source=tiled)


def _width(problems: int) -> int:
    return 0 if problems == 1 else problems


def expanded_shapes(o: Layout | Sizes) -> Shapes:
    shapes = {
        "F": (o.rows, o.columns),
        "l": (o.columns,),
        "L": (o.columns,) if o.diagonal else (o.n + o.m, o.columns),
    }
    return shapes | (
        {"move": (o.move_size,)} if isinstance(o, Layout) and o.form == "floating" else {}
    )


def _base_matrix(o: Layout, move: Any, which: int) -> list[Any]:
    """Rows of ∂q'/∂q of a free base, or of ∂q'/∂v', from the numbers of knots (…, move_size)."""
    starts = [(which * o.base + i) * o.base_columns for i in range(o.base)]
    return [
        (
            move[..., start : start + o.base]
            if isinstance(move, np.ndarray)
            else move[start : start + o.base]
        )
        for start in starts
    ]


def whole_dynamics(o: Layout, F: np.ndarray, h: np.ndarray, move: np.ndarray | None) -> np.ndarray:
    """[A, B] (knots, n, n + m) from what the backward pass reads of the dynamics, (knots, rows, n +
    m), and steps of h (knots,) seconds.
    """
    if o.form == "dense":
        return F
    knots, half = len(F), o.half
    at, by = np.tile(np.eye(half, o.n + o.m), (knots, 1, 1)), h[:, None, None] * np.eye(half)
    if o.form == "explicit":
        at[:, :, half : o.n] = by
        return np.concatenate([at, F], axis=1)
    if o.base and move is not None:
        at[:, : o.base, : o.base], by[:, : o.base, : o.base] = (
            np.stack(_base_matrix(o, move, k), axis=1) for k in (0, 1)
        )
    return np.concatenate([at + by @ F, F], axis=1)


def _final_shapes(o: Layout | Sizes) -> Shapes:
    return {"V": (o.n + 1, o.state_columns)}


def _clamp(x: Scalar, lower: Scalar, upper: Scalar) -> Scalar:
    x = select(less(x, lower), lower, x)
    return select(less(upper, x), upper, x)
