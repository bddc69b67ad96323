"""A problem and a solver as source code: what generated C needs is collected here, and written by
`targets.c_solver`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rigidgrad.algorithms.tangent_maps import transport
from rigidgrad.control import augmented, constrained, penalty, search
from rigidgrad.control.device import pddp_options
from rigidgrad.control.device_run import descent_of, option_numbers, solver_kernels
from rigidgrad.control.direct import Direct
from rigidgrad.control.held import Held, place_size
from rigidgrad.control.linear.blocks import SINGULAR
from rigidgrad.control.pddp import PDDP, check_blocks
from rigidgrad.control.problem import Problem
from rigidgrad.control.programs import Programs
from rigidgrad.control.solution import ADVICE, Solution
from rigidgrad.control.solve import solve
from rigidgrad.control.system import RobotSystem
from rigidgrad.control.terms.constraint import Constraint
from rigidgrad.control.terms.cost import Cost
from rigidgrad.control.terms.custom_value import CustomValue
from rigidgrad.control.terms.term import Term
from rigidgrad.errors import InputError
from rigidgrad.kernels import riccati, riccati_again, search as policy
from rigidgrad.kernels.language import Kernel
from rigidgrad.kernels.structure import counts
from rigidgrad.program.program import Program
from rigidgrad.program.recorder import record
from rigidgrad.runtime.formulation import source_of
from rigidgrad.runtime.job import Job
from rigidgrad.targets.c_solver import cuda, header, package
from rigidgrad.targets.c_solver.parts import WIDTH, Field, Parts
from rigidgrad.targets.c_solver.source import Source
from rigidgrad.targets.names import identifier, identifiers
from rigidgrad.targets.riccati_layout import Layout

_POLICIES = (
    "expected_fall",
    "acceptable",
    "acceptable_with_defects",
    "penalty",
    "takes_over",
    "raised",
    "lowered",
    "nothing",
)
# numbers of `augmented` that C takes over by their names
_OF_OUTER = (
    *("FIRST_TOLERANCE", "TIGHTEN", "FIRST_WIDTH", "SHARPEN", "SHARPEN_AT_REST", "LEAST_WIDTH"),
    *("FALL", "GROW", "MOST_GROWTH", "TIMES"),
)
# what other options may not be
_PLAIN = {"second_order": False, "dtype": "float64", "device": None, "form": "forward"}
_PLAIN_DIRECT = {
    "linear_solver": "riccati",
    "globalization": "line_search",
    "dtype": "float64",
    "device": None,
}
_LONGEST = 64  # bytes of a vector, which the header's memory is for
_TOLERANCE = 1e-9  # of the example, which must hold on machines with another C library, too


class Recorded(Programs):
    """The functions of a problem, recorded and not compiled, in the layout of generated C."""

    def __init__(self, known: Programs):
        super().__init__(
            known.system,
            known.integrator,
            known.costs,
            known.constraints,
            known.bounded,
            known.uniform,
        )
        self.__dict__["layout"] = replace(known.layout, width=WIDTH)

    def swept(self, job: Job) -> Any:
        return job


def files(problem: Problem, options: PDDP | Direct, name: str | None) -> dict[str, str]:
    """The files of a solver, by name."""
    parts = parts_of(problem, options, name)
    prefix = identifier(parts.name)
    found = solve(problem, options)
    parts = replace(parts, sample={"x": found.x, "u": found.u})
    return rendered(parts, prefix, options, found)


def cuda_files(problem: Problem, options: Any, name: str | None) -> dict[str, str]:
    """The files of a solver for CUDA devices, by name."""
    _check_cuda(problem, options)
    o = replace(options, device="cuda")
    first, found = problem.programs, solve(problem, replace(options, device=None))
    tolerance, loose = descent_of(o.dtype, o.M_b, False, o.tolerance, o.tolerance)
    system = problem.system
    fields = fields_of(problem)
    defaults = {"start": problem.start, "h": problem.h, "u": problem.guess}
    if first.bounded:
        defaults["lower"], defaults["upper"] = problem.bounds
    defaults["knot"] = problem.p
    ends = np.cumsum([f.size for f in fields]).tolist()
    weights = [
        place
        for f, end in zip(fields, ends, strict=True)
        if f.kind == "weight"
        for place in range(end - f.size, end)
    ]
    parts = cuda.CudaParts(
        name or f"{system.name}_solver",
        _about(problem, o),
        solver_kernels(first, False, o.second_order),
        o.dtype,
        problem.steps,
        o.M_f,
        o.M_b,
        option_numbers(o, **pddp_options(o, o.M_f > 1)),
        o.step_sizes,
        float(tolerance),
        bool(loose),
        o.iterations,
        fields,
        _messages(),
        weights,
        {key: np.array(value, dtype=float) for key, value in defaults.items()},
        found.x,
        header.STATUSES.index(found.status),
        _states(problem),
    )
    return cuda.files(parts, identifier(parts.name))


def _check_cuda(problem: Problem, options: Any) -> None:
    if not isinstance(options, PDDP):
        raise InputError(
            'solvers are written for target="cuda" from rg.PDDP(…), not from'
            f" {type(options).__name__}: the direct method on a device is driven from Python,"
            " rg.Direct(device=…)"
        )
    for what, why in (
        (problem.timing is not None, "takes steps whose length is given: leave duration= out"),
        (problem.charges_rate, "knows no costs.ControlRate: leave it out"),
        (bool(problem.constraints), "knows no constraints but bounds of the controls"),
        (problem.guess_states is not None, "begins with controls: give guess= without states"),
        (options.form != "forward", "has form='forward': leave form out"),
        (options.first_pass != "fresh", "has first_pass='fresh': leave first_pass out"),
    ):
        if what:
            raise InputError(f"a solver for CUDA {why}")
    check_blocks(problem, options)


def rendered(parts: Parts, prefix: str, options: PDDP | Direct, found: Solution) -> dict[str, str]:
    source = Source(parts, prefix)
    words = _counted(source, options)
    status = header.STATUSES.index(found.status)
    return {
        f"{prefix}.h": header.header(parts, prefix, words),
        f"{prefix}.c": source.text(),
        f"{prefix}.hpp": header.wrapper(parts, prefix),
        "main.c": package.example(parts, prefix, status, found.cost, _TOLERANCE),
        "CMakeLists.txt": package.cmake(parts, prefix),
    }


def check(problem: Problem, options: Any) -> None:
    """Raises where there is no code for a problem or its solver."""
    if not isinstance(options, PDDP | Direct):
        raise InputError(
            "code is generated for rg.PDDP(…) and rg.Direct(…), not for"
            f" {type(options).__name__}: pass one, or none"
        )
    if isinstance(options, PDDP) and (options.M_f > 1 or options.M_b > 1):
        raise InputError("generated C runs on one core, where blocks gain nothing: leave them out")
    for name, plain in (_PLAIN if isinstance(options, PDDP) else _PLAIN_DIRECT).items():
        if getattr(options, name) != plain:
            raise InputError(f"generated C has {name}={plain!r}: leave {name} out")
    if problem.timing is not None:
        raise InputError("generated C takes steps whose length is given: leave duration= out")
    if problem.charges_rate:
        raise InputError("generated C knows no costs.ControlRate: leave it out")
    if isinstance(options, PDDP):
        check_blocks(problem, options)
    bends = any(isinstance(cost, CustomValue) for cost in problem.costs)
    if problem.constraints and bends:
        raise InputError(
            "generated C with constraints other than bounds of the controls knows no"
            " costs.CustomValue, whose Hessian may have any sign: take costs.Custom"
        )


def parts_of(problem: Problem, options: PDDP | Direct, name: str | None = None) -> Parts:
    check(problem, options)
    direct = isinstance(options, Direct)
    programs = Recorded(problem.programs)
    layout, system = programs.layout, problem.system
    gaps = problem.guess_states is not None
    layout = replace(layout, gaps=gaps and not direct)
    wide: dict[str, Program | Kernel] = {
        "roll_out": programs.roll_out(False).source(),  # type: ignore[attr-defined]
        "final_cost": programs.final_cost().source(),  # type: ignore[attr-defined]
        "expansion": programs.expansion().job.source(),
    }
    narrow: dict[str, Program | Kernel] = {
        "final_expansion": programs.final_expansion().job.source(),
        "evaluation": programs.evaluation.job.source(),
        "final_evaluation": programs.final_evaluation.job.source(),
    }
    shared = frozenset({"x_ref", "u_ref", "gains", "h", "p", "lower", "upper", "gap"})
    if direct:
        narrow |= _of_direct(problem, programs)
    elif gaps:
        wide["roll_out_with_gaps"] = programs.roll_out(True).source()  # type: ignore[attr-defined]
        narrow["consensus"] = programs.consensus(layout).source()  # type: ignore[attr-defined]
    if not system.flat:
        narrow["difference"] = programs.difference.job.source()
    if problem.constraints:
        narrow["constraint_values"] = programs.constraint_values.job.source()
        narrow["constraint_jacobians"] = programs.constraint_jacobians.job.source()
    hold = _hold(problem)
    if hold is not None:
        narrow["hold"] = hold
    known = policy.programs()
    defaults = {"start": problem.start, "h": problem.h, "u": problem.guess}
    if gaps:
        assert problem.guess_states is not None
        defaults["x"] = problem.guess_states
    if layout.bounded:
        defaults["lower"], defaults["upper"] = problem.bounds
    defaults["knot"] = problem.p
    return Parts(
        name or f"{system.name}_solver",
        _about(problem, options),
        layout,
        problem.steps,
        system.nx,
        wide,
        narrow,
        {key: known[key] for key in (*_POLICIES, *(["judged_direct"] if direct else []))},
        shared,
        fields_of(problem),
        _macros(options, problem, layout) | (_macros_of_direct(problem) if direct else {}),
        options.step_sizes.tolist(),
        _messages(),
        {key: np.array(value, dtype=float) for key, value in defaults.items()},
        system.flat,
        gaps,
        penalty.stride_knots(problem.steps).tolist(),
        [bool(x) for x in programs.controlled],
        hold,
        direct=direct,
        states=_states(problem),
    )


def _of_direct(problem: Problem, programs: Recorded) -> dict[str, Program | Kernel]:
    """What the direct method needs of a knot, and its linear solver."""
    s = problem.system
    n, m = s.ndx, s.nu
    sizes = riccati.Sizes(n, m, gaps=True)
    found: dict[str, Program | Kernel] = {
        "linearization": programs.linearization.job.source(),
        "final_linearization": programs.final_linearization.job.source(),
    }
    if any(isinstance(source, Kernel) for source in found.values()):
        raise InputError("the direct method in C is for robots of up to some 50 joints")
    found |= {
        "lq_backward": riccati.knot(sizes, kept=True, singular=SINGULAR),
        "lq_again": riccati_again.another(n, m),
        "lq_forward": riccati_again.forward(n, m),
    }
    if not s.flat:
        assert isinstance(s, RobotSystem)
        model, size = s.model, sum(n * n for _, n in _blocks(s))

        def moved(a: dict[str, Any]) -> tuple[Any, ...]:
            blocks = transport(model, tuple(a["dv"]))
            return (tuple(x for b in blocks if len(b) > 1 for row in b for x in row),)

        found["plus"] = programs.displacement.job.source()
        found["transport"] = record({"dv": (s.nv,)}, {"T": (size,)}, moved)
    return found


def _blocks(s: RobotSystem) -> list[tuple[int, int]]:
    """Of joints with more than one freedom, the first one and how many."""
    return [(j.v, j.nv) for j in s.model.joints if not j.is_mimic and j.nv > 1]


def _macros_of_direct(problem: Problem) -> dict[str, str]:
    s = problem.system
    found = {"FLAT": str(int(s.flat)), "FORGOTTEN": repr(policy.FORGOTTEN)}
    if not s.flat:
        assert isinstance(s, RobotSystem)
        firsts, sizes = zip(*_blocks(s), strict=True)
        found |= {
            "NV": str(s.nv),
            "BLOCKS": str(len(firsts)),
            "BLOCK_FIRST": "{" + ", ".join(map(str, firsts)) + "}",
            "BLOCK_SIZE": "{" + ", ".join(map(str, sizes)) + "}",
            "TRANSPORT": str(sum(n * n for n in sizes)),
        }
    return found


def _states(problem: Problem) -> tuple[str, str, str] | tuple[()]:
    """What the numbers of a state, of its tangent and of a control are."""
    s = problem.system
    if not isinstance(s, RobotSystem):
        return ()
    joints = ", ".join(j.name for j in s.robot.model.joints)
    return (
        f"{s.nq} of q, then {s.nv} of v",
        f"{s.nv} of q, then {s.nv} of v",
        f"joint forces of {joints}" if s.actuation is None else "as the problem has them",
    )


def _messages() -> list[str]:
    return [*(_first(ADVICE[status]) for status in header.STATUSES[:-1]), "the deadline passed"]


def _first(text: str) -> str:
    return text.replace('"', "'")


def _macros(o: PDDP | Direct, problem: Problem, layout: Layout) -> dict[str, str]:
    if isinstance(o, Direct):
        o = PDDP(
            iterations=o.iterations,
            tolerance=o.tolerance,
            violation=o.violation,
            alphas=o.alphas,
            accept=o.accept,
            choose=o.choose,
            regularization=o.regularization,
        )
    chosen = search.Search(o)
    numbers: dict[str, Any] = {
        "ITERATIONS": o.iterations,
        "TOLERANCE": float(o.tolerance),
        "VIOLATION": float(o.violation),
        "ACCEPT_LOW": float(o.accept[0]),
        "ACCEPT_HIGH": float(o.accept[1]),
        "CHOOSE": ("largest", "best", "balanced").index(o.choose),
        "DEFECT": float(o.defect),
        "RHO_LOW": float(o.regularization[0]),
        "RHO_HIGH": float(o.regularization[1]),
        "WHOLE": chosen.whole,
        "FIRST_SIZES": chosen.turns[0],
        "ARMIJO": search.ARMIJO,
        "TELLING": search.TELLING,
        "STALLED": search.STALLED,
        "PATIENCE": search.PATIENCE,
        "FORM_DENSE": int(layout.form == "dense"),
        "FORM_EXPLICIT": int(layout.form == "explicit"),
        "BASE": layout.base if layout.form == "floating" else 0,
        "BASE_COLUMNS": layout.base_columns,
    }
    if problem.constraints:
        numbers |= {
            "STRIDES": len(penalty.stride_knots(problem.steps)) - 1,
            "RATIO": penalty.RATIO,
            "WIDEST": penalty.WIDEST,
            "FLATTEST": penalty.FLATTEST,
            "PENALTY_STEPS": penalty.STEPS,
            "FAR_BOUND": constrained.FAR,
            "FIRST_PENALTY": constrained.FIRST_PENALTY,
            "SHARP": constrained.SHARP,
            "SMALL_GAP": constrained.GAP,
        }
        numbers |= {name: getattr(augmented, name) for name in _OF_OUTER}
    return {name: repr(value) for name, value in numbers.items()}


def _hold(problem: Problem) -> Program | None:
    """(q) → the controls that hold a position, of a robot that is driven in every joint."""
    s = problem.system
    if not isinstance(s, RobotSystem) or s.actuation is not None or s.held or s.inputs:
        return None
    found = source_of(s.robot.model, "gravity_torque")
    return found if isinstance(found, Program) else None


# --- names of numbers -----------------------------------------------------------------------------


def fields_of(problem: Problem) -> list[Field]:
    """The numbers of a knot, in their order."""
    system, programs = problem.system, problem.programs
    words = [_word(term) for term in programs.terms]
    names = [
        word if words.count(word) == 1 else f"{word}_{words[:k].count(word) + 1}"
        for k, word in enumerate(words)
    ]
    found: list[Field] = []
    for term, name, parts in zip(programs.terms, names, programs.slices, strict=True):
        for kind, part in parts.items():
            if size := part.stop - part.start:
                found.append(Field(f"{name}_{kind}", size, kind, _told(term, kind)))
    found += _inputs(system) if isinstance(system, RobotSystem) else []
    rest = programs.parameters - sum(f.size for f in found)
    if rest:
        found.append(Field("inputs", rest, "input", "inputs of the dynamics"))
    plain = identifiers([f.name for f in found])
    return [replace(f, name=plain[f.name]) for f in found]


def member_at(problem: Problem, column: int) -> str:
    """The member of a knot's numbers that begins at a column of them."""
    sizes = [field.size for field in fields_of(problem)]
    return fields_of(problem)[[sum(sizes[:k]) for k in range(len(sizes))].index(column)].name


