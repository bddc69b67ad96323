"""Where a robot touches the world, and where it closes a loop: constraints on the motion of its
frames.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.errors import InputError
from rigidgrad.model.actuation import actuators_of, driven_directions
from rigidgrad.model.model import WORLD, Model

KINDS = ("point", "surface")
LOOP_KINDS = ("point", "full")


class Constraint(NamedTuple):
    """What is compiled of a contact or a loop: frames, rows and gains. `partner` is the second
    frame of a loop, None for the world.
    """

    frame: str
    partner: str | None
    rows: int  # 3: the origin is held; 6: the whole frame
    offset: tuple[float, ...]
    partner_offset: tuple[float, ...]
    gains: tuple[float, ...]  # of position and velocity
    placed: bool  # where it is held is an input


Lines = tuple[tuple[float, ...], ...]


class Grip(NamedTuple):
    """What can be done about forces: the friction and normal of each constraint, None for loops,
    which give any force; and orthonormal directions that motors drive, and those that none does.
    """

    cones: tuple[tuple[float, tuple[float, ...]] | None, ...]
    driven: Lines
    undriven: Lines


class ConstraintSet(NamedTuple):
    """The constraints of a compiled function. `masked`: which of them hold is an input;
    `redundant`: they share forces, and are damped; `grip`: for functions that choose forces.
    """

    constraints: tuple[Constraint, ...] = ()
    masked: bool = False
    redundant: bool = False
    grip: Grip | None = None

    @property
    def rows(self) -> int:
        return sum(c.rows for c in self.constraints)


@dataclass(frozen=True, eq=False)
class Contact:
    """A frame of the robot that does not move against the world."""

    frame: str
    """What touches."""
    kind: str = "point"
    """A "point" holds the frame's origin (3 rows: a force); a "surface" holds its rotation, too (6
    rows: a force, then a moment).
    """
    offset: Sequence[float] = (0.0, 0.0, 0.0)
    """Moves the origin that is held, in the frame's axes, in metres."""
    friction: float = 0.7
    """Of the cone of forces that the ground can give, for functions that ask whether it can.
    Accelerations do not depend on it: a contact neither slips nor lifts off by itself.
    """
    normal: Sequence[float] = (0.0, 0.0, 1.0)
    """The axis of that cone, in the world: it points away from what is touched."""
    gains: Sequence[float] = (0.0, 0.0)
    """(position, velocity) of Baumgarte's stabilisation, 1/s² and 1/s: the contact accelerates by
    -position·error - velocity·speed instead of 0.
    """
    place: ArrayLike | None = None
    """Where the contact belongs in the world, needed where the position gain is not 0: points (…,
    3), for surfaces poses (…, 4, 4).
    """

    def __post_init__(self) -> None:
        _check_frames("contact", self.frame)
        _check_kind(self, "contact", KINDS)
        _check_numbers(self, offset=3, normal=3, gains=2)
        length = math.hypot(*self.normal)
        if not length > 0:
            raise InputError(
                f"contact of {self.frame!r}: the normal has length zero; it points away from what"
                " is touched, such as (0, 0, 1)"
            )
        object.__setattr__(self, "normal", tuple(x / length for x in self.normal))
        if not (_is_number(self.friction) and 0 <= self.friction < math.inf):
            raise InputError(
                f"contact of {self.frame!r}: friction is a finite number from 0 on, not"
                f" {self.friction!r}"
            )
        if self.gains[0] and self.place is None:
            raise InputError(
                f"contact of {self.frame!r}: a gain on the position needs the place that it holds:"
                " place=(x, y, z), or a pose for a surface"
            )

    @property
    def rows(self) -> int:
        """Numbers of its force: 3 or 6."""
        return 3 if self.kind == "point" else 6

    @property
    def constraint(self) -> Constraint:
        """What is compiled of it."""
        return Constraint(
            self.frame,
            None,
            self.rows,
            tuple(self.offset),
            (0.0, 0.0, 0.0),
            tuple(self.gains),
            self.gains[0] != 0,
        )


@dataclass(frozen=True, eq=False)
class Loop:
    """Two frames of the robot that do not move against each other: a closed chain."""

    frame_a: str
    """The force acts on it."""
    frame_b: str
    """The opposite force acts on it."""
    kind: str = "point"
    """A "point" holds the origins together (3 rows), "full" the rotations, too (6 rows)."""
    offset_a: Sequence[float] = (0.0, 0.0, 0.0)
    """Moves the origin of `frame_a`, in its axes, in metres."""
    offset_b: Sequence[float] = (0.0, 0.0, 0.0)
    """Moves the origin of `frame_b`, in its axes."""
    gains: Sequence[float] = (0.0, 0.0)
    """As of contacts; where the position gain is not 0, origins are drawn together, and with "full"
    the frames' axes become parallel.
    """

    def __post_init__(self) -> None:
        _check_frames("loop", self.frame_a, self.frame_b)
        _check_kind(self, "loop", LOOP_KINDS)
        _check_numbers(self, offset_a=3, offset_b=3, gains=2)

    @property
    def rows(self) -> int:
        """Numbers of its force: 3 or 6."""
        return 3 if self.kind == "point" else 6

    @property
    def constraint(self) -> Constraint:
        """What is compiled of it."""
        return Constraint(
            self.frame_a,
            self.frame_b,
            self.rows,
            tuple(self.offset_a),
            tuple(self.offset_b),
            tuple(self.gains),
            False,
        )


Contacts = Contact | Loop | Iterable[Contact | Loop]


