"""Trees to test and measure with: Featherstone's autoTree."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.trees.tree import GRAVITY, JOINTS, Tree

if TYPE_CHECKING:
    from rigidgrad.runtime.arrays import Numbers


def auto_tree(
    bodies: int,
    branching: float = 1.0,
    skew: float = 0.0,
    taper: float = 1.0,
    *,
    joints: str | Sequence[str] = "revolute",
    pitch: float = 0.1,
    gravity: Numbers = GRAVITY,
    floating_base: bool = False,
) -> Tree:
    """Featherstone's autoTree: thin-walled cylinders of 1 m and 1 kg, body i's parent being
    floor((i - 2 + ceil(bf)) / bf), counted from 1.

    branching: children a body has on average, 1 for a chain. skew: rad between successive joint
    axes, about the body's length. taper: size of a body relative to the one numbered before.
    joints: one word, or several that bodies take in turns: revolute, prismatic, helical (with
    `pitch` in m per rad). `gravity` and `floating_base` as of a Tree.
    """
    try:
        n = operator.index(bodies)
    except TypeError:
        raise InputError(f"bodies is a whole number, not {bodies!r}") from None
    if n < 1:
        raise InputError(f"a tree has at least one body, not {n}")
    for name, value in (
        ("branching", branching),
        ("skew", skew),
        ("taper", taper),
        ("pitch", pitch),
    ):
        if not isinstance(value, int | float | np.number) or not math.isfinite(value):
            raise InputError(f"{name} is a finite number, not {value!r}")
    if branching < 1:
        raise InputError(f"branching is {branching}; a tree needs at least 1, a chain")
    if taper <= 0:
        raise InputError(f"taper is {taper}; it must be positive")
    kinds = (joints,) if isinstance(joints, str) else tuple(joints)
    if not kinds or set(kinds) - set(JOINTS):
        raise InputError(f"joints are words out of {', '.join(JOINTS)}, not {joints!r}")

    number = np.arange(1, n + 1, dtype=float)
    parents = np.floor((number - 2 + math.ceil(branching)) / branching).astype(np.int64) - 1
    parents[0] = -1
    size = np.exp2(math.log2(taper) * np.arange(n)) if taper != 1 else np.ones(n)
    if not 1e-90 < size[-1] < 1e90:  # masses are cubes of it
        raise InputError(
            f"with taper {taper}, {n} bodies would shrink or grow beyond what a number can hold"
        )
    c, s = math.cos(skew), math.sin(skew)
    rotation = np.broadcast_to(
        np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]]), (n, 3, 3)
    ).copy()
    rotation[parents < 0] = np.eye(3)
    translation = np.zeros((n, 3))
    translation[:, 0] = np.where(parents >= 0, size[parents], 0.0)
    com = np.zeros((n, 3))
    com[:, 0] = 0.5 * size
    mass = size**3
    inertia = np.zeros((n, 3, 3))
    for k, moment in enumerate((0.0025, 1.015 / 12, 1.015 / 12)):
        inertia[:, k, k] = moment * mass * size**2
    return Tree(
        parents,
        rotation=rotation,
        translation=translation,
        mass=mass,
        com=com,
        inertia=inertia,
        joints=[kinds[i % len(kinds)] for i in range(n)] if len(kinds) > 1 else kinds[0],
        pitch=pitch,
        gravity=gravity,
        floating_base=floating_base,
    )
