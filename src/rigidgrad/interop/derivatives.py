"""Derivatives that no algorithm here gives: a function's Program, differentiated operation by
operation, and compiled like any other.

q is normalised within the Program, so that they are those of f(normalize(q)) by coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rigidgrad.algorithms import catalog, manifold
from rigidgrad.algorithms.fast.constraint_rows import Inputs
from rigidgrad.algorithms.fast.contact_dynamics import contact_jacobian
from rigidgrad.algorithms.fast.newton_euler import newton_euler
from rigidgrad.errors import InputError
from rigidgrad.model.canonical import canonical
from rigidgrad.model.contacts import ConstraintSet
from rigidgrad.model.model import Model
from rigidgrad.program.differentiate import differentiate
from rigidgrad.program.fuse import fuse
from rigidgrad.program.program import Program
from rigidgrad.program.recorder import record
from rigidgrad.runtime.formulation import program_of
from rigidgrad.runtime.job import Job, digest
from rigidgrad.scalars import mul, sub, total

Shape = tuple[int, ...]
_MOST = 400_000  # operations of straight-line code: more would take many minutes to compile


@dataclass(frozen=True)
class Derivative:
    """What is compiled, and the shapes of one state's inputs and outputs: "d{output}/d{input}", of
    the output's shape followed by the input's, for one output after the other.
    """

    inputs: Mapping[str, Shape]
    outputs: Mapping[str, Shape]
    recording: Job


def of_function(model: Model, name: str, by: Sequence[str], **options: Any) -> Derivative:
    """Of a function of the catalog, with its options, by the named inputs."""
    bound = catalog.bind(model, name, **options)

    def evaluate(values: dict[str, Any]) -> tuple[Any, ...]:
        return program_of(model, name, **options).interpret(values)

    return _derivative(model, name, repr(options), (bound.inputs, bound.outputs), by, evaluate)


def of_contact_forces(model: Model, held: ConstraintSet) -> Derivative:
    """Of e = M a + c - Jᵀ f, of J p, and of the sum of squares of J's numbers, by q, v and a; the
    contact forces f and generalised forces p are inputs that stay.
    """
    inputs = {"q": (model.nq,), "v": (model.nv,), "a": (model.nv,)}
    inputs |= {"force": (held.rows,), "push": (model.nv,)}
    if held.masked:
        inputs["active"] = (len(held.constraints),)
    outputs: dict[str, Shape] = {"rest": (model.nv,), "moved": (held.rows,), "square": ()}
    plain = canonical(model)

    def evaluate(values: dict[str, Any]) -> tuple[Any, ...]:
        q, v, a, force, push = (values[key] for key in ("q", "v", "a", "force", "push"))
        w = newton_euler(plain, q, v, a)
        J = contact_jacobian(plain, q, Inputs(held.constraints, {}, values.get("active")))
        rest = [
            sub(x, total(mul(line[j], f) for line, f in zip(J, force, strict=True)))
            for j, x in enumerate(w)
        ]
        moved = [total(mul(x, p) for x, p in zip(line, push, strict=True)) for line in J]
        return rest, moved, total(mul(x, x) for line in J for x in line)

    name = "conditions of contact_inverse_dynamics"
    return _derivative(model, name, repr(held), (inputs, outputs), ("q", "v", "a"), evaluate)


def _derivative(
    model: Model,
    name: str,
    identity: str,
    shapes: tuple[Mapping[str, Shape], Mapping[str, Shape]],
    by: Sequence[str],
    evaluate: Callable[[dict[str, Any]], tuple[Any, ...]],
) -> Derivative:
    inputs, outputs = shapes

    def build() -> Program:
        def normalized(values: dict[str, Any]) -> tuple[Any, ...]:
            return evaluate(values | {"q": manifold.normalize(model, values["q"])})

        program = fuse(differentiate(record(inputs, outputs, normalized), inputs=by))
        if program.instructions > _MOST:
            raise InputError(
                f"derivatives of {name}: {model.name!r} is too large for straight-line code"
                f" ({program.instructions:,} operations, which would take many minutes to"
                " compile); lock joints by robot.reduced"
            )
        return program

    pairs = {f"d{y}/d{x}": (*outputs[y], *inputs[x]) for y in outputs for x in by}
    recording = Job(f"derivatives of {name}", model.name, f"{digest(model)} {by} {identity}", build)
    return Derivative(inputs, pairs, recording)
