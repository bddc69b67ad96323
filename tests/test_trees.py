"""Trees as arrays: shapes of every kind, vector-tree operations, and clear words for what is
wrong.
"""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import rigidgrad as rg
from rigidgrad import trees
from rigidgrad.errors import InputError, ModelError, UnknownNameError
from rigidgrad.trees.topology import Topology

METHODS = ("sequential", "levels", "heavy_path", "euler_tour")
SHAPES = st.tuples(
    st.integers(1, 300),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 2, 10, 1000]),
    st.sampled_from([0.0, 0.05, 1.0]),
)


def random_parents(shape) -> np.ndarray:
    """A forest: each body hangs on one of the last few, or now and then on the world; numbered in
    any order.
    """
    bodies, seed, reach, roots = shape
    rng = np.random.default_rng(seed)
    parents = np.array(
        [-1]
        + [
            -1 if rng.random() < roots / 2 else rng.integers(max(0, i - reach), i)
            for i in range(1, bodies)
        ]
    )
    name = rng.permutation(bodies) if seed % 2 else np.arange(bodies)
    result = np.empty(bodies, np.int64)
    result[name] = np.where(parents >= 0, name[parents], -1)
    return result


def tree_of(parents, **more) -> trees.Tree:
    n = len(parents)
    rng = np.random.default_rng(n)
    turn, _ = np.linalg.qr(rng.normal(size=(n, 3, 3)))
    turn *= np.sign(np.linalg.det(turn))[:, None, None]
    root = rng.normal(size=(n, 3, 3))
    return trees.Tree(
        parents,
        rotation=turn,
        translation=rng.normal(size=(n, 3)),
        mass=rng.uniform(0.5, 2, n),
        com=rng.normal(size=(n, 3)),
        inertia=root @ np.swapaxes(root, 1, 2),
        joints=rng.choice(["revolute", "prismatic", "helical"], n),
        axis=rng.normal(size=(n, 3)),
        pitch=rng.normal(size=n),
        **more,
    )


# --- shape ----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(SHAPES)
def test_depth_size_tour_and_paths_are_those_of_the_definition(shape):
    parents = random_parents(shape)
    n = len(parents)
    topology = Topology(parents)
    above = []
    for i in range(n):
        path = [i]
        while parents[path[-1]] >= 0:
            path.append(parents[path[-1]])
        above.append(path)
        assert topology.path(i).tolist() == path[::-1]
    assert topology.depth.tolist() == [len(p) - 1 for p in above]
    assert (
        topology.size.tolist() == np.bincount([i for p in above for i in p], minlength=n).tolist()
    )
    lp, rp = topology.euler_tour(threads=2)
    assert sorted([*lp, *rp]) == list(range(2 * n))
    for i in range(n):
        inside = {j for j in range(n) if lp[i] <= lp[j] and rp[j] <= rp[i]}
        assert inside == {j for j in range(n) if i in above[j]}


def test_auto_tree_is_featherstones():
    tree = trees.auto_tree(7, 2.0, skew=0.5, taper=0.9)
    assert tree.parents.tolist() == [-1, 0, 0, 1, 1, 2, 2]
    # floor(i / 1.5) from 1 on
    assert trees.auto_tree(6, 1.5).parents.tolist() == [-1, 0, 1, 1, 2, 3]
    assert trees.auto_tree(4).parents.tolist() == [-1, 0, 1, 2]
    q = np.zeros(7)
    where = trees.forward_kinematics(tree, q)
    # along its parent's x by the parent's length, which is 0.9^(number - 1); then turned about x
    np.testing.assert_allclose(
        where.position[3] - where.position[1], where.rotation[1] @ [0.9, 0, 0], atol=1e-15
    )
    c, s = np.cos(0.5), np.sin(0.5)
    np.testing.assert_allclose(where.rotation[1], [[1, 0, 0], [0, c, -s], [0, s, c]], atol=1e-15)
    mass = tree.data[:, 12]
    np.testing.assert_allclose(mass, 0.9 ** (3 * np.arange(7)))


# --- vector trees ---------------------------------------------------------------------------------


def add(x, y, out):
    for k in range(len(x)):
        out[k] = x[k] + y[k]


def negate(x, out):
    for k in range(len(x)):
        out[k] = -x[k]


