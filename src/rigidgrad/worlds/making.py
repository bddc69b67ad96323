"""Environments by name, or from a TOML file of yours."""

from __future__ import annotations

import importlib.metadata
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.errors import InputError, RigidgradError, unknown_name
from rigidgrad.model import mjcf
from rigidgrad.model.source import bundled
from rigidgrad.plants.ground import Ground
from rigidgrad.robot import Robot, load
from rigidgrad.worlds.hills import Hills
from rigidgrad.worlds.sources import compiled_model

if TYPE_CHECKING:
    from rigidgrad.worlds.environment import Environment

FOLDER = Path(__file__).parent / "environments"
TABLES = {
    "robot",
    "mjcf",
    "floating_base",
    "dt",
    "steps",
    "seconds",
    "ground",
    "terrain",
    "start",
    "servos",
    "action",
    "command",
    "scan",
    "target",
    "observations",
    "rewards",
    "ends",
    "randomise",
}


def names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def make(
    name: str | os.PathLike[str],
    count: int = 4096,
    *,
    model: Any = None,
    seed: int | None = None,
    threads: int | None = None,
    dtype: str = "float32",
    randomise: bool | dict[str, Any] = True,
    **changes: Any,
) -> Environment:
    """An environment as a Gymnasium `VectorEnv` of `count` worlds: one of `names()`, or the path of
    a TOML file.

    `model` stands in for the robot's file; without `randomise` all worlds have the model's own
    numbers and nobody pushes; a table of it is in place of the file's. `changes` replace tables or
    numbers of the TOML, such as `seconds=5.0`.
    """
    from rigidgrad.worlds.environment import Environment

    task, folder = read(name)
    for key in changes:
        if key not in TABLES:
            raise unknown_name("part of an environment", key, TABLES)
    task |= changes
    if isinstance(randomise, dict):
        task["randomise"] = randomise
    elif not randomise:
        task.pop("randomise", None)
        task.get("observations", {}).pop("noise", None)
    compiled, robot = _model(task, folder, model)
    return Environment(
        task, compiled, robot, count, seed=seed, threads=threads, dtype=dtype, name=str(name)
    )


def read(name: str | os.PathLike[str]) -> tuple[dict[str, Any], Path]:
    """The tables of an environment, and where files that it names are."""
    path = FOLDER / f"{name}.toml"
    if not path.exists():
        path = Path(name)
        if path.suffix != ".toml" or not path.exists():
            raise unknown_name("environment", str(name), names())
    try:
        task = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: {error}") from None
    for key in task:
        if key not in TABLES:
            raise unknown_name(f"part of an environment (in {path.name})", key, TABLES)
    return task, path.parent


def _model(task: dict[str, Any], folder: Path, given: Any) -> tuple[Any, Robot | None]:
    """The compiled model, and the robot of ours where it is made of one."""
    source = given if given is not None else task.get("robot", task.get("mjcf"))
    if source is None:
        raise InputError('an environment has a robot, robot = "…", or mjcf = "…"')
    ground, terrain = task.get("ground"), task.get("terrain")
    hills = None if terrain is None else Hills.of(terrain)
    if hills is not None and (ground is None or (given is None and "mjcf" in task)):
        raise InputError("a terrain is for a robot on a ground: an MJCF has its own height fields")
    robot: Robot | None = None
    if given is None and "mjcf" in task:
        model = compiled_model(str(folder / str(source)), None)
    else:
        robot = source if isinstance(source, Robot) else _robot(str(source), folder, task)
        feet = {
            frame: tuple(x) if isinstance(x, list) else x
            for frame, x in (ground or {}).get("feet", {}).items()
        }
        floor = None
        if ground is not None:
            floor = Ground(
                feet,
                friction=ground.get("friction", 0.8),
                bodies=ground.get("bodies", True),
            )
        model = compiled_model(robot, floor, hills)
    if "servos" in task:
        kp, kd = (float(task["servos"][x]) for x in ("kp", "kd"))
        library = mjcf.library()
        model.actuator_gainprm[:, 0] = kp
        model.actuator_biastype[:] = int(library.mjtBias.mjBIAS_AFFINE)
        model.actuator_biasprm[:, 1], model.actuator_biasprm[:, 2] = -kp, -kd
        model.opt.integrator = library.mjtIntegrator.mjINT_IMPLICITFAST
    return model, robot


def _robot(source: str, folder: Path, task: dict[str, Any]) -> Robot:
    floating = bool(task.get("floating_base", False))
    if source in bundled():
        return load(source, floating_base=floating)
    package, _, path = source.partition(":")
    if not path:
        return load(folder / source, floating_base=floating)
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        raise RigidgradError(
            f"this environment's robot comes with {package}: pip install rigidgrad[worlds], or give"
            " its URDF as model="
        ) from None
    for file in files:
        if str(file).endswith(path):
            return load(Path(str(file.locate())), floating_base=floating)
    raise RigidgradError(f"there is no {path} in the package {package} that is installed here")


def posture_of(model: Any, angles: dict[str, float]) -> np.ndarray:
    """qpos0 with some joints elsewhere, and, of a flying base, the lowest shape on the floor."""
    library = mjcf.library()
    q = np.array(model.qpos0)
    known = mjcf.joint_names(model)
    for name, angle in angles.items():
        if name not in known:
            raise unknown_name("joint", name, known)
        q[model.jnt_qposadr[known.index(name)]] = angle
    if model.njnt and model.jnt_type[0] == 0 and model.ngeom > 1:
        data = library.MjData(model)
        data.qpos[:] = q
        library.mj_kinematics(model, data)
        moving = [g for g in range(model.ngeom) if model.geom_bodyid[g]]
        low = min(data.geom_xpos[g][2] - model.geom_rbound[g] for g in moving)
        q[2] -= low
    return q
