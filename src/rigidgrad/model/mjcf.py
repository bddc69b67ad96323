"""MuJoCo's models as Descriptions. MJCF is read by MuJoCo itself, which resolves includes, defaults and inertias of shapes.

A body's joints become a chain with massless links `body:joint` between them; bodies without joints are fixed to their parent. Joint positions are MuJoCo's
numbers, `ref` included.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from rigidgrad.errors import ModelError, ModelWarning, RigidgradError, UrdfError
from rigidgrad.model.description import Actuator, Collision, Description, FrameDescription, JointDescription, JointLimit, Link, Visual
from rigidgrad.model.joints import FIXED, joint_type
from rigidgrad.model.mjcf_bounds import check_mjcf
from rigidgrad.model.mjcf_loops import read_loops
from rigidgrad.model.pose import IDENTITY_POSE, Pose, pose_from_quaternion
from rigidgrad.model.structure import joint_pose
from rigidgrad.model.xml import LARGEST, quoted, read_bytes

FREE, BALL, SLIDE, HINGE = range(4)  # mjtJoint
# mjtGeom: our shape, and its size from MuJoCo's half sizes
_SHAPES: dict[int, tuple[str, Any]] = {
    2: ("sphere", lambda s: s[:1]),
    3: ("capsule", lambda s: (s[0], 2 * s[1])),
    5: ("cylinder", lambda s: (s[0], 2 * s[1])),
    6: ("box", lambda s: tuple(2 * x for x in s)),
}
_SOLID: dict[int, str] = {0: "plane", 1: "hfield", 4: "ellipsoid", 7: "mesh"}  # what else may be in contact
_SHOWN_GROUPS = 3  # MuJoCo's viewer shows shapes of groups 0, 1 and 2


def library() -> Any:
    """MuJoCo, or an error that says how to get it."""
    try:
        return importlib.import_module("mujoco")
    except ImportError:
        raise RigidgradError("this needs MuJoCo: pip install rigidgrad[plants]") from None


def is_mjcf(text: str | bytes) -> bool:
    """Whether the first element of an XML text is <mujoco>."""
    document = text.encode("utf-8", "replace") if isinstance(text, str) else text
    at = document.find(b"<")
    while at >= 0:
        if document.startswith(b"<?", at):
            end = document.find(b"?>", at)
        elif document.startswith(b"<!--", at):
            end = document.find(b"-->", at)
        else:
            return document.startswith(b"<mujoco", at)
        at = document.find(b"<", end) if end >= 0 else -1
    return False


def read_mjcf(path: str | os.PathLike[str]) -> Description:
    """The robot in an MJCF file; MuJoCo opens the files that it includes, and meshes."""
    name = os.fsdecode(path)
    try:
        check_mjcf(read_bytes(path), Path(name).parent)
    except UrdfError:
        raise
    except ModelError as error:
        raise ModelError(f"{quoted(name, 200)[1:-1]}: {error}") from None
    return _compiled("from_xml_path", name, f"{quoted(name, 200)[1:-1]}: ")


def parse_mjcf(text: str | bytes) -> Description:
    """The robot in the text of an MJCF; what it includes is looked for in the current folder."""
    check_mjcf(text, Path())
    return _compiled("from_xml_string", text.decode() if isinstance(text, bytes) else text, "")


def _compiled(reader: str, source: str, where: str) -> Description:
    mujoco = library()
    try:
        with _listening(mujoco) as said_besides:
            model = getattr(mujoco.MjModel, reader)(source)
    except (ValueError, RuntimeError, mujoco.FatalError, MemoryError) as error:
        said = "it holds a text that is not UTF-8" if isinstance(error, UnicodeError) else " ".join(str(error).split())
        raise ModelError(f"{where}MuJoCo does not accept this MJCF: {said}") from None
    for text in dict.fromkeys(said_besides):
        warnings.warn(f"{where}MuJoCo: {text}", ModelWarning, stacklevel=6)
    return describe_mujoco(model, stacklevel=7)


@contextmanager
def _listening(mujoco: Any) -> Iterator[list[str]]:
    """MuJoCo's warnings, which would else go to stderr and into a file MUJOCO_LOG.TXT where the user is."""
    said: list[str] = []
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(said.append)
    try:
        yield said
    finally:
        mujoco.set_mju_user_warning(before)


