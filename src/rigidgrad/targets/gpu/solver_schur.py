"""The linear systems of the direct method on a device: `kernels.schur` and `kernels.pcg`, rendered
for blocks of threads, and where their arrays are.

All knots of all problems are rows of one array. A knot has parts of the row of the next one, which
are therefore a row further on; the first row of a problem has none, and stays zero there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from rigidgrad.kernels import schur
from rigidgrad.kernels.pcg import KnotGradients, conjugate_gradients
from rigidgrad.targets.gpu.block_kernel import SHARED_NUMBERS, BlockText

# in shared memory where the set-up is fused; dynamics are computed where H is afterwards
_FUSED = ("F", "g", "end", "H")
_PLACES = {
    "lam": "lambda + row * ND",
    "after": "lambda + (row + 1) * ND",
    "rho": "control + problem * CONTROLS + RHO",
    "singular": "options + SINGULAR_PIVOT",
    "Q_inverse": "W + (row * (NZ + ND) + NZ) * ND",
    "minus": "W + (row + 1) * (NZ + ND) * ND",
    "theta": "theta + (row + 1) * ND * ND",
    "ahead": "ahead + (row + 1) * ND",
}
_INVERSE = "phi + (3 * row + 1) * ND * ND"
_LINEAR_OPTIONS = {"tolerance": "options + LINEAR_TOLERANCE", "limit": "options + LINEAR_LIMIT"}


@dataclass(frozen=True)
class SchurKernels:
    """Of problems with tangents of n numbers and m controls."""

    n: int
    m: int

    @cached_property
    def split(self) -> BlockText:
        """A knot whose matrices are in global memory."""
        return BlockText(schur.knot(self.n, self.m), "schur_knot", ("end",))

    @cached_property
    def fused(self) -> BlockText:
        """A knot whose matrices are in shared memory."""
        return BlockText(schur.knot(self.n, self.m, in_place=True), "schur_knot", _FUSED)

    @cached_property
    def row(self) -> BlockText:
        return BlockText(schur.row(self.n), "schur_row")

    @cached_property
    def stair(self) -> BlockText:
        return BlockText(schur.stair(self.n), "schur_stair")

    @cached_property
    def recover(self) -> BlockText:
        return BlockText(schur.recover(self.n, self.m), "schur_recover", ("end",))

    @cached_property
    def propagate(self) -> BlockText:
        return BlockText(schur.propagate(self.n, self.m), "schur_propagate", ("dx",))

    @cached_property
    def _gradients(self) -> dict[int, BlockText]:
        return {}

    def gradients(self, knots: int) -> BlockText:
        """Of trajectories of this length; vectors for which shared memory has no room are in global
        memory.
        """
        if knots not in self._gradients:
            self._gradients[knots] = BlockText(
                conjugate_gradients(knots, self.n, self.m),
                "conjugate_gradients",
                ("results",),
                SHARED_NUMBERS,
            )
        return self._gradients[knots]

    @cached_property
    def _knot_gradients(self) -> dict[int, dict[str, BlockText]]:
        return {}

    def knot_gradients(self, knots: int) -> dict[str, BlockText]:
        """The parts of an iteration of a knot, by name; one shared memory serves them all."""
        if knots not in self._knot_gradients:
            kernel = KnotGradients(knots, self.n, self.m)
            self._knot_gradients[knots] = {
                name: BlockText(getattr(kernel, name)(), f"pcg_{name}", kernel.arrays)
                for name in ("precondition", "direction", "step")
            }
        return self._knot_gradients[knots]

    def knot_gradients_text(self, knots: int) -> list[str]:
        texts = self.knot_gradients(knots)
        plan = texts["step"].plan
        places = {a.name: place for a, place in plan.offsets.items() if a in plan.first}
        kept = [a.size for a in plan.first if a.name in KnotGradients.kept]
        defined = {f"AT_{name}": place for name, place in places.items()}
        defined |= {"AT_KEPT": places[KnotGradients.kept[0]], "KEPT": sum(kept)}
        defined |= {"PCG_SCALARS": len(KnotGradients.numbers)}
        defined |= {f"PCG_{x}": i for i, x in enumerate(KnotGradients.numbers)}
        return [
            *(f"#define {name.upper()} {number}" for name, number in defined.items()),
            *(line for x in texts.values() for line in with_macro(x, "row", {}, _LINEAR_OPTIONS)),
        ]

    def rows_text(self) -> list[str]:
        """Of rows from the parts of knots, and of the preconditioner."""
        of_row = {"Q_inverse": _PLACES["Q_inverse"], "inverse": _INVERSE}
        of_stair = {
            "minus": "W + row * (NZ + ND) * ND",
            "inverse": _INVERSE,
            "before": "phi + (3 * row - 2) * ND * ND",
            "upper": "phi + (3 * row - 1) * ND * ND",
            "lower": "phi + 3 * row * ND * ND",
        }
        return [
            *with_macro(self.row, "row", {"d": "defects"}, of_row),
            *with_macro(self.stair, "row", {}, of_stair),
        ]

    def step_text(self) -> list[str]:
        """Of the step from the multipliers."""
        of_recover = {
            "after": "delta + (row + 1) * ND",
            "Q_inverse": _PLACES["Q_inverse"],
        }
        return [
            *with_macro(self.recover, "row", {}, of_recover),
            *with_macro(self.propagate, "row", {}, {"d": "defects + (row + 1) * ND"}),
        ]

    def knot_text(self, fused: bool) -> list[str]:
        text = self.fused if fused else self.split
        places = [
            f"#define AT_{a.name.upper()} {place}"
            for a, place in text.plan.offsets.items()
            if a in text.plan.first
        ]
        return [*with_macro(text, "row", {}, _PLACES), *places]

    def gradients_text(self, knots: int) -> list[str]:
        text = self.gradients(knots)
        work = f"works + (size_t)BID * {text.work}"
        return with_macro(text, "problem", {"lam": "lambda"}, _LINEAR_OPTIONS, work)


def with_macro(
    text: BlockText,
    row: str,
    names: Mapping[str, str],
    places: Mapping[str, str],
    work: str = "",
) -> list[str]:
    """A kernel, and the macro of that name that calls it: arrays are at `row` of those of their
    names, or of the names that they are given here; or at `places` of their own.
    """
    given = {
        a.name: places.get(a.name, f"{names.get(a.name, a.name)} + (size_t)({row}) * {a.size}")
        for a in text.arguments
    }
    return [text.text(), f"#define {text.prefix.upper()} {text.call(given, work)}"]
