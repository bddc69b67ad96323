"""Dynamics of large robots: loops over bodies, whose steps are Programs of one body with its
numbers as inputs.

Straight-line code of a robot with a hundred joints takes minutes to compile. Here only one body of
each joint type is recorded; the numbers of all bodies are constants in memory, and tables say which
belong to which. The equations are those of `algorithms.fast.subtree_gradient` with κ = 2.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rigidgrad.algorithms.coriolis_factor import CoriolisFactor, body_factor, factor_back
from rigidgrad.algorithms.joints import combine
from rigidgrad.algorithms.textbook.regressor import PARAMETERS, unit_inertias
from rigidgrad.kernels.language import Array, Index, Kernel, Table, View
from rigidgrad.model.model import WORLD, Frame, Joint, Model
from rigidgrad.model.pose import Pose
from rigidgrad.program.fuse import fuse
from rigidgrad.program.program import Program, Shape
from rigidgrad.program.recorder import record
from rigidgrad.scalars import add, mul, sub
from rigidgrad.spatial import Force, Inertia, Matrix3, Motion, Transform, transpose

_KAPPA = 2.0
_CONSTANTS = (
    23  # of a body: rotation (9) and origin (3) of its joint on the parent, inertia (10), pitch
)
_COLUMN = 24  # of a column on its way to the root: ∂f/∂q, ∂f/∂v, I s, Bᵀ s


def step(
    inputs: dict[str, int],
    outputs: dict[str, int],
    function: Callable[..., Sequence[Sequence[Any]]],
) -> Program:
    """The Program of a function from flat vectors to flat vectors."""
    shapes: dict[str, Shape] = {name: (size,) for name, size in inputs.items()}
    return fuse(
        record(
            shapes,
            {name: (size,) for name, size in outputs.items()},
            lambda v: tuple(tuple(x) for x in function(**v)),
        )
    )


class Bodies:
    """The bodies of a model without mimic joints, all of whose axes are z, in a kernel."""

    def __init__(self, k: Kernel, model: Model):
        self.k, self.model = k, model
        n, bodies = model.nv, len(model.joints)
        self.types = sorted({j.type for j in model.joints})
        joints = model.joints

        def table(name: str, numbers: Sequence[int]) -> Table:
            return Table(name, tuple(numbers))

        self.sort = table("sort", [self.types.index(j.type) for j in joints])
        # the world is behind all bodies
        self.parent = table("parent", [bodies if p == WORLD else p for p in model.parents])
        self.inner = table("inner", [int(p != WORLD) for p in model.parents])
        self.first_q, self.first_v = (
            table("first_q", [j.q for j in joints]),
            table("first_v", [j.v for j in joints]),
        )
        self.size = table("size", [j.nv for j in joints])
        paths = [model.ancestors[i] for i in model.bodies]  # from the body to the root
        self.path = table("path", [b for path in paths for b in path])
        self.path_start = table(
            "path_start", [sum(len(p) for p in paths[:i]) for i in range(bodies)]
        )
        self.path_steps = table("path_steps", [len(p) - 1 for p in paths])
        self.constants = k.constant(
            "bodies", [x for i in model.bodies for x in _body_constants(model, i)]
        )
        self.axes = k.constant(
            "axes", [x for j in joints for s in j.kind.subspace(j) for x in _flat_motion(s)]
        )
        self.root = k.constant("root", [0.0] * 6 + [0.0] * 3 + [-float(g) for g in model.gravity])
        self.X = k.scratch("X", bodies, 12)
        self.velocity, self.acceleration = (
            k.scratch("velocity", bodies + 1, 6),
            k.scratch("acceleration", bodies + 1, 6),
        )
        self.inertia, self.factor, self.force = (
            k.scratch("inertia", bodies, 10),
            k.scratch("factor", bodies, 12),
            k.scratch("force", bodies, 6),
        )
        self.rate, self.by_speed, self.second = (
            k.scratch(name, n, 6) for name in ("rate", "by_speed", "second")
        )
        self.column = k.scratch("column", _COLUMN)
        self.zero = k.scratch("zero", n)
        world = step({"r": 12}, {"v": 6, "a": 6}, lambda r: (r[:6], r[6:]))
        k.call(
            world,
            {"r": self.root.at(0, 12)},
            {"v": self.velocity.at(6 * bodies, 6), "a": self.acceleration.at(6 * bodies, 6)},
        )

    # --- outward ----------------------------------------------------------------------------------

    def outward(
        self, q: Array, v: Array, a: Array | None, external: Sequence[tuple[Frame, View]] = ()
    ) -> None:
        """Motions, forces and Coriolis factors of all bodies; `a` is zero if it is None."""
        k, a = self.k, a or self.zero
        with k.along(len(self.model.joints)) as i, k.choose(self.sort[i]) as choice:
            parent = self.parent[i]
            for name in self.types:
                joint = next(j for j in self.model.joints if j.type == name)
                with choice.case():
                    inputs = {
                        "q": q.at(self.first_q[i], joint.nq),
                        "v": v.at(self.first_v[i], joint.nv),
                        "a": a.at(self.first_v[i], joint.nv),
                        "c": self.constants.at(_CONSTANTS * i, _CONSTANTS),
                        "vp": self.velocity.at(6 * parent, 6),
                        "ap": self.acceleration.at(6 * parent, 6),
                    }
                    freedom = 6 * self.first_v[i]
                    outputs = {
                        "X": self.X.at(12 * i, 12),
                        "velocity": self.velocity.at(6 * i, 6),
                        "acceleration": self.acceleration.at(6 * i, 6),
                        "rate": self.rate.at(freedom, 6 * joint.nv),
                        "by_speed": self.by_speed.at(freedom, 6 * joint.nv),
                        "second": self.second.at(freedom, 6 * joint.nv),
                        "inertia": self.inertia.at(10 * i, 10),
                        "factor": self.factor.at(12 * i, 12),
                        "force": self.force.at(6 * i, 6),
                    }
                    taken, given = _sizes(inputs), _sizes(outputs)
                    k.call(step(taken, given, partial(_outward, joint)), inputs, outputs)
        for frame, wrench in external:
            if frame.body != WORLD:
                force = self.force.at(6 * frame.body, 6)
                k.call(
                    step({"f": 6, "w": 6}, {"g": 6}, partial(_less_wrench, frame)),
                    {"f": force, "w": wrench},
                    {"g": force},
                )

    # --- inward -----------------------------------------------------------------------------------

    def composite(self, M: Array, bias: Array | None) -> None:
        """The mass matrix, both triangles, and the bias forces: of composite inertias, from the
        last body to the first.
        """
        start = step(
            {"I": 10, "s": 6}, {"f": 6}, lambda I, s: (_flat_force(_inertia(I).times(_motion(s))),)
        )
        back = step(
            {"f": 6, "X": 12},
            {"g": 6},
            lambda f, X: (_flat_force(_transform(X).force_back(_force(f))),),
        )
        along = step({"f": 6, "s": 6}, {"x": 1}, lambda f, s: ([_force(f).dot(_motion(s))],))
        dot = step(
            {"f": 6, "s": 6}, {"x": 1, "y": 1}, lambda f, s: ([_force(f).dot(_motion(s))],) * 2
        )

        def project(column: View, c: Index, t: Index) -> None:
            self.k.call(
                dot,
                {"f": column, "s": self.axes.at(6 * t, 6)},
                {"x": self.entry(M, t, c), "y": self.entry(M, c, t)},
            )

        def begin(j: Index, c: Index) -> None:
            self.k.call(
                start,
                {"I": self.inertia.at(10 * j, 10), "s": self.axes.at(6 * c, 6)},
                {"f": self.column.at(0, 6)},
            )
            if bias is not None:
                self.k.call(
                    along,
                    {"f": self.force.at(6 * j, 6), "s": self.axes.at(6 * c, 6)},
                    {"x": bias.at(c, 1)},
                )

        def up(column: View, body: Index) -> None:
            self.k.call(back, {"f": column, "X": self.X.at(12 * body, 12)}, {"g": column})

        self._inward(6, begin, up, project, project, bias is not None)
        self._add_armature(M)

    def gradient(self, dq: Array, dv: Array, M: Array | None) -> None:
        """∂τ/∂q and ∂τ/∂v, and the mass matrix, both triangles."""
        k = self.k
        begin_inputs = {"I": 10, "B": 12, "s": 6, "rate": 6, "by_speed": 6, "second": 6}
        begin_program = step(begin_inputs, {"column": _COLUMN}, _begin_column)
        turn = step(
            {"f": 6, "s": 6, "g": 6},
            {"out": 6},
            lambda f, s, g: [_flat_force(_force(f) + _motion(s).cross_force(_force(g)))],
        )
        climb = step({"column": _COLUMN, "X": 12}, {"out": _COLUMN}, _column_back)
        own = step(
            {"column": _COLUMN, "s": 6},
            {"dq": 1, "dv": 1} | ({"M": 1} if M else {}),
            partial(_own_entries, mass=M is not None),
        )
        sizes = {"column": _COLUMN, "s": 6, "rate": 6, "by_speed": 6, "second": 6}
        results = {"dq": 1, "dv": 1, "dq_t": 1, "dv_t": 1} | ({"M": 1, "M_t": 1} if M else {})
        other = step(sizes, results, partial(_other_entries, mass=M is not None))

        def freedom(c: Index) -> dict[str, View]:
            return {
                name: a.at(6 * c, 6)
                for name, a in (
                    ("s", self.axes),
                    ("rate", self.rate),
                    ("by_speed", self.by_speed),
                    ("second", self.second),
                )
            }

        def begin(j: Index, c: Index) -> None:
            numbers = {"I": self.inertia.at(10 * j, 10), "B": self.factor.at(12 * j, 12)} | freedom(
                c
            )
            k.call(begin_program, numbers, {"column": self.column.at(0, _COLUMN)})

        def finish(j: Index, c: Index) -> None:
            """Seen from below, the column's axis turns the force of the whole subtree, too."""
            by_q = self.column.at(0, 6)
            k.call(
                turn,
                {"f": by_q, "s": self.axes.at(6 * c, 6), "g": self.force.at(6 * j, 6)},
                {"out": by_q},
            )

        def up(column: View, body: Index) -> None:
            k.call(climb, {"column": column, "X": self.X.at(12 * body, 12)}, {"out": column})

        def project_own(column: View, c: Index, t: Index) -> None:
            entries = {"dq": self.entry(dq, t, c), "dv": self.entry(dv, t, c)} | (
                {"M": self.entry(M, t, c)} if M else {}
            )
            k.call(own, {"column": column, "s": self.axes.at(6 * t, 6)}, entries)

        def project(column: View, c: Index, t: Index) -> None:
            entries = {
                "dq": self.entry(dq, t, c),
                "dv": self.entry(dv, t, c),
                "dq_t": self.entry(dq, c, t),
                "dv_t": self.entry(dv, c, t),
            }
            if M:
                entries |= {"M": self.entry(M, t, c), "M_t": self.entry(M, c, t)}
            k.call(other, {"column": column} | freedom(t), entries)

        self._inward(_COLUMN, begin, up, project_own, project, True, finish)
        if M:
            self._add_armature(M)

    def regressor(self, Y: Array, frames: Sequence[Pose]) -> None:
        """Forces by the inertial parameters of each body, told in a frame that is at rest on it:
        the forces of all ten parameters are carried to the root together.
        """
        k, count, bodies = self.k, len(PARAMETERS), len(self.model.joints)
        size = 6 * count
        own = k.constant("frames", [x for frame in frames for x in _flat_pose(frame)])
        forces = k.scratch("forces", size)
        begin = step({"F": 12, "v": 6, "a": 6}, {"f": size}, _parameter_forces)
        back = step({"f": size, "X": 12}, {"g": size}, lambda f, X: [_forces_back(f, X)])
        project = step(
            {"f": size, "s": 6},
            {"y": count},
            lambda f, s: [[_force(f[c : c + 6]).dot(_motion(s)) for c in range(0, size, 6)]],
        )

        def onto(body: Index, j: Index) -> None:
            with k.along(self.size[body]) as e:
                row = self.first_v[body] + e
                entries = Y.at(row * (count * bodies) + j * count, count)
                k.call(
                    project,
                    {"f": forces.at(0, size), "s": self.axes.at(6 * row, 6)},
                    {"y": entries},
                )

        with k.along(bodies) as j:
            motion = {
                "F": own.at(12 * j, 12),
                "v": self.velocity.at(6 * j, 6),
                "a": self.acceleration.at(6 * j, 6),
            }
            k.call(begin, motion, {"f": forces.at(0, size)})
            onto(j, j)
            with k.along(self.path_steps[j]) as m:
                X = self.X.at(12 * self.path[self.path_start[j] + m], 12)
                k.call(back, {"f": forces.at(0, size), "X": X}, {"g": forces.at(0, size)})
                onto(self.path[self.path_start[j] + m + 1], j)

    def _inward(
        self,
        size: int,
        begin: Callable[[Index, Index], None],
        up: Callable[[View, Index], None],
        project_own: Callable[[View, Index, Index], None],
        project: Callable[[View, Index, Index], None],
        forces: bool,
        finish: Callable[[Index, Index], None] = lambda j, c: None,
    ) -> None:
        """From the last body to the first: a column for each of its freedoms is begun, projected on
        its own joint, and carried to the root; then the body is added to its parent.
        """
        k, column = self.k, self.column.at(0, size)
        with k.along(len(self.model.joints), reverse=True) as j:
            with k.along(self.size[j]) as e:
                c = self.first_v[j] + e
                begin(j, c)
                with k.along(self.size[j]) as f:
                    project_own(column, c, self.first_v[j] + f)
                finish(j, c)
                with k.along(self.path_steps[j]) as m:
                    up(column, self.path[self.path_start[j] + m])
                    body = self.path[self.path_start[j] + m + 1]
                    with k.along(self.size[body]) as f:
                        project(column, c, self.first_v[body] + f)
            with k.choose(self.inner[j]) as choice:
                with choice.case():
                    pass
                with choice.case():
                    self._add_to_parent(j, forces)

    def _add_to_parent(self, j: Index, forces: bool) -> None:
        moved = [(self.inertia, 10, _inertia_back)]
        if forces:
            moved += [(self.factor, 12, _factor_back), (self.force, 6, _force_back)]
        for array, size, function in moved:
            target = array.at(size * self.parent[j], size)
            program = step({"x": size, "X": 12, "y": size}, {"z": size}, function)
            self.k.call(
                program,
                {"x": array.at(size * j, size), "X": self.X.at(12 * j, 12), "y": target},
                {"z": target},
            )

    def _add_armature(self, M: Array) -> None:
        armature = self.k.constant("armature", [float(x) for x in self.model.armature])
        plus = step({"x": 1, "y": 1}, {"z": 1}, lambda x, y: ([add(x[0], y[0])],))
        with self.k.along(self.model.nv) as c:
            self.k.call(
                plus, {"x": self.entry(M, c, c), "y": armature.at(c, 1)}, {"z": self.entry(M, c, c)}
            )

    def difference(self, x: Array, y: Array, target: Array) -> None:
        """target = x - y, for vectors over all freedoms."""
        minus = step({"x": 1, "y": 1}, {"z": 1}, lambda x, y: ([sub(x[0], y[0])],))
        with self.k.each(self.model.nv) as c:
            self.k.call(minus, {"x": x.at(c, 1), "y": y.at(c, 1)}, {"z": target.at(c, 1)})

    def entry(self, matrix: Array, row: Index, column: Index) -> View:
        return matrix.at(row * self.model.nv + column, 1)


