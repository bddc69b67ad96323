"""The Schur complement of an LQ problem and its conjugate gradients as kernels: what dense matrices
give.
"""

from __future__ import annotations

import numpy as np
import pytest

from rigidgrad.kernels import reduction, schur
from rigidgrad.kernels.interpret import interpret
from rigidgrad.kernels.pcg import conjugate_gradients

N, M, K = 5, 2, 7
Z = N + M


def run(kernel, **inputs):
    """Outputs for rows of inputs."""
    rows = max(len(x) for x in inputs.values())
    given = {
        k: np.broadcast_to(x, (rows, *x.shape[1:])).reshape(rows, -1) for k, x in inputs.items()
    }
    return interpret(kernel, given)


def problem(seed=0, n=N, m=M):
    """F, g, H of each knot, defects and multipliers: convex, without products of states and
    controls.
    """
    rng, z = np.random.default_rng(seed), n + m
    F = np.eye(n, z) + 0.3 * rng.normal(size=(K, n, z))
    H = np.zeros((K, z, z))
    for part in (slice(0, n), slice(n, z)):
        a = rng.normal(size=(K, part.stop - part.start, part.stop - part.start))
        H[:, part, part] = a @ a.swapaxes(1, 2) + np.eye(part.stop - part.start)
    return F, rng.normal(size=(K, z)), H, rng.normal(size=(K, n)), rng.normal(size=(K, n))


def dense(F, H, rho):
    """C and G, of all knots; the last one has no control."""
    n, z = F.shape[1:]
    C, G = np.zeros((K * n, K * z)), np.zeros((K * z, K * z))
    for k in range(K):
        C[k * n : (k + 1) * n, k * z : k * z + n] = np.eye(n)
        if k:
            C[k * n : (k + 1) * n, (k - 1) * z : k * z] = -F[k - 1]
        G[k * z : (k + 1) * z, k * z : (k + 1) * z] = H[k] + rho * np.eye(z)
    keep = np.arange(K * z) < K * z - (z - n)
    return C[:, keep], G[np.ix_(keep, keep)]


def knots(F, g, H, lam, rho=0.0):
    n, z = F.shape[1:]
    end, after = np.zeros((K, 1)), np.concatenate([lam[1:], np.full((1, n), 7.0)])
    end[-1] = 1.0
    one = {name: np.full((1, 1), x) for name, x in (("rho", rho), ("singular", 1e-13))}
    # states run together: those that have ended sit rounds out only alone
    parts = [
        run(
            schur.knot(n, z - n),
            F=F[r],
            H=H[r],
            g=g[r],
            lam=lam[r],
            after=after[r],
            end=end[r],
            **one,
        )
        for r in (slice(0, K - 1), slice(K - 1, K))
    ]
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


def rows(parts, n=N, m=M):
    """W and θ, with the parts of knots a row further on."""
    W, theta = np.zeros((K, 2 * n + m, n)), np.zeros((K, n, n))
    W[:, n + m :] = parts["Q_inverse"].reshape(K, n, n)
    W[1:, : n + m] = parts["minus"].reshape(K, n + m, n)[:-1]
    theta[1:] = parts["theta"].reshape(K, n, n)[:-1]
    ahead = np.concatenate([np.zeros((1, n)), parts["ahead"][:-1]])
    return W, theta, ahead


