"""Gradients from what whole subtrees feel (Singh, Russell and Wensing 2022), in any gauge and for
joints with any number of freedoms.

Perturbing freedom s of joint j changes the velocity of its whole subtree by one spatial vector and
its acceleration by two: with ψ̇ = v_λ × s, ψ̈ = a_λ × s + v_λ × ψ̇ and the subtree's inertia I and
Coriolis factor B (of which B v = v ×* I v),

    ∂f/∂q = I ψ̈ + 2 B ψ̇ (+ s ×* f towards the root),      ½ ∂f/∂q̇ = I (ψ̇ + ½ v_J × s) + B s.

B and ψ̇ are linear in the velocity: with κ times the velocity in them, the second is κ/2 ∂f/∂q̇. κ
= 2 needs no doubling of results; κ = 1 shares more with a computation of the bias. A row of a body
below j reads the same from the other side, through I s and Bᵀ s of that body. Columns are complete,
and handed out, from the last joint to the first, so that what follows can use them while they are
at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rigidgrad.algorithms import ltl
from rigidgrad.algorithms.coriolis_factor import CoriolisFactor, body_factor, factor_back
from rigidgrad.algorithms.fast.gauge import Articulation, Gauge, articulate
from rigidgrad.algorithms.fast.newton_euler import newton_euler
from rigidgrad.algorithms.joints import (
    External,
    Matrix,
    Vector,
    across,
    body_transforms,
    combine,
    gravity_acceleration,
    joint_space,
    parent_value,
    project,
    velocities,
)
from rigidgrad.algorithms.matrices import minus_product, transposed_product
from rigidgrad.algorithms.results import (
    AbaDerivatives,
    FactoredGradient,
    FusedGradient,
    RneaDerivatives,
)
from rigidgrad.algorithms.sparsity import supports
from rigidgrad.model.model import WORLD, Model
from rigidgrad.scalars import Scalar, add, is_constant, mul, neg, sub
from rigidgrad.spatial import (
    IDENTITY3,
    ZERO_MOTION,
    Force,
    Inertia,
    Motion,
    add3,
    cross3,
    dot3,
    rotate,
    sub3,
)

Rows = list[list[Scalar]]


class Columns(NamedTuple):
    """A joint's columns of ∂τ/∂q and κ/2 ∂τ/∂v, over all degrees of freedom."""

    joint: int
    dq: list[list[Scalar]]
    dv: list[list[Scalar]]


def subtree_rnea_derivatives(
    model: Model, q: Vector, v: Vector, a: Vector, external: External | None = None, *, gauge: Gauge
) -> RneaDerivatives[Matrix]:
    """The gradient of rnea."""
    tree = articulate(model, q, gauge, external)
    base = FreeBase.of(model, q, v)
    n = model.dofs
    dq: Rows = [[0.0] * n for _ in range(n)]
    dv: Rows = [[0.0] * n for _ in range(n)]
    v_used, a_used = base.at_rest(v, a) if base else (v, a)
    for columns in gradient_columns(model, tree, v_used, a_used, 2.0):
        start = model.joints[columns.joint].dof
        for k, (cq, cv) in enumerate(zip(columns.dq, columns.dv, strict=True), start):
            for row in range(n):
                dq[row][k], dv[row][k] = cq[row], cv[row]
    M = composite_mass_matrix(model, tree)
    if base:
        for row in range(n):
            lever = (M[row][0], M[row][1], M[row][2])
            for k in range(3):
                dq[row][k], dq[row][3 + k] = 0.0, dot3(lever, base.gravity_turn(k))
                dv[row][k] = dot3(lever, base.speed_turn(k))
                dv[row][3 + k] = add(dv[row][3 + k], dot3(lever, base.spin_turn(k)))
    return RneaDerivatives(project(model, dq), project(model, dv), project(model, M))


def subtree_aba_derivatives(
    model: Model,
    q: Vector,
    v: Vector,
    tau: Vector,
    external: External | None = None,
    *,
    gauge: Gauge,
) -> AbaDerivatives[Matrix]:
    """The gradient of aba."""
    return forward_gradient(model, q, v, tau, external, gauge=gauge)[1]


