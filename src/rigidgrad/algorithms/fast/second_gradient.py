"""Second derivatives of inverse dynamics from what whole subtrees feel, in any gauge and for joints
with any number of freedoms.

Weights w on the joint forces are a virtual velocity: with u = Σ s w over the freedoms that carry a
body, wᵀτ = Σ u·(I a + v ×* I v - f_ext) over all bodies. As in `subtree_gradient`, perturbing
freedom s of a joint changes motions of its whole subtree by a few vectors, α = u_λ × s, ψ̇ = v_λ ×
s, ψ̈ = a_λ × s + v_λ × ψ̇ and σ = ψ̇ + ½ v_J × s. With the subtree's inertia I, Coriolis factor B,
force F, and

    P = Σ I u,      Q = Σ 2 Bᵀu,      R = Σ u ×* I - I u×,

which is the rate of the subtree's inertia and itself an inertia without mass, the gradient is

    ∂/∂q = α·F + ψ̈·P + ψ̇·Q,      ∂/∂v = 2σ·P + s·Q,      ∂/∂a = s·P.

A freedom k of a joint that carries that of j, or of the same joint, changes these by forces of j,
carried to the joint of k:

    ∂²/∂q_j∂q_k = α_k·(I ψ̈ + 2 B ψ̇ + s ×* F) + ψ̈_k·A + ψ̇_k·C,      ∂²/∂v_j∂q_k = α_k·2(I σ + B
    s) + ψ̇_k·D,      ∂²/∂a_j∂q_k = α_k·I s, ∂²/∂q_j∂v_k = 2σ_k·A + s_k·C,      ∂²/∂v_j∂v_k = s_k·D,
    ∂²/∂q_j∂a_k = s_k·A,

    A = I α + s ×* P,      C = 2 Bᵀα - R ψ̇ + ψ̇ ×* P + s ×* Q,      D = s ×* P - R s.

The first line holds for freedoms of one joint, too, where derivatives by positions do not commute;
there ∂²/∂v_j∂v_k = -s_k·R s_j. Freedoms on different branches have none. The tensor has one unit
vector after the other for w. The order O(n d²) of all of it, at depth d, is that of Singh, Russell
and Wensing 2022.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rigidgrad.algorithms.coriolis_factor import CoriolisFactor, factor_back
from rigidgrad.algorithms.fast.gauge import Articulation, Gauge, articulate, own_frames
from rigidgrad.algorithms.fast.subtree_gradient import Rows, SubtreeBody, outward
from rigidgrad.algorithms.joints import (
    External,
    Matrix,
    Vector,
    across,
    combine,
    gather,
    parent_value,
    project,
    velocities,
)
from rigidgrad.algorithms.results import RneaSecondDerivatives
from rigidgrad.model.model import WORLD, Model
from rigidgrad.scalars import add, neg
from rigidgrad.spatial import ZERO3, ZERO_FORCE, ZERO_MOTION, Force, Inertia

Tensor = tuple[Matrix, ...]
Path = list[Force]  # a force at each joint from one to the root
_NO_INERTIA = Inertia(0.0, ZERO3, (0.0,) * 6)


def rnea_hessian(
    model: Model,
    q: Vector,
    v: Vector,
    a: Vector,
    w: Vector,
    external: External | None = None,
    *,
    gauge: Gauge | None = None,
) -> RneaSecondDerivatives[Matrix]:
    """Second derivatives of wᵀτ."""
    state = _state(model, q, v, a, external, gauge)
    everywhere = list(model.bodies)
    return RneaSecondDerivatives(
        *(project(model, x) for x in _weighted(state, velocities(model, w), everywhere, everywhere))
    )


def rnea_second_derivatives(
    model: Model,
    q: Vector,
    v: Vector,
    a: Vector,
    external: External | None = None,
    *,
    gauge: Gauge | None = None,
) -> RneaSecondDerivatives[Tensor]:
    """∂²τ_i/∂·_j∂·_k at [i][j][k], for all τ_i."""
    state = _state(model, q, v, a, external, gauge)
    rows: list[list[Rows]] = [[], [], [], []]
    for i, joint in enumerate(model.joints):
        moved = [b for b in model.bodies if i in model.ancestors[b]]
        for k in range(joint.nv):
            unit = [
                tuple(float((b, m) == (i, k)) for m in range(other.nv))
                for b, other in enumerate(model.joints)
            ]
            for part, x in zip(
                rows,
                _weighted(state, unit, moved, sorted({*moved, *model.ancestors[i]})),
                strict=True,
            ):
                part.append(x)
    # M is symmetric: where the weight is on the joint that is carried, its derivative is the
    # shorter one
    for i, plane in enumerate(rows[3]):
        for j in range(i):
            rows[3][j][i] = plane[j]
    return RneaSecondDerivatives(*(_projected(model, part) for part in rows))


def _projected(model: Model, tensor: Sequence[Rows]) -> Tensor:
    """Gᵀ on the first axis, Gᵀ X G on the others."""
    planes = [project(model, plane) for plane in tensor]
    if not model.has_mimic:
        return tuple(planes)
    n = model.nv
    found: list[list[Vector]] = [[()] * n for _ in range(n)]
    for j in range(n):
        for k in range(n):
            found[j][k] = gather(
                model, [[planes[d][j][k] for d in range(m.dof, m.dof + m.nv)] for m in model.joints]
            )
    return tuple(tuple(tuple(found[j][k][i] for k in range(n)) for j in range(n)) for i in range(n))


class _State(NamedTuple):
    """What does not depend on weights: bodies, subtrees, and forces of each freedom at each joint
    that carries it.
    """

    model: Model
    tree: Articulation
    bodies: list[SubtreeBody]
    inertia: list[Inertia]
    factor: list[CoriolisFactor]  # 2 B
    by_q: list[list[Path]]  # I ψ̈ + 2 B ψ̇ + s ×* F
    by_v: list[list[Path]]  # 2 (I σ + B s)
    by_a: list[list[Path]]  # I s


def _state(
    model: Model, q: Vector, v: Vector, a: Vector, external: External | None, gauge: Gauge | None
) -> _State:
    tree = articulate(model, q, gauge or own_frames(model), external)
    bodies = outward(model, tree, v, a, 2.0)
    inertia, factor, force = list(tree.I), [b.factor for b in bodies], [b.force for b in bodies]
    for j in reversed(model.bodies):
        parent, X = model.parents[j], tree.X[j]
        if parent != WORLD:
            inertia[parent] = inertia[parent] + X.inertia_back(inertia[j])
            factor[parent] = factor[parent] + factor_back(X, factor[j])
            force[parent] = force[parent] + X.force_back(force[j])
    by_q, by_v, by_a = (
        [
            [_carried(model, tree, j, f(j, k, s)) for k, s in enumerate(tree.S[j])]
            for j in model.bodies
        ]
        for f in (
            lambda j, k, s: (
                inertia[j].times(bodies[j].second[k])
                + factor[j].times(bodies[j].rate[k])
                + s.cross_force(force[j])
            ),
            lambda j, k, s: inertia[j].times(bodies[j].by_speed[k]) + factor[j].times(s),
            lambda j, k, s: inertia[j].times(s),
        )
    )
    return _State(model, tree, bodies, inertia, factor, by_q, by_v, by_a)


def _carried(model: Model, tree: Articulation, j: int, force: Force) -> Path:
    """A force on body j, at each joint between it and the root."""
    path = [force]
    for i in model.ancestors[j][:-1]:
        path.append(tree.X[i].force_back(path[-1]))
    return path


def _weighted(
    state: _State, w: Sequence[Vector], moved: Iterable[int], touched: Sequence[int]
) -> tuple[Rows, Rows, Rows, Rows]:
    """Second derivatives of wᵀτ over all degrees of freedom. Bodies that are `moved` have a virtual
    velocity; freedoms of those `touched` have derivatives.
    """
    model, tree, bodies = state.model, state.tree, state.bodies
    X, S, I, _ = tree
    u = [ZERO_MOTION] * len(model.bodies)
    alpha = [[ZERO_MOTION] * len(s) for s in S]
    P = [ZERO_FORCE] * len(model.bodies)
    Q = [ZERO_FORCE] * len(model.bodies)
    R = [_NO_INERTIA] * len(model.bodies)
    for i in moved:
        u_parent = across(X[i], parent_value(u, model, i, ZERO_MOTION))
        u[i] = u_parent + combine(S[i], w[i])
        alpha[i] = [u_parent.cross(s) for s in S[i]]
        P[i], Q[i], R[i] = (
            I[i].times(u[i]),
            bodies[i].factor.transposed_times(u[i]),
            I[i].rate(u[i]),
        )
    n = model.dofs
    dqdq, dvdv, dqdv, dadq = ([[0.0] * n for _ in range(n)] for _ in range(4))
    for j in reversed(touched):
        start = model.joints[j].dof
        for row, s in enumerate(S[j]):
            rate, turn = bodies[j].rate[row], alpha[j][row]
            by_q, by_v, by_a = state.by_q[j][row], state.by_v[j][row], state.by_a[j][row]
            own = R[j].times(s)
            A = _carried(model, tree, j, state.inertia[j].times(turn) + s.cross_force(P[j]))
            C = _carried(
                model,
                tree,
                j,
                state.factor[j].transposed_times(turn)
                - R[j].times(rate)
                + rate.cross_force(P[j])
                + s.cross_force(Q[j]),
            )
            D = _carried(model, tree, j, s.cross_force(P[j]) - own)
            x = start + row
            for at, i in enumerate(model.ancestors[j]):
                for k, t in enumerate(S[i]):
                    y = model.joints[i].dof + k
                    body, a = bodies[i], alpha[i][k]
                    by_positions = add(
                        add(by_q[at].dot(a), A[at].dot(body.second[k])), C[at].dot(body.rate[k])
                    )
                    dqdq[x][y] = by_positions
                    dqdv[y][x] = add(by_v[at].dot(a), D[at].dot(body.rate[k]))
                    dadq[x][y] = by_a[at].dot(a)
                    if i == j:
                        dvdv[x][y] = neg(own.dot(t))
                    else:
                        dqdq[y][x] = by_positions
                        dqdv[x][y] = add(A[at].dot(body.by_speed[k]), C[at].dot(t))
                        dvdv[x][y] = dvdv[y][x] = D[at].dot(t)
                        dadq[y][x] = A[at].dot(t)
        parent = model.parents[j]
        if parent != WORLD:
            P[parent] = P[parent] + X[j].force_back(P[j])
            Q[parent] = Q[parent] + X[j].force_back(Q[j])
            R[parent] = R[parent] + X[j].inertia_back(R[j])
    return dqdq, dvdv, dqdv, dadq
