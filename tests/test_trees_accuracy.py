"""How many digits are kept, against the textbook's loops in extended precision, on large trees,
tilted gravity, all joint types.
"""

from __future__ import annotations

import numpy as np
import pytest

from rigidgrad import trees

if np.finfo(np.longdouble).eps > 1e-18:
    pytest.skip("this machine's long double is no wider than float64", allow_module_level=True)

GRAVITY = (3.0, -4.0, -8.0)
MIXED = ("revolute", "prismatic", "helical")


def cross(a, b):
    return np.stack(
        [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
    )


def rnea(tree, q, v, a):
    """Featherstone's table 5.1 level by level, with 3-vectors as columns, all in long double."""
    D = np.longdouble
    data = tree.data.astype(D).T
    q, v, a = (x.astype(D) for x in (q, v, a))
    n, parents, topology = tree.bodies, tree.parents, tree.topology
    E0, ang, lin = data[:9].reshape(3, 3, n), data[22], data[23]
    c, s = np.cos(ang * q), np.sin(ang * q)
    E = np.stack([c * E0[0] + s * E0[1], c * E0[1] - s * E0[0], E0[2]])
    r = data[9:12] + E0[2] * (lin * q)
    m, h = data[12], data[13:16]
    xx, yy, zz, xy, xz, yz = data[16:22]
    J = np.stack([np.stack([xx, xy, xz]), np.stack([xy, yy, yz]), np.stack([xz, yz, zz])])
    w, u, dw, du = (np.zeros((3, n + 1), D) for _ in range(4))
    du[:, n] = -np.array(tree.gravity, D)
    z = np.array([0, 0, 1], D)[:, None]
    levels = [
        topology.order[x:y]
        for x, y in zip(topology.level_start, topology.level_start[1:], strict=False)
    ]
    for i in levels:
        p = np.where(parents[i] >= 0, parents[i], n)
        turn = E[:, :, i]
        w[:, i] = (turn * w[:, p]).sum(1) + z * (ang[i] * v[i])
        u[:, i] = (turn * (u[:, p] - cross(r[:, i], w[:, p]))).sum(1) + z * (lin[i] * v[i])
        dw[:, i] = (
            (turn * dw[:, p]).sum(1) + z * (ang[i] * a[i]) + cross(w[:, i], z * (ang[i] * v[i]))
        )
        du[:, i] = (turn * (du[:, p] - cross(r[:, i], dw[:, p]))).sum(1) + z * (lin[i] * a[i])
        du[:, i] += cross(u[:, i], z * (ang[i] * v[i])) + cross(w[:, i], z * (lin[i] * v[i]))
    w, u, dw, du = (x[:, :n] for x in (w, u, dw, du))
    k, l = (J * w).sum(1) + cross(h, u), m * u - cross(h, w)
    couple = (J * dw).sum(1) + cross(h, du) + cross(w, k) + cross(u, l)
    force = m * du - cross(h, dw) + cross(w, l)
    for i in reversed(levels):
        up = i[parents[i] >= 0]
        f = (E[:, :, up] * force[:, None, up]).sum(0)
        t = (E[:, :, up] * couple[:, None, up]).sum(0) + cross(r[:, up], f)
        for k_ in range(3):
            np.add.at(force[k_], parents[up], f[k_])
            np.add.at(couple[k_], parents[up], t[k_])
    return ang * couple[2] + lin * force[2]


def state(tree, dtype=np.float64):
    rng = np.random.default_rng(7)
    return tuple(
        x.astype(dtype)
        for x in (
            rng.uniform(-3, 3, tree.nv),
            0.1 * rng.normal(size=tree.nv),
            rng.normal(size=tree.nv),
        )
    )


def error(found, exact):
    return float(np.abs(found - exact).max() / np.abs(exact).max())


@pytest.mark.parametrize("joints", [("revolute",), MIXED], ids=["revolute", "mixed"])
@pytest.mark.parametrize(
    ("bodies", "branching"), [(10_000, 1.0), (100_000, 1.01), (100_000, 1.5), (100_000, 2.0)]
)
def test_levels_and_heavy_paths_keep_their_digits(bodies, branching, joints):
    tree = trees.auto_tree(bodies, branching, 0.3, joints=joints, gravity=GRAVITY)
    q, v, a = state(tree)
    exact = rnea(tree, q, v, a)
    for method in ("sequential", "levels", "heavy_path"):
        assert error(trees.rnea(tree, q, v, a, method=method), exact) < 1e-12, method


def test_the_euler_tour_loses_them():
    tree = trees.auto_tree(100_000, 2.0, 0.3, gravity=GRAVITY)
    q, v, a = state(tree)
    exact = rnea(tree, q, v, a)
    tour = error(trees.rnea(tree, q, v, a, method="euler_tour"), exact)
    # what is undone when a body is left is undone with the rounding errors of the whole tour
    assert 1e-13 < tour < 1e-7
    assert error(trees.rnea(tree, q, v, a), exact) < 1e-3 * tour
    single = tuple(x.astype(np.float32) for x in (q, v, a))
    assert error(trees.rnea(tree, *single, method="euler_tour"), exact) > 1e-4
    assert error(trees.rnea(tree, *single), exact) < 1e-5


@pytest.mark.parametrize("branching", [1.01, 2.0])
def test_float32_keeps_what_it_has(branching):
    tree = trees.auto_tree(50_000, branching, 0.3, gravity=GRAVITY)
    q, v, a = state(tree, np.float32)
    exact = rnea(tree, q, v, a)
    for method in ("sequential", "levels", "heavy_path"):
        found = trees.rnea(tree, q, v, a, method=method)
        assert found.dtype == np.float32
        assert error(found, exact) < 1e-4, method  # a thousand levels of 6e-8 each


def test_sine_and_cosine_of_lanes_hold_for_any_angle():
    """Huge angles take another way through the lanes' polynomials than small ones."""
    rng = np.random.default_rng(0)
    tree = trees.auto_tree(2000, 2.0, 0.3, gravity=GRAVITY)
    for scale in (1e-8, 1.0, 1e3, 1e8, 1e12):
        q = scale * rng.normal(size=tree.nv)
        v = a = np.zeros(tree.nv)
        exact = rnea(tree, q, v, a)
        assert error(trees.rnea(tree, q, v, a, method="levels"), exact) < 1e-14, scale
