"""Worlds move as MuJoCo says."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

import worlds_cases as cases  # noqa: E402

import rigidgrad as rg  # noqa: E402
from rigidgrad.errors import InputError, ModelWarning, UnknownNameError  # noqa: E402

EXACT = {"dtype": "float64", "tolerance": 1e-17, "iterations": 200}


def worst(found, expected):
    """The largest error of a state, against its largest number."""
    scale = np.abs(expected).max(axis=1)
    return (np.abs(found - expected).max(axis=1) / scale).max()


@pytest.fixture(scope="module", params=["pyramidal", "elliptic"])
def toys(request):
    """The model, and worlds and MuJoCo at the same states."""
    m = cases.exact(mujoco.MjModel.from_xml_string(cases.TOYS))
    m.opt.cone = getattr(mujoco.mjtCone, f"mjCONE_{request.param.upper()}")
    m.opt.impratio = 3.0
    qpos, qvel, u = cases.states(m, 203, (-0.1, 0.5))
    data = cases.mujoco_forward(m, qpos, qvel, u)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        worlds = rg.worlds.Worlds(m, len(qpos), dt=None, **EXACT)
    worlds.reset(qpos=qpos, qvel=qvel)
    kinds = {frozenset(names) for names in worlds.slots}
    known = [
        all(frozenset((m.geom(c.geom1).name, m.geom(c.geom2).name)) in kinds for c in d.contact)
        for d in data
    ]
    return m, worlds, worlds.forward(u), data, np.array(known)


def test_accelerations_are_those_of_mujoco(toys):
    _, worlds, found, data, known = toys
    expected = np.array([d.qacc for d in data])
    assert known.sum() > 100
    assert np.mean([d.ncon for d in data]) > 2
    assert worst(found.qacc[known], expected[known]) < 1e-9
    assert not worlds.unfinished.any()


def test_contacts_are_those_of_mujoco(toys):
    m, worlds, found, data, known = toys
    contacts, count = found.contacts, 0
    wrench = np.zeros(6)
    for k in np.flatnonzero(known):
        d = data[k]
        assert contacts.touching[k].sum() - sum(
            worlds.slots[s] == ("limit",) for s in np.flatnonzero(contacts.touching[k])
        ) == len(d.contact)
        for i, c in enumerate(d.contact):
            own = contacts.between(m.geom(c.geom1).name, m.geom(c.geom2).name)
            own &= contacts.touching[k]
            s = min(np.flatnonzero(own), key=lambda s: np.abs(contacts.place[k, s] - c.pos).max())
            assert contacts.distance[k, s] == pytest.approx(c.dist, abs=1e-12)
            np.testing.assert_allclose(contacts.place[k, s], c.pos, atol=1e-12)
            np.testing.assert_allclose(contacts.frame[k, s].ravel(), c.frame, atol=1e-9)
            mujoco.mj_contactForce(m, d, i, wrench)
            scale = 1e-7 * max(np.abs(wrench).max(), 1.0)
            np.testing.assert_allclose(contacts.force[k, s], wrench, atol=scale)
            count += 1
    assert count > 200


def test_a_pair_without_a_function_is_named():
    with pytest.warns(ModelWarning, match=r"2 of box and (box|cylinder)|cylinder and box"):
        rg.worlds.Worlds(cases.TOYS, 1)


@pytest.mark.filterwarnings("ignore:pairs of shapes")
@pytest.mark.parametrize(
    ("integrator", "cone"), [("Euler", "pyramidal"), ("implicitfast", "elliptic")]
)
def test_steps_follow_mujoco(integrator, cone):
    m = cases.exact(cases.quadruped(f'integrator="{integrator}" cone="{cone}"'))
    rng = np.random.default_rng(3)
    count, steps = 8, 60
    worlds = rg.worlds.Worlds(m, count, dt=None, **EXACT)
    assert worlds.start == pytest.approx(m.key_qpos[0])
    u = m.key_qpos[0][7:] + 0.4 * rng.normal(size=(count, m.nu))
    data = [mujoco.MjData(m) for _ in range(count)]
    for d, x in zip(data, u, strict=True):
        mujoco.mj_resetDataKeyframe(m, d, 0)
        d.qvel[3:6], d.ctrl[:] = 0.5, x
    worlds.qvel[:, 3:6] = 0.5
    touched = 0
    for _ in range(steps):
        worlds.step(u)
        for d in data:
            mujoco.mj_step(m, d)
        touched += sum(d.ncon for d in data)
    assert touched > count * steps
    for k, d in enumerate(data):
        assert np.abs(worlds.qpos[k] - d.qpos).max() < 1e-8
        assert np.abs(worlds.qvel[k] - d.qvel).max() < 1e-6
    assert worlds.time == pytest.approx(np.full(count, steps * m.opt.timestep))


def test_robots_on_a_ground_are_those_of_the_mujoco_plant():
    """HyQ with round feet, in random postures near the ground."""
    robot = rg.load("hyq", floating_base=True)
    shins = [name for name in robot.model.body_names if name.endswith("lowerleg")]
    ground = rg.plants.Ground(dict.fromkeys(shins, (0.02, (0.33, 0, 0))), friction=0.7)
    worlds = rg.worlds.Worlds(robot, 64, ground=ground, **EXACT)
    from rigidgrad.worlds.sources import compiled_model

    m = cases.exact(compiled_model(robot, ground))
    qpos, qvel, u = cases.states(m, 64, (0.3, 0.8), seed=5)
    data = cases.mujoco_forward(m, qpos, qvel, 20 * u)
    worlds.reset(qpos=qpos, qvel=qvel)
    found = worlds.forward(20 * u)
    assert np.mean([d.ncon for d in data]) > 0.8
    expected = np.array([d.qacc for d in data])
    assert worst(found.qacc, expected) < 1e-9
    assert worlds.nu == 12
    # float32 sees the same contacts, and accelerations as well as its digits allow
    single = rg.worlds.Worlds(robot, 64, ground=ground)
    single.reset(qpos=qpos, qvel=qvel)
    coarse = single.forward(20 * u)
    assert (coarse.contacts.touching == found.contacts.touching).mean() > 0.999
    error = np.abs(coarse.qacc - expected).max(axis=1) / np.abs(expected).max(axis=1)
    assert np.median(error) < 1e-4
    assert error.max() < 2e-2


@pytest.mark.filterwarnings("ignore:pairs of shapes")
def test_wrong_input_is_refused():
    m = cases.quadruped()
    with pytest.raises(InputError, match="from 1 on"):
        rg.worlds.Worlds(m, 0)
    with pytest.raises(InputError, match="float32"):
        rg.worlds.Worlds(m, 2, dtype="float16")
    with pytest.raises(InputError, match="time step"):
        rg.worlds.Worlds(m, 2, dt=-1)
    with pytest.raises(InputError, match="ground out"):
        rg.worlds.Worlds(m, 2, ground=rg.plants.Ground({"trunk": 0.1}))
    with pytest.raises(InputError, match="not of int"):
        rg.worlds.Worlds(3)
    with pytest.raises(UnknownNameError, match="masses"):
        rg.worlds.Worlds(m, 2, vary=("masses",))
    worlds = rg.worlds.Worlds(m, 2)
    with pytest.raises(InputError, match="controls are"):
        worlds.step(np.zeros(3))
    with pytest.raises(InputError, match="mask"):
        worlds.reset([True])
    with pytest.raises(InputError, match="qpos is"):
        worlds.reset(qpos=np.zeros(3))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<equality><connect body1="c" anchor="0 0 0"/></equality>', "1 equality constraints of"),
        ('<option density="1000" viscosity="1e-3"/>', "fluids"),
        ('<option integrator="RK4"/>', "integrator"),
        ('<actuator><general joint="a" dyntype="filter" dynprm="1"/></actuator>', "has a state"),
        ('<tendon><fixed stiffness="3"><joint joint="a" coef="1"/></fixed></tendon>', "tendon"),
    ],
)
def test_what_worlds_do_not_model_is_said(text, said):
    xml = f"""<mujoco>{text}<worldbody><body><joint name="a"/><geom size=".1"/>
    <body name="c" pos="0 0 1"><joint name="b"/><geom size=".1"/></body></body></worldbody></mujoco>"""
    with pytest.raises(InputError, match=said):
        rg.worlds.Worlds(xml, 1)
    with pytest.warns(ModelWarning, match=said):
        rg.worlds.Worlds(xml, 1, leave_out=True)


COUPLED = """
<mujoco><option timestep="0.002"/><worldbody>
<body><joint name="a" axis="0 1 0" ref=".1"/><geom size=".05" pos=".2 0 0"/>
  <body pos=".2 0 0"><joint name="b" axis="0 1 0"/><geom size=".05" pos=".2 0 0"/></body></body>
