"""Random trees with random sets of contacts and loops, and their equations made by Pinocchio.

M a + c = τ + Jᵀ f, J a + γ = 0, solved densely as they are written down; derivatives by
differences of that along a direction.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import NamedTuple

import numpy as np
import pinocchio as pin
from random_trees import Oracle, Tree, moved, random_tree

import rigidgrad as rg

AXES = pin.ReferenceFrame.LOCAL_WORLD_ALIGNED
INDEPENDENT = 3e-2  # the least singular value of J of what is drawn
WORST = 1e6  # condition of K
STEP = 1e-3  # of differences, eight of which are taken
WEIGHTS = (4 / 5, -1 / 5, 4 / 105, -1 / 280)


# --- equations ------------------------------------------------------------------------------------


def prepared(oracle, q, v, a):
    """Pinocchio's data with all that `held_point` reads."""
    full = oracle.expand(q)
    pin.forwardKinematics(oracle.model, oracle.data, full, oracle.G @ v, oracle.G @ a)
    pin.computeJointJacobians(oracle.model, oracle.data)
    return oracle.data


def held_point(oracle, data, link, offset):
    """Jacobian (6, nv), velocity and classical acceleration (6,) in world axes, and position of a
    point of a link.
    """
    frame = oracle.model.frames[oracle.frames[link]]
    joint = frame.parentJoint
    place = frame.placement * pin.SE3(np.eye(3), np.asarray(offset, float))
    of_joint = (oracle.model, data, joint, place, AXES)
    J = pin.getFrameJacobian(*of_joint).reshape(6, -1) @ oracle.G
    velocity = pin.getFrameVelocity(*of_joint).vector
    acceleration = pin.getFrameClassicalAcceleration(*of_joint).vector
    return J, velocity, acceleration, (data.oMi[joint] * place).translation


def rows(oracle, data, c):
    """J and γ of one constraint, from data at a = 0."""
    if isinstance(c, rg.Contact):
        J, velocity, acceleration, place = held_point(oracle, data, c.frame, c.offset)
    else:
        a = held_point(oracle, data, c.frame_a, c.offset_a)
        b = held_point(oracle, data, c.frame_b, c.offset_b)
        J, velocity, acceleration, place = (x - y for x, y in zip(a, b, strict=True))
    gamma = acceleration + c.gains[1] * velocity
    if c.gains[0]:
        gamma[:3] += c.gains[0] * (place - c.place)
    return J[: c.rows], gamma[: c.rows]


def equations(oracle, q, v, contacts):
    """J and γ of all rows in world axes."""
    data = prepared(oracle, q, v, np.zeros_like(v))
    found = [rows(oracle, data, c) for c in contacts]
    J = np.concatenate([np.zeros((0, len(v))), *(x for x, _ in found)])
    return J, np.concatenate([np.zeros(0), *(x for _, x in found)])


def solution(oracle, q, v, tau, external, contacts):
    """a, f and the condition of K = [M, -Jᵀ; J, 0]."""
    J, gamma = equations(oracle, q, v, contacts)
    K = equations_matrix(oracle, q, J)
    x = np.linalg.solve(K, np.concatenate([tau - oracle.bias(q, v, external), -gamma]))
    return x[: len(v)], x[len(v) :], np.linalg.cond(K)


def equations_matrix(oracle, q, J):
    return np.block([[oracle.crba(q), -J.T], [J, np.zeros((len(J), len(J)))]])


def differences(oracle, q, v, tau, external, contacts, directions):
    """How a and f, one after the other, change along directions of q, v and τ: of q to eighth order
    in the step, of v and τ exactly, as these enter squared and linearly.
    """
    solved = lambda *x: np.concatenate(solution(*x, external, contacts)[:2])  # noqa: E731
    of_q, of_v, of_tau = directions
    yield along(oracle, q, of_q, lambda there, full: solved(there, full, v, tau))
    yield (solved(oracle, q, v + of_v, tau) - solved(oracle, q, v - of_v, tau)) / 2
    yield solved(oracle, q, v, tau + of_tau) - solved(oracle, q, v, tau)


def struck(oracle, q, v, restitution, contacts):
    """v⁺ and the impulse, one after the other, of M (v⁺ - v) = Jᵀ p, J v⁺ = -e J v."""
    J, _ = equations(oracle, q, 0 * v, contacts)
    right = np.concatenate([oracle.crba(q) @ v, -restitution * J @ v])
    return np.linalg.solve(equations_matrix(oracle, q, J), right)


def struck_along(oracle, q, v, restitution, contacts, of_q):
    """How these change along a direction of q."""
    return along(oracle, q, of_q, lambda there, at: struck(there, at, v, restitution, contacts))


