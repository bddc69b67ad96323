"""The walk from body to body, parents first or last: the textbook's loops, for few bodies and as
the baseline of all others.

Row i + 1 of a workspace belongs to body i, row 0 to the world.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.runtime.loops import AnyKernel, kernel
from rigidgrad.trees.algebra import plus
from rigidgrad.trees.operators import State
from rigidgrad.trees.packs import numbers, put_numbers

Outward = tuple[AnyKernel, AnyKernel, AnyKernel]
Inward = tuple[AnyKernel, AnyKernel]


@kernel
def outwards(parents: np.ndarray, order: np.ndarray, operator: Outward, state: State) -> None:
    """An operator is (memory, prepare, step): what is carried from row to row lies in the memory,
    which has that of the world.
    """
    memory, prepare, step = operator
    carried, width, first, count = memory(state)
    for k in range(len(order)):
        i = order[k]
        place = (i, i + 1, 1, i + 1)
        prepare(place, state)
        parent = numbers(carried, (parents[i] + 1) * width + first, count)
        put_numbers(carried, (i + 1) * width + first, step(parent, place, state))


@kernel
def inwards(parents: np.ndarray, order: np.ndarray, operator: Inward, state: State) -> None:
    """An operator is (memory, step): what is collected lies in the memory, which has each body's
    own share, and what the world begins with.
    """
    memory, step = operator
    collected, width, first, count = memory(state)
    for k in range(len(order) - 1, -1, -1):
        i = order[k]
        up = step(numbers(collected, (i + 1) * width + first, count), (i, i + 1, 1, i + 1), state)
        to = (parents[i] + 1) * width + first
        put_numbers(collected, to, plus(numbers(collected, to, count), up))