def own_loops(model: Model) -> tuple[Contact | Loop, ...]:
    """The loops of a robot's description; those to the world are contacts, with their places. What
    locked joints have made rigid is none any more.
    """
    found: list[Contact | Loop] = []
    for loop in model.description.loops:
        a, b = model.frame(loop.frame_a), model.frame(loop.frame_b)
        if a.body == b.body:
            continue
        if WORLD not in (a.body, b.body):
            found.append(Loop(a.name, b.name, "full" if loop.full else "point"))
            continue
        held, base = (a, b) if b.body == WORLD else (b, a)
        place = base.placement.matrix().tolist() if loop.full else base.placement.p
        found.append(Contact(held.name, "surface" if loop.full else "point", place=place))
    return tuple(found)


def constraints(model: Model, contacts: Contacts) -> tuple[Constraint, ...]:
    """What is compiled of a set of contacts and loops, checked against the model."""
    return check(model, tuple(c.constraint for c in listed(contacts)))


def grip(model: Model, contacts: Iterable[Contact | Loop], actuation: Any) -> Grip:
    """What contacts and motors can do; `actuation` in any notation of `model.actuation`."""
    cones = tuple(
        (float(c.friction), tuple(c.normal)) if isinstance(c, Contact) else None for c in contacts
    )
    return Grip(cones, *driven_directions(model, actuators_of(model, actuation)))


def listed(contacts: Contacts) -> tuple[Contact | Loop, ...]:
    found = (contacts,) if isinstance(contacts, Contact | Loop) else contacts
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise InputError(f"contacts is a list of rg.Contact and rg.Loop, not {found!r}")
    found = tuple(found)
    for c in found:
        if not isinstance(c, Contact | Loop):
            raise InputError(
                f"contacts has rg.Contact and rg.Loop, not {c!r}: write rg.Contact({c!r})"
                if isinstance(c, str)
                else f"contacts has rg.Contact and rg.Loop, not {c!r}"
            )
    return found


def checked_restitution(restitution: Any) -> Any:
    """Between 0, where contacts stay, and 1, where they leave as fast as they came."""
    try:
        numbers = np.asarray(restitution, float)
    except (TypeError, ValueError):
        raise InputError(f"restitution is a number from 0 to 1, not {restitution!r}") from None
    if not ((numbers >= 0) & (numbers <= 1)).all():
        raise InputError(f"restitution is a number from 0 to 1, not {restitution!r}")
    return restitution


def checked_mask(active: Any) -> Any:
    """1 where a contact holds and 0 where it does not; NaN keeps to its row. What another device
    holds is not looked at.
    """
    try:
        numbers = np.asarray(active)
    except (TypeError, ValueError, RuntimeError):
        return active
    if numbers.dtype.kind in "fiu":
        odd = numbers[(numbers != 0) & (numbers != 1) & (numbers == numbers)]
        if odd.size:
            raise InputError(
                f"active is 1 where a contact holds and 0 where it does not, not {odd.flat[0]}"
            )
    return active


def checked_place(contact: Contact) -> Any:
    """Where a contact belongs, as nested lists; the poses of surfaces must be rotations and
    points.
    """
    place = np.asarray(contact.place)
    if contact.kind == "surface" and place.shape[-2:] == (4, 4) and place.dtype.kind in "fiu":
        R = place[..., :3, :3]
        off = np.abs(np.swapaxes(R, -1, -2) @ R - np.eye(3))
        if (off > 1e-4).any() or (np.linalg.det(R) < 0).any():
            raise InputError(
                f"contact of {contact.frame!r}: place has a pose whose upper left 3 x 3 block is no"
                " rotation"
            )
    return place.tolist()


def check(model: Model, found: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
    """Raises unless each frame is there and moves."""
    for c in found:
        for name in (c.frame, c.partner) if c.partner is not None else (c.frame,):
            if model.frame(name).body == WORLD:
                what = (
                    "a loop to the world is a rg.Contact"
                    if c.partner is not None
                    else "it cannot be held against it"
                )
                raise InputError(f"frame {name!r} is fixed to the world: {what}")
        if c.partner is not None and model.frame(c.frame).body == model.frame(c.partner).body:
            raise InputError(
                f"frames {c.frame!r} and {c.partner!r} are on the same body: they cannot move"
                " against each other"
            )
    return found


def _check_frames(what: str, *frames: Any) -> None:
    for frame in frames:
        if not isinstance(frame, str):
            raise InputError(f"a {what} names a frame by its text, not {frame!r}")


def _check_kind(of: Any, what: str, kinds: tuple[str, ...]) -> None:
    if of.kind not in kinds:
        raise InputError(
            f"kind of a {what} is one of {', '.join(map(repr, kinds))}, not {of.kind!r}"
        )


def _is_number(x: Any) -> bool:
    try:
        return not isinstance(x, str) and float(x) == x
    except (TypeError, ValueError):
        return False


def _check_numbers(of: Any, **counts: int) -> None:
    for name, count in counts.items():
        value = getattr(of, name)
        try:
            numbers = tuple(float(x) for x in value)
        except (TypeError, ValueError):
            raise InputError(f"{name} has {count} numbers, not {value!r}") from None
        if len(numbers) != count or not all(map(math.isfinite, numbers)):
            raise InputError(f"{name} has {count} finite numbers, not {value!r}")
        if name == "gains" and min(numbers) < 0:
            raise InputError(f"gains are not negative: {value!r} would drive the contact away")
        object.__setattr__(of, name, numbers)
