"""How strong penalties of constraints must be: as strong as what the costs set against them.

Minimised under linear dynamics, the quadratic model of the costs resists a change δ of one
constraint's value c_k at a knot by δ²/(2 s), everything else being chosen again, where s = gᵀ S g
with the gradient g of c_k and S the block of the inverse of the problem's Hessian that belongs to
the knot. S follows from the backward pass of an LQR and a pass forward, like the covariance of a
system whose controls have the noise Q_uu⁻¹:

    P_0 = 0,   P_{k+1} = (A + B K) P_k (A + B K)ᵀ + B Q_uu⁻¹ Bᵀ,   S_k = [P, P Kᵀ; K P, K P Kᵀ +
    Q_uu⁻¹].

A penalty μ = ratio / s leaves 1 / (1 + ratio) of a violation, and each renewal of multipliers
divides it by as much again, whatever the units and weights of costs and constraints.

An order of magnitude is enough: horizons are taken in a few strides that grow, over which the
control is held, and s is interpolated. Penalties are rounded to a few bits, so that whoever adds up
in another order, as generated C does, finds the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rigidgrad.control.costs import CustomValue
from rigidgrad.control.programs import whole_dynamics
from rigidgrad.control.timed import Timed

if TYPE_CHECKING:
    from rigidgrad.control.trajectories import Trajectories

RATIO = 10.0  # of the penalty's curvature to the costs'
# a stride is this part of the knots before it: where a horizon begins, controls reach less with
# every knot nearer to the start
_GROWTH = 3
WIDEST = 1e6  # largest ratio of two penalties of a constraint; beyond, controls hardly reach it
# of the cost, what moving a control by its own size on all knots costs at least: a cost may be flat
# in it, as fuel is
FLATTEST = 0.1
STEPS = 64.0  # into which powers of two are divided, to one of which a penalty is rounded
_BARELY = 1e-8  # relative singular values of directions in which controls hardly move constraints
_FAR = 1e12  # stands for an infinite bound


class Strides(NamedTuple):
    """The LQ problem of a few strides, each of some steps: dynamics A (n, n), B (n, m) and Hessians
    of the costs, one row per stride, with the least that counts for a control; `last` is the
    Hessian at the end.
    """

    A: np.ndarray
    B: np.ndarray
    xx: np.ndarray
    ux: np.ndarray
    uu: np.ndarray
    flattest: np.ndarray
    last: np.ndarray


def scaled_penalties(
    problem: Trajectories, x: np.ndarray, u: np.ndarray, ratio: float = RATIO
) -> np.ndarray:
    """Penalties (knots, constraints) for the costs around a trajectory x (N + 1, nx), u (N, nu);
    NaN for a constraint that no control changes.
    """
    programs, steps = problem.programs, problem.steps
    knots = stride_knots(steps)
    gx, gu = programs.constraint_jacobians(
        x[knots], u[np.minimum(knots, steps - 1)], problem.p[knots]
    )
    # of a trajectory that runs away, numbers overflow, and nothing is known
    with np.errstate(all="ignore"):
        strides = _strides(problem, x, u, knots[:-1], np.diff(knots))
        give = _interpolated(_give(strides, gx, gu, np.diff(knots)), knots)
        give[-1, programs.controlled] = 0.0
        least = give.max(axis=0) / WIDEST
        found = ratio / np.where(least > 0.0, np.maximum(give, least), np.nan)
        if isinstance(problem.system, Timed):
            found = np.fmax(found, _against_haste(problem, x, u))
        return rounded(found)


def rounded(penalties: np.ndarray) -> np.ndarray:
    """To the nearest of `STEPS` equal parts of a power of two."""
    part, exponent = np.frexp(penalties)
    found: np.ndarray = np.ldexp(np.round(part * STEPS) / STEPS, exponent)
    return found


def _against_haste(problem: Trajectories, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Least penalties (constraints,) where durations are free; NaN where nothing is known.

    A cost of time is flat in all controls, so that penalties as above give way to it: the motion
    ends at once, where it began. Here a violation costs as much as the whole guess when it is as
    large as what the constraint moves by along the guess, or in the smallest step of the controls
    that, to first order and in the time of the guess, takes the largest excess of each off.
    """
    steps, programs = problem.steps, problem.programs
    s = _strides(problem, x, u, np.arange(steps), np.ones(steps, int))
    gx, gu = programs.constraint_jacobians(x, np.concatenate([u, u[-1:]]), problem.p)
    gu[-1] = 0.0
    c = programs.constraint_values(x, np.concatenate([u, u[-1:]]), problem.p)
    excess = c - np.clip(c, *(problem.p[:, programs.columns[name]] for name in ("lower", "upper")))
    excess[-1, programs.controlled] = 0.0
    knots = np.abs(excess).argmax(axis=0)
    rows = [(k, c) for c, k in enumerate(knots) if excess[k, c] != 0.0]
    G = np.zeros((len(rows), *s.B.shape[::2]))  # of each excess by the controls
    for row, (k, c) in zip(G, rows, strict=True):
        if k < steps:
            row[k] = gu[k, c]
        by_state = gx[k, c]
        for j in range(k - 1, -1, -1):
            row[j], by_state = by_state @ s.B[j], by_state @ s.A[j]
    stiffness = np.maximum(np.diagonal(s.uu, axis1=1, axis2=2), s.flattest)
    size = np.where(stiffness > 0.0, 1.0 / np.sqrt(stiffness), 1.0)
    size[:, -1] = 0.0  # the last control is time
    scaled = (G * size).reshape(len(rows), size.size)
    if not (np.isfinite(scaled).all() and np.isfinite(excess).all()):
        return np.full(len(knots), np.nan)
    wanted = np.array([-excess[k, c] for k, c in rows])
    du = np.linalg.lstsq(scaled, wanted, rcond=_BARELY)[0].reshape(size.shape) * size
    dx = np.zeros((steps + 1, s.A.shape[1]))
    for k in range(steps):
        dx[k + 1] = s.A[k] @ dx[k] + s.B[k] @ du[k]
    moved = (gx @ dx[:, :, None])[:, :, 0]
    moved[:-1] += (gu[:-1] @ du[:, :, None])[:, :, 0]
    far = np.maximum(np.abs(moved).max(axis=0), np.ptp(c, axis=0))
    return 2.0 * abs(problem.cost(x, u)) / np.where(far > 0.0, far, np.nan) ** 2


