"""Places for constraints that come and go: contacts, limits of tendons and of ball joints. Each
slot has its freedoms, which are known when code is made, and a convex function of y = J z - aref.

    dim 1                  ½ D min(0, y)²
    equal, of dim 1        ½ D y²
    pyramid                ½ D Σ min(0, y_n ± μ_k y_k)² over its edges
    ellipse                0, ½ D (y_n - |U|)²/(1 + μ²) or ½ D (y_n² + |U|²/μ²), U_k = μ_k y_k,

the last by which of the cone, the polar cone and neither y is in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from rigidgrad.program.program import Program, Shape
from rigidgrad.scalars import Scalar, add, less, mul, select, sqrt, sub, total
from rigidgrad.spatial import add3, cross3, dot3, sub3
from rigidgrad.worlds.impedance import TINY, Softness
from rigidgrad.worlds.recording import recorded

NORMAL, EQUAL, PYRAMID, ELLIPSE = "normal", "equal", "pyramid", "ellipse"
SINGLE = NORMAL, EQUAL


@dataclass(frozen=True)
class Rule:
    """Of a slot: its function and how soft it is; `drag` is B along a surface."""

    kind: str
    dim: int
    soft: Softness
    drag: float
    impratio: float


@cache
def jacobian(dim: int, sign: float, count: int, fixed: tuple[Any, ...] | None) -> Program:
    """Rows of J for freedoms with `twists`, of a contact at a place with a frame; the frame is
    `fixed` where it never changes.
    """
    inputs: dict[str, Shape] = {"place": (3,), "origin": (3,), "twists": (count, 6)}
    if fixed is None:
        inputs = {"frame": (3, 3)} | inputs

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        axes = v["frame"] if fixed is None else fixed
        arm = sub3(v["place"], v["origin"])
        rows: list[list[Scalar]] = [[] for _ in range(dim)]
        for twist in v["twists"]:
            w, linear = twist[:3], twist[3:]
            at = add3(linear, cross3(w, arm))
            for k in range(dim):
                rows[k].append(mul(sign, dot3(axes[k % 3], at if k < 3 else w)))
        return (tuple(tuple(r) for r in rows),)

    return recorded(inputs, {"J": (dim, count)}, evaluate)


@cache
def times(dim: int, segments: tuple[int, ...]) -> Program:
    """J x, of x in segments."""
    n = sum(segments)
    inputs: dict[str, Shape] = {"J": (dim, n)} | {f"x{k}": (c,) for k, c in enumerate(segments)}

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        x = [y for k in range(len(segments)) for y in v[f"x{k}"]]
        return (tuple(total(mul(a, b) for a, b in zip(row, x, strict=True)) for row in v["J"]),)

    return recorded(inputs, {"y": (dim,)}, evaluate)


@cache
def gather(dim: int, segments: tuple[int, ...]) -> Program:
    """g - Jᵀ f, in segments."""
    n = sum(segments)
    inputs: dict[str, Shape] = {"J": (dim, n), "f": (dim,)}
    inputs |= {f"g{k}": (c,) for k, c in enumerate(segments)}

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        found, at = [], 0
        for k, count in enumerate(segments):
            part = []
            for j in range(count):
                x = v[f"g{k}"][j]
                for i in range(dim):
                    x = sub(x, mul(v["J"][i][at + j], v["f"][i]))
                part.append(x)
            at += count
            found.append(tuple(part))
        return tuple(found)

    return recorded(inputs, {f"g{k}": (c,) for k, c in enumerate(segments)}, evaluate)


def cone_numbers(friction: Sequence[Scalar], impratio: float, scale: Scalar = 1.0) -> list[Scalar]:
    """μ of the regularised cone, then the coefficients; `scale` is of those of sliding."""
    scaled = [mul(scale, f) if k < 2 else f for k, f in enumerate(friction)]
    return [mul(scaled[0], impratio**-0.5) if scaled else 0.0, *scaled]


def numbers(
    rule: Rule, distance: Scalar, velocity: Sequence[Scalar], v: Mapping[str, Any]
) -> tuple[Scalar, list[Scalar], Sequence[Scalar]]:
    """D, aref and the numbers of the cone; `v` has the slot's margin, weight and plain numbers."""
    r = distance - v["margin"]
    d = rule.soft.impedance(r)
    cone = v["plain"]
    if "friction" in v:
        cone = cone_numbers(cone[1:], rule.impratio, v["friction"])
    weight: Scalar = v["weight"]
    if rule.kind == PYRAMID:
        weight = weight + weight * (cone[1] * cone[1])
    R = rule.soft.regularisation(d, weight)
    if rule.kind == PYRAMID:
        R = 2.0 * (cone[0] * cone[0]) * R
    # MuJoCo keeps contacts that are nearer than the margin
    D = 1.0 / R if rule.kind == EQUAL else select(less(r, 0.0), 1.0 / R, 0.0)
    aref = [sub(mul(-rule.soft.B, velocity[0]), mul(rule.soft.K, mul(d, r)))]
    aref += [mul(-rule.drag, x) for x in velocity[1:]]
    return D, aref, cone


