"""A task: what a file says, as a robot, a problem, a solver, a controller and a plant."""

from __future__ import annotations

import contextlib
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rigidgrad.control import costs
from rigidgrad.control.direct import Direct
from rigidgrad.control.durations import Duration, as_duration
from rigidgrad.control.held import Touch
from rigidgrad.control.limits import Constraint, Equality, Inequality, Limits
from rigidgrad.control.mpc import MPC
from rigidgrad.control.mpc.motion import first_again
from rigidgrad.control.pddp import PDDP
from rigidgrad.control.phases import Impact, Phase, held_by
from rigidgrad.control.problem import Problem
from rigidgrad.control.system import RobotSystem
from rigidgrad.control.terms.notation import state_of
from rigidgrad.errors import InputError, RigidgradError, printable
from rigidgrad.files import Unreadable, file_name, read_regular
from rigidgrad.geometry.scene import Scene, inside
from rigidgrad.model.contacts import Contact
from rigidgrad.model.source import bundled
from rigidgrad.robot import Robot, load
from rigidgrad.schema import Keys, TaskError, Where, read_table, resolved, shown
from rigidgrad.tasks import keys
from rigidgrad.tasks.paths import path_of
from rigidgrad.tasks.words import in_words_of_tasks

_MOST = 1 << 20  # bytes of a task file
_MOST_STEPS = 10_000_000  # of a controller or a plant: each takes memory
# A dotted key of more parts than any task has: the time that tomllib takes for one grows with the
# square of its parts.
_PART = r"""(?:[\w-]{1,200}+|"(?:[^"\\\n]|\\.){0,200}+"|'[^'\n]{0,200}+')"""
_LONG_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{32}}")


