"""Every key of a task file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rigidgrad.control import costs
from rigidgrad.control.limits import Limits
from rigidgrad.control.phases import Impact, Phase
from rigidgrad.control.terms.notation import GOAL, POINT, POSTURE
from rigidgrad.schema import (
    Key,
    Keys,
    Kind,
    Mismatch,
    Where,
    array_of,
    file,
    flag,
    is_described_by_keys,
    keys_of,
    matrix,
    number,
    numbers,
    only,
    read_table,
    read_value,
    required,
    table,
    table_of,
    tables,
    text,
    variant,
    whole,
    word,
)

_SECONDS = number(above=0, most=1e6)
STEPS = 100_000  # knots of a problem: each takes memory
_LANES = 1024  # blocks, step sizes and threads
_EACH = number(least=0) | numbers(least=0)
_SIDE = number() | numbers()
_SHARE = number(least=0, most=1)


def _type_name(made: type) -> str:
    """CenterOfMass is center_of_mass in a file."""
    return re.sub("(?<=.)(?=[A-Z])", "_", made.__name__).lower()


COST_TYPES: dict[str, type[costs.Cost]] = {
    _type_name(cost): cost for cost in costs.COSTS if is_described_by_keys(cost)
}
COSTS: dict[str, Keys] = {name: keys_of(cost) for name, cost in COST_TYPES.items()}
ANY_COST: Keys = {"per_second": Key(flag, False)}  # what all have besides
_COST = variant("cost", {name: {**own, **ANY_COST} for name, own in COSTS.items()})
# what stands between bounds in [[limits.constraints]]: the term of a cost, without its price
BETWEEN: Keys = {
    "lower": Key(_SIDE, about="bound: a number, or one per number of the residual"),
    "upper": Key(_SIDE, about="likewise"),
    "value": Key(_SIDE, about="what it is, instead of bounds"),
    "at": Key(
        only("all") | only("final") | array_of(whole(0)),
        "all",
        about='the knots that it holds on: `"all"`, `"final"`, or their numbers',
    ),
}
CONSTRAINTS: dict[str, Keys] = {
    name: {**{k: v for k, v in own.items() if k not in COST_TYPES[name].price}, **BETWEEN}
    for name, own in COSTS.items()
    if name != "duration"
}
LIMITS: Keys = {
    **keys_of(Limits),
    "constraints": Key(
        array_of(variant("constraint", CONSTRAINTS)),
        [],
        about="terms of costs between bounds: `[[limits.constraints]]`",
    ),
}
_OF_ANY_PHASE: Keys = {
    "costs": Key(array_of(_COST), [], about="what acts on its knots, as `[[costs]]`"),
    "limits": Key(table(LIMITS), about="what it keeps to, as `[limits]`"),
}
PHASE: Keys = {**keys_of(Phase), **_OF_ANY_PHASE}
IMPACT: Keys = {**keys_of(Impact), **_OF_ANY_PHASE}


def _read_phase(where: Where, value: Any) -> dict[str, Any]:
    """A phase; with `impact = true`, an impact."""
    if not isinstance(value, Mapping):
        raise Mismatch
    impact = read_value(where / "impact", value.get("impact", False), flag)
    return read_table(
        where,
        value,
        {"impact": Key(flag, False), **(IMPACT if impact else PHASE)},
        "an impact" if impact else "a phase",
    )


_ANY_SOLVER: Keys = {
    "iterations": Key(whole(0)),
    "tolerance": Key(number(least=0)),
    "violation": Key(number(above=0)),
    "accept": Key(numbers(2, least=0)),
    "regularization": Key(numbers(2, least=0)),
    "dtype": Key(word("float64", "float32")),
    "device": Key(word("opencl", "cuda")),
}
SOLVERS: dict[str, Keys] = {
    "pddp": {
        **_ANY_SOLVER,
        "blocks": Key(whole(1, _LANES)),
        "forward_blocks": Key(whole(1, _LANES)),
        "backward_blocks": Key(whole(1, _LANES)),
        "first_pass": Key(word("fresh", "stale")),
        "alphas": Key(whole(1, _LANES) | numbers(least=0)),
        "choose": Key(word("largest", "best", "balanced")),
        "defect": Key(number(above=0)),
        "form": Key(word("forward", "inverse")),
        "second_order": Key(flag),
        "threads": Key(whole(1, _LANES)),
    },
    "direct": {
        **_ANY_SOLVER,
        "linear_solver": Key(text),
        "preconditioner": Key(text),
        "polynomial": Key(whole(0, 100)),
        "reductions": Key(whole(0, 100)),
        "linear_tolerance": Key(number(above=0)),
        "linear_iterations": Key(whole(1)),
        "alphas": Key(whole(1, _LANES)),
        "choose": Key(word("largest", "best")),
        "globalization": Key(word("line_search", "trust_region", "admm")),
        "pcg_blocks": Key(word("trajectory", "knot")),
    },
}

_PLANE = Key(word("xy", "xz", "yz"), "yz")
PATHS: dict[str, Keys] = {
    "point": {"at": required(POINT)},
    "figure_eight": {
        "center": required(POINT),
        "size": required(numbers(2)),
        "plane": _PLANE,
        "period": Key(_SECONDS, 10.0),
    },
    "circle": {
        "center": required(POINT),
        "radius": required(number(above=0)),
        "plane": _PLANE,
        "period": Key(_SECONDS, 10.0),
    },
    "waypoints": {"points": required(matrix(columns=3)), "times": required(numbers())},
    "state": {"goal": required(GOAL)},
}

FAULTS: Keys = {
    "noise_position": Key(_EACH, 0.0),
    "noise_velocity": Key(_EACH, 0.0),
    "latency": Key(number(least=0), 0.0),
    "jitter": Key(number(least=0), 0.0),
    "drop": Key(_SHARE, 0.0),
    "repeat": Key(_SHARE, 0.0),
    "nan": Key(_SHARE, 0.0),
    "quantisation_position": Key(_EACH, 0.0),
    "quantisation_velocity": Key(_EACH, 0.0),
}
PUSH: Keys = {
    "force": required(POINT),
    "duration": required(_SECONDS),
    "frame": required(text),
    "at": Key(number(least=0), 0.0),
}
FRICTION: Keys = {
    "viscous": Key(_EACH, 0.0),
    "coulomb": Key(_EACH, 0.0),
    "smoothing": Key(number(above=0), 1e-3),
}
_ANY_PLANT: Keys = {
    "dt": Key(_SECONDS, 1e-3),
    "start": Key(POSTURE),
    "mass_error": Key(number(above=-1) | numbers(), 0.0),
    "friction": Key(only("model") | table(FRICTION)),
    "payload": Key(
        table(
            {
                "mass": required(number(above=0)),
                "frame": required(text),
                "offset": Key(POINT, [0.0, 0.0, 0.0]),
            }
        )
    ),
    "pushes": Key(tables(PUSH), []),
    "faults": Key(table(FAULTS)),
    "clamp": Key(flag, True),
    "seed": Key(whole(0), 0),
}
_METRES = number(above=0, most=10)
_FOOT = {"radius": required(_METRES), "offset": Key(POINT | matrix(columns=3), [0.0, 0.0, 0.0])}
_BOX: Keys = {"center": required(POINT), "half_lengths": required(numbers(3, least=0))}
GROUND: Keys = {
    "feet": required(table_of(_METRES | table(_FOOT))),
    "friction": Key(number(least=0), 0.8),
    "slope": Key(number(), 0.0),
    "boxes": Key(tables(_BOX), []),
    "bodies": Key(flag, True),
}
PLANTS: dict[str, Keys] = {
    "simulator": {
        **_ANY_PLANT,
        "integrator": Key(word("euler", "semi_implicit_euler", "midpoint", "rk3", "rk4")),
    },
    "mujoco": {
        **_ANY_PLANT,
        "integrator": Key(word("euler", "rk4", "implicit", "implicitfast")),
        "ground": Key(table(GROUND)),
    },
}

MPC: Keys = {
    "period": Key(_SECONDS, 0.002),
    "duration": Key(_SECONDS, 2.0),
    "iterations": Key(whole(1), 1),
    "latency": Key(number(least=0), 0.0),
    "budget": Key(_SECONDS),
    "observer": Key(flag | number(above=0), False),
    "integral": Key(flag | number(above=0), False),
    "repeat": Key(whole(0)),
    "on_violation": Key(word("slow", "hold", "report")),
    "violation": Key(number(least=0), 1e-3),
    "realtime": Key(flag, False),
    "within": Key(number(above=0)),
    "target": Key(variant("target", PATHS)),
    "plant": Key(
        variant("plant", PLANTS, "simulator"),
        {"type": "simulator"} | {name: key.default for name, key in PLANTS["simulator"].items()},
    ),
}

OUTPUT: Keys = {
    "solution": Key(file(".npz")),
    "log": Key(file(".npz")),
    "report": Key(file(".html")),
}

TASK: Keys = {
    "robot": required(text),
    "floating_base": Key(flag, False),
    "strict": Key(flag, False),
    "gravity": Key(only("model") | POINT, "model"),
    "lock": Key(table_of(number() | numbers()), {}),
    "actuation": Key(
        word("joints", "all")
        | matrix()
        | array_of(text)
        | table_of(table_of(number() | numbers())),
        "joints",
    ),
    "start": Key(POSTURE, "neutral"),
    "steps": Key(whole(1, STEPS)),
    "dt": Key(_SECONDS),
    "duration": Key(_SECONDS | numbers(2, least=0)),
    "integrator": Key(
        word("euler", "semi_implicit_euler", "midpoint", "rk3", "rk4"), "semi_implicit_euler"
    ),
    "guess": Key(word("hold", "line", "reach"), "hold"),
    "phases": Key(array_of(Kind("a table of a phase or an impact", _read_phase))),
    "costs": Key(array_of(_COST), []),
    "limits": Key(table(LIMITS)),
    "solver": Key(variant("solver", SOLVERS, "pddp"), {"type": "pddp"}),
    "output": Key(table(OUTPUT), dict.fromkeys(OUTPUT)),
    "mpc": Key(table(MPC)),
}
