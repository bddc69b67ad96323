"""A term that a user writes, as a Python function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.algorithms.joints import Vector
from rigidgrad.control.numeric_input import numbers, shape_of
from rigidgrad.control.system import System
from rigidgrad.control.terms.term import Jacobians, Term
from rigidgrad.errors import InputError, RigidgradError
from rigidgrad.program.differentiate import differentiate
from rigidgrad.program.nesting import flatten
from rigidgrad.program.program import Program
from rigidgrad.program.recorder import Graph, Value, record
from rigidgrad.scalars import add


class Function(Term):
    """What a Python function over scalars returns: `function(x, u)`, or `function(x, u, p)` with
    `parameters`. For a robot x = [q, v].

    It is run once, on recorders, when a problem is made: so no `if` on numbers (use
    `rg.math.select`), and numbers that change later go into `parameters`, (np,) or one set per knot
    (knots, np). Derivatives are exact, in the tangent space. A term serves systems with one size of
    x and u. `name` is what reports call it.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        parameters: ArrayLike | None = None,
        name: str | None = None,
    ):
        if not callable(function):
            raise InputError(f"a function of x and u is needed, not {type(function).__name__}")
        self.function, self.parameters = function, parameters
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self._program: Program | None = None

    def program(self, system: System) -> Program:
        """The function as recorded: inputs x, u, p; output r."""
        p = 0 if self.parameters is None else (shape_of(self.parameters) or (1,))[-1]
        shapes = {"x": (system.nx,), "u": (system.nu,), "p": (p,)}
        if self._program is None:
            self._program = self._record(shapes)
        if self._program.inputs != shapes:
            raise InputError(
                f"{self.name} was recorded for the sizes {self._program.inputs}; for {shapes} make"
                " another one"
            )
        return self._program

    def _record(self, shapes: dict[str, tuple[int]]) -> Program:
        graph = Graph()
        x, u, p = (
            tuple(graph.input(name, k) for k in range(size)) for name, (size,) in shapes.items()
        )
        try:
            result = self.function(x, u) if self.parameters is None else self.function(x, u, p)
            scalars = list(
                flatten(result.ravel().tolist() if isinstance(result, np.ndarray) else result)
            )
            flat = [(s.sign, s.index) if isinstance(s, Value) else float(s) for s in scalars]
        except RigidgradError:
            raise
        except Exception as error:
            advice = (
                "it is run once on recorded numbers: use rg.math for functions, and"
                " rg.math.select(condition, a, b) for if"
            )
            raise InputError(
                f"{self.name} failed ({type(error).__name__}: {error}); {advice}"
            ) from error
        if not flat:
            raise InputError(
                f"{self.name} returned nothing; it must return a number, or a tuple of them"
            )
        if not all(isinstance(r, tuple) or math.isfinite(r) for r in flat):
            raise InputError(f"{self.name} returned NaN or infinity whatever the state")
        program = Program.from_graph(dict(shapes), {"r": (len(flat),)}, graph.nodes, flat)
        if not {node[1] for node in program.nodes if node[0] == "input"} & {"x", "u"}:
            raise InputError(
                f"{self.name} depends neither on the state nor on the control, so nothing can"
                " change it"
            )
        return program

    def _uses(self, name: str) -> bool:
        return any(node[:2] == ("input", name) for node in self._recorded().nodes)

    def _recorded(self) -> Program:
        if self._program is None:
            raise InputError(f"{self.name} is not part of a problem yet")
        return self._program

    @property
    def uses_state(self) -> bool:
        return self._uses("x")

    @property
    def uses_control(self) -> bool:
        return self._uses("u")

    def key(self) -> str:
        return f"{type(self).__name__} {self._recorded()}"

    def label(self) -> str:
        return str(self.name)

    def size(self, system: System) -> int:
        return self.program(system).outputs["r"][0]

    def target_size(self, system: System) -> int:
        return self.program(system).inputs["p"][0]

    def targets(self, system: System, knots: int) -> np.ndarray:
        shape = knots, self.target_size(system)
        return (
            np.zeros(shape)
            if self.parameters is None
            else numbers(f"the parameters of {self.name}", self.parameters, shape)
        )

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        found: Vector = self.program(system).interpret({"x": x, "u": u, "p": target})[0]
        return found

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        by_x, by_u = at_zero(
            system,
            differentiate(self.perturbed(system), None, ["dx", "du"], "forward"),
            x,
            u,
            target,
        )
        return by_x if self.uses_state else None, by_u if self.uses_control else None

    def perturbed(self, system: System) -> Program:
        """The function at x ⊕ dx and u + du."""
        program = self.program(system)

        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            u = tuple(add(a, b) for a, b in zip(v["u"], v["du"], strict=True))
            return program.interpret({"x": system.plus(v["x"], v["dx"]), "u": u, "p": v["p"]})

        return record(
            program.inputs | {"dx": (system.ndx,), "du": (system.nu,)}, program.outputs, evaluate
        )


def at_zero(system: System, program: Program, x: Vector, u: Vector, p: Vector) -> tuple[Any, ...]:
    """A perturbed program at dx = 0 and du = 0: what depends on them alone folds away."""
    return program.interpret(
        {"x": x, "u": u, "p": p, "dx": (0.0,) * system.ndx, "du": (0.0,) * system.nu}
    )
