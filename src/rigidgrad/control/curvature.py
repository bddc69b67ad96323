"""Second derivatives of a time step, weighted: of vᵀ (f(x ⊕ dx, u + du) ⊖ f(x, u)) by (dx, du),
over any scalar.
"""

from __future__ import annotations

from typing import Any

from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.integrators import is_structured, step
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.program.differentiate import differentiate
from rigidgrad.program.recorder import record
from rigidgrad.scalars import Scalar, add, mul, neg, total


def curvature(system: System, method: str, x: Vector, u: Vector, h: Scalar, v: Vector) -> Matrix:
    """(ndx + nu, ndx + nu)."""
    if is_structured(system, method):
        assert isinstance(system, RobotSystem)
        w = tuple(mul(h, b) for b in v[system.nv :])
        if method == "semi_implicit_euler":
            w = tuple(add(a, mul(h, mul(h, b))) for a, b in zip(w, v[: system.nv], strict=True))
        return _of_acceleration(system, x, u, w)
    return _of_program(system, method, x, u, h, v)


def _of_acceleration(system: RobotSystem, x: Vector, u: Vector, w: Vector) -> Matrix:
    """Of wᵀa(q, v, u), which is all that bends in a step of Euler's.

    With μ = M⁻¹w and y = (q, v, a), differentiating inverse dynamics ID(q, v, a(q, v, u)) = Bu
    twice gives -y_zᵀ (μᵀID)_yy y_z: second derivatives of inverse dynamics, weighted, are far
    shorter than those of forward dynamics.
    """
    n = system.nv
    q, v = system.split(x)
    a, a_q, a_v, a_u = system.acceleration_gradient(q, v, u)
    H = system.force_hessian(q, v, a, system.weigh_acceleration(q, w))
    size = 2 * n + system.nu
    by_z = [(*a_q[i], *a_v[i], *a_u[i]) for i in range(n)]
    # of (q, v, a) only the last depends on all of z; it enters inverse dynamics linearly, and does
    # not meet v there
    mixed = [
        [total(mul(H.dadq[i][r], by_z[i][c]) for i in range(n)) for c in range(size)]
        for r in range(n)
    ]

    def own(r: int, c: int) -> Scalar:
        """Of (q, v) alone."""
        if max(r, c) >= 2 * n:
            return 0.0
        if r >= n:
            return H.dvdv[r - n][c - n] if c >= n else H.dqdv[c][r - n]
        return H.dqdv[r][c - n] if c >= n else H.dqdq[r][c]

    rows = []
    for r in range(size):
        row = []
        for c in range(size):
            row.append(
                neg(total([own(r, c), *(mixed[x][y] for x, y in ((r, c), (c, r)) if x < n)]))
            )
        rows.append(tuple(row))
    return tuple(rows)


def _of_program(system: System, method: str, x: Vector, u: Vector, h: Scalar, v: Vector) -> Matrix:
    """By differentiating the recorded step twice."""
    n, m = system.ndx, system.nu

    def weighted(a: dict[str, Any]) -> tuple[Any, ...]:
        moved = step(
            system.given(a["inputs"]),
            method,
            system.plus(a["x"], a["d"][:n]),
            tuple(map(add, a["u"], a["d"][n:])),
            a["h"],
        )
        return (total(map(mul, a["v"], system.minus(moved, a["y"]))),)

    shapes: dict[str, tuple[int, ...]] = {
        "x": (system.nx,),
        "u": (m,),
        "h": (),
        "v": (n,),
        "y": (system.nx,),
        "d": (n + m,),
        "inputs": (system.inputs,),
    }
    first = differentiate(record(shapes, {"e": ()}, weighted), inputs=["d"])
    y = step(system, method, x, u, h)
    H: Matrix
    (H,) = differentiate(first, inputs=["d"]).interpret(
        {
            "x": x,
            "u": u,
            "h": h,
            "v": v,
            "y": y,
            "d": (0.0,) * (n + m),
            "inputs": system.given_inputs,
        }
    )
    return H
