"""What is carried along a tree, for the walks of `levels` and `paths`: the recursions of dynamics,
and what a stretch of bodies does as a whole.

z is what a body contributes, x what is carried: arrays of numbers first, bodies last. Transforms E,
r have 12 numbers, as in `algebra`. The walk by levels needs `step` alone; along heavy paths a
stretch of bodies is folded from `rest` into one operator, which `apply` then uses on what enters
the stretch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from rigidgrad.trees import algebra, articulated

_IDENTITY = np.append(np.eye(3), np.zeros((1, 3)))


class Down(NamedTuple):
    """From a parent's numbers x to a body's: step(z, x). A stretch of bodies grows at its end by
    fold(stretch, z).
    """

    step: Callable[[Any, Any], Any]
    rest: np.ndarray
    fold: Callable[[Any, Any], Any]
    apply: Callable[[Any, Any], Any]


class Up(NamedTuple):
    """From a body's numbers x, with those of all that hang on it, to what it adds to its parent:
    step(z, x). A stretch grows at its head by fold(stretch, z, x), x being what the new body has
    without the stretch.
    """

    step: Callable[[Any, Any], Any]
    rest: np.ndarray
    fold: Callable[[Any, Any, Any], Any]
    apply: Callable[[Any, Any], Any]


# --- placements: z starts with E, r; x and a stretch are transforms -------------------------------


def _compose(z: Any, x: Any) -> Any:
    # once: taking single numbers out of arrays is most of the time of tracing
    z, x = (tuple(z), tuple(x))
    E, r = algebra.compose(x[:9], x[9:12], z[:9], z[9:12])
    return jnp.stack(E + r)


PLACEMENT = Down(_compose, _IDENTITY, lambda stretch, z: _compose(z, stretch), _compose)


# --- motions: z is E, r, ang, lin, q̇, q̈; x is v, a; a stretch is E, r and what it turns rest into


def _move(z: Any, x: Any) -> Any:
    z, x = tuple(z), tuple(x)
    v, a = algebra.joint_motion(z[:9], z[9:12], z[12], z[13], z[14], z[15], x[:6], x[6:])
    return jnp.stack(v + a)


def _move_further(stretch: Any, z: Any) -> Any:
    return jnp.concatenate([_compose(z, stretch), _move(z, stretch[12:])])


def _move_along(stretch: Any, x: Any) -> Any:
    stretch, x = tuple(stretch), tuple(x)
    v, a = algebra.jet_after(stretch[:9], stretch[9:12], stretch[12:18], stretch[18:], x[:6], x[6:])
    return jnp.stack(v + a)


MOTION = Down(_move, np.append(_IDENTITY, np.zeros(12)), _move_further, _move_along)


# --- accelerations from rest, of given joints: z is E, r, ang, lin, q̈; x is a; a stretch is E, r
# and the acceleration it adds --------


def _drive(z: Any, x: Any) -> Any:
    z = tuple(z)
    a = algebra.motion_to_child(z[:9], z[9:12], tuple(x))
    return jnp.stack([a[0], a[1], a[2] + z[12] * z[14], a[3], a[4], a[5] + z[13] * z[14]])


def _drive_further(stretch: Any, z: Any) -> Any:
    return jnp.concatenate([_compose(z, stretch), _drive(z, stretch[12:])])


def _drive_along(stretch: Any, x: Any) -> Any:
    X = tuple(stretch[:12])
    return stretch[12:] + jnp.stack(algebra.motion_to_child(X[:9], X[9:], tuple(x)))


DRIVEN = Down(_drive, np.append(_IDENTITY, np.zeros(6)), _drive_further, _drive_along)


# --- what is moved to the parent and added there: z starts with E, r; a stretch is E, r and what it
# adds ------------------------------


def _added(to_parent: Callable[..., tuple[Any, ...]], size: int) -> Up:
    def step(z: Any, x: Any) -> Any:
        z = tuple(z[:12])
        return jnp.stack(to_parent(z[:9], z[9:], tuple(x)))

    def fold(stretch: Any, z: Any, x: Any) -> Any:
        return jnp.concatenate([_compose(stretch, z), step(z, stretch[12:] + x)])

    def apply(stretch: Any, x: Any) -> Any:
        return stretch[12:] + step(stretch, x)

    return Up(step, np.append(_IDENTITY, np.zeros(size)), fold, apply)


FORCE = _added(algebra.force_to_parent, 6)
INERTIA = _added(algebra.inertia_to_parent, 10)


# --- articulated bodies at rest: z is E, r, ang, lin, tau, armature; x is a 6x6 inertia J and a
# bias force p, 42 numbers. A stretch has two handles: J, p at its head; its tail accelerates by A a
# + b - C f under a force f; it is joined to what follows by the star product (after Featherstone
# 1999): J, p, A, b, C ---


def _matrix(x: Any) -> Any:
    return x.reshape(6, 6, *x.shape[1:])


def joint_of(z: Any, x: Any) -> Any:
    """U = J S, 1 / (Sᵀ U + armature), and tau - Sᵀ p: 8 numbers."""
    J, ang, lin = _matrix(x[:36]), z[12], z[13]
    U = J[:, 2] * ang + J[:, 5] * lin
    return jnp.concatenate(
        [U, jnp.stack([1 / (ang * U[2] + lin * U[5] + z[15]), z[14] - (ang * x[38] + lin * x[41])])]
    )


def _articulate(z: Any, x: Any) -> Any:
    joint = joint_of(z, x)
    U, d, u = joint[:6], joint[6], joint[7]
    half = FORCE.step(z, _matrix(x[:36]) - (d * U)[:, None] * U)
    J = FORCE.step(z, jnp.swapaxes(half, 0, 1))  # Xᵀ (Xᵀ K)ᵀ = Xᵀ K X
    p = FORCE.step(z, x[36:] + d * u * U)
    return jnp.concatenate([J.reshape(36, *p.shape[1:]), p])


def _articulate_further(stretch: Any, z: Any, x: Any) -> Any:
    total, A, b, C = (
        stretch[:42] + x,
        _matrix(stretch[42:78]),
        stretch[78:84],
        _matrix(stretch[84:]),
    )
    joint = joint_of(z, total)
    U, d, u = joint[:6], joint[6], joint[7]
    along = A[:, 2] * z[12] + A[:, 5] * z[13]  # A S
    columns = jnp.swapaxes(A - (d * along)[:, None] * U, 0, 1)
    A = jnp.swapaxes(FORCE.step(z, columns), 0, 1)  # A (1 - S Uᵀ/D) X
    C = C + (d * along)[:, None] * along
    shape = (36, *b.shape[1:])
    return jnp.concatenate(
        [_articulate(z, total), A.reshape(shape), b + d * u * along, C.reshape(shape)]
    )


def _star(stretch: Any, x: Any) -> Any:
    J, p = _matrix(x[:36]), x[36:]
    A, b, C = _matrix(stretch[42:78]), stretch[78:84], _matrix(stretch[84:])
    # the tail accelerates by (1 + C J)⁻¹ (A a + b - C p), and is loaded with J times that, plus p
    tail = jnp.linalg.solve(
        jnp.eye(6, dtype=x.dtype) + C @ J, jnp.concatenate([A, (b - C @ p)[:, None]], axis=1)
    )
    load = A.T @ (J @ tail)
    K = load[:, :6]
    return stretch[:42] + jnp.append((K + K.T) / 2, load[:, 6] + A.T @ p)


ARTICULATED = Up(
    _articulate,
    np.concatenate([np.zeros(42), np.eye(6).ravel(), np.zeros(42)]),
    _articulate_further,
    _star,
)


# --- accelerations at rest: z is E, r, ang, lin, U, 1/D, u; x is a body's acceleration and its
# joint's; a stretch is [A b], 6x7: a → A a + b -----------


def _accelerate(z: Any, x: Any) -> Any:
    z, x = tuple(z), tuple(x)
    a, joint = articulated.acceleration(
        z[:9], z[9:12], z[12], z[13], (0.0,) * 6, z[14:20], z[20], z[21], x[:6]
    )
    return jnp.stack([*a, joint])


def _accelerate_further(stretch: Any, z: Any) -> Any:
    columns = stretch.reshape(6, 7, *stretch.shape[1:])
    u = jnp.concatenate([jnp.zeros_like(columns[0, :6]), z[21:]])  # joint forces act on b alone
    z = tuple(z)
    a, _ = articulated.acceleration(
        z[:9], z[9:12], z[12], z[13], (0.0,) * 6, z[14:20], z[20], u, tuple(columns)
    )
    return jnp.stack(a).reshape(stretch.shape)


def _accelerate_along(stretch: Any, x: Any) -> Any:
    Ab = stretch.reshape(6, 7)
    return jnp.append(Ab[:, :6] @ x[:6] + Ab[:, 6], x[6])


ACCELERATION = Down(_accelerate, np.eye(6, 7).ravel(), _accelerate_further, _accelerate_along)
