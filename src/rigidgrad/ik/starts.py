"""Where searches begin: low-discrepancy configurations within the limits, and for each target the
nearest of some of them.

The points are Halton's, with digits multiplied by a factor of their own for each base (Halton 1960;
Warnock 1972). The first `BLOCKS` starts of a target are the nearest of `BLOCK` points each, found
in lanes by how the task's features (positions, rotations) differ; further starts are further
points.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import pi, tau
from typing import Any

import numpy as np

from rigidgrad.ik.step import Aim
from rigidgrad.kernels.language import Kernel
from rigidgrad.model.model import Joint, Model
from rigidgrad.program.fuse import fuse
from rigidgrad.program.recorder import record
from rigidgrad.scalars import Scalar, less, mul, select, sub, total

BLOCKS, BLOCK = 8, 48
_GOLDEN = 0.6180339887498949


def halton(first: int, count: int, dimensions: int) -> np.ndarray:
    """Points (count, dimensions) of the unit cube, from the one numbered `first` on."""
    points = np.zeros((count, dimensions))
    for axis, base in zip(points.T, _primes(dimensions), strict=True):
        index, digit = np.arange(first + 1, first + count + 1), 1.0
        factor = max(1, int(_GOLDEN * base))
        while index.any():
            digit /= base
            axis += digit * (index % base * factor % base)
            index //= base
    return points


def _primes(count: int) -> list[int]:
    found: list[int] = []
    candidate = 2
    while len(found) < count:
        if all(candidate % p for p in found if p * p <= candidate):
            found.append(candidate)
        candidate += 1
    return found


def configurations(model: Model, first: int, count: int) -> np.ndarray:
    """(count, nq) within the limits. A free base stays at the origin, in every second one upright,
    in the others turned at random.
    """
    drawn = [j for j in model.joints if not j.is_mimic]
    points = halton(first, count, sum(j.nv for j in drawn))
    q = np.empty((count, model.nq))
    start = 0
    for j in drawn:
        own = points[:, start : start + j.nv]
        start += j.nv
        q[:, j.q : j.q + j.nq] = _numbers(model, j, own)
    base = model.joints[0] if model.joints and model.joints[0].kind.flies else None
    if base is not None:
        q[(first + np.arange(count)) % 2 == 0, base.q : base.q + base.nq] = base.kind.neutral
    lower, upper = model.limits.lower, model.limits.upper
    return np.clip(q, lower, upper)


def _numbers(model: Model, j: Joint, points: np.ndarray) -> np.ndarray:
    """Positions of one joint from points of the unit cube."""
    kind, result = j.kind, np.empty((len(points), j.nq))
    for k in range(kind.plain):
        low, high = kind.span(
            k, float(model.limits.lower[j.q + k]), float(model.limits.upper[j.q + k])
        )
        result[:, k] = 0.0 if kind.flies else low + points[:, k] * (high - low)
    rest = points[:, kind.plain :]
    if kind.direction and kind.direction.freedoms == 1:
        angle = pi * (2 * rest[:, 0] - 1)
        result[:, kind.plain :] = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    elif kind.direction:  # Shoemake, Uniform random rotations, 1992
        a, b = np.sqrt(1 - rest[:, 0]), np.sqrt(rest[:, 0])
        s, t = tau * rest[:, 1], tau * rest[:, 2]
        result[:, kind.plain :] = np.stack(
            [a * np.sin(s), a * np.cos(s), b * np.sin(t), b * np.cos(t)], axis=1
        )
    return result


def nearest(model: Model, aim: Aim, library: np.ndarray) -> Kernel:
    """target → the number, in each block of the library, of the configuration nearest to it, and
    how far matrices in the target are from rotations.
    """
    size = aim.size(model)
    seen: list[Scalar] = [x for t in aim.terms for x in t.observed(model, tuple(library.T))]
    features = (
        np.stack([np.broadcast_to(np.asarray(x, float), len(library)) for x in seen], axis=1)
        if seen
        else np.zeros((len(library), 0))
    )
    n = features.shape[1]
    rows = np.concatenate(
        [
            features,
            0.5 * np.sum(features**2, axis=1, keepdims=True),
            np.arange(float(len(library)))[:, None],
        ],
        axis=1,
    )

    def prepare(v: Mapping[str, Any]) -> tuple[Any, ...]:
        targets = aim.targets(tuple(v["target"]))
        return [x for t, target, _ in targets for x in t.wanted(target)], (
            total(t.skew(target) for t, target, _ in targets),
        )

    def compare(v: Mapping[str, Any]) -> tuple[Any, ...]:
        *f, half, number = v["row"]
        score = sub(total(mul(x, y) for x, y in zip(f, v["wanted"], strict=True)), half)
        better = less(v["best"][0], score)
        return ((select(better, score, v["best"][0]), select(better, number, v["best"][1])),)

    k = Kernel()
    target = k.input("target", size)
    near, skew = k.output("near", BLOCKS), k.output("skew", 1)
    wanted, best = k.scratch("wanted", n), k.scratch("best", 2)
    table = k.constant("library", rows.ravel().tolist())
    first = k.constant("first", [x for b in range(BLOCKS) for x in (-1e30, float(b * BLOCK))])
    k.call(
        fuse(record({"target": (size,)}, {"wanted": (n,), "skew": (1,)}, prepare)),
        {"target": target.at(0, size)},
        {"wanted": wanted.at(0, n), "skew": skew.at(0, 1)},
    )
    comparison = fuse(
        record({"row": (n + 2,), "wanted": (n,), "best": (2,)}, {"better": (2,)}, compare)
    )
    begin = record({"x": (2,)}, {"y": (2,)}, lambda v: (tuple(v["x"]),))
    end = record({"x": (1,)}, {"y": (1,)}, lambda v: (tuple(v["x"]),))
    with k.along(BLOCKS) as b:
        k.call(begin, {"x": first.at(2 * b, 2)}, {"y": best.at(0, 2)})
        with k.along(BLOCK) as i:
            k.call(
                comparison,
                {
                    "row": table.at((n + 2) * (BLOCK * b + i), n + 2),
                    "wanted": wanted.at(0, n),
                    "best": best.at(0, 2),
                },
                {"better": best.at(0, 2)},
            )
        k.call(end, {"x": best.at(1, 1)}, {"y": near.at(b, 1)})
    return k
