"""Costs: exact Jacobians on every kind of joint, Pinocchio's numbers, functions that users write,
what they may call, and clear errors.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from random_trees import random_tree

import rigidgrad as rg
import rigidgrad.math as rm
from rigidgrad.control.costs import (
    CenterOfMass,
    Cost,
    Custom,
    CustomValue,
    Effort,
    Function,
    Reach,
    State,
)
from rigidgrad.control.system import CustomSystem, RobotSystem
from rigidgrad.control.terms.cost import gauss_newton
from rigidgrad.control.terms.rotation import rotation_vector
from rigidgrad.errors import InputError, UnknownNameError
from rigidgrad.program.differentiate import differentiate
from rigidgrad.program.recorder import record
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.job import Job, host_lanes

KNOTS = 5
SYSTEMS = {
    "arm": lambda: RobotSystem(rg.load("iiwa14")),
    "quadrotor": lambda: RobotSystem(
        rg.load("quadrotor"), actuation=np.random.default_rng(0).normal(size=(6, 4))
    ),
    "floating hyq": lambda: RobotSystem(rg.load("hyq", floating_base=True), "all"),
    "all joint types": lambda: RobotSystem(
        random_tree(
            5,
            9,
            floating=True,
            mimic=True,
            types=("revolute", "planar", "spherical", "helical", "floating", "prismatic"),
        ).robot()
    ),
}


@pytest.fixture(params=SYSTEMS, scope="module")
def system(request):
    return SYSTEMS[request.param]()


def knot(system, seed=1):
    """A random state and control, as tuples of floats."""
    rng = np.random.default_rng(seed)
    x = (
        np.r_[system.robot.random(seed=seed).q, rng.normal(size=system.nv)]
        if isinstance(system, RobotSystem)
        else rng.normal(size=system.nx)
    )
    return tuple(x.tolist()), tuple(rng.normal(size=system.nu).tolist())


def last_frame(system):
    return system.robot.frames[-1]


def pose(rotation_vector_, position):
    pin = pytest.importorskip("pinocchio")
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = pin.exp3(np.asarray(rotation_vector_, float)), position
    return T


def cost_numbers(term, system, knots=KNOTS, at=0):
    return tuple(term.targets(system, knots)[at].tolist())


def assert_jacobian_is_exact(term, system, x, u, tolerance=1e-12):
    """Against complex steps, which have no cancellation: all that is left is rounding of the two
    evaluations.
    """
    target = cost_numbers(term, system)
    J_x, J_u = term.jacobian(system, x, u, target)
    r = term.residual(system, x, u, target)
    assert len(r) == term.size(system)
    assert (J_x is not None, J_u is not None) == (term.uses_state, term.uses_control)
    h = 1e-30
    for J, n, moved in (
        (J_x, system.ndx, lambda e: (system.plus(x, e), u)),
        (J_u, system.nu, lambda e: (x, tuple(a + b for a, b in zip(u, e, strict=True)))),
    ):
        columns = []
        for k in range(n):
            values = term.residual(
                system, *moved(tuple(1j * h if i == k else 0.0 for i in range(n))), target
            )
            columns.append([np.imag(v) / h for v in values])
        expected = np.array(columns, float).T.reshape(len(r), n)
        found = np.zeros_like(expected) if J is None else np.array(J, float).reshape(len(r), n)
        np.testing.assert_allclose(
            found, expected, rtol=0, atol=tolerance * max(1.0, abs(expected).max())
        )


def mixed(x, u, p):
    """Of everything, with a branch, on all of x and u."""
    a, b = rm.dot(x, x), sum(u)
    return (
        p[0] * rm.sin(x[0]) * u[0],
        rm.select(b < 0.0, a, rm.exp(-0.1 * a)),
        rm.norm(x, smooth=0.1) + p[1] * b * x[-1],
    )


def terms(system):
    rng = np.random.default_rng(7)
    goal = np.array(knot(system, seed=9)[0])
    yield State(goal)
    yield Effort(reference=0.3)
    yield Effort(reference="gravity")
    frame = last_frame(system)
    yield Reach(frame, rng.normal(size=3), offset=(0.1, -0.2, 0.3))
    yield Reach(frame, pose(rng.normal(size=3), rng.normal(size=3)), offset=(0.1, 0, 0))
    yield CenterOfMass(rng.normal(size=3))
    yield Custom(mixed, parameters=[0.7, -1.1])
    yield CustomValue(lambda x, u: rm.cos(x[1]) * u[-1])


def test_jacobians_are_exact_on_every_kind_of_joint(system):
    x, u = knot(system)
    for term in terms(system):
        assert_jacobian_is_exact(term, system, x, u, 1e-11 if isinstance(term, State) else 1e-12)


def test_jacobians_of_a_custom_system_are_exact():
    system = CustomSystem(lambda x, u: (x[1], u[0]), 2, 1)
    x, u = knot(system)
    for term in (State([0.3, 1.0]), Effort(), Custom(mixed, parameters=[0.7, -1.1])):
        assert_jacobian_is_exact(term, system, x, u)


# --- poses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "angle",
    [
        0.0,
        1e-20,
        1e-16,
        1e-12,
        1e-8,
        1e-4,
        0.1,
        0.5,
        1.0,
        2.0,
        3.0,
        np.pi - 1e-3,
        np.pi - 1e-6,
        np.pi - 1e-8,
    ],
)
def test_the_rotation_vector_undoes_the_exponential(angle):
    """Up to angles near π, about any axis: to the rounding of the matrix, which is all that is
    known of the rotation.
    """
    pin = pytest.importorskip("pinocchio")
    rng = np.random.default_rng(3)
    for axis in [*np.eye(3), *-np.eye(3), *rng.normal(size=(20, 3)), (1, 1e-9, 0), (1, 1, 1e-12)]:
        w = angle * np.array(axis) / np.linalg.norm(axis)
        R = tuple(tuple(row) for row in pin.exp3(w).tolist())
        np.testing.assert_allclose(rotation_vector(R), w, rtol=0, atol=5e-15)
        if 1e-8 <= angle <= 1:
            np.testing.assert_allclose(
                rotation_vector(R), pin.log3(np.array(R)), rtol=0, atol=1e-14
            )


@pytest.mark.parametrize("angle", [0.0, 1e-12, 1e-5, 0.3, 0.49, 0.51, 1.5, 3.0, np.pi - 1e-4])
@pytest.mark.parametrize("name", ["iiwa14", "hyq"])
def test_the_error_of_a_pose_and_its_jacobian_are_pinocchios(angle, name):
    pin = pytest.importorskip("pinocchio")
    from importlib import resources

    floating = name == "hyq"
    system = RobotSystem(rg.load(name, floating_base=floating))
    path = str(resources.files("rigidgrad.model") / "robots" / f"{name}.urdf")
    model = (
        pin.buildModelFromUrdf(path, pin.JointModelFreeFlyer())
        if floating
        else pin.buildModelFromUrdf(path)
    )
    data, frame = model.createData(), last_frame(system)
    x, u = knot(system, seed=4)
    q = np.array(x[: system.nq])
    pin.framesForwardKinematics(model, data, q)
    M = data.oMf[model.getFrameId(frame)]
    w = np.random.default_rng(5).normal(size=3)
    goal = pin.SE3(
        M.rotation @ pin.exp3(-angle * w / np.linalg.norm(w)), M.translation - [0.1, 0.2, 0.3]
    )
    cost = Reach(frame, goal.homogeneous)
    target = cost_numbers(cost, system)
    r = np.array(cost.residual(system, x, u, target))
    error = goal.rotation.T @ M.rotation
    np.testing.assert_allclose(r[:3], [0.1, 0.2, 0.3], atol=1e-14)
    np.testing.assert_allclose(r[3:], angle * w / np.linalg.norm(w), atol=5e-15)
    J = pin.computeFrameJacobian(model, data, q, model.getFrameId(frame), pin.LOCAL)
    expected = np.vstack([M.rotation @ J[:3], pin.Jlog3(error) @ J[3:]])
    found = np.array(cost.jacobian(system, x, u, target)[0], float)
    assert not found[:, system.nv :].any()
    # Pinocchio's own Jlog3 loses digits towards π
    np.testing.assert_allclose(
        found[:, : system.nv], expected, rtol=0, atol=1e-12 if angle < 3 else 1e-9
    )


def test_the_centre_of_mass_is_pinocchios():
    pytest.importorskip("pinocchio")
    for seed in range(5):
        tree = random_tree(seed, 7)
        system = RobotSystem(tree.robot())
        oracle = tree.oracle()
        x, u = knot(system, seed)
        cost = CenterOfMass((0.1, 0.2, 0.3))
        q = np.array(x[: system.nq])
        target = cost_numbers(cost, system)
        np.testing.assert_allclose(
            cost.residual(system, x, u, target),
            oracle.center_of_mass(q) - [0.1, 0.2, 0.3],
            atol=1e-12,
        )
        J = np.array(cost.jacobian(system, x, u, target)[0], float)
        np.testing.assert_allclose(J[:, : system.nv], oracle.center_of_mass_jacobian(q), atol=1e-12)
        assert not J[:, system.nv :].any()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_compiled_terms_compute_what_plain_floats_do(dtype):
    system = SYSTEMS["quadrotor"]()
    costs = [
        Reach(last_frame(system), pose((0.3, -2.0, 1.0), (1, 2, 3))),
        Custom(mixed, parameters=[0.7, -1.1]),
    ]
    rows = 2 * host_lanes(dtype) + 1
    X, U = (np.array([knot(system, s)[k] for s in range(rows)], dtype) for k in (0, 1))
    for cost in costs:
        p, w = (
            a[0].astype(dtype)
            for a in (cost.targets(system, KNOTS), np.linspace(1, 2, cost.size(system))[None])
        )
        n, m = system.ndx, system.nu
        names = ("lx", "lu", "lxx", "lux", "luu")
        sizes = {"l": (), "lx": (n,), "lu": (m,), "lxx": (n, n), "lux": (m, n), "luu": (m, m)}
        kept = [k for k in ("l", *names) if cost.uses_control or "u" not in k]

        def evaluate(v, cost=cost, w=w, kept=kept):
            q = cost.expand(system, v["x"], v["u"], v["p"], tuple(w.tolist()))
            return tuple(
                dict(zip(("l", "lx", "lu", "lxx", "lux", "luu"), q, strict=True))[k] for k in kept
            )

        shapes = {"x": (system.nx,), "u": (m,), "p": (len(p),)}
        program = record(shapes, {k: sizes[k] for k in kept}, evaluate)
        fast = Compiled(
            Job("term", "test", str(program), lambda program=program: program),
            dtype=dtype,
            threads=1,
        )
        for count in (1, rows - 2, rows - 1, rows):
            found = fast(X[:count], U[:count], p)
            for k in range(count):
                expected = program.interpret(
                    {
                        "x": X[k].astype(float).tolist(),
                        "u": U[k].astype(float).tolist(),
                        "p": p.astype(float).tolist(),
                    }
                )
                for a, b in zip(found, expected, strict=True):
                    b = np.array(b, float)
                    # the kernel rounds differently (fused products): a few hundred operations deep
                    np.testing.assert_allclose(
                        a[k], b, rtol=0, atol=300 * np.finfo(dtype).eps * max(1.0, abs(b).max())
                    )


# --- second derivatives ---------------------------------------------------------------------------


def test_a_cost_expands_by_gauss_newton(system):
    x, u = knot(system)
    weights = np.random.default_rng(2).uniform(0.1, 2, 200)
    for term in terms(system):
        if isinstance(term, CustomValue):
            continue
        target, size = cost_numbers(term, system), term.size(system)
        W = tuple(weights[:size].tolist())
        r = np.array(term.residual(system, x, u, target), float)
        J = [
            np.zeros((size, n)) if j is None else np.array(j, float)
            for j, n in zip(
                term.jacobian(system, x, u, target), (system.ndx, system.nu), strict=True
            )
        ]
        q = term.expand(system, x, u, target, W)
        assert abs(q.value - 0.5 * r @ (W * r)) < 1e-13 * max(1, abs(q.value))
        assert abs(term.value(system, x, u, target, W) - q.value) < 1e-13 * max(1, abs(q.value))
        full = np.hstack(J)
        gradient, hessian = full.T @ (W * r), full.T @ (np.array(W)[:, None] * full)
        n = system.ndx
        parts = {
            "lx": gradient[:n],
            "lu": gradient[n:],
            "lxx": hessian[:n, :n],
            "lux": hessian[n:, :n],
            "luu": hessian[n:, n:],
        }
        for name, expected in parts.items():
            found = getattr(q, name)
            absent = ("x" in name and not term.uses_state) or (
                "u" in name and not term.uses_control
            )
            assert (found is None) == absent, (term, name)
            if not absent:
                np.testing.assert_allclose(
                    np.array(found, float),
                    expected,
                    rtol=0,
                    atol=1e-12 * max(1, abs(expected).max()),
                )


def test_gauss_newton_takes_other_weights_for_the_hessian():
    J = ((1.0, 2.0), (3.0, 4.0))
    lx, lu, lxx, lux, luu = gauss_newton((J, None), (5.0, 7.0), (1.0, 0.0))
    assert (lx, lu, lux, luu) == ((26.0, 38.0), None, None, None)
    assert lxx == ((1.0, 2.0), (2.0, 4.0))


def second_differences(system, value, x, u):
    """Gradient and Hessian of a value at x ⊕ dx, u + du by differences with 60 digits: exact to a
    float.
    """
    mpmath.mp.dps = 60
    h, n = mpmath.mpf("1e-18"), system.ndx + system.nu
    X, U = (tuple(mpmath.mpf(a) for a in v) for v in (x, u))

    def at(**moves):
        d = [mpmath.mpf(0)] * n
        for k, s in moves.items():
            d[int(k[1:])] += s * h
        return value(
            system.plus(X, tuple(d[: system.ndx])),
            tuple(a + b for a, b in zip(U, d[system.ndx :], strict=True)),
        )

    zero, plus, minus = (
        at(),
        [at(**{f"k{i}": 1}) for i in range(n)],
        [at(**{f"k{i}": -1}) for i in range(n)],
    )
    gradient = np.array([float((a - b) / (2 * h)) for a, b in zip(plus, minus, strict=True)])
    H = np.zeros((n, n))
    for i in range(n):
        H[i, i] = float((plus[i] - 2 * zero + minus[i]) / h**2)
        for j in range(i):
            both, neither = at(**{f"k{i}": 1, f"k{j}": 1}), at(**{f"k{i}": -1, f"k{j}": -1})
            H[i, j] = H[j, i] = float(
                (both + neither + 2 * zero - plus[i] - plus[j] - minus[i] - minus[j]) / (2 * h**2)
            )
    return float(zero), gradient, H


def test_the_hessian_of_a_value_is_exact_on_a_manifold():
    system = SYSTEMS["quadrotor"]()
    x, u = knot(system)

    def function(x, u):
        return (
            rm.sin(x[0] * x[3]) * u[0]
            + x[4] * x[5] * x[6] / (1 + rm.dot(u, u))
            + rm.sqrt(1 + x[9] * x[9]) * x[1]
            + rm.select(x[2] < 9.0, x[2] * x[2], 0.0)
        )

    cost = CustomValue(function, weight=1.0)
    q = cost.expand(system, x, u, cost_numbers(cost, system), (2.0,))
    value, gradient, H = second_differences(system, function, x, u)
    n = system.ndx
    np.testing.assert_allclose(q.value, 2 * value, rtol=1e-13)
    np.testing.assert_allclose(
        np.r_[q.lx, q.lu], 2 * gradient, rtol=0, atol=1e-13 * max(1, abs(gradient).max())
    )
    np.testing.assert_allclose(
        np.array(q.lxx, float), 2 * H[:n, :n], rtol=0, atol=1e-12 * abs(H).max()
    )
    np.testing.assert_allclose(
        np.array(q.lux, float), 2 * H[n:, :n], rtol=0, atol=1e-12 * abs(H).max()
    )
    np.testing.assert_allclose(
        np.array(q.luu, float), 2 * H[n:, n:], rtol=0, atol=1e-12 * abs(H).max()
    )


def test_a_value_of_the_state_alone_has_no_derivatives_by_the_control():
    system = SYSTEMS["arm"]()
    cost = CustomValue(lambda x, u: x[0] * x[1])
    assert cost.size(system) == 1
    q = cost.expand(system, *knot(system), (), (1.0,))
    assert q.lu is q.lux is q.luu is None
    assert q.lxx[0][1] == q.lxx[1][0] == 1.0


# --- functions that users write -------------------------------------------------------------------


def test_a_function_is_called_once_and_its_parameters_are_inputs():
    calls = []

    def function(x, u, p):
        calls.append(1)
        return x[0] - p[0], x[1] * p[1]

    system = CustomSystem(lambda x, u: (x[1], u[0]), 2, 1)
    cost = Custom(function, weight=1.0, parameters=[2.0, 3.0])
    (
        cost.targets(system, KNOTS),
        cost.weights(system, KNOTS),
        cost.key(),
        cost.jacobian(system, (1.0, 1.0), (0.0,), (2.0, 3.0)),
    )
    assert cost.residual(system, (1.0, 1.0), (0.0,), (2.0, 3.0)) == (-1.0, 3.0)
    key = cost.key()
    moving = np.arange(2.0 * KNOTS).reshape(KNOTS, 2)
    cost.parameters = moving
    np.testing.assert_array_equal(cost.targets(system, KNOTS), moving)
    assert cost.key() == key
    assert calls == [1]
    assert (cost.uses_state, cost.uses_control) == (True, False)


@pytest.mark.parametrize(
    ("function", "uses"),
    [
        (lambda x, u: x[0], (True, False)),
        (lambda x, u: u[0] + 0.0 * x[0], (False, True)),
        (lambda x, u: (x[0], u[0]), (True, True)),
        (lambda x, u: np.array(x) * 2.0, (True, False)),
        (lambda x, u: [rm.select(u[0] < 0.0, x[0], x[1])], (True, True)),
    ],
)
def test_what_a_function_uses_is_seen_from_its_recording(function, uses):
    cost = Custom(function)
    cost.size(CustomSystem(lambda x, u: x, 2, 1))
    assert (cost.uses_state, cost.uses_control) == uses


def test_keys_tell_programs_apart():
    system = SYSTEMS["arm"]()
    functions = [
        lambda x, u: x[0],
        lambda x, u: x[1],
        lambda x, u: 2.0 * x[0],
        lambda x, u: (x[0], x[0]),
    ]
    pairs = [Custom(f) for f in functions] + [CustomValue(functions[0]), Function(functions[0])]
    frames = [
        Reach("iiwa_link_7", np.zeros(3)),
        Reach("iiwa_link_6", np.zeros(3)),
        Reach("iiwa_link_7", np.zeros(3), offset=(0, 0, 0.1)),
        Reach("iiwa_link_7", np.eye(4)),
    ]
    every = [*pairs, *frames, State(np.zeros(14)), Effort(), CenterOfMass(np.zeros(3))]
    for term in every:
        term.size(system)
    keys = [t.key() for t in every]
    assert len(set(keys)) == len(keys)
    again = Custom(lambda x, u: x[0])
    again.size(system)
    assert again.key() == keys[0]
    assert Reach("iiwa_link_7", np.ones(3)).key() == frames[0].key()


# --- targets and weights --------------------------------------------------------------------------


def test_targets_and_weights_may_differ_from_knot_to_knot():
    system = SYSTEMS["arm"]()
    rng = np.random.default_rng(0)
    path = rng.normal(size=(KNOTS, 3))
    for cost in (Reach("iiwa_link_7", path), CenterOfMass(path)):
        np.testing.assert_array_equal(cost.targets(system, KNOTS), path)
    poses = np.array([pose(rng.normal(size=3), p) for p in path])
    found = Reach("iiwa_link_7", poses).targets(system, KNOTS)
    np.testing.assert_array_equal(found[:, :3], path)
    np.testing.assert_array_equal(found[:, 3:].reshape(KNOTS, 3, 3), poses[:, :3, :3])
    states = rng.normal(size=(KNOTS, 14))
    np.testing.assert_array_equal(State(states).targets(system, KNOTS), states)
    controls = rng.normal(size=(KNOTS - 1, 7))
    np.testing.assert_array_equal(Effort(reference=controls).targets(system, KNOTS)[:-1], controls)
    weight = rng.uniform(size=(KNOTS - 1, 3))
    found = CenterOfMass(np.zeros(3), weight=weight, final=2.0).weights(system, KNOTS)
    np.testing.assert_array_equal(found, np.vstack([weight, np.full(3, 2.0)]))


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        (2.0, [2.0] * 6),
        ((3.0, 4.0), [3.0] * 3 + [4.0] * 3),
        (np.arange(6.0), np.arange(6.0)),
        (np.full((KNOTS - 1, 2), 5.0), [5.0] * 6),
    ],
)
def test_weights_of_a_pose_come_in_several_notations(weight, expected):
    system = SYSTEMS["arm"]()
    cost = Reach("iiwa_link_7", np.eye(4), weight=weight, final=(1.0, 2.0))
    found = cost.weights(system, KNOTS)
    np.testing.assert_array_equal(found[:-1], np.tile(expected, (KNOTS - 1, 1)))
    np.testing.assert_array_equal(found[-1], [1, 1, 1, 2, 2, 2])


# --- errors ---------------------------------------------------------------------------------------

NAN = float("nan")
LINK = "iiwa_link_7"


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (lambda: State(np.zeros(13)), "shape"),
        (lambda: State(np.full(14, NAN)), "NaN"),
        (lambda: State("home"), "numbers"),
        (lambda: State(np.zeros((KNOTS + 1, 14))), "shape"),
        (lambda: Effort(reference=np.zeros(3)), "shape"),
        (lambda: Effort(reference="gravitas"), "numbers or"),
        (lambda: Reach(LINK, np.zeros(4)), "shape"),
        (lambda: Reach(LINK, np.array([0, 0, np.inf])), "infinity"),
        (lambda: Reach(LINK, np.ones((4, 4))), "rotation"),
        (lambda: Reach(LINK, np.diag([1.0, 1, -1, 1])), "rotation"),
        (
            lambda: Reach(LINK, np.eye(4) + np.eye(4)[:, [3, 0, 1, 2]] * [[0], [0], [0], [1]]),
            "last row",
        ),
        (lambda: Reach(LINK, np.zeros(3), offset=(1, 2)), "shape"),
        (lambda: CenterOfMass(np.zeros(2)), "shape"),
        (lambda: State(np.zeros(14), weight=-1.0), "negative"),
        (lambda: State(np.zeros(14), final=-1.0), "negative"),
        (lambda: State(np.zeros(14), weight=np.ones(3)), "shape"),
        (lambda: State(np.zeros(14), weight=np.ones((KNOTS, 14))), "shape"),
        (lambda: State(np.zeros(14), weight=NAN), "NaN"),
        (lambda: Reach(LINK, np.zeros(3), weight=(1.0, 2.0)), "shape"),
        (lambda: Custom(lambda x, u: u[0], weight=1.0, final=1.0), "final"),
        (lambda: Custom(3.0), "function"),
        (lambda: Custom(lambda x, u: x[0] if x[0] > 0 else u[0]), "select"),
        (lambda: Custom(lambda x, u: np.sin(x[0])), "rg.math"),
        (lambda: Custom(lambda x, u: x[99]), "IndexError"),
        (lambda: Custom(lambda x, u: ()), "nothing"),
        (lambda: Custom(lambda x, u: None), "failed"),
        (lambda: Custom(lambda x, u: (x[0], NAN)), "NaN"),
        (lambda: Custom(lambda x, u: 1.0), "neither"),
        (lambda: Custom(lambda x, u, p: p[0], parameters=[1.0]), "neither"),
        (lambda: Custom(lambda x, u, p: x[0] * p[0], parameters=[NAN]), "NaN"),
        (lambda: Custom(lambda x, u, p: x[0] * p[0], parameters=np.zeros((KNOTS - 1, 1))), "shape"),
        (lambda: CustomValue(lambda x, u: (x[0], x[1])), "2 numbers"),
        (lambda: Custom(lambda x, u: rm.cross(x[:2], x[:3])), "cross"),
    ],
)
def test_mistakes_are_told_when_a_problem_is_made(cost, words):
    system = SYSTEMS["arm"]()
    with pytest.raises(InputError, match=words):
        (term := cost()).targets(system, KNOTS), term.weights(system, KNOTS)


def test_an_unknown_frame_lists_near_ones():
    with pytest.raises(UnknownNameError, match="iiwa_link_7"):
        Reach("iiwa_link_77", np.zeros(3)).targets(SYSTEMS["arm"](), KNOTS)


def test_a_goal_must_have_unit_quaternions():
    system = SYSTEMS["quadrotor"]()
    x = np.r_[system.robot.neutral(), np.zeros(6)]
    State(x).targets(system, KNOTS)
    for scale in (2.0, 0.0):
        y = x.copy()
        y[6] = scale
        with pytest.raises(InputError, match="normalize"):
            State(y).targets(system, KNOTS)


def test_terms_of_robots_need_one():
    system = CustomSystem(lambda x, u: x, 2, 1)
    for cost in (Reach("a", np.zeros(3)), CenterOfMass(np.zeros(3))):
        with pytest.raises(InputError, match="robot"):
            cost.targets(system, KNOTS)


def test_a_function_serves_one_size_of_system():
    cost = Custom(lambda x, u: x[0])
    with pytest.raises(InputError, match="not part of a problem"):
        cost.key()
    cost.size(CustomSystem(lambda x, u: x, 2, 1))
    cost.size(CustomSystem(lambda x, u: (u[0], x[0]), 2, 1))
    with pytest.raises(InputError, match="another"):
        cost.size(CustomSystem(lambda x, u: x, 3, 1))


def test_a_cost_may_be_written_outside():
    """Only the abstract methods are needed."""

    class Slow(Cost):
        def size(self, system):
            return system.ndx - system.nx + 1

        def target_size(self, system):
            return 0

        def targets(self, system, knots):
            return np.zeros((knots, 0))

        def residual(self, system, x, u, target):
            return (x[1],)

        def jacobian(self, system, x, u, target):
            return ((0.0, 1.0),), None

    system = CustomSystem(lambda x, u: (x[1], u[0]), 2, 1)
    q = Slow(weight=1.0).expand(system, (1.0, 3.0), (0.0,), (), (2.0,))
    assert (q.value, q.lx, q.lxx) == (9.0, (0.0, 6.0), ((0.0, 0.0), (0.0, 2.0)))


# --- rg.math --------------------------------------------------------------------------------------

ONE = {
    "sin": (np.linspace(-9, 9, 301), mpmath.sin),
    "cos": (np.linspace(-9, 9, 301), mpmath.cos),
    "tan": (np.linspace(-1.5, 1.5, 301), mpmath.tan),
    "asin": (np.linspace(-0.99, 0.99, 301), mpmath.asin),
    "acos": (np.linspace(-0.99, 0.99, 301), mpmath.acos),
    "atan": (np.linspace(-9, 9, 301), mpmath.atan),
    "sqrt": (np.linspace(0.01, 9, 301), mpmath.sqrt),
    "exp": (np.r_[np.linspace(-700, 700, 1001), np.linspace(-1, 1, 301)], mpmath.exp),
    "log": (
        np.r_[10.0 ** np.linspace(-307, 307, 1001), 1 + np.linspace(-1e-3, 1e-3, 101), 5e-324],
        mpmath.log,
    ),
    "sinh": (np.linspace(-30, 30, 301), mpmath.sinh),
    "cosh": (np.linspace(-30, 30, 301), mpmath.cosh),
    "tanh": (np.linspace(-30, 30, 301), mpmath.tanh),
    "absolute": (np.linspace(-2, 2, 101), mpmath.fabs),
    "square": (np.linspace(-2, 2, 101), lambda x: x * x),
    "sign": (np.linspace(-2, 2, 101), mpmath.sign),
}
# rounding on the scale of 1 near a zero of the function, where the formula subtracts; of its own
# size elsewhere
ABSOLUTE = {"sin", "cos", "asin", "acos", "atan", "sinh", "cosh", "tanh"}


def compiled(program, dtype):
    return Compiled(Job("math", "test", str(program), lambda: program), dtype=dtype, threads=1)


@pytest.mark.parametrize("name", ONE)
def test_functions_are_right_on_floats_arrays_and_in_kernels(name):
    x, oracle = ONE[name]
    function = getattr(rm, name)
    mpmath.mp.dps = 40
    with np.errstate(all="ignore"):
        expected = np.array([float(oracle(mpmath.mpf(a))) for a in x])
    eps = np.finfo(float).eps
    scale = np.maximum(abs(expected), 1.0 if name in ABSOLUTE else 0.0)
    program = record({"x": ()}, {"y": ()}, lambda v: (function(v["x"]),))
    ways = {
        "floats": np.array([function(a) for a in x.tolist()]),
        "arrays": function(x),
        "kernels": compiled(program, "float64")(x),
    }
    for way, found in ways.items():
        assert found.shape == x.shape
        error = abs(found - expected) / np.where(scale == 0, 1, scale)
        assert error.max() <= 8 * eps, (way, x[error.argmax()], error.max() / eps)


@pytest.mark.parametrize(
    ("name", "low", "high"), [("exp", -80, 80), ("log", 1e-30, 1e30), ("tanh", -9, 9)]
)
def test_functions_are_right_in_single_precision(name, low, high):
    x = (np.geomspace(low, high, 500) if low > 0 else np.linspace(low, high, 500)).astype(
        np.float32
    )
    program = record({"x": ()}, {"y": ()}, lambda v: (getattr(rm, name)(v["x"]),))
    expected = getattr(np, name)(x.astype(float))
    scale = np.maximum(abs(expected), 1.0 if name == "tanh" else 0)
    assert (
        abs(compiled(program, "float32")(x) - expected) <= 8 * np.finfo(np.float32).eps * scale
    ).all()


@pytest.mark.parametrize("name", [n for n in ONE if n not in ("sign",)])
def test_derivatives_of_recorded_functions_are_exact(name):
    x, oracle = ONE[name]
    program = differentiate(
        record({"x": ()}, {"y": ()}, lambda v: (getattr(rm, name)(v["x"]),)), mode="forward"
    )
    mpmath.mp.dps = 50
    for a in x[::7].tolist() + ([0.0] if name not in ("log", "sqrt", "absolute") else []):
        if not 1e-290 < abs(a) < 1e290 and a != 0.0:
            continue
        expected = float(1 / mpmath.mpf(a) if name == "log" else mpmath.diff(oracle, mpmath.mpf(a)))
        found = program.interpret({"x": a})[0]
        assert abs(found - expected) <= 1e-14 * max(
            abs(expected), 1.0 if name in ABSOLUTE else 1e-300
        ), a


def test_the_ends_of_exp_and_log():
    ends = np.array([0.0, -0.0, -1.0, np.nan, 1e4, -1e4])
    program = record({"x": ()}, {"e": (), "l": ()}, lambda v: (rm.exp(v["x"]), rm.log(v["x"])))
    e, l = compiled(program, "float64")(ends)
    np.testing.assert_array_equal(e[[0, 1, 3, 4, 5]], [1, 1, np.nan, np.inf, 0])
    np.testing.assert_array_equal(l[:4], [-np.inf, -np.inf, np.nan, np.nan])
    assert rm.exp(1e4) == np.inf and rm.log(0.0) == -np.inf and np.isnan(rm.log(-1.0))


def test_vectors_powers_and_choices():
    a, b = (1.0, 2.0, 3.0), (-1.0, 0.5, 2.0)
    assert rm.dot(a, b) == np.dot(a, b)
    assert rm.cross(a, b) == tuple(np.cross(a, b))
    assert rm.norm((3.0, 4.0)) == rm.hypot(3.0, 4.0) == 5.0
    assert rm.norm((0.0, 0.0), smooth=0.5) == 0.5
    assert [rm.power(3.0, n) for n in (0, 1, 2, 5, -2)] == [1.0, 3.0, 9.0, 243.0, 1 / 9]
    assert [rm.clamp(x, -1.0, 2.0) for x in (-3.0, 0.5, 7.0)] == [-1.0, 0.5, 2.0]
    assert (
        rm.minimum(1.0, 2.0),
        rm.maximum(1.0, 2.0),
        rm.minimum(2.0, 1.0),
        rm.maximum(2.0, 1.0),
    ) == (1.0, 2.0, 1.0, 2.0)
    np.testing.assert_array_equal(rm.maximum(np.array([1.0, 5.0]), 2.0), [2.0, 5.0])
    program = record(
        {"x": (), "y": ()},
        {"z": (4,)},
        lambda v: (
            (
                rm.minimum(v["x"], v["y"]),
                rm.maximum(0.0, v["x"]),
                rm.clamp(v["x"], v["y"], 5.0),
                rm.power(v["x"], 3),
            ),
        ),
    )
    assert program.interpret({"x": 2.0, "y": -1.0})[0] == (-1.0, 2.0, 2.0, 8.0)
    assert np.isnan(compiled(program, "float64")(np.nan, 1.0)).all()
    with pytest.raises(InputError, match="whole"):
        rm.power(2.0, 0.5)
    with pytest.raises(InputError, match="length"):
        rm.dot((1.0,), (1.0, 2.0))


def test_all_that_is_exported_exists():
    assert all(hasattr(rm, name) for name in rm.__all__)
