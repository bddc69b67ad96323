"""The LQ problem's solvers agree with a dense factorisation; preconditioners have the spectra that
theory promises; what fails says so.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from rigidgrad.control.linear import blocks, box, pcg, preconditioners
from rigidgrad.control.linear.lq import LQ
from rigidgrad.control.linear.preconditioners import PRECONDITIONERS, Preconditioner
from rigidgrad.control.linear.reduction import Reduction
from rigidgrad.control.linear.solvers import SOLVERS, Options, kkt_matrix, linear_solver
from rigidgrad.errors import InputError, UnknownNameError

SIZES = [
    (1, 1, 1),
    (1, 3, 2),
    (2, 4, 1),
    (3, 2, 2),
    (4, 3, 0),
    (7, 4, 2),
    (8, 6, 3),
    (15, 5, 3),
    (16, 2, 1),
    (31, 3, 2),
    (32, 3, 4),
]
ITERATIVE = ("pcg", "red_black")
DIRECT = tuple(s for s in SOLVERS if s not in ITERATIVE)


def random_lq(N, n, m, seed=0, cross=True):
    """Convex, of moderate condition: dynamics near the identity, Hessians far from singular."""
    rng = np.random.default_rng(seed + 100 * N + 10 * n + m)
    A = np.eye(n) + 0.3 * rng.normal(size=(N, n, n)) / np.sqrt(n)
    B = rng.normal(size=(N, n, m))
    H = rng.normal(size=(N + 1, n + m, n + m))
    H = H @ H.swapaxes(1, 2) / (n + m) + 0.1 * np.eye(n + m)
    S = H[:N, n:, :n] if cross else np.zeros((N, m, n))
    vectors = rng.normal(size=(N + 1, n)), rng.normal(size=(N, m)), rng.normal(size=(N + 1, n))
    return LQ(A, B, H[:, :n, :n], S, H[:N, n:, n:], *vectors)


def oracle(lq):
    """dx, du, λ by numpy from the optimality conditions, built here entry by entry as sums over the
    horizon.
    """
    N, n, m = lq.sizes
    x, u = np.arange((N + 1) * n).reshape(N + 1, n), (N + 1) * n + np.arange(N * m).reshape(N, m)
    size = (N + 1) * n + N * m
    G, g, C, d = np.zeros((size, size)), np.zeros(size), np.zeros(((N + 1) * n, size)), lq.d.ravel()
    for k in range(N + 1):
        G[np.ix_(x[k], x[k])] = lq.Q[k]
        g[x[k]] = lq.q[k]
        C[np.ix_(x[k], x[k])] = np.eye(n)
        if k < N:
            G[np.ix_(u[k], u[k])], G[np.ix_(u[k], x[k])], G[np.ix_(x[k], u[k])] = (
                lq.R[k],
                lq.S[k],
                lq.S[k].T,
            )
            g[u[k]] = lq.r[k]
            C[np.ix_(x[k + 1], x[k])], C[np.ix_(x[k + 1], u[k])] = -lq.A[k], -lq.B[k]
    z = np.linalg.solve(np.block([[G, -C.T], [C, np.zeros((len(C), len(C)))]]), np.r_[-g, d])
    return z[x], z[u], z[size:].reshape(N + 1, n)


def assert_same(step, expected, tolerance):
    for got, want in zip((step.dx, step.du, step.lam), expected, strict=True):
        np.testing.assert_allclose(
            got, want, rtol=0, atol=tolerance * max(1.0, abs(want).max(initial=0.0))
        )


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", DIRECT)
def test_direct_solvers_equal_a_dense_factorisation(name, sizes):
    for cross in (False, True):
        lq = random_lq(*sizes, cross=cross)
        step = linear_solver(name, *sizes).solve(lq)
        assert step.solved and step.regularization == 0
        assert_same(step, oracle(lq), 1e-9)  # conditions up to 1e5 here


@pytest.mark.parametrize("polynomial", [0, 1, 2, 3])
@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
@pytest.mark.parametrize("name", ITERATIVE)
def test_conjugate_gradients_equal_a_dense_factorisation(name, preconditioner, polynomial):
    for sizes in SIZES:
        lq = random_lq(*sizes)
        options = Options(preconditioner=preconditioner, polynomial=polynomial, tolerance=1e-22)
        step = linear_solver(name, *sizes, options).solve(lq)
        assert step.solved, sizes
        # η is squared: 1e-22 leaves 1e-11 times the root of the condition
        assert_same(step, oracle(lq), 1e-7)


def test_a_solver_is_used_again_without_traces_of_the_last_problem():
    sizes = (9, 4, 2)
    for name in SOLVERS:
        solver = linear_solver(name, *sizes, Options(tolerance=1e-22))
        first = solver.solve(random_lq(*sizes, seed=1))
        kept = first.dx.copy()
        solver.solve(random_lq(*sizes, seed=2, cross=False))
        np.testing.assert_array_equal(first.dx, kept)
        assert_same(solver.solve(random_lq(*sizes, seed=1)), (first.dx, first.du, first.lam), 0)


def test_residuals_are_zero_at_the_solution_only():
    lq = random_lq(6, 3, 2)
    dx, du, lam = oracle(lq)
    assert max(abs(r).max() for r in lq.residuals(dx, du, lam)) < 1e-11
    for changed in ((dx + 1e-3, du, lam), (dx, du + 1e-3, lam), (dx, du, lam + 1e-3)):
        assert max(abs(r).max() for r in lq.residuals(*changed)) > 1e-5


def test_multipliers_are_gradients_of_the_optimal_cost():
    """λ_k = ∂J*/∂d_k: the meaning that fixes their sign."""
    sizes = 5, 3, 2
    lq = random_lq(*sizes)
    step = linear_solver("riccati", *sizes).solve(lq)
    eps = 1e-5
    for k, i in itertools.product(range(6), range(3)):
        values = []
        for sign in (1, -1):
            d = lq.d.copy()
            d[k, i] += sign * eps
            moved = LQ(lq.A, lq.B, lq.Q, lq.S, lq.R, lq.q, lq.r, d)
            s = linear_solver("riccati", *sizes).solve(moved)
            values.append(moved.value(s.dx, s.du))
        # central differences are exact for a quadratic, up to rounding over eps
        assert abs((values[0] - values[1]) / (2 * eps) - step.lam[k, i]) < 1e-7 * max(
            1, abs(step.lam).max()
        )


@pytest.mark.parametrize("name", SOLVERS)
def test_controls_can_be_held(name):
    sizes = 7, 4, 3
    lq = random_lq(*sizes)
    rng = np.random.default_rng(5)
    which, values = rng.random((7, 3)) < 0.4, rng.normal(size=(7, 3))
    step = linear_solver(name, *sizes, Options(tolerance=1e-22)).solve(lq.fixed(which, values))
    du = step.du + np.where(which, values, 0.0)
    # all other conditions of the problem given hold: dynamics, states, and the free controls
    gx, gu, gap = lq.residuals(step.dx, du, step.lam)
    scale = max(1.0, abs(step.lam).max())
    assert abs(gx).max() < 1e-8 * scale and abs(gap).max() < 1e-8 * scale
    assert abs(gu[~which]).max() < 1e-8 * scale and abs(gu[which]).max() > 1e-3
    np.testing.assert_array_equal(du[which], values[which])


# --- bounds on the controls -----------------------------------------------------------------------


def random_bounds(rng, lq, tight):
    """Around zero: some equal, some on one side only, some none."""
    N, _, m = lq.sizes
    kind = rng.integers(0, 8, (N, m))
    lower, upper = -tight * rng.random((N, m)), tight * rng.random((N, m))
    lower[kind == 0], upper[kind == 1] = -np.inf, np.inf
    lower[kind == 2], upper[kind == 2] = -np.inf, np.inf
    upper[kind == 3] = lower[kind == 3]
    return lower, upper


@pytest.mark.parametrize("tight", [0.01, 0.3, 3.0, 100.0])
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (3, 2, 2), (12, 4, 2), (30, 3, 3), (40, 6, 1)], ids=str
)
@pytest.mark.parametrize("name", ["riccati", "cyclic_reduction", "pcg"])
def test_bounded_problems_fulfil_the_conditions_of_a_minimum(name, sizes, tight):
    """Of a convex problem these are sufficient: dynamics, bounds, and a gradient that is zero
    inside and points outward at bounds.
    """
    rng = np.random.default_rng(7)
    lq = random_lq(*sizes)
    lower, upper = random_bounds(rng, lq, tight)
    solver = linear_solver(name, *sizes, Options(tolerance=1e-24))
    step, held = box.solve(lq, lower, upper, np.zeros(lower.shape), solver.solve)
    assert step.solved
    gx, gu, gap = lq.residuals(step.dx, step.du, step.lam)
    scale = max(1.0, abs(step.lam).max())
    assert abs(gx).max() < 1e-7 * scale and abs(gap).max() < 1e-7 * scale
    assert (step.du >= lower - 1e-9).all() and (step.du <= upper + 1e-9).all()
    assert (gu[(step.du > lower + 1e-9)] < 1e-7 * scale).all()
    assert (gu[(step.du < upper - 1e-9)] > -1e-7 * scale).all()
    if tight == 0.3 and sizes[0] > 1:
        assert held.any()
    # the set found is found again with one problem
    again = []
    step2, _ = box.solve(lq, lower, upper, held, lambda q: again.append(1) or solver.solve(q))
    assert len(again) == 1
    np.testing.assert_allclose(step2.du, step.du, rtol=0, atol=1e-7 * scale)


def test_bounds_that_send_active_sets_in_circles_are_met_by_the_interior_point_method():
    """A long oscillation, damped by controls that are cheap and weak."""
    N, n, m = 150, 2, 1
    A = np.tile(np.array([[1.0, 0.05], [-0.5, 1.0]]), (N, 1, 1))
    B = np.tile(np.array([[0.0], [0.05]]), (N, 1, 1))
    Q = np.tile(0.01 * np.eye(n), (N + 1, 1, 1))
    Q[-1] = 1000 * np.eye(n)
    d = np.zeros((N + 1, n))
    d[0] = 0.3, 0.0
    lq = LQ(
        A,
        B,
        Q,
        np.zeros((N, m, n)),
        np.full((N, m, m), 1e-4),
        np.zeros((N + 1, n)),
        np.zeros((N, m)),
        d,
    )
    bound = np.full((N, m), 0.5)
    solver = linear_solver("riccati", N, n, m)
    weighted = []
    step, held = box.solve(
        lq,
        -bound,
        bound,
        np.zeros((N, m)),
        lambda q: weighted.append((q.R > lq.R).all()) or solver.solve(q),
    )
    assert sum(weighted) > 5 and not weighted[0]  # only that method adds to all of R
    assert step.solved and held.any() and not held.all()
    gx, gu, gap = lq.residuals(step.dx, step.du, step.lam)
    scale = abs(step.lam).max()
    assert max(abs(gx).max(), abs(gap).max(), abs(gu[held == 0]).max()) < 1e-6 * scale
    assert (gu * held <= 1e-9 * scale).all()


# --- singular weights -----------------------------------------------------------------------------


def singular_lq(N=12, n=4, m=2, no_state_cost=False):
    """Only the final state and the controls cost something, or one state and one control of each
    knot cost nothing.
    """
    lq = random_lq(N, n, m, cross=False)
    Q, R = lq.Q.copy(), lq.R.copy()
    if no_state_cost:
        Q[:-1] = 0
    else:
        Q[:, 0] = Q[:, :, 0] = 0
        R[:, 0] = R[:, :, 0] = 0
    return LQ(lq.A, lq.B, Q, lq.S, R, lq.q, lq.r, lq.d)


@pytest.mark.parametrize("no_state_cost", [False, True])
@pytest.mark.parametrize("name", SOLVERS)
def test_singular_weights_are_regularised_and_the_change_refined_away(name, no_state_cost):
    lq = singular_lq(no_state_cost=no_state_cost)
    step = linear_solver(name, *lq.sizes, Options(tolerance=1e-22)).solve(lq)
    assert step.solved
    if name not in ("riccati", "kkt"):
        assert step.regularization > 0 and 0 < step.refinements < 20
    assert_same(step, oracle(lq), 1e-6)


def test_a_problem_without_a_minimum_is_reported():
    lq = random_lq(5, 3, 2, cross=False)
    down = LQ(lq.A, lq.B, lq.Q, lq.S, lq.R - 100 * np.eye(2), lq.q, lq.r, lq.d)
    assert linear_solver("riccati", 5, 3, 2).solve(down).status == "indefinite"


@pytest.mark.parametrize("m", [2, 14])  # 14: factored in blocks
def test_a_pivot_that_is_rounding_counts_as_singular(m):
    """The last two controls do nearly the same, as far as costs and dynamics tell."""
    lq = random_lq(3, 2, m, cross=False)
    B, R = lq.B.copy(), np.tile(np.eye(m), (3, 1, 1))
    B[:, :, -1] = B[:, :, -2] = 0.0
    R[:, -1, -2] = R[:, -2, -1] = 1.0
    for apart, status in ((1e-14, "indefinite"), (1e-11, "solved")):
        R[1, -1, -1] = 1.0 + apart
        R[0] = R[2] = np.eye(m)
        near = dataclasses.replace(lq, B=B, R=R)
        assert linear_solver("riccati", 3, 2, m).solve(near).status == status


@pytest.mark.parametrize("sizes", [(7, 4, 2), (4, 3, 0), (5, 3, 14)], ids=str)
def test_riccati_closes_defects_with_the_factors_of_the_problem_before(sizes):
    lq, d = random_lq(*sizes), random_lq(*sizes, seed=9).d
    solver, dense = linear_solver("riccati", *sizes), linear_solver("kkt", *sizes)
    assert solver.solve(lq).solved and dense.solve(lq).solved
    for got, want in zip(solver.close(d), dense.close(d), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-10 * max(1.0, abs(d).max()))
    # and the problem's own vectors again
    solver.substitute(lq, lq.q, lq.r, lq.d)
    assert_same(solver, oracle(lq), 1e-9)


def test_gains_are_the_feedback_of_the_optimal_controls():
    """From another start the optimal first control differs by K_0 times the difference."""
    sizes = 6, 3, 2
    lq, solver = random_lq(*sizes), linear_solver("riccati", *sizes)
    before = solver.solve(lq)
    K, d = solver.gains[0].copy(), lq.d.copy()
    change = np.array([0.3, -0.2, 0.1])
    d[0] += change
    after = solver.solve(dataclasses.replace(lq, d=d))
    np.testing.assert_allclose(after.du[0] - before.du[0], K @ change, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", SOLVERS)
def test_numbers_that_are_none_are_reported(name):
    lq = random_lq(5, 3, 2)
    for field in ("A", "B", "Q", "R", "q", "r", "d"):
        broken = getattr(lq, field).copy()
        broken.flat[0] = np.nan
        arrays = {f: getattr(lq, f) for f in ("A", "B", "Q", "S", "R", "q", "r", "d")} | {
            field: broken
        }
        assert not linear_solver(name, 5, 3, 2).solve(LQ(**arrays)).solved, field


# --- Schur complement and reduction ---------------------------------------------------------------


def schur(sizes, seed=0, cross=True):
    """The blocks D, E and the right-hand side of a problem's Schur complement."""
    solver = linear_solver("block_cholesky", *sizes)
    assert solver.solve(random_lq(*sizes, seed=seed, cross=cross)).solved
    return solver.D, solver.E, solver.gamma


