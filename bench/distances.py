"""Distances and collisions: how exact, against coal on 100,000 pairs, how well covers of meshes
keep their word, on 100,000 more (`--parts covers`), and how many positions a second on one core:
`python bench/distances.py`.

Throughput: iiwa14 with 60 balls on seven links among 20 boxes, with all pairs of links but
neighbours; "free" positions touch nothing, so that nothing ends early. Meshes are the collision
meshes of example-robot-data's UR5.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import coal
import machine
import numpy as np
from coal_peer import of_shape

import rigidgrad as rg

KINDS = ("sphere", "capsule", "box", "plane")


def flying(shape: Any, error: float = 0.02) -> rg.Robot:
    build = rg.Builder("flying").link("body", 1.0, (0, 0, 0), np.diag([0.1] * 3))
    robot = build.build(floating_base=True)
    return robot.with_collisions(shapes={"body": [shape]}, pairs=[], error=error)


def turned(rng: np.random.Generator) -> np.ndarray:
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    q = q * np.sign(np.diag(r))
    return q if np.linalg.det(q) > 0 else q[:, [1, 0, 2]]


def other(kind: str, rng: np.random.Generator) -> Any:
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = turned(rng), rng.uniform(-0.3, 0.3, 3)
    match kind:
        case "sphere":
            return rg.Sphere(rng.uniform(0.05, 0.4), pose[:3, 3])
        case "capsule":
            return rg.Capsule(rng.uniform(0.02, 0.2), rng.uniform(0.1, 1.0), pose)
        case "box":
            return rg.Box(rng.uniform(0.05, 1.0, 3), pose)
    return rg.Plane(rng.normal(size=3), rng.uniform(-0.3, 0.3))


def exactness(count: int, rows: int = 250) -> dict[str, dict[str, float]]:
    """The largest error, in metres, of `count` positions and pairs of shapes."""

    def geometry(shape: Any) -> Any:
        found, place = of_shape(shape)
        return found, place.rotation, place.translation

    request = coal.DistanceRequest()
    request.enable_signed_distance = True
    request.gjk_tolerance = request.epa_tolerance = 1e-9
    request.gjk_max_iterations = request.epa_max_iterations = 1000
    rng, found = np.random.default_rng(0), {}
    for kind in KINDS:
        worst = {"float64": 0.0, "float32": 0.0}
        inside = total = 0
        for k in range(count // len(KINDS) // rows):
            own = (
                rg.Sphere(rng.uniform(0.02, 0.2)),
                rg.Capsule(rng.uniform(0.02, 0.2), rng.uniform(0.1, 0.8)),
                rg.Box(rng.uniform(0.05, 0.8, 3)),
            )[k % 3]
            shape = other(kind, rng)
            robot, scene = flying(own), rg.Scene([shape])
            q = robot.random(rows, seed=k).q
            q[:, :3] *= 0.7
            g, R, p = geometry(own)
            h, S, s = geometry(shape)
            there = coal.Transform3s(S, s)
            T = robot.forward_kinematics(q)["body"]
            expected = np.array(
                [
                    coal.distance(
                        g,
                        coal.Transform3s(t[:3, :3] @ R, t[:3, :3] @ p + t[:3, 3]),
                        h,
                        there,
                        request,
                        coal.DistanceResult(),
                    )
                    for t in T
                ]
            )
            for dtype in worst:
                d = robot.distances(q.astype(dtype), scene, gradient=False).distance[:, 0]
                worst[dtype] = max(worst[dtype], float(np.abs(d - expected).max()))
            inside, total = inside + int((expected < 0).sum()), total + rows
        found[kind] = {**worst, "pairs": total, "penetrating": inside}
    return found


def meshes() -> list[Path]:
    folder = next((p for p in Path(coal.__file__).parents if p.name == "cmeel.prefix"), Path())
    robots = folder / "share/example-robot-data/robots"
    return sorted(robots.glob("ur_description/meshes/ur5/collision/*.stl"))


def covers(count: int, files: list[Path], error: float = 0.01, rows: int = 250) -> dict[str, Any]:
    """Random positions of meshes that are covered by balls, and of balls, capsules and boxes. coal
    has the meshes' triangles. Counted are positions at which these meet the other shape, and we say
    that nothing touches; of those at which nothing touches by us, how much less our distance is
    than coal's at most, beside the error stated; of all others, how much more.
    """
    rng, found = np.random.default_rng(0), {}
    request = coal.DistanceRequest()
    for file in files:
        body = rg.Mesh(file)
        robot = flying(body, error)
        solid = of_shape(body)[0]
        middle = body.triangles.vertices.mean(axis=0)
        stated = robot.collisions.links[0].error
        missed = pairs = meet = 0
        less, more = -np.inf, -np.inf
        for k in range(max(count // len(files) // rows, 1)):
            shape = other(KINDS[k % 3], rng)
            thing, there = of_shape(shape)
            q = robot.random(rows, seed=k).q
            q[:, :3] = there.translation + rng.uniform(-0.35, 0.35, (rows, 3))
            T = robot.forward_kinematics(q)["body"]
            q[:, :3] -= T[:, :3, :3] @ middle
            T[:, :3, 3] = q[:, :3]
            scene = rg.Scene([shape])
            d = robot.distances(q, scene, gradient=False).distance[:, 0]
            touching = robot.in_collision(q, scene)
            place = coal.Transform3s(there.rotation, there.translation)
            for t, ours, touches in zip(T, d, touching, strict=True):
                own = coal.Transform3s(t[:3, :3], t[:3, 3])
                hit = coal.CollisionResult()
                if coal.collide(solid, own, thing, place, coal.CollisionRequest(), hit):
                    meet += 1
                    missed += not touches
                    continue
                apart = coal.distance(solid, own, thing, place, request, coal.DistanceResult())
                if ours > 0.0:  # inside of the solid, coal measures to the surface from inside
                    less = max(less, apart - ours - stated)
                more = max(more, ours - apart)
            pairs += rows
        found[file.stem] = {
            "pairs": pairs,
            "balls": len(robot.collisions.links[0].elements),
            "stated": stated,
            "meeting_by_coal": meet,
            "of_these_free_by_us": missed,
            "less_than_coal_beyond_stated": less,
            "more_than_coal": more,
        }
    return found


def crowd() -> tuple[rg.Robot, rg.Scene]:
    """60 balls on seven links, 20 boxes."""
    links = [f"iiwa_link_{k}" for k in range(1, 8)]
    shapes = {
        name: [
            rg.Sphere(0.06, (0.03 * (k % 3 - 1), 0.02 * k, 0.02 * (k % 2)))
            for k in range(9 if i < 4 else 8)
        ]
        for i, name in enumerate(links)
    }
    robot = rg.load("iiwa14")
    pairs = [(links[i], links[j]) for i in range(7) for j in range(i - 1)]
    rng = np.random.default_rng(1)
    boxes = []
    while len(boxes) < 20:
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = turned(rng), (*rng.uniform(-0.9, 0.9, 2), rng.uniform(0.1, 1.1))
        if np.hypot(*pose[:2, 3]) > 0.35:
            boxes.append(rg.Box(rng.uniform(0.05, 0.2, 3), pose))
    return robot.with_collisions(shapes=shapes, pairs=pairs), rg.Scene(boxes)


def throughput(rounds: int, count: int = 4096) -> dict[str, Any]:
    robot, scene = crowd()
    balls = sum(len(link.elements) for link in robot.collisions.links)
    q = robot.random(40 * count, seed=0).q
    touching = robot.in_collision(q, scene)
    sets = {"random": q[:count], "free": q[~touching][:count]}
    found: dict[str, Any] = {
        "balls": balls,
        "boxes": len(scene),
        "self_pairs": len(robot.collisions.self_pairs),
        "touching": float(touching.mean()),
    }
    for name, rows in sets.items():
        for dtype in ("float32", "float64"):
            x = rows.astype(dtype)
            check = robot.collisions.check(scene, dtype=dtype)
            calls = {
                "yes/no": lambda x=x, check=check: check(x),
                "distances": lambda x=x: robot.distances(x, scene, gradient=False),
                "gradients": lambda x=x: robot.distances(x, scene),
            }
            for what, call in calls.items():
                call()
                times = []
                for _ in range(rounds):
                    before = time.process_time()
                    call()
                    times.append(time.process_time() - before)
                found[f"{what} {name} {dtype}"] = {
                    "positions": len(x),
                    "per_second": len(x) / min(times),
                    "median": len(x) / float(np.median(times)),
                }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--parts", default="exactness,covers,throughput")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {"machine": machine.describe({})}
    if "throughput" in options.parts:
        found["throughput"] = throughput(options.rounds)
        for what, x in found["throughput"].items():
            print(
                f"{what:28} {x['per_second'] / 1e3:9.0f} k/s best, {x['median'] / 1e3:9.0f} k/s"
                " median"
                if isinstance(x, dict)
                else f"{what}: {x}"
            )
    if "exactness" in options.parts:
        found["exactness"] = exactness(options.pairs)
        for kind, x in found["exactness"].items():
            print(
                f"{kind:8} {x['pairs']} pairs, {x['penetrating']} penetrating: worst error"
                f" {x['float64']:.1e} m float64, {x['float32']:.1e} m float32"
            )
    if "covers" in options.parts:
        found["covers"] = covers(options.pairs, meshes())
        for name, x in found["covers"].items():
            print(
                f"{name:9} {x['balls']} balls, {x['pairs']} pairs, {x['meeting_by_coal']} meet:"
                f" {x['of_these_free_by_us']} of these free by us; distances at most"
                f" {x['more_than_coal']:.1e} m more, {x['less_than_coal_beyond_stated']:.1e} m less"
                f" than coal's beyond the {1e3 * x['stated']:.1f} mm stated"
            )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
