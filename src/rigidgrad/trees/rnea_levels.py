"""Inverse dynamics by levels: bodies of a level side by side in lanes, tasks that stay in the
cache, all cores.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.lanes import W
from rigidgrad.trees.levels import Spaces, shares, tables_of, walk
from rigidgrad.trees.operators import INVERSE, State, bear, drive, of_forces, of_motions, turn
from rigidgrad.trees.packs import fetch
from rigidgrad.trees.parallel import parts, spread
from rigidgrad.trees.plan import Plan, world
from rigidgrad.trees.rnea_heavy_path import AHEAD

THREADED = 30_000  # bodies from which on threads are worth their calls


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
    """tau of every state. q, v, a, tau: (B, N) in the bodies' order; base (B, 12): velocity and
    acceleration of what the roots stand on.

    external: (B, N, 6) forces [moment, force] in body frames, or empty. base_force (B, 6): what
    that base has to bear (of the first root).
    """
    t = plan.levels
    dtype = tau.dtype
    tables, data = tables_of(t), plan.packed("levels", dtype)
    states = len(tau)
    # threads share states where there are enough of them, else tasks
    inner = threads if states < threads and plan.topology.bodies >= THREADED else 1
    pieces = 1 if inner == 1 else 4 * inner

    def one(index: int, first: int, last: int) -> None:
        with (
            plan.workspace((1, t.upper_packs, INVERSE, W), dtype) as home,
            plan.workspace((1, t.upper_packs, 12, W), dtype) as home_motion,
            plan.workspace((int(t.entry_start[-1]), 6, W), dtype) as risen,
            plan.workspace((pieces, t.largest + 1, INVERSE, W), dtype) as local,
            plan.workspace((pieces, t.ring, 12, W), dtype) as ring,
        ):
            for b in range(first, last):
                shared = (home_motion[0], risen, data, ((b, q, v), (a, external, tau)))
                at_home = (tables, (home, home_motion), *shared)
                world(home_motion[0], base[b])
                for start, stop in t.strata[:-1]:
                    spread(inner, _down, shares(start, stop, inner), *at_home)
                passing = (tables, (local, ring), *shared)
                spread(inner, _down_and_up, shares(*t.strata[-1], pieces), *passing)
                for start, stop in reversed(t.strata[:-1]):
                    spread(inner, _up, shares(start, stop, inner), *at_home)
                base_force[b] = risen[0, :, 0]

    if inner > 1 or threads == 1 or states == 1:
        one(0, 0, states)
    else:
        spread(threads, one, parts(states, threads))


@kernel
def _ahead(s: int, state: State) -> None:
    """What bodies to come will read: the memory does not foresee it."""
    body, data, _work, _motion, (b, q, v), (a, _external, tau) = state
    fetch(data, (s + AHEAD) * 24, 12)
    ahead = b * q.shape[1] + body[min(s + AHEAD, len(body) - 1)]
    fetch(q, ahead, 1)
    fetch(v, ahead, 1)
    fetch(a, ahead, 1)
    fetch(tau, ahead, 1)


DOWN, UP = (of_motions, turn, _ahead, bear), (of_forces, drive)


@kernel
def _down(
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
    walk(part, start, stop, DOWN, (), tables, spaces, home, risen, data, rest)


@kernel
def _up(
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
    walk(part, start, stop, (), UP, tables, spaces, home, risen, data, rest)


@kernel
def _down_and_up(
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
    walk(part, start, stop, DOWN, UP, tables, spaces, home, risen, data, rest)
