"""Models and states for tests of worlds."""

from __future__ import annotations

import mujoco
import numpy as np

# shapes of all kinds on a floor, a tilted static plane, limits, springs, friction, tendons, balls
TOYS = """
<mujoco><option timestep="0.002"/>
<worldbody>
  <geom name="floor" type="plane" size="0 0 1"/>
  <geom name="wall" type="box" size=".2 .3 .1" pos="1 0 .1" euler="10 20 30"/>
  <body name="trunk" pos="0 0 1"><freejoint/>
    <geom name="ball" type="sphere" size=".1" pos=".05 0 0" condim="6" friction=".7 .02 .01"/>
    <geom name="rod" type="capsule" size=".05 .2" pos="0 .1 0" euler="30 20 0" condim="4"/>
    <body name="arm" pos="0 0 .2">
      <joint name="elbow" axis="0 1 0" range="-30 40" limited="true" damping=".1" stiffness="2"
        springref="10" frictionloss=".05" armature=".01"/>
      <geom name="block" type="box" size=".1 .05 .2" pos="0 0 .2" condim="1"/>
      <body name="hand" pos="0 .2 .4">
        <joint name="wrist" type="ball" range="0 40" limited="true" damping=".02"/>
        <geom name="fist" size=".07" pos=".1 0 .1" solref="-1000 -10"/>
        <body pos=".1 .1 .2">
          <joint name="slider" type="slide" axis="1 0 1" damping="1" armature=".1"/>
          <geom name="tip" type="cylinder" size=".05 .06" mass=".2" solimp=".5 .9 .01 .3 3"/>
        </body>
      </body>
    </body>
  </body>
</worldbody>
<tendon><fixed name="both" limited="true" range="-.2 .2">
  <joint joint="elbow" coef="1"/><joint joint="slider" coef="-.5"/></fixed></tendon>
<actuator>
  <motor name="push" joint="slider" gear="3" ctrlrange="-1 1" ctrllimited="true"/>
  <position name="hold" joint="elbow" kp="5" kv=".3" forcerange="-2 2" forcelimited="true"/>
  <velocity name="turn" joint="elbow" kv=".2"/>
  <general name="pull" tendon="both" gainprm="2 .1 .3" gaintype="affine" biastype="affine"
    biasprm=".1 -1 -.2"/>
</actuator></mujoco>
"""

# a quadruped of ours: box trunk, capsules and balls, which touch the floor and each other
_LEG = """
<body pos="{x} {y} 0"><joint axis="1 0 0" range="-40 40"/>
  <geom type="capsule" fromto="0 0 0 0 {s} 0" size=".03" mass=".5"/>
  <body pos="0 {s} 0"><joint axis="0 1 0" range="-60 100"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.2" size=".025" mass=".6"/>
    <body pos="0 0 -.2"><joint axis="0 1 0" range="-150 -40"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.2" size=".015" mass=".2"/>
      <geom name="foot{k}" size=".022" pos="0 0 -.2" condim="3" priority="1" friction=".8" mass=".03"/>
    </body></body></body>
"""
QUADRUPED = (
    """
<mujoco model="quadruped"><option timestep="0.002" {option}/>
<default><joint damping="1" armature=".01" frictionloss=".1"/><geom condim="1" margin=".001"/>
<position kp="40" kv="1" forcerange="-25 25"/></default>
<worldbody><geom name="floor" type="plane" size="0 0 1" condim="3"/>
<body name="trunk" pos="0 0 .33"><freejoint/><geom type="box" size=".19 .05 .06" mass="7"/>
"""
    + "".join(
        _LEG.format(x=x, y=y, s=0.095 if y > 0 else -0.095, k=k)
        for k, (x, y) in enumerate(((0.19, 0.05), (0.19, -0.05), (-0.19, 0.05), (-0.19, -0.05)))
    )
    + "</body></worldbody><actuator>{actuators}</actuator>"
    '<keyframe><key qpos="0 0 .33 1 0 0 0 ' + "0 .7 -1.4 " * 4 + '"/></keyframe></mujoco>'
)


def quadruped(option: str = "", alone: bool = False) -> mujoco.MjModel:
    """With `alone`, its shapes touch the floor and not each other."""
    text = QUADRUPED.replace("{option}", option)
    spec = mujoco.MjSpec.from_string(text.replace("{actuators}", ""))
    for geom in spec.geoms if alone else ():
        geom.contype, geom.conaffinity = (0, 1) if geom.name == "floor" else (1, 0)
    for k, joint in enumerate(j for j in spec.joints if j.type == mujoco.mjtJoint.mjJNT_HINGE):
        joint.name = f"joint {k}"
        added = spec.add_actuator(name=f"servo {k}", target=joint.name)
        added.trntype = mujoco.mjtTrn.mjTRN_JOINT
        added.set_to_position(kp=40.0, kv=1.0)
        added.forcelimited, added.forcerange = 1, (-25.0, 25.0)
    return spec.compile()


def exact(m: mujoco.MjModel) -> mujoco.MjModel:
    """With a solver that goes on until nothing changes."""
    m.opt.tolerance, m.opt.iterations = 0.0, 200
    m.opt.ls_tolerance, m.opt.ls_iterations = 1e-10, 200
    return m


def states(m: mujoco.MjModel, count: int, height: tuple[float, float], seed: int = 0):
    """Positions, velocities and controls, all over the place."""
    rng = np.random.default_rng(seed)
    qpos, qvel = np.tile(m.qpos0, (count, 1)), rng.normal(size=(count, m.nv))
    for j in range(m.njnt):
        q, kind = m.jnt_qposadr[j], m.jnt_type[j]
        if kind == 0:
            qpos[:, q + 2] = rng.uniform(*height, size=count)
        if kind < 2:
            turn = slice(q + 3, q + 7) if kind == 0 else slice(q, q + 4)
            qpos[:, turn] = [1, 0, 0, 0] + 0.6 * rng.normal(size=(count, 4))
            qpos[:, turn] /= np.linalg.norm(qpos[:, turn], axis=1, keepdims=True)
        if kind > 1:
            low, high = m.jnt_range[j] if m.jnt_limited[j] else (-0.5, 0.5)
            qpos[:, q] = rng.uniform(low - 0.05, high + 0.05, size=count)
    return qpos, qvel, rng.uniform(-1, 1, size=(count, m.nu))


def mujoco_forward(m: mujoco.MjModel, qpos, qvel, u):
    """Data of each state after mj_forward."""
    found = []
    for q, v, x in zip(qpos, qvel, u, strict=True):
        d = mujoco.MjData(m)
        d.qpos[:], d.qvel[:], d.ctrl[:] = q, v, x
        mujoco.mj_forward(m, d)
        found.append(d)
    return found