@pytest.mark.parametrize("cross", [False, True])
def test_the_schur_complement_is_that_of_the_kkt_matrix(cross):
    sizes = N, n, m = 6, 3, 2
    lq = random_lq(*sizes, cross=cross)
    M = kkt_matrix(lq)
    size = N * (n + m) + n
    G, C = M[:size, :size], M[size:, :size]
    D, E, gamma = schur(sizes, cross=cross)
    S = C @ np.linalg.solve(G, C.T)
    np.testing.assert_allclose(blocks.dense(D, E), S, rtol=0, atol=1e-11 * abs(S).max())
    g = np.r_[np.concatenate([lq.q[:-1], lq.r], axis=1).ravel(), lq.q[-1]]
    np.testing.assert_allclose(
        gamma.ravel(),
        lq.d.ravel() + C @ np.linalg.solve(G, g),
        rtol=0,
        atol=1e-11 * abs(gamma).max(),
    )


@pytest.mark.parametrize("steps", [1, 2, 6, 7, 8, 15, 30])
def test_every_level_of_cyclic_reduction_has_the_same_unknowns(steps):
    D, E, gamma = schur((steps, 3, 2))
    exact = np.linalg.solve(blocks.dense(D, E), gamma.ravel()).reshape(gamma.shape)
    reduction = Reduction(steps + 1, 3)
    assert reduction.factor(D, E) and reduction.sizes[-1] == 1
    reduction.reduce(gamma)
    for level in range(len(reduction.sizes)):
        there = np.linalg.solve(
            blocks.dense(reduction.D[level], reduction.E[level]), reduction.gamma[level].ravel()
        )
        np.testing.assert_allclose(
            there.reshape(-1, 3), exact[:: 2**level], rtol=0, atol=1e-9 * abs(exact).max()
        )


