"""Motion without constraints: mass matrix, smooth forces, and how shapes and freedoms lie in the
world.

The unknown of a step is z = q̈ in MuJoCo's sense: of a floating joint z is Rᵀẍ and ω̇, where our
acceleration v̇ is Rᵀẍ - ω×v. With b = -ω×v for floating joints and 0 elsewhere, M z = τ - rnea(q,
v, b).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rigidgrad.algorithms.crba import mass_matrix
from rigidgrad.algorithms.fast.newton_euler import newton_euler
from rigidgrad.algorithms.joints import body_transforms, motion_subspace
from rigidgrad.model.model import WORLD, Model
from rigidgrad.program.fuse import fuse
from rigidgrad.program.program import Program, Shape
from rigidgrad.program.recorder import record
from rigidgrad.rotations import exponential, quaternion_product, rotation_from_quaternion
from rigidgrad.scalars import Scalar, add, is_constant, less, mul, neg, select, sqrt, sub, total
from rigidgrad.spatial import (
    Transform,
    Vector3,
    add3,
    cross3,
    dot3,
    multiply3,
    rotate,
    rotate_back,
    sub3,
    transpose,
)
from rigidgrad.worlds.narrow import CAPSULE, PLANE, SPHERE
from rigidgrad.worlds.pairs import Geom, chain
from rigidgrad.worlds.physics import Actuator, Physics

Vector = tuple[Scalar, ...]


@dataclass(frozen=True)
class Varied:
    """What differs from world to world, each by a factor (`names`, of `VARIED`), and pushes on one
    of MuJoCo's bodies.
    """

    names: tuple[str, ...] = ()
    push: int | None = None

    def inputs(self, physics: Physics) -> dict[str, Shape]:
        """Of the smooth motion: all but friction."""
        found = {
            name: shape
            for name, shape in factor_shapes(physics).items()
            if name in self.names and name != "friction"
        }
        if self.push is not None:
            found["push"] = (6,)
        return found


# factors of masses of MuJoCo's bodies, of what actuators give, of what they give by position and by
# velocity, of damping and armature of MuJoCo's freedoms, and of sliding friction in all contacts
VARIED = ("mass", "gain", "kp", "kd", "damping", "armature", "friction")


def factor_shapes(physics: Physics) -> dict[str, Shape]:
    """How many factors there are, by their names in order."""
    of_actuators = physics.nu, physics.nu, physics.nu
    sizes = (len(physics.bodies) - 1, *of_actuators, physics.nv, physics.nv)
    found: dict[str, Shape] = {
        name: (n,) for name, n in zip(VARIED, sizes, strict=False) if n or name not in _OF_ACTUATORS
    }
    return found | {"friction": ()}


_OF_ACTUATORS = ("gain", "kp", "kd")


def our_state(physics: Physics, qpos: Vector, qvel: Vector) -> tuple[Vector, Vector]:
    """q with quaternions of length one, and v with linear velocities along bodies."""
    q = [qpos[k] for k in physics.of_q]
    v = [qvel[k] for k in physics.of_v]
    for at, _ in physics.quaternions:
        square = total(x * x for x in q[at : at + 4])
        scale = 1.0 / sqrt(select(less(square, 1e-30), 1.0 + 0.0 * square, square))
        q[at : at + 4] = [x * scale for x in q[at : at + 4]]
    for f in physics.frees:
        v[f.v : f.v + 3] = rotate_back(turn_of(q[f.q + 3 : f.q + 7]), tuple(v[f.v : f.v + 3]))
    return tuple(q), tuple(v)


def turn_of(quaternion: Sequence[Scalar]) -> Any:
    """R of x, y, z, w."""
    return rotation_from_quaternion(*quaternion)


def varied_model(physics: Physics, factors: Vector | None) -> Model:
    """With inertias times the factor of each of MuJoCo's bodies; where several of them are one of
    ours, that of their total mass.
    """
    if factors is None:
        return physics.model
    inertias = []
    for i, (m, h, rotational) in enumerate(physics.model.inertias):
        own = [k for k, (body, _) in enumerate(physics.mounts) if body == i and physics.mass[k]]
        mass = sum(physics.mass[k] for k in own)
        if not own:
            inertias.append((m, h, rotational))
            continue
        s = total(mul(physics.mass[k] / mass, factors[k - 1]) for k in own)
        inertias.append(
            (mul(s, m), tuple(mul(s, x) for x in h), tuple(mul(s, x) for x in rotational))
        )
    return replace(physics.model, inertias=tuple(inertias))


def geom_numbers(g: Geom) -> int:
    """How many numbers place a shape that moves: its centre, and the columns of R that count."""
    return {SPHERE: 3, PLANE: 6, CAPSULE: 6}.get(g.kind, 12)


def lengths(a: Actuator, q: Vector, v: Vector) -> tuple[Scalar, Scalar]:
    return (
        total(mul(c, q[k]) for k, _, c in a.parts),
        total(mul(c, v[k]) for _, k, c in a.parts),
    )


def actuator_forces(
    physics: Physics, q: Vector, v: Vector, u: Vector, factors: Mapping[str, Vector]
) -> tuple[list[Scalar], list[Scalar]]:
    """Joint forces of all actuators, and ∂force/∂velocity of each one along its own length, which
    is zero where its force is clamped. `factors`: "gain", "kp" and "kd" where they vary.
    """
    gains = factors.get("gain")
    tau: list[Scalar] = [0.0] * physics.nv
    slopes: list[Scalar] = []
    for k, a in enumerate(physics.actuators):
        x = u[k]
        if a.control:
            low, high = a.control
            x = select(less(x, low), low, select(less(high, x), high, x))
        at, rate = lengths(a, q, v)
        (g0, g1, g2), (b0, b1, b2) = _scaled(a, k, factors)
        gain = add(add(g0, mul(g1, at)), mul(g2, rate))
        bias = add(add(b0, mul(b1, at)), mul(b2, rate))
        force = add(mul(gain, x), bias)
        slope = add(b2, mul(g2, x))
        if gains is not None:
            force, slope = mul(gains[k], force), mul(gains[k], slope)
        if a.force:
            low, high = a.force
            inside = (
                less(low, force)
                if isinstance(force, float)
                else (less(low, force)) & (less(force, high))
            )
            slope = 0.0 if is_constant(slope, 0.0) else select(inside, slope, 0.0)
            force = select(less(force, low), low, select(less(high, force), high, force))
        slopes.append(slope)
        for _, i, c in a.parts:
            tau[i] = add(tau[i], mul(c, force))
    for i, low, high in physics.force_limits:
        tau[i] = select(less(tau[i], low), low, select(less(high, tau[i]), high, tau[i]))
    return tau, slopes


def _scaled(a: Actuator, k: int, factors: Mapping[str, Vector]) -> tuple[Vector, Vector]:
    """Gain and bias of an actuator with its own factors: kp is of what depends on its length, and
    of the control where that is a position; kd of what depends on its rate, and of the control
    where that is a velocity.
    """
    (g0, g1, g2), (b0, b1, b2) = a.gain, a.bias
    position, velocity = b1 != 0 and b1 == -g0, b1 == 0 and b2 != 0 and b2 == -g0
    kp: Scalar = factors["kp"][k] if "kp" in factors else 1.0
    kd: Scalar = factors["kd"][k] if "kd" in factors else 1.0
    control = kp if position else kd if velocity else 1.0
    return (mul(control, g0), mul(kp, g1), mul(kd, g2)), (b0, mul(kp, b1), mul(kd, b2))


class Smooth:
    """The Program from a state and controls to `M` (its entries on the tree, row by row), `rhs`,
    `twists` (nv, 6) about `origin`, `geoms`, and `q`, `v` of our layout; `slopes` of actuators.
    """

    def __init__(self, physics: Physics, geoms: Sequence[Geom], varied: Varied):
        self.physics, self.varied = physics, varied
        self.geoms = tuple(geoms)
        self.places: dict[int, int] = {}
        count = 0
        for g, geom in enumerate(self.geoms):
            if geom.body != WORLD:
                self.places[g] = count
                count += geom_numbers(geom)
        self.geom_count = max(count, 1)
        nv = physics.nv
        self.inputs: dict[str, Shape] = {
            "qpos": (physics.nq,),
            "qvel": (nv,),
            "u": (physics.nu,),
            "applied": (nv,),
            **varied.inputs(physics),
        }
        if not physics.nu:
            del self.inputs["u"]
        self.outputs: dict[str, Shape] = {
            "M": (nv, nv),
            "rhs": (nv,),
            "twists": (nv, 6),
            "geoms": (self.geom_count,),
            "origin": (3,),
            "q": (physics.nq,),
            "v": (nv,),
        }
        if physics.nu:
            self.outputs["slopes"] = (physics.nu,)
        if "damping" in varied.names:
            self.outputs["drag"] = (nv,)

    def program(self) -> Program:
        return fuse(record(self.inputs, self.outputs, self._evaluate))

    def _evaluate(self, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        physics = self.physics
        q, v = our_state(physics, inputs["qpos"], inputs["qvel"])
        model = varied_model(physics, inputs.get("mass"))
        X = body_transforms(model, q)
        M = mass_matrix(model, X)
        for i, extra in enumerate(physics.armature):
            if "armature" in inputs:
                more = inputs["armature"][physics.of_v[i]] - 1.0
                extra = add(extra, mul(extra + float(physics.model.armature[i]), more))
            M[i][i] = add(M[i][i], extra)
        still: list[Scalar] = [0.0] * physics.nv
        for f in physics.frees:
            linear, w = v[f.v : f.v + 3], v[f.v + 3 : f.v + 6]
            still[f.v : f.v + 3] = [neg(x) for x in cross3(w, linear)]
        bias = newton_euler(model, q, v, tuple(still))
        tau, slopes = actuator_forces(physics, q, v, inputs.get("u", ()), inputs)
        applied = [inputs["applied"][k] for k in physics.of_v]
        for f in physics.frees:
            R = turn_of(q[f.q + 3 : f.q + 7])
            applied[f.v : f.v + 3] = rotate_back(R, tuple(applied[f.v : f.v + 3]))
        poses = body_poses(model, X)
        origin: Vector3 = (0.0, 0.0, 0.0)
        if physics.frees:
            first = physics.frees[0]
            origin = tuple(q[first.q : first.q + 3])
        twists: list[Vector] = []
        for joint, pose in zip(model.joints, poses, strict=True):
            for s in motion_subspace(joint):
                w = rotate_back(pose.E, s.angular)
                at = add3(rotate_back(pose.E, s.linear), cross3(sub3(pose.r, origin), w))
                twists.append((*w, *at))
        rhs = [sub(add(t, a), b) for t, a, b in zip(tau, applied, bias, strict=True)]
        drag: list[Scalar] = list(physics.damping)
        if "damping" in inputs:
            drag = [mul(inputs["damping"][k], d) for k, d in zip(physics.of_v, drag, strict=True)]
        for i, d in enumerate(drag):
            rhs[i] = sub(rhs[i], mul(d, v[i]))
        for spring in physics.springs:
            pull = mul(spring.stiffness, sub(q[spring.q], spring.rest))
            rhs[spring.v] = sub(rhs[spring.v], pull)
        if self.varied.push is not None:
            self._push(inputs["push"], poses, origin, twists, rhs)
        placed: list[Scalar] = []
        for geom in self.geoms:
            if geom.body != WORLD:
                placed += place(geom, poses[geom.body])
        return (
            tuple(
                tuple(x if j <= i else 0.0 for j, x in enumerate(row)) for i, row in enumerate(M)
            ),
            tuple(rhs),
            tuple(twists),
            tuple(placed) or (0.0,),
            origin,
            q,
            v,
            *((tuple(slopes),) if physics.nu else ()),
            *((tuple(drag),) if "damping" in inputs else ()),
        )

    def centres(self, chosen: Sequence[int]) -> Program:
        """Of some shapes that move, at positions of MuJoCo's."""
        physics = self.physics

        def evaluate(v: Mapping[str, Any]) -> tuple[Any, ...]:
            q, _ = our_state(physics, v["qpos"], (0.0,) * physics.nv)
            poses = body_poses(physics.model, body_transforms(physics.model, q))
            found = [self.geoms[g] for g in chosen]
            return (tuple(tuple(place(g, poses[g.body])[:3]) for g in found),)

        return fuse(record({"qpos": (physics.nq,)}, {"centres": (len(chosen), 3)}, evaluate))

    def _push(
        self,
        push: Vector,
        poses: list[Transform],
        origin: Vector3,
        twists: list[Vector],
        rhs: list[Scalar],
    ) -> None:
        """xfrc_applied of a body: force and moment at its centre of mass, in world axes."""
        k = self.varied.push
        assert k is not None
        body, mount = self.physics.mounts[k]
        centre = (mount.matrix() @ [*self.physics.centres[k], 1.0])[:3]
        pose = poses[body]
        at = add3(pose.r, rotate_back(pose.E, tuple(float(x) for x in centre)))
        force = tuple(push[:3])
        moment = add3(tuple(push[3:]), cross3(sub3(at, origin), force))
        for i in chain(self.physics.model, body):
            rhs[i] = add(rhs[i], add(dot3(twists[i][:3], moment), dot3(twists[i][3:], force)))


