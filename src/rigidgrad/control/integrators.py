"""One time step, over any scalar, with its exact Jacobians in the tangent space.

Euler's two methods on a robot use the analytical gradient of forward dynamics. All others are
differentiated as programs. On quaternion joints the stages of RK3 and RK4 add velocities of
different frames, which makes them second-order there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rigidgrad.algorithms import manifold, tangent_maps
from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.remembering import Remembering
from rigidgrad.control.system import CustomSystem, RobotSystem, System
from rigidgrad.control.timed import Timed
from rigidgrad.errors import unknown_name
from rigidgrad.program.differentiate import differentiate
from rigidgrad.program.recorder import record
from rigidgrad.scalars import Scalar, add, mul, sub

# stages (coefficients of the earlier rates) and final weights
TABLEAUS: dict[str, tuple[tuple[tuple[float, ...], ...], tuple[float, ...]]] = {
    "euler": (((),), (1.0,)),
    "midpoint": (((), (0.5,)), (0.0, 1.0)),
    "rk3": (((), (0.5,), (-1.0, 2.0)), (1 / 6, 2 / 3, 1 / 6)),
    "rk4": (((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
}
METHODS = ("euler", "semi_implicit_euler", "midpoint", "rk3", "rk4")


class Linearized(NamedTuple):
    """x' = f(x, u) and its derivatives: A (ndx, ndx), B (ndx, nu)."""

    x: Vector
    A: Matrix
    B: Matrix


def check_method(method: str) -> str:
    if not isinstance(method, str) or method not in METHODS:
        raise unknown_name("integrator", method, METHODS)
    return method


def step(system: System, method: str, x: Vector, u: Vector, h: Scalar) -> Vector:
    """The state after h seconds; of discrete dynamics simply the next one."""
    if isinstance(system, Remembering):
        return (*step(system.inner, method, system.state(x), u, h), *system.kept(x, u))
    if isinstance(system, Timed):
        lasts = mul(h, system.stretch(x, u))
        after = step(system.inner, method, system.state(x), system.control(u), lasts)
        return (*after, *system.kept(x, u))
    if isinstance(system, CustomSystem) and system.discrete:
        return system.rate(x, u)
    if isinstance(system, RobotSystem) and method == "semi_implicit_euler":
        q, v = system.split(x)
        v = _along(v, lasting(system, h), system.acceleration(q, v, u))
        return (*manifold.integrate(system.model, q, tuple(mul(h, w) for w in v)), *v)
    if method == "semi_implicit_euler":  # of what is no mechanical system, nothing can be implicit
        method = "euler"
    stages, weights = TABLEAUS[method]
    rates: list[Vector] = []
    for row in stages:
        rates.append(_rate(system, system.plus(x, _sum(row, rates, h)) if any(row) else x, u))
    return system.plus(x, _sum(weights, rates, h))


def linearize(system: System, method: str, x: Vector, u: Vector, h: Scalar) -> Linearized:
    """The step with its Jacobians."""
    if isinstance(system, Remembering):
        return _linearize_remembering(system, method, x, u, h)
    if isinstance(system, Timed):
        return _linearize_timed(system, method, x, u, h)
    if isinstance(system, RobotSystem) and method in ("euler", "semi_implicit_euler"):
        return _linearize_euler(system, x, u, h, implicit=method == "semi_implicit_euler")
    return _linearize_program(system, method, x, u, h)[0]


def _linearize_remembering(
    system: Remembering, method: str, x: Vector, u: Vector, h: Scalar
) -> Linearized:
    """[x, u₋]' = [f(x, u), u], or, in an impact, with u₋ kept."""
    m, n = system.nu, system.inner.ndx
    y, A, B = linearize(system.inner, method, system.state(x), u, h)
    still = system.at_rest
    by_old, by_new = (
        tuple(tuple(part if i == j else 0.0 for j in range(m)) for i in range(m))
        for part in (still, sub(1.0, still))
    )
    return Linearized(
        (*y, *system.kept(x, u)),
        (*((*row, *(0.0,) * m) for row in A), *((*(0.0,) * n, *row) for row in by_old)),
        (*B, *by_new),
    )


