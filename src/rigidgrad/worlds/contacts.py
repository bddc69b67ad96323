"""What touches what in worlds, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rigidgrad.errors import unknown_name

NUMBERS = 19  # of a slot: distance, place, frame, force


@dataclass(frozen=True)
class Contacts:
    """Of all slots of all worlds: `touching` (count, slots), and where it is true `distance` in
    metres, negative in penetration, `place` (…, 3) in the world, `frame` (…, 3, 3) with rows
    normal, from the first shape to the second, and two along the surface, and `force` (…, 6) along
    these: the force on the second shape, then the moment that contacts of dimension 4 and 6 have.

    `names`: of each slot, two shapes, or what is limited.
    """

    names: tuple[tuple[str, ...], ...]
    touching: np.ndarray
    distance: np.ndarray
    place: np.ndarray
    frame: np.ndarray
    force: np.ndarray

    @classmethod
    def of(cls, names: Sequence[tuple[str, ...]], numbers: np.ndarray) -> Contacts:
        count, slots = numbers.shape[:2]
        distance = numbers[..., 0]
        force = numbers[..., 13:]
        known = np.asarray(numbers[..., 1:].any(axis=-1))
        return cls(
            tuple(names),
            known,
            distance,
            numbers[..., 1:4],
            numbers[..., 4:13].reshape(count, slots, 3, 3),
            force,
        )

    def between(self, *shapes: str) -> np.ndarray:
        """The slots of contacts of one shape, or of two (slots,)."""
        known = {name for names in self.names for name in names}
        for name in shapes:
            if name not in known:
                raise unknown_name("shape that can touch something", name, known)
        return np.array([all(x in names for x in shapes) for names in self.names], dtype=bool)
