"""A robot described in Python, with a screw and a ball joint; a tool mounted on it; a joint locked;
a frame named.
"""

import numpy as np

import rigidgrad as rg

arm = (
    rg.Builder("crane")
    .link("foot")
    .link("mast", mass=30.0, com=(0, 0, 1.0), inertia=(10.0, 10.0, 0.5))
    .link("boom", mass=12.0, com=(0.9, 0, 0), inertia=(0.1, 3.3, 3.3))
    .link("hook", mass=3.0, com=(0, 0, -0.4), inertia=(0.06, 0.06, 0.01))
    .joint("swing", "continuous", "foot", "mast", axis=(0, 0, 1), armature=0.5)
    .joint(
        "lift",
        "helical",
        "mast",
        "boom",
        xyz=(0, 0, 1.8),
        axis=(0, 0, 1),
        pitch=0.02,
        limit=(-10, 10),
    )
    .joint("rope", "spherical", "boom", "hook", xyz=(1.8, 0, 0))
    .build()
)
print(arm, end="\n\n")

load = rg.Builder("load").link("crate", mass=50.0, com=(0, 0, 0), inertia=(4.0, 4.0, 4.0)).build()
loaded = arm.attach(load, "hook", (0, 0, -0.9)).add_frame("corner", "crate", (0.4, 0.4, -0.4))
q = loaded.neutral()
print("joint forces that hold it, empty: ", np.round(arm.gravity_torque(q), 3))
print("joint forces that hold it, loaded:", np.round(loaded.gravity_torque(q), 3))
print(
    "where the crate's corner is:      ", np.round(loaded.forward_kinematics(q)["corner"][:3, 3], 3)
)

fixed = loaded.reduced(lock={"lift": 1.0})
print("with the lift locked there are", fixed.nv, "freedoms:", ", ".join(fixed.joints))

# energy is conserved: swing the hook, and watch the sum over 2 s of simulation
v = np.zeros(loaded.nv)
v[2:] = (0.3, 0.5, 0.0)
start = sum(loaded.energy(q, v))
h = 0.0005
for _ in range(4000):
    v_mid = v + 0.5 * h * loaded.aba(q, v, np.zeros(loaded.nv))
    q_mid = loaded.integrate(q, 0.5 * h * v)
    v = v + h * loaded.aba(q_mid, v_mid, np.zeros(loaded.nv))
    q = loaded.integrate(q, h * v_mid)
print(f"energy after 2 s: {sum(loaded.energy(q, v)):.6f} J, at the start {start:.6f} J")
assert abs(sum(loaded.energy(q, v)) - start) < 1e-3
