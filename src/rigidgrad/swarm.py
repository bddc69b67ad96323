"""A page on which thousands of a robot's copies swing on the GPU of whoever opens it: roll-outs and
kinematics by shaders of our own, drawn where they are computed.
"""

from __future__ import annotations

from importlib import resources
from string import Template
from typing import Any

import numpy as np

from rigidgrad.algorithms.joints import Vector, body_transform, positions
from rigidgrad.algorithms.kinematics import frame_offset
from rigidgrad.control.integrators import step
from rigidgrad.control.system import RobotSystem
from rigidgrad.errors import InputError
from rigidgrad.model.model import WORLD, Model
from rigidgrad.program.fuse import fuse
from rigidgrad.program.order import best_order
from rigidgrad.program.recorder import record
from rigidgrad.robot import Robot
from rigidgrad.scalars import mul, neg
from rigidgrad.spatial import IDENTITY
from rigidgrad.targets.gpu.wgsl import Shader
from rigidgrad.targets.gpu.wgsl_library import library, safe_json
from rigidgrad.targets.names import comment

_REGISTERS = 60


def swarm_page(robot: Robot, *, count: int = 4096, dt: float = 0.002) -> str:
    """A page, one file that needs nothing but a browser with WebGPU. `count` robots at first, steps
    of `dt` seconds by semi-implicit Euler; joints have friction, but neither limits nor contacts.
    """
    model = robot.model
    if model.nq != model.nv:
        raise InputError(
            f"{robot.name} has joints whose position is more numbers than its velocity (a floating"
            " base, a ball): a page of many robots takes single axes alone"
        )
    if not model.nv:
        raise InputError(f"{robot.name} has no joint that moves")
    if not 1 <= count <= 1 << 20:
        raise InputError(f"count is from 1 to 1,048,576, not {count}")
    if not 0 < dt <= 0.1:
        raise InputError(f"dt is in (0, 0.1] s, not {dt}")
    shaders = {"step": _step(robot), "skeleton": _skeleton(model)}
    numbers = {
        "title": comment(robot.name),
        "count": count,
        "dt": dt,
        "q": robot.neutral().tolist(),
        "nv": model.nv,
        "edges": [list(edge) for edge in _edges(model)],
        "moving": [k for _, k in shaders["step"].results],
        "points": _where(shaders["skeleton"]),
    }
    module = library(robot.name, shaders, {}).replace("export ", "")
    folder = resources.files("rigidgrad.viewer") / "player"
    page = Template((folder / "swarm.html").read_text(encoding="utf-8"))
    return page.substitute(
        title=comment(robot.name),
        library=module,
        numbers=safe_json(numbers),
        swarm=(folder / "swarm.js").read_text(encoding="utf-8"),
    )


def _step(robot: Robot) -> Shader:
    """x' of x and (h, friction)."""
    system = RobotSystem(robot, "all")
    n = robot.nv

    def moved(values: dict[str, Any]) -> tuple[Vector]:
        x, (h, friction) = values["x"], values["c"]
        u = tuple(neg(mul(friction, w)) for w in x[n:])
        return (step(system, "semi_implicit_euler", x, u, h),)

    program = record({"x": (2 * n,), "c": (2,)}, {"x": (2 * n,)}, moved)
    return Shader(best_order(fuse(program), _REGISTERS))


def _skeleton(model: Model) -> Shader:
    """The origin of the world, those of all bodies, and the end of each body that carries none."""

    def points(values: dict[str, Any]) -> tuple[tuple[Vector, ...]]:
        numbers = positions(model, values["x"][: model.nq])
        X = {WORLD: IDENTITY}
        for i, parent in enumerate(model.parents):
            X[i] = body_transform(model, i, numbers[i]) @ X[parent]
        ends = [(frame_offset(frame) @ X[frame.body]).r for frame in _ends(model)]
        return ((X[WORLD].r, *(X[i].r for i in range(len(model.parents))), *ends),)

    shape = (1 + len(model.parents) + len(_ends(model)), 3)
    program = record({"x": (2 * model.nv,)}, {"points": shape}, points)
    return Shader(best_order(fuse(program), _REGISTERS))


def _ends(model: Model) -> list[Any]:
    """The frame of each leaf that is furthest from its origin."""
    leaves = set(range(len(model.parents))) - set(model.parents)
    found = []
    for leaf in sorted(leaves):
        frames = [f for f in model.frames.values() if f.body == leaf]
        if frames:
            found.append(max(frames, key=lambda f: float(np.linalg.norm(f.placement.p))))
    return found


def _edges(model: Model) -> list[tuple[int, int]]:
    bodies = len(model.parents)
    tips = [(1 + f.body, 1 + bodies + k) for k, f in enumerate(_ends(model))]
    return [(1 + parent, 1 + i) for i, parent in enumerate(model.parents)] + tips


def _where(shader: Shader) -> list[list[float]]:
    """Of each coordinate of each point: its column of the results, or -1 and what it always is."""
    column = {k: o for o, (_, k) in enumerate(shader.results)}
    constants = shader.constants["points"]
    count = len(column) + len(constants)
    return [[column.get(k, -1), constants.get(k, 0.0)] for k in range(count)]
