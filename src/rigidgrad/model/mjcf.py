"""MuJoCo's models as Descriptions. MJCF is read by MuJoCo itself, which resolves includes, defaults
and inertias of shapes.

A body's joints become a chain with massless links `body:joint` between them; bodies without joints
are fixed to their parent. Joint positions are MuJoCo's numbers, `ref` included.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from rigidgrad.errors import ModelError, ModelWarning, UrdfError, warn
from rigidgrad.model.description import (
    Collision,
    Description,
    FrameDescription,
    JointDescription,
    JointLimit,
    Link,
    Mimic,
    Spring,
    Visual,
)
from rigidgrad.model.joints import FIXED
from rigidgrad.model.left_out import counted, named, tell
from rigidgrad.model.mjcf_actuators import Drives, Follower, fixed_tendon, read_actuators
from rigidgrad.model.mjcf_bounds import check_mjcf
from rigidgrad.model.mjcf_couplings import read_couplings
from rigidgrad.model.mjcf_loops import read_loops
from rigidgrad.model.mjcf_names import (
    BALL,
    FREE,
    SLIDE,
    library as library,
    name_at,
    unused,
)
from rigidgrad.model.pose import IDENTITY_POSE, Pose, pose_from_quaternion
from rigidgrad.model.structure import joint_pose
from rigidgrad.model.xml import LARGEST, quoted, read_bytes, root_tag

# mjtGeom: our shape, and its size from MuJoCo's half sizes
_SHAPES: dict[int, tuple[str, Any]] = {
    2: ("sphere", lambda s: s[:1]),
    3: ("capsule", lambda s: (s[0], 2 * s[1])),
    5: ("cylinder", lambda s: (s[0], 2 * s[1])),
    6: ("box", lambda s: tuple(2 * x for x in s)),
}
# what else may be in contact
_SOLID: dict[int, str] = {0: "plane", 1: "hfield", 4: "ellipsoid", 7: "mesh"}
_SHOWN_GROUPS = 3  # MuJoCo's viewer shows shapes of groups 0, 1 and 2


def is_mjcf(text: str | bytes) -> bool:
    """Whether the first element of an XML text is <mujoco>."""
    return root_tag(text) == "mujoco"


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
        said = (
            "it holds a text that is not UTF-8"
            if isinstance(error, UnicodeError)
            else " ".join(str(error).split())
        )
        raise ModelError(f"{where}MuJoCo does not accept this MJCF: {said}") from None
    for text in dict.fromkeys(said_besides):
        warn(f"{where}MuJoCo: {text}", ModelWarning)
    return describe_mujoco(model)


@contextmanager
def _listening(mujoco: Any) -> Iterator[list[str]]:
    """MuJoCo's warnings, which would else go to stderr and into a file MUJOCO_LOG.TXT where the
    user is.
    """
    said: list[str] = []
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(said.append)
    try:
        yield said
    finally:
        mujoco.set_mju_user_warning(before)


def describe_mujoco(model: Any) -> Description:
    """The robot in a compiled MuJoCo model. What rigidgrad does not model is left out, with a
    warning that names it.
    """
    name = name_at(model, 0) or "mujoco"
    bodies, names = body_names(model), joint_names(model)
    _check_numbers(model, bodies, names)
    constraints = [name_at(model, at) for at in model.name_eqadr]
    followers, untied = read_couplings(model, constraints)
    drives = read_actuators(model, names, followers)
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
            child = (
                bodies[i]
                if j == last and not any(anchor)
                else unused(f"{bodies[i]}:{names[j]}", bodies)
            )
            joints.append(_joint(model, j, names, at, child, offset, followers, drives))
            if child != bodies[i]:
                links.append(Link(child))
            at, offset = child, _moved(*(-x for x in anchor))
        if at != bodies[i]:
            fixed = unused(f"{bodies[i]}_fixed", taken)
            taken.add(fixed)
            joints.append(JointDescription(fixed, FIXED, at, bodies[i], offset))
    frames = list(_frames(model, bodies, {x.name for x in links} | {j.name for j in joints}))
    loops, open_ones = read_loops(
        model, bodies, constraints, frames, {x.name for x in links} | {j.name for j in joints}
    )
    _tell(name, names, model, drives, [*_left_out(model, names, bodies), *untied, *open_ones])
    if loops:
        closed = ", ".join(quoted(x.name) for x in loops)
        what = f"{len(loops)} loop{'s' if len(loops) > 1 else ''} of '{name}' ({closed})"
        said = (
            f"{what}: open in aba and all that takes no contacts; pass contacts=robot.loops to"
            " contact_dynamics"
        )
        warn(said, ModelWarning)
    gravity = (
        (0.0, 0.0, 0.0)
        if model.opt.disableflags & int(library().mjtDisableBit.mjDSBL_GRAVITY)
        else model.opt.gravity.tolist()
    )
    return Description(
        name,
        tuple(links),
        tuple(joints),
        tuple(frames),
        tuple(gravity),
        actuators=drives.actuators,
        loops=loops,
    )


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
    "jnt_stiffness": ("joint", "stiffness"),
    "qpos0": ("position", "ref"),
    "qpos_spring": ("position", "springref"),
    "actuator_gear": ("actuator", "gear"),
    "actuator_gainprm": ("actuator", "gain"),
    "actuator_biasprm": ("actuator", "bias"),
    "wrap_prm": ("tendon's part", "coefficient"),
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
            owner = (
                f"{'joint' if kind == 'velocity' else kind}"
                f" {quoted(names[kind][row]) if kind in names else row}"
            )
            raise ModelError(f"{owner}: its {what} is not finite, or over {LARGEST:g}; correct it")


def body_names(model: Any) -> list[str]:
    """Names of MuJoCo's bodies, made up where there is none."""
    return _filled(
        [name_at(model, at) for at in model.name_bodyadr], [f"body{i}" for i in range(model.nbody)]
    )


