"""A robot as its author described it: links, joints between them, extra frames. Every source (URDF,
builder, MJCF) makes one of these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from rigidgrad.model.pose import IDENTITY_POSE, Pose

Vector = tuple[float, ...]  # three
Rows = tuple[Vector, ...]  # three


@dataclass(frozen=True)
class Visual:
    """A shape for display. Sizes: box (x, y, z), cylinder and capsule (radius, length along z),
    sphere (radius,), mesh (scale x, y, z). A mesh is named or given as that of a `Collision`.
    """

    shape: str
    size: tuple[float, ...]
    placement: Pose = IDENTITY_POSE
    color: tuple[float, ...] | None = None  # red, green, blue, opacity
    mesh: str | None = None
    folder: str | None = None
    numbers: tuple[bytes, bytes] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Collision:
    """A solid that stands for a link where it may touch something. Sizes as of a `Visual`; "plane"
    (its outside is +z) has none, "ellipsoid" three radii, "hfield" its lengths along x and y, how
    far it reaches below its lowest point, and how many rows its heights, the first numbers, have.

    A mesh is named by a file, which `folder` (that of the robot's file) leads to, or given by its
    numbers: float64 vertices and int32 faces, three each.
    """

    shape: str
    size: tuple[float, ...]
    placement: Pose = IDENTITY_POSE
    mesh: str | None = None
    folder: str | None = None
    numbers: tuple[bytes, bytes] | None = field(default=None, repr=False)
    problem: str | None = None  # why it is "unreadable"


@dataclass(frozen=True)
class Link:
    """A rigid link. `inertia` is about the centre of mass `com`, along the link's axes."""

    name: str
    mass: float = 0.0
    com: Vector = (0.0, 0.0, 0.0)
    inertia: Rows = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    visuals: tuple[Visual, ...] = ()
    collisions: tuple[Collision, ...] = ()


@dataclass(frozen=True)
class JointLimit:
    lower: float = -inf
    upper: float = inf
    velocity: float = inf
    effort: float = inf


@dataclass(frozen=True)
class Mimic:
    """q = multiplier · q(joint) + offset."""

    joint: str
    multiplier: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True)
class Spring:
    """A force -stiffness · (q ⊖ rest); `rest` has as many numbers as the joint's position."""

    stiffness: float
    rest: Vector


@dataclass(frozen=True)
class JointDescription:
    """A joint between two links. `placement` is the joint's frame in the parent link; at q =
    neutral the child link's frame lies on it.
    """

    name: str
    type: str
    parent: str
    child: str
    placement: Pose = IDENTITY_POSE
    axis: Vector | None = None  # as given, any length; None means x
    pitch: float = 0.0  # metres per radian, helical only
    armature: float = 0.0
    damping: float = 0.0
    friction: float = 0.0
    limit: JointLimit = field(default_factory=JointLimit)
    mimic: Mimic | None = None
    spring: Spring | None = None


@dataclass(frozen=True)
class FrameDescription:
    """An extra named frame, fixed to a link or to another frame."""

    name: str
    parent: str
    placement: Pose = IDENTITY_POSE


@dataclass(frozen=True)
class Servo:
    """What makes a force of a command c: (g₀ + g₁ l + g₂ l̇) c + b₀ + b₁ l + b₂ l̇, with
    lower ≤ c ≤ upper and the length l = Σ forces · q + offset.
    """

    gain: Vector
    bias: Vector
    lower: float = -inf
    upper: float = inf
    offset: float = 0.0


@dataclass(frozen=True)
class Actuator:
    """A control u: u times `forces` acts on joints, (joint, one number per freedom); u stays
    between `lower` and `upper`. With a `servo`, that is what makes u.
    """

    name: str
    forces: tuple[tuple[str, tuple[float, ...]], ...]
    lower: float = -inf
    upper: float = inf
    servo: Servo | None = None


@dataclass(frozen=True)
class LoopDescription:
    """Two frames that do not move against each other: their origins are in one place, and with
    `full` their axes are parallel.
    """

    name: str
    frame_a: str
    frame_b: str
    full: bool = False


@dataclass(frozen=True)
class Description:
    name: str
    links: tuple[Link, ...]
    joints: tuple[JointDescription, ...] = ()
    frames: tuple[FrameDescription, ...] = ()
    gravity: Vector = (0.0, 0.0, -9.81)  # what its author meant; URDF has none
    actuators: tuple[Actuator, ...] | None = None  # None: it says nothing, as most do
    loops: tuple[
        LoopDescription, ...
    ] = ()  # that close the tree; the dynamics have them only where they are passed
    doubts: tuple[str, ...] = ()  # what its file says and cannot be, taken as if it said nothing
