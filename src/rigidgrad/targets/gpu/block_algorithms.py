"""Algorithms for the threads of a block that go from body to body, as operations on vectors in
shared memory (`code/operations.h`): the inverse of the mass matrix (Plancher 2022, Algorithm 11)
and forward dynamics by its factors.

Each function takes the `Work` of a block and returns values; what can run at the same time is found
by `schedule.py`. The model is canonical: the axes of all joints with one freedom are z.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rigidgrad.algorithms.joints import motion_subspace
from rigidgrad.model.model import WORLD, Frame, Model
from rigidgrad.targets.gpu.schedule import Block, Number, Value

Place = Value | Number
_UNIT_Z = (0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)


@dataclass
class Work:
    """The block of one function of a model: its inputs in shared memory, its constants, and what it
    records.
    """

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

    # --- the tree ---------------------------------------------------------------------------------

    @cached_property
    def z(self) -> int:
        """Whether every joint turns about z, as fast as the numbers of v say."""
        return int(all(j.kind.is_hinge and j.multiplier == 1.0 for j in self.model.joints))

    def freedoms(self, body: int) -> range:
        joint = self.model.joints[body]
        return range(joint.dof, joint.dof + joint.nv)

    @cached_property
    def source(self) -> list[int]:
        """For each freedom the number of v that moves it: a mimic joint's is its master's."""
        return [j.v + k for j in self.model.joints for k in range(j.nv)]

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
        """For each freedom the range of those in its part of the tree below the world: M⁻¹ is zero
        outside.
        """
        if self.model.has_mimic:
            return [(0, self.model.nv)] * self.model.nv
        result = []
        for body in self.body_of:
            part = self.subtree[self.model.ancestors[body][-1]]
            result.append((self.freedoms(part[0]).start, self.freedoms(part[-1]).stop))
        return result

    @cached_property
    def S(self) -> list[tuple[float, ...]]:
        """What a unit of v moves: of a mimic joint, its axis times its multiplier."""
        return [
            tuple(x * j.multiplier for x in (*m.angular, *m.linear))
            for j in self.model.joints
            for m in motion_subspace(j)
        ]

    @cached_property
    def armature(self) -> list[float]:
        scales = [j.multiplier**2 for j in self.model.joints for _ in range(j.nv)]
        return [x * scale for x, scale in zip(self.model.armature, scales, strict=True)]

    # --- small pieces -----------------------------------------------------------------------------

    def one(
        self, kind: str, reads: Sequence[Value | Number | int], size: int, **more: Any
    ) -> Value:
        return self.block.add(kind, reads, (size,), **more)[0]

    def call(self, name: str, *flags: int) -> str:
        return f"{name}({', '.join(map(str, flags))})" if flags else name

    def total(self, numbers: Sequence[Number]) -> Number:
        if len(numbers) == 1:
            return numbers[0]
        return self.one("total", (), 1, listed=[(x,) for x in numbers])[0]

    def transforms(self, bodies: Sequence[int] | None = None) -> dict[int, Value]:
        """X of each body."""
        found = {}
        for i in self.model.bodies if bodies is None else bodies:
            joint = self.model.joints[i]
            q = self.inputs["q"][joint.q]
            if joint.is_mimic:
                q = self.one("follow", (q, i), 1)[0]
            found[i] = self.one(f"joint_{joint.kind.moves_as}", (q, i), 12)
        return found


class Freedoms:
    """The tree freedom by freedom: those of one joint follow each other without a transform
    between.
    """

    def __init__(self, w: Work, X: Mapping[int, Value]):
        self.n = w.model.nv
        identity = w.constant(IDENTITY)
        self.parents: list[int] = []
        self.transform: list[Value] = []
        self.inertia: list[int] = []  # the body whose inertia the freedom carries, or one without
        for k, body in enumerate(w.body_of):
            own, above = w.freedoms(body), w.model.parents[body]
            first = k == own.start
            self.parents.append(
                k - 1 if not first else WORLD if above == WORLD else w.freedoms(above).stop - 1
            )
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
        # whether anyone at this depth has children
        self.handed_on = [int(d in carries) for d in depth]
        self.below: list[list[int]] = [[] for _ in range(self.n)]
        for k in reversed(range(self.n)):
            self.below[k] = sorted(x for c in self.children[k] for x in (c, *self.below[c]))


@dataclass
class Factor:
    """U and D⁻¹ of each freedom, as 8 numbers; the columns of M⁻¹ that start with it, where they
    are wanted.
    """

    tree: Freedoms
    U: dict[int, Value]
    F: dict[int, Value]  # the force that freedom k's own column hands to its parent
    A: dict[int, Value]  # the acceleration of a root's own column


def factorize(w: Work, X: Mapping[int, Value], inverse: Value | None) -> Factor:
    """Articulated inertias from the leaves up: lines 4-8 and 12-15 of Algorithm 11. With `inverse`,
    an array (nv, nv), also what its columns start from.
    """
    t = Freedoms(w, X)
    P: dict[int, Value] = {}
    factor = Factor(t, {}, {}, {})
    for k in reversed(range(t.n)):
        kind = w.call("articulated", w.z, t.moves[k], t.hangs[k], int(inverse is not None))
        reads = (t.transform[k], t.inertia[k], k)
        listed = [(P[c],) for c in t.children[k]]
        if t.hangs[k]:
            P[k], factor.U[k], *column = w.block.add(
                kind, reads, (21, 8, 6) if inverse else (21, 8), listed=listed
            )
            if column:
                factor.F[k] = column[0]
        else:
            factor.U[k], *column = w.block.add(
                kind, reads, (8, inverse[k * t.n + k], 6) if inverse else (8,), listed=listed
            )
            if column:
                factor.A[k] = column[1]
    return factor


def minv(w: Work, factor: Factor, inverse: Value) -> None:
    """Algorithm 11: fills the array (nv, nv) within the ranges of the parts of the tree."""
    t, n = factor.tree, factor.tree.n
    # the force of column c at k, in the frame of k
    F: list[dict[int, Value]] = [{} for _ in range(n)]
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


def _handed_on(
    w: Work,
    t: Freedoms,
    k: int,
    reads: Sequence[Value | Number | int],
    numbers: tuple[Number, Number],
) -> Value:
    needed = t.handed_on[k]
    return w.block.add(
        w.call("inverse_forward", w.z, t.moves[k], needed),
        reads,
        [*numbers, 6] if needed else numbers,
    )[-1]


def accelerations(w: Work, factor: Factor, f: Sequence[Value], tau: Value) -> Value:
    """q̈ with M q̈ = τ - c, by elimination along the tree; f are the forces on each body for q̈ =
    0. An array (nv,).

    M⁻¹ times the right side would do for one result; but it is not backward stable, and the
    gradient shows it in float32.
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
        reads, listed = (
            (own, factor.U[k], t.transform[k], k, tau[k]),
            [(G[c],) for c in t.children[k]],
        )
        if t.hangs[k]:
            u[k], G[k] = w.block.add(kind, reads, (1, 6), listed=listed)
        else:
            *_, A[k] = w.block.add(kind, reads, (a[k], a[k], 6), listed=listed)
    for k in range(t.n):
        if t.hangs[k]:
            A[k] = _handed_on(
                w, t, k, (A[t.parents[k]], factor.U[k], t.transform[k], k, u[k]), (a[k], a[k])
            )
    return a


def offset(w: Work, frame: Frame) -> Value:
    """From the body's frame to the named one."""
    R, p = frame.placement.R, frame.placement.p
    return w.constant((*(R[c][r] for r in range(3) for c in range(3)), *p))
