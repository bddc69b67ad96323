"""Frames for gradients, by a count over limbs.

Frames differ at the ends of limbs alone, and what a limb hands on to its trunk is as dense in any
of them. So the operations by which two choices differ are counted on each limb with the few bodies
that carry it, and limbs whose numbers are zeros and ones in the same places are counted once: a
humanoid is not recorded as a whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from rigidgrad.algorithms.fast.gauge import Gauge, own_frames
from rigidgrad.model.model import WORLD, Joint, Model

_SHARED = 4  # bodies in one frame, at most
_CARRYING = 6  # bodies at the end of a path that are counted, with the first of it


class Frames(NamedTuple):
    """A choice of frames, and its operations: those of the counted parts."""

    gauge: Gauge
    operations: int


def gauges(model: Model) -> Iterator[Gauge]:
    """Each body in its own frame; or the last two, three or four bodies of every limb in the frame
    of their first.
    """
    found = limbs(model)
    yield own_frames(model)
    for shared in range(2, min(max(map(len, found)), _SHARED) + 1):
        yield _gauge(model, found, shared)


def ranked(model: Model, operations: Callable[[Model, Gauge], int]) -> list[Frames]:
    """The frames that `gauges` offers, the cheapest first; `operations` counts those of a model in
    a gauge.
    """
    if model.has_mimic:  # which joints of other limbs may follow
        return sorted(
            (Frames(gauge, operations(model, gauge)) for gauge in gauges(model)),
            key=lambda frames: frames.operations,
        )
    known: dict[Any, int] = {}
    totals: dict[Gauge, int] = dict.fromkeys(gauges(model), 0)
    for limb in limbs(model):
        part = carried_limb(model, limb)
        key = structure(part)
        for shared, gauge in enumerate(totals, 1):
            count = min(shared, len(limb))
            if (key, count) not in known:
                known[key, count] = operations(part, _gauge(part, limbs(part), count))
            totals[gauge] += known[key, count]
    return sorted(
        (Frames(gauge, total) for gauge, total in totals.items()),
        key=lambda frames: frames.operations,
    )


def limbs(model: Model) -> list[list[int]]:
    """Chains of bodies with one freedom each, from a branch to a leaf; the leaf may have
    several.
    """
    found = []
    for leaf in model.bodies:
        if not model.children[leaf]:
            limb = [leaf]
            for body in model.ancestors[leaf][1:]:
                if len(model.children[body]) > 1 or model.joints[body].nv > 1:
                    break
                limb.append(body)
            found.append(limb[::-1])
    return found


def _gauge(model: Model, found: Sequence[Sequence[int]], shared: int) -> Gauge:
    gauge = list(model.bodies)
    for limb in found:
        for body in limb[-shared:]:
            gauge[body] = limb[-shared:][0]
    return tuple(gauge)


def carried_limb(model: Model, limb: Sequence[int]) -> Model:
    """A chain: the end of a limb, what carries it, and the first body of the path to it."""
    path = model.ancestors[limb[-1]][::-1]
    kept = path if len(path) <= _CARRYING + 1 else (path[0], *path[-_CARRYING:])
    joints: list[Joint] = []
    armature: list[Any] = []
    q = v = 0
    for body in kept:
        joint = model.joints[body]
        joints.append(dataclasses.replace(joint, q=q, v=v, dof=v))
        armature += model.armature[joint.dof : joint.dof + joint.nv]
        q, v = q + joint.nq, v + joint.nv
    return dataclasses.replace(
        model,
        joints=tuple(joints),
        parents=(WORLD, *range(len(kept) - 1)),
        placements=tuple(model.placements[body] for body in kept),
        inertias=tuple(model.inertias[body] for body in kept),
        armature=tuple(armature),
        body_names=tuple(model.body_names[body] for body in kept),
        frames=MappingProxyType({}),
        visuals=(),
    )


def structure(model: Model) -> Any:
    """Joints, and where numbers are zeros or ones: models that agree in it take the same
    operations.
    """

    def of(x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(map(of, x))
        return x if x in (0.0, 1.0, -1.0) else None

    joints = [(joint.type, of(joint.axis), of(joint.pitch)) for joint in model.joints]
    return (
        tuple(joints),
        model.parents,
        of(tuple((p.R, p.p) for p in model.placements)),
        of(model.inertias),
        of(model.armature),
    )
