"""Makes docs/pictures/walking.webp: 20 seconds of HyQ trotting in MuJoCo under live control, as
commanded and pushed: `python tools/walking_film.py [--still FILE]`.

Violet: where its feet are planned to go; red: forces of the ground, and of the push. MuJoCo draws
without a window: MUJOCO_GL=egl (libegl1) or osmesa (libosmesa6).
"""

from __future__ import annotations

import argparse
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("MUJOCO_GL", "egl")

import mujoco
import numpy as np
from PIL import Image, ImageDraw

import rigidgrad as rg
from rigidgrad.interop.mujoco import build
from rigidgrad.play.walking import walking
from rigidgrad.viewer.poses import body_poses, frame_path
from rigidgrad.viewer.shapes import draw

OUTPUT = Path(__file__).parents[1] / "docs" / "pictures" / "walking.webp"
SECONDS, RATE, WIDTH, HEIGHT = 20.0, 12, 480, 270
SCRIPT = (  # seconds, command, what is said
    (0.0, (0.0, 0.0, 0.0), "stands"),
    (1.0, (0.5, 0.0, 0.0), "forward, 0.5 m/s"),
    (6.0, (0.0, 0.25, 0.0), "sideways, 0.25 m/s"),
    (9.0, (0.0, 0.0, 0.5), "turning, 0.5 rad/s"),
    (13.0, (0.4, 0.0, 0.3), "along an arc"),
    (18.0, (0.0, 0.0, 0.0), "stops"),
)
PUSHES = ((4.0, (0.0, 250.0, 0.0)), (15.5, (-150.0, -200.0, 0.0)))  # seconds, newtons
PUSH_SECONDS = 0.3
RED, VIOLET = (0.86, 0.24, 0.2, 1.0), (0.59, 0.2, 0.82, 1.0)


def simulate() -> tuple[Any, list[dict[str, Any]]]:
    """The scene, and what is seen of it RATE times a second."""
    scene = walking("hyq")
    walker = scene.walker()
    mpc = rg.MPC(walker.problem(), rg.PDDP(iterations=1), period=0.02, target=walker)
    plant = scene.plant(mpc.system, 0.8, 0.0)
    pushes, seen = list(PUSHES), []
    while plant.time < SECONDS:
        t = plant.time
        _, walker.command, told = [s for s in SCRIPT if s[0] <= t][-1]
        if pushes and t >= pushes[0][0]:
            plant.push(pushes.pop(0)[1], PUSH_SECONDS, scene.trunk)
        if t >= len(seen) / RATE:
            push = next((f for at, f in PUSHES if at <= t < at + PUSH_SECONDS), None)
            forces = plant.foot_forces if t else {}
            seen.append(
                {
                    "x": plant.x,
                    "plan": mpc.plan.x.copy(),
                    "forces": forces,
                    "push": push,
                    "told": told,
                    "t": t,
                }
            )
        plant.advance(mpc.step(plant.x, t))
    if any(mpc.counts.values()) or walker.has_fallen(plant.x):
        raise SystemExit(f"it did not walk as it should: {mpc.counts}")
    return scene, seen


def pictured(scene: Any) -> mujoco.MjModel:
    """The robot's shapes on a floor of tiles."""
    robot, kinds = scene.robot, mujoco.mjtGeom

    def furnish(spec: Any, bodies: list[Any]) -> None:
        spec.visual.headlight.ambient = (0.4, 0.4, 0.4)
        spec.visual.headlight.diffuse = (0.3, 0.3, 0.3)
        spec.add_texture(
            name="sky",
            type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
            builtin=mujoco.mjtBuiltin.mjBUILTIN_FLAT,
            rgb1=(1, 1, 1),
            width=8,
            height=8,
        )
        tiles = {"rgb1": (0.72, 0.75, 0.79), "rgb2": (0.6, 0.63, 0.68), "width": 128, "height": 128}
        spec.add_texture(
            name="tiles",
            type=mujoco.mjtTexture.mjTEXTURE_2D,
            builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
            **tiles,
        )
        floor = spec.add_material(name="floor", texrepeat=(2, 2), texuniform=True)
        floor.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "tiles"
        spec.worldbody.add_light(
            pos=(0, -1, 4),
            dir=(0.1, 0.3, -1),
            castshadow=True,
            type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        )
        spec.worldbody.add_geom(
            type=kinds.mjGEOM_PLANE, size=(50, 50, 0.1), material="floor", contype=0, conaffinity=0
        )
        names = {
            "box": kinds.mjGEOM_BOX,
            "cylinder": kinds.mjGEOM_CYLINDER,
            "sphere": kinds.mjGEOM_SPHERE,
            "capsule": kinds.mjGEOM_CAPSULE,
        }
        for shape in draw(robot.model).shapes:
            size = (
                [s / 2 for s in shape.size]
                if shape.kind == "box"
                else [shape.size[0], *(s / 2 for s in shape.size[1:])]
            )
            turn = np.zeros(4)
            mujoco.mju_mat2Quat(turn, np.array(shape.placement.R, dtype=float).ravel())
            bodies[shape.body].add_geom(
                type=names[shape.kind],
                size=[*size, 0, 0][:3],
                pos=shape.placement.p,
                quat=turn,
                rgba=shape.color,
                contype=0,
                conaffinity=0,
                mass=0,
            )
        for foot in scene.feet:
            frame = robot.model.frame(foot.frame)
            at = (frame.placement.matrix() @ np.append(foot.offset, 1.0))[:3]
            bodies[frame.body].add_geom(
                type=kinds.mjGEOM_SPHERE,
                size=(scene.radius, 0, 0),
                pos=at,
                rgba=(0.1, 0.1, 0.1, 1),
                contype=0,
                conaffinity=0,
                mass=0,
            )

    model = build(robot.model, limits=False, furnish=furnish)
    model.vis.global_.offwidth, model.vis.global_.offheight = 2 * WIDTH, 2 * HEIGHT
    return model


