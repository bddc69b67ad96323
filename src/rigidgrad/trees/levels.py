"""The walk by levels, for wide trees: bodies of a level side by side in lanes, tasks that stay in
the cache. Its tables are `plan.Levels`.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.runtime.loops import AnyKernel, kernel
from rigidgrad.scalars import Scalar
from rigidgrad.trees.algebra import Flat
from rigidgrad.trees.lanes import W, filled, width
from rigidgrad.trees.operators import Place, State
from rigidgrad.trees.packs import gather, lanes, put_lanes, scatter_add
from rigidgrad.trees.parallel import parts
from rigidgrad.trees.plan import Levels

Steps = tuple[AnyKernel, ...]  # of an operator, or none
Spaces = tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]

_BLOCK = 64  # slots that are prepared together


def tables_of(t: Levels) -> tuple[np.ndarray, ...]:
    """What `walk` needs of a plan."""
    packs = (t.pack_start, t.entry_start, t.home)
    return (*packs, t.body, t.parent, t.leaf, t.source, t.hang_start, t.hang_entry, t.hang_slot)


def shares(start: int, stop: int, pieces: int) -> list[tuple[int, int]]:
    return [(start + a, start + b) for a, b in parts(stop - start, pieces)]


@kernel
def walk(
    part: int,
    start: int,
    stop: int,
    down: Steps,
    up: Steps,
    tables: tuple[np.ndarray, ...],
    spaces: Spaces,
    home: np.ndarray,
    risen: np.ndarray,
    data: np.ndarray,
    rest: State,
) -> None:
    """Tasks start … stop down, up, or down and then up while their numbers are in the cache; leaves
    then go up again at once.

    `down` is (memory, prepare, ahead, step) and `up` (memory, step), or (): what is carried from
    parents, and what is collected at bodies, lies in these memories of the state (body, data,
    workspace, motions, *rest). `spaces` are workspaces and motions at home, or one a part for tasks
    that leave nothing behind; there motions of two successive levels are kept. What is carried into
    a task comes from `home`, what leaves it goes to `risen`.
    """
    pack_start, entry_start, home_start, body, parent, leaf, source = tables[0:7]
    hang_start, hang_entry, hang_slot = tables[7:10]
    works, motions = spaces
    passing = len(down) > 0 and len(up) > 0
    work, motion = works[part % len(works)], motions[part % len(motions)]
    state = (body, data, work, motion) + rest
    wide = width(work)
    for task in range(start, stop):
        begin, end = pack_start[task] * W, pack_start[task + 1] * W
        enter, leave = entry_start[task] * W, entry_start[task + 1] * W
        first = 0 if passing else home_start[task] * W
        shift = first + leave - enter - begin
        if len(up) > 0:
            collected, size, at, count = up[0](state)
            nothing = repeated(filled(collected, 0.0), count)
            for e in range(enter, leave, wide):
                put_lanes(collected, first + e - enter, size, at, nothing)
        if len(down) > 0:
            _enter(down, enter, leave, first, source, home, state)
            _down(down, up, begin, end, shift, first, parent, leaf, state)
        if len(up) > 0:
            for h in range(hang_start[task], hang_start[task + 1]):
                e, s = hang_entry[h], hang_slot[h]
                for k in range(count):
                    collected[s // W, at + k, s % W] += risen[e // W, k, e % W]
            for s in range(end - wide, begin - 1, -wide):
                if body[s] >= 0 and not (passing and leaf[s // W]):
                    _rise(up, (s, s + shift, wide, s + shift), first, parent, state)
            for e in range(enter, leave, wide):
                x = lanes(collected, first + e - enter, size, at, count)
                put_lanes(risen, e, count, 0, x)


@kernel
def _enter(
    down: Steps,
    enter: int,
    leave: int,
    first: int,
    source: np.ndarray,
    home: np.ndarray,
    state: State,
) -> None:
    """What comes from the bodies that a task's roots hang on."""
    carried, size, at, count = down[0](state)
    for e in range(enter, leave, width(carried)):
        place = first + e - enter
        put_lanes(carried, place, size, at, gather(home, source, e, 0, -1, size, at, count))


@kernel
def _down(
    down: Steps,
    up: Steps,
    begin: int,
    end: int,
    shift: int,
    first: int,
    parent: np.ndarray,
    leaf: np.ndarray,
    state: State,
) -> None:
    """Slots begin … end, whose numbers lie `shift` slots up; parents count from slot `first`."""
    memory, prepare, ahead, step = down
    body, _data, work = state[0:3]
    carried, size, at, count = memory(state)
    wide = width(work)
    passing = len(up) > 0
    mask = len(carried) * W - 1 if passing else -1
    spare = (len(work) - 1) * W
    for s in range(begin, end, wide):
        if (s - begin) % _BLOCK == 0:
            for t in range(s, min(s + _BLOCK, end), wide):
                prepare((t, t + shift, wide, t + shift), state)
        ahead(s, state)
        if body[s] >= 0:
            ends = passing and leaf[s // W]
            place = (s, spare if ends else s + shift, wide, s + shift)
            parents = gather(carried, parent, s, first, mask, size, at, count)
            put_lanes(carried, (s + shift) & mask, size, at, step(parents, place, state))
            if ends:
                _rise(up, place, first, parent, state)


@kernel
def _rise(up: Steps, place: Place, first: int, parent: np.ndarray, state: State) -> None:
    memory, step = up
    collected, size, at, count = memory(state)
    s, slot, _, _ = place
    share = step(lanes(collected, slot, size, at, count), place, state)
    scatter_add(collected, parent, s, first, size, at, share)


def repeated(x: Scalar, count: int) -> Flat:
    return (x,) * count
