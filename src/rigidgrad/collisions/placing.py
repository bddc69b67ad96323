"""The Program that places a robot's balls, capsules and boxes in the world, and says how bodies
move with each freedom.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rigidgrad.algorithms.joints import body_transforms, motion_subspace
from rigidgrad.geometry.links import BoxElement, LinkShape
from rigidgrad.model.model import WORLD, Model
from rigidgrad.program.fuse import fuse
from rigidgrad.program.program import Program
from rigidgrad.program.recorder import record
from rigidgrad.scalars import Scalar, add, mul
from rigidgrad.spatial import Transform, add3, cross3, rotate_back


def placed_numbers(links: Sequence[LinkShape]) -> int:
    """How many numbers place all links: three for the middle of each, and those of its elements."""
    return sum(3 + sum(e.numbers for e in link.elements) for link in links)


def placing(model: Model, links: Sequence[LinkShape], twists: bool) -> Program:
    """q → `placed`: for each link the middle of its ball, then, link after link, centres of balls,
    for capsules one end and the way to the other, and for boxes the middle and the rotation, row by
    row; `twists` (dofs, 6): angular and linear velocity, at the origin of the world, of what hangs
    on a freedom that moves at a unit rate.
    """
    outputs: dict[str, tuple[int, ...]] = {"placed": (placed_numbers(links),)}
    if twists:
        outputs["twists"] = (model.dofs, 6)

    def evaluate(inputs: dict[str, Any]) -> tuple[Any, ...]:
        poses: list[Transform] = []
        for i, step in enumerate(body_transforms(model, inputs["q"])):
            parent = model.parents[i]
            poses.append(step if parent == WORLD else step @ poses[parent])

        def at(body: int, p: Sequence[float]) -> tuple[Scalar, ...]:
            if body == WORLD:
                return tuple(p)
            X = poses[body]
            return add3(X.r, rotate_back(X.E, tuple(p)))

        def turned(body: int, way: Sequence[float]) -> tuple[Scalar, ...]:
            return tuple(way) if body == WORLD else rotate_back(poses[body].E, tuple(way))

        numbers: list[Scalar] = []
        for link in links:
            numbers += at(link.body, link.center)
        for link in links:
            for e in link.elements:
                if isinstance(e, BoxElement):
                    numbers += at(link.body, e.center)
                    axes = [turned(link.body, axis) for axis in zip(*e.rotation, strict=True)]
                    numbers += [x for row in zip(*axes, strict=True) for x in row]
                    continue
                numbers += at(link.body, e.start)
                if not e.is_ball:
                    numbers += turned(
                        link.body, [float(y - x) for x, y in zip(e.start, e.end, strict=True)]
                    )
        if not twists:
            return (tuple(numbers),)
        rows: list[tuple[Scalar, ...]] = []
        for joint, X in zip(model.joints, poses, strict=True):
            for s in motion_subspace(joint):
                w, linear = rotate_back(X.E, s.angular), rotate_back(X.E, s.linear)
                moved = cross3(X.r, w)
                rows.append(
                    tuple(
                        mul(joint.multiplier, x)
                        for x in (*w, *(add(x, y) for x, y in zip(linear, moved, strict=True)))
                    )
                )
        return tuple(numbers), tuple(rows)

    return fuse(record({"q": (model.nq,)}, outputs, evaluate))