@pytest.mark.parametrize("n", [1, 3, 13])
def test_cyclic_reduction_solves_after_it_refused_a_system(n):
    D, E, gamma = schur((20, n, 2))
    reduction, out = Reduction(21, n), np.empty_like(gamma)
    for k in (1, 2, 4, 18):  # eliminated at the first level, the second, …
        bad = D.copy()
        bad[k] = -np.eye(n)
        assert not reduction.factor(bad, E)
    assert not reduction.factor(np.full_like(D, np.nan), E)
    assert reduction.factor(D, E)
    reduction.reduce(gamma)
    reduction.lam[-1][0] = np.linalg.solve(reduction.D[-1][0], reduction.gamma[-1][0])
    reduction.expand(out)
    exact = np.linalg.solve(blocks.dense(D, E), gamma.ravel()).reshape(gamma.shape)
    np.testing.assert_allclose(out, exact, rtol=0, atol=1e-9 * abs(exact).max())


# --- preconditioners ------------------------------------------------------------------------------


def spectrum(name, D, E, polynomial=0):
    """Eigenvalues of Φ⁻¹S, by the symmetric Lᵀ Φ⁻¹ L with S = L Lᵀ; fails where Φ⁻¹ is not
    symmetric.
    """
    S = blocks.dense(D, E)
    base = preconditioners.build(name, D, E, polynomial).dense()
    inverse, power = base.copy(), base.copy()
    for _ in range(polynomial):
        power = (np.eye(len(S)) - base @ S) @ power
        inverse += power
    assert abs(inverse - inverse.T).max() < 1e-11 * abs(inverse).max()
    L = np.linalg.cholesky(S)
    return np.linalg.eigvalsh(L.T @ inverse @ L)