def _sizes(views: dict[str, View]) -> dict[str, int]:
    return {name: view.shape[1] for name, view in views.items()}


# --- one body, over flat vectors ------------------------------------------------------------------


def _body_constants(model: Model, i: int) -> list[float]:
    pose, (m, h, I) = model.placements[i], model.inertias[i]
    return [*(x for row in pose.R for x in row), *pose.p, m, *h, *I, float(model.joints[i].pitch)]


def _motion(x: Sequence[Any]) -> Motion:
    return Motion(tuple(x[:3]), tuple(x[3:6]))


def _force(x: Sequence[Any]) -> Force:
    return Force(tuple(x[:3]), tuple(x[3:6]))


def _matrix(x: Sequence[Any]) -> Matrix3:
    return tuple(x[:3]), tuple(x[3:6]), tuple(x[6:9])


def _transform(x: Sequence[Any]) -> Transform:
    return Transform(_matrix(x), tuple(x[9:12]))


def _inertia(x: Sequence[Any]) -> Inertia:
    return Inertia(x[0], tuple(x[1:4]), tuple(x[4:10]))


def _factor(x: Sequence[Any]) -> CoriolisFactor:
    return CoriolisFactor(_matrix(x), tuple(x[9:12]))


def _flat_motion(m: Motion) -> list[Any]:
    return [*m.angular, *m.linear]


