"""Programs: what the recorder writes down, that running it is running the algorithm, and that its
derivatives are right.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from random_trees import random_tree

import rigidgrad as rg
from rigidgrad import errors, scalars
from rigidgrad.algorithms import catalog
from rigidgrad.program.differentiate import differentiate, pullback, pushforward
from rigidgrad.program.fuse import fuse
from rigidgrad.program.nesting import flatten, nest
from rigidgrad.program.program import FUSED, LEAVES
from rigidgrad.program.recorder import record

# (seed, bodies): fixed and floating bases, with and without mimic joints, most joint types
TREES = [(3, 1), (4, 4), (8, 6), (21, 5)]
MODES = ("forward", "reverse")


def program(function, x=2, outputs=1):
    """A function of x numbers that returns a tuple of `outputs` numbers."""
    return record({"x": (x,)}, {"y": (outputs,)}, lambda values: (function(*values["x"]),))


def operations(p):
    return [node[0] for node in p.nodes if node[0] not in LEAVES]


def values_of(p, *x):
    return p.interpret({"x": x})[0]


# --- the recorder ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "same",
    [
        lambda a, b: 0.0 + a,
        lambda a, b: a - 0.0,
        lambda a, b: 1.0 * a,
        lambda a, b: a * 1,
        lambda a, b: -1.0 * -a,
        lambda a, b: a / 1.0,
        lambda a, b: 0.0 - (-a),
        lambda a, b: a + 0.0 * b,
        lambda a, b: (a + 0.0) * np.float64(1.0),
        lambda a, b: np.float64(1.0) * a,
    ],
)
def test_neutral_elements_leave_no_trace(same):
    p = program(lambda a, b: (same(a, b),))
    assert operations(p) == [] and p.results == ((1, 0),)


@pytest.mark.parametrize(
    "zero",
    [
        lambda a, b: a - a,
        lambda a, b: 0.0 * a,
        lambda a, b: 0 / a,
        lambda a, b: a * b - b * a,
        lambda a, b: (a - a) * b,
    ],
)
def test_what_cancels_is_the_constant_zero(zero):
    p = program(lambda a, b: (zero(a, b),))
    assert p.nodes == () and p.results == (0.0,) and p.pattern() == {"y": [False]}


def test_constants_fold():
    assert program(lambda a, b: (a / a,)).results == (1.0,)
    assert program(lambda a, b: (-b / b,)).results == (-1.0,)
    assert [
        n for n in program(lambda a, b: (2.0 * (a * 3.0) * -0.5,)).nodes if n[0] == "const"
    ] == [("const", 3.0)]
    assert operations(program(lambda a, b: (2.0 * (0.5 * a),))) == []
    assert operations(program(lambda a, b: (a / 4.0,))) == ["mul"]
    assert operations(program(lambda a, b: (a / 3.0,))) == ["div"]


def test_equal_work_is_done_once():
    p = program(lambda a, b: ((a + b) * (b + a), a * b, b * a, a - b, b - a), outputs=5)
    assert operations(p) == ["add", "mul", "mul", "sub"]
    assert p.results[1] == p.results[2]
    assert p.results[3] == (1, p.results[4][1]) and p.results[4][0] == -1
    assert values_of(p, 3.0, 5.0) == (64.0, 15.0, 15.0, -2.0, 2.0)


def test_sine_and_cosine_of_an_angle_and_its_negative_are_one_pair():
    p = program(lambda a: (*scalars.sincos(a), *scalars.sincos(-a)), x=1, outputs=4)
    assert sorted(operations(p)) == ["cos", "sin"]
    assert values_of(p, 0.3) == (math.sin(0.3), math.cos(0.3), math.sin(-0.3), math.cos(-0.3))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([1, -1]), min_size=4, max_size=4), st.sampled_from("+-*/"))
def test_signs_move_into_the_operations_around_them(signs, operator):
    apply = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a / b,
    }[operator]

    def function(a, b):
        a, b = (x if s > 0 else -x for x, s in zip((a, b), signs, strict=False))
        y = apply(a, b)
        return (signs[2] * y, apply(y, signs[3] * b))

    p = program(function, outputs=2)
    assert "neg" not in operations(p) and len(operations(p)) <= 3
    assert values_of(p, Fraction(3), Fraction(7)) == function(Fraction(3), Fraction(7))


def test_what_no_output_needs_is_dropped():
    p = program(lambda a, b: (lambda unused: (a + b,))(scalars.sqrt(a * b)))
    assert operations(p) == ["add"]
    assert [n[0] for n in program(lambda a, b: (a,)).nodes] == ["input"]


def test_a_recorded_comparison_cannot_steer_an_if():
    with pytest.raises(TypeError, match="select"):
        program(lambda a, b: (a if a < b else b,))
    with pytest.raises(TypeError, match="select"):
        program(lambda a, b: (max(a, b),))


def test_select_minimum_and_maximum_choose_by_value():
    p = program(
        lambda a, b: (
            scalars.select(scalars.less(a, b), 2.0 * a, -b),
            a.minimum(-b),
            a.maximum(1.0),
            scalars.select(a > 1.0, 5.0, a),
        ),
        outputs=4,
    )
    assert values_of(p, 1.0, 3.0) == (2.0, -3.0, 1.0, 1.0)
    assert values_of(p, 4.0, -9.0) == (9.0, 4.0, 4.0, 5.0)
    assert "select" not in operations(program(lambda a, b: (scalars.select(a < b, 1.0, 1.0),)))


def test_an_output_of_the_wrong_size_is_refused():
    with pytest.raises(ValueError, match="'y' has 2 numbers"):
        program(lambda a, b: (a, b), outputs=1)


# --- what a Program tells of itself ---------------------------------------------------------------


def test_a_program_prints_readably():
    p = program(lambda a, b: (a * b + 2.0, -a, 0.0), outputs=3)
    assert str(p).splitlines() == [
        "inputs  x[2]",
        "%0 = x[0]",
        "%1 = x[1]",
        "%2 = mul %0 %1",
        "%3 = 2.0",
        "%4 = add %2 %3",
        "y[0] = %4",
        "y[1] = -%0",
        "y[2] = 0.0",
    ]


def test_counts_are_those_of_the_operations():
    p = program(lambda a, b: (a * b + scalars.sqrt(a), scalars.sincos(a)[0] / b), outputs=2)
    counts = p.counts()
    assert (counts["mul"], counts["add"], counts["sqrt"], counts["sin"], counts["div"]) == (
        1,
        1,
        1,
        1,
        1,
    )
    assert counts.instructions == 5 and counts.flops == 4 and counts.depth == 2
    fused = fuse(p).counts()
    assert fused["fma"] == 1 and fused.instructions == 4 and fused.flops == 4
    assert "4 flops" in str(counts) and counts.keys() >= {"flops", "instructions", "depth", "live"}


def test_live_values_are_the_most_that_are_needed_at_once():
    chain = program(lambda a: (((a * a) * a) * a,), x=1)
    wide = record(
        {"x": (8,)},
        {"y": ()},
        lambda v: (scalars.total(scalars.sincos(x)[0] * scalars.sincos(x)[1] for x in v["x"]),),
    )
    assert chain.counts().live == 2
    assert wide.counts().live >= 8


@pytest.mark.parametrize("function", ["rnea", "crba", "aba_derivatives"])
def test_the_pattern_is_that_of_the_robot(function):
    robot = rg.load("hyq")
    kernel = catalog.bind(robot.model, function)
    pattern = record(kernel.inputs, kernel.outputs, kernel.evaluate).pattern()
    entries = robot.pattern(function)
    for mask, (name, shape) in zip(
        [entries] if len(pattern) == 1 else entries, kernel.outputs.items(), strict=True
    ):
        dense = np.zeros(shape, dtype=bool)
        dense[mask] = True
        assert pattern[name] == dense.ravel().tolist()


# --- running it is running the algorithm ----------------------------------------------------------


def kernels(robot):
    frame = robot.frames[-1]
    for name, function in catalog.FUNCTIONS.items():
        if function.contacts:
            continue
        yield catalog.bind(
            robot.model, name, frame=frame if function.frame else None, expressed_in="local"
        )
        if function.external:
            yield catalog.bind(robot.model, name, external=(frame,))


def arguments(kernel, tree, rng, batch=()):
    """Per input an array of its shape, and batch axes last."""
    values = {}
    for name, shape in kernel.inputs.items():
        x = (
            tree.random_q(rng, batch)
            if name in ("q", "q0", "q1")
            else rng.normal(size=(*batch, *shape))
        )
        values[name] = np.moveaxis(x, range(len(batch)), range(-len(batch), 0)) if batch else x
    return values


def nested(values, kernel, scalar):
    return {
        name: nest(
            [scalar(x) for x in values[name].reshape(math.prod(s), *values[name].shape[len(s) :])],
            s,
        )
        for name, s in kernel.inputs.items()
    }


def flat(outputs, shape=()):
    return np.array([np.broadcast_to(x, shape) for x in flatten(outputs)])


@pytest.mark.parametrize(("seed", "bodies"), TREES)
def test_interpreting_is_running_the_algorithm(seed, bodies):
    """On floats, complex numbers and NumPy columns, for every function; fused or not."""
    tree = random_tree(seed, bodies)
    rng = np.random.default_rng(seed)
    for kernel in kernels(tree.robot()):
        p = record(kernel.inputs, kernel.outputs, kernel.evaluate)
        q = fuse(p)
        for batch, scalar in (
            ((), float),
            ((), lambda x: complex(x, 1e-3 * abs(x))),
            ((5,), np.asarray),
        ):
            given_ = nested(arguments(kernel, tree, rng, batch), kernel, scalar)
            direct = flat(kernel.evaluate(given_), batch)
            largest = max(1.0, np.max(abs(direct)))
            for form in (p, q):
                assert (
                    np.max(abs(flat(form.interpret(given_), batch) - direct)) <= 1e-10 * largest
                ), kernel.name


@pytest.mark.parametrize(("seed", "bodies"), TREES)
def test_fusing_needs_fewer_instructions_for_the_same_flops(seed, bodies):
    for kernel in kernels(random_tree(seed, bodies).robot()):
        p = record(kernel.inputs, kernel.outputs, kernel.evaluate)
        before, after = p.counts(), fuse(p).counts()
        fused = sum(after.get(kind, 0) for kind in FUSED)
        assert after.flops == before.flops and after.instructions == before.instructions - fused
        if kernel.name in ("rnea", "aba", "crba"):
            assert fused > 0.2 * after.instructions or before.instructions < 50


def test_fractions_stay_exact():
    def determinant(v):
        (a, b, c), (d, e, f), (g, h, i) = v["A"]
        return (a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g),)

    A = tuple(tuple(Fraction(i * i + j, 3 * i + 2 * j + 1) for j in range(3)) for i in range(3))
    p = record({"A": (3, 3)}, {"det": ()}, determinant)
    assert p.interpret({"A": A}) == fuse(p).interpret({"A": A}) == determinant({"A": A})
    assert isinstance(p.interpret({"A": A})[0], Fraction)


def test_an_angle_may_be_known_by_its_cosine_and_sine():
    kernel = catalog.bind(rg.load("double_pendulum").model, "crba")
    p = record(kernel.inputs, kernel.outputs, kernel.evaluate)
    q = (scalars.Angle(Fraction(0), Fraction(1)), scalars.Angle(Fraction(4, 5), Fraction(3, 5)))
    angles = (math.pi / 2, math.atan2(3, 4))
    np.testing.assert_allclose(
        flat(p.interpret({"q": q})), flat(kernel.evaluate({"q": angles})), rtol=1e-14
    )


def test_another_order_is_the_same_program():
    kernel = catalog.bind(rg.load("double_pendulum").model, "rnea")
    p = record(kernel.inputs, kernel.outputs, kernel.evaluate)
    depth = [0] * len(p.nodes)
    for i, node in enumerate(p.nodes):
        if node[0] not in LEAVES:
            depth[i] = 1 + max(depth[j] for j in node[1:])
    other = p.reordered(sorted(range(len(p.nodes)), key=lambda i: depth[i]))
    given_ = dict.fromkeys(kernel.inputs, (0.1, 0.7))
    assert other.nodes != p.nodes and other.interpret(given_) == p.interpret(given_)


# --- derivatives ----------------------------------------------------------------------------------


def random_function(seed, inputs=3, outputs=3, steps=14):
    """A random smooth-almost-everywhere function over any scalars, tame enough that numbers stay
    near one.
    """
    rng = np.random.default_rng(seed)
    plan = [
        (rng.choice(KINDS), *rng.integers(0, inputs + i, 4), rng.uniform(-2, 2))
        for i in range(steps)
    ]
    chosen = rng.integers(inputs, inputs + steps, outputs)

    def function(v):
        x = list(v["x"])
        for kind, a, b, c, d, k in plan:
            x.append(_STEPS[kind](x[a], x[b], x[c], x[d], float(k)))
        return (tuple(x[i] for i in chosen),)

    return record({"x": (inputs,)}, {"y": (outputs,)}, function)


def _bounded(x):
    return x / scalars.sqrt(1.0 + x * x)


_STEPS = {
    "sum": lambda a, b, c, d, k: a + k * b,
    "difference": lambda a, b, c, d, k: a - b * c,
    "product": lambda a, b, c, d, k: _bounded(a) * b,
    "square": lambda a, b, c, d, k: _bounded(a) * _bounded(a) + k,
    "quotient": lambda a, b, c, d, k: k / (2.0 + b * b) + a / (1.0 + d * d),
    "root": lambda a, b, c, d, k: scalars.sqrt(1.0 + a * a),
    "sine": lambda a, b, c, d, k: scalars.sincos(a - b)[0],
    "cosine": lambda a, b, c, d, k: scalars.sincos(k * a)[1],
    "angle": lambda a, b, c, d, k: scalars.atan2(a, b + k),
    "select": lambda a, b, c, d, k: scalars.select(scalars.less(a, b), c, -d),
    "minimum": lambda a, b, c, d, k: a.minimum(b - k) if hasattr(a, "minimum") else k,
    "maximum": lambda a, b, c, d, k: a.maximum(k) if hasattr(a, "maximum") else k,
}
KINDS = list(_STEPS)


def complex_step(p, x, h=1e-40):
    columns = []
    for k in range(len(x)):
        moved = tuple(complex(value, h * (i == k)) for i, value in enumerate(x))
        columns.append([np.imag(y) / h for y in flatten(p.interpret({"x": moved}))])
    return np.array(columns).T


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_jacobians_of_random_functions_are_those_of_the_complex_step(seed, fused):
    p = random_function(seed)
    p = fuse(p) if fused else p
    x = tuple(np.random.default_rng(seed + 1).normal(size=3).tolist())
    expected = complex_step(p, x)
    largest = max(1.0, np.max(abs(expected)))
    for mode in (*MODES, "auto"):
        J = differentiate(p, mode=mode)
        assert J.outputs == {"dy/dx": (3, 3)}
        computed = np.array(J.interpret({"x": x})[0])
        assert np.max(abs(computed - expected)) <= 1e-12 * largest
        assert all(
            computed[i // 3, i % 3] == 0 for i, live in enumerate(J.pattern()["dy/dx"]) if not live
        )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_second_derivatives_are_symmetric_and_those_of_the_complex_step(seed):
    p = random_function(seed, steps=10)
    x = tuple(np.random.default_rng(seed + 1).normal(size=3).tolist())
    gradient = differentiate(p, mode="reverse")
    expected = complex_step(gradient, x).reshape(3, 3, 3)
    largest = max(1.0, np.max(abs(expected)))
    for mode in MODES:
        H = differentiate(gradient, mode=mode)
        assert H.outputs == {"ddy/dx/dx": (3, 3, 3)}
        hessians = np.array(H.interpret({"x": x})[0])
        assert np.max(abs(hessians - expected)) <= 1e-11 * largest
        assert np.max(abs(hessians - hessians.transpose(0, 2, 1))) <= 1e-11 * largest


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_products_with_the_jacobian_need_no_jacobian(seed):
    p = random_function(seed)
    rng = np.random.default_rng(seed + 1)
    x, t, c = rng.normal(size=(3, 3))
    J = np.array(differentiate(p).interpret({"x": tuple(x)})[0])
    y, rate = pushforward(p, values=True).interpret({"x": tuple(x), "tangent:x": tuple(t)})
    y2, gradient = pullback(p, values=True).interpret({"x": tuple(x), "cotangent:y": tuple(c)})
    largest = max(1.0, np.max(abs(J)))
    assert y == y2 == p.interpret({"x": tuple(x)})[0]
    assert np.max(abs(rate - J @ t)) <= 1e-12 * largest * np.max(abs(t))
    assert np.max(abs(gradient - c @ J)) <= 1e-12 * largest * np.max(abs(c))


def test_a_pullback_differentiated_is_the_weighted_sum_of_second_derivatives():
    p = random_function(11, steps=20)
    x, c = (0.3, -0.8, 1.1), (0.5, -2.0, 1.5)
    tensor = np.array(differentiate(differentiate(p)).interpret({"x": x})[0])
    weighted = differentiate(pullback(p), inputs=["x"])
    assert weighted.outputs == {"dcotangent:x/dx": (3, 3)}
    np.testing.assert_allclose(
        weighted.interpret({"x": x, "cotangent:y": c})[0],
        np.tensordot(c, tensor, 1),
        rtol=1e-11,
        atol=1e-12,
    )


def test_derivatives_of_choices_are_those_of_the_branch_taken():
    p = program(
        lambda a, b: (
            a.minimum(b),
            a.maximum(b),
            scalars.select(a * a < b, 3.0 * a, -b),
            scalars.atan2(a, b),
            a.maximum(2.0),
        ),
        outputs=5,
    )
    for mode in MODES:
        J = differentiate(p, mode=mode)
        square = 0.5**2 + 2.0**2
        assert values_of(J, 0.5, 2.0) == (
            (1, 0),
            (0, 1),
            (3, 0),
            pytest.approx((2.0 / square, -0.5 / square)),
            (0, 0),
        )
        square = 3.0**2 + 1.0
        assert values_of(J, 3.0, -1.0) == (
            (0, 1),
            (1, 0),
            (0, -1),
            pytest.approx((-1.0 / square, -3.0 / square)),
            (1, 0),
        )


def test_forward_mode_never_looks_at_the_branch_not_taken():
    p = program(lambda a, b: (scalars.select(a < 1e-9, a * b, scalars.sqrt(a)),))
    columns = (np.array([0.0, 4.0]), np.array([7.0, 7.0]))
    with np.errstate(divide="ignore"):
        (row,) = differentiate(p, mode="forward").interpret({"x": columns})[0]
    assert np.array(row).T.tolist() == [[7.0, 0.0], [0.25, 0.0]]


def test_structural_zeros_of_a_jacobian_are_constants():
    for mode in MODES:
        J = differentiate(program(lambda a, b: (a * a, 3.0 - b, 1.5), outputs=3), mode=mode)
        assert J.results[1:] == (0.0, 0.0, -1.0, 0.0, 0.0)


def test_outputs_and_inputs_are_chosen_by_name():
    p = record(
        {"a": (), "b": (2,)},
        {"u": (), "w": (2, 1)},
        lambda v: (v["a"] * v["b"][0], ((v["b"][0],), (v["a"] - v["b"][1],))),
    )
    J = differentiate(p, "w", ["b"], values=True)
    assert J.inputs == p.inputs and J.outputs == {"w": (2, 1), "dw/db": (2, 1, 2)}
    assert J.interpret({"a": 2.0, "b": (3.0, 5.0)}) == (
        ((3.0,), (-3.0,)),
        (((1.0, 0.0),), ((0.0, -1.0),)),
    )
    assert list(differentiate(p).outputs) == ["du/da", "du/db", "dw/da", "dw/db"]
    with pytest.raises(errors.UnknownNameError, match="'w'"):
        differentiate(p, ["ww"])
    with pytest.raises(errors.UnknownNameError, match="no input"):
        differentiate(p, inputs=["u"])
    with pytest.raises(errors.InputError, match="forward"):
        differentiate(p, mode="backward")


def test_auto_takes_reverse_for_a_gradient_and_forward_for_a_curve():
    def winding(y):
        for _ in range(20):
            y = scalars.sincos(y)[0] * y
        return y

    gradient = record(
        {"x": (12,)}, {"y": ()}, lambda v: (winding(scalars.total(x * x for x in v["x"])),)
    )
    curve = record(
        {"x": ()},
        {"y": (12,)},
        lambda v: (tuple(winding(v["x"]) * float(k + 2) for k in range(12)),),
    )
    for p, better, worse in ((gradient, "reverse", "forward"), (curve, "forward", "reverse")):
        counts = {
            mode: differentiate(p, mode=mode).counts().instructions for mode in (*MODES, "auto")
        }
        assert counts["auto"] == counts[better] <= counts[worse]


@pytest.mark.parametrize("name", ["iiwa14", "hyq"])
@pytest.mark.parametrize(
    ("function", "gradient"), [("rnea", "rnea_derivatives"), ("aba", "aba_derivatives")]
)
def test_differentiated_dynamics_are_the_analytical_gradients(name, function, gradient):
    robot = rg.load(name)
    kernel, analytical = catalog.bind(robot.model, function), catalog.bind(robot.model, gradient)
    state = robot.random(seed=5)
    given_ = dict(zip(kernel.inputs, (tuple(x.tolist()) for x in state), strict=True))
    expected = analytical.evaluate(given_)
    p = record(kernel.inputs, kernel.outputs, kernel.evaluate)
    for mode in MODES:
        for form in (p, fuse(p)):
            computed = differentiate(form, mode=mode).interpret(given_)
            for x, y in zip(computed, expected, strict=True):
                assert np.max(abs(np.array(x) - np.array(y))) <= 1e-9 * max(
                    1.0, np.max(abs(np.array(y)))
                )


def test_second_derivatives_of_forward_dynamics_commute():
    kernel = catalog.bind(rg.load("double_pendulum").model, "aba")
    first = differentiate(record(kernel.inputs, kernel.outputs, kernel.evaluate), inputs=["q", "v"])
    second = differentiate(first)
    given_ = {"q": (0.4, -1.2), "v": (0.7, 2.0), "tau": (0.1, -0.3)}
    H = dict(zip(second.outputs, map(np.array, second.interpret(given_)), strict=True))
    np.testing.assert_allclose(
        H["dda/dq/dv"], H["dda/dv/dq"].transpose(0, 2, 1), rtol=1e-10, atol=1e-10
    )
    np.testing.assert_allclose(
        H["dda/dq/dq"], H["dda/dq/dq"].transpose(0, 2, 1), rtol=1e-10, atol=1e-10
    )
    assert not np.any(H["dda/dv/dtau"])
