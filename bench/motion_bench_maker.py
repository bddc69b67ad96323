"""MotionBenchMaker's problems of Panda and UR5, solved and checked: `python
bench/motion_bench_maker.py FOLDER`.

FOLDER is `resources` of the public repository KavrakiLab/vamp: it holds the problems of C. Chamzas
et al., MotionBenchMaker, 2022, as `panda/problems.tar.bz2` and `ur5/problems.tar.bz2`, and the
robots with balls for links, as `panda/panda_spherized.urdf` and `ur5/ur5_spherized.urdf`. Nothing
of it is part of this repository. Reading the problems needs PyYAML.

Scenes have boxes, which are exact, and cylinders, each covered by six boxes that stick out of it by
at most 3.4% of its radius. Every path is looked at again by coal, with balls for links, the boxes
and the cylinders themselves, at states between which no point moves more than a millimetre.
Problems whose start or goal touches something by coal are counted apart. Some are solved by OMPL's
RRTConnect, too, as `bench/planning.py` does.
"""

from __future__ import annotations

import argparse
import json
import tarfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import coal
import machine
import numpy as np
import pinocchio as pin
import yaml
from coal_peer import Peer, fine
from planning import add_ompl_options, best_of, by_ompl, find_ompl

import rigidgrad as rg
from rigidgrad.planning.space import Space

SCENES = (
    "table_pick",
    "table_under_pick",
    "box",
    "bookshelf_small",
    "bookshelf_tall",
    "bookshelf_thin",
    "cage",
)
_TURNS = 6  # boxes that cover a cylinder
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Task(NamedTuple):
    start: np.ndarray
    goal: np.ndarray
    scene: rg.Scene
    solids: list[tuple[Any, pin.SE3]]  # the same for coal, cylinders as such


def tasks(file: Path, names: list[str]) -> Iterator[tuple[str, Task]]:
    """The problems in an archive, with the name of their kind of scene; for joints of these
    names.
    """
    with tarfile.open(file) as archive:
        texts = {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}
    for kind in SCENES:
        for path in sorted(texts):
            folder, _, name = path.rpartition("/")
            if folder.rpartition("/")[2].startswith(f"{kind}_") and name.startswith("request"):
                scene = texts[f"{folder}/{name.replace('request', 'scene')}"]
                yield kind, task(*(yaml.load(x, _LOADER) for x in (texts[path], scene)), names)


def task(request: dict[str, Any], scene: dict[str, Any], names: list[str]) -> Task:
    state = request["start_state"]["joint_state"]
    start = dict(zip(state["name"], state["position"], strict=True))
    wanted = request["goal_constraints"][0]["joint_constraints"]
    goal = {c["joint_name"]: c["position"] for c in wanted}
    shapes: list[rg.Box] = []
    solids = []
    for thing in scene["world"]["collision_objects"]:
        base = placed(thing["pose"]) if "pose" in thing else pin.SE3.Identity()
        for form, pose in zip(thing["primitives"], thing["primitive_poses"], strict=True):
            place = base * placed(pose)
            sizes = [float(x) for x in form["dimensions"]]
            if form["type"] == "box":
                shapes.append(rg.Box(sizes, place.homogeneous))
                solids.append((coal.Box(*sizes), place))
            else:
                length, radius = sizes
                shapes += around_cylinder(radius, length, place)
                solids.append((coal.Cylinder(radius, length), place))
    first, last = (np.array([x[n] for n in names], dtype=float) for x in (start, goal))
    return Task(first, last, rg.Scene(shapes), solids)


def placed(pose: dict[str, Any]) -> pin.SE3:
    turn = pin.Quaternion(np.array(pose["orientation"], dtype=float)).normalized()
    return pin.SE3(turn.matrix(), np.array(pose["position"], dtype=float))


def around_cylinder(radius: float, length: float, place: pin.SE3) -> list[rg.Box]:
    """Boxes whose union holds the cylinder: each as long as its diameter, and so wide that the next
    one, turned about the axis, begins where it ends.
    """
    width = 2 * radius * np.sin(np.pi / (2 * _TURNS))
    found = []
    for k in range(_TURNS):
        turn = pin.SE3(pin.utils.rotate("z", np.pi * k / _TURNS), np.zeros(3))
        found.append(rg.Box((2 * radius, width, length), (place * turn).homogeneous))
    return found


def measured(robot: rg.Robot, given: list[Task], options: argparse.Namespace) -> dict[str, Any]:
    space = Space(robot)
    whole, search, theirs, their_search, said = [], [], [], [], Counter()
    valid = solved = states = bad = done = 0
    longest = []
    for k, t in enumerate(given):
        peer = Peer(robot, t.scene, t.solids)
        if peer.touches(t.start) or peer.touches(t.goal):
            said["start or goal touches by coal"] += 1
            continue
        valid += 1
        call = partial(rg.plan, robot, t.start, t.goal, t.scene, seconds=options.seconds)
        call(dt=0.1)  # the scene's own arrays are made once
        path, seconds = best_of(options.repeat, call)
        if not path.solved:
            said[path.status] += 1
            continue
        solved += 1
        whole.append(seconds)
        search.append(best_of(options.repeat, partial(call, smoothing=0))[1])
        longest.append(float(space.distance(path.corners[:-1], path.corners[1:]).sum()))
        rows = fine(space, path.corners, options.spacing)
        states += len(rows)
        bad += sum(peer.touches(x) for x in rows)
        if k < options.peer:
            ok, total, alone = by_ompl(robot, peer, space, t.start, t.goal, options.seconds, 0.01)
            done += ok
            theirs.append(total)
            their_search.append(alone)
    row = {
        "problems": len(given),
        "valid": valid,
        "solved": solved,
        "left_out": dict(said),
        "median_ms": 1e3 * float(np.median(whole)),
        "mean_ms": 1e3 * float(np.mean(whole)),
        "p95_ms": 1e3 * float(np.quantile(whole, 0.95)),
        "most_ms": 1e3 * max(whole),
        "search_median_ms": 1e3 * float(np.median(search)),
        "states_by_coal": states,
        "touching_by_coal": bad,
    }
    if theirs:
        row |= {
            "ompl_problems": len(theirs),
            "ompl_solved": done,
            "ompl_median_ms": 1e3 * float(np.median(theirs)),
            "ompl_search_median_ms": 1e3 * float(np.median(their_search)),
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="resources of KavrakiLab/vamp")
    parser.add_argument("--robots", default="panda,ur5")
    parser.add_argument("--scenes", default=",".join(SCENES))
    parser.add_argument("--count", type=int, default=100, help="problems of a scene at most")
    parser.add_argument("--seconds", type=float, default=5.0, help="for a search")
    parser.add_argument("--repeat", type=int, default=3, help="times are the least of so many")
    parser.add_argument("--spacing", type=float, default=0.001, help="metres, of coal's states")
    add_ompl_options(parser, 10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    find_ompl(options)
    found: dict[str, Any] = {"machine": machine.describe({})}
    for name in options.robots.split(","):
        robot = rg.load(options.folder / name / f"{name}_spherized.urdf")
        given: dict[str, list[Task]] = {}
        names = [j.name for j in robot.model.joints]
        for kind, t in tasks(options.folder / name / "problems.tar.bz2", names):
            given.setdefault(kind, []).append(t)
        for kind in options.scenes.split(","):
            row = found[f"{name} {kind}"] = measured(robot, given[kind][: options.count], options)
            print(name, kind, json.dumps(row), flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
