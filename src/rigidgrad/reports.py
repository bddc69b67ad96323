"""Reports: one HTML file that needs no network, with tables, charts, the motion to play back, and all numbers attached as JSON."""

from __future__ import annotations

import json
import math
import platform
import sys
import time
from collections.abc import Mapping
from html import escape
from importlib.metadata import version
from pathlib import Path as FilePath
from types import SimpleNamespace
from typing import Any

import numpy as np

from rigidgrad import charts, viewer
from rigidgrad.control.mpc.log import Log
from rigidgrad.control.mpc.tracking import Tracking
from rigidgrad.control.solution import Solution
from rigidgrad.control.surroundings import Target
from rigidgrad.control.system import RobotSystem
from rigidgrad.errors import InputError
from rigidgrad.planning.path import Path
from rigidgrad.robot import Robot
from rigidgrad.runtime import native
from rigidgrad.viewer.around import surroundings_of
from rigidgrad.viewer.poses import body_poses, frame_path

_STYLE = """
:root{color-scheme:light dark;--ink:#0f172a;--soft:#475569;--line:#e2e8f0;--paper:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#f1f5f9;--soft:#cbd5e1;--line:#334155;--paper:#0f172a}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:64rem;margin:0 auto;padding:1rem}
h1{font-size:1.6rem}h2{font-size:1.2rem;border-top:1px solid var(--line);padding-top:1rem;margin-top:2rem}
table{border-collapse:collapse;margin:.8rem 0}td,th{padding:.2rem .9rem .2rem 0;text-align:left;vertical-align:top}th{color:var(--soft);font-weight:500}
.charts{display:flex;flex-wrap:wrap;gap:1rem}.charts svg{flex:1 1 20rem;min-width:0;max-width:30rem}footer{color:var(--soft);font-size:.85rem;margin-top:2rem}
"""
_MOST_POINTS = 400  # of a line in a chart
_MOST_FRAMES = 500  # of a motion
_MOST_NAMES = 40  # of shapes
_TOGETHER = 4  # numbers of a path in a chart, beside their limits


def report(what: Any, path: Any = "report.html", *, title: str = "rigidgrad", robot: Robot | None = None, problem: Any = None) -> FilePath:
    """Writes a page about a Solution, a Path of `plan`, a controller's Log or its Tracking, or several of them, {"heading": item}. Gives the path.

    `rg.tracking(log, controller, after=…)` adds to a log the target's path, the tool's, and the distance between them. An item may also be a table, {"name": value}. `robot` is what
    moves, where an item does not know it; `problem`, a Problem or an MPC, has the obstacles and targets that are drawn around a Log.
    """
    items = what if isinstance(what, Mapping) and not _is_table(what) else {"": what}
    sections, attached = [], {}
    for heading, item in items.items():
        html, data = _section(item, robot, problem)
        attached[heading or "report"] = data
        sections.append((f"<h2>{escape(heading)}</h2>" if heading else "") + html)
    return write(page(title, "".join(sections), attached), path)


def page(title: str, body: str, attached: dict[str, Any]) -> str:
    """A whole page: a heading, what stands under it, the environment, and `attached` as JSON."""
    data = attached | {"environment": environment()}
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{body}"
        f"<h2>Environment</h2>{table(data['environment'])}"
        f'<script type="application/json" id="data">{_json(data)}</script>'
        f"<footer>Made by rigidgrad {version('rigidgrad')}. The numbers are in this file as JSON, in the element “data”.</footer></body></html>\n"
    )


def write(text: str, path: Any) -> FilePath:
    """Writes a page. Gives its path."""
    target = FilePath(path)
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"the report cannot be written to {str(target)!r}: {error.strerror}") from None
    return target


def environment() -> dict[str, Any]:
    """What this was computed with."""
    host = native.host()
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "processor": f"{host.cpu}, vectors of {host.vector_bits} bits",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "llvmlite": native.version(),
        "rigidgrad": version("rigidgrad"),
    }


def _is_table(value: Mapping) -> bool:
    return bool(value) and all(isinstance(v, str | int | float) for v in value.values())


def _section(item: Any, robot: Robot | None, problem: Any) -> tuple[str, Any]:
    if isinstance(item, Solution):
        return _of_solution(item, robot)
    if isinstance(item, Path):
        return _of_path(item, robot)
    if isinstance(item, Tracking):
        return _of_tracking(item)
    if isinstance(item, Log):
        return _of_log(item, robot, problem)
    if isinstance(item, Mapping) and _is_table(item):
        return table(item), dict(item)
    raise InputError(f"a report is about a Solution, a Path, a Log, a Tracking, or a table, not {type(item).__name__}")


