"""Forces that joints exert by themselves, over any scalar: springs, and servos with commands."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from rigidgrad.algorithms.joints import Vector
from rigidgrad.math import select
from rigidgrad.model.description import Actuator
from rigidgrad.model.model import Model
from rigidgrad.scalars import Scalar, add, mul, sub


def spring_forces(model: Model, q: Vector) -> list[Scalar]:
    """K (q ⊖ rest), one number per velocity: what the springs pull back with."""
    forces: list[Scalar] = [0.0] * model.nv
    for j in model.joints:
        if j.spring is None:
            continue
        at = tuple(q[j.q : j.q + j.nq])
        if j.is_mimic:  # felt by its master, with its lever
            at = (add(mul(j.multiplier, at[0]), j.offset),)
        for i, x in enumerate(j.kind.difference(j.spring.rest, at), start=j.v):
            forces[i] = add(forces[i], mul(j.spring.stiffness * j.multiplier, x))
    return forces


@dataclass(frozen=True)
class JointServo:
    """An actuator as numbers: `arms` by velocity, `lengths` by position; both are of joints with
    one freedom, where there is a law.
    """

    actuator: Actuator
    arms: dict[int, float]
    lengths: dict[int, float]

    @staticmethod
    def of(model: Model, actuator: Actuator) -> JointServo:
        joints = {j.name: j for j in model.joints}
        arms, lengths = {}, {}
        for name, forces in actuator.forces:
            joint = joints[name]
            for k, force in enumerate(forces):
                arms[joint.v + k] = force
                lengths[joint.q + k] = force
        return JointServo(actuator, arms, lengths)

    def force(self, q: Vector, v: Vector, command: Scalar) -> tuple[Scalar, Scalar]:
        """What it gives, and how much less for a unit of speed: its damping."""
        own, law = self.actuator, self.actuator.servo
        if law is None:
            return clipped(command, own.lower, own.upper), 0.0
        command = clipped(command, law.lower, law.upper)
        length: Any = law.offset
        for i, arm in self.lengths.items():
            length = add(length, mul(arm, q[i]))
        speed: Any = 0.0
        for i, arm in self.arms.items():
            speed = add(speed, mul(arm, v[i]))

        def affine(c: Vector) -> Scalar:
            return add(add(c[0], mul(c[1], length)), mul(c[2], speed))

        force = add(mul(affine(law.gain), command), affine(law.bias))
        damping = sub(0.0, add(mul(law.gain[2], command), law.bias[2]))
        for bound, sign in ((own.lower, -1.0), (own.upper, 1.0)):
            if abs(bound) < inf:  # beyond its range speed changes nothing
                damping = select(sign * force < sign * bound, damping, 0.0)
        return clipped(force, own.lower, own.upper), damping


def clipped(x: Scalar, lower: float, upper: float) -> Scalar:
    """x within bounds."""
    if lower > -inf:
        x = select(x < lower, lower, x)
    return select(x > upper, upper, x) if upper < inf else x
