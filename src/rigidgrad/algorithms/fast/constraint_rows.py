"""The rows of contacts and loops: how held frames move, how their accelerations change with the
state, and the forces between them.

A contact is computed in the axes of the frame that its body uses (`gauge`), with the origin in the
held point: a rotation of the rows changes neither accelerations nor the condition of the problem,
and in the body's own axes fewer numbers are needed. Forces are turned into world axes at the end.
With ν the velocity of the held point and ψ̇, ψ̈ of `subtree_gradient`, moved to the point,

    J s,        A = J a + γ    (classical: d/dt of the point's velocity, and of the angular
    velocity), ∂A/∂q = [ψ̈ + 2 ψ̇ω × ν;  ψ̈ω - ω × ψ̇ω],        ∂A/∂v = [2 β + 2 sω × ν;  2 βω - ω ×
    sω]    with β = ψ̇ + ½ v_J × s.

A loop has two such points; the second is turned into the axes of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rigidgrad.algorithms import kinematics
from rigidgrad.algorithms.fast.gauge import Articulation, Gauge, from_center
from rigidgrad.algorithms.joints import (
    Vector,
    across,
    body_transforms,
    combine,
    gravity_acceleration,
    parent_value,
    velocities,
)
from rigidgrad.model.contacts import Constraint
from rigidgrad.model.model import Model
from rigidgrad.scalars import Scalar, add, is_constant, mul, neg, sub
from rigidgrad.spatial import (
    IDENTITY3,
    ZERO3,
    ZERO_MOTION,
    Force,
    Matrix3,
    Motion,
    Transform,
    Vector3,
    add3,
    cross3,
    multiply3,
    rotate,
    rotate_back,
    scale3,
    sub3,
    transpose,
)

Rows = list[Scalar]


class Inputs(NamedTuple):
    """Constraints, and what of them comes with each state."""

    constraints: tuple[Constraint, ...]
    places: Mapping[int, Any] = {}  # by the constraint's number: a point, or a pose
    active: Sequence[Scalar] | None = None  # one number for each: 1, or 0 where it does not hold
    flow: Scalar = 1.0  # 1 of motion, 0 of an impact
    bounce: Scalar = 0.0  # of an impact, 1 and the restitution; 0 of motion

    @property
    def rows(self) -> int:
        return sum(c.rows for c in self.constraints)

    def gains(self, c: Constraint) -> tuple[Scalar, Scalar]:
        """Of position and velocity. An impact holds a frame by its velocity alone: J Δ = -(1 + e) J
        v.
        """
        return mul(self.flow, c.gains[0]), add(mul(self.flow, c.gains[1]), self.bounce)


class Point(NamedTuple):
    """A held point of a body."""

    body: int
    there: dict[int, Transform]  # from the frame of each body that carries it, to the point
    world: Transform  # from the world to the point
    axes: Matrix3  # of the named frame, in the axes of the point


class Row(NamedTuple):
    """A constraint with its points; `turn` from the axes of the second to those of the first."""

    constraint: Constraint
    point: Point
    partner: Point | None
    turn: Matrix3
    place: Any
    active: Scalar
    gains: tuple[Scalar, Scalar]


class Motions(NamedTuple):
    """Velocity and acceleration of each body, in the frame that it uses, without gravity."""

    velocity: list[Motion]
    acceleration: list[Motion]


def rows_of(model: Model, q: Vector, tree: Articulation, gauge: Gauge, inputs: Inputs) -> list[Row]:
    X = body_transforms(model, q)

    def point(name: str, offset: Sequence[float]) -> Point:
        frame = model.frame(name)
        center = gauge[frame.body]
        axes = frame.placement.R
        p = add3(frame.placement.p, rotate(axes, tuple(offset)))
        if center != frame.body:
            Z = from_center(model, X, frame.body, center)
            p, axes = Z.point_back(p), multiply3(transpose(Z.E), axes)
        Y = Transform(IDENTITY3, p)
        there: dict[int, Transform] = {}
        for i in reversed(kinematics.path(model, frame.body)):
            there[i] = Y
            Y = Y @ tree.X[i]
        return Point(frame.body, there, Y, axes)

    found = []
    for k, c in enumerate(inputs.constraints):
        first = point(c.frame, c.offset)
        second = point(c.partner, c.partner_offset) if c.partner is not None else None
        turn = multiply3(first.world.E, transpose(second.world.E)) if second else IDENTITY3
        active = 1.0 if inputs.active is None else inputs.active[k]
        found.append(Row(c, first, second, turn, inputs.places.get(k), active, inputs.gains(c)))
    return found


def motions(model: Model, tree: Articulation, v: Vector, a: Vector | None = None) -> Motions:
    """Of all bodies; accelerations are zero where `a` is None."""
    X, S, _, _ = tree
    qd = velocities(model, v)
    qdd = velocities(model, a) if a is not None else [(0.0,) * j.nv for j in model.joints]
    velocity: list[Motion] = []
    acceleration: list[Motion] = []
    for i in model.bodies:
        v_parent = across(X[i], parent_value(velocity, model, i, ZERO_MOTION))
        a_parent = across(X[i], parent_value(acceleration, model, i, ZERO_MOTION))
        vJ = combine(S[i], qd[i])
        velocity.append(v_parent + vJ)
        acceleration.append(a_parent + v_parent.cross(vJ) + combine(S[i], qdd[i]))
    return Motions(velocity, acceleration)


# --- values ---------------------------------------------------------------------------------------


def jacobian(model: Model, tree: Articulation, rows: Sequence[Row]) -> list[Rows]:
    """J over all degrees of freedom, in the axes of each constraint's first point."""
    J: list[Rows] = []
    for row in rows:
        block = [[0.0] * model.dofs for _ in range(row.constraint.rows)]
        for column, m in _axes(model, tree, row.point).items():
            _add(block, column, _numbers(m, row))
        if row.partner:
            for column, m in _axes(model, tree, row.partner).items():
                _add(block, column, _minus(_numbers(_turned(row.turn, m), row)))
        J.extend([[mul(row.active, x) for x in line] for line in block])
    return J


