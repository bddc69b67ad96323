"""Every function of a robot, with its inputs, outputs and options: the one list that engines and
code generators read.

`bind(model, name, …)` gives a BoundFunction: named inputs and outputs with their shapes for one
state, and the algorithm between them, which takes and returns nested tuples of scalars of any kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rigidgrad.algorithms import kinematics, manifold
from rigidgrad.algorithms.crba import crba
from rigidgrad.algorithms.fast import contact_dynamics as contact
from rigidgrad.algorithms.fast.constraint_rows import Inputs
from rigidgrad.algorithms.fast.contact_inverse_dynamics import contact_inverse_dynamics
from rigidgrad.algorithms.fast.second_gradient import rnea_hessian, rnea_second_derivatives
from rigidgrad.algorithms.joints import Vector
from rigidgrad.algorithms.textbook import frame_acceleration, momentum
from rigidgrad.algorithms.textbook.aba import aba
from rigidgrad.algorithms.textbook.aba_derivatives import (
    aba_derivatives,
    aba_derivatives_factored,
    aba_state_derivatives,
    fused_gradient,
)
from rigidgrad.algorithms.textbook.coriolis_matrix import coriolis_matrix
from rigidgrad.algorithms.textbook.minv import minv
from rigidgrad.algorithms.textbook.regressor import torque_regressor
from rigidgrad.algorithms.textbook.rnea import bias, gravity_torque, rnea
from rigidgrad.algorithms.textbook.rnea_derivatives import rnea_derivatives
from rigidgrad.errors import InputError, unknown_name
from rigidgrad.model.contacts import ConstraintSet
from rigidgrad.model.model import WORLD, Model
from rigidgrad.spatial import Force

Shape = tuple[int, ...]
Sizes = tuple[int | str, ...]
FRAMES_OF_EXPRESSION = ("world", "local", "spatial")


@dataclass(frozen=True)
class Function:
    """inputs and outputs: name -> shape, where "nq", "nv", "bodies" and "rows" (of contacts) stand
    for the model's numbers.
    """

    evaluate: Callable[..., Any]
    inputs: Mapping[str, Sizes]
    outputs: Mapping[str, Sizes]
    external: bool = False
    frame: bool = False
    expressed_in: bool = False
    contacts: bool = False
    solves: bool = False  # forces of contacts, so that redundant ones are damped
    grips: bool = False  # chooses forces of contacts within their cones
    inverts: bool = False  # divides by the mass matrix


@dataclass(frozen=True)
class BoundFunction:
    """A function of one state of one model: what an engine runs and a code generator records."""

    name: str
    inputs: Mapping[str, Shape]
    outputs: Mapping[str, Shape]
    evaluate: Callable[[Mapping[str, Any]], tuple[Any, ...]]


_Q, _V = ("nq",), ("nv",)
_MATRIX = ("nv", "nv")
_QVA = {"q": _Q, "v": _V, "a": _V}
_QVT = {"q": _Q, "v": _V, "tau": _V}
_QV = {"q": _Q, "v": _V}
_ROWS, _ROWS_MATRIX = ("rows",), ("rows", "nv")
_QVE = {"q": _Q, "v": _V, "restitution": ()}
_INVERTS = {"inverts": True}
_FORCED = {"contacts": True, "solves": True, "inverts": True}

FUNCTIONS: dict[str, Function] = {
    "rnea": Function(rnea, _QVA, {"tau": _V}, external=True),
    "bias": Function(bias, _QV, {"tau": _V}, external=True),
    "gravity_torque": Function(gravity_torque, {"q": _Q}, {"tau": _V}),
    "aba": Function(aba, _QVT, {"a": _V}, external=True, **_INVERTS),
    "crba": Function(crba, {"q": _Q}, {"M": _MATRIX}),
    "minv": Function(minv, {"q": _Q}, {"minv": _MATRIX}, **_INVERTS),
    "rnea_derivatives": Function(
        rnea_derivatives, _QVA, {"dq": _MATRIX, "dv": _MATRIX, "da": _MATRIX}, external=True
    ),
    "rnea_second_derivatives": Function(
        rnea_second_derivatives,
        _QVA,
        dict.fromkeys(("dqdq", "dvdv", "dqdv", "dadq"), ("nv", "nv", "nv")),
        external=True,
    ),
    "rnea_hessian": Function(
        rnea_hessian,
        {**_QVA, "w": _V},
        dict.fromkeys(("dqdq", "dvdv", "dqdv", "dadq"), _MATRIX),
        external=True,
    ),
    "aba_derivatives": Function(
        aba_derivatives,
        _QVT,
        {"dq": _MATRIX, "dv": _MATRIX, "dtau": _MATRIX},
        external=True,
        **_INVERTS,
    ),
    "aba_state_derivatives": Function(
        aba_state_derivatives, _QVT, {"dq": _MATRIX, "dv": _MATRIX}, external=True, **_INVERTS
    ),
    "aba_derivatives_factored": Function(
        aba_derivatives_factored,
        _QVT,
        {"W": _MATRIX, "Z_dq": _MATRIX, "Z_dv": _MATRIX},
        external=True,
        **_INVERTS,
    ),
    "fused_gradient": Function(
        fused_gradient, {**_QVA, "minv": _MATRIX}, {"dq": _MATRIX, "dv": _MATRIX}, external=True
    ),
    "frame_placement": Function(kinematics.frame_placement, {"q": _Q}, {"T": (4, 4)}, frame=True),
    "frame_velocity": Function(
        kinematics.frame_velocity, _QV, {"velocity": (6,)}, frame=True, expressed_in=True
    ),
    "jacobian": Function(
        kinematics.jacobian, {"q": _Q}, {"J": (6, "nv")}, frame=True, expressed_in=True
    ),
    "jacobian_derivative": Function(
        kinematics.jacobian_derivative, _QV, {"Jd": (6, "nv")}, frame=True, expressed_in=True
    ),
    "coriolis_matrix": Function(coriolis_matrix, _QV, {"C": _MATRIX}),
    "center_of_mass": Function(momentum.center_of_mass, {"q": _Q}, {"com": (3,)}),
    "center_of_mass_jacobian": Function(
        momentum.center_of_mass_jacobian, {"q": _Q}, {"J": (3, "nv")}
    ),
    "centroidal_momentum": Function(momentum.centroidal_momentum, _QV, {"momentum": (6,)}),
    "torque_regressor": Function(torque_regressor, _QVA, {"Y": ("nv", "10*bodies")}),
    "frame_acceleration": Function(
        frame_acceleration.frame_acceleration,
        _QVA,
        {"acceleration": (6,)},
        frame=True,
        expressed_in=True,
    ),
    "frame_acceleration_derivatives": Function(
        frame_acceleration.frame_acceleration_derivatives,
        _QVA,
        {"dq": (6, "nv"), "dv": (6, "nv"), "da": (6, "nv")},
        frame=True,
        expressed_in=True,
    ),
    "contact_dynamics": Function(
        contact.contact_dynamics, _QVT, {"a": _V, "force": _ROWS}, external=True, **_FORCED
    ),
    "contact_dynamics_derivatives": Function(
        contact.contact_dynamics_derivatives,
        _QVT,
        {
            "a_dq": _MATRIX,
            "a_dv": _MATRIX,
            "a_dtau": _MATRIX,
            "force_dq": _ROWS_MATRIX,
            "force_dv": _ROWS_MATRIX,
            "force_dtau": _ROWS_MATRIX,
        },
        external=True,
        **_FORCED,
    ),
    "contact_inverse_dynamics": Function(
        contact_inverse_dynamics,
        _QVA,
        {"tau": _V, "force": _ROWS, "residual": _V, "converged": ()},
        external=True,
        contacts=True,
        grips=True,
    ),
    "impact": Function(contact.impact, _QVE, {"v": _V, "impulse": _ROWS}, **_FORCED),
    "impact_derivatives": Function(
        contact.impact_derivatives,
        _QVE,
        {"v_dq": _MATRIX, "v_dv": _MATRIX, "impulse_dq": _ROWS_MATRIX, "impulse_dv": _ROWS_MATRIX},
        **_FORCED,
    ),
    "contact_jacobian": Function(
        contact.contact_jacobian, {"q": _Q}, {"J": _ROWS_MATRIX}, contacts=True
    ),
    "delassus": Function(
        contact.delassus,
        {"q": _Q},
        {"delassus": ("rows", "rows")},
        contacts=True,
        **_INVERTS,
    ),
    "energy": Function(momentum.energy, _QV, {"kinetic": (), "potential": ()}),
    "integrate": Function(manifold.integrate, {"q": _Q, "dv": _V}, {"q": _Q}),
    "difference": Function(manifold.difference, {"q0": _Q, "q1": _Q}, {"dv": _V}),
    "normalize": Function(manifold.normalize, {"q": _Q}, {"q": _Q}),
}


def bind(
    model: Model,
    name: str,
    *,
    external: tuple[str, ...] = (),
    frame: str | None = None,
    expressed_in: str = "world",
    contacts: ConstraintSet | None = None,
    formulation: Callable[..., Any] | None = None,
) -> BoundFunction:
    """The kernel of a function for a model. Each name in `external` becomes an input
    "external:name" of 6 numbers, force first. `contacts` add "place:k" for each constraint k that
    is held in a place, a point or a pose, and "active", one number for each.

    `formulation` is another algorithm with the same arguments and results.
    """
    if name not in FUNCTIONS:
        raise unknown_name("function", name, FUNCTIONS)
    function = FUNCTIONS[name]
    held = contacts or ConstraintSet()
    numbers = {
        "nq": model.nq,
        "nv": model.nv,
        "10*bodies": 10 * len(model.joints),
        "rows": held.rows,
    }

    def shaped(shapes: Mapping[str, Sizes]) -> dict[str, Shape]:
        return {
            key: tuple(n if isinstance(n, int) else numbers[n] for n in shape)
            for key, shape in shapes.items()
        }

    inputs, outputs = shaped(function.inputs), shaped(function.outputs)
    if external and not function.external:
        raise InputError(f"{name} takes no external wrenches")
    frames = [model.frame(link) for link in external]
    fixed: list[Any] = []
    if function.frame:
        if frame is None:
            raise InputError(f"{name} needs the name of a frame")
        fixed.append(model.frame(frame))
    if function.expressed_in:
        if expressed_in not in FRAMES_OF_EXPRESSION:
            raise InputError(
                f"expressed_in is one of {', '.join(map(repr, FRAMES_OF_EXPRESSION))}, not"
                f" {expressed_in!r}"
            )
        fixed.append(expressed_in)

    if contacts is not None and not function.contacts:
        raise InputError(f"{name} takes no contacts")
    if function.contacts:
        for k, c in enumerate(held.constraints):
            if c.placed and function.solves:
                inputs[f"place:{k}"] = (3,) if c.rows == 3 else (4, 4)
        if held.masked:
            inputs["active"] = (len(held.constraints),)
    algorithm = formulation or function.evaluate

    def evaluate(values: Mapping[str, Any]) -> tuple[Any, ...]:
        arguments = [values[key] for key in function.inputs] + fixed
        options: dict[str, Any] = {}
        if function.contacts:
            places = {
                k: values[f"place:{k}"]
                for k in range(len(held.constraints))
                if f"place:{k}" in values
            }
            arguments.append(
                Inputs(held.constraints, places, values["active"] if held.masked else None)
            )
            if function.solves:
                options["redundant"] = held.redundant
            if function.grips:
                options["grip"] = held.grip
        if frames:
            wrenches: dict[int, Force] = {}
            for f in frames:
                if f.body != WORLD:
                    wrench = kinematics.frame_offset(f).force_back(
                        _force(values[f"external:{f.name}"])
                    )
                    wrenches[f.body] = wrenches[f.body] + wrench if f.body in wrenches else wrench
            result = algorithm(model, *arguments, wrenches, **options)
        else:
            result = algorithm(model, *arguments, **options)
        if function.solves:
            result = result[:-1]  # all but what is said of the damping
        return result if len(outputs) > 1 else (result,)

    return BoundFunction(
        name, inputs | {f"external:{link}": (6,) for link in external}, outputs, evaluate
    )


def _force(wrench: Vector) -> Force:
    """Public wrenches are force first, ours moment first."""
    return Force(tuple(wrench[3:]), tuple(wrench[:3]))
