"""Our models as MuJoCo's, body by body, without shapes and contacts. Loops become equality
constraints between sites, which are soft there.

A floating joint becomes a free joint where it stands in the world, and three slides and a ball
elsewhere; a planar joint becomes two slides and a hinge. The parts of a joint are called `name:0`,
`name:1`, …
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from rigidgrad.errors import ModelError
from rigidgrad.model.description import Actuator
from rigidgrad.model.mjcf_names import library
from rigidgrad.model.model import WORLD, Joint, Model
from rigidgrad.model.pose import IDENTITY_POSE


def to_mujoco(model: Model, *, friction: bool = False) -> Any:
    """An MjModel with our bodies, joints, armature, joint limits, loops and gravity; with
    `friction`, also damping, dry friction and springs of the joints.
    """
    check(model)
    built = build(model, limits=True, furnish=partial(_add_loops, model))
    set_inertias(built, model.inertias)
    if friction:
        for joint in model.joints:
            built.dof_damping[joint.v : joint.v + joint.nv] = joint.damping
            built.dof_frictionloss[joint.v : joint.v + joint.nv] = joint.friction
        set_springs(built, model)
    return built


def check(model: Model) -> None:
    """What MuJoCo cannot do exactly is refused."""
    for j in model.joints:
        if not j.kind.mujoco:
            raise ModelError(
                f"joint '{j.name}' is {j.type}: MuJoCo has no such joint; rg.plants.Simulator"
                " simulates it"
            )
        if j.is_mimic:
            raise ModelError(
                f"joint '{j.name}' mimics another: MuJoCo has only a soft constraint for that;"
                " rg.plants.Simulator simulates it"
            )
        if j.kind.carried and any(model.armature[j.dof : j.dof + j.nv]):
            raise ModelError(
                f"joint '{j.name}' is {j.type} and has armature, which MuJoCo counts along other"
                " axes; rg.plants.Simulator simulates it"
            )


def build(
    model: Model, *, limits: bool, furnish: Callable[[Any, list[Any]], None] | None = None
) -> Any:
    """An MjModel with bodies, joints and armature; inertias are yet to be set. Velocities are laid
    out as ours. `furnish(spec, bodies)` adds to it.
    """
    mujoco = library()
    spec = mujoco.MjSpec()
    spec.modelname = model.name
    spec.compiler.degree = False
    spec.option.gravity = model.gravity
    if furnish is None:
        spec.option.disableflags = int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    bodies: list[Any] = []
    for i, joint in enumerate(model.joints):
        parent, placement = model.parents[i], model.placements[i]
        body = (spec.worldbody if parent == WORLD else bodies[parent]).add_body(
            name=model.body_names[i] if model.body_names[i] != "world" else "world:moving",
            pos=placement.p,
            quat=_quaternion(mujoco, np.array(placement.R)),
        )
        # any inertia will do now, but a lopsided one: of bodies that are not, MuJoCo remembers
        # shortcuts
        body.explicitinertial = True
        body.mass, body.ipos, body.fullinertia = (
            1.0,
            (0.1, 0.2, 0.3),
            (1.0, 1.1, 1.2, 0.1, 0.2, 0.3),
        )
        if joint.kind.flies and parent == WORLD and placement == IDENTITY_POSE:
            body.add_freejoint(name=joint.name)
        else:
            _add_joints(mujoco, body, joint, limits)
        bodies.append(body)
    if furnish is not None:
        furnish(spec, bodies)
    built = spec.compile()
    built.dof_armature[:] = model.armature
    return built


def _add_joints(mujoco: Any, body: Any, joint: Joint, limits: bool) -> None:
    for k, (kind, axis) in enumerate(joint.kind.mujoco):
        added = body.add_joint(
            name=part_name(joint, k),
            type=getattr(mujoco.mjtJoint, kind),
            axis=joint.axis if axis is None else axis,
        )
        lower, upper = joint.limit.lower, joint.limit.upper
        if limits and joint.kind.bounded and np.isfinite([lower, upper]).any():
            # MuJoCo has limits on both sides or none
            added.limited = 1
            added.range = np.clip((lower, upper), -1e10, 1e10)


def _add_loops(model: Model, spec: Any, bodies: list[Any]) -> None:
    mujoco = library()
    known: set[str] = set()
    for loop in model.description.loops:
        ends = [model.frame(name) for name in (loop.frame_a, loop.frame_b)]
        if ends[0].body == ends[1].body:
            continue
        for frame in ends:
            if frame.name not in known:
                known.add(frame.name)
                body = spec.worldbody if frame.body == WORLD else bodies[frame.body]
                body.add_site(
                    name=frame.name,
                    pos=frame.placement.p,
                    quat=_quaternion(mujoco, np.array(frame.placement.R)),
                )
        kind = mujoco.mjtEq.mjEQ_WELD if loop.full else mujoco.mjtEq.mjEQ_CONNECT
        added = spec.add_equality(
            name=loop.name,
            type=kind,
            objtype=mujoco.mjtObj.mjOBJ_SITE,
            name1=loop.frame_a,
            name2=loop.frame_b,
        )
        if loop.full:
            added.data[10] = 1.0  # torques count as forces at 1 m


def set_springs(built: Any, model: Model) -> None:
    """The joints' springs; their positions are as ours, but for quaternions, which begin with w."""
    for joint in model.joints:
        if joint.spring is not None:
            theirs = built.joint(part_name(joint, 0))
            *plain, last = joint.spring.rest
            theirs.stiffness[0] = joint.spring.stiffness
            theirs.qpos_spring[:] = (last, *plain) if plain else (last,)


