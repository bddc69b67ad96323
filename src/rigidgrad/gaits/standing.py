"""A posture to stand in: the trunk level, knees bent, each foot under its hip."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rigidgrad.control.numeric_input import numbers
from rigidgrad.errors import RigidgradError
from rigidgrad.gaits.stance import Stance
from rigidgrad.model.contacts import Contact
from rigidgrad.model.model import WORLD
from rigidgrad.robot import Robot

# of a leg's length from hip to foot: knees at about 86 degrees where thigh and shin are equally
# long
_CROUCH = 0.73
# radians by which a knee that is straight is bent at first: at a straight one, no small step lifts
# the foot
_BENT = 0.8
_STEPS, _DAMPING = 60, 1e-3
_NEAR = 1e-4  # of a leg's length: feet are in their places


def standing(
    robot: Robot, feet: Iterable[Contact], height: float | None = None, *, ground: float = 0.0
) -> np.ndarray:
    """A state x0 (nx,) at rest, found by damped Gauss-Newton steps from the neutral posture, within
    the limits of the joints.

    `feet`: one `rg.Contact` for each; `height`: of the trunk's origin above them, by default such
    that legs have 73 % of their length; `ground`: the height of the feet in the world, for round
    ones their radius. Knees that are straight when neutral bend backwards. Of a `robot` on a
    floating base.
    """
    model, lower, upper = robot.model, robot.model.limits.lower, robot.model.limits.upper
    q = np.clip(np.array(robot.neutral()), lower, upper)
    stance = Stance(robot, feet, q)
    legs = [_Leg(stance, k) for k in range(len(stance.feet))]
    places = stance.feet_of(stance.x)
    for leg, place in zip(legs, places, strict=True):
        leg.bend(q, place)
    down = np.array([leg.hip[2] - _CROUCH * leg.length for leg in legs])
    wanted = np.array(
        [[*leg.hip[:2], z] for leg, z in zip(legs, np.full(len(legs), down.mean()), strict=True)]
    )
    if height is not None:
        wanted[:, 2] = -numbers("height", height, ())
    size = max(leg.length for leg in legs)
    away = np.inf
    for _ in range(_STEPS):
        error = (stance.feet_of(q) - wanted).ravel() / size
        away = float(np.abs(error).max())
        if away < _NEAR:
            break
        J = robot.contact_jacobian(q, list(stance.feet))[:, 6:] / size
        step = np.zeros(robot.nv)
        step[6:] = np.clip(
            -J.T @ np.linalg.solve(J @ J.T + _DAMPING * np.eye(len(J)), error), -0.3, 0.3
        )
        q = np.clip(robot.integrate(q, step), lower, upper)
    else:
        raise RigidgradError(
            f"found no posture in which {model.name!r} stands on its feet, {size * away:.3g} m off"
            " at best; give another height, or a start of your own"
        )
    q[2] = ground - float(stance.feet_of(q)[:, 2].min())
    return np.concatenate([q, np.zeros(robot.nv)])


class _Leg:
    """The joints from the trunk to a foot: `hip` (3,), the first of them that swings the foot
    forward and back, seen from the trunk, in the plane of the foot; `length` from there to the
    foot.
    """

    def __init__(self, stance: Stance, k: int):
        model, foot = stance.robot.model, stance.feet[k]
        T = stance.robot.forward_kinematics(stance.robot.neutral())
        chain: list[int] = []
        body = model.frame(foot.frame).body
        while body not in (0, WORLD):
            chain.insert(0, body)
            body = model.parents[body]
        if not chain:
            raise RigidgradError(
                f"foot {foot.frame!r} is fixed to the trunk: there is no leg to stand on"
            )
        poses = [T[model.joints[i].name] for i in chain]
        at = np.array([P[:3, 3] for P in poses])
        end = T[foot.frame] @ np.append(foot.offset, 1.0)
        self.axes = [
            P[:3, :3] @ np.array(model.joints[i].axis) for i, P in zip(chain, poses, strict=True)
        ]
        sideways = [abs(a[1]) > 0.7 for a in self.axes]
        first = sideways.index(True) if any(sideways) else 0
        points = np.vstack([at[first:], end[:3]])
        # a leg's links may lie beside each other: where it hangs, its foot does not pull it
        # sideways
        self.hip = np.array([at[first, 0], end[1], at[first, 2]])
        self.length = float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())
        knee = max((n for n, yes in enumerate(sideways) if yes), default=len(chain) - 1)
        self.knee, self.at, self.joint = at[knee], self.axes[knee], model.joints[chain[knee]]

    def bend(self, q: np.ndarray, foot: np.ndarray) -> None:
        """Bends a knee that is straight, so that the foot goes forward."""
        where = self.joint.q
        if abs(q[where]) < 0.2 and self.joint.kind.nq == 1:
            forward = float(np.cross(self.at, foot - self.knee)[0])
            q[where] += _BENT if forward >= 0 else -_BENT