def multiply(x, y, out):
    """2x2 matrices of integers, which do not commute."""
    a, b, c, d = (
        x[0] * y[0] + x[1] * y[2],
        x[0] * y[1] + x[1] * y[3],
        x[2] * y[0] + x[3] * y[2],
        x[2] * y[1] + x[3] * y[3],
    )
    out[0], out[1], out[2], out[3] = a % 1009, b % 1009, c % 1009, d % 1009


def invert(x, out):
    """Of matrices with determinant 1."""
    a, b, c, d = x[0], x[1], x[2], x[3]
    out[0], out[1], out[2], out[3] = d, -b % 1009, -c % 1009, a


@settings(max_examples=40, deadline=None)
@given(SHAPES)
def test_rootfix_and_leaffix_are_the_same_by_every_method(shape):
    parents = random_parents(shape)
    tree = trees.Tree(parents)
    n = len(parents)
    rng = np.random.default_rng(n)
    values = rng.integers(-9, 10, (n, 2))
    down, up = values.copy(), values.copy()
    for i in tree.topology.order:
        if parents[i] >= 0:
            down[i] += down[parents[i]]
    for i in tree.topology.order[::-1]:
        if parents[i] >= 0:
            up[parents[i]] += up[i]
    for method in ("levels", "heavy_path", "euler_tour"):
        for variant in (
            ("native", "work_efficient", "blocked", "mapped")
            if method == "euler_tour"
            else ("blocked",)
        ):
            options = {
                "inverse": negate,
                "method": method,
                "variant": variant,
                "block": 5,
                "threads": 2,
            }
            assert np.array_equal(trees.rootfix(tree, values, add, 0, **options), down)
            assert np.array_equal(trees.leaffix(tree, values, add, 0, **options), up)
    assert np.array_equal(trees.rootfix(tree, np.ones(n, int), add, 0), tree.topology.depth + 1)
    assert np.array_equal(trees.leaffix(tree, np.ones(n, int), add, 0), tree.topology.size)


@settings(max_examples=25, deadline=None)
@given(SHAPES)
def test_operators_need_not_commute_on_the_way_down(shape):
    parents = random_parents(shape)
    tree = trees.Tree(parents)
    rng = np.random.default_rng(len(parents))
    x, y = rng.integers(0, 1009, (2, len(parents)))
    # [[1, x], [0, 1]] [[1, 0], [y, 1]] has determinant 1
    values = np.stack([1 + x * y, x, y, np.ones_like(x)], axis=1) % 1009
    expected = values.copy()
    for i in tree.topology.order:
        if parents[i] >= 0:
            multiply(expected[parents[i]], values[i], expected[i])
    for method in ("levels", "heavy_path", "euler_tour"):
        for variant in ("native", "work_efficient", "blocked"):
            found = trees.rootfix(
                tree,
                values,
                multiply,
                (1, 0, 0, 1),
                inverse=invert,
                method=method,
                variant=variant,
                block=7,
            )
            assert np.array_equal(found, expected), (method, variant)


@pytest.mark.parametrize("variant", ["native", "work_efficient", "blocked", "mapped"])
@pytest.mark.parametrize("rows", [1, 2, 63, 64, 65, 1000])
def test_scans_are_cumulative_sums(rows, variant):
    values = np.random.default_rng(rows).integers(-9, 10, (rows, 3))
    assert np.array_equal(
        trees.scan(values, add, 0, variant=variant, block=64, threads=2), np.cumsum(values, axis=0)
    )
    before = np.cumsum(values, axis=0) - values
    assert np.array_equal(
        trees.scan(values, add, 0, variant=variant, block=64, exclusive=True), before
    )


def test_large_scans_and_walks_are_shared_by_threads():
    tree = trees.auto_tree(200_000, 2.0)
    ones = np.ones((200_000, 1), int)
    assert np.array_equal(trees.scan(ones, add, 0, threads=2)[:, 0], np.arange(1, 200_001))
    for method in ("levels", "heavy_path"):
        assert np.array_equal(
            trees.leaffix(tree, ones[:, 0], add, 0, method=method, threads=2), tree.topology.size
        )
    one, two = tree.topology.euler_tour(threads=1), tree.topology.euler_tour(threads=2)
    assert np.array_equal(one, two)


