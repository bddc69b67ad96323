"""Motions that must succeed, as problems: swing-ups and flights (Plancher 2022, 4.3.1 and 6.3.1), a
posture, an arm between random configurations; and their simulation by others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from control_cases import ARM_WEIGHTS, HOVER, THRUSTS, Quadrotor

import rigidgrad as rg
from rigidgrad.control.system import RobotSystem

# weights of joint angles, velocities, torques, and of the last state; "calm" moves as one would let
# a real arm move
MOVE_WEIGHTS = {**ARM_WEIGHTS, "calm": (0.1, 0.1, 1e-3, 1000.0)}
MOVE_STEPS, MOVE_SECONDS = 99, 1.5
# by knot
WAYPOINTS = {30: (1.0, 0.0, 1.0), 60: (1.0, 1.5, 1.5), 90: (-0.5, 1.5, 1.0), 120: (0.0, 0.0, 1.0)}
THRUST_LIMITS = (0.0, 1.6)  # newtons of a rotor, 1.3 times what hovering takes


def pendulum() -> rg.Problem:
    """From hanging to upright in 20 states of 0.1 s."""
    costs = [rg.costs.State([np.pi, 0.0], weight=1.0, final=100.0), rg.costs.Effort(0.1)]
    return rg.Problem(
        rg.load("pendulum"), start=np.zeros(2), steps=19, dt=0.1, integrator="euler", costs=costs
    )


def cart_pole() -> rg.Problem:
    """From hanging to upright in 40 states of 12.5 ms, pushing only the cart."""
    costs = [
        rg.costs.State([0.0, np.pi, 0.0, 0.0], weight=[1.0, 1.0, 0.1, 0.1], final=1000.0),
        rg.costs.Effort(0.001),
    ]
    system = rg.RobotSystem(rg.load("cartpole"), actuation=[[1.0], [0.0]])
    return rg.Problem(
        system, start=np.zeros(4), steps=39, dt=0.0125, integrator="euler", costs=costs
    )


def waypoints() -> rg.Problem:
    """A free-flying quadrotor through four points and back, hovering in the end, with rotors that
    only push, and not hard.
    """
    steps, hovering = max(WAYPOINTS), np.r_[0, 0, 1, 0, 0, 0, 1, np.zeros(6)]
    goal, weight = np.tile(hovering, (steps + 1, 1)), np.zeros((steps, 12))
    weight[:, 6:] = 0.01
    for knot, point in WAYPOINTS.items():
        goal[knot, :3] = point
        weight[min(knot, steps - 1), :3] = 1000.0 if knot < steps else 0.0
    system = rg.RobotSystem(rg.load("quadrotor"), np.vstack([np.zeros((2, 4)), THRUSTS]))
    costs = [
        rg.costs.State(goal, weight=weight, final=1000.0),
        rg.costs.Effort(0.1, reference=HOVER),
    ]
    return rg.Problem(
        system,
        start=hovering,
        steps=steps,
        dt=0.03,
        costs=costs,
        limits=rg.Limits(torque=THRUST_LIMITS),
    )


def posture() -> rg.Problem:
    """HyQ on a stand, from the middle of its joints' ranges to a standing posture in one second."""
    robot = rg.load("hyq")
    start = np.r_[(robot.limits.lower + robot.limits.upper) / 2, np.zeros(12)]
    standing = np.r_[np.tile([-0.2, 0.7, -1.4, -0.2, -0.7, 1.4], 2), np.zeros(12)]
    costs = [
        rg.costs.State(standing, weight=np.r_[np.full(12, 0.1), np.full(12, 0.01)], final=1000.0),
        rg.costs.Effort(1e-4),
    ]
    return rg.Problem(robot, start=start, steps=100, dt=0.01, costs=costs, limits=robot.limits)


MOTIONS: dict[str, Callable[[], rg.Problem]] = {
    "pendulum, swing-up": pendulum,
    "cart-pole, swing-up": cart_pole,
    "quadrotor, flight (angles)": lambda: Quadrotor("angles").problem(),
    "quadrotor, flight (body)": lambda: Quadrotor("body").problem(),
    "quadrotor, waypoints": waypoints,
    "HyQ, posture": posture,
}