@pytest.mark.parametrize("polynomial", [0, 1, 2, 5])
@pytest.mark.parametrize("name", [p for p in PRECONDITIONERS if p != "stair"])
def test_preconditioners_are_positive_definite(name, polynomial):
    upper = {"block_jacobi": 2, "alternating": 2, "overlapping": 3, "symmetric_stair": 1}
    for sizes in SIZES:
        D, E, _ = schur(sizes)
        values = spectrum(name, D, E, polynomial)
        assert values[0] > 0, sizes
        if name in upper and (polynomial == 0 or name == "symmetric_stair"):
            assert values[-1] <= upper[name] + 1e-9, sizes


@pytest.mark.parametrize("sizes", [(9, 4, 2), (16, 3, 1), (31, 2, 2)], ids=str)
def test_the_symmetric_stair_squares_the_coupling_that_block_jacobi_leaves(sizes):
    """Block Jacobi's eigenvalues are 1 ± f, the symmetric stair's 1 - f²: up to four times better
    conditioned.
    """
    D, E, _ = schur(sizes)
    jacobi, stair = spectrum("block_jacobi", D, E), spectrum("symmetric_stair", D, E)
    np.testing.assert_allclose(np.sort(jacobi - 1), -np.sort(1 - jacobi)[::-1], rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.sort(jacobi + jacobi[::-1]), 2.0, rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.sort(1 - (jacobi - 1) ** 2), stair, rtol=0, atol=1e-10)
    gain = (jacobi[-1] / jacobi[0]) / (stair[-1] / stair[0])
    assert 1 < gain < 4 + 1e-9


