"""Different ways to the same result: every formulation that lanes may record agrees with the
reference algorithms on random trees.

They are run on NumPy columns, without compiling. Sums are taken in another order and on another,
equivalent model, so inverse-type results agree to 1e-10 of the largest entry, forward-type ones to
that times what the mass matrix's condition costs.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from random_trees import random_tree

from rigidgrad.algorithms import catalog
from rigidgrad.algorithms.crba import crba
from rigidgrad.algorithms.fast.factored import factored_minv, solved_dynamics
from rigidgrad.algorithms.fast.gauge import own_frames
from rigidgrad.algorithms.fast.newton_euler import newton_euler
from rigidgrad.algorithms.fast.subtree_gradient import (
    subtree_aba_derivatives,
    subtree_fused_gradient,
    subtree_rnea_derivatives,
)
from rigidgrad.algorithms.textbook.aba import aba
from rigidgrad.algorithms.textbook.aba_derivatives import aba_derivatives
from rigidgrad.algorithms.textbook.forward_dynamics import (
    forward_dynamics_ltl,
    forward_dynamics_minv,
)
from rigidgrad.algorithms.textbook.minv import minv
from rigidgrad.algorithms.textbook.rnea import rnea
from rigidgrad.algorithms.textbook.rnea_derivatives import rnea_derivatives
from rigidgrad.model.canonical import canonical
from rigidgrad.runtime.frames import gauges

STATES = 3
SEEDS = range(60)


@lru_cache(maxsize=16)
def case(seed):
    tree = random_tree(2000 + seed, 1 + seed % 14)
    model = tree.robot().model
    rng = np.random.default_rng(seed)
    q, v, a = (tuple(np.ascontiguousarray(x.T)) for x in tree.random_state(rng, (STATES,)))
    links = tree.random_wrenches(rng, (STATES,))
    return tree, model, canonical(model), q, v, a, links


def wrenches(model, links):
    """Body wrenches as the catalog makes them from named links."""
    found = {}

    def catch(_, *arguments):
        found.update(arguments[-1])
        return (0.0,) * model.nv

    kernel = catalog.bind(model, "rnea", external=tuple(links), formulation=catch)
    zeros = {"q": (), "v": (), "a": ()}
    kernel.evaluate(
        zeros | {f"external:{name}": tuple(np.ascontiguousarray(w.T)) for name, w in links.items()}
    )
    return found


def dense(x):
    if isinstance(x, tuple):
        return np.array([dense(y) for y in x])
    return np.broadcast_to(np.asarray(x, float), (STATES,))


def assert_same(actual, expected, loss=1.0, what=""):
    x, y = dense(actual), dense(expected)
    assert abs(x - y).max(initial=0.0) <= 1e-10 * loss * max(1.0, abs(y).max(initial=0.0)), what


def condition(model, q):
    M = np.moveaxis(dense(crba(model, q)), -1, 0)
    return max(1.0, 1e-3 * np.linalg.cond(M).max()) if model.nv else 1.0


@pytest.mark.parametrize("seed", SEEDS)
def test_inverse_dynamics(seed):
    tree, model, lean, q, v, a, links = case(seed)
    for external in ({}, links):
        expected = rnea(model, q, v, a, wrenches(model, external))
        for formulation in (rnea, newton_euler):
            for m in (model, lean):
                assert_same(
                    formulation(m, q, v, a, wrenches(m, external)),
                    expected,
                    what=f"{formulation.__name__}, {tree}",
                )
    assert_same(crba(lean, q), crba(model, q), what=str(tree))


@pytest.mark.parametrize("seed", SEEDS)
def test_forward_dynamics(seed):
    tree, model, lean, q, v, a, links = case(seed)
    loss = condition(model, q)
    expected = aba(model, q, v, a, wrenches(model, links))
    for formulation in (aba, forward_dynamics_ltl, forward_dynamics_minv, solved_dynamics):
        for m in (model, lean):
            assert_same(
                formulation(m, q, v, a, wrenches(m, links)),
                expected,
                loss,
                f"{formulation.__name__}, {tree}",
            )
    assert_same(factored_minv(lean, q), minv(model, q), loss, str(tree))


def some_gauges(model, seed):
    """Own frames, those that are offered, and random ones: connected parts in the frame of any of
    their bodies.
    """
    yield from gauges(model)
    rng = np.random.default_rng(seed)
    part = list(range(len(model.joints)))
    for i, parent in enumerate(model.parents):
        if parent >= 0 and rng.random() < 0.5:
            part[i] = part[parent]
    members = {p: [i for i in model.bodies if part[i] == p] for p in set(part)}
    center = {p: int(rng.choice(bodies)) for p, bodies in members.items()}
    yield tuple(center[p] for p in part)


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_in_every_gauge(seed):
    tree, model, lean, q, v, a, links = case(seed)
    loss = condition(model, q)
    inverse = rnea_derivatives(model, q, v, a, wrenches(model, links))
    forward = aba_derivatives(model, q, v, a, wrenches(model, links))
    M_inverse = minv(model, q)
    for m in (model, lean):
        external = wrenches(m, links)
        for gauge in some_gauges(m, seed):
            what = f"gauge {gauge}, {tree}"
            for x, y in zip(
                subtree_rnea_derivatives(m, q, v, a, external, gauge=gauge), inverse, strict=True
            ):
                assert_same(x, y, what=what)
            for x, y in zip(
                subtree_aba_derivatives(m, q, v, a, external, gauge=gauge), forward, strict=True
            ):
                assert_same(x, y, loss, what)
    fused = subtree_fused_gradient(
        lean, q, v, a, M_inverse, wrenches(lean, links), gauge=own_frames(lean)
    )
    for x, y in zip(fused, (inverse.dq, inverse.dv), strict=True):
        product = -np.einsum("ikn,kjn->ijn", dense(M_inverse), dense(y))
        assert abs(dense(x) - product).max(initial=0.0) <= 1e-10 * loss * max(
            1.0, abs(product).max(initial=0.0)
        )


@pytest.mark.parametrize("armature", [0.0, 0.3])
def test_gradients_on_a_free_base_with_and_without_armature(armature):
    """On a free base the base's columns are written down directly; armature on it ties it to the
    world.
    """
    import rigidgrad as rg

    builder = (
        rg.Builder("free")
        .link("world")
        .link("body", 2.0, (0.1, 0.2, 0.3), (1, 1.2, 1.1))
        .link("arm", 1.0, (0, 0.2, 0.3), (1, 1, 1))
    )
    builder.joint(
        "base", "floating", "world", "body", (1, 2, 3), (0.3, 0.2, 0.1), armature=armature
    )
    model = (
        builder.joint("elbow", "revolute", "body", "arm", (0, 0, 0.5), axis=(0, 1, 0), armature=0.1)
        .build(engine="numpy")
        .model
    )
    rng = np.random.default_rng(0)
    quaternion = rng.normal(size=(4, STATES))
    q = tuple(
        np.vstack(
            (
                rng.normal(size=(3, STATES)),
                quaternion / np.linalg.norm(quaternion, axis=0),
                rng.normal(size=(1, STATES)),
            )
        )
    )
    v, a = tuple(rng.normal(size=(7, STATES))), tuple(rng.normal(size=(7, STATES)))
    for x, y in zip(
        subtree_rnea_derivatives(model, q, v, a, gauge=own_frames(model)),
        rnea_derivatives(model, q, v, a),
        strict=True,
    ):
        assert_same(x, y)
    for x, y in zip(
        subtree_aba_derivatives(model, q, v, a, gauge=own_frames(model)),
        aba_derivatives(model, q, v, a),
        strict=True,
    ):
        assert_same(x, y)


def test_a_canonical_model_has_axes_along_z_and_lighter_bodies():
    import rigidgrad as rg

    lean = canonical(rg.load("iiwa14").model)
    assert all(j.axis == (0.0, 0.0, 1.0) for j in lean.joints)
    assert all(m == 0.0 for m, _, _ in lean.inertias[1:])  # all mass is handed towards the base
    assert sum(x != 0.0 for p in lean.placements[1:] for x in p.p) < sum(
        x != 0.0 for p in rg.load("iiwa14").model.placements[1:] for x in p.p
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_canonical_frames_stay_near_the_robot(seed):
    """Origins slide along axes; to meet one that is nearly parallel they would have to go far, and
    digits with them.
    """
    _, model, lean, *_ = case(seed)
    size = max((np.linalg.norm(p.p) for p in model.placements), default=0.0)
    assert all(np.linalg.norm(p.p) <= 6 * size for p in lean.placements)
