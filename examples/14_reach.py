"""Where to reach: poses, several solutions, a free axis, a path without jumps, and a pose that is
out of reach.
"""

import numpy as np

import rigidgrad as rg

robot = rg.load("iiwa14")
tip = "iiwa_link_ee"

# a thousand poses at once, checked by forward kinematics
T = robot.forward_kinematics(robot.random((1000,), seed=0).q)[tip]
r = robot.inverse_kinematics({tip: T})
miss = np.abs(robot.forward_kinematics(r.q)[tip] - T).max(axis=(1, 2))
print(f"{r.success.sum()} of 1000 poses reached, the worst entry {miss[r.success].max():.0e} off")
assert r.success.mean() > 0.99 and miss[r.success].max() < 2e-6

# several ways to the same pose, those next to a start first
ways = robot.inverse_kinematics({tip: T[0]}, robot.neutral(), best=3)
print("three ways to the first pose, in degrees:")
print(np.degrees(ways.q).round().astype(int))
assert ways.success.all()

# a path: each pose starts from the solution of the one before; the tool may turn about its own axis
angles = np.linspace(0, 2 * np.pi, 60)
down = np.diag([1.0, -1.0, -1.0, 1.0])
q, path = robot.neutral() + 0.5, []
for angle in angles:
    down[:3, 3] = 0.55 + 0.1 * np.cos(angle), 0.1 * np.sin(angle), 0.4
    step = robot.inverse_kinematics({tip: down}, q, free="rz")
    assert step.success
    q = step.q
    path.append(q)
jump = np.abs(np.diff(path, axis=0)).max()
print(
    f"a circle with the tool pointing down: no joint moves by more than {jump:.2f} rad from pose to"
    " pose"
)
assert jump < 0.3

# the hand at a place while it looks at a point, as near to a posture as that allows
tasks = [rg.ik.Frame(tip, (0.4, 0.3, 0.7)), rg.ik.LookAt(tip, (1.0, 0.0, 0.2))]
posture = robot.inverse_kinematics(tasks, posture=np.full(7, 0.3))
print("looking there while reaching here:", posture.q.round(2))
assert posture.success

# out of reach
far = robot.inverse_kinematics({tip: (2.0, 0.0, 0.4)})
print(f"two metres away: success {bool(far.success)}, {far.error:.2f} m short")
assert not far.success
