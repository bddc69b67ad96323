"""What drives a robot: nothing on a floating base unless asked for, and of bundled robots what they
have.
"""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.control.limits import Limits
from rigidgrad.errors import InputError, RigidgradError, UrdfError

ARM = 0.175
ROTORS = [
    [0, 0, 0, 0],
    [0, 0, 0, 0],
    [1, 1, 1, 1],
    [0, ARM, 0, -ARM],
    [-ARM, 0, ARM, 0],
    [0.0245, -0.0245, 0.0245, -0.0245],
]


def ball(joint: str) -> rg.Robot:
    """A joint at the root, with a hinge and another such joint behind it."""
    inertia = (0.1, 0.1, 0.1)
    build = rg.Builder("ball")
    for name in ("base", "upper", "lower", "hand"):
        build = build.link(name, mass=1.0, com=(0.0, 0.0, -0.1), inertia=inertia)
    build = build.joint("first", joint, "base", "upper").joint(
        "hinge", "revolute", "upper", "lower", axis=(0, 1, 0)
    )
    return build.joint("last", joint, "lower", "hand", xyz=(0, 0, -0.2)).build()


def free_arm() -> rg.Robot:
    """Two hinges on a body that floats."""
    build = rg.Builder("free_arm")
    for name in ("trunk", "upper", "lower"):
        build = build.link(name, mass=1.0, com=(0.0, 0.0, -0.1), inertia=(0.1, 0.1, 0.1))
    build = build.joint("shoulder", "revolute", "trunk", "upper", axis=(0, 1, 0))
    fixed = build.joint(
        "elbow", "revolute", "upper", "lower", xyz=(0, 0, -0.2), axis=(0, 1, 0)
    ).build()
    return rg.load(fixed.to_urdf(), floating_base=True)


def reach(robot, **options):
    start = np.r_[robot.neutral(), np.zeros(robot.nv)]
    costs = [rg.costs.State(start, weight=1.0, final=10.0), rg.costs.Effort(1e-3)]
    return rg.Problem(robot, start=start, steps=5, dt=0.01, costs=costs, **options)


def test_no_force_acts_on_a_floating_base():
    robot = free_arm()
    problem = reach(robot)
    solution = rg.solve(problem)
    assert solution.u.shape == (5, 2) and problem.system.controls == ("shoulder", "elbow")
    q, v = np.split(solution.x, [robot.nq], axis=1)
    a = np.diff(v, axis=0) / 0.01
    wrench = robot.rnea(q[:-1], v[:-1], a)[:, :6]
    assert abs(wrench).max() < 1e-9  # it falls
    assert solution.x[-1, 2] < -1e-3
    everything = rg.solve(reach(robot, actuation="all"))
    # held up by a force from nowhere
    assert everything.u.shape == (5, 8) and everything.u[:, 2].min() > 1.0


@pytest.mark.parametrize("joint", ["floating", "planar", "spherical"])
def test_free_joints_are_not_driven(joint):
    robot = ball(joint)
    system = rg.RobotSystem(robot)
    nv = robot.model.joints[0].nv
    assert not np.array(system.actuation)[:nv].any()
    # behind a hinge, a planar or a spherical joint is part of the robot, a floating one never
    assert system.nu == (1 if joint == "floating" else 1 + nv)
    assert "not driven: first" in system.driven


def test_bundled_robots_have_the_motors_that_they_have():
    cart, quadrotor = (rg.RobotSystem(rg.load(name)) for name in ("cartpole", "quadrotor"))
    assert (
        cart.actuation == ((1.0,), (0.0,)) and cart.driven == "1 control: slider; not driven: pole"
    )
    assert np.array_equal(quadrotor.actuation, ROTORS)
    lower, upper = Limits(torque=True).control_bounds(quadrotor, 1)
    # rotors only push, up to twice what hovering takes
    assert np.all(lower == 0.0) and np.all(upper == 0.5 * 9.81 / 2)
    for name in set(rg.bundled()) - {"cartpole", "quadrotor"}:
        assert rg.RobotSystem(rg.load(name)).actuation is None


def test_every_notation_says_the_same():
    robot = rg.load("cartpole")
    force = [[2.0], [0.5]]
    same = rg.RobotSystem(robot, {"belt": {"slider": 2.0, "pole": [0.5]}})
    assert np.array_equal(same.actuation, force) and np.array_equal(
        rg.RobotSystem(robot, np.array(force)).actuation, force
    )
    assert (
        rg.RobotSystem(robot, ["pole"]).actuation
        == ((0.0,), (1.0,))
        == rg.RobotSystem(robot, [[0.0], [1.0]]).actuation
    )
    assert rg.RobotSystem(robot, [[0.0], [1.0]]).controls == ("pole",) and same.controls == (
        "belt",
    )
    assert rg.RobotSystem(robot, "all").actuation is None
    assert reach(robot, actuation=["pole"]).system.key() == rg.RobotSystem(robot, ["pole"]).key()


def test_forces_that_no_motor_exerts_are_named():
    hyq, quadrotor = rg.load("hyq", floating_base=True), rg.load("quadrotor")
    assert (
        rg.RobotSystem(hyq).beyond_own
        == ()
        == rg.RobotSystem(quadrotor, np.array(ROTORS) @ np.eye(4)[:, :2]).beyond_own
    )
    assert rg.RobotSystem(hyq, "all").beyond_own == ("root_joint",) and rg.RobotSystem(
        quadrotor, "all"
    ).beyond_own == ("free_flyer",)
    assert (
        "forces that no motor of the robot exerts: on root_joint"
        in rg.RobotSystem(hyq, "all").driven
    )


