"""What of a compiled MuJoCo model a step depends on, in the order of our joints: stepping asks
MuJoCo nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rigidgrad.errors import InputError, ModelWarning
from rigidgrad.model import mjcf
from rigidgrad.model.model import WORLD, Model, assemble
from rigidgrad.worlds.impedance import Softness, softness

FREE, BALL, SLIDE, HINGE = range(4)  # mjtJoint
INTEGRATORS = {0: "euler", 3: "implicitfast"}  # mjtIntegrator
_GAINS, _BIASES = ("fixed", "affine"), ("none", "affine")
_JOINT, _JOINT_IN_PARENT, _TENDON = 0, 1, 3  # mjtTrn


@dataclass(frozen=True)
class Limit:
    """Of a number of q: `lower` and `upper`, each with a row of its own."""

    q: int
    v: int
    lower: float
    upper: float
    margin: float
    soft: Softness


@dataclass(frozen=True)
class BallLimit:
    """Of the angle of a ball joint."""

    q: int
    v: int
    most: float
    margin: float
    soft: Softness


@dataclass(frozen=True)
class Friction:
    """Dry friction of a freedom, at most `loss`."""

    v: int
    loss: float
    soft: Softness


@dataclass(frozen=True)
class Spring:
    q: int
    v: int
    stiffness: float
    rest: float


@dataclass(frozen=True)
class Tendon:
    """A fixed one: its length is Σ coefficient q, over `parts` (q, v, coefficient)."""

    parts: tuple[tuple[int, int, float], ...]
    lower: float
    upper: float
    margin: float
    soft: Softness
    limited: bool


@dataclass(frozen=True)
class Coupling:
    """Two joints, or one, on whose positions there is an equality constraint: q - rest is a
    polynomial of what the other joint's position is beyond its own rest.
    """

    q: int
    v: int
    rest: float
    other: tuple[int, int, float] | None  # q, v and rest
    polynomial: tuple[float, ...]
    soft: Softness

    margin = 0.0


@dataclass(frozen=True)
class Actuator:
    """force = (g0 + g1 l + g2 l̇) u + b0 + b1 l + b2 l̇, clamped, on Σ c v over `parts`."""

    name: str
    parts: tuple[tuple[int, int, float], ...]
    gain: tuple[float, ...]
    bias: tuple[float, ...]
    control: tuple[float, float] | None
    force: tuple[float, float] | None

    @property
    def velocity_gain(self) -> float:
        return self.bias[2]


@dataclass(frozen=True)
class Free:
    """A floating joint: where its numbers begin in our q and v and in MuJoCo's qpos and qvel."""

    q: int
    v: int
    qpos: int
    qvel: int


@dataclass(frozen=True)
class Physics:
    """Numbers `of_q` and `of_v` of MuJoCo's qpos and qvel are our q and v; linear velocities of
    `frees` are along the world's axes there, and along the body's here.
    """

    model: Model
    dt: float
    integrator: str
    damped: bool  # whether damping is taken implicitly
    elliptic: bool
    impratio: float
    tolerance: float
    mean_inertia: float
    of_q: tuple[int, ...]
    of_v: tuple[int, ...]
    frees: tuple[Free, ...]
    quaternions: tuple[tuple[int, int], ...]  # where they begin in our q, and in qpos
    armature: tuple[float, ...]  # besides that of the model
    damping: tuple[float, ...]
    frictions: tuple[Friction, ...]
    limits: tuple[Limit, ...]
    ball_limits: tuple[BallLimit, ...]
    springs: tuple[Spring, ...]
    tendons: tuple[Tendon, ...]
    couplings: tuple[Coupling, ...]
    actuators: tuple[Actuator, ...]
    force_limits: tuple[tuple[int, float, float], ...]  # of what actuators do to a freedom, by v
    qpos0: tuple[float, ...]
    bodies: tuple[str, ...]  # MuJoCo's
    joints: tuple[str, ...]
    mounts: tuple[tuple[int, Any], ...] = field(repr=False)  # our body and pose of each of those
    mass: tuple[float, ...] = ()  # of MuJoCo's bodies
    centres: tuple[tuple[float, ...], ...] = ()

    @property
    def nq(self) -> int:
        return len(self.of_q)

    @property
    def nv(self) -> int:
        return len(self.of_v)

    @property
    def nu(self) -> int:
        return len(self.actuators)


