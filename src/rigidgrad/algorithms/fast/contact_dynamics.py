"""Dynamics with contacts and loops, and their analytical derivatives.

    M a + c = τ + Jᵀ f,        J a + γ = 0.

With M = LᵀDL, the rows Y = L⁻ᵀ Jᵀ live on what carries each held point. Λ = Yᵀ D⁻¹ Y is the
Delassus matrix J M⁻¹ Jᵀ, and f = -Λ⁻¹ (J a₀ + γ) with the acceleration a₀ without constraints. For
derivatives, let

    F = ∂f/∂τ = -Λ⁻¹ J M⁻¹,        P = ∂a/∂τ = M⁻¹ + (J M⁻¹)ᵀ F;

then, with r a column of the gradient of inverse dynamics at (a, f), the forces constant in the
frames of their bodies, and b one of the constraint's acceleration,

    ∂a = -P r + Fᵀ b,        ∂f = -F r - Λ⁻¹ b.

An impact is the same with a = v⁺ - v, at rest, without gravity or forces, and with (1 + e) J v for
γ (`Inputs.flow`, `bounce`). r and b of a joint are zero for limbs that it does not move. The base's
own columns need no recursion (`FreeBase`): r = M t and b = J t for a t with three numbers.
Redundant constraints make Λ singular: R = (Λ + μ)⁻¹ and two proximal steps, Λ⁻¹ ≈ R + μ R² + μ² R³,
give the force that they would share, and the same acceleration. Pinocchio's `constraintDynamics`;
Featherstone 2008, chapters 8 and 11.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from rigidgrad.algorithms import ltl
from rigidgrad.algorithms.fast import constraint_rows as constraint
from rigidgrad.algorithms.fast.constraint_rows import Inputs, Rates, Row
from rigidgrad.algorithms.fast.gauge import Articulation, Gauge, articulate, own_frames
from rigidgrad.algorithms.fast.newton_euler import newton_euler
from rigidgrad.algorithms.fast.subtree_gradient import (
    FreeBase,
    composite_mass_matrix,
    gradient_columns,
    outward,
)
from rigidgrad.algorithms.joints import External, Matrix, Vector, project
from rigidgrad.algorithms.results import (
    ContactDynamics,
    ContactDynamicsDerivatives,
    Impact,
    ImpactDerivatives,
)
from rigidgrad.algorithms.sparsity import dense, supports
from rigidgrad.model.model import Model
from rigidgrad.scalars import Scalar, add, is_constant, mul, neg, sub, total
from rigidgrad.spatial import Force

Columns = list[list[Scalar]]  # [column][row]
RELATIVE_DAMPING = 1e-7  # of redundant constraints, beside the mean of Λ's diagonal


class Setting(NamedTuple):
    """A robot and its constraints in one position."""

    model: Model
    tree: Articulation
    rows: list[Row]
    M: Matrix
    factor: ltl.Factor
    J: list[Vector]
    Y: Columns  # L⁻ᵀ Jᵀ, one for each row
    Lambda: Matrix


def setting(
    model: Model, q: Vector, inputs: Inputs, gauge: Gauge | None, external: External | None = None
) -> Setting:
    gauge = gauge or own_frames(model)
    tree = articulate(model, q, gauge, external)
    M = project(model, composite_mass_matrix(model, tree))
    factor = ltl.factorize(M, supports(model), model.joints)
    rows = constraint.rows_of(model, q, tree, gauge, inputs)
    J = [_gathered(model, line) for line in constraint.jacobian(model, tree, rows)]
    Y = [ltl.half_solve(factor, line) for line in J]
    scaled = [[mul(y, d) for y, d in zip(line, factor.inverse_d, strict=True)] for line in Y]
    Lambda = [
        [total(mul(x, y) for x, y in zip(scaled[i], Y[j], strict=True)) for j in range(i + 1)]
        for i in range(len(Y))
    ]
    whole = tuple(tuple(Lambda[max(i, j)][min(i, j)] for j in range(len(Y))) for i in range(len(Y)))
    return Setting(model, tree, rows, M, factor, J, Y, whole)


def contact_dynamics(
    model: Model,
    q: Vector,
    v: Vector,
    tau: Vector,
    inputs: Inputs,
    external: External | None = None,
    *,
    gauge: Gauge | None = None,
    redundant: bool = False,
) -> ContactDynamics[Vector]:
    """a (nv) and the forces of all constraints, in world axes."""
    m = moving_parts(model, v, tau, external, inputs.flow)
    s = setting(m.model, q, inputs, gauge, m.external)
    a, force, _ = _solved(s, q, v, m, redundant)
    return ContactDynamics(a, constraint.in_world(s.rows, force))


def contact_dynamics_derivatives(
    model: Model,
    q: Vector,
    v: Vector,
    tau: Vector,
    inputs: Inputs,
    external: External | None = None,
    *,
    gauge: Gauge | None = None,
    redundant: bool = False,
) -> ContactDynamicsDerivatives[Matrix]:
    """∂a and ∂f with respect to q (tangent), v and τ."""
    return contact_gradient(model, q, v, tau, inputs, external, gauge=gauge, redundant=redundant)[1]


def contact_gradient(
    model: Model,
    q: Vector,
    v: Vector,
    tau: Vector,
    inputs: Inputs,
    external: External | None = None,
    *,
    gauge: Gauge | None = None,
    redundant: bool = False,
) -> tuple[ContactDynamics[Vector], ContactDynamicsDerivatives[Matrix]]:
    """The dynamics with their derivatives. Of an impact (`Inputs.flow` is 0) a is v⁺ - v, and
    forces are impulses.
    """
    found, parts = _solved_parts(model, q, v, tau, inputs, external, gauge, redundant)
    P, F = _by_torque(parts)
    a_q, f_q = _columns(P, F, parts.X, parts.r_q, parts.b_q, parts.a_q, parts.f_q)
    a_v, f_v = _columns(P, F, parts.X, parts.r_v, parts.b_v, parts.a_v, ())
    if not is_constant(inputs.flow, 1.0):
        P, F = (tuple(tuple(mul(inputs.flow, x) for x in line) for line in X) for X in (P, F))
    return found, ContactDynamicsDerivatives(a_q, a_v, P, f_q, f_v, F)


class GradientParts(NamedTuple):
    """What the gradient is made of, rows of constraints in world axes, before products: H = J M⁻¹ =
    G Wᵀ, F = B Wᵀ, P = -W scaled_Wᵀ + Hᵀ F, ∂a = a - P r + Fᵀ b, ∂f = f - F r - X b.
    """

    W: Matrix  # L⁻¹
    scaled_W: Matrix  # -W D⁻¹
    G: Matrix  # Y D⁻¹
    B: Matrix  # -X G
    X: Matrix  # Λ⁻¹
    r_q: Matrix
    b_q: Matrix
    f_q: Matrix  # w × f
    r_v: Matrix
    b_v: Matrix
    a_q: Matrix  # of a free base, the first three rows: what its turns alone do
    a_v: Matrix
    damping: str | None = None  # as all results that forces are solved for have it


def gradient_parts(
    model: Model,
    q: Vector,
    v: Vector,
    tau: Vector,
    inputs: Inputs,
    external: External | None = None,
    *,
    gauge: Gauge | None = None,
    redundant: bool = False,
    at: tuple[Vector, Vector] | None = None,
) -> GradientParts:
    """Those of contact_dynamics_derivatives, for who multiplies them himself; not of an impact.
    `at`: an acceleration and forces, in world axes, in the place of those that solve the
    equations.
    """
    return _solved_parts(model, q, v, tau, inputs, external, gauge, redundant, at)[1]


def _solved_parts(
    model: Model,
    q: Vector,
    v: Vector,
    tau: Vector,
    inputs: Inputs,
    external: External | None,
    gauge: Gauge | None,
    redundant: bool,
    at: tuple[Vector, Vector] | None = None,
) -> tuple[ContactDynamics[Vector], GradientParts]:
    m = moving_parts(model, v, tau, external, inputs.flow)
    model, flow = m.model, inputs.flow
    s = setting(model, q, inputs, gauge, m.external)
    if at is None:
        a, force, solve = _solved(s, q, v, m, redundant)
    else:
        a, force, solve = at[0], constraint.in_points(s.rows, at[1]), _inverse(s, redundant)
    wrenches = _summed(s.tree.external, constraint.wrenches(s.rows, force))
    tree = s.tree._replace(external=wrenches)
    base = None if model.has_mimic else FreeBase.of(model, q, m.v)
    v_used, a_used = base.at_rest(m.v, a) if base else (m.v, a)
    bodies = outward(model, tree, v_used, a_used, 1.0)
    moving = constraint.motions(model, tree, v_used, a_used)
    speeds = constraint.motions(model, tree, v)
    rates = Rates(
        [b.rate for b in bodies], [b.by_speed for b in bodies], [b.second for b in bodies]
    )
    b_q, b_v = constraint.acceleration_columns(model, tree, s.rows, rates, moving, speeds, flow)
    turned = constraint.turned_force_columns(model, tree, s.rows, force)
    r_q: Columns = [[] for _ in range(model.dofs)]
    r_v: Columns = [[] for _ in range(model.dofs)]
    twice = mul(2.0, flow)
    for columns in gradient_columns(model, tree, v_used, a_used, 1.0):
        for k, (cq, cv) in enumerate(
            zip(columns.dq, columns.dv, strict=True), model.joints[columns.joint].dof
        ):
            r_q[k] = (
                cq if turned is None else [add(x, y) for x, y in zip(cq, turned[k], strict=True)]
            )
            r_v[k] = [mul(twice, x) for x in cv]
    r_q, r_v = _projected(model, r_q), _projected(model, r_v)
    b_q, b_v = _gathered_columns(model, b_q), _gathered_columns(model, b_v)
    a_q, a_v = _base_columns(s, base, r_q, b_q, r_v, b_v, flow) if base else ([], [])
    turns = _gathered_columns(model, constraint.turns(model, tree, s.rows, force))
    f_q, b_q, b_v = (
        [list(constraint.in_world(s.rows, column)) for column in columns]
        for columns in (turns, b_q, b_v)
    )
    lines, n = ltl.inverse_triangle(s.factor), s.model.nv
    W = tuple(tuple(line.get(i, 0.0) for i in range(n)) for line in lines)
    minus = [neg(x) for x in s.factor.inverse_d]
    scaled_W = tuple(tuple(mul(x, d) for x, d in zip(line, minus, strict=True)) for line in W)
    by_q = _rows(r_q), _rows(b_q), _rows(f_q)
    by_v = _rows(r_v), _rows(b_v)
    found = ContactDynamics(a, constraint.in_world(s.rows, force))
    return found, GradientParts(
        W, scaled_W, *_response(s, solve), *by_q, *by_v, _rows(a_q), _rows(a_v)
    )


def impact(
    model: Model,
    q: Vector,
    v: Vector,
    restitution: Scalar,
    inputs: Inputs,
    *,
    gauge: Gauge | None = None,
    redundant: bool = False,
) -> Impact[Vector]:
    """Velocities after the constraints take hold at once, J v⁺ = -e J v, and the impulses of that
    moment, in world axes.
    """
    struck = inputs._replace(flow=0.0, bounce=add(1.0, restitution))
    jump, impulse, _ = contact_dynamics(
        model, q, v, (0.0,) * model.nv, struck, gauge=gauge, redundant=redundant
    )
    return Impact(tuple(add(x, y) for x, y in zip(v, jump, strict=True)), impulse)


def impact_derivatives(
    model: Model,
    q: Vector,
    v: Vector,
    restitution: Scalar,
    inputs: Inputs,
    *,
    gauge: Gauge | None = None,
    redundant: bool = False,
) -> ImpactDerivatives[Matrix]:
    """∂v⁺ and ∂impulse with respect to q (tangent) and v."""
    struck = inputs._replace(flow=0.0, bounce=add(1.0, restitution))
    d = contact_dynamics_derivatives(
        model, q, v, (0.0,) * model.nv, struck, gauge=gauge, redundant=redundant
    )
    v_v = tuple(
        tuple(add(1.0 if i == k else 0.0, x) for k, x in enumerate(line))
        for i, line in enumerate(d.a_dv)
    )
    return ImpactDerivatives(d.a_dq, v_v, d.force_dq, d.force_dv)


def contact_jacobian(
    model: Model, q: Vector, inputs: Inputs, *, gauge: Gauge | None = None
) -> Matrix:
    """J (rows, nv) of all constraints, in world axes: the velocities of held frames, linear first;
    of loops those of the first against the second.
    """
    gauge = gauge or own_frames(model)
    tree = articulate(model, q, gauge)
    rows = constraint.rows_of(model, q, tree, gauge, inputs)
    J = [_gathered(model, line) for line in constraint.jacobian(model, tree, rows)]
    return _rows([list(constraint.in_world(rows, column)) for column in zip(*J, strict=True)])


def delassus(model: Model, q: Vector, inputs: Inputs, *, gauge: Gauge | None = None) -> Matrix:
    """J M⁻¹ Jᵀ (rows, rows), in world axes."""
    s = setting(model, q, inputs, gauge)
    half = [constraint.in_world(s.rows, column) for column in zip(*s.Lambda, strict=True)]
    return tuple(constraint.in_world(s.rows, line) for line in zip(*half, strict=True))


# --- pieces ---------------------------------------------------------------------------------------


class _Moving(NamedTuple):
    """What forces and accelerations come from: as given, or, in an impact, nothing but the
    constraints.
    """

    model: Model
    v: Vector
    tau: Vector
    external: External | None


def moving_parts(
    model: Model, v: Vector, tau: Vector, external: External | None, flow: Scalar
) -> _Moving:
    """An impact happens at rest, without gravity and without other forces: all of them times
    `flow`.
    """
    if is_constant(flow, 1.0):
        return _Moving(model, v, tau, external)
    gravity = tuple(mul(flow, g) for g in model.gravity)
    slowed = tuple(mul(flow, x) for x in v)
    pushed = None if external is None else {i: f.scale(flow) for i, f in external.items()}
    return _Moving(
        dataclasses.replace(model, gravity=gravity),
        slowed,
        tuple(mul(flow, x) for x in tau),
        pushed,
    )


class _Schur(NamedTuple):
    """Λ⁻¹, by its factor or, for redundant constraints, as an explicit matrix."""

    factor: ltl.Factor
    W: list[dict[int, Scalar]]
    damping: Scalar | None

    def __call__(self, b: Sequence[Scalar]) -> Vector:
        if self.damping is None:
            return ltl.multiply(self.W, self.factor.inverse_d, b)
        x = step = ltl.multiply(self.W, self.factor.inverse_d, b)
        for _ in range(2):
            step = ltl.multiply(self.W, self.factor.inverse_d, [mul(self.damping, y) for y in step])
            x = tuple(add(y, z) for y, z in zip(x, step, strict=True))
        return x


def _inverse(s: Setting, redundant: bool) -> _Schur:
    """Λ⁻¹; rows of constraints that do not hold have a one on the diagonal."""
    Lambda = [list(line) for line in s.Lambda]
    m = len(Lambda)
    damping = None
    if redundant and m:
        damping = mul(RELATIVE_DAMPING / m, total(Lambda[i][i] for i in range(m)))
    i = 0
    for row in s.rows:
        for _ in range(row.constraint.rows):
            Lambda[i][i] = add(Lambda[i][i], sub(1.0, row.active))
            if damping is not None:
                Lambda[i][i] = add(Lambda[i][i], damping)
            i += 1
    factor = ltl.factorize(Lambda, dense(m))
    return _Schur(factor, ltl.inverse_triangle(factor), damping)


def _solved(
    s: Setting, q: Vector, v: Vector, m: _Moving, redundant: bool
) -> tuple[Vector, Vector, _Schur]:
    c = newton_euler(s.model, q, m.v, (0.0,) * s.model.nv, m.external)
    half = ltl.half_solve(s.factor, [sub(t, x) for t, x in zip(m.tau, c, strict=True)])
    z = [mul(x, d) for x, d in zip(half, s.factor.inverse_d, strict=True)]
    still = constraint.motions(s.model, s.tree, m.v)
    gamma = constraint.acceleration(
        s.rows, still, still if m.v is v else constraint.motions(s.model, s.tree, v)
    )
    solve = _inverse(s, redundant)
    force = solve(
        [
            neg(add(g, total(mul(x, y) for x, y in zip(line, z, strict=True))))
            for g, line in zip(gamma, s.Y, strict=True)
        ]
    )
    for k, d in enumerate(s.factor.inverse_d):
        z[k] = add(z[k], mul(d, total(mul(line[k], f) for line, f in zip(s.Y, force, strict=True))))
    return ltl.other_half(s.factor, z), force, solve


def _response(s: Setting, solve: _Schur) -> tuple[Matrix, Matrix, Matrix]:
    """G, B and X of `GradientParts`."""
    m = len(s.Y)
    scaled_Y = [[mul(x, y) for x, y in zip(line, s.factor.inverse_d, strict=True)] for line in s.Y]
    G = (
        tuple(
            zip(
                *(constraint.in_world(s.rows, column) for column in zip(*scaled_Y, strict=True)),
                strict=True,
            )
        )
        if m
        else ()
    )
    if solve.damping is None:
        # [column]
        R = [constraint.in_world(s.rows, [row.get(i, 0.0) for row in solve.W]) for i in range(m)]
        half = [
            [mul(x, y) for y in column] for x, column in zip(solve.factor.inverse_d, R, strict=True)
        ]
        X = [
            [total(mul(R[k][i], half[k][j]) for k in range(m)) for j in range(i + 1)]
            for i in range(m)
        ]
    else:
        axes = [
            constraint.in_world(s.rows, [1.0 if i == k else 0.0 for i in range(m)])
            for k in range(m)
        ]
        X = [
            list(constraint.in_world(s.rows, solve(line))[: i + 1])
            for i, line in enumerate(zip(*axes, strict=True))
        ]
    whole = tuple(tuple(X[max(i, j)][min(i, j)] for j in range(m)) for i in range(m))
    B = tuple(
        tuple(
            neg(total(mul(x, y) for x, y in zip(line, column, strict=True)))
            for column in zip(*G, strict=True)
        )
        for line in whole
    )
    return G, B, whole


def _by_torque(parts: GradientParts) -> tuple[Matrix, Matrix]:
    """P = ∂a/∂τ and F = ∂f/∂τ."""
    H, F = (_transposed_product(x, parts.W) for x in (parts.G, parts.B))
    P = _transposed_product(parts.W, parts.scaled_W, lower=True)
    lines = [[0.0] * len(P) for _ in P]
    for i, line in enumerate(P):
        for k in range(i + 1):
            lines[i][k] = lines[k][i] = sub(
                total(mul(x[i], y[k]) for x, y in zip(H, F, strict=True)), line[k]
            )
    return tuple(map(tuple, lines)), F


def _transposed_product(left: Matrix, right: Matrix, *, lower: bool = False) -> Matrix:
    """left · rightᵀ, or what of it is on and below the diagonal."""
    return tuple(
        tuple(
            total(mul(x, y) for x, y in zip(line, other, strict=True))
            for other in (right[: i + 1] if lower else right)
        )
        for i, line in enumerate(left)
    )


def _columns(
    P: Matrix, F: Matrix, X: Matrix, r: Matrix, b: Matrix, a: Matrix, f: Matrix
) -> tuple[Matrix, Matrix]:
    """∂a = a - P r + Fᵀ b, ∂f = f - F r - X b; what is added may have fewer rows."""
    n, m = len(P), len(F)
    r_columns, b_columns = tuple(zip(*r, strict=True)), tuple(zip(*b, strict=True)) or ((),) * n
    by_a, by_f = [], []
    for k, (rk, bk) in enumerate(zip(r_columns, b_columns, strict=True)):
        pulled = [total(mul(line[i], x) for line, x in zip(F, bk, strict=True)) for i in range(n)]
        pulled = [add(x, a[i][k]) if i < len(a) else x for i, x in enumerate(pulled)]
        by_a.append(
            [
                sub(x, total(mul(p, y) for p, y in zip(line, rk, strict=True)))
                for x, line in zip(pulled, P, strict=True)
            ]
        )
        pressed = [
            add(
                total(mul(x, y) for x, y in zip(F[i], rk, strict=True)),
                total(mul(x, y) for x, y in zip(X[i], bk, strict=True)),
            )
            for i in range(m)
        ]
        by_f.append([sub(f[i][k] if f else 0.0, x) for i, x in enumerate(pressed)])
    return _rows(by_a), _rows(by_f)


def _base_columns(
    s: Setting, base: FreeBase, r_q: Columns, b_q: Columns, r_v: Columns, b_v: Columns, flow: Scalar
) -> tuple[Columns, Columns]:
    """Replaces the columns of a free base in r and b, and returns what to add to its acceleration:
    r = M t is no r and b = -J t, less the acceleration t.
    """
    n, rows = s.model.nv, [row for row in s.rows for _ in range(row.constraint.rows)]
    held = not all(is_constant(gain, 0.0) for row in s.rows for gain in row.gains)
    a_q: Columns = [[0.0] * 3 for _ in range(n)]
    a_v: Columns = [[0.0] * 3 for _ in range(n)]
    for k in range(3):
        r_q[k], r_q[3 + k], r_v[k] = [0.0] * n, [0.0] * n, [0.0] * n
        t = base.gravity_turn(k)
        lifted = [total(mul(line[i], t[i]) for i in range(3)) for line in s.J]
        if not held:
            b_q[k] = b_q[3 + k] = [0.0] * len(rows)
        b_q[3 + k] = [sub(x, y) for x, y in zip(b_q[3 + k], lifted, strict=True)]
        b_v[k] = [mul(row.gains[1], line[k]) for row, line in zip(rows, s.J, strict=True)]
        a_q[3 + k] = [neg(x) for x in t]
        a_v[k], a_v[3 + k] = (
            [neg(mul(flow, x)) for x in turn(k)] for turn in (base.speed_turn, base.spin_turn)
        )
    return a_q, a_v


def _summed(first: dict[int, Force], second: dict[int, Force]) -> dict[int, Force]:
    return {
        i: first[i] + second[i] if i in first and i in second else first.get(i) or second[i]
        for i in {**first, **second}
    }


def _gathered(model: Model, line: Sequence[Scalar]) -> Vector:
    """X G for one row X over all degrees of freedom."""
    if not model.has_mimic:
        return tuple(line)
    found: list[Scalar] = [0.0] * model.nv
    for j in model.joints:
        for k in range(j.nv):
            found[j.v + k] = add(found[j.v + k], mul(j.multiplier, line[j.dof + k]))
    return tuple(found)


def _gathered_columns(model: Model, columns: Columns) -> Columns:
    if not model.has_mimic:
        return columns
    lines = [_gathered(model, line) for line in zip(*columns, strict=True)]
    return (
        [list(column) for column in zip(*lines, strict=True)]
        if lines
        else [[] for _ in range(model.nv)]
    )


def _projected(model: Model, columns: Columns) -> Columns:
    return [
        list(column)
        for column in zip(*project(model, tuple(zip(*columns, strict=True))), strict=True)
    ]


def _rows(columns: Columns) -> Matrix:
    return tuple(zip(*columns, strict=True))
