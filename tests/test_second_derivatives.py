"""Second derivatives of inverse dynamics, and their products with weights: against the complex
step, Pinocchio's gradient and themselves.
"""

from __future__ import annotations

import numpy as np
import pytest
from contact_trees import complex_step
from random_trees import random_tree, row, suite

import rigidgrad as rg
from rigidgrad.algorithms import catalog
from rigidgrad.algorithms.fast.newton_euler import newton_euler
from rigidgrad.algorithms.textbook.rnea_derivatives import rnea_derivatives
from rigidgrad.errors import InputError
from rigidgrad.kernels import structure
from rigidgrad.kernels.interpret import interpret
from rigidgrad.model.canonical import canonical
from rigidgrad.program.differentiate import differentiate
from rigidgrad.program.fuse import fuse
from rigidgrad.program.recorder import record
from rigidgrad.runtime import formulation
from rigidgrad.runtime.formulation import program_of, source_of
from rigidgrad.scalars import mul, total

PARTS = ("dqdq", "dvdv", "dqdv", "dadq")
TREES = [(seed, bodies) for seed, bodies in suite() if bodies <= 9][:60]


def by_complex_step(tree, model, q, v, a, wrenches=None):
    """The tangent derivatives of the matrices that the textbook's rnea_derivatives returns, [i, j,
    k].
    """
    n = tree.nv

    def gradient(q, v, a):
        return [
            x
            for matrix in rnea_derivatives(model, q, v, a, wrenches)
            for line in matrix
            for x in line
        ]

    by_q, by_v, _ = (x.reshape(3, n, n, n) for x in complex_step(tree, gradient, q, (v, a)))
    return {"dqdq": by_q[0], "dvdv": by_v[1], "dqdv": by_v[0], "dadq": by_q[2]}


def scaled(actual, expected, unit, what):
    """Rounding is that of the forces that are summed, not of what is left of them."""
    assert np.abs(actual - expected).max(initial=0.0) <= 1e-11 * max(unit, 1.0), what


def built(tree, engine="lanes"):
    return tree.builder().build(
        floating_base=tree.floating, gravity=tuple(tree.gravity), engine=engine
    )


@pytest.mark.parametrize("group", range(3))
def test_random_trees_against_the_complex_step(group):
    """Every joint type, mimic joints, fixed and floating bases, wrenches that stay constant in
    their links.
    """
    seen = set()
    for seed, bodies in TREES[group::3]:
        tree = random_tree(seed, bodies)
        robot, rng = built(tree, "numpy"), np.random.default_rng(seed)
        q, v, a = tree.random_state(rng)
        w, external = rng.normal(size=tree.nv), tree.random_wrenches(rng)
        wrenches = {}
        for link, x in external.items():
            frame = robot.model.frame(link)
            if frame.body >= 0:
                moved = catalog.kinematics.frame_offset(frame).force_back(catalog._force(tuple(x)))
                wrenches[frame.body] = (
                    wrenches[frame.body] + moved if frame.body in wrenches else moved
                )
        expected = by_complex_step(tree, robot.model, q, v, a, wrenches)
        unit = max(np.abs(x).max(initial=0.0) for x in expected.values())
        tensors, product = (
            robot.rnea_second_derivatives(q, v, a, external=external),
            robot.rnea_hessian(q, v, a, w, external=external),
        )
        for name in PARTS:
            scaled(getattr(tensors, name), expected[name], unit, f"{name}, {tree}")
            scaled(
                getattr(product, name),
                np.einsum("i,ijk->jk", w, expected[name]),
                unit * np.abs(w).sum(),
                f"product, {name}, {tree}",
            )
        seen |= (
            {joint.type for joint in tree.moving}
            | ({"mimic"} if robot.model.has_mimic else set())
            | {tree.floating}
        )
    assert seen >= {
        "revolute",
        "prismatic",
        "continuous",
        "spherical",
        "planar",
        "mimic",
        True,
        False,
    }


@pytest.mark.parametrize(("name", "floating"), [("iiwa14", False), ("hyq", True)])
def test_central_differences_of_pinocchio(name, floating):
    """Of its gradient, along tangents that its `integrate` steps; what is left is the error of the
    differences, of order h².
    """
    pin = pytest.importorskip("pinocchio")
    robot = rg.load(name, floating_base=floating)
    model = robot.to_pinocchio()
    data = model.createData()
    rng = np.random.default_rng(3)
    q = robot.random(seed=3).q
    v, a = rng.normal(size=(2, robot.nv))
    h = 1e-5

    def gradient(q, v):
        pin.computeRNEADerivatives(model, data, q, v, a)
        M = np.triu(data.M)
        return np.array([data.dtau_dq, data.dtau_dv, M + np.triu(M, 1).T])

    steps = h * np.eye(robot.nv)
    by_q = np.stack(
        [
            gradient(pin.integrate(model, q, s), v) - gradient(pin.integrate(model, q, -s), v)
            for s in steps
        ],
        -1,
    ) / (2 * h)
    by_v = np.stack([gradient(q, v + s) - gradient(q, v - s) for s in steps], -1) / (2 * h)
    d = robot.rnea_second_derivatives(q, v, a)
    for part, expected in (
        ("dqdq", by_q[0]),
        ("dvdv", by_v[1]),
        ("dqdv", by_v[0]),
        ("dadq", by_q[2]),
    ):
        assert np.abs(getattr(d, part) - expected).max() <= 1e-7 * np.abs(by_q).max(), part
    assert np.abs(by_v[2]).max() == 0.0  # M does not depend on v: there is no dadv to return