def describe_mujoco(model: Any, stacklevel: int = 3) -> Description:
    """The robot in a compiled MuJoCo model. What rigidgrad does not model is left out, with a warning that names it, at whoever called `load`."""
    name = _name_at(model, 0) or "mujoco"
    bodies, names = body_names(model), joint_names(model)
    _check_numbers(model, bodies, names)
    links: list[Link] = []
    joints: list[JointDescription] = []
    taken = set(names)
    for i in range(model.nbody):
        links.append(_link(model, i, bodies[i]))
        if i == 0:
            continue
        at, offset = bodies[model.body_parentid[i]], _pose(model.body_pos[i], model.body_quat[i])
        first, last = model.body_jntadr[i], model.body_jntadr[i] + model.body_jntnum[i] - 1
        for j in range(first, last + 1) if model.body_jntnum[i] else ():
            anchor = tuple(model.jnt_pos[j].tolist())
            child = bodies[i] if j == last and not any(anchor) else _unused(f"{bodies[i]}:{names[j]}", bodies)
            joints.append(_joint(model, j, names[j], at, child, offset))
            if child != bodies[i]:
                links.append(Link(child))
            at, offset = child, _moved(*(-x for x in anchor))
        if at != bodies[i]:
            fixed = _unused(f"{bodies[i]}_fixed", taken)
            taken.add(fixed)
            joints.append(JointDescription(fixed, FIXED, at, bodies[i], offset))
    frames = list(_frames(model, bodies, {x.name for x in links} | {j.name for j in joints}))
    called = [_name_at(model, at) for at in model.name_eqadr]
    loops, open_ones = read_loops(model, bodies, called, frames, {x.name for x in links} | {j.name for j in joints})
    left_out = ", ".join([*_left_out(model), *open_ones])
    if left_out:
        warnings.warn(f"left out of '{name}', as rigidgrad does not model it: {left_out}", ModelWarning, stacklevel=stacklevel)
    if loops:
        named = ", ".join(quoted(x.name) for x in loops)
        what = f"{len(loops)} loop{'s' if len(loops) > 1 else ''} of '{name}' ({named})"
        said = f"{what}: open in aba and all that takes no contacts; pass contacts=robot.loops to contact_dynamics"
        warnings.warn(said, ModelWarning, stacklevel=stacklevel)
    gravity = (0.0, 0.0, 0.0) if model.opt.disableflags & int(library().mjtDisableBit.mjDSBL_GRAVITY) else model.opt.gravity.tolist()
    return Description(name, tuple(links), tuple(joints), tuple(frames), tuple(gravity), actuators=_driven(model, names), loops=loops)


# arrays of numbers in MuJoCo's model: what a row belongs to, and what it is
_NUMBERS = {
    "body_pos": ("body", "position"),
    "body_quat": ("body", "orientation"),
    "body_mass": ("body", "mass"),
    "body_ipos": ("body", "centre of mass"),
    "body_iquat": ("body", "inertia"),
    "body_inertia": ("body", "inertia"),
    "jnt_pos": ("joint", "position"),
    "jnt_axis": ("joint", "axis"),
    "jnt_range": ("joint", "range"),
    "jnt_actfrcrange": ("joint", "actuator force range"),
    "dof_armature": ("velocity", "armature"),
    "dof_damping": ("velocity", "damping"),
    "dof_frictionloss": ("velocity", "frictionloss"),
    "qpos0": ("position", "ref"),
    "site_pos": ("site", "position"),
    "site_quat": ("site", "orientation"),
    "geom_pos": ("geom", "position"),
    "geom_quat": ("geom", "orientation"),
    "geom_size": ("geom", "size"),
    "geom_rgba": ("geom", "colour"),
    "mat_rgba": ("material", "colour"),
    "eq_data": ("equality constraint", "anchor or pose"),
}


def _check_numbers(model: Any, bodies: list[str], joints: list[str]) -> None:
    """MuJoCo takes NaN, infinite and huge numbers in an MJCF; nothing can be computed with them."""
    names = {"body": bodies, "joint": joints, "velocity": [joints[j] for j in model.dof_jntid]}
    for array, (kind, what) in _NUMBERS.items():
        values = np.asarray(getattr(model, array), dtype=float)
        right = np.abs(values) <= LARGEST  # NaN is not less than anything
        wrong = np.flatnonzero(~(right.all(axis=1) if values.ndim > 1 else right))
        if len(wrong):
            row = int(wrong[0])
            owner = f"{'joint' if kind == 'velocity' else kind} {quoted(names[kind][row]) if kind in names else row}"
            raise ModelError(f"{owner}: its {what} is not finite, or over {LARGEST:g}; correct it")


