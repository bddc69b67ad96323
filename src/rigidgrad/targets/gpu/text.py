"""Pieces of C text: numbers, tables, names."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rigidgrad.targets.cstyle_kernel import array
from rigidgrad.targets.names import identifiers

# names that kernels use for themselves
_WORDS = """s t e g i j k m n low high inside from row rows base tile in work r c real global local constant kernel private half uint size_t
    x0 x1 x2 list own"""
_OURS = frozenset(_WORDS.split())


def real_number(x: float) -> str:
    if math.isnan(x):
        return "(real)NAN"
    if math.isinf(x):
        return "(real)INFINITY" if x > 0 else "-(real)INFINITY"
    return (
        f"(real){x!r}" if x >= 0 and not (x == 0 and math.copysign(1, x) < 0) else f"-(real){-x!r}"
    )


def real_table(name: str, numbers: Iterable[float]) -> str:
    return array(f"TABLE real {name}", [real_number(float(x)) for x in numbers])


def argument_names(
    inputs: Iterable[str], outputs: Iterable[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Names of arguments in C for inputs and outputs, all different."""
    ins = identifiers(inputs, taken=_OURS, otherwise="_")
    return ins, identifiers(outputs, taken=_OURS.union(ins.values()), otherwise="_out")
