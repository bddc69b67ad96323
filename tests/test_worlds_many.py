"""Many worlds at once: random controls, pushes and resets do no harm, and no world sees another."""

from __future__ import annotations

import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

import worlds_cases as cases  # noqa: E402

import rigidgrad as rg  # noqa: E402
from rigidgrad.errors import InputError, UnknownNameError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:pairs of shapes")
COUNT = 96
OPTIONS = {
    "vary": ("mass", "friction", "gain"),
    "push": "trunk",
    "touch": ("foot0", "foot1", "foot2", "foot3"),
}
VARIED = ("mass", "friction", "gain", "push")
FACTORS = ("mass", "friction", "gain", "kp", "kd", "damping", "armature")


@pytest.fixture(scope="module")
def model():
    return cases.quadruped(alone=True)


@pytest.fixture(scope="module")
def shaken(model):
    """After random controls, pushes and resets."""
    rng = np.random.default_rng(0)
    worlds = rg.worlds.Worlds(model, COUNT, threads=1, **OPTIONS)
    worlds.mass[:] = rng.uniform(0.7, 1.3, worlds.mass.shape)
    worlds.friction[:] = rng.uniform(0.3, 1.2, COUNT)
    worlds.gain[:] = rng.uniform(0.8, 1.2, worlds.gain.shape)
    unfinished = 0
    for k in range(300):
        if k % 30 == 0:
            worlds.push[:, :3] = rng.uniform(-200, 200, (COUNT, 3)) * (rng.random((COUNT, 1)) < 0.3)
            worlds.reset(rng.random(COUNT) < 0.1)
        worlds.step(rng.uniform(-2, 2, (COUNT, worlds.nu)))
        unfinished += int(worlds.unfinished.sum())
    return worlds, unfinished


def test_random_controls_pushes_and_resets_do_no_harm(shaken):
    worlds, unfinished = shaken
    assert worlds.lost.sum() == 0
    assert unfinished == 0
    assert np.isfinite(worlds.qpos).all()
    assert np.abs(worlds.qvel).max() < 100
    assert worlds.qpos[:, 2].min() > 0


def test_a_world_has_its_own_bits_whatever_its_neighbours(model, shaken):
    worlds, _ = shaken
    rng = np.random.default_rng(1)
    u = rng.uniform(-1, 1, (COUNT, worlds.nu)).astype(np.float32)
    before = [x.copy() for x in (worlds.qpos, worlds.qvel, worlds.qacc, worlds.time)]
    chosen = rng.permutation(COUNT)[:37]
    others = rg.worlds.Worlds(model, len(chosen), threads=2, **OPTIONS)
    alone = rg.worlds.Worlds(model, 1, threads=1, **OPTIONS)
    for some, rows in ((others, chosen), (alone, chosen[:1])):
        for name in VARIED:
            getattr(some, name)[:] = getattr(worlds, name)[rows]
        some.qpos[:], some.qvel[:], some.qacc[:] = (x[rows] for x in before[:3])
    worlds.step(u)
    for some, rows in ((others, chosen), (alone, chosen[:1])):
        some.step(u[rows])
        for name in ("qpos", "qvel", "qacc", "touch"):
            np.testing.assert_array_equal(getattr(some, name), getattr(worlds, name)[rows])
    worlds.qpos[:], worlds.qvel[:], worlds.qacc[:], worlds.time[:] = before


def test_what_varies_is_what_mujoco_would_be_told(model):
    """Masses, friction, gains and pushes of each world, against models with these numbers."""
    rng = np.random.default_rng(2)
    count = 12
    m = cases.exact(model)
    worlds = rg.worlds.Worlds(
        m, count, dtype="float64", tolerance=1e-17, vary=FACTORS, push="trunk"
    )
    qpos, qvel, u = cases.states(m, count, (0.15, 0.3), seed=4)
    worlds.mass[:] = rng.uniform(0.5, 2, worlds.mass.shape)
    worlds.friction[:] = rng.uniform(0.3, 1.2, count)
    for name in FACTORS[2:]:
        getattr(worlds, name)[:] = rng.uniform(0.5, 1.5, getattr(worlds, name).shape)
    worlds.push[:] = 30 * rng.normal(size=(count, 6))
    worlds.reset(np.zeros(count, bool))
    push = worlds.push.copy()
    worlds.qpos[:], worlds.qvel[:] = qpos, qvel
    found = worlds.forward(u)
    touching, after = 0, []
    for k in range(count):
        changed = cases.exact(cases.quadruped(alone=True))
        changed.body_mass[1:] *= worlds.mass[k]
        changed.body_inertia[1:] *= worlds.mass[k][:, None]
        changed.geom_friction[:, 0] *= worlds.friction[k]
        changed.actuator_gainprm[:, 0] *= worlds.gain[k] * worlds.kp[k]
        changed.actuator_biasprm[:, :3] *= worlds.gain[k][:, None]
        changed.actuator_biasprm[:, 1] *= worlds.kp[k]
        changed.actuator_biasprm[:, 2] *= worlds.kd[k]
        changed.dof_damping[:] *= worlds.damping[k]
        changed.dof_armature[:] *= worlds.armature[k]
        d = mujoco.MjData(changed)
        d.qpos[:], d.qvel[:], d.ctrl[:] = qpos[k], qvel[k], u[k]
        d.xfrc_applied[changed.body("trunk").id] = push[k]
        mujoco.mj_forward(changed, d)
        touching += d.ncon
        np.testing.assert_allclose(found.qacc[k], d.qacc, atol=1e-8 * np.abs(d.qacc).max())
        mujoco.mj_step(changed, d)
        after.append(d.qvel.copy())
    assert touching > count
    worlds.step()  # damping is taken implicitly
    np.testing.assert_allclose(worlds.qvel, after, atol=1e-8 * np.abs(after).max())


def test_feet_that_stand_bear_the_weight(model):
    worlds = rg.worlds.Worlds(model, COUNT, threads=1, **OPTIONS)
    worlds.step(model.key_qpos[0][7:], steps=400)
    weight = 9.81 * model.body_mass.sum()
    assert worlds.touch.sum(axis=1) == pytest.approx(np.full(COUNT, weight), rel=0.05)


def test_a_world_that_is_not_finite_begins_again(model):
    worlds = rg.worlds.Worlds(model, COUNT, threads=1, **OPTIONS)
    worlds.qvel[3] = np.nan
    worlds.step()
    assert worlds.lost.tolist() == [int(k == 3) for k in range(COUNT)]
    np.testing.assert_array_equal(worlds.qpos[3], worlds.start)
    worlds.step()
    assert worlds.lost.sum() == 1


def test_names_are_checked(model):
    with pytest.raises(UnknownNameError, match="shape"):
        rg.worlds.Worlds(model, 1, touch=("paw",))
    with pytest.raises(UnknownNameError, match="body"):
        rg.worlds.Worlds(model, 1, push="tail")
    with pytest.raises(InputError, match="iterations"):
        rg.worlds.Worlds(model, 1, iterations=0)
