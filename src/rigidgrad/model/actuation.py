"""What drives a robot: controls, and the joint forces that a unit of each causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.errors import InputError, unknown_name
from rigidgrad.model.description import Actuator

if TYPE_CHECKING:
    from rigidgrad.model.model import Joint, Model

_WORLD = -1
_KINDS = (
    '"joints" (every motor that the robot has), "all" (a force on every freedom), names of joints,'
    " {control: {joint: forces}}, or a matrix"
)


def own_actuators(model: Model) -> tuple[Actuator, ...]:
    """The motors that the robot has: those that its description states; or else one in every joint
    that is not free.
    """
    stated = model.description.actuators
    return (
        stated
        if stated is not None
        else _motors(j for j in _joints(model) if not is_free(model, j))
    )


def is_free(model: Model, joint: Joint) -> bool:
    """Whether a joint says how a robot may move about, and not how it moves itself: floating;
    planar and spherical at the root.
    """
    return joint.kind.is_free(model.parents[model.joints.index(joint)] == _WORLD)


def actuators_of(model: Model, asked: Any) -> tuple[Actuator, ...]:
    """What a user asked for, in any of its notations."""
    if isinstance(asked, str):
        if asked not in ("joints", "all"):
            raise InputError(
                f"actuation is {_KINDS} ({model.nv}, nu); not {asked!r}. For one joint write"
                f" [{asked!r}]"
            )
        return own_actuators(model) if asked == "joints" else _motors(_joints(model))
    if isinstance(asked, Mapping):
        return tuple(_named(model, name, forces) for name, forces in asked.items())
    if isinstance(asked, Sequence) and asked and all(isinstance(name, str) for name in asked):
        if len(set(asked)) != len(asked):
            raise InputError("actuation names a joint twice")
        return _motors(_joint(model, name) for name in asked)
    return _columns(model, asked)


def actuation_matrix(model: Model, actuators: Sequence[Actuator]) -> tuple[tuple[float, ...], ...]:
    """B (nv, nu): tau = B u."""
    matrix = np.zeros((model.nv, len(actuators)))
    by_name = {j.name: j for j in _joints(model)}
    for k, actuator in enumerate(actuators):
        for name, forces in actuator.forces:
            start = by_name[name].v
            matrix[start : start + len(forces), k] += forces
    return tuple(tuple(row) for row in matrix.tolist())


def driven_directions(
    model: Model, actuators: Sequence[Actuator]
) -> tuple[tuple[tuple[float, ...], ...], ...]:
    """Orthonormal rows: directions of joint forces that controls can give, and those that they
    cannot. Both are unit vectors unless controls couple joints.
    """
    B = np.array(actuation_matrix(model, actuators)).reshape(model.nv, -1)
    touched = B.any(axis=1)
    unit = np.eye(model.nv)
    left, size, _ = np.linalg.svd(B[touched])
    rank = int(np.sum(size > 1e-12 * max(size, default=0.0)))
    if rank == touched.sum():
        return _lines(unit[touched]), _lines(unit[~touched])
    turned = np.zeros((len(left), model.nv))
    turned[:, touched] = left.T
    return _lines(turned[:rank]), _lines(np.concatenate([unit[~touched], turned[rank:]]))


def _lines(matrix: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())


def undriven(model: Model, actuators: Sequence[Actuator]) -> tuple[Joint, ...]:
    """The joints that no control acts on."""
    driven = {name for a in actuators for name, forces in a.forces if any(forces)}
    return tuple(j for j in _joints(model) if j.name not in driven)


def _joints(model: Model) -> list[Joint]:
    return [j for j in model.joints if not j.is_mimic]


def _joint(model: Model, name: str) -> Joint:
    found = {j.name: j for j in _joints(model)}
    if name not in found:
        raise unknown_name("joint to drive", name, found)
    return found[name]


def _motors(joints: Any) -> tuple[Actuator, ...]:
    """A unit force on every freedom of each joint."""
    result = []
    for j in joints:
        for k, freedom in enumerate(j.kind.freedoms):
            forces = tuple(1.0 if i == k else 0.0 for i in range(j.nv))
            result.append(
                Actuator(f"{j.name} {freedom}" if freedom else j.name, ((j.name, forces),))
            )
    return tuple(result)


def _named(model: Model, name: Any, forces: Any) -> Actuator:
    if not isinstance(name, str) or not isinstance(forces, Mapping) or not forces:
        raise InputError(
            f"actuation as a map is {{control: {{joint: force per unit}}}}; this is {{{name!r}:"
            f" {forces!r}}}"
        )
    result = []
    for joint, values in forces.items():
        count = _joint(model, joint).nv
        result.append(
            (
                joint,
                tuple(
                    _finite(
                        f"the forces of {name!r} on {joint!r}", np.atleast_1d(values), (count,)
                    ).tolist()
                ),
            )
        )
    return Actuator(name, tuple(result))


def _columns(model: Model, asked: Any) -> tuple[Actuator, ...]:
    """The columns of a matrix; one that is a unit force on a joint bears its name."""
    try:
        shape = np.shape(asked)
    except ValueError:  # rows of different lengths
        shape = ()
    if len(shape) != 2 or shape[0] != model.nv or shape[1] < 1:
        raise InputError(
            f"actuation is {_KINDS} ({model.nv}, nu); this is a {type(asked).__name__} of shape"
            f" {shape}"
        )
    matrix = _finite("actuation", asked, shape)
    units = {a.forces: a for a in _motors(_joints(model))}
    result = []
    for k, column in enumerate(matrix.T):
        parts = [(j.name, tuple(column[j.v : j.v + j.nv].tolist())) for j in _joints(model)]
        forces = tuple((name, values) for name, values in parts if any(values))
        result.append(units.get(forces) or Actuator(f"control {k}", forces))
    return tuple(result)


def _finite(what: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{what} are not numbers") from None
    if array.shape != shape or not np.isfinite(array).all():
        raise InputError(
            f"{what} are finite numbers of shape {shape}; these have shape {array.shape}, or hold"
            " NaN or infinity"
        )
    return array
