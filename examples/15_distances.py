"""How far an arm is from what is around it: with gradients, for a thousand positions at once."""

import numpy as np

import rigidgrad as rg

arm = rg.load("iiwa14").with_collisions(
    shapes={
        "iiwa_link_2": [rg.Capsule(0.09, start=(0, 0, 0), end=(0, 0.2, 0))],
        "iiwa_link_4": [rg.Capsule(0.08, start=(0, 0, 0), end=(0, 0.2, 0))],
        "iiwa_link_6": [rg.Sphere(0.09)],
        "iiwa_link_7": [rg.Sphere(0.07, (0, 0, 0.05))],
    }
)
scene = rg.Scene(
    [
        rg.Box((0.8, 1.2, 0.05), (0.7, 0, 0.2), name="table"),
        rg.Sphere(0.1, (0.4, 0.3, 0.6), name="ball"),
        rg.Points(
            np.random.default_rng(0).normal((-0.5, 0, 0.8), 0.1, (2000, 3)),
            radius=0.01,
            name="cloud",
        ),
    ]
)
q = arm.random(batch=1000, seed=0).q
free = ~arm.in_collision(q, scene, margin=0.02)
print(f"{free.sum()} of {len(q)} positions keep 2 cm away from everything")

g = arm.distances(q, scene)
row, pair = np.unravel_index(np.argmin(g.distance), g.distance.shape)
print(f"the deepest is {' in '.join(g.pairs[pair])}, by {-1000 * g.distance[row, pair]:.0f} mm")

# a step along the gradients of all that penetrates
x = q[row]
for _ in range(200):
    g = arm.distances(x, scene)
    inside = g.distance < 0.005
    if not inside.any():
        break
    x = arm.integrate(x, 0.02 * g.gradient[inside].sum(axis=0))
print(
    "200 steps at most along the gradients:"
    f" {'free' if not arm.in_collision(x, scene) else 'still inside'}"
)
