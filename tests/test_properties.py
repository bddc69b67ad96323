"""What must hold for any tree, whoever computes it: property tests over random trees, without
another library as an oracle.

Rates of change along a motion (q ⊕ t v, v + t a) are taken by the complex step, so they are exact
to rounding. Where M is solved with, the tolerance is 50·eps·cond(M), as rounding in M alone may
move the result by eps·cond(M).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from random_trees import ONE_DOF, SIZES, Tree, every_result, moved, random_tree

from rigidgrad.algorithms.crba import crba
from rigidgrad.algorithms.textbook.momentum import centroidal_momentum, energy
from rigidgrad.model.pose import rotation_from_rpy

EPS = np.finfo(float).eps
ROUNDING = 1e-11  # of the largest entry, or of 1, for results without a solve

seeds = st.integers(0, 10**6)
small = st.integers(1, 10)
any_tree = st.builds(random_tree, seeds, small, st.booleans(), st.booleans())
free_floating = st.builds(random_tree, seeds, small, st.just(True), st.booleans())


def holds_for(*strategies):
    """The property is tried on 25 draws of the strategies."""
    return lambda test: settings(max_examples=25, deadline=None)(given(*strategies)(test))


def largest(*arrays):
    return max(1.0, *(np.max(np.abs(x), initial=0.0) for x in arrays))


def state(tree, batch=()):
    return tree.random_state(np.random.default_rng(11), batch)


def solve_tolerance(M):
    return 50 * EPS * np.linalg.cond(M)


def rate(function, model, tree, q, v, a=None, h=1e-40):
    """d/dt of function(model, q, v) along q ⊕ t v, v + t a; without a, of function(model, q)."""
    q = tuple(moved(tree, [complex(x) for x in q], [1j * h * x for x in v]))
    arguments = (
        (q,)
        if a is None
        else (q, tuple(complex(x) + 1j * h * y for x, y in zip(v, a, strict=True)))
    )
    return np.imag(np.array(function(model, *arguments), dtype=complex)) / h


@holds_for(any_tree)
def test_forward_dynamics_undoes_inverse_dynamics(tree):
    robot, (q, v, a) = tree.robot(), state(tree)
    scale = largest(a, robot.aba(q, v, np.zeros(tree.nv)))
    assert (
        np.max(abs(robot.aba(q, v, robot.rnea(q, v, a)) - a))
        <= solve_tolerance(robot.crba(q)) * scale
    )


@holds_for(any_tree)
def test_inverse_dynamics_undoes_forward_dynamics(tree):
    robot, (q, v, tau) = tree.robot(), state(tree)
    a = robot.aba(q, v, tau)
    scale = largest(robot.crba(q)) * largest(a)
    assert np.max(abs(robot.rnea(q, v, a) - tau)) <= solve_tolerance(robot.crba(q)) * scale


@holds_for(any_tree)
def test_the_mass_matrix_is_symmetric_positive_definite_and_minv_its_inverse(tree):
    robot, (q, v, _) = tree.robot(), state(tree)
    M, inverse = robot.crba(q), robot.minv(q)
    # GᵀMG is summed in another order above the diagonal than below
    slack = 4 * EPS if any(j.mimic for j in tree.joints) else 0.0
    assert np.max(abs(M - M.T)) <= slack * largest(M) and np.max(
        abs(inverse - inverse.T)
    ) <= slack * largest(inverse)
    assert np.linalg.eigvalsh(M)[0] > 0
    assert np.max(abs(M @ inverse - np.eye(tree.nv))) <= solve_tolerance(M)
    assert robot.energy(q, v).kinetic == pytest.approx(v @ M @ v / 2, rel=ROUNDING)


@holds_for(any_tree)
def test_inverse_dynamics_is_the_equation_of_motion(tree):
    """τ = M a + C v + g, and the bias is what is left without acceleration."""
    robot, (q, v, a) = tree.robot(), state(tree)
    M, C, g = robot.crba(q), robot.coriolis_matrix(q, v), robot.gravity_torque(q)
    assert np.max(abs(robot.rnea(q, v, a) - (M @ a + C @ v + g))) <= ROUNDING * largest(
        M @ a, C @ v, g
    )
    assert np.max(abs(robot.bias(q, v) - (C @ v + g))) <= ROUNDING * largest(C @ v, g)


@holds_for(any_tree)
def test_energy_changes_by_the_power_of_the_joint_forces(tree):
    robot, (q, v, a) = tree.robot(), state(tree)
    tau = robot.rnea(q, v, a)
    assert (
        abs(np.sum(rate(energy, robot.model, tree, q, v, a)) - tau @ v)
        <= ROUNDING * largest(tau) * largest(v) * tree.nv
    )


@holds_for(any_tree)
def test_external_wrenches_do_work_on_their_links(tree):
    """Virtual work: a wrench on a link enters joint space through that link's Jacobian."""
    robot, (q, v, a) = tree.robot(), state(tree)
    external = tree.random_wrenches(np.random.default_rng(5))
    tau = robot.rnea(q, v, a) - sum(
        robot.jacobian(q, link, expressed_in="local").T @ f for link, f in external.items()
    )
    assert np.max(abs(robot.rnea(q, v, a, external=external) - tau)) <= ROUNDING * largest(tau)


