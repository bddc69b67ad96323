"""Crocoddyl's own gait problems for HyQ, ANYmal and the legs of Talos as problems of rigidgrad: the
numbers of every knot lie in `data/`.
"""

from __future__ import annotations

import gzip
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rigidgrad as rg
from rigidgrad.algorithms import kinematics
from rigidgrad.control.terms.rotation import rotation_vector
from rigidgrad.control.terms.touching import ForceCost
from rigidgrad.rotations import cotangent_rest
from rigidgrad.spatial import add3, cross3, dot3, multiply3, rotate, scale3, sub3, transpose

DATA = Path(__file__).parent / "data"
GAITS = ("walking", "trotting", "pacing", "bounding", "jumping")
FILES = {
    "hyq": "hyq_description/robots/hyq_no_sensors.urdf",
    "anymal": "anymal_b_simple_description/robots/anymal.urdf",
}
FILE_OF = {
    "hyq": "hyq_gaits.json.gz",
    "anymal": "anymal_gaits.json.gz",
    "talos_legs": "talos_walk.json.gz",
}
_HUGE = 1e300  # stands for no bound


@dataclass(frozen=True)
class Gait:
    """A gait of a robot, as Crocoddyl's example has it, or with some other arguments `command` and
    joints that start off the standing posture by `start`.
    """

    robot: str
    gait: str
    command: dict[str, float] | None = None
    start: tuple[float, ...] | None = None

    @property
    def label(self) -> str:
        return f"{self.robot}, {self.gait}"

    def as_data(self) -> dict[str, Any]:
        return {
            "robot": self.robot,
            "gait": self.gait,
            "command": self.command,
            "start": self.start,
        }


def trots(robot: str, count: int) -> list[Gait]:
    """Trots with steps of 5 to 25 cm, 5 to 15 cm high, from joints up to 0.03 rad off the standing
    posture.
    """
    random = np.random.default_rng(0)
    lengths, heights = (
        random.uniform(0.05, 0.25, count).tolist(),
        random.uniform(0.05, 0.15, count).tolist(),
    )
    starts = random.uniform(-0.03, 0.03, (count, 12)).tolist()
    return [
        Gait(robot, "trotting", {"stepLength": a, "stepHeight": b}, tuple(start))
        for a, b, start in zip(lengths, heights, starts, strict=True)
    ]


def robot_of(name: str) -> rg.Robot:
    """HyQ, ANYmal, or the legs of Talos."""
    return load(FILES[name]) if name in FILES else built(numbers_of(name)["robot"])


def load(file: str) -> rg.Robot:
    """A robot of example-robot-data, on a floating base."""
    import pinocchio

    folder = (
        next(p for p in Path(pinocchio.__file__).parents if p.name == "cmeel.prefix")
        / "share/example-robot-data/robots"
    )
    if not (folder / file).is_file():
        raise SystemExit(f"example-robot-data has no {file}")
    return rg.load(folder / file, floating_base=True, strict=False)


def built(body: dict[str, Any]) -> rg.Robot:
    """A robot given as numbers."""
    import pinocchio

    model = pinocchio.Model()
    for joint in body["joints"]:
        placement = pinocchio.SE3(np.array(joint["placement"]))
        k = model.addJoint(
            joint["parent"], getattr(pinocchio, joint["kind"])(), placement, joint["name"]
        )
        model.appendBodyToJoint(
            k,
            pinocchio.Inertia.FromDynamicParameters(np.array(joint["inertia"])),
            pinocchio.SE3.Identity(),
        )
    model.armature = np.concatenate([joint["armature"] for joint in body["joints"]])
    for f in body["frames"]:
        model.addFrame(
            pinocchio.Frame(
                f["name"],
                f["joint"],
                0,
                pinocchio.SE3(np.array(f["placement"])),
                pinocchio.FrameType.BODY,
            )
        )
    return rg.from_pinocchio(model)


def numbers_of(name: str) -> dict[str, Any]:
    """All gaits of a robot."""
    with gzip.open(DATA / FILE_OF[name], "rt") as file:
        return json.load(file)


def problem_of(robot: rg.Robot, gait: dict[str, Any]) -> rg.Problem:
    """The same costs, contacts and time steps; the first guess is the default one, which is theirs,
    too.
    """
    *knots, last = gait["knots"]
    feet: dict[str, rg.Contact] = {}
    surface = any(c["kind"] == "ContactWrenchCone" for knot in knots for c in knot["costs"])
    kind_of, gain = ("surface", 30.0) if surface else ("point", 50.0)

    def contact(frame: str) -> rg.Contact:
        return feet.setdefault(
            frame, rg.Contact(frame, kind=kind_of, friction=0.7, gains=(0.0, gain))
        )

    def kind(knot: dict[str, Any]) -> tuple:
        return (
            tuple(knot.get("contacts", ("impulse", *knot.get("impulse", ())))),
            tuple(c["name"] for c in knot["costs"]),
            knot.get("dt"),
        )

    phases: list[rg.Phase | rg.Impact] = []
    for (held, _, dt), run in itertools.groupby(knots, kind):
        own = list(run)
        scale = dt or 1.0
        costs = [
            cost_of([knot["costs"][k] for knot in own], robot, contact, scale)
            for k in range(len(own[0]["costs"]))
        ]
        if dt is None:
            phases.append(
                rg.Impact([contact(f) for f in held[1:]], costs, restitution=own[0]["restitution"])
            )
        else:
            phases.append(rg.Phase(len(own), [contact(f) for f in held], costs, dt=dt))
    final = [
        c
        for c in last["costs"]
        if c["kind"] not in ("Control", "ContactFrictionCone", "ContactWrenchCone")
    ]
    costs = [cost_of([c], robot, contact, 1.0, final=True) for c in final]
    return rg.Problem(robot, gait["x0"], phases=phases, costs=costs)


