"""What worlds measure, against MuJoCo's sensors and rays."""

from __future__ import annotations

import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

import rigidgrad as rg  # noqa: E402
from rigidgrad.errors import InputError, ModelWarning, UnknownNameError  # noqa: E402

WALKER = """
<mujoco><option timestep="0.004"/>
<asset><hfield name="hills" nrow="9" ncol="13" size="2 1.5 .4 .1"/></asset>
<worldbody>
  <geom name="slope" type="plane" size="0 0 1" pos="0 0 -.2" euler="4 -6 0"/>
  <geom name="step" type="box" size=".5 .4 .15" pos=".8 .3 0" euler="10 5 30"/>
  <geom name="field" type="hfield" hfield="hills" pos="-2 .5 -.1" euler="0 0 25"
    contype="0" conaffinity="0"/>
  <body name="trunk" pos="-.5 0 .3"><freejoint/>
    <geom type="sphere" size=".1" pos=".1 .1 0"/><geom type="capsule" size=".08 .2"/>
    <site name="unit" pos=".1 -.05 .02" euler="20 30 40"/>
    <body name="arm" pos="0 0 .2"><joint axis="1 1 0" damping=".1"/>
      <geom type="capsule" size=".05" fromto="0 0 0 .3 0 .1"/><site name="tip" pos=".3 0 .1"/>
    </body></body>
</worldbody>
<sensor><accelerometer site="unit"/><gyro site="unit"/><accelerometer site="tip"/><gyro site="tip"/>
</sensor></mujoco>
"""


@pytest.fixture(scope="module")
def model():
    m = mujoco.MjModel.from_xml_string(WALKER)
    m.hfield_data[:] = np.random.default_rng(0).random(m.hfield_data.shape)
    m.opt.tolerance, m.opt.iterations = 0.0, 100
    return m


@pytest.fixture(scope="module")
def worlds(model):
    exact = {"dtype": "float64", "tolerance": 1e-17, "iterations": 100, "threads": 1}
    return rg.worlds.Worlds(model, 3, dt=None, imu=("unit", "tip"), **exact)


def test_units_on_a_body_that_falls_and_hits_the_ground(model, worlds):
    d = mujoco.MjData(model)
    worlds.reset()
    worlds.qvel[:] = d.qvel[:] = [0.3, -0.2, 0, 1, -2, 3, 4]
    touched = 0
    for _ in range(100):
        worlds.step()
        mujoco.mj_step(model, d)
        touched += d.ncon > 0
        expected = d.sensordata.reshape(2, 6)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(worlds.imu[1], expected, atol=1e-7 * scale)
    assert 10 < touched < 90
    with pytest.raises(UnknownNameError, match="unit"):
        rg.worlds.Worlds(model, 1, imu=("unti",))


def test_heights_are_those_of_rays_from_above(model, worlds):
    rng = np.random.default_rng(1)
    worlds.reset()
    worlds.qpos[:, :2] = [(-2, 0.5), (0.8, 0.3), (3, 0)]
    worlds.qpos[:, 3:7] = [1, 0.2, -0.1, 0.7]
    points = rng.uniform(-2, 2, (400, 2))
    found = worlds.heights(points)
    d = mujoco.MjData(model)
    d.qpos[2] = -50  # out of the way
    mujoco.mj_forward(model, d)
    hit, seen = np.zeros((1, 1), np.int32), set()
    w, i, j, k = worlds.qpos[0, 3:7]
    yaw = np.arctan2(2 * (w * k + i * j), w * w + i * i - j * j - k * k)
    ways = points @ np.array([[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]])
    for base, row in zip(worlds.qpos[:, :2], found, strict=True):
        for x, z in zip(base + ways, row, strict=True):
            away = mujoco.mj_ray(model, d, [*x, 9.0], [0, 0, -1.0], None, 1, -1, hit[0])
            assert z == pytest.approx(9 - away, abs=1e-9)
            seen.add(model.geom(hit[0, 0]).name)
    assert seen == {"slope", "step", "field"}


def test_what_heights_do_not_know_is_said():
    worlds = rg.worlds.Worlds(rg.load("cartpole"), 1)
    with pytest.raises(InputError, match="floating base"):
        worlds.heights([(0, 0)])
    text = WALKER.replace("<worldbody>", '<worldbody><geom size=".1" pos="0 0 -9"/>')
    with pytest.warns(ModelWarning, match="sphere"):
        found = rg.worlds.Worlds(text, 1).heights([(1.0, 0.0)])
    assert np.isfinite(found).all()
    with pytest.raises(InputError, match="tilted"):
        rg.worlds.Worlds(text.replace("0 0 25", "0 9 25"), 1).heights([(0, 0)])