@holds_for(free_floating)
def test_a_free_floating_tree_keeps_its_momentum(tree):
    """Without gravity and without forces on the base, whatever the other joints do; with gravity,
    it changes by the weight.
    """
    rng = np.random.default_rng(3)
    mass = sum(link.mass for link in tree.links)
    for gravity in (np.zeros(3), tree.gravity):
        case = replace(tree, gravity=gravity)
        robot, (q, v, tau) = case.robot(), case.random_state(rng)
        tau[:6] = 0
        a = robot.aba(q, v, tau)
        h = robot.centroidal_momentum(q, v)
        change = rate(centroidal_momentum, robot.model, case, q, v, a)
        expected = np.concatenate([mass * gravity, np.zeros(3)])
        # the acceleration is known to eps·cond(M); the momentum follows it through the mass matrix
        allowed = (
            (ROUNDING + solve_tolerance(robot.crba(q)))
            * largest(robot.crba(q))
            * largest(a)
            * largest(h)
        )
        assert np.max(abs(change - expected)) <= allowed


@holds_for(any_tree)
def test_the_rate_of_the_mass_matrix_minus_twice_coriolis_is_skew(tree):
    robot, (q, v, _) = tree.robot(), state(tree)
    Md, C = rate(crba, robot.model, tree, q, v), robot.coriolis_matrix(q, v)
    X = Md - 2 * C
    assert np.max(abs(X + X.T)) <= ROUNDING * largest(Md, C)


@holds_for(any_tree)
def test_torque_is_linear_in_the_inertial_parameters(tree):
    robot, (q, v, a) = tree.robot(), state(tree)
    G = tree.maps[0]
    armature = np.concatenate([np.full(SIZES[j.type][1], j.armature) for j in tree.moving])
    tau = robot.torque_regressor(q, v, a) @ parameters(tree) + G.T @ (armature * (G @ a))
    assert np.max(abs(robot.rnea(q, v, a) - tau)) <= ROUNDING * largest(tau)


def parameters(tree):
    """m, m c and Ixx Ixy Iyy Ixz Iyz Izz about the origin of each moving body with what is fixed to
    it, worked out from the description.
    """
    links = {link.name: link for link in tree.links}
    result = []

    def add(name, R, p):
        link = links[name]
        c = R @ link.com + p
        total[0] += link.mass
        total[1:4] += link.mass * c
        inertia = R @ link.inertia @ R.T + link.mass * (c @ c * np.eye(3) - np.outer(c, c))
        total[4:] += inertia[[0, 0, 1, 0, 1, 2], [0, 1, 1, 2, 2, 2]]
        for joint in tree.joints:
            if joint.parent == name and joint.type == "fixed":
                add(joint.child, R @ rotation_from_rpy(joint.rpy), p + R @ joint.xyz)

    for joint in tree.moving:
        total = np.zeros(10)
        add(joint.child, np.eye(3), np.zeros(3))
        result.append(total)
    return np.concatenate(result)


# --- gauge ----------------------------------------------------------------------------------------


