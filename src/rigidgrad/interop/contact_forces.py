"""How the forces of `contact_inverse_dynamics` change with the state: by the implicit function
theorem at the solution of its cone program.

With f = P y, e = M a + c - Jᵀf, D and U the directions that motors drive and that nothing drives,
s = U e / ε' with ε' = 1/ω, and ε = ε' |J|² / rows, a solution obeys

    λ = Pᵀ(ε f - J (DᵀD e + Uᵀ s)),        U e = ε' s,        y = Π(y - ρ λ)    for any ρ > 0,

Π being the projection on the cones. With T its derivative there, and what changes with the state
while y and s stay marked by θ,

    (1 - T + ρ T Λ) dy - ρ T Pᵀ J Uᵀ ds = -ρ T dλ_θ,        -U Jᵀ P dy - ε' ds = -U de_θ,

Λ = Pᵀ(ε + J DᵀD Jᵀ) P. At the edge between two cases (a force that is about to slip or to lift off)
there are two derivatives, and one of them is given.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from rigidgrad.algorithms.fast.contact_inverse_dynamics import SMALL, Layout, layout
from rigidgrad.errors import RigidgradError
from rigidgrad.interop import columns
from rigidgrad.model.contacts import ConstraintSet

NAME = "contact_inverse_dynamics"
DERIVATIVES = "derivatives"  # what is called for them


def jacobians(
    held: ConstraintSet, call: Callable[..., tuple[Any, ...]], xp: Any, *inputs: Any
) -> tuple[Any, ...]:
    """Of τ, forces, residual and what says that it converged, by the coordinates of q, v and a."""
    q, v, a, *active = inputs
    if "float64" not in str(q.dtype):
        raise RigidgradError(
            f"gradients of {NAME} need float64: weights of 1e6 leave too few digits of float32."
            " Give float64 arrays (in JAX with jax_enable_x64)"
        )
    assert held.grip is not None
    shape = layout(held.constraints, held.grip)

    def constant(x: Any) -> Any:
        return columns.constant(xp, np.asarray(x, dtype=float), q)

    def turned(x: Any) -> Any:
        return xp.swapaxes(x, -1, -2)

    parts = np.zeros((held.rows, len(shape.parts)))
    for k, part in enumerate(shape.parts):
        for i, x in part.items():
            parts[i, k] = x
    P, inverse = constant(parts), constant(np.linalg.pinv(parts))
    nv = int(v.shape[-1])
    D = constant(np.reshape(held.grip.driven, (-1, nv)))
    U = constant(np.reshape(held.grip.undriven, (-1, nv)))

    tau, force, residual, _ = call(NAME, *inputs)
    (J,) = call("contact_jacobian", q, *active)
    push = tau + residual / SMALL
    found = call(DERIVATIVES, q, v, a, force, push, *active)
    e_by, moved_by, square_by = ([*found[3 * k : 3 * k + 3]] for k in range(3))
    square = (J * J).sum((-2, -1))[..., None, None] / max(held.rows, 1)
    G = turned(P) @ J  # what generalised forces do to y, (…, unknowns, nv)
    GD, GU = G @ turned(D), G @ turned(U)
    driven = turned(D) @ D

    e = xp.concatenate(e_by, -1)
    moved = xp.concatenate(moved_by, -1)
    stretched = SMALL / max(held.rows, 1) * xp.concatenate(square_by, -1)  # ∂ε
    fixed = turned(P) @ (force[..., :, None] * stretched[..., None, :] - moved) - G @ (driven @ e)

    slack = (SMALL * square * force[..., :, None] - J @ push[..., :, None])[..., 0]
    own = force @ turned(inverse)
    T = _projection(xp, constant, shape, own - (slack @ P) / square[..., 0])
    if active:
        T = T * active[0][..., list(shape.owners)][..., :, None]
    Lambda = SMALL * square * (turned(P) @ P) + GD @ turned(GD)
    TL = T / square
    n, m = len(shape.parts), int(U.shape[0])
    corner = xp.broadcast_to(constant(-SMALL * np.eye(m)), (*q.shape[:-1], m, m))
    left = xp.concatenate([constant(np.eye(n)) - T + TL @ Lambda, -turned(GU)], -2)
    right = xp.concatenate([-(TL @ GU), corner], -2)
    change = xp.linalg.solve(
        xp.concatenate([left, right], -1), -xp.concatenate([TL @ fixed, U @ e], -2)
    )
    by_force = P @ change[..., :n, :]
    by_tau = driven @ (e - turned(J) @ by_force)
    by_residual = SMALL * (turned(U) @ change[..., n:, :])
    whole = xp.concatenate([by_tau, by_force, by_residual, xp.zeros_like(by_tau[..., :1, :])], -2)
    sizes = np.cumsum([0] + [int(x.shape[-1]) for x in (q, v, a)])
    return tuple(whole[..., i:j] for i, j in pairwise(sizes))


def _projection(xp: Any, constant: Callable[[Any], Any], shape: Layout, x: Any) -> Any:
    """The derivative (…, unknowns, unknowns) of the projection on the cones |x̄| ≤ x₀ at x; what
    lies in no cone is free.
    """
    n = len(shape.parts)
    free = np.ones(n)
    free[[k for block in shape.blocks for k in block]] = 0.0
    T = constant(np.diag(free)) + 0.0 * x[..., None]
    for block in shape.blocks:
        own = x[..., list(block)]
        first, others = own[..., :1], own[..., 1:]
        length = xp.sqrt((others * others).sum(-1))[..., None]
        safe = xp.where(length > 0.0, length, xp.ones_like(length))
        along, ratio = others / safe, (first / safe)[..., None]
        turning = (1.0 + ratio) * constant(np.eye(len(block) - 1)) - ratio * (
            along[..., :, None] * along[..., None, :]
        )
        top = xp.concatenate([xp.ones_like(first), along], -1)[..., None, :]
        below = xp.concatenate([along[..., :, None], turning], -1)
        edge = 0.5 * xp.concatenate([top, below], -2)
        inside, outside = (length <= first)[..., None], (length <= -first)[..., None]
        whole = xp.broadcast_to(constant(np.eye(len(block))), edge.shape)
        one = xp.where(outside, xp.zeros_like(edge), xp.where(inside, whole, edge))
        place = constant(np.eye(n)[:, list(block)])
        T = T + place @ one @ place.T
    return T