def acceleration(rows: Sequence[Row], moving: Motions, speeds: Motions) -> Vector:
    """A with the gains' terms: zero where all constraints hold. `speeds` has the robot's own
    velocities, `moving` may have others with the same classical accelerations.
    """
    found: Rows = []
    for row in rows:
        A = _classical(row.point, moving)
        if row.partner:
            A = A - _turned(row.turn, _classical(row.partner, moving))
        position, velocity = row.gains
        if not is_constant(velocity, 0.0):
            A = A + _speed(row, speeds).scale(velocity)
        numbers = list(_numbers(A, row))
        if not is_constant(position, 0.0):
            numbers = [
                add(x, mul(position, e)) for x, e in zip(numbers, _error(row)[0], strict=True)
            ]
        found.extend(mul(row.active, x) for x in numbers)
    return tuple(found)


def wrenches(rows: Sequence[Row], force: Sequence[Scalar]) -> dict[int, Force]:
    """The forces of constraints on bodies, in the frames that these use."""
    found: dict[int, Force] = {}
    for row, own in _parts(rows, force):
        f = Force(tuple(own[3:]) if row.constraint.rows == 6 else ZERO3, tuple(own[:3]))
        _press(found, row.point, f)
        if row.partner:
            back = Force(
                _minus3(rotate_back(row.turn, f.angular)), _minus3(rotate_back(row.turn, f.linear))
            )
            _press(found, row.partner, back)
    return found


def in_world(rows: Sequence[Row], force: Sequence[Scalar]) -> Vector:
    """Rows in the axes of points, in world axes."""
    return _in_other_axes(rows, force, rotate_back)


def in_points(rows: Sequence[Row], force: Sequence[Scalar]) -> Vector:
    """Rows in world axes, in the axes of points."""
    return _in_other_axes(rows, force, rotate)


def _in_other_axes(
    rows: Sequence[Row], force: Sequence[Scalar], turn: Callable[[Matrix3, Vector3], Vector3]
) -> Vector:
    found: list[Scalar] = []
    for row, own in _parts(rows, force):
        for k in range(0, row.constraint.rows, 3):
            found.extend(turn(row.point.world.E, tuple(own[k : k + 3])))
    return tuple(found)


