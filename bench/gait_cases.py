"""Crocoddyl's own gait problems for HyQ and ANYmal as problems of rigidgrad: the numbers of every knot lie in `data/`."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

import rigidgrad as rg

DATA = Path(__file__).parent / "data"
GAITS = ("walking", "trotting", "pacing", "bounding", "jumping")
FILES = {"hyq": "hyq_description/robots/hyq_no_sensors.urdf", "anymal": "anymal_b_simple_description/robots/anymal.urdf"}
_HUGE = 1e300  # stands for no bound


def robot_of(name: str) -> rg.Robot:
    """HyQ or ANYmal."""
    return load(FILES[name])


def load(file: str) -> rg.Robot:
    """A robot of example-robot-data, on a floating base."""
    import pinocchio

    folder = next(p for p in Path(pinocchio.__file__).parents if p.name == "cmeel.prefix") / "share/example-robot-data/robots"
    if not (folder / file).is_file():
        raise SystemExit(f"example-robot-data has no {file}")
    return rg.load(folder / file, floating_base=True, strict=False)


def numbers_of(name: str) -> dict[str, Any]:
    """All gaits of a robot."""
    with gzip.open(DATA / f"{name}_gaits.json.gz", "rt") as file:
        return json.load(file)


def problem_of(robot: rg.Robot, gait: dict[str, Any]) -> rg.Problem:
    """The same costs, contacts and time steps; the first guess is the default one, which is theirs, too."""
    *knots, last = gait["knots"]
    feet: dict[str, rg.Contact] = {}

    def contact(frame: str) -> rg.Contact:
        return feet.setdefault(frame, rg.Contact(frame, friction=0.7, gains=(0.0, 50.0)))

    def kind(knot: dict[str, Any]) -> tuple:
        return tuple(knot.get("contacts", ("impulse", *knot.get("impulse", ())))), tuple(c["name"] for c in knot["costs"]), knot.get("dt")

    phases: list[rg.Phase | rg.Impact] = []
    for (held, _, dt), run in itertools.groupby(knots, kind):
        own = list(run)
        scale = dt or 1.0
        costs = [cost_of([knot["costs"][k] for knot in own], contact, scale) for k in range(len(own[0]["costs"]))]
        if dt is None:
            phases.append(rg.Impact([contact(f) for f in held[1:]], costs, restitution=own[0]["restitution"]))
        else:
            phases.append(rg.Phase(len(own), [contact(f) for f in held], costs, dt=dt))
    final = [c for c in last["costs"] if c["kind"] not in ("Control", "ContactFrictionCone")]
    return rg.Problem(robot, gait["x0"], phases=phases, costs=[cost_of([c], contact, 1.0, final=True) for c in final])


def cost_of(knots: list[dict[str, Any]], contact: Any, scale: float, final: bool = False) -> rg.costs.Cost:
    """A cost of a run of knots, or of the last one."""
    first = knots[0]
    weight = np.array([c["weight"] for c in knots])[:, None] * scale

    def rows(name: str) -> np.ndarray:
        found = np.array([c[name] for c in knots])
        return found[0] if (found == found[0]).all() else np.concatenate([found, found[-1:]])

    if first["kind"] == "State":
        weights = weight * np.array([c.get("weights", np.ones(len(c["reference"]) - 1)) for c in knots])
        outside = None
        if "lower" in first:
            lower, upper = (np.array(first[side]) for side in ("lower", "upper"))
            outside = rg.costs.Barrier(np.where(lower < -_HUGE, -np.inf, lower), np.where(upper > _HUGE, np.inf, upper))
        return rg.costs.State(rows("reference"), **_weights(weights, final), activation=outside)
    if first["kind"] == "Control":
        return rg.costs.Effort(weight, reference=np.array(first["reference"]))
    if first["kind"] == "CoMPosition":
        return rg.costs.CenterOfMass(rows("reference"), **_weights(weight, final))
    if first["kind"] == "FrameTranslation":
        return rg.costs.Reach(first["frame"], rows("reference"), **_weights(weight, final))
    if first["kind"] == "ContactFrictionCone":
        return rg.costs.FrictionCone(contact(first["frame"]), weight)
    raise SystemExit(f"there is no cost {first['kind']} here")


def _weights(weight: np.ndarray, final: bool) -> dict[str, Any]:
    return {"final": weight[0]} if final else {"weight": weight}