def regauged(tree: Tree, rng) -> Tree:
    """The same robot with other frames on its links: turned at will, and moved as far as the
    joint's axis allows (anywhere on a slider or a fixed link, along the axis of a hinge or screw,
    not at all where v is told in the link's own axes).
    """
    turn, shift = {}, {}
    for joint in tree.joints:
        if joint.type not in (*ONE_DOF, "fixed"):
            continue
        quaternion = rng.normal(size=4)
        turn[joint.child] = rotation_matrix(quaternion / np.linalg.norm(quaternion))
        axis = (
            np.array([1.0, 0, 0]) if joint.axis is None else joint.axis / np.linalg.norm(joint.axis)
        )
        shift[joint.child] = (
            rng.normal(size=3) * 0.3
            if joint.type in ("prismatic", "fixed")
            else rng.normal() * 0.3 * axis
        )
    links, joints = [], []
    for link in tree.links:
        R, p = turn.get(link.name, np.eye(3)), shift.get(link.name, np.zeros(3))
        massive = link.mass > 0
        links.append(
            replace(
                link,
                com=R.T @ (link.com - p) if massive else link.com,
                inertia=R.T @ link.inertia @ R,
            )
        )
    for joint in tree.joints:
        if joint.parent not in turn and joint.child not in turn:
            joints.append(joint)
            continue
        R0, p0 = turn.get(joint.parent, np.eye(3)), shift.get(joint.parent, np.zeros(3))
        R1, p1 = turn.get(joint.child, np.eye(3)), shift.get(joint.child, np.zeros(3))
        R = rotation_from_rpy(joint.rpy)
        axis = np.array([1.0, 0, 0]) if joint.axis is None else joint.axis
        joints.append(
            replace(
                joint,
                xyz=R0.T @ (joint.xyz + R @ p1 - p0),
                rpy=rpy_of(R0.T @ R @ R1),
                axis=R1.T @ axis if joint.type in ONE_DOF else None,
            )
        )
    return replace(tree, links=tuple(links), joints=tuple(joints))


def rotation_matrix(quaternion):
    x, y, z, w = quaternion
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + 2 * w * cross + 2 * cross @ cross


def rpy_of(R):
    return np.array(
        [
            np.arctan2(R[2, 1], R[2, 2]),
            np.arctan2(-R[2, 0], np.hypot(R[2, 1], R[2, 2])),
            np.arctan2(R[1, 0], R[0, 0]),
        ]
    )


@holds_for(any_tree, seeds)
def test_other_frames_on_the_links_change_no_joint_space_result(tree, seed):
    robot, other = tree.robot(), regauged(tree, np.random.default_rng(seed)).robot()
    q, v, a = state(tree)
    # turning frames rounds the model's numbers anew, which cond(M) amplifies: once in aba and minv,
    # once more in gradients, which depend on both
    once = solve_tolerance(robot.crba(q))
    allowed = {"aba": once, "minv": once, "aba_derivatives": 20 * once, "fused_gradient": 20 * once}
    base = tree.links[0].name
    left, right = every_result(robot, base, q, v, a, {}), every_result(other, base, q, v, a, {})
    # whose parameters are told in the links' frames
    for name in left.keys() - {"torque_regressor"}:
        error = np.max(abs(left[name] - right[name]), initial=0.0) / largest(left[name])
        assert error <= max(1e-11, allowed.get(name.split(".")[0], 0.0)), name


# --- positions ------------------------------------------------------------------------------------


@holds_for(any_tree, st.sampled_from([0.0, 1e-12, 1e-6, 1e-3, 0.1, 0.28, 0.29, 1.0, 3.0]))
def test_difference_undoes_integrate(tree, size):
    """Steps of any size short of half a turn, on both sides of where series take over."""
    robot, (q, v, _) = tree.robot(), state(tree)
    step = size * v / max(1.0, np.max(abs(v)) * 3**0.5)
    moved_q = robot.integrate(q, step)
    assert np.max(abs(robot.difference(q, moved_q) - step)) <= 1e-12 * largest(q)
    assert np.max(abs(robot.normalize(moved_q) - moved_q)) <= 1e-14 * largest(moved_q)
    assert np.max(abs(robot.integrate(moved_q, -step) - q)) <= 1e-12 * largest(q)


