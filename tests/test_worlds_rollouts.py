"""A second of motion with contacts, against MuJoCo: as near as MuJoCo is to itself from a start
that is 1e-9 away, and with the same energy.
"""

from __future__ import annotations

from importlib import resources

import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

import worlds_cases as cases  # noqa: E402

import rigidgrad as rg  # noqa: E402
from rigidgrad.worlds.sources import compiled_model  # noqa: E402

COUNT = 2
DT = 0.004


def model(name):
    if name == "quadruped":
        return cases.quadruped('cone="elliptic" integrator="implicitfast"', alone=True)
    if name == "hopper":
        file = resources.files("rigidgrad.worlds").joinpath("environments/hopper.xml")
        return compiled_model(file.read_text(), None)
    if name == "hyq":
        robot = rg.load("hyq", floating_base=True)
        shins = [body for body in robot.model.body_names if body.endswith("lowerleg")]
        ground = rg.plants.Ground(dict.fromkeys(shins, (0.02, (0.33, 0, 0))), friction=0.7)
        return compiled_model(robot, ground)
    return compiled_model(rg.load(name), None)


HEIGHTS = {"quadruped": (0.2, 0.3), "hyq": (0.5, 0.7)}


def energies(m, d, states):
    """Kinetic and potential, of MuJoCo's (qpos, qvel)."""
    found = []
    for q, v in states:
        d.qpos[:], d.qvel[:] = q, v
        mujoco.mj_forward(m, d)
        mujoco.mj_energyPos(m, d)
        mujoco.mj_energyVel(m, d)
        found.append(d.energy.sum())
    return np.array(found)


def in_mujoco(m, qpos, qvel, u):
    """Where it ends after a second, its energy on the way, and how often it touched something."""
    d = mujoco.MjData(m)
    d.qpos[:], d.qvel[:], d.ctrl[:] = qpos, qvel, u
    path, touching = [], 0
    for _ in range(round(1 / DT)):
        mujoco.mj_step(m, d)
        path.append((d.qpos.copy(), d.qvel.copy()))
        touching += d.ncon > 0
    return np.concatenate(path[-1]), energies(m, d, path[::10]), touching


@pytest.mark.parametrize("name", ["cartpole", "iiwa14", "hopper", "quadruped", "hyq"])
def test_a_second_of_motion_is_that_of_mujoco(name):
    m = cases.exact(model(name))
    m.opt.timestep, m.opt.tolerance = DT, 1e-15
    exact = {"dtype": "float64", "tolerance": 1e-17, "iterations": 200, "threads": 1}
    worlds = rg.worlds.Worlds(m, COUNT, dt=None, **exact)
    rng = np.random.default_rng(7)
    qpos, qvel, u = cases.states(m, COUNT, HEIGHTS.get(name, (0, 0)), seed=7)
    if name in HEIGHTS:  # upright
        qpos[:, 3:7] = [1, 0, 0, 0]
    qvel *= 0.3
    worlds.reset(qpos=qpos, qvel=qvel)
    path = []
    for _ in range(round(1 / DT)):
        worlds.step(u)
        path.append((worlds.qpos.copy(), worlds.qvel.copy()))
    data, total = mujoco.MjData(m), 0
    for k in range(COUNT):
        end, energy, touching = in_mujoco(m, qpos[k], qvel[k], u[k])
        total += touching
        away, energy_away = [], []
        for _ in range(2):
            moved = qpos[k] + 1e-9 * rng.choice([-1, 1], m.nq)
            other, its, _ = in_mujoco(m, moved, qvel[k] + 1e-9 * rng.normal(size=m.nv), u[k])
            away.append(np.abs(other - end).max())
            energy_away.append(np.abs(its - energy).max())
        found = np.concatenate([worlds.qpos[k], worlds.qvel[k]])
        assert np.abs(found - end).max() <= max(away)
        own = energies(m, data, [(q[k], v[k]) for q, v in path[::10]])
        assert np.abs(own - energy).max() <= max(energy_away)
    assert total > 50 or name in ("cartpole", "iiwa14")
