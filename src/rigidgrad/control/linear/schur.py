"""The Schur complement of the LQ problem's optimality conditions, compiled (Plancher 2022, (2.13),
(6.4)-(6.6), with S = C G⁻¹ Cᵀ positive definite).

Cross terms are condensed first: du = du' - R⁻¹(S dx + r) leaves A - B R⁻¹ S and Q - Sᵀ R⁻¹ S, and
no cross term. Then, with d and λ as in `lq`,
    θ_k = A_k Q_k⁻¹ A_kᵀ + B_k R_k⁻¹ B_kᵀ + Q_{k+1}⁻¹,    φ_k = -A_k Q_k⁻¹,    θ_{-1} = Q_0⁻¹
are the diagonal blocks and the blocks below them, and γ = d + C G⁻¹ g.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.control.linear.blocks import (
    SINGULAR,
    add_matrix_vector,
    add_transposed_vector,
    compiled,
)
from rigidgrad.control.linear.lanes import BlocksInLanes
from rigidgrad.control.linear.lq import LQ
from rigidgrad.kernels import schur as kernel
from rigidgrad.runtime.job import Job, Knots

_ATTEMPTS = 20  # without ρ, with the first one, and with 100 times more each time


class Blocks:
    """The condensed At (N, n, n), RS = R⁻¹ S (N, m, n), the inverses Qi and Ri, and the blocks D, E
    of the Schur complement, of LQ problems of one size: `kernels.schur`, a knot in each lane.
    """

    def __init__(self, steps: int, n: int, m: int):
        self.sizes, K = (steps, n, m), steps + 1
        self.At, self.RS = np.zeros((steps, n, n)), np.zeros((steps, m, n))
        self.Qi, self.Ri = np.zeros((K, n, n)), np.zeros((steps, m, m))
        self.D, self.E = np.zeros((K, n, n)), np.zeros((steps, n, n))
        self._known: dict[bool, BlocksInLanes] = {}

    def form(self, lq: LQ, cross: bool, least_Q: float, least_R: float) -> float:
        """Fills them. The largest ρ that was added to a Q or an R to make it positive definite;
        -1 where nothing finite does.
        """
        if cross not in self._known:
            self._known[cross] = _knots_in_lanes(*self.sizes, cross)
        lanes, (N, n, m) = self._known[cross], self.sizes
        given = {"A": lq.A, "Q": lq.Q} | ({"B": lq.B, "R": lq.R} if m else {})
        for name, matrices in (given | ({"S": lq.S} if cross else {})).items():
            lanes.write(name, matrices)
        rho, least = np.zeros((N + 1, 2)), np.array([least_Q, least_R])
        for _ in range(_ATTEMPTS):
            lanes.write("rho_Q", rho[:, 0])
            lanes.write("rho_R", rho[:, 1])
            lanes.run()
            refused = lanes.read("fine", N + 1, 2) == 0.0
            if not refused.any():
                break
            rho = np.where(refused, np.where(rho == 0.0, least, 100.0 * rho), rho)
        else:
            return -1.0
        self.Qi[:] = lanes.read("Q_inverse", N + 1, n, n)
        if m:
            self.Ri[:] = lanes.read("R_inverse", N, m, m)
        self.D[:] = self.Qi
        self.D[1:] += lanes.read("theta", N, n, n)
        self.E[:] = lanes.read("minus", N, -1, n)[:, :n].swapaxes(1, 2)
        self.At[:] = lanes.read("condensed", N, n, n) if cross else lq.A
        if cross:
            self.RS[:] = lanes.read("RS", N, m, n)
        return float(rho.max())


def _knots_in_lanes(steps: int, n: int, m: int, cross: bool) -> BlocksInLanes:
    """`kernels.schur` with a knot in each lane. The last knot, and what fills the last group up,
    has A, B = 0 and R = I; a problem without controls has one that does nothing.
    """
    own = max(m, 1)
    sizes = f"{n} states, {own} controls"
    job = Job(
        "Schur complement",
        sizes,
        f"{sizes}, cross terms {cross}, pivots above {SINGULAR}",
        lambda: kernel.blocks(n, own, cross=cross, singular=SINGULAR),
        knots=Knots(),
    )
    return BlocksInLanes(job, steps + 1, {"Q": np.eye(n), "R": np.eye(own)})


@compiled
# pragma: no cover (compiled)
def right_hand_side(
    B: np.ndarray,
    At: np.ndarray,
    RS: np.ndarray,
    cross: bool,
    Qi: np.ndarray,
    Ri: np.ndarray,
    q: np.ndarray,
    r: np.ndarray,
    d: np.ndarray,
    dx: np.ndarray,
    du: np.ndarray,
    gamma: np.ndarray,
) -> None:
    """Fills γ, and dx = -Qi q (condensed q), du = -Ri r: the step without multipliers."""
    N = At.shape[0]
    n, m = At.shape[1], B.shape[2]
    w = np.empty(n)
    for k in range(N + 1):
        for i in range(n):
            w[i] = -q[k, i]
            dx[k, i] = 0.0
        if k < N:
            for i in range(m):
                du[k, i] = 0.0
            add_matrix_vector(-1.0, Ri[k], r[k], du[k])
            if cross:
                add_transposed_vector(1.0, RS[k], r[k], w)
        add_matrix_vector(1.0, Qi[k], w, dx[k])
        for i in range(n):
            gamma[k, i] = d[k, i] - dx[k, i]
        if k > 0:
            add_matrix_vector(1.0, At[k - 1], dx[k - 1], gamma[k])
            add_matrix_vector(1.0, B[k - 1], du[k - 1], gamma[k])


@compiled
def recover(
    B: np.ndarray,
    At: np.ndarray,
    RS: np.ndarray,
    cross: bool,
    Qi: np.ndarray,
    Ri: np.ndarray,
    lam: np.ndarray,
    dx: np.ndarray,
    du: np.ndarray,
) -> None:  # pragma: no cover (compiled)
    """dZ = G⁻¹(Cᵀ λ - g), from the step without multipliers in dx, du."""
    N = At.shape[0]
    n, m = At.shape[1], B.shape[2]
    w, v = np.empty(n), np.empty(m)
    for k in range(N + 1):
        w[:] = lam[k]
        if k < N:
            add_transposed_vector(-1.0, At[k], lam[k + 1], w)
        add_matrix_vector(1.0, Qi[k], w, dx[k])
        if k < N:
            v[:] = 0.0
            add_transposed_vector(-1.0, B[k], lam[k + 1], v)
            add_matrix_vector(1.0, Ri[k], v, du[k])
            if cross:
                add_matrix_vector(-1.0, RS[k], dx[k], du[k])
