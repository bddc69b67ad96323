"""Inverse dynamics as the textbook has it: one loop down, one loop up (Featherstone 2008, table
5.1). The baseline of all others.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.operators import INVERSE, bear, drive, of_forces, of_motions, turn
from rigidgrad.trees.packs import numbers, put_numbers
from rigidgrad.trees.parallel import parts, spread
from rigidgrad.trees.plan import Plan
from rigidgrad.trees.sequential import inwards, outwards


def rnea(
    plan: Plan,
    q: np.ndarray,
    v: np.ndarray,
    a: np.ndarray,
    base: np.ndarray,
    external: np.ndarray,
    tau: np.ndarray,
    base_force: np.ndarray,
    threads: int,
) -> None:
    """As `rnea_levels.rnea`."""
    ranges = parts(len(q), threads if q.size > 20_000 else 1)
    topology, rows, count = plan.topology, plan.topology.bodies + 1, max(1, len(ranges))
    with (
        plan.workspace((count, rows, INVERSE), q.dtype) as work,
        plan.workspace((count, rows, 12), q.dtype) as motion,
    ):
        tables = topology.parents, topology.order, plan.rows(q.dtype), work, motion
        spread(threads, _states, ranges, *tables, q, v, a, base, external, tau, base_force)


@kernel
def _states(
    part: int,
    first: int,
    last: int,
    parents: np.ndarray,
    order: np.ndarray,
    data: np.ndarray,
    works: np.ndarray,
    motions: np.ndarray,
    q: np.ndarray,
    v: np.ndarray,
    a: np.ndarray,
    base: np.ndarray,
    external: np.ndarray,
    tau: np.ndarray,
    force: np.ndarray,
) -> None:
    work, motion = works[part], motions[part]
    for b in range(first, last):
        state = ((), data, work, motion, (b, q, v), (a, external, tau))
        put_numbers(motion, 0, numbers(base, b * 12, 12))
        put_numbers(work, 12, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
        outwards(parents, order, (of_motions, turn, bear), state)
        inwards(parents, order, (of_forces, drive), state)
        put_numbers(force, b * 6, numbers(work, 12, 6))