def test_a_problem_says_what_is_driven():
    problem = reach(rg.load("cartpole"), limits=rg.Limits(torque=5.0, velocity=3.0))
    assert "driven  1 control: slider; not driven: pole" in str(
        problem
    ) and "limits  Torque, Velocity" in str(problem)
    assert "not driven: pole" in repr(problem) and "State, Effort" in str(problem)
    own = rg.CustomSystem(lambda x, u: (u[0],), 1, 1)
    assert "1 control of dynamics of your own" in str(
        rg.Problem(own, [0.0], 2, 0.1, costs=[rg.costs.Effort(1.0)])
    )


def test_actuators_go_along_with_a_robot():
    for name in ("cartpole", "quadrotor"):
        robot = rg.load(name)
        for other in (rg.load(robot.to_urdf()), pickle.loads(pickle.dumps(robot))):
            assert other.model.description.actuators == robot.model.description.actuators
    cart, arm = rg.load("cartpole"), rg.load("pendulum")
    assert (
        cart.reduced(lock={"pole": 0.0}).actuation == cart.actuation
        and cart.reduced(lock={"slider": 0.0}).actuation == {}
    )
    both = cart.attach(arm, "rod", prefix="my_")
    assert list(both.actuation) == ["slider", "my_hinge"] and list(
        arm.attach(cart, "arm", prefix="my_").actuation
    ) == [
        "hinge",
        "my_slider",
    ]
    system = pickle.loads(pickle.dumps(rg.RobotSystem(cart, {"belt": {"pole": 1.0}})))
    assert system.controls == ("belt",)


@pytest.mark.parametrize(
    ("actuation", "text"),
    [
        ("none", 'actuation is "joints"'),
        (["pol"], "'pole'"),
        ([[1.0]], r"matrix \(2, nu\)"),
        ([[1.0], [2.0, 3.0]], r"matrix \(2, nu\)"),
        ([[np.nan], [1.0]], "NaN"),
        ({"a": {"slider": [1.0, 2.0]}}, "'a' on 'slider'"),
        ({"a": 3.0}, "force per unit"),
        (["pole", "pole"], "twice"),
        ([], "matrix"),
        (5, "matrix"),
    ],
)
def test_what_is_no_actuation_is_refused(actuation, text):
    with pytest.raises(RigidgradError, match=text):
        rg.RobotSystem(rg.load("cartpole"), actuation)


def test_a_robot_that_nothing_drives_and_a_system_with_an_actuation_are_refused():
    urdf = (
        '<robot name="stone"><link name="world"/><link name="stone"><inertial><mass'
        ' value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0"'
        ' iyz="0"/></inertial></link>{}</robot>'
    )
    stone = rg.load(
        urdf.format(
            '<joint name="free" type="floating"><parent link="world"/><child link="stone"/></joint>'
        )
    )
    with pytest.raises(InputError, match=r"nothing drives 'stone'.*actuation="):
        reach(stone)
    with pytest.raises(InputError, match="actuation goes with a Robot"):
        rg.Problem(
            rg.RobotSystem(stone, "all"),
            np.zeros(13),
            2,
            0.1,
            costs=[rg.costs.Effort(1.0)],
            actuation="all",
        )


@pytest.mark.parametrize(
    ("element", "text"),
    [
        ('<actuator name="a" joint="nothing" force="1"/>', "no joint that can be driven"),
        ('<actuator name="a" joint="slider" force="1 2"/>', "1 number"),
        ('<actuator name="a" joint="slider"/>', "has no force"),
        ('<actuator joint="slider" force="1"/>', "has no name"),
        ('<actuator name="a" joint="slider" force="1" lower="2" upper="1"/>', "exchange them"),
    ],
)
def test_wrong_actuators_of_a_file_are_refused(element, text):
    good = rg.load("cartpole").to_urdf()
    with pytest.raises(UrdfError, match=f"line .*{text}"):
        rg.load(good.replace('<actuator name="slider" joint="slider" force="1.0" />', element))


def test_a_robot_says_what_it_has_motors_for():
    assert "driven by 1 motor of its own; without a motor: pole" in str(rg.load("cartpole"))
    assert "driven by 12 motors of its own; without a motor: root_joint" in str(
        rg.load("hyq", floating_base=True)
    )
    assert "driven by 7 motors of its own\n" in str(rg.load("iiwa14"))


CARTPOLE = """<mujoco model="cartpole"><worldbody><body name="cart"><joint name="slide" type="slide" axis="1 0 0"/><geom type="box" size=".2 .1 .1" mass="1"/>
  <body name="pole"><joint name="swing" type="hinge" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -.5" size=".03" mass=".1"/></body></body></worldbody>
  <actuator>{}</actuator></mujoco>"""


@pytest.mark.parametrize(
    ("actuators", "driven"),
    [
        ('<motor joint="slide" gear="10"/>', ["slide"]),
        ('<position joint="swing"/>', ["swing"]),
        ('<motor joint="slide"/><motor joint="swing"/>', ["slide", "swing"]),
        ("", ["slide", "swing"]),
    ],
)
def test_an_mjcf_drives_the_joints_that_its_actuators_drive(actuators, driven):
    """A cart-pole's pole has no motor, unless the file gives it one."""
    pytest.importorskip("mujoco")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        robot = rg.load(CARTPOLE.format(actuators))
    problem = rg.Problem(robot, start=np.zeros(4), steps=5, dt=0.02, costs=[rg.costs.Effort(1.0)])
    assert problem.system.nu == len(driven)
    assert [a.name for a in problem.system.actuators] == driven
    assert all(name in str(problem) for name in driven)