# --- any tree -------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(SHAPES, st.booleans())
def test_methods_agree_on_any_forest(shape, single):
    tree = tree_of(random_parents(shape), armature=0.1, gravity=(1.0, 2.0, -9.0))
    q, v, a = tree.random(batch=(2,), seed=0)
    expected = trees.rnea(tree, q, v, a, method="sequential", threads=1)
    scale = np.abs(expected).max()
    for method in METHODS:
        for threads in (1, 2):
            found = trees.rnea(tree, q[0] if single else q, v, a, method=method, threads=threads)
            if single:
                assert found.shape == (2, tree.nv)
                found, expected_ = found[0], expected[0]
            else:
                expected_ = expected
            # 300 bodies in a row turned at random: the Euler tour undoes what it did over lengths
            # of hundreds of metres
            assert (
                np.abs(found - expected_).max()
                <= (1e-8 if method == "euler_tour" else 1e-11) * scale
            )
    H = trees.crba(tree, q)
    assert np.abs((H @ a) + trees.bias(tree, q, v) - expected).max() <= 1e-11 * scale


@settings(max_examples=25, deadline=None)
@given(SHAPES)
def test_forward_dynamics_undoes_inverse_dynamics_on_any_forest(shape):
    tree = tree_of(random_parents(shape), armature=1.0)
    q, v, tau = tree.random(seed=1)
    for method in ("sequential", "levels", "heavy_path", "crba"):
        assert trees.forward_dynamics(tree, q, v, tau, method=method).residual < 1e-11, method


@pytest.mark.parametrize("count", [1, 7, 8, 9, 40])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_batches_are_states_one_by_one(count, dtype):
    tree = trees.auto_tree(700, 1.5, 0.3)
    q, v, a = (x.astype(dtype) for x in tree.random(batch=(count,), seed=0))
    for method in METHODS:
        for threads in (1, 2):
            found = trees.rnea(tree, q, v, a, method=method, threads=threads)
            assert found.dtype == dtype and found.shape == (count, 700)
            one = trees.rnea(tree, q[-1], v[-1], a[-1], method=method, threads=1)
            if method != "heavy_path" or threads == 1:
                assert np.array_equal(found[-1], one)
            else:
                np.testing.assert_allclose(
                    found[-1],
                    one,
                    rtol=0,
                    atol=(
                        1e-4 * np.abs(one).max()
                        if dtype == np.float32
                        else 1e-12 * np.abs(one).max()
                    ),
                )
    out = np.empty((count, 700), dtype)
    assert trees.rnea(tree, q, v, a, out=out) is out
    assert np.array_equal(out, trees.rnea(tree, q, v, a))
    assert trees.crba(tree, q).shape == (count, 700, 700)
    assert trees.forward_dynamics(tree, q.astype(float), v, a).residual.shape == (count,)


