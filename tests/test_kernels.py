"""Kernels: loops, choices and products of matrices mean the same to the interpreter and to lanes,
whatever the width, and gradients made of them are those of others.
"""

from __future__ import annotations

import numpy as np
import pytest
from random_trees import random_tree

import rigidgrad as rg
from rigidgrad.algorithms.sparsity import of_inverse, supports
from rigidgrad.errors import InputError
from rigidgrad.kernels.blocks import segments
from rigidgrad.kernels.interpret import interpret
from rigidgrad.kernels.language import Kernel, Table
from rigidgrad.kernels.structure import counts, pattern
from rigidgrad.program.recorder import record
from rigidgrad.robot import Robot
from rigidgrad.runtime import code, formulation
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.job import Job
from rigidgrad.runtime.shared import Shared

# relative to the largest number: sums of up to 20 products
TOLERANCE = {"float64": 1e-13, "float32": 1e-5}


def run(
    kernel: Kernel,
    inputs: dict[str, np.ndarray],
    name: str,
    *,
    dtype: str = "float64",
    width: int = 0,
    packed: bool = False,
) -> list[np.ndarray]:
    """By lanes."""
    job = Job(f"test_{name}", "test", name, lambda: kernel, packed=packed, width=width)
    found = Compiled(job, dtype=dtype, threads=1)(
        *(inputs[a].astype(dtype).reshape(-1, *shape) for a, shape in kernel.inputs.items())
    )
    return [found] if isinstance(found, np.ndarray) else list(found)


def everything(rows: int, columns: int, terms: int) -> Kernel:
    """A kernel with every statement of the language."""
    k = Kernel()
    A, B = k.input("A", rows, terms), k.input("B", terms, columns)
    S = k.scratch("S", rows, terms)
    factors = k.constant("factors", [0.5 + r for r in range(rows)])
    sort, order = (
        Table("sort", tuple(r % 3 for r in range(rows))),
        Table("order", tuple(reversed(range(rows)))),
    )
    programs = [
        record(
            {"x": (terms,), "f": (1,)},
            {"y": (terms,)},
            lambda v, s=s: (tuple(x * v["f"][0] + s for x in v["x"]),),
        )
        for s in (0.0, 1.0)
    ]
    with k.along(rows, reverse=True) as i, k.choose(sort[i]) as choice:
        for program in programs:
            with choice.case():
                k.call(
                    program,
                    {"x": A.at(terms * order[i], terms), "f": factors.at(i, 1)},
                    {"y": S.at(terms * order[i], terms)},
                )
        with choice.case():
            nothing = record({"x": (terms,)}, {"y": (terms,)}, lambda v: ((0.0, *v["x"][1:]),))
            k.call(
                nothing, {"x": A.at(terms * order[i], terms)}, {"y": S.at(terms * order[i], terms)}
            )
    left, right = S.matrix(rows, terms), B.matrix(terms, columns)
    plain, scaled, square = (
        k.output("plain", rows, columns),
        k.output("scaled", rows, columns),
        k.output("square", rows, rows),
    )
    k.product(plain.matrix(rows, columns), left, right)
    k.product(scaled.matrix(rows, columns), left, right, 2.5)
    k.product(scaled.matrix(rows, columns), left, right, -1.0, accumulate=True)
    k.product(scaled.matrix(rows, columns), left, right, 0.25, accumulate=True)
    k.product(square.matrix(rows, rows), left, left.T, -1.0, symmetric=True)
    k.product(square.matrix(rows, rows), left, left.T, accumulate=True, symmetric=True)
    k.product(square.matrix(rows, rows), left, left.T, symmetric=True)
    turned = k.output("turned", columns, rows)
    with k.each(columns) as j:
        k.product(turned.matrix(1, rows, j * rows), B.at(j, terms, columns), left.T)
    target = k.output("sum", rows, columns).matrix(rows, columns)  # which lanes do at once
    k.product(target, left, right, -1.0)
    k.product(target, A.matrix(rows, terms), right, accumulate=True)
    k.product(target, A.matrix(rows, 1, 0, terms), B.at(0, columns), -1.0, accumulate=True)
    return k