# --- derivatives ----------------------------------------------------------------------------------


class Rates(NamedTuple):
    """How velocities and accelerations of what a joint carries change with its freedoms: those of
    `subtree_gradient`, with gravity in `second`.
    """

    rate: Sequence[Sequence[Motion]]  # ψ̇ of each body's freedoms
    by_speed: Sequence[Sequence[Motion]]  # ψ̇ + ½ v_J × s
    second: Sequence[Sequence[Motion]]  # ψ̈


def acceleration_columns(
    model: Model,
    tree: Articulation,
    rows: Sequence[Row],
    rates: Rates,
    moving: Motions,
    speeds: Motions,
    flow: Scalar = 1.0,
) -> tuple[list[Rows], list[Rows]]:
    """∂A/∂q and ∂A/∂v as [column][row] over all degrees of freedom; `moving` as for `acceleration`,
    with the robot's accelerations, its velocities `flow` times the robot's own.
    """
    total = sum(row.constraint.rows for row in rows)
    dq: list[Rows] = [[0.0] * total for _ in range(model.dofs)]
    dv: list[Rows] = [[0.0] * total for _ in range(model.dofs)]
    start = 0
    for row in rows:
        for point in (row.point, row.partner) if row.partner else (row.point,):
            first = point is row.point
            velocity_here = point.there[point.body].motion(moving.velocity[point.body])
            A_b = _classical(row.partner, moving) if row.partner else ZERO_MOTION
            for j, X in point.there.items():
                dof = model.joints[j].dof
                for k, s in enumerate(tree.S[j]):
                    axis = X.motion(s)
                    by_q = _by_position(
                        X.motion(rates.rate[j][k]),
                        X.motion(rates.second[j][k]),
                        axis,
                        velocity_here,
                        point,
                        model,
                    )
                    by_v = _by_velocity(X.motion(rates.by_speed[j][k]), axis, velocity_here).scale(
                        flow
                    )
                    if row.partner:  # the axes of the first point turn, too
                        w = axis.angular
                        if first:
                            seen = _turned(row.turn, A_b)
                            by_q = by_q + Motion(cross3(w, seen.angular), cross3(w, seen.linear))
                        else:
                            by_q = by_q + Motion(cross3(w, A_b.angular), cross3(w, A_b.linear))
                    gains_q, gains_v = _gain_columns(row, first, j, X, s, axis, speeds, tree, model)
                    numbers_q, numbers_v = (
                        _signed(row, first, m, extra)
                        for m, extra in ((by_q, gains_q), (by_v, gains_v))
                    )
                    for i, (x, y) in enumerate(zip(numbers_q, numbers_v, strict=True), start):
                        dq[dof + k][i] = add(dq[dof + k][i], mul(row.active, x))
                        dv[dof + k][i] = add(dv[dof + k][i], mul(row.active, y))
        start += row.constraint.rows
    return dq, dv


def turned_force_columns(
    model: Model, tree: Articulation, rows: Sequence[Row], force: Sequence[Scalar]
) -> list[list[Scalar]] | None:
    """What a loop's force on its second body, which keeps to the axes of the first, adds to the
    columns [column][row] of ∂ID/∂q; None without loops.
    """
    if not any(row.partner for row in rows):
        return None
    n = model.dofs
    found: list[list[Scalar]] = [[0.0] * n for _ in range(n)]
    for row, own in _parts(rows, force):
        if not row.partner:
            continue
        f = Force(tuple(own[3:]) if row.constraint.rows == 6 else ZERO3, tuple(own[:3]))
        seen = Force(rotate_back(row.turn, f.angular), rotate_back(row.turn, f.linear))
        axes = _axes(model, tree, row.partner)
        for point, first in ((row.point, True), (row.partner, False)):
            for column, axis in _axes(model, tree, point).items():
                w = axis.angular
                if first:
                    change = Force(
                        rotate_back(row.turn, cross3(w, f.angular)),
                        rotate_back(row.turn, cross3(w, f.linear)),
                    )
                else:
                    change = Force(cross3(seen.angular, w), cross3(seen.linear, w))
                for other, s in axes.items():
                    found[column][other] = add(found[column][other], change.dot(s))
    return found