def _flat_force(f: Force) -> list[Any]:
    return [*f.angular, *f.linear]


def _flat_inertia(I: Inertia) -> list[Any]:
    m, h, s = I
    return [m, *h, *s]


def _flat_factor(B: CoriolisFactor) -> list[Any]:
    return [*(x for row in B.K for x in row), *B.p]


def _outward(joint: Joint, q: Any, v: Any, a: Any, c: Any, vp: Any, ap: Any) -> list[list[Any]]:
    joint = dataclasses.replace(joint, pitch=c[22]) if joint.kind.has_pitch else joint
    X = joint.kind.transform(joint, tuple(q)) @ Transform(transpose(_matrix(c)), tuple(c[9:12]))
    I, S = _inertia(c[12:22]), joint.kind.subspace(joint)
    v_parent, a_parent, vJ = X.motion(_motion(vp)), X.motion(_motion(ap)), combine(S, tuple(v))
    velocity = v_parent + vJ
    rate = [v_parent.cross(s) for s in S]
    by_speed = [r.scale(_KAPPA) for r in rate]
    if len(S) > 1:
        by_speed = [r + vJ.cross(s).scale(_KAPPA / 2) for r, s in zip(by_speed, S, strict=True)]
    second = [a_parent.cross(s) + v_parent.cross(r) for r, s in zip(rate, S, strict=True)]
    acceleration = a_parent + combine(rate, tuple(v)) + combine(S, tuple(a))
    factor = body_factor(I, velocity.scale(_KAPPA))
    force = I.times(acceleration) + factor.times(velocity).scale(1 / _KAPPA)
    motions = [
        [x for m in several for x in _flat_motion(m)] for several in (rate, by_speed, second)
    ]
    flat = [*(x for row in X.E for x in row), *X.r]
    return [
        flat,
        _flat_motion(velocity),
        _flat_motion(acceleration),
        *motions,
        _flat_inertia(I),
        _flat_factor(factor),
        _flat_force(force),
    ]


