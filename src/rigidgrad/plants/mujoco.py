"""MuJoCo as a plant: the same robot in another engine, built body by body from our Model, without
shapes or contacts but those of a `Ground`.

MuJoCo's velocities are ours (`interop.mujoco`), but for linear ones of floating and planar joints:
ours are along the moving body's axes, MuJoCo's along its parent's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.control.system import System
from rigidgrad.errors import InputError, unknown_name
from rigidgrad.interop.mujoco import add_servos, build, check, set_inertias, set_springs
from rigidgrad.interop.states import turning
from rigidgrad.model.joints import JointType
from rigidgrad.model.joints.joint_type import PAIR, QUATERNION
from rigidgrad.model.mjcf_names import library
from rigidgrad.model.model import Model
from rigidgrad.plants.ground import Ground
from rigidgrad.plants.mismatch import Loaded, Resistance
from rigidgrad.plants.plant import Plant
from rigidgrad.robot import Robot
from rigidgrad.rotations import rotation_from_quaternion

# our name: MuJoCo's, and the function that ends a step
INTEGRATORS = {
    "euler": ("mjINT_EULER", "mj_Euler"),
    "rk4": ("mjINT_RK4", "mj_RungeKutta"),
    "implicit": ("mjINT_IMPLICIT", "mj_implicit"),
    "implicitfast": ("mjINT_IMPLICITFAST", "mj_implicit"),
}


class Free(NamedTuple):
    """A joint whose linear velocities are along other axes in MuJoCo: where its numbers start in
    our q and v, and in MuJoCo's positions.
    """

    kind: JointType
    q: int
    v: int
    place: int

    @property
    def has_angle(self) -> bool:
        """Where we have (cos, sin), MuJoCo has an angle, the last of its numbers."""
        return self.kind.direction == PAIR

    def rotation(self, qpos: np.ndarray) -> np.ndarray:
        """Takes our linear velocities to MuJoCo's."""
        if self.has_angle:
            angle = qpos[self.place + 2]
            c, s = np.cos(angle), np.sin(angle)
            return np.array([[c, -s], [s, c]])
        w, x, y, z = qpos[self.place + 3 : self.place + 7]
        return np.array(rotation_from_quaternion(x, y, z, w))

    @property
    def linear(self) -> slice:
        return slice(self.v, self.v + self.kind.carried)


