"""A tree of bodies as arrays: one joint of one freedom a body, and an optional floating root."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rigidgrad.errors import InputError, ModelError
from rigidgrad.trees.plan import Plan
from rigidgrad.trees.topology import Topology

if TYPE_CHECKING:
    from rigidgrad.runtime.arrays import Numbers

GRAVITY = (0.0, 0.0, -9.81)
JOINTS = ("revolute", "prismatic", "helical")

# columns of Tree.data: what a kernel reads of a body
ROTATION, TRANSLATION, INERTIA, ANG, LIN, COLUMNS = (
    slice(0, 9),
    slice(9, 12),
    slice(12, 22),
    22,
    23,
    24,
)


class State(NamedTuple):
    """Random positions, velocities and joint forces."""

    q: np.ndarray
    v: np.ndarray
    tau: np.ndarray


class Tree:
    """Bodies 0 … N-1, body i moving in body parents[i] (-1 is the world) by joint i. Immutable; its
    plan is made once, when first needed.

    rotation (N, 3, 3) and translation (N, 3): the joint's frame in the parent body; at q = 0 the
    body's frame lies on it. mass (N,), com (N, 3), inertia (N, 3, 3) about the centre of mass along
    the body's axes. joints: revolute, prismatic or helical, one word for all or one a body; axis
    (N, 3) in the body's frame, z if left out; pitch: metres per radian of helical joints; armature
    (N,). floating_base: body 0 flies freely, with q = [xyz, quaternion xyzw, …] and v = [linear,
    angular in the body's frame, …]. `gravity` (3,) in m/s².
    """

    def __init__(
        self,
        parents: Numbers,
        rotation: Numbers | None = None,
        translation: Numbers | None = None,
        mass: Numbers = 1.0,
        com: Numbers = (0.0, 0.0, 0.0),
        inertia: Numbers | None = None,
        joints: str | Sequence[str] = "revolute",
        axis: Numbers | None = None,
        pitch: Numbers = 0.0,
        armature: Numbers = 0.0,
        gravity: Numbers = GRAVITY,
        floating_base: bool = False,
    ) -> None:
        self.topology = Topology(parents)
        n = self.topology.bodies
        R = _array("rotation", np.eye(3) if rotation is None else rotation, (n, 3, 3))
        p = _array("translation", (0.0, 0.0, 0.0) if translation is None else translation, (n, 3))
        m = _array("mass", mass, (n,))
        c = _array("com", com, (n, 3))
        J = _array("inertia", np.zeros((3, 3)) if inertia is None else inertia, (n, 3, 3))
        self.gravity = tuple(_array("gravity", gravity, (3,)).tolist())
        self.armature = np.array(_array("armature", armature, (n,)))
        self.floating_base = bool(floating_base)
        _check_physics(R, m, J, self.armature)
        ang, lin = _joint_columns(joints, _array("pitch", pitch, (n,)), n)
        # where a floating base is at its zero
        self.base_rotation, self.base_position = (np.eye(3), np.zeros(3))
        if floating_base:
            if len(self.topology.roots) != 1 or self.topology.roots[0] != 0:
                raise ModelError("a floating base needs body 0 as the only body without a parent")
            ang[0] = lin[0] = self.armature[0] = 0.0
            self.base_rotation, self.base_position = R[0].copy(), p[0].copy()
            R, p = R.copy(), p.copy()
            R[0], p[0] = np.eye(3), 0.0
        self.turn = None if axis is None else _turns(_array("axis", axis, (n, 3)), floating_base)
        E = np.swapaxes(R, 1, 2)  # parent to child coordinates
        if self.turn is not None:
            parents_ = self.topology.parents
            E = self.turn @ E
            has = parents_ >= 0
            E[has] = E[has] @ np.swapaxes(self.turn[parents_[has]], 1, 2)
            p = np.array(p)
            p[has] = np.einsum("nij,nj->ni", self.turn[parents_[has]], p[has])
            c = np.einsum("nij,nj->ni", self.turn, c)
            J = self.turn @ J @ np.swapaxes(self.turn, 1, 2)
        self.data = np.empty((n, COLUMNS))
        self.data[:, ROTATION] = E.reshape(n, 9)
        self.data[:, TRANSLATION] = p
        self.data[:, INERTIA] = _inertia_columns(m, c, J)
        self.data[:, ANG], self.data[:, LIN] = ang, lin
        for array in (self.data, self.armature):
            array.setflags(write=False)

    # --- sizes ------------------------------------------------------------------------------------

    @property
    def parents(self) -> np.ndarray:
        """Of the bodies (N,); -1 is the world."""
        return self.topology.parents

    @property
    def bodies(self) -> int:
        """How many there are."""
        return self.topology.bodies

    @property
    def nq(self) -> int:
        """Numbers of a position."""
        return self.bodies + 6 * self.floating_base

    @property
    def nv(self) -> int:
        """Numbers of a velocity."""
        return self.bodies + 5 * self.floating_base

    @cached_property
    def plan(self) -> Plan:
        """How the tree is walked: made once, used by every call."""
        return Plan(self.topology, self.data)

    @cached_property
    def has_armature(self) -> bool:
        """Whether any joint has some."""
        return bool(np.any(self.armature))

    def __repr__(self) -> str:
        base = ", floating base" if self.floating_base else ""
        return f"<Tree: {self.bodies:,} bodies in {self.topology.levels:,} levels{base}>"

    def __reduce__(self) -> tuple[Any, ...]:
        state = {k: v for k, v in self.__dict__.items() if k not in ("plan",)}
        return _restore, (state,)

    # --- states -----------------------------------------------------------------------------------

    def neutral(self) -> np.ndarray:
        """The position in which every joint is at its zero."""
        q = np.zeros(self.nq)
        if self.floating_base:
            q[6] = 1.0
        return q

    def random(
        self, batch: int | tuple[int, ...] = (), seed: int | np.random.Generator | None = None
    ) -> State:
        """Random states: angles in ±π, lengths in ±1 m, velocities and forces in ±1."""
        rng = np.random.default_rng(seed)
        shape = (batch,) if isinstance(batch, int) else tuple(batch)
        reach = np.where(self.data[:, ANG] != 0, np.pi, 1.0)
        q = rng.uniform(-1, 1, (*shape, self.bodies)) * reach
        if self.floating_base:
            quaternion = rng.normal(size=(*shape, 4))
            quaternion /= np.linalg.norm(quaternion, axis=-1, keepdims=True)
            q = np.concatenate([rng.uniform(-1, 1, (*shape, 3)), quaternion, q[..., 1:]], axis=-1)
        return State(
            q, rng.uniform(-1, 1, (*shape, self.nv)), rng.uniform(-1, 1, (*shape, self.nv))
        )

    # --- from other models ------------------------------------------------------------------------

    @classmethod
    def from_model(cls, source: Any) -> Tree:
        """The tree of a `Robot` or `Model` whose joints have one freedom each, but for a floating
        base. Mimic joints are refused.
        """
        model = getattr(source, "model", source)
        for attribute in ("joints", "parents", "placements", "inertias"):
            if not hasattr(model, attribute):
                raise InputError(
                    f"a Robot or a Model is needed, not {type(source).__name__}; for arrays, call"
                    " trees.Tree(parents, …)"
                )
        if not model.joints:
            raise ModelError(f"'{model.name}' has no moving joint")
        floating = model.joints[0].kind.flies
        kinds, axes, pitches, armature = [], [], [], []
        for i, joint in enumerate(model.joints):
            if joint.is_mimic:
                raise ModelError(
                    f"joint '{joint.name}' mimics another one; trees have no mimic joints: use the"
                    " Robot's own functions"
                )
            single = joint.kind.moves_as in JOINTS
            if not single and not (i == 0 and floating):
                raise ModelError(
                    f"joint '{joint.name}' is {joint.type}; joints of a tree are revolute,"
                    " prismatic or helical, or a floating root"
                )
            if i == 0 and floating and any(model.armature[:6]):
                raise ModelError(
                    "a floating base with armature is not a tree's; use the Robot's own functions"
                )
            kinds.append(joint.kind.moves_as if single else "revolute")
            axes.append(joint.axis if single else (0.0, 0.0, 1.0))
            pitches.append(joint.pitch if joint.kind.has_pitch else 0.0)
            armature.append(model.armature[joint.dof] if single else 0.0)
        mass = np.array([m for m, _, _ in model.inertias])
        h = np.array([h for _, h, _ in model.inertias])
        com = np.divide(h, mass[:, None], out=np.zeros_like(h), where=mass[:, None] != 0)
        about_origin = np.array([I for _, _, I in model.inertias])[
            :, [0, 1, 3, 1, 2, 4, 3, 4, 5]
        ].reshape(-1, 3, 3)
        return cls(
            model.parents,
            rotation=np.array([x.R for x in model.placements]),
            translation=np.array([x.p for x in model.placements]),
            mass=mass,
            com=com,
            inertia=about_origin - _point_inertia(mass, com),
            joints=kinds,
            axis=np.array(axes),
            pitch=pitches,
            armature=armature,
            gravity=model.gravity,
            floating_base=floating,
        )


def _restore(state: dict[str, Any]) -> Tree:
    tree = Tree.__new__(Tree)
    tree.__dict__.update(state)
    return tree


def _array(what: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{what} is an array of numbers, not {type(value).__name__}") from None
    one = array.ndim == len(shape) and array.shape == (1, *shape[1:])
    if not one and (array.ndim > len(shape) or array.shape != shape[len(shape) - array.ndim :]):
        raise InputError(
            f"{what} has shape {array.shape}; needed is {shape}, or {shape[1:] or 'a number'} for"
            " all bodies alike"
        )
    if not np.all(np.isfinite(array)):
        raise InputError(f"{what} holds NaN or infinity")
    return np.broadcast_to(array, shape)


def _check_physics(R: np.ndarray, m: np.ndarray, J: np.ndarray, armature: np.ndarray) -> None:
    def refuse(bad: np.ndarray, text: str) -> None:
        where = np.flatnonzero(bad)
        if where.size:
            raise ModelError(f"body {int(where[0])}: {text}")

    defect = np.abs(R @ np.swapaxes(R, 1, 2) - np.eye(3)).max(axis=(1, 2))
    refuse((defect > 1e-6) | (np.linalg.det(R) < 0), "its rotation is not a rotation matrix")
    refuse(m < 0, "its mass is negative")
    scale = np.abs(J).max(axis=(1, 2))
    refuse(
        np.abs(J - np.swapaxes(J, 1, 2)).max(axis=(1, 2)) > 1e-9 * scale,
        "its inertia is not symmetric",
    )
    refuse(
        np.linalg.eigvalsh(J)[:, 0] < -1e-9 * scale - 1e-300, "its inertia has a negative moment"
    )
    refuse(armature < 0, "its armature is negative")


def _joint_columns(joints: Any, pitch: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Radians and metres that a unit of q moves each joint."""
    words = np.asarray([joints] if isinstance(joints, str) else list(joints))
    if words.ndim != 1 or len(words) not in (1, n):
        raise InputError(
            f"joints has {words.size} words; needed is one for all, or one for each of {n} bodies"
        )
    unknown = sorted(set(words.tolist()) - set(JOINTS))
    if unknown:
        raise InputError(
            f"there is no joint {unknown[0]!r} in a tree; there are {', '.join(JOINTS)}"
        )
    words = np.broadcast_to(words, (n,))
    ang = np.where(words == "prismatic", 0.0, 1.0)
    lin = np.where(words == "prismatic", 1.0, np.where(words == "helical", pitch, 0.0))
    return ang, lin


def _turns(axis: np.ndarray, floating: bool) -> np.ndarray | None:
    """Rotations (N, 3, 3) into frames whose z lies along each axis, or None where all do
    already.
    """
    length = np.linalg.norm(axis, axis=1)
    if np.any(length == 0):
        raise ModelError(f"body {int(np.flatnonzero(length == 0)[0])}: its joint's axis is zero")
    z = axis / length[:, None]
    if floating:
        z = z.copy()
        z[0] = (0.0, 0.0, 1.0)
    along = np.all(z == (0.0, 0.0, 1.0), axis=1)
    if np.all(along):
        return None
    least = np.eye(3)[np.abs(z).argmin(axis=1)]
    x = np.cross(least, z)
    x /= np.linalg.norm(x, axis=1)[:, None]
    turn = np.stack([x, np.cross(z, x), z], axis=1)
    turn[along] = np.eye(3)
    return turn


def _point_inertia(m: np.ndarray, c: np.ndarray) -> np.ndarray:
    inertia: np.ndarray = m[:, None, None] * (
        np.einsum("ni,ni->n", c, c)[:, None, None] * np.eye(3) - c[:, :, None] * c[:, None, :]
    )
    return inertia


def _inertia_columns(m: np.ndarray, c: np.ndarray, J: np.ndarray) -> np.ndarray:
    I = J + _point_inertia(m, c)
    six = [I[:, i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))]
    return np.column_stack([m, m[:, None] * c, *six])
