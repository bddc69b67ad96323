"""Compiled loops over all cores: a function of a range, called for its parts by the process's crew
of threads.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from rigidgrad.runtime.loops import Kernel
from rigidgrad.runtime.threads import default_crew, thread_count


def parts(count: int, pieces: int) -> list[tuple[int, int]]:
    """0 … count cut into so many ranges of nearly equal length, empty ones left out."""
    cuts = [count * k // pieces for k in range(pieces + 1)]
    return [(a, b) for a, b in itertools.pairwise(cuts) if b > a]


def spread(
    threads: int, function: Callable[..., Any], ranges: list[tuple[int, int]], *args: Any
) -> None:
    """function(k, start, stop) for the k-th range, all k, followed by `args` if it is a kernel;
    they may run at the same time.
    """
    if not ranges:
        return
    call = function.over(*args) if isinstance(function, Kernel) else function
    if threads == 1 or len(ranges) == 1:
        for k, (start, stop) in enumerate(ranges):
            call(k, start, stop)
    else:
        default_crew(threads).map(lambda k: call(k, *ranges[k]), range(len(ranges)))


__all__ = ["parts", "spread", "thread_count"]
