"""rigidgrad: one robot description in; the fastest dynamics, gradients and model predictive control
out.
"""

import importlib
from typing import TYPE_CHECKING, Any

from rigidgrad import errors
from rigidgrad.model.contacts import Contact, Loop
from rigidgrad.model.source import bundled
from rigidgrad.robot import Builder, Robot, from_mujoco, from_pinocchio, load

if TYPE_CHECKING:  # what tools see; a test compares it with what is loaded on first use
    from rigidgrad import (
        cluster as cluster,
        gaits as gaits,
        ik as ik,
        interop as interop,
        jax as jax,
        link as link,
        math as math,
        plants as plants,
        ros2 as ros2,
        torch as torch,
        trees as trees,
        worlds as worlds,
    )
    from rigidgrad.codegen import generate as generate
    from rigidgrad.control import costs as costs
    from rigidgrad.control.direct import Direct as Direct
    from rigidgrad.control.durations import Duration as Duration
    from rigidgrad.control.limits import (
        Equality as Equality,
        Inequality as Inequality,
        Limits as Limits,
        LinkSphere as LinkSphere,
        Obstacle as Obstacle,
    )
    from rigidgrad.control.mpc import MPC as MPC
    from rigidgrad.control.mpc.tracking import tracking as tracking
    from rigidgrad.control.pddp import PDDP as PDDP
    from rigidgrad.control.phases import Impact as Impact, Phase as Phase
    from rigidgrad.control.problem import Problem as Problem
    from rigidgrad.control.solution import Solution as Solution
    from rigidgrad.control.solve import solve as solve
    from rigidgrad.control.system import CustomSystem as CustomSystem, RobotSystem as RobotSystem
    from rigidgrad.geometry.scene import Scene as Scene
    from rigidgrad.geometry.shapes import (
        Box as Box,
        Capsule as Capsule,
        Cylinder as Cylinder,
        Ellipsoid as Ellipsoid,
        HeightField as HeightField,
        Mesh as Mesh,
        Plane as Plane,
        Points as Points,
        Sphere as Sphere,
    )
    from rigidgrad.planning import plan as plan
    from rigidgrad.reports import report as report
    from rigidgrad.runtime.threads import Crew as Crew
    from rigidgrad.viewer import view as view
    from rigidgrad.worlds.mppi import MPPI as MPPI

__version__ = "0.1.0"

# parts that not every program needs, loaded on first use: name -> module, and the name in it (none
# for the module itself)
_LATER = {
    "generate": ("rigidgrad.codegen", "generate"),
    "Crew": ("rigidgrad.runtime.threads", "Crew"),
    "cluster": ("rigidgrad.cluster", None),
    "costs": ("rigidgrad.control.costs", None),
    "gaits": ("rigidgrad.gaits", None),
    "ik": ("rigidgrad.ik", None),
    "interop": ("rigidgrad.interop", None),
    "jax": ("rigidgrad.jax", None),
    "link": ("rigidgrad.link", None),
    "math": ("rigidgrad.math", None),
    "plan": ("rigidgrad.planning", "plan"),
    "plants": ("rigidgrad.plants", None),
    "ros2": ("rigidgrad.ros2", None),
    "torch": ("rigidgrad.torch", None),
    "trees": ("rigidgrad.trees", None),
    "worlds": ("rigidgrad.worlds", None),
    "MPPI": ("rigidgrad.worlds.mppi", "MPPI"),
    "Box": ("rigidgrad.geometry.shapes", "Box"),
    "Capsule": ("rigidgrad.geometry.shapes", "Capsule"),
    "Mesh": ("rigidgrad.geometry.shapes", "Mesh"),
    "Plane": ("rigidgrad.geometry.shapes", "Plane"),
    "Cylinder": ("rigidgrad.geometry.shapes", "Cylinder"),
    "Ellipsoid": ("rigidgrad.geometry.shapes", "Ellipsoid"),
    "HeightField": ("rigidgrad.geometry.shapes", "HeightField"),
    "Points": ("rigidgrad.geometry.shapes", "Points"),
    "Sphere": ("rigidgrad.geometry.shapes", "Sphere"),
    "Scene": ("rigidgrad.geometry.scene", "Scene"),
    "CustomSystem": ("rigidgrad.control.system", "CustomSystem"),
    "Direct": ("rigidgrad.control.direct", "Direct"),
    "Duration": ("rigidgrad.control.durations", "Duration"),
    "Equality": ("rigidgrad.control.limits", "Equality"),
    "Impact": ("rigidgrad.control.phases", "Impact"),
    "Inequality": ("rigidgrad.control.limits", "Inequality"),
    "Limits": ("rigidgrad.control.limits", "Limits"),
    "LinkSphere": ("rigidgrad.control.limits", "LinkSphere"),
    "Obstacle": ("rigidgrad.control.limits", "Obstacle"),
    "MPC": ("rigidgrad.control.mpc", "MPC"),
    "PDDP": ("rigidgrad.control.pddp", "PDDP"),
    "Phase": ("rigidgrad.control.phases", "Phase"),
    "Problem": ("rigidgrad.control.problem", "Problem"),
    "RobotSystem": ("rigidgrad.control.system", "RobotSystem"),
    "Solution": ("rigidgrad.control.solution", "Solution"),
    "report": ("rigidgrad.reports", "report"),
    "solve": ("rigidgrad.control.solve", "solve"),
    "tracking": ("rigidgrad.control.mpc.tracking", "tracking"),
    "view": ("rigidgrad.viewer", "view"),
}

__all__ = [
    "Builder",
    "Contact",
    "Loop",
    "Robot",
    "bundled",
    "errors",
    "from_mujoco",
    "from_pinocchio",
    "load",
    *_LATER,
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'rigidgrad' has no attribute {name!r}")
    module, attribute = _LATER[name]
    loaded = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
