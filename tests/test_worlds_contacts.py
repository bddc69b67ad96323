"""Contacts of pairs of shapes against MuJoCo's, each alone, at random poses near each other."""

from __future__ import annotations

import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

import rigidgrad as rg  # noqa: E402

COUNT = 3000
WEDGE = "0 0 0  .3 0 0  0 .2 0  .3 .2 0  0 0 .15  0 .2 .15"
BALL = " ".join(f"{x:.3f}" for x in 0.2 * np.random.default_rng(5).normal(size=36))
SCENE = """
<mujoco><asset><mesh name="wedge" vertex="{wedge}"/><mesh name="stone" vertex="{ball}"/></asset>
<worldbody><geom name="base" margin=".02" {base}/>
<body><freejoint/><geom name="thing" margin=".01" mass="1" {thing}/></body></worldbody></mujoco>
"""
PLANE = 'type="plane" size="0 0 1" euler="10 -20 0"'
BOX = 'type="box" size=".3 .2 .12" euler="10 20 30" pos=".1 0 0"'
PAIRS = {
    "capsule and box": (BOX, 'type="capsule" size=".05 .25"'),
    "long capsule and box": (BOX, 'type="capsule" size=".03 .6"'),
    "box and box": (BOX, 'type="box" size=".15 .1 .2"'),
    "ellipsoid": (PLANE, 'type="ellipsoid" size=".2 .1 .05"'),
    "wedge": (PLANE, 'type="mesh" mesh="wedge"'),
    "stone": (PLANE, 'type="mesh" mesh="stone"'),
}


def contacts_of(data):
    return sorted((c.dist, *c.pos, *c.frame[:3]) for c in data.contact)


@pytest.mark.parametrize("pair", PAIRS)
def test_contacts_are_those_of_mujoco(pair):
    if pair in ("wedge", "stone") and int(mujoco.__version__.split(".")[0]) < 4:
        pytest.skip("before version 4 MuJoCo took other corners of a mesh")
    base, thing = PAIRS[pair]
    text = SCENE.format(wedge=WEDGE, ball=BALL, base=base, thing=thing)
    m = mujoco.MjModel.from_xml_string(text)
    rng = np.random.default_rng(0)
    worlds = rg.worlds.Worlds(m, COUNT, dt=None, dtype="float64", threads=1)
    worlds.qpos[:, :3] = rng.uniform(-0.5, 0.5, (COUNT, 3))
    turns = rng.normal(size=(COUNT, 4))
    turns[::3, 1:] *= 0.02  # nearly along each other
    worlds.qpos[:, 3:] = turns / np.linalg.norm(turns, axis=1, keepdims=True)
    found = worlds.forward().contacts
    d, touching, several, odd = mujoco.MjData(m), 0, 0, 0
    for k in range(COUNT):
        d.qpos[:] = worlds.qpos[k]
        mujoco.mj_fwdPosition(m, d)
        expected = contacts_of(d)
        own = found.touching[k]
        columns = found.distance[k], *found.place[k].T, *found.frame[k, :, 0].T
        mine = sorted(zip(*(x[own] for x in columns), strict=True))
        touching, several = touching + bool(expected), several + (len(expected) > 1)
        same = len(mine) == len(expected)
        odd += not (same and np.allclose(mine, expected, atol=1e-9))
    assert touching > 200
    assert several > 20 or pair == "ellipsoid"
    assert odd <= touching / 1000, (odd, touching)


SOFT = 'solimp=".9 .95 .01 .5 1.5"'
TABLE = f"""
<mujoco><option timestep="0.002"/><worldbody>
<geom name="table" type="box" size=".2 .1 .05" contype="3" conaffinity="3" {SOFT}/>
<body><freejoint/><geom name="box" type="box" size=".2 .1 .05" contype="1" conaffinity="1" {SOFT}/>
</body><body><freejoint/>
<geom name="rod" type="capsule" size=".05 .1" contype="2" conaffinity="2" {SOFT}/></body>
</worldbody></mujoco>
"""
EXACT = {"tolerance": 1e-20, "iterations": 50}
UP, DIAGONAL, ACROSS = (1, 0, 0, 0), (0.92387953, 0, 0, 0.38268343), (0.70710678, 0, 0.70710678, 0)
# a box and a rod, faces, edges and corners exactly on those of the table
UPON = [
    ((0, 0, 0.099, *UP), (0, 0, 0.09, *ACROSS)),
    ((0.1, 0, 0.099, *UP), (0.2, 0, 0.09, *ACROSS)),
    ((0.1, 0.05, 0.0999, *UP), (0, 0, 0.195, *UP)),
    ((0, 0, 0.099, *DIAGONAL), (0, 0, 0.01, *UP)),
    ((0.39, 0.05, 0.0999, *UP), (0.2, 0.1, 0.19, *UP)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_lies_flat_has_finite_gradients(dtype):
    """And as many different contacts as in MuJoCo."""
    m = mujoco.MjModel.from_xml_string(TABLE)
    worlds = rg.worlds.Worlds(m, len(UPON), dt=None, dtype=dtype, **EXACT)
    worlds.qpos[:] = [(*box, *rod) for box, rod in UPON]
    d = mujoco.MjData(m)
    found = worlds.forward().contacts
    for k in range(len(UPON) if dtype == "float64" else 0):
        d.qpos[:] = worlds.qpos[k]
        mujoco.mj_forward(m, d)
        expected = {tuple(np.round([*c.pos, c.dist], 6) + 0.0) for c in d.contact}
        own = np.column_stack([found.place[k], found.distance[k]])[found.touching[k]]
        assert {tuple(np.round(c, 6) + 0.0) for c in own} == expected, k
        assert expected
    q, v = worlds.qpos.copy(), worlds.qvel.copy()
    worlds.step()
    ones = np.ones_like(q), np.ones_like(v)
    for name, g in worlds.pullback(q, v, worlds.u, worlds.qacc, *ones).items():
        assert np.isfinite(g).all(), name
        assert np.abs(g).max() < 1e4, name


def test_gradients_of_boxes_and_rods_are_those_of_finite_differences():
    m, rng = mujoco.MjModel.from_xml_string(TABLE), np.random.default_rng(0)
    worlds = rg.worlds.Worlds(m, 10, dt=None, dtype="float64", **EXACT)
    start = [0.05, 0.02, 0.095, 1, 0, 0, 0, 0.02, 0, 0.088, 0.7, 0, 0.7, 0]
    scale = 0.03 * np.array([1, 1, 0.05, 1, 1, 1, 1] * 2)
    qpos, qvel = start + scale * rng.normal(size=(10, 14)), 0.1 * rng.normal(size=(10, 12))
    of_qpos, of_qvel = rng.normal(size=qpos.shape), rng.normal(size=qvel.shape)

    def weighted(q):
        worlds.reset(qpos=q, qvel=qvel)
        worlds.step()
        return (worlds.qpos * of_qpos).sum(axis=1) + (worlds.qvel * of_qvel).sum(axis=1)

    weighted(qpos)
    found = worlds.pullback(qpos, qvel, worlds.u, worlds.qacc.copy(), of_qpos, of_qvel)["qpos"]
    ways = 1e-6 * np.eye(14)
    expected = np.stack([(weighted(qpos + w) - weighted(qpos - w)) / 2e-6 for w in ways], axis=1)
    error = np.abs(found - expected).max(axis=1) / np.abs(expected).max(axis=1)
    assert error.max() < 1e-5
    worlds.reset(qpos=qpos, qvel=qvel)
    assert worlds.forward().contacts.touching.sum() > 30
