"""The set-up of the direct method's conjugate gradients (Plancher 2022, Algorithm 6), split or
fused.

Split: derivatives come from a kernel of their own, a thread a knot, through device memory. Fused:
the block of threads that has a knot's parts of the Schur complement computes the knot's dynamics,
gradients and costs itself, in shared memory; for robots, by Euler's methods, and where a block has
room for it all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rigidgrad.model.model import Model
from rigidgrad.program.program import Program
from rigidgrad.targets.gpu import block, block_code, thread
from rigidgrad.targets.gpu.block import BlockFunction
from rigidgrad.targets.gpu.block_kernel import BlockText
from rigidgrad.targets.gpu.text import argument_names, real_table
from rigidgrad.targets.gpu.thread import ThreadFunction


@dataclass(frozen=True)
class RobotStep:
    """A step of Euler's on a robot without quaternions and mimic joints: v' = v + h a, q' = q + h v
    or, `implicit`, q + h v'; tau = actuation · u.
    """

    model: Model
    implicit: bool
    actuation: tuple[tuple[float, ...], ...] | None


@dataclass(frozen=True)
class FusedSetup:
    """What `code/solver_fused.h` is rendered with: the step, and the costs g, H that the results of
    `expand` end with.
    """

    step: RobotStep
    expand: Program
    threads: int
    knot: BlockText  # `schur.knot`, whose matrices are in shared memory

    @cached_property
    def dynamics(self) -> BlockFunction:
        return block.block_function(
            self.step.model, "gradient_with_acceleration", threads=self.threads
        )

    @cached_property
    def costs(self) -> ThreadFunction:
        """(x, u, p) → (g, H)."""
        inputs, results = self.expand.inputs, self.expand.results
        (n,), (m,) = inputs["x"], inputs["u"]
        z = n + m
        taken = {key: inputs[key] for key in ("x", "u", "p")}
        chosen = results[len(results) - z * z - z :]
        return ThreadFunction(
            "costs",
            Program.from_graph(taken, {"g": (z,), "H": (z, z)}, self.expand.nodes, chosen),
        )

    @property
    def _at_dynamics(self) -> int:
        """Where the dynamics begin, in places that the knot has afterwards; vectors are at even
        ones.
        """
        first = self.knot.plan.offsets[self.knot.kernel.arrays["H"]]
        return first + first % 2

    @property
    def shared_numbers(self) -> int:
        """Places of shared memory: the knot's, or those of the dynamics with their results, the
        state and the forces.
        """
        n = self.step.model.nv
        dynamics = self.dynamics.schedule.size + n + 3 * n * n + 2 * n + n
        return max(self.knot.numbers, self._at_dynamics + dynamics)

    def text(self) -> str:
        """What comes before `solver_fused.h`."""
        f, costs, actuation = self.dynamics, self.costs, self.step.actuation
        defined = {
            "IMPLICIT": int(self.step.implicit),
            "ACTUATED": int(actuation is not None),
            "DYNAMICS_NUMBERS": f.schedule.size,
            "AT_DYNAMICS": self._at_dynamics,
            "SETUP_NUMBERS": self.shared_numbers,
        }
        return "\n".join(
            [
                *(f"#define {key} {value}" for key, value in defined.items()),
                *(
                    [real_table("K_ACTUATION", [x for row in actuation for x in row])]
                    if actuation is not None
                    else []
                ),
                block_code.common_code(),
                block_code.robot_code(f.model),
                block_code.render_local(f, "dynamics", *argument_names(f.inputs, f.outputs)),
                thread.render_state(
                    costs,
                    "costs",
                    *argument_names(costs.inputs, costs.outputs),
                    in_global=tuple(costs.inputs),
                    out_local=True,
                ),
            ]
        )
