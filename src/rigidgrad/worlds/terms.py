"""What environments observe, reward, and end for: functions of all worlds at once, by the names
that TOML files use. `e` is the `Environment`; numbers of a term come from its table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Numbers = np.ndarray


def turned_back(quaternion: Numbers, v: Numbers) -> Numbers:
    """Rᵀ v of quaternions (w, x, y, z)."""
    w, u = quaternion[:, :1], quaternion[:, 1:]
    t = 2 * np.cross(v, u)
    found: Numbers = v + w * t + np.cross(t, u)
    return found


# --- observations ---------------------------------------------------------------------------------


def positions(e: Any) -> Numbers:
    kept: Numbers = e.worlds.qpos[:, e.observed]
    return kept


def velocities(e: Any) -> Numbers:
    found: Numbers = e.worlds.qvel
    return found


def velocity(e: Any) -> Numbers:
    """Of the base, along its own axes."""
    return turned_back(e.worlds.qpos[:, 3:7], e.worlds.qvel[:, :3])


def turning(e: Any) -> Numbers:
    found: Numbers = e.worlds.qvel[:, 3:6]
    return found


def gravity(e: Any) -> Numbers:
    """Which way is down, along the base's axes."""
    return turned_back(e.worlds.qpos[:, 3:7], np.broadcast_to(e.down, (e.num_envs, 3)))


def command(e: Any) -> Numbers:
    found: Numbers = e.command
    return found


def joints(e: Any) -> Numbers:
    found: Numbers = e.worlds.qpos[:, e.driven_q] - e.home
    return found


def joint_velocities(e: Any) -> Numbers:
    found: Numbers = 0.1 * e.worlds.qvel[:, e.driven_v]
    return found


def action(e: Any) -> Numbers:
    found: Numbers = e.action
    return found


def heights(e: Any) -> Numbers:
    """Of the base above the ground, at the points of the table `scan`."""
    found: Numbers = e.worlds.qpos[:, 2:3] - e.worlds.heights(e.scanned)
    return found


def target(e: Any) -> Numbers:
    found: Numbers = e.target
    return found


def missing(e: Any) -> Numbers:
    """From the frame to its target, in the world."""
    found: Numbers = e.target - e.place()
    return found


OBSERVATIONS: dict[str, Callable[[Any], Numbers]] = {
    f.__name__: f
    for f in (
        positions,
        velocities,
        velocity,
        turning,
        gravity,
        command,
        joints,
        joint_velocities,
        action,
        heights,
        target,
        missing,
    )
}


# --- rewards, per second --------------------------------------------------------------------------


def alive(e: Any) -> Numbers:
    return np.ones(e.num_envs)


def _off(e: Any, joint: str, upright: float) -> Numbers:
    """How far an angle is from one, within half a turn."""
    angle = e.worlds.qpos[:, e.place_of(joint)[0]] - upright
    found: Numbers = np.abs((angle + np.pi) % (2 * np.pi) - np.pi)
    return found


def upright_pole(e: Any, joint: str, upright: float) -> Numbers:
    return np.asarray(np.cos(_off(e, joint, upright)))


def centre(e: Any, joint: str) -> Numbers:
    found: Numbers = e.worlds.qpos[:, e.place_of(joint)[0]] ** 2
    return found


def forward(e: Any, joint: str) -> Numbers:
    found: Numbers = e.worlds.qvel[:, e.place_of(joint)[1]]
    return found


def effort(e: Any) -> Numbers:
    return np.asarray((e.efforts() ** 2).sum(axis=1))


def squared_action(e: Any) -> Numbers:
    return np.asarray((e.action**2).sum(axis=1))


def action_rate(e: Any) -> Numbers:
    return np.asarray(((e.action - e.before) ** 2).sum(axis=1))


def speed(e: Any) -> Numbers:
    return np.asarray((e.worlds.qvel**2).sum(axis=1))


def reach(e: Any, near: float) -> Numbers:
    return np.asarray(np.exp(-((missing(e) ** 2).sum(axis=1)) / near**2))


def distance(e: Any) -> Numbers:
    return np.asarray(np.sqrt((missing(e) ** 2).sum(axis=1)))


def track_velocity(e: Any, width: float) -> Numbers:
    error = ((e.command[:, :2] - velocity(e)[:, :2]) ** 2).sum(axis=1)
    return np.asarray(np.exp(-error / width))


def track_turning(e: Any, width: float) -> Numbers:
    return np.asarray(np.exp(-((e.command[:, 2] - e.worlds.qvel[:, 5]) ** 2) / width))


def vertical(e: Any) -> Numbers:
    found: Numbers = e.worlds.qvel[:, 2] ** 2
    return found


def rolling(e: Any) -> Numbers:
    return np.asarray((e.worlds.qvel[:, 3:5] ** 2).sum(axis=1))


def level(e: Any) -> Numbers:
    return np.asarray((gravity(e)[:, :2] ** 2).sum(axis=1))


def still(e: Any) -> Numbers:
    return np.asarray((e.worlds.qvel[:, :6] ** 2).sum(axis=1))


def posture(e: Any) -> Numbers:
    return np.asarray((joints(e) ** 2).sum(axis=1))


def stepping(e: Any, aim: float) -> Numbers:
    """For each foot that lands, how much longer than `aim` seconds it was in the air; nothing while
    standing is commanded.
    """
    landed = e.landed * (e.air - aim)
    wanted = np.linalg.norm(e.command, axis=1) > 0.1
    return np.asarray(landed.sum(axis=1) * wanted / e.period)


REWARDS: dict[str, Callable[..., Numbers]] = {
    f.__name__: f
    for f in (
        alive,
        upright_pole,
        centre,
        forward,
        effort,
        action_rate,
        speed,
        reach,
        distance,
        track_velocity,
        track_turning,
        vertical,
        rolling,
        level,
        still,
        posture,
        stepping,
    )
} | {"action": squared_action}


# --- ends -----------------------------------------------------------------------------------------


def beyond(e: Any, **joints: float) -> Numbers:
    found = np.zeros(e.num_envs, bool)
    for joint, most in joints.items():
        found |= np.abs(e.worlds.qpos[:, e.place_of(joint)[0]]) > most
    return found


def low(e: Any, joint: str, least: float) -> Numbers:
    found: Numbers = e.worlds.qpos[:, e.place_of(joint)[0]] < least
    return found


def tilted(e: Any, joint: str, upright: float, most: float) -> Numbers:
    found: Numbers = _off(e, joint, upright) > most
    return found


def fallen(e: Any, upright: float, height: float) -> Numbers:
    """Where the base's z axis is less upright, or the base nearer to the ground than this."""
    above = e.worlds.qpos[:, 2] - e.ground()
    found: Numbers = (-gravity(e)[:, 2] < upright) | (above < height)
    return found


ENDS: dict[str, Callable[..., Numbers]] = {f.__name__: f for f in (beyond, low, tilted, fallen)}
