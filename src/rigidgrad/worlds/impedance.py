"""How soft a constraint is: MuJoCo's impedance d(r), regularisation R and reference acceleration.

    R = (1 - d)/d · diag,        aref = -B v - K d (r - margin).

Reference: Todorov 2014, "Convex and analytically-invertible dynamics with contacts and
constraints".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rigidgrad.errors import InputError
from rigidgrad.scalars import Scalar, less, select, sqrt

TINY = 1e-15
_LEAST, _MOST = 1e-4, 0.9999


@dataclass(frozen=True)
class Softness:
    """Stiffness K, damping B, and d between `near` and `far`, over `width` with `middle` and
    `power`; `weight` approximates the diagonal of J M⁻¹ Jᵀ.
    """

    K: float
    B: float
    near: float
    far: float
    width: float
    middle: float
    power: float
    weight: float = 1.0

    def times(self, weight: float) -> Softness:
        return replace(self, weight=weight)

    def impedance(self, violation: Scalar) -> Scalar:
        """d of r - margin."""
        if self.near == self.far or self.width <= TINY:
            return 0.5 * (self.near + self.far)
        x = abs(violation) * (1 / self.width)
        if self.power == 1:
            y = x
        else:
            a = self.middle ** (1 - self.power)
            b = (1 - self.middle) ** (1 - self.power)
            # beyond the width d is `far`; the base of the power stays positive
            rest = select(less(x, 1.0), 1.0 - x, 0.0)
            y = select(
                less(self.middle, x), 1.0 - b * _power(rest, self.power), a * _power(x, self.power)
            )
        found = self.near + y * (self.far - self.near)
        return select(less(x, 1.0), found, self.far)

    def regularisation(self, d: Scalar, weight: Scalar) -> Scalar:
        """R, not less than MuJoCo's least number."""
        R = (1.0 - d) * weight / d
        return select(less(TINY, R), R, TINY)


def _power(x: Scalar, p: float) -> Scalar:
    """x to a whole or half power."""
    whole, half = int(p), p - int(p)
    found = 1.0
    for _ in range(whole):
        found = found * x
    if half:  # its derivative at zero is taken to be zero
        some = less(TINY, x)
        found = found * select(some, sqrt(select(some, x, 1.0)), 0.0)
    return found


def softness(ref: Any, imp: Any, dt: float, safe: bool) -> Softness:
    """Of solref and solimp, as MuJoCo reads them."""
    r = [float(x) for x in ref]
    if (r[0] > 0) != (r[1] > 0):
        r = [0.02, 1.0]
    near, far = (min(_MOST, max(_LEAST, float(x))) for x in imp[:2])
    width, middle, power = max(0.0, imp[2]), min(_MOST, max(_LEAST, imp[3])), max(1.0, imp[4])
    K, B = stiffness(r, far, dt, safe)
    if (2 * power) % 1 or power > 12:
        raise InputError(
            f"the power {power} of solimp is none of 1, 1.5, 2, … 12, which worlds know"
        )
    return Softness(K, B, near, far, float(width), float(middle), float(power))


def stiffness(ref: Sequence[float], far: float, dt: float, safe: bool) -> tuple[float, float]:
    """K and B of solref."""
    if ref[0] > 0:
        time = max(ref[0], 2 * dt) if safe else ref[0]
        K = 1 / max(TINY, far * far * time * time * ref[1] * ref[1])
        return K, 2 / max(TINY, far * time)
    return -ref[0] / max(TINY, far * far), -ref[1] / max(TINY, far)
