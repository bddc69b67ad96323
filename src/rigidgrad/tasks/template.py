"""A first task for a robot: its tip goes to a point that it can reach, and under control follows a
figure eight, or where it cannot, goes to the same point.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.control.limits import Limits
from rigidgrad.control.system import RobotSystem
from rigidgrad.errors import InputError, printable
from rigidgrad.model.actuation import undriven
from rigidgrad.model.model import WORLD, Model
from rigidgrad.model.tool_frame import fingers, tool_frame
from rigidgrad.robot import Robot
from rigidgrad.schema import Key
from rigidgrad.tasks.first_motion import falling, first_motion
from rigidgrad.tasks.keys import COSTS, LIMITS
from rigidgrad.viewer.poses import posture


def template(robot: Robot, source: str, frame: str | None = None) -> str:
    """The text of a task file, with comments; `source` is what the file calls the robot, `frame`
    what shall go to the target (default: its tool).
    """
    if not robot.model.joints:
        raise InputError(f"{robot.name!r} has no moving joints, so there is nothing to plan")
    # of a robot whose base nothing drives, the tool of a limb
    chosen = (
        tool_frame(robot.model, base=not falling(RobotSystem(robot)))
        if frame is None
        else robot.model.frame(frame).name
    )
    lock = _locked(robot.model, chosen, beyond=frame is None)
    robot = robot.reduced(lock=lock) if lock else robot
    model, system = robot.model, RobotSystem(robot)
    motion = first_motion(system, chosen, beyond=frame is None)
    path = f"""type = "figure_eight"  # or "point", "circle", "waypoints"
center = {_numbers(motion.tip)}
size = {_numbers(np.array([motion.sway, motion.sway / 2]))}  # metres either way
plane = "yz"
period = 6.0  # seconds of one round"""
    once = "seconds of the run: once round"
    if not motion.sway:
        once = "seconds of the run"
        path = f"""type = "point"  # or "figure_eight", "circle", "waypoints"
at = {_numbers(motion.target)}"""
    bounds = Limits(torque=True).control_bounds(system, 1)
    assert bounds is not None
    limited = {
        "effort": bool(np.isfinite(bounds).all()),
        "velocity": bool(np.isfinite(robot.limits.velocity).all()),
    }
    limited["position"] = bool(
        np.isfinite(robot.limits.lower).any() or np.isfinite(robot.limits.upper).any()
    )
    away = float(np.linalg.norm(motion.target - motion.tip))
    return f"""\
# A task for rigidgrad, written by `rigidgrad init`. Change it, then:
#   rigidgrad solve FILE --report     plans the motion
#   rigidgrad mpc FILE --report       controls a simulated robot
# All keys: docs/command_line.md. SI units and radians; paths are relative to this file.

robot = {_quoted(source)}
floating_base = {_flag(model.floating_base)}
{_unusual(model, lock)}{_driven(system)}
start = {_numbers(motion.start)}  # positions at rest: {printable(", ".join(j.name for j in model.joints if not j.is_mimic))}
steps = {round(50 * motion.duration)}
duration = {motion.duration}  # seconds of all steps

# Costs are ½ Σ weight · residual² at every step, and at the end with the weight `final`.
[[costs]]
type = "reach"
frame = {_quoted(motion.frame)}  # {_about(COSTS["reach"]["frame"])}; {len(model.frames)} frames: rigidgrad info shows them
{_offset(motion.offset)}target = {_numbers(motion.target)}  # {_about(COSTS["reach"]["target"])}; {away:.2f} m from where it is at the start
weight = 10.0  # {_about(COSTS["reach"]["weight"])}
final = 1000.0  # {_about(COSTS["reach"]["final"])}

[[costs]]
type = "state"  # move gently, and arrive at rest
goal = "start"  # {_about(COSTS["state"]["goal"])}
weight = {{ position = 0.001, velocity = 0.01 }}  # {_about(COSTS["state"]["weight"])}
final = {{ position = {_kept(system)}, velocity = 10.0 }}

[[costs]]
type = "effort"
weight = 1e-4
reference = "gravity"  # {_about(COSTS["effort"]["reference"])}

[limits]
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
duration = 6.0  # {once}
observer = true  # estimates what the model does not explain, and cancels it
within = 0.02  # metres from the target, in the mean of the second half; otherwise the exit code is 1

[mpc.target]
{path}

[mpc.plant]
type = "simulator"  # or "mujoco"
mass_error = 0.1  # the simulated robot is 10% heavier than its model
faults = {{ noise_position = 1e-4, noise_velocity = 1e-3 }}
"""