@pytest.mark.parametrize(
    ("rows", "columns", "terms"), [(1, 1, 1), (2, 9, 3), (5, 4, 14), (7, 13, 2), (13, 7, 20)]
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_lanes_give_what_the_interpreter_gives(rows, columns, terms, dtype, width):
    k = everything(rows, columns, terms)
    rng = np.random.default_rng(rows)
    inputs = {a.name: rng.normal(size=(11, a.size)).astype(dtype) for a in k.of("input")}
    expected = interpret(k, {name: x.astype(float) for name, x in inputs.items()})
    found = run(k, inputs, f"everything_{rows}_{columns}_{terms}", dtype=dtype, width=width)
    for (name, x), y in zip(expected.items(), found, strict=True):
        assert np.abs(x - y.reshape(x.shape)).max() <= TOLERANCE[dtype] * max(
            1.0, np.abs(x).max()
        ), name
    square = found[2]
    assert np.array_equal(square, np.swapaxes(square, 1, 2))


@pytest.mark.parametrize("width", [1, 4, 8])
def test_bits_do_not_depend_on_the_width(width):
    k = everything(7, 13, 5)
    rng = np.random.default_rng(0)
    inputs = {a.name: rng.normal(size=(19, a.size)) for a in k.of("input")}
    for x, y in zip(
        run(k, inputs, "bits", width=2), run(k, inputs, "bits", width=width), strict=True
    ):
        assert np.array_equal(x, y)


def test_the_interpreter_multiplies_as_numpy_does():
    k = everything(4, 5, 3)
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(6, 4, 3)), rng.normal(size=(6, 3, 5))
    found = interpret(k, {"A": A.reshape(6, -1), "B": B.reshape(6, -1)})
    S = np.empty_like(A)
    for i in range(4):
        row = 3 - i
        S[:, row] = (
            A[:, row] * (0.5 + i) + (i % 3) if i % 3 < 2 else np.c_[np.zeros(6), A[:, row, 1:]]
        )
    np.testing.assert_allclose(found["plain"].reshape(6, 4, 5), S @ B, atol=1e-14)
    np.testing.assert_allclose(found["scaled"].reshape(6, 4, 5), 1.75 * S @ B, atol=1e-13)
    np.testing.assert_allclose(
        found["square"].reshape(6, 4, 4), S @ np.swapaxes(S, 1, 2), atol=1e-14
    )
    np.testing.assert_allclose(
        found["turned"].reshape(6, 5, 4), np.swapaxes(S @ B, 1, 2), atol=1e-14
    )
    np.testing.assert_allclose(
        found["sum"].reshape(6, 4, 5), (A - S) @ B - A[:, :, :1] @ B[:, :1], atol=1e-14
    )


def test_structural_zeros_and_counts():
    k = Kernel()
    x, y, z = k.input("x", 2, 2), k.scratch("y", 2, 2), k.output("z", 2, 2)
    k.call(
        record(
            {"x": (2, 2)}, {"y": (2, 2)}, lambda v: (((v["x"][0][0], 0.0), (0.0, v["x"][1][1])),)
        ),
        {"x": x.matrix(2, 2)},
        {"y": y.matrix(2, 2)},
    )
    k.product(z.matrix(2, 2), y.matrix(2, 2), y.matrix(2, 2))
    assert pattern(k) == {"z": [True, False, False, True]}
    assert counts(k)["mul"] == 4
    assert counts(k)["fma"] == 4
    packed = run(k, {"x": np.array([[2.0, 9.0, 9.0, 3.0]] * 5)}, "packed", packed=True)[0]
    assert packed.tolist() == [[4.0, 9.0]] * 5
    assert run(k, {"x": np.array([[2.0, 9.0, 9.0, 3.0]])}, "packed", packed=True)[0].tolist() == [
        [4.0, 9.0]
    ]


def test_what_does_not_fit_is_refused():
    k = Kernel()
    a, b = k.input("a", 2, 3), k.output("b", 2, 2)
    with pytest.raises(ValueError, match="is not"):
        k.product(b.matrix(2, 2), a.matrix(2, 3), a.matrix(2, 3))
    with pytest.raises(ValueError, match="two arrays"):
        k.input("a", 1)
    with k.along(3) as i:
        k.product(b.matrix(2, 1, 2 * i), a.matrix(2, 3), a.matrix(3, 1))
    with pytest.raises(IndexError, match="outside"):
        interpret(k, {"a": np.zeros((1, 6))})