def load_task(path: str | os.PathLike[str], *, allow_outside: bool = False) -> Task:
    """Reads and checks a file; what is wrong in it is a TaskError that names the key. Files of
    [output] lie in its folder, unless `allow_outside`.
    """
    where = Where(printable(file_name(path)))
    try:
        text = read_regular(path, _MOST).decode("utf-8")
        if key := _LONG_KEY.search(text):
            raise where.error(
                f"line {text.count(chr(10), 0, key.start()) + 1} has a key of more than 32 parts; a"
                " task has none"
            )
        data = tomllib.loads(text)
    except Unreadable as error:
        missing = "no such file" in str(error)
        raise where.error(
            "there is no such file; `rigidgrad init ROBOT` writes one to begin with"
            if missing
            else error
        ) from None
    except UnicodeDecodeError:
        raise where.error("this is not a text in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise where.error(f"this is not TOML: {error}") from None
    except RecursionError:
        raise where.error(
            "arrays or tables are nested too deeply in it; a task needs few levels"
        ) from None
    except (ValueError, OverflowError) as error:
        if isinstance(error, TaskError):
            raise
        raise where.error("a number in it is out of range") from None
    return Task(data, where, Path(path).parent, allow_outside=allow_outside)


@contextlib.contextmanager
def _blaming(where: Where) -> Iterator[None]:
    """Errors inside belong to a key of the file."""
    try:
        yield
    except TaskError:
        raise
    except RigidgradError as error:
        raise where.error(in_words_of_tasks(str(error))) from None


class Task:
    """What a task file says. All of it is checked at once; `problem`, `solver`, `controller` and
    `plant` are made when they are asked for.
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        where: Where | None = None,
        folder: Path | None = None,
        *,
        allow_outside: bool = False,
    ):
        self.where = where or Where("task")
        self.folder = folder or Path()
        self.allow_outside = allow_outside
        self.data = d = read_table(self.where, data, keys.TASK)
        for name in keys.OUTPUT:
            self.output(name)  # complains before anything is computed
        with _blaming(self.where / "robot"):
            self.robot = self._load(d["robot"])
        with _blaming(self.where / "lock"):
            self.robot = self.robot.reduced(lock=d["lock"]) if d["lock"] else self.robot
        with _blaming(self.where / "actuation"):
            self.system = RobotSystem(self.robot, d["actuation"])
        with _blaming(self.where / "start"):
            self.start = state_of(d["start"], self.robot, None)
        self.free: Duration | None = None  # of a task without phases
        self.steps, self.dt = self._read_steps()
        if not d["costs"] and not any(phase["costs"] for phase in d["phases"] or ()):
            raise (self.where / "costs").error(
                f"a task needs costs: [[costs]] tables of type {', '.join(keys.COSTS)}"
            )
        touching = [self._contacts(k, phase) for k, phase in enumerate(d["phases"] or ())]
        self.held = self._held(touching)
        everything = [contact for contacts in touching for contact in contacts]
        self.costs = [
            self._cost(self.where / "costs" / k, cost, self.steps, everything)
            for k, cost in enumerate(d["costs"])
        ]
        with _blaming(self.where / "limits"):
            self.limits = self._limits(
                self.where / "limits", d["limits"], self.steps, everything, first=True
            )
        self.phases = [
            self._phase(k, phase, contacts)
            for k, (phase, contacts) in enumerate(zip(d["phases"] or (), touching, strict=True))
        ]
        with _blaming(self.where / "solver"):
            self.solver = self._solver(d["solver"])
        if self.mpc:
            self._check_mpc()

    # --- parts ------------------------------------------------------------------------------------

    @cached_property
    def problem(self) -> Problem:
        """Recorded and compiled."""
        with _blaming(self.where):
            return Problem(
                self.system,
                self.start,
                None if self.phases else self.steps,
                self.dt,
                phases=self.phases or None,
                integrator=self.data["integrator"],
                costs=self.costs,
                limits=self.limits,
                guess=self.data["guess"],
                duration=self.free,
            )

    @property
    def duration(self) -> float:
        """Seconds of all steps, where they are given."""
        each = [(p.steps, p.dt) for p in self.phases] or [(self.steps, None)]
        return sum(steps * ((self.dt or 0.0) if dt is None else dt) for steps, dt in each)

    @property
    def mpc(self) -> dict[str, Any]:
        """What the table [mpc] says; empty without one."""
        return self.data["mpc"] or {}

    def controller(self) -> MPC:
        """The controller of [mpc]: the solver's options, with the iterations of [mpc]."""
        m, where = self._need_mpc(), self.where / "mpc"
        with _blaming(where):
            options = {
                k: m[k]
                for k in (
                    "period",
                    "latency",
                    "budget",
                    "observer",
                    "integral",
                    "repeat",
                    "on_violation",
                    "violation",
                )
            }
            return MPC(
                self.problem,
                self._solver(self.data["solver"], iterations=m["iterations"]),
                target=self.target,
                **options,
            )

    def plant(self) -> Any:
        """What the controller drives."""
        from rigidgrad import plants

        options = dict(self._need_mpc()["plant"])
        where = self.where / "mpc" / "plant"
        kind = {"simulator": plants.Simulator, "mujoco": plants.MuJoCo}[options.pop("type")]
        start = options.pop("start")
        with _blaming(where / "start"):
            x = self.start if start is None else state_of(start, self.robot, self.start)
        with _blaming(where):
            if isinstance(options["friction"], Mapping):
                options["friction"] = plants.Friction(**options["friction"])
            if options["payload"]:
                options["payload"] = plants.Payload(**options["payload"])
            if options["faults"]:
                options["faults"] = plants.Faults(**options["faults"])
            options["pushes"] = [plants.Push(**push) for push in options["pushes"]]
            if options.get("ground"):
                options["ground"] = self._ground(where / "ground", options["ground"])
            return kind(self.system, x, **{k: v for k, v in options.items() if v is not None})

    def _ground(self, where: Where, said: dict[str, Any]) -> Any:
        from rigidgrad.plants import Ground

        feet = {}
        for frame, foot in said["feet"].items():
            with _blaming(where / "feet"):
                self.robot.model.frame(frame)
            round_it = isinstance(foot, float)
            feet[frame] = foot if round_it else (foot["radius"], foot["offset"])
        with _blaming(where):
            return Ground(
                feet,
                said["friction"],
                said["slope"],
                [(box["center"], box["half_lengths"]) for box in said["boxes"]],
                said["bodies"],
            )

    @cached_property
    def target(self) -> Callable[[Any], np.ndarray] | np.ndarray | None:
        """Where the controller aims: a function of time for a path, a state, or None to leave it to
        the costs.
        """
        aim = self.mpc.get("target")
        if aim is None:
            return None
        where = self.where / "mpc" / "target"
        if aim["type"] == "state":
            with _blaming(where / "goal"):
                goal: np.ndarray = self._resolved(aim["goal"])
                return goal
        with _blaming(where):
            return path_of(aim)

    @cached_property
    def tracked(self) -> Tracked | None:
        """The point whose distance to the target is reported: that of the first reach cost."""
        for cost in self.costs:
            if isinstance(cost, costs.Reach):
                fixed = np.asarray(cost.target, dtype=float)
                point = {"type": "point", "at": fixed[:3, 3] if cost.pose else fixed}
                target = self.target if callable(self.target) else path_of(point)
                return Tracked(self.robot, cost.frame, np.array(cost.offset), target)
        return None

    def output(self, name: str) -> Path | None:
        """A path of [output], relative to the task's file and in its folder, links followed, unless
        that is not asked for.
        """
        value = self.data["output"][name]
        if value is None:
            return None
        path: Path = self.folder / value
        where = self.where / "output" / name
        try:
            inside = path.resolve().is_relative_to(self.folder.resolve())
        except (OSError, RuntimeError) as error:  # a loop of links, a name that is too long
            raise where.error(f"{shown(value)} cannot be found ({type(error).__name__})") from None
        if not (inside or self.allow_outside):
            raise where.error(
                f"{shown(value)} is outside of the task's folder; name a file in it, or pass"
                " --allow-outside"
            )
        return path

    # --- how they are read ------------------------------------------------------------------------

    def _load(self, source: str) -> Robot:
        own = self.folder / source
        is_path = source not in bundled() and (
            "/" in source or "." in source or "\0" in source or (len(source) < 200 and own.exists())
        )
        d = self.data
        return load(
            own if is_path else source,
            floating_base=d["floating_base"],
            gravity=d["gravity"],
            strict=d["strict"],
        )

    def _resolved(self, value: Any) -> Any:
        """What a value of the file means for this robot and start."""
        return resolved(value, self.robot, self.start)

    def _read_steps(self) -> tuple[int, float | None]:
        """(steps, seconds of one): of phases their sum, and None where each has its own."""
        d = self.data
        if d["phases"] is None:
            if d["steps"] is None:
                raise self.where.error(
                    "'steps' is missing: give it, or [[phases]] with steps of their own"
                )
            if isinstance(d["duration"], list):
                with _blaming(self.where / "duration"):
                    self.free = as_duration(d["duration"])
                    if self.mpc:
                        raise InputError("a controller has steps of a given length: give 'dt'")
                return d["steps"], d["dt"]
            if (d["dt"] is None) == (d["duration"] is None):
                raise self.where.error(
                    "give either 'dt', seconds of a step, or 'duration', seconds of all steps, or"
                    " [low, high], between which the solver chooses them"
                )
            return d["steps"], float(d["dt"] or d["duration"] / d["steps"])
        for name, instead in (
            ("steps", "each phase has its own"),
            ("duration", "give 'dt', seconds of a step, or a duration to each phase"),
        ):
            if d[name] is not None:
                raise (self.where / name).error(f"a task with phases has none: {instead}")
        if not any(not phase["impact"] for phase in d["phases"]):
            raise (self.where / "phases").error(
                "there is no phase that takes time: give one `steps`"
            )
        for k, phase in enumerate(d["phases"]):
            if not phase["impact"] and phase["dt"] is phase["duration"] is d["dt"] is None:
                raise (self.where / "phases" / k).error(
                    "'dt' is missing: give it here, or to the whole task"
                )
        steps = sum(1 if phase["impact"] else phase["steps"] for phase in d["phases"])
        if steps > keys.STEPS:
            raise (self.where / "phases").error(
                f"these are {steps:,} steps; all phases together have at most {keys.STEPS:,}"
            )
        return steps, d["dt"]

    def _contacts(self, index: int, said: dict[str, Any]) -> list[Touch]:
        with _blaming(self.where / "phases" / index / "contacts"):
            found = self._resolved(list(said["contacts"]))
            return [c for one in found for c in (one if isinstance(one, list) else [one])]

    def _held(self, touching: list[list[Touch]]) -> RobotSystem:
        """The system with the contacts of all phases, which checks what costs say about them."""
        phases = []
        for k, contacts in enumerate(touching):
            with _blaming(self.where / "phases" / k / "contacts"):
                said = self.data["phases"][k]
                phases.append(
                    Impact(contacts, restitution=said["restitution"])
                    if said["impact"]
                    else Phase(said["steps"], contacts)
                )
                held_by(self.system, phases[-1:])
        held = held_by(self.system, phases)
        return self.system if held is None else self.system.holding(held)

    def _phase(self, index: int, said: dict[str, Any], contacts: list[Touch]) -> Phase | Impact:
        where, last = self.where / "phases" / index, index == len(self.data["phases"]) - 1
        steps = 1 if said["impact"] else said["steps"]
        own = [
            self._cost(where / "costs" / k, cost, steps, contacts, last)
            for k, cost in enumerate(said["costs"])
        ]
        with _blaming(where / "limits"):
            limits = self._limits(
                where / "limits", said["limits"], steps, contacts, first=index == 0
            )
        with _blaming(where):
            if said["impact"]:
                return Impact(contacts, own, said["restitution"], limits)
            return Phase(steps, contacts, own, limits, said["dt"], said["duration"])

    def _cost(
        self,
        where: Where,
        said: dict[str, Any],
        steps: int,
        contacts: list[Touch],
        last: bool = True,
    ) -> costs.Cost:
        arguments = self._arguments(where, said, keys.COSTS[said["type"]], contacts)
        with _blaming(where):  # complains now, at its place, not when the problem is made
            cost = keys.COST_TYPES[said["type"]](**arguments)
            cost = cost.per_second() if said["per_second"] else cost
            cost.targets(self.held, steps + 1)
            weights = cost.weights(self.held, steps + 1)
            if not weights.any():
                which = "'weight', 'final', or both" if "final" in said else "'weight'"
                raise InputError(f"all its weights are zero: give it {which}")
            if weights[-1].any() and not last:
                raise InputError(
                    "'final' is for the last knot of the motion: give it to a cost of the last"
                    " phase, or of the task"
                )
        return cost

    def _arguments(
        self, where: Where, said: dict[str, Any], names: Keys, contacts: list[Touch]
    ) -> dict[str, Any]:
        """Of a term, as its constructor takes them."""
        found = {}
        for name in names:
            with _blaming(where / name):
                found[name] = self._resolved(said[name])
                if name == "contact":
                    found[name] = _named(found[name], contacts)
                if name == "scene":
                    found[name] = self._scene(found[name])
        return found

    def _scene(self, name: str | None) -> Scene | None:
        """Of a file in the task's folder."""
        if name is None:
            return None
        return Scene.read(self.folder / name if self.allow_outside else inside(self.folder, name))

    def _constraint(self, where: Where, said: dict[str, Any], contacts: list[Touch]) -> Constraint:
        names = keys.CONSTRAINTS[said["type"]]
        given = self._arguments(where, said, names, contacts)
        lower, upper, value, at = (given.pop(name) for name in ("lower", "upper", "value", "at"))
        with _blaming(where):
            term = keys.COST_TYPES[said["type"]](**given)
            if value is None:
                sides = (-np.inf if lower is None else lower, np.inf if upper is None else upper)
                return Inequality(term, *sides, at=at)
            if lower is not None or upper is not None:
                raise InputError("'value' is instead of 'lower' and 'upper': give one or the other")
            return Equality(term, value, at=at)

    def _limits(
        self,
        where: Where,
        said: dict[str, Any] | None,
        steps: int,
        contacts: list[Touch],
        first: bool,
    ) -> Limits | None:
        """`first`: they hold from the start on."""
        if said is None:
            return None
        places = [where / "constraints" / k for k in range(len(said["constraints"]))]
        own = [
            self._constraint(place, one, contacts)
            for place, one in zip(places, said["constraints"], strict=True)
        ]
        given = self._resolved(said | {"constraints": own})
        limits = Limits(**given | {"scene": self._scene(given["scene"])})
        limits.control_bounds(self.system, steps)
        start = self.start if first else None
        for constraint in limits.constraints(self.held):
            with _blaming(places[own.index(constraint)] if constraint in own else where):
                constraint.targets(self.held, steps + 1)
                constraint.bounds(self.held, steps + 1, start)
        return limits

    def _solver(self, said: dict[str, Any], **more: Any) -> PDDP | Direct:
        given: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v
            for k, v in said.items()
            if k != "type" and v is not None
        } | more
        return PDDP(**given) if said["type"] == "pddp" else Direct(**given)

    def _need_mpc(self) -> dict[str, Any]:
        if not self.mpc:
            raise self.where.error(
                "there is no table [mpc], which says how the robot is controlled: at least `[mpc]`"
                " and `duration = 2.0`"
            )
        return self.mpc

    def _check_mpc(self) -> None:
        where, target = self.where / "mpc", self.target
        if self.mpc["duration"] > _MOST_STEPS * min(self.mpc["period"], self.mpc["plant"]["dt"]):
            raise where.error(
                f"this is a run of more than {_MOST_STEPS:,} steps; make duration shorter, or"
                " period and plant.dt longer"
            )
        if any(p.duration is not None for p in self.phases):
            raise (self.where / "phases").error(
                "a controller takes steps whose length is given: leave 'duration' out, and give"
                " 'dt', as a solve found it perhaps"
            )
        repeat = self.mpc["repeat"]
        with _blaming(self.where / "phases" if repeat is None else where / "repeat"):
            first_again(self.phases, repeat)
        if target is not None and callable(target) != any(
            isinstance(c, costs.Reach) for c in self.costs
        ):
            raise (where / "target").error(
                "a path is for a cost of type 'reach', a target of type 'state' for one of type"
                " 'state', and the first of these is meant"
            )
        if self.mpc["within"] is not None and self.tracked is None:
            raise (where / "within").error(
                "this is a distance between a point and its target: it needs a cost of type 'reach'"
            )


def _named(frame: str, held: list[Touch]) -> Contact:
    """The contact of a frame."""
    contacts = [c for c in held if isinstance(c, Contact)]
    found = [c for c in contacts if c.frame == frame]
    if not found:
        names = dict.fromkeys(c.frame for c in contacts)
        raise InputError(
            f"frame {frame!r} is in no contact here; contacts are of"
            f" {', '.join(map(repr, names)) or 'no frame'}"
        )
    if len({c.constraint for c in found}) > 1:
        raise InputError(f"frame {frame!r} is held in more than one way: give each phase this cost")
    return found[0]


@dataclass(frozen=True)
class Tracked:
    """A point of a frame that is to be at a target, which may move."""

    robot: Robot
    frame: str
    offset: np.ndarray
    target: Callable[[Any], np.ndarray]

    def distance(self, t: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Metres between point and target, at times (n,) and states (n, nx)."""
        T = self.robot.forward_kinematics(np.ascontiguousarray(x[:, : self.robot.nq]))[self.frame]
        away: np.ndarray = np.linalg.norm(
            T[:, :3, 3] + T[:, :3, :3] @ self.offset - self.target(t), axis=1
        )
        return away
