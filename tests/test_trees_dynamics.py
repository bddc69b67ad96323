"""Trees against Pinocchio, MuJoCo and the Robot of the same model: every method, joint type, base
and kind of external force.
"""

from __future__ import annotations

import warnings

import mujoco
import numpy as np
import pytest
from random_trees import ONE_DOF, assert_close, random_tree

import rigidgrad as rg
from rigidgrad import trees

RNEA = ("sequential", "levels", "heavy_path", "euler_tour")
FORWARD = ("crba", "sequential", "levels", "heavy_path")
SEEDS = range(12)


def one_dof(seed):
    return random_tree(
        seed, 2 + 3 * (seed % 6), floating=bool(seed % 2), mimic=False, types=(*ONE_DOF, "fixed")
    )


def both(seed):
    """A tree of ours, Pinocchio's model of it, and a state."""
    described = one_dof(seed)
    return (
        trees.Tree.from_model(described.robot()),
        described.oracle(),
        described.random_state(np.random.default_rng(seed)),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_every_method_gives_pinocchios_joint_forces(seed):
    tree, oracle, (q, v, a) = both(seed)
    expected = oracle.rnea(q, v, a)
    for method in RNEA:
        assert_close(trees.rnea(tree, q, v, a, method=method), expected, 1e-12, method)
    for variant in ("simulated", "native", "work_efficient", "blocked"):
        assert_close(
            trees.rnea(tree, q, v, a, method="euler_tour", variant=variant, block=3),
            expected,
            1e-12,
            variant,
        )
    assert_close(trees.bias(tree, q, v), oracle.bias(q, v), 1e-12, "bias")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_mass_matrix_is_pinocchios(seed):
    tree, oracle, (q, v, _) = both(seed)
    H, expected = trees.crba(tree, q), oracle.crba(q)
    assert_close(H.to_dense(), expected, 1e-12, "dense")
    assert_close(H @ v, expected @ v, 1e-12, "product")
    assert_close(H.diagonal(), np.diag(expected), 1e-12, "diagonal")
    # the error of a solution grows with the condition number, that of its product with H does not
    assert_close(expected @ H.solve(v), v, 1e-9, "solution")


@pytest.mark.parametrize("seed", SEEDS)
def test_every_method_gives_pinocchios_accelerations(seed):
    tree, oracle, (q, v, tau) = both(seed)
    expected = oracle.aba(q, v, tau)
    for method in FORWARD:
        found = trees.forward_dynamics(tree, q, v, tau, method=method)
        assert_close(found.a, expected, 1e-8, method)
        assert found.residual < 1e-12, method


@pytest.mark.parametrize("seed", SEEDS)
def test_energy_momentum_and_placements_are_the_robots(seed):
    described = one_dof(seed)
    robot, (q, v, _) = described.robot(), described.random_state(np.random.default_rng(seed), (3,))
    tree = trees.Tree.from_model(robot)
    ours, theirs = trees.energy(tree, q, v), robot.energy(q, v)
    assert_close(ours.kinetic, theirs.kinetic, 1e-12, "kinetic")
    assert_close(ours.potential, theirs.potential, 1e-12, "potential")
    assert_close(trees.center_of_mass(tree, q), robot.center_of_mass(q), 1e-12, "centre of mass")
    assert_close(
        trees.centroidal_momentum(tree, q, v), robot.centroidal_momentum(q, v), 1e-11, "momentum"
    )
    where, expected = trees.forward_kinematics(tree, q), robot.forward_kinematics(q)
    for i, name in enumerate(robot.model.body_names):
        assert_close(where.rotation[:, i], expected[name][..., :3, :3], 1e-12, name)
        assert_close(where.position[:, i], expected[name][..., :3, 3], 1e-12, name)


@pytest.mark.parametrize("seed", SEEDS)
def test_external_forces_in_either_frame_are_the_robots(seed):
    described = one_dof(seed)
    robot, rng = described.robot(), np.random.default_rng(seed)
    q, v, a = described.random_state(rng, (2,))
    tree = trees.Tree.from_model(robot)
    wrench = rng.normal(size=(2, tree.bodies, 6))
    names = robot.model.body_names
    expected = robot.rnea(q, v, a, external={name: wrench[:, i] for i, name in enumerate(names)})
    where = trees.forward_kinematics(tree, q)
    force = np.einsum("bnij,bnj->bni", where.rotation, wrench[..., :3])
    moment = np.einsum("bnij,bnj->bni", where.rotation, wrench[..., 3:]) + np.cross(
        where.position, force
    )
    in_root = np.concatenate([force, moment], axis=-1)
    for method in RNEA:
        assert_close(
            trees.rnea(tree, q, v, a, method=method, external=wrench), expected, 1e-12, method
        )
        assert_close(
            trees.rnea(tree, q, v, a, method=method, external=in_root, external_in="root"),
            expected,
            1e-12,
            method,
        )
    by_body = trees.rnea(tree, q, v, a, external={i: wrench[:, i] for i in range(tree.bodies)})
    assert_close(by_body, expected, 1e-12, "dictionary")
    accelerations = robot.aba(
        q, v, a, external={name: wrench[:, i] for i, name in enumerate(names)}
    )
    for method in FORWARD:
        found = trees.forward_dynamics(
            tree, q, v, a, method=method, external=in_root, external_in="root"
        )
        assert_close(found.a, accelerations, 1e-8, method)


@pytest.mark.parametrize("floating", [False, True])
@pytest.mark.parametrize("name", ["iiwa14", "hyq", "atlas"])
def test_a_robots_tree_has_the_robots_dynamics(name, floating):
    robot = rg.load(name, floating_base=floating, gravity=(1.0, -2.0, -9.0))
    tree = trees.Tree.from_model(robot)
    q, v, a = robot.random(batch=(4,), seed=3)
    for method in RNEA:
        assert_close(trees.rnea(tree, q, v, a, method=method), robot.rnea(q, v, a), 1e-13, method)


@pytest.mark.parametrize("joint", ["revolute", "prismatic"])
@pytest.mark.parametrize("branching", [1.0, 1.5, 2.0])
def test_mujoco_agrees_on_auto_trees(branching, joint):
    bodies, skew, gravity = 60, 0.3, (3.0, -4.0, -8.0)
    tree = trees.auto_tree(bodies, branching, skew, joints=joint, gravity=gravity)
    kind = {"revolute": "hinge", "prismatic": "slide"}[joint]
    children = [np.flatnonzero(tree.parents == i).tolist() for i in range(bodies)]

    def body(i):
        place = "" if i == 0 else f'pos="1 0 0" axisangle="1 0 0 {skew}"'
        inside = "".join(body(c) for c in children[i])
        return (
            f'<body name="b{i}" {place}><joint name="j{i}" type="{kind}" axis="0 0 1"/><inertial'
            f' pos="0.5 0 0" mass="1" diaginertia="0.0025 {1.015 / 12!r}'
            f' {1.015 / 12!r}"/>{inside}</body>'
        )

    gx, gy, gz = gravity
    xml = (
        f'<mujoco><compiler angle="radian" balanceinertia="true"/><option gravity="{gx} {gy}'
        f' {gz}"/><worldbody>{body(0)}</worldbody></mujoco>'
    )
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    where = np.array([model.joint(f"j{i}").qposadr[0] for i in range(bodies)])
    rng = np.random.default_rng(1)
    q, v, a = rng.normal(size=(3, bodies))
    data.qpos[where], data.qvel[where], data.qacc[where] = q, v, a
    mujoco.mj_inverse(model, data)
    # diag(0.0025, …) violates no triangle inequality, so MuJoCo keeps it as it is
    assert_close(trees.rnea(tree, q, v, a), data.qfrc_inverse[where], 1e-12, "rnea")
    dense = np.zeros((bodies, bodies))
    (
        mujoco.mj_fullM(model, data, dense)
        if mujoco.__version__ >= "4"
        else mujoco.mj_fullM(model, dense, data.qM)
    )
    assert_close(trees.crba(tree, q).to_dense(), dense[np.ix_(where, where)], 1e-12, "crba")


@pytest.mark.parametrize("floating", [False, True])
def test_energy_is_conserved_without_forces(floating):
    """dE/dt = v·tau: zero without joint forces, along the accelerations of forward dynamics."""
    tree = trees.auto_tree(
        40, 1.5, 0.4, joints=("revolute", "helical", "prismatic"), floating_base=floating
    )
    q, v, _ = tree.random(seed=2)
    a = trees.forward_dynamics(tree, q, v, np.zeros(tree.nv)).a
    h = 1e-4

    def total(t):
        # q(t) along v + a t; the floating base moves in its own frame, to second order
        step = v * t + 0.5 * a * t * t
        moved = q.copy()
        if floating:
            robot_step = step[:6]
            angle = np.linalg.norm(robot_step[3:])
            half = (
                np.append(np.sin(angle / 2) * robot_step[3:] / angle, np.cos(angle / 2))
                if angle
                else np.array([0, 0, 0, 1.0])
            )
            R = trees.forward_kinematics(tree, q).rotation[0]
            moved[:3] += R @ (robot_step[:3] + 0.5 * np.cross(robot_step[3:], robot_step[:3]))
            x, w = q[3:6], q[6]
            moved[3:6] = w * half[:3] + half[3] * x + np.cross(x, half[:3])
            moved[6] = w * half[3] - x @ half[:3]
            moved[7:] += step[6:]
        else:
            moved += step
        return sum(trees.energy(tree, moved, v + a * t))

    slope = (total(h) - total(-h)) / (2 * h)
    assert abs(slope) < 1e-5 * abs(total(0.0))


def test_a_poor_residual_is_a_warning_that_names_it():
    """Star products alone lose digits along a chain; refinement gets them back."""
    tree = trees.auto_tree(20_000, 1.0, 0.3, gravity=(3.0, -4.0, -8.0))
    rng = np.random.default_rng(0)
    q, v, a = 6 * rng.random(20_000), *0.01 * rng.normal(size=(2, 20_000))
    tau = trees.rnea(tree, q, v, a)
    with pytest.warns(trees.AccuracyWarning, match="residual of .* 20,000 levels"):
        poor = trees.forward_dynamics(tree, q, v, tau, method="heavy_path", refinements=0)
    assert poor.residual > 1e-8
    assert trees.forward_dynamics(tree, q, v, tau, method="heavy_path").residual < 1e-12


@pytest.mark.parametrize("branching", [1.0, 1.01, 2.0])
def test_forward_dynamics_of_large_trees_leaves_little(branching):
    tree = trees.auto_tree(
        20_000,
        branching,
        0.3,
        gravity=(3.0, -4.0, -8.0),
        joints=("revolute", "prismatic", "helical"),
    )
    rng = np.random.default_rng(0)
    q, v, a = rng.uniform(-3, 3, tree.nv), 0.1 * rng.normal(size=tree.nv), rng.normal(size=tree.nv)
    tau = trees.rnea(tree, q, v, a)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for method in ("sequential", "levels", "heavy_path"):
            assert trees.forward_dynamics(tree, q, v, tau, method=method).residual < 1e-12, method


def test_threads_give_the_same_forces():
    rng = np.random.default_rng(0)
    for branching in (1.0, 1.01, 2.0):
        tree = trees.auto_tree(60_000, branching, 0.3, gravity=(1.0, 2.0, -9.0))
        q, v, a = rng.normal(size=(3, tree.nv))
        for method in ("levels", "heavy_path"):
            one, two = (trees.rnea(tree, q, v, a, method=method, threads=n) for n in (1, 2))
            assert np.abs(two - one).max() <= 1e-12 * np.abs(one).max(), method
        assert np.array_equal(
            trees.rnea(tree, q, v, a, method="levels", threads=1),
            trees.rnea(tree, q, v, a, method="levels", threads=3),
        )


@pytest.mark.parametrize("reach", [1, 3, 60, 40_000])
def test_walks_of_many_strata_agree_with_the_plain_loop(reach):
    rng = np.random.default_rng(reach)
    n = 40_000
    parents = np.arange(n) - rng.integers(1, reach + 1, n)
    tree = trees.Tree(
        np.maximum(parents, -1),
        translation=(0.3, 0.1, 0.2),
        com=(0.1, 0, 0),
        inertia=0.1 * np.eye(3),
        axis=(1, 2, 3),
        joints="helical",
    )
    q, v, a = tree.random(seed=1)
    v *= 0.1
    for external in (None, rng.normal(size=(n, 6))):
        plain = trees.rnea(tree, q, v, a, external=external, method="sequential")
        for method in ("levels", "heavy_path"):
            for threads in (1, 2):
                tau = trees.rnea(tree, q, v, a, external=external, method=method, threads=threads)
                assert np.abs(tau - plain).max() < 1e-11 * np.abs(plain).max()