def along(oracle, q, direction, function):
    """The derivative of a function (oracle, its own q) along a direction of q."""
    there = Oracle(oracle.model, oracle.frames, oracle.G, lambda full: full)
    full = oracle.expand(q)

    def at(t):
        return function(there, pin.integrate(oracle.model, full, oracle.G @ (t * direction)))

    return sum(w * (at(k * STEP) - at(-k * STEP)) / STEP for k, w in enumerate(WEIGHTS, start=1))


def complex_step(tree, function, q, vectors, h=1e-40):
    """Derivatives of a function of q and some vectors, one matrix for each of its arguments."""
    nv, count = tree.nv, 1 + len(vectors)
    directions = 1j * h * np.eye(count * nv)
    scalars = [np.full(count * nv, x, dtype=complex) for x in q]
    q = moved(tree, scalars, [directions[:, k] for k in range(nv)])
    moving = [
        tuple(x[k] + directions[:, (m + 1) * nv + k] for k in range(nv))
        for m, x in enumerate(vectors)
    ]
    result = np.array(
        [np.broadcast_to(np.imag(x) / h, count * nv) for x in function(tuple(q), *moving)]
    )
    return np.split(result.reshape(-1, count * nv), count, axis=1)


# --- drawing --------------------------------------------------------------------------------------


def random_contacts(tree, oracle, q, rng, count):
    """`count` of both kinds, and loops, or fewer where there is no room for more that do not depend
    on each other.
    """
    joint = {name: oracle.model.frames[frame].parentJoint for name, frame in oracle.frames.items()}
    moving = [name for name in oracle.frames if joint[name] > 0]
    data = prepared(oracle, q, np.zeros(tree.nv), np.zeros(tree.nv))
    found: list = []
    J = np.zeros((0, tree.nv))
    for _ in range(8 * count):
        if len(found) == count:
            break
        frame, other = (moving[rng.integers(len(moving))] for _ in range(2))
        offset, gains = rng.uniform(-0.3, 0.3, 3), (0.0, float(rng.integers(2)) * 5)
        if rng.integers(3) == 2 and joint[frame] != joint[other]:
            kind, offset_b = ("point", "full")[rng.integers(2)], rng.uniform(-0.3, 0.3, 3)
            c = rg.Loop(frame, other, kind, offset_a=offset, offset_b=offset_b, gains=gains)
        elif rng.integers(2):
            place = {"place": rng.normal(size=3)} if rng.integers(2) else {}
            gains = (7.0 if place else 0.0, gains[1])
            c = rg.Contact(frame, "point", offset=offset, gains=gains, **place)
        else:
            c = rg.Contact(frame, "surface", offset=offset, gains=gains)
        if c.rows > tree.nv - len(J):
            continue
        more = np.concatenate([J, rows(oracle, data, c)[0]])
        if np.linalg.svd(more, compute_uv=False).min() > INDEPENDENT:
            found.append(c)
            J = more
    return found


class Held(NamedTuple):
    """A tree in a state, with contacts."""

    tree: Tree
    oracle: Oracle
    q: np.ndarray
    v: np.ndarray
    tau: np.ndarray
    external: dict
    contacts: list

    def robot(self, engine="numpy"):
        return self.tree.builder().build(
            floating_base=self.tree.floating, gravity=tuple(self.tree.gravity), engine=engine
        )

    def __str__(self):
        return f"{self.tree}, {self.contacts}"


@cache
def held_tree(number: int, count: int | None = None) -> Held:
    """The tree of a number with `count` contacts, by default 1 to 6 in turn: trees are drawn, of
    more and more bodies, until one that is not much larger than it must be has room for all of
    them, and K is not worse conditioned than 1e6.
    """
    count = number % 6 + 1 if count is None else count
    rng = np.random.default_rng([19, number, count])
    floating, mimic = (bool(x) for x in rng.integers(2, size=2))
    for attempt in itertools.count():
        bodies = count + attempt // 8
        tree = random_tree(int(rng.integers(2**31)), bodies, floating, mimic)
        if not 3 * count <= tree.nv <= 4 * count + 5:
            continue
        oracle = tree.oracle()
        q, v, tau = tree.random_state(rng)
        contacts = random_contacts(tree, oracle, q, rng, count)
        external = tree.random_wrenches(rng)
        fits = len(contacts) == count
        if fits and solution(oracle, q, v, tau, external, contacts)[2] < WORST:
            return Held(tree, oracle, q, v, tau, external, contacts)
    raise AssertionError  # counting has no end
