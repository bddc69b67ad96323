"""What worlds are made of, as a compiled MuJoCo model: an MJCF, or a robot of ours that stands on a
ground.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rigidgrad.errors import InputError, ModelError
from rigidgrad.interop.mujoco import build, check, set_inertias
from rigidgrad.model import mjcf
from rigidgrad.model.actuation import own_actuators
from rigidgrad.model.model import Model
from rigidgrad.model.xml import read_bytes, root_tag
from rigidgrad.plants.ground import Ground
from rigidgrad.robot import Robot, load
from rigidgrad.worlds.hills import Hills


def compiled_model(source: Any, ground: Ground | None, hills: Hills | None = None) -> Any:
    """A `mujoco.MjModel` of itself, of the path or text of an MJCF, of a Robot, or of a URDF."""
    library = mjcf.library()
    if isinstance(source, library.MjModel):
        return _bare(source, ground)
    if isinstance(source, Robot):
        return from_robot(source.model, ground, hills)
    if isinstance(source, str) and source.lstrip().startswith("<"):
        if root_tag(source) != "mujoco":
            return from_robot(load(source).model, ground)
        return _bare(_parsed(library.MjModel.from_xml_string, source), ground)
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            "worlds are of a mujoco.MjModel, the path or text of an MJCF, a Robot or the path of a"
            f" URDF, not of {type(source).__name__}"
        )
    path = Path(source)
    if path.is_file() and root_tag(read_bytes(path)) == "mujoco":
        return _bare(_parsed(library.MjModel.from_xml_path, os.fsdecode(path)), ground)
    robot = load(source)
    return from_robot(robot.model, ground)


def _parsed(reader: Callable[[str], Any], source: str) -> Any:
    try:
        return reader(source)
    except (ValueError, RuntimeError) as error:
        said = " ".join(str(error).split())
        raise ModelError(f"MuJoCo does not accept this MJCF: {said}") from None


def _bare(model: Any, ground: Ground | None) -> Any:
    if ground is not None:
        raise InputError("an MJCF says itself what a robot stands on: leave ground out")
    return model


def from_robot(model: Model, ground: Ground | None, hills: Hills | None = None) -> Any:
    """With limits, damping and dry friction of its joints, and its actuators as motors; its feet
    touch the `ground`, which may have `hills`, and nothing else touches anything.
    """
    library = mjcf.library()
    check(model)
    if ground is not None and not isinstance(ground, Ground):
        raise InputError(f"ground is rg.plants.Ground(feet), not {type(ground).__name__}")

    def furnish(spec: Any, bodies: list[Any]) -> None:
        if ground is not None:
            ground.build(spec, bodies, model, library)
            if hills is not None:
                hills.build(spec, library, ground.friction)
        joints = {j.name: j for j in model.joints}
        for actuator in own_actuators(model):
            if len(actuator.forces) != 1 or len(actuator.forces[0][1]) != 1:
                raise InputError(
                    f"actuator {actuator.name!r} acts on several freedoms; write an MJCF with a"
                    " fixed tendon for it"
                )
            (name, (factor,)) = actuator.forces[0]
            added = spec.add_actuator(
                name=actuator.name, target=name, trntype=library.mjtTrn.mjTRN_JOINT
            )
            added.set_to_motor()
            added.gear[0] = factor
            effort = joints[name].limit.effort
            if np.isfinite(effort) and effort > 0:
                added.forcelimited, added.forcerange = 1, (-effort, effort)

    built = build(model, limits=True, furnish=furnish)
    for joint in model.joints:
        built.dof_damping[joint.v : joint.v + joint.nv] = joint.damping
        built.dof_frictionloss[joint.v : joint.v + joint.nv] = joint.friction
    set_inertias(built, model.inertias)
    return built
