"""The JAX engine gives what the default engine and the Robot give, on one device and shared by two,
and derivatives on top.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from random_trees import assert_close

import rigidgrad as rg
from rigidgrad import trees
from rigidgrad.errors import InputError, UnknownNameError

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'rigidgrad[jax]'")

GRAVITY = (3.0, -4.0, -8.0)
MIXED = ("revolute", "prismatic", "helical")


@pytest.fixture
def quickly_compiled():
    """Small trees take longer to compile than to compute."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def forest(n, reach, roots, **more):
    """Bodies on one of the `reach` before them, with all joints about any axis, and armature."""
    rng = np.random.default_rng(n)
    parents = np.array([-1 if i < roots else rng.integers(max(0, i - reach), i) for i in range(n)])
    shape = rng.normal(size=(n, 3, 3))
    return trees.Tree(
        parents,
        translation=rng.normal(size=(n, 3)),
        com=rng.normal(size=(n, 3)),
        inertia=shape @ np.swapaxes(shape, 1, 2),
        joints=rng.choice(MIXED, n),
        axis=rng.normal(size=(n, 3)),
        pitch=rng.normal(size=n),
        armature=rng.uniform(0, 1, n),
        gravity=GRAVITY,
        **more,
    )


def agree(found, expected, tolerance=1e-12):
    found, expected = ([x] if not isinstance(x, tuple) else x for x in (found, expected))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == np.float64
        assert_close(np.asarray(ours), theirs, tolerance, "JAX")


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize(
    ("tree", "batch", "method"),
    [
        pytest.param(forest(60, 30, 1, floating_base=True), (3,), "levels", id="floating"),
        pytest.param(forest(160, 2, 2), (1,), "heavy_path", id="deep forest"),
        pytest.param(forest(1, 1, 1), (), None, id="single body"),
    ],
)
def test_jax_gives_the_default_engines_dynamics(tree, batch, method):
    q, v, tau = tree.random(batch=batch, seed=0)
    wrench = np.random.default_rng(0).normal(size=(*batch, tree.bodies, 6))
    forces = {"external": wrench, "external_in": "root"}
    agree(
        trees.jax.rnea(tree, q, v, tau, method=method, **forces),
        trees.rnea(tree, q, v, tau, **forces),
    )
    by_body = {"external": {0: wrench[..., 0, :]}}
    found = trees.jax.forward_dynamics(tree, q, v, tau, method=method, **by_body)
    assert np.all(np.asarray(found.residual) < 1e-12)
    # as exact as the mass matrix's condition lets it be
    agree(found.a, trees.forward_dynamics(tree, q, v, tau, **by_body).a, 1e-9)


@pytest.mark.usefixtures("quickly_compiled")
def test_jax_gives_the_default_engines_placements_energy_and_momentum():
    tree = forest(60, 30, 1, floating_base=True)
    q, v, _ = tree.random(batch=(3,), seed=0)
    agree(trees.jax.energy(tree, q, v), trees.energy(tree, q, v))
    agree(trees.jax.center_of_mass(tree, q), trees.center_of_mass(tree, q))
    agree(trees.jax.centroidal_momentum(tree, q, v), trees.centroidal_momentum(tree, q, v))
    deep = forest(160, 2, 2)
    q, _, _ = deep.random(batch=(1,), seed=0)
    agree(
        trees.jax.forward_kinematics(deep, q, method="heavy_path"),
        trees.forward_kinematics(deep, q),
    )


@pytest.mark.usefixtures("quickly_compiled")
def test_jax_packs_the_same_mass_matrix():
    tree = forest(80, 9, 3)
    q, v, _ = tree.random(batch=(2,), seed=1)
    expected, H = trees.crba(tree, q), trees.jax.crba(tree, q)
    agree(H.values, expected.values)
    agree(H.solve(v), expected.solve(v), 1e-8)
    agree(H @ v, expected @ v)
    tree = forest(40, 4, 1, floating_base=True)
    q, _, _ = tree.random(seed=1)
    H = jax.jit(lambda q: trees.jax.crba(tree, q))(q)
    assert H.values.dtype == np.float32  # JAX's default, within a function of the user's
    assert_close(H.to_dense()[None], trees.crba(tree, q).to_dense()[None], 1e-5, "dense")
    assert_close(H.to_scipy().toarray()[None], trees.crba(tree, q).to_dense()[None], 1e-5, "SciPy")


@pytest.mark.usefixtures("quickly_compiled")
def test_jax_walks_the_euler_tour():
    tree = forest(30, 15, 1, floating_base=True)
    q, v, a = tree.random(seed=0)
    tour, external = {"method": "euler_tour"}, {"external": {3: np.arange(6.0)}}
    found = trees.jax.rnea(tree, q, v, a, **external, **tour)
    agree(found[None], trees.rnea(tree, q, v, a, **external)[None], 1e-10)
    found = trees.jax.crba(tree, q, **tour).values
    agree(found[None], trees.crba(tree, q).values[None], 1e-10)
    with pytest.raises(InputError, match="one device"):
        trees.jax.rnea(tree, q, v, a, **tour, devices=jax.devices() * 2)


def test_a_robots_tree_has_the_robots_dynamics_in_jax():
    robot = rg.load("hyq", floating_base=True, gravity=GRAVITY)
    tree = trees.Tree.from_model(robot)
    q, v, a = robot.random(batch=(4,), seed=3)
    agree(trees.jax.rnea(tree, q, v, a), robot.rnea(q, v, a))
    agree(trees.jax.bias(tree, q, v), robot.bias(q, v))