<body pos="1 0 0"><joint name="c" type="slide" axis="1 0 1" damping="1"/><geom size=".1"/></body>
<body pos="2 0 0"><joint name="d" axis="0 1 0"/><geom size=".1" pos="0 0 .3"/></body>
</worldbody><equality>
<joint joint1="b" joint2="a" polycoef=".1 -1 .3 .2 -.4" solimp=".8 .9 .05 .5 1.5"/>
<joint joint1="a" joint2="c" polycoef="0 2 0 0 0" solref="-500 -10"/>
<joint joint1="d" polycoef=".2 0 0 0 0"/>
<joint joint1="c" active="false"/></equality></mujoco>
"""


def test_joints_are_coupled_as_in_mujoco():
    """One branch to another one, by a polynomial, and one joint to a place; and gradients."""
    m, count = cases.exact(mujoco.MjModel.from_xml_string(COUPLED)), 40
    qpos, qvel, _ = cases.states(m, count, (0, 0))
    worlds = rg.worlds.Worlds(m, count, dt=None, **EXACT)
    worlds.reset(qpos=qpos, qvel=qvel)
    expected = [d.qacc for d in cases.mujoco_forward(m, qpos, qvel, np.zeros((count, 0)))]
    assert worst(worlds.forward().qacc, np.array(expected)) < 1e-10
    worlds.step()
    rng = np.random.default_rng(1)
    of_qpos, of_qvel = rng.normal(size=(2, count, m.nv))
    held = qpos, qvel, worlds.u, worlds.qacc.copy(), of_qpos, of_qvel
    found = worlds.pullback(*held)["qpos"]

    def weighted(q):
        worlds.reset(qpos=q, qvel=qvel)
        worlds.step()
        return (worlds.qpos * of_qpos).sum(axis=1) + (worlds.qvel * of_qvel).sum(axis=1)

    ways = 1e-6 * np.eye(m.nq)
    gradient = np.stack([(weighted(qpos + w) - weighted(qpos - w)) / 2e-6 for w in ways], axis=1)
    assert worst(found, gradient) < 1e-6
    assert {x for x in worlds.slots if len(x) == 1} == {("coupling",)}