def read_physics(m: Any, dt: float | None, leave_out: bool) -> Physics:
    """Of a `mujoco.MjModel`. What worlds have not is an error, or with `leave_out` a warning."""
    library = mjcf.library()
    disabled = library.mjtDisableBit
    off = {name: bool(m.opt.disableflags & int(bit)) for name, bit in disabled.__members__.items()}
    strange = list(_not_modelled(m, library))
    if strange:
        said = (
            "worlds do not model " + ", ".join(strange) + "; take it out of the MJCF, or say"
            " leave_out=True"
        )
        if not leave_out:
            raise InputError(said)
        warnings.warn(said, ModelWarning, stacklevel=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)  # what matters here was said above
        described = _with_all_joints(mjcf.describe_mujoco(m))
        model = assemble(described, gravity=described.gravity, strict=False)
    names = mjcf.joint_names(m)
    bodies = mjcf.body_names(m)
    of_q, of_v = [0] * model.nq, [0] * model.nv
    frees: list[Free] = []
    quaternions: list[tuple[int, int]] = []
    place: dict[int, tuple[int, int]] = {}  # of MuJoCo's joints: where in our q and v
    for joint in model.joints:
        j = names.index(joint.name)
        q, v, kind = int(m.jnt_qposadr[j]), int(m.jnt_dofadr[j]), int(m.jnt_type[j])
        place[j] = (joint.q, joint.v)
        plain = joint.kind.plain
        order = list(range(plain))
        if kind in (FREE, BALL):
            order += [plain + k for k in (1, 2, 3, 0)]
            quaternions.append((joint.q + plain, q + plain))
        for k, at in enumerate(order):
            of_q[joint.q + k] = q + at
        for k in range(joint.nv):
            of_v[joint.v + k] = v + k
        if kind == FREE:
            frees.append(Free(joint.q, joint.v, q, v))
    step = float(m.opt.timestep if dt is None else dt)
    if not 0 < step < 1:
        raise InputError(f"dt is a time step in seconds, between 0 and 1, not {dt!r}")

    def soft(ref: Any, imp: Any) -> Softness:
        return softness(ref, imp, step, safe=not off["mjDSBL_REFSAFE"])

    ours = {theirs: mine for mine, theirs in enumerate(of_v)}
    spring_on, damper_on = not off["mjDSBL_SPRING"], not off["mjDSBL_DAMPER"]
    constraints = not off["mjDSBL_CONSTRAINT"]
    limited = constraints and not off["mjDSBL_LIMIT"]
    equal = not off["mjDSBL_EQUALITY"]
    frictions = tuple(
        Friction(
            ours[i],
            float(m.dof_frictionloss[i]),
            soft(m.dof_solref[i], m.dof_solimp[i]).times(float(m.dof_invweight0[i])),
        )
        for i in range(m.nv)
        if m.dof_frictionloss[i] > 0 and constraints and not off["mjDSBL_FRICTIONLOSS"]
    )
    limits, ball_limits, springs, force_limits = [], [], [], []
    for j in range(m.njnt):
        kind = int(m.jnt_type[j])
        q, v = place[j]
        weight = float(m.dof_invweight0[m.jnt_dofadr[j]])
        stiff = soft(m.jnt_solref[j], m.jnt_solimp[j]).times(weight)
        low, high = (float(x) for x in m.jnt_range[j])
        if m.jnt_limited[j] and limited:
            margin = float(m.jnt_margin[j])
            if kind == BALL:
                ball_limits.append(BallLimit(q, v, max(low, high), margin, stiff))
            else:
                limits.append(Limit(q, v, low, high, margin, stiff))
        if m.jnt_stiffness[j] and kind in (SLIDE, HINGE) and spring_on:
            rest = float(m.qpos_spring[m.jnt_qposadr[j]])
            springs.append(Spring(q, v, float(m.jnt_stiffness[j]), rest))
        if m.jnt_actfrclimited[j] and kind in (SLIDE, HINGE):
            low, high = (float(x) for x in m.jnt_actfrcrange[j])
            force_limits.append((v, low, high))
    damping = tuple(float(m.dof_damping[i]) * damper_on for i in of_v)
    integrator = INTEGRATORS.get(int(m.opt.integrator), "euler")
    implicit = integrator == "implicitfast" or not off["mjDSBL_EULERDAMP"]
    tendons = tuple(_tendon(m, t, place, soft, limited) for t in range(m.ntendon))
    actuators = tuple(_actuators(m, place, tendons, off)) if not off["mjDSBL_ACTUATION"] else ()
    return Physics(
        model=model,
        dt=step,
        integrator=integrator,
        damped=implicit
        and (
            any(damping)
            or (integrator == "implicitfast" and any(a.bias[2] or a.gain[2] for a in actuators))
        ),
        elliptic=int(m.opt.cone) == int(library.mjtCone.mjCONE_ELLIPTIC),
        impratio=float(max(m.opt.impratio, 1e-15)),
        tolerance=float(m.opt.tolerance),
        mean_inertia=float(m.stat.meaninertia),
        of_q=tuple(of_q),
        of_v=tuple(of_v),
        frees=tuple(frees),
        quaternions=tuple(quaternions),
        armature=tuple(
            float(m.dof_armature[theirs]) - float(model.armature[mine])
            for mine, theirs in enumerate(of_v)
        ),
        damping=damping,
        frictions=frictions,
        limits=tuple(limits),
        ball_limits=tuple(ball_limits),
        springs=tuple(springs),
        tendons=tendons,
        couplings=tuple(_couplings(m, place, soft)) if constraints and equal else (),
        actuators=actuators,
        force_limits=tuple(force_limits),
        qpos0=tuple(float(x) for x in m.qpos0),
        bodies=tuple(bodies),
        joints=tuple(names),
        mounts=tuple(_mounts(model, bodies)),
        mass=tuple(float(x) for x in m.body_mass),
        centres=tuple(tuple(float(y) for y in x) for x in m.body_ipos),
    )