def cost_of(
    knots: list[dict[str, Any]], robot: rg.Robot, contact: Any, scale: float, final: bool = False
) -> rg.costs.Cost:
    """A cost of a run of knots, or of the last one."""
    first = knots[0]
    weight = np.array([c["weight"] for c in knots])[:, None] * scale

    def rows(name: str) -> np.ndarray:
        found = np.array([c[name] for c in knots])
        return found[0] if (found == found[0]).all() else np.concatenate([found, found[-1:]])

    if first["kind"] == "State":
        weights = weight * np.array(
            [c.get("weights", np.ones(len(c["reference"]) - 1)) for c in knots]
        )
        return rg.costs.State(
            rows("reference"), **_weights(weights, final), activation=outside_of(first)
        )
    if first["kind"] == "Control":
        return rg.costs.Effort(weight, reference=np.array(first["reference"]))
    if first["kind"] == "CoMPosition":
        return rg.costs.CenterOfMass(rows("reference"), **_weights(weight, final))
    if first["kind"] == "FrameTranslation":
        return rg.costs.Reach(first["frame"], rows("reference"), **_weights(weight, final))
    if first["kind"] == "ContactFrictionCone":
        return rg.costs.FrictionCone(contact(first["frame"]), weight)
    if first["kind"] == "ContactWrenchCone":
        return WrenchCone(contact(first["frame"]), first["A"], weight, outside_of(first))
    if first["kind"] == "FramePlacement":
        return placement_cost(robot, first["frame"], rows("reference"), _weights(weight, final))
    raise SystemExit(f"there is no cost {first['kind']} here")


def outside_of(cost: dict[str, Any]) -> rg.costs.Barrier | None:
    """The barrier of a cost that has bounds."""
    if "lower" not in cost:
        return None
    lower, upper = (np.array(cost[side]) for side in ("lower", "upper"))
    return rg.costs.Barrier(
        np.where(lower < -_HUGE, -np.inf, lower), np.where(upper > _HUGE, np.inf, upper)
    )


class WrenchCone(ForceCost):
    """Rows A of a surface's force and moment, in world axes: friction, the sole's rectangle and the
    moment about its normal, as Crocoddyl has them (Caron 2015).
    """

    def __init__(self, contact: rg.Contact, A: Any, weight: Any, activation: Any):
        super().__init__(weight, activation=activation)
        self._take(contact)
        self.A = tuple(tuple(0.0 if abs(a) < 1e-15 else a for a in row) for row in A)

    def key(self) -> str:
        return f"{super().key()} {self.A}"

    def size(self, system: Any) -> int:
        return len(self.A)

    def units(self, system: Any) -> tuple[str, ...]:
        return ("N",) * len(self.A)

    def matrix(self, system: Any, x: Any) -> Any:
        return self.A


def placement_cost(
    robot: rg.Robot, frame: str, references: np.ndarray, weights: dict[str, Any]
) -> rg.costs.Custom:
    """½ w |log(M_ref⁻¹ M)|² of a frame's placement M, whose first three numbers are J_l(ω)⁻¹
    R_refᵀ(p - p_ref); `Reach` has p - p_ref there.
    """
    model = robot.model

    def placement(x: Any, u: Any, p: Any) -> Any:
        goal = p[3:6], p[6:9], p[9:12]
        X = kinematics.frame_transform(model, x[: model.nq], model.frame(frame))
        turn = rotation_vector(multiply3(transpose(goal), transpose(X.E)))
        away = rotate(transpose(goal), sub3(X.r, p[:3]))
        across = cross3(turn, away)
        rest = cotangent_rest(dot3(turn, turn))
        return (*add3(away, add3(scale3(-0.5, across), scale3(rest, cross3(turn, across)))), *turn)

    T = np.asarray(references)
    flat = np.concatenate([T[..., :3, 3], T[..., :3, :3].reshape(*T.shape[:-2], 9)], axis=-1)
    return rg.costs.Custom(placement, **weights, parameters=flat, name=f"placement of {frame}")


def _weights(weight: np.ndarray, final: bool) -> dict[str, Any]:
    return {"final": weight[0]} if final else {"weight": weight}