@cache
def setup(rule: Rule, varied: bool) -> Program:
    """D and aref from distance, margin, weight (of translation) and velocity; D is zero where the
    slot is idle. With `varied` friction also the numbers of the `cone`, from what they are at a
    `friction` of 1.
    """
    dim = rule.dim
    inputs: dict[str, Shape] = {"distance": (), "margin": (), "weight": (), "velocity": (dim,)}
    inputs["plain"] = (dim,)
    outputs: dict[str, Shape] = {"D": (), "aref": (dim,)}
    if varied:
        inputs["friction"] = ()
        outputs["cone"] = (dim,)

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        D, aref, cone = numbers(rule, v["distance"], v["velocity"], v)
        return (D, tuple(aref), tuple(cone)) if varied else (D, tuple(aref))

    return recorded(inputs, outputs, evaluate)


def _edges(y: Sequence[Scalar], cone: Sequence[Scalar]) -> list[tuple[int, float, Scalar]]:
    """(direction, sign, y_n ± μ_k y_k)."""
    return [
        (k, sign, add(y[0], mul(sign, mul(cone[k], y[k]))))
        for k in range(1, len(y))
        for sign in (1.0, -1.0)
    ]


class _Zone:
    """Where y is against an elliptic cone."""

    def __init__(self, y: Sequence[Scalar], cone: Sequence[Scalar]):
        mu = cone[0]
        self.mu = mu
        self.N = mul(mu, y[0])
        self.U = [mul(c, x) for c, x in zip(cone[1:], y[1:], strict=True)]
        square = total(mul(u, u) for u in self.U)
        none = less(square, TINY * TINY)
        T = sqrt(select(none, 1.0 + 0.0 * square, square))
        self.T = select(none, 0.0, T)
        self.inverse = select(none, 0.0, 1.0 / T)
        self.free = _Not(less(self.N, mul(mu, self.T)))  # N ≥ μ T
        self.stuck = _Not(less(0.0, add(mul(mu, self.N), self.T)))  # μ N + T ≤ 0

    def pick(self, free: Scalar, stuck: Scalar, slides: Scalar) -> Scalar:
        return self.free.select(free, self.stuck.select(stuck, slides))


class _Not:
    def __init__(self, condition: Any):
        self.condition = condition

    def select(self, a: Scalar, b: Scalar) -> Scalar:
        return select(self.condition, b, a)


