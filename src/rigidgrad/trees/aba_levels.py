"""Forward dynamics by levels: the articulated-body algorithm, bodies of a level side by side, tasks
on all cores.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.lanes import W
from rigidgrad.trees.levels import Spaces, shares, tables_of, walk
from rigidgrad.trees.operators import (
    FORWARD,
    State,
    accelerate,
    articulate,
    of_inertias,
    of_velocities,
    ready,
    still,
    turn,
    weigh,
)
from rigidgrad.trees.parallel import spread
from rigidgrad.trees.plan import packed_weights, world
from rigidgrad.trees.states import Settle
from rigidgrad.trees.tree import Tree


def aba(
    tree: Tree,
    q: np.ndarray,
    v: np.ndarray,
    tau: np.ndarray,
    armature: np.ndarray,
    base: np.ndarray,
    external: np.ndarray,
    settle: Settle,
    out: np.ndarray,
    threads: int,
) -> None:
    """As `aba_sequential.aba`."""
    t, dtype = tree.plan.levels, q.dtype
    tables, data = tables_of(t), tree.plan.packed("levels", dtype)
    weights = packed_weights(armature, t.body)
    with (
        tree.plan.workspace((1, t.all_packs, FORWARD, W), dtype) as work,
        tree.plan.workspace((1, t.all_packs, 6, W), dtype) as motion,
        tree.plan.workspace((int(t.entry_start[-1]), 27, W), dtype) as risen,
    ):
        for b in range(len(q)):
            rest = ((b, q, v), (tau, weights, external, out))
            shared = (tables, (work, motion), motion[0], risen, data, rest)
            world(motion[0], base[b, :6])
            for start, stop in t.strata:
                spread(threads, _inwards_down, shares(start, stop, threads), *shared)
            for start, stop in reversed(t.strata):
                spread(threads, _inwards_up, shares(start, stop, threads), *shared)
            world(motion[0], settle(b, risen[0, :21, 0].copy(), risen[0, 21:, 0].copy()))
            for start, stop in t.strata:
                spread(threads, _outwards, shares(start, stop, threads), *shared)


VELOCITY = (of_velocities, turn, still, weigh)
ARTICULATED = (of_inertias, articulate)
ACCELERATION = (of_velocities, ready, still, accelerate)


@kernel
def _inwards_down(
    part: int,
    start: int,
    stop: int,
    tables: tuple[np.ndarray, ...],
    spaces: Spaces,
    home: np.ndarray,
    risen: np.ndarray,
    data: np.ndarray,
    rest: State,
) -> None:
    walk(part, start, stop, VELOCITY, (), tables, spaces, home, risen, data, rest)


@kernel
def _inwards_up(
    part: int,
    start: int,
    stop: int,
    tables: tuple[np.ndarray, ...],
    spaces: Spaces,
    home: np.ndarray,
    risen: np.ndarray,
    data: np.ndarray,
    rest: State,
) -> None:
    walk(part, start, stop, (), ARTICULATED, tables, spaces, home, risen, data, rest)


@kernel
def _outwards(
    part: int,
    start: int,
    stop: int,
    tables: tuple[np.ndarray, ...],
    spaces: Spaces,
    home: np.ndarray,
    risen: np.ndarray,
    data: np.ndarray,
    rest: State,
) -> None:
    walk(part, start, stop, ACCELERATION, (), tables, spaces, home, risen, data, rest)