@pytest.mark.parametrize("bodies", [1, 2, 7, 8, 9, 15, 16, 17, 65, 200])
@pytest.mark.parametrize("branching", [1.0, 1.4, 2.0, 9.0])
@pytest.mark.parametrize("floating", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_columns_of_the_mass_matrix_are_forces_of_unit_accelerations(
    bodies, branching, floating, dtype
):
    kinds = ("revolute", "prismatic", "helical")
    tree = trees.auto_tree(
        bodies, branching, 0.3, joints=kinds, gravity=(0.0, 0.0, 0.0), floating_base=floating
    )
    q = tree.random(seed=0).q
    expected = trees.rnea(tree, q, np.zeros(tree.nv), np.eye(tree.nv), method="sequential")
    for threads in (1, 2):
        H = trees.crba(tree, q.astype(dtype), threads=threads).to_dense()
        assert H.dtype == dtype
        assert (
            np.abs(H - expected).max()
            <= (1e-5 if dtype == np.float32 else 1e-13) * np.abs(expected).max()
        )


def test_threads_share_the_mass_matrix_of_a_large_tree():
    for branching in (1.05, 2.0):
        tree = trees.auto_tree(30_001, branching, 0.3)
        q = tree.random(seed=0).q
        assert np.array_equal(
            trees.crba(tree, q, threads=1).values, trees.crba(tree, q, threads=2).values
        )


@pytest.mark.parametrize("method", METHODS)
def test_one_body_is_a_tree(method):
    tree = trees.auto_tree(1, 2.0, gravity=(0.0, -9.81, 0.0))
    # a pendulum about z: I = 1.015/12 + 1/4, lever 1/2
    tau = trees.rnea(tree, [0.3], [0.7], [2.0], method=method)
    np.testing.assert_allclose(
        tau, [(1.015 / 12 + 0.25) * 2.0 + 9.81 * 0.5 * np.cos(0.3)], rtol=1e-14
    )
    assert trees.crba(tree, [0.0]).to_dense().tolist() == [[1.015 / 12 + 0.25]]
    assert trees.forward_dynamics(tree, [0.3], [0.7], tau).a == pytest.approx(2.0)


def test_a_chain_of_a_million_bodies_needs_no_recursion():
    tree = trees.auto_tree(1_000_000, 1.0, 0.3, gravity=(3.0, -4.0, -8.0))
    assert tree.topology.levels == 1_000_000
    lp, rp = tree.topology.tour
    assert lp[-1] == 999_999 and rp[0] == 1_999_999
    q, v, a = 0.1 * np.random.default_rng(0).normal(size=(3, 1_000_000))
    fast, slow = trees.rnea(tree, q, v, a), trees.rnea(tree, q, v, a, method="sequential")
    assert np.abs(fast - slow).max() < 1e-11 * np.abs(slow).max()
    with pytest.raises(
        trees.TooLargeError, match=r"500,000,500,000 entries would take .* GiB.*forward_dynamics"
    ):
        trees.crba(tree, q)


def test_nan_reaches_what_depends_on_it_and_nothing_else():
    for branching in (1.0, 2.0):
        tree = trees.auto_tree(3000, branching, 0.3)
        q, v, a = tree.random(seed=0)
        a[2500] = np.nan
        below = np.zeros(3000, bool)  # bodies that feel it, then all that carry them
        for i in range(2500, 3000):
            below[i] = i == 2500 or below[tree.parents[i]]
        feels = below.copy()
        for i in range(2999, 0, -1):
            feels[tree.parents[i]] |= feels[i]
        for method in ("sequential", "levels", "heavy_path"):
            found = np.isnan(trees.rnea(tree, q, v, a, method=method))
            assert np.array_equal(found, feels), (branching, method)
        with pytest.raises(InputError, match="a holds NaN"):
            trees.rnea(tree, q, v, a, check=True)


def test_trees_can_be_pickled_and_planned_again():
    tree = trees.auto_tree(5000, 2.0, 0.3)
    q, v, a = tree.random(seed=0)
    expected = trees.rnea(tree, q, v, a)
    again = pickle.loads(pickle.dumps(tree))
    assert np.array_equal(trees.rnea(again, q, v, a), expected)
    tree.plan.release()
    assert np.array_equal(trees.rnea(tree, q, v, a), expected)


def test_scipy_gets_both_triangles():
    pytest.importorskip("scipy")
    tree = trees.auto_tree(50, 1.5, 0.3, floating_base=True)
    H = trees.crba(tree, tree.random(seed=0).q)
    np.testing.assert_array_equal(H.to_scipy().toarray(), H.to_dense())


def test_importing_rigidgrad_loads_neither_trees_nor_numba():
    code = "import sys, rigidgrad; print({'numba', 'rigidgrad.trees'} & set(sys.modules))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "set()\n"
    )


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parents", "kind", "words"),
    [
        ([], InputError, "at least one body"),
        ([[-1]], InputError, "shape"),
        ([0.5], InputError, "whole numbers"),
        (["x"], InputError, "whole numbers"),
        ([-1, 2], ModelError, "body 1 has parent 2"),
        ([-1, -2], ModelError, "body 1 has parent -2"),
        ([0], ModelError, "body 0 is its own ancestor"),
        ([-1, 2, 3, 1], ModelError, "body 1 is its own ancestor"),
    ],
)
def test_what_is_no_tree_is_refused(parents, kind, words):
    with pytest.raises(kind, match=words):
        trees.Tree(parents)


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"mass": -1.0}, ModelError, "body 0: its mass is negative"),
        ({"mass": [1.0, 2.0, 3.0]}, InputError, "mass has shape"),
        ({"com": np.nan}, InputError, "com holds NaN"),
        ({"com": (0, 0, np.nan)}, InputError, "com holds NaN"),
        ({"inertia": -np.eye(3)}, ModelError, "negative moment"),
        ({"inertia": [[1, 1, 0], [0, 1, 0], [0, 0, 1]]}, ModelError, "not symmetric"),
        ({"rotation": 2 * np.eye(3)}, ModelError, "not a rotation"),
        ({"axis": (0, 0, 0)}, ModelError, "axis is zero"),
        ({"joints": "ball"}, InputError, "no joint 'ball'"),
        ({"joints": ["revolute"] * 3}, InputError, "3 words"),
        ({"armature": -1.0}, ModelError, "armature is negative"),
        ({"gravity": (0, 0)}, InputError, "gravity has shape"),
    ],
)
def test_impossible_bodies_are_refused(arguments, kind, words):
    with pytest.raises(kind, match=words):
        trees.Tree([-1, 0], **arguments)