def forward_gradient(
    model: Model,
    q: Vector,
    v: Vector,
    tau: Vector,
    external: External | None = None,
    *,
    gauge: Gauge,
) -> tuple[Vector, AbaDerivatives[Matrix]]:
    """The acceleration and the gradient of aba. Columns are solved as they come, unless mimic
    joints mix them.
    """
    tree = articulate(model, q, gauge, external)
    factor = ltl.factorize(
        project(model, composite_mass_matrix(model, tree)), supports(model), model.joints
    )
    c = newton_euler(model, q, v, (0.0,) * model.nv, external)
    a = ltl.solve(factor, [sub(t, x) for t, x in zip(tau, c, strict=True)])
    if model.has_mimic:
        d = subtree_rnea_derivatives(model, q, v, a, external, gauge=gauge)
        solved = [
            [ltl.solve(factor, [neg(x) for x in column]) for column in zip(*m, strict=True)]
            for m in (d.dq, d.dv)
        ]
        dq, dv = (tuple(zip(*columns, strict=True)) for columns in solved)
        return a, AbaDerivatives(dq, dv, ltl.inverse(factor))
    base = FreeBase.of(model, q, v)
    minus = [neg(x) for x in factor.inverse_d]
    minus_two = [mul(-2.0, x) for x in factor.inverse_d]
    inverse, W = ltl.inverse(factor), ltl.inverse_triangle(factor)
    columns_q: list[Vector] = [()] * model.nv
    columns_v: list[Vector] = [()] * model.nv
    v_used, a_used = base.at_rest(v, a) if base else (v, a)
    for columns in gradient_columns(model, tree, v_used, a_used, 1.0):
        start = model.joints[columns.joint].dof
        for k, (cq, cv) in enumerate(zip(columns.dq, columns.dv, strict=True), start):
            columns_q[k] = ltl.multiply(W, minus, cq)
            columns_v[k] = ltl.multiply(W, minus_two, cv)
    if base:
        rest = (0.0,) * (model.nv - 3)
        for k in range(3):
            columns_q[k] = (0.0,) * model.nv
            columns_q[3 + k] = (*_minus3(base.gravity_turn(k)), *rest)
            columns_v[k] = (*_minus3(base.speed_turn(k)), *rest)
            spun = sub3(columns_v[3 + k][:3], base.spin_turn(k))
            columns_v[3 + k] = (*spun, *columns_v[3 + k][3:])
    return a, AbaDerivatives(
        tuple(zip(*columns_q, strict=True)), tuple(zip(*columns_v, strict=True)), inverse
    )


class SolveParts(NamedTuple):
    """What the gradient of aba is made of: with M = LᵀDL and W = L⁻¹, ∂a/∂q = W (-W D⁻¹)ᵀ ∂τ/∂q.

    The columns of a free base that need no recursion are zero in `dq` and `dv`, and have their
    results here: the base's linear acceleration.
    """

    W: Matrix
    by_q: Matrix  # -W D⁻¹
    by_v: Matrix  # the same, with the factor that `dv` lacks
    dq: Matrix  # ∂τ/∂q
    dv: Matrix
    gravity_turn: Matrix  # for each turn of the base, (3, 3), or L times that, (nv, 3)
    speed_turn: Matrix  # for each linear velocity
    spin_turn: Matrix  # what is to be added for each angular velocity


def solve_parts(
    model: Model,
    q: Vector,
    v: Vector,
    tau: Vector,
    external: External | None = None,
    *,
    gauge: Gauge,
    factored: bool = False,
) -> SolveParts:
    """The factor of M and the gradient of inverse dynamics, not yet multiplied. `factored`: results
    of a free base as W takes them, L times the acceleration.
    """
    tree = articulate(model, q, gauge, external)
    factor = ltl.factorize(
        project(model, composite_mass_matrix(model, tree)), supports(model), model.joints
    )
    c = newton_euler(model, q, v, (0.0,) * model.nv, external)
    a = ltl.solve(factor, [sub(t, x) for t, x in zip(tau, c, strict=True)])
    n = model.nv
    W = ltl.inverse_triangle(factor)
    whole = tuple(tuple(row.get(i, 0.0) for i in range(n)) for row in W)

    def scaled(sign: float) -> Matrix:
        d = [mul(sign, x) for x in factor.inverse_d]
        return tuple(tuple(mul(row[i], d[i]) if i in row else 0.0 for i in range(n)) for row in W)

    if model.has_mimic:
        d = subtree_rnea_derivatives(model, q, v, a, external, gauge=gauge)
        return SolveParts(whole, scaled(-1.0), scaled(-1.0), d.dq, d.dv, (), (), ())
    base = FreeBase.of(model, q, v)
    v_used, a_used = base.at_rest(v, a) if base else (v, a)
    columns_q: Rows = [[0.0] * n for _ in range(n)]
    columns_v: Rows = [[0.0] * n for _ in range(n)]
    for columns in gradient_columns(model, tree, v_used, a_used, 1.0):
        start = model.joints[columns.joint].dof
        for k, (cq, cv) in enumerate(zip(columns.dq, columns.dv, strict=True), start):
            columns_q[k], columns_v[k] = cq, cv
    turns: list[Matrix] = [(), (), ()]
    if base:
        columns_q[:6], columns_v[:3] = [[0.0] * n] * 6, [[0.0] * n] * 3
        for which, turn in enumerate((base.gravity_turn, base.speed_turn, base.spin_turn)):
            moved = [_minus3(turn(k)) for k in range(3)]
            turns[which] = tuple(
                zip(
                    *([ltl.lower_times(factor, x) for x in moved] if factored else moved),
                    strict=True,
                )
            )
    dq, dv = (tuple(zip(*columns, strict=True)) for columns in (columns_q, columns_v))
    return SolveParts(whole, scaled(-1.0), scaled(-2.0), dq, dv, *turns)


