"""Random robots from a seed, as a rigidgrad Robot and as Pinocchio's model of the same tree, and
Pinocchio as an oracle for both.

A tree is plain data (`Tree`), so that a test can also change it (turn a frame, drop gravity) before
it is built. Pinocchio gets a mimic-free model in rigidgrad's joint order; `Oracle` sees it through
q_full = Gq q + o, v_full = G v, so that every joint-space result is GᵀXG or GᵀX.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

# Compiling every function of hundreds of trees takes long: the readable engine is the default here;
# RIGIDGRAD_TEST_ENGINE=lanes tests the other.
ENGINE = os.environ.get("RIGIDGRAD_TEST_ENGINE", "numpy")
ONE_DOF = ("revolute", "continuous", "prismatic", "helical")
SIZES = {
    "revolute": (1, 1),
    "continuous": (1, 1),
    "prismatic": (1, 1),
    "helical": (1, 1),
    "spherical": (4, 3),
    "planar": (4, 3),
    "floating": (7, 6),
}
NAME_STARTS = (
    "A",
    "Z",
    "_",
    "a",
    "b",
    "j1",
    "j10",
    "j2",
    "z",
    "é",
    "Ω",
)  # order by bytes is not the order of a dictionary


@dataclass(frozen=True)
class Link:
    name: str
    mass: float
    com: np.ndarray
    inertia: np.ndarray  # about com, along the link's axes


@dataclass(frozen=True)
class Joint:
    name: str
    type: str
    parent: str
    child: str
    xyz: np.ndarray
    rpy: np.ndarray
    axis: np.ndarray | None = None
    pitch: float = 0.0
    armature: float = 0.0
    mimic: tuple[str, float, float] | None = None


@dataclass(frozen=True)
class Tree:
    links: tuple[Link, ...]  # the root first
    joints: tuple[Joint, ...]  # in the order in which they were drawn, not in that of the robot
    gravity: np.ndarray
    floating: bool

    # --- layout, worked out here and not by rigidgrad ---------------------------------------------

    @cached_property
    def ordered(self) -> tuple[Joint, ...]:
        """All joints, fixed ones too: depth-first, children by the bytes of their joints' names."""
        children: dict[str, list[Joint]] = {}
        for joint in self.joints:
            children.setdefault(joint.parent, []).append(joint)

        def visit(link):
            for joint in sorted(children.get(link, []), key=lambda j: j.name.encode()):
                yield joint
                yield from visit(joint.child)

        return tuple(visit(self.links[0].name))

    @cached_property
    def moving(self) -> tuple[Joint, ...]:
        """What moves, mimicking joints too, with the free-flyer of a floating base."""
        base = (
            (Joint("root_joint", "floating", "", self.links[0].name, np.zeros(3), np.zeros(3)),)
            if self.floating
            else ()
        )
        return base + tuple(j for j in self.ordered if j.type != "fixed")

    @cached_property
    def free(self) -> tuple[Joint, ...]:
        """The joints that have their own entries in q and v."""
        return tuple(j for j in self.moving if j.mimic is None)

    @property
    def nq(self) -> int:
        return sum(SIZES[j.type][0] for j in self.free)

    @property
    def nv(self) -> int:
        return sum(SIZES[j.type][1] for j in self.free)

    def slices(self):
        """(joint, its part of q, its part of v) of each free joint."""
        iq = iv = 0
        for joint in self.free:
            nq, nv = SIZES[joint.type]
            yield joint, slice(iq, iq + nq), slice(iv, iv + nv)
            iq, iv = iq + nq, iv + nv

    @cached_property
    def maps(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """G, Gq, o with v_full = G v and q_full = Gq q + o."""
        own_q = {j.name: s for j, s, _ in self.slices()}
        own_v = {j.name: s for j, _, s in self.slices()}
        by_name = {j.name: j for j in self.moving}
        G = np.zeros((sum(SIZES[j.type][1] for j in self.moving), self.nv))
        Gq = np.zeros((sum(SIZES[j.type][0] for j in self.moving), self.nq))
        offset = np.zeros(len(Gq))
        iq = iv = 0
        for joint in self.moving:
            nq, nv = SIZES[joint.type]
            multiplier, shift, master = 1.0, 0.0, joint
            while master.mimic is not None:
                name, m, o = master.mimic
                multiplier, shift, master = multiplier * m, shift + multiplier * o, by_name[name]
            Gq[iq : iq + nq, own_q[master.name]] = multiplier * np.eye(nq)
            G[iv : iv + nv, own_v[master.name]] = multiplier * np.eye(nv)
            offset[iq : iq + nq] = shift
            iq, iv = iq + nq, iv + nv
        return G, Gq, offset

    # --- states -----------------------------------------------------------------------------------

    def random_q(self, rng, batch=()) -> np.ndarray:
        parts = []
        for joint in self.free:
            if joint.type in ("revolute", "continuous", "helical"):
                parts.append(rng.uniform(-np.pi, np.pi, (*batch, 1)))
            elif joint.type == "prismatic":
                parts.append(rng.uniform(-0.5, 0.5, (*batch, 1)))
            elif joint.type == "planar":
                angle = rng.uniform(-np.pi, np.pi, (*batch, 1))
                parts += [rng.normal(size=(*batch, 2)), np.cos(angle), np.sin(angle)]
            else:
                quaternion = rng.normal(size=(*batch, 4))
                if joint.type == "floating":
                    parts.append(rng.normal(size=(*batch, 3)))
                parts.append(quaternion / np.linalg.norm(quaternion, axis=-1, keepdims=True))
        return np.concatenate(parts, axis=-1)

    def random_state(self, rng, batch=()):
        """q and two vectors like v: (v, a) or (v, tau)."""
        return (
            self.random_q(rng, batch),
            rng.normal(size=(*batch, self.nv)),
            rng.normal(size=(*batch, self.nv)),
        )

    def random_wrenches(self, rng, batch=(), count=3) -> dict[str, np.ndarray]:
        """Wrenches on a few links: one that a fixed joint merged, where there is one, and any
        others.
        """
        merged = [j.child for j in self.joints if j.type == "fixed"]
        names = [link.name for link in self.links]
        chosen = set(rng.choice(names, size=min(count, len(names)), replace=False).tolist())
        if merged:
            chosen.add(str(rng.choice(merged)))
        return {name: rng.normal(size=(*batch, 6)) * 3.0 for name in sorted(chosen)}

    # --- the two models ---------------------------------------------------------------------------

    def builder(self, name="tree"):
        import rigidgrad as rg

        builder = rg.Builder(name)
        for link in self.links:
            builder = builder.link(
                link.name, mass=link.mass, com=tuple(link.com), inertia=link.inertia
            )
        for joint in self.joints:
            more = {}
            if joint.axis is not None:
                more["axis"] = tuple(joint.axis)
            if joint.type == "helical":
                more["pitch"] = joint.pitch
            if joint.mimic is not None:
                more["mimic"] = joint.mimic
            if joint.armature:
                more["armature"] = joint.armature
            builder = builder.joint(
                joint.name,
                joint.type,
                joint.parent,
                joint.child,
                xyz=tuple(joint.xyz),
                rpy=tuple(joint.rpy),
                **more,
            )
        return builder

    def robot(self):
        return self.builder().build(
            floating_base=self.floating, gravity=tuple(self.gravity), engine=ENGINE
        )

    def oracle(self) -> Oracle:
        import pinocchio as pin

        model = pin.Model()
        model.gravity.linear = np.asarray(self.gravity, dtype=float)
        by_name = {link.name: link for link in self.links}
        root = self.links[0]
        place = {root.name: (0, pin.SE3.Identity())}
        armature = []

        def add_body(link):
            index, placement = place[link.name]
            if index > 0:  # what is merged into the world has no dynamics
                model.appendBodyToJoint(
                    index, pin.Inertia(link.mass, link.com, link.inertia), placement
                )

        if self.floating:
            place[root.name] = (
                model.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "root_joint"),
                pin.SE3.Identity(),
            )
            armature += [0.0] * 6
        add_body(root)
        for joint in self.ordered:
            parent, placement = place[joint.parent]
            placement = placement * pin.SE3(
                pin.rpy.rpyToMatrix(*joint.rpy), np.asarray(joint.xyz, dtype=float)
            )
            if joint.type == "fixed":
                place[joint.child] = (parent, placement)
            else:
                place[joint.child] = (
                    model.addJoint(parent, _pinocchio_joint(joint), placement, joint.name),
                    pin.SE3.Identity(),
                )
                armature += [joint.armature] * SIZES[joint.type][1]
            add_body(by_name[joint.child])
        model.armature = np.array(armature)
        frames = {}
        for link in self.links:
            index, placement = place[link.name]
            frames[link.name] = model.addFrame(
                pin.Frame("link " + link.name, index, 0, placement, pin.FrameType.BODY), False
            )
        G, Gq, offset = self.maps
        return Oracle(model, frames, G, lambda q: Gq @ q + offset)

    def __str__(self) -> str:
        kinds = ", ".join(
            f"{n} {t}" for t, n in sorted(Counter(j.type for j in self.joints).items())
        )
        mimics = sum(j.mimic is not None for j in self.joints)
        return (
            f"{len(self.links)} links, {'floating' if self.floating else 'fixed'} base, {kinds},"
            f" {mimics} mimic"
        )