def _linearize_timed(system: Timed, method: str, x: Vector, u: Vector, h: Scalar) -> Linearized:
    """[x, τ]' = [f(x, u; h σ), τ'], where σ and τ' are linear in τ and w."""
    lasts = mul(h, system.stretch(x, u))
    (y, A, B), by_time = linearize_in_time(
        system.inner, method, system.state(x), system.control(u), lasts
    )
    by_state, by_new = system.stretch_gradient()
    kept_by_state, kept_by_new = system.kept_gradient()
    slope = tuple(mul(h, e) for e in by_time)
    n, m = system.inner.ndx, system.inner.nu
    return Linearized(
        (*y, *system.kept(x, u)),
        (
            *((*row, *(mul(e, b) for b in by_state)) for row, e in zip(A, slope, strict=True)),
            *((*(0.0,) * n, *row) for row in kept_by_state),
        ),
        (
            *((*row, *(mul(e, b) for b in by_new)) for row, e in zip(B, slope, strict=True)),
            *((*(0.0,) * m, *row) for row in kept_by_new),
        ),
    )


def linearize_in_time(
    system: System, method: str, x: Vector, u: Vector, h: Scalar
) -> tuple[Linearized, Vector]:
    """The step with its Jacobians, and its derivative by h (ndx,)."""
    if isinstance(system, Remembering):
        _, by_time = linearize_in_time(system.inner, method, system.state(x), u, h)
        return _linearize_remembering(system, method, x, u, h), (*by_time, *(0.0,) * system.nu)
    if not isinstance(system, RobotSystem) or method not in ("euler", "semi_implicit_euler"):
        return _linearize_program(system, method, x, u, h, in_time=True)
    implicit = method == "semi_implicit_euler"
    q, v = system.split(x)
    a = system.acceleration_gradient(q, v, u)[0]
    if implicit:  # q' = q ⊕ h v' with v' = v + h a
        used = _along(v, lasting(system, h), a)
        moved = tuple(add(y, mul(h, z)) for y, z in zip(used, a, strict=True))
    else:
        used = moved = v
    jacobian = tangent_maps.right_jacobian(system.model, tuple(mul(h, w) for w in used))
    columns = tangent_maps.block_times(jacobian, tuple((w,) for w in moved))
    return _linearize_euler(system, x, u, h, implicit), (*(c for (c,) in columns), *a)


def _rate(system: System, x: Vector, u: Vector) -> Vector:
    if isinstance(system, RobotSystem):
        q, v = system.split(x)
        return (*v, *system.acceleration(q, v, u))
    assert isinstance(system, CustomSystem)
    return system.rate(x, u)


def lasting(system: RobotSystem, h: Scalar) -> Scalar:
    """What accelerations are multiplied by: the time step; in an impact, which lasts no time, they
    are changes of velocity.
    """
    return add(h, system.at_rest)


def _along(v: Vector, h: Scalar, a: Vector) -> Vector:
    return tuple(add(x, mul(h, y)) for x, y in zip(v, a, strict=True))


def _sum(weights: tuple[float, ...], rates: list[Vector], h: Scalar) -> Vector:
    result: list[Scalar] = [0.0] * len(rates[0])
    for w, rate in zip(weights, rates, strict=True):
        result = [add(r, mul(w, x)) for r, x in zip(result, rate, strict=True)]
    return tuple(mul(h, r) for r in result)


def is_structured(system: System, method: str) -> bool:
    """Whether a step is one of Euler's on a robot without contacts whose coordinates are a vector
    space, so that ∂v'/∂(q, v, u) tells all.
    """
    return (
        isinstance(system, RobotSystem)
        and system.held is None
        and system.flat
        and method in ("euler", "semi_implicit_euler")
    )


def free_base(system: System, method: str) -> int | None:
    """Freedoms of a first joint that alone keeps a robot's coordinates from being a vector space,
    where positions move by their new velocities; 0 if they are one, None where more joints do.
    """
    if not isinstance(system, RobotSystem) or method != "semi_implicit_euler":
        return None
    if system.flat:
        return 0
    first, *others = (j for j in system.model.joints if not j.is_mimic)
    return first.nv if first.v == 0 and all(j.nq == j.nv for j in others) else None


def base_maps(system: RobotSystem, h: Scalar, after: Vector) -> tuple[Matrix, Matrix]:
    """How the position of a free base changes with itself and, in a step of h seconds, with its new
    velocity.
    """
    move = tuple(mul(h, w) for w in after)
    return tangent_maps.transport(system.model, move)[0], _scaled(
        h, tangent_maps.right_jacobian(system.model, move)[0]
    )


