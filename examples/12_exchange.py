"""One robot in three programs: read from MJCF, handed to MuJoCo, Pinocchio and URDF, and asked for
the same accelerations in each.
"""

import mujoco
import numpy as np
import pinocchio as pin

import rigidgrad as rg

robot = rg.load("""
<mujoco model="crane">
  <default><joint armature="0.02"/></default>
  <worldbody>
    <body name="mast" pos="0 0 0.1">
      <joint name="slew" axis="0 0 1"/><joint name="luff" axis="0 1 0" range="-80 80"/>
      <geom type="capsule" size="0.05" fromto="0 0 0 0.8 0 0"/><site name="hook" pos="0.9 0 0"/>
      <body name="load" pos="0.9 0 0"><joint name="rope" type="ball" armature="0"/><geom type="sphere" size="0.1" pos="0 0 -0.5"/></body>
    </body>
  </worldbody>
</mujoco>""")
print(robot, end="\n\n")
q, v, tau = robot.random(seed=0)
a = robot.aba(q, v, tau)

# MuJoCo: its own order and quaternions; `states` converts
model = robot.to_mujoco()
states = rg.interop.states(robot, model)
theirs = states.to(q, v, a, tau)
data = mujoco.MjData(model)
data.qpos, data.qvel, data.qfrc_applied = theirs.q, theirs.v, theirs.tau
mujoco.mj_forward(model, data)
print(f"MuJoCo's accelerations differ by    {abs(data.qacc - theirs.a).max():.0e}")
assert np.allclose(data.qacc, theirs.a, rtol=1e-8, atol=1e-8)

# Pinocchio: and back again
model = robot.to_pinocchio()
states = rg.interop.states(robot, model)
theirs = states.to(q, v, a, tau)
found = pin.aba(model, model.createData(), theirs.q, theirs.v, theirs.tau)
print(f"Pinocchio's accelerations differ by {abs(found - theirs.a).max():.0e}")
assert np.allclose(found, theirs.a, rtol=1e-8, atol=1e-8)
again = rg.from_pinocchio(model)
assert np.allclose(again.aba(q, v, tau), a, rtol=1e-8, atol=1e-8)

# URDF: text that any program reads; HyQ, since URDF has no ball joints
hyq = rg.load("hyq")
text = hyq.to_urdf()
q, v, tau = hyq.random(batch=(100,), seed=0)
error = abs(rg.load(text).aba(q, v, tau) - hyq.aba(q, v, tau)).max()
print(f"HyQ as {len(text.splitlines())} lines of URDF and back:   {error:.0e}")
assert error < 1e-8
