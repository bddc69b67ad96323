"""The Schur complement of an LQ problem's optimality conditions, knot by knot (Plancher 2022,
(2.13), (6.4)-(6.8), with one sign throughout: S = C G⁻¹ Cᵀ is positive definite).

Row k of C is [… -A -B (of the knot before) I (of its own) …], and G has Q and R of all knots on its
diagonal, without products of states and controls. So S has, with A, B, Q, R of the knot before, θ_k
= A Q⁻¹ Aᵀ + B R⁻¹ Bᵀ + Q_k⁻¹,    φ_k = -A Q⁻¹ on its diagonal and below it, and the right-hand side
is γ = d + C G⁻¹ g. Every knot has parts of its own row and of the next one; a row is put together
from those of two knots.

S is applied as the product that it is, because the sums in θ lose what float32 needs: a row of C
G⁻¹ is W_kᵀ, with W_k = [-[A Q⁻¹, B R⁻¹]ᵀ; Q_k⁻¹], z + n rows of n numbers, on what is left of Cᵀ in
two neighbouring knots. The preconditioner, the symmetric stair, is kept by columns as well: Φ_k =
[its block below the diagonal, transposed; θ_k⁻¹; the one above, transposed].
"""

from __future__ import annotations

from rigidgrad.kernels import matrices
from rigidgrad.kernels.language import Kernel, View
from rigidgrad.kernels.riccati import whole
from rigidgrad.program.program import Program
from rigidgrad.program.recorder import record


def knot(n: int, m: int, *, in_place: bool = False) -> Kernel:
    """From F = [A, B], the gradient g and the Hessian H of a knot: `Q_inverse`, its part of W_k,
    and `own` = Q⁻¹ left, of what is `left` of the gradient, g - Cᵀλ, with the multipliers `lam` of
    this knot and `after` of the next. But for the last knot, where `end` is positive: `minus`, its
    part of W_{k+1}, `R_inverse`, and for the next row `theta` = A Q⁻¹ Aᵀ + B R⁻¹ Bᵀ and `ahead` =
    minusᵀ left.

    Q and R have ρ added; `fine` is 0 unless they are positive definite, with pivots beyond
    `singular` times their diagonal, else 1. With `in_place`, ρ is added in H.
    """
    k = Kernel()
    z, x, u = n + m, range(n), range(n, n + m)
    F, g = whole(k.input("F", n, z)), whole(k.input("g", z))
    H = whole(k.carried("H", z, z) if in_place else k.input("H", z, z))
    lam, after = whole(k.input("lam", n)), whole(k.input("after", n))
    rho, singular, end = (k.input(name, 1).at(0, 1) for name in ("rho", "singular", "end"))
    Qi, own = whole(k.output("Q_inverse", n, n)), whole(k.output("own", n))
    Ri, minus = whole(k.output("R_inverse", m, m)), whole(k.output("minus", z, n))
    theta, ahead = whole(k.output("theta", n, n)), whole(k.output("ahead", n))
    left, fine = whole(k.output("left", z)), k.output("fine", 1).at(0, 1)
    Q, R = H.part(x, x), H.part(u, u)
    k.call(_ones(1), {}, {"y": fine})
    matrices.copy_rows(k, g, left)
    matrices.add_rows(k, lam, left.part(range(1), x), -1.0)
    with k.along(1, unless=end):
        k.product(left, after, F, accumulate=True)
    factor_Q = _inverse(k, "Q", Q if in_place else _copy(k, "Q", Q), rho, singular, fine, Qi)
    k.product(own.T, Qi, left.part(range(1), x).T)
    with k.along(1, unless=end):
        factor_R = _inverse(k, "R", R if in_place else _copy(k, "R", R), rho, singular, fine, Ri)
        _next_row(k, F.part(x, x), F.part(x, u), factor_Q, factor_R, minus, theta)
        k.product(ahead.T, minus.T, left.T)
    return k


def blocks(n: int, m: int, *, cross: bool, singular: float) -> Kernel:
    """The matrices of a knot alone, for any right-hand sides, with ρ of Q and R each. With `cross`
    there are products of states and controls, xᵀSᵀu: du = du' - R⁻¹ (S dx + r) takes them out and
    leaves `condensed` = A - B R⁻¹ S and Q - Sᵀ R⁻¹ S; `RS` is R⁻¹ S. `fine` has two numbers, 0
    where Q or R is not positive definite.
    """
    k = Kernel()
    A, B = whole(k.input("A", n, n)), whole(k.input("B", n, m))
    Q, R = whole(k.input("Q", n, n)), whole(k.input("R", m, m))
    rho_Q, rho_R = (k.input(name, 1).at(0, 1) for name in ("rho_Q", "rho_R"))
    Qi, Ri = whole(k.output("Q_inverse", n, n)), whole(k.output("R_inverse", m, m))
    minus, theta = whole(k.output("minus", n + m, n)), whole(k.output("theta", n, n))
    fine, own = k.output("fine", 2), _copy(k, "Q", Q)
    k.call(_ones(2), {}, {"y": fine.at(0, 2)})
    factor_R = _inverse(k, "R", _copy(k, "R", R), rho_R, singular, fine.at(1, 1), Ri)
    if cross:
        S, RS = whole(k.input("S", m, n)), whole(k.output("RS", m, n))
        condensed = whole(k.output("condensed", n, n))
        moved, half = whole(k.scratch("minus RS", m, n)), whole(k.scratch("half S", m, n))
        matrices.solve(k, factor_R, S, moved, half)
        matrices.copy_rows(k, moved, RS, -1.0)
        k.product(own, half.T, half, -1.0, accumulate=True, symmetric=True)
        matrices.copy_rows(k, A, condensed)
        k.product(condensed, B, moved, accumulate=True)
        A = condensed
    factor_Q = _inverse(k, "Q", own, rho_Q, singular, fine.at(0, 1), Qi)
    _next_row(k, A, B, factor_Q, factor_R, minus, theta)
    return k


