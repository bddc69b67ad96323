"""Inverse dynamics through contacts: forces inside their friction cones, and joint forces, that
realise an acceleration with the least effort.

With w = M a + c - external forces, what all forces together must be, J the contacts' Jacobian, D
the directions that motors drive and U those that nothing drives, both orthonormal,

    τ = DᵀD (w - Jᵀf),        r = UᵀU (w - Jᵀf):        the least of ½ω |r|² + ½ |τ|² + ½ε |f|²
    for f in the cones.

r is what cannot be realised. ω is so large that effort hardly trades against it; ε shares forces
that cost no effort, and makes them unique. ε = 1/ω, beside w and the mean square of J's rows. A
cone about the normal n is |f_t| ≤ μ f_n. Its unknowns are f_n and f_t / μ, or μ f_n and f_t, so
that no column is large; without friction f_n alone. Moments of surfaces, and forces of loops, are
free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rigidgrad.algorithms.fast import cone_program
from rigidgrad.algorithms.fast.cone_program import Blocks, Iterate
from rigidgrad.algorithms.fast.constraint_rows import Inputs
from rigidgrad.algorithms.fast.contact_dynamics import contact_jacobian
from rigidgrad.algorithms.fast.gauge import Gauge
from rigidgrad.algorithms.fast.newton_euler import newton_euler
from rigidgrad.algorithms.joints import External, Matrix, Vector
from rigidgrad.algorithms.results import ContactInverseDynamics
from rigidgrad.model.contacts import Constraint, Grip
from rigidgrad.model.model import Model
from rigidgrad.scalars import Scalar, add, div, less, mul, select, sqrt, sub, total

SMALL = 1e-6  # ε, and 1/ω: what effort counts beside the residual, and forces beside effort
_ROUNDINGS = 256.0  # but at least so many roundings: 3e-5 in float32
_NOTHING = 1e-30  # beside which squares of forces and lengths are divided
_AXES = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


class Posed(NamedTuple):
    """A state's cone program, in units of |w| and of J's rows, and what its solution is turned into
    forces with.
    """

    program: cone_program.Program
    w: Vector
    pushes: Matrix  # for each unknown, the generalised force of it
    size: Scalar  # |w|
    unit: Scalar  # of contact forces
    active: Vector  # of each unknown


class Layout(NamedTuple):
    """For each unknown, what it adds to rows of f; which of them lie in cones together; and the
    constraint of each.
    """

    parts: tuple[dict[int, float], ...]
    blocks: Blocks
    owners: tuple[int, ...]


def layout(constraints: Sequence[Constraint], grip: Grip) -> Layout:
    parts: list[dict[int, float]] = []
    blocks: list[tuple[int, ...]] = []
    owners: list[int] = []
    row = 0
    for k, (c, cone) in enumerate(zip(constraints, grip.cones, strict=True)):
        before = len(parts)
        if cone:
            friction, normal = cone
            along, across = 1.0 / max(1.0, friction), min(1.0, friction)
            axes = [(along, normal), *((across, t) for t in tangents(normal))][
                : 3 if friction else 1
            ]
            blocks.append(tuple(range(before, before + len(axes))))
            parts += [{row + i: scale * x for i, x in enumerate(axis) if x} for scale, axis in axes]
        else:
            parts += [{row + i: 1.0} for i in range(3)]
        parts += [{row + i: 1.0} for i in range(3, c.rows)]
        owners += [k] * (len(parts) - before)
        row += c.rows
    return Layout(tuple(parts), tuple(blocks), tuple(owners))


def tangents(normal: Sequence[float]) -> tuple[tuple[float, ...], ...]:
    """Two unit vectors that are orthogonal to a normal and to each other."""
    nx, ny, nz = normal
    least = min(range(3), key=lambda i: abs(normal[i]))
    ex, ey, ez = _AXES[least]
    first = (ny * ez - nz * ey, nz * ex - nx * ez, nx * ey - ny * ex)
    length = math.hypot(*first)
    fx, fy, fz = (x / length for x in first)
    return (fx, fy, fz), (ny * fz - nz * fy, nz * fx - nx * fz, nx * fy - ny * fx)


def posed(
    model: Model,
    q: Vector,
    v: Vector,
    a: Vector,
    inputs: Inputs,
    external: External | None = None,
    *,
    grip: Grip,
    gauge: Gauge | None = None,
) -> Posed:
    shape = layout(inputs.constraints, grip)
    w = newton_euler(model, q, v, a, external)
    J = contact_jacobian(model, q, inputs, gauge=gauge)
    square = total(mul(x, x) for line in J for x in line)
    lever = sqrt(_at_least(mul(1.0 / max(len(J), 1), square), _NOTHING))
    size = sqrt(_at_least(total(mul(x, x) for x in w), _NOTHING))
    n, rounding = len(shape.parts), _rounding(size)
    small = _at_least(mul(_ROUNDINGS, rounding), SMALL)
    pushes = tuple(
        tuple(div(total(mul(x, J[i][j]) for i, x in part.items()), lever) for j in range(model.nv))
        for part in shape.parts
    )
    active = tuple(1.0 if inputs.active is None else inputs.active[k] for k in shape.owners)
    asked = [div(x, size) for x in w]
    driven = [[_dot(line, push) for push in pushes] for line in grip.driven]
    efforts = [_dot(line, asked) for line in grip.driven]
    H: list[list[Scalar]] = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            H[i][j] = H[j][i] = total(mul(line[i], line[j]) for line in driven)
        # what does not hold is pushed to zero
        H[i][i] = add(
            add(H[i][i], mul(small, sum(x * x for x in shape.parts[i].values()))),
            sub(1.0, active[i]),
        )
    g = [
        sub(0.0, total(mul(line[i], x) for line, x in zip(driven, efforts, strict=True)))
        for i in range(n)
    ]
    for block in shape.blocks:
        g[block[0]] = add(g[block[0]], sub(1.0, active[block[0]]))
    A = tuple(tuple(_dot(line, push) for push in pushes) for line in grip.undriven)
    b = tuple(_dot(line, asked) for line in grip.undriven)
    program = cone_program.Program(tuple(map(tuple, H)), tuple(g), A, b, small, rounding)
    return Posed(program, w, pushes, size, div(size, lever), active)


def solution(
    p: Posed, x: Iterate, rows: int, shape: Layout, grip: Grip
) -> ContactInverseDynamics[Vector]:
    force: list[Scalar] = [0.0] * rows
    for part, z, active in zip(shape.parts, x.z, p.active, strict=True):
        for i, k in part.items():
            force[i] = add(force[i], mul(mul(k, active), mul(p.unit, z)))
    rest = [
        sub(k, mul(p.size, total(mul(z, push[j]) for z, push in zip(x.z, p.pushes, strict=True))))
        for j, k in enumerate(p.w)
    ]
    solved = (
        cone_program.is_solved(p.program, x.error)
        if shape.parts
        else select(less(p.size, math.inf), 1.0, 0.0)
    )
    return ContactInverseDynamics(
        _projected(grip.driven, rest), tuple(force), _projected(grip.undriven, rest), solved
    )


def contact_inverse_dynamics(
    model: Model,
    q: Vector,
    v: Vector,
    a: Vector,
    inputs: Inputs,
    external: External | None = None,
    *,
    grip: Grip,
    gauge: Gauge | None = None,
) -> ContactInverseDynamics[Vector]:
    """τ (nv), the forces of all constraints in world axes, the generalised force that is missing
    (nv), and 1 where these are optimal, else 0.
    """
    shape = layout(inputs.constraints, grip)
    p = posed(model, q, v, a, inputs, external, grip=grip, gauge=gauge)
    x = cone_program.start(len(shape.parts), len(grip.undriven), shape.blocks)
    going: Scalar = 1.0
    for _ in range(cone_program.ROUNDS if shape.parts else 0):
        new, sound = cone_program.one_round(p.program, x, shape.blocks)
        going = mul(going, sound)
        x = Iterate(*(_taken(going, there, here) for there, here in zip(new, x, strict=True)))
        going = mul(going, sub(1.0, cone_program.is_done(p.program, x.error)))
    return solution(p, x, inputs.rows, shape, grip)


def _taken(condition: Scalar, there: Any, here: Any) -> Any:
    if isinstance(there, tuple):
        return tuple(_taken(condition, x, y) for x, y in zip(there, here, strict=True))
    return select(less(0.5, condition), there, here)


def _projected(directions: Matrix, x: Sequence[Scalar]) -> Vector:
    """The part of x along orthonormal directions."""
    along = [_dot(line, x) for line in directions]
    return tuple(
        total(mul(line[j], k) for line, k in zip(directions, along, strict=True))
        for j in range(len(x))
    )


def _rounding(x: Scalar) -> Scalar:
    """The rounding of numbers like x, which is not negative: 3 (4/3 - 1) is not 1."""
    three = add(3.0, select(less(x, 0.0), x, 0.0))
    off = sub(mul(three, sub(div(4.0, three), 1.0)), 1.0)
    return select(less(off, 0.0), sub(0.0, off), off)


def _at_least(x: Scalar, least: float) -> Scalar:
    return select(less(x, least), least, x)


def _dot(x: Sequence[Scalar], y: Sequence[Scalar]) -> Scalar:
    return total(mul(a, b) for a, b in zip(x, y, strict=True))
