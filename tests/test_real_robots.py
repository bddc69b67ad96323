"""Robots of example-robot-data, read from their URDF by rigidgrad and by Pinocchio.

Pinocchio reads them without mimic joints, and gives a `continuous` joint a cosine and a sine; the
oracle sees that model through q_full = (G q + o, as cosines and sines), with G read from the URDF
here. Tolerances as in test_against_pinocchio.py: 1e-9 of the largest entry, and 50·eps·cond(M) of
it where M is solved with.
"""

from __future__ import annotations

import warnings
import xml.etree.ElementTree as ElementTree
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from random_trees import ENGINE, Oracle, assert_close, row

import rigidgrad as rg

pin = pytest.importorskip("pinocchio")

ROBOTS = next(
    (
        p / "share/example-robot-data/robots"
        for p in Path(pin.__file__).parents
        if p.name == "cmeel.prefix"
    ),
    Path("nowhere"),
)
if not ROBOTS.is_dir():
    pytest.skip("example-robot-data is not installed", allow_module_level=True)

EPS = np.finfo(float).eps
INVERSE = 1e-9
STATES = 2

# name: (file, floating base)
CHOSEN = {
    "hyq": ("hyq_description/robots/hyq_no_sensors.urdf", False),
    "hyq floating": ("hyq_description/robots/hyq_no_sensors.urdf", True),
    "talos": ("talos_data/robots/talos_reduced.urdf", False),
    "talos floating": ("talos_data/robots/talos_reduced.urdf", True),
    "talos with mimic grippers": ("talos_data/robots/talos_full_v2.urdf", True),
    "g1": ("g1_description/urdf/g1_29dof_rev_1_0.urdf", True),
    "g1 with hands": ("g1_description/urdf/g1_29dof_with_hand_rev_1_0.urdf", False),
    "panda": ("panda_description/urdf/panda.urdf", False),
    "go2": ("go2_description/urdf/go2.urdf", True),
    "icub": ("icub_description/robots/icub.urdf", True),
    "ur5": ("ur_description/urdf/ur5_robot.urdf", False),
    "tiago": ("tiago_description/robots/tiago_no_hand.urdf", False),
    "tiago on a free base": ("tiago_description/robots/tiago_no_hand.urdf", True),
    "tiago pro": ("tiago_pro_description/robots/tiago_pro.urdf", False),
    "pr2": ("pr2_description/urdf/pr2.urdf", False),
    "kinova": ("kinova_description/robots/kinova.urdf", False),
    "anymal with arm": ("anymal_b_simple_description/robots/anymal-kinova.urdf", True),
    "baxter": ("baxter_description/urdf/baxter.urdf", False),
    "romeo": ("romeo_description/urdf/romeo_small.urdf", True),
    "allegro": ("allegro_hand_description/urdf/allegro_left_hand.urdf", False),
    "iris": ("iris_description/robots/iris.urdf", True),
    "double pendulum": ("double_pendulum_description/urdf/double_pendulum_continuous.urdf", False),
}
BROKEN = {  # what the error must say
    # an empty <robot> without a name: Pinocchio refuses it, too
    "ur_description/urdf/ur3.urdf": "name",
    # mimics a joint that does not exist
    "alex_description/urdf/alex_psyonic_hands.urdf": "index_q1",
}
EVERY = sorted(str(path.relative_to(ROBOTS)) for path in ROBOTS.rglob("*.urdf"))


def mimics(path):
    """joint: (master, multiplier, offset), from the URDF; those of fixed joints mean nothing."""
    result = {}
    for joint in ElementTree.parse(path).getroot().findall("joint"):
        mimic = joint.find("mimic")
        if mimic is not None and joint.get("type") != "fixed":
            result[joint.get("name")] = (
                mimic.get("joint"),
                float(mimic.get("multiplier", 1)),
                float(mimic.get("offset", 0)),
            )
    return result


def unlimited(path):
    """Joints whose range the URDF does not give. By the letter of its specification, and for
    Pinocchio, that range is [0, 0]; for us there is none.
    """
    joints = ElementTree.parse(path).getroot().findall("joint")
    return {
        joint.get("name")
        for joint in joints
        if (limit := joint.find("limit")) is not None and not {"lower", "upper"} & set(limit.keys())
    }


