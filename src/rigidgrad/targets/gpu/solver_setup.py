"""The set-up of the direct method's conjugate gradients (Plancher 2022, Algorithm 6), split or fused.

Split: derivatives come from a kernel of their own, a thread a knot, through device memory. Fused: the block of threads that forms a row of the Schur complement computes the
knot's dynamics, gradients and costs itself, in shared memory; for robots, by Euler's methods, and where a block has room for it all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rigidgrad.model.model import Model
from rigidgrad.program.program import Program
from rigidgrad.targets.gpu import block, block_code, thread
from rigidgrad.targets.gpu.block import BlockFunction
from rigidgrad.targets.gpu.text import argument_names, real_table
from rigidgrad.targets.gpu.thread import ThreadFunction


@dataclass(frozen=True)
class RobotStep:
    """A step of Euler's on a robot without quaternions and mimic joints: v' = v + h a, q' = q + h v or, `implicit`, q + h v'; tau = actuation · u."""

    model: Model
    implicit: bool
    actuation: tuple[tuple[float, ...], ...] | None


@dataclass(frozen=True)
class FusedSetup:
    """What `code/solver_fused.h` is rendered with: the step, and the costs g, H that the results of `expand` end with."""

    step: RobotStep
    expand: Program
    threads: int

    @cached_property
    def dynamics(self) -> BlockFunction:
        return block.block_function(self.step.model, "gradient_with_acceleration", threads=self.threads)

    @cached_property
    def costs(self) -> ThreadFunction:
        """(x, u, p) → (g, Q, R)."""
        inputs, results = self.expand.inputs, self.expand.results
        (n,), (m,) = inputs["x"], inputs["u"]
        z = n + m
        g = len(results) - z * z - z
        rows = [results[g + z + i * z : g + z + (i + 1) * z] for i in range(z)]
        chosen = [*results[g : g + z], *(y for row in rows[:n] for y in row[:n]), *(y for row in rows[n:] for y in row[n:])]
        taken = {key: inputs[key] for key in ("x", "u", "p")}
        return ThreadFunction("costs", Program.from_graph(taken, {"g": (z,), "Q": (n, n), "R": (m, m)}, self.expand.nodes, chosen))

    def scratch_numbers(self, schur: int) -> int:
        """Places that the dynamics with their results have first, and the Schur complement afterwards."""
        n = self.step.model.nv
        return max(schur, self.dynamics.schedule.size + n + 3 * n * n)

    def shared_numbers(self, schur: int) -> int:
        """And F, the state that is moved, forces, gradients of two knots."""
        (n,), (m,) = self.expand.inputs["x"], self.expand.inputs["u"]
        return self.scratch_numbers(schur) + n * (n + m) + n + self.step.model.nv + 2 * (n + m)

    def text(self, schur: int) -> str:
        """What comes before `solver_schur.h`."""
        f, costs, actuation = self.dynamics, self.costs, self.step.actuation
        defined = {
            "IMPLICIT": int(self.step.implicit),
            "ACTUATED": int(actuation is not None),
            "DYNAMICS_NUMBERS": f.schedule.size,
            "SCRATCH_NUMBERS": self.scratch_numbers(schur),
            "SETUP_NUMBERS": self.shared_numbers(schur),
        }
        return "\n".join(
            [
                *(f"#define {key} {value}" for key, value in defined.items()),
                *([real_table("K_ACTUATION", [x for row in actuation for x in row])] if actuation is not None else []),
                block_code.common_code(),
                block_code.robot_code(f.model),
                block_code.render_local(f, "dynamics", *argument_names(f.inputs, f.outputs)),
                thread.render_state(
                    costs, "costs", *argument_names(costs.inputs, costs.outputs), in_global=tuple(costs.inputs), out_local=True
                ),
            ]
        )