def test_a_floating_base_is_one_body():
    with pytest.raises(ModelError, match="body 0 as the only body"):
        trees.Tree([-1, -1], floating_base=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"bodies": 0}, "at least one body"),
        ({"bodies": 2.5}, "whole number"),
        ({"bodies": 3, "branching": 0.5}, "at least 1"),
        ({"bodies": 3, "skew": np.nan}, "finite"),
        ({"bodies": 3, "taper": 0.0}, "positive"),
        ({"bodies": 10**6, "taper": 0.5}, "shrink or grow"),
        ({"bodies": 3, "joints": "ball"}, "revolute"),
    ],
)
def test_auto_tree_says_what_it_needs(arguments, words):
    with pytest.raises(InputError, match=words):
        trees.auto_tree(**arguments)


def test_wrong_arguments_are_named():
    tree = trees.auto_tree(5)
    zero = np.zeros(5)
    with pytest.raises(InputError, match=r"v has shape \(4,\); expected \(…, 5\)"):
        trees.rnea(tree, zero, np.zeros(4), zero)
    with pytest.raises(UnknownNameError, match="Did you mean 'levels'"):
        trees.rnea(tree, zero, zero, zero, method="level")
    with pytest.raises(UnknownNameError, match="no method"):
        trees.forward_dynamics(tree, zero, zero, zero, method="euler_tour")
    with pytest.raises(UnknownNameError, match="no variant"):
        trees.rnea(tree, zero, zero, zero, method="euler_tour", variant="mapped")
    with pytest.raises(InputError, match="a Tree is needed, not Robot"):
        trees.rnea(rg.load("pendulum"), [0.0], [0.0], [0.0])
    with pytest.raises(InputError, match="no body 5"):
        trees.rnea(tree, zero, zero, zero, external={5: np.zeros(6)})
    with pytest.raises(InputError, match="external has shape"):
        trees.rnea(tree, zero, zero, zero, external=np.zeros(5))
    with pytest.raises(UnknownNameError, match="root"):
        trees.rnea(tree, zero, zero, zero, external=np.zeros((5, 6)), external_in="world")
    with pytest.raises(InputError, match=r"\(…, 5\)"):
        trees.crba(tree, zero).solve(np.zeros(4))
    with pytest.raises(ModelError, match="not positive definite"):
        trees.crba(trees.Tree([-1, 0], mass=0.0), [0.0, 0.0]).solve([1.0, 1.0])
    with pytest.raises(InputError, match="inverse="):
        trees.rootfix(tree, zero, add, 0, method="euler_tour")
    with pytest.raises(InputError, match="one row for each of 5 bodies"):
        trees.rootfix(tree, np.zeros(4), add, 0)
    with pytest.raises(UnknownNameError, match="no scan"):
        trees.scan(np.zeros((3, 1)), add, 0, variant="parallel")


def test_models_that_are_no_such_tree_are_refused():
    ball = (
        rg.Builder("b")
        .link("w")
        .link("x", 1.0, inertia=(1, 1, 1))
        .joint("j", "spherical", "w", "x")
        .build(engine="numpy")
    )
    with pytest.raises(ModelError, match="'j' is spherical"):
        trees.Tree.from_model(ball)
    two = (
        rg.Builder("b")
        .link("w")
        .link("x", 1.0, inertia=(1, 1, 1))
        .link("y", 1.0, inertia=(1, 1, 1))
    )
    two = (
        two.joint("j", "revolute", "w", "x")
        .joint("k", "revolute", "x", "y", mimic="j")
        .build(engine="numpy")
    )
    with pytest.raises(ModelError, match="'k' mimics"):
        trees.Tree.from_model(two)
    with pytest.raises(InputError, match="a Robot or a Model"):
        trees.Tree.from_model([-1, 0])