def _copy(k: Kernel, name: str, M: View) -> View:
    found = whole(k.scratch(f"own {name}", *M.shape))
    matrices.copy_rows(k, M, found)
    return found


def _inverse(
    k: Kernel, name: str, M: View, rho: View, singular: float | View, fine: View, result: View
) -> View:
    """The factor of M, to which ρ is added, and its inverse."""
    factor = whole(k.scratch(f"factor {name}", *M.shape))
    matrices.add_to_diagonal(k, M, rho)
    matrices.factorize(k, M, factor, fine, singular)
    matrices.invert(k, factor, result)
    return factor


def _next_row(
    k: Kernel, A: View, B: View, factor_Q: View, factor_R: View, minus: View, theta: View
) -> None:
    """What a knot has of the row behind it: -[A Q⁻¹, B R⁻¹]ᵀ and A Q⁻¹ Aᵀ + B R⁻¹ Bᵀ."""
    n, m = B.shape
    x, u = range(n), range(n, n + m)
    half_A, half_B = whole(k.scratch("half A", n, n)), whole(k.scratch("half B", m, n))
    matrices.solve(k, factor_Q, A.T, minus.part(x, x), half_A)
    matrices.solve(k, factor_R, B.T, minus.part(u, x), half_B)
    k.product(theta, half_A.T, half_A, symmetric=True)
    k.product(theta, half_B.T, half_B, accumulate=True, symmetric=True)


def _ones(n: int) -> Program:
    return record({}, {"y": (n,)}, lambda v: ((1.0,) * n,))


def row(n: int) -> Kernel:
    """A row from the parts of its knot and of the one before, which are zero for the first: its
    right-hand side `gamma`, with the defect d, and `inverse` = θ⁻¹; `fine` becomes 0 unless θ is
    positive definite.
    """
    k = Kernel()
    theta, Qi = whole(k.input("theta", n, n)), whole(k.input("Q_inverse", n, n))
    parts = [whole(k.input(name, n)) for name in ("d", "own", "ahead")]
    gamma, inverse = whole(k.output("gamma", n)), whole(k.output("inverse", n, n))
    fine = k.carried("fine", 1).at(0, 1)
    S, factor = whole(k.scratch("S", n, n)), whole(k.scratch("factor", n, n))
    matrices.copy_rows(k, parts[0], gamma)
    for part in parts[1:]:
        matrices.add_rows(k, part, gamma)
    matrices.copy_rows(k, theta, S)
    matrices.add_rows(k, Qi, S)
    matrices.factorize(k, S, factor, fine)
    matrices.invert(k, factor, inverse)
    return k


def stair(n: int) -> Kernel:
    """Blocks of the symmetric stair beside the diagonal, -θ_k⁻¹ φ_k θ_{k-1}⁻¹, from `minus` = φ_kᵀ
    and the inverses here and `before`: `upper` of the row before, `lower` of this row, both as the
    columns of Φ have them.
    """
    k = Kernel()
    minus, here, before = (whole(k.input(name, n, n)) for name in ("minus", "inverse", "before"))
    upper, lower = whole(k.output("upper", n, n)), whole(k.output("lower", n, n))
    T = whole(k.scratch("T", n, n))
    k.product(T, minus.T, before, -1.0)
    k.product(upper, here, T)
    k.product(lower, T.T, here)
    return k


def recover(n: int, m: int) -> Kernel:
    """The step [dx, du] of a knot, G⁻¹ (Cᵀδ - left), from the change of the multipliers of this
    knot and of the next; without du for the last one, where `end` is positive.
    """
    k = Kernel()
    z, x, u = n + m, range(n), range(n, n + m)
    F, left = whole(k.input("F", n, z)), whole(k.input("left", z))
    Qi, Ri = whole(k.input("Q_inverse", n, n)), whole(k.input("R_inverse", m, m))
    delta, after = whole(k.input("delta", n)), whole(k.input("after", n))
    end, step = k.input("end", 1).at(0, 1), whole(k.output("step", z))
    v = whole(k.scratch("v", z))
    matrices.copy_rows(k, left, v, -1.0)
    matrices.add_rows(k, delta, v.part(range(1), x))
    k.call(record({}, {"y": (m,)}, lambda _: ((0.0,) * m,)), {}, {"y": step.part(range(1), u)})
    with k.along(1, unless=end):
        k.product(v, after, F, -1.0, accumulate=True)
        k.product(step.part(range(1), u).T, Ri, v.part(range(1), u).T)
    k.product(step.part(range(1), x).T, Qi, v.part(range(1), x).T)
    return k


def propagate(n: int, m: int) -> Kernel:
    """The states of a step that its controls lead to: dx of this knot goes into `step`, and dx' = F
    [dx, du] + d on to the next; with the multipliers' rounding they would break the linearised
    dynamics.
    """
    k = Kernel()
    z = n + m
    F, d = whole(k.input("F", n, z)), whole(k.input("d", n))
    step, dx = whole(k.carried("step", z)), whole(k.carried("dx", n))
    both, after = whole(k.scratch("both", z)), whole(k.scratch("after", n))
    x, u = (range(n), range(n, z))
    matrices.copy_rows(k, dx, step.part(range(1), x))
    matrices.copy_rows(k, dx, both.part(range(1), x))
    matrices.copy_rows(k, step.part(range(1), u), both.part(range(1), u))
    matrices.copy_rows(k, d, after)
    k.product(after.T, F, both.T, accumulate=True)
    matrices.copy_rows(k, after, dx)
    return k
