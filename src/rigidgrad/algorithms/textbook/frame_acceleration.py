"""How frames accelerate, and how that changes with the state.

The acceleration is the time derivative of `frame_velocity` in the same axes: "world" gives the
classical acceleration of the frame's origin, in world axes; "local" and "spatial" give spatial
accelerations. With ψ̇ = v_λ × s and ψ̈ = a_λ × s + v_λ × ψ̇ of a freedom s of a joint that carries
the frame, moved to the frame, and the frame's velocity ν and acceleration α,

    ∂α/∂q = ψ̈ - ν × ψ̇,        ∂α/∂v = 2 ψ̇ + v_J × s - ν × s,        ∂α/∂a = s.
"""

from __future__ import annotations

from rigidgrad.algorithms import kinematics
from rigidgrad.algorithms.joints import Matrix, Vector, across, combine, motion_subspace, velocities
from rigidgrad.algorithms.results import FrameAccelerationDerivatives
from rigidgrad.model.model import Frame, Model
from rigidgrad.spatial import ZERO_MOTION, Motion, Transform, add3, cross3, rotate_back


def frame_acceleration(
    model: Model, q: Vector, v: Vector, a: Vector, frame: Frame, expressed_in: str
) -> Vector:
    """6 numbers, linear first."""
    X = kinematics.path_transforms(model, q, frame)
    velocity, acceleration, _ = _frame_motions(model, X, v, a, frame)
    m = _seen(kinematics.frame_transform(model, q, frame), velocity, acceleration, expressed_in)
    return (*m.linear, *m.angular)


def frame_acceleration_derivatives(
    model: Model, q: Vector, v: Vector, a: Vector, frame: Frame, expressed_in: str
) -> FrameAccelerationDerivatives[Matrix]:
    """∂/∂q (tangent), ∂/∂v, ∂/∂a: each 6 x nv."""
    X = kinematics.path_transforms(model, q, frame)
    nu, alpha, parents = _frame_motions(model, X, v, a, frame)
    world = kinematics.frame_transform(model, q, frame)
    there = kinematics.in_frame(model, X, frame)
    columns: tuple[dict[tuple[int, int], Motion], ...] = ({}, {}, {})
    numbers = velocities(model, v)
    for i in X:
        S = motion_subspace(model.joints[i])
        v_parent, a_parent = parents[i]
        vJ = combine(S, numbers[i])
        for k, s in enumerate(S):
            rate = v_parent.cross(s)
            second = a_parent.cross(s) + v_parent.cross(rate)
            axis, moved = there[i].motion(s), there[i].motion(rate)
            by_q = there[i].motion(second) - nu.cross(moved)
            by_v = moved + there[i].motion(rate + vJ.cross(s)) - nu.cross(axis)
            columns[0][i, k] = _change(world, nu, alpha, axis, moved, by_q, expressed_in)
            columns[1][i, k] = _change(world, nu, alpha, ZERO_MOTION, axis, by_v, expressed_in)
            columns[2][i, k] = _change(
                world, nu, alpha, ZERO_MOTION, ZERO_MOTION, axis, expressed_in
            )
    return FrameAccelerationDerivatives(*(kinematics.assemble_columns(model, c) for c in columns))


def _frame_motions(
    model: Model, X: dict[int, Transform], v: Vector, a: Vector, frame: Frame
) -> tuple[Motion, Motion, dict[int, tuple[Motion, Motion]]]:
    """Spatial velocity and acceleration of the frame, in the frame, and those of each body's
    parent, in the body.
    """
    qd, qdd = velocities(model, v), velocities(model, a)
    velocity = acceleration = ZERO_MOTION
    parents: dict[int, tuple[Motion, Motion]] = {}
    for i, step in X.items():
        S = motion_subspace(model.joints[i])
        v_parent, a_parent = across(step, velocity), across(step, acceleration)
        parents[i] = v_parent, a_parent
        vJ = combine(S, qd[i])
        velocity, acceleration = v_parent + vJ, a_parent + v_parent.cross(vJ) + combine(S, qdd[i])
    offset = kinematics.frame_offset(frame)
    return offset.motion(velocity), offset.motion(acceleration), parents


def _seen(world: Transform, velocity: Motion, acceleration: Motion, expressed_in: str) -> Motion:
    if expressed_in == "local":
        return acceleration
    if expressed_in == "spatial":
        return world.motion_back(acceleration)
    classical = add3(acceleration.linear, cross3(velocity.angular, velocity.linear))
    return Motion(rotate_back(world.E, acceleration.angular), rotate_back(world.E, classical))


def _change(
    world: Transform,
    nu: Motion,
    alpha: Motion,
    axis: Motion,
    d_nu: Motion,
    d_alpha: Motion,
    expressed_in: str,
) -> Motion:
    """Of what is seen, by changes of the frame's velocity and acceleration and by a motion of the
    frame itself.
    """
    if expressed_in == "local":
        return d_alpha
    if expressed_in == "spatial":
        return world.motion_back(d_alpha + axis.cross(alpha))
    classical = add3(alpha.linear, cross3(nu.angular, nu.linear))
    linear = add3(
        d_alpha.linear, add3(cross3(d_nu.angular, nu.linear), cross3(nu.angular, d_nu.linear))
    )
    linear = add3(linear, cross3(axis.angular, classical))
    angular = add3(d_alpha.angular, cross3(axis.angular, alpha.angular))
    return Motion(rotate_back(world.E, angular), rotate_back(world.E, linear))