def oracle(path, floating):
    """Pinocchio's model behind rigidgrad's coordinates, and the sizes these must have."""
    model = (
        pin.buildModelFromUrdf(str(path), pin.JointModelFreeFlyer())
        if floating
        else pin.buildModelFromUrdf(str(path))
    )
    follows = mimics(path)
    names = list(model.names)[1:]
    joints = {name: model.joints[model.getJointId(name)] for name in names}
    continuous = {name for name in names if (joints[name].nq, joints[name].nv) == (2, 1)}
    start_q, start_v, nq, nv = {}, {}, 0, 0
    for name in names:
        if name not in follows:
            start_q[name], start_v[name] = nq, nv
            nq += 1 if name in continuous else joints[name].nq
            nv += joints[name].nv
    G = np.zeros((model.nv, nv))
    takes = []  # (joint, where its numbers are in our q, multiplier, offset)
    for name in names:
        multiplier, offset, master = 1.0, 0.0, name
        while master in follows:
            master, m, o = follows[master]
            multiplier, offset = multiplier * m, offset + multiplier * o
        rows, size = joints[name].idx_v, joints[name].nv
        G[rows : rows + size, start_v[master] : start_v[master] + size] = multiplier * np.eye(size)
        takes.append((name, start_q[master], multiplier, offset))

    def expand(q):
        parts = []
        for name, start, multiplier, offset in takes:
            size = 1 if name in continuous else joints[name].nq
            x = multiplier * q[start : start + size] + offset
            parts.append(np.array([np.cos(x[0]), np.sin(x[0])]) if name in continuous else x)
        return np.concatenate([np.zeros(0), *parts])

    links = [link.get("name") for link in ElementTree.parse(path).getroot().findall("link")]
    frames = {name: model.getFrameId(name, pin.BODY) for name in links}
    return SimpleNamespace(
        oracle=Oracle(model, frames, G, expand), names=names, nq=nq, nv=nv, links=links, free=list(start_q), start_q=start_q, start_v=start_v,
        joints=joints, continuous=continuous,
    )  # fmt: skip


def load(path, floating):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.errors.ModelWarning)
        return rg.load(path, floating_base=floating, strict=False, engine=ENGINE)


@lru_cache(maxsize=4)
def case(name):
    file, floating = CHOSEN[name]
    robot, expected = load(ROBOTS / file, floating), oracle(ROBOTS / file, floating)
    rng = np.random.default_rng(3)
    q = random_positions(rng, expected, floating)
    v, a = rng.normal(size=(2, STATES, expected.nv))
    forward = np.array([50 * EPS * np.linalg.cond(expected.oracle.crba(x)) for x in q])
    moved = [
        link
        for link in expected.links
        if expected.oracle.model.frames[expected.oracle.frames[link]].parentJoint > 0
    ]
    external = {
        link: rng.normal(size=(STATES, 6))
        for link in rng.choice(moved, min(3, len(moved)), replace=False).tolist()
    }
    return SimpleNamespace(
        robot=robot,
        expected=expected,
        oracle=expected.oracle,
        q=q,
        v=v,
        a=a,
        external=external,
        forward=forward,
    )


def random_positions(rng, expected, floating):
    q = rng.uniform(-1.5, 1.5, (STATES, expected.nq))
    if floating:
        q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=1, keepdims=True)
    return q


@pytest.mark.parametrize("name", CHOSEN)
class TestAgainstPinocchio:
    def test_inverse_dynamics(self, name):
        c, states = case(name), range(STATES)
        o = c.oracle
        assert_close(
            c.robot.rnea(c.q, c.v, c.a),
            [o.rnea(c.q[k], c.v[k], c.a[k]) for k in states],
            INVERSE,
            "rnea",
        )
        expected = [o.rnea(c.q[k], c.v[k], c.a[k], row(c.external, k)) for k in states]
        assert_close(
            c.robot.rnea(c.q, c.v, c.a, external=c.external),
            expected,
            INVERSE,
            "rnea with wrenches",
        )
        assert_close(
            c.robot.gravity_torque(c.q),
            [o.gravity_torque(q) for q in c.q],
            INVERSE,
            "gravity_torque",
        )
        assert_close(c.robot.crba(c.q), [o.crba(q) for q in c.q], INVERSE, "crba")
        expected = [o.torque_regressor(c.q[k], c.v[k], c.a[k]) for k in states]
        assert_close(c.robot.torque_regressor(c.q, c.v, c.a), expected, INVERSE, "torque_regressor")
        assert_close(
            c.robot.coriolis_matrix(c.q, c.v),
            [o.coriolis_matrix(c.q[k], c.v[k]) for k in states],
            INVERSE,
            "coriolis_matrix",
        )

    def test_forward_dynamics(self, name):
        c, states = case(name), range(STATES)
        expected = [c.oracle.aba(c.q[k], c.v[k], c.a[k], row(c.external, k)) for k in states]
        assert_close(c.robot.aba(c.q, c.v, c.a, external=c.external), expected, c.forward, "aba")
        assert_close(c.robot.minv(c.q), [c.oracle.minv(q) for q in c.q], c.forward, "minv")

    def test_derivatives(self, name):
        c, states = case(name), range(STATES)
        d = c.robot.rnea_derivatives(c.q, c.v, c.a, external=c.external)
        expected = [
            c.oracle.rnea_derivatives(c.q[k], c.v[k], c.a[k], row(c.external, k)) for k in states
        ]
        for part, values in zip(("dq", "dv", "da"), zip(*expected, strict=True), strict=True):
            assert_close(getattr(d, part), values, INVERSE, f"rnea_derivatives.{part}")
        d = c.robot.aba_derivatives(c.q, c.v, c.a, external=c.external)
        expected = [
            c.oracle.aba_derivatives(c.q[k], c.v[k], c.a[k], row(c.external, k)) for k in states
        ]
        for part, values in zip(("dq", "dv", "dtau"), zip(*expected, strict=True), strict=True):
            assert_close(getattr(d, part), values, c.forward, f"aba_derivatives.{part}")

    def test_kinematics(self, name):
        c, states = case(name), range(STATES)
        T = c.robot.forward_kinematics(c.q)
        for link in c.expected.links:
            assert_close(T[link], [c.oracle.placement(q, link) for q in c.q], INVERSE, link)
        for link in c.external:
            for where in ("world", "local", "spatial"):
                expected = [c.oracle.jacobian(q, link, where) for q in c.q]
                assert_close(
                    c.robot.jacobian(c.q, link, expressed_in=where),
                    expected,
                    INVERSE,
                    f"jacobian of {link} in {where}",
                )
                expected = [
                    c.oracle.jacobian_derivative(c.q[k], c.v[k], link, where) for k in states
                ]
                Jd = c.robot.jacobian_derivative(c.q, c.v, link, expressed_in=where)
                assert_close(Jd, expected, INVERSE, f"jacobian_derivative of {link} in {where}")
        assert_close(
            c.robot.center_of_mass(c.q),
            [c.oracle.center_of_mass(q) for q in c.q],
            INVERSE,
            "center_of_mass",
        )
        expected = [c.oracle.centroidal_momentum(c.q[k], c.v[k]) for k in states]
        assert_close(
            c.robot.centroidal_momentum(c.q, c.v), expected, INVERSE, "centroidal_momentum"
        )
        E = c.robot.energy(c.q, c.v)
        assert_close(
            np.stack([E.kinetic, E.potential], -1),
            [c.oracle.energy(c.q[k], c.v[k]) for k in states],
            INVERSE,
            "energy",
        )