def _mounts(model: Model, bodies: list[str]) -> Iterator[tuple[int, Any]]:
    """On which of our bodies, and where in its frame, each of MuJoCo's bodies is."""
    for name in bodies:
        frame = model.frame(name)
        yield (WORLD if frame.body == WORLD else frame.body), frame.placement


def _tendon(m: Any, t: int, place: Any, soft: Any, limited: bool) -> Tendon:
    parts = []
    first, count = int(m.tendon_adr[t]), int(m.tendon_num[t])
    for w in range(first, first + count):
        q, v = place[int(m.wrap_objid[w])]
        parts.append((q, v, float(m.wrap_prm[w])))
    low, high = (float(x) for x in m.tendon_range[t])
    stiff = soft(m.tendon_solref_lim[t], m.tendon_solimp_lim[t])
    return Tendon(
        tuple(parts),
        low,
        high,
        float(m.tendon_margin[t]),
        stiff.times(float(m.tendon_invweight0[t])),
        bool(m.tendon_limited[t]) and limited,
    )


def _with_all_joints(described: Any) -> Any:
    """Joints that others follow by an equality constraint, which is soft here, are joints."""
    if not any(j.mimic for j in described.joints):
        return described
    free = tuple(replace(j, mimic=None) for j in described.joints)
    return replace(described, joints=free, actuators=None)


def _couplings(m: Any, place: Any, soft: Any) -> Iterator[Coupling]:
    for k in range(m.neq):
        if not _couples(m, k):
            continue
        first, second = int(m.eq_obj1id[k]), int(m.eq_obj2id[k])
        weight = float(m.dof_invweight0[m.jnt_dofadr[first]])
        other = None
        if second >= 0:
            weight += float(m.dof_invweight0[m.jnt_dofadr[second]])
            other = (*place[second], float(m.qpos0[m.jnt_qposadr[second]]))
        q, v = place[first]
        yield Coupling(
            q,
            v,
            float(m.qpos0[m.jnt_qposadr[first]]),
            other,
            tuple(float(x) for x in m.eq_data[k][:5]),
            soft(m.eq_solref[k], m.eq_solimp[k]).times(weight),
        )


def _couples(m: Any, k: int) -> bool:
    """Whether an equality constraint is active, and of joints."""
    return bool(m.eq_active0[k]) and int(m.eq_type[k]) == int(mjcf.library().mjtEq.mjEQ_JOINT)