def body_names(model: Any) -> list[str]:
    """Names of MuJoCo's bodies, made up where there is none."""
    return _filled([_name_at(model, at) for at in model.name_bodyadr], [f"body{i}" for i in range(model.nbody)])


def _name_at(model: Any, at: int) -> str:
    raw = bytes(model.names[at : model.names.index(b"\0", at)])
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ModelError(f"the name {raw!r} is not a text in UTF-8; save the MJCF as UTF-8") from None


def joint_names(model: Any) -> list[str]:
    """Names of MuJoCo's joints, made up where there is none."""
    bodies = body_names(model)
    owners = [bodies[i] for i in model.jnt_bodyid]
    return _filled([_name_at(model, at) for at in model.name_jntadr], [f"{owner}_joint" for owner in owners])


def _filled(names: list[str], substitutes: list[str]) -> list[str]:
    taken = set(names)
    result = []
    for name, substitute in zip(names, substitutes, strict=True):
        name = name or _unused(substitute, taken)
        taken.add(name)
        result.append(name)
    return result


def _unused(name: str, taken: Any) -> str:
    while name in taken:
        name += "_"
    return name


def _pose(position: Any, quaternion: Any) -> Pose:
    w, x, y, z = quaternion.tolist()
    return pose_from_quaternion(position, (x, y, z, w))


def _moved(x: float, y: float, z: float) -> Pose:
    return Pose(IDENTITY_POSE.R, (x + 0.0, y + 0.0, z + 0.0))


def _link(model: Any, i: int, name: str) -> Link:
    if i == 0:
        return Link(name, visuals=tuple(_visuals(model, i)), collisions=tuple(_collisions(model, i)))
    R = np.array(_pose(np.zeros(3), model.body_iquat[i]).R)
    inertia = R @ np.diag(model.body_inertia[i]) @ R.T
    rows = tuple(tuple(row) for row in ((inertia + inertia.T) / 2).tolist())
    return Link(
        name, float(model.body_mass[i]), tuple(model.body_ipos[i].tolist()), rows, tuple(_visuals(model, i)), tuple(_collisions(model, i))
    )


def _joint(model: Any, j: int, name: str, parent: str, child: str, offset: Pose) -> JointDescription:
    theirs, dof = int(model.jnt_type[j]), int(model.jnt_dofadr[j])
    numbers: dict[str, Any] = {"armature": float(model.dof_armature[dof]), "damping": float(model.dof_damping[dof])}
    numbers["friction"] = float(model.dof_frictionloss[dof])
    if theirs == FREE:  # its position is that in the world; of its armature, see _left_out
        return JointDescription(name, "floating", parent, child, **numbers | {"armature": 0.0})
    anchor = _moved(*model.jnt_pos[j].tolist())
    if theirs == BALL:
        return JointDescription(name, "spherical", parent, child, offset @ anchor, **numbers)
    limited = bool(model.jnt_limited[j])
    kind = "prismatic" if theirs == SLIDE else "revolute" if limited else "continuous"
    lower, upper = model.jnt_range[j].tolist() if limited else (-inf, inf)
    effort = float(abs(model.jnt_actfrcrange[j]).max()) if model.jnt_actfrclimited[j] else inf
    limit = JointLimit(lower, upper, effort=effort)
    joint = JointDescription(name, kind, parent, child, offset @ anchor, tuple(model.jnt_axis[j].tolist()), limit=limit, **numbers)
    zero = joint_pose(joint, (-float(model.qpos0[model.jnt_qposadr[j]]),))
    return dataclasses.replace(joint, placement=joint.placement @ zero)


