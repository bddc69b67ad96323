"""What an inertial measurement unit on a frame says."""

from __future__ import annotations

from typing import Any

from rigidgrad.algorithms import kinematics
from rigidgrad.algorithms.textbook.frame_acceleration import frame_acceleration
from rigidgrad.program.program import Program
from rigidgrad.scalars import sub
from rigidgrad.spatial import cross3, rotate
from rigidgrad.worlds.physics import Physics
from rigidgrad.worlds.recording import recorded


def imu(physics: Physics, names: tuple[str, ...]) -> Program:
    """Of each frame, along its axes: the acceleration of its origin against free fall, then the
    rate of turning; from q, v and z.
    """
    model, n = physics.model, physics.nv

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        q, speed = v["q"], v["v"]
        a = list(v["z"])
        for f in physics.frees:
            swing = cross3(speed[f.v + 3 : f.v + 6], speed[f.v : f.v + 3])
            a[f.v : f.v + 3] = [sub(x, y) for x, y in zip(a[f.v : f.v + 3], swing, strict=True)]
        found = []
        for name in names:
            frame = model.frame(name)
            E = kinematics.frame_transform(model, q, frame).E
            moving = frame_acceleration(model, q, speed, tuple(a), frame, "world")[:3]
            falling = [sub(x, float(g)) for x, g in zip(moving, model.gravity, strict=True)]
            turning = kinematics.frame_velocity(model, q, speed, frame, "local")[3:]
            found.append((*rotate(E, tuple(falling)), *turning))
        return (tuple(found),)

    return recorded({"q": (physics.nq,), "v": (n,), "z": (n,)}, {"imu": (len(names), 6)}, evaluate)
