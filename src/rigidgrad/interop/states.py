"""States and forces between our layout and that of a Pinocchio or MuJoCo model with the same
joints, matched by their names.

Pinocchio stores a continuous joint as (cos, sin). MuJoCo's quaternions begin with w, and its free
joints have linear velocities ẋ and forces along the parent's axes, where ours, v and f, are along
the body's: ẋ = R v, hence ẍ = R (v̇ + ω×v), and F = R f.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from rigidgrad.errors import InputError, ModelError, unknown_name
from rigidgrad.interop.mujoco import part_name
from rigidgrad.model.joints import JointType
from rigidgrad.model.joints.joint_type import PAIR
from rigidgrad.model.mjcf import joint_names
from rigidgrad.model.model import Joint, Model
from rigidgrad.rotations import rotation_from_quaternion
from rigidgrad.runtime.arrays import to_numpy

if TYPE_CHECKING:
    from rigidgrad.runtime.arrays import Numbers


class Converted(NamedTuple):
    """Positions, velocities, accelerations and joint forces; None for what was not given."""

    q: np.ndarray
    v: np.ndarray | None
    a: np.ndarray | None
    tau: np.ndarray | None


class Place(NamedTuple):
    """Where a joint of ours has its numbers in another model's positions and velocities, and how
    many numbers its position has there. A joint that mimics another has numbers there alone.
    """

    joint: Joint
    q: int
    v: int
    nq: int

    @property
    def own_q(self) -> slice:
        return slice(self.joint.q, self.joint.q + self.joint.nq)

    @property
    def own_v(self) -> slice:
        return slice(self.joint.v, self.joint.v + self.joint.nv)

    @property
    def their_q(self) -> slice:
        return slice(self.q, self.q + self.nq)

    @property
    def their_v(self) -> slice:
        return slice(self.v, self.v + self.joint.nv)


class Modelled(Protocol):
    """A robot, of which only the model counts here."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> Model: ...


Checked = tuple[np.ndarray, np.ndarray | None, np.ndarray | None, np.ndarray | None]


class States:
    """Converts one way with `to`, the other with `back`. Any leading batch axes, the same for all
    arrays. `rg.interop.states` makes one: `model`, `places`, `nq`, `nv` and `mujoco` are what it
    found out.
    """

    def __init__(self, model: Model, places: list[Place], nq: int, nv: int, *, mujoco: bool):
        self._own = (model.nq, model.nv)
        self._their = (nq, nv)
        self._places = places
        self._mujoco = mujoco

    def to(
        self,
        q: Numbers,
        v: Numbers | None = None,
        a: Numbers | None = None,
        tau: Numbers | None = None,
    ) -> Converted:
        """Ours as theirs."""
        q, v, a, tau = self._checked(self._own, q, v, a, tau)
        result = self._empty(self._their, q, v, a, tau)
        for place in self._places:
            own = q[..., place.own_q]
            result.q[..., place.their_q] = self._position_to(place, own)
            turns = place.joint.multiplier if place.joint.is_mimic else 1.0
            exerts = 0.0 if place.joint.is_mimic else 1.0  # its master's force moves both
            for target, source, times in (
                (result.v, v, turns),
                (result.a, a, turns),
                (result.tau, tau, exerts),
            ):
                if target is not None and source is not None:
                    target[..., place.their_v] = times * source[..., place.own_v]
            if self._mujoco and (carried := place.joint.kind.carried):
                R = _rotation(place.joint.kind, own)
                linear = slice(place.v, place.v + carried)
                if result.a is not None and v is not None:
                    result.a[..., linear] += turning(place.joint.kind, v[..., place.own_v])
                for target in result[1:]:
                    if target is not None:
                        target[..., linear] = _times(R, target[..., linear])
        return result

    def back(
        self,
        q: Numbers,
        v: Numbers | None = None,
        a: Numbers | None = None,
        tau: Numbers | None = None,
    ) -> Converted:
        """Theirs as ours."""
        q, v, a, tau = self._checked(self._their, q, v, a, tau)
        result = self._empty(self._own, q, v, a, tau)
        for place in self._places:
            if place.joint.is_mimic:
                continue
            own = self._position_back(place, q[..., place.their_q])
            result.q[..., place.own_q] = own
            for target, source in ((result.v, v), (result.a, a), (result.tau, tau)):
                if target is not None and source is not None:
                    target[..., place.own_v] = source[..., place.their_v]
            if self._mujoco and (carried := place.joint.kind.carried):
                R = np.swapaxes(_rotation(place.joint.kind, own), -1, -2)
                linear = slice(place.joint.v, place.joint.v + carried)
                for target in result[1:]:
                    if target is not None:
                        target[..., linear] = _times(R, target[..., linear])
                if result.a is not None and result.v is not None:
                    result.a[..., linear] -= turning(place.joint.kind, result.v[..., place.own_v])
        return result

    def _position_to(self, place: Place, q: np.ndarray) -> np.ndarray:
        kind = place.joint.kind
        if place.joint.is_mimic:
            q = place.joint.multiplier * q + place.joint.offset
        if kind.direction is None:
            return q if place.nq == kind.nq else np.concatenate([np.cos(q), np.sin(q)], axis=-1)
        if not self._mujoco:
            return q
        if kind.direction == PAIR:
            return np.concatenate([q[..., :-2], np.arctan2(q[..., -1:], q[..., -2:-1])], axis=-1)
        return np.concatenate([q[..., :-4], q[..., -1:], q[..., -4:-1]], axis=-1)

    def _position_back(self, place: Place, q: np.ndarray) -> np.ndarray:
        kind = place.joint.kind
        if kind.direction is None:
            return q if place.nq == kind.nq else np.arctan2(q[..., 1:], q[..., :1])
        if not self._mujoco:
            return q
        if kind.direction == PAIR:
            return np.concatenate([q[..., :-1], np.cos(q[..., -1:]), np.sin(q[..., -1:])], axis=-1)
        return np.concatenate([q[..., :-4], q[..., -3:], q[..., -4:-3]], axis=-1)

    def _checked(self, sizes: tuple[int, int], *values: Any) -> Checked:
        names, nq, nv = ("q", "v", "a", "tau"), *sizes
        arrays = [
            None if x is None else np.asarray(to_numpy(n, x)[0], np.float64)
            for n, x in zip(names, values, strict=True)
        ]
        if arrays[0] is None or (self._mujoco and arrays[2] is not None and arrays[1] is None):
            raise InputError(
                "positions are needed for all else, and for accelerations also velocities"
            )
        batch = arrays[0].shape[:-1]
        for name, array, size in zip(names, arrays, (nq, nv, nv, nv), strict=True):
            if array is not None and array.shape != (*batch, size):
                raise InputError(f"{name} has shape {array.shape}; expected {(*batch, size)}")
        return arrays[0], arrays[1], arrays[2], arrays[3]

    def _empty(self, sizes: tuple[int, int], q: np.ndarray, *others: Any) -> Converted:
        batch, (nq, nv) = q.shape[:-1], sizes
        return Converted(
            np.empty((*batch, nq)), *(None if x is None else np.empty((*batch, nv)) for x in others)
        )


