"""What solvers' options have in common: checks of their numbers."""

from __future__ import annotations

import math
import operator
from typing import Any

from rigidgrad.errors import InputError


def check_whole(name: str, value: Any, least: int) -> None:
    """An error unless the value is a whole number of at least `least`."""
    try:
        fine = not isinstance(value, bool) and operator.index(value) >= least
    except TypeError:
        fine = False
    if not fine:
        raise InputError(f"{name} is a whole number of at least {least}, not {value!r}")


def check_number(name: str, value: Any, *, positive: bool = False) -> None:
    """An error unless the value is a finite number, 0 or more, or more than 0."""
    try:
        fine = (
            not isinstance(value, bool)
            and math.isfinite(value)
            and (value > 0 if positive else value >= 0)
        )
    except TypeError:
        fine = False
    if not fine:
        raise InputError(
            f"{name} is a number {'above 0' if positive else 'of at least 0'}, not {value!r}"
        )


def check_range(name: str, value: Any) -> None:
    """An error unless the value is a pair (low, high) of positive numbers."""
    try:
        low, high = value
        fine = 0 < low <= high < math.inf
    except (TypeError, ValueError):
        fine = False
    if not fine:
        raise InputError(f"{name} is a range (low, high) of positive numbers, not {value!r}")