def turns(
    model: Model, tree: Articulation, rows: Sequence[Row], force: Sequence[Scalar]
) -> list[Rows]:
    """w × f as [column][row] over all degrees of freedom: how a force that keeps to the axes of its
    point turns in the world.
    """
    found: list[Rows] = [[0.0] * len(force) for _ in range(model.dofs)]
    start = 0
    for row, own in _parts(rows, force):
        for column, axis in _axes(model, tree, row.point).items():
            for k in range(0, row.constraint.rows, 3):
                found[column][start + k : start + k + 3] = cross3(
                    axis.angular, tuple(own[k : k + 3])
                )
        start += row.constraint.rows
    return found


# --- pieces ---------------------------------------------------------------------------------------


def _axes(model: Model, tree: Articulation, point: Point) -> dict[int, Motion]:
    """For each degree of freedom that moves the point, its motion."""
    return {
        model.joints[j].dof + k: X.motion(s)
        for j, X in point.there.items()
        for k, s in enumerate(tree.S[j])
    }


def _classical(point: Point, moving: Motions) -> Motion:
    X = point.there[point.body]
    v, a = X.motion(moving.velocity[point.body]), X.motion(moving.acceleration[point.body])
    return Motion(a.angular, add3(a.linear, cross3(v.angular, v.linear)))


def _speed(row: Row, moving: Motions) -> Motion:
    v = row.point.there[row.point.body].motion(moving.velocity[row.point.body])
    if row.partner:
        v = v - _turned(
            row.turn, row.partner.there[row.partner.body].motion(moving.velocity[row.partner.body])
        )
    return v


def _by_position(
    rate: Motion, second: Motion, axis: Motion, v: Motion, point: Point, model: Model
) -> Motion:
    twice = cross3(rate.angular, v.linear)
    linear = add3(second.linear, add3(twice, twice))
    # the acceleration of the recursion has minus gravity in it, which turns with the point
    pull = rotate(point.world.E, gravity_acceleration(model).linear)
    linear = sub3(linear, cross3(pull, axis.angular))
    return Motion(sub3(second.angular, cross3(v.angular, rate.angular)), linear)


def _by_velocity(by_speed: Motion, axis: Motion, v: Motion) -> Motion:
    half = Motion(by_speed.angular, add3(by_speed.linear, cross3(axis.angular, v.linear)))
    twice = half + half
    return Motion(sub3(twice.angular, cross3(v.angular, axis.angular)), twice.linear)


def _speed_by_position(
    row: Row,
    first: bool,
    j: int,
    X: Transform,
    s: Motion,
    speeds: Motions,
    tree: Articulation,
    model: Model,
) -> Motion:
    v_parent = across(tree.X[j], parent_value(speeds.velocity, model, j, ZERO_MOTION))
    m = X.motion(v_parent.cross(s))
    if row.partner:
        w = X.motion(s).angular
        v_b = row.partner.there[row.partner.body].motion(speeds.velocity[row.partner.body])
        seen = _turned(row.turn, v_b) if first else v_b
        m = m + Motion(cross3(w, seen.angular), cross3(w, seen.linear))
    return m


def _gain_columns(
    row: Row,
    first: bool,
    j: int,
    X: Transform,
    s: Motion,
    axis: Motion,
    speeds: Motions,
    tree: Articulation,
    model: Model,
) -> tuple[Sequence[Scalar] | None, Sequence[Scalar] | None]:
    """What the gains add to a column of ∂A/∂q and ∂A/∂v, in the axes of this point; signs as for a
    contact.
    """
    position, velocity = row.gains
    by_q = by_v = None
    if not is_constant(velocity, 0.0):
        moved = _speed_by_position(row, first, j, X, s, speeds, tree, model)
        by_q = [mul(velocity, x) for x in _six(moved)]
        by_v = [mul(velocity, x) for x in _six(axis)]
    if not is_constant(position, 0.0):
        change = [mul(position, x) for x in _error_change(row, first, axis)]
        by_q = change if by_q is None else [add(x, y) for x, y in zip(by_q, change, strict=True)]
    return by_q, by_v