def add(
    drawn: Any,
    kind: Any,
    color: tuple[float, ...],
    begin: np.ndarray,
    end: np.ndarray,
    width: float,
) -> None:
    """A capsule or arrow from a point to another."""
    if drawn.ngeom < drawn.maxgeom:
        geom = drawn.geoms[drawn.ngeom]
        mujoco.mjv_initGeom(
            geom, kind, np.zeros(3), np.zeros(3), np.zeros(9), np.array(color, dtype=np.float32)
        )
        mujoco.mjv_connector(geom, kind, width, begin, end)
        drawn.ngeom += 1


def pictures(scene: Any, seen: list[dict[str, Any]]) -> list[Image.Image]:
    model = pictured(scene)
    data, renderer = mujoco.MjData(model), mujoco.Renderer(model, 2 * HEIGHT, 2 * WIDTH)
    camera, nq = mujoco.MjvCamera(), scene.robot.nq
    camera.distance, camera.elevation = 2.2, -16.0
    at = seen[0]["x"][:3].copy()
    longest = 1.2 * scene.height / (9.81 * sum(m for m, _, _ in scene.robot.model.inertias))
    found = []
    for frame in seen:
        x = frame["x"]
        data.qpos[:] = np.concatenate([x[:3], x[[6, 3, 4, 5]], x[7:nq]])
        mujoco.mj_forward(model, data)
        at += 0.25 * (x[:3] - at)
        camera.lookat, camera.azimuth = [at[0], at[1], 0.4], 125.0 + 1.5 * frame["t"]
        renderer.update_scene(data, camera)
        poses = body_poses(scene.robot.model, frame["plan"][:, :nq])
        for foot in scene.feet:
            path = frame_path(scene.robot.model, poses, foot.frame, foot.offset)
            for a, b in pairwise(path):
                if np.linalg.norm(b - a) > 1e-3:
                    add(renderer.scene, mujoco.mjtGeom.mjGEOM_CAPSULE, VIOLET, a, b, 0.006)
            force = frame["forces"].get(foot.frame)
            if force is not None and force[2] > 1.0:
                T = scene.robot.forward_kinematics(x[:nq])[foot.frame]
                foot_at = T[:3, 3] + T[:3, :3] @ np.array(foot.offset)
                add(
                    renderer.scene,
                    mujoco.mjtGeom.mjGEOM_ARROW,
                    RED,
                    foot_at,
                    foot_at + longest * force,
                    0.012,
                )
        if frame["push"] is not None:
            along = np.array(frame["push"]) / np.linalg.norm(frame["push"])
            add(
                renderer.scene,
                mujoco.mjtGeom.mjGEOM_ARROW,
                RED,
                x[:3] - 0.75 * along + [0, 0, 0.1],
                x[:3] - 0.15 * along + [0, 0, 0.1],
                0.03,
            )
        image = Image.fromarray(renderer.render()).resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
        said = frame["told"] + (
            f"; a push of {np.linalg.norm(frame['push']):.0f} N" if frame["push"] else ""
        )
        ImageDraw.Draw(image).text((10, HEIGHT - 22), said, fill=(60, 65, 75))
        found.append(image)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--still", type=Path, help="some of its pictures side by side, to look at")
    arguments = parser.parse_args()
    images = pictures(*simulate())
    images[0].save(
        arguments.output,
        save_all=True,
        append_images=images[1:],
        duration=round(1000 / RATE),
        loop=0,
        quality=45,
        method=4,
    )
    print(
        f"{arguments.output}: {len(images)} pictures,"
        f" {arguments.output.stat().st_size / 1e6:.2f} MB"
    )
    if arguments.still:
        sheet = Image.new("RGB", (3 * WIDTH, 3 * HEIGHT))
        for k, image in enumerate(images[:: len(images) // 9][:9]):
            sheet.paste(image, (k % 3 * WIDTH, k // 3 * HEIGHT))
        sheet.save(arguments.still)


if __name__ == "__main__":
    main()
