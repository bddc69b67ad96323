"""Contacts and loops of random trees against Pinocchio, the complex step and 40 digits.

Accelerations and forces are compared to 50 eps cond(K) of their largest entry: K = [M, -Jᵀ; J, 0]
is what any method solves with, backward stable ones included. Derivatives take products with its
inverse once more.
"""

from __future__ import annotations

from collections import Counter

import mpmath
import numpy as np
import pytest
from contact_trees import (
    STEP,
    Held,
    complex_step,
    differences,
    equations,
    held_tree,
    solution,
    struck,
    struck_along,
)
from random_trees import assert_close, moved

from rigidgrad.algorithms import catalog

EPS = np.finfo(float).eps
DERIVATIVES = ("a_dq", "a_dv", "a_dtau", "force_dq", "force_dv", "force_dtau")
OF_IMPACTS = ("v_dq", "v_dv", "impulse_dq", "impulse_dv")
TREES = 200
BOUNCE = 0.3


def read(held: Held, name: str, convert=lambda x: x, restitution=BOUNCE):
    """The algorithm of a function itself, over any scalars, of (q, v, τ) or (q, v): all numbers of
    its results in a row.
    """
    robot, number = held.robot(), np.vectorize(convert, otypes=[object])
    constraints = robot.constraint_set(name, held.contacts, False, False)
    external = tuple(held.external) if catalog.FUNCTIONS[name].external else ()
    kernel = catalog.bind(robot.model.over(convert), name, contacts=constraints, external=external)
    known = {f"external:{link}": tuple(number(held.external[link])) for link in external}
    known |= {
        f"place:{k}": tuple(number(c.place))
        for k, c in enumerate(held.contacts)
        if getattr(c, "place", None) is not None
    }
    known["restitution"] = convert(restitution)

    def function(*inputs):
        found = kernel.evaluate(known | dict(zip(("q", "v", "tau"), inputs, strict=False)))
        return tuple(x for part in found for x in part)

    return function


