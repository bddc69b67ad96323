"""Height fields: contacts against MuJoCo's, gradients, slots that are not enough."""

from __future__ import annotations

import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

import worlds_cases as cases  # noqa: E402

import rigidgrad as rg  # noqa: E402
from rigidgrad.errors import InputError, ModelWarning  # noqa: E402

EXACT = {"dtype": "float64", "tolerance": 1e-17, "iterations": 100, "threads": 1}
SCENE = """
<mujoco><option timestep="0.002"/>
<asset><hfield name="hills" nrow="8" ncol="10" size="1 .8 .15 .1"/></asset>
<worldbody><geom name="field" type="hfield" hfield="hills" pos=".1 -.2 .3" euler="10 -5 20"
 margin="{margin}" {solimp}/>
<body><freejoint/><geom name="thing" mass="1" {thing}/></body></worldbody></mujoco>
"""
THINGS = {
    "sphere": 'size=".05"',
    "capsule": 'type="capsule" size=".05 .1"',
    "box": 'type="box" size=".1 .06 .05"',
}


def scene(thing, margin=0.01, solimp=""):
    text = SCENE.format(thing=THINGS[thing], margin=margin, solimp=solimp)
    m = mujoco.MjModel.from_xml_string(text)
    m.hfield_data[:] = np.random.default_rng(1).random(m.nhfielddata)
    return m


def near(m, count, low=0.08, seed=0):
    """Random poses around the field, and velocities."""
    d, rng = mujoco.MjData(m), np.random.default_rng(seed)
    mujoco.mj_kinematics(m, d)
    p, R = d.geom_xpos[0], d.geom_xmat[0].reshape(3, 3)
    turns = rng.normal(size=(count, 4))
    turns /= np.linalg.norm(turns, axis=1, keepdims=True)
    places = p + rng.uniform([-0.9, -0.7, low], [0.9, 0.7, 0.25], (count, 3)) @ R.T
    return np.hstack([places, turns]), rng.normal(size=(count, m.nv))


@pytest.mark.parametrize("thing", THINGS)
def test_contacts_with_fields_are_those_of_mujoco(thing):
    """One for each prism below a triangle. Deeper than a radius, and of boxes, MuJoCo's own are
    what its iterations find.
    """
    m, count = cases.exact(scene(thing)), 400
    qpos, qvel = near(m, count)
    worlds = rg.worlds.Worlds(m, count, dt=None, **EXACT)
    worlds.reset(qpos=qpos, qvel=qvel)
    found = worlds.forward()
    data = cases.mujoco_forward(m, qpos, qvel, np.zeros((count, 0)))
    contacts, touching, several, odd = found.contacts, 0, 0, 0
    for k, d in enumerate(data):
        own = contacts.touching[k]
        columns = contacts.distance[k], *contacts.place[k].T, *contacts.frame[k, :, 0].T
        mine = np.array(sorted(zip(*(x[own] for x in columns), strict=True)))
        expected = np.array(sorted((c.dist, *c.pos, *c.frame[:3]) for c in d.contact))
        if not len(expected) or min(c.dist for c in d.contact) < -0.03:
            continue
        touching, several = touching + 1, several + (len(expected) > 2)
        if thing == "box":
            same = len(mine) == len(expected) and np.abs(mine - expected).max() < 1e-3
            odd += not same
            continue
        assert len(mine) == len(expected)
        # those that are equally deep come in any order
        gaps = np.abs(mine[:, None] - expected).max(axis=2)
        assert max(gaps.min(axis=0).max(), gaps.min(axis=1).max()) < 1e-10
        error = np.abs(found.qacc[k] - d.qacc).max() / np.abs(d.qacc).max()
        assert error < 1e-9
    assert touching > 50
    assert several > 15
    assert odd <= 0.06 * touching


def test_depths_and_normals_of_boxes_are_the_least_way_out():
    """Against all directions, from within and from beside, by MuJoCo's other solver."""
    m = scene("box", margin=0.0)
    m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_NATIVECCD)
    qpos, qvel = near(m, 300)
    worlds = rg.worlds.Worlds(m, len(qpos), dt=None, **EXACT)
    worlds.reset(qpos=qpos, qvel=qvel)
    contacts, compared, odd = worlds.forward().contacts, 0, 0
    data = cases.mujoco_forward(m, qpos, qvel, np.zeros((len(qpos), 0)))
    for k, d in enumerate(data):
        own = contacts.touching[k]
        mine = np.column_stack([contacts.distance[k], contacts.frame[k, :, 0]])[own]
        expected = np.array([(c.dist, *c.frame[:3]) for c in d.contact]).reshape(-1, 4)
        if not len(expected) or expected[:, 0].min() < -0.03:
            continue
        compared += 1
        gaps = np.abs(mine[:, None] - expected).max(axis=2)
        odd += len(mine) != len(expected) or gaps.min(axis=0).max() > 1e-4
    assert compared > 50
    assert odd <= 0.1 * compared, (odd, compared)