def subtree_factored_gradient(
    model: Model,
    q: Vector,
    v: Vector,
    tau: Vector,
    external: External | None = None,
    *,
    gauge: Gauge,
) -> FactoredGradient[Matrix]:
    """The gradient of aba as W and Z, not multiplied."""
    p = solve_parts(model, q, v, tau, external, gauge=gauge, factored=True)
    Z = [
        [list(row) for row in transposed_product(scaled, x)]
        for scaled, x in ((p.by_q, p.dq), (p.by_v, p.dv))
    ]
    if p.gravity_turn:
        for row in range(model.nv):
            for k in range(3):
                Z[0][row][3 + k] = p.gravity_turn[row][k]
                Z[1][row][k] = p.speed_turn[row][k]
                Z[1][row][3 + k] = add(Z[1][row][3 + k], p.spin_turn[row][k])
    return FactoredGradient(
        p.W, tuple(tuple(row) for row in Z[0]), tuple(tuple(row) for row in Z[1])
    )


def subtree_state_gradient(
    model: Model,
    q: Vector,
    v: Vector,
    tau: Vector,
    external: External | None = None,
    *,
    gauge: Gauge,
) -> FusedGradient[Matrix]:
    """The gradient of aba without M⁻¹."""
    d = forward_gradient(model, q, v, tau, external, gauge=gauge)[1]
    return FusedGradient(d.dq, d.dv)


def subtree_fused_gradient(
    model: Model,
    q: Vector,
    v: Vector,
    a: Vector,
    minv: Matrix,
    external: External | None = None,
    *,
    gauge: Gauge,
) -> FusedGradient[Matrix]:
    """The gradient of aba from an acceleration and an M⁻¹ that are known already."""
    d = subtree_rnea_derivatives(model, q, v, a, external, gauge=gauge)
    return FusedGradient(minus_product(minv, d.dq), minus_product(minv, d.dv))


class FreeBase(NamedTuple):
    """A robot on one free-flying base: nothing outside it but gravity, so the base's own columns
    need no recursion.

    Turning the base turns gravity in its frame, γ = -E g; its linear velocity u acts through ω × u
    alone. With both taken as an acceleration of the base, the rest of the robot can be computed as
    if the base did not translate.
    """

    gamma: Vector
    omega: Vector
    u: Vector

    @staticmethod
    def of(model: Model, q: Vector, v: Vector) -> FreeBase | None:
        """None unless the robot hangs on one floating joint that moves freely: armature against its
        translation holds on to the world.
        """
        if not model.joints or not model.joints[0].kind.flies or WORLD in model.parents[1:]:
            return None
        if not all(is_constant(x, 0.0) for x in model.armature[:3]):
            return None
        X = body_transforms(model, q)[0]
        return FreeBase(
            rotate(X.E, gravity_acceleration(model).linear), tuple(v[3:6]), tuple(v[:3])
        )

    def at_rest(self, v: Vector, a: Vector) -> tuple[Vector, Vector]:
        """Velocity without the base's translation, and the acceleration that makes up for it."""
        return (0.0, 0.0, 0.0, *v[3:]), (*add3(a[:3], cross3(self.omega, self.u)), *a[3:])

    def gravity_turn(self, k: int) -> Vector:
        return cross3(self.gamma, IDENTITY3[k])

    def speed_turn(self, k: int) -> Vector:
        return cross3(self.omega, IDENTITY3[k])

    def spin_turn(self, k: int) -> Vector:
        return cross3(IDENTITY3[k], self.u)


def _minus3(x: Vector) -> Vector:
    return neg(x[0]), neg(x[1]), neg(x[2])


def composite_mass_matrix(model: Model, tree: Articulation) -> Rows:
    """M over all degrees of freedom, in the tree's gauge."""
    X, S, I, _ = tree
    composite = list(I)
    M: Rows = [[0.0] * model.dofs for _ in range(model.dofs)]
    for j in reversed(model.bodies):
        for column, s in enumerate(S[j], model.joints[j].dof):
            f = composite[j].times(s)
            i = j
            while i != WORLD:
                for row, x in enumerate(joint_space(S[i], f), model.joints[i].dof):
                    if i != j or row <= column:
                        M[row][column] = M[column][row] = x
                parent = model.parents[i]
                if parent != WORLD:
                    f = X[i].force_back(f)
                i = parent
            M[column][column] = add(M[column][column], model.armature[column])
        parent = model.parents[j]
        if parent != WORLD:
            composite[parent] = composite[parent] + X[j].inertia_back(composite[j])
    return M