# --- gradients ------------------------------------------------------------------------------------


@pytest.fixture
def apart(monkeypatch):
    """No kernel of another test is found, and none is left behind: sizes from which on code is
    another are no part of its key.
    """
    monkeypatch.setenv("RIGIDGRAD_CACHE", "off")
    monkeypatch.setattr(code, "_codes", Shared())


@pytest.fixture
def tiled(monkeypatch, apart):
    """Robots of any size take the way of large ones."""
    monkeypatch.setattr(formulation, "_TILED_FROM", 0)


def relative(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.abs(x - y).max() / max(1.0, np.abs(y).max()))


@pytest.mark.parametrize("floating", [False, True])
@pytest.mark.parametrize("mimic", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_tiled_gradients_are_those_of_the_textbook(tiled, floating, mimic, seed):
    model = random_tree(seed, 9, floating, mimic).builder().build(floating_base=floating).model
    robot, textbook = Robot(model), Robot(model, "numpy")
    q, v, tau = robot.random(batch=(9,), seed=seed)
    link = robot.frames[-1]
    external = {link: np.random.default_rng(seed).normal(size=(9, 6))}
    expected = textbook.aba_derivatives(q, v, tau, external=external)
    found = robot.aba_derivatives(q, v, tau, external=external)
    without = robot.aba_derivatives(q, v, tau, external=external, dtau=False)
    factors = robot.aba_derivatives(q, v, tau, external=external, factored=True)
    for name in ("dq", "dv", "dtau"):
        # random inertias: conditions of up to 1e4
        assert relative(getattr(found, name), getattr(expected, name)) < 1e-10, name
    assert np.array_equal(without.dq, found.dq)
    assert np.array_equal(without.dv, found.dv)
    assert without.dtau is None
    assert relative(factors.W @ factors.Z_dq, expected.dq) < 1e-10
    assert relative(factors.W @ factors.Z_dv, expected.dv) < 1e-10
    one = [
        robot.aba_derivatives(q[i], v[i], tau[i], external={link: external[link][i]})
        for i in range(9)
    ]
    for k in range(3):
        assert np.array_equal(np.stack([d[k] for d in one]), found[k])


@pytest.mark.parametrize(("seed", "bodies"), [(38, 6), (35, 12), (40, 12)])
def test_mimic_joints_may_couple_limbs(tiled, seed, bodies):
    """Then L⁻¹ has numbers where L has none."""
    model = (
        random_tree(seed, bodies, mimic=True)
        .builder()
        .build(floating_base=random_tree(seed, bodies, mimic=True).floating)
        .model
    )
    assert of_inverse(supports(model)) != supports(model)
    state = Robot(model).random(batch=(2,), seed=seed)
    kernel = formulation.source_of(model, "aba_derivatives")
    assert isinstance(kernel, Kernel)
    found = interpret(kernel, dict(zip(("q", "v", "tau"), state, strict=True)))
    for name, x in zip(
        ("dq", "dv", "dtau"), Robot(model, "numpy").aba_derivatives(*state), strict=True
    ):
        assert relative(found[name].reshape(x.shape), x) < 1e-10, name


def test_tiled_gradients_can_be_packed_streamed_and_in_single_precision(tiled):
    robot = rg.load("hyq", floating_base=True)
    # enough for results to be streamed past the caches
    q, v, tau = robot.random(batch=(3000,), seed=0)
    dense, packed, places = (
        robot.aba_derivatives(q, v, tau),
        robot.aba_derivatives(q, v, tau, packed=True),
        robot.pattern("aba_derivatives"),
    )
    few = robot.aba_derivatives(q[:7], v[:7], tau[:7])
    for x, y, place, z in zip(dense, packed, places, few, strict=True):
        assert np.array_equal(x[:, place[0], place[1]], y)
        assert np.array_equal(x[:7], z)
    single = robot.aba_derivatives(*(x[:9].astype(np.float32) for x in (q, v, tau)))
    for x, y in zip(single, dense, strict=True):
        assert x.dtype == np.float32
        assert relative(x, y[:9]) < 1e-3  # accelerations of light legs


def test_both_ways_of_a_robot_agree_in_what_is_zero(monkeypatch, apart):
    unrolled = rg.load("hyq", floating_base=True).pattern("aba_derivatives")
    monkeypatch.setattr(formulation, "_TILED_FROM", 0)
    monkeypatch.setattr(code, "_codes", Shared())
    tiled = rg.load("hyq", floating_base=True).pattern("aba_derivatives")
    for x, y in zip(unrolled, tiled, strict=True):
        assert {*zip(*x, strict=True)} <= {*zip(*y, strict=True)}


@pytest.mark.parametrize("floating", [False, True])
def test_factors_multiply_to_the_gradient(floating):
    robot = rg.load("hyq", floating_base=floating)
    q, v, tau = robot.random(batch=(5,), seed=3)
    d, f = robot.aba_derivatives(q, v, tau), robot.aba_derivatives(q, v, tau, factored=True)
    assert relative(f.W @ f.Z_dq, d.dq) < 1e-12
    assert relative(f.W @ f.Z_dv, d.dv) < 1e-12
    assert np.array_equal(f.W, np.tril(f.W))
    fast = robot.compile("aba_derivatives", factored=True)
    out = tuple(np.empty_like(x) for x in f)
    fast(q, v, tau, out=out)
    assert all(np.array_equal(x, y) for x, y in zip(out, f, strict=True))
    two = np.empty_like(d.dq), np.empty_like(d.dv)
    robot.aba_derivatives(q, v, tau, dtau=False, out=two)
    assert relative(two[0], d.dq) < 1e-13
    with pytest.raises(InputError, match="aba_derivatives"):
        robot.compile("rnea", dtau=False)


# --- large robots ---------------------------------------------------------------------------------


@pytest.mark.parametrize("floating", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_loops_over_bodies_give_what_straight_line_code_gives(monkeypatch, apart, floating, seed):
    """Every joint type, random axes, offsets, inertias and armature."""
    model = random_tree(seed, 8, floating, False).builder().build(floating_base=floating).model
    textbook = Robot(model, "numpy")
    monkeypatch.setattr(formulation, "_LOOPS_FROM", 0)
    robot = Robot(model)
    q, v, x = robot.random(batch=(9,), seed=seed)
    link = robot.frames[-1]
    external = {link: np.random.default_rng(seed).normal(size=(9, 6))}
    assert formulation.loops_pay(model, "aba_derivatives")
    for name, expected, found in (
        ("M", textbook.crba(q), robot.crba(q)),
        ("minv", textbook.minv(q), robot.minv(q)),
        ("Y", textbook.torque_regressor(q, v, x), robot.torque_regressor(q, v, x)),
        *zip(
            ("dq", "dv", "da"),
            textbook.rnea_derivatives(q, v, x, external=external),
            robot.rnea_derivatives(q, v, x, external=external),
            strict=True,
        ),
        *zip(
            ("a_dq", "a_dv", "a_dtau"),
            textbook.aba_derivatives(q, v, x, external=external),
            robot.aba_derivatives(q, v, x, external=external),
            strict=True,
        ),
    ):
        assert relative(found, expected) < 1e-9, name  # random inertias: conditions of up to 1e5
    factors = robot.aba_derivatives(q, v, x, factored=True)
    assert relative(factors.W @ factors.Z_dv, textbook.aba_derivatives(q, v, x).dv) < 1e-9
    one = robot.aba_derivatives(q[3], v[3], x[3], external={link: external[link][3]})
    assert np.array_equal(one.dq, robot.aba_derivatives(q, v, x, external=external).dq[3])


def chain(joints: int) -> Robot:
    rng = np.random.default_rng(0)
    builder = rg.Builder("chain").link("l0", mass=1.0, com=(0, 0, 0), inertia=0.1 * np.eye(3))
    for i in range(joints):
        builder = builder.link(
            f"l{i + 1}", mass=1.0, com=(0.1, 0.02, 0.0), inertia=np.diag([0.02, 0.03, 0.04])
        )
        turn = tuple(rng.uniform(-1, 1, 3))
        builder = builder.joint(
            f"j{i:03d}",
            "revolute",
            f"l{i}",
            f"l{i + 1}",
            xyz=(0.2, 0, 0.01),
            rpy=turn,
            axis=(0, 0, 1),
        )
    return builder.build()


def test_a_chain_of_a_hundred_joints_is_pinocchios():
    pin = pytest.importorskip("pinocchio")
    robot = chain(100)
    model = pin.buildModelFromXML(robot.to_urdf())
    data = model.createData()
    q, v, x = robot.random(batch=(2,), seed=0)
    gradient, forward, M = (
        robot.rnea_derivatives(q, v, x),
        robot.aba_derivatives(q, v, x),
        robot.crba(q),
    )
    for i in range(2):
        pin.computeRNEADerivatives(model, data, q[i], v[i], x[i])
        assert relative(gradient.dq[i], data.dtau_dq) < 1e-12
        assert relative(gradient.dv[i], data.dtau_dv) < 1e-12
        mass = pin.crba(model, data, q[i])
        mass = np.triu(mass) + np.triu(mass, 1).T
        assert relative(M[i], mass) < 1e-12
        pin.computeABADerivatives(model, data, q[i], v[i], x[i])
        # 100 joints: the condition of M is about 1e6
        assert relative(forward.dq[i], data.ddq_dq) < 1e-9
        assert relative(forward.dv[i], data.ddq_dv) < 1e-9
        assert relative(forward.dtau[i] @ mass, np.eye(100)) < 1e-9


def test_a_regressor_of_170_links_is_pinocchios():
    """In the frames of the links, whatever frames the loops work in; straight-line code of it would
    take 20 minutes to compile.
    """
    pin = pytest.importorskip("pinocchio")
    robot = chain(170)
    model = pin.buildModelFromXML(robot.to_urdf())
    data = model.createData()
    q, v, a = robot.random(batch=(3,), seed=0)
    found, inertias = (
        robot.torque_regressor(q, v, a),
        np.concatenate([i.toDynamicParameters() for i in list(model.inertias)[1:]]),
    )
    for i in range(3):
        assert (
            relative(found[i], pin.computeJointTorqueRegressor(model, data, q[i], v[i], a[i]))
            < 1e-11
        )
        assert relative(found[i] @ inertias, pin.rnea(model, data, q[i], v[i], a[i])) < 1e-11
    one = robot.torque_regressor(q[1], v[1], a[1])
    assert np.array_equal(one, found[1])


def test_code_that_would_take_minutes_to_compile_is_refused_at_once(monkeypatch, apart):
    """Of a chain of 170 joints 400,000 operations are recorded in seconds, and no more."""
    robot = chain(170)
    q, v, a = robot.random(seed=0)
    with pytest.raises(
        InputError,
        match=r"coriolis_matrix: 'chain' is too large for straight-line code .* engine=\"numpy\"",
    ):
        robot.coriolis_matrix(q, v)
    monkeypatch.setattr(formulation, "_MOST_NODES", 300)
    small, foot = rg.load("hyq"), [rg.Contact("lf_lowerleg")]
    q, v, a = small.random(seed=0)
    calls = {
        "rnea": lambda: small.rnea(q, v, a),
        "contact_dynamics_derivatives": lambda: small.contact_dynamics_derivatives(q, v, a, foot),
        "contact_inverse_dynamics": lambda: small.contact_inverse_dynamics(q, v, a, foot),
    }
    for name, call in calls.items():
        with pytest.raises(InputError, match=f"{name}: 'hyq' is too large"):
            call()
    monkeypatch.setattr(formulation, "_TILED_FROM", 0)
    with pytest.raises(InputError, match="aba_derivatives: 'hyq' is too large"):
        small.aba_derivatives(q, v, a)


def test_segments_are_chains():
    chain = tuple(tuple(range(k - 1, -1, -1)) for k in range(20))
    assert [len(s) for s in segments(chain)] == [8, 8, 4]
    fork = ((), (0,), (0,), (2, 0))
    assert segments(fork) == [range(1), range(1, 2), range(2, 4)]