def test_the_symmetric_stair_is_block_jacobi_with_a_polynomial_of_order_one():
    D, E, _ = schur((12, 3, 2))
    base, S = preconditioners.build("block_jacobi", D, E, 1).dense(), blocks.dense(D, E)
    stair = preconditioners.build("symmetric_stair", D, E).dense()
    np.testing.assert_allclose(
        (2 * np.eye(len(S)) - base @ S) @ base, stair, rtol=0, atol=1e-12 * abs(stair).max()
    )


@pytest.mark.parametrize("polynomial", [1, 2, 3])
def test_polynomials_turn_eigenvalues_as_they_should(polynomial):
    D, E, _ = schur((12, 3, 2))
    for name in ("block_jacobi", "symmetric_stair", "alternating"):
        mu = spectrum(name, D, E)
        np.testing.assert_allclose(
            spectrum(name, D, E, polynomial),
            np.sort(1 - (1 - mu) ** (polynomial + 1)),
            rtol=0,
            atol=1e-9,
        )


def test_what_is_applied_is_what_is_written_out():
    rng = np.random.default_rng(3)
    for sizes, name in itertools.product([(1, 3, 1), (6, 3, 2), (7, 2, 2)], PRECONDITIONERS):
        D, E, gamma = schur(sizes)
        p = preconditioners.build(name, D, E)
        r, z = rng.normal(size=gamma.shape), np.empty_like(gamma)
        preconditioners.apply(p.shape, p.P, p.O, p.scale, r, z)
        np.testing.assert_allclose(
            z.ravel(),
            p.dense() @ r.ravel(),
            rtol=0,
            atol=1e-12 * abs(p.dense()).max() * len(r),
            err_msg=name,
        )


