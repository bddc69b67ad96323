"""The robots that come with the package: complete, displayable without meshes, and with the
dynamics that their headers state.
"""

import warnings
import xml.etree.ElementTree as ET
from importlib.resources import files

import numpy as np
import pytest

import rigidgrad as rg

ROBOTS = files("rigidgrad.model") / "robots"
NAMES = [
    "atlas",
    "cartpole",
    "double_integrator",
    "double_pendulum",
    "hyq",
    "iiwa14",
    "pendulum",
    "quadrotor",
]
MASSES = {"iiwa14": 30.61, "hyq": 86.774, "atlas": 160.854}  # kg, sums of the published figures
GRAVITY = 9.81


def parsed(name):
    return ET.fromstring((ROBOTS / f"{name}.urdf").read_text(encoding="utf-8"))


@pytest.fixture
def random():
    return np.random.default_rng(0)


def test_exactly_eight_robots_are_bundled():
    assert sorted(file.name for file in ROBOTS.iterdir()) == [f"{name}.urdf" for name in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_every_bundled_robot_passes_the_strict_physical_checks_without_a_warning(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rg.load(name).name == parsed(name).get("name") == name


@pytest.mark.parametrize("name", NAMES)
def test_every_link_with_mass_has_a_simple_coloured_shape(name):
    robot = parsed(name)
    colours = {material.get("name") for material in robot.findall("material")}
    for link in robot.findall("link"):
        visuals = link.findall("visual")
        assert visuals or link.find("inertial") is None, link.get("name")
        for visual in visuals:
            (shape,) = visual.find("geometry")
            assert shape.tag in {"box", "cylinder", "sphere"}
            assert visual.find("material").get("name") in colours


@pytest.mark.parametrize("name", NAMES)
def test_no_bundled_robot_refers_to_a_mesh_or_another_file(name):
    assert not [
        element
        for element in parsed(name).iter()
        if element.tag == "mesh" or "filename" in element.attrib
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_bundled_robot_states_what_it_is_before_anything_else(name):
    declaration, comment, *_ = (ROBOTS / f"{name}.urdf").read_text(encoding="utf-8").splitlines()
    assert declaration == '<?xml version="1.0"?>'
    assert comment == "<!--"


# The published robots.


@pytest.mark.parametrize(
    ("name", "fixed", "floating"), [("iiwa14", 7, 13), ("hyq", 12, 18), ("atlas", 30, 36)]
)
def test_published_robots_have_their_degrees_of_freedom(name, fixed, floating):
    robot = rg.load(name)
    assert (robot.nq, robot.nv, len(robot.joints)) == (fixed, fixed, fixed)
    robot = rg.load(name, floating_base=True)
    assert (robot.nq, robot.nv, len(robot.joints)) == (floating + 1, floating, fixed + 1)


@pytest.mark.parametrize("name", MASSES)
def test_published_robots_weigh_what_was_published(name):
    robot = rg.load(name, floating_base=True)
    np.testing.assert_allclose(
        robot.crba(robot.neutral())[:3, :3], MASSES[name] * np.eye(3), rtol=1e-13, atol=1e-12
    )


@pytest.mark.parametrize("name", MASSES)
@pytest.mark.parametrize("floating_base", [False, True], ids=["fixed", "floating"])
def test_pinocchio_reads_the_same_file_as_the_same_robot(name, floating_base, random):
    pin = pytest.importorskip("pinocchio")
    base = (pin.JointModelFreeFlyer(),) if floating_base else ()
    model = pin.buildModelFromXML((ROBOTS / f"{name}.urdf").read_text(encoding="utf-8"), *base)
    robot = rg.load(name, floating_base=floating_base)

    assert list(robot.joints) == list(model.names)[1:]
    actuated = slice(6 - robot.nv, None) if floating_base else slice(None)
    np.testing.assert_array_equal(robot.limits.lower[actuated], model.lowerPositionLimit[actuated])
    np.testing.assert_array_equal(robot.limits.upper[actuated], model.upperPositionLimit[actuated])
    np.testing.assert_array_equal(
        robot.limits.velocity[actuated], model.upperVelocityLimit[actuated]
    )
    np.testing.assert_array_equal(robot.limits.effort[actuated], model.upperEffortLimit[actuated])

    q = pin.integrate(model, pin.neutral(model), random.uniform(-1, 1, model.nv))
    v, a = random.uniform(-1, 1, (2, model.nv))
    np.testing.assert_allclose(
        robot.rnea(q, v, a), pin.rnea(model, model.createData(), q, v, a), rtol=1e-11, atol=1e-10
    )


def test_the_iiwa_stands_upright_at_zero():
    robot = rg.load("iiwa14")
    flange = robot.forward_kinematics(robot.neutral())["iiwa_link_ee"]
    np.testing.assert_allclose(
        flange[:3, 3],
        (0, 0, 0.1575 + 0.2025 + 0.2045 + 0.2155 + 0.1845 + 0.2155 + 0.081 + 0.045),
        atol=1e-14,
    )


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [("hyq", "lf_lowerleg", "rf_lowerleg"), ("atlas", "l_foot", "r_foot")],
)
def test_legs_hang_symmetrically_from_the_base(name, left, right):
    robot = rg.load(name)
    T = robot.forward_kinematics(robot.neutral())
    left, right = T[left][:3, 3], T[right][:3, 3]
    assert left[1] > 0.08
    assert left[2] < -0.4
    np.testing.assert_allclose(right, left * (1, -1, 1), atol=1e-11)


# The systems of control studies, against equations written by hand.


def test_the_double_integrator_accelerates_as_pushed(random):
    robot = rg.load("double_integrator")
    assert list(robot.joints) == ["slider"]
    q, v, u = random.uniform(-5, 5, (3, 64, 1))
    np.testing.assert_allclose(robot.aba(q, v, u), u, rtol=1e-15)


def test_the_pendulum_obeys_its_textbook_equation(random):
    robot = rg.load("pendulum")
    assert list(robot.joints) == ["hinge"]
    assert robot.nq == 1
    q, v, u = random.uniform(-7, 7, (3, 64, 1))
    np.testing.assert_allclose(robot.aba(q, v, u), u - GRAVITY * np.sin(q), rtol=0, atol=2e-14)


def test_the_cart_pole_obeys_the_equations_of_two_unit_masses_and_a_unit_length(random):
    robot = rg.load("cartpole")
    assert list(robot.joints) == ["slider", "pole"]
    assert robot.nq == 2
    q, v, a = random.uniform(-4, 4, (3, 64, 2))
    sin, cos = np.sin(q[:, 1]), np.cos(q[:, 1])

    M = np.empty((64, 2, 2))
    M[:, 0, 0], M[:, 0, 1], M[:, 1, 0], M[:, 1, 1] = 2.0, cos, cos, 1.0
    np.testing.assert_allclose(robot.crba(q), M, rtol=0, atol=2e-15)

    force = 2 * a[:, 0] + cos * a[:, 1] - sin * v[:, 1] ** 2
    torque = cos * a[:, 0] + a[:, 1] + GRAVITY * sin
    np.testing.assert_allclose(
        robot.rnea(q, v, a), np.stack([force, torque], axis=-1), rtol=0, atol=5e-14
    )


def test_the_double_pendulum_has_the_weight_and_inertia_of_two_uniform_rods(random):
    robot = rg.load("double_pendulum")
    assert list(robot.joints) == ["shoulder", "elbow"]
    q = random.uniform(-4, 4, (64, 2))
    upper, lower = np.sin(q[:, 0]), np.sin(q[:, 0] + q[:, 1])
    weight = GRAVITY * np.stack([1.5 * upper + 0.5 * lower, 0.5 * lower], axis=-1)
    np.testing.assert_allclose(
        robot.rnea(q, np.zeros_like(q), np.zeros_like(q)), weight, rtol=0, atol=2e-14
    )

    rod = (3 * 0.02**2 + 1) / 12  # a cylinder across its axis, about its centre
    M = np.empty((64, 2, 2))
    M[:, 0, 0] = 2 * rod + 0.25 + 1.25 + np.cos(q[:, 1])
    M[:, 0, 1] = M[:, 1, 0] = rod + 0.25 + np.cos(q[:, 1]) / 2
    M[:, 1, 1] = rod + 0.25
    np.testing.assert_allclose(robot.crba(q), M, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", ["double_integrator", "pendulum", "double_pendulum", "cartpole"])
def test_study_systems_move_without_end_stops(name):
    limits = rg.load(name).limits
    assert np.all(np.isneginf(limits.lower))
    assert np.all(np.isposinf(limits.upper))


def test_the_quadrotor_falls_with_g_however_it_is_tilted(random):
    robot = rg.load("quadrotor")
    assert list(robot.joints) == ["free_flyer"]
    assert (robot.nq, robot.nv) == (7, 6)
    quaternion = random.normal(size=4)
    quaternion /= np.linalg.norm(quaternion)
    x, y, z, w = quaternion
    down_in_body = (-2 * (x * z - w * y), -2 * (y * z + w * x), -(1 - 2 * (x * x + y * y)))
    q = np.concatenate([random.normal(size=3), quaternion])
    fall = robot.aba(q, np.zeros(6), np.zeros(6))
    np.testing.assert_allclose(fall, [*(GRAVITY * np.array(down_in_body)), 0, 0, 0], atol=1e-14)


def test_the_quadrotor_hovers_on_its_weight():
    robot = rg.load("quadrotor")
    hover = robot.rnea(robot.neutral(), np.zeros(6), np.zeros(6))
    np.testing.assert_allclose(hover, [0, 0, 0.5 * GRAVITY, 0, 0, 0], atol=1e-15)
    np.testing.assert_allclose(
        robot.crba(robot.neutral()), np.diag([0.5, 0.5, 0.5, 0.0023, 0.0023, 0.004]), atol=1e-16
    )


def test_the_rotors_sit_at_the_ends_of_a_plus():
    robot = rg.load("quadrotor")
    T = robot.forward_kinematics(robot.neutral())
    ends = [(0.175, 0, 0), (0, 0.175, 0), (-0.175, 0, 0), (0, -0.175, 0)]
    for number, end in enumerate(ends, start=1):
        assert f"rotor_{number}" in robot.frames
        np.testing.assert_allclose(T[f"rotor_{number}"][:3, 3], end, atol=1e-16)
