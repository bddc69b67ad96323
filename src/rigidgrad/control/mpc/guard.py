"""Whether a plan keeps its limits, and what is done where it does not."""

from __future__ import annotations

import numpy as np

from rigidgrad.control.mpc.live import LiveProblem
from rigidgrad.control.mpc.plan import Plan
from rigidgrad.control.mpc.posture import Posture
from rigidgrad.control.system import RobotSystem
from rigidgrad.errors import InputError, unknown_name

POLICIES = ("slow", "hold", "report")
# seconds, and part of the horizon, within which a coming violation slows the motion
AHEAD, AHEAD_PART = (0.4, 0.75)
BRAKING = 0.2  # seconds that it takes to come to rest, and hold a posture


class Guard:
    """Measures plans against the limits that were asked for. A violation above `tolerance`
    (constraints,) that is still to come, or grows, makes the plan be followed slowly or not at all.

    "slow": at the part of its speed that is the time until the violation over 0.4 s, so that the
    motion comes to rest before it. "hold": the posture is held while the violation is 0.2 s ahead
    or less. "report": nothing.
    """

    def __init__(
        self, problem: LiveProblem, posture: Posture, policy: str | None, tolerance: np.ndarray
    ):
        if policy is not None and policy not in POLICIES:
            raise unknown_name("on_violation", policy, POLICIES)
        if policy == "slow" and not posture.driven:
            raise InputError(
                'on_violation="slow" needs a robot all of whose joints are driven: take "hold" or'
                ' "report"'
            )
        if policy == "hold" and not isinstance(problem.system, RobotSystem):
            raise InputError(
                'on_violation="hold" needs a robot: of other dynamics no posture is known; take'
                ' "report"'
            )
        self.problem, self.tolerance = problem, tolerance
        self.policy = policy or ("slow" if posture.driven else "report")

    def judge(self, plan: Plan, start: np.ndarray) -> tuple[float, bool]:
        """(the plan's largest violation, whether that counts); sets how it is followed. `start`
        (constraints,): how far the start is outside.
        """
        plan.pace, plan.held = 1.0, False
        if not self.problem.constraints:
            return 0.0, False
        excess = self.problem.outside(plan.x, plan.u)
        excess[0] = start
        violated = bool((excess > self.tolerance).any())
        if violated and self.policy != "report":
            lower, upper = self.problem.asked
            # an equality cannot be stopped before
            grows = (excess > start + self.tolerance) & (lower < upper)
            if grows.any():
                first, part = int(np.argmax(grows.any(axis=1))), AHEAD_PART
                # in the order of generated code, which gives the same bits
                ahead, all_ = (
                    (plan.dt * first, part * plan.steps * plan.dt)
                    if plan.even
                    else (float(plan.knots[first]), part * plan.duration)
                )
                if self.policy == "slow":
                    plan.pace = min(ahead / min(AHEAD, all_), 1.0)
                else:
                    plan.held = ahead <= BRAKING
        return float(excess.max(initial=0.0)), violated