def _driven(system: RobotSystem) -> str:
    """What drives the robot, as keys of a task; what falls is planned without gravity."""
    lines = [f'actuation = "joints"  # {printable(system.driven)}']
    if falling(system):
        lines += [
            (
                "# Nothing holds the base, since this task has no contacts ([[phases]] have): under"
                " gravity the robot would fall. It is planned as it moves while"
            ),
            (
                '# falling, without gravity. actuation = "all" would hold it by a force on the base'
                " that no motor of the robot exerts."
            ),
            "gravity = [0.0, 0.0, 0.0]",
        ]
    return "\n".join(lines)


def _locked(model: Model, frame: str, beyond: bool) -> dict[str, float]:
    """The joints of fingers, which a motion of the hand has no use for, where they are in the
    neutral position; but not what moves the frame.

    Fingers are also what a tool carries: `beyond` says that the frame is one.
    """
    body = model.frames[frame].body
    used = {model.joints[i].q for i in (model.ancestors[body] if body != WORLD else ())}
    carried = {
        i
        for i in model.bodies
        if beyond and body in model.ancestors[i] and not model.joints[body].kind.flies
    }
    joints = [model.joints[i] for i in sorted(fingers(model) | carried)]
    q = posture(model)
    return {
        j.name: float(q[j.q]) for j in joints if j.nq == 1 and not j.is_mimic and j.q not in used
    }


def _kept(system: RobotSystem) -> str:
    """The weight of the start's position at the end: of what is not driven by itself, so that a
    pole hangs still and what flies is level.
    """
    weights = np.zeros(system.nv)
    if not falling(system):
        for joint in undriven(system.model, system.actuators):
            weights[joint.v : joint.v + joint.nv] = 1000.0
        for joint in system.model.joints:
            if joint.kind.flies:
                weights[joint.v + 3 : joint.v + 6] = 1000.0
    return _numbers(weights) if weights.any() else "0.0"


def _numbers(values: np.ndarray) -> str:
    return (
        "["
        + ", ".join(
            f"{float(x) + 0.0:.4g}" if x == round(float(x), 3) else f"{float(x):.4f}"
            for x in values
        )
        + "]"
    )


def _unusual(model: Model, lock: dict[str, float]) -> str:
    """What is not as usual: bodies that are not checked, joints that do not move."""
    lines = ["strict = true  # refuses impossible bodies"] if model.strict else []
    if lock:
        lines.append(
            "lock = {"
            f" {', '.join(f'{_quoted(name)} = {value:.4g}' for name, value in lock.items())} }}  #"
            " fingers do not move"
        )
    return "".join(line + "\n" for line in lines)


def _offset(offset: np.ndarray) -> str:
    return (
        f"offset = {_numbers(offset)}  # in the frame, whose origin is on its hinge\n"
        if offset.any()
        else ""
    )


def _limit(key: str, stated: bool) -> str:
    about = _about(LIMITS[key])
    return (
        f"{key} = true  # {about}"
        if stated
        else f"# {key} ({about}): the robot states none for every joint"
    )


def _about(key: Key) -> str:
    return key.about.replace("`", "")


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _quoted(value: str) -> str:
    """A text of TOML: names come from files of others, and must not end it."""
    return (
        '"'
        + "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in value)
        + '"'
    )