@pytest.mark.parametrize("group", range(10))
def test_two_hundred_random_trees(group):
    """Accelerations, forces and impacts meet the equations made by Pinocchio, with wrenches;
    derivatives meet differences of these along a direction, and all their entries the complex step.
    """
    for number in range(TREES * group // 10, TREES * (group + 1) // 10):
        held = held_tree(number)
        tree, oracle, q, v, tau, external, contacts = held
        robot, label, rng = held.robot(), str(held), np.random.default_rng(number)
        J, _ = equations(oracle, q, v, contacts)
        assert_close(robot.contact_jacobian(q, contacts)[None], J[None], 1e-12, f"J, {label}")
        M = oracle.crba(q)
        slack = 50 * EPS * np.linalg.cond(M)
        Lambda = J @ np.linalg.inv(M) @ J.T
        assert_close(robot.delassus(q, contacts)[None], Lambda[None], slack, f"Λ, {label}")

        a, f, condition = solution(oracle, q, v, tau, external, contacts)
        slack = 50 * EPS * condition
        s = robot.contact_dynamics(q, v, tau, contacts, external=external, damped=False)
        assert_close(s.a[None], a[None], slack, f"a, {label}")
        assert_close(s.force[None], f[None], slack, f"force, {label}")
        d = robot.contact_dynamics_derivatives(q, v, tau, contacts, external=external, damped=False)
        both = [np.concatenate([d[k], d[k + 3]]) for k in range(3)]
        expected = complex_step(tree, read(held, "contact_dynamics"), q, (v, tau))
        directions = [x / np.linalg.norm(x) for x in rng.normal(size=(3, tree.nv))]
        moves = differences(oracle, q, v, tau, external, contacts, directions)
        # what is rounded in the solutions, differences divide by the step
        for k, change in enumerate(moves):
            allowed = slack / STEP if k == 0 else 10 * slack * max(1.0, abs(a).max(), abs(f).max())
            assert allowed < 1e-3
            what = f"{DERIVATIVES[k]} along a direction, {label}"
            assert_close((both[k] @ directions[k])[None], change[None], allowed, what)
        for k, name in enumerate(DERIVATIVES):
            part = expected[k % 3][: tree.nv] if k < 3 else expected[k % 3][tree.nv :]
            assert_close(getattr(d, name)[None], part[None], 10 * slack, f"{name}, {label}")

        i = robot.impact(q, v, contacts, BOUNCE, damped=False)
        both = np.concatenate([i.v, i.impulse])
        of_v = struck(oracle, q, v, BOUNCE, contacts)
        assert_close(both[None], of_v[None], slack, f"impact, {label}")
        e = robot.impact_derivatives(q, v, contacts, BOUNCE, damped=False)
        change = struck_along(oracle, q, v, BOUNCE, contacts, directions[0])
        found = np.concatenate([e.v_dq, e.impulse_dq]) @ directions[0]
        what = f"impact along a direction, {label}"
        assert_close(found[None], change[None], slack / STEP, what)
        by_q, by_v = complex_step(tree, read(held, "impact"), q, (v,))
        parts = by_q[: tree.nv], by_v[: tree.nv], by_q[tree.nv :], by_v[tree.nv :]
        for name, part in zip(OF_IMPACTS, parts, strict=True):
            assert_close(getattr(e, name)[None], part[None], 10 * slack, f"{name}, {label}")


def test_what_the_random_trees_are():
    """Each number of contacts from 1 to 6, on fixed and floating bases, of every kind, with
    wrenches and mimic joints.
    """
    trees = [held_tree(number) for number in range(TREES)]
    assert Counter(len(t.contacts) for t in trees) == {1: 34, 2: 34, 3: 33, 4: 33, 5: 33, 6: 33}
    bases = Counter((len(t.contacts), t.tree.floating) for t in trees)
    assert len(bases) == 12 and min(bases.values()) >= 10
    kinds = Counter((type(c), c.kind) for t in trees for c in t.contacts)
    assert len(kinds) == 4 and min(kinds.values()) >= 25
    assert all(t.external for t in trees)
    assert sum(t.oracle.has_mimic for t in trees) >= 40
    assert len({(str(t.tree), tuple(t.q)) for t in trees}) == TREES


@pytest.mark.parametrize(("number", "count"), [(0, 1), (1, 2), (2, 2), (5, 3)])
def test_compiled_is_what_is_read(number, count):
    """Lanes against the readable engine, with wrenches, in batches around the width, in both
    precisions.
    """
    held = held_tree(number, count)
    tree, oracle, *_, contacts = held
    rng = np.random.default_rng(number)
    fast, plain = held.robot("lanes"), held.robot()
    q, v, tau = tree.random_state(rng, (9,))
    external = tree.random_wrenches(rng, (9,))
    condition = max(solution(oracle, *x, {}, contacts)[2] for x in zip(q, v, tau, strict=True))
    d, e = (
        r.contact_dynamics_derivatives(q, v, tau, contacts, external=external, damped=False)
        for r in (fast, plain)
    )
    for name in DERIVATIVES:
        assert_close(getattr(d, name), getattr(e, name), 500 * EPS * condition, name)
    s = fast.contact_dynamics(q, v, tau, contacts, damped=False)
    for size in (1, 3, 4, 5, 7, 8):
        part = fast.contact_dynamics(q[:size], v[:size], tau[:size], contacts, damped=False)
        assert np.array_equal(part.a, s.a[:size]) and np.array_equal(part.force, s.force[:size])
    single = fast.contact_dynamics(
        *(x.astype(np.float32) for x in (q, v, tau)), contacts, damped=False
    )
    assert single.a.dtype == np.float32
    assert_close(single.a, s.a, 50 * np.finfo(np.float32).eps * condition, "float32")


def in_digits(tree, function, q, vectors, digits=40):
    """Values of a function of q and some vectors over mpmath numbers, and its derivatives by
    differences, one matrix for each argument: twice the digits, and a step of half of these.
    """
    h = mpmath.mpf(10) ** -(digits // 2 + 5)
    units = [[h * (i == k) for i in range(tree.nv)] for k in range(tree.nv)]

    def change(up, down):
        return [(x - y) / (2 * h) for x, y in zip(function(*up), function(*down), strict=True)]

    def stepped(m, unit):
        moving = [*vectors]
        moving[m] = [x + d for x, d in zip(vectors[m], unit, strict=True)]
        return (q, *moving)

    value = function(q, *vectors)
    columns = [
        [
            change((moved(tree, q, u), *vectors), (moved(tree, q, [-x for x in u]), *vectors))
            for u in units
        ]
    ]
    for m in range(len(vectors)):
        columns.append([change(stepped(m, u), stepped(m, [-x for x in u])) for u in units])
    return value, [np.array(part, object).T for part in columns]


def floats(numbers):
    return np.array(numbers, object).astype(float)


@pytest.mark.parametrize(("number", "count"), [(0, 1), (1, 2), (2, 3), (3, 1), (4, 2)])
def test_forty_digits(number, count):
    """Dynamics and impacts by the algorithms themselves in 40 digits: what is left is our rounding.
    Their derivatives are differences of these.
    """
    held = held_tree(number, count)
    tree, oracle, q, v, tau, external, contacts = held
    robot = held.robot()
    slack = 50 * EPS * solution(oracle, q, v, tau, {}, contacts)[2]
    results = {
        "contact_dynamics": robot.contact_dynamics(
            q, v, tau, contacts, external=external, damped=False
        ),
        "impact": robot.impact(q, v, contacts, BOUNCE, damped=False),
    }
    gradients = {
        "contact_dynamics": robot.contact_dynamics_derivatives(
            q, v, tau, contacts, external=external, damped=False
        ),
        "impact": robot.impact_derivatives(q, v, contacts, BOUNCE, damped=False),
    }
    for name, inputs in (("contact_dynamics", (q, v, tau)), ("impact", (q, v))):
        with mpmath.workdps(80):
            exact = [tuple(mpmath.mpf(float(x)) for x in y) for y in inputs]
            value, matrices = in_digits(tree, read(held, name, mpmath.mpf), exact[0], exact[1:])
        ours = np.concatenate(results[name][:2])
        assert_close(ours[None], floats(value)[None], slack, name)
        of_first, of_second = ([m[: tree.nv] for m in matrices], [m[tree.nv :] for m in matrices])
        for mine, part in zip(gradients[name], [*of_first, *of_second], strict=False):
            assert_close(mine[None], floats(part)[None], 10 * slack, name)
