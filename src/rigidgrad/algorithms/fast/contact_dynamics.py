"""Dynamics with contacts and loops, and their analytical derivatives.

    M a + c = τ + Jᵀ f,        J a + γ = 0.

With M = LᵀDL, the rows Y = L⁻ᵀ Jᵀ live on what carries each held point. Λ = Yᵀ D⁻¹ Y is the Delassus matrix J M⁻¹ Jᵀ, and f = -Λ⁻¹ (J a₀ + γ) with the acceleration a₀ without constraints. For derivatives, let

    F = ∂f/∂τ = -Λ⁻¹ J M⁻¹,        P = ∂a/∂τ = M⁻¹ + (J M⁻¹)ᵀ F;

then, with r a column of the gradient of inverse dynamics at (a, f), the forces constant in the frames of their bodies, and b one of the constraint's acceleration,

    ∂a = -P r + Fᵀ b,        ∂f = -F r - Λ⁻¹ b.

An impact is the same with a = v⁺ - v, at rest, without gravity or forces, and with (1 + e) J v for γ (`Inputs.flow`, `bounce`).
r and b of a joint are zero for limbs that it does not move. The base's own columns need no recursion (`FreeBase`): r = M t and b = J t for a t with three numbers.
Redundant constraints make Λ singular: R = (Λ + μ)⁻¹ and two proximal steps, Λ⁻¹ ≈ R + μ R² + μ² R³, give the force that they would share, and the same acceleration.
Pinocchio's `constraintDynamics`; Featherstone 2008, chapters 8 and 11.
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
from rigidgrad.algorithms.fast.subtree_gradient import FreeBase, composite_mass_matrix, gradient_columns, outward
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
from rigidgrad.spatial import Force, scale3

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


def setting(model: Model, q: Vector, inputs: Inputs, gauge: Gauge | None, external: External | None = None) -> Setting:
    gauge = gauge or own_frames(model)
    tree = articulate(model, q, gauge, external)
    M = project(model, composite_mass_matrix(model, tree))
    factor = ltl.factorize(M, supports(model), model.joints)
    rows = constraint.rows_of(model, q, tree, gauge, inputs)
    J = [_gathered(model, line) for line in constraint.jacobian(model, tree, rows)]
    Y = [ltl.half_solve(factor, line) for line in J]
    scaled = [[mul(y, d) for y, d in zip(line, factor.inverse_d, strict=True)] for line in Y]
    Lambda = [[total(mul(x, y) for x, y in zip(scaled[i], Y[j], strict=True)) for j in range(i + 1)] for i in range(len(Y))]
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
    m = _moving(model, v, tau, external, inputs.flow)
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
    """The dynamics with their derivatives. Of an impact (`Inputs.flow` is 0) a is v⁺ - v, and forces are impulses."""
    m = _moving(model, v, tau, external, inputs.flow)
    model, flow = m.model, inputs.flow
    s = setting(model, q, inputs, gauge, m.external)
    a, force, solve = _solved(s, q, v, m, redundant)
    P, F = _by_force(s, solve)
    wrenches = _summed(s.tree.external, constraint.wrenches(s.rows, force))
    tree = s.tree._replace(external=wrenches)
    base = None if model.has_mimic else FreeBase.of(model, q, m.v)
    v_used, a_used = base.at_rest(m.v, a) if base else (m.v, a)
    bodies = outward(model, tree, v_used, a_used, 1.0)
    moving = constraint.motions(model, tree, v_used, a_used)
    speeds = constraint.motions(model, tree, v)
    rates = Rates([b.rate for b in bodies], [b.by_speed for b in bodies], [b.second for b in bodies])
    b_q, b_v = constraint.acceleration_columns(model, tree, s.rows, rates, moving, speeds, flow)
    turned = constraint.turned_force_columns(model, tree, s.rows, force)
    r_q: Columns = [[] for _ in range(model.dofs)]
    r_v: Columns = [[] for _ in range(model.dofs)]
    twice = mul(2.0, flow)
    for columns in gradient_columns(model, tree, v_used, a_used, 1.0):
        for k, (cq, cv) in enumerate(zip(columns.dq, columns.dv, strict=True), model.joints[columns.joint].dof):
            r_q[k] = cq if turned is None else [add(x, y) for x, y in zip(cq, turned[k], strict=True)]
            r_v[k] = [mul(twice, x) for x in cv]
    r_q, r_v = _projected(model, r_q), _projected(model, r_v)
    b_q, b_v = _gathered_columns(model, b_q), _gathered_columns(model, b_v)
    response = _Response(P, F, solve)
    if base:
        q_columns, v_columns = _base_columns(s, base, response, b_q, b_v, r_v, flow)
    else:
        q_columns, v_columns = {}, {}
    a_q, f_q = response.columns(model.nv, r_q, b_q, q_columns)
    a_v, f_v = response.columns(model.nv, r_v, b_v, v_columns)
    f_q = _seen_by_position(s, tree, force, f_q)
    f_v = [list(constraint.in_world(s.rows, column)) for column in f_v]
    f_tau = [list(constraint.in_world(s.rows, column)) for column in zip(*F, strict=True)] if F else [[] for _ in range(model.nv)]
    if not is_constant(flow, 1.0):
        P = tuple(tuple(mul(flow, x) for x in line) for line in P)
        f_tau = [[mul(flow, x) for x in column] for column in f_tau]
    found = ContactDynamics(a, constraint.in_world(s.rows, force))
    return found, ContactDynamicsDerivatives(_rows(a_q), _rows(a_v), P, _rows(f_q), _rows(f_v), _rows(f_tau))


def impact(
    model: Model, q: Vector, v: Vector, restitution: Scalar, inputs: Inputs, *, gauge: Gauge | None = None, redundant: bool = False
) -> Impact[Vector]:
    """Velocities after the constraints take hold at once, J v⁺ = -e J v, and the impulses of that moment, in world axes."""
    struck = inputs._replace(flow=0.0, bounce=add(1.0, restitution))
    jump, impulse, _ = contact_dynamics(model, q, v, (0.0,) * model.nv, struck, gauge=gauge, redundant=redundant)
    return Impact(tuple(add(x, y) for x, y in zip(v, jump, strict=True)), impulse)


def impact_derivatives(
    model: Model, q: Vector, v: Vector, restitution: Scalar, inputs: Inputs, *, gauge: Gauge | None = None, redundant: bool = False
) -> ImpactDerivatives[Matrix]:
    """∂v⁺ and ∂impulse with respect to q (tangent) and v."""
    struck = inputs._replace(flow=0.0, bounce=add(1.0, restitution))
    d = contact_dynamics_derivatives(model, q, v, (0.0,) * model.nv, struck, gauge=gauge, redundant=redundant)
    v_v = tuple(tuple(add(1.0 if i == k else 0.0, x) for k, x in enumerate(line)) for i, line in enumerate(d.a_dv))
    return ImpactDerivatives(d.a_dq, v_v, d.force_dq, d.force_dv)


def contact_jacobian(model: Model, q: Vector, inputs: Inputs, *, gauge: Gauge | None = None) -> Matrix:
    """J (rows, nv) of all constraints, in world axes: the velocities of held frames, linear first; of loops those of the first against the second."""
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


# --- pieces --------------------------------------------------------------------------------------------------------------------------


class _Moving(NamedTuple):
    """What forces and accelerations come from: as given, or, in an impact, nothing but the constraints."""

    model: Model
    v: Vector
    tau: Vector
    external: External | None


def _moving(model: Model, v: Vector, tau: Vector, external: External | None, flow: Scalar) -> _Moving:
    """An impact happens at rest, without gravity and without other forces: all of them times `flow`."""
    if is_constant(flow, 1.0):
        return _Moving(model, v, tau, external)
    gravity = tuple(mul(flow, g) for g in model.gravity)
    slowed = tuple(mul(flow, x) for x in v)
    pushed = None if external is None else {i: f.scale(flow) for i, f in external.items()}
    return _Moving(dataclasses.replace(model, gravity=gravity), slowed, tuple(mul(flow, x) for x in tau), pushed)


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


def _solved(s: Setting, q: Vector, v: Vector, m: _Moving, redundant: bool) -> tuple[Vector, Vector, _Schur]:
    c = newton_euler(s.model, q, m.v, (0.0,) * s.model.nv, m.external)
    half = ltl.half_solve(s.factor, [sub(t, x) for t, x in zip(m.tau, c, strict=True)])
    z = [mul(x, d) for x, d in zip(half, s.factor.inverse_d, strict=True)]
    still = constraint.motions(s.model, s.tree, m.v)
    gamma = constraint.acceleration(s.rows, still, still if m.v is v else constraint.motions(s.model, s.tree, v))
    solve = _inverse(s, redundant)
    force = solve([neg(add(g, total(mul(x, y) for x, y in zip(line, z, strict=True)))) for g, line in zip(gamma, s.Y, strict=True)])
    for k, d in enumerate(s.factor.inverse_d):
        z[k] = add(z[k], mul(d, total(mul(line[k], f) for line, f in zip(s.Y, force, strict=True))))
    return ltl.other_half(s.factor, z), force, solve


def _motions_by_force(s: Setting) -> Columns:
    """J M⁻¹, one line for each row."""
    return [list(ltl.other_half(s.factor, [mul(x, d) for x, d in zip(line, s.factor.inverse_d, strict=True)])) for line in s.Y]


def _by_force(s: Setting, solve: _Schur) -> tuple[Matrix, Matrix]:
    """P = ∂a/∂τ and F = ∂f/∂τ."""
    H = _motions_by_force(s)
    n = s.model.nv
    columns = [[neg(x) for x in solve([line[k] for line in H])] for k in range(n)]
    P = [list(line) for line in ltl.inverse(s.factor)]
    for i in range(n):
        for k in range(i + 1):
            P[i][k] = P[k][i] = add(P[i][k], total(mul(h[i], x) for h, x in zip(H, columns[k], strict=True)))
    return tuple(map(tuple, P)), tuple(zip(*columns, strict=True)) if H else ()


class _Response(NamedTuple):
    """∂a = -P r + Fᵀ b, ∂f = -F r - Λ⁻¹ b."""

    P: Matrix
    F: Matrix
    solve: _Schur

    def column(self, r: Sequence[Scalar], b: Sequence[Scalar]) -> tuple[list[Scalar], list[Scalar]]:
        own = self.solve(b)
        a = [
            sub(total(mul(f[i], x) for f, x in zip(self.F, b, strict=True)), total(mul(p, x) for p, x in zip(line, r, strict=True)))
            for i, line in enumerate(self.P)
        ]
        force = [neg(add(total(mul(p, x) for p, x in zip(line, r, strict=True)), y)) for line, y in zip(self.F, own, strict=True)]
        return a, force

    def columns(self, n: int, r: Columns, b: Columns, known: dict[int, tuple[list[Scalar], list[Scalar]]]) -> tuple[Columns, Columns]:
        found = [known[k] if k in known else self.column(r[k], b[k]) for k in range(n)]
        return [a for a, _ in found], [f for _, f in found]


def _base_columns(
    s: Setting, base: FreeBase, response: _Response, b_q: Columns, b_v: Columns, r_v: Columns, flow: Scalar
) -> tuple[dict, dict]:
    """Those of a free base."""
    n, m = s.model.nv, len(s.J)
    of_q: dict[int, tuple[list[Scalar], list[Scalar]]] = {}
    of_v: dict[int, tuple[list[Scalar], list[Scalar]]] = {}
    held = not all(is_constant(gain, 0.0) for row in s.rows for gain in row.gains)
    damped = [row.gains[1] for row in s.rows for _ in range(row.constraint.rows)]

    def moved(t: Sequence[Scalar]) -> list[Scalar]:
        """J [t; 0]."""
        return [total(mul(line[i], t[i]) for i in range(3)) for line in s.J]

    for k in range(3):
        none: list[Scalar] = [0.0] * m
        of_q[k] = response.column([0.0] * n, b_q[k]) if held else ([0.0] * n, none)
        t = base.gravity_turn(k)
        lifted = moved(t)  # r = M t without b is b = -J t less the acceleration t
        b = [sub(x, y) for x, y in zip(b_q[3 + k] if held else none, lifted, strict=True)]
        a, f = response.column([0.0] * n, b)
        of_q[3 + k] = ([sub(a[i], t[i]) if i < 3 else a[i] for i in range(n)], f)
        t = scale3(flow, base.speed_turn(k))
        a, f = response.column([0.0] * n, [mul(g, line[k]) for g, line in zip(damped, s.J, strict=True)]) if held else ([0.0] * n, none)
        of_v[k] = ([sub(a[i], t[i]) if i < 3 else a[i] for i in range(n)], list(f))
        t = scale3(flow, base.spin_turn(k))
        a, f = response.column(r_v[3 + k], b_v[3 + k])
        of_v[3 + k] = ([sub(a[i], t[i]) if i < 3 else a[i] for i in range(n)], f)
    return of_q, of_v


def _seen_by_position(s: Setting, tree: Articulation, force: Vector, columns: Columns) -> Columns:
    """∂f/∂q in world axes, R (∂f + w × f), from columns in the axes of the points."""
    turns = _gathered_columns(s.model, constraint.turns(s.model, tree, s.rows, force))
    return [
        list(constraint.in_world(s.rows, [add(x, y) for x, y in zip(column, turn, strict=True)]))
        for column, turn in zip(columns, turns, strict=True)
    ]


def _summed(first: dict[int, Force], second: dict[int, Force]) -> dict[int, Force]:
    return {i: first[i] + second[i] if i in first and i in second else first.get(i) or second[i] for i in {**first, **second}}


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
    return [list(column) for column in zip(*lines, strict=True)] if lines else [[] for _ in range(model.nv)]


def _projected(model: Model, columns: Columns) -> Columns:
    return [list(column) for column in zip(*project(model, tuple(zip(*columns, strict=True))), strict=True)]


def _rows(columns: Columns) -> Matrix:
    return tuple(zip(*columns, strict=True))
