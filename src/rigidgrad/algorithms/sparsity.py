"""Where a joint-space matrix can be non-zero: the branch-induced sparsity of the tree."""

from __future__ import annotations

from functools import lru_cache

from rigidgrad.model.model import Model

Supports = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=64)
def _supports(ancestors: Supports, layout: tuple[tuple[int, int], ...]) -> Supports:
    """layout: (v, nv) of each joint."""
    nv = max((v + n for v, n in layout), default=0)
    rows: list[set[int]] = [set() for _ in range(nv)]
    for path in ancestors:
        v, n = layout[path[0]]
        for k in range(v, v + n):
            for body in path:
                w, m = layout[body]
                for other in range(w, w + m):
                    low, high = min(k, other), max(k, other)
                    if low != high:
                        rows[high].add(low)
    # fill-in of the factorisation from the last row up; a tree without mimic joints has none
    for k in reversed(range(nv)):
        for i in rows[k]:
            rows[i] |= {j for j in rows[k] if j < i}
    return tuple(tuple(sorted(row, reverse=True)) for row in rows)


def supports(model: Model) -> Supports:
    """For each velocity k the lower ones i < k, highest first, whose entry in M = LᵀDL can be
    non-zero, fill-in included.
    """
    return _supports(model.ancestors, tuple((j.v, j.nv) for j in model.joints))


def of_inverse(supports: Supports) -> Supports:
    """The same for L⁻¹. In a tree without mimic joints both are equal; where these couple limbs, a
    support's own supports are filled, too.
    """
    found: list[tuple[int, ...]] = []
    for support in supports:
        found.append(tuple(sorted({j for i in support for j in (i, *found[i])}, reverse=True)))
    return tuple(found)


def dense(n: int) -> Supports:
    return tuple(tuple(range(k - 1, -1, -1)) for k in range(n))
