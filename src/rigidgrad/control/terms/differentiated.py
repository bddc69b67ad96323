"""Jacobians of terms that no formula is written down for: the residual is recorded and
differentiated as a program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.system import System
from rigidgrad.program.differentiate import differentiate
from rigidgrad.program.recorder import record


def state_jacobian(
    system: System, size: int, function: Callable[[Any, Vector], Vector], x: Vector
) -> Matrix:
    """∂ function(system, x ⊕ dx) / ∂dx at dx = 0, (size, ndx)."""

    def perturbed(a: dict[str, Any]) -> tuple[Any, ...]:
        return (function(system.given(a["inputs"]), system.plus(a["x"], a["dx"])),)

    shapes = {"x": (system.nx,), "dx": (system.ndx,), "inputs": (system.inputs,)}
    jacobian = differentiate(record(shapes, {"r": (size,)}, perturbed), None, ["dx"], "forward")
    rows: Matrix = jacobian.interpret(
        {"x": x, "dx": (0.0,) * system.ndx, "inputs": system.given_inputs}
    )[0]
    return rows
