"""Links that stay out of a scene, and clear of each other: the balls, capsules and boxes of a robot
against boxes, balls, capsules, planes and covered meshes, or those of other links.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.system import System
from rigidgrad.control.terms.constraint import Bounds
from rigidgrad.control.terms.limit import Limit
from rigidgrad.control.terms.separation import LinkTerm
from rigidgrad.errors import InputError
from rigidgrad.geometry.scene import Scene


class Avoidance(LinkTerm, Limit):
    """The distance between each link that moves and each object of a scene, which the limits may
    replace by another one with the same kinds of objects.
    """

    what = "clearance"  # the number of the limits that it is kept above

    @property
    def scene(self) -> Scene:  # type: ignore[override]
        return self.limits.scene

    def asked(self, system: System, knots: int) -> Bounds:
        asked = getattr(self.limits, self.what)
        lower = numbers(self.what, asked, (knots, self.size(system)))
        if (lower < 0).any():
            raise InputError(
                f"{self.what} is a distance to keep, so it is not negative; this is {asked!r}"
            )
        return lower, np.full(lower.shape, np.inf)

    def start_text(self, system: System, k: int, c: float) -> str:
        link, other = self.separation.pairs(system)[k]
        return (
            f"at the start, link {link!r} is {c:.3g} m from {other!r}, less than the"
            f" {self.what.replace('_', ' ')}"
        )


class SelfAvoidance(Avoidance):
    """The distance between links that can touch each other."""

    what, self_pairs, scene = "self_clearance", True, Scene()