def body_poses(model: Model, X: Sequence[Transform]) -> list[Transform]:
    """In the world."""
    poses: list[Transform] = []
    for i, step in enumerate(X):
        parent = model.parents[i]
        poses.append(step if parent == WORLD else step @ poses[parent])
    return poses


def place(geom: Geom, pose: Transform) -> list[Scalar]:
    """The numbers of a shape on a body."""
    p = add3(pose.r, rotate_back(pose.E, tuple(float(x) for x in geom.pose.p)))
    if geom.kind == SPHERE:
        return list(p)
    R = multiply3(transpose(pose.E), tuple(tuple(float(x) for x in row) for row in geom.pose.R))
    if geom_numbers(geom) == 6:
        return [*p, *(row[2] for row in R)]
    return [*p, *(x for row in R for x in row)]


def drag_matrix(physics: Physics, v: Mapping[str, Any]) -> tuple[Vector, ...]:
    """-∂τ/∂v that the integrator takes implicitly: damping of joints, and under implicitfast what
    actuators resist with; of `slopes`, and of `drag` where damping varies.
    """
    n = physics.nv
    found: list[list[Scalar]] = [[0.0] * n for _ in range(n)]
    if physics.damped:
        for i, d in enumerate(v.get("drag", physics.damping)):
            found[i][i] = d
        if physics.integrator == "implicitfast":
            for a, slope in zip(physics.actuators, v.get("slopes", ()), strict=True):
                for _, i, c in a.parts:
                    for _, j, e in a.parts:
                        found[i][j] = sub(found[i][j], mul(c * e, slope))
    return tuple(tuple(row) for row in found)