def stride_knots(steps: int) -> np.ndarray:
    """0, 1, 2, … at first, then ever farther apart, and the last knot."""
    found = [0]
    while found[-1] < steps:
        found.append(min(found[-1] + max(1, found[-1] // _GROWTH), steps))
    return np.array(found)


def _strides(
    problem: Trajectories, x: np.ndarray, u: np.ndarray, first: np.ndarray, counts: np.ndarray
) -> Strides:
    """Expanded at the knots `first`, and repeated over the steps to the next one, whose numbers are
    `counts`.
    """
    programs, h = problem.programs, problem.h[first]
    o, columns = programs.layout, programs.columns
    p = problem.p[np.append(first, problem.steps)]
    for name, value in (
        ("lower", -_FAR),
        ("upper", _FAR),
        ("multiplier", 0.0),
        ("penalty", 1.0),
        ("softness", 1e-30),
    ):
        p[:, columns[name]] = value  # the costs alone
    F, _, L, *move = programs.expansion()(x[first], u[first], h, p[:-1])
    V = programs.final_expansion()(x[-1:], p[-1:])
    own = np.array([o.state(i) for i in range(o.n)] + [o.control(i) for i in range(o.m)])
    F, n = F[:, :, own], o.n
    H = L[:, :, own] if L.ndim == 3 else L[:, own, None] * np.eye(n + o.m)
    last = V[0, :n, own[:n]].T
    # may bend downwards, and a cost-to-go of that grows without bounds
    if any(isinstance(_asked(cost), CustomValue) for cost in programs.costs):
        H, last = _upwards(H), _upwards(last)
    F = whole_dynamics(o, F, h, move[0] if move else None)
    A, B = _repeated(F[:, :, :n], F[:, :, n:], counts)
    H = H * counts[:, None, None]
    flattest = counts[:, None] * _flattest(problem, x, u)
    return Strides(A, B, H[:, :n, :n], H[:, n:, :n], H[:, n:, n:], flattest, last)


def _asked(cost: Any) -> Any:
    """The cost that a user gave."""
    while hasattr(cost, "term"):
        cost = cost.term
    return cost


def _flattest(problem: Trajectories, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The least curvature of the cost that counts for each control, (nu,): its size is half of its
    range, or else that of the largest control of the guess, since a small one says nothing.
    """
    low, high = problem.bounds
    with np.errstate(invalid="ignore"):
        half = np.where(np.isfinite(low) & np.isfinite(high), 0.5 * (high - low), 0.0).max(axis=0)
    size = np.where(half > 0.0, half, np.abs(u).max(initial=0.0))
    return np.where(
        size > 0.0,
        FLATTEST * abs(problem.cost(x, u)) / (problem.steps * np.where(size > 0.0, size, 1.0) ** 2),
        0.0,
    )


def _repeated(A: np.ndarray, B: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Several steps of the same dynamics with the control held: Aʳ and (1 + A + … + Aʳ⁻¹) B."""
    A_all, B_all = np.zeros_like(A), np.zeros_like(B)
    power, total = np.zeros_like(A) + np.eye(A.shape[1]), np.zeros_like(A)
    for step in range(1, int(counts.max()) + 1):
        total, power = total + power, power @ A
        done = counts == step
        A_all[done], B_all[done] = power[done], total[done] @ B[done]
    return A_all, B_all


def _give(s: Strides, gx: np.ndarray, gu: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """s of each constraint at the first knot of each stride and at the end, (strides + 1,
    constraints).
    """
    strides, n, m = s.B.shape
    K, noise = np.zeros((strides, m, n)), np.zeros((strides, m, m))
    V = s.last
    for k in range(strides - 1, -1, -1):
        VA, VB = V @ s.A[k], V @ s.B[k]
        Qux = s.ux[k] + s.B[k].T @ VA
        Quu = s.uu[k] + s.B[k].T @ VB
        if not np.isfinite(Quu).all():
            return np.full(gx.shape[:2], np.nan)
        more = np.diag(np.maximum(s.flattest[k] - np.diag(Quu), 0.0))
        noise[k] = _inverse(Quu + more)
        K[k] = -noise[k] @ Qux
        # of what this feedback leads to: with H_xx + H_xu K instead, digits cancel where the end
        # weighs much
        closed, across = s.A[k] + s.B[k] @ K[k], s.ux[k].T @ K[k]
        V = s.xx[k] + closed.T @ V @ closed + K[k].T @ ((s.uu[k] + more) @ K[k]) + across + across.T
        V = 0.5 * (V + V.T)
    give = np.zeros(gx.shape[:2])
    P = np.zeros((n, n))
    for k in range(strides):
        both = gx[k] + gu[k] @ K[k]  # by the state, when the control answers it
        # the controls of a stride's steps are free one by one
        give[k] = ((both @ P) * both).sum(axis=1) + counts[k] * ((gu[k] @ noise[k]) * gu[k]).sum(
            axis=1
        )
        closed = s.A[k] + s.B[k] @ K[k]
        P = closed @ P @ closed.T + s.B[k] @ noise[k] @ s.B[k].T
    give[strides] = ((gx[strides] @ P) * gx[strides]).sum(axis=1)
    return give


def _interpolated(rows: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Rows at some knots, the first and the last among them, as rows at all knots."""
    at = np.arange(knots[-1] + 1)
    before = np.minimum(np.searchsorted(knots, at, side="right") - 1, len(knots) - 2)
    part = ((at - knots[before]) / np.diff(knots)[before])[:, None]
    between: np.ndarray = (1.0 - part) * rows[before] + part * rows[before + 1]
    return between


def _upwards(Q: np.ndarray) -> np.ndarray:
    """Symmetric matrices (…, n, n) with their eigenvalues made positive."""
    if not np.isfinite(Q).all():
        return Q
    values, vectors = np.linalg.eigh(0.5 * (Q + Q.swapaxes(-1, -2)))
    positive: np.ndarray = (vectors * np.abs(values)[..., None, :]) @ vectors.swapaxes(-1, -2)
    return positive


def _inverse(Q: np.ndarray) -> np.ndarray:
    """Of a symmetric matrix whose eigenvalues are made positive."""
    values, vectors = np.linalg.eigh(0.5 * (Q + Q.T))
    largest = max(float(np.abs(values).max(initial=0.0)), np.finfo(float).tiny)
    inverse: np.ndarray = (vectors / np.maximum(values, 1e-12 * largest)) @ vectors.T
    return inverse
