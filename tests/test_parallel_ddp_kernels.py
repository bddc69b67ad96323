"""Knots of parallel DDP as kernels: the motion that the backward pass leaves closed, second
derivatives, singular pivots, and the consensus sweep.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_kernel_riccati import Knots

from rigidgrad.kernels import parallel_ddp
from rigidgrad.kernels.interpret import interpret
from rigidgrad.kernels.riccati import Sizes
from rigidgrad.program.recorder import record

N, M, STEPS = 5, 3, 4


def sweep(case, kernel, rho=0.0, **own):
    """Results of each knot, from the last to the first; what is carried goes on."""
    every = case.inputs(rho) | {"F": case.F}
    carried = {"V": every.pop("end"), "results": np.array([0.0, 0.0, 1.0])}
    every = {name: x.reshape(STEPS, -1) for name, x in every.items() if name != "rho"}
    found = []
    for k in reversed(range(STEPS)):
        at = {name: x[k] for name, x in every.items() if name in kernel.arrays}
        at |= carried | {"rho": np.array([rho]), "singular": np.array([1e-13])} | own
        at = {name: x[None] for name, x in at.items() if name in kernel.arrays}
        found.append({name: x[0] for name, x in interpret(kernel, at).items()})
        carried = {name: found[-1][name] for name in carried}
    return found[::-1]


@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(N, M, gaps=True),
        Sizes(N, M, bounded=True, gaps=True),
        *(Sizes(6, M, form, bounded=True, gaps=True) for form in ("explicit", "implicit")),
    ],
    ids=str,
)
def test_the_motion_with_the_gains_is_left(sizes):
    case, N = Knots(sizes, STEPS), sizes.n
    K, kappa, V, v, _, _ = case.expected(0.3)
    found = sweep(case, parallel_ddp.backward(sizes), 0.3)
    np.testing.assert_allclose(found[0]["V"].reshape(N + 1, N), np.vstack([V, v]), rtol=1e-9)
    for k, one in enumerate(found):
        gains, closed = one["gains"].reshape(M, N + 1), one["closed"].reshape(N, N + 1)
        np.testing.assert_allclose(gains, np.column_stack([K[k], kappa[k]]), rtol=1e-9, atol=1e-12)
        A, B = case.F[k][:, :N], case.F[k][:, N:]
        expected = np.column_stack([A + B @ K[k], case.defects[k] + B @ kappa[k]])
        np.testing.assert_allclose(closed, expected, rtol=1e-9, atol=1e-12)


def test_second_derivatives_are_added_where_they_are_wanted():
    """Weighted by the gradient of the cost-to-go of the next knot, gaps included."""
    sizes, weight = Sizes(N, M, gaps=True), np.linspace(-1.0, 1.0, N)
    z, case = N + M, Knots(sizes, STEPS)
    curvature = record(
        {"x": (2,), "u": (M,), "h": (), "v": (N,), "p": (1,)},
        {"C": (z, z)},
        lambda a: (
            tuple(
                tuple(
                    a["p"][0] * sum(w * v for w, v in zip(weight, a["v"], strict=True))
                    if i == j
                    else 0.0
                    for j in range(z)
                )
                for i in range(z)
            ),
        ),
    )
    kernel, none = parallel_ddp.backward(sizes, curvature), np.zeros(1)
    own = {"x": np.zeros(2), "h": none, "p": np.full(1, 1e-3)}
    last = STEPS - 1
    end = case.inputs(0.0)["end"].reshape(N + 1, N)
    v = end[N] + end[:N] @ case.defects[last]
    for newton in (0.0, 1.0):
        found = sweep(case, kernel, u=np.zeros(M), newton=np.full(1, newton), **own)[last]
        expected = case.L[last] + newton * 1e-3 * (weight @ v) * np.eye(z)
        np.testing.assert_allclose(found["curved"].reshape(z, z), expected, rtol=1e-12)
        case.L[last] = expected
        plain = sweep(case, parallel_ddp.backward(sizes))[last]
        np.testing.assert_allclose(found["gains"], plain["gains"], rtol=1e-9)


@pytest.mark.parametrize("bounded", [False, True])
def test_a_pivot_that_is_rounding_counts_as_zero(bounded):
    sizes = Sizes(N, M, bounded=bounded, gaps=True)
    case = Knots(sizes, STEPS)
    case.F[:, :, -1] = case.F[:, :, -2]  # two controls do the same, and cost nothing
    case.L[:] = np.eye(N + M)
    case.L[:, N:, N:] = 0.0
    case.u[:] = 0.0
    case.L[:, N, N] = 1.0
    assert sweep(case, parallel_ddp.backward(sizes))[0]["results"][2] == 0.0
    case.L[:, N:, N:] = np.eye(M)
    assert sweep(case, parallel_ddp.backward(sizes))[0]["results"][2] == 1.0


def test_the_consensus_sweep_goes_along_the_closed_motion():
    rng = np.random.default_rng(0)
    gains, closed, dx = rng.normal(size=(M, N + 1)), rng.normal(size=(N, N + 1)), rng.normal(size=N)
    one = np.append(dx, 1.0)
    inputs = {"gains": gains.ravel(), "closed": closed.ravel(), "y": one}
    found = interpret(parallel_ddp.consensus(N, M), {k: x[None] for k, x in inputs.items()})
    np.testing.assert_allclose(found["step"][0], np.append(dx, gains @ one), rtol=1e-13)
    np.testing.assert_allclose(found["y"][0], np.append(closed @ one, 1.0), rtol=1e-13)