def _less_wrench(frame: Frame, f: Any, w: Any) -> list[list[Any]]:
    """Without a wrench on a frame of the body, force first."""
    offset = Transform(transpose(frame.placement.R), frame.placement.p)
    wrench = offset.force_back(Force(tuple(w[3:]), tuple(w[:3])))
    return [[sub(x, y) for x, y in zip(f, _flat_force(wrench), strict=True)]]


def _flat_pose(pose: Pose) -> list[Any]:
    """As a transform to it."""
    return [*(x for row in transpose(pose.R) for x in row), *pose.p]


def _parameter_forces(F: Any, v: Any, a: Any) -> list[list[Any]]:
    """Of each inertial parameter in a frame, the force that it takes to move it, in the body's
    frame.
    """
    frame = _transform(F)
    velocity, acceleration = frame.motion(_motion(v)), frame.motion(_motion(a))
    forces = [
        unit.times(acceleration) + velocity.cross_force(unit.times(velocity))
        for unit in unit_inertias()
    ]
    return [[x for f in forces for x in _flat_force(frame.force_back(f))]]


def _forces_back(forces: Any, X: Any) -> list[Any]:
    transform = _transform(X)
    return [
        x
        for k in range(0, len(forces), 6)
        for x in _flat_force(transform.force_back(_force(forces[k : k + 6])))
    ]


