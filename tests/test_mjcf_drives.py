"""Springs, actuators, tendons and couplings of MJCF files, against MuJoCo's own model of the same
file.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import InputError, ModelWarning

mujoco = pytest.importorskip("mujoco")

pytestmark = pytest.mark.filterwarnings("ignore::rigidgrad.errors.ModelWarning")

BODIES = """<body name="lower"><joint name="b" ref="20" springref="50" stiffness="3" damping="0.4"/>
  <geom size=".1 .3" type="capsule" pos=".1 .2 .3" mass="2"/>
  <body name="upper" pos="0 0 .5"><joint name="a" type="slide" axis="1 0 1" stiffness="40" springref=".1"/>
    <geom size=".1 .2" type="capsule" pos=".1 0 .2" mass="1"/>
    <body name="tip" pos="0 .2 .4"><joint name="c" type="ball" stiffness="1.5"/><geom size=".1 .2 .15" type="box" pos="0 .1 .1" mass=".7"/>
      <body name="nail"><joint name="d" axis="0 1 0"/><geom size=".05" pos=".2 0 0"/></body></body></body></body>"""
ACTUATORS = """<actuator>
  <position name="servo" joint="b" kp="30" kv="4" gear="2" forcerange="-25 25" ctrlrange="-1 1"/>
  <velocity name="speed" joint="a" kv="7"/>
  <motor name="direct" joint="d" gear="-3" ctrlrange="-.5 .8"/>
  <motor name="turn" joint="c" gear="1 2 3"/>
  <general name="affine" joint="d" gainprm="2 .3 -.2" gaintype="affine" biastype="affine" biasprm=".5 -1 -.7"/>
  <position name="pull" tendon="rope" kp="12" kv="1"/>
  <motor name="twist" tendon="rope" gear="5" forcerange="-6 6"/>
  </actuator>"""
ROPE = """<tendon><fixed name="rope"><joint joint="a" coef=".7"/><joint joint="d" coef="-.4"/></fixed></tendon>"""


def mjcf(*parts, bodies=BODIES):
    return f'<mujoco model="m"><worldbody>{bodies}</worldbody>{"".join(parts)}</mujoco>'


def accelerations(text, state, u=None):
    """MuJoCo's, of its own model of a text, without contacts and limits, in our layout."""
    model = mujoco.MjModel.from_xml_string(text)
    model.opt.disableflags |= int(
        mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_LIMIT
    )
    data = mujoco.MjData(model)
    robot = rg.load(text)
    convert = rg.interop.states(robot, model)
    theirs = convert.to(state.q, state.v, tau=state.tau)
    result = []
    for k in range(len(state.q)):
        data.qpos[:], data.qvel[:], data.qfrc_applied[:] = theirs.q[k], theirs.v[k], theirs.tau[k]
        if u is not None:
            data.qfrc_applied[:] = 0.0
            data.ctrl[:] = u[k]
        mujoco.mj_forward(model, data)
        result.append(convert.back(data.qpos, data.qvel, data.qacc).a)
    return np.array(result)


@pytest.mark.parametrize("kind", [rg.plants.Simulator, rg.plants.MuJoCo])
def test_springs_pull_in_plants_that_are_asked(kind):
    text = mjcf()
    robot = rg.load(text)
    state = robot.random((3,), seed=1)
    expected = accelerations(text, state)
    for k in range(3):
        x = np.concatenate([state.q[k], state.v[k]])
        plant = kind(robot, x, friction="model", springs="model")
        np.testing.assert_allclose(
            plant.acceleration(state.tau[k]), expected[k], rtol=1e-7, atol=1e-7
        )
    quiet = kind(robot, np.concatenate([state.q[0], state.v[0]]))
    np.testing.assert_allclose(
        quiet.acceleration(state.tau[0]), robot.aba(*(x[0] for x in state)), rtol=1e-7, atol=1e-7
    )
    with pytest.raises(InputError, match="springs are None"):
        kind(robot, np.zeros(robot.nq + robot.nv), springs=True)


@pytest.mark.parametrize("kind", [rg.plants.Simulator, rg.plants.MuJoCo])
def test_servos_motors_and_tendons_give_mujocos_forces(kind):
    text = mjcf(ROPE, ACTUATORS)
    robot = rg.load(text)
    assert tuple(robot.actuation) == ("servo", "speed", "direct", "turn", "affine", "pull", "twist")
    state = robot.random((4,), seed=2)
    u = np.random.default_rng(3).uniform(-2, 2, (4, 7))
    expected = accelerations(text, state, u)
    for k in range(4):
        x = np.concatenate([state.q[k], state.v[k]])
        plant = kind(robot, x, friction="model", springs="model", servos=True)
        np.testing.assert_allclose(plant.acceleration(u[k]), expected[k], rtol=1e-7, atol=1e-7)


