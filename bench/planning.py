"""Paths for Panda, UR5 and iiwa14 among a table, a shelf, a box and a cage: success, time, and coal's word on every path; OMPL's RRTConnect with Pinocchio and coal in turns: `python bench/planning.py`.

Problems: pairs of random free positions. OMPL gets the same balls and capsules, the same pairs and the same spacing of checked states, its states checked by one C++ call each. It runs where `import ompl` works (its wheel may
lie in another folder: `--ompl FOLDER`). Times are CPU times of whole calls, OMPL's with its own simplification, and of its search alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import coal
import machine
import numpy as np
import pinocchio as pin

import rigidgrad as rg
from rigidgrad.planning.space import Space

FILES = next((p / "share/example-robot-data/robots" for p in Path(pin.__file__).parents if p.name == "cmeel.prefix"), Path("nowhere"))
IIWA = {
    "iiwa_link_1": [rg.Capsule(0.08, start=(0, 0, 0), end=(0, 0, 0.15))],
    "iiwa_link_2": [rg.Capsule(0.08, start=(0, 0, -0.02), end=(0, 0.2, 0))],
    "iiwa_link_3": [rg.Capsule(0.07, start=(0, 0, 0), end=(0, 0, 0.2))],
    "iiwa_link_4": [rg.Capsule(0.07, start=(0, 0, 0), end=(0, 0.2, 0))],
    "iiwa_link_5": [rg.Capsule(0.06, start=(0, 0, 0), end=(0, 0, 0.2))],
    "iiwa_link_6": [rg.Sphere(0.08)],
    "iiwa_link_7": [rg.Sphere(0.06, (0, 0, 0.06))],
}


def robots() -> dict[str, rg.Robot]:
    return {
        "panda": rg.load(FILES / "panda_description/urdf/panda_collision.urdf").reduced(lock={"panda_finger_joint1": 0.02}),
        "ur5": rg.load(FILES / "ur_description/urdf/ur5_joint_limited_robot.urdf"),
        "iiwa14": rg.load("iiwa14").with_collisions(shapes=IIWA),
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
        rg.Capsule(0.02, start=(0.55 * np.cos(a), 0.55 * np.sin(a), 0.0), end=(0.55 * np.cos(a), 0.55 * np.sin(a), 1.4))
        for a in np.arange(10) * 2 * np.pi / 10
    ]
    return {"table": rg.Scene(table), "shelf": rg.Scene(shelf), "box": rg.Scene(walls), "cage": rg.Scene(cage)}


class Peer:
    """Pinocchio with coal: the same balls and capsules."""

    def __init__(self, robot: rg.Robot, scene: rg.Scene):
        self.model = robot.to_pinocchio()
        self.data, geometry = self.model.createData(), pin.GeometryModel()
        own: dict[str, list[int]] = {}
        for link in robot.collisions.links:
            joint = link.body + 1
            for k, e in enumerate(link.elements):
                shape, place = self._rounded(e.radius, np.array(e.start), np.array(e.end))
                own.setdefault(link.link, []).append(
                    geometry.addGeometryObject(pin.GeometryObject(f"{link.link} {k}", joint, place, shape))
                )
        world = []
        for name in scene.names:
            s = scene[name]
            if isinstance(s, rg.Box):
                shape, place = coal.Box(*s.size), pin.SE3(np.array(s.pose.R), np.array(s.pose.p))
            else:
                shape, place = self._rounded(s.radius, s.start, s.end)
            world.append(geometry.addGeometryObject(pin.GeometryObject(name, 0, place, shape)))
        pairs = [(a, b) for link in robot.collisions.moving for a in own[link] for b in world]
        pairs += [(a, b) for i, j in robot.collisions.self_pairs for a in own[i] for b in own[j]]
        for a, b in pairs:
            geometry.addCollisionPair(pin.CollisionPair(a, b))
        self.geometry, self.places = geometry, geometry.createData()

    @staticmethod
    def _rounded(radius: float, a: np.ndarray, b: np.ndarray) -> Any:
        length = float(np.linalg.norm(b - a))
        if length < 1e-9:
            return coal.Sphere(radius), pin.SE3(np.eye(3), a)
        z = (b - a) / length
        x = np.cross(np.eye(3)[np.argmin(np.abs(z))], z)
        x /= np.linalg.norm(x)
        return coal.Capsule(radius, length), pin.SE3(np.column_stack([x, np.cross(z, x), z]), (a + b) / 2)

    def touches(self, q: np.ndarray) -> bool:
        return bool(pin.computeCollisions(self.model, self.data, self.geometry, self.places, q, True))


def by_ompl(
    robot: rg.Robot, peer: Peer, space: Space, a: np.ndarray, b: np.ndarray, seconds: float, step: float
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
    setup.setStateValidityChecker(lambda state: not peer.touches(np.array([state[k] for k in range(n)])))
    # as far apart in radians as `step` is on average for this robot
    setup.getSpaceInformation().setStateValidityCheckingResolution(step / float(space.weights.mean()) / real.getMaximumExtent())
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


def fine(space: Space, corners: np.ndarray, most: float) -> np.ndarray:
    found = []
    for a, b in pairwise(corners):
        way = space.difference(a, b)
        found.append(space.moved(a, np.linspace(0, 1, int(np.ceil(np.abs(way) @ space.weights / most)) + 1)[:, None] * way))
    return np.concatenate(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=100, help="problems of a scene")
    parser.add_argument("--peer", type=int, default=20, help="of these also by OMPL")
    parser.add_argument("--robots", default="panda,ur5,iiwa14")
    parser.add_argument("--ompl", metavar="FOLDER", help="site-packages with ompl")
    parser.add_argument("--spacing", type=float, default=0.001, help="metres between states that coal looks at again")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.ompl:
        sys.path.append(options.ompl)
    found: dict[str, Any] = {"machine": machine.describe({})}
    for name, robot in robots().items():
        if name not in options.robots.split(","):
            continue
        space = Space(robot)
        for kind, scene in scenes().items():
            q = robot.random(4000 + 60 * options.count, seed=1).q
            q = q[~robot.in_collision(q, scene, margin=0.01)][: 2 * options.count]
            peer = Peer(robot, scene)
            rg.plan(robot, q[0], q[1], scene)
            ours, theirs, searched, solved, done, straight, bad, states = [], [], [], 0, 0, 0, 0, 0
            for k, (a, b) in enumerate(zip(q[::2], q[1::2], strict=True)):
                before = time.process_time()
                path = rg.plan(robot, a, b, scene)
                ours.append(time.process_time() - before)
                solved += path.solved
                straight += path.stats.get("rounds") == 0
                if path.solved:
                    rows = fine(space, path.corners, options.spacing)
                    states += len(rows)
                    bad += sum(peer.touches(x) for x in rows)
                if k < options.peer and options.ompl:
                    ok, seconds, alone = by_ompl(robot, peer, space, a, b, 5.0, 0.01)
                    done += ok
                    theirs.append(seconds)
                    searched.append(alone)
            row = {
                "problems": len(ours),
                "solved": solved,
                "straight": straight,
                "median_ms": 1e3 * float(np.median(ours)),
                "p90_ms": 1e3 * float(np.quantile(ours, 0.9)),
                "most_ms": 1e3 * max(ours),
            }
            row |= {"states_by_coal": states, "touching_by_coal": bad}
            if theirs:
                row |= {
                    "ompl_problems": len(theirs),
                    "ompl_solved": done,
                    "ompl_median_ms": 1e3 * float(np.median(theirs)),
                    "ompl_search_alone_median_ms": 1e3 * float(np.median(searched)),
                    "ours_median_ms_same": 1e3 * float(np.median(ours[: len(theirs)])),
                }
            found[f"{name} {kind}"] = row
            print(name, kind, {k: round(v, 2) for k, v in row.items()}, flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
