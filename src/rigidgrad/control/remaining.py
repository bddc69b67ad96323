"""How far a motion ends from what a cost aims at, each unit apart."""

from __future__ import annotations

from typing import NamedTuple

UNITS = ("m", "rad", "m/s", "rad/s", "")
# what is worth a word: lengths and angles that are missed by more than a millimetre or milliradian,
# or by more than this part of the way, if that is not tiny; speeds, and numbers whose unit nobody
# told, by more than this part of the largest
_SMALL, _PART, _PART_OF_SPEED = 1e-3, 0.01, 0.1
_TINY = 1e-4


class Remaining(NamedTuple):
    """Norms of what is left: metres, radians, m/s, rad/s, and of residuals whose unit only the user
    knows; None where nothing of the kind has a weight.
    """

    position: float | None = None
    angle: float | None = None
    speed: float | None = None
    rate: float | None = None
    other: float | None = None

    def __str__(self) -> str:
        return " and ".join(
            f"{x:.3g} {unit}".strip() for x, unit in zip(self, UNITS, strict=True) if x is not None
        )

    def by_name(self) -> dict[str, float]:
        """Those that there are."""
        return {name: x for name, x in self._asdict().items() if x is not None}

    def missed(self, way: Remaining) -> Remaining:
        """Those that are worth a word, where the motion came from `way`."""
        close = (_SMALL, _SMALL, None, None, None)
        kept = [
            None if x is None or not _is_missed(x, w or 0.0, s) else x
            for x, w, s in zip(self, way, close, strict=True)
        ]
        return Remaining(*kept)


def _is_missed(left: float, way: float, close: float | None) -> bool:
    if close is None:
        return left > max(_PART_OF_SPEED * way, _SMALL)
    return left > close or left > max(_PART * way, _TINY)


def largest(all_: list[Remaining]) -> Remaining:
    """The largest of each."""
    return Remaining(
        *(
            max((x for x in column if x is not None), default=None)
            for column in zip(*all_, strict=True)
        )
    )