def test_a_servo_moves_as_in_mujoco():
    text = mjcf(ACTUATORS.split("<motor")[0] + "</actuator>")
    robot = rg.load(text)
    x = np.concatenate([robot.neutral(), np.zeros(robot.nv)])
    model = mujoco.MjModel.from_xml_string(text)
    model.opt.timestep, model.opt.integrator = 1e-4, int(mujoco.mjtIntegrator.mjINT_RK4)
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    data = mujoco.MjData(model)
    data.qpos[:] = rg.interop.states(robot, model).to(robot.neutral()).q
    u = [0.4, -0.2]
    for kind in (rg.plants.Simulator, rg.plants.MuJoCo):
        plant = kind(robot, x, 2e-4, friction="model", springs="model", servos=True)
        for _ in range(500):
            plant.advance(u)
        if data.time == 0.0:
            data.ctrl[:] = u
            for _ in range(1000):
                mujoco.mj_step(model, data)
        there = rg.interop.states(robot, model).back(data.qpos, data.qvel)
        np.testing.assert_allclose(plant.x, np.concatenate([there.q, there.v]), atol=2e-3)


def test_controls_of_problems_are_forces_within_the_actuators_ranges():
    robot = rg.load(mjcf(ROPE, ACTUATORS))
    assert robot.actuation["direct"] == {"d": (-3.0,)}
    assert robot.actuation["servo"] == {"b": (2.0,)}  # of the servo, the control is its force
    assert robot.actuation["turn"] == {"c": (1.0, 2.0, 3.0)}
    assert robot.actuation["twist"] == {"a": (3.5,), "d": (-2.0,)}
    bounds = {a.name: (a.lower, a.upper) for a in robot.model.description.actuators}
    assert bounds["direct"] == (-0.5, 0.8) and bounds["servo"] == (-25.0, 25.0)
    assert bounds["twist"] == (-6.0, 6.0) and bounds["speed"] == (-np.inf, np.inf)


def constrained(text, state, rows):
    """Accelerations of MuJoCo's bodies with rows · q̈ = 0 held exactly, in our coordinates."""
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    robot = rg.load(text)
    convert = rg.interop.states(robot, model)
    theirs = convert.to(state.q, state.v, tau=state.tau)
    result = []
    for k in range(len(state.q)):
        data.qpos[:], data.qvel[:] = theirs.q[k], theirs.v[k]
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(rows @ data.qvel, 0, atol=1e-12)
        M, n, m = np.zeros((model.nv, model.nv)), model.nv, len(rows)
        if mujoco.__version__ >= "4":
            mujoco.mj_fullM(model, data, M)
        else:
            mujoco.mj_fullM(model, M, data.qM)
        K = np.block([[M, rows.T], [rows, np.zeros((m, m))]])
        found = np.linalg.solve(K, np.concatenate([theirs.tau[k] - data.qfrc_bias, np.zeros(m)]))
        result.append(convert.back(theirs.q[k], theirs.v[k], found[:n]).a)
    return np.array(result)


CHAIN = """<body name="p"><joint name="x" ref="10"/><geom size=".1" pos=".2 0 0"/>
  <body name="q" pos=".5 0 0"><joint name="y" axis="0 1 1" ref="-5" springref="30" stiffness="2"/><geom size=".1" pos=".2 0 .1"/>
    <body name="r" pos=".5 0 0"><joint name="z" type="slide" axis="0 1 0"/><geom size=".1" pos="0 .1 .1"/></body></body></body>"""
COUPLINGS = {
    "joints": (
        '<equality><joint joint1="y" joint2="x" polycoef=".2 -1.5 0 0 0"/></equality>',
        [[-1.5, -1, 0]],  # of x, y, z
        lambda q: q[1] - np.radians(-5) - (0.2 - 1.5 * (q[0] - np.radians(10))),
    ),
    "one tendon": (
        '<tendon><fixed name="t"><joint joint="x" coef="1"/><joint joint="z" coef="-4"/></fixed>'
        '</tendon><equality><tendon tendon1="t" polycoef=".1 0 0 0 0"/></equality>',
        [[1, 0, -4]],
        lambda q: (q[0] - np.radians(10)) - 4 * q[2] - 0.1,
    ),
    "a chain": (
        '<equality><joint joint1="y" joint2="x" polycoef="0 2 0 0 0"/>'
        '<joint joint1="z" joint2="y" polycoef=".3 .5 0 0 0"/></equality>',
        [[2, -1, 0], [0, 0.5, -1]],
        lambda q: q[2] - 0.3 - 0.5 * (q[1] - np.radians(-5)),
    ),
}


@pytest.mark.parametrize("case", COUPLINGS)
def test_linear_couplings_are_mimic_joints(case):
    more, rows, equation = COUPLINGS[case]
    text = mjcf(more, bodies=CHAIN)
    robot = rg.load(text)
    assert robot.nv == 3 - len(rows) and len(robot.joints) == 3
    state = robot.random((3,), seed=4)
    expected = constrained(text, state, np.array(rows, dtype=float))
    np.testing.assert_allclose(robot.aba(*state), expected, rtol=1e-9, atol=1e-9)
    model = mujoco.MjModel.from_xml_string(text)
    for q in rg.interop.states(robot, model).to(state.q).q:
        assert equation(q) == pytest.approx(0, abs=1e-12)


