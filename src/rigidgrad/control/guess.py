"""First guesses: to hold the start, or to go along a line in joint space, to a goal or to where a
frame reaches its target.

A line is gone along as by minimum jerk, at rest at its end; its controls are those of inverse
dynamics, as far as the actuators can, so that for semi-implicit Euler without bounds nothing is
left between its states and where its controls lead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rigidgrad.algorithms.crba import crba
from rigidgrad.algorithms.fast.newton_euler import newton_euler
from rigidgrad.control.costs import Cost, Reach, State
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.control.terms.rotation import rotation_vector
from rigidgrad.errors import InputError
from rigidgrad.model.actuation import undriven

KINDS = ("hold", "line", "reach")
_SEEDS = 8  # positions that inverse kinematics starts from where it does not arrive from the first
_STEPS = 60
_BRAKE = 0.3  # seconds
_ARRIVED = 1e-6  # metres and radians
_DAMPING = 1e-4  # of a step, relative to the error: none near the target


class Guess(NamedTuple):
    """Controls (steps, nu), and states (steps + 1, nx), or None for those that the controls lead
    to.
    """

    states: np.ndarray | None
    controls: np.ndarray


def hold(system: System, start: np.ndarray, steps: int) -> np.ndarray:
    """The controls (steps, nu) that come nearest to holding the start under gravity."""
    if not isinstance(system, RobotSystem):
        return np.zeros((steps, system.nu))
    if not system.inputs:
        return np.tile(
            _controls(system, start[: system.nq], system.robot.gravity_torque(start[: system.nq])),
            (steps, 1),
        )
    q, still = np.tile(start[: system.nq], (steps, 1)), np.zeros((steps, system.nv))
    return _controls(system, q, _joint_forces(system, q, still, still))


def stand(system: System, start: np.ndarray, steps: int) -> Guess:
    """States that stay at the start, and at each knot the least controls and contact forces that
    come nearest to holding it there; in impacts none.
    """
    assert (
        isinstance(system, RobotSystem)
        and system.touching is not None
        and system.touching.active is not None
    )
    q, still = np.tile(start[: system.nq], (steps, 1)), np.zeros((steps, system.nv))
    pull = _joint_forces(system, q, still, still)
    active = np.stack([np.broadcast_to(a, steps) for a in system.touching.active], axis=1)
    flow = np.broadcast_to(system.touching.flow, steps)
    controls = np.zeros((steps, system.nu))
    for held in np.unique(active, axis=0):
        knots = (active == held).all(axis=1) & (flow == 1.0)
        controls[knots] = standing(system, start[: system.nq], pull[knots], held)
    return Guess(np.tile(start, (steps + 1, 1)), controls)


def standing(system: System, q: np.ndarray, pull: np.ndarray, active: np.ndarray) -> np.ndarray:
    """The controls (…, nu) of the least controls and contact forces that come nearest to joint
    forces (…, nv), at positions q (nq,), with the contacts that are `active`.
    """
    assert isinstance(system, RobotSystem) and system.held is not None
    held = system.held.constraints
    J = system.robot.jacobian_of(held, q)
    B = np.eye(system.nv) if system.actuation is None else np.array(system.actuation)
    together = np.concatenate([B.T, J * np.repeat(active, [c.rows for c in held])[:, None]])
    return (pull @ np.linalg.pinv(together))[..., : system.nu]


def line(system: System, start: np.ndarray, goal: np.ndarray, steps: int, dt: float) -> Guess:
    """From the start, whose velocity is braked, to a state."""
    s = np.linspace(0.0, 1.0, steps + 1)
    s = s**3 * (10.0 - 15.0 * s + 6.0 * s * s)
    if not isinstance(system, RobotSystem):
        return Guess(start + s[:, None] * (goal - start), np.zeros((steps, system.nu)))
    robot, nq = system.robot, system.nq
    way = robot.difference(start[:nq], goal[:nq])
    brake = min(_BRAKE, steps * dt)
    t = np.minimum(dt * np.arange(steps + 1) / brake, 1.0)
    coasting = brake * t * (1.0 - t) ** 2  # from the start's velocity to rest
    q = robot.integrate(
        np.tile(start[:nq], (steps + 1, 1)), s[:, None] * way + coasting[:, None] * start[nq:]
    )
    v = np.concatenate([start[None, nq:], robot.difference(q[:-1], q[1:]) / dt])
    tau = _joint_forces(system, q[:-1], v[:-1], np.diff(v, axis=0) / dt)
    return Guess(np.concatenate([q, v], axis=1), _controls(system, q[:-1], tau))


def _joint_forces(system: RobotSystem, q: np.ndarray, v: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Inverse dynamics (steps, nv), with the inputs of each knot."""
    if not system.inputs:
        return system.robot.rnea(q, v, a)
    forces = newton_euler(
        system.canonical_model, tuple(q.T), tuple(v.T), tuple(a.T), system.external
    )
    return np.stack([np.broadcast_to(f, len(q)) for f in forces], axis=1)


def _mass_matrix(system: RobotSystem, q: np.ndarray) -> np.ndarray:
    if not system.inputs:
        return system.robot.crba(q)
    rows = crba(system.canonical_model, tuple(q.T))
    return np.stack(
        [np.stack([np.broadcast_to(x, len(q)) for x in row], axis=-1) for row in rows], axis=-2
    )