@pytest.mark.parametrize("thing", ["sphere", "box"])
def test_gradients_on_fields_are_those_of_finite_differences(thing):
    m = scene(thing, solimp='priority="1" solimp=".9 .95 .01 .5 1.5"')
    qpos, qvel = near(m, 120, low=0.1)
    worlds = rg.worlds.Worlds(m, len(qpos), dt=None, **EXACT)
    rng = np.random.default_rng(2)
    of_qpos, of_qvel = rng.normal(size=qpos.shape), rng.normal(size=qvel.shape)

    def weighted(q):
        worlds.reset(qpos=q, qvel=qvel)
        worlds.step()
        return (worlds.qpos * of_qpos).sum(axis=1) + (worlds.qvel * of_qvel).sum(axis=1)

    weighted(qpos)
    found = worlds.pullback(qpos, qvel, worlds.u, worlds.qacc.copy(), of_qpos, of_qvel)["qpos"]
    ways = 1e-6 * np.eye(qpos.shape[1])
    expected = np.stack([(weighted(qpos + w) - weighted(qpos - w)) / 2e-6 for w in ways], axis=1)
    worlds.reset(qpos=qpos, qvel=qvel)
    touching = worlds.forward().contacts.touching.any(axis=1)
    error = np.abs(found - expected).max(axis=1) / np.abs(expected).max(axis=1)
    assert touching.sum() > 15
    assert np.median(error[touching]) < 1e-7
    assert np.quantile(error, 0.95) < 1e-4  # a contact may begin within the difference
    assert np.isfinite(found).all()


@pytest.mark.filterwarnings("ignore:there are more contacts than slots")
@pytest.mark.parametrize("slots", [None, 2])
def test_states_on_fields_have_the_same_bits_in_any_batch(slots):
    m = scene("capsule")
    qpos, qvel = near(m, 37)
    worlds = rg.worlds.Worlds(m, len(qpos), dt=None, threads=1, slots=slots)
    worlds.reset(qpos=qpos, qvel=qvel)
    worlds.step(steps=5)
    assert worlds.overflow.any() == bool(slots)
    alone = rg.worlds.Worlds(m, 1, dt=None, threads=1, slots=slots)
    for k in range(0, 37, 4):
        alone.reset(qpos=qpos[k], qvel=qvel[k])
        alone.step(steps=5)
        assert (alone.qpos[0] == worlds.qpos[k]).all()
        assert (alone.qvel[0] == worlds.qvel[k]).all()


def test_what_has_no_slot_is_counted_and_the_deepest_are_kept():
    m = scene("capsule")
    qpos, qvel = near(m, 100)
    all_ = rg.worlds.Worlds(m, 100, dt=None, **EXACT)
    few = rg.worlds.Worlds(m, 100, dt=None, slots=2, **EXACT)
    for worlds in (all_, few):
        worlds.reset(qpos=qpos, qvel=qvel)
    every, kept = all_.forward().contacts, few.forward().contacts
    count = every.touching.sum(axis=1)
    assert (count > 2).sum() > 10
    assert (kept.touching.sum(axis=1) == np.minimum(count, 2)).all()
    for k in np.flatnonzero(count > 2):
        deepest = np.sort(every.distance[k][every.touching[k]])[:2]
        assert np.sort(kept.distance[k][kept.touching[k]]) == pytest.approx(deepest, abs=1e-15)
    with pytest.warns(ModelWarning, match="more contacts than slots"):
        few.step()
    all_.step()
    assert (few.overflow == np.maximum(count - 2, 0)).all()
    assert not all_.overflow.any()
    same = count <= 2
    assert np.abs(few.qvel - all_.qvel)[same].max() < 1e-9
    assert np.abs(few.qvel - all_.qvel)[~same].max() > 1e-3
    ones = np.ones_like(qpos), np.ones_like(qvel)
    found = few.pullback(qpos, qvel, few.u, few.qacc, *ones)
    assert all(np.isfinite(x).all() for x in found.values())
    with pytest.raises(InputError, match="slots are"):
        rg.worlds.Worlds(m, 2, slots=0)


def test_torch_has_fields_and_jax_says_that_it_has_not():
    torch = pytest.importorskip("torch")
    m = scene("sphere", solimp='priority="1"')
    qpos, qvel = near(m, 40)
    worlds = rg.worlds.Worlds(m, 40, dt=None, **EXACT)
    start = torch.tensor(qpos, requires_grad=True)
    after, speed = rg.worlds.torch_step(worlds)(start, torch.tensor(qvel), torch.zeros(40, 0))
    (after.sum() + speed.sum()).backward()
    ones = np.ones_like(qpos), np.ones_like(qvel)
    expected = worlds.pullback(qpos, qvel, worlds.u, worlds.qacc, *ones)["qpos"]
    np.testing.assert_array_equal(start.grad.numpy(), expected)
    with pytest.raises(InputError, match="no height fields"):
        rg.worlds.jax_step(worlds)


def test_fields_that_are_not_for_worlds_are_named():
    fine = SCENE.replace('nrow="8" ncol="10"', 'nrow="100" ncol="100"')
    with pytest.warns(ModelWarning, match=r"cells that are small beside it\) and box"):
        rg.worlds.Worlds(fine.format(thing=THINGS["box"], margin=0, solimp=""), 1)
    thing = 'type="ellipsoid" size=".1 .05 .02"'
    with pytest.warns(ModelWarning, match="height field and ellipsoid"):
        rg.worlds.Worlds(SCENE.format(thing=thing, margin=0, solimp=""), 1)
