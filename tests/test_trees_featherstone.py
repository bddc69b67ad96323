"""Trees against Featherstone's own model and algorithms, written again from his book."""

from __future__ import annotations

import featherstone
import numpy as np
import pytest

from rigidgrad import trees

SKEW, GRAVITY = 0.37, (3.0, -4.0, -8.0)  # planar arms upright hide errors
VARIANTS = ("simulated", "native", "work_efficient", "blocked")


@pytest.fixture(
    scope="module", params=[(1.0, 60), (1.01, 210), (2.0, 150)], ids=lambda x: str(x[0])
)
def case(request):
    branching, bodies = request.param
    arm = featherstone.arm(bodies, branching, SKEW, GRAVITY)
    tree = trees.auto_tree(bodies, branching, skew=SKEW, gravity=GRAVITY)
    rng = np.random.default_rng(bodies)
    return arm, tree, rng.uniform(-3, 3, bodies), *rng.normal(size=(2, bodies))


def close(found, expected, digits):
    assert abs(found - expected).max() < 10.0**-digits * abs(expected).max()


def test_the_model_is_his(case):
    arm, tree, *_ = case
    np.testing.assert_array_equal(tree.parents, arm.parent)


@pytest.mark.parametrize("method", ["sequential", "levels", "heavy_path", "euler_tour"])
def test_joint_forces(case, method):
    arm, tree, q, v, a = case
    expected = featherstone.newton_euler(arm, q, v, a)
    for variant in VARIANTS if method == "euler_tour" else VARIANTS[:1]:
        found = trees.rnea(tree, q, v, a, method=method, variant=variant)
        close(found, expected, 9 if method == "euler_tour" else 12)


@pytest.mark.parametrize("method", ["ancestors", "euler_tour"])
def test_mass_matrix_and_bias(case, method):
    arm, tree, q, v, _ = case
    H, C = featherstone.matrix_and_bias(arm, q, v)
    for variant in VARIANTS[1:] if method == "euler_tour" else ("blocked",):
        found = trees.crba(tree, q, method=method, variant=variant).to_dense()
        close(found, H, 12)
        assert not found[H == 0].any()  # zero where no path leads from one to the other
    tour = "euler_tour" if method == "euler_tour" else None
    close(trees.bias(tree, q, v, method=tour), C, 9)
