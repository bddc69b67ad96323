"""A controller on an arm that is not what its model says: heavier, loaded, pushed, seen late and
with noise; with and without an observer of disturbances.
"""

import numpy as np

import rigidgrad as rg

arm = rg.load("iiwa14")
ready = np.r_[0.0, 0.6, 0.0, -1.4, 0.0, 1.0, 0.0, np.zeros(7)]
tip = arm.forward_kinematics(ready[:7])["iiwa_link_7"][:3, 3]
target = tip + [0.0, 0.15, 0.05]

moving = np.r_[np.zeros(7), np.ones(7)]
problem = rg.Problem(
    arm,
    start=ready,
    steps=40,
    dt=0.0125,
    costs=[
        rg.costs.Reach("iiwa_link_7", target, weight=10.0, final=1000.0),
        rg.costs.State(ready, weight=0.1 * moving, final=10 * moving),
        rg.costs.Effort(1e-4, reference="gravity"),
    ],
    limits=rg.Limits(torque=True),
)
faults = rg.plants.Faults(noise_position=1e-4, noise_velocity=1e-3, latency=0.004, drop=0.1)

errors = {}
for observer in (False, True):
    plant = rg.plants.Simulator(
        arm,
        ready,
        dt=0.002,
        mass_error=0.2,
        friction="model",
        faults=faults,
        clamp=True,
        seed=0,
        log=True,
    )
    plant.set_payload(2.0, "iiwa_link_ee")  # kg, which the controller does not know of
    plant.push((0, 40, 0), 0.05, "iiwa_link_7", at=0.5)  # N, for 50 ms
    mpc = rg.MPC(problem, period=0.01, latency=0.01, observer=observer)
    mpc.run(plant, 2.0)
    # where it truly was: what the controller saw has noise and gaps
    last = plant.log.x[plant.log.t > 1.5]
    place = arm.forward_kinematics(last[:, :7])["iiwa_link_7"][:, :3, 3]
    errors[observer] = 1e3 * np.linalg.norm(place - target, axis=1).mean()
    print(
        f"observer {'on ' if observer else 'off'}: {errors[observer]:5.1f} mm from the target in"
        f" the last half second; {mpc.counts}"
    )

assert errors[True] < errors[False]
# each lost measurement was counted, and the plan went on
assert plant.counts.dropped == mpc.counts["missing"] > 0
