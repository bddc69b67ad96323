"""Fixed-point numbers are exact integer arithmetic with one rounding a product, in every mode, for
one state and for many; ranges and error bounds hold.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from random_trees import random_tree

import rigidgrad as rg
from rigidgrad import errors
from rigidgrad.algorithms import catalog
from rigidgrad.fixed import Fixed, Number
from rigidgrad.fixed.ranges import analyse, constant_bits, integer_bits
from rigidgrad.fixed.vector import run, run_raw
from rigidgrad.program.nesting import flatten, nest
from rigidgrad.program.recorder import record
from rigidgrad.runtime.formulation import program_of
from rigidgrad.targets.verilog.lower import Delays, lower

ROUNDINGS, OVERFLOWS = ("nearest", "truncate", "even"), ("saturate", "wrap")


def rounded(x: Fraction, mode: str) -> int:
    """The oracle: exact rational numbers."""
    if mode == "truncate":
        return math.floor(x)
    if mode == "nearest":
        return math.floor(x + Fraction(1, 2))
    return round(x)  # Python rounds fractions' halves to even


def kept(raw: int, f: Fixed) -> int:
    if f.overflow == "saturate":
        return min(max(raw, f.lowest), f.highest)
    return (raw - f.lowest) % (1 << f.width) + f.lowest


formats = st.builds(
    lambda i, f, r, o: Fixed(i, f, r, o),
    st.integers(1, 20),
    st.integers(1, 20),
    st.sampled_from(ROUNDINGS),
    st.sampled_from(OVERFLOWS),
)


@settings(max_examples=300, deadline=None)
@given(formats, st.data())
def test_arithmetic_is_that_of_rational_numbers_rounded_once(f, data):
    raws = st.integers(f.lowest, f.highest) | st.sampled_from([f.lowest, f.highest, 0, -1, 1])
    a, b = data.draw(raws), data.draw(raws)
    x, y, unit = Number(f, a), Number(f, b), Fraction(1, 1 << f.fraction_bits)
    assert (x + y).raw == kept(a + b, f)
    assert (x - y).raw == kept(a - b, f)
    assert (-x).raw == kept(-a, f)
    assert (x * y).raw == kept(rounded(a * unit * b * unit / unit, f.rounding), f)
    c = data.draw(st.floats(-8, 8))
    quantised = Fraction(min(max(rounded(Fraction(c) / unit, f.rounding), f.lowest), f.highest))
    assert (x * c).raw == (c * x).raw == kept(rounded(a * unit * quantised, f.rounding), f)
    if b:
        assert (x / y).raw == kept(rounded(Fraction(a, b) / unit, f.rounding), f)
    else:
        assert (x / y).raw == (f.highest if a >= 0 else f.lowest)
    if a >= 0 and f.overflow == "saturate":
        exact = math.sqrt(a * 2.0**f.fraction_bits)
        assert (
            abs(x.sqrt().raw - min(exact, f.highest))
            <= (1 if f.rounding == "truncate" else 0.5) + 1e-9 * exact
        )
    assert (x < y) is (a < b)
    columns = Number(f, np.array([a, b, a])), Number(f, np.array([b, b, a]))
    for operation in (
        lambda p, q: p + q,
        lambda p, q: p - q,
        lambda p, q: p * q,
        lambda p, q: p * c,
        lambda p, q: c - q,
        lambda p, q: p / q,
    ):
        singles = [
            operation(Number(f, int(p)), Number(f, int(q))).raw
            for p, q in zip(columns[0].raw, columns[1].raw, strict=True)
        ]
        assert operation(*columns).raw.tolist() == singles


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("overflow", OVERFLOWS)
@pytest.mark.parametrize("bits", [(16, 16), (20, 20), (28, 12), (12, 28), (36, 4), (10, 30)])
def test_products_of_many_wide_numbers_are_exact(bits, rounding, overflow):
    f = Fixed(*bits, rounding, overflow)
    rng = np.random.default_rng(0)
    a, b = rng.integers(f.lowest, f.highest, (2, 400), endpoint=True)
    a[:200] >>= rng.integers(0, f.width, 200)
    b[100:300] >>= rng.integers(0, f.width, 200)
    a[:3], b[:3] = f.lowest, (f.lowest, f.highest, 1)
    expected = [f.multiply(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    assert f.multiply(a, b).tolist() == expected


@pytest.mark.parametrize(
    "f",
    [
        Fixed(16, 16),
        Fixed(4, 8),
        Fixed(6, 20),
        Fixed(8, 24),
        Fixed(12, 28),
        Fixed(3, 3),
        Fixed(8, 30),
    ],
    ids=str,
)
def test_sine_and_cosine_are_within_one_unit_over_the_whole_range(f):
    rng = np.random.default_rng(0)
    raw = np.concatenate(
        [rng.integers(f.lowest, f.highest, 20_000), [f.lowest, f.highest, 0, -1, 1]]
    )
    s, c = Number(f, raw).sincos()
    x = f.value(raw)
    assert np.max(abs(s.value() - np.sin(x))) <= f.resolution
    assert np.max(abs(c.value() - np.cos(x))) <= f.resolution
    one = Number(f, int(raw[5])).sincos()
    assert (one[0].raw, one[1].raw) == (s.raw[5], c.raw[5])


def test_floats_are_rounded_and_what_is_no_number_of_the_format_saturates_or_is_zero():
    f = Fixed(4, 2)
    values = np.array([0.125, -0.125, 0.375, 7.9, 100.0, -np.inf, np.nan, -8.0])
    assert f.quantize(values).tolist() == [1, 0, 2, 31, 31, -32, 0, -32]
    assert [f.quantize(float(x)) for x in values] == f.quantize(values).tolist()
    assert Fixed(4, 2, "even").quantize(values)[:3].tolist() == [0, 0, 2]
    assert Fixed(4, 2, "truncate").quantize(values)[:3].tolist() == [0, -1, 1]
    assert float(f(1.25)) == 1.25


@pytest.mark.parametrize("wrong", [(0, 8), (8, -1), (30, 30), (8.0, 8)])
def test_impossible_formats_are_refused(wrong):
    with pytest.raises(errors.InputError):
        Fixed(*wrong)


def test_unknown_modes_and_mixed_formats_are_refused():
    with pytest.raises(errors.InputError, match="rounding is one of"):
        Fixed(8, 8, rounding="up")
    with pytest.raises(errors.InputError, match="overflow is one of"):
        Fixed(8, 8, overflow="explode")
    with pytest.raises(errors.InputError, match="one format"):
        Fixed(8, 8)(1.0) + Fixed(8, 9)(1.0)


def inputs_of(shapes, robot, n, seed=0):
    rng = np.random.default_rng(seed)
    q = robot.random(batch=(n,), seed=seed).q
    return {
        name: q if name == "q" else rng.uniform(-1, 1, (n, math.prod(shape)))
        for name, shape in shapes.items()
    }


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("function", ["rnea", "crba", "rnea_derivatives"])
def test_every_algorithm_runs_unchanged_and_comes_close_to_floats(seed, function):
    robot = random_tree(4000 + seed, 3 + seed).robot()
    f = Fixed(14, 24)
    kernel = catalog.bind(robot.model, function)
    values = inputs_of(kernel.inputs, robot, 5, seed)
    numbers = {
        k: nest([f(np.ascontiguousarray(c)) for c in values[k].T], shape)
        for k, shape in kernel.inputs.items()
    }
    computed = [
        x.value() if isinstance(x, Number) else x for x in flatten(kernel.evaluate(numbers))
    ]
    exact = list(
        flatten(
            kernel.evaluate(
                {
                    k: nest([np.ascontiguousarray(c) for c in values[k].T], s)
                    for k, s in kernel.inputs.items()
                }
            )
        )
    )
    size = max(np.max(np.abs(x)) for x in exact)
    # some hundred roundings of half a unit, amplified by numbers up to the size of the result
    assert max(
        np.max(np.abs(x - y)) for x, y in zip(computed, exact, strict=True)
    ) < 2000 * f.resolution * max(size, 1.0)
    one = {
        k: nest([f(float(x)) for x in values[k][0]], shape) for k, shape in kernel.inputs.items()
    }
    singles = [float(x) for x in flatten(kernel.evaluate(one))]
    # one state alone: the same bits
    assert singles == [float(np.broadcast_to(x, (5,))[0]) for x in computed]


def circuit_program(robot, function, trig="table"):
    return lower(program_of(robot.model, function), trig=trig, lanes=16, delays=Delays())


@pytest.mark.parametrize("seed", range(8))
def test_errors_and_magnitudes_stay_within_their_bounds(seed):
    robot = random_tree(5000 + seed, 2 + seed, mimic=False).robot()
    program = circuit_program(robot, ("rnea", "rnea_derivatives", "minv", "aba")[seed % 4])
    f = Fixed(18, 14, ("nearest", "truncate")[seed % 2], constant_bits=constant_bits(program, 32))
    values = inputs_of(program.inputs, robot, 200, seed)
    bounds = {k: np.abs(x).max(axis=0) for k, x in values.items()}
    found = analyse(program, f, samples=values, bounds=bounds)
    computed = np.concatenate(
        [x.reshape(200, -1) for x in run(program, f, values).values()], axis=1
    )
    columns = {
        k: nest([np.ascontiguousarray(c) for c in values[k].T], s)
        for k, s in program.inputs.items()
    }
    exact = np.stack(
        [np.broadcast_to(x, (200,)) for x in flatten(program.interpret(columns))], axis=1
    )
    error = np.abs(computed - exact).max(axis=0)
    assert np.all(error <= found.error_seen_bound) and np.all(
        found.error_seen_bound <= found.error_proved * (1 + 1e-9)
    )
    assert all(g.seen <= g.proved * (1 + 1e-12) for g in found.groups)
    assert found.overflow in ("impossible", "not seen")


def test_a_divisor_that_may_be_zero_has_no_proved_bound_and_others_have():
    program = record({"x": (2,)}, {"y": (1,)}, lambda v: ((v["x"][0] / (v["x"][1] + 3.0),),))
    final = lower(program, trig="inputs", lanes=1, delays=Delays())
    f = Fixed(12, 12)
    known = analyse(final, f, bounds={"x": [1.0, 2.0]})
    assert known.overflow == "impossible"
    (divided,) = [g for g in known.groups if g.name == "reciprocals"]
    assert 1.0 <= divided.proved < 1.01
    x = np.random.default_rng(0).uniform((-1, -2), (1, 2), (500, 2))
    error = abs(run(final, f, {"x": x})["y"][:, 0] - x[:, 0] / (x[:, 1] + 3.0)).max()
    assert 0 < error <= known.error_proved[0]
    unknown = analyse(final, f, samples={"x": x}, bounds={"x": [1.0, 3.0]})
    assert unknown.overflow == "not seen" and unknown.error_proved[0] == math.inf
    with pytest.raises(errors.InputError, match="no bounds"):
        unknown.proposed(24, proved=True)


def test_overflow_is_proved_reported_or_left_open():
    robot = rg.load("iiwa14")
    program = circuit_program(robot, "rnea", "inputs")
    n = 300
    values = inputs_of({"q": (7,), "v": (7,), "a": (7,)}, robot, n)
    values = {
        "sin": np.sin(values["q"]),
        "cos": np.cos(values["q"]),
        "v": 10 * values["v"],
        "a": 50 * values["a"],
    }
    bounds = {"sin": 1.0, "cos": 1.0, "v": 10.0, "a": 50.0}
    assert analyse(program, Fixed(20, 12), samples=values, bounds=bounds).overflow == "impossible"
    assert analyse(program, Fixed(14, 18), samples=values, bounds=bounds).overflow == "not seen"
    assert analyse(program, Fixed(8, 24), samples=values, bounds=bounds).overflow == "seen"
    found = analyse(program, Fixed(16, 16), samples=values, bounds=bounds)
    safe, likely = found.proposed(32, proved=True), found.proposed(32)
    assert safe.integer_bits > likely.integer_bits
    assert analyse(program, safe, bounds=bounds).overflow == "impossible"
    assert analyse(program, Fixed(likely.integer_bits - 2, 16), samples=values).overflow == "seen"
    assert "output tau" in str(found)
    with pytest.raises(errors.InputError, match="too few"):
        found.proposed(10)
    # what is proved not to overflow gives the same bits whether it would wrap or saturate
    raw = {k: safe.quantize(x) for k, x in values.items()}
    wrapping = Fixed(safe.integer_bits, safe.fraction_bits, overflow="wrap")
    assert np.array_equal(run_raw(program, safe, raw), run_raw(program, wrapping, raw))


def test_bits_before_the_point():
    assert [integer_bits(x) for x in (0.4, 0.99, 1.0, 1.5, 2.0, 31.9, 32.0)] == [
        1,
        1,
        2,
        2,
        3,
        6,
        7,
    ]


def test_inputs_of_a_wrong_shape_are_refused():
    program = circuit_program(rg.load("iiwa14"), "rnea")
    with pytest.raises(errors.InputError, match="missing"):
        run(program, Fixed(16, 16), {"q": np.zeros((2, 7))})
    with pytest.raises(errors.InputError, match=r"\(states, 7\)"):
        run(
            program,
            Fixed(16, 16),
            {"q": np.zeros((2, 6)), "v": np.zeros((2, 7)), "a": np.zeros((2, 7))},
        )
