"""Levenberg-Marquardt steps as a kernel: a few of them a round, then the errors that are left.

A step minimises |W (e - J dq)|² + λ |dq - z|², with z the way to a posture, or zero. Damping λ =
0.3 |W e|² + 1e-8 vanishes with the error, so that steps near a solution are Newton's (Sugihara,
"Solvability-unconcerned inverse kinematics by the Levenberg-Marquardt method", 2011). Joints at a
limit against which the error pushes are held there for the step; what a step would carry beyond a
limit stays at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rigidgrad.algorithms import ltl, manifold
from rigidgrad.algorithms.joints import Vector
from rigidgrad.ik.quadratic import supports
from rigidgrad.ik.terms import Part, Term
from rigidgrad.kernels.language import Array, Kernel
from rigidgrad.model.model import Model
from rigidgrad.program.fuse import fuse
from rigidgrad.program.program import Program
from rigidgrad.program.recorder import record
from rigidgrad.scalars import Scalar, add, is_constant, less, mul, select, sqrt, sub, total

STEPS = 4  # of a round
_ROWS = {"m": 3, "rad": 3}  # of a part, at most
_LARGER = 4  # times that one form's matrix may have the rows of the other's
RULES = 3  # numbers at the end of a target
_SHARE, _LEAST = 0.3, 1e-8  # of the damping
# steps after which a round must bring the cost below this part of what it was
_YOUNG, _SLOW = (8.0, 0.5)
_PULL = 0.3  # the longest way towards a posture that a step tries, in radians and metres
_REST = 1e-10  # of a posture in the null space: the square of a step that counts as none


class Aim:
    """Terms and a posture over the numbers of one target: those of each term, its weights where it
    has any, the posture, and rules (`advance`).
    """

    def __init__(self, terms: Sequence[Term], posture: bool):
        self.terms, self.posture = tuple(terms), posture

    def __repr__(self) -> str:
        return f"{list(self.terms)} posture {self.posture}"

    def size(self, model: Model) -> int:
        return (
            sum(t.size + len(t.units) * t.weighted for t in self.terms)
            + model.nq * self.posture
            + RULES
        )

    def targets(self, numbers: Vector) -> list[tuple[Term, Vector, Vector]]:
        """Each term with its target and the roots of its weights, one a part."""
        found, start = [], 0
        for t in self.terms:
            end = start + t.size + len(t.units) * t.weighted
            mine = numbers[start:end]
            found.append(
                (
                    t,
                    tuple(mine[: t.size]),
                    tuple(mine[t.size :]) if t.weighted else (1.0,) * len(t.units),
                )
            )
            start = end
        return found

    def parts(self, model: Model, q: Vector, numbers: Vector) -> list[tuple[Part, Scalar]]:
        return [
            (part, w)
            for t, target, weights in self.targets(numbers)
            for part, w in zip(t.parts(model, q, target), weights, strict=True)
        ]


def step(model: Model, aim: Aim, q: Vector, numbers: Vector, age: Scalar, dual: bool) -> Vector:
    """The next q, `age` steps from the start. A posture pulls in the first half of the steps; what
    is left then, the targets alone take.
    """
    e: list[Scalar] = []
    rows: list[list[Scalar]] = []
    for part, w in aim.parts(model, q, numbers):
        e += [mul(w, x) for x in part.error]
        rows += [[mul(w, x) for x in row] for row in part.jacobian]
    damping = add(mul(_SHARE, total(mul(x, x) for x in e)), _LEAST)
    _hold(model, q, e, rows)
    z: Vector = ()
    if aim.posture:
        way = manifold.difference(
            model, q, tuple(numbers[len(numbers) - RULES - model.nq : len(numbers) - RULES])
        )
        length = sqrt(add(_dot(way, way), 1e-30))
        share = select(less(length, _PULL), 1.0, _PULL / length)
        pull = select(_early(numbers, age), share, 0.0)
        z = tuple(mul(pull, x) for x in way)
        e = [sub(x, _dot(row, z)) for x, row in zip(e, rows, strict=True)]
    columns = [list(c) for c in zip(*rows, strict=True)]
    if dual:
        y = _solve([[_dot(a, b) for b in rows] for a in rows], damping, e)
        dq = [_dot(c, y) for c in columns]
    else:
        dq = list(
            _solve(
                [[_dot(a, b) for b in columns] for a in columns],
                damping,
                [_dot(c, e) for c in columns],
            )
        )
    if aim.posture:
        dq = [add(x, y) for x, y in zip(dq, z, strict=True)]
    return within(model, manifold.integrate(model, q, tuple(dq)))


def _early(numbers: Vector, age: Scalar) -> Scalar:
    """Whether fewer than half of the steps are done."""
    return less(age, mul(0.5, numbers[-1]))


def _hold(model: Model, q: Vector, e: Sequence[Scalar], rows: list[list[Scalar]]) -> None:
    """Takes joints out of the Jacobian that stand at a limit and would go beyond it."""
    lower, upper = model.limits.lower, model.limits.upper
    for j in model.joints:
        if j.is_mimic or not j.kind.bounded:
            continue
        for k in range(j.nv):
            low, high = float(lower[j.q + k]), float(upper[j.q + k])
            push = _dot([row[j.v + k] for row in rows], e)
            if is_constant(push, 0.0):
                continue
            for row in rows:
                x = row[j.v + k]
                if is_constant(x, 0.0):
                    continue
                down = select(less(low, q[j.q + k]), x, 0.0) if np.isfinite(low) else x
                up = select(less(q[j.q + k], high), x, 0.0) if np.isfinite(high) else x
                row[j.v + k] = x if down is x and up is x else select(less(push, 0.0), down, up)


def within(model: Model, q: Vector, before: Vector | None = None) -> Vector:
    """q with its numbers in their limits, or not further outside than `before`."""
    result = list(q)
    for k, (low, high) in enumerate(
        zip(model.limits.lower.tolist(), model.limits.upper.tolist(), strict=True)
    ):
        if np.isfinite(low):
            least = low if before is None else select(less(before[k], low), before[k], low)
            result[k] = select(less(result[k], least), least, result[k])
        if np.isfinite(high):
            most = high if before is None else select(less(high, before[k]), before[k], high)
            result[k] = select(less(most, result[k]), most, result[k])
    return tuple(result)


def _solve(A: Sequence[Sequence[Scalar]], damping: Scalar, b: Sequence[Scalar]) -> Vector:
    """(A + damping)⁻¹ b along the zeros of A: of JᵀJ they are those of the tree."""
    H = [[add(x, damping) if i == k else x for i, x in enumerate(row)] for k, row in enumerate(A)]
    return ltl.solve(ltl.factorize(H, supports(A)), b)


def errors(model: Model, aim: Aim, q: Vector, numbers: Vector) -> tuple[Scalar, Scalar, Scalar]:
    """The squares of the largest error in metres and of the largest rotation, 4 sin²(θ/2), and the
    cost |W e|².
    """
    largest: dict[str, Scalar] = {"m": 0.0, "rad": 0.0}
    cost: Scalar = 0.0
    for part, w in aim.parts(model, q, numbers):
        old = largest[part.unit]
        largest[part.unit] = (
            part.squared
            if is_constant(old, 0.0)
            else select(less(old, part.squared), part.squared, old)
        )
        cost = add(cost, mul(mul(w, w), part.squared))
    return largest["m"], largest["rad"], cost


def advance(model: Model, aim: Aim, rounds: int) -> Kernel:
    """q, state and target → all after some rounds of `STEPS` steps, what is left there, and the
    status: 0 under way, 1 arrived, 2 stuck. More than one round end with the status of the row.

    The state is how many steps there were from the start, and the cost. The target ends with its
    rules: squares of the tolerances, the most steps.
    """
    nq, size = model.nq, aim.size(model)
    inputs = {"q": (nq,), "target": (size,), "state": (2,)}

    def one(dual: bool) -> Program:
        return fuse(
            record(
                inputs,
                {"after": (nq,)},
                lambda v: (
                    step(model, aim, tuple(v["q"]), tuple(v["target"]), v["state"][0], dual),
                ),
            )
        )

    rows = sum(_ROWS[unit] for t in aim.terms for unit in t.units)
    # where one is larger by far, it is not worth to be recorded: of hundreds of joints that takes
    # minutes
    forms = [
        dual
        for dual, n, other in ((True, rows, model.nv), (False, model.nv, rows))
        if n <= _LARGER * other
    ]
    program = min((one(dual) for dual in forms), key=lambda p: p.counts().flops)
    shapes = inputs | {"before": (nq,)}
    judgement = fuse(
        record(
            shapes, {"left": (3,), "state": (2,), "status": (1,)}, lambda v: _judge(model, aim, v)
        )
    )
    copies = {n: record({"x": (n,)}, {"y": (n,)}, lambda v: (tuple(v["x"]),)) for n in (1, 2, nq)}
    k = Kernel()
    q, before_all, target = k.input("q", nq), k.input("state", 2), k.input("target", size)
    after, state, left, status = (
        k.output("after", nq),
        k.output("state after", 2),
        k.output("left", 3),
        k.output("status", 1),
    )
    here, age, before = k.scratch("here", nq), k.scratch("age", 2), k.scratch("before", nq)

    views = {"q": here.at(0, nq), "target": target.at(0, size), "state": age.at(0, 2)}

    def copy(source: Array, to: Array) -> None:
        k.call(copies[source.size], {"x": source.at(0, source.size)}, {"y": to.at(0, source.size)})

    def one_round() -> None:
        with k.along(STEPS):
            copy(here, before)
            k.call(program, views, {"after": here.at(0, nq)})
        k.call(
            judgement,
            views | {"before": before.at(0, nq)},
            {"left": left.at(0, 3), "state": age.at(0, 2), "status": status.at(0, 1)},
        )

    copy(q, here)
    copy(before_all, age)
    if rounds == 1:
        one_round()
    else:
        ended = k.scratch("ended", 1)
        with k.until(rounds, ended, k.scratch("failed", 1)):
            one_round()
            copy(status, ended)
    copy(here, after)
    copy(age, state)
    return k


def _judge(model: Model, aim: Aim, v: Mapping[str, Any]) -> tuple[Any, ...]:
    """What is left, the state, and the status."""
    q, target = tuple(v["q"]), tuple(v["target"])
    position, rotation, most = target[-RULES:]
    p, r, cost = errors(model, aim, q, target)
    age = add(v["state"][0], float(STEPS))
    late = less(most, add(age, 1.0))
    moved = total(mul(sub(x, y), sub(x, y)) for x, y in zip(q, v["before"], strict=True))
    falls = select(less(cost, mul(_SLOW, v["state"][1])), 0.0, 2.0)
    rests: Scalar = 1.0
    if aim.posture:
        early = _early(target, age)
        rests, falls = (
            select(less(moved, _REST), 1.0, select(early, 0.0, 1.0)),
            select(early, 0.0, falls),
        )
    away = select(late, 2.0, select(less(_YOUNG, age), falls, 0.0))
    return (p, r, cost), (age, cost), (select(less(p, position) & less(r, rotation), rests, away),)


def _dot(a: Sequence[Scalar], b: Sequence[Scalar]) -> Scalar:
    return total(mul(x, y) for x, y in zip(a, b, strict=True))