# mimic and helical; planar and spherical; a floating base
@pytest.mark.parametrize(("seed", "bodies"), [(104, 3), (196, 3), (184, 3)])
def test_compiled_is_what_is_read(seed, bodies):
    """Lanes against the readable engine: batches around the width, wrenches, float32, packed, out
    and compiled functions.
    """
    tree = random_tree(seed, bodies)
    fast, plain = built(tree), built(tree, "numpy")
    rng = np.random.default_rng(seed)
    q, v, a = tree.random_state(rng, (9,))
    w, external = rng.normal(size=(9, tree.nv)), tree.random_wrenches(rng, (9,))
    for function, more in (("rnea_second_derivatives", ()), ("rnea_hessian", (w,))):
        x, y = (getattr(r, function)(q, v, a, *more, external=external) for r in (fast, plain))
        unit = max(np.abs(part).max(initial=0.0) for part in y)
        for name in PARTS:
            scaled(getattr(x, name), getattr(y, name), unit, f"{function}, {name}, {tree}")
        alone = getattr(fast, function)(
            q[4], v[4], a[4], *(m[4] for m in more), external=row(external, 4)
        )
        assert all(np.array_equal(part, whole[4]) for part, whole in zip(alone, x, strict=True))
        single = getattr(fast, function)(*(m.astype(np.float32) for m in (q, v, a, *more)))
        double = getattr(fast, function)(q, v, a, *more)
        for part, whole in zip(single, double, strict=True):
            assert part.dtype == np.float32
            assert np.abs(part - whole).max(initial=0.0) <= 1e3 * np.finfo(np.float32).eps * unit, (
                f"float32 {function}"
            )
        packed = getattr(fast, function)(q, v, a, *more, packed=True)
        for part, whole, places in zip(packed, double, fast.pattern(function), strict=True):
            full = np.zeros_like(whole)
            full[(slice(None), *places)] = part
            assert np.array_equal(full, whole)
        out = tuple(np.empty_like(part) for part in double)
        assert fast.compile(function)(q, v, a, *more, out=out) is out
        assert all(np.array_equal(part, whole) for part, whole in zip(out, double, strict=True))


def test_symmetry_is_that_of_commuting_tangents():
    """By positions of different joints the order does not matter; within a floating base it does,
    by the bracket of the two tangents.
    """
    robot = rg.load("hyq", floating_base=True)
    q, v, a = robot.random(seed=1)
    d, first = robot.rnea_second_derivatives(q, v, a), robot.rnea_derivatives(q, v, a).dq
    skew = d.dqdq - np.swapaxes(d.dqdq, 1, 2)
    unit = np.abs(d.dqdq).max()
    assert np.abs(skew[:, 6:, :]).max() <= 1e-12 * unit
    # turning about y, then about x, against x, then y: ∂_y ∂_x - ∂_x ∂_y = -∂_z, for q ⊕ ε in the
    # body's axes
    assert (
        np.abs(skew[:, 3, 4] + first[:, 5]).max() <= 1e-12 * unit < np.abs(first[:, 5]).max() * 1e3
    )
    assert np.array_equal(d.dvdv, np.swapaxes(d.dvdv, 1, 2))
    assert np.array_equal(d.dadq, np.swapaxes(d.dadq, 0, 1))


@pytest.mark.parametrize("name", ["iiwa14", "hyq"])
def test_differentiating_programs_takes_more_instructions(name):
    """The recorded inverse dynamics differentiated backwards, then forwards; the recorded gradient
    differentiated forwards.
    """
    model = rg.load(name).model
    n, lean = model.nv, canonical(model)

    def weighted(p):
        return (total(map(mul, p["w"], newton_euler(lean, p["q"], p["v"], p["a"]))),)

    gradient = differentiate(
        record(dict.fromkeys("qvaw", (n,)), {"e": ()}, weighted), inputs=["q", "v", "a"]
    )
    for function, first, ratio in (
        ("rnea_hessian", gradient, 1.9),
        ("rnea_second_derivatives", program_of(model, "rnea_derivatives"), 1.4),
    ):
        by_program = (
            fuse(differentiate(first, inputs=["q", "v"], mode="forward")).counts().instructions
        )
        assert ratio * program_of(model, function).counts().instructions < by_program, function


def test_a_large_robot_loops_over_unit_weights(monkeypatch):
    """The same numbers as straight-line code, from a kernel that calls one Program; targets without
    kernels say what to do.
    """
    robot = rg.load("double_pendulum")
    q, v, a = robot.random(seed=0)
    expected = robot.rnea_second_derivatives(q, v, a)
    monkeypatch.setattr(formulation, "_TENSOR_LOOPS_FROM", 1)
    kernel = source_of(robot.model, "rnea_second_derivatives")
    assert len(structure.programs(kernel)) == 1
    found = interpret(kernel, {"q": q[None], "v": v[None], "a": a[None]})
    for name in PARTS:
        np.testing.assert_allclose(
            np.reshape(found[name], (2, 2, 2)), getattr(expected, name), rtol=1e-13, atol=1e-13
        )
    with pytest.raises(InputError, match="rnea_hessian"):
        program_of(robot.model, "rnea_second_derivatives")
    monkeypatch.setattr(formulation, "_LOOPS_FROM", 1)
    for function in ("rnea_second_derivatives", "rnea_hessian"):
        with pytest.raises(InputError, match=r'engine="numpy"'):
            source_of(robot.model, function)


def test_bad_numbers_are_found_when_asked():
    robot = rg.load("double_pendulum")
    q, v, a = robot.random(seed=0)
    with pytest.raises(InputError, match="w"):
        robot.rnea_hessian(q, v, a, np.full(2, np.nan), check=True)
    with pytest.raises(InputError, match="shape"):
        robot.rnea_hessian(q, v, a, np.ones(3))