@pytest.mark.parametrize(("n", "m"), [(5, 2), (1, 1), (13, 2)])  # 13: factors of two blocks
def test_the_step_of_an_lq_problem_is_that_of_dense_matrices(n, m):
    F, g, H, d, lam = problem(n=n, m=m)
    rho = 0.1
    parts = knots(F, g, H, lam, rho)
    assert (parts["fine"] == 1.0).all()
    W, theta, ahead = rows(parts, n, m)
    C, G = dense(F, H, rho)
    S = C @ np.linalg.solve(G, C.T)
    keep = len(G)
    gamma = d.ravel() + C @ np.linalg.solve(G, g.ravel()[:keep] - C.T @ lam.ravel())
    row = run(
        schur.row(n),
        theta=theta,
        Q_inverse=parts["Q_inverse"],
        d=d,
        own=parts["own"],
        ahead=ahead,
        fine=parts["fine"],
    )
    np.testing.assert_allclose(row["gamma"].ravel(), gamma, rtol=1e-9, atol=1e-9)
    blocks = S.reshape(K, n, K, n)
    phi = np.zeros((K, 3, n, n))
    phi[:, 1] = row["inverse"].reshape(K, n, n)
    for k in range(K):
        np.testing.assert_allclose(phi[k, 1] @ blocks[k, :, k], np.eye(n), atol=1e-9)
    stair = run(schur.stair(n), minus=W[1:, :n], inverse=phi[1:, 1], before=phi[:-1, 1])
    phi[:-1, 2], phi[1:, 0] = (stair[name].reshape(-1, n, n) for name in ("upper", "lower"))
    for k in range(1, K):
        beside = -phi[k, 1] @ blocks[k, :, k - 1] @ phi[k - 1, 1]
        np.testing.assert_allclose(phi[k, 0].T, beside, atol=1e-10)
        np.testing.assert_array_equal(phi[k - 1, 2], phi[k, 0].T)  # symmetric to the last bit
    whole = {"F": F, "W": W, "phi": phi, "gamma": row["gamma"], "lam": lam}
    found = run(
        conjugate_gradients(K, n, m),
        **{name: x[None] for name, x in whole.items()},
        tolerance=np.full((1, 1), 1e-26),
        limit=np.full((1, 1), 1e4),
    )
    delta = found["delta"].reshape(K, n)
    np.testing.assert_allclose(delta.ravel(), np.linalg.solve(S, gamma), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found["lam"].reshape(K, n), lam + delta, rtol=1e-13)
    eta, bound, iterations = found["results"][0]
    assert abs(eta) <= bound and iterations <= K * n
    after = np.concatenate([delta[1:], np.full((1, n), 7.0)])
    step = np.concatenate(
        [
            run(
                schur.recover(n, m),
                F=F[r],
                left=parts["left"][r],
                Q_inverse=parts["Q_inverse"][r],
                R_inverse=parts["R_inverse"][r],
                delta=delta[r],
                after=after[r],
                end=np.full((1, 1), float(r.stop == K)),
            )["step"]
            for r in (slice(0, K - 1), slice(K - 1, K))
        ]
    )
    # the whole problem's: least ½ zᵀGz + gᵀz with C z = d
    kkt = np.block([[G, C.T], [C, np.zeros((K * n, K * n))]])
    expected = np.linalg.solve(kkt, np.concatenate([-g.ravel()[:keep], d.ravel()]))[:keep]
    np.testing.assert_allclose(step.ravel()[:keep], expected, rtol=1e-7, atol=1e-7)
    assert (step[-1, n:] == 0.0).all()
    dx, own = d[0], step.copy()
    for k in range(K - 1):
        after = run(
            schur.propagate(n, m),
            F=F[k : k + 1],
            d=d[k + 1 : k + 2],
            step=own[k : k + 1],
            dx=dx[None],
        )
        np.testing.assert_allclose(after["step"][0], step[k], rtol=1e-6, atol=1e-6)
        dx = after["dx"][0]
    np.testing.assert_allclose(dx, step[-1, :n], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("where", ["Q", "R", "θ"])
def test_matrices_that_are_not_positive_definite_are_said(where):
    F, g, H, d, lam = problem()
    if where != "θ":
        i = 1 if where == "Q" else N
        H[3, i] = H[3, :, i] = 0.0
    parts = knots(F, g, H, lam)
    fine = np.ones(K)
    fine[3] = where == "θ"
    np.testing.assert_array_equal(parts["fine"].ravel(), fine)
    if where == "θ":
        _, theta, ahead = rows(parts)
        theta[4] = -10.0 * np.eye(N)
        names = ("Q_inverse", "own", "fine")
        row = run(schur.row(N), theta=theta, d=d, ahead=ahead, **{k: parts[k] for k in names})
        fine[4] = 0.0
        np.testing.assert_array_equal(row["fine"].ravel(), fine)


def test_conjugate_gradients_end_at_their_limit_and_where_they_break_down():
    F, g, H, d, lam = problem()
    parts = knots(F, g, H, lam)
    W, _, ahead = rows(parts)
    gamma, phi = d + parts["own"] + ahead, np.zeros((K, 3, N, N))
    phi[:, 1] = np.eye(N)
    whole = {"F": F, "W": W, "phi": phi, "gamma": gamma, "lam": 0.0 * lam}
    kernel = conjugate_gradients(K, N, M)

    def solved(limit, **changed):
        found = run(
            kernel,
            **{name: x[None] for name, x in (whole | changed).items()},
            tolerance=np.full((1, 1), 1e-20),
            limit=np.full((1, 1), float(limit)),
        )
        return found["delta"].ravel(), found["results"][0]

    for limit in (0, 3):
        delta, (eta, bound, iterations) = solved(limit)
        assert iterations == limit and eta > bound and bool(np.any(delta)) == (limit > 0)
    delta, (_, _, iterations) = solved(1000, W=-W)  # it has no minimum
    assert iterations == 0 and not delta.any()
    delta, (eta, bound, iterations) = solved(1000, gamma=np.full_like(gamma, np.nan))
    assert iterations == 0 and not delta.any() and not eta <= bound


@pytest.mark.parametrize("n", [1, 4, 13])
def test_an_elimination_of_cyclic_reduction_is_that_of_dense_matrices(n):
    rng = np.random.default_rng(n)
    D, E = rng.normal(size=(2, 6, 2, n, n))
    D = D @ D.swapaxes(2, 3) + n * np.eye(n)
    D[4, 1] *= -1.0
    found = run(reduction.eliminate(n, singular=1e-13), D=D, E=E, fine=np.ones((1, 1)))
    assert found["fine"].ravel().tolist() == [1, 1, 1, 1, 0, 1]
    good = np.arange(6) != 4
    inverse = np.linalg.inv(D[:, 1])
    before, after = E[:, 0], E[:, 1].swapaxes(1, 2)
    even, between, taken = found["given"].reshape(6, 3, n, n).swapaxes(0, 1)[:, good]
    exact = (
        (even, D[:, 0] - before.swapaxes(1, 2) @ inverse @ before),
        (between, -after.swapaxes(1, 2) @ inverse @ before),
        (taken, after.swapaxes(1, 2) @ inverse @ after),
        (found["kept"].reshape(6, 3, n, n)[good, 1], -inverse @ before),
        (found["kept"].reshape(6, 3, n, n)[good, 2], -inverse @ after),
    )
    for ours, whole in exact:
        np.testing.assert_allclose(ours, whole[good], rtol=0, atol=1e-12 * abs(whole).max())
    for symmetric in (even, taken):
        np.testing.assert_array_equal(symmetric, symmetric.swapaxes(1, 2))
