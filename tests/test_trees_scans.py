"""Scans of trees: every variant on any number of threads is the sum of what comes before, and takes
the operations, one after the other and all together, that its algorithm needs.
"""

from __future__ import annotations

import numpy as np
import pytest

from rigidgrad import errors, trees
from rigidgrad.runtime.loops import as_kernel, kernel
from rigidgrad.trees import scans

IDENTITY = np.array([1.0, 0.0])


@kernel
def recur(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """x → x·a + b, one after the other: not commutative."""
    a, b = x[0] * y[0], x[1] * y[0] + y[1]
    out[0], out[1] = a, b


@pytest.fixture(autouse=True)
def _few_rows_are_shared(monkeypatch):
    monkeypatch.setattr(scans, "_THREADED", 0)
    monkeypatch.setattr("rigidgrad.trees.tours.THREADED", 0)


def recurrences(count):
    rng = np.random.default_rng(count)
    return np.stack([np.exp(0.1 * rng.normal(size=count)), rng.normal(size=count)], axis=1)


@pytest.mark.parametrize("variant", ["native", "work_efficient", "blocked"])
@pytest.mark.parametrize("count", [1, 2, 3, 255, 256, 257, 1000])
def test_a_scan_is_the_sum_of_what_comes_before_whatever_the_threads(variant, count):
    rows = recurrences(count)
    before = np.empty((count + 1, 2))
    before[0] = IDENTITY
    for k, (a, b) in enumerate(rows):
        before[k + 1] = before[k, 0] * a, before[k, 1] * a + b
    for threads in (1, 2, 3, 5):
        for exclusive in (False, True):
            expected = before[:-1] if exclusive else before[1:]
            own = rows.copy()
            for given, out in ((rows, None), (own, own)):
                found = trees.scan(
                    given, recur, IDENTITY,
                    variant=variant, exclusive=exclusive, threads=threads, block=7, out=out,
                )  # fmt: skip
                np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_components_are_scanned_by_themselves():
    rows = np.arange(3000.0).reshape(1000, 3)
    for threads in (1, 2, 3, 8):
        found = trees.scan(rows, scans_add, 0.0, variant="mapped", threads=threads)
        np.testing.assert_array_equal(found, np.cumsum(rows, axis=0))


@kernel
def scans_add(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    for k in range(len(x)):
        out[k] = x[k] + y[k]


def test_where_results_do_not_fit_is_said():
    with pytest.raises(errors.InputError, match="contiguous"):
        trees.scan(np.ones((4, 2)), recur, IDENTITY, out=np.empty((4, 3)))


def counted(rows, **options):
    """How many operations a scan takes, and how many of them one after the other at most: the very
    code that is compiled, run by Python, as this operator has no source.
    """
    names: dict = {}
    text = """
def op(x, y, out):
    count[0] += 1
    out[0], out[1] = x[0] + y[0], max(x[1], y[1]) + 1
"""
    exec(text, names | {"count": (count := [0])}, names)
    found = trees.scan(rows, names["op"], 0.0, **options)
    np.testing.assert_array_equal(found[:, 0], np.arange(1, len(rows) + 1))
    return count[0], int(found[:, 1].max())


def test_work_and_span_are_those_of_the_algorithms():
    """Blelloch (1990): 2 (M - 1) operations, 2 log₂ M one after the other. Chunks: those that are
    added up and scanned count twice; the longest way is through the first two.
    """
    for log in (6, 9, 12):
        m = 2**log
        rows = np.stack([np.ones(m), np.zeros(m)], axis=1)
        for threads in (1, 2):
            work, span = counted(rows, variant="work_efficient", threads=threads)
            assert work == 2 * (m - 1)
            assert span in (2 * log - 1, 2 * log)
        assert counted(rows, variant="native", threads=1) == (m, m)
        work, span = counted(rows, variant="native", threads=2)
        assert 1.3 * m < work < 1.5 * m
        assert 0.55 * m < span < 0.7 * m
        block = 2 ** (log // 2)
        work, span = counted(rows, variant="blocked", block=block, threads=1)
        assert 1.7 * m <= work <= 2 * m + m // block
        assert span <= 2 * block * (1 + log % 2)


def test_the_tour_walks_the_same_way_on_any_number_of_threads():
    """Every variant, and scans on shared subtrees give the numbers of one thread to the last bit,
    but for chunks.
    """
    tree = trees.auto_tree(700, 1.5, skew=0.3, gravity=(3, -4, -8))
    q, v, _ = tree.random(seed=1)
    a = np.random.default_rng(2).normal(size=tree.nv)
    exact = trees.rnea(tree, q, v, a)
    for variant in ("simulated", "native", "work_efficient", "blocked"):
        options = {"method": "euler_tour", "variant": variant}
        one, three = (trees.rnea(tree, q, v, a, threads=k, **options) for k in (1, 3))
        assert abs(one - exact).max() < 1e-9 * abs(exact).max()
        if variant == "native":
            assert abs(one - three).max() < 1e-9 * abs(exact).max()
        else:
            np.testing.assert_array_equal(one, three)


@pytest.mark.parametrize("floating", [False, True])
def test_the_mass_matrix_by_the_tour_is_that_by_ancestors(floating):
    forest = trees.Tree(
        [-1, 0, 0, 1, 3, 1, 2, 6, 7, 7] if floating else [-1, 0, -1, 1, 3, 1, 2, 6, 7, 7],
        translation=(0.3, 0.1, -0.5),
        inertia=0.1 * np.eye(3),
        com=(0.1, 0.2, 0.3),
        joints=["revolute", "prismatic", "helical", "revolute", "prismatic"] * 2,
        axis=np.random.default_rng(4).normal(size=(10, 3)),
        pitch=0.2,
        armature=0.3,
        floating_base=floating,
    )
    q = forest.random(batch=3, seed=5).q
    expected = trees.crba(forest, q).values
    for options in ({}, {"variant": "work_efficient", "threads": 3}, {"variant": "native"}):
        found = trees.crba(forest, q, method="euler_tour", **options).values
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    single = trees.crba(forest, q.astype(np.float32), method="euler_tour").values
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=1e-4, atol=1e-4)


def test_what_the_mass_matrix_cannot_do_is_said():
    tree = trees.auto_tree(4)
    for options in ({"method": "levels"}, {"variant": "mapped"}, {"block": 0}):
        with pytest.raises((errors.InputError, errors.UnknownNameError)):
            trees.crba(tree, tree.neutral(), **options)


def larger(x, y, out):
    if x[0] > y[0]:
        out[0] = x[0]
    else:
        out[0] = y[0]


def test_an_operator_that_branches_is_scanned_without_lanes():
    rows = np.random.default_rng(0).normal(size=(500, 1))
    for threads in (1, 2, 3):
        found = trees.scan(rows, larger, -np.inf, variant="native", threads=threads)
        np.testing.assert_array_equal(found[:, 0], np.maximum.accumulate(rows[:, 0]))
    assert not any(scans._in_lanes[as_kernel(larger)].values())
    trees.scan(rows, scans_add, 0.0, variant="native", threads=2)
    assert all(scans._in_lanes[scans_add].values())