@pytest.mark.parametrize("branching", [1.0, 1.01, 2.0])
def test_jax_keeps_the_digits_of_large_trees(branching):
    tree = trees.auto_tree(10_000, branching, 0.3, gravity=GRAVITY, joints=MIXED)
    q, v, a = tree.random(seed=0)
    v = 0.1 * v
    expected = trees.rnea(tree, q, v, a)
    agree(np.asarray(trees.jax.rnea(tree, q, v, a))[None], expected[None])
    if branching == 2:
        single = trees.jax.rnea(tree, *(x.astype(np.float32) for x in (q, v, a)))
        assert single.dtype == np.float32
        assert_close(np.asarray(single)[None], expected[None], 1e-5, "float32")


@pytest.mark.usefixtures("quickly_compiled")
def test_jax_differentiates_dynamics():
    """Forwards and backwards, in jitted functions of the user's, against central differences of the
    default engine.
    """
    tree = forest(6, 3, 1)
    state = tree.random(seed=2)
    change = np.random.default_rng(3).normal(size=(3, 6))

    def slope(f, step=1e-5):
        more, less = (
            [x + s * dx for x, dx in zip(state, change, strict=True)] for s in (step, -step)
        )
        return (f(*more) - f(*less)) / (2 * step)

    with jax.enable_x64(True):
        inputs, tangents = (tuple(jax.numpy.asarray(x) for x in y) for y in (state, change))
        found = jax.jit(lambda *x: jax.jvp(lambda *y: trees.jax.rnea(tree, *y), x, tangents)[1])(
            *inputs
        )
        agree(found[None], slope(lambda *x: trees.rnea(tree, *x))[None], 1e-7)
        pulled = jax.jit(
            jax.grad(lambda *x: trees.jax.forward_dynamics(tree, *x).a.sum(), argnums=(0, 1, 2))
        )(*inputs)
    along = sum(float(x @ dx) for x, dx in zip(np.asarray(pulled), change, strict=True))
    assert along == pytest.approx(
        slope(lambda *x: trees.forward_dynamics(tree, *x).a).sum(), rel=1e-6
    )


def test_jax_stays_out_of_the_callers_configuration():
    tree = trees.auto_tree(10)
    assert trees.jax.rnea(tree, *tree.random(seed=0)).dtype == np.float64
    assert jax.numpy.zeros(1).dtype == np.float32


def test_jax_refuses_what_it_cannot_do():
    tree = trees.auto_tree(5)
    x = np.zeros(5)
    with pytest.raises(UnknownNameError, match="no method"):
        trees.jax.rnea(tree, x, x, x, method="sequential")
    with pytest.raises(UnknownNameError, match="no method"):
        trees.jax.crba(tree, x, method="levels")
    with pytest.raises(InputError, match="articulated"):
        trees.jax.forward_dynamics(tree, x, x, x, method="euler_tour")
    with pytest.raises(InputError, match=r"expected \(…, 5\)"):
        trees.jax.rnea(tree, np.zeros(4), x, x)
    with pytest.raises(InputError, match="do not broadcast"):
        trees.jax.rnea(tree, np.zeros((2, 5)), np.zeros((3, 5)), x)
    with pytest.raises(InputError, match="one device"):
        trees.jax.rnea(tree, x, x, x, method="heavy_path", devices=jax.devices() * 2)
    with pytest.raises(InputError, match="at least one device"):
        trees.jax.rnea(tree, x, x, x, devices=[])
    with pytest.raises(InputError, match="no body 7"):
        trees.jax.rnea(tree, x, x, x, external={7: np.zeros(6)})
    with pytest.raises(InputError, match="external has shape"):
        trees.jax.rnea(tree, x, x, x, external=np.zeros((4, 6)))
    with pytest.raises(UnknownNameError, match="frame"):
        trees.jax.rnea(tree, x, x, x, external=np.zeros((5, 6)), external_in="world")
    with pytest.raises(InputError, match="a Tree is needed"):
        trees.jax.rnea("iiwa14", x, x, x)
    with pytest.raises(InputError, match="refinements"):
        trees.jax.forward_dynamics(tree, x, x, x, refinements=-1)
    with pytest.raises(trees.TooLargeError, match="mass matrix"):
        trees.jax.crba(trees.auto_tree(500_000, 1.0), np.zeros(500_000))


def test_without_jax_the_message_says_what_to_install():
    code = (
        "import sys; sys.modules['jax'] = None\nfrom rigidgrad import trees\ntry:\n   "
        " trees.jax\nexcept Exception as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'rigidgrad[jax]'" in done.stdout


def test_two_devices_share_a_tree():
    code = """
import jax, numpy as np
from rigidgrad import trees
assert len(jax.devices()) == 2

def close(found, expected, tolerance=1e-12):
    assert np.abs(np.asarray(found) - expected).max() < tolerance * np.abs(expected).max()

for bodies, branching, floating in ((400, 2.0, True), (300, 1.0, False)):
    tree = trees.auto_tree(bodies, branching, 0.3, gravity=(3.0, -4.0, -8.0), floating_base=floating)
    q, v, a = tree.random(batch=(2,), seed=0)
    wrench = np.random.default_rng(0).normal(size=(2, bodies, 6))
    forces = {"external": wrench, "external_in": "root"}
    tau = trees.jax.rnea(tree, q, v, a, devices=jax.devices(), **forces)
    close(tau, trees.rnea(tree, q, v, a, **forces))
    if floating:
        dynamics = trees.jax.forward_dynamics(tree, q, v, a, devices=jax.devices())
        assert np.asarray(dynamics.residual).max() < 1e-12
        close(dynamics.a, trees.forward_dynamics(tree, q, v, a).a, 1e-8)
print("shared")
"""
    flags = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=flags, capture_output=True, text=True, timeout=600
    )
    assert done.stdout == "shared\n", done.stderr