def _word(term: Term) -> str:
    label = term.label() if isinstance(term, Cost | Constraint) else type(term).__name__
    return "_".join("".join(c if c.isalnum() else " " for c in label).lower().split())


def _told(term: Term, kind: str) -> str:
    label = term.label() if isinstance(term, Cost | Constraint) else type(term).__name__
    about = {
        "target": "what it aims at",
        "weight": "of each number of its residual",
        "lower": "bounds",
        "upper": "bounds",
        "multiplier": "a solve writes them",
        "penalty": "a solve writes them",
        "softness": "a solve writes them",
    }
    return f"{label}: {about[kind]}"


def _inputs(system: RobotSystem) -> list[Field]:
    found: list[Field] = []
    v = system.varied
    if v is not None:
        if v.gravity:
            found.append(Field("gravity", 3, "input", "gravity, m/s2"))
        found += [
            Field(f"payload_{identifier(f)}", 4, "input", f"mass in kg and offset in m, on {f}")
            for f in v.payload
        ]
        found += [
            Field(f"external_{identifier(f)}", 6, "input", f"a wrench, force first, on {f}")
            for f in v.external
        ]
        if v.bodies:
            about = "of each body: m, m c, Ixx Ixy Iyy Ixz Iyz Izz"
            found.append(Field("inertia", 10 * v.bodies, "input", about))
    if system.held is not None:
        found += _contact_inputs(system.held)
    return found


