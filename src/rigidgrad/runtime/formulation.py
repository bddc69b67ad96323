"""Which formulation of a function is recorded: several are, on an equivalent model with fewer
numbers, and the one with the fewest operations is kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from rigidgrad.algorithms import catalog
from rigidgrad.algorithms.catalog import BoundFunction
from rigidgrad.algorithms.crba import crba
from rigidgrad.algorithms.fast import (
    contact_dynamics as contact,
    contact_inverse_dynamics as contact_inverse,
)
from rigidgrad.algorithms.fast.factored import factored_minv, solved_dynamics
from rigidgrad.algorithms.fast.gauge import Gauge, own_frames
from rigidgrad.algorithms.fast.newton_euler import (
    newton_euler,
    newton_euler_bias,
    newton_euler_gravity,
)
from rigidgrad.algorithms.fast.second_gradient import rnea_hessian, rnea_second_derivatives
from rigidgrad.algorithms.fast.subtree_gradient import (
    SolveParts,
    solve_parts,
    subtree_aba_derivatives,
    subtree_factored_gradient,
    subtree_fused_gradient,
    subtree_rnea_derivatives,
    subtree_state_gradient,
)
from rigidgrad.algorithms.sparsity import Supports, supports
from rigidgrad.algorithms.textbook.aba import aba
from rigidgrad.algorithms.textbook.minv import minv
from rigidgrad.algorithms.textbook.rnea import rnea
from rigidgrad.errors import InputError, unknown_name
from rigidgrad.kernels import language as kernels, large_robots
from rigidgrad.kernels.contact_gradient import ContactGradient
from rigidgrad.kernels.contact_inverse_dynamics import contact_inverse_dynamics_kernel
from rigidgrad.kernels.forward_gradient import forward_gradient_kernel, multiplications
from rigidgrad.kernels.unit_weights import tensor_kernel
from rigidgrad.model.canonical import canonical, moved_frames
from rigidgrad.model.model import Model
from rigidgrad.model.pose import pose_from_matrix
from rigidgrad.program.fuse import fuse, fused_kinds
from rigidgrad.program.program import Counts, Program
from rigidgrad.program.recorder import TooLong, record
from rigidgrad.runtime import frames
from rigidgrad.runtime.mass_matrix import check_function

Formulation = Callable[..., Any]
Source = TypeVar("Source")


class Candidate(NamedTuple):
    """A formulation that was compared with others; `counted` is what it takes, recorded if need
    be.
    """

    formulation: Formulation
    gauge: Gauge
    counted: Callable[[], Counts]


class Chosen(NamedTuple, Generic[Source]):
    """The formulation of a function that runs, and what was compared to find it, the best first."""

    formulation: Formulation
    gauge: Gauge
    source: Source
    compared: tuple[Candidate, ...]


# multiply-adds of the products at the end of a gradient from which on they are tiled: of forward
# dynamics, whose products are of small blocks, and of that with contacts
_TILED_FROM = 30_000
_CONTACTS_TILED_FROM = 10_000
# pairs of freedoms, one carrying the other, from which on code is no longer straight-line
_LOOPS_FROM = 1500
# triples of freedoms on one path to the root from which on a tensor is a loop over its first axis
_TENSOR_LOOPS_FROM = 2000
# nodes of straight-line code at most: compiling takes minutes and gigabytes beyond
_MOST_NODES = 400_000
_TENSOR, _HESSIAN = "rnea_second_derivatives", "rnea_hessian"
_REGRESSOR = "torque_regressor"  # its parameters are in the robot's own frames
_TILED: dict[str, dict[str, bool]] = {
    "aba_derivatives": {},
    "aba_state_derivatives": {"dtau": False},
    "aba_derivatives_factored": {"factored": True},
}


_GRADIENTS: dict[str, Formulation] = {
    "rnea_derivatives": subtree_rnea_derivatives,
    _TENSOR: rnea_second_derivatives,
    _HESSIAN: rnea_hessian,
    "aba_derivatives": subtree_aba_derivatives,
    "aba_state_derivatives": subtree_state_gradient,
    "aba_derivatives_factored": subtree_factored_gradient,
    "fused_gradient": subtree_fused_gradient,
    "contact_dynamics": contact.contact_dynamics,
    "contact_dynamics_derivatives": contact.contact_dynamics_derivatives,
    "contact_inverse_dynamics": contact_inverse.contact_inverse_dynamics,
    "impact": contact.impact,
    "impact_derivatives": contact.impact_derivatives,
    "contact_jacobian": contact.contact_jacobian,
    "delassus": contact.delassus,
}
_FORMULATIONS: dict[str, tuple[Formulation, ...]] = {
    "rnea": (newton_euler, rnea),
    "bias": (newton_euler_bias,),
    "gravity_torque": (newton_euler_gravity,),
    "aba": (solved_dynamics, aba),
    "crba": (crba,),
    "minv": (factored_minv, minv),
}


def program_of(
    model: Model, name: str, *, parameters: tuple[str, ...] = (), **options: Any
) -> Program:
    """The Program of a function for a model; options as for `catalog.bind`.

    With `parameters`, those numbers of the model become inputs, so that the model cannot be
    simplified by them.
    """
    return chosen_program(model, name, parameters=parameters, **options).source


def textbook_program(model: Model, name: str) -> Program:
    """The paper's own formulation of a function: more operations, often in shorter chains, and
    gradients column by column.
    """
    check_function(model, name, ())
    if has_canonical_model(name):
        model = canonical(model)
    return _recorded(catalog.bind(model, name), model)


def source_of(
    model: Model, name: str, *, parameters: tuple[str, ...] = (), **options: Any
) -> Program | kernels.Kernel:
    """What lanes run: the Program, or a kernel where most of the work is products of matrices."""
    return chosen_source(model, name, parameters=parameters, **options).source


def chosen_program(
    model: Model, name: str, *, parameters: tuple[str, ...] = (), **options: Any
) -> Chosen[Program]:
    """What `program_of` records."""
    check_function(model, name, parameters)
    if name in (_TENSOR, _HESSIAN):
        _check_length(model, name)
    if catalog.FUNCTIONS[name].grips and options["contacts"].rows:
        raise InputError(
            f"{name} is solved in rounds, which straight-line code has none of: it runs on the CPU,"
            " on CUDA and OpenCL devices, and as C, CUDA and OpenCL by rg.generate"
        )
    if parameters:
        return _cheapest(
            model,
            name,
            lambda formulation: parametrized(model, name, parameters, formulation, **options),
        )
    if has_canonical_model(name):
        model = canonical(model)
    return _cheapest(
        model,
        name,
        lambda formulation: catalog.bind(model, name, formulation=formulation, **options),
    )


def chosen_source(
    model: Model, name: str, *, parameters: tuple[str, ...] = (), **options: Any
) -> Chosen[Program] | Chosen[kernels.Kernel]:
    """What `source_of` records."""
    check_function(model, name, parameters)
    if not parameters and loops_pay(model, name):
        build: Formulation = large_robots.KERNELS[name]
        if name == _REGRESSOR:
            build = partial(
                build, frames=[pose_from_matrix(np.linalg.inv(m)) for m in moved_frames(model)]
            )
        model = canonical(model)
        return Chosen(build, own_frames(model), build(model, options.get("external", ())), ())
    if name == _TENSOR and triples(supports(model)) >= _TENSOR_LOOPS_FROM:
        chosen = chosen_program(model, _HESSIAN, parameters=parameters, **options)
        return Chosen(
            chosen.formulation, chosen.gauge, tensor_kernel(chosen.source, "w"), chosen.compared
        )
    if name in _TILED and products_pay(model):
        if not parameters:
            model = canonical(model)
        compared = ranked_gauges(model)
        formulation = partial(
            solve_parts, gauge=compared[0].gauge, factored=name == "aba_derivatives_factored"
        )
        bound = (
            parametrized(model, "aba_derivatives", parameters, formulation, **options)
            if parameters
            else catalog.bind(model, "aba_derivatives", formulation=formulation, **options)
        )
        parts = lambda values: SolveParts(*bound.evaluate(values))  # noqa: E731
        with _bounded(model, name):
            kernel = forward_gradient_kernel(
                bound.inputs, parts, supports(model), **_TILED[name], most=_MOST_NODES
            )
        return Chosen(solve_parts, compared[0].gauge, kernel, compared)
    if catalog.FUNCTIONS[name].grips and options["contacts"].rows:
        return _in_rounds(model, name, parameters, **options)
    if name == "contact_dynamics_derivatives" and not parameters and options["contacts"].rows:
        gauge, compared, gradient = _contact_gradient(canonical(model), name, options)
        if gradient.multiplications >= _CONTACTS_TILED_FROM:
            return Chosen(contact.gradient_parts, gauge, gradient.kernel(), compared)
    return chosen_program(model, name, parameters=parameters, **options)


def _in_rounds(
    model: Model, name: str, parameters: tuple[str, ...], **options: Any
) -> Chosen[kernels.Kernel]:
    """A function that is solved for, round by round."""
    if not parameters:
        model = canonical(model)
    compared, held = ranked_gauges(model), options["contacts"]
    posed = partial(contact_inverse.posed, gauge=compared[0].gauge)
    bound = (
        parametrized(model, name, parameters, posed, **options)
        if parameters
        else catalog.bind(model, name, formulation=posed, **options)
    )
    shape = contact_inverse.layout(held.constraints, held.grip)
    with _bounded(model, name):
        kernel = contact_inverse_dynamics_kernel(
            bound.inputs,
            bound.outputs,
            lambda values: contact_inverse.Posed(*bound.evaluate(values)),
            shape,
            held.grip,
            _MOST_NODES,
        )
    return Chosen(_GRADIENTS[name], compared[0].gauge, kernel, compared)


def _contact_gradient(
    model: Model, name: str, options: dict[str, Any]
) -> tuple[Gauge, tuple[Candidate, ...], ContactGradient]:
    compared = ranked_gauges(model)
    gauge = compared[0].gauge
    bound = catalog.bind(
        model, name, formulation=partial(contact.gradient_parts, gauge=gauge), **options
    )
    with _bounded(model, name):
        return (
            gauge,
            compared,
            ContactGradient(
                bound.inputs,
                lambda values: contact.GradientParts(*bound.evaluate(values)),
                _MOST_NODES,
            ),
        )


def has_canonical_model(name: str) -> bool:
    """Whether a function is recorded on an equivalent model with fewer numbers: its results say
    nothing of bodies, only of joints.
    """
    return name in _GRADIENTS or name in _FORMULATIONS


def loops_pay(model: Model, name: str) -> bool:
    """Whether straight-line code would be so long that loops over bodies are what can be compiled.
    Mimic joints have none.
    """
    return (
        name in large_robots.KERNELS
        and not model.has_mimic
        and pairs(supports(model)) >= _LOOPS_FROM
    )


def pairs(tree: Supports) -> int:
    """Pairs of freedoms of which one carries the other: what gradients are made of."""
    return sum(len(support) + 1 for support in tree)


def triples(tree: Supports) -> int:
    """Of freedoms on one path to the root: what second derivatives are made of."""
    return sum((len(support) + 1) * (len(support) + 2) // 2 for support in tree)


def _check_length(model: Model, name: str) -> None:
    """Raises where straight-line code of second derivatives would take minutes to compile."""
    tree = supports(model)
    if pairs(tree) >= _LOOPS_FROM:
        raise InputError(
            f"{name}: {model.name!r} is too large for straight-line code ({pairs(tree):,} pairs of"
            f" freedoms that carry each other, of at most {_LOOPS_FROM:,}); lock joints by"
            ' robot.reduced, or load it with engine="numpy", which compiles nothing'
        )
    if name == _TENSOR and triples(tree) >= _TENSOR_LOOPS_FROM:
        raise InputError(
            f"{name}: the code for {model.name!r} would be too long here; rnea_hessian gives its"
            " products with vectors"
        )


def products_pay(model: Model) -> bool:
    """Whether the products at the end of the gradient of forward dynamics are so many that tiles
    are faster than straight-line code.
    """
    return multiplications(supports(model)) >= _TILED_FROM


def _cheapest(
    model: Model, name: str, bound: Callable[[Formulation | None], BoundFunction]
) -> Chosen[Program]:
    if name in _GRADIENTS:
        compared, formulation = ranked_gauges(model), _GRADIENTS[name]
        program = _recorded(bound(partial(formulation, gauge=compared[0].gauge)), model)
        return Chosen(formulation, compared[0].gauge, program, compared)
    formulations: tuple[Formulation | None, ...] = _FORMULATIONS.get(name, (None,))
    if name == "aba" and pairs(supports(model)) >= _LOOPS_FROM:
        formulations = (aba,)  # the factor of M alone would be longer than all of it
    programs = [(_recorded(bound(formulation), model), formulation) for formulation in formulations]
    tried = [
        (p, Candidate(f or catalog.FUNCTIONS[name].evaluate, own_frames(model), p.counts))
        for p, f in programs
    ]
    tried.sort(key=lambda x: x[0].instructions)
    program, best = tried[0]
    return Chosen(best.formulation, best.gauge, program, tuple(candidate for _, candidate in tried))


def parametrized(
    model: Model,
    name: str,
    parameters: tuple[str, ...],
    formulation: Formulation | None,
    **options: Any,
) -> BoundFunction:
    """A kernel whose model takes its inertias, gravity or armature from inputs.

    inertia (bodies, 10): per body m, m·c, Ixx Ixy Iyy Ixz Iyz Izz at its origin; gravity (3,);
    armature (nv,).
    """
    shapes: dict[str, tuple[int, ...]] = {
        "inertia": (len(model.joints), 10),
        "gravity": (3,),
        "armature": (model.nv,),
    }
    for parameter in parameters:
        if parameter not in shapes:
            raise unknown_name("parameter", parameter, shapes)
    if "armature" in parameters and model.has_mimic:
        raise InputError("armature cannot be a parameter of a robot with mimic joints")
    outer = catalog.bind(model, name, formulation=formulation, **options)

    def evaluate(values: Any) -> tuple[Any, ...]:
        changes: dict[str, Any] = {}
        if "inertia" in parameters:
            changes["inertias"] = tuple(
                (x[0], tuple(x[1:4]), tuple(x[4:])) for x in values["inertia"]
            )
        if "gravity" in parameters:
            changes["gravity"] = values["gravity"]
        if "armature" in parameters:
            changes["armature"] = values["armature"]
        return catalog.bind(
            dataclasses.replace(model, **changes), name, formulation=formulation, **options
        ).evaluate(values)

    return BoundFunction(
        name, dict(outer.inputs) | {p: shapes[p] for p in parameters}, outer.outputs, evaluate
    )


def _recorded(kernel: BoundFunction, model: Model) -> Program:
    with _bounded(model, kernel.name):
        return fuse(record(kernel.inputs, kernel.outputs, kernel.evaluate, _MOST_NODES))


@contextmanager
def _bounded(model: Model, name: str) -> Iterator[None]:
    """Says what was recorded at too great a length."""
    try:
        yield
    except TooLong:
        raise InputError(
            f"{name}: {model.name!r} is too large for straight-line code (more than {_MOST_NODES:,}"
            " operations, which would take many minutes to compile); lock joints by robot.reduced,"
            ' or load it with engine="numpy", which compiles nothing'
        ) from None


def best_gauge(model: Model) -> Gauge:
    """The frames in which the gradient of inverse dynamics takes the fewest operations, of those
    that are offered.
    """
    return ranked_gauges(model)[0].gauge


def ranked_gauges(model: Model) -> tuple[Candidate, ...]:
    """The gradient of inverse dynamics in several choices of frames, that with the fewest
    operations first.
    """
    # to count them would take longer than what is asked for
    if len(model.joints) < 2 or pairs(supports(model)) >= _LOOPS_FROM:
        return (Candidate(subtree_rnea_derivatives, own_frames(model), partial(Counts, {}, 0, 0)),)

    def bound(part: Model, gauge: Gauge) -> BoundFunction:
        return catalog.bind(
            part, "rnea_derivatives", formulation=partial(subtree_rnea_derivatives, gauge=gauge)
        )

    def operations(part: Model, gauge: Gauge) -> int:
        kernel = bound(part, gauge)
        return Counts(
            fused_kinds(record(kernel.inputs, kernel.outputs, kernel.evaluate)), 0, 0
        ).instructions

    def candidate(gauge: Gauge) -> Candidate:
        return Candidate(
            subtree_rnea_derivatives, gauge, lambda: _recorded(bound(model, gauge), model).counts()
        )

    return tuple(candidate(gauge) for gauge, _ in frames.ranked(model, operations))
