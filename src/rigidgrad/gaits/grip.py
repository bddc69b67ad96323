"""What feet can do about forces: the cones that plans keep to, and how far a plan's forces leave
those that there are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from rigidgrad.control.costs import Barrier, FrictionCone
from rigidgrad.control.problem import Problem
from rigidgrad.control.system import RobotSystem
from rigidgrad.model.contacts import Contact
from rigidgrad.robot import Robot

ALLOWED = 1e-3  # of its normal force, by which a force may leave its cone
# of the weight: what a standing foot bears at least, and what forces outside of cones are
# compared with where a foot bears less
_LEAST = 0.01
_NOTHING = 1e-12  # newtons, where nothing weighs anything
_SIDES = 4  # of the pyramids that stand for cones


class Grip:
    """Of feet on the ground. Costs are charged from cones on that are narrower by `margin`, and end
    where a foot bears 1% of the weight: a cost gives way, but not as far as to the true cone.
    """

    def __init__(self, robot: Robot, feet: Sequence[Contact], margin: float):
        gravity = float(np.linalg.norm(robot.model.gravity))
        self.margin = margin
        self._least = _LEAST * gravity * float(sum(m for m, *_ in robot.model.inertias))
        self._cones = [FrictionCone(f, facets=_SIDES) for f in feet]
        self._rows = np.cumsum([0] + [f.rows for f in feet])

    def cost(self, foot: Contact, weight: float) -> FrictionCone:
        """Of a foot as a problem holds it."""
        friction = (1.0 - self.margin) * foot.friction
        narrow = dataclasses.replace(foot, friction=friction)
        upper = [-friction * self._least] * _SIDES + [-self._least]
        return FrictionCone(narrow, weight, facets=_SIDES, activation=Barrier(upper=upper))

    def outside(self, problem: Problem, x: np.ndarray, u: np.ndarray) -> float:
        """How far forces of a trajectory x (knots + 1, nx), u (knots, nu) leave the pyramids of all
        feet at most, as a part of the normal force, or of 1% of the weight if that is more.
        """
        system, programs = problem.system, problem.programs
        assert isinstance(system, RobotSystem)
        force = programs.contact_forces(x[:-1], u, problem.p[:-1, programs.inputs])
        outside = []
        with np.errstate(all="ignore"):  # of a plan that runs away
            for cone, start, end in zip(self._cones, self._rows[:-1], self._rows[1:], strict=True):
                own = force[:, start:end]
                bears = np.maximum(own[:, :3] @ np.array(cone.contact.normal), self._least)
                residual = own @ np.array(cone.matrix(system, ())).T
                outside.append(residual.max(axis=1) / np.maximum(bears, _NOTHING))
            return float(np.maximum(np.max(outside), 0.0))