def velocity_gradient(
    system: RobotSystem, x: Vector, u: Vector, h: Scalar
) -> tuple[Vector, Matrix, Matrix, Matrix]:
    """v' = v + h a with its derivatives by q, v and u."""
    q, v = system.split(x)
    a, a_q, a_v, a_u = system.acceleration_gradient(q, v, u)
    h = lasting(system, h)
    v_v = tuple(
        tuple(add(1.0 if i == j else 0.0, mul(h, y)) for j, y in enumerate(row))
        for i, row in enumerate(a_v)
    )
    return _along(v, h, a), _scaled(h, a_q), v_v, _scaled(h, a_u)


def _linearize_euler(
    system: RobotSystem, x: Vector, u: Vector, h: Scalar, implicit: bool
) -> Linearized:
    """v' = v + h a, q' = q ⊕ h v or, semi-implicitly, q ⊕ h v'."""
    q, v = system.split(x)
    v_next, v_q, v_v, v_u = velocity_gradient(system, x, u, h)
    A, B = moved_with_velocity(system, h, v_next if implicit else v, v_q, v_v, v_u, implicit)
    return Linearized(
        (
            *manifold.integrate(
                system.model, q, tuple(mul(h, w) for w in (v_next if implicit else v))
            ),
            *v_next,
        ),
        A,
        B,
    )


def moved_with_velocity(
    system: RobotSystem,
    h: Scalar,
    used: Vector,
    v_q: Matrix,
    v_v: Matrix,
    v_u: Matrix,
    implicit: bool,
) -> tuple[Matrix, Matrix]:
    """A and B of one of Euler's steps, from the derivatives of v' and the velocity `used` to move
    by: v' if `implicit`, else v.
    """
    n = system.nv
    move = tuple(mul(h, w) for w in used)
    eye = tuple(tuple(1.0 if i == j else 0.0 for j in range(n)) for i in range(n))
    zero_q, zero_u = ((0.0,) * n,) * n, ((0.0,) * system.nu,) * n
    by = (v_q, v_v, v_u) if implicit else (zero_q, eye, zero_u)
    jacobian = tangent_maps.right_jacobian(system.model, move)
    moved = [tangent_maps.block_times(jacobian, _scaled(h, m)) for m in by]
    carried = tangent_maps.block_times(tangent_maps.transport(system.model, move), eye)
    q_q = tuple(
        tuple(add(y, z) for y, z in zip(*rows, strict=True))
        for rows in zip(carried, moved[0], strict=True)
    )
    top = tuple((*y, *z) for y, z in zip(q_q, moved[1], strict=True))
    bottom = tuple((*y, *z) for y, z in zip(v_q, v_v, strict=True))
    return top + bottom, tuple(moved[2]) + v_u


def _scaled(h: Scalar, matrix: Matrix) -> Matrix:
    return tuple(tuple(mul(h, y) for y in row) for row in matrix)


def _linearize_program(
    system: System, method: str, x: Vector, u: Vector, h: Scalar, in_time: bool = False
) -> tuple[Linearized, Vector]:
    """Differentiates the recorded step by perturbations dx and du, at 0; `in_time`: by h, too."""

    def perturbed(values: dict[str, Any]) -> tuple[Any, ...]:
        own = system.given(values["inputs"])
        moved = step(
            own,
            method,
            system.plus(values["x"], values["dx"]),
            _added(values["u"], values["du"]),
            values["h"],
        )
        return (system.minus(moved, values["y"]),)

    shapes = {
        "x": (system.nx,),
        "u": (system.nu,),
        "h": (),
        "y": (system.nx,),
        "dx": (system.ndx,),
        "du": (system.nu,),
        "inputs": (system.inputs,),
    }
    recorded = record(shapes, {"e": (system.ndx,)}, perturbed)
    jacobian = differentiate(recorded, inputs=["dx", "du", *(["h"] if in_time else [])])
    y = step(system, method, x, u, h)
    zeros = {"dx": (0.0,) * system.ndx, "du": (0.0,) * system.nu}
    A, B, *by_time = jacobian.interpret(
        {"x": x, "u": u, "h": h, "y": y, "inputs": system.given_inputs} | zeros
    )
    return Linearized(y, A, B), by_time[0] if in_time else ()


def _added(u: Vector, du: Vector) -> Vector:
    return tuple(add(a, b) for a, b in zip(u, du, strict=True))
