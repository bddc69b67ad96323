"""Kernels of the solvers: dynamics and costs from a problem's recorded Programs, the rest from
`code/solver*.h`, in terms of sizes alone.

`expand` is a thread a knot; `solver_roll_out` and `solver_search` call the knot's step and cost, a
thread a simulation. Small dense matrices (the Riccati sweep, the Schur complement, conjugate
gradients) are the work of whole blocks of threads; so are a knot's dynamics and gradients where the
set-up of the direct method is fused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property

from rigidgrad.kernels import parallel_ddp, search as policy
from rigidgrad.kernels.pcg import KnotGradients
from rigidgrad.kernels.riccati import RESULTS, Sizes
from rigidgrad.program.program import Program
from rigidgrad.targets.gpu import block_code, thread
from rigidgrad.targets.gpu.block_kernel import BlockText
from rigidgrad.targets.gpu.kernel import Kernel, prelude
from rigidgrad.targets.gpu.solver_schur import SchurKernels, with_macro
from rigidgrad.targets.gpu.solver_setup import FusedSetup, RobotStep
from rigidgrad.targets.gpu.text import argument_names
from rigidgrad.targets.gpu.thread import ThreadFunction

# threads of a block: of matrices, of simulations, of a knot's step
GROUP, ROLL_GROUP, SMALL_GROUP = (128, 32, 32)
KNOT_GROUP = 64  # of a knot's vectors
STEP_SIZES = 32  # at most
STATUS = ("begin", "running", "converged", "iterations", "stalled", "diverged", "trouble", "slow")
CHOICES = ("largest", "best", "balanced")
# what a problem keeps on the device from kernel to kernel
CONTROL = (
    *(
        "status",
        "cost",
        "rho",
        "sigma",
        "iterations_done",
        "fresh",
        "again",
        "last_try",
        "alpha",
        "largest_defect",
        "negligible",
    ),
    *(
        "first_cost",
        "least",
        "refused",
        "solved",
        "linear_iterations",
        "tolerance",
        "loose",
        "newton",
        "small_falls",
        "flat",
    ),
)
# what is the same for all problems
OPTIONS = (
    *(
        "accept_low",
        "accept_high",
        "defect",
        "rho_low",
        "rho_high",
        "choose",
        "whole",
        "first_sizes",
        "most",
    ),
    *(
        "rounding",
        "doubtful",
        "armijo",
        "telling",
        "first_penalty",
        "nothing",
        "linear_tolerance",
        "linear_limit",
        "constrained",
        "patience",
        "singular_pivot",
    ),
)
# kernels of solver_ddp.h, solver_direct.h and solver_condense.h
_DDP = ("solver_backward", "solver_consensus", "solver_roll_out", "solver_select")
_DIRECT = ("solver_ahead", "solver_recover", "solver_propagate", "solver_search", "solver_judge")
_CONDENSED = ("solver_condense", "solver_complete")
# who computes conjugate gradients: a block a trajectory, or a block a knot
PCG_BLOCKS = ("trajectory", "knot")
_KNOT_LAUNCHES = ("solver_pcg_begin", "solver_pcg_direction", "solver_pcg_step")


@dataclass(frozen=True)
class SolverKernels:
    """The kernels for problems whose knots have these Programs: `expand` (x, u, h, p) → (F, g, H)
    or, for the direct method, (x, u, h, p, ahead) → (gap, F, g, H), with the state `ahead` at the
    next knot; `knot` (x, u, h, p) → (next, cost), `moved` (x, dx, alpha) → x ⊕ alpha dx, `apart`
    (x, origin) → x ⊖ origin; and this step, if it is a robot's. `bounded`: controls are clamped to
    bounds. `curvature` (x, u, h, v, p) → C, where second derivatives of the step, weighted by v,
    are added to H.
    """

    expand: Program
    knot: Program
    moved: Program
    apart: Program
    bounded: bool = False
    step: RobotStep | None = None
    curvature: Program | None = None

    @property
    def nx(self) -> int:
        return math.prod(self.knot.inputs["x"])

    @property
    def ndx(self) -> int:
        return math.prod(self.apart.outputs["dx"])

    @property
    def nu(self) -> int:
        return math.prod(self.knot.inputs["u"])

    @property
    def direct(self) -> bool:
        """Whether they are those of the direct method; else of parallel DDP."""
        return "ahead" in self.expand.inputs

    @property
    def parameters(self) -> int:
        return math.prod(self.knot.inputs["p"])

    @cached_property
    def couples(self) -> bool:
        """Whether costs couple states and controls."""
        n, rows = self.ndx, self.ndx + self.nu
        marks = self.expand.pattern()["H"]
        return any(marks[i * rows + j] for i in range(n) for j in range(n, rows))

    @property
    def condensed(self) -> bool:
        """Whether the direct method's LQ problems are made ones without bounds and without products
        of states and controls first.
        """
        return self.direct and (self.bounded or self.couples)

    @cached_property
    def _thread(self) -> ThreadFunction:
        return ThreadFunction("expand", self.expand)

    @cached_property
    def expansion(self) -> Kernel:
        return Kernel("expand", self._thread)

    @cached_property
    def _backward(self) -> BlockText:
        """A knot of the backward pass."""
        # dense: by the structure of Euler's methods, float32 ends at 2e-5 of the arm's optimum
        sizes = Sizes(self.ndx, self.nu, bounded=self.bounded, gaps=True)
        kernel = parallel_ddp.backward(sizes, self.curvature)
        return BlockText(kernel, "backward_knot", shared=("V", "results"))

    @cached_property
    def _consensus(self) -> BlockText:
        """A knot of the consensus sweep."""
        return BlockText(parallel_ddp.consensus(self.ndx, self.nu), "consensus_knot", ("y",))

    @cached_property
    def _schur(self) -> SchurKernels:
        return SchurKernels(self.ndx, self.nu)

    @cached_property
    def _fused(self) -> FusedSetup | None:
        if self.step is None:
            return None
        return FusedSetup(self.step, self.expand, GROUP, self._schur.fused)

    def fuses(self, dtype: str, limit: int) -> bool:
        """Whether the set-up of the direct method is one kernel: if so many bytes of shared memory
        suffice.
        """
        return (
            self._fused is not None
            and not self.condensed
            and self.shared_numbers("solver_setup", 0) * (8 if dtype == "float64" else 4) <= limit
        )

    def threads(self, entry: str) -> int:
        """Of a block of that kernel."""
        if entry == self.expansion.entry:
            return self.expansion.threads
        return {
            "solver_roll_out": ROLL_GROUP,
            "solver_search": ROLL_GROUP,
            "solver_recover": SMALL_GROUP,
            "solver_propagate": SMALL_GROUP,
            "solver_complete": SMALL_GROUP,
            **dict.fromkeys(("solver_pcg_knots", *_KNOT_LAUNCHES), KNOT_GROUP),
        }.get(entry, GROUP)

    def shared_numbers(self, entry: str, knots: int) -> int:
        """Places of shared memory that a block of that kernel needs."""
        n, m = self.ndx, self.nu
        select = GROUP + GROUP // 8 + 5 * STEP_SIZES + 2
        if entry == "solver_setup":
            assert self._fused is not None
            return self._fused.shared_numbers
        if entry == "solver_pcg":
            return self._schur.gradients(knots).numbers
        if entry in ("solver_pcg_knots", *_KNOT_LAUNCHES):
            return max(text.numbers for text in self._schur.knot_gradients(knots).values())
        texts: dict[str, Callable[[], BlockText]] = {
            "solver_backward": lambda: self._backward,
            "solver_consensus": lambda: self._consensus,
            "solver_schur": lambda: self._schur.split,
            "solver_row": lambda: self._schur.row,
            "solver_stair": lambda: self._schur.stair,
            "solver_recover": lambda: self._schur.recover,
            "solver_propagate": lambda: self._schur.propagate,
        }
        if entry in texts:
            return texts[entry]().numbers
        sizes = {
            self.expansion.entry: self._thread.shared_numbers,
            "solver_select": select,
            "solver_condense": 2 * m * m + 2 * n * m + 3 * m,
            "solver_judge": select,
        }
        return sizes.get(entry, 0)

    def entries(self) -> tuple[str, ...]:
        """Names of the kernels of `source`."""
        return (
            self.expansion.entry,
            *_DDP,
            *(_DIRECT if self.direct else ()),
            *(_CONDENSED if self.condensed else ()),
        )

    def setup_entries(self, fused: bool) -> tuple[str, ...]:
        """Names of the kernels of `setup_source`."""
        return ("solver_setup" if fused else "solver_schur", "solver_row", "solver_stair")

    def source(self, language: str, dtype: str) -> str:
        """All kernels but those of the direct method's linear system, for trajectories of any
        length.
        """
        own = ("backward", "consensus", "select", "condense")
        of_direct = ("recover", "propagate") if self.direct else ()
        parts = [
            *self._beginning(language, dtype, own + of_direct),
            self.expansion.text(),
            _state_function("knot", self.knot, in_global=("p",)),
            *self._manifold(),
            *(
                [_state_function("curvature", self.curvature, in_global=("x", "u", "h", "p"))]
                if self.curvature
                else []
            ),
            *with_macro(
                self._backward,
                "row",
                {"l": "g", "L": "H", "d": "gap", "h": "dt", "p": "parameters"},
                {
                    "rho": "c + RHO",
                    "newton": "c + NEWTON",
                    "singular": "options + SINGULAR_PIVOT",
                },
            ),
            *with_macro(self._consensus, "row", {}, {}),
            _code("solver_ddp"),
            *([*self._schur.step_text(), _code("solver_direct")] if self.direct else []),
            *([_code("solver_inverse"), _code("solver_condense")] if self.condensed else []),
        ]
        return "\n".join([*parts, ""])

    def setup_source(self, language: str, dtype: str, fused: bool) -> str:
        """The set-up of the direct method, for trajectories of any length."""
        own = "row", "stair", *(() if fused else ("schur",))
        parts = [*self._beginning(language, dtype, own), *self._schur.knot_text(fused)]
        if fused:
            assert self._fused is not None
            parts.append(self._fused.text())
        else:
            parts += self._manifold()
        parts += [_code("solver_fused" if fused else "solver_split"), *self._schur.rows_text()]
        return "\n".join([*parts, _code("solver_schur"), ""])

    def gradients_entries(self, blocks: str, together: bool) -> tuple[str, ...]:
        """Names of the kernels of `gradients_source`."""
        if blocks == "trajectory":
            return ("solver_pcg",)
        return ("solver_pcg_knots",) if together else _KNOT_LAUNCHES

    def gradients_source(
        self,
        language: str,
        dtype: str,
        knots: int,
        blocks: str = "trajectory",
        together: bool = False,
    ) -> str:
        """The conjugate gradients, for trajectories of this length, with a block a "trajectory" or
        a "knot"; `together`: all knots' blocks run at once.
        """
        if blocks == "trajectory":
            begin = self._beginning(language, dtype, ("pcg",), knots)
            parts = [*begin, *self._schur.gradients_text(knots), _code("solver_pcg")]
        else:
            begin = self._beginning(language, dtype, ("pcg_knots",), knots)
            own = [f"#define KNOT_GROUP {KNOT_GROUP}", *self._schur.knot_gradients_text(knots)]
            kernels = _code(f"solver_pcg_{'together' if together else 'launches'}")
            parts = [*begin, *own, _code("solver_pcg_knots"), kernels]
        return "\n".join([*parts, ""])

    def gradients_work(self, knots: int) -> int:
        """Numbers in global memory that each block of a trajectory needs."""
        return self._schur.gradients(knots).work

    def gradients_kept(self, knots: int) -> int:
        """Numbers that a knot keeps from launch to launch."""
        plan = self._schur.knot_gradients(knots)["step"].plan
        return sum(a.size for a in plan.first if a.name in KnotGradients.kept)

    def _manifold(self) -> list[str]:
        return [
            _state_function("moved", self.moved),
            _state_function("apart", self.apart),
            _code("solver_manifold"),
        ]

    def _beginning(
        self, language: str, dtype: str, kernels: Collection[str], knots: int = 0
    ) -> list[str]:
        """What comes before those kernels."""
        sizes = {
            "NX": self.nx,
            "ND": self.ndx,
            "NU": self.nu,
            "NZ": self.ndx + self.nu,
            "NP": self.parameters,
            "KNOTS": knots,
        }
        groups = {
            "GROUP": GROUP,
            "ROLL_GROUP": ROLL_GROUP,
            "SMALL_GROUP": SMALL_GROUP,
            "STEP_SIZES": STEP_SIZES,
        }
        numbers = {
            f"{k.upper()}_NUMBERS": self.shared_numbers(f"solver_{k}", knots) for k in kernels
        }
        kept = (self.ndx + 1) * self.ndx + len(RESULTS)
        defined = (
            sizes
            | groups
            | numbers
            | {
                "CONTROLS": len(CONTROL),
                "BOUNDED": int(self.bounded),
                "COUPLES": int(self.couples),
                "CURVED": int(self.curvature is not None),
                "KNOT_NUMBERS": kept,
            }
        )
        for words in (STATUS, CONTROL, OPTIONS, CHOICES):
            defined |= {word.upper(): i for i, word in enumerate(words)}
        lines = [f"#define {k} {v}" for k, v in defined.items()]
        return [prelude(language, dtype), "\n".join(lines), *_policy(), _code("solver")]


def _state_function(name: str, program: Program, in_global: Collection[str] = ()) -> str:
    """`{name}_state`, of one thread."""
    f = ThreadFunction(name, program)
    return thread.render_state(f, name, *argument_names(f.inputs, f.outputs), in_global=in_global)


def _policy() -> list[str]:
    """The policy of `kernels.search` as functions of numbers."""
    found = []
    for name, program in policy.programs().items():
        found.append(_state_function(f"policy_{name}", program))
        declared, passed = (", ".join(f"{by}{x}" for x in program.inputs) for by in ("real ", "&"))
        if program.outputs["y"]:
            found.append(
                f"BOTH void policy_{name}({declared}, real *y) {{ policy_{name}_state({passed},"
                " y); }"
            )
        else:
            found.append(
                f"BOTH real policy_{name}({declared}) {{ real y; policy_{name}_state({passed}, &y);"
                " return y; }"
            )
    return found


def _code(name: str) -> str:
    return (block_code.CODE / f"{name}.h").read_text(encoding="utf-8")
