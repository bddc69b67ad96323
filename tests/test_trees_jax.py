"""The JAX engine gives what the default engine gives, on one device and shared by two."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from rigidgrad import trees
from rigidgrad.errors import InputError, UnknownNameError

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'rigidgrad[jax]'")

from rigidgrad.trees.jax_engine import compile_rnea  # noqa: E402


def close(found, expected, tolerance):
    assert np.abs(np.asarray(found) - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("method", ["levels", "heavy_path"])
@pytest.mark.parametrize(("bodies", "branching"), [(1, 1.0), (9, 2.0), (300, 1.0), (60, 1.2)])
def test_jax_gives_the_same_joint_forces(bodies, branching, method):
    tree = trees.auto_tree(bodies, branching, 0.3, gravity=(3.0, -4.0, -8.0), joints=("revolute", "prismatic", "helical"))
    q, v, a = tree.random(batch=(2,), seed=0)
    expected = trees.rnea(tree, q, v, a)
    f = compile_rnea(tree, method=method)
    close(f(q, v, a), expected, 1e-12)
    close(f(q[0], v[0], a[0]), expected[0], 1e-12)
    single = compile_rnea(tree, method=method, dtype="float32")(q, v, a)
    assert single.dtype == np.float32
    close(single, expected, 1e-3)


@pytest.mark.parametrize("method", ["levels", "heavy_path"])
def test_jax_takes_any_forest(method):
    rng = np.random.default_rng(1)
    parents = np.array([-1 if i < 3 else rng.integers(max(0, i - 12), i) for i in range(400)])
    tree = trees.Tree(parents, translation=rng.normal(size=(400, 3)), inertia=np.eye(3), axis=rng.normal(size=(400, 3)))
    q, v, a = tree.random(seed=0)
    close(compile_rnea(tree, method=method)(q, v, a), trees.rnea(tree, q, v, a), 1e-11)


def test_jax_stays_out_of_the_callers_configuration():
    tree = trees.auto_tree(10)
    compile_rnea(tree)(*tree.random(seed=0))
    assert jax.numpy.zeros(1).dtype == np.float32


def test_jax_refuses_what_it_cannot_do():
    with pytest.raises(InputError, match="floating"):
        compile_rnea(trees.auto_tree(5, floating_base=True))
    with pytest.raises(UnknownNameError, match="no method"):
        compile_rnea(trees.auto_tree(5), method="euler_tour")
    with pytest.raises(InputError, match=r"needed is \(5,\)"):
        compile_rnea(trees.auto_tree(5))(np.zeros(4), np.zeros(4), np.zeros(4))
    with pytest.raises(InputError, match="one device"):
        compile_rnea(trees.auto_tree(5), method="heavy_path", devices=jax.devices() * 2)


def test_two_devices_share_a_tree():
    code = """
import jax, numpy as np
from rigidgrad import trees
from rigidgrad.trees.jax_engine import compile_rnea
assert len(jax.devices()) == 2
for bodies, branching in ((3000, 2.0), (2000, 1.3), (300, 1.0)):
    tree = trees.auto_tree(bodies, branching, 0.3, gravity=(3.0, -4.0, -8.0))
    q, v, a = tree.random(seed=0)
    f = compile_rnea(tree, method="levels", devices=jax.devices())
    expected = trees.rnea(tree, q, v, a)
    assert np.abs(np.asarray(f(q, v, a)) - expected).max() < 1e-12 * np.abs(expected).max()
print("shared")
"""
    flags = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], env=flags, capture_output=True, text=True, timeout=600)
    assert done.stdout == "shared\n", done.stderr