def _visuals(model: Any, body: int) -> Iterator[Visual]:
    first = model.body_geomadr[body]
    for g in range(first, first + model.body_geomnum[body]):
        if int(model.geom_type[g]) in _SHAPES and model.geom_group[g] < _SHOWN_GROUPS:
            shape, size = _SHAPES[int(model.geom_type[g])]
            material = int(model.geom_matid[g])
            color = model.mat_rgba[material] if material >= 0 else model.geom_rgba[g]
            placement = _pose(model.geom_pos[g], model.geom_quat[g])
            yield Visual(shape, tuple(size(model.geom_size[g].tolist())), placement, tuple(color.tolist()))


def _collisions(model: Any, body: int) -> Iterator[Collision]:
    """Its shapes that may be in contact."""
    first = model.body_geomadr[body]
    for g in range(first, first + model.body_geomnum[body]):
        kind = int(model.geom_type[g])
        if not (model.geom_contype[g] or model.geom_conaffinity[g]) or not (kind in _SHAPES or kind in _SOLID):
            continue
        placement = _pose(model.geom_pos[g], model.geom_quat[g])
        if kind in _SHAPES:
            shape, size = _SHAPES[kind]
            yield Collision(shape, tuple(size(model.geom_size[g].tolist())), placement)
        elif _SOLID[kind] == "mesh":
            m = int(model.geom_dataid[g])
            vertices = model.mesh_vert[model.mesh_vertadr[m] :][: model.mesh_vertnum[m]].astype(np.float64)
            faces = model.mesh_face[model.mesh_faceadr[m] :][: model.mesh_facenum[m]].astype(np.int32)
            yield Collision("mesh", (1.0, 1.0, 1.0), placement, numbers=(vertices.tobytes(), faces.tobytes()))
        else:
            size = tuple(model.geom_size[g].tolist()) if _SOLID[kind] == "ellipsoid" else ()
            yield Collision(_SOLID[kind], size, placement)


def _frames(model: Any, bodies: list[str], taken: set[str]) -> Iterator[FrameDescription]:
    """Named sites, but those with the name of a link or a joint."""
    for s in range(model.nsite):
        name = _name_at(model, model.name_siteadr[s])
        if name and name not in taken:
            yield FrameDescription(name, bodies[model.site_bodyid[s]], _pose(model.site_pos[s], model.site_quat[s]))


def _driven(model: Any, names: list[str]) -> tuple[Actuator, ...] | None:
    """Forces on the joints that the actuators drive; None where they drive all joints, or act on something else than joints.

    What an actuator makes of its control, as the servo of a position does, is not modelled: controls are joint forces.
    """
    transmissions = library().mjtTrn
    through_joints = (int(transmissions.mjTRN_JOINT), int(transmissions.mjTRN_JOINTINPARENT))
    driven = {int(joint) for joint in model.actuator_trnid[:, 0]}
    if not model.nu or any(int(kind) not in through_joints for kind in model.actuator_trntype):
        return None
    own = [j for j in range(model.njnt) if model.jnt_type[j] != FREE]
    if driven.issuperset(own) or any(model.jnt_type[j] == FREE for j in driven):
        return None
    found = []
    for j in own:
        if j in driven:
            freedoms = ("",) if model.jnt_type[j] != BALL else joint_type("spherical").freedoms
            for k, freedom in enumerate(freedoms):
                forces = tuple(float(i == k) for i in range(len(freedoms)))
                found.append(Actuator(f"{names[j]} {freedom}" if freedom else names[j], ((names[j], forces),)))
    return tuple(found)


def _left_out(model: Any) -> Iterator[str]:
    """What acts on the bodies in MuJoCo and has no part in our dynamics; contacts, which no description of ours has, go without saying."""
    kind = model.jnt_type
    stiff = model.jnt_stiffness != 0
    free = np.flatnonzero(kind == FREE)
    counts = {
        "actuator": model.nu,
        "tendon": model.ntendon,
        "joint spring": int(stiff.sum()),
        "limit of a ball joint": int(((kind == BALL) & (model.jnt_limited != 0)).sum()),
        "armature of a free joint": int((model.dof_armature[model.jnt_dofadr[free]] != 0).sum()),
        "body with gravity compensation": int((model.body_gravcomp != 0).sum()),
        "mocap body, taken as fixed": model.nmocap,
        "flexible body": model.nflex,
        "plugin": model.nplugin,
        "fluid": int(model.opt.density > 0 or model.opt.viscosity > 0),
    }
    for what, count in counts.items():
        if count:
            yield f"{count} × {what}" if count > 1 else what
