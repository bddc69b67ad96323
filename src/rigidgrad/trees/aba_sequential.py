"""Forward dynamics as the textbook has it: down for velocities, up for articulated inertias, down
for accelerations (Featherstone 2008, table 7.1).
"""

from __future__ import annotations

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.operators import (
    FORWARD,
    State,
    accelerate,
    articulate,
    of_inertias,
    of_velocities,
    ready,
    turn,
    weigh,
)
from rigidgrad.trees.sequential import inwards, outwards
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
    """Accelerations out (B, N) of the joints. `settle(b, J, p)` gives the acceleration (6,) of what
    the roots stand on, from the load on it.
    """
    rows, dtype = tree.bodies + 1, q.dtype
    with (
        tree.plan.workspace((rows, FORWARD), dtype) as work,
        tree.plan.workspace((rows, 6), dtype) as motion,
    ):
        shared = tree.parents, tree.topology.order, tree.plan.rows(dtype), work, motion
        for b in range(len(q)):
            rest = ((b, q, v), (tau, armature[:, None], external, out))
            motion[0], work[0] = base[b, :6], 0.0
            _inwards(*shared, rest)
            load = work[0, 12:39].copy()
            motion[0] = settle(b, load[:21], load[21:])
            _outwards(*shared, rest)


@kernel
def _inwards(
    parents: np.ndarray,
    order: np.ndarray,
    data: np.ndarray,
    work: np.ndarray,
    motion: np.ndarray,
    rest: State,
) -> None:
    state = ((), data, work, motion) + rest
    outwards(parents, order, (of_velocities, turn, weigh), state)
    inwards(parents, order, (of_inertias, articulate), state)


@kernel
def _outwards(
    parents: np.ndarray,
    order: np.ndarray,
    data: np.ndarray,
    work: np.ndarray,
    motion: np.ndarray,
    rest: State,
) -> None:
    state = ((), data, work, motion) + rest
    outwards(parents, order, (of_velocities, ready, accelerate), state)
