"""What dynamics carry along a tree, body by body: the steps of all walks over arrays (Featherstone
2008, tables 5.1, 6.2 and 7.1).

A step outwards turns what the parent hands on into what the body does; a step inwards turns what is
collected at a body, its own share and that of all that hangs on it, into the share of its parent.
Both are flat tuples, of lanes or of single numbers. A place is (slot among the bodies, slot in
workspaces, lanes, slot that was prepared); a walk body by body has rows instead of packs, and no
table of bodies.

The state is (table of bodies, their numbers, workspace, motions, (b, q, v), rest, …). A workspace
begins with a body's E 0-8 and r 9-11; what is collected follows from 12 on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.scalars import Scalar
from rigidgrad.trees.algebra import (
    Flat,
    Transform,
    across_joint,
    body_force,
    compose,
    force_to_parent,
    inertia_to_parent as rigid_to_parent,
    joint_motion,
    joint_velocity,
)
from rigidgrad.trees.articulated import acceleration, eliminate, of_body, to_parent
from rigidgrad.trees.lanes import joint_transform, sincos
from rigidgrad.trees.packs import give, lanes, put_lanes, take

Place = tuple[int, int, int, int]
State = tuple[Any, ...]  # arrays, their tuples, and numbers, as the module says
Memory = tuple[
    np.ndarray, int, int, int
]  # components of what is carried in it, the first, how many
Across = tuple[Flat, Flat, Scalar, Scalar, Scalar]  # E, r, ang, lin and velocity of a joint
# S, (E, r), the bias, (U, 1/D, u) and what the parent gets
Eliminated = tuple[Flat, Transform, Flat, tuple[Flat, Scalar, Scalar], Flat]

INVERSE, FORWARD = 18, 53  # components of a workspace
COLLECTED = 12  # where what is collected begins


# --- joints
# ------------------------------------------------------------------------------------------


@kernel
def turn(place: Place, state: State) -> None:
    """Sine and cosine of the joint, where E comes to lie: a loop of its own, as each is a long
    chain of steps that depend on each other.
    """
    body, data, work, _, (b, q, _v), _ = state[0:6]
    s, at, wide, _ = place
    ang = lanes(data, s, 24, 22, 1, wide)[0]
    put_lanes(work, at, work.shape[1], 0, sincos(ang * take(q, b * q.shape[1], body, s, wide)))


@kernel
def joint(place: Place, state: State) -> Across:
    """E, r, ang, lin and velocity of a joint that was turned."""
    body, data, work, _, (b, q, v), _ = state[0:6]
    s, _, wide, turned = place
    base = b * q.shape[1]
    ang, lin = lanes(data, s, 24, 22, 2, wide)
    sine, cosine = lanes(work, turned, work.shape[1], 0, 2, wide)
    c = lanes(data, s, 24, 0, 12, wide)
    E, r = across_joint(c[0:9], c[9:12], sine, cosine, lin * take(q, base, body, s, wide))
    return E, r, ang, lin, take(v, base, body, s, wide)


@kernel
def without(force: Flat, external: np.ndarray, place: Place, state: State) -> Flat:
    """A force, without the external one, where there are any."""
    body = state[0]
    b = state[4][0]
    s, _, wide, _ = place
    f = force
    if external.shape[0] > 0:
        x = external[b]
        f = (
            f[0] - take(x[0], 0, body, s, wide),
            f[1] - take(x[1], 0, body, s, wide),
            f[2] - take(x[2], 0, body, s, wide),
            f[3] - take(x[3], 0, body, s, wide),
            f[4] - take(x[4], 0, body, s, wide),
            f[5] - take(x[5], 0, body, s, wide),
        )
    return f


# --- inverse dynamics: velocities and accelerations go outwards, forces inwards; the rest of the
# state is a, external forces, tau
# ------------------------------------------------------------------------------------------


@kernel
def of_motions(state: State) -> Memory:
    """Where a walk keeps what it carries: array, components, the first of them, how many."""
    return state[3], 12, 0, 12


@kernel
def of_forces(state: State) -> Memory:
    return state[2], INVERSE, COLLECTED, 6


@kernel
def moved(parent: Flat, across: Across, place: Place, state: State) -> Flat:
    """Velocity and acceleration."""
    E, r, ang, lin, speed = across
    s, _, wide, _ = place
    a = take(state[5][0], state[4][0] * state[4][1].shape[1], state[0], s, wide)
    v, a = joint_motion(E, r, ang, lin, speed, a, parent[0:6], parent[6:12])
    return v + a


@kernel
def move(parent: Flat, place: Place, state: State) -> Flat:
    return moved(parent, joint(place, state), place, state)


@kernel
def extend(carried: Flat, place: Place, state: State) -> Flat:
    """Transform, velocity and acceleration at the end of a segment that starts from rest."""
    across = joint(place, state)
    E, r = compose(carried[0:9], carried[9:12], across[0], across[1])
    return E + r + moved(carried[12:24], across, place, state)


@kernel
def bear(parent: Flat, place: Place, state: State) -> Flat:
    """`move`, and the force that the motion takes is the body's share of what is collected."""
    s, at, wide, _ = place
    across = joint(place, state)
    motion = moved(parent, across, place, state)
    f = body_force(lanes(state[1], s, 24, 12, 10, wide), motion[0:6], motion[6:12])
    f = without(f, state[5][1], place, state)
    put_lanes(state[2], at, INVERSE, 0, across[0] + across[1] + f)
    return motion


