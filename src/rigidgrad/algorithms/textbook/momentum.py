"""Centre of mass and its Jacobian, centroidal momentum, kinetic and potential energy. Bodies merged
into the world do not count.
"""

from __future__ import annotations

from rigidgrad.algorithms.joints import (
    Matrix,
    Vector,
    across,
    body_transforms,
    combine,
    gather,
    inertias,
    parent_value,
    subspaces,
    velocities,
)
from rigidgrad.algorithms.results import Energy
from rigidgrad.errors import InputError
from rigidgrad.model.model import WORLD, Model
from rigidgrad.scalars import Scalar, add, mul, neg, total
from rigidgrad.spatial import (
    IDENTITY,
    ZERO3,
    ZERO_FORCE,
    ZERO_MOTION,
    Force,
    Motion,
    Transform,
    Vector3,
    add3,
    cross3,
    dot3,
    rotate_back,
    scale3,
    sub3,
)


def total_mass(model: Model) -> Scalar:
    mass = total(m for m, _, _ in model.inertias)
    if type(mass) is float and mass == 0.0:
        raise InputError(f"robot '{model.name}' has no moving mass, so it has no centre of mass")
    return mass


def first_moments(model: Model, X: list[Transform]) -> list[tuple[Scalar, Vector3]]:
    """Mass and m·c of each body with all that hangs on it, in its frame."""
    moments: list[tuple[Scalar, Vector3]] = [(m, h) for m, h, _ in model.inertias]
    for i in reversed(model.bodies):
        parent = model.parents[i]
        if parent != WORLD:
            (m, h), (pm, ph) = moments[i], moments[parent]
            moments[parent] = add(pm, m), add3(ph, add3(rotate_back(X[i].E, h), scale3(m, X[i].r)))
    return moments


def whole_moment(model: Model, X: list[Transform]) -> Vector3:
    """Σ m c in the world."""
    moment = ZERO3
    for i, (m, h) in enumerate(first_moments(model, X)):
        if model.parents[i] == WORLD:
            moment = add3(moment, add3(rotate_back(X[i].E, h), scale3(m, X[i].r)))
    return moment


def center_of_mass(model: Model, q: Vector) -> Vector:
    """In the world, 3 numbers."""
    return scale3(1 / total_mass(model), whole_moment(model, body_transforms(model, q)))


def center_of_mass_jacobian(model: Model, q: Vector) -> Matrix:
    """3 x nv: the velocity of the centre of mass, in world axes, is J v."""
    X, S = body_transforms(model, q), subspaces(model)
    share = 1 / total_mass(model)
    world: list[Transform] = []
    columns: list[list[Vector3]] = []
    for i, (m, h) in enumerate(first_moments(model, X)):
        world.append(X[i] @ parent_value(world, model, i, IDENTITY))
        moved = [add3(scale3(m, s.linear), cross3(s.angular, h)) for s in S[i]]
        columns.append([scale3(share, rotate_back(world[i].E, x)) for x in moved])
    return tuple(gather(model, [[x[k] for x in column] for column in columns]) for k in range(3))


def body_velocities(model: Model, X: list[Transform], v: Vector) -> list[Motion]:
    S, qd = subspaces(model), velocities(model, v)
    result: list[Motion] = []
    for i in model.bodies:
        result.append(
            across(X[i], parent_value(result, model, i, ZERO_MOTION)) + combine(S[i], qd[i])
        )
    return result


def centroidal_momentum(model: Model, q: Vector, v: Vector) -> Vector:
    """6 numbers, linear first, about the centre of mass, in world axes."""
    X = body_transforms(model, q)
    momenta: list[Force] = [
        I.times(m) for I, m in zip(inertias(model), body_velocities(model, X, v), strict=True)
    ]
    whole = ZERO_FORCE
    for i in reversed(model.bodies):
        up = X[i].force_back(momenta[i])
        if model.parents[i] == WORLD:
            whole = whole + up
        else:
            momenta[model.parents[i]] = momenta[model.parents[i]] + up
    angular = sub3(whole.angular, cross3(center_of_mass(model, q), whole.linear))
    return (*whole.linear, *angular)


def energy(model: Model, q: Vector, v: Vector) -> Energy[Scalar]:
    """½ vᵀM v, armature included, and -Σ m g·c, in joules."""
    X = body_transforms(model, q)
    kinetic: Scalar = 0.0
    for I, m in zip(inertias(model), body_velocities(model, X, v), strict=True):
        kinetic = add(kinetic, I.times(m).dot(m))
    for joint, numbers in zip(model.joints, velocities(model, v), strict=True):
        for k, x in enumerate(numbers):
            kinetic = add(kinetic, mul(model.armature[joint.dof + k], mul(x, x)))
    return Energy(kinetic / 2, neg(dot3(whole_moment(model, X), model.gravity)))