def _of_solution(solution: Solution, robot: Robot | None) -> tuple[str, Any]:
    own = solution.system.robot if isinstance(solution.system, RobotSystem) else robot
    seconds = solution.stats.get("seconds", {})
    facts = {
        "status": f"{solution.status}: {solution.message}",
        "cost": f"{solution.cost:.9g}",
        "iterations": solution.iterations,
        **{f"time in {phase}": f"{1e3 * s:.2f} ms" for phase, s in seconds.items()},
    }
    if "violation" in solution.stats:
        facts["largest violation"] = f"{solution.stats['violation']:.2g}"
    dt, times = solution.dt or 1.0, solution.times
    history = np.array(solution.stats.get("history", []), dtype=float)
    drawn = []
    if len(history) > 1 and np.all(history > 0):
        drawn.append(charts.lines("Cost", "iterations", "cost", {"cost": (list(range(len(history))), history.tolist())}))
    if own is not None:
        drawn += [_distance(own, target, times, solution.x) for target in solution.surroundings.targets]
    drawn += _states(own, times, solution.x)
    drawn.append(_lines("Controls", times[:-1], solution.u, [f"u{k}" for k in range(solution.u.shape[1])]))
    html = table(facts) + drawing(drawn)
    if own is not None:
        html = viewer.fragment(own, solution, dt=None if solution.dt else dt) + html
    data = {"status": solution.status, "cost": solution.cost, "iterations": solution.iterations, "dt": dt, "t": times}
    return html, data | {"x": solution.x, "u": solution.u, "history": history}


def _of_log(log: Log, robot: Robot | None, problem: Any) -> tuple[str, Any]:
    facts, drawn, data = _log_parts(log)
    html = table(facts) + drawing(drawn)
    if robot is not None and log.steps > 1:
        seen = np.isfinite(log.x).all(axis=1)
        html = _playback(robot, log.t[seen], log.x[seen], surroundings=surroundings_of(None, problem)) + html
    return html, data


def _of_tracking(run: Tracking) -> tuple[str, Any]:
    facts, drawn, data = _log_parts(run.log)
    if run.surroundings.obstacles:
        facts["obstacles"] = "drawn where they are at the end of the run"
    begin = float(run.t[0])
    band = (begin, begin + run.after, "does not count") if run.after else None
    error = _lines(f"Distance to the target, {run.window}", run.t, 1e3 * run.error[:, None], ["mm"], band)
    both = np.concatenate([run.path, run.target], axis=1)
    ways = _lines("The tool and its target [m]", run.t, both, ["x", "y", "z", "target x", "target y", "target z"])
    html = _playback(run.robot, run.t, run.x, surroundings=run.surroundings, dt=run.dt) + table(run.summary() | facts)
    kept = {"after": run.after, "seen_t": run.t, "tool": run.path, "target": run.target, "error": run.error}
    return html + drawing([error, ways, *drawn]), data | kept


def _of_path(path: Path, robot: Robot | None) -> tuple[str, Any]:
    if robot is None:
        raise InputError("a path does not know its robot: pass robot=")
    if path.q.shape[1] != robot.nq or path.v.shape[1] != robot.nv:
        raise InputError(
            f"the path has {path.q.shape[1]} positions and {path.v.shape[1]} velocities a state, {robot.name!r} has {robot.nq} and {robot.nv}"
        )
    facts: dict[str, Any] = {"status": path.status + (f": {path.advice}" if path.advice else "")}
    if path.solved:
        facts |= {"corners": len(path.corners), "lasts": f"{path.duration:.3f} s", "margin": f"{1e3 * path.clearance:g} mm"}
    facts |= {name: path.stats[key] for key, name in (("rounds", "rounds"), ("checked", "positions checked")) if key in path.stats}
    if "seconds" in path.stats:
        facts["took"] = f"{1e3 * path.stats['seconds']:.2f} ms"
    facts["scene"] = ", ".join(path.scene.names[:_MOST_NAMES]) + (" …" if len(path.scene) > _MOST_NAMES else "") or "empty"
    data: dict[str, Any] = {"status": path.status, "t": path.time, "q": path.q, "v": path.v, "corners": path.corners}
    if not path.solved:
        return table(facts), data
    drawn = []
    shown = np.unique(np.linspace(0, len(path.q) - 1, _MOST_POINTS).round().astype(int))
    if robot.collisions.links:
        found = robot.distances(path.q[shown], path.scene, gradient=False)
        if found.distance.shape[1]:
            least = found.distance.min(axis=1)
            facts["least distance in the chart"] = (
                f"{1e3 * least.min():.1f} mm, between {' and '.join(found.pairs[int(found.distance.min(axis=0).argmin())])}"
            )
            drawn.append(_lines("Least distance to the scene and itself", path.time[shown], 1e3 * least[:, None], ["mm"]))
            data |= {"distance_t": path.time[shown], "distance": least}
    else:
        facts["note"] = "the robot has no collision shapes: nothing was avoided"
    limits = robot.limits
    drawn += _beside_limits("Positions", path.time, path.q, "q", limits.lower, limits.upper)
    drawn += _beside_limits("Velocities", path.time, path.v, "v", -limits.velocity, limits.velocity)
    return viewer.fragment(robot, path) + table(facts) + drawing(drawn), data