def joint_names(model: Any) -> list[str]:
    """Names of MuJoCo's joints, made up where there is none."""
    bodies = body_names(model)
    owners = [bodies[i] for i in model.jnt_bodyid]
    return _filled(
        [name_at(model, at) for at in model.name_jntadr], [f"{owner}_joint" for owner in owners]
    )


def _filled(names: list[str], substitutes: list[str]) -> list[str]:
    taken = set(names)
    result = []
    for name, substitute in zip(names, substitutes, strict=True):
        name = name or unused(substitute, taken)
        taken.add(name)
        result.append(name)
    return result


def _pose(position: Any, quaternion: Any) -> Pose:
    w, x, y, z = quaternion.tolist()
    return pose_from_quaternion(position, (x, y, z, w))


def _moved(x: float, y: float, z: float) -> Pose:
    return Pose(IDENTITY_POSE.R, (x + 0.0, y + 0.0, z + 0.0))


def _link(model: Any, i: int, name: str) -> Link:
    if i == 0:
        return Link(
            name, visuals=tuple(_visuals(model, i)), collisions=tuple(_collisions(model, i))
        )
    R = np.array(_pose(np.zeros(3), model.body_iquat[i]).R)
    inertia = R @ np.diag(model.body_inertia[i]) @ R.T
    rows = tuple(tuple(row) for row in ((inertia + inertia.T) / 2).tolist())
    return Link(
        name,
        float(model.body_mass[i]),
        tuple(model.body_ipos[i].tolist()),
        rows,
        tuple(_visuals(model, i)),
        tuple(_collisions(model, i)),
    )


def _joint(
    model: Any,
    j: int,
    names: list[str],
    parent: str,
    child: str,
    offset: Pose,
    followers: Mapping[int, Follower],
    drives: Drives,
) -> JointDescription:
    name, theirs, dof = names[j], int(model.jnt_type[j]), int(model.jnt_dofadr[j])
    armature, damping = drives.rotors.get(j, (0.0, 0.0))
    numbers: dict[str, Any] = {
        "armature": float(model.dof_armature[dof]) + armature,
        "damping": float(model.dof_damping[dof]) + damping,
        "friction": float(model.dof_frictionloss[dof]),
        "spring": _spring(model, j),
    }
    if theirs == FREE:  # its position is that in the world; of its armature, see _left_out
        numbers |= {"armature": 0.0, "spring": None}
        return JointDescription(name, "floating", parent, child, **numbers)
    anchor = _moved(*model.jnt_pos[j].tolist())
    if theirs == BALL:
        return JointDescription(name, "spherical", parent, child, offset @ anchor, **numbers)
    limited = bool(model.jnt_limited[j])
    kind = "prismatic" if theirs == SLIDE else "revolute" if limited else "continuous"
    lower, upper = model.jnt_range[j].tolist() if limited else (-inf, inf)
    effort = float(abs(model.jnt_actfrcrange[j]).max()) if model.jnt_actfrclimited[j] else inf
    limit = JointLimit(lower, upper, effort=effort)
    follower = followers.get(j)
    joint = JointDescription(
        name,
        kind,
        parent,
        child,
        offset @ anchor,
        tuple(model.jnt_axis[j].tolist()),
        limit=limit,
        mimic=(
            None
            if follower is None
            else Mimic(names[follower.master], follower.multiplier, follower.offset)
        ),
        **numbers,
    )
    zero = joint_pose(joint, (-float(model.qpos0[model.jnt_qposadr[j]]),))
    return dataclasses.replace(joint, placement=joint.placement @ zero)


