"""Solvers of the LQ problem by name, all with one answer: dx, du, λ.

`riccati` and `kkt` (a dense factorisation, the baseline) take the problem as it is. The others
solve the Schur complement and need every Q_k and R_k positive definite. A singular one gets ρ I
added, ρ = `regularization` times the largest diagonal entry of all Q (or R), times 100 until it is;
the difference is then refined away, as the proximal point method does, so that the answer is that
of the problem given.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from rigidgrad.control.linear import cholesky, pcg as gradients, preconditioners, riccati, schur
from rigidgrad.control.linear.lq import LQ
from rigidgrad.control.linear.reduction import Reduction
from rigidgrad.errors import InputError, unknown_name

SOLVERS = ("riccati", "block_cholesky", "pcg", "red_black", "cyclic_reduction", "kkt")


@dataclass(frozen=True)
class Options:
    """Of the conjugate gradients: `preconditioner` and the order of its `polynomial`; `tolerance`
    on η = rᵀΦ⁻¹r relative to that of the first guess, `absolute` one; at most `limit` iterations
    (10 an unknown unless given). `reductions`: levels of cyclic reduction before them, 1 for
    red_black unless given. Of Schur complements: `regularization`, and at most `refinements`, until
    the error is `accuracy` of the answer.
    """

    preconditioner: str = "symmetric_stair"
    polynomial: int = 0
    tolerance: float = 1e-17
    absolute: float = 0.0
    limit: int | None = None
    reductions: int | None = None
    regularization: float = 1e-6
    refinements: int = 20
    accuracy: float = 1e-9

    def __post_init__(self) -> None:
        preconditioners.check(self.preconditioner, self.polynomial)
        if self.reductions is not None and self.reductions < 0:
            raise InputError(f"reductions is a number of levels from 0, not {self.reductions!r}")
        if not (
            self.tolerance >= 0
            and self.absolute >= 0
            and self.regularization > 0
            and self.accuracy > 0
        ):
            raise InputError(
                "tolerance and absolute must be 0 or more; regularization and accuracy must be"
                " positive"
            )


@dataclass
class Step:
    """dx (N + 1, n), du (N, m), lam (N + 1, n). `status`: "solved"; "limit" or "breakdown" where
    conjugate gradients did not get there; "indefinite" where the problem has no minimum that the
    solver can see (dx, du and lam are then not to be used). `regularization` is the largest ρ
    added; `refinements` what it took to remove it.
    """

    dx: np.ndarray
    du: np.ndarray
    lam: np.ndarray
    status: str = "solved"
    iterations: int = 0
    regularization: float = 0.0
    refinements: int = 0

    @property
    def solved(self) -> bool:
        return self.status == "solved"


class LinearSolver(ABC):
    """Solves LQ problems of one size; its memory is reused from one to the next."""

    def __init__(self, steps: int, n: int, m: int, options: Options):
        self.sizes, self.options = (steps, n, m), options
        self.dx, self.du, self.lam = (
            np.zeros((steps + 1, n)),
            np.zeros((steps, m)),
            np.zeros((steps + 1, n)),
        )
        self.regularization = 0.0
        self.iterations, self.status = 0, "solved"

    def solve(self, lq: LQ, guess: np.ndarray | None = None) -> Step:
        """The answer to a problem; `guess` is a λ for conjugate gradients to start from."""
        if lq.sizes != self.sizes:
            raise InputError(
                f"this solver is for steps, n, m = {self.sizes}; the problem has {lq.sizes}"
            )
        self.regularization, self.iterations, self.status = 0.0, 0, "solved"
        self.problem = lq
        if not self.factor(lq):
            return self._step("indefinite", 0)
        self.lam[:] = 0.0 if guess is None else guess
        self.begin(lq)
        return self._step(self.status, self._refine(lq) if self.regularization else 0)

    def close(self, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """dx, du of the least cost ½ dZᵀ G dZ that fulfil C dZ = d, with the problem last solved:
        what closes defects that a step left.
        """
        self.lam[:], self.iterations = 0.0, 0
        self.substitute(
            self.problem, np.zeros_like(self.problem.q), np.zeros_like(self.problem.r), d
        )
        return self.dx.copy(), self.du.copy()

    @abstractmethod
    def factor(self, lq: LQ) -> bool:
        """Prepares for `substitute`; False where that is impossible."""

    def begin(self, lq: LQ) -> None:
        """`substitute` with the vectors of the problem that was factored last."""
        self.substitute(lq, lq.q, lq.r, lq.d)

    @abstractmethod
    def substitute(self, lq: LQ, q: np.ndarray, r: np.ndarray, d: np.ndarray) -> None:
        """Fills dx, du, lam for the factored matrices and these vectors; lam holds a guess."""

    def _refine(self, lq: LQ) -> int:
        """Corrects what the regularisation changed."""
        dx, du, lam = self.dx.copy(), self.du.copy(), self.lam.copy()
        before = np.inf
        for count in range(self.options.refinements):
            gx, gu, gap = lq.residuals(dx, du, lam)
            self.lam[:] = 0.0
            self.substitute(lq, gx, gu, gap)
            change = max(abs(self.dx).max(initial=0.0), abs(self.du).max(initial=0.0))
            # no longer converging: rounding is reached, or the problem has no minimum
            if not change < before:
                break
            before = change
            dx += self.dx
            du += self.du
            lam += self.lam
            if change <= self.options.accuracy * max(
                abs(dx).max(initial=0.0), abs(du).max(initial=0.0)
            ):
                count += 1
                break
        self.dx[:], self.du[:], self.lam[:] = dx, du, lam
        return count

    def _step(self, status: str, refinements: int) -> Step:
        finite = all(np.isfinite(a).all() for a in (self.dx, self.du, self.lam))
        return Step(
            self.dx.copy(),
            self.du.copy(),
            self.lam.copy(),
            status if finite else "indefinite",
            self.iterations,
            self.regularization,
            refinements,
        )


class RiccatiSolver(LinearSolver):
    """`gains` (N, m, n) are left for whoever wants feedback."""

    def __init__(self, steps: int, n: int, m: int, options: Options):
        super().__init__(steps, n, m, options)
        self.recursion = riccati.Recursion(steps, n, m)
        self.dx, self.lam = self.recursion.dx, self.recursion.lam
        self.du = self.recursion.du[:, :m]

    @property
    def gains(self) -> np.ndarray:
        return self.recursion.gains[:, : self.sizes[2], : self.sizes[1]]

    def factor(self, lq: LQ) -> bool:
        return self.recursion.factor(lq)

    def begin(self, lq: LQ) -> None:
        self.recursion.forward()  # gradients went back with the factors

    def substitute(self, lq: LQ, q: np.ndarray, r: np.ndarray, d: np.ndarray) -> None:
        self.recursion.again(q, r, d)
        self.recursion.forward()


class Schur(LinearSolver):
    """What all solvers of the Schur complement share."""

    def __init__(self, steps: int, n: int, m: int, options: Options):
        super().__init__(steps, n, m, options)
        self.blocks = schur.Blocks(steps, n, m)
        self.D, self.E, self.gamma = self.blocks.D, self.blocks.E, np.zeros((steps + 1, n))
        self.cross = False

    def factor(self, lq: LQ) -> bool:
        self.cross = bool(lq.S.any())
        least_Q, least_R = (
            self.options.regularization * (abs(np.einsum("kii->ki", M)).max(initial=0.0) or 1.0)
            for M in (lq.Q, lq.R)
        )
        rho = self.blocks.form(lq, self.cross, least_Q, least_R)
        self.regularization = max(rho, 0.0)
        return rho >= 0 and self.factor_schur()

    def substitute(self, lq: LQ, q: np.ndarray, r: np.ndarray, d: np.ndarray) -> None:
        b = self.blocks
        common = lq.B, b.At, b.RS, self.cross, b.Qi, b.Ri
        schur.right_hand_side(*common, q, r, d, self.dx, self.du, self.gamma)
        self.solve_schur()
        schur.recover(*common, self.lam, self.dx, self.du)

    @abstractmethod
    def factor_schur(self) -> bool:
        """Of the blocks D, E."""

    @abstractmethod
    def solve_schur(self) -> None:
        """lam from gamma."""


class BlockCholesky(Schur):
    def __init__(self, steps: int, n: int, m: int, options: Options):
        super().__init__(steps, n, m, options)
        self.L, self.W = np.zeros_like(self.D), np.zeros_like(self.E)

    def factor_schur(self) -> bool:
        factored: bool = cholesky.factor(self.D, self.E, self.L, self.W)
        return factored

    def solve_schur(self) -> None:
        cholesky.solve(self.L, self.W, self.gamma, self.lam)


class CyclicReduction(Schur):
    def __init__(self, steps: int, n: int, m: int, options: Options):
        super().__init__(steps, n, m, options)
        self.reduction = Reduction(steps + 1, n)
        self.L = np.zeros((1, n, n))
        self.W = np.zeros((0, n, n))

    def factor_schur(self) -> bool:
        return self.reduction.factor(self.D, self.E) and cholesky.factor(
            self.reduction.D[-1], self.reduction.E[-1], self.L, self.W
        )

    def solve_schur(self) -> None:
        self.reduction.reduce(self.gamma)
        cholesky.solve(self.L, self.W, self.reduction.gamma[-1], self.reduction.lam[-1])
        self.reduction.expand(self.lam)


class Pcg(Schur):
    """Conjugate gradients after 0 or more levels of cyclic reduction."""

    def __init__(self, steps: int, n: int, m: int, options: Options):
        super().__init__(steps, n, m, options)
        self.reduction = Reduction(steps + 1, n, options.reductions or 0)
        K = self.reduction.sizes[-1]
        self.work, self.history = gradients.workspace(K, n), np.empty(0)
        self.limit = 10 * K * n if options.limit is None else options.limit

    def factor_schur(self) -> bool:
        if not self.reduction.factor(self.D, self.E):
            return False
        o = self.options
        found = preconditioners.build(
            o.preconditioner, self.reduction.D[-1], self.reduction.E[-1], o.polynomial
        )
        if found is not None:
            self.preconditioner = found
        return found is not None

    def solve_schur(self) -> None:
        o, p, last = self.options, self.preconditioner, self.reduction
        last.reduce(self.gamma)
        lam = last.restrict(self.lam)
        system = last.D[-1], last.E[-1], last.gamma[-1], lam
        count, _, end = gradients.pcg(
            *system,
            p.shape,
            p.P,
            p.O,
            p.scale,
            o.polynomial,
            o.absolute,
            o.tolerance,
            self.limit,
            self.work,
            self.history,
        )
        self.iterations += count
        if end != gradients.CONVERGED:
            self.status = "limit" if end == gradients.LIMIT else "breakdown"
        last.expand(self.lam)


class Kkt(LinearSolver):
    """The whole matrix of (2.10), factored without its structure."""

    def factor(self, lq: LQ) -> bool:
        self.matrix = kkt_matrix(lq)
        return bool(np.isfinite(self.matrix).all())

    def substitute(self, lq: LQ, q: np.ndarray, r: np.ndarray, d: np.ndarray) -> None:
        N, n, m = self.sizes
        right = np.concatenate([np.concatenate([-q[:-1], -r], axis=1).ravel(), -q[-1], d.ravel()])
        try:
            z = np.linalg.solve(self.matrix, right)
        except np.linalg.LinAlgError:
            z = np.full(right.size, np.nan)
        inner = z[: N * (n + m)].reshape(N, n + m)
        self.dx[:-1], self.du[:], self.dx[-1] = (
            inner[:, :n],
            inner[:, n:],
            z[N * (n + m) : N * (n + m) + n],
        )
        self.lam[:] = z[N * (n + m) + n :].reshape(N + 1, n)


def kkt_matrix(lq: LQ) -> np.ndarray:
    """[[G, -Cᵀ], [C, 0]] over Z = [dx_0, du_0, …, dx_N] and λ."""
    N, n, m = lq.sizes
    size, w = N * (n + m) + n, n + m
    M = np.zeros((size + (N + 1) * n,) * 2)
    for k in range(N + 1):
        x, row = k * w, size + k * n
        M[x : x + n, x : x + n] = lq.Q[k]
        M[row : row + n, x : x + n] = np.eye(n)
        if k < N:
            u = x + n
            M[u : u + m, u : u + m], M[u : u + m, x : x + n], M[x : x + n, u : u + m] = (
                lq.R[k],
                lq.S[k],
                lq.S[k].T,
            )
            M[row + n : row + 2 * n, x : x + n], M[row + n : row + 2 * n, u : u + m] = (
                -lq.A[k],
                -lq.B[k],
            )
    M[:size, size:] = -M[size:, :size].T
    return M


def linear_solver(
    name: str, steps: int, n: int, m: int, options: Options | None = None
) -> LinearSolver:
    """The solver of that name for problems of this size."""
    if name not in SOLVERS:
        raise unknown_name("linear solver", name, SOLVERS)
    options = options or Options()
    if name == "red_black" and options.reductions is None:
        options = replace(options, reductions=1)
    kinds: dict[str, type[LinearSolver]] = {
        "riccati": RiccatiSolver,
        "block_cholesky": BlockCholesky,
        "cyclic_reduction": CyclicReduction,
        "kkt": Kkt,
    }
    return kinds.get(name, Pcg)(steps, n, m, options)
