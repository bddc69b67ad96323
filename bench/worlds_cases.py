"""Models for measurements of worlds: robots on a flat floor, under position servos where they stand
on legs, and random states and controls of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

import rigidgrad as rg
from rigidgrad.worlds.hills import Hills
from rigidgrad.worlds.sources import compiled_model

LEGS = (0.0, 0.8, -1.5)  # hip, thigh, calf
NAMES = ("cartpole", "hopper", "hyq", "go2", "g1", "humanoid")
ROUGH = Hills(size=(8, 8), cell=0.1, height=0.06)  # of "hyq-rough", which is asked for by name


@dataclass
class Case:
    """`wander`: how far targets or controls go."""

    name: str
    model: Any
    start: np.ndarray
    wander: float


def case(name: str) -> Case | None:
    """None, and a line that says so, where its files are not installed."""
    data = Path(mujoco.__file__).parents[1] / "cmeel.prefix/share/example-robot-data/robots"
    files = {
        "go2": data / "go2_description/urdf/go2.urdf",
        "g1": data / "g1_description/urdf/g1_29dof_rev_1_0.urdf",
    }
    if name in files and not files[name].exists():
        print(f"{name}: no {files[name].name} of example-robot-data here")
        return None
    if name == "cartpole":
        m = compiled_model(rg.load("cartpole"), None)
        return Case(name, m, m.qpos0.copy(), 1.0)
    if name == "hopper":
        text = resources.files("rigidgrad.worlds").joinpath("environments/hopper.xml").read_text()
        m = compiled_model(text, None)
        return Case(name, m, m.qpos0.copy(), 1.0)
    if name == "humanoid":  # Gymnasium's, of which the integrator alone is changed
        gymnasium = resources.files("gymnasium.envs.mujoco").joinpath("assets/humanoid.xml")
        m = compiled_model(gymnasium.read_text(), None)
        m.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
        return Case(name, m, m.qpos0.copy(), 1.0)
    hills = ROUGH if name == "hyq-rough" else None
    if name in ("hyq", "hyq-rough"):
        robot = rg.load("hyq", floating_base=True)
        shins = [body for body in robot.model.body_names if body.endswith("lowerleg")]
        feet: Any = dict.fromkeys(shins, (0.021, (0.33, 0, 0)))
        signs = {"lf": 1, "rf": 1, "lh": -1, "rh": -1}
        legs = {k: (-0.2, 0.75 * s, -1.5 * s) for k, s in signs.items()}
    elif name == "go2":
        robot = rg.load(files[name], floating_base=True)
        feet = {f"{leg}_foot": 0.022 for leg in ("FL", "FR", "RL", "RR")}
        legs = dict.fromkeys(("FL", "FR", "RL", "RR"), LEGS)
    elif name == "g1":
        robot = rg.load(files[name], floating_base=True)
        corners = [(x, y, -0.03) for x in (-0.05, 0.12) for y in (-0.025, 0.025)]
        feet = {f"{s}_ankle_roll_link": (0.005, corners) for s in ("left", "right")}
        legs = {}
    else:
        m = mujoco.MjModel.from_xml_path(name)
        return Case(Path(name).stem, m, m.key_qpos[0] if m.nkey else m.qpos0.copy(), 1.0)
    m = compiled_model(robot, rg.plants.Ground(feet, friction=0.8), hills)
    start = standing(m, legs)
    start[2] += hills.height if hills else 0.0
    return Case(name, m, start, 0.15)


def cases(names: str) -> Iterator[Case]:
    for name in names.split(","):
        if (found := case(name)) is not None:
            yield found


def bottom(m: Any, d: Any) -> float:
    """The height of the lowest point of balls and capsules that move."""
    low = []
    for g in range(m.ngeom):
        if m.geom_bodyid[g]:
            reach = m.geom_size[g][0]
            if m.geom_type[g] == mujoco.mjtGeom.mjGEOM_CAPSULE:
                reach += abs(d.geom_xmat[g][8]) * m.geom_size[g][1]
            low.append(d.geom_xpos[g][2] - reach)
    return min(low)


def standing(m: Any, legs: dict[str, tuple[float, ...]]) -> np.ndarray:
    """A posture with the lowest shape on the floor; servos instead of motors."""
    q = m.qpos0.copy()
    for j in range(m.njnt):
        prefix = m.joint(j).name.split("_")[0]
        if prefix in legs:
            own = [i for i in range(m.njnt) if m.joint(i).name.split("_")[0] == prefix]
            q[m.jnt_qposadr[j]] = legs[prefix][own.index(j)]
    d = mujoco.MjData(m)
    d.qpos[:] = q
    mujoco.mj_kinematics(m, d)
    q[2] -= bottom(m, d)
    gain = 3.0 * m.body_mass.sum()
    m.actuator_gainprm[:, 0] = gain
    m.actuator_biastype[:] = int(mujoco.mjtBias.mjBIAS_AFFINE)
    m.actuator_biasprm[:, 1], m.actuator_biasprm[:, 2] = -gain, -0.05 * gain
    m.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    return q


def controls(c: Case, count: int, steps: int, rng: np.random.Generator) -> np.ndarray:
    """(count, steps, nu): targets near the posture that wander, or random controls where there are
    no servos.
    """
    m = c.model
    if not (m.actuator_biastype == int(mujoco.mjtBias.mjBIAS_AFFINE)).all() or not m.nu:
        low, high = m.actuator_ctrlrange.T
        limited = m.actuator_ctrllimited.astype(bool)
        low, high = np.where(limited, low, -c.wander), np.where(limited, high, c.wander)
        return rng.uniform(low, high, (count, steps, m.nu))
    home = c.start[m.jnt_qposadr[m.actuator_trnid[:, 0]]]
    walk = rng.normal(size=(count, steps, m.nu)).cumsum(axis=1)
    return home + c.wander * np.sin(0.1 * walk)


def in_contact(c: Case, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random (qpos, qvel, u): joints within up to half a radian of the start and within
    their limits, tilted, and so high that the lowest shape is up to 3 cm in the floor.
    """
    m, rng = c.model, np.random.default_rng(seed)
    d = mujoco.MjData(m)
    height = 2 if m.jnt_type[0] == 0 else int(m.joint("z").qposadr[0])
    found: list[np.ndarray] = []
    velocities = []
    while len(found) < count:
        d.qpos[:], far = c.start, rng.uniform()
        for j in range(m.njnt):
            at = m.jnt_qposadr[j]
            if m.jnt_type[j] == 0:
                d.qpos[at + 3 : at + 7] += 0.2 * far * rng.normal(size=4)
            else:
                x = d.qpos[at] + far * rng.uniform(-0.5, 0.5)
                d.qpos[at] = np.clip(x, *m.jnt_range[j]) if m.jnt_limited[j] else x
        mujoco.mj_normalizeQuat(m, d.qpos)
        mujoco.mj_kinematics(m, d)
        d.qpos[height] -= bottom(m, d) + rng.uniform(0, 0.03)
        d.qvel[:] = rng.normal(size=m.nv)
        mujoco.mj_fwdPosition(m, d)
        while m.nhfield and d.ncon and min(x.dist for x in d.contact) < -0.015:
            d.qpos[height] += 0.005  # uneven ground is higher
            mujoco.mj_fwdPosition(m, d)
        if d.ncon:
            found.append(d.qpos.copy())
            velocities.append(d.qvel.copy())
    return np.array(found), np.array(velocities), controls(c, count, 1, rng)[:, 0]
