"""The step of a control loop as a kernel: the small change of q that serves weighted tasks best,
within bounds.

It minimises ½ Σ w |g e - J Δ|² + ½ d |Δ|² over Δ, subject to lower ≤ Δ ≤ upper and to clearances
that may shrink by a part of themselves only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rigidgrad.algorithms import kinematics, manifold
from rigidgrad.algorithms.joints import Vector
from rigidgrad.errors import InputError
from rigidgrad.ik import quadratic
from rigidgrad.ik.quadratic import Iterate
from rigidgrad.ik.step import within
from rigidgrad.ik.terms import Term, Triple, placed
from rigidgrad.kernels.language import Array, Kernel
from rigidgrad.model.model import Model
from rigidgrad.program.fuse import fuse
from rigidgrad.program.program import Program
from rigidgrad.program.recorder import record
from rigidgrad.scalars import Scalar, add, is_constant, less, mul, neg, select, sqrt, sub, total
from rigidgrad.spatial import dot3, sub3

ROUNDS = 30  # of the quadratic program's predictor and corrector, at most
EXCHANGES = 5  # of active bounds before that, at most
_MOST = 60_000  # products of a factorisation that are recorded: some 70 joints in a chain
_HUGE, _TOUCHING = 1e300, 1e-15
_GAP, _MISS = 1e-13, 1e-11  # of the problem's scale, at its end


@dataclass(frozen=True)
class Clearance:
    """A distance that stays positive: of the point at `offset` in a frame from a plane (normal,
    level), or from a point of another frame or of the world, less a distance.
    """

    frame: str
    offset: Triple
    other: str | None = None
    other_offset: Triple = (0.0, 0.0, 0.0)
    plane: bool = True

    @property
    def size(self) -> int:
        """Numbers: the normal and level of a plane, or the least distance, with a point of the
        world in front; and the gain.
        """
        return 5 if self.plane else 2 if self.other is not None else 5

    def row(self, model: Model, q: Vector, numbers: Vector) -> tuple[Vector, Scalar]:
        """(a, b): a Δ ≤ b."""
        p, J = self._point(model, q, self.frame, self.offset)
        if self.plane:
            normal = tuple(numbers[:3])
            distance, columns = sub(dot3(normal, p), numbers[3]), J
        else:
            columns = J
            if self.other is not None:
                o, K = self._point(model, q, self.other, self.other_offset)
                columns = [sub3(a, b) for a, b in zip(J, K, strict=True)]
            else:
                o = tuple(numbers[:3])
            away = sub3(p, o)
            length = sqrt(add(dot3(away, away), 1e-18))
            normal = tuple(x / length for x in away)
            distance = sub(length, numbers[-2])
        return tuple(neg(dot3(normal, c)) for c in columns), mul(numbers[-1], distance)

    def _point(
        self, model: Model, q: Vector, name: str, offset: Triple
    ) -> tuple[Vector, list[Vector]]:
        frame = placed(model, name, offset)
        return kinematics.frame_transform(model, q, frame).r, list(
            zip(*kinematics.jacobian(model, q, frame, "world")[:3], strict=True)
        )


@dataclass(frozen=True)
class Given:
    """A clearance whose row is computed elsewhere: nv numbers, and how much it may shrink."""

    nv: int

    @property
    def size(self) -> int:
        return self.nv + 1

    def row(self, model: Model, q: Vector, numbers: Vector) -> tuple[Vector, Scalar]:
        return tuple(numbers[:-1]), numbers[-1]


class Tasks(NamedTuple):
    """What of a step is compiled: tasks, clearances, and which freedoms have limits of velocity and
    of acceleration.
    """

    terms: tuple[Term, ...]
    clearances: tuple[Clearance | Given, ...]
    velocity: tuple[bool, ...]
    acceleration: tuple[bool, ...]

    def size(self, model: Model) -> int:
        """Numbers beside q: dt and damping; limits of velocity; of acceleration, and the velocity
        before; each task's target, roots of weights and gain; those of clearances.
        """
        tasks = sum(t.size + len(t.units) + 1 for t in self.terms)
        return (
            2
            + model.nv * (any(self.velocity) + 2 * any(self.acceleration))
            + tasks
            + sum(c.size for c in self.clearances)
        )


class Quadratic(NamedTuple):
    H: list[list[Scalar]]
    c: list[Scalar]
    A: list[dict[int, Scalar]]
    b: list[Scalar]
    lower: dict[int, Scalar]
    upper: dict[int, Scalar]


def quadratic_program(model: Model, plan: Tasks, q: Vector, numbers: Vector) -> Quadratic:
    n, start = model.nv, 2
    dt, damping = numbers[0], numbers[1]

    def taken(count: int) -> Vector:
        nonlocal start
        start += count
        return tuple(numbers[start - count : start])

    fastest = taken(n) if any(plan.velocity) else ()
    strongest = taken(n) if any(plan.acceleration) else ()
    before = taken(n) if any(plan.acceleration) else ()
    H: list[list[Scalar]] = [[0.0] * n for _ in range(n)]
    c: list[Scalar] = [0.0] * n
    for term in plan.terms:
        target, roots, (gain,) = taken(term.size), taken(len(term.units)), taken(1)
        for part, root in zip(term.parts(model, q, target), roots, strict=True):
            for e, row in zip(part.error, part.jacobian, strict=True):
                scaled = [mul(root, x) for x in row]
                wanted = mul(mul(root, gain), e)
                for i in range(n):
                    c[i] = sub(c[i], mul(scaled[i], wanted))
                    for j in range(i + 1):
                        H[i][j] = add(H[i][j], mul(scaled[i], scaled[j]))
    for i in range(n):
        H[i][i] = add(H[i][i], damping)
        for j in range(i):
            H[j][i] = H[i][j]
    lower, upper = _bounds(model, plan, q, dt, fastest, strongest, before)
    A: list[dict[int, Scalar]] = [{i: 1.0} for i in upper] + [{i: -1.0} for i in lower]
    b = [*upper.values(), *(neg(x) for x in lower.values())]
    for clearance in plan.clearances:
        row, room = clearance.row(model, q, taken(clearance.size))
        A.append({i: x for i, x in enumerate(row) if not is_constant(x, 0.0)})
        b.append(room)
    return Quadratic(H, c, A, b, lower, upper)


def _bounds(
    model: Model,
    plan: Tasks,
    q: Vector,
    dt: Scalar,
    fastest: Vector,
    strongest: Vector,
    before: Vector,
) -> tuple[dict[int, Any], dict[int, Any]]:
    """Of each freedom that has some: the least and the largest change."""
    low, high = model.limits.lower, model.limits.upper
    place = {
        j.v + k: j.q + k
        for j in model.joints
        if not j.is_mimic and j.kind.bounded
        for k in range(j.nv)
    }
    lower: dict[int, Scalar] = {}
    upper: dict[int, Scalar] = {}
    for i in range(model.nv):
        below: list[Scalar] = []  # how far it may go down, and up
        above: list[Scalar] = []
        if i in place and np.isfinite(low[place[i]]):
            below.append(sub(q[place[i]], float(low[place[i]])))
        if i in place and np.isfinite(high[place[i]]):
            above.append(sub(float(high[place[i]]), q[place[i]]))
        for ways in (below, above):
            if ways and plan.acceleration[i]:
                ways.append(mul(dt, _stoppable(strongest[i], dt, ways[0])))
            if plan.velocity[i]:
                step = mul(fastest[i], dt)
                if ways:  # what is outside its limits comes back, no faster than it may move
                    ways[0] = _larger(ways[0], neg(step))
                ways.append(step)
        down, up = (neg(_least(below)) if below else None), (_least(above) if above else None)
        # where limits contradict each other, those of position and velocity count
        if plan.acceleration[i]:
            kept, change = mul(before[i], dt), mul(strongest[i], mul(dt, dt))
            down, up = _clip(sub(kept, change), down, up), _clip(add(kept, change), down, up)
        if down is not None:
            lower[i] = down
        if up is not None:
            upper[i] = up
    return lower, upper


def _stoppable(a: Scalar, dt: Scalar, d: Scalar) -> Scalar:
    """A velocity from which steps that are slower by a dt each stop within d.

    After whole steps, v²/2a + v dt/2 = d, or v = √(a²dt²/4 + 2 a d) - a dt/2; between them, the
    root lies above what can be stopped by up to a dt/8.
    """
    change = mul(a, dt)
    v = sub(
        sqrt(add(mul(0.25, mul(change, change)), mul(mul(2.0, a), select(less(d, 0.0), 0.0, d)))),
        mul(0.625, change),
    )
    return select(less(v, 0.0), 0.0, v)


def _clip(x: Scalar, low: Scalar | None, high: Scalar | None) -> Scalar:
    if low is not None:
        x = select(less(x, low), low, x)
    return x if high is None else select(less(high, x), high, x)


def _least(values: Sequence[Scalar]) -> Scalar:
    result = values[0]
    for x in values[1:]:
        result = _smaller(result, x)
    return result


def _smaller(a: Scalar, b: Scalar) -> Scalar:
    return select(less(b, a), b, a)


def _larger(a: Scalar, b: Scalar) -> Scalar:
    return select(less(a, b), b, a)


def _pattern(p: Quadratic) -> list[list[Scalar]]:
    """Where the matrix that each round factors is not zero."""
    found = [[0.0 if is_constant(x, 0.0) else 1.0 for x in row] for row in p.H]
    for row in p.A:
        for i in row:
            for j in row:
                found[i][j] = 1.0
    return found


def kernel(model: Model, plan: Tasks) -> Kernel:
    """q and numbers → the next q, the velocity that leads there, and whether the quadratic program
    was solved.

    Most steps end with a round or two of active bounds; those that do not, or that violate a
    clearance, go on by predictor and corrector.
    """
    nq, nv, size = model.nq, model.nv, plan.size(model)
    inputs = {"q": (nq,), "numbers": (size,)}
    shape: list[
        Quadratic
    ] = []  # where its matrices are not zero: the program that is recorded first tells

    def look(v: Any) -> tuple[()]:
        shape.append(quadratic_program(model, plan, tuple(v["q"]), tuple(v["numbers"])))
        return ()

    record(inputs, {}, look)
    known = shape[0]
    work = sum(len(row) * (len(row) + 3) // 2 for row in quadratic.supports(_pattern(known)))
    if work > _MOST:
        raise InputError(
            f"a step of {model.name!r} takes {work:,} products a round, and is compiled up to"
            f" {_MOST:,}: lock joints, or take fewer tasks and limits"
        )
    in_H = [(i, j) for i in range(nv) for j in range(i + 1) if not is_constant(known.H[i][j], 0.0)]
    rows = known.A[len(known.A) - len(plan.clearances) :]
    in_A = [(r, i) for r, row in enumerate(rows) for i in row]
    m, boxes = len(known.b), len(known.A) - len(plan.clearances)
    shapes = {
        "H": (len(in_H),),
        "c": (nv,),
        "A": (len(in_A),),
        "b": (m,),
        "ends": (len(known.lower) + len(known.upper),),
        "scale": (2,),
    }
    bounded = sorted({*known.lower, *known.upper})
    active = {"near": (nv,), "held": (len(bounded),), "settled": (1,)}
    state = {"x": (nv,), "s": (m,), "z": (m,)}

    def build(v: Any) -> tuple[Any, ...]:
        p = quadratic_program(model, plan, tuple(v["q"]), tuple(v["numbers"]))
        clear = p.A[boxes:]
        length = quadratic.largest([quadratic.absolute(x) for x in p.b]) if p.b else 1.0
        push = quadratic.largest([quadratic.absolute(x) for x in p.c])
        at = quadratic.first(p.c, p.b, add(length, 1e-9))
        ends = (*p.lower.values(), *p.upper.values())
        return (
            tuple(p.H[i][j] for i, j in in_H),
            tuple(p.c),
            tuple(clear[r][i] for r, i in in_A),
            tuple(p.b),
            ends,
            (mul(add(push, 1e-12), length), length),
            (0.0,) * nv,
            (0.0,) * len(bounded),
            (0.0,),
            at.x,
            at.s,
            at.z,
            (0.0,),
        )

    def bounds(ends: Sequence[Scalar]) -> tuple[dict[int, Scalar], dict[int, Scalar]]:
        split = len(known.lower)
        return (
            dict(zip(known.lower, ends[:split], strict=True)),
            dict(zip(known.upper, ends[split:], strict=True)),
        )

    def unpacked(v: Any) -> tuple[list[list[Scalar]], list[dict[int, Scalar]]]:
        H: list[list[Scalar]] = [[0.0] * nv for _ in range(nv)]
        for (i, j), x in zip(in_H, v["H"], strict=True):
            H[i][j] = H[j][i] = x
        A = [dict(row) for row in known.A[:boxes]] + [{} for _ in rows]
        for (r, i), x in zip(in_A, v["A"], strict=True):
            A[boxes + r][i] = x
        return H, A

    def one_exchange(v: Any) -> tuple[Any, ...]:
        H, A = unpacked(v)
        lower, upper = bounds(v["ends"])
        held = dict(zip(bounded, v["held"], strict=True))
        x, after = quadratic.exchange(H, v["c"], lower, upper, held)
        # written so that NaN settles nothing
        settled = select(less(quadratic.absolute(total(x)), _HUGE), 1.0, 0.0)
        for i in bounded:
            change = sub(after[i], held[i])
            settled = select(less(mul(change, change), 0.5), settled, 0.0)
            if i in lower and i in upper:
                settled = select(less(upper[i], lower[i]), 0.0, settled)
        for over in quadratic.excess(A[boxes:], v["b"][boxes:], x):
            settled = select(less(over, _TOUCHING), settled, 0.0)
        return x, tuple(after.values()), (settled,)

    def one_round(v: Any) -> tuple[Any, ...]:
        H, A = unpacked(v)
        at = quadratic.advance(
            H, v["c"], A, v["b"], Iterate(tuple(v["x"]), tuple(v["s"]), tuple(v["z"]))
        )
        small = less(quadratic.gap(at), mul(_GAP, v["scale"][0]))
        fits = less(quadratic.infeasibility(A, v["b"], at), mul(_MISS, v["scale"][1]))
        return at.x, at.s, at.z, (select(small & fits, 1.0, 0.0),)

    def finish(v: Any) -> tuple[Any, ...]:
        settled = less(0.5, v["settled"][0])
        x = list(v["near"])
        if m:
            x = [select(settled, a, b) for a, b in zip(x, v["x"], strict=True)]
        lower, upper = bounds(v["ends"])
        for i, bound in lower.items():
            x[i] = select(less(x[i], bound), bound, x[i])
        for i, bound in upper.items():
            x[i] = select(less(bound, x[i]), bound, x[i])
        q = tuple(v["q"])
        return (
            within(model, manifold.integrate(model, q, tuple(x)), q),
            tuple(y / v["dt"][0] for y in x),
            (select(settled, 1.0, v["done"][0]),),
        )

    def program(
        inputs: Mapping[str, tuple[int, ...]], outputs: Mapping[str, tuple[int, ...]], function: Any
    ) -> Program:
        return fuse(record(inputs, outputs, function))

    k = Kernel()
    q, numbers = k.input("q", nq), k.input("numbers", size)
    after, velocity, solved = k.output("after", nq), k.output("velocity", nv), k.output("solved", 1)
    made = shapes | active | state | {"done": (1,)}
    held: dict[str, Array] = {name: k.scratch(name, *dims) for name, dims in made.items()}
    views = {name: array.at(0, array.size) for name, array in held.items()}

    def call(
        read: Mapping[str, tuple[int, ...]], written: Mapping[str, tuple[int, ...]], function: Any
    ) -> None:
        k.call(
            program(read, written, function),
            {name: views[name] for name in read},
            {name: views[name] for name in written},
        )

    k.call(
        program(inputs, made, build),
        {"q": q.at(0, nq), "numbers": numbers.at(0, size)},
        views,
    )
    # a state that is settled stays where it is in further rounds: its bounds are the same again
    with k.along(EXCHANGES if m else 1, unless=views["settled"]):
        call(shapes | active, active, one_exchange)
    if m:
        used = {name: dims for name, dims in (shapes | state).items() if name != "ends"}
        rounds = k.until(ROUNDS, held["done"], k.scratch("failed", 1))
        with k.along(1, unless=views["settled"]), rounds:
            call(used, state | {"done": (1,)}, one_round)
    last = {"ends": shapes["ends"], "done": (1,)} | {
        name: dims for name, dims in (active | state).items() if name in ("near", "settled", "x")
    }
    k.call(
        program(
            {"q": (nq,), "dt": (1,)} | last,
            {"after": (nq,), "velocity": (nv,), "solved": (1,)},
            finish,
        ),
        {"q": q.at(0, nq), "dt": numbers.at(0, 1)} | {name: views[name] for name in last},
        {
            "after": after.at(0, nq),
            "velocity": velocity.at(0, nv),
            "solved": solved.at(0, 1),
        },
    )
    return k
