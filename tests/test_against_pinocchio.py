"""Every algorithm against Pinocchio on 220 random trees, and every gradient against the complex
step, mpmath and exact fractions.

Tolerances. Inverse-type results (everything without a linear solve) are sums of products of O(1)
numbers along paths of at most 40 bodies: they agree to 1e-9 of the largest entry of that result (at
least 1: the trees weigh kilograms and measure decimetres). Forward-type results solve with M and
may lose cond(M): 50·eps·cond(M) of the largest entry, cond(M) being that of Pinocchio's mass matrix
at that state.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from functools import lru_cache
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from random_trees import (
    ONE_DOF,
    SIZES,
    Joint,
    Link,
    Tree,
    assert_close,
    every_result,
    moved,
    random_tree,
    rotation,
    row,
    suite,
)

from rigidgrad.algorithms.crba import crba
from rigidgrad.algorithms.textbook.aba import aba
from rigidgrad.algorithms.textbook.minv import minv
from rigidgrad.algorithms.textbook.rnea import rnea
from rigidgrad.algorithms.textbook.rnea_derivatives import rnea_derivatives
from rigidgrad.model.pose import Pose
from rigidgrad.scalars import Angle

pin = pytest.importorskip("pinocchio")

EPS = np.finfo(float).eps
INVERSE = 1e-9
SUITE = suite()
PER_GROUP = 10
STATES = 2
EXPRESSED_IN = ("world", "local", "spatial")


@lru_cache(maxsize=2 * PER_GROUP)
def case(index: int):
    seed, bodies = SUITE[index]
    tree = random_tree(seed, bodies)
    rng = np.random.default_rng(seed)
    q, v, a = tree.random_state(rng, (STATES,))
    external = tree.random_wrenches(rng, (STATES,))
    oracle = tree.oracle()
    M = [oracle.crba(x) for x in q]
    forward = np.array([50 * EPS * np.linalg.cond(m) for m in M])
    return SimpleNamespace(
        tree=tree,
        robot=tree.robot(),
        oracle=oracle,
        q=q,
        v=v,
        a=a,
        external=external,
        forward=forward,
        label=f"seed {seed}: {tree}",
        found={},
    )


def cases(group: int):
    for index in range(group * PER_GROUP, (group + 1) * PER_GROUP):
        yield case(index)


@pytest.fixture(scope="module", params=range(len(SUITE) // PER_GROUP))
def group(request):
    """All tests of one group come before the next group, so that they share its cases."""
    return request.param


def derivatives(c, name, wrenches):
    """Of all states, computed once for all tests of a case."""
    if (name, wrenches) not in c.found:
        function = getattr(c.robot, name)
        c.found[name, wrenches] = function(c.q, c.v, c.a, external=c.external if wrenches else None)
    return c.found[name, wrenches]


def same_signs(model, q, like):
    """q with the signs of free-flyers' quaternions as in `like`. Pinocchio turns a free-flyer's
    quaternion to the side of the one it started from, which for a step of more than half a turn is
    not where the step leads; a quaternion and its negative are the same rotation.
    """
    q = q.copy()
    for joint in model.joints:
        if joint.nq == 7:
            part = slice(joint.idx_q + 3, joint.idx_q + 7)
            q[part] *= np.sign(q[part] @ like[part])
    return q


def test_the_suite_has_every_kind_of_tree():
    trees = [random_tree(*x) for x in SUITE]
    assert len(trees) >= 200
    assert {bodies for _, bodies in SUITE} == set(range(1, 41))
    assert {j.type for t in trees for j in t.joints} == {*SIZES, "fixed"}
    assert {t.floating for t in trees} == {True, False}
    kinds = {
        "chained": 0,
        "before its master": 0,
        "massive merged link": 0,
        "unaligned": 0,
        "x by default": 0,
        "massless": 0,
    }
    for tree in trees:
        place = {j.name: i for i, j in enumerate(tree.moving)}
        mass = {link.name: link.mass for link in tree.links}
        for i, joint in enumerate(tree.moving):
            if joint.mimic:
                master = tree.moving[place[joint.mimic[0]]]
                kinds["chained"] += master.mimic is not None
                kinds["before its master"] += place[master.name] > i
            if joint.type in ONE_DOF:
                kinds["x by default"] += joint.axis is None
                kinds["unaligned"] += joint.axis is not None and np.count_nonzero(joint.axis) == 3
            kinds["massless"] += mass[joint.child] == 0
        kinds["massive merged link"] += any(
            j.type == "fixed" and mass[j.child] > 0 for j in tree.joints
        )
    assert min(kinds.values()) >= 20, kinds


class TestRandomTrees:
    def test_joint_order_and_sizes(self, group):
        for c in cases(group):
            names = [j.name for j in c.tree.moving]
            assert names == list(c.oracle.model.names)[1:], c.label
            assert list(c.robot.joints) == names, c.label
            assert (c.robot.nq, c.robot.nv) == (c.tree.nq, c.tree.nv), c.label
            assert {link.name for link in c.tree.links} <= set(c.robot.frames), c.label

    def test_inverse_dynamics(self, group):
        for c in cases(group):
            o, states = c.oracle, range(STATES)
            assert_close(
                c.robot.rnea(c.q, c.v, c.a),
                [o.rnea(c.q[k], c.v[k], c.a[k]) for k in states],
                INVERSE,
                f"rnea, {c.label}",
            )
            expected = [o.rnea(c.q[k], c.v[k], c.a[k], row(c.external, k)) for k in states]
            assert_close(
                c.robot.rnea(c.q, c.v, c.a, external=c.external),
                expected,
                INVERSE,
                f"rnea with wrenches, {c.label}",
            )
            assert_close(
                c.robot.bias(c.q, c.v),
                [o.bias(c.q[k], c.v[k]) for k in states],
                INVERSE,
                f"bias, {c.label}",
            )
            assert_close(
                c.robot.gravity_torque(c.q),
                [o.gravity_torque(c.q[k]) for k in states],
                INVERSE,
                f"gravity_torque, {c.label}",
            )

    def test_mass_matrix(self, group):
        for c in cases(group):
            assert_close(
                c.robot.crba(c.q), [c.oracle.crba(q) for q in c.q], INVERSE, f"crba, {c.label}"
            )
            assert_close(
                c.robot.minv(c.q), [c.oracle.minv(q) for q in c.q], c.forward, f"minv, {c.label}"
            )

    def test_forward_dynamics(self, group):
        for c in cases(group):
            expected = [c.oracle.aba(c.q[k], c.v[k], c.a[k]) for k in range(STATES)]
            assert_close(c.robot.aba(c.q, c.v, c.a), expected, c.forward, f"aba, {c.label}")
            expected = [
                c.oracle.aba(c.q[k], c.v[k], c.a[k], row(c.external, k)) for k in range(STATES)
            ]
            assert_close(
                c.robot.aba(c.q, c.v, c.a, external=c.external),
                expected,
                c.forward,
                f"aba with wrenches, {c.label}",
            )

    def test_derivatives_of_inverse_dynamics(self, group):
        for c in cases(group):
            for external in (None, c.external):
                d = derivatives(c, "rnea_derivatives", external is not None)
                expected = [
                    c.oracle.rnea_derivatives(c.q[k], c.v[k], c.a[k], external and row(external, k))
                    for k in range(STATES)
                ]
                for name, values in zip(
                    ("dq", "dv", "da"), zip(*expected, strict=True), strict=True
                ):
                    assert_close(
                        getattr(d, name),
                        values,
                        INVERSE,
                        f"rnea_derivatives.{name}, wrenches {external is not None}, {c.label}",
                    )

    def test_derivatives_of_forward_dynamics(self, group):
        for c in cases(group):
            for external in (None, c.external):
                d = derivatives(c, "aba_derivatives", external is not None)
                expected = [
                    c.oracle.aba_derivatives(c.q[k], c.v[k], c.a[k], external and row(external, k))
                    for k in range(STATES)
                ]
                for name, values in zip(
                    ("dq", "dv", "dtau"), zip(*expected, strict=True), strict=True
                ):
                    what = f"aba_derivatives.{name}, wrenches {external is not None}, {c.label}"
                    assert_close(getattr(d, name), values, c.forward, what)
                if not c.oracle.has_mimic:
                    # on the worst trees it is 2 tolerances off what 40 digits give, where ours is
                    # 2e-12 off: hence the factor
                    own = [
                        c.oracle.own_aba_derivatives(
                            c.q[k], c.v[k], c.a[k], external and row(external, k)
                        )
                        for k in range(STATES)
                    ]
                    for name, values in zip(
                        ("dq", "dv", "dtau"), zip(*own, strict=True), strict=True
                    ):
                        assert_close(
                            getattr(d, name),
                            values,
                            10 * c.forward,
                            f"aba_derivatives.{name}, Pinocchio's own, {c.label}",
                        )

    def test_fused_gradient(self, group):
        """From q, v, the acceleration and Minv, the gradient of forward dynamics: a product with
        Minv, whose rounding is relative to |Minv|·|X|.
        """
        for c in cases(group):
            a = np.array(
                [c.oracle.aba(c.q[k], c.v[k], c.a[k], row(c.external, k)) for k in range(STATES)]
            )
            inverse = np.array([c.oracle.minv(q) for q in c.q])
            d = c.robot.fused_gradient(c.q, c.v, a, inverse, external=c.external)
            for k in range(STATES):
                X = c.oracle.rnea_derivatives(c.q[k], c.v[k], a[k], row(c.external, k))
                gradient = c.oracle.aba_derivatives(c.q[k], c.v[k], c.a[k], row(c.external, k))
                for name, x, y in zip(("dq", "dv"), X, gradient, strict=False):
                    what, ours = f"fused_gradient.{name}, state {k}, {c.label}", getattr(d, name)[k]
                    scale = max(1.0, np.max(abs(inverse[k]) @ abs(x)))
                    assert np.max(abs(ours + inverse[k] @ x)) <= 1e-12 * scale, what
                    assert np.max(abs(ours - y)) <= c.forward[k] * scale, what

    def test_kinematics(self, group):
        for c in cases(group):
            o = c.oracle
            T = c.robot.forward_kinematics(c.q)
            for link in (x.name for x in c.tree.links):
                assert_close(
                    T[link],
                    [o.placement(q, link) for q in c.q],
                    INVERSE,
                    f"placement of {link}, {c.label}",
                )
            for link in list(c.external)[:2]:
                for where in EXPRESSED_IN:
                    what = f"of {link} in {where}, {c.label}"
                    J = c.robot.jacobian(c.q, link, expressed_in=where)
                    assert_close(
                        J, [o.jacobian(q, link, where) for q in c.q], INVERSE, f"jacobian {what}"
                    )
                    Jd = c.robot.jacobian_derivative(c.q, c.v, link, expressed_in=where)
                    expected = [
                        o.jacobian_derivative(c.q[k], c.v[k], link, where) for k in range(STATES)
                    ]
                    assert_close(Jd, expected, INVERSE, f"jacobian_derivative {what}")
                    velocity = c.robot.frame_velocity(c.q, c.v, link, expressed_in=where)
                    expected = [
                        o.frame_velocity(c.q[k], c.v[k], link, where) for k in range(STATES)
                    ]
                    assert_close(velocity, expected, INVERSE, f"frame_velocity {what}")
            link = c.tree.links[-1].name
            assert np.array_equal(
                c.robot.jacobian(c.q, link), c.robot.jacobian(c.q, link, expressed_in="world")
            ), c.label

    def test_mass_momentum_and_energy(self, group):
        for c in cases(group):
            o, states = c.oracle, range(STATES)
            assert_close(
                c.robot.center_of_mass(c.q),
                [o.center_of_mass(q) for q in c.q],
                INVERSE,
                f"center_of_mass, {c.label}",
            )
            J = c.robot.center_of_mass_jacobian(c.q)
            assert_close(
                J,
                [o.center_of_mass_jacobian(q) for q in c.q],
                INVERSE,
                f"center_of_mass_jacobian, {c.label}",
            )
            expected = [o.centroidal_momentum(c.q[k], c.v[k]) for k in states]
            assert_close(
                c.robot.centroidal_momentum(c.q, c.v),
                expected,
                INVERSE,
                f"centroidal_momentum, {c.label}",
            )
            E = c.robot.energy(c.q, c.v)
            kinetic, potential = zip(*(o.energy(c.q[k], c.v[k]) for k in states), strict=True)
            assert_close(E.kinetic, kinetic, INVERSE, f"kinetic energy, {c.label}")
            assert_close(E.potential, potential, INVERSE, f"potential energy, {c.label}")

    def test_coriolis_matrix_and_regressor(self, group):
        for c in cases(group):
            o, states = c.oracle, range(STATES)
            expected = [o.coriolis_matrix(c.q[k], c.v[k]) for k in states]
            assert_close(
                c.robot.coriolis_matrix(c.q, c.v), expected, INVERSE, f"coriolis_matrix, {c.label}"
            )
            expected = [o.torque_regressor(c.q[k], c.v[k], c.a[k]) for k in states]
            assert_close(
                c.robot.torque_regressor(c.q, c.v, c.a),
                expected,
                INVERSE,
                f"torque_regressor, {c.label}",
            )

    def test_configurations(self, group):
        """integrate, difference, normalize and neutral; a mimicking joint goes where its master
        takes it.
        """
        for c in cases(group):
            o, G, rng = c.oracle, c.oracle.G, np.random.default_rng(group)
            for size in (1.0, 1e-3, 1e-9, 0.0):
                full = [o.expand(q) for q in c.robot.integrate(c.q, size * c.v)]
                expected = [
                    pin.integrate(o.model, o.expand(c.q[k]), size * G @ c.v[k])
                    for k in range(STATES)
                ]
                expected = [same_signs(o.model, x, y) for x, y in zip(expected, full, strict=True)]
                assert_close(full, expected, 1e-12, f"integrate by {size} v, {c.label}")
            q2 = c.tree.random_q(rng, (STATES,))
            step = c.robot.difference(c.q, q2)
            expected = [
                pin.difference(o.model, o.expand(c.q[k]), o.expand(q2[k])) for k in range(STATES)
            ]
            assert_close([G @ x for x in step], expected, INVERSE, f"difference, {c.label}")
            scaled = c.q.copy()
            for joint, part, _ in c.tree.slices():
                if joint.type not in ONE_DOF:
                    scaled[
                        :,
                        part.start
                        + SIZES[joint.type][0]
                        - (2 if joint.type == "planar" else 4) : part.stop,
                    ] *= 1.7
            expected = [pin.normalize(o.model, o.expand(q)) for q in scaled]
            assert_close(
                [o.expand(q) for q in c.robot.normalize(scaled)],
                expected,
                1e-14,
                f"normalize, {c.label}",
            )
            neutral = c.robot.neutral()
            expected = np.concatenate([np.eye(SIZES[j.type][0])[-1] if j.type not in (*ONE_DOF, "planar") else
                                       np.array([0.0, 0, 1, 0]) if j.type == "planar" else [0.0] for j in c.tree.free])  # fmt: skip
            assert np.array_equal(neutral, expected), c.label
            if not o.has_mimic:
                assert np.array_equal(neutral, pin.neutral(o.model)), c.label

    def test_gradients_by_complex_step(self, group):
        """Independent of Pinocchio: rnea and aba themselves, run on complex numbers."""
        for c in cases(group):
            q, v, a = c.q[0], c.v[0], c.a[0]
            exact = complex_step(c.robot.model, c.tree, rnea, q, v, a)
            d = derivatives(c, "rnea_derivatives", False)
            for name, expected in zip(("dq", "dv", "da"), exact, strict=True):
                assert_close(
                    getattr(d, name)[:1],
                    expected[None],
                    1e-11,
                    f"rnea_derivatives.{name} by complex step, {c.label}",
                )
            exact = complex_step(c.robot.model, c.tree, aba, q, v, a)
            d = derivatives(c, "aba_derivatives", False)
            for name, expected in zip(("dq", "dv", "dtau"), exact, strict=True):
                assert_close(
                    getattr(d, name)[:1],
                    expected[None],
                    c.forward[:1],
                    f"aba_derivatives.{name} by complex step, {c.label}",
                )


# --- gradients without Pinocchio ------------------------------------------------------------------


def complex_step(model, tree, function, q, v, a, h=1e-40):
    """The three derivatives of function(model, q, v, a), each (nv, nv): all 3·nv directions are
    rows of one batch.
    """
    nv = tree.nv
    directions = 1j * h * np.eye(3 * nv)
    scalars = [np.full(3 * nv, x, dtype=complex) for x in q]
    q = moved(tree, scalars, [directions[:, k] for k in range(nv)])
    v = [v[k] + directions[:, nv + k] for k in range(nv)]
    a = [a[k] + directions[:, 2 * nv + k] for k in range(nv)]
    result = np.array(
        [
            np.broadcast_to(np.imag(x) / h, 3 * nv)
            for x in function(model, tuple(q), tuple(v), tuple(a))
        ]
    )
    return np.split(result, 3, axis=1)


MPMATH_TREES = [(seed, bodies) for seed, bodies in SUITE if 3 <= bodies <= 6][:10]


@pytest.mark.parametrize(("seed", "bodies"), MPMATH_TREES)
def test_gradients_by_differences_of_40_digits(seed, bodies):
    """Central differences of rnea and aba in 40 digits: with h = 1e-13 they are good to about 25
    digits, so that what is left is our rounding.
    """
    tree = random_tree(seed, bodies)
    robot, rng = tree.robot(), np.random.default_rng(seed)
    q, v, a = tree.random_state(rng)
    nv = tree.nv
    forward = 50 * EPS * np.linalg.cond(tree.oracle().crba(q))
    with mpmath.workdps(40):
        model = robot.model.over(mpmath.mpf)
        h = mpmath.mpf(10) ** -13

        def exact(x):
            return [mpmath.mpf(float(y)) for y in x]

        def differences(function):
            def at(k, sign):
                step = [
                    [sign * h if k == m * nv + j else mpmath.mpf(0) for j in range(nv)]
                    for m in range(3)
                ]
                return function(
                    model,
                    tuple(moved(tree, exact(q), step[0])),
                    tuple(x + s for x, s in zip(exact(v), step[1], strict=True)),
                    tuple(x + s for x, s in zip(exact(a), step[2], strict=True)),
                )

            columns = [
                [(x - y) / (2 * h) for x, y in zip(at(k, 1), at(k, -1), strict=True)]
                for k in range(3 * nv)
            ]
            return np.split(np.array(columns, dtype=float).T, 3, axis=1)

        inverse_differences, forward_differences = differences(rnea), differences(aba)
    d = robot.rnea_derivatives(q, v, a)
    for name, expected in zip(("dq", "dv", "da"), inverse_differences, strict=True):
        assert_close(
            getattr(d, name)[None], expected[None], 1e-12, f"rnea_derivatives.{name}, {tree}"
        )
    d = robot.aba_derivatives(q, v, a)
    for name, expected in zip(("dq", "dv", "dtau"), forward_differences, strict=True):
        assert_close(
            getattr(d, name)[None], expected[None], forward, f"aba_derivatives.{name}, {tree}"
        )


# --- exact arithmetic -----------------------------------------------------------------------------


def rational_rotation(*quaternion):
    """The exact rotation of an integer quaternion."""
    x, y, z, w = (Fraction(k) for k in quaternion)
    n = x * x + y * y + z * z + w * w
    return tuple(
        tuple((entry - (i == j)) / n + (i == j) for j, entry in enumerate(r))
        for i, r in enumerate(rotation(x, y, z, w))
    )


def exact_tree():
    """A small tree whose numbers are all fractions, with rotations that are exactly orthogonal and
    axes of length exactly one.

    Fixed base; revolute, planar, spherical and prismatic joints, a floating one, and a prismatic
    one that mimics.
    """

    def link(k):
        inertia = np.array([[4, 1, 0.5], [1, 5, -0.25], [0.5, -0.25, 6]]) / 16
        return Link(f"link{k}", 1.0 + k / 4, np.array([0.25, -0.125 * k, 0.5]), inertia)

    def joint(k, kind, parent, **more):
        return Joint(
            f"j{k}",
            kind,
            f"link{parent}",
            f"link{k}",
            np.array([0.5, 0.25 * k, -0.125]),
            np.zeros(3),
            **more,
        )

    joints = (
        joint(1, "revolute", 0, armature=0.25),
        joint(2, "prismatic", 1),
        joint(3, "spherical", 2),
        joint(4, "planar", 1),
        joint(5, "revolute", 4, axis=np.array([0.0, 0.0, 1.0])),
        joint(6, "fixed", 5),
        joint(7, "floating", 6),
        joint(8, "prismatic", 3, axis=np.array([0.0, 1.0, 0.0])),
    )
    free = Tree(
        tuple(link(k) for k in range(9)), joints, np.array([1.0, -2.0, -9.5]), floating=False
    )
    mimicking = dataclasses.replace(
        free, joints=(*joints[:-1], dataclasses.replace(joints[-1], mimic=("j2", -1.5, 0.25)))
    )
    axes = {
        "j1": (Fraction(2, 7), Fraction(-3, 7), Fraction(6, 7)),
        "j2": (Fraction(1, 3), Fraction(2, 3), Fraction(-2, 3)),
    }
    turns = {
        "j2": (1, 2, 3, 4),
        "j3": (1, -1, 2, 0),
        "j4": (2, 0, 1, 1),
        "j5": (1, 1, 1, 1),
        "j8": (-3, 1, 0, 5),
    }
    models = []
    for tree in (free, mimicking):
        model = tree.robot().model.over(Fraction)
        models.append(
            dataclasses.replace(
                model,
                joints=tuple(
                    dataclasses.replace(j, axis=axes.get(j.name, j.axis)) for j in model.joints
                ),
                placements=tuple(
                    Pose(rational_rotation(*turns[j.name]), p.p) if j.name in turns else p
                    for j, p in zip(model.joints, model.placements, strict=True)
                ),
            )
        )
    return (free, models[0]), (mimicking, models[1])


def exact_state(tree):
    """q with angles as exact sines and cosines, and v, a; also q as floats."""
    circle = iter(
        [
            (Fraction(3, 5), Fraction(4, 5)),
            (Fraction(-5, 13), Fraction(12, 13)),
            (Fraction(8, 17), Fraction(-15, 17)),
        ]
    )
    quaternions = iter(
        [
            (Fraction(1, 5), Fraction(2, 5), Fraction(-2, 5), Fraction(4, 5)),
            (Fraction(2, 7), 0 * Fraction(1), Fraction(3, 7), Fraction(6, 7)),
        ]
    )
    exact, floats = [], []
    for k, joint in enumerate(tree.free):
        if joint.type == "revolute":
            c, s = next(circle)
            exact.append(Angle(c, s))
            floats.append(float(np.arctan2(float(s), float(c))))
            continue
        position = [Fraction(k + 1, 4), Fraction(-1, 3), Fraction(2, 7)]
        numbers = {
            "prismatic": lambda p=position: p[:1],
            "planar": lambda p=position: [*p[:2], *next(circle)],
            "spherical": lambda: list(next(quaternions)),
            "floating": lambda p=position: [*p, *next(quaternions)],
        }[joint.type]()
        exact += numbers
        floats += map(float, numbers)
    v = tuple(Fraction((-1) ** k * (k + 2), 3) for k in range(tree.nv))
    a = tuple(Fraction(5 - k, 4) for k in range(tree.nv))
    return tuple(exact), v, a, tuple(floats)


def fractions(x):
    """Nested tuples with structural zeros turned into fractions; any other float would mean that
    exactness was lost on the way.
    """
    if isinstance(x, tuple | list):
        return tuple(fractions(y) for y in x)
    assert isinstance(x, Fraction | int) or (type(x) is float and x == 0.0), x
    return Fraction(x)


@pytest.fixture(scope="module", params=[0, 1], ids=["free", "mimic"])
def exact(request):
    tree, model = exact_tree()[request.param]
    return SimpleNamespace(tree=tree, model=model, state=exact_state(tree))


def test_the_inverse_of_the_mass_matrix_is_exact_over_fractions(exact):
    q = exact.state[0]
    M, inverse = fractions(crba(exact.model, q)), fractions(minv(exact.model, q))
    nv = exact.tree.nv
    assert all(
        M[i][j] == M[j][i] and inverse[i][j] == inverse[j][i] for i in range(nv) for j in range(nv)
    )
    assert all(
        sum(M[i][k] * inverse[k][j] for k in range(nv)) == (i == j)
        for i in range(nv)
        for j in range(nv)
    )


def test_forward_dynamics_undoes_inverse_dynamics_exactly_over_fractions(exact):
    q, v, a, _ = exact.state
    assert fractions(aba(exact.model, q, v, rnea(exact.model, q, v, a))) == a


def test_floats_agree_with_fractions_to_rounding(exact):
    q, v, a, floats = exact.state
    precise = [float(x) for x in rnea(exact.model, q, v, a)]
    rounded = rnea(exact.model.over(float), floats, tuple(map(float, v)), tuple(map(float, a)))
    assert_close([rounded], [precise], 1e-13, "rnea")


def test_derivatives_are_exact_over_fractions(exact):
    """Along first-order steps of v, a and q (as sines, cosines and quaternions) rnea is a
    polynomial of low degree, whose derivative at 0 a symmetric difference over enough points gives
    exactly.
    """
    q, v, a, _ = exact.state
    model, tree, nv, points = exact.model, exact.tree, exact.tree.nv, 8
    factorial = np.cumprod([1, *range(1, 2 * points + 1)], dtype=object)
    weights = [
        Fraction(
            (-1) ** (k + 1) * int(factorial[points]) ** 2,
            k * int(factorial[points - k]) * int(factorial[points + k]),
        )
        for k in range(1, points + 1)
    ]

    def step(x, k, size):
        return tuple(y + (size if i == k else 0) for i, y in enumerate(x))

    def turned(k, size):
        result = moved(
            tree,
            [0 if isinstance(x, Angle) else x for x in q],
            [size if i == k else Fraction(0) for i in range(nv)],
        )
        for joint, in_q, in_v in tree.slices():
            if joint.type == "revolute":
                angle = q[in_q.start]
                d = size if in_v.start == k else 0
                result[in_q.start] = Angle(angle.cos - d * angle.sin, angle.sin + d * angle.cos)
        return tuple(result)

    def derivative(at):
        columns = []
        for k in range(nv):
            terms = [
                (w, fractions(at(k, Fraction(n))), fractions(at(k, Fraction(-n))))
                for n, w in enumerate(weights, 1)
            ]
            columns.append(
                [sum(w * (plus[i] - minus[i]) for w, plus, minus in terms) for i in range(nv)]
            )
        return tuple(zip(*columns, strict=True))

    d = rnea_derivatives(model, q, v, a)
    assert fractions(d.da) == derivative(lambda k, size: rnea(model, q, v, step(a, k, size)))
    assert fractions(d.dv) == derivative(lambda k, size: rnea(model, q, step(v, k, size), a))
    assert fractions(d.dq) == derivative(lambda k, size: rnea(model, turned(k, size), v, a))


# --- shapes and types -----------------------------------------------------------------------------

BATCH_TREES = [(0, 5, False, False), (1, 7, True, False), (2, 8, False, True)]


@pytest.fixture(scope="module", params=BATCH_TREES, ids=["fixed", "floating", "mimic"])
def batch_case(request):
    seed, bodies, floating, mimic = request.param
    tree = random_tree(seed, bodies, floating=floating, mimic=mimic)
    return SimpleNamespace(tree=tree, robot=tree.robot(), oracle=tree.oracle())


ONLY_Q = {
    "gravity_torque",
    "crba",
    "minv",
    "forward_kinematics",
    "jacobian",
    "center_of_mass",
    "center_of_mass_jacobian",
    "normalize",
}


@pytest.mark.parametrize("batch", [(), (1,), (5,), (2, 3), (0,), (2, 0)])
def test_a_batch_is_its_states_one_by_one(batch_case, batch):
    tree, robot = batch_case.tree, batch_case.robot
    rng = np.random.default_rng(5)
    link = tree.links[-1].name
    q, v, a = tree.random_state(rng, batch)
    external = {link: rng.normal(size=(*batch, 6))}
    together = every_result(robot, link, q, v, a, external)
    assert together["rnea"].shape == (*batch, tree.nv)
    assert together["aba_derivatives.dq"].shape == (*batch, tree.nv, tree.nv)
    for index in np.ndindex(batch):
        alone = every_result(
            robot, link, q[index], v[index], a[index], {link: external[link][index]}
        )
        for name, x in alone.items():
            assert together[name].shape == (*batch, *np.shape(x)), name
            assert_close([together[name][index]], [x], 1e-11, name)
    if batch == ():
        assert_close(
            [together["rnea"]], [batch_case.oracle.rnea(q, v, a, external)], INVERSE, "rnea"
        )


def test_shapes_broadcast(batch_case):
    tree, robot = batch_case.tree, batch_case.robot
    rng = np.random.default_rng(6)
    link = tree.links[-1].name
    q, v, a = tree.random_q(rng, (3, 1)), rng.normal(size=(4, tree.nv)), rng.normal(size=tree.nv)
    external = {link: rng.normal(size=(4, 6))}
    results = every_result(robot, link, q, v, a, external)
    wide = (
        np.broadcast_to(q, (3, 4, tree.nq)),
        np.broadcast_to(v, (3, 4, tree.nv)),
        np.broadcast_to(a, (3, 4, tree.nv)),
    )
    expected = every_result(robot, link, *wide, external)
    for name, x in results.items():
        if name in ONLY_Q:
            assert x.shape == (3, 1, *expected[name].shape[2:]), name
        else:
            assert x.shape == expected[name].shape, name
        assert np.allclose(x, expected[name], rtol=1e-12, atol=1e-12), name
    assert_close(
        [results["rnea"][2, 3]],
        [batch_case.oracle.rnea(q[2, 0], v[3], a, {link: external[link][3]})],
        INVERSE,
        "rnea",
    )


def test_single_precision_agrees_with_double(batch_case):
    """float32 in gives float32 out, right to 50·eps32, or 50·eps32·cond(M) where M is solved with.
    Gradients of forward dynamics solve twice (for a, then for the gradient), which the factor
    covers.
    """
    tree, robot = batch_case.tree, batch_case.robot
    rng = np.random.default_rng(7)
    link = tree.links[-1].name
    q, v, a = (x.astype(np.float32) for x in tree.random_state(rng, (4,)))
    q = np.asarray(robot.normalize(q))
    external = {link: rng.normal(size=(4, 6)).astype(np.float32)}
    single = every_result(robot, link, q, v, a, external)
    double = every_result(
        robot,
        link,
        q.astype(float),
        v.astype(float),
        a.astype(float),
        {link: external[link].astype(float)},
    )
    eps = float(np.finfo(np.float32).eps)
    condition = np.array([np.linalg.cond(batch_case.oracle.crba(x.astype(float))) for x in q])
    for name, x in single.items():
        assert x.dtype == np.float32, name
        assert double[name].dtype == np.float64, name
        forward = name.split(".")[0] in ("aba", "minv", "aba_derivatives", "fused_gradient")
        assert_close(x, double[name], 50 * eps * condition if forward else 50 * eps, name)


def test_mixed_and_integer_input_becomes_double(batch_case):
    tree, robot = batch_case.tree, batch_case.robot
    q, v, a = tree.random_state(np.random.default_rng(8))
    assert robot.rnea(q, v.astype(np.float32), a).dtype == np.float64
    ones = [1] * tree.nv
    assert robot.rnea(q, ones, ones).dtype == np.float64
    assert np.array_equal(
        robot.rnea(q, ones, ones), robot.rnea(q, np.ones(tree.nv), np.ones(tree.nv))
    )
    assert np.array_equal(robot.rnea(list(q), list(v), list(a)), robot.rnea(q, v, a))
