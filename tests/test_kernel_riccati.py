"""The backward pass as a kernel: what the recursion written out in NumPy gives, on every target,
and factors of matrices of any size.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from test_kernel_code import CLibrary
from test_kernel_rounds import on_opencl
from test_kernels import run
from test_riccati import FEATURES, FORMS, Case
from test_target_c import needs_compiler

from rigidgrad.codegen import write
from rigidgrad.errors import InputError
from rigidgrad.kernels import matrices
from rigidgrad.kernels.interpret import interpret
from rigidgrad.kernels.language import Kernel
from rigidgrad.kernels.riccati import Sizes, backward_pass
from rigidgrad.kernels.structure import steps as statements
from rigidgrad.program.recorder import record
from rigidgrad.runtime import job
from rigidgrad.runtime.arrays import aligned_zeros
from rigidgrad.runtime.code import Code
from rigidgrad.runtime.riccati import bind_side_by_side
from rigidgrad.targets import c
from rigidgrad.targets.riccati_layout import Layout

STEPS, RHOS = 5, (0.0, 0.4, 0.0, 1e-3)


class Knots(Case):
    """A linear-quadratic problem with a time step of each knot's own; of its controls, about a
    third are at a bound each.
    """

    def __init__(self, sizes: Sizes, steps: int, seed: int = 0):
        self.sizes, self.h = sizes, 0.01 * (1.0 + np.arange(steps) % 3)
        features = {name: getattr(sizes, name) for name in ("diagonal", "bounded", "gaps")}
        super().__init__(
            Layout(sizes.n, sizes.m, sizes.form, "float64", 1, **features), steps, seed
        )
        side = np.random.default_rng(seed).integers(-1, 2, self.u.shape)
        self.u = np.where(side == 0, self.u, side * self.bound)

    def full(self, part):
        half, n = self.sizes.rows, self.sizes.n
        if self.sizes.form == "dense":
            return part
        h, eye = self.h[:, None, None], np.eye(half, n + self.sizes.m)
        if self.sizes.form == "implicit":
            return np.concatenate([eye + h * part, part], axis=1)
        return np.concatenate([eye + h * np.eye(half, n + self.sizes.m, half), part], axis=1)

    def controls(self, R, g, k):
        """The minimum of ½ κᵀRκ + gᵀκ within the bounds that controls are at, by trying every set
        of active ones.
        """
        m, u = len(g), self.u[k]
        if not self.sizes.bounded:
            return -np.linalg.solve(R, g), np.ones(m, bool)
        low, high = np.where(u <= -self.bound, 0.0, -np.inf), np.where(u >= self.bound, 0.0, np.inf)
        for held in itertools.product(
            *(
                (True, False) if np.isfinite([a, b]).any() else (False,)
                for a, b in zip(low, high, strict=True)
            )
        ):
            free, x = ~np.array(held), np.zeros(m)
            if free.any():
                x[free] = np.linalg.solve(R[np.ix_(free, free)], -g[free])
            slope = g + R @ x
            inwards = np.where(np.isfinite(low), slope >= -1e-12, slope <= 1e-12)
            if (x <= high).all() and (x >= low).all() and inwards[~free].all():
                return x, free
        raise AssertionError("a convex problem has a minimum")

    def inputs(self, rho: float) -> dict[str, np.ndarray]:
        arrays = {
            "F": self.part,
            "l": self.l,
            "L": np.diagonal(self.L, axis1=1, axis2=2) if self.sizes.diagonal else self.L,
        }
        arrays |= {
            "h": self.h,
            "d": self.defects,
            "u": self.u,
            "lower": np.full(self.u.shape, -self.bound),
            "upper": np.full(self.u.shape, self.bound),
        }
        arrays |= {
            "rho": np.array([rho]),
            "end": np.vstack([self.V, self.v]),
            "held": np.zeros(self.u.shape),
        }
        return {name: np.ravel(a) for name, a in arrays.items()}


def together(cases, rhos, names):
    each = [case.inputs(rho) for case, rho in zip(cases, rhos, strict=True)]
    return {name: np.stack([a[name] for a in each]) for name in names}


def check(found: dict[str, np.ndarray], cases, rhos, tolerance):
    for i, (case, rho) in enumerate(zip(cases, rhos, strict=True)):
        n, m = case.sizes.n, case.sizes.m
        K, kappa, V, v, slope, curve = case.expected(rho)
        gains, start = found["gains"][i].reshape(-1, m, n + 1), found["start"][i].reshape(n + 1, n)
        pairs = [
            (gains[..., :n], K),
            (gains[..., n], kappa),
            (start[:n], V),
            (start[n], v),
            (found["results"][i], [slope, curve, 1.0]),
        ]
        for x, y in pairs:
            np.testing.assert_allclose(
                x.reshape(np.shape(y)), y, rtol=0, atol=tolerance * max(1.0, np.abs(y).max())
            )
        assert found["failed"][i] == 0.0


CASES = [
    pytest.param(Sizes(n, m, form, **f), id=f"{form}-{n}-{m}-{'+'.join(f) or 'plain'}")
    for form in FORMS
    for n, m in ((2, 1), (6, 3))
    for f in FEATURES
]
LARGE = [
    Sizes(14, 7, "implicit", diagonal=True),
    Sizes(10, 14, "dense"),
    Sizes(16, 13, "explicit", bounded=False, gaps=True),
]


@pytest.mark.parametrize("sizes", [*CASES, *LARGE], ids=str)
def test_the_interpreter_gives_what_numpy_gives(sizes):
    cases = [Knots(sizes, STEPS, seed) for seed in range(4)]
    kernel = backward_pass(sizes, STEPS)
    # sums of a few dozen products, five knots in a row
    check(interpret(kernel, together(cases, RHOS, kernel.inputs)), cases, RHOS, 1e-13)


def test_some_controls_are_held_and_others_let_go():
    sizes = Sizes(6, 3, bounded=True)
    case = Knots(sizes, 12)
    touched = np.abs(case.u) == case.bound
    K = case.expected()[0]
    held = touched & (K == 0).all(axis=2)
    assert held.any() and (touched & ~held).any() and (~touched).any()
    kernel = backward_pass(sizes, 12)
    holds = interpret(kernel, together([case], [0.0], kernel.inputs))["holds"].reshape(12, 3)
    assert np.array_equal(holds, np.where(held, np.sign(case.u), 0.0))
    # and with the right guess at first it ends with the same
    again = together([case], [0.0], kernel.inputs) | {"held": holds.reshape(1, -1)}
    assert np.array_equal(interpret(kernel, again)["holds"].reshape(12, 3), holds)


FEW = [
    Sizes(6, 3, "implicit", bounded=True, gaps=True),
    Sizes(4, 2, "explicit", diagonal=True),
    Sizes(5, 13),
]


@needs_compiler
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("sizes", FEW, ids=str)
def test_lanes_and_c_have_the_same_bits(sizes, dtype, tmp_path):
    kernel = backward_pass(sizes, STEPS)
    cases = [Knots(sizes, STEPS, seed) for seed in range(11)]
    rhos = np.resize(RHOS, 11)
    inputs = together(cases, rhos, kernel.inputs)
    found = {
        width: run(kernel, inputs, f"riccati {sizes}", dtype=dtype, width=width) for width in (1, 8)
    }
    check(
        dict(zip(kernel.outputs, found[8], strict=True)),
        cases,
        rhos,
        1e-12 if dtype == "float64" else 2e-4,
    )
    for x, y in zip(*found.values(), strict=True):
        assert np.array_equal(x, y)
    write(tmp_path, c.render({"backward": kernel}, "pass"))
    library = CLibrary(tmp_path, "pass", {"backward": kernel})
    given = [inputs[name].astype(dtype) for name in kernel.inputs]
    for batch in (False, True):
        for x, y in zip(
            library.call("backward", given, np.dtype(dtype).type, batch), found[8], strict=True
        ):
            assert np.array_equal(x, y.reshape(x.shape))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_opencl(dtype):
    sizes = FEW[0]
    kernel = backward_pass(sizes, STEPS)
    cases = [Knots(sizes, STEPS, seed) for seed in range(4)]
    inputs = together(cases, RHOS, kernel.inputs)
    found = on_opencl(kernel, [inputs[name].astype(dtype) for name in kernel.inputs], dtype)
    check(
        dict(zip(kernel.outputs, found, strict=True)),
        cases,
        RHOS,
        1e-12 if dtype == "float64" else 2e-4,
    )


@pytest.mark.parametrize("bad", [-50.0, np.nan])
def test_it_ends_where_the_hessian_of_the_controls_is_not_positive_definite(bad):
    sizes = Sizes(4, 2)
    kernel = backward_pass(sizes, STEPS)
    cases = [Knots(sizes, STEPS, seed) for seed in range(3)]
    alone = run(kernel, together(cases[:1], RHOS[:1], kernel.inputs), "riccati fails", width=4)
    cases[1].L[2, 5, 5] = bad
    inputs = together(cases, RHOS[:3], kernel.inputs)
    for found in (
        interpret(kernel, inputs),
        dict(zip(kernel.outputs, run(kernel, inputs, "riccati fails", width=4), strict=True)),
    ):
        assert found["failed"].ravel().tolist() == [0.0, 3.0, 0.0]
        assert found["results"].reshape(3, 3)[:, 2].tolist() == [1.0, 0.0, 1.0]
    for x, y in zip(alone, found.values(), strict=True):  # neighbours do not feel it
        assert np.array_equal(x[0], y[0])
    # all have failed: no knot before is looked at
    first = [next(iter(interpret(kernel, {name: x[1:2] for name, x in inputs.items()}).values()))]
    assert not first[0].reshape(STEPS, -1)[:2].any()


# --- a problem in each lane, knot by knot ---------------------------------------------------------


@pytest.mark.parametrize(("dtype", "lanes"), [("float64", 2), ("float64", 8), ("float32", 16)])
@pytest.mark.parametrize("sizes", [*FEW, Sizes(14, 7, "implicit", diagonal=True)], ids=str)
def test_problems_side_by_side(sizes, dtype, lanes):
    cases, rhos = [Knots(sizes, STEPS, seed) for seed in range(lanes)], np.resize(RHOS, lanes)
    kernel = backward_pass(sizes, STEPS)
    inputs = together(cases, rhos, kernel.inputs)
    expected = dict(
        zip(kernel.outputs, run(kernel, inputs, f"riccati {sizes}", dtype=dtype), strict=True)
    )
    arrays = {}
    for name, shape in {
        **sizes.of_knot(),
        "gains": (sizes.m, sizes.n + 1),
        "held": (sizes.m,),
    }.items():
        own = dtype if name in ("F", "l", "L", "d") else "float64"
        arrays[name] = aligned_zeros((1, STEPS, math.prod(shape), lanes), own)
        if name in inputs:
            arrays[name][0] = inputs[name].reshape(lanes, STEPS, -1).transpose(1, 2, 0)
    arrays |= {
        "V": aligned_zeros((1, sizes.n + 1, sizes.n, lanes), dtype),
        "rho": aligned_zeros((1, lanes)),
        "results": aligned_zeros((1, 3, lanes)),
    }
    arrays["V"][0] = inputs["end"].reshape(lanes, sizes.n + 1, sizes.n).transpose(1, 2, 0)
    arrays["rho"][0], arrays["results"][0, 2] = rhos, 1.0
    bind_side_by_side(sizes, arrays, dtype).run()
    found = {"gains": arrays["gains"], "results": arrays["results"], "start": arrays["V"]}
    for name, x in found.items():
        x, y = (
            np.moveaxis(x, -1, 0).reshape(lanes, -1),
            np.asarray(expected[name]).reshape(lanes, -1),
        )
        # the same operations; but for float32, whose sums over knots are kept in float64
        assert (
            np.array_equal(x, y)
            if dtype == "float64"
            else np.allclose(x, y, rtol=1e-5, atol=1e-6 * np.abs(y).max())
        ), name


@pytest.mark.parametrize(
    "sizes", [Sizes(8, 3, "implicit", bounded=True), Sizes(8, 3, "implicit")], ids=str
)
def test_a_problem_does_not_feel_its_neighbours(sizes):
    kernel = backward_pass(sizes, STEPS)
    cases = [Knots(sizes, STEPS, seed) for seed in range(8)]
    cases[1].L[3, 9, 9] = -50.0  # fails
    quiet = run(
        kernel, together([cases[0]] * 8, [0.0] * 8, kernel.inputs), f"neighbours {sizes}", width=8
    )
    found = run(
        kernel,
        together(cases, [0.0, *(0.1 * k for k in range(1, 8))], kernel.inputs),
        f"neighbours {sizes}",
        width=8,
    )
    assert found[list(kernel.outputs).index("failed")].ravel().tolist() == [0.0, 4.0] + [0.0] * 6
    for alone, among in zip(quiet, found, strict=True):
        assert np.array_equal(alone[0], among[0])


def test_buffers_of_kernels_are_checked():
    k = Kernel()
    x, y = k.input("x", 2), k.carried("y", 2)
    k.product(y.matrix(1, 2), x.matrix(1, 1), x.matrix(1, 2), accumulate=True)
    sweep = Code(job.Job("checked", "test", "", lambda: k, width=2, knots=job.Knots()))
    with pytest.raises(InputError, match="aligned"):
        sweep.bind(
            {"x": np.zeros((1, 3, 5, 2))[:, :, 1:3].view()},
            {"y": np.zeros(200)[1:].view()[:12].reshape(1, 3, 2, 2)},
        )


# --- factors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "columns"), [(1, 1), (3, 7), (12, 2), (13, 5), (30, 4)])
def test_factors_solve(n, columns):
    k = Kernel()
    A, B = k.input("A", n, n), k.input("B", n, columns)
    X, fine, factor = k.output("X", n, columns), k.output("fine", 1), k.scratch("factor", n, n)
    k.call(record({}, {"y": ()}, lambda v: (1.0,)), {}, {"y": fine.at(0, 1)})
    matrices.factorize(k, A.matrix(n, n), factor.matrix(n, n), fine.at(0, 1))
    matrices.solve(k, factor.matrix(n, n), B.matrix(n, columns), X.matrix(n, columns))
    rng = np.random.default_rng(n)
    a, b = rng.normal(size=(6, n, n)), rng.normal(size=(6, n, columns))
    a = a @ np.swapaxes(a, 1, 2) + n * np.eye(n)
    a[3, n // 2, n // 2] = -1.0
    known = np.delete(-np.linalg.solve(a, b), 3, axis=0)
    # what is above the diagonal is not read
    inputs = {"A": np.tril(a).reshape(6, -1), "B": b.reshape(6, -1)}
    for found in (
        list(interpret(k, inputs).values()),
        run(k, inputs, f"factor {n} {columns}", width=4),
    ):
        assert found[1].ravel().tolist() == [1.0, 1.0, 1.0, 0.0, 1.0, 1.0]
        np.testing.assert_allclose(
            np.delete(found[0].reshape(6, n, columns), 3, axis=0),
            known,
            atol=1e-13 * np.abs(known).max(),
        )
    largest = max(
        (step.program for step, _ in statements(k.body) if hasattr(step, "program")),
        key=lambda p: len(p.nodes),
    )
    assert len(largest.nodes) < 700  # of large matrices, too
