"""What is recorded of a knot with contacts, for the kernel that expands it (`kernels.knot`): all
but the products of matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rigidgrad.algorithms.fast.constraint_rows import Inputs
from rigidgrad.algorithms.fast.contact_dynamics import gradient_parts
from rigidgrad.algorithms.fast.contact_residuals import contact_residuals
from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.costs import Term
from rigidgrad.control.integrators import lasting
from rigidgrad.control.system import RobotSystem
from rigidgrad.control.terms.inequality import Inequality
from rigidgrad.control.terms.touching import ForceCost
from rigidgrad.kernels.knot import Knot, Place
from rigidgrad.kernels.language import Kernel
from rigidgrad.program.fuse import fuse
from rigidgrad.program.program import Program, Shape
from rigidgrad.program.recorder import record
from rigidgrad.scalars import Scalar, add, mul, sub

_TILED_FROM = (
    5000  # multiply-adds of the products from which on tiles are quicker than straight-line code
)


class Whole(NamedTuple):
    """A Quadratic with everything filled in, which may still be added to."""

    value: Scalar
    lx: list[Scalar]
    lu: list[Scalar]
    lxx: list[list[Scalar]]
    lux: list[list[Scalar]]
    luu: list[list[Scalar]]


# of a system, x, u, p: the sum of the terms of contact forces, by these, or of the others
Expand = Callable[[Any, Vector, Vector, Vector, bool], Whole]


def by_force(term: Term) -> bool:
    """Whether a term depends on the control through the contact forces alone."""
    return isinstance(term.term if isinstance(term, Inequality) else term, ForceCost)


def multiplications(system: RobotSystem, terms: bool) -> int:
    """About how many multiply-adds the products take; `terms`: whether there are any of forces."""
    assert system.held is not None
    n, rows = system.nv, sum(c.rows for c in system.held.constraints)
    whole = 2 * n + system.nu
    return n * n * rows // 2 + 2 * (n + rows) ** 2 * n // 4 + terms * rows * whole * whole // 2


def pays(system: RobotSystem, terms: bool) -> bool:
    return multiplications(system, terms) >= _TILED_FROM


def knot_kernel(
    system: RobotSystem,
    inputs: Mapping[str, Shape],
    outputs: Mapping[str, Shape],
    place: Place,
    given: Callable[[Vector], Any],
    expand: Expand,
    terms: bool,
    tail: Callable[[Any, Mapping[str, Any], Vector, Matrix, Matrix, Matrix], tuple[Any, ...]],
) -> Kernel:
    """(x, u, h, p) → F, l and L; where a and f are inputs, also `offset` and `G`, the derivatives
    of the forces (`kernels.knot`). `terms`: whether there are any of forces; `tail` (system,
    inputs, v', and its derivatives by q, v and u) gives what is kept of the dynamics.
    """
    n, m = system.nv, system.nu
    head = _head(system, inputs, place, given, expand, terms)
    rows = head.outputs.get("B", (0,))[0]

    def finish(a: dict[str, Any]) -> tuple[Any, ...]:
        s = given(a["p"])
        h, flow = lasting(s, a["h"]), 1.0 if s.touching is None else s.touching.flow
        by = [
            tuple(tuple(mul(h, y) for y in row[start : start + n]) for row in a["da"])
            for start in (0, n)
        ]
        v_v = tuple(
            tuple(add(1.0 if i == j else 0.0, y) for j, y in enumerate(row))
            for i, row in enumerate(by[1])
        )
        v_u, f_u = (
            s.by_control(tuple(tuple(mul(flow, y) for y in row) for row in X))
            for X in (a["P"], a.get("F", ()))
        )
        v_u = tuple(tuple(mul(h, y) for y in row) for row in v_u)
        kept = tail(s, a, a["v"], by[0], v_v, v_u)
        return (*kept, f_u) if rows else kept

    shapes = (
        dict(inputs)
        | {"da": (n, 2 * n), "P": (n, n), "v": (n,)}
        | ({"F": (rows, n)} if rows else {})
    )
    kept = {name: shape for name, shape in outputs.items() if name not in ("l", "L", "offset", "G")}
    last = fuse(record(shapes, kept | ({"G_u": (rows, m)} if rows else {}), finish))
    return Knot(head, last, outputs, place).kernel()


def _head(
    system: RobotSystem,
    inputs: Mapping[str, Shape],
    place: Place,
    given: Any,
    expand: Expand,
    terms: bool,
) -> Program:
    shapes: dict[str, Shape] = {}
    n, m = system.nv, system.nu
    cuts = (0, n, 2 * n, 2 * n + m)

    def evaluate(a: dict[str, Any]) -> tuple[Any, ...]:
        s = given(a["p"])
        q, v = s.split(a["x"])
        touching, tau = s.touching or Inputs(()), s.forces(a["u"])
        options: dict[str, Any] = {
            "gauge": s.gauge,
            "redundant": s.held is not None and s.held.redundant,
        }
        if "a" in inputs:
            options["at"] = a["a"], a["f"]
            s = s.with_forces(a["f"])
        parts = gradient_parts(s.canonical_model, q, v, tau, touching, s.external, **options)
        found: dict[str, Any] = {
            name: matrix
            for name, matrix in parts._asdict().items()
            if isinstance(matrix, tuple) and matrix
        }
        h = lasting(s, a["h"])
        moving = a["a"] if "a" in inputs else s.acceleration(q, v, a["u"])
        found["v"] = tuple(add(x, mul(h, y)) for x, y in zip(v, moving, strict=True))
        if "a" in inputs:
            needed, held = contact_residuals(
                s.canonical_model, q, v, a["a"], a["f"], touching, s.external, gauge=s.gauge
            )
            found["e"] = tuple(
                sub(x, mul(touching.flow, y)) for x, y in zip(needed, tau, strict=True)
            )
            if held:
                found["c"] = held
        of = expand(s, a["x"], a["u"], a["p"], False)
        row: list[Scalar] = [0.0] * place.columns
        for start, numbers in zip(place.starts, (of.lx[:n], of.lx[n:], of.lu), strict=True):
            row[start : start + len(numbers)] = numbers
        found["l"] = tuple(row)
        xu = list(zip(*of.lux, strict=True)) if of.lux else [()] * 2 * n
        whole = [(*x, *y) for x, y in zip(of.lxx, xu, strict=True)] + [
            (*x, *y) for x, y in zip(of.lux, of.luu, strict=True)
        ]
        for i in range(3):
            for j in range(3):
                block = tuple(r[cuts[j] : cuts[j + 1]] for r in whole[cuts[i] : cuts[i + 1]])
                if not terms or any(not _is_zero(x) for r in block for x in r):
                    found[f"L{i}{j}"] = block
        if terms:
            of = expand(s.by_force(), a["x"], a["u"], a["p"], True)
            found |= {"force_g": of.lu, "force_C": of.luu}
            for k, x in enumerate(of.lx):
                row[place.starts[k // n] + k % n] = add(row[place.starts[k // n] + k % n], x)
            found["l"] = tuple(row)
            if any(not _is_zero(x) for r in of.lux for x in r):
                found["force_E"] = of.lux
            if any(not _is_zero(x) for r in of.lxx for x in r):
                for i in range(2):
                    for j in range(2):
                        more = [r[cuts[j] : cuts[j + 1]] for r in of.lxx[cuts[i] : cuts[i + 1]]]
                        if any(not _is_zero(x) for r in more for x in r):
                            found[f"L{i}{j}"] = _sum(found.get(f"L{i}{j}"), more)
            for k in range(3):  # of what is a diagonal, only that
                if _is_diagonal(block := found.get(f"L{k}{k}", ())):
                    found[f"L{k}{k}"] = tuple(row[i] for i, row in enumerate(block))
        for name, value in found.items():
            shapes[name] = _shape(value)
        return tuple(found.values())

    return fuse(record(inputs, shapes, evaluate))


def _sum(
    a: Sequence[Sequence[Scalar]] | None, b: Sequence[Sequence[Scalar]]
) -> Sequence[Sequence[Scalar]]:
    return b if a is None else [[*map(add, x, y)] for x, y in zip(a, b, strict=True)]


def _is_diagonal(block: Sequence[Sequence[Scalar]]) -> bool:
    return bool(block) and all(
        _is_zero(x) for i, row in enumerate(block) for j, x in enumerate(row) if i != j
    )


def _shape(value: Any) -> Shape:
    return (len(value), len(value[0])) if isinstance(value[0], tuple | list) else (len(value),)


def _is_zero(x: Scalar) -> bool:
    return isinstance(x, float) and x == 0.0