@kernel
def pass_on(force: Flat, place: Place, state: State) -> Flat:
    """To the parent's frame."""
    x = lanes(state[2], place[1], INVERSE, 0, 12, place[2])
    return force_to_parent(x[0:9], x[9:12], force)


@kernel
def drive(force: Flat, place: Place, state: State) -> Flat:
    """The joint's part is tau."""
    s, _, wide, _ = place
    tau = state[5][2]
    w = lanes(state[1], s, 24, 22, 2, wide)
    give(tau, state[4][0] * tau.shape[1], state[0], s, w[0] * force[2] + w[1] * force[5])
    return pass_on(force, place, state)


# --- forward dynamics: velocities go outwards, articulated inertias inwards, accelerations
# outwards;
# the rest of the state is tau, armature, external forces, the joints' accelerations.
# A workspace goes on with the bias v × S q̇ 39-44, U 45-50, 1/D 51 and u 52
# ------------------------------------------------------------------------------------------


@kernel
def of_velocities(state: State) -> Memory:
    return state[3], 6, 0, 6


@kernel
def of_inertias(state: State) -> Memory:
    return state[2], FORWARD, COLLECTED, 27


@kernel
def extend_velocity(carried: Flat, place: Place, state: State) -> Flat:
    """Transform and velocity at the end of a segment that starts from rest."""
    F, d, ang, lin, speed = joint(place, state)
    E, r = compose(carried[0:9], carried[9:12], F, d)
    return E + r + joint_velocity(F, d, ang, lin, speed, carried[12:18])[0]


@kernel
def weigh(parent: Flat, place: Place, state: State) -> Flat:
    """Velocity; inertia and bias force are the body's share of what is collected."""
    s, at, wide, _ = place
    E, r, ang, lin, speed = joint(place, state)
    v, bias = joint_velocity(E, r, ang, lin, speed, parent)
    J, f = of_body(lanes(state[1], s, 24, 12, 10, wide), v)
    put_lanes(state[2], at, FORWARD, 0, E + r + J + without(f, state[5][2], place, state) + bias)
    return v


@kernel
def eliminated(load: Flat, place: Place, state: State) -> Eliminated:
    """Articulated inertia and bias force before a joint is eliminated, in 27 numbers: S, E, r, the
    bias, (U, 1/D, u), and what the parent gets.
    """
    body, data, work, _, (b, _q, _v), (tau, armature, _external, _out) = state[0:6]
    s, at, wide, _ = place
    w = lanes(data, s, 24, 22, 2, wide)
    x = lanes(work, at, FORWARD, 0, 12, wide)
    c = lanes(work, at, FORWARD, 39, 6, wide)
    J, f = load[0:21], load[21:27]
    own = take(tau, b * tau.shape[1], body, s, wide)
    U, d, u = eliminate(J, f, w[0], w[1], own, lanes(armature, s, 1, 0, 1, wide)[0])
    K, g = to_parent(x[0:9], x[9:12], J, f, c, U, d, u)
    return w, (x[0:9], x[9:12]), c, (U, d, u), K + g


@kernel
def articulate(load: Flat, place: Place, state: State) -> Flat:
    _w, _X, _c, (U, d, u), up = eliminated(load, place, state)
    put_lanes(state[2], place[1], FORWARD, 45, U + (d, u))
    return up


@kernel
def accelerate(parent: Flat, place: Place, state: State) -> Flat:
    body, data, work, _, (b, _q, _v), (_tau, _armature, _external, out) = state[0:6]
    s, at, wide, _ = place
    w = lanes(data, s, 24, 22, 2, wide)
    x = lanes(work, at, FORWARD, 0, 12, wide)
    y = lanes(work, at, FORWARD, 39, 14, wide)
    own, a = acceleration(x[0:9], x[9:12], w[0], w[1], y[0:6], y[6:12], y[12], y[13], parent)
    give(out, b * out.shape[1], body, s, a)
    return own


# --- composite inertias go inwards: the state is X, with E 0-8 and r 9-11 of 16, and inertias


@kernel
def of_composites(state: State) -> Memory:
    return state[1], 10, 0, 10


@kernel
def merge(inertia: Flat, place: Place, state: State) -> Flat:
    x = lanes(state[0], place[1], 16, 0, 12, place[2])
    return rigid_to_parent(x[0:9], x[9:12], inertia)


# --- placements go outwards: the state is q of one state, bodies' numbers, X with E 0-8 and r 9-11


@kernel
def of_placements(state: State) -> Memory:
    return state[2], 12, 0, 12


@kernel
def place_at(parent: Flat, place: Place, state: State) -> Flat:
    """The transform from the world to a body, from that to its parent."""
    q, data, _ = state
    s = place[0]
    c = lanes(data, s, 24, 0, 24, 1)
    E, r = joint_transform(c[0:9], c[9:12], c[22], c[23], q[s])
    F, d = compose(parent[0:9], parent[9:12], E, r)
    return F + d


# --- operators without some of these


@kernel
def ready(place: Place, state: State) -> None:
    """The preparation of an operator that needs none."""


@kernel
def still(s: int, state: State) -> None:
    """Of an operator that asks for nothing ahead of its turn."""