@dataclass(frozen=True)
class Moves:
    """The iiwa14 from rest to rest between configurations drawn evenly from 95% of its joints'
    ranges, with its limits of torque, position and velocity.
    """

    count: int = 1000
    weights: str = "code"
    seed: int = 0

    def drawn(self) -> tuple[np.ndarray, np.ndarray]:
        """(starts, goals), each (count, 14)."""
        limits, rng = rg.load("iiwa14").limits, np.random.default_rng(self.seed)
        q = rng.uniform(0.95 * limits.lower, 0.95 * limits.upper, (2, self.count, 7))
        both = np.concatenate([q, np.zeros_like(q)], axis=2)
        return both[0], both[1]

    def problem(self) -> rg.Problem:
        """The first of them."""
        w, robot = MOVE_WEIGHTS[self.weights], rg.load("iiwa14")
        starts, goals = self.drawn()
        costs = [
            rg.costs.State(goals[0], weight=np.repeat([w[0], w[1]], 7), final=w[3]),
            rg.costs.Effort(w[2]),
        ]
        return rg.Problem(
            robot,
            start=starts[0],
            steps=MOVE_STEPS,
            dt=MOVE_SECONDS / MOVE_STEPS,
            costs=costs,
            limits=robot.limits,
        )

    def problems(self) -> list[rg.Problem]:
        starts, goals = self.drawn()
        return self.problem().batch(start=starts, targets={0: goals})

    def each(self, problem: rg.Problem) -> Iterator[rg.Problem]:
        """One problem that becomes each of them in turn."""
        for start, goal in zip(*self.drawn(), strict=True):
            problem.costs[0].goal = goal  # type: ignore[attr-defined]
            problem.update(start=start)
            yield problem


def end_error(problem: rg.Problem, solution: rg.Solution) -> np.ndarray:
    """The last state ⊖ the goal of the first cost, a State."""
    return problem.minus(solution.x[-1], problem.p[-1, : problem.system.nx])


def excess(robot: rg.Robot, solution: rg.Solution) -> dict[str, float]:
    """How far a fixed-base robot's own limits are violated, read from the trajectory itself."""
    q, v = np.split(solution.x, [robot.nq], axis=1)
    over = {
        "position": max((q - robot.limits.upper).max(), (robot.limits.lower - q).max()),
        "velocity": (np.abs(v) - robot.limits.velocity).max(),
        "torque": (np.abs(solution.u) - robot.limits.effort).max(),
    }
    return {name: max(0.0, float(value)) for name, value in over.items()}


# --- simulation by others -------------------------------------------------------------------------


def deviation(problem: rg.Problem, solution: rg.Solution) -> float | None:
    """The largest distance, per step, between the solution's next state and one whose accelerations
    are Pinocchio's or MuJoCo's; None for custom systems.
    """
    if not isinstance(problem.system, RobotSystem):
        return None
    system: RobotSystem = problem.system
    # which Pinocchio gives two coordinates
    continuous = any(j.type == "continuous" for j in system.model.joints)
    accelerate = (_by_mujoco if continuous else _by_pinocchio)(system)
    worst = 0.0
    for x, u, after in zip(solution.x[:-1], solution.u, solution.x[1:], strict=True):
        moved = _step(problem, accelerate, x, system.forces(tuple(u)))
        worst = max(worst, float(np.abs(problem.minus(after, moved)).max()))
    return worst


def _step(problem: rg.Problem, accelerate: Callable, x: np.ndarray, tau: Any) -> np.ndarray:
    """A step of the problem's integrator."""
    nq, h, tau = problem.system.nq, problem.dt, np.array(tau, dtype=float)
    nv = problem.system.ndx // 2

    def rate(x: np.ndarray) -> np.ndarray:
        return np.r_[x[nq:], accelerate(x[:nq], x[nq:], tau)]

    if problem.integrator == "semi_implicit_euler":
        v = x[nq:] + h * rate(x)[nv:]
        return np.r_[problem.plus(x, np.r_[h * v, np.zeros(nv)])[:nq], v]
    if problem.integrator == "euler":
        return problem.plus(x, h * rate(x))
    assert problem.integrator == "rk3"
    k1 = rate(x)
    k2 = rate(problem.plus(x, 0.5 * h * k1))
    k3 = rate(problem.plus(x, h * (2 * k2 - k1)))
    return problem.plus(x, h / 6 * (k1 + 4 * k2 + k3))


def _urdf(system: RobotSystem) -> str:
    return str(resources.files("rigidgrad.model") / "robots" / f"{system.name}.urdf")


def _by_pinocchio(system: RobotSystem) -> Callable:
    import pinocchio as pin

    model = pin.buildModelFromUrdf(_urdf(system))
    data = model.createData()
    return lambda q, v, tau: pin.aba(model, data, q, v, tau)


def _by_mujoco(system: RobotSystem) -> Callable:
    import mujoco

    model = mujoco.MjModel.from_xml_path(_urdf(system))
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    data = mujoco.MjData(model)

    def accelerate(q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        data.qpos[:], data.qvel[:], data.qfrc_applied[:] = q, v, tau
        mujoco.mj_forward(model, data)
        return data.qacc.copy()

    return accelerate
