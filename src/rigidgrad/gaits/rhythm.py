"""When feet swing: groups of them, one after the other, with times between in which all feet
stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rigidgrad.errors import InputError


@dataclass(frozen=True)
class Rhythm:
    """When feet swing."""

    groups: tuple[tuple[int, ...], ...]
    """Numbers of the feet that swing together, in turn; none: all feet stand."""
    swing: float = 0.25
    """Seconds that a foot is in the air."""
    support: float = 0.05
    """Seconds before each swing in which all feet stand."""

    def __post_init__(self) -> None:
        for name, least in (("swing", 1e-3), ("support", 0.0)):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and least <= value < 1e3):
                raise InputError(f"{name} is a number of seconds from {least:g} on, not {value!r}")

    @property
    def cycle(self) -> float:
        """Seconds after which everything repeats."""
        return len(self.groups) * (self.swing + self.support)

    @property
    def stance(self) -> float:
        """Seconds that a foot stands in a cycle."""
        return self.cycle - self.swing

    def lift_off(self, foot: int) -> float | None:
        """When in a cycle a foot lifts off; None for one that always stands."""
        for k, group in enumerate(self.groups):
            if foot in group:
                return k * (self.swing + self.support) + self.support
        return None

    def swing_of(self, foot: int, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """At times since the first cycle began: whether the foot is in the air, and when its
        present or next swing began or begins.
        """
        first = self.lift_off(foot)
        if first is None:
            return np.zeros(len(t), bool), np.full(len(t), np.inf)
        number = np.floor((t - first) / self.cycle)
        since = t - first - number * self.cycle
        airborne = since < self.swing - 1e-9
        return airborne, first + (number + ~airborne) * self.cycle


def sorted_feet(places: np.ndarray) -> dict[str, int]:
    """Numbers of four feet at places (4, 2), seen from the trunk: "lf", "rf", "lh", "rh" for left,
    right, front and hind.
    """
    if len(places) != 4:
        raise InputError(f"this gait is for robots with four feet, and {len(places)} were given")
    front = np.argsort(-places[:, 0])[:2], np.argsort(-places[:, 0])[2:]
    found: dict[str, int] = {}
    for end, pair in zip("fh", front, strict=True):
        left, right = sorted(pair.tolist(), key=lambda k: -places[k, 1])
        found |= {"l" + end: left, "r" + end: right}
    if len({*found.values()}) != 4 or any(
        places[found["l" + e], 1] <= places[found["r" + e], 1] for e in "fh"
    ):
        raise InputError(
            "left and right feet cannot be told apart where the robot starts: put its feet beside"
            " each other"
        )
    return found


# feet that swing together, in turn
QUADRUPEDS: dict[str, Sequence[Sequence[str]]] = {
    "walk": (("rh",), ("rf",), ("lh",), ("lf",)),
    "trot": (("lh", "rf"), ("lf", "rh")),
    "pace": (("rf", "rh"), ("lf", "lh")),
    "bound": (("lf", "rf"), ("lh", "rh")),
    "jump": (("lf", "rf", "lh", "rh"),),
    "stand": (),
}


def groups_of(gait: str, places: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Of a gait's name, the numbers of the feet that swing together. Two feet walk by swinging in
    turn; all robots stand and jump.
    """
    if gait == "stand":
        return ()
    if gait == "jump":
        return (tuple(range(len(places))),)
    if gait == "walk" and len(places) == 2:
        return ((0,), (1,))
    names = sorted_feet(places)
    return tuple(tuple(names[n] for n in group) for group in QUADRUPEDS[gait])