def _beside_limits(title: str, times: np.ndarray, values: np.ndarray, letter: str, lower: np.ndarray, upper: np.ndarray) -> list[str]:
    """Charts of a few numbers each, with their limits as dashed lines."""
    names = [f"{letter}{k}" for k in range(values.shape[1])]
    levels = {name: (float(lower[k]), float(upper[k])) for k, name in enumerate(names)}
    parts = [slice(k, k + _TOGETHER) for k in range(0, len(names), _TOGETHER)]
    return [_lines(f"{title}, limits of the robot dashed", times, values[:, part], names[part], levels=levels) for part in parts]


def _log_parts(log: Log) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    """What is told of a log: facts, charts and numbers."""
    spent = 1e6 * log.solve_seconds
    facts: dict[str, Any] = {"steps": log.steps, "solves": log.solves}
    if len(spent):
        middle, most = np.percentile(spent, [50, 99])
        facts |= {"time of a solve": f"median {middle:.0f} µs, 99% below {most:.0f} µs, worst {spent.max():.0f} µs"}
    facts |= {f"fallback “{name}”": count for name, count in log.counts.items()}
    drawn = [_lines("Controls", log.t, log.u, [f"u{k}" for k in range(log.u.shape[1])])] if log.steps > 1 else []
    if log.solves > 1:
        drawn.append(_lines("Time of a solve", log.solve_t, spent[:, None], ["µs"]))
        drawn.append(_lines("Cost of the plan", log.solve_t, log.solve_cost[:, None], ["cost"]))
    data = {"t": log.t, "u": log.u, "solve_seconds": log.solve_seconds}
    return facts, drawn, {"steps": log.steps, "solves": log.solves, "counts": log.counts} | data


def _playback(robot: Robot, t: np.ndarray, x: np.ndarray, **around: Any) -> str:
    """The motion of measured states. `around`: surroundings, and `dt`, the time from row to row of these."""
    every = max(1, len(t) // _MOST_FRAMES)
    return viewer.fragment(robot, SimpleNamespace(t=t[::every], x=x[::every], **around))


def _distance(robot: Robot, target: Target, times: np.ndarray, x: np.ndarray) -> str:
    """How far a point of a frame is from its target."""
    poses = body_poses(robot.model, x[:, : robot.nq])
    away = np.linalg.norm(frame_path(robot.model, poses, target.frame, target.offset) - target.point, axis=1)
    return _lines(f"Distance of {target.frame} to its target", times, 1e3 * away[:, None], ["mm"])


def _states(robot: Robot | None, times: np.ndarray, x: np.ndarray) -> list[str]:
    if robot is None or x.shape[1] != robot.nq + robot.nv:
        return [_lines("States", times, x, [f"x{k}" for k in range(x.shape[1])])]
    q, v = x[:, : robot.nq], x[:, robot.nq :]
    return [
        _lines("Positions", times, q, [f"q{k}" for k in range(robot.nq)]),
        _lines("Velocities", times, v, [f"v{k}" for k in range(robot.nv)]),
    ]


def _lines(
    title: str,
    times: np.ndarray,
    values: np.ndarray,
    names: list[str],
    shaded: tuple[float, float, str] | None = None,
    levels: Mapping[str, Any] | None = None,
) -> str:
    every = max(1, len(times) // _MOST_POINTS)
    count = min(len(names), len(charts.COLORS))
    series = {names[k]: (times[::every].tolist(), values[::every, k].tolist()) for k in range(count)}
    return charts.lines(title, "seconds", "", series, log=False, shaded=shaded, levels=levels)


def drawing(drawn: list[str]) -> str:
    """Charts side by side, as many as fit."""
    size = f"0 0 {charts.WIDTH} {charts.HEIGHT}"
    body = "".join(f'<svg viewBox="{size}" role="img"><style>{charts.STYLE}</style>{chart}</svg>' for chart in drawn)
    return f'<div class="charts">{body}</div>'


def table(rows: Mapping[str, Any]) -> str:
    """Names and values, one a row."""
    return "<table>" + "".join(f"<tr><th>{escape(str(k))}</th><td>{escape(str(v))}</td></tr>" for k, v in rows.items()) + "</table>"


def _json(value: Any) -> str:
    """JSON that cannot end the element that it stands in."""
    return json.dumps(_plain(value), separators=(",", ":")).replace("<", "\\u003c")


def _plain(value: Any) -> Any:
    """Arrays as lists, and what JSON has no number for as null."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
