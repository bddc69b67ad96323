"""What the backward pass leaves, used: its factors for other right-hand sides, and states forward.

Knots of `riccati.knot` with `kept`: V (n + 1, n; v is its last row) and the factor of H_uu of every
knot, gains [K, κ]. With other l and d, g = l + Fᵀ(v' + V' d), κ = -H_uu⁻¹ g_u and v = g_x + Kᵀ g_u;
forward du = κ + K dx, dx' = F [dx, du] + d, and λ' = V' dx' + v' is the gradient of the cost-to-go.
"""

from __future__ import annotations

from rigidgrad.kernels import matrices
from rigidgrad.kernels.language import Array, Kernel, View
from rigidgrad.program.recorder import record


def another(n: int, m: int) -> Kernel:
    """A knot for another right-hand side, for a sweep from the last to the first: κ and v change,
    from the cost-to-go `after` of the next knot.
    """
    k = Kernel()
    F, l, d = k.input("F", n, n + m), k.input("l", n + m), k.input("d", n)
    after, factor = k.input("after", n + 1, n), k.input("factor", m, m)
    V, gains = k.carried("V", n + 1, n), k.carried("gains", m, n + 1)
    y, w, g = k.scratch("y", n + 1), _row(k.scratch("w", n)), _row(k.scratch("g", n + m))
    g_x, g_u = (g.part(range(1), part) for part in (range(n), range(n, n + m)))
    _with_one(k, _row(d), y)
    k.product(w, _row(y), after.matrix(n + 1, n))
    matrices.copy_rows(k, _row(l), g)
    k.product(g, w, F.matrix(n, n + m), accumulate=True)
    matrices.solve(k, factor.matrix(m, m), g_u.T, gains.matrix(m, 1, n, n + 1))
    v = V.matrix(1, n, n * n)
    matrices.copy_rows(k, g_x, v)
    k.product(v, g_u, gains.matrix(m, n, 0, n + 1), accumulate=True)
    return k


def forward(n: int, m: int) -> Kernel:
    """A knot on the way from the first to the last: the control, the next state and its λ."""
    k = Kernel()
    F, d, gains = k.input("F", n, n + m), k.input("d", n), k.input("gains", m, n + 1)
    x, after = k.input("x", n), k.input("after", n + 1, n)
    u, following, lam = k.output("u", m), k.output("next", n), k.output("lam", n)
    y, z = k.scratch("y", n + 1), k.scratch("z", n + m)
    _with_one(k, _row(x), y)
    matrices.copy_rows(k, _row(x), z.at(0, n))
    k.product(z.matrix(m, 1, n), gains.matrix(m, n + 1), y.matrix(n + 1, 1))
    matrices.copy_rows(k, z.at(n, m), _row(u))
    matrices.copy_rows(k, _row(d), _row(following))
    k.product(following.matrix(n, 1), F.matrix(n, n + m), z.matrix(n + m, 1), accumulate=True)
    _with_one(k, _row(following), y)
    k.product(_row(lam), _row(y), after.matrix(n + 1, n))
    return k


def _with_one(k: Kernel, x: View, y: Array) -> None:
    """y = [x, 1]."""
    n = x.shape[1]
    one = record({"x": (n,)}, {"y": (n + 1,)}, lambda v: ((*v["x"], 1.0),))
    k.call(one, {"x": x}, {"y": _row(y)})


def _row(array: Array) -> View:
    return array.matrix(1, array.size)