def _begin_column(I: Any, B: Any, s: Any, rate: Any, by_speed: Any, second: Any) -> list[list[Any]]:
    inertia, factor, axis = _inertia(I), _factor(B), _motion(s)
    by_q = inertia.times(_motion(second)) + factor.times(_motion(rate)).scale(2 / _KAPPA)
    by_v = inertia.times(_motion(by_speed)) + factor.times(axis)
    return [
        [
            x
            for f in (by_q, by_v, inertia.times(axis), factor.transposed_times(axis))
            for x in _flat_force(f)
        ]
    ]


def _column_back(column: Any, X: Any) -> list[list[Any]]:
    return [_forces_back(column, X)]


def _own_entries(column: Any, s: Any, mass: bool) -> list[list[Any]]:
    by_q, by_v, momentum = (_force(column[k : k + 6]) for k in (0, 6, 12))
    found = [[by_q.dot(_motion(s))], [by_v.dot(_motion(s))]]
    return [*found, [momentum.dot(_motion(s))]] if mass else found


def _other_entries(
    column: Any, s: Any, rate: Any, by_speed: Any, second: Any, mass: bool
) -> list[list[Any]]:
    by_q, by_v, momentum, back = (_force(column[k : k + 6]) for k in (0, 6, 12, 18))
    axis = _motion(s)
    dq_t = add(mul(2 / _KAPPA, back.dot(_motion(rate))), momentum.dot(_motion(second)))
    dv_t = add(back.dot(axis), momentum.dot(_motion(by_speed)))
    found = [[by_q.dot(axis)], [by_v.dot(axis)], [dq_t], [dv_t]]
    return [*found, *([[momentum.dot(axis)]] * 2)] if mass else found


def _inertia_back(x: Any, X: Any, y: Any) -> list[list[Any]]:
    return [_flat_inertia(_inertia(y) + _transform(X).inertia_back(_inertia(x)))]


def _factor_back(x: Any, X: Any, y: Any) -> list[list[Any]]:
    return [_flat_factor(_factor(y) + factor_back(_transform(X), _factor(x)))]


def _force_back(x: Any, X: Any, y: Any) -> list[list[Any]]:
    return [_flat_force(_force(y) + _transform(X).force_back(_force(x)))]