def _error(row: Row) -> tuple[Rows, Vector3, Matrix3]:
    """How far a constraint is from where it belongs, in the axes of its first point; the distance
    alone; and Q, the rotation from where these axes belong to where they are.

    Of a rotation by θ about n, the error is n sin θ: the skew part of Q.
    """
    E, r = row.point.world
    if row.partner:
        apart = rotate(E, sub3(r, row.partner.world.r))
        Q: Matrix3 = multiply3(
            multiply3(row.point.axes, transpose(row.partner.axes)), transpose(row.turn)
        )
    elif row.constraint.rows == 3:
        apart, Q = rotate(E, sub3(r, tuple(row.place))), IDENTITY3
    else:
        apart = rotate(E, sub3(r, tuple(line[3] for line in row.place[:3])))
        belongs = tuple(tuple(line[:3]) for line in row.place[:3])
        Q = multiply3(multiply3(row.point.axes, transpose(belongs)), transpose(E))
    numbers: Rows = list(apart)
    if row.constraint.rows == 6:
        numbers += [
            mul(0.5, sub(Q[2][1], Q[1][2])),
            mul(0.5, sub(Q[0][2], Q[2][0])),
            mul(0.5, sub(Q[1][0], Q[0][1])),
        ]
    return numbers, apart, Q


def _error_change(row: Row, first: bool, axis: Motion) -> Rows:
    """By a unit of a freedom that moves this point by `axis`, in the axes of this point."""
    _, apart, Q = _error(row)
    w = axis.angular
    if first:
        linear = add3(axis.linear, cross3(apart, w))
    else:
        linear = axis.linear
    if row.constraint.rows == 3:
        return [*linear, 0.0, 0.0, 0.0]
    # ½ (tr Q - Qᵀ) w, for the second point in its own axes: Q w_b = -change seen by the first
    trace = add(add(Q[0][0], Q[1][1]), Q[2][2])
    if not first:
        w_a = rotate(row.turn, w)
        turned = scale3(0.5, sub3(scale3(trace, w_a), rotate_back(Q, w_a)))
        return [*linear, *rotate_back(row.turn, turned)]
    return [*linear, *scale3(0.5, sub3(scale3(trace, w), rotate_back(Q, w)))]


def _signed(row: Row, first: bool, m: Motion, extra: Sequence[Scalar] | None) -> Sequence[Scalar]:
    """A column of a point as numbers of the constraint: as it is for the first, turned and negative
    for the second.
    """
    if extra is not None:
        m = m + Motion(tuple(extra[3:]), tuple(extra[:3]))
    return _numbers(m, row) if first else _minus(_numbers(_turned(row.turn, m), row))


def _parts(rows: Sequence[Row], numbers: Sequence[Scalar]) -> list[tuple[Row, Sequence[Scalar]]]:
    found, start = [], 0
    for row in rows:
        found.append((row, numbers[start : start + row.constraint.rows]))
        start += row.constraint.rows
    return found


def _press(found: dict[int, Force], point: Point, f: Force) -> None:
    wrench = point.there[point.body].force_back(f)
    found[point.body] = found[point.body] + wrench if point.body in found else wrench


def _numbers(m: Motion, row: Row) -> Sequence[Scalar]:
    return m.linear if row.constraint.rows == 3 else (*m.linear, *m.angular)


def _six(m: Motion) -> Sequence[Scalar]:
    return (*m.linear, *m.angular)


def _turned(turn: Matrix3, m: Motion) -> Motion:
    return Motion(rotate(turn, m.angular), rotate(turn, m.linear))


def _minus(numbers: Sequence[Scalar]) -> Sequence[Scalar]:
    return [neg(x) for x in numbers]


def _minus3(x: Vector3) -> Vector3:
    return neg(x[0]), neg(x[1]), neg(x[2])


def _add(block: list[Rows], column: int, numbers: Sequence[Scalar]) -> None:
    for line, x in zip(block, numbers, strict=True):
        line[column] = add(line[column], x)
