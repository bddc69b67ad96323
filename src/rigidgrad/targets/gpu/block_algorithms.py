"""Algorithms for the threads of a block: Plancher 2022, Algorithms 4, 10 and 11, as operations on vectors in shared memory (`code/operations.h`).

Each function takes a `Body` of work and returns values; what can run at the same time is found by `schedule.py`. The model is canonical: the axes of all joints
with one freedom are z.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from rigidgrad.algorithms.joints import motion_subspace
from rigidgrad.model.model import WORLD, Frame, Model
from rigidgrad.targets.gpu.schedule import Block, Number, Value

Place = Value | Number
_UNIT_Z = (0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
_IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)


@dataclass
class Work:
    """The block of one function of a model: its inputs in shared memory, its constants, and what it records."""

    model: Model
    block: Block = field(default_factory=Block)
    inputs: dict[str, Value] = field(default_factory=dict)
    constants: dict[tuple[float, ...], Value] = field(default_factory=dict)

    def input(self, name: str, size: int) -> Value:
        """Numbers that the first stage brings into shared memory."""
        value = self.inputs[name] = self.block.value(size, array=True)
        self.block.add(f"load:{name}", (), (value,))
        return value

    def constant(self, numbers: Sequence[float]) -> Value:
        key = tuple(numbers)
        if key not in self.constants:
            self.constants[key] = self.block.value(len(key), array=True)
            self.block.add("load:constants", (), (self.constants[key],))
        return self.constants[key]

    # --- the tree ----------------------------------------------------------------------------------------------------------------

    @cached_property
    def z(self) -> int:
        """Whether every joint turns about z."""
        return int(all(j.kind.is_hinge for j in self.model.joints))

    def freedoms(self, body: int) -> range:
        joint = self.model.joints[body]
        return range(joint.v, joint.v + joint.nv)

    @cached_property
    def body_of(self) -> list[int]:
        return [i for i in self.model.bodies for _ in self.freedoms(i)]

    @cached_property
    def subtree(self) -> list[list[int]]:
        """The bodies that hang on each body, itself first; their freedoms are neighbours."""
        below: list[list[int]] = [[i] for i in self.model.bodies]
        for i in reversed(self.model.bodies):
            if self.model.parents[i] != WORLD:
                below[self.model.parents[i]] += below[i]
        return [sorted(b) for b in below]

    @cached_property
    def ranges(self) -> list[tuple[int, int]]:
        """For each freedom the range of those in its part of the tree below the world: M⁻¹ is zero outside."""
        result = []
        for body in self.body_of:
            part = self.subtree[self.model.ancestors[body][-1]]
            result.append((self.freedoms(part[0]).start, self.freedoms(part[-1]).stop))
        return result

    @cached_property
    def S(self) -> list[tuple[float, ...]]:
        return [(*m.angular, *m.linear) for j in self.model.joints for m in motion_subspace(j)]

    # --- small pieces ------------------------------------------------------------------------------------------------------------

    def one(self, kind: str, reads: Sequence, size: int, **more) -> Value:
        return self.block.add(kind, reads, (size,), **more)[0]

    def call(self, name: str, *flags: int) -> str:
        return f"{name}({', '.join(map(str, flags))})" if flags else name

    def transforms(self, bodies: Sequence[int] | None = None) -> dict[int, Value]:
        """X of each body."""
        q = self.inputs["q"]
        chosen = self.model.bodies if bodies is None else bodies
        joints = self.model.joints
        return {i: self.one(f"joint_{joints[i].kind.moves_as}", (q[joints[i].q], i), 12) for i in chosen}

    def along(self, k: int, f: Value) -> Number:
        """S_k · f: a number of f where S_k is a unit vector."""
        units = [c for c, x in enumerate(self.S[k]) if x != 0.0]
        if len(units) == 1 and self.S[k][units[0]] == 1.0:
            return f[units[0]]
        return self.one("project", (f, k), 1)[0]


@dataclass
class Sweep:
    """What inverse dynamics leaves: per body X, v, a, I v, and the force across its joint."""

    X: dict[int, Value]
    v: list[Value]
    a: list[Value]
    h: list[Value]
    f: list[Value]


def inverse_dynamics(w: Work, X: dict[int, Value], v: Value | None, a: Value | None, external: Mapping[str, Value] | None = None) -> Sweep:
    """Algorithm 10."""
    sweep = outward(w, X, v, a, external)
    transmit(w, X, sweep.f)
    return sweep


def outward(w: Work, X: dict[int, Value], v: Value | None, a: Value | None, external: Mapping[str, Value] | None = None) -> Sweep:
    """Both outward loops of Algorithm 10 in one, with a_0 = -gravity; f are the forces on each body alone."""
    model = w.model
    gravity = w.constant((0.0, 0.0, 0.0, *(-g for g in model.gravity)))
    zero = w.constant((0.0,) * 6)
    sweep = Sweep(X, [], [], [], [])
    for i in model.bodies:
        first, count = w.freedoms(i).start, len(w.freedoms(i))
        parent = model.parents[i]
        above = gravity if parent == WORLD else sweep.a[parent]
        if v is None:
            ai, f = w.block.add("still", (X[i], above, i), (6, 6))
            vi = hi = zero
        else:
            acceleration = 0 if a is None else a[first]
            kind = w.call("forward", w.z, int(a is not None))
            before = zero if parent == WORLD else sweep.v[parent]
            vi, ai, f, hi = w.block.add(kind, (X[i], before, above, v[first], acceleration, i, first, count), (6, 6, 6, 6))
        sweep.v.append(vi)
        sweep.a.append(ai)
        sweep.h.append(hi)
        sweep.f.append(f)
    for name, force in (external or {}).items():
        frame = model.frame(name)
        if frame.body != WORLD:
            sweep.f[frame.body] = w.one("wrench", (sweep.f[frame.body], offset(w, frame), force), 6)
    return sweep


def transmit(w: Work, X: Mapping[int, Value], f: list[Value]) -> None:
    """The inward loop: f_λ += Xᵀ f, in place."""
    for i in reversed(w.model.bodies):
        f[i] = collected(w, f[i], [(X[c], f[c]) for c in w.model.children[i]])


def collected(w: Work, own: Value | None, terms: Sequence[tuple[Value, Value]]) -> Value:
    """own + Σ Xᵀ f."""
    if not terms:
        assert own is not None
        return own
    if own is None:
        assert len(terms) == 1
        return w.one("back", terms[0], 6)
    if len(terms) == 1:
        return w.one("back_add", (own, *terms[0]), 6)
    return w.one("back_sum", (own,), 6, listed=terms)


def joint_forces(w: Work, f: Sequence[Value], a: Value | None) -> list[Number]:
    """τ: a number for each freedom."""
    result = []
    for k, body in enumerate(w.body_of):
        if a is not None and w.model.armature[k] != 0.0:
            result.append(w.one(w.call("torque", w.z, 1), (f[body], k, a[k]), 1)[0])
        else:
            result.append(w.along(k, f[body]))
    return result


def gradient(w: Work, sweep: Sweep, v: Value) -> tuple[dict[tuple[int, int], Number], dict[tuple[int, int], Number]]:
    """Algorithm 4: ∂τ/∂q and ∂τ/∂q̇ as numbers by (row, column), zero columns left out."""
    model, X = w.model, sweep.X
    motions: list[dict[tuple[str, int], tuple[Value, Value]]] = []  # per body, by column: ∂v, ∂a
    forces: list[dict[tuple[str, int], Value]] = []
    zero = w.constant((0.0,) * 6)
    gravity = w.constant((0.0, 0.0, 0.0, *(-g for g in model.gravity)))
    for i in model.bodies:
        first, count = w.freedoms(i).start, len(w.freedoms(i))
        parent = model.parents[i]
        own: dict[tuple[str, int], tuple[Value, Value]] = {}
        if parent != WORLD:
            for key, (dv, da) in motions[parent].items():
                pair = w.block.add(w.call("column", w.z), (X[i], dv, da, v[first], first, count), (6, 6))
                own[key] = pair[0], pair[1]
        before, above = (zero, gravity) if parent == WORLD else (sweep.v[parent], sweep.a[parent])
        for k in w.freedoms(i):
            fields = (X[i], before, above, v[first], k, first, count)
            if w.z:
                vq, aq = w.block.add("own_columns(1)", fields, (6, 6))
                own["q", k], own["v", k] = (vq, aq), (w.constant(_UNIT_Z), vq)
            else:
                vq, aq, av = w.block.add("own_columns(0)", fields, (6, 6, 6))
                own["q", k], own["v", k] = (vq, aq), (w.constant(w.S[k]), av)
        motions.append(own)
        forces.append({key: w.one("force", (da, dv, sweep.v[i], sweep.h[i], i), 6, together="force") for key, (dv, da) in own.items()})
    results: dict[str, dict[tuple[int, int], Number]] = {"q": {}, "v": {}}
    for i in reversed(model.bodies):
        for key in forces[i] | {key: None for c in model.children[i] for key in forces[c]}:
            terms = [(c, forces[c][key]) for c in model.children[i] if key in forces[c]]
            kind, k = key
            if kind == "q" and terms and k in w.freedoms(terms[0][0]):
                c, df = terms[0]
                forces[i][key] = w.one(w.call("back_own", w.z), (X[c], df, sweep.f[c], k), 6)
            else:
                forces[i][key] = collected(w, forces[i].get(key), [(X[c], df) for c, df in terms])
        for (kind, column), df in forces[i].items():
            for row in w.freedoms(i):
                results[kind][row, column] = w.along(row, df)
    return results["q"], results["v"]


class Freedoms:
    """The tree freedom by freedom: those of one joint follow each other without a transform between."""

    def __init__(self, w: Work, X: Mapping[int, Value]):
        self.n = w.model.nv
        identity = w.constant(_IDENTITY)
        self.parents: list[int] = []
        self.transform: list[Value] = []
        self.inertia: list[int] = []  # the body whose inertia the freedom carries, or one without
        for k, body in enumerate(w.body_of):
            own, above = w.freedoms(body), w.model.parents[body]
            first = k == own.start
            self.parents.append(k - 1 if not first else WORLD if above == WORLD else w.freedoms(above).stop - 1)
            self.transform.append(X[body] if first else identity)
            self.inertia.append(body if k == own.stop - 1 else len(w.model.joints))
        self.moves = [int(t is not identity) for t in self.transform]
        self.hangs = [int(p != WORLD) for p in self.parents]
        self.children: list[list[int]] = [[] for _ in range(self.n)]
        depth: list[int] = []
        for k, p in enumerate(self.parents):
            depth.append(0 if p == WORLD else depth[p] + 1)
            if p != WORLD:
                self.children[p].append(k)
        carries = {depth[k] for k in range(self.n) if self.children[k]}
        self.handed_on = [int(d in carries) for d in depth]  # whether anyone at this depth has children
        self.below: list[list[int]] = [[] for _ in range(self.n)]
        for k in reversed(range(self.n)):
            self.below[k] = sorted(x for c in self.children[k] for x in (c, *self.below[c]))


@dataclass
class Factor:
    """U and D⁻¹ of each freedom, as 8 numbers; the columns of M⁻¹ that start with it, where they are wanted."""

    tree: Freedoms
    U: dict[int, Value]
    F: dict[int, Value]  # the force that freedom k's own column hands to its parent
    A: dict[int, Value]  # the acceleration of a root's own column


def factorize(w: Work, X: Mapping[int, Value], inverse: Value | None) -> Factor:
    """Articulated inertias from the leaves up: lines 4-8 and 12-15 of Algorithm 11. With `inverse`, an array (nv, nv), also what its columns start from."""
    t = Freedoms(w, X)
    P: dict[int, Value] = {}
    factor = Factor(t, {}, {}, {})
    for k in reversed(range(t.n)):
        kind = w.call("articulated", w.z, t.moves[k], t.hangs[k], int(inverse is not None))
        reads = (t.transform[k], t.inertia[k], k)
        listed = [(P[c],) for c in t.children[k]]
        if t.hangs[k]:
            P[k], factor.U[k], *column = w.block.add(kind, reads, (21, 8, 6) if inverse else (21, 8), listed=listed)
            if column:
                factor.F[k] = column[0]
        else:
            factor.U[k], *column = w.block.add(kind, reads, (8, inverse[k * t.n + k], 6) if inverse else (8,), listed=listed)
            if column:
                factor.A[k] = column[1]
    return factor


def minv(w: Work, factor: Factor, inverse: Value) -> None:
    """Algorithm 11: fills the array (nv, nv) within the ranges of the parts of the tree."""
    t, n = factor.tree, factor.tree.n
    F: list[dict[int, Value]] = [{} for _ in range(n)]  # the force of column c at k, in the frame of k
    A: list[dict[int, Value]] = [{} for _ in range(n)]
    m: dict[tuple[int, int], Place] = {}
    for k in reversed(range(n)):
        if t.hangs[k]:
            F[t.parents[k]][k] = factor.F[k]
            m[k, k] = factor.U[k][6]
        else:
            A[k][k] = factor.A[k]
        for c in t.below[k]:
            kind = w.call("inverse_back", w.z, t.moves[k], t.hangs[k])
            reads: tuple[Place | int, ...] = (F[k][c], factor.U[k], t.transform[k], k)
            if t.hangs[k]:
                m[k, c], F[t.parents[k]][c] = w.block.add(kind, reads, (1, 6))
            else:
                *_, A[k][c] = w.block.add(kind, reads, (inverse[k * n + c], inverse[c * n + k], 6))
    zero = w.constant((0.0,) * 6)
    for k in range(n):
        if not t.hangs[k]:
            continue
        for c in range(k, w.ranges[k][1]):
            reads = (A[t.parents[k]][c], factor.U[k], t.transform[k], k, m.get((k, c), zero[0]))
            A[k][c] = _handed_on(w, t, k, reads, (inverse[k * n + c], inverse[c * n + k]))


def _handed_on(w: Work, t: Freedoms, k: int, reads: Sequence, numbers: tuple[Number, Number]) -> Value:
    needed = t.handed_on[k]
    return w.block.add(w.call("inverse_forward", w.z, t.moves[k], needed), reads, [*numbers, 6] if needed else numbers)[-1]


def accelerations(w: Work, factor: Factor, f: Sequence[Value], tau: Value) -> Value:
    """q̈ with M q̈ = τ - c, by elimination along the tree; f are the forces on each body for q̈ = 0. An array (nv,).

    M⁻¹ times the right side would do for one result; but it is not backward stable, and the gradient shows it in float32.
    """
    t = factor.tree
    a = w.block.value(t.n, array=True)
    zero = w.constant((0.0,) * 6)
    u: dict[int, Value] = {}
    G: dict[int, Value] = {}
    A: dict[int, Value] = {}
    for k in reversed(range(t.n)):
        own = f[t.inertia[k]] if t.inertia[k] < len(f) else zero
        kind = w.call("solve_back", w.z, t.moves[k], t.hangs[k])
        reads, listed = (own, factor.U[k], t.transform[k], k, tau[k]), [(G[c],) for c in t.children[k]]
        if t.hangs[k]:
            u[k], G[k] = w.block.add(kind, reads, (1, 6), listed=listed)
        else:
            *_, A[k] = w.block.add(kind, reads, (a[k], a[k], 6), listed=listed)
    for k in range(t.n):
        if t.hangs[k]:
            A[k] = _handed_on(w, t, k, (A[t.parents[k]], factor.U[k], t.transform[k], k, u[k]), (a[k], a[k]))
    return a


def mass_matrix(w: Work, X: Mapping[int, Value]) -> Value:
    """Composite bodies level by level; then a thread a column walks up to the root. An array (nv, nv), the upper triangle where it is not zero."""
    model, n = w.model, w.model.nv
    result = w.block.value(n * n, array=True)
    I: dict[int, Value] = {}
    P: dict[int, Value] = {}
    for i in reversed(model.bodies):
        listed = [(P[c],) for c in model.children[i]]
        if model.parents[i] == WORLD:
            (I[i],) = w.block.add("composite(0)", (X[i], i), (10,), listed=listed)
        else:
            I[i], P[i] = w.block.add("composite(1)", (X[i], i), (10, 10), listed=listed)
    for k, body in enumerate(w.body_of):
        path = model.ancestors[body]
        steps = [(X[child], w.freedoms(i).start, len(w.freedoms(i))) for child, i in pairwise(path)]
        fields = (I[body], k, result, n, w.freedoms(body).start)
        w.block.add(w.call("mass_column", w.z), fields, (), stores=(result,), listed=steps, together="mass")
    return result


def offset(w: Work, frame: Frame) -> Value:
    """From the body's frame to the named one."""
    R, p = frame.placement.R, frame.placement.p
    return w.constant((*(R[c][r] for r in range(3) for c in range(3)), *p))