def advance(
    physics: Physics, q: Vector, v: Vector, z: Vector, qpos: Vector, qvel: Vector
) -> tuple[Vector, Vector]:
    """Semi-implicit Euler: MuJoCo's qpos and qvel after a step with the accelerations z."""
    dt = physics.dt
    new_v = [add(x, mul(dt, y)) for x, y in zip(v, z, strict=True)]
    qvel_new: list[Scalar] = [0.0] * physics.nv
    for mine, theirs in enumerate(physics.of_v):
        qvel_new[theirs] = new_v[mine]
    qpos_new: list[Scalar] = list(qpos)
    quaternions = {at for at, _ in physics.quaternions}
    turning: set[int] = set()
    for f in physics.frees:
        R = turn_of(q[f.q + 3 : f.q + 7])
        linear = rotate(R, tuple(z[f.v : f.v + 3]))
        for k in range(3):
            qvel_new[f.qvel + k] = add(qvel[f.qvel + k], mul(dt, linear[k]))
            qpos_new[f.qpos + k] = add(qpos[f.qpos + k], mul(dt, qvel_new[f.qvel + k]))
    for joint in physics.model.joints:
        at = joint.q + joint.kind.plain
        if at in quaternions:
            turning.add(joint.q)
            w = tuple(mul(dt, x) for x in new_v[joint.v + joint.nv - 3 : joint.v + joint.nv])
            turned = quaternion_product(tuple(q[at : at + 4]), exponential(w))
            size = total(x * x for x in turned)
            scale = (3.0 - size) * 0.5  # one Newton step towards length one
            for k in range(4):
                qpos_new[physics.of_q[at + k]] = turned[k] * scale
        else:
            for k in range(joint.nq):
                theirs = physics.of_q[joint.q + k]
                qpos_new[theirs] = add(qpos[theirs], mul(dt, new_v[joint.v + k]))
    return tuple(qpos_new), tuple(qvel_new)
