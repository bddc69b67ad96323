"""Plants against forward dynamics, conservation laws and each other; every fault by its
statistics.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import threading
import tracemalloc

import numpy as np
import pytest
from random_trees import random_tree

import rigidgrad as rg
from rigidgrad import plants
from rigidgrad.errors import InputError, ModelError, RigidgradError, UnknownNameError
from rigidgrad.plants import Faults, Friction, MuJoCo, Payload, Push, Simulator, random_errors

BOTH = pytest.mark.parametrize("kind", [Simulator, MuJoCo])


def still(robot, q=None) -> np.ndarray:
    return np.r_[robot.neutral() if q is None else q, np.zeros(robot.nv)]


def random_state(robot, seed=0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.r_[robot.random(seed=seed).q, rng.normal(size=robot.nv)]


def moderate(robot, seed=0) -> np.ndarray:
    return 0.2 * np.random.default_rng([seed, 7]).normal(size=robot.nv)


def assert_same(actual, expected, tolerance):
    """To `tolerance` of the largest entry, or of 1."""
    assert np.max(np.abs(actual - expected)) <= tolerance * max(1.0, np.max(np.abs(expected)))


@pytest.fixture(scope="module")
def arm():
    return rg.load("iiwa14")


@pytest.fixture(scope="module")
def pendulums():
    return rg.load("double_pendulum")


@pytest.fixture(scope="module")
def quadrotor():
    return rg.load("quadrotor")


# --- forward dynamics -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*rg.bundled(), "hyq+", "iiwa14+", "atlas+"])
def test_mujoco_accelerates_bundled_robots_as_aba(name):
    robot = rg.load(name.rstrip("+"), floating_base=name.endswith("+"), engine="numpy")
    plant = MuJoCo(robot, still(robot))
    for seed in range(4):
        x, u = random_state(robot, seed), moderate(robot, seed)
        plant.reset(x)
        # MuJoCo keeps principal moments and a quaternion for each inertia, which costs some digits
        # of light bodies
        assert_same(plant.acceleration(u), robot.aba(x[: robot.nq], x[robot.nq :], u), 1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_mujoco_accelerates_random_trees_as_aba(seed):
    """All joints that it has, free ones also within the tree; free joints with armature, which are
    refused, become balls.
    """
    types = ("revolute", "prismatic", "continuous", "spherical", "planar", "floating", "fixed")
    tree = random_tree(seed, 1 + seed % 12, mimic=False, types=types)
    balls = {j.name for j in tree.joints if j.type in ("planar", "floating") and j.armature}
    tree = dataclasses.replace(
        tree,
        joints=tuple(
            dataclasses.replace(j, type="spherical") if j.name in balls else j for j in tree.joints
        ),
    )
    robot = tree.robot()
    q, v, u = tree.random_state(np.random.default_rng(seed))
    plant = MuJoCo(robot, np.r_[q, v])
    a = robot.aba(q, v, u)
    # both lose digits in proportion to the mass matrix's condition
    assert_same(plant.acceleration(u), a, 1e-15 * max(1e3, np.linalg.cond(robot.crba(q))) + 1e-12)
    assert_same(plant.x, np.r_[q, v], 1e-15)


@pytest.mark.parametrize("seed", range(8))
def test_simulator_accelerates_random_trees_as_aba(seed):
    """Every joint type, mimic joints and armature too; with inertias, pushes and friction as
    inputs.
    """
    tree = random_tree(seed, 2 + seed % 5)
    robot = tree.robot()
    rng = np.random.default_rng(seed)
    q, v, u = tree.random_state(rng)
    friction = Friction(rng.uniform(0, 1, robot.nv), rng.uniform(0, 1, robot.nv), 0.1)
    plant = Simulator(robot, np.r_[q, v], friction=friction, integrator="euler")
    frame = next(f.name for f in robot.model.frames.values() if f.body == len(robot.joints) - 1)
    force, again = rng.normal(size=(2, 3))
    for f in (force, again):
        plant.push(f, 1.0, frame)
    turn = robot.forward_kinematics(q)[frame][:3, :3]
    wrench = np.r_[turn.T @ (force + again), np.zeros(3)]
    resisted = u - friction.viscous * v - friction.coulomb * v / np.sqrt(v**2 + 0.01)
    expected = robot.aba(q, v, resisted, external={frame: wrench})
    assert_same(plant.acceleration(u), expected, 1e-14 * max(1e3, np.linalg.cond(robot.crba(q))))


@BOTH
def test_pushes_on_two_points_of_a_body_and_another(kind, arm):
    x, u = random_state(arm, 3), moderate(arm)
    robot = arm.add_frame("tip", "iiwa_link_7", (0.1, -0.2, 0.3))
    rng = np.random.default_rng(0)
    forces = {
        "tip": rng.normal(size=3),
        "iiwa_link_7": rng.normal(size=3),
        "iiwa_link_3": rng.normal(size=3),
    }
    plant = kind(robot, x)
    for frame, force in forces.items():
        plant.push(10 * force, 0.1, frame)
    T = robot.forward_kinematics(x[:7])
    external = {
        name: np.r_[T[name][:3, :3].T @ (10 * f), np.zeros(3)] for name, f in forces.items()
    }
    assert_same(plant.acceleration(u), robot.aba(x[:7], x[7:], u, external=external), 1e-11)


@BOTH
def test_pushes_end_alone(kind, pendulums):
    """Two that begin together on one frame and end together, one that lasts longer, one that is yet
    to come.
    """
    x0, frame = [0.1, 0.2, 0.0, 0.0], pendulums.frames[-1]
    both, one = kind(pendulums, x0), kind(pendulums, x0)
    for force in ((1.0, 0.0, 2.0), (0.5, 0.0, -1.0)):
        both.push(force, 0.0055, frame)
    one.push((1.5, 0.0, 1.0), 0.0055, frame)
    for p in (both, one):
        p.push((0.0, 0.0, 1.0), 0.0105, frame)
        p.push((3.0, 0.0, 1.0), 0.001, frame, at=0.05)
        p.advance([0.0, 0.0], 0.02)
    assert_same(both.x, one.x, 1e-13)
    # it now moves as if never pushed, until the last one comes
    fresh = kind(pendulums, both.x)
    for p in (both, fresh):
        p.advance([0.0, 0.0], 0.03)
    assert_same(both.x, fresh.x, 1e-13)
    for p in (both, fresh):
        p.advance([0.0, 0.0], 0.01)
    assert np.abs(both.x - fresh.x).max() > 1e-5


# --- errors of the model --------------------------------------------------------------------------


@BOTH
def test_a_common_mass_error_scales_the_controls(kind, arm):
    """M and c grow by the same factor (the arm has no armature), so the rest acts as a smaller
    torque.
    """
    x, u = random_state(arm, 1), moderate(arm)
    assert_same(kind(arm, x, mass_error=0.2).acceleration(u), arm.aba(x[:7], x[7:], u / 1.2), 1e-11)


@BOTH
def test_errors_of_single_bodies(kind, arm):
    """By the regressor: τ = Y(q, v, a) π is linear in the parameters, which the errors scale."""
    x, u = random_state(arm, 2), moderate(arm)
    errors = random_errors(arm, 0.3, seed=5)
    assert np.ptp(errors) > 0.2 and np.abs(errors).max() < 0.3
    a = kind(arm, x, mass_error=errors).acceleration(u)
    parameters = np.array([(m, *h, *i) for m, h, i in arm.model.inertias]) * (1 + errors)[:, None]
    assert_same(arm.torque_regressor(x[:7], x[7:], a) @ parameters.ravel(), u, 1e-11)


INERTIA = np.diag([0.02, 0.03, 0.04]) + 0.005


def carrying(arm):
    """The arm with the same payload built in, as a robot fixed to its hand."""
    box = (
        rg.Builder("box")
        .link("box", 5.0, (0.02, -0.03, 0.1), INERTIA)
        .link("pin", 1e-12, (0, 0, 0), 1e-12 * np.eye(3))
    )
    return arm.attach(
        box.joint("wobble", "revolute", "box", "pin").build(), "iiwa_link_ee"
    ).reduced(lock={"wobble": 0.0})


@BOTH
def test_a_payload_equals_a_robot_built_with_it(kind, arm):
    x, u = random_state(arm, 4), moderate(arm)
    expected = carrying(arm).aba(x[:7], x[7:], u)
    plant = kind(arm, x)
    plant.set_payload(5.0, "iiwa_link_ee", (0.02, -0.03, 0.1), INERTIA)
    assert_same(plant.acceleration(u), expected, 1e-10)
    assert plant.payload.mass == 5.0
    plant.remove_payload()
    assert_same(plant.acceleration(u), arm.aba(x[:7], x[7:], u), 1e-10)
    with_it = kind(arm, x, payload=Payload(5.0, "iiwa_link_ee", (0.02, -0.03, 0.1), INERTIA))
    assert_same(with_it.acceleration(u), expected, 1e-10)
    with_it.reset()
    assert_same(with_it.acceleration(u), expected, 1e-10)


def test_a_payload_falls_as_it_should_in_motion(arm):
    """Not only at one instant: a trajectory with a payload that comes and goes, against the robot
    with it built in.
    """
    x0 = random_state(arm, 4)
    plant, oracle = Simulator(arm, x0), Simulator(carrying(arm), x0)
    plant.set_payload(5.0, "iiwa_link_ee", (0.02, -0.03, 0.1), INERTIA)
    for p in (plant, oracle):
        p.advance(np.zeros(7), 0.05)
    assert_same(plant.x, oracle.x, 1e-9)
    plant.remove_payload()
    bare = Simulator(arm, plant.x)
    for p in (plant, bare):
        p.advance(np.zeros(7), 0.05)
    assert_same(plant.x, bare.x, 1e-12)


def walker():
    """A free body with a leg of a hinge and a slide."""
    inertia = np.diag([0.1, 0.2, 0.25])
    builder = (
        rg.Builder("walker")
        .link("body", 3.0, (0.1, 0, 0), inertia)
        .link("thigh", 1.0, (0, 0, -0.2), inertia)
        .link("foot", 0.5, (0, 0, -0.1), inertia)
    )
    builder = builder.joint("hip", "revolute", "body", "thigh", xyz=(0.2, 0.1, 0), axis=(0, 1, 0))
    return builder.joint(
        "knee", "prismatic", "thigh", "foot", xyz=(0, 0, -0.4), axis=(0, 0, 1)
    ).build(floating_base=True, gravity=(0, 0, 0))


# --- conservation ---------------------------------------------------------------------------------


@BOTH
def test_a_swinging_pendulum_keeps_its_energy(kind, pendulums):
    plant = kind(pendulums, np.array([2.0, 1.0, 0.0, 0.0]), integrator="rk4")

    def energy():
        return sum(pendulums.energy(plant.x[:2], plant.x[2:]))

    before, kinetic = energy(), 0.0
    for _ in range(50):
        plant.advance(np.zeros(2), 0.04)
        kinetic = max(kinetic, pendulums.energy(plant.x[:2], plant.x[2:]).kinetic)
    assert abs(energy() - before) < 1e-8 * kinetic  # 2000 steps of fourth order at 1 ms
    assert kinetic > 1.0


@BOTH
@pytest.mark.parametrize("integrator", ["euler", "rk4"])
def test_an_impulse_is_the_change_of_momentum(kind, integrator):
    """A free robot without gravity, all joints loose; the push starts and ends between the plant's
    steps.
    """
    robot = walker()
    force, duration = np.array([30.0, -20.0, 50.0]), 0.01234
    rng = np.random.default_rng(0)
    x0 = np.r_[robot.random(seed=1).q, 0.1 * rng.normal(size=robot.nv)]
    plant = kind(
        robot, x0, integrator=integrator, pushes=[Push(force, duration, "foot", at=0.00321)]
    )

    def momentum():
        return robot.centroidal_momentum(plant.x[: robot.nq], plant.x[robot.nq :])[:3]

    before = momentum()
    plant.advance(np.zeros(robot.nv), 0.003)
    assert_same(momentum(), before, 1e-4 if integrator == "euler" else 1e-9)
    plant.advance(np.zeros(robot.nv), 0.02)
    # first order: a few steps' worth of a few per cent; fourth (second, on quaternions): h² times
    # the same
    assert (
        np.abs(momentum() - before - force * duration).max()
        < (2e-2 if integrator == "euler" else 1e-5) * np.abs(force * duration).max()
    )
    after = momentum()
    plant.advance(np.zeros(robot.nv), 0.005)
    assert_same(momentum(), after, 1e-2 if integrator == "euler" else 1e-6)


def test_a_push_turns_a_free_body_as_it_should(quadrotor):
    """Angular momentum about the centre: the arm of the force, turning with the body, times the
    force.
    """
    robot = rg.load("quadrotor", gravity=(0, 0, 0)).add_frame("corner", "body", (0.1, 0.2, 0.05))
    for kind in (Simulator, MuJoCo):
        plant = kind(robot, still(robot), integrator="rk4")
        plant.push((0.0, 0.0, 0.01), 0.01, "corner")
        plant.advance(np.zeros(6), 0.01)
        # the body turns by less than 1e-3 in that time
        assert_same(
            robot.centroidal_momentum(plant.x[:7], plant.x[7:])[3:],
            np.cross((0.1, 0.2, 0.05), (0, 0, 1e-4)),
            1e-7,
        )


# --- the two plants, and orders of convergence ----------------------------------------------------


def driven(plant, robot, x0, h=1e-3):
    """The state after 0.2 s of torques that change every 4 ms."""
    hold = robot.gravity_torque(x0[: robot.nq])
    size = np.array([10, 10, 5, 5, 1, 1, 0.1])
    for k in range(50):
        for _ in range(round(0.004 / h)):
            plant.advance(hold + size * np.sin(0.012 * k + np.arange(7)), h)
    return plant.x


@pytest.mark.parametrize(
    ("ours", "theirs", "friction"),
    [
        ("rk4", "rk4", None),
        ("semi_implicit_euler", "euler", None),
        ("semi_implicit_euler", "implicitfast", Friction(viscous=0.5)),
        ("semi_implicit_euler", "euler", Friction(viscous=0.1, coulomb=0.2)),
    ],
)
def test_both_plants_agree_to_rounding_with_the_same_method(arm, ours, theirs, friction):
    x0 = still(arm, random_state(arm)[:7])
    a = driven(Simulator(arm, x0, integrator=ours, friction=friction), arm, x0)
    b = driven(MuJoCo(arm, x0, integrator=theirs, friction=friction), arm, x0)
    assert np.abs(a - x0).max() > 0.1
    assert_same(a, b, 1e-9)  # rounding, grown over 200 steps


def test_the_plants_differ_by_their_integration_error_of_first_order(arm):
    x0 = still(arm, random_state(arm)[:7])
    exact = driven(Simulator(arm, x0), arm, x0)
    errors = [np.abs(driven(MuJoCo(arm, x0), arm, x0, h) - exact).max() for h in (1e-3, 5e-4)]
    assert 1.8 < errors[0] / errors[1] < 2.2


@pytest.mark.parametrize(
    ("method", "order"),
    [("euler", 1), ("semi_implicit_euler", 1), ("midpoint", 2), ("rk3", 3), ("rk4", 4)],
)
def test_order_of_the_simulators_methods(pendulums, method, order):
    x0, u = np.array([2.0, 1.0, 1.0, -1.0]), np.array([0.5, -0.2])
    ends = []
    for h in (1e-3, 5e-4, 2.5e-4):
        plant = Simulator(pendulums, x0, dt=h, integrator=method)
        for _ in range(round(1.0 / h)):
            plant.advance(u)
        ends.append(plant.x)
    ratio = np.abs(ends[0] - ends[1]).max() / np.abs(ends[1] - ends[2]).max()
    assert abs(np.log2(ratio) - order) < 0.2


def test_a_quadrotor_flies_alike_in_both(quadrotor):
    """The actuation turns with the body; MuJoCo holds its direction within a step, so they differ
    in first order.
    """
    lever, yaw = 0.175, 0.0245
    B = np.zeros((6, 4))
    B[2], B[3], B[4], B[5] = (
        1.0,
        (0, lever, 0, -lever),
        (-lever, 0, lever, 0),
        (yaw, -yaw, yaw, -yaw),
    )
    u = np.full(4, 0.5 * 9.81 / 4)
    ours, theirs = (
        kind(quadrotor, still(quadrotor), actuation=B, integrator="rk4")
        for kind in (Simulator, MuJoCo)
    )
    for p in (ours, theirs):
        p.advance(u, 0.1)
        assert_same(p.x, still(quadrotor), 1e-12)  # it hovers
        p.advance(u + [0.02, 0.01, 0, 0], 0.2)
    assert np.abs(ours.x[10:]).max() > 0.1
    assert_same(ours.x, theirs.x, 1e-3)
    system = rg.RobotSystem(quadrotor, B)
    again = Simulator(system, still(quadrotor))
    again.advance(u, 0.1)
    again.advance(u + [0.02, 0.01, 0, 0], 0.2)
    np.testing.assert_array_equal(again.x, ours.x)


def test_dynamics_of_ones_own(pendulums):
    pendulum = rg.load("pendulum")
    system = rg.CustomSystem(lambda x, u: (x[1], u[0] - 9.81 * rg.math.sin(x[0])), nx=2, nu=1)
    own, robot = Simulator(system, [1.0, 0.0]), Simulator(pendulum, [1.0, 0.0])
    for p in (own, robot):
        p.advance([0.3], 0.5)
    assert_same(own.x, robot.x, 1e-12)
    noisy = Simulator(system, [1.0, 0.0], faults=Faults(noise_position=(0.1, 0.0)))
    assert noisy.measure().x[0] != 1.0 and noisy.measure().x[1] == 0.0
    for make in (
        lambda: own.set_payload(1.0, "x"),
        lambda: own.push((1, 0, 0), 1.0, "x"),
        lambda: own.acceleration([0.0]),
        lambda: Simulator(system, [1.0, 0.0], mass_error=0.1),
        lambda: Simulator(system, [1.0, 0.0], faults=Faults(noise_velocity=0.1)),
        lambda: Simulator(system, [1.0, 0.0], clamp=True),
        lambda: MuJoCo(system, [1.0, 0.0]),
        lambda: Simulator(rg.CustomSystem(lambda x, u: x, 1, 1, discrete=True), [0.0]),
    ):
        with pytest.raises(InputError):
            make()


# --- friction -------------------------------------------------------------------------------------


@BOTH
def test_dry_friction_stops_and_holds_the_arm(kind):
    robot = rg.load("iiwa14", gravity=(0, 0, 0))
    plant = kind(robot, np.r_[np.zeros(7), np.full(7, 0.5)], friction=Friction(coulomb=5.0))
    before = robot.energy(plant.x[:7], plant.x[7:]).kinetic
    for _ in range(1500):
        plant.advance(np.zeros(7))
        now = robot.energy(plant.x[:7], plant.x[7:]).kinetic
        # 5 Nm on the last joint's 1 g m² would overshoot a thousandfold if taken explicitly
        assert now <= before * (1 + 1e-9) + 1e-12
        before = now
    assert np.abs(plant.x[7:]).max() < 1e-6
    held = plant.x[:7]
    plant.advance(np.full(7, 2.5), 0.5)
    # half the friction: it only creeps, with v/√(v² + 1e-6) = 1/2
    np.testing.assert_allclose(plant.x[7:], 1e-3 / 3**0.5, rtol=1e-3)
    assert np.abs(plant.x[:7] - held).max() < 3e-4
    plant.advance(np.r_[10.0, np.zeros(6)], 0.2)
    assert plant.x[7] > 0.05


def test_friction_of_the_description(arm):
    x, u = random_state(arm), moderate(arm)
    expected = arm.aba(x[:7], x[7:], u - 0.5 * x[7:])  # its URDF says 0.5 N m s/rad
    for kind in (Simulator, MuJoCo):
        assert_same(kind(arm, x, friction="model").acceleration(u), expected, 1e-11)
        assert_same(kind(arm, x).acceleration(u), arm.aba(x[:7], x[7:], u), 1e-11)


def test_friction_converges_with_first_order(arm):
    x0 = still(arm, random_state(arm)[:7])

    def end(h):
        plant = Simulator(arm, x0, dt=h, friction="model")
        for _ in range(round(0.1 / h)):
            plant.advance(np.zeros(7))
        return plant.x

    a, b, c = end(1e-3), end(5e-4), end(2.5e-4)
    assert 1.7 < np.abs(a - b).max() / np.abs(b - c).max() < 2.3


# --- measurements ---------------------------------------------------------------------------------


def measured(faults, steps=4000, seed=0):
    """Measurements of a plant that moves."""
    robot = rg.load("cartpole")
    plant = Simulator(robot, [0.0, 1.0, 0.2, 0.0], faults=faults, seed=seed, log=True)
    result = []
    for _ in range(steps):
        result.append(plant.measure())
        plant.advance([0.0, 0.0])
    return plant, result


def test_without_faults_the_state_is_seen_as_it_is():
    plant, samples = measured(None, 50)
    np.testing.assert_array_equal(np.array([s.x for s in samples]), plant.log.x)
    np.testing.assert_array_equal([s.t for s in samples], plant.log.t)
    assert plant.counts.measurements == 50 and plant.counts.steps == 50


def test_noise_has_its_deviation_and_no_mean():
    plant, samples = measured(Faults(noise_position=(0.01, 0.0), noise_velocity=0.1))
    error = np.array([s.x for s in samples]) - plant.log.x
    n = len(error)
    assert (error[:, 1] == 0).all()
    for column, deviation in ((0, 0.01), (2, 0.1), (3, 0.1)):
        e = error[:, column] / deviation
        assert abs(e.mean()) < 4 / n**0.5 and abs(e.std() - 1) < 4 / (2 * n) ** 0.5
        assert abs(np.corrcoef(e[1:], e[:-1])[0, 1]) < 4 / n**0.5  # each measurement anew


def test_noise_lives_in_the_tangent_space(quadrotor):
    x0 = random_state(quadrotor, 2)
    plant = Simulator(quadrotor, x0, faults=Faults(noise_position=0.1), integrator="euler")
    seen = np.array([plant.measure().x for _ in range(1000)])
    np.testing.assert_allclose(np.linalg.norm(seen[:, 3:7], axis=1), 1.0, atol=1e-12)
    error = quadrotor.difference(x0[:7], seen[:, :7]) / 0.1
    assert np.all(np.abs(error.std(axis=0) - 1) < 4 / 2000**0.5) and np.all(
        np.abs(error.mean(axis=0)) < 4 / 1000**0.5
    )
    np.testing.assert_array_equal(seen[:, 7:], np.tile(x0[7:], (1000, 1)))


def test_latency_shows_an_earlier_state_and_its_time():
    plant, samples = measured(Faults(latency=0.007), 100)
    for k, s in enumerate(samples):
        earlier = max(0, k - 7)
        assert s.t == plant.log.t[earlier]
        np.testing.assert_array_equal(s.x, plant.log.x[earlier])


def test_jitter_varies_the_age_and_never_goes_back():
    plant, samples = measured(Faults(latency=0.002, jitter=0.005), 3000)
    seen = np.array([s.t for s in samples])
    age = (plant.log.t - seen)[20:]
    assert (np.diff(seen) >= 0).all()
    # at most one step more than 7 ms, for states are kept at every step
    assert age.min() > 0.002 - 1e-9 and age.max() < 0.008
    assert len(np.unique(np.round(age, 6))) >= 4
    for s in samples[::100]:  # each sample is the true state of its time
        k = int(np.searchsorted(plant.log.t, s.t - 1e-9))
        np.testing.assert_array_equal(s.x, plant.log.x[k])


def test_frequencies_of_lost_repeated_and_broken_samples():
    n = 4000
    plant, samples = measured(Faults(drop=0.1, repeat=0.2, nan=0.05), n)
    counts = plant.counts
    for count, p in ((counts.dropped, 0.1), (counts.repeated, 0.2), (counts.nan, 0.05)):
        assert abs(count - n * p) < 4 * (n * p * (1 - p)) ** 0.5
    assert counts.dropped == sum(s is None for s in samples)
    kept = [s for s in samples if s is not None]
    repeats = sum(
        a.t == b.t and np.array_equal(a.x, b.x, equal_nan=True) for a, b in itertools.pairwise(kept)
    )
    assert repeats == counts.repeated
    broken = [np.isnan(s.x).sum() for s in kept]
    assert set(broken) == {0, 1} and sum(broken) >= counts.nan
    assert np.isfinite(plant.x).all()


def test_faults_on_request():
    plant, _ = measured(None, 1)
    plant.spoil("nan")
    plant.spoil("drop", 2)
    kinds = [plant.measure() for _ in range(4)]
    assert np.isnan(kinds[0].x).sum() == 1
    assert kinds[1] is None and kinds[2] is None
    np.testing.assert_array_equal(kinds[3].x, plant.x)
    plant.spoil("repeat")
    plant.advance(np.zeros(plant.nu))
    assert plant.measure().t < plant.time
    with pytest.raises(UnknownNameError, match="drop"):
        plant.spoil("dropped")


def test_quantisation_rounds_to_multiples(quadrotor):
    plant, samples = measured(
        Faults(quantisation_position=0.05, quantisation_velocity=(0.2, 0.0)), 200
    )
    seen = np.array([s.x for s in samples])
    true = plant.log.x
    for column, step in ((0, 0.05), (1, 0.05), (2, 0.2)):
        multiples = seen[:, column] / step
        np.testing.assert_allclose(multiples, np.round(multiples), atol=1e-9)
        assert np.abs(seen - true)[:, column].max() <= step / 2 + 1e-12
    np.testing.assert_array_equal(seen[:, 3], true[:, 3])
    x = (
        Simulator(
            quadrotor,
            random_state(quadrotor),
            faults=Faults(quantisation_position=0.01),
            integrator="euler",
        )
        .measure()
        .x
    )
    multiples = quadrotor.difference(quadrotor.neutral(), x[:7]) / 0.01
    np.testing.assert_allclose(multiples, np.round(multiples), atol=1e-9)


def test_faults_may_change_on_the_way():
    plant, _ = measured(None, 10)
    plant.faults = Faults(latency=0.003)
    for _ in range(10):
        plant.advance(np.zeros(plant.nu))
    assert plant.measure().t == pytest.approx(plant.time - 0.003, abs=1e-9)
    plant.faults = Faults()
    assert plant.measure().t == plant.time
    for _ in range(10):
        plant.advance(np.zeros(plant.nu))
    plant.faults = Faults(latency=0.003)
    assert plant.measure().t == plant.time  # of the time before, nothing was kept
    with pytest.raises(InputError):
        plant.faults = {"latency": 0.1}


# --- determinism, time, memory --------------------------------------------------------------------


ALL = Faults(
    noise_position=0.01,
    noise_velocity=0.1,
    latency=0.002,
    jitter=0.003,
    drop=0.1,
    repeat=0.1,
    nan=0.1,
)


@BOTH
def test_equal_seeds_and_resets_repeat_everything(kind, pendulums):
    def run(plant):
        result = []
        for k in range(60):
            if k == 20:
                plant.push((1.0, 0.0, 0.5), 0.0105, pendulums.frames[-1])
            s = plant.measure()
            result.append(np.full(4, -1.0) if s is None else np.nan_to_num(s.x, nan=99.0))
            plant.advance([0.1, -0.1])
        return np.array([*result, plant.x])

    def make(seed):
        return kind(
            pendulums,
            [1.0, 0.5, 0.0, 0.0],
            faults=ALL,
            seed=seed,
            pushes=[Push((0, 0, 3.0), 0.005, pendulums.frames[-1], at=0.01)],
        )

    plant = make(1)
    first = run(plant)
    counts = dataclasses.asdict(plant.counts)
    np.testing.assert_array_equal(run(make(1)), first)
    assert not np.array_equal(run(make(2))[:-1], first[:-1])
    plant.reset()
    assert plant.time == 0.0 and plant.counts.steps == 0
    np.testing.assert_array_equal(run(plant), first)
    assert dataclasses.asdict(plant.counts) == counts
    plant.reset([0.1, 0.2, 0.0, 0.0])
    np.testing.assert_array_equal(plant.x, [0.1, 0.2, 0.0, 0.0])


@BOTH
def test_long_holds_are_divided_into_steps_of_a_millisecond(kind, pendulums):
    x0, u = [1.0, 0.5, 0.0, 0.0], [0.1, 0.2]
    a, b, c = kind(pendulums, x0, dt=0.01), kind(pendulums, x0), kind(pendulums, x0)
    a.advance(u)
    b.advance(u, duration=0.01)
    for _ in range(10):
        c.advance(u)
    assert a.counts.steps == b.counts.steps == c.counts.steps == 10
    assert a.time == pytest.approx(0.01, abs=1e-15)
    np.testing.assert_array_equal(a.x, b.x)
    np.testing.assert_allclose(a.x, c.x, rtol=1e-14)


def test_a_minute_loses_no_time_and_no_memory():
    robot = rg.load("cartpole")
    plant = Simulator(
        robot,
        [0.0, 0.1, 0.0, 0.0],
        faults=dataclasses.replace(ALL, latency=0.02),
        friction=Friction(viscous=0.01),
    )
    u = np.zeros(2)

    def minute(steps):
        for _ in range(steps):
            plant.measure()
            plant.advance(u)

    minute(1000)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    minute(2000)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000, grown
    minute(57_000)
    assert plant.time == pytest.approx(60.0, abs=1e-12)
    assert plant.counts.steps == 60_000


def test_the_clock_does_not_drift():
    plant = Simulator(rg.load("pendulum"), [0.0, 0.0], dt=1e-4)
    plant._step = lambda h: plant._x  # the clock alone
    for _ in range(300_000):
        plant._move(1e-4)
    assert plant.time == pytest.approx(30.0, abs=1e-13)


@BOTH
def test_pushing_and_loading_from_another_thread(kind, pendulums):
    plant = kind(pendulums, [0.1, 0.1, 0.0, 0.0])
    frame = pendulums.frames[-1]
    done = threading.Event()

    def disturb():
        while not done.is_set():
            plant.push((0.1, 0.0, 0.0), 0.002, frame)
            plant.set_payload(0.1, frame)
            plant.remove_payload()
            plant.faults = Faults(latency=0.001)

    thread = threading.Thread(target=disturb)
    thread.start()
    for _ in range(300):
        plant.advance([0.0, 0.0])
        plant.measure()
    done.set()
    thread.join()
    assert np.isfinite(plant.x).all() and plant.time == pytest.approx(0.3)


def test_the_log_has_a_row_a_step(pendulums):
    plant = Simulator(pendulums, [0.1, 0.1, 0.0, 0.0], log=True)
    for k in range(1500):
        plant.advance([0.1 * (k % 2), 0.0])
    assert (
        plant.log.t.shape == (1500,)
        and plant.log.x.shape == (1500, 4)
        and plant.log.u.shape == (1500, 2)
    )
    np.testing.assert_allclose(plant.log.t, 1e-3 * np.arange(1500), atol=1e-12)
    np.testing.assert_array_equal(plant.log.u[:3, 0], [0.0, 0.1, 0.0])
    again = Simulator(pendulums, plant.log.x[-1])
    again.advance(plant.log.u[-1])
    np.testing.assert_array_equal(again.x, plant.x)


# --- controls and bad input -----------------------------------------------------------------------


@BOTH
def test_a_control_that_is_not_finite_is_refused_and_the_last_one_kept(kind, pendulums):
    plant, good = kind(pendulums, [0.1, 0.1, 0.0, 0.0]), kind(pendulums, [0.1, 0.1, 0.0, 0.0])
    for u in ([np.nan, 0.0], [0.3, 0.1], [np.inf, 0.0], [0.3, -np.inf]):
        plant.advance(u)
    for u in ([0.0, 0.0], [0.3, 0.1], [0.3, 0.1], [0.3, 0.1]):
        good.advance(u)
    assert plant.counts.refused == 3 and good.counts.refused == 0
    np.testing.assert_array_equal(plant.x, good.x)


@BOTH
def test_controls_are_clamped_where_asked(kind, arm):
    plant = kind(arm, still(arm), clamp=True)
    plant.advance(np.full(7, 1e4))
    np.testing.assert_array_equal(plant.u, arm.limits.effort)
    plant.advance(np.full(7, -1.0))
    np.testing.assert_array_equal(plant.u, np.full(7, -1.0))
    assert plant.counts.clamped == 1
    one_sided = kind(arm, still(arm), clamp=(0.0, [1, 2, 3, 4, 5, 6, 7]))
    one_sided.advance([-1, 9, 1, 1, 1, 1, 9])
    np.testing.assert_array_equal(one_sided.u, [0, 2, 1, 1, 1, 1, 7])
    free = kind(arm, still(arm))
    free.advance(np.r_[1e4, np.zeros(6)])
    assert free.u[0] == 1e4 and free.counts.clamped == 0


@BOTH
def test_an_acceleration_that_is_not_finite_is_an_error(kind, arm):
    plant = kind(arm, still(arm))
    with pytest.raises(RigidgradError, match="not finite"):
        plant.acceleration(np.full(7, 1e308))
    assert np.all(np.isfinite(plant.acceleration(np.zeros(7))))


@BOTH
def test_a_state_that_explodes_is_an_error_and_the_last_one_stays(
    kind, arm, recwarn, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    x0 = random_state(arm)
    plant = kind(arm, x0)
    with pytest.raises(RigidgradError, match="ran away"):
        plant.advance(np.full(7, 1e300), duration=0.003)
    assert np.isfinite(plant.x).all()
    fresh = kind(arm, plant.x)
    for p in (plant, fresh):
        p.advance(np.zeros(7))
    np.testing.assert_array_equal(plant.x, fresh.x)
    assert not list(tmp_path.iterdir()) and not recwarn.list and capfd.readouterr() == ("", "")


@BOTH
def test_bad_input_says_so_and_changes_nothing(kind, arm):
    plant = kind(arm, random_state(arm))
    before = plant.x
    for call, what in (
        (lambda: plant.advance(np.zeros(6)), r"u has shape \(6,\); expected \(7,\)"),
        (lambda: plant.advance(np.zeros((1, 7))), "u has shape"),
        (lambda: plant.advance("no"), "not an array"),
        (lambda: plant.advance(np.zeros(7), duration=0), "positive"),
        (lambda: plant.advance(np.ones(7), duration=np.nan), "NaN"),
        (lambda: plant.spoil("drop", 0), "count"),
        (lambda: kind(arm, np.zeros(14), seed=-1), "seed"),
        (lambda: plant.push((1, 2), 0.1, "iiwa_link_7"), "force has shape"),
        (lambda: plant.push(100.0, 0.1, "iiwa_link_7"), "force has shape"),
        (lambda: plant.push((1, 2, np.nan), 0.1, "iiwa_link_7"), "NaN"),
        (lambda: plant.push((1, 2, 3), -0.1, "iiwa_link_7"), "lasts"),
        (lambda: plant.push((1, 2, 3), 0.1, "iiwa_link_0"), "fixed to the world"),
        (lambda: plant.push((1, 2, 3), 0.1, "iiwa_link_7", at=-1.0), "too late"),
        (lambda: plant.set_payload(-1.0, "iiwa_link_7"), "at least 0"),
        (lambda: plant.set_payload(1.0, "iiwa_link_0"), "fixed to the world"),
        (lambda: plant.set_payload(1.0, "iiwa_link_7", inertia=-np.eye(3)), "eigenvalues"),
        (lambda: plant.reset(np.zeros(3)), "x0 has shape"),
        (lambda: plant.acceleration(np.zeros(3)), "u has shape"),
        (lambda: kind(arm, np.full(14, np.nan)), "NaN"),
        (lambda: kind(arm, np.zeros(14), dt=0.0), "positive"),
        (lambda: kind(arm, np.zeros(14), mass_error=-1.0), "no mass"),
        (lambda: kind(arm, np.zeros(14), mass_error=[0.1, 0.2]), "mass_error"),
        (lambda: kind(arm, np.zeros(14), friction=0.5), "friction is"),
        (lambda: kind(arm, np.zeros(14), friction=Friction(viscous=-1.0)), "friction resists"),
        (lambda: kind(arm, np.zeros(14), payload=3.0), "Payload"),
        (lambda: kind(arm, np.zeros(14), pushes=[(1, 2)]), "Push"),
        (lambda: kind(arm, np.zeros(14), clamp=3.0), "clamp"),
        (lambda: kind(arm, np.zeros(14), clamp=(1.0, -1.0)), "clamp"),
        (lambda: kind(arm, np.zeros(14), actuation=np.eye(3)), "actuation"),
        (lambda: kind("iiwa14", np.zeros(14)), "Robot"),
        (lambda: kind(rg.load("quadrotor"), np.zeros(13)), "length of the quaternion"),
        (lambda: Faults(drop=0.7, repeat=0.7), "at most 1"),
        (lambda: Faults(latency=-1.0), "not negative"),
        (lambda: Faults(noise_position="loud"), "numbers"),
        (
            lambda: kind(arm, np.zeros(14), faults=Faults(noise_position=(1.0, 2.0))),
            "noise_position",
        ),
        (lambda: random_errors(arm, 1.5), "relative errors"),
    ):
        with pytest.raises(InputError, match=what):
            call()
    for call in (
        lambda: plant.push((1, 2, 3), 0.1, "iiwa_link_77"),
        lambda: plant.set_payload(1.0, "iiwa_link_77"),
        lambda: kind(arm, np.zeros(14), integrator="magic"),
        lambda: kind(arm, np.zeros(14), payload=(1.0, "hand")),
    ):
        with pytest.raises(UnknownNameError):
            call()
    np.testing.assert_array_equal(plant.x, before)
    assert plant.time == 0.0 and plant.payload is None and not plant.u.any()


def test_what_mujoco_cannot_do_is_refused():
    def pair(**joint):
        box = {"mass": 1.0, "inertia": np.eye(3)}
        builder = rg.Builder("pair").link("a").link("b", **box).link("c", **box)
        return (
            builder.joint("one", "revolute", "a", "b")
            .joint("two", parent="b", child="c", **joint)
            .build(engine="numpy")
        )

    for robot, what in (
        (pair(type="helical", pitch=0.1), "helical"),
        (pair(type="revolute", mimic=("one", 2.0, 0.0)), "mimics"),
        (pair(type="planar", armature=0.1), "armature"),
    ):
        with pytest.raises(ModelError, match=what):
            MuJoCo(robot, still(robot))
    robot = pair(type="floating")
    MuJoCo(robot, still(robot), friction=Friction(viscous=0.1))
    with pytest.raises(InputError, match="viscous"):
        MuJoCo(robot, still(robot), friction=Friction(coulomb=0.1))
    robot = rg.load("pendulum")
    with pytest.raises(InputError, match="stiff"):
        MuJoCo(robot, still(robot), friction=Friction(coulomb=0.1), integrator="rk4")


def test_without_mujoco_the_error_says_what_to_install(monkeypatch, pendulums):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(RigidgradError, match=r"pip install rigidgrad\[plants\]"):
        MuJoCo(pendulums, np.zeros(4))


def test_plants_are_reached_through_the_package():
    assert rg.plants is plants