class MuJoCo(Plant):
    """A robot simulated by MuJoCo; options as for Simulator, `integrator` one of "euler", "rk4",
    "implicit", "implicitfast".

    With a `ground` (`rg.plants.Ground`) its feet touch that; without, nothing touches anything.
    `limits=True`: the joints' ranges hold as MuJoCo's soft constraints, else they are not felt.
    Springs and servos are MuJoCo's own.

    Friction is MuJoCo's joint damping, which all its integrators but rk4 take implicitly; dry
    friction is damping that is set again before every step (MuJoCo's own `frictionloss` is soft:
    light joints creep by radians). The forces of a free body's control and the lever arms of pushes
    are held within one step of the integrator. `.model` and `.data` are MuJoCo's. `system` is a
    Robot, or its RobotSystem; it starts at `x0` (nx,).
    """

    def __init__(
        self,
        system: Robot | System,
        x0: ArrayLike,
        dt: float = 1e-3,
        *,
        integrator: str = "implicitfast",
        ground: Ground | None = None,
        limits: bool = False,
        **options: Any,
    ):
        self._mujoco = library()
        super().__init__(system, x0, dt, **options)
        if integrator not in INTEGRATORS:
            raise unknown_name("integrator of MuJoCo", integrator, INTEGRATORS)
        self.integrator = integrator
        own = self._need_robot("MuJoCo").model
        _check(own, self._resistance, integrator)
        if ground is not None and not isinstance(ground, Ground):
            raise InputError(f"ground is rg.plants.Ground(feet), not {type(ground).__name__}")
        self.ground = ground
        self.model = build(
            own, limits=limits, furnish=self._furnish if ground or self._servos else None
        )
        if self._springs:
            set_springs(self.model, own)
        kind, finish = INTEGRATORS[integrator]
        self.model.opt.integrator = getattr(self._mujoco.mjtIntegrator, kind)
        self._finish, self._order = (
            getattr(self._mujoco, finish),
            (4,) if integrator == "rk4" else (),
        )
        self.data = self._mujoco.MjData(self.model)
        self._nq = own.nq
        self._after = np.empty(self.nx)
        self._read_layout(own)
        self.reset()

    def _furnish(self, spec: Any, bodies: list[Any]) -> None:
        own = self._need_robot("MuJoCo").model
        if self.ground is not None:
            self.ground.build(spec, bodies, own, self._mujoco)
        add_servos(own, self._servos, spec, bodies)

    def _read_layout(self, own: Model) -> None:
        """Where our positions are among MuJoCo's: all but those of planar joints' angles are the
        same numbers in another order.
        """
        ours: list[int] = []
        theirs: list[int] = []
        self._free: list[Free] = []
        for joint in own.joints:
            first = self.model.joint(self.model.dof_jntid[joint.v])
            place = int(first.qposadr[0])
            plain = joint.kind.plain
            order = [
                *range(plain),
                *(plain + k for k in (1, 2, 3, 0) if joint.kind.direction == QUATERNION),
            ]
            ours += range(joint.q, joint.q + len(order))
            theirs += [place + k for k in order]
            if joint.kind.carried:
                self._free.append(Free(joint.kind, joint.q, joint.v, place))
        self._ours, self._theirs = np.array(ours), np.array(theirs)

    # --- the ground -------------------------------------------------------------------------------

    @property
    def foot_forces(self) -> dict[str, np.ndarray]:
        """What the ground exerted on each foot (3,) in the last step, in world axes."""
        with self._lock:
            return self._need_ground("foot_forces").forces(self.model, self.data, self._mujoco)

    def set_ground_friction(self, friction: float) -> None:
        """The ground is as rough as this from now on."""
        with self._lock:
            self.ground = replace(self._need_ground("ground friction"), friction=friction)
            self.ground.set_friction(self.model)

    def _need_ground(self, what: str) -> Ground:
        if self.ground is None:
            raise InputError(
                f"{what} needs a ground: rg.plants.MuJoCo(…, ground=rg.plants.Ground(feet))"
            )
        return self.ground

    # --- between our states and MuJoCo's ----------------------------------------------------------

    def _place(self, x: np.ndarray) -> None:
        self._mujoco.mj_resetData(self.model, self.data)
        qpos, qvel = self.data.qpos, self.data.qvel
        qpos[self._theirs] = x[self._ours]
        qvel[:] = x[self._nq :]
        for f in self._free:
            if f.has_angle:
                qpos[f.place + 2] = np.arctan2(x[f.q + 3], x[f.q + 2])
            qvel[f.linear] = f.rotation(qpos) @ qvel[f.linear]

    def _read(self) -> np.ndarray:
        x, qpos = self._after, self.data.qpos
        x[self._ours] = qpos[self._theirs]
        x[self._nq :] = self.data.qvel
        for f in self._free:
            if f.has_angle:
                x[f.q + 2], x[f.q + 3] = np.cos(qpos[f.place + 2]), np.sin(qpos[f.place + 2])
            v = x[self._nq :]
            v[f.linear] = v[f.linear] @ f.rotation(qpos)
        return x

    def _drive(self, u: np.ndarray) -> None:
        forces = self.data.qfrc_applied
        if self._servos:
            self.data.ctrl[:] = u
        else:
            forces[:] = u if self.actuation is None else self.actuation @ u
        for f in self._free:
            forces[f.linear] = f.rotation(self.data.qpos) @ forces[f.linear]
        if self._resistance is not None:
            self.model.dof_damping[:] = self._resistance.ratio(self.data.qvel)
        if self._active:
            self._mujoco.mj_kinematics(self.model, self.data)
            self._apply_pushes()

    def _apply_pushes(self) -> None:
        d = self.data
        d.xfrc_applied[:] = 0.0
        for push in self._active:
            body = push.body + 1  # 0 is the world
            arm = d.xpos[body] + d.xmat[body].reshape(3, 3) @ push.point - d.xipos[body]
            d.xfrc_applied[body, :3] += push.force
            d.xfrc_applied[body, 3:] += np.cross(arm, push.force)

    @property
    def touching(self) -> np.ndarray:
        """Whether each foot of the `ground` touches anything, (feet,)."""
        if self.ground is None:
            raise InputError("this plant has no ground: give it ground=rg.plants.Ground(feet)")
        with self._lock:
            shapes = {
                self.ground.foot_of(self.model.geom(int(g)).name)
                for g in self.data.contact.geom[: self.data.ncon].flat
            }
            return np.array([name in shapes for name in self.ground.feet])

    # --- what plants do ---------------------------------------------------------------------------

    def _step(self, h: float) -> np.ndarray:
        self.model.opt.timestep = h
        self._drive(self._u)
        # mj_step without its checks, which on a divergence would print, write a file and start
        # again
        self._mujoco.mj_forward(self.model, self.data)
        self._finish(self.model, self.data, *self._order)
        return self._read()

    def _acceleration(self, u: np.ndarray) -> np.ndarray:
        self._drive(u)
        self._mujoco.mj_forward(self.model, self.data)
        a: np.ndarray = self.data.qacc.copy()
        for f in self._free:
            v = self._x[self._nq + f.v :][: f.kind.nv]
            a[f.linear] = a[f.linear] @ f.rotation(self.data.qpos) - turning(f.kind, v)
        return a

    def _bear(self, inertias: tuple[tuple[Any, ...], ...]) -> None:
        set_inertias(self.model, inertias)

    def _press(self, pushes: list[Loaded]) -> None:
        self.data.xfrc_applied[:] = 0.0


def _check(model: Model, friction: Resistance | None, integrator: str) -> None:
    """What MuJoCo cannot do exactly is refused."""
    if integrator == "rk4" and friction is not None and friction.coulomb.any():
        raise InputError(
            "dry friction is too stiff for MuJoCo's rk4, which takes it explicitly; use"
            ' integrator="implicitfast"'
        )
    check(model)
    for j in model.joints:
        if j.kind.carried:
            linear = slice(j.v, j.v + j.kind.carried)
            if friction is not None and (
                friction.coulomb[linear].any() or np.ptp(friction.viscous[linear]) > 0
            ):
                raise InputError(
                    f"joint '{j.name}' is {j.type}: MuJoCo has only viscous friction, equal along"
                    " all axes, for its translation; use rg.plants.Simulator"
                )