@pytest.mark.parametrize("file", EVERY)
def test_every_robot_has_pinocchios_order_sizes_limits_and_inverse_dynamics(file):
    path = ROBOTS / file
    if file in BROKEN:
        with pytest.raises(rg.errors.ModelError, match=BROKEN[file]):
            rg.load(path)
        return
    robot, expected = load(path, floating=False), oracle(path, floating=False)
    assert list(robot.joints) == expected.names
    assert (robot.nq, robot.nv) == (expected.nq, expected.nv)
    assert set(expected.links) <= set(robot.frames)
    model = expected.oracle.model
    for name in expected.free:
        joint, i, k = expected.joints[name], expected.start_q[name], expected.start_v[name]
        assert robot.limits.velocity[k] == model.upperVelocityLimit[joint.idx_v]
        assert robot.limits.effort[k] == model.upperEffortLimit[joint.idx_v]
        if name in expected.continuous or name in unlimited(path):
            assert (robot.limits.lower[i], robot.limits.upper[i]) == (-np.inf, np.inf)
        else:
            assert robot.limits.lower[i] == model.lowerPositionLimit[joint.idx_q]
            assert robot.limits.upper[i] == model.upperPositionLimit[joint.idx_q]
    rng = np.random.default_rng(4)
    q, (v, a) = random_positions(rng, expected, False), rng.normal(size=(2, STATES, expected.nv))
    assert_close(
        robot.rnea(q, v, a),
        [expected.oracle.rnea(q[k], v[k], a[k]) for k in range(STATES)],
        INVERSE,
        file,
    )


def impossible(model):
    """Whether some moving body of Pinocchio's model, fixed joints merged, cannot exist, or some
    joint moves nothing.
    """
    mass = [inertia.mass for inertia in model.inertias]
    for i in reversed(range(1, model.njoints)):
        mass[model.parents[i]] += mass[i]
    for i in range(1, model.njoints):
        low, middle, high = np.linalg.eigvalsh(model.inertias[i].inertia)
        solid = low > 0 and high <= (low + middle) * (1 + 1e-6)
        if mass[i] <= 0 or (model.inertias[i].mass != 0 and not solid):
            return True
    return False


def test_strict_refuses_exactly_the_robots_with_impossible_bodies():
    refused = set()
    for file in set(EVERY) - set(BROKEN):
        try:
            rg.load(ROBOTS / file, strict=True)
        except rg.errors.ModelError:
            refused.add(file)
    assert refused == {
        file
        for file in set(EVERY) - set(BROKEN)
        if impossible(pin.buildModelFromUrdf(str(ROBOTS / file)))
    }
    assert refused & {file for file, _ in CHOSEN.values()} == {
        CHOSEN["icub"][0],
        CHOSEN["romeo"][0],
    }


def test_strict_false_warns_about_icub():
    with pytest.warns(rg.errors.ModelWarning):
        rg.load(ROBOTS / CHOSEN["icub"][0], strict=False)
