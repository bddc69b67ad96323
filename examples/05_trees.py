"""Dynamics of trees far too large for straight-line code: a binary tree and a chain, each by the
method that suits its shape.
"""

import time

import numpy as np

from rigidgrad import trees

for branching in (2.0, 1.0):
    tree = trees.auto_tree(bodies=100_000, branching=branching, skew=0.3, gravity=(3.0, -4.0, -8.0))
    q, v, a = tree.random(seed=0)
    tau = trees.rnea(tree, q, v, 0.1 * a)  # makes the plan and compiles, once
    start = time.perf_counter()
    tau = trees.rnea(tree, q, v, 0.1 * a)
    took = time.perf_counter() - start
    print(
        f"{tree}\n  inverse dynamics by {tree.plan.method}: {1e9 * took / tree.bodies:.0f} ns a"
        " body"
    )
    slow = trees.rnea(tree, q, v, 0.1 * a, method="sequential")
    print(f"  differs from the plain loop by {np.abs(tau - slow).max() / np.abs(slow).max():.0e}")
    found = trees.forward_dynamics(tree, q, v, tau)
    print(f"  forward dynamics leaves a residual of {found.residual:.0e}")

tree = trees.auto_tree(bodies=10_000, branching=2.0, skew=0.3)
H = trees.crba(tree, tree.random(seed=0).q)
x = H.solve(np.ones(tree.nv))
print(H, f"solved to {np.abs(H @ x - 1).max():.0e}")


def longest(x, y, out):  # any associative operator: here the maximum
    out[0] = max(x[0], y[0])


levels_below = trees.leaffix(tree, tree.topology.depth, longest, 0) - tree.topology.depth
print("the root has", levels_below[0], "levels under it")
