"""Loops over arrays as compiled code: every function does what Python itself does with it, on
NumPy's arrays.
"""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rigidgrad import trees
from rigidgrad.errors import InputError
from rigidgrad.runtime import native
from rigidgrad.runtime.loops import kernel

SCALE = 3


def sieve(flags):
    """Whole numbers, conditions, loops in loops, `continue`, `break`, `while`."""
    count = 0
    for i in range(2, len(flags)):
        if not flags[i]:
            continue
        count += 1
        k = i * i
        while True:
            if k >= len(flags):
                break
            flags[k] = False
            k += i
    return count


def floors(x, y, out):
    """Python rounds quotients down, whatever the signs."""
    out[0], out[1], out[2], out[3] = x // y, x % y, x // 8, x % 8
    out[4] = -x % 1009


def first_above(x, limit):
    for i in range(len(x)):
        if x[i] > limit or (i > 0 and x[i - 1] + x[i] > 2 * limit):
            return i, x[i]
    return -1, 0.0


def triangle(x, out):
    """Steps that are known at run time only, both ways; a step of a constant; swaps."""
    a, b = x[0], x[1]
    for step in range(1, 4):
        for k in range(len(x) - 1, -1, -step):
            a, b = b, a + x[k] / SCALE
        for k in range(0, len(x), step):
            b = min(a, b) + max(x[k], 0.5) - abs(x[k])
    out[0], out[1] = a, b


def rows(x, out):
    """Parts of arrays, copied and changed."""
    held = np.zeros(3)
    for i in range(len(x)):
        held[:] = x[i, 1:4]
        held[1] *= 2.0
        out[i, :3] = held
        out[i, -1] = math.sqrt(abs(x[i, 0])) if x[i, 0] < 0 else math.sin(x[i, 0])


def powers(x):
    return x * x, x**3


def tuples(x, out):
    """Tuples that change in a loop, functions that are traced, constant steps."""
    pair = (x[0], x[1])
    for k in range(2, len(x)):
        square, cube = powers(x[k])
        pair = (pair[1] + cube, pair[0] - square)
    for j in range(2):
        out[j] = pair[j]


@pytest.mark.parametrize("size", [2, 3, 100])
def test_conditions_and_loops_are_those_of_python(size):
    mine, python = np.ones(size, bool), np.ones(size, bool)
    assert kernel(sieve)(mine) == sieve(python)
    assert np.array_equal(mine, python)


@settings(deadline=None)
@given(st.integers(-(10**12), 10**12), st.integers(-1000, 1000).filter(bool))
def test_whole_numbers_are_divided_as_in_python(x, y):
    mine, python = np.zeros(5, np.int64), np.zeros(5, np.int64)
    FLOORS(x, y, mine)
    floors(x, y, python)
    assert np.array_equal(mine, python)


FLOORS = kernel(floors)


@pytest.mark.parametrize("limit", [0.0, 0.9, 5.0])
def test_what_is_returned_from_the_middle_arrives(limit):
    x = np.random.default_rng(0).uniform(-1, 1, 20)
    assert kernel(first_above)(x, limit) == first_above(x, limit)


@pytest.mark.parametrize("function", [triangle, tuples])
def test_numbers_are_those_of_python(function):
    x = np.random.default_rng(1).uniform(-1, 1, 11)
    mine, python = np.zeros(2), np.zeros(2)
    kernel(function)(x, mine)
    function(x, python)
    np.testing.assert_allclose(mine, python, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_parts_of_arrays_may_have_gaps(dtype):
    wide = np.random.default_rng(2).uniform(-1, 1, (6, 10)).astype(dtype)
    mine, python = np.zeros((6, 4), dtype), np.zeros((6, 4), dtype)
    for x in (wide[:, 2:7], wide[::-1, ::2], np.asfortranarray(wide)):
        kernel(rows)(x, mine)
        rows(x, python)
        np.testing.assert_allclose(mine, python, rtol=1e-6)


def test_every_integer_dtype_keeps_its_range():
    for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64):
        x = np.array([np.iinfo(dtype).min, 0, 1, np.iinfo(dtype).max], dtype)
        total = kernel(total_of)(x)
        assert total == sum(int(v) for v in x)


def total_of(x):
    total = 0
    for k in range(len(x)):
        total += x[k]
    return total


def test_a_function_that_cannot_be_compiled_is_refused_with_a_reason():
    def listed(x, y, out):
        out[:] = [a + b for a, b in zip(x, y, strict=True)]

    tree = trees.auto_tree(5)
    with pytest.raises(InputError, match="listed cannot be compiled"):
        trees.rootfix(tree, np.ones(5), listed, 0.0)


def test_a_second_process_compiles_nothing_and_none_needs_numba(tmp_path):
    import os
    import subprocess

    code = """
import sys
sys.modules["numba"] = None  # not to be had
from rigidgrad import trees
from rigidgrad.runtime import native
tree = trees.auto_tree(3000, 2)
trees.rnea(tree, *tree.random(seed=0))
print(native.compiled_count())
"""
    environment = {**os.environ, "RIGIDGRAD_CACHE": str(tmp_path)}
    counts = [
        int(
            subprocess.run(
                [sys.executable, "-c", code],
                capture_output=True,
                text=True,
                check=True,
                env=environment,
            ).stdout
        )
        for _ in "12"
    ]
    assert counts[0] > 0 and counts[1] == 0


def test_kernels_are_compiled_once_for_each_set_of_types():
    add = kernel(total_of)
    add(np.ones(3))
    before = native.compiled_count()
    add(np.ones(5))
    assert native.compiled_count() == before
    assert add(np.ones(3, np.float32)) == 3.0
    assert native.compiled_count() == before + 1


def clipped(x, out):
    """A name that begins as a whole number and ends as another."""
    total = 0
    for k in range(len(x)):
        if x[k] > 0:
            total += x[k]
    out[0] = total


def test_a_sum_may_begin_with_a_whole_number():
    x = np.array([0.5, -1.0, 0.25])
    out = np.zeros(1)
    kernel(clipped)(x, out)
    assert out[0] == 0.75


def mixed(x, out):
    held = x[0]
    for _ in range(len(x)):
        held = (held, held)
    out[0] = 1.0


def test_a_name_that_changes_its_type_in_a_loop_is_refused():
    with pytest.raises(InputError, match="'held' has another type"):
        kernel(mixed)(np.ones(3), np.ones(1))


def test_an_operator_without_a_source_is_run_by_python():
    names = {}
    exec("def add(x, y, out):\n    out[0] = x[0] + y[0]", names)
    tree = trees.auto_tree(300, 1.5)
    for method in ("levels", "heavy_path"):
        assert np.array_equal(
            trees.leaffix(tree, np.ones(300, int), names["add"], 0, method=method),
            tree.topology.size,
        )