def test_a_servo_on_a_joint_that_follows_is_felt_by_its_master():
    couple = '<equality><joint joint1="y" joint2="x" polycoef=".2 -1.5 0 0 0"/></equality>'
    servo = '<actuator><position name="s" joint="y" kp="5" gear="2"/></actuator>'
    robot = rg.load(mjcf(couple, servo, bodies=CHAIN))
    assert robot.actuation == {"s": {"x": (-3.0,)}}
    (law,) = (a.servo for a in robot.model.description.actuators)
    q = robot.random(seed=1).q
    y = -1.5 * (q[0] - np.radians(10)) + 0.2 + np.radians(-5)
    assert law.offset - 3.0 * q[0] == pytest.approx(2 * y)
    x = np.concatenate([q, np.zeros(2)])
    plain = rg.plants.Simulator(robot, x, actuation="joints", springs="model")
    driven = rg.plants.Simulator(robot, x, servos=True, springs="model")
    force = 5 * (0.7 - 2 * y)
    np.testing.assert_allclose(driven.acceleration([0.7]), plain.acceleration([force]), rtol=1e-9)
    # the spring of y pulls at x with its lever
    loose = rg.plants.Simulator(robot, x, actuation="all")
    pull = -2 * (y - np.radians(30))
    np.testing.assert_allclose(
        plain.acceleration([0.0]), loose.acceleration([-1.5 * pull, 0.0]), rtol=1e-9
    )


def test_rotors_of_actuators_are_the_joints():
    rotor = '<actuator><motor joint="x" gear="3" armature=".5" damping=".7"/></actuator>'
    try:
        mujoco.MjModel.from_xml_string(mjcf(rotor, bodies=CHAIN))
    except ValueError:
        pytest.skip("this MuJoCo has no armature of actuators")
    robot = rg.load(mjcf(rotor, bodies=CHAIN))
    state = robot.random((2,), seed=5)
    assert robot.model.joints[0].damping == pytest.approx(6.3)
    plants = [
        rg.plants.Simulator(
            robot, np.concatenate([q, v]), friction="model", springs="model"
        ).acceleration(t)
        for q, v, t in zip(*state, strict=True)
    ]
    np.testing.assert_allclose(plants, accelerations(mjcf(rotor, bodies=CHAIN), state), rtol=1e-7)


def test_what_is_left_out_is_named_once():
    text = mjcf(
        '<tendon><fixed name="band" stiffness="3" frictionloss="1"><joint joint="x" coef="1"/></fixed>'
        '<spatial name="cord"><site site="s1"/><site site="s2"/></spatial></tendon>',
        '<equality><joint name="bent" joint1="y" joint2="x" polycoef="0 1 2 0 0"/>'
        '<joint name="still" joint1="z"/></equality>',
        '<actuator><motor name="winch" tendon="cord"/><muscle name="biceps" joint="x"/>'
        '<intvelocity name="creep" joint="y" actrange="-1 1"/><position name="hold" joint="z"/>'
        "</actuator>",
        bodies=CHAIN.replace('<geom size=".1" pos=".2 0 0"/>', '<geom size=".1" pos=".2 0 0"/><site name="s1"/>', 1)
        .replace('<geom size=".1" pos="0 .1 .1"/>', '<geom size=".1" pos="0 .1 .1"/><site name="s2"/>'),
    )  # fmt: skip
    with pytest.warns(ModelWarning) as caught:
        robot = rg.load(text)
    (said,) = (str(w.message) for w in caught)
    for what in (
        "spring of tendon 'band'", "dry friction of tendon 'band'", "spatial tendon 'cord'",
        "'bent', which is not linear", "'still', which ties no two joints",
        "actuator on a spatial tendon 'winch'", "of actuator ('biceps', 'creep')",
        "spring of joint 'y'", "servo 'hold'",
    ):  # fmt: skip
        assert said.count(what) == 1, what
    assert tuple(robot.actuation) == ("biceps", "creep", "hold")


def test_joint_limits_hold_in_mujoco_where_asked():
    text = '<mujoco><worldbody><body name="p"><joint name="x" axis="0 1 0" range="-10 10"/><geom size=".1" pos=".3 0 0"/></body></worldbody></mujoco>'
    robot = rg.load(text)
    free, held = (rg.plants.MuJoCo(robot, np.zeros(2), 0.5, limits=x) for x in (False, True))
    free.advance([0.0])
    held.advance([0.0])
    assert free.x[0] > 1.0 and abs(held.x[0]) < 0.2


def test_files_without_springs_and_actuators_say_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        robot = rg.load('<mujoco><worldbody><body><joint name="x"/><geom size=".1"/></body></worldbody><actuator><motor joint="x" gear="2"/></actuator></mujoco>')  # fmt: skip
    assert robot.actuation == {"x": {"x": (2.0,)}}
    with pytest.raises(InputError, match=r"no actuator of .* is a servo"):
        rg.plants.Simulator(robot, np.zeros(2), servos=True)
