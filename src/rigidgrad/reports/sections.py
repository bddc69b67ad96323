"""What there is to say of a Solution, a Path, a Log or its Tracking: the motion, facts, charts and
numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from rigidgrad import viewer
from rigidgrad.control.mpc.log import Log
from rigidgrad.control.mpc.tracking import Tracking
from rigidgrad.control.solution import Solution
from rigidgrad.control.surroundings import Target
from rigidgrad.control.system import RobotSystem
from rigidgrad.errors import InputError
from rigidgrad.planning.path import Path
from rigidgrad.reports import numbers
from rigidgrad.reports.plots import Line, Plot
from rigidgrad.robot import Robot
from rigidgrad.viewer.around import surroundings_of
from rigidgrad.viewer.poses import body_poses, frame_path

_MOST_FRAMES = 500  # of a motion
_MOST_NAMES = 40  # of shapes
_MOST_PLACES = 400  # at which distances are measured


@dataclass(frozen=True)
class Section:
    """What is shown of one thing. `facts` are a table; of a run, `compared` are those that stand
    beside other runs' (none: it is no run).
    """

    facts: Mapping[str, Any]
    data: Any
    picture: str = ""
    plots: tuple[Plot, ...] = ()
    compared: Mapping[str, Any] = field(default_factory=dict)


def is_table(value: Mapping[str, Any]) -> bool:
    return bool(value) and all(isinstance(v, str | int | float) for v in value.values())


def section(item: Any, robot: Robot | None, problem: Any) -> Section:
    """Of whatever a report is about."""
    if isinstance(item, Solution):
        return _of_solution(item, robot)
    if isinstance(item, Path):
        return _of_path(item, robot)
    if isinstance(item, Tracking):
        return _of_tracking(item, problem)
    if isinstance(item, Log):
        return _of_log(item, robot, problem)
    if isinstance(item, Mapping) and is_table(item):
        return Section(item, dict(item))
    raise InputError(
        "a report is about a Solution, a Path, a Log, a Tracking, or a table, not"
        f" {type(item).__name__}"
    )


def _of_solution(solution: Solution, robot: Robot | None) -> Section:
    own = solution.system.robot if isinstance(solution.system, RobotSystem) else robot
    seconds = solution.stats.get("seconds", {})
    facts = {
        "status": f"{solution.status}: {solution.message}",
        "cost": f"{solution.cost:.9g}",
        "iterations": solution.iterations,
        "motion lasts": f"{solution.times[-1]:.6g} s",
        **{f"time in {phase}": f"{1e3 * s:.2f} ms" for phase, s in seconds.items()},
    }
    compared = {
        "status": solution.status,
        "cost": facts["cost"],
        "iterations": solution.iterations,
        "time": f"{1e3 * sum(seconds.values()):.2f} ms" if seconds else "–",
    }
    for name, left in solution.remaining.items():
        if left.by_name():
            facts[f"remaining, {name}"] = compared[f"remaining, {name}"] = str(left)
    if "violation" in solution.stats:
        worst = f"{solution.stats['violation']:.2g}"
        facts["largest violation"] = compared["largest violation"] = worst
    dt, times = solution.dt or 1.0, solution.times
    history = np.array(solution.stats.get("history", []), dtype=float)
    drawn = []
    if len(history) > 1 and np.all(history > 0):
        line = Line("cost", np.arange(len(history), dtype=float), history)
        drawn.append(Plot("Cost", "", (line,), across="iterations", log=True))
    if own is not None:
        drawn += [
            _distance(own, target, times, solution.x) for target in solution.surroundings.targets
        ]
    drawn += numbers.over_time(numbers.states(own, solution.x.shape[1]), times, solution.x)
    held = numbers.controls(solution.system, own, solution.u.shape[1])
    drawn += numbers.over_time(held, times[:-1], solution.u)
    if solution.ground_forces:
        pressing = [Line(f.frame, times[:-1], f.pressing) for f in solution.ground_forces]
        drawn.append(Plot("Normal forces", "N", tuple(pressing)))
    picture = "" if own is None else viewer.fragment(own, solution, dt=None if solution.dt else dt)
    data = {
        "status": solution.status,
        "cost": solution.cost,
        "iterations": solution.iterations,
        "dt": dt,
        "t": times,
        "x": solution.x,
        "u": solution.u,
        "history": history,
    }
    return Section(facts, data, picture, tuple(drawn), compared)


def _of_log(log: Log, robot: Robot | None, problem: Any) -> Section:
    facts, drawn, data = _log_parts(log, robot, problem)
    picture = ""
    if robot is not None and log.steps > 1:
        seen = np.isfinite(log.x).all(axis=1)
        t, x = log.t[seen], log.x[seen]
        picture = _playback(robot, t, x, surroundings=surroundings_of(None, problem))
        if x.shape[1] == robot.nq + robot.nv and len(t) > 1:
            drawn = numbers.over_time(numbers.states(robot, x.shape[1]), t, x) + drawn
    return Section(facts, data, picture, tuple(drawn), facts)


def _of_tracking(run: Tracking, problem: Any) -> Section:
    facts, drawn, data = _log_parts(run.log, run.robot, problem)
    if run.surroundings.obstacles:
        facts["obstacles"] = "drawn where they are at the end of the run"
    begin = float(run.t[0])
    band = (begin, begin + run.after, "does not count") if run.after else None
    away = Line("distance", run.t, 1e3 * run.error)
    error = Plot(f"Distance to the target, {run.window}", "mm", (away,), shaded=band)
    both = np.concatenate([run.path, run.target], axis=1)
    names = ("x", "y", "z", "target x", "target y", "target z")
    ways = Plot(
        "The tool and its target",
        "m",
        tuple(Line(name, run.t, both[:, k]) for k, name in enumerate(names)),
    )
    states = numbers.over_time(numbers.states(run.robot, run.x.shape[1]), run.t, run.x)
    picture = _playback(run.robot, run.t, run.x, surroundings=run.surroundings, dt=run.dt)
    kept = {
        "after": run.after,
        "seen_t": run.t,
        "tool": run.path,
        "target": run.target,
        "error": run.error,
    }
    said = run.summary() | facts
    return Section(said, data | kept, picture, (error, ways, *states, *drawn), said)


def _of_path(path: Path, robot: Robot | None) -> Section:
    if robot is None:
        raise InputError("a path does not know its robot: pass robot=")
    if path.q.shape[1] != robot.nq or path.v.shape[1] != robot.nv:
        raise InputError(
            f"the path has {path.q.shape[1]} positions and {path.v.shape[1]} velocities a state,"
            f" {robot.name!r} has {robot.nq} and {robot.nv}"
        )
    facts: dict[str, Any] = {"status": path.status + (f": {path.advice}" if path.advice else "")}
    compared: dict[str, Any] = {"status": path.status}
    if path.solved:
        facts |= {
            "corners": len(path.corners),
            "lasts": f"{path.duration:.3f} s",
            "margin": f"{1e3 * path.clearance:g} mm",
        }
        compared |= {name: facts[name] for name in ("corners", "lasts")}
    facts |= {
        name: path.stats[key]
        for key, name in (("rounds", "rounds"), ("checked", "positions checked"))
        if key in path.stats
    }
    if "seconds" in path.stats:
        facts["took"] = compared["time"] = f"{1e3 * path.stats['seconds']:.2f} ms"
    facts["scene"] = (
        ", ".join(path.scene.names[:_MOST_NAMES]) + (" …" if len(path.scene) > _MOST_NAMES else "")
        or "empty"
    )
    data: dict[str, Any] = {
        "status": path.status,
        "t": path.time,
        "q": path.q,
        "v": path.v,
        "corners": path.corners,
    }
    if not path.solved:
        return Section(facts, data, compared=compared)
    drawn = []
    shown = np.unique(np.linspace(0, len(path.q) - 1, _MOST_PLACES).round().astype(int))
    if robot.collisions.links:
        found = robot.distances(path.q[shown], path.scene, gradient=False)
        if found.distance.shape[1]:
            least = found.distance.min(axis=1)
            facts["least distance in the chart"] = (
                f"{1e3 * least.min():.1f} mm, between"
                f" {' and '.join(found.pairs[int(found.distance.min(axis=0).argmin())])}"
            )
            line = Line("distance", path.time[shown], 1e3 * least)
            drawn.append(Plot("Least distance to the scene and itself", "mm", (line,)))
            data |= {"distance_t": path.time[shown], "distance": least}
    else:
        facts["note"] = "the robot has no collision shapes: nothing was avoided"
    drawn += numbers.over_time(numbers.positions(robot.model), path.time, path.q)
    drawn += numbers.over_time(numbers.velocities(robot.model), path.time, path.v)
    return Section(facts, data, viewer.fragment(robot, path), tuple(drawn), compared)


def _log_parts(
    log: Log, robot: Robot | None, problem: Any
) -> tuple[dict[str, Any], list[Plot], dict[str, Any]]:
    """The section of a log: facts, charts and numbers."""
    spent = 1e6 * log.solve_seconds
    facts: dict[str, Any] = {"steps": log.steps, "solves": log.solves}
    if len(spent):
        middle, most = np.percentile(spent, [50, 99])
        facts |= {
            "time of a solve": (
                f"median {middle:.0f} µs, 99% below {most:.0f} µs, worst {spent.max():.0f} µs"
            )
        }
    facts |= {f"fallback “{name}”": count for name, count in log.counts.items()}
    drawn = []
    if log.steps > 1:
        held = numbers.controls(getattr(problem, "system", None), robot, log.u.shape[1])
        drawn += numbers.over_time(held, log.t, log.u)
    if log.solves > 1:
        drawn.append(Plot("Time of a solve", "µs", (Line("time", log.solve_t, spent),)))
        drawn.append(Plot("Cost of the plan", "", (Line("cost", log.solve_t, log.solve_cost),)))
    data = {"t": log.t, "u": log.u, "solve_seconds": log.solve_seconds}
    return facts, drawn, {"steps": log.steps, "solves": log.solves, "counts": log.counts} | data


def _playback(robot: Robot, t: np.ndarray, x: np.ndarray, **around: Any) -> str:
    """The motion of measured states. `around`: surroundings, and `dt`, the time from row to row of
    these.
    """
    every = max(1, len(t) // _MOST_FRAMES)
    return viewer.fragment(robot, SimpleNamespace(t=t[::every], x=x[::every], **around))


def _distance(robot: Robot, target: Target, times: np.ndarray, x: np.ndarray) -> Plot:
    """How far a point of a frame is from its target."""
    poses = body_poses(robot.model, x[:, : robot.nq])
    away = np.linalg.norm(
        frame_path(robot.model, poses, target.frame, target.offset) - target.point, axis=1
    )
    line = Line("distance", times, 1e3 * away)
    return Plot(f"Distance of {target.frame} to its target", "mm", (line,))
