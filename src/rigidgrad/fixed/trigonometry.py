"""Sine and cosine on integers: a table of a quarter turn and one straight piece around each of its
entries.

The angle becomes a phase, its fraction of a turn in P = fraction_bits + 4 bits. Two of them give
the quadrant, k the entry, the rest the distance d from the middle of the entry's cell: sin(x₀ + d)
= sin x₀ + d cos x₀ up to d²/2, which k keeps below a quarter of the format's resolution. The
circuit does the same on the same integers, so table and steps are public here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rigidgrad.fixed.format import Fixed, Raw

LARGEST_FRACTION = 28  # beyond it the table outgrows block RAM
GUARD = 2


class SineTable:
    """For one format. `phase_bits` P, `index_bits` k, `rest_bits` m with P = 2 + k + m; entries
    hold sin x₀ and the slope.

    Where the table would be too large, or an angle times a turn takes more than 64 bits, `exact`
    says that the float64 functions are used instead; a circuit then takes sines and cosines as
    inputs. Either way the error is below one unit of the format's resolution.
    """

    def __init__(self, format: Fixed):
        self.format = format
        f = format.fraction_bits
        self.phase_bits = f + 4
        self.index_bits = max((f + 3) // 2, 2)
        self.rest_bits = max(self.phase_bits - 2 - self.index_bits, 1)
        self.phase_bits = 2 + self.index_bits + self.rest_bits
        # the angle times 2^(shift + P - f)/(2π), without the lowest `shift` bits; whole turns fall
        # away, so shift + P bits of the product are enough
        self.shift = format.width
        self.exact = f > LARGEST_FRACTION or self.shift + self.phase_bits > 64
        self.turn = round(math.ldexp(1.0, self.shift + self.phase_bits - f) / (2 * math.pi))
        self.slope_bits = self.rest_bits + 1

    def entries(self) -> tuple[list[int], list[int]]:
        """sin x₀ in units of 2^-(fraction_bits + GUARD), and the slope per unit of d, times
        2^slope_bits.
        """
        count = 1 << self.index_bits
        angles = [(i + 0.5) * math.pi / (2 * count) for i in range(count)]
        unit = math.ldexp(1.0, self.format.fraction_bits + GUARD)
        step = 2 * math.pi / math.ldexp(1.0, self.phase_bits)
        sines = [round(math.sin(x) * unit) for x in angles]
        slopes = [round(math.cos(x) * unit * step * (1 << self.slope_bits)) for x in angles]
        return sines, slopes

    def sine(self, raw: Raw) -> Raw:
        return self._evaluate(raw, 0, np.sin)

    def cosine(self, raw: Raw) -> Raw:
        return self._evaluate(raw, 1, np.cos)

    def _evaluate(self, raw: Raw, quarter: int, function: Any) -> Raw:
        if self.exact:
            result = self.format.quantize(np.asarray(function(self.format.value(raw))))
            return result if isinstance(raw, np.ndarray) else int(result)
        if isinstance(raw, np.ndarray):
            return self._steps(raw, quarter)
        return int(self._steps(np.array([raw], np.int64), quarter)[0])

    def _steps(self, raw: np.ndarray, quarter: int) -> np.ndarray:
        P, k, m = self.phase_bits, self.index_bits, self.rest_bits
        with np.errstate(over="ignore"):
            product = raw.astype(np.uint64) * np.uint64(self.turn) + np.uint64(
                1 << (self.shift - 1)
            )
        phase = ((product >> np.uint64(self.shift)).astype(np.int64) + (quarter << (P - 2))) & (
            (1 << P) - 1
        )
        quadrant, index = phase >> (P - 2), (phase >> m) & ((1 << k) - 1)
        d = (phase & ((1 << m) - 1)) - (1 << (m - 1))
        mirrored = (quadrant & 1) == 1
        index, d = np.where(mirrored, ~index & ((1 << k) - 1), index), np.where(mirrored, -d, d)
        sines, slopes = self._arrays()
        above = sines[index] + (
            (slopes[index] * d + (1 << (self.slope_bits - 1))) >> self.slope_bits
        )
        signed = np.where(quadrant >= 2, -above, above)
        result: np.ndarray = np.clip(
            (signed + (1 << (GUARD - 1))) >> GUARD, self.format.lowest, self.format.highest
        )
        return result

    def _arrays(self) -> tuple[np.ndarray, np.ndarray]:
        if not hasattr(self, "_stored"):
            sines, slopes = self.entries()
            self._stored = np.array(sines, np.int64), np.array(slopes, np.int64)
        return self._stored