def _spring(model: Any, j: int) -> Spring | None:
    if model.jnt_stiffness[j] == 0.0:
        return None
    first = int(model.jnt_qposadr[j])
    if int(model.jnt_type[j]) == BALL:
        w, x, y, z = model.qpos_spring[first : first + 4].tolist()
        return Spring(float(model.jnt_stiffness[j]), (x, y, z, w))
    return Spring(float(model.jnt_stiffness[j]), (float(model.qpos_spring[first]),))


def _visuals(model: Any, body: int) -> Iterator[Visual]:
    first = model.body_geomadr[body]
    for g in range(first, first + model.body_geomnum[body]):
        kind = int(model.geom_type[g])
        is_mesh = _SOLID.get(kind) == "mesh"
        if (kind in _SHAPES or is_mesh) and model.geom_group[g] < _SHOWN_GROUPS:
            material = int(model.geom_matid[g])
            color = model.mat_rgba[material] if material >= 0 else model.geom_rgba[g]
            look = (_pose(model.geom_pos[g], model.geom_quat[g]), tuple(color.tolist()))
            if is_mesh:
                yield Visual("mesh", (1.0, 1.0, 1.0), *look, numbers=_mesh(model, g))
            else:
                shape, size = _SHAPES[kind]
                yield Visual(shape, tuple(size(model.geom_size[g].tolist())), *look)


def _mesh(model: Any, geom: int) -> tuple[bytes, bytes]:
    """The numbers of a mesh, as a `Collision` has them."""
    m = int(model.geom_dataid[geom])
    vertices = model.mesh_vert[model.mesh_vertadr[m] :][: model.mesh_vertnum[m]]
    faces = model.mesh_face[model.mesh_faceadr[m] :][: model.mesh_facenum[m]]
    return vertices.astype(np.float64).tobytes(), faces.astype(np.int32).tobytes()


def _height_field(model: Any, geom: int, placement: Pose) -> Collision:
    """With its heights, row by row, as numbers; its size is (x, y, metres below the lowest point,
    rows).
    """
    h = int(model.geom_dataid[geom])
    x, y, top, base = model.hfield_size[h].tolist()
    rows, columns = int(model.hfield_nrow[h]), int(model.hfield_ncol[h])
    first = int(model.hfield_adr[h])
    heights = top * model.hfield_data[first : first + rows * columns].astype(np.float64)
    size = (2 * x, 2 * y, base + float(heights.min()), float(rows))
    return Collision("hfield", size, placement, numbers=(heights.tobytes(), b""))


def _collisions(model: Any, body: int) -> Iterator[Collision]:
    """Its shapes that may be in contact."""
    first = model.body_geomadr[body]
    for g in range(first, first + model.body_geomnum[body]):
        kind = int(model.geom_type[g])
        if not (model.geom_contype[g] or model.geom_conaffinity[g]) or not (
            kind in _SHAPES or kind in _SOLID
        ):
            continue
        placement = _pose(model.geom_pos[g], model.geom_quat[g])
        if kind in _SHAPES:
            shape, size = _SHAPES[kind]
            yield Collision(shape, tuple(size(model.geom_size[g].tolist())), placement)
        elif _SOLID[kind] == "mesh":
            yield Collision("mesh", (1.0, 1.0, 1.0), placement, numbers=_mesh(model, g))
        elif _SOLID[kind] == "hfield":
            yield _height_field(model, g, placement)
        else:
            size = tuple(model.geom_size[g].tolist()) if _SOLID[kind] == "ellipsoid" else ()
            yield Collision(_SOLID[kind], size, placement)


