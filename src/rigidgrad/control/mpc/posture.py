"""What a robot is told to do without a plan, or slower than planned: rest, hold a posture, follow a
path at a part of its speed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rigidgrad.control.guess import standing
from rigidgrad.control.mpc.live import LiveProblem
from rigidgrad.control.mpc.plan import Plan
from rigidgrad.control.system import RobotSystem

RATE = 10.0  # rad/s, of the spring that holds a posture
# rad/s, and times a period, of the one that brakes before a violation
BRISK, BRISK_PART = (40.0, 0.4)

Bounds = tuple[np.ndarray, np.ndarray]  # of the controls now, (nu,) each


class Posture:
    """Controls of a problem's system that keep it somewhere, with its parameters of now; zero for a
    CustomSystem, of which nothing is known.
    """

    def __init__(self, problem: LiveProblem, period: float):
        self.problem, self._brisk = problem, min(BRISK, BRISK_PART / period)
        system = problem.system
        self.system = system
        self.robot = system.robot if isinstance(system, RobotSystem) else None
        actuation = system.actuation if isinstance(system, RobotSystem) else None
        self._inverse = None if actuation is None else np.linalg.pinv(np.array(actuation))
        rank = system.nu if actuation is None else int(np.linalg.matrix_rank(np.array(actuation)))
        held = system.held if isinstance(system, RobotSystem) else None
        self.touching = None if held is None else held.constraints
        # whether every joint can be driven as wanted
        self.driven = isinstance(system, RobotSystem) and rank == system.nv

    def resting(self, x: np.ndarray) -> np.ndarray:
        """The controls that come nearest to holding a state under gravity; on contacts, all of
        which hold, the least ones.
        """
        if self.robot is None:
            return np.zeros(self.system.nu)
        if self.touching is not None:
            found: np.ndarray = standing(
                self.system,
                x[: self.robot.nq],
                self.robot.gravity_torque(x[: self.robot.nq])[None],
                np.ones(len(self.touching)),
            )[0]
            return found
        if self.system.inputs:
            still = np.zeros(self.robot.nv)
            return self._controls(self.forces(x[: self.robot.nq], still, still))
        return self._controls(self.robot.gravity_torque(x[: self.robot.nq]))

    def forces(self, q: np.ndarray, v: np.ndarray, a: np.ndarray) -> np.ndarray:
        """Inverse dynamics of a robot, (nv,)."""
        tau: np.ndarray = self.problem.programs.inverse_dynamics(
            q, v, a, *self.problem.inputs_now()
        )
        return tau

    def holding(
        self, posture: np.ndarray, x: np.ndarray | None, bounds: Bounds, brisk: bool = False
    ) -> np.ndarray:
        """A critically damped spring from x to a posture, a stiff one if `brisk`, with gravity
        compensation; without x that alone.
        """
        if x is None or self.robot is None:
            return self.resting(posture)
        if self.touching is not None:
            return self._stiff(posture, x)
        still = np.zeros(self.robot.nv)
        wanted = self._towards(
            x, posture[: self.robot.nq], still, still, self._brisk if brisk else RATE
        )
        return _on_the_way(wanted, self._coasting(x), bounds)

    def tail(self, plan: Plan) -> np.ndarray:
        """The controls after the end of a plan: at rest there; on contacts, which will be others by
        then, as in its last step.
        """
        return plan.u[plan.last_step] if self.touching is not None else self.resting(plan.x[-1])

    def _stiff(self, posture: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Joints held by springs around the forces that stand there: whatever touches, a robot that
        stands stays standing, and one that falls lies still.
        """
        assert self.robot is not None
        inertia = np.diag(self.robot.crba(posture[: self.robot.nq]))
        away = self.robot.difference(x[: self.robot.nq], posture[: self.robot.nq])
        spring = self._brisk * inertia * (self._brisk * away - 2.0 * x[self.robot.nq :])
        controls: np.ndarray = self.resting(posture) + self._controls(spring)
        return controls

    def stay(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(a state to stay at, controls that rest there, gains (nu, ndx) that hold it), for a
        roll-out from x: where every joint is driven the position of x at rest, by the spring that
        holds a posture.

        In open loop, very light links would run away from where gravity compensation leaves them.
        """
        gains = np.zeros((self.system.nu, self.system.ndx))
        if self.robot is None or not self.driven:
            return x, self.resting(x), gains
        q = x[: self.robot.nq]
        M = self.robot.crba(q)
        for k, rate in enumerate((RATE * RATE, 2.0 * RATE)):
            gains[:, k * self.robot.nv : (k + 1) * self.robot.nv] = -rate * (
                M if self._inverse is None else self._inverse @ M
            )
        state = np.concatenate([q, np.zeros(self.robot.nv)])
        return state, self.resting(state), gains

    def slowed(self, plan: Plan, t: float, x: np.ndarray | None, bounds: Bounds) -> np.ndarray:
        """Along the plan's path at the part `plan.pace` of its speed, by inverse dynamics and a
        stiff spring; where that is more than the actuators can do, all joints do the same part of
        it.
        """
        assert self.robot is not None
        pace, nq = plan.pace, self.robot.nq
        at = plan.phase(t)
        reference = plan.state(at)
        q, v = reference[:nq], pace * reference[nq:]
        if x is None:
            x = np.concatenate([q, v])
        wanted = self._towards(x, q, v, pace * pace * plan.acceleration(at, nq), self._brisk)
        return _on_the_way(wanted, self._coasting(x, plan.control(at, x)), bounds)

    def _coasting(self, x: np.ndarray, other: np.ndarray | None = None) -> Iterator[np.ndarray]:
        """Controls under which a robot that is driven in every joint goes on as it moves now; then
        another one.
        """
        if self.robot is not None and self.driven:
            yield self._controls(
                self.forces(x[: self.robot.nq], x[self.robot.nq :], np.zeros(self.robot.nv))
            )
        if other is not None:
            yield other

    def _towards(
        self, x: np.ndarray, q: np.ndarray, v: np.ndarray, a: np.ndarray, rate: float
    ) -> np.ndarray:
        """Inverse dynamics of a, corrected for being at x instead of (q, v)."""
        assert self.robot is not None
        at, speed = x[: self.robot.nq], x[self.robot.nq :]
        wanted = a + rate * rate * self.robot.difference(at, q) + 2.0 * rate * (v - speed)
        return self._controls(self.forces(at, speed, wanted))

    def _controls(self, force: np.ndarray) -> np.ndarray:
        return np.array(force) if self._inverse is None else self._inverse @ force


def _on_the_way(wanted: np.ndarray, known: Iterator[np.ndarray], bounds: Bounds) -> np.ndarray:
    """Controls within bounds on the way from the first of the known ones that is within them to
    those wanted, as far as that goes.

    Accelerations are affine in controls, so that every joint gets the same part of the change it
    should have. Cutting each control at its own bound instead would let a strong joint that brakes
    throw a weak one.
    """
    lower, upper = bounds
    if np.all((wanted >= lower) & (wanted <= upper)):
        return wanted
    for u in known:
        if np.all((u >= lower) & (u <= upper)):
            step = wanted - u
            with np.errstate(all="ignore"):
                room = np.where(
                    step > 0.0, (upper - u) / step, np.where(step < 0.0, (lower - u) / step, np.inf)
                )
            within: np.ndarray = u + min(1.0, float(room.min(initial=1.0))) * step
            return within
    return wanted
