"""A first task for a robot: its tip goes to a point that it can reach, and under control follows a figure eight, or where it cannot, goes to the same point."""

from __future__ import annotations

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.model.model import Model
from rigidgrad.robot import Robot
from rigidgrad.viewer.poses import body_poses, frame_path, posture, tip_of

_BEND = (0.3, 0.6, -0.9)  # rad or m, away from the neutral position, which is often singular
_TURN = (0.5, -0.3, 0.3)  # from there to where the target is


def template(robot: Robot, source: str) -> str:
    """The text of a task file, with comments; `source` is what the file calls the robot."""
    model = robot.model
    if not model.joints:
        raise InputError(f"{robot.name!r} has no moving joints, so there is nothing to plan")
    frame = tip_of(model)
    start = _moved(robot, posture(model), _BEND)
    target = _point(model, _moved(robot, start, _TURN), frame)
    center = _point(model, start, frame)
    size = 0.1 * max(float(np.linalg.norm(center - _point(model, start, model.body_names[0]))), 0.2)
    stretch = np.linalg.svd(robot.jacobian(start, frame)[:3], compute_uv=False)
    free = len(stretch) == 3 and stretch[2] > 0.05 * stretch[0]  # the tip can move every way
    path = f"""type = "figure_eight"  # or "point", "circle", "waypoints"
center = {_numbers(center)}
size = {_numbers(np.array([size, size / 2]))}  # metres either way
plane = "yz"
period = 6.0"""
    if not free:
        path = f"""type = "point"  # or "figure_eight", "circle", "waypoints"
at = {_numbers(target)}"""
    limited = {name: bool(np.isfinite(getattr(robot.limits, name)).all()) for name in ("effort", "velocity")}
    limited["position"] = bool(np.isfinite(robot.limits.lower).any() or np.isfinite(robot.limits.upper).any())
    return f"""\
# A task for rigidgrad, written by `rigidgrad init`. Change it, then:
#   rigidgrad solve FILE --report     plans the motion
#   rigidgrad mpc FILE --report       controls a simulated robot
# All keys: docs/command_line.md. SI units and radians; paths are relative to this file.

robot = {_quoted(source)}
floating_base = {_flag(model.floating_base)}
start = {_numbers(start)}  # positions at rest: {", ".join(j.name for j in model.joints if not j.is_mimic)}
steps = 50
duration = 1.0  # seconds of all steps

# Costs are ½ Σ weight · residual² at every step, and at the end with the weight `final`.
[[costs]]
type = "reach"
frame = {_quoted(frame)}  # {len(model.frames)} frames: rigidgrad info shows them
target = {_numbers(target)}  # metres, in the world
weight = 10.0
final = 1000.0

[[costs]]
type = "state"  # move gently, and arrive at rest
goal = "start"
weight = {{ position = 0.001, velocity = 0.01 }}
final = {{ position = 0.0, velocity = 1.0 }}

[[costs]]
type = "effort"
weight = 1e-4
reference = "gravity"  # holding still costs nothing

[limits]  # true: the robot's own; or a number, one a joint, {{ lower = …, upper = … }}
{_limit("torque", limited["effort"])}
{_limit("position", limited["position"])}
{_limit("velocity", limited["velocity"])}

[solver]
type = "pddp"  # or "direct"

[output]
solution = "solution.npz"
log = "log.npz"

[mpc]
period = 0.01  # seconds from plan to plan
duration = 3.0
observer = true  # estimates what the model does not explain, and cancels it
within = 0.02  # metres from the target, in the mean of the second half; otherwise the exit code is 1

[mpc.target]
{path}

[mpc.plant]
type = "simulator"  # or "mujoco"
mass_error = 0.1  # the simulated robot is 10% heavier than its model
faults = {{ noise_position = 1e-4, noise_velocity = 1e-3 }}
"""


def _moved(robot: Robot, q: np.ndarray, by: tuple[float, ...]) -> np.ndarray:
    """A position a bit away, well within the limits, the free base where it is."""
    step = np.resize(by, robot.nv)
    for joint in robot.model.joints:
        if joint.type == "floating":
            step[joint.v : joint.v + 6] = 0.0
    lower, upper = robot.limits.lower, robot.limits.upper
    inset = np.where(np.isfinite(upper - lower), 0.1 * (upper - lower), 0.0)
    for joint in robot.model.joints:
        if joint.nq == 1 and not lower[joint.q] + inset[joint.q] <= q[joint.q] + step[joint.v] <= upper[joint.q] - inset[joint.q]:
            step[joint.v] *= -1.0  # the other way is free, or less bad
    return np.clip(robot.integrate(q, step), lower + inset, upper - inset)


def _point(model: Model, q: np.ndarray, frame: str) -> np.ndarray:
    return frame_path(model, body_poses(model, q), frame)


def _numbers(values: np.ndarray) -> str:
    return "[" + ", ".join(f"{float(x) + 0.0:.4g}" if x == round(float(x), 3) else f"{float(x):.4f}" for x in values) + "]"


def _limit(key: str, stated: bool) -> str:
    return f"{key} = true" if stated else f"# {key}: the robot states none for every joint"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