def test_the_stair_is_the_inverse_of_the_matrix_without_its_even_rows_couplings():
    D, E, _ = schur((6, 3, 2))
    S = blocks.dense(D, E)
    psi = S.copy()
    for k in range(0, 7, 2):  # (6.1): even rows keep their diagonal block only
        row = slice(3 * k, 3 * k + 3)
        psi[row] = 0
        psi[row, row] = D[k]
    np.testing.assert_allclose(
        preconditioners.build("stair", D, E).dense() @ psi, np.eye(21), rtol=0, atol=1e-10
    )


def iterate(D, E, gamma, name, start=None, polynomial=0, absolute=1e-16, limit=10_000):
    """λ and the number of iterations, by a preconditioner given or named."""
    p = preconditioners.build(name, D, E, polynomial) if isinstance(name, str) else name
    lam = np.zeros_like(gamma) if start is None else start.copy()
    work, history = pcg.workspace(*gamma.shape), np.empty(0)
    count, _, end = pcg.pcg(
        D,
        E,
        gamma,
        lam,
        p.shape,
        p.P,
        p.O,
        p.scale,
        polynomial,
        absolute,
        0.0,
        limit,
        work,
        history,
    )
    assert end == pcg.CONVERGED
    return lam, count


def test_the_stair_is_block_jacobi_on_the_even_rows_and_halves_its_iterations():
    D, E, gamma = schur((40, 3, 1), seed=4)
    jacobi, stair, symmetric = (
        iterate(D, E, gamma, name)[1] for name in ("block_jacobi", "stair", "symmetric_stair")
    )
    reduction = Reduction(41, 3, 1)
    assert reduction.factor(D, E)
    reduction.reduce(gamma)
    reduced = reduction.D[1], reduction.E[1], reduction.gamma[1]
    even = Preconditioner(
        preconditioners.DIAGONAL, np.linalg.inv(D[::2]), np.zeros_like(reduction.E[1])
    )
    assert abs(stair - iterate(*reduced, even)[1]) <= 1
    assert abs(stair - symmetric) <= 0.1 * stair
    assert 0.4 * jacobi < symmetric < 0.6 * jacobi
    # with the reduced blocks themselves it is better still
    assert iterate(*reduced, "block_jacobi")[1] < stair


