"""Where bodies and frames are, how frames move, and their Jacobians."""

from __future__ import annotations

from rigidgrad.algorithms.joints import (
    Matrix,
    Vector,
    body_transform,
    combine,
    motion_subspace,
    positions,
    velocities,
)
from rigidgrad.model.model import WORLD, Frame, Model
from rigidgrad.scalars import Scalar, add, mul
from rigidgrad.spatial import (
    IDENTITY,
    ZERO_MOTION,
    Motion,
    Transform,
    Vector3,
    cross3,
    rotate_back,
    sub3,
    transpose,
)


def frame_offset(frame: Frame) -> Transform:
    """From the body's frame to the named frame on it."""
    return Transform(transpose(frame.placement.R), frame.placement.p)


def path(model: Model, body: int) -> list[int]:
    """The bodies from the root to this one."""
    return list(reversed(model.ancestors[body])) if body != WORLD else []


def path_transforms(model: Model, q: Vector, frame: Frame) -> dict[int, Transform]:
    """ᵢX_λ of the bodies that carry a frame, from the root on."""
    numbers = positions(model, q)
    return {i: body_transform(model, i, numbers[i]) for i in path(model, frame.body)}


def frame_transform(model: Model, q: Vector, frame: Frame) -> Transform:
    """From the world to the frame."""
    X = IDENTITY
    for step in path_transforms(model, q, frame).values():
        X = step @ X
    return frame_offset(frame) @ X


def frame_placement(model: Model, q: Vector, frame: Frame) -> Matrix:
    """The homogeneous 4x4 placement of the frame in the world."""
    X = frame_transform(model, q, frame)
    R = transpose(X.E)
    return tuple((*R[k], X.r[k]) for k in range(3)) + ((0.0, 0.0, 0.0, 1.0),)


def in_frame(model: Model, X: dict[int, Transform], frame: Frame) -> dict[int, Transform]:
    """For each body on the path, the transform from it to the frame."""
    result: dict[int, Transform] = {}
    Y = frame_offset(frame)
    for i in reversed(X):
        result[i] = Y
        Y = Y @ X[i]
    return result


def in_world(X: dict[int, Transform]) -> dict[int, Transform]:
    """For each body on the path, the transform from the world to it."""
    result: dict[int, Transform] = {}
    Y = IDENTITY
    for i, step in X.items():
        Y = step @ Y
        result[i] = Y
    return result


def frame_motion(model: Model, X: dict[int, Transform], v: Vector, frame: Frame) -> Motion:
    """Spatial velocity of the frame, in the frame."""
    numbers = velocities(model, v)
    m = ZERO_MOTION
    for i, step in X.items():
        m = step.motion(m) + combine(motion_subspace(model.joints[i]), numbers[i])
    return frame_offset(frame).motion(m)


def jacobian(model: Model, q: Vector, frame: Frame, expressed_in: str) -> Matrix:
    """6 x nv, rows linear first: the frame's velocity is J v."""
    X = path_transforms(model, q, frame)
    columns = _columns(model, X, frame, expressed_in)
    return assemble_columns(model, columns)


def jacobian_derivative(
    model: Model, q: Vector, v: Vector, frame: Frame, expressed_in: str
) -> Matrix:
    """dJ/dt, 6 x nv, for the same choices of axes and origin as `jacobian`."""
    X = path_transforms(model, q, frame)
    columns = _columns(model, X, frame, expressed_in)
    rates: dict[tuple[int, int], Motion] = {}
    if expressed_in == "local":
        numbers = velocities(model, v)
        own = frame_motion(model, X, v, frame)
        relative = in_frame(model, X, frame)
        m = ZERO_MOTION
        for i, step in X.items():
            m = step.motion(m) + combine(motion_subspace(model.joints[i]), numbers[i])
            slip = relative[i].motion(m) - own
            rates.update({key: slip.cross(c) for key, c in columns.items() if key[0] == i})
        return assemble_columns(model, rates)
    # in the world, a joint's axis turns with the body that carries it
    spatial = _columns(model, X, frame, "spatial")
    m = ZERO_MOTION
    numbers = velocities(model, v)
    for i in X:
        m = m + combine([spatial[i, k] for k in range(model.joints[i].nv)], numbers[i])
        rates.update({key: m.cross(c) for key, c in spatial.items() if key[0] == i})
    if expressed_in == "world":
        p = _origin(X, frame)
        pd = _velocity_at(m, p).linear
        # linear part at the frame's origin: v + w × p, so its rate is v' + w' × p + w × p'
        rates = {
            key: Motion(
                r.angular, sub3(_velocity_at(r, p).linear, cross3(pd, spatial[key].angular))
            )
            for key, r in rates.items()
        }
    return assemble_columns(model, rates)


def frame_velocity(model: Model, q: Vector, v: Vector, frame: Frame, expressed_in: str) -> Vector:
    """The frame's velocity, 6 numbers, linear first."""
    X = path_transforms(model, q, frame)
    m = frame_motion(model, X, v, frame)
    if expressed_in == "local":
        return (*m.linear, *m.angular)
    Y = IDENTITY
    for step in X.values():
        Y = step @ Y
    Y = frame_offset(frame) @ Y
    m = (
        Y.motion_back(m)
        if expressed_in == "spatial"
        else Motion(rotate_back(Y.E, m.angular), rotate_back(Y.E, m.linear))
    )
    return (*m.linear, *m.angular)


def _origin(X: dict[int, Transform], frame: Frame) -> Vector3:
    """The frame's origin in the world."""
    Y = IDENTITY
    for step in X.values():
        Y = step @ Y
    return (frame_offset(frame) @ Y).r


def _velocity_at(m: Motion, p: Vector3) -> Motion:
    """A spatial motion given at the world's origin, with its linear part taken at the point p."""
    return Motion(m.angular, sub3(m.linear, cross3(p, m.angular)))


def _columns(
    model: Model, X: dict[int, Transform], frame: Frame, expressed_in: str
) -> dict[tuple[int, int], Motion]:
    """The motion of the frame for a unit velocity of each freedom (body, k) on its path."""
    result: dict[tuple[int, int], Motion] = {}
    if expressed_in == "local":
        for i, Y in in_frame(model, X, frame).items():
            for k, s in enumerate(motion_subspace(model.joints[i])):
                result[i, k] = Y.motion(s)
        return result
    poses = in_world(X)
    origin = _origin(X, frame) if expressed_in == "world" else None
    for i, Y in poses.items():
        for k, s in enumerate(motion_subspace(model.joints[i])):
            w, linear = rotate_back(Y.E, s.angular), rotate_back(Y.E, s.linear)
            arm = Y.r if origin is None else sub3(Y.r, origin)
            moved = cross3(arm, w)
            result[i, k] = Motion(w, tuple(add(x, y) for x, y in zip(linear, moved, strict=True)))
    return result


def assemble_columns(model: Model, columns: dict[tuple[int, int], Motion]) -> Matrix:
    rows: list[list[Scalar]] = [[0.0] * model.nv for _ in range(6)]
    for (i, k), m in columns.items():
        joint = model.joints[i]
        for row, x in zip(rows, (*m.linear, *m.angular), strict=True):
            row[joint.v + k] = add(row[joint.v + k], mul(joint.multiplier, x))
    return tuple(tuple(row) for row in rows)