def _actuators(m: Any, place: Any, tendons: Any, off: Any) -> Iterator[Actuator]:
    for i in range(m.nactuator):
        u, out = int(m.actuator_ctrladr[i]), int(m.actuator_outadr[i])
        gear, target = float(m.actuator_gear[out][0]), int(m.actuator_trnid[i][0])
        if int(m.actuator_trntype[i]) == _TENDON:
            parts = tuple((q, v, gear * c) for q, v, c in tendons[target].parts)
        else:
            q, v = place[target]
            parts = ((q, v, gear),)
        gain, bias = (
            tuple(float(x) for x in p[i][:3]) for p in (m.actuator_gainprm, m.actuator_biasprm)
        )
        if int(m.actuator_gaintype[i]) == 0:
            gain = (gain[0], 0.0, 0.0)
        if int(m.actuator_biastype[i]) == 0:
            bias = (0.0, 0.0, 0.0)
        clamp = m.actuator_ctrllimited[u] and not off["mjDSBL_CLAMPCTRL"]
        yield Actuator(
            m.actuator(i).name or f"actuator {i}",
            parts,
            gain,
            bias,
            tuple(float(x) for x in m.actuator_ctrlrange[u]) if clamp else None,  # type: ignore[arg-type]
            tuple(float(x) for x in m.actuator_forcerange[i])  # type: ignore[arg-type]
            if m.actuator_forcelimited[i]
            else None,
        )


def _not_modelled(m: Any, library: Any) -> Iterator[str]:
    """What changes motion in MuJoCo and is not in worlds."""
    kinds = [int(x) for x in m.jnt_type]
    integrators = library.mjtIntegrator
    if int(m.opt.integrator) not in INTEGRATORS:
        yield f"the integrator {integrators(int(m.opt.integrator)).name}, in whose place is Euler's"
    strange = sum(bool(m.eq_active0[k]) and not _couples(m, k) for k in range(m.neq))
    if strange and not m.opt.disableflags & int(library.mjtDisableBit.mjDSBL_EQUALITY):
        yield f"{strange} equality constraints of other things than joints"
    if m.nflex:
        yield "flexible bodies"
    if m.opt.viscosity > 0 or m.opt.density > 0:
        yield "fluids"
    if np.any(m.body_gravcomp):
        yield "compensation of gravity"
    if m.nplugin:
        yield "plugins"
    if m.nmocap:
        yield "mocap bodies"
    if m.opt.enableflags & ~int(library.mjtEnableBit.mjENBL_ENERGY):
        yield "flags of <option>, enabled there"
    if m.opt.noslip_iterations:
        yield "iterations against slip"
    for j, kind in enumerate(kinds):
        if kind in (FREE, BALL) and m.jnt_stiffness[j]:
            yield f"the spring of joint {m.joint(j).name!r}, which is free or a ball"
        if kind == FREE and np.any(m.dof_frictionloss[m.jnt_dofadr[j] :][:6]):
            yield f"dry friction of the free joint {m.joint(j).name!r}"
        if np.any(m.jnt_stiffnesspoly[j]) or m.jnt_springyield[j]:
            yield f"the nonlinear spring of joint {m.joint(j).name!r}"
    if np.any(m.dof_dampingpoly):
        yield "nonlinear damping"
    for t in range(m.ntendon):
        spring = m.tendon_stiffness[t] or m.tendon_damping[t] or m.tendon_frictionloss[t]
        if int(m.tendon_type[t]) != 0 or spring or m.tendon_armature[t]:
            yield f"the tendon {m.tendon(t).name!r}, which is more than a fixed one with limits"
    for i in range(m.nactuator):
        name = m.actuator(i).name
        stateless = int(m.actuator_dyntype[i]) == 0 and m.actuator_actadr[i] < 0
        linear = int(m.actuator_gaintype[i]) in (0, 1) and int(m.actuator_biastype[i]) in (0, 1)
        kind = int(m.actuator_trntype[i])
        single = m.actuator_ctrlnum[i] == 1 and m.actuator_outnum[i] == 1
        if (
            not (stateless and linear and single)
            or m.actuator_delay[i]
            or m.actuator_plugin[i] >= 0
        ):
            yield f"actuator {name!r}, which has a state or is not affine"
        elif kind not in (_JOINT, _JOINT_IN_PARENT, _TENDON):
            yield f"actuator {name!r}, which moves no joint or fixed tendon"
        elif kind != _TENDON and kinds[int(m.actuator_trnid[i][0])] in (FREE, BALL):
            yield f"actuator {name!r} of a free or ball joint"
        if m.actuator_damping[i] or np.any(m.actuator_dampingpoly[i]):
            yield f"the damping of actuator {name!r}"
    if np.any(m.geom_adhesion) or bool(getattr(m, "flg_surfacevel", False)):
        yield "adhesion and moving surfaces"