def _contact_inputs(held: Held) -> list[Field]:
    frames = ", ".join(c.frame for c in held.constraints)
    about = f"1 where a contact holds, 0 where it does not: {frames}"
    found = [Field("contacts", len(held.constraints), "input", about)]
    for c in held.constraints:
        if size := place_size(c):
            what = "the point" if size == 3 else "the pose, by rows,"
            about = f"{what} in the world where {c.frame} belongs while it holds"
            found.append(Field(f"place_{identifier(c.frame)}", size, "input", about))
    if held.impacts:
        about = "1, 0 in a step; 0, 1 + restitution in an impact"
        found.append(Field("impact", 2, "input", about))
    return found


def _about(problem: Problem, options: PDDP | Direct) -> Sequence[str]:
    terms = [f"{_word(t)} ({t.size(problem.system)})" for t in problem.programs.terms]
    return [
        f"{problem.system.name}: {problem.steps} steps, {problem.integrator}; {options.iterations}"
        f" iterations at most, tolerance {options.tolerance:g}.",
        f"Costs and constraints, with their numbers: {', '.join(terms)}.",
    ]


# --- counts ---------------------------------------------------------------------------------------


def _counted(source: Source, options: PDDP | Direct) -> dict[str, str]:
    """Worst-case memory and operations."""
    p, o = source.parts, source.parts.layout
    flops = {name: counts(f.source)["flops"] for name, f in (source.wide | source.narrow).items()}
    n, m, z = p.ndx, p.nu, p.ndx + p.nu
    backward = 2 * (n * n * z + n * z * z) + m**3 + 4 * m * m * z + 2 * n * n * m
    roll = max(flops[name] for name in source.wide if name.startswith("roll_out"))
    iteration = p.steps * (flops["expansion"] + backward + len(p.alphas) * roll)
    lanes = _LONGEST // 8
    vectors = -(-len(p.alphas) // lanes)
    wide = (
        lanes
        * 8
        * (
            vectors * (p.steps + 1) * (p.nx + p.nu + 2)
            + sum(sum(f.inputs.values()) + sum(f.outputs.values()) for f in source.wide.values())
            + max((f.kernel.work for f in source.wide.values() if f.kernel), default=1)
        )
    )
    expanded = sum(source.wide["expansion"].outputs.values()) + m * o.columns
    numbers = 8 * ((p.steps + 1) * (p.parameters + p.nx) + p.steps * (1 + 3 * m) + p.nx)
    own = numbers + 8 * p.steps * (expanded + 4 * (p.nx + n + 2 * m)) + 8 * o.scratch_size
    if p.direct:
        knots = p.steps + 1
        tried = (len(p.alphas) + 3) * knots * (p.nx + n + m)
        own += 8 * (knots * (5 * n * n + 4 * n * m + 3 * m * m + 10 * n + 16 * m) + tried)
        own += 8 * max((f.kernel.work for f in source.narrow.values() if f.kernel), default=0)
        own += 8 * p.steps * z * z
    solution = 8 * ((p.steps + 1) * p.nx + p.steps * (m + m * n)) + 48
    raises = 1 + math.ceil(math.log10(options.regularization[1] / options.regularization[0]))
    return {
        "memory": str(math.ceil((wide + own + 16 * 8 * o.value_size) / 1000)),
        "numbers": str(math.ceil(numbers / 1000)),
        "solution": str(math.ceil(solution / 1000)),
        "stack": "256",
        "state": f": {p.states[0]}" if p.states else "",
        "tangent": f": {p.states[1]}" if p.states else "",
        "control": f": {p.states[2]}" if p.states else "",
        "iteration": f"{iteration:,}".replace(",", " "),
        "most": str(options.iterations),
        "raises": str(raises),
    }


__all__ = [
    "check",
    "cuda_files",
    "fields_of",
    "files",
    "member_at",
    "parts_of",
    "rendered",
]
