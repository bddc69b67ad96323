"""Paths for Panda, UR5 and iiwa14 among a table, a shelf, a box and a cage: success, time, and
coal's word on every path; OMPL's RRTConnect with Pinocchio and coal in turns: `python
bench/planning.py`.

Problems: pairs of random free positions. OMPL gets the same balls and capsules, the same pairs and
the same spacing of checked states, its states checked by one C++ call each. Its wheel is installed
into an environment of its own (`--ompl FOLDER` takes another one, `--alone` goes without). Times
are CPU times of whole calls, OMPL's with its own simplification, and of its search alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import machine
import numpy as np
import pinocchio as pin
from coal_peer import Peer, fine
from peers import environment

import rigidgrad as rg
from rigidgrad.planning.space import Space

OMPL = {"ompl": "2.0.1"}
FILES = next(
    (
        p / "share/example-robot-data/robots"
        for p in Path(pin.__file__).parents
        if p.name == "cmeel.prefix"
    ),
    Path("nowhere"),
)
IIWA = {
    "iiwa_link_1": [rg.Capsule(0.08, start=(0, 0, 0), end=(0, 0, 0.15))],
    "iiwa_link_2": [rg.Capsule(0.08, start=(0, 0, -0.02), end=(0, 0.2, 0))],
    "iiwa_link_3": [rg.Capsule(0.07, start=(0, 0, 0), end=(0, 0, 0.2))],
    "iiwa_link_4": [rg.Capsule(0.07, start=(0, 0, 0), end=(0, 0.2, 0))],
    "iiwa_link_5": [rg.Capsule(0.06, start=(0, 0, 0), end=(0, 0, 0.2))],
    "iiwa_link_6": [rg.Sphere(0.08)],
    "iiwa_link_7": [rg.Sphere(0.06, (0, 0, 0.06))],
}


def robots() -> dict[str, Callable[[], rg.Robot]]:
    def ur5(file: str) -> rg.Robot:
        return rg.load(FILES / f"ur_description/urdf/{file}.urdf")

    return {
        "panda": lambda: rg.load(FILES / "panda_description/urdf/panda_collision.urdf").reduced(
            lock={"panda_finger_joint1": 0.02}
        ),
        "ur5": partial(ur5, "ur5_joint_limited_robot"),
        "ur5_turns": partial(ur5, "ur5_robot"),  # joints of ±360°
        "iiwa14": lambda: rg.load("iiwa14").with_collisions(shapes=IIWA),
    }


def scenes() -> dict[str, rg.Scene]:
    def box(x, y, z, *size):
        return rg.Box(size, (x, y, z))

    table = [
        box(0.75, 0, -0.05, 1.0, 1.6, 0.05),
        box(0.5, 0.35, 0.15, 0.1, 0.1, 0.35),
        box(0.55, -0.3, 0.1, 0.1, 0.3, 0.25),
        box(0.75, 0.05, 0.05, 0.15, 0.15, 0.15),
    ]
    shelf = (
        [box(0.75, 0, z, 0.35, 1.2, 0.03) for z in (0.05, 0.45, 0.85, 1.2)]
        + [box(0.75, y, 0.6, 0.35, 0.03, 1.2) for y in (-0.6, 0, 0.6)]
        + [box(0.93, 0, 0.6, 0.02, 1.2, 1.2)]
    )
    walls = [
        box(0.4, 0, 0.25, 0.02, 0.6, 0.4),
        box(0.9, 0, 0.25, 0.02, 0.6, 0.4),
        box(0.65, 0.3, 0.25, 0.5, 0.02, 0.4),
        box(0.65, -0.3, 0.25, 0.5, 0.02, 0.4),
        box(0.65, 0, 0.04, 0.5, 0.6, 0.02),
    ]
    cage = [
        rg.Capsule(
            0.02,
            start=(0.55 * np.cos(a), 0.55 * np.sin(a), 0.0),
            end=(0.55 * np.cos(a), 0.55 * np.sin(a), 1.4),
        )
        for a in np.arange(10) * 2 * np.pi / 10
    ]
    return {
        "table": rg.Scene(table),
        "shelf": rg.Scene(shelf),
        "box": rg.Scene(walls),
        "cage": rg.Scene(cage),
    }


def add_ompl_options(parser: argparse.ArgumentParser, problems: int) -> None:
    parser.add_argument("--peer", type=int, default=problems, help="of a scene also by OMPL")
    parser.add_argument("--ompl", metavar="FOLDER", help="site-packages with ompl")
    parser.add_argument("--alone", action="store_true", help="without OMPL")


def find_ompl(options: argparse.Namespace) -> None:
    """Makes `import ompl` work; with `alone` none of its problems is left."""
    if options.alone:
        options.peer = 0
    if options.peer:
        own = options.ompl or environment.packages(environment.interpreter("ompl", OMPL))
        sys.path.append(own)  # behind ours, so that numpy is


def by_ompl(
    robot: rg.Robot,
    peer: Peer,
    space: Space,
    a: np.ndarray,
    b: np.ndarray,
    seconds: float,
    step: float,
) -> tuple[bool, float, float]:
    from ompl import base, geometric, util

    util.setLogLevel(util.LogLevel.LOG_ERROR)
    n = robot.nq
    real = base.RealVectorStateSpace(n)
    bounds = base.RealVectorBounds(n)
    for k in range(n):
        bounds.setLow(k, float(max(robot.limits.lower[k], -2 * np.pi)))
        bounds.setHigh(k, float(min(robot.limits.upper[k], 2 * np.pi)))
    real.setBounds(bounds)
    before = time.process_time()
    setup = geometric.SimpleSetup(real)
    setup.setStateValidityChecker(
        lambda state: not peer.touches(np.array([state[k] for k in range(n)]))
    )
    # as far apart in radians as `step` is on average for this robot
    setup.getSpaceInformation().setStateValidityCheckingResolution(
        step / float(space.weights.mean()) / real.getMaximumExtent()
    )
    states = []
    for q in (a, b):
        state = real.allocState()
        for k in range(n):
            state[k] = float(q[k])
        states.append(state)
    setup.setStartAndGoalStates(*states)
    setup.setPlanner(geometric.RRTConnect(setup.getSpaceInformation()))
    setup.solve(seconds)
    solved = bool(setup.haveExactSolutionPath())  # an approximate one counts as a solution there
    found = time.process_time() - before
    if solved:
        setup.simplifySolution()
    return solved, time.process_time() - before, found


def best_of(count: int, call: Callable[[], Any]) -> tuple[Any, float]:
    """What the first call gave, and the least CPU time of so many."""
    seconds, first = [], None
    for k in range(count):
        before = time.process_time()
        found = call()
        seconds.append(time.process_time() - before)
        first = found if k == 0 else first
    return first, min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=100, help="problems of a scene")
    parser.add_argument("--robots", default="panda,ur5,ur5_turns,iiwa14")
    add_ompl_options(parser, 20)
    parser.add_argument("--repeat", type=int, default=3, help="times are the least of so many")
    parser.add_argument(
        "--spacing",
        type=float,
        default=0.001,
        help="metres between states that coal looks at again",
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    find_ompl(options)
    found: dict[str, Any] = {"machine": machine.describe({})}
    for name, make in robots().items():
        if name not in options.robots.split(","):
            continue
        robot = make()
        for kind, scene in scenes().items():
            found[f"{name} {kind}"] = row = measured(robot, scene, options)
            print(name, kind, {k: round(v, 2) for k, v in row.items()}, flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


def measured(robot: rg.Robot, scene: rg.Scene, options: argparse.Namespace) -> dict[str, Any]:
    space, peer = Space(robot), Peer(robot, scene)
    q = robot.random(4000 + 60 * options.count, seed=1).q
    q = q[~robot.in_collision(q, scene, margin=0.01)][: 2 * options.count]
    rg.plan(robot, q[0], q[1], scene)
    whole, search, theirs, their_search = [], [], [], []
    solved = done = straight = bad = states = 0
    for k, (a, b) in enumerate(zip(q[::2], q[1::2], strict=True)):
        path, seconds = best_of(options.repeat, partial(rg.plan, robot, a, b, scene))
        whole.append(seconds)
        # with the timing of what was found, which is not part of OMPL's
        search.append(best_of(options.repeat, partial(rg.plan, robot, a, b, scene, smoothing=0))[1])
        solved += path.solved
        straight += path.stats.get("rounds") == 0
        if path.solved:
            rows = fine(space, path.corners, options.spacing)
            states += len(rows)
            bad += sum(peer.touches(x) for x in rows)
        if k < options.peer:
            runs = [by_ompl(robot, peer, space, a, b, 5.0, 0.01) for _ in range(options.repeat)]
            done += runs[0][0]
            theirs.append(min(r[1] for r in runs))
            their_search.append(min(r[2] for r in runs))
    row = {
        "problems": len(whole),
        "solved": solved,
        "straight": straight,
        "median_ms": 1e3 * float(np.median(whole)),
        "p90_ms": 1e3 * float(np.quantile(whole, 0.9)),
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
            "times_slower": float(np.median(theirs) / np.median(whole[: len(theirs)])),
            "search_times_slower": float(
                np.median(their_search) / np.median(search[: len(theirs)])
            ),
        }
    return row


if __name__ == "__main__":
    main()