def _pinocchio_joint(joint: Joint):
    import pinocchio as pin

    if joint.type == "spherical":
        return pin.JointModelSpherical()
    if joint.type == "planar":
        return pin.JointModelPlanar()
    if joint.type == "floating":
        return pin.JointModelFreeFlyer()
    axis = (
        np.array([1.0, 0.0, 0.0]) if joint.axis is None else joint.axis / np.linalg.norm(joint.axis)
    )
    letter = {(1.0, 0.0, 0.0): "X", (0.0, 1.0, 0.0): "Y", (0.0, 0.0, 1.0): "Z"}.get(tuple(axis))
    if joint.type == "prismatic":
        return (
            getattr(pin, "JointModelP" + letter)()
            if letter
            else pin.JointModelPrismaticUnaligned(axis)
        )
    if joint.type == "helical":
        return (
            getattr(pin, "JointModelH" + letter)(joint.pitch)
            if letter
            else pin.JointModelHelicalUnaligned(axis, joint.pitch)
        )
    return (
        getattr(pin, "JointModelR" + letter)() if letter else pin.JointModelRevoluteUnaligned(axis)
    )


# --- drawing a tree -------------------------------------------------------------------------------


def random_inertia(rng) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, centre and rotational inertia of a cloud of points: I = tr(Σ)·1 - Σ with Σ positive
    definite is always possible.
    """
    mass = rng.uniform(0.3, 3.0)
    a = rng.normal(size=(3, 3)) * rng.uniform(0.03, 0.15, 3)
    second = mass * (a @ a.T + 1e-3 * np.eye(3))
    return mass, rng.normal(size=3) * 0.15, np.trace(second) * np.eye(3) - second


def random_axis(rng) -> np.ndarray | None:
    kind = rng.integers(8)
    if kind == 0:
        return None  # x
    if kind < 5:
        return np.eye(3)[rng.integers(3)] * rng.choice([1.0, 1.0, -1.0])
    return rng.normal(size=3) * 2.0  # not normalised


def random_rpy(rng) -> np.ndarray:
    kind = rng.integers(3)
    if kind == 0:
        return np.zeros(3)
    if kind == 1:
        return rng.integers(-2, 3, 3) * (np.pi / 2)
    return rng.uniform(-np.pi, np.pi, 3)


def random_tree(
    seed: int, bodies: int, floating: bool | None = None, mimic: bool | None = None, types=None
) -> Tree:
    """A tree of `bodies` links besides the root. What is None is drawn."""
    rng = np.random.default_rng([2024, seed, bodies])
    floating = bool(rng.integers(2)) if floating is None else floating
    mimic = bool(rng.integers(2)) if mimic is None else mimic
    types = (
        types
        or ("revolute",) * 5
        + ("continuous", "prismatic", "prismatic", "helical", "spherical", "planar", "floating")
        + ("fixed",) * 2
    )
    spread = rng.choice([1, 2, 5, 1000])  # 1: a chain; 1000: any earlier link may be the parent
    links = [Link("base", *random_inertia(rng))]
    joints: list[Joint] = []
    for i in range(1, bodies + 1):
        parent = links[int(rng.integers(max(0, len(links) - spread), len(links)))].name
        kind = str(rng.choice(types))
        if i == bodies and not floating and all(j.type == "fixed" for j in joints):
            kind = "revolute"
        armature = float(rng.uniform(0.01, 0.5)) if kind != "fixed" and rng.uniform() < 0.4 else 0.0
        # some body has a mass, so that there is a centre of mass
        carried = floating or any(j.type != "fixed" for j in joints)
        massless = (kind == "fixed" and rng.uniform() < 0.3) or (
            armature > 0 and carried and rng.uniform() < 0.1
        )
        links.append(
            Link(
                f"link{i}",
                *((0.0, np.zeros(3), np.zeros((3, 3))) if massless else random_inertia(rng)),
            )
        )
        joints.append(
            Joint(
                f"{rng.choice(NAME_STARTS)}{i}",
                kind,
                parent,
                f"link{i}",
                rng.normal(size=3) * 0.3 * rng.integers(0, 2, 3),
                random_rpy(rng),
                random_axis(rng) if kind in ONE_DOF else None,
                pitch=float(rng.uniform(-0.3, 0.3)) if kind == "helical" else 0.0,
                armature=armature,
            )
        )
    if mimic:
        candidates = [
            int(i) for i in rng.permutation([k for k, j in enumerate(joints) if j.type in ONE_DOF])
        ]
        for place, i in enumerate(candidates):
            if place and rng.uniform() < 0.5:
                master = joints[candidates[int(rng.integers(place))]].name
                joints[i] = replace(
                    joints[i],
                    mimic=(
                        master,
                        float(rng.uniform(0.3, 1.5) * rng.choice([-1, 1])),
                        float(rng.uniform(-1, 1)),
                    ),
                )
    gravity = rng.normal(size=3) * 6.0
    order = rng.permutation(len(joints))
    return Tree(tuple(links), tuple(joints[i] for i in order), gravity, floating)


def suite() -> list[tuple[int, int]]:
    """(seed, bodies) of the trees that every oracle test goes over: each size from 1 to 40, and 180
    smaller ones.
    """
    rng = np.random.default_rng(7)
    sizes = [*range(1, 41), *rng.integers(1, 13, 180).tolist()]
    return [(seed, sizes[i]) for seed, i in enumerate(rng.permutation(len(sizes)).tolist())]


# --- steps and results, for any robot -------------------------------------------------------------


def moved(tree, q, step):
    """q ⊕ step to first order in `step` (for which quaternions need no new length), for any
    scalars: a list of nq numbers.
    """
    result = list(q)
    for joint, in_q, in_v in tree.slices():
        x, d = q[in_q], step[in_v]
        if joint.type in ONE_DOF:
            result[in_q] = [x[0] + d[0]]
        elif joint.type == "planar":
            c, s = x[2], x[3]
            result[in_q] = [
                x[0] + c * d[0] - s * d[1],
                x[1] + s * d[0] + c * d[1],
                c - s * d[2],
                s + c * d[2],
            ]
        else:
            turn = d[-3:]
            i, j, k, w = x[-4:]
            p = [d_ / 2 for d_ in turn]
            result[in_q.stop - 4 : in_q.stop] = [
                i + w * p[0] + j * p[2] - k * p[1],
                j + w * p[1] + k * p[0] - i * p[2],
                k + w * p[2] + i * p[1] - j * p[0],
                w - i * p[0] - j * p[1] - k * p[2],
            ]
            if joint.type == "floating":
                R = rotation(i, j, k, w)
                result[in_q.start : in_q.start + 3] = [
                    x[m] + sum(R[m][n] * d[n] for n in range(3)) for m in range(3)
                ]
    return result


def rotation(x, y, z, w):
    return (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )


def every_result(robot, link, q, v, a, external):
    """Every function of the state, by name: a dictionary of arrays."""
    d, e, E = (
        robot.rnea_derivatives(q, v, a, external=external),
        robot.aba_derivatives(q, v, a, external=external),
        robot.energy(q, v),
    )
    f = robot.fused_gradient(q, v, a, e.dtau)
    return {
        "rnea": robot.rnea(q, v, a, external=external),
        "bias": robot.bias(q, v),
        "gravity_torque": robot.gravity_torque(q),
        "crba": robot.crba(q),
        "minv": robot.minv(q),
        "aba": robot.aba(q, v, a, external=external),
        "rnea_derivatives.dq": d.dq,
        "rnea_derivatives.dv": d.dv,
        "rnea_derivatives.da": d.da,
        "aba_derivatives.dq": e.dq,
        "aba_derivatives.dv": e.dv,
        "aba_derivatives.dtau": e.dtau,
        "fused_gradient.dq": f.dq,
        "fused_gradient.dv": f.dv,
        "forward_kinematics": robot.forward_kinematics(q)[link],
        "jacobian": robot.jacobian(q, link),
        "jacobian_derivative": robot.jacobian_derivative(q, v, link),
        "frame_velocity": robot.frame_velocity(q, v, link),
        "center_of_mass": robot.center_of_mass(q),
        "center_of_mass_jacobian": robot.center_of_mass_jacobian(q),
        "centroidal_momentum": robot.centroidal_momentum(q, v),
        "energy.kinetic": E.kinetic,
        "energy.potential": E.potential,
        "coriolis_matrix": robot.coriolis_matrix(q, v),
        "torque_regressor": robot.torque_regressor(q, v, a),
        "integrate": robot.integrate(q, v),
        "difference": robot.difference(q, robot.integrate(q, 0.3 * v)),
        "normalize": robot.normalize(q),
    }


# --- the oracle -----------------------------------------------------------------------------------


def _matrix(result: np.ndarray, rows: int) -> np.ndarray:
    """A copy, in two dimensions: the bindings squeeze a matrix of one column, and hand out their
    own memory.
    """
    return np.array(result).reshape(rows, -1)


def _symmetric(upper: np.ndarray) -> np.ndarray:
    upper = _matrix(upper, round(np.size(upper) ** 0.5))
    return np.triu(upper) + np.triu(upper, 1).T


class Oracle:
    """Pinocchio on a mimic-free model, for one state at a time. `frames` maps a link's name to
    Pinocchio's frame index; `expand` maps q to the q of that model, and G the tangents.
    """

    def __init__(self, model, frames, G, expand):
        self.model, self.frames, self.G, self.expand = model, frames, np.asarray(G), expand
        self.data = model.createData()
        self.has_mimic = G.shape[0] != G.shape[1]

    def wrenches(self, external):
        """Pinocchio's list of forces, one a joint, in the joint's frame."""
        import pinocchio as pin

        forces = pin.StdVec_Force()
        total = [pin.Force.Zero() for _ in range(self.model.njoints)]
        for name, wrench in (external or {}).items():
            frame = self.model.frames[self.frames[name]]
            total[frame.parentJoint] += frame.placement.act(pin.Force(wrench[:3], wrench[3:]))
        for force in total:
            forces.append(force)
        return forces

    def rnea(self, q, v, a, external=None):
        import pinocchio as pin

        G = self.G
        return G.T @ pin.rnea(
            self.model, self.data, self.expand(q), G @ v, G @ a, self.wrenches(external)
        )

    def bias(self, q, v, external=None):
        return self.rnea(q, v, np.zeros_like(v), external)

    def gravity_torque(self, q):
        import pinocchio as pin

        return self.G.T @ np.array(
            pin.computeGeneralizedGravity(self.model, self.data, self.expand(q))
        )

    def crba(self, q):
        import pinocchio as pin

        return self.G.T @ _symmetric(pin.crba(self.model, self.data, self.expand(q))) @ self.G

    def minv(self, q):
        import pinocchio as pin

        if self.has_mimic:
            return np.linalg.inv(self.crba(q))
        return _symmetric(pin.computeMinverse(self.model, self.data, self.expand(q)))

    def aba(self, q, v, tau, external=None):
        import pinocchio as pin

        if self.has_mimic:
            return np.linalg.solve(self.crba(q), tau - self.bias(q, v, external))
        return pin.aba(self.model, self.data, self.expand(q), v, tau, self.wrenches(external))

    def rnea_derivatives(self, q, v, a, external=None):
        import pinocchio as pin

        G = self.G
        dq, dv, da = pin.computeRNEADerivatives(
            self.model, self.data, self.expand(q), G @ v, G @ a, self.wrenches(external)
        )
        n = len(G)
        return G.T @ _matrix(dq, n) @ G, G.T @ _matrix(dv, n) @ G, G.T @ _symmetric(da) @ G

    def aba_derivatives(self, q, v, tau, external=None):
        """By -M⁻¹ times the gradient of inverse dynamics, which keeps more digits than Pinocchio's
        own function (`own_aba_derivatives`).
        """
        M = self.crba(q)
        dq, dv, _ = self.rnea_derivatives(q, v, self.aba(q, v, tau, external), external)
        return -np.linalg.solve(M, dq), -np.linalg.solve(M, dv), np.linalg.inv(M)

    def own_aba_derivatives(self, q, v, tau, external=None):
        import pinocchio as pin

        assert not self.has_mimic
        dq, dv, minv = pin.computeABADerivatives(
            self.model, self.data, self.expand(q), v, tau, self.wrenches(external)
        )
        return _matrix(dq, len(v)), _matrix(dv, len(v)), _symmetric(minv)

    def placement(self, q, frame):
        import pinocchio as pin

        pin.framesForwardKinematics(self.model, self.data, self.expand(q))
        return self.data.oMf[self.frames[frame]].homogeneous.copy()

    @staticmethod
    def reference(expressed_in):
        import pinocchio as pin

        return {"world": pin.LOCAL_WORLD_ALIGNED, "local": pin.LOCAL, "spatial": pin.WORLD}[
            expressed_in
        ]

    def jacobian(self, q, frame, expressed_in):
        import pinocchio as pin

        J = pin.computeFrameJacobian(
            self.model, self.data, self.expand(q), self.frames[frame], self.reference(expressed_in)
        )
        return _matrix(J, 6) @ self.G

    def jacobian_derivative(self, q, v, frame, expressed_in):
        import pinocchio as pin

        q, v = self.expand(q), self.G @ v
        pin.computeJointJacobiansTimeVariation(self.model, self.data, q, v)
        pin.updateFramePlacements(self.model, self.data)
        dJ = pin.getFrameJacobianTimeVariation(
            self.model, self.data, self.frames[frame], self.reference(expressed_in)
        )
        return _matrix(dJ, 6) @ self.G

    def frame_velocity(self, q, v, frame, expressed_in):
        import pinocchio as pin

        pin.forwardKinematics(self.model, self.data, self.expand(q), self.G @ v)
        return pin.getFrameVelocity(
            self.model, self.data, self.frames[frame], self.reference(expressed_in)
        ).vector.copy()

    def center_of_mass(self, q):
        import pinocchio as pin

        return pin.centerOfMass(self.model, self.data, self.expand(q)).copy()

    def center_of_mass_jacobian(self, q):
        import pinocchio as pin

        return _matrix(pin.jacobianCenterOfMass(self.model, self.data, self.expand(q)), 3) @ self.G

    def centroidal_momentum(self, q, v):
        import pinocchio as pin

        pin.computeCentroidalMomentum(self.model, self.data, self.expand(q), self.G @ v)
        return self.data.hg.vector.copy()

    def energy(self, q, v):
        import pinocchio as pin

        # Pinocchio 4.1 leaves the armature of unaligned revolute and helical joints out of the
        # kinetic energy (though not out of M)
        q, v = self.expand(q), self.G @ v
        bodies = self.model.copy()
        bodies.armature = np.zeros(bodies.nv)
        data = bodies.createData()
        kinetic = pin.computeKineticEnergy(bodies, data, q, v) + 0.5 * v @ (self.model.armature * v)
        return kinetic, pin.computePotentialEnergy(bodies, data, q)

    def coriolis_matrix(self, q, v):
        import pinocchio as pin

        C = pin.computeCoriolisMatrix(self.model, self.data, self.expand(q), self.G @ v)
        return self.G.T @ _matrix(C, len(self.G)) @ self.G

    def torque_regressor(self, q, v, a):
        import pinocchio as pin

        Y = pin.computeJointTorqueRegressor(
            self.model, self.data, self.expand(q), self.G @ v, self.G @ a
        )
        return self.G.T @ _matrix(Y, len(self.G))

    def parameters(self):
        """The ten inertial parameters of each body, one after another."""
        return np.concatenate(
            [inertia.toDynamicParameters() for inertia in list(self.model.inertias)[1:]]
        )


def row(external, k):
    return {name: wrench[k] for name, wrench in external.items()}


def assert_close(actual, expected, tolerance, what):
    """Rows of a batch, each to `tolerance` (one number or one a row) of its largest entry, or of
    1.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, not {expected.shape}"
    for k, (x, y) in enumerate(zip(actual, expected, strict=True)):
        error = np.max(np.abs(x - y), initial=0.0) / max(1.0, np.max(np.abs(y), initial=0.0))
        allowed = tolerance if np.isscalar(tolerance) else tolerance[k]
        # NaN fails, too
        assert error <= allowed, f"{what}, state {k}: error {error:.3g}, allowed {allowed:.3g}"
