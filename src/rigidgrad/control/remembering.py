"""A system whose state also holds the control of the step before, for costs of how fast controls
change.
"""

from __future__ import annotations

from rigidgrad.algorithms.joints import Vector
from rigidgrad.control.extended import Extended
from rigidgrad.control.system import System
from rigidgrad.scalars import add, mul, sub


class Remembering(Extended):
    """State [x, u₋], tangent [dx, du₋], with the control u₋ of the step before: a step leads to
    [f(x, u), u]. An impact, which has no control, keeps u₋.
    """

    def __init__(self, inner: System):
        super().__init__(inner, inner.nu)

    def given(self, numbers: Vector) -> Remembering:
        return Remembering(self.inner.given(numbers)) if self.inputs else self

    def key(self) -> str:
        return f"{self.inner.key()} remembering its control"

    def before(self, x: Vector) -> Vector:
        """The control of the step before."""
        return self.more(x)

    def kept(self, x: Vector, u: Vector) -> Vector:
        """The control that the next state holds."""
        return tuple(
            add(mul(sub(1.0, self.at_rest), a), mul(self.at_rest, b))
            for a, b in zip(u, self.before(x), strict=True)
        )