def states(robot: Modelled, model: Any) -> States:
    """The converter between a robot's states and those of a Pinocchio or MuJoCo model with the same
    joints.
    """
    own: Model = robot.model
    package = type(model).__module__.partition(".")[0]
    if package not in ("mujoco", "pinocchio"):
        raise InputError(
            "states are converted for a model of Pinocchio or MuJoCo, not for"
            f" {type(model).__name__}"
        )
    mujoco = package == "mujoco"
    known = _mujoco_places(model) if mujoco else _pinocchio_places(model)
    # without couplings, joints that mimic others are there joints of their own
    places = _matched(own, known, mujoco, mimic=False)
    if own.has_mimic and _size(places) != (model.nq, model.nv):
        places = _matched(own, known, mujoco, mimic=True)
    nq, nv = _size(places)
    if (nq, nv) != (model.nq, model.nv):
        raise ModelError(
            f"that model has nq = {model.nq} and nv = {model.nv}; the joints of robot"
            f" '{robot.name}' have {nq} and {nv} there"
        )
    return States(own, places, nq, nv, mujoco=mujoco)


def _size(places: list[Place]) -> tuple[int, int]:
    return sum(p.nq for p in places), sum(p.joint.nv for p in places)


def _matched(
    own: Model, known: dict[str, tuple[int, int, int]], mujoco: bool, *, mimic: bool
) -> list[Place]:
    """Our joints where that model has them; `mimic`: those that follow others, too."""
    places = []
    for joint in own.joints:
        if joint.is_mimic and not mimic:
            continue
        name = next((n for n in (joint.name, part_name(joint, 0)) if n in known), None)
        if name is None:
            raise unknown_name("joint of that model", joint.name, known)
        q, v, width = known[name]
        if mujoco:
            width = joint.nv if joint.kind.direction == PAIR else joint.nq  # an angle there
        elif width not in joint.kind.pinocchio_widths():
            raise ModelError(
                f"joint '{joint.name}' is {joint.type} here, but its position has {width} numbers"
                " there"
            )
        places.append(Place(joint, q, v, width))
    return places


def _mujoco_places(model: Any) -> dict[str, tuple[int, int, int]]:
    names = joint_names(model)
    return {
        name: (int(model.jnt_qposadr[j]), int(model.jnt_dofadr[j]), 0)
        for j, name in enumerate(names)
    }


def _pinocchio_places(model: Any) -> dict[str, tuple[int, int, int]]:
    return {
        model.names[i]: (model.idx_qs[i], model.idx_vs[i], model.nqs[i])
        for i in range(1, model.njoints)
    }


def _rotation(kind: JointType, q: np.ndarray) -> np.ndarray:
    """Takes linear velocities along the body's axes to the parent's: (…, 3, 3), of a planar joint
    (…, 2, 2).
    """
    if kind.direction == PAIR:
        c, s = q[..., -2], q[..., -1]
        return np.stack([np.stack([c, -s], -1), np.stack([s, c], -1)], -2)
    rows = rotation_from_quaternion(*(q[..., k] for k in range(-4, 0)))
    return np.stack([np.stack(row, -1) for row in rows], -2)


def turning(kind: JointType, v: np.ndarray) -> np.ndarray:
    """ω×v."""
    if kind.direction == PAIR:
        turned: np.ndarray = v[..., 2:] * np.stack([-v[..., 1], v[..., 0]], -1)
        return turned
    return np.cross(v[..., 3:], v[..., :3])


def _times(R: np.ndarray, x: np.ndarray) -> np.ndarray:
    products: np.ndarray = np.einsum("...ij,...j->...i", R, x)
    return products