def force(
    kind: str, y: Sequence[Scalar], D: Scalar, cone: Sequence[Scalar]
) -> tuple[list[Scalar], list[list[Scalar]]]:
    """f = -∂s/∂y, and W = ∂²s/∂y²."""
    dim = len(y)
    W: list[list[Scalar]] = [[0.0] * dim for _ in range(dim)]
    f: list[Scalar] = [0.0] * dim
    if kind in SINGLE:
        W[0][0] = D if kind == EQUAL else select(less(y[0], 0.0), D, 0.0)
        f[0] = -(W[0][0] * y[0])
    elif kind == PYRAMID:
        for k, sign, e in _edges(y, cone):
            w = select(less(e, 0.0), D, 0.0)
            push, lever = w * e, mul(sign, cone[k])
            f[0], f[k] = sub(f[0], push), sub(f[k], lever * push)
            W[0][0] = add(W[0][0], w)
            W[0][k] = W[k][0] = add(W[0][k], lever * w)
            W[k][k] = add(W[k][k], cone[k] * cone[k] * w)
    else:
        z = _Zone(y, cone)
        mu = z.mu
        Dm = D / (mu * mu * (1.0 + mu * mu))
        reach = z.N - mu * z.T
        f[0] = z.pick(0.0, -(D * y[0]), -(Dm * reach * mu))
        W[0][0] = z.pick(0.0, D, Dm * mu * mu)
        below = D / (mu * mu)
        along = mu * z.N * z.inverse
        for j, u in enumerate(z.U, start=1):
            c = cone[j]
            f[j] = z.pick(0.0, -(below * c * u), Dm * reach * mu * z.inverse * u * c)
            W[0][j] = W[j][0] = z.pick(0.0, 0.0, -(Dm * mu * mu * z.inverse * u * c))
            for i, w in enumerate(z.U[:j], start=1):
                found = along * z.inverse * z.inverse * u * w
                if i == j:
                    found = found + (mu * mu - along)
                found = Dm * c * cone[i] * found
                W[i][j] = W[j][i] = z.pick(0.0, below * c * c if i == j else 0.0, found)
    return f, W


@cache
def state(kind: str, dim: int) -> Program:
    """The force f = -∂s/∂y, and W = ∂²s/∂y²."""
    inputs: dict[str, Shape] = {"y": (dim,), "D": (), "cone": (dim,)}
    if kind in SINGLE:
        del inputs["cone"]

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        f, W = force(kind, v["y"], v["D"], v.get("cone", ()))
        return tuple(f), tuple(tuple(row) for row in W)

    return recorded(inputs, {"f": (dim,), "W": (dim, dim)}, evaluate)


@cache
def slope(kind: str, dim: int) -> Program:
    """What a slot adds to the first and second derivative by α of Σ s(y + α j)."""
    inputs: dict[str, Shape] = {
        "y": (dim,),
        "j": (dim,),
        "D": (),
        "cone": (dim,),
        "alpha": (),
        "first": (),
        "second": (),
    }
    if kind in SINGLE:
        del inputs["cone"]

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        j, D, first, second = v["j"], v["D"], v["first"], v["second"]
        y = [add(a, mul(v["alpha"], b)) for a, b in zip(v["y"], j, strict=True)]
        if kind in SINGLE:
            w = (D if kind == EQUAL else select(less(y[0], 0.0), D, 0.0)) * j[0]
            return first + w * y[0], second + w * j[0]
        cone = v["cone"]
        if kind == PYRAMID:
            ways = _edges(j, cone)
            for (_, _, e), (_, _, rate) in zip(_edges(y, cone), ways, strict=True):
                w = select(less(e, 0.0), D, 0.0) * rate
                first, second = first + w * e, second + w * rate
            return first, second
        z = _Zone(y, cone)
        mu = z.mu
        Dm = D / (mu * mu * (1.0 + mu * mu))
        N1 = mu * j[0]
        U1 = [mul(c, x) for c, x in zip(cone[1:], j[1:], strict=True)]
        cross = total(mul(a, b) for a, b in zip(z.U, U1, strict=True))
        square = total(mul(b, b) for b in U1)
        T1 = cross * z.inverse
        T2 = (square - T1 * T1) * z.inverse
        reach, rate = z.N - mu * z.T, N1 - mu * T1
        below = D / (mu * mu)
        return (
            first + z.pick(0.0, below * (z.N * N1 + cross), Dm * reach * rate),
            second + z.pick(0.0, below * (N1 * N1 + square), Dm * (rate * rate - reach * mu * T2)),
        )

    return recorded(inputs, {"first": (), "second": ()}, evaluate)


@cache
def moved(dim: int) -> Program:
    """y + α j."""
    inputs: dict[str, Shape] = {"y": (dim,), "j": (dim,), "alpha": ()}
    return recorded(
        inputs,
        {"y": (dim,)},
        lambda v: (tuple(a + v["alpha"] * b for a, b in zip(v["y"], v["j"], strict=True)),),
    )


@cache
def minus(dim: int) -> Program:
    """a - b."""
    shape: Shape = (dim,)
    return recorded(
        {"a": shape, "b": shape},
        {"y": shape},
        lambda v: (tuple(a - b for a, b in zip(v["a"], v["b"], strict=True)),),
    )