@holds_for(any_tree)
def test_the_velocity_is_the_rate_of_the_placements(tree):
    """integrate, frame_velocity and forward_kinematics belong together: a central difference of the
    placement along v is its velocity.
    """
    robot, (q, v, _) = tree.robot(), state(tree)
    link, h = tree.links[-1].name, 1e-5
    before, here, after = (
        robot.forward_kinematics(robot.integrate(q, t * v))[link] for t in (-h, 0.0, h)
    )
    rates = (after - before) / (2 * h)
    velocity = robot.frame_velocity(q, v, link)
    spin = rates[:3, :3] @ here[:3, :3].T
    expected = np.array([*rates[:3, 3], spin[2, 1], spin[0, 2], spin[1, 0]])
    assert np.max(abs(velocity - expected)) <= 1e-7 * largest(velocity) ** 3
    assert np.max(abs(robot.jacobian(q, link) @ v - velocity)) <= ROUNDING * largest(velocity)


# --- NaN and structural zeros ---------------------------------------------------------------------


@holds_for(any_tree, st.sampled_from(["q", "v", "a"]), seeds)
def test_nan_in_one_row_leaves_its_neighbours_alone(tree, which, seed):
    rng = np.random.default_rng(seed)
    robot = tree.robot()
    q, v, a = tree.random_state(rng, (4,))
    link = tree.links[-1].name
    external = {link: rng.normal(size=(4, 6))}
    clean = every_result(robot, link, q, v, a, external)
    {"q": q, "v": v, "a": a}[which][2] = np.nan
    spoiled = every_result(robot, link, q, v, a, external)
    for name, x in clean.items():
        for k in (0, 1, 3):
            assert np.array_equal(spoiled[name][k], x[k], equal_nan=True), name
    if which == "a":
        assert np.all(np.isnan(spoiled["rnea"][2]))


def supports(tree):
    """related[i, j]: entries i and j of v belong to one path from the root; rooted[i, j]: to one
    tree hanging on the world.
    """
    above = {tree.links[0].name: frozenset()}
    names = [j.name for j in tree.moving]
    if tree.floating:
        above[tree.links[0].name] = frozenset({"root_joint"})
    for joint in tree.ordered:
        above[joint.child] = above[joint.parent] | (
            {joint.name} if joint.type != "fixed" else frozenset()
        )
    path = {joint.name: above[joint.child] for joint in tree.ordered} | {
        "root_joint": frozenset({"root_joint"})
    }
    owner = [j.name for j in tree.moving for _ in range(SIZES[j.type][1])]
    root = {name: min(path[name], key=names.index) for name in names}
    related = np.array([[x in path[y] or y in path[x] for y in owner] for x in owner])
    rooted = np.array([[root[x] == root[y] for y in owner] for x in owner])
    G = tree.maps[0] != 0  # a mimicking joint brings its relations to its master
    related = (G.T @ related @ G) > 0
    coupled = (G.T @ rooted @ G) > 0
    for _ in range(tree.nv):
        coupled = (coupled @ coupled) > 0
    return related, coupled


@holds_for(any_tree)
def test_structural_zeros_stay_zero_whatever_nan_comes(tree):
    robot = tree.robot()
    related, coupled = supports(tree)
    q, v, a = (np.full(n, np.nan) for n in (tree.nq, tree.nv, tree.nv))
    d, e = robot.rnea_derivatives(q, v, a), robot.aba_derivatives(q, v, a)
    for matrix in (robot.crba(q), d.dq, d.dv, d.da, robot.coriolis_matrix(q, v)):
        assert np.all(matrix[~related] == 0.0)
    for matrix in (robot.minv(q), e.dq, e.dv, e.dtau):
        assert np.all(matrix[~coupled] == 0.0)


@holds_for(any_tree)
def test_nan_in_an_acceleration_reaches_the_torques_of_its_path_only(tree):
    robot, (q, v, a) = tree.robot(), state(tree)
    related, _ = supports(tree)
    M, tau = robot.crba(q), robot.rnea(q, v, a)
    for k in range(tree.nv):
        spoiled = a.copy()
        spoiled[k] = np.nan
        result = robot.rnea(q, v, spoiled)
        assert np.array_equal(result[~related[k]], tau[~related[k]])
        assert np.all(np.isnan(result[abs(M[k]) > 1e-12]))
