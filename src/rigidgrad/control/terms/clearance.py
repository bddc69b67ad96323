"""Keep clear of a scene, and links of each other, at a price."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from rigidgrad import schema
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.system import System
from rigidgrad.control.terms.activation import Barrier
from rigidgrad.control.terms.cost import Cost, Final, Weight
from rigidgrad.control.terms.separation import LinkTerm
from rigidgrad.errors import InputError
from rigidgrad.geometry.scene import Scene, as_scene
from rigidgrad.geometry.shapes import Shape


class Clearance(LinkTerm, Cost):
    """The distance of each link with collision shapes from each object of `scene`, and, with
    `self_pairs`, from the links that it can touch (`robot.collisions.self_pairs`), in metres,
    negative inside. It charges half the square of what is missing of `margin` metres, and nothing
    beyond (`Barrier`).

    Which shapes there are and the margin are compiled; where the shapes are may change: set
    `scene`. `rg.Limits(scene=…, self_clearance=…)` forbids what this charges for.
    """

    price = (*Cost.price, "margin")

    def __init__(
        self,
        scene: Annotated[
            Scene | Sequence[Shape] | None,
            schema.file(".toml"),
            "solids to keep clear of: a file in the task's folder with `[[shape]]` tables",
        ] = None,
        margin: Annotated[float, schema.number(least=0), "metres within which it charges"] = 0.05,
        weight: Weight = 0.0,
        final: Final = 0.0,
        self_pairs: Annotated[
            bool, schema.flag, "whether links keep clear of each other, too"
        ] = True,
    ):
        margin = float(numbers("the margin of Clearance", margin, ()))
        if not margin >= 0:
            raise InputError(
                f"the margin of Clearance is a distance in metres, not negative, not {margin:g}"
            )
        super().__init__(weight, final, Barrier(lower=margin))
        self.scene, self.margin, self.self_pairs = as_scene(scene), margin, bool(self_pairs)
        if not len(self.scene) and not self.self_pairs:
            raise InputError(
                "Clearance has nothing to keep clear of: give it a scene, or self_pairs=True"
            )

    def units(self, system: System) -> tuple[str, ...]:
        return ("m",) * self.size(system)