def _frames(model: Any, bodies: list[str], taken: set[str]) -> Iterator[FrameDescription]:
    """Named sites, but those with the name of a link or a joint."""
    for s in range(model.nsite):
        name = name_at(model, model.name_siteadr[s])
        if name and name not in taken:
            yield FrameDescription(
                name, bodies[model.site_bodyid[s]], _pose(model.site_pos[s], model.site_quat[s])
            )


def _tell(
    name: str, joints: list[str], model: Any, drives: Drives, left_out: Sequence[str]
) -> None:
    """What is not modelled, and what acts in plants alone, once and by name."""
    kept = []
    sprung = (model.jnt_stiffness != 0) & (model.jnt_type != FREE)
    springs = [joints[j] for j in np.flatnonzero(sprung)]
    if springs:
        kept.append(f'{named("spring of joint", springs)}: springs="model"')
    servos = [a.name for a in drives.actuators or () if a.servo is not None]
    if servos:
        kept.append(f"{named('servo', servos)}, whose controls are forces elsewhere: servos=True")
    tell(name, [*left_out, *drives.left_out], list(_passed_over(model)), kept)


def _passed_over(model: Any) -> Iterator[str]:
    """What is for MuJoCo alone: measurements, stored states, pairs of bodies that it leaves out or
    adds when it looks for contacts.
    """
    pairs = [tuple(divmod(int(s), 1 << 16)) for s in model.exclude_signature]
    bodies = body_names(model)
    excluded = ["-".join(bodies[b] for b in pair) for pair in pairs]
    names = {
        "sensor": [name_at(model, at) for at in model.name_sensoradr],
        "keyframe": [name_at(model, at) for at in model.name_keyadr],
        "contact exclusion": excluded,
        "contact pair": [name_at(model, at) for at in model.name_pairadr],
    }
    for what, found in names.items():
        known = [name for name in found if name]
        yield from [named(what, known)] if known else []
        yield from counted([f"{what} without a name"] * (len(found) - len(known)))


def _left_out(model: Any, joints: list[str], bodies: list[str]) -> Iterator[str]:
    """What acts on the bodies in MuJoCo and has no part in our dynamics; contacts, which no
    description of ours has, go without saying.
    """
    kind, freedom = model.jnt_type, model.jnt_dofadr
    tendons = [name_at(model, at) or f"tendon{t}" for t, at in enumerate(model.name_tendonadr)]

    def some(array: str) -> Any:
        """Rows of an array that is not in every version, where they are not zero."""
        values = np.asarray(getattr(model, array, ()))
        return values.reshape(len(values), -1).any(axis=1) if len(values) else np.zeros(0, bool)

    def chosen(mask: Any, names: list[str]) -> list[str]:
        return [names[i] for i in np.flatnonzero(mask)]

    free, ball = kind == FREE, kind == BALL
    of_joints = {
        "spring of a free joint": free & (model.jnt_stiffness != 0),
        "limit of a ball joint": ball & (model.jnt_limited != 0),
        "armature of a free joint": free & (model.dof_armature[freedom] != 0),
        "spring of higher order of joint": some("jnt_stiffnesspoly"),
        "yielding spring of joint": some("jnt_springyield"),
        "damping of higher order of joint": (
            some("dof_dampingpoly")[freedom] if len(some("dof_dampingpoly")) else free & False
        ),
    }
    spatial = np.array([fixed_tendon(model, t) is None for t in range(model.ntendon)], dtype=bool)
    of_tendons = {
        "spatial tendon": spatial,
        "spring of tendon": some("tendon_stiffness") | some("tendon_stiffnesspoly"),
        "damping of tendon": some("tendon_damping") | some("tendon_dampingpoly"),
        "dry friction of tendon": some("tendon_frictionloss"),
        "armature of tendon": some("tendon_armature"),
        "limit of tendon": some("tendon_limited"),
        "force range of tendon": some("tendon_actfrclimited"),
    }
    for masks, names in ((of_joints, joints), (of_tendons, tendons)):
        for what, mask in masks.items():
            if len(mask) and mask.any():
                yield named(what, chosen(mask, names))
    if model.body_gravcomp.any():
        yield named("body with gravity compensation", chosen(model.body_gravcomp != 0, bodies))
    counts = {
        "mocap body, taken as fixed": model.nmocap,
        "flexible body": model.nflex,
        "plugin": model.nplugin,
        "fluid": int(model.opt.density > 0 or model.opt.viscosity > 0),
    }
    for what, count in counts.items():
        if count:
            yield f"{count} × {what}" if count > 1 else what
