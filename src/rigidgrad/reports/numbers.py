"""What the numbers of a robot's states and controls are called, their units and their limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rigidgrad.control.system import RobotSystem
from rigidgrad.model.actuation import own_actuators
from rigidgrad.model.description import Actuator
from rigidgrad.model.joints.joint_type import PAIR, QUATERNION
from rigidgrad.model.model import Joint, Model
from rigidgrad.reports.plots import Line, Plot

_RATES = {"m": "m/s", "rad": "rad/s"}
_FORCES = {"m": "N", "rad": "N m"}
_PARTS = {QUATERNION.name: ("qx", "qy", "qz", "qw"), PAIR.name: ("cos", "sin")}


@dataclass(frozen=True)
class Number:
    """One of the numbers of a state or a control: the chart that it belongs in, its name there, its
    unit and its limits.
    """

    chart: str
    name: str
    unit: str
    levels: tuple[float, ...] = ()


def positions(model: Model) -> list[Number]:
    """Of q (nq,)."""
    found: list[Number] = []
    for joint in _joints(model):
        chart, kind = _chart(joint, "Position"), joint.kind
        for k in range(kind.plain):
            levels = _finite(model.limits.lower[joint.q + k], model.limits.upper[joint.q + k])
            found.append(Number(chart, _named(joint, kind.coordinates[k]), kind.units[k], levels))
        if kind.direction is not None:
            turn = "Base orientation" if kind.flies else "Orientation"
            name = f"{turn}, {kind.direction.name}"
            parts = _PARTS[kind.direction.name]
            found += [Number(name, _named(joint, part), "") for part in parts]
    return found


def velocities(model: Model) -> list[Number]:
    """Of v (nv,)."""
    found: list[Number] = []
    for joint in _joints(model):
        for k, unit in enumerate(joint.kind.units):
            most = float(model.limits.velocity[joint.v + k])
            name = _named(joint, joint.kind.freedoms[k])
            levels = _finite(-most, most)
            found.append(Number(_chart(joint, "Velocity"), name, _RATES[unit], levels))
    return found


def controls(system: Any, robot: Any, count: int) -> list[Number]:
    """Of u (count,): of a system, or of the motors of a robot where these are as many."""
    if isinstance(system, RobotSystem) and system.nu == count:
        return _forces(system.model, system.actuators)
    if robot is not None:
        own = own_actuators(robot.model)
        if len(own) == count:
            return _forces(robot.model, own)
    return [Number("Controls", f"u{k}", "") for k in range(count)]


def states(robot: Any, count: int) -> list[Number]:
    """Of x (count,): positions and velocities of a robot, or numbers that have no names."""
    if robot is None or count != robot.nq + robot.nv:
        return [Number("States", f"x{k}", "") for k in range(count)]
    return positions(robot.model) + velocities(robot.model)


def over_time(numbers: Iterable[Number], t: np.ndarray, values: np.ndarray) -> list[Plot]:
    """Charts of values (n, numbers), one for each name and unit."""
    grouped: dict[tuple[str, str], list[Line]] = {}
    for k, number in enumerate(numbers):
        line = Line(number.name, t, values[:, k], number.levels)
        grouped.setdefault((number.chart, number.unit), []).append(line)
    return [Plot(chart, unit, tuple(lines)) for (chart, unit), lines in grouped.items()]


def _forces(model: Model, actuators: Iterable[Actuator]) -> list[Number]:
    joints = {joint.name: joint for joint in model.joints}
    found = []
    for actuator in actuators:
        # of one freedom, whose unit it has; of several, only its author knows
        on = [
            (joints[name], k, force)
            for name, forces in actuator.forces
            for k, force in enumerate(forces)
            if force
        ]
        unit, levels = "", _finite(actuator.lower, actuator.upper)
        if len(on) == 1 and on[0][2] == 1.0:
            joint, k, _ = on[0]
            unit = _FORCES[joint.kind.units[k]]
            most = float(model.limits.effort[joint.v + k])
            levels = levels or _finite(-most, most)
        found.append(Number("Control", actuator.name, unit, levels))
    return found


def _joints(model: Model) -> list[Joint]:
    return [joint for joint in model.joints if not joint.is_mimic]


def _chart(joint: Joint, what: str) -> str:
    return f"Base {what.lower()}" if joint.kind.flies else what


def _named(joint: Joint, part: str) -> str:
    if joint.kind.flies:
        return part
    return f"{joint.name} {part}" if part else joint.name


def _finite(low: Any, high: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in (low, high) if np.isfinite(v))
