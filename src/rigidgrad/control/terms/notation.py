"""How points, frames, states, weights and bounds are written in a task file. Constructors of terms
are annotated with these kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.control.numeric_input import shape_of
from rigidgrad.errors import InputError, unknown_name
from rigidgrad.model.contacts import KINDS, LOOP_KINDS, Contact, Loop
from rigidgrad.schema import (
    Key,
    Kind,
    Where,
    array_of,
    matrix,
    number,
    numbers,
    only,
    own,
    read_value,
    table,
    table_of,
    text,
    word,
)

if TYPE_CHECKING:
    from rigidgrad.robot import Robot


def frame_of(name: str, robot: Robot, start: np.ndarray) -> str:
    """The name of a frame; an error where there is none of that name."""
    robot.model.frame(name)
    return name


def state_of(value: Any, robot: Robot, start: np.ndarray | None) -> np.ndarray:
    """A state [q, v]: "start", "neutral", positions (at rest), positions and velocities, or
    positions by joints' names, the others neutral.
    """
    if isinstance(value, str) and value == "start":
        assert start is not None
        return start
    x: np.ndarray = np.r_[robot.neutral(), np.zeros(robot.nv)]
    if isinstance(value, list):
        if len(value) not in (robot.nq, len(x)):
            raise InputError(
                f"this has {len(value)} numbers; {robot.name!r} has {robot.nq} positions, or with"
                f" velocities {len(x)} numbers"
            )
        x[: len(value)] = value
    elif isinstance(value, Mapping):
        joints = {j.name: j for j in robot.model.joints if j.nq == 1 and not j.is_mimic}
        for name, position in value.items():
            if name not in joints:
                raise unknown_name("joint with one position", name, joints)
            x[joints[name].q] = position
    unit = robot.normalize(x[: robot.nq])
    if not np.allclose(unit, x[: robot.nq], rtol=0, atol=1e-6):
        raise InputError("a quaternion, or the (cos, sin) of a planar joint, has not length 1")
    return x


def _of_both_halves(weight: Mapping[str, Any], robot: Robot, start: np.ndarray) -> np.ndarray:
    """Weights of positions and of velocities, one per number of a state's tangent."""
    halves = (weight["position"], weight["velocity"])
    return np.concatenate(
        [np.broadcast_to(half, robot.nv) if np.ndim(half) == 0 else half for half in halves]
    )


def halves(weight: Any) -> Any:
    """A weight of six numbers, three and three, as a pair, spread to all of them; others as they
    are.
    """
    return np.repeat(weight, 3, axis=-1) if shape_of(weight)[-1:] == (2,) else weight


def _contact_of(value: Any, robot: Robot, start: np.ndarray) -> Contact:
    """A contact from the name of its frame, or from all that it is."""
    said: dict[str, Any] = {"frame": value} if isinstance(value, str) else value
    return Contact(**said | {"frame": frame_of(said["frame"], robot, start)})


def _loop_of(value: Any, robot: Robot, start: np.ndarray) -> Loop:
    for end in ("frame_a", "frame_b"):
        robot.model.frame(value[end])
    return Loop(**value)


def _own_loops(value: Any, robot: Robot, start: np.ndarray) -> list[Any]:
    if not robot.loops:
        raise InputError(
            f"{robot.name!r} has no loops of its own; give each as a table with frame_a and frame_b"
        )
    return list(robot.loops)


def _read_held(where: Where, value: Any) -> Any:
    """A contact, a loop, or all loops of the robot's own."""
    if isinstance(value, Mapping) and "loops" in value:
        return read_value(where, value, table({"loops": Key(own)}).of_robot(_own_loops))
    if isinstance(value, Mapping) and {"frame_a", "frame_b"} & set(value):
        return read_value(where, value, table(LOOP).of_robot(_loop_of))
    return (text | table(CONTACT)).of_robot(_contact_of).read(where, value)


POINT = numbers(3)
POSE = matrix(4, 4)
FRAME = text.of_robot(frame_of)
# what a contact is in a file, and what is left out
CONTACT = {
    field.name: Key(
        kind, None if field.default is MISSING else field.default, field.default is MISSING, about
    )
    for field, (kind, about) in zip(
        fields(Contact),
        (
            (text, "the frame that is held"),
            (word(*KINDS), 'its origin, or with `"surface"` its rotation, too'),
            (POINT, "the point of the frame that is held, in its axes, in metres"),
            (number(least=0), "of the ground, for `friction_cone`"),
            (POINT, "away from the ground, in world axes, likewise"),
            (
                numbers(2, least=0),
                "of position and velocity, 1/s² and 1/s, that draw it back to where it was",
            ),
            (POINT | POSE, "where it belongs in the world, for a gain on the position"),
        ),
        strict=True,
    )
}
# of a loop, likewise
LOOP = {
    field.name: Key(
        kind, None if field.default is MISSING else field.default, field.default is MISSING, about
    )
    for field, (kind, about) in zip(
        fields(Loop),
        (
            (text, "a frame of the robot"),
            (text, "another one, which does not move against it"),
            (word(*LOOP_KINDS), 'their origins, or with `"full"` their rotations, too'),
            (POINT, "the point of the first frame that is held, in its axes, in metres"),
            (POINT, "of the second, likewise"),
            (numbers(2, least=0), "of position and velocity, 1/s² and 1/s, that close it again"),
        ),
        strict=True,
    )
}
CONTACTS = array_of(
    Kind(
        "the name of a frame, or a table of a contact, or of a loop with frame_a and frame_b,"
        " or { loops = true } for the robot's own",
        _read_held,
    )
)
POSTURE = only("neutral") | numbers() | table_of(number())
GOAL = (only("start") | POSTURE).of_robot(state_of)

WEIGHT = number(least=0) | numbers(least=0)
STATE_WEIGHT = WEIGHT | table(
    {"position": Key(WEIGHT, 0.0), "velocity": Key(WEIGHT, 0.0)}
).of_robot(_of_both_halves)

_SIDE = Key(number() | numbers())
BOUND = (
    own
    | number(least=0)
    | numbers(least=0)
    | table({"lower": _SIDE, "upper": _SIDE}).then(lambda b: (b["lower"], b["upper"]))
)
