"""What goes into a live page and comes out of it: text that stays text, and values that are checked
before anything is done with them.
"""

from __future__ import annotations

import math
import string
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_STRUCTURE = {ord(c): f"&#{ord(c)};" for c in string.punctuation if c not in ".,"}


def as_text(text: object) -> str:
    """Markdown that reads as this text, whatever it holds: viser renders raw HTML, and reads files
    that images name.
    """
    plain = "".join(
        " " if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") else c for c in str(text)
    )
    return plain.translate(_STRUCTURE).strip()


def within(low: float, high: float) -> Callable[[Any], float | None]:
    """Takes numbers, the nearest in the range; None for what is no finite number."""

    def check(value: Any) -> float | None:
        if not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return type(value)(min(max(value, low), high))

    return check


def one_of(options: Sequence[str]) -> Callable[[Any], str | None]:
    return lambda value: value if value in options else None


def point_within(low: np.ndarray, high: np.ndarray) -> Callable[[Any], np.ndarray | None]:
    """Takes points (3,), the nearest in the box; None for what is none."""

    def check(value: Any) -> np.ndarray | None:
        try:
            point = np.array(value, dtype=float)
        except (TypeError, ValueError):
            return None
        return (
            np.clip(point, low, high)
            if point.shape == (3,) and np.all(np.isfinite(point))
            else None
        )

    return check


def listen(handle: Any, check: Callable[[Any], Any], changed: Callable[[Any], None]) -> Any:
    """Calls `changed` with the value of a viser input when a browser changes it, after `check`.
    Gives the input back.

    A browser can send anything, whatever the page offers. What `check` alters is sent back altered;
    what it refuses (None) is undone.
    """
    good = handle.value

    async def arrived(event: Any) -> None:
        nonlocal good
        value = check(handle.value)
        good = good if value is None else value
        if event.client is None:  # our own hand moved it
            return
        if handle.value != good:
            handle.value = good
        if value is not None:
            changed(value)

    handle.on_update(arrived)
    return handle
