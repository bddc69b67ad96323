"""An arm goes round the wall of a shelf: a path that touches nothing, and the fastest motion along
it.
"""

import numpy as np

import rigidgrad as rg

arm = rg.load("iiwa14").with_collisions(
    shapes={
        "iiwa_link_4": [rg.Capsule(0.07, start=(0, 0, 0), end=(0, 0.2, 0))],
        "iiwa_link_5": [rg.Capsule(0.06, start=(0, 0, 0), end=(0, 0, 0.2))],
        "iiwa_link_6": [rg.Sphere(0.08)],
        "iiwa_link_7": [rg.Sphere(0.06, (0, 0, 0.06))],
    }
)
shelf = rg.Scene(
    [
        rg.Box((0.4, 1.2, 0.03), (0.65, 0, 0.35), name="lower board"),
        rg.Box((0.4, 1.2, 0.03), (0.65, 0, 0.80), name="upper board"),
        rg.Box((0.4, 0.03, 0.45), (0.65, 0, 0.575), name="wall"),
    ]
)
left = np.array([0.54, 0.51, -0.41, -1.5, 1.65, 1.32, 0.37])
right = left * [-1, 1, -1, 1, -1, 1, -1]  # its mirror image

straight = left + np.linspace(0, 1, 200)[:, None] * (right - left)
print(
    f"straight across, {arm.in_collision(straight, shelf).mean():.0%} of the way is inside"
    " something"
)

path = rg.plan(arm, left, right, shelf)
print(
    f"{path.status}: {len(path.corners)} corners, {path.duration:.2f} s, searched for"
    f" {1000 * path.stats['seconds']:.1f} ms"
)

nearest = arm.distances(path.q, shelf, gradient=False).least.min()
print(f"the nearest that anything comes is {1000 * nearest:.0f} mm")
# in a browser: rg.view(arm, path)
