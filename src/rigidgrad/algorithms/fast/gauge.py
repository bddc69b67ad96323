"""Which frame each body's quantities are written in: its own, or that of a neighbour.

A gauge names for each body the body whose frame it uses; bodies that share one form a connected
part of the tree. In one frame nothing has to be transformed between parent and child, which pays
where joints are parallel; own frames pay elsewhere. Joint-space results do not change.
"""

from __future__ import annotations

from typing import NamedTuple

from rigidgrad.algorithms.joints import External, Vector, body_transforms, inertias, subspaces
from rigidgrad.model.model import WORLD, Model
from rigidgrad.spatial import IDENTITY, Force, Inertia, Motion, Transform

Gauge = tuple[int, ...]


class Articulation(NamedTuple):
    """A tree in a gauge: transforms from the parent's frame to the body's (the identity within one
    frame), axes, inertias, wrenches.
    """

    X: list[Transform]
    S: list[tuple[Motion, ...]]
    I: list[Inertia]
    external: dict[int, Force]


def own_frames(model: Model) -> Gauge:
    return tuple(model.bodies)


def articulate(
    model: Model, q: Vector, gauge: Gauge, external: External | None = None
) -> Articulation:
    X, S, I = body_transforms(model, q), subspaces(model), inertias(model)
    wrenches = dict(external or {})
    if gauge == own_frames(model):
        return Articulation(X, S, I, wrenches)
    # from the used frame to the body's own
    Z = [from_center(model, X, i, gauge[i]) for i in model.bodies]
    for i in model.bodies:
        if gauge[i] != i:
            S[i] = tuple(Z[i].motion_back(s) for s in S[i])
            I[i] = Z[i].inertia_back(I[i])
            if i in wrenches:
                wrenches[i] = Z[i].force_back(wrenches[i])
    steps = []
    for i in model.bodies:
        parent = model.parents[i]
        if parent != WORLD and gauge[parent] == gauge[i]:
            steps.append(IDENTITY)
            continue
        step = X[i] if parent == WORLD or gauge[parent] == parent else X[i] @ Z[parent]
        steps.append(step if gauge[i] == i else Z[i].inverse() @ step)
    return Articulation(steps, S, I, wrenches)


def from_center(model: Model, X: list[Transform], body: int, center: int) -> Transform:
    """The transform from the center's frame to the body's."""
    up_body, up_center = model.ancestors[body], model.ancestors[center]
    common = next(b for b in up_body if b in up_center)
    down = IDENTITY  # from the common ancestor to the body
    for b in reversed(up_body[: up_body.index(common)]):
        down = X[b] @ down
    back = IDENTITY  # from the common ancestor to the center
    for b in reversed(up_center[: up_center.index(common)]):
        back = X[b] @ back
    if center == common:
        return down
    return back.inverse() if body == common else down @ back.inverse()