def _controls(system: RobotSystem, q: np.ndarray, tau: np.ndarray) -> np.ndarray:
    """The controls (…, nu) whose accelerations come nearest to those of joint forces (…, nv), in
    the metric of the mass matrix (Gauss' principle).

    So the joints of a robot that falls are left alone: torques that would hold it on the ground
    would make it flail.
    """
    if system.actuation is None:
        return tau
    B = np.array(system.actuation)
    weighed = np.linalg.solve(
        _mass_matrix(system, q), np.broadcast_to(B, (*tau.shape[:-1], *B.shape))
    )  # M⁻¹ B
    projected = np.linalg.pinv(B.T @ weighed, hermitian=True)
    controls: np.ndarray = (projected @ (np.swapaxes(weighed, -1, -2) @ tau[..., None]))[..., 0]
    return controls


# --- where a line leads ---------------------------------------------------------------------------


def goal_of(system: System, costs: Sequence[Cost], knots: int, start: np.ndarray) -> np.ndarray:
    """The state that the State cost with the largest weight wants in the end; what has no weight
    there stays as at the start.
    """
    states = [(c, _weight(c, system, knots)) for c in costs if isinstance(c, State)]
    states = [(c, w) for c, w in states if w[: _positions(system)].any()]
    if not states:
        raise InputError(
            'guess="line" needs a cost State that wants a position at the end: give one a weight,'
            ' or take guess="reach" or "hold"'
        )
    cost, weight = max(states, key=lambda pair: pair[1].sum())
    goal = cost.targets(system, knots)[-1]
    if not isinstance(system, RobotSystem):
        return np.where(weight > 0, goal, start)
    nq, nv = system.nq, system.nv
    way = np.where(weight[:nv] > 0, system.robot.difference(start[:nq], goal[:nq]), 0.0)
    return np.concatenate([system.robot.integrate(start[:nq], way), np.zeros(nv)])


def _positions(system: System) -> int:
    return system.nv if isinstance(system, RobotSystem) else system.ndx


def _weight(cost: Cost, system: System, knots: int) -> np.ndarray:
    """Of the last knot, or where it has none, of the one before."""
    weights = cost.weights(system, knots)
    weight: np.ndarray = weights[-1] if weights[-1].any() else weights[-2]
    return weight


def reaching(system: System, costs: Sequence[Cost], knots: int, start: np.ndarray) -> np.ndarray:
    """A state at rest, within the joint limits and near the start, in which all costs Reach are at
    their last targets, or as near as was found.
    """
    aims = [c for c in costs if isinstance(c, Reach) and _weight(c, system, knots).any()]
    if not aims or not isinstance(system, RobotSystem):
        raise InputError(
            'guess="reach" needs a robot and a cost Reach with a weight at the end; for other goals'
            ' take guess="line" or states'
        )
    parts = [
        _misses(system, c, c.targets(system, knots)[-1], _weight(c, system, knots) > 0)
        for c in aims
    ]

    def miss(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = [part(q) for part in parts]
        return np.concatenate([r for r, _ in found]), np.concatenate([J for _, J in found])

    robot, random = system.robot, np.random.default_rng(0)
    fixed = {j.v + k for j in undriven(system.model, system.actuators) for k in range(j.nv)}
    free = np.array([k for k in range(robot.nv) if k not in fixed])
    q0 = start[: system.nq]
    best, least = q0, np.inf
    for seed in range(_SEEDS):
        away = np.zeros(robot.nv)
        if seed:
            away[free] = 0.5 * seed * random.uniform(-1.0, 1.0, len(free))
        q, error = _descend(robot, miss, _inside(robot, robot.integrate(q0, away)), free)
        if error < least:
            best, least = q, error
        if least < _ARRIVED:
            break
    return np.concatenate([best, np.zeros(robot.nv)])


def _descend(
    robot: Any, miss: Callable[..., Any], q: np.ndarray, free: np.ndarray
) -> tuple[np.ndarray, float]:
    """Damped least squares (Levenberg, with the damping of Sugihara 2011: proportional to the
    error), kept within the limits.
    """
    r, J = miss(q)
    error = float(r @ r)
    scale = 1.0
    for _ in range(_STEPS):
        if error < _ARRIVED**2:
            break
        J = J[:, free]
        step = np.zeros(robot.nv)
        step[free] = -np.linalg.solve(
            J.T @ J + (scale * (0.5 * error + _DAMPING * error**0.5)) * np.eye(len(free)), J.T @ r
        )
        moved = _inside(robot, robot.integrate(q, step))
        r_moved, J_moved = miss(moved)
        if float(r_moved @ r_moved) < error:
            q, r, J, error, scale = (
                moved,
                r_moved,
                J_moved,
                float(r_moved @ r_moved),
                max(0.2 * scale, 1e-3),
            )
        else:
            scale *= 5.0
            J = miss(q)[1]
            if scale > 1e6:
                break
    return q, error**0.5


def _inside(robot: Any, q: np.ndarray) -> np.ndarray:
    inside: np.ndarray = np.clip(q, robot.limits.lower, robot.limits.upper)
    return inside


def _misses(
    system: RobotSystem, cost: Reach, target: np.ndarray, weighted: np.ndarray
) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """The residual of a cost and its Jacobian, where it has a weight: by compiled functions, since
    pure Python is slow for many problems.
    """
    robot, offset = system.robot, np.array(cost.offset)
    goal = target[3:12].reshape(3, 3) if cost.pose else None

    def miss(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        T = robot.forward_kinematics(q)[cost.frame]
        J = robot.jacobian(q, cost.frame)
        arm, turn = T[:3, :3] @ offset, J[3:]
        r, rows = T[:3, 3] + arm - target[:3], J[:3] - np.cross(arm, turn.T).T
        if goal is not None:
            angle = np.array(rotation_vector(tuple(map(tuple, (goal.T @ T[:3, :3]).tolist()))))
            r, rows = np.concatenate([r, angle]), np.concatenate([rows, T[:3, :3].T @ turn])
        return r[weighted], rows[weighted]

    return miss