def test_eta_is_recorded_before_each_iteration():
    D, E, gamma = schur((12, 3, 2))
    p = preconditioners.build("symmetric_stair", D, E)
    history = np.full(1000, np.nan)
    count, eta, _ = pcg.pcg(
        D,
        E,
        gamma,
        np.zeros_like(gamma),
        p.shape,
        p.P,
        p.O,
        p.scale,
        0,
        1e-16,
        0.0,
        999,
        pcg.workspace(13, 3),
        history,
    )
    assert np.isfinite(history[: count + 1]).all() and np.isnan(history[count + 1 :]).all()
    assert history[count] == eta <= 1e-16 < history[count - 1]
    assert abs(history[0] - gamma.ravel() @ p.dense() @ gamma.ravel()) < 1e-10 * history[0]


def test_a_good_start_saves_iterations():
    D, E, gamma = schur((30, 4, 2))
    exact = np.linalg.solve(blocks.dense(D, E), gamma.ravel()).reshape(gamma.shape)
    for name in PRECONDITIONERS:
        cold, near, there = (
            iterate(D, E, gamma, name, start)[1] for start in (None, exact * (1 + 1e-6), exact)
        )
        assert there == 0 < near < cold


def test_more_polynomial_means_fewer_iterations():
    D, E, gamma = schur((40, 3, 1))
    for name in ("block_jacobi", "symmetric_stair"):
        counts = [iterate(D, E, gamma, name, polynomial=p)[1] for p in (0, 1, 3)]
        assert counts[0] > counts[1] > counts[2]


def test_too_few_iterations_are_reported():
    sizes = (30, 4, 2)
    lq = random_lq(*sizes)
    step = linear_solver("pcg", *sizes, Options(limit=3)).solve(lq)
    assert step.status == "limit" and not step.solved and step.iterations == 3
    assert np.isfinite(step.dx).all()


def test_a_matrix_that_is_not_positive_definite_breaks_down_and_says_so():
    D, E, gamma = schur((10, 3, 2))
    D = D.copy()
    D[4] -= 3 * abs(D[4]).max() * np.eye(3)
    p = preconditioners.build("none", D, E)
    end = pcg.pcg(
        D,
        E,
        gamma,
        np.zeros_like(gamma),
        p.shape,
        p.P,
        p.O,
        p.scale,
        0,
        1e-20,
        0.0,
        1000,
        pcg.workspace(11, 3),
        np.empty(0),
    )[2]
    assert end == pcg.BREAKDOWN
    assert preconditioners.build("jacobi", D, E) is None
    assert preconditioners.build("symmetric_stair", D, E) is None
    assert preconditioners.build("overlapping", D, E) is None
    assert not Reduction(11, 3).factor(D, E)


# --- errors ---------------------------------------------------------------------------------------


def test_wrong_names_and_options_say_what_there_is():
    with pytest.raises(UnknownNameError, match="riccati"):
        linear_solver("ricati", 3, 2, 1)
    with pytest.raises(UnknownNameError, match="symmetric_stair"):
        Options(preconditioner="symetric_stair")
    for wrong in (
        {"polynomial": -1},
        {"polynomial": 1.5},
        {"reductions": -1},
        {"tolerance": -1.0},
        {"tolerance": np.nan},
        {"regularization": 0.0},
    ):
        with pytest.raises(InputError):
            Options(**wrong)


def test_wrong_shapes_say_what_was_needed():
    lq = random_lq(3, 2, 1)
    with pytest.raises(InputError, match=r"expected \(4, 2, 2\)"):
        LQ(lq.A, lq.B, lq.Q[:-1], lq.S, lq.R, lq.q, lq.r, lq.d)
    with pytest.raises(InputError, match="this solver is for"):
        linear_solver("riccati", 4, 2, 1).solve(lq)