class SubtreeBody(NamedTuple):
    """What the outward pass leaves at a body."""

    rate: list[Motion]  # ψ̇ of its freedoms
    by_speed: list[Motion]  # κ (ψ̇ + ½ v_J × s)
    second: list[Motion]  # ψ̈
    factor: CoriolisFactor  # κ B
    force: Force


def outward(
    model: Model, tree: Articulation, v: Vector, a: Vector, kappa: float
) -> list[SubtreeBody]:
    X, S, I, external = tree
    qd, qdd = velocities(model, v), velocities(model, a)
    a0 = gravity_acceleration(model)
    velocity: list[Motion] = []
    acceleration: list[Motion] = []
    bodies: list[SubtreeBody] = []
    for i in model.bodies:
        v_parent = across(X[i], parent_value(velocity, model, i, ZERO_MOTION))
        a_parent = across(X[i], parent_value(acceleration, model, i, a0))
        vJ = combine(S[i], qd[i])
        velocity.append(v_parent + vJ)
        rate = [v_parent.cross(s) for s in S[i]]
        by_speed = [r.scale(kappa) for r in rate]
        if len(S[i]) > 1:
            by_speed = [
                r + vJ.cross(s).scale(kappa / 2) for r, s in zip(by_speed, S[i], strict=True)
            ]
        second = [a_parent.cross(s) + v_parent.cross(r) for r, s in zip(rate, S[i], strict=True)]
        acceleration.append(a_parent + combine(rate, qd[i]) + combine(S[i], qdd[i]))
        factor = body_factor(I[i], velocity[i].scale(kappa))
        force = I[i].times(acceleration[i]) + factor.times(velocity[i]).scale(1 / kappa)
        bodies.append(
            SubtreeBody(
                rate, by_speed, second, factor, force - external[i] if i in external else force
            )
        )
    return bodies


def gradient_columns(
    model: Model, tree: Articulation, v: Vector, a: Vector, kappa: float
) -> Iterator[Columns]:
    """Joint by joint from the last to the first."""
    X, S, I, _ = tree
    bodies = outward(model, tree, v, a, kappa)
    inertia: list[Inertia] = list(I)
    factor = [b.factor for b in bodies]
    force = [b.force for b in bodies]
    n = model.dofs
    dq: Rows = [[0.0] * n for _ in range(n)]  # [column][row]
    dv: Rows = [[0.0] * n for _ in range(n)]
    for j in reversed(model.bodies):
        own = range(model.joints[j].dof, model.joints[j].dof + model.joints[j].nv)
        for k, column in enumerate(own):
            s = S[j][k]
            by_q = inertia[j].times(bodies[j].second[k]) + factor[j].times(bodies[j].rate[k]).scale(
                2 / kappa
            )
            by_v = inertia[j].times(bodies[j].by_speed[k]) + factor[j].times(s)
            momentum, back = inertia[j].times(s), factor[j].transposed_times(s)
            for row, x, y in zip(
                own, joint_space(S[j], by_q), joint_space(S[j], by_v), strict=True
            ):
                dq[column][row], dv[column][row] = x, y
            if model.parents[j] != WORLD:
                by_q = by_q + s.cross_force(force[j])
            i = j
            while model.parents[i] != WORLD:
                by_q, by_v = X[i].force_back(by_q), X[i].force_back(by_v)
                momentum, back = X[i].force_back(momentum), X[i].force_back(back)
                i = model.parents[i]
                start = model.joints[i].dof
                for other, t in enumerate(S[i]):
                    dq[column][start + other] = by_q.dot(t)
                    dv[column][start + other] = by_v.dot(t)
                    rate, second = bodies[i].rate[other], bodies[i].second[other]
                    dq[start + other][column] = add(
                        mul(2 / kappa, back.dot(rate)), momentum.dot(second)
                    )
                    dv[start + other][column] = add(
                        back.dot(t), momentum.dot(bodies[i].by_speed[other])
                    )
        yield Columns(j, [dq[c] for c in own], [dv[c] for c in own])
        parent = model.parents[j]
        if parent != WORLD:
            inertia[parent] = inertia[parent] + X[j].inertia_back(inertia[j])
            factor[parent] = factor[parent] + factor_back(X[j], factor[j])
            force[parent] = force[parent] + X[j].force_back(force[j])