def add_servos(model: Model, actuators: Sequence[Actuator], spec: Any, bodies: list[Any]) -> None:
    """A robot's own actuators, whose commands are MuJoCo's controls."""
    mujoco = library()
    joints = {j.name: j for j in model.joints}
    for actuator in actuators:
        law, (first, *more) = actuator.servo, actuator.forces
        target, kind, gear = part_name(joints[first[0]], 0), mujoco.mjtTrn.mjTRN_JOINT, first[1]
        if more:
            target, kind, gear = f"{actuator.name}:arms", mujoco.mjtTrn.mjTRN_TENDON, (1.0,)
            tendon = spec.add_tendon(name=target)
            for name, arm in actuator.forces:
                tendon.wrap_joint(part_name(joints[name], 0), arm[0])
        added = spec.add_actuator(name=actuator.name, trntype=kind, target=target)
        added.gear = [*gear, *[0.0] * (6 - len(gear))]
        force, command = (actuator.lower, actuator.upper), (-np.inf, np.inf)
        if law is None:
            force, command = command, force
            added.gainprm[:1] = 1.0
        else:
            command = law.lower, law.upper
            added.gaintype = mujoco.mjtGain.mjGAIN_AFFINE
            added.biastype = mujoco.mjtBias.mjBIAS_AFFINE
            added.gainprm[:3], added.biasprm[:3] = law.gain, law.bias
        for what, bounds in (("force", force), ("ctrl", command)):
            if np.isfinite(bounds).any():
                setattr(added, f"{what}limited", 1)
                setattr(added, f"{what}range", np.clip(bounds, -1e10, 1e10))


def part_name(joint: Joint, k: int) -> str:
    """The name of MuJoCo's k-th joint for a joint of ours."""
    return joint.name if len(joint.kind.mujoco) == 1 else f"{joint.name}:{k}"


def set_inertias(built: Any, inertias: tuple[tuple[Any, ...], ...]) -> None:
    """Sets (m, h, I) about each body's origin, and what MuJoCo derives from them."""
    mujoco = library()
    for body, (mass, h, (xx, xy, yy, xz, yz, zz)) in enumerate(inertias, start=1):
        c = np.array(h) / mass if mass > 0 else np.zeros(3)
        central = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) - mass * (
            c @ c * np.eye(3) - np.outer(c, c)
        )
        moments, axes = np.linalg.eigh(central)
        if np.linalg.det(axes) < 0:
            axes[:, 0] *= -1.0
        built.body_mass[body], built.body_ipos[body], built.body_inertia[body] = mass, c, moments
        built.body_iquat[body] = _quaternion(mujoco, axes)
    mujoco.mj_setConst(built, mujoco.MjData(built))  # constants are computed in another state


def _quaternion(mujoco: Any, rotation: np.ndarray) -> np.ndarray:
    result = np.empty(4)
    mujoco.mju_mat2Quat(result, np.ascontiguousarray(rotation).ravel())
    return result
