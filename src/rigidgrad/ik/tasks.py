"""Tasks as users write them: where a frame, the centre of mass or a line of sight is to be."""

from __future__ import annotations

import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.ik.terms import CenterOfMassTerm, FrameTerm, LookTerm, PostureTerm, Term, Triple
from rigidgrad.model.model import WORLD, Model
from rigidgrad.runtime import arrays

if TYPE_CHECKING:
    from rigidgrad.runtime.arrays import Numbers

Shape = tuple[int, ...]
AXES = ("x", "y", "z", "rx", "ry", "rz")
ORIGIN: Triple = (0.0, 0.0, 0.0)
_LAST = np.array([0.0, 0.0, 0.0, 1.0])  # row of a pose
_LAST_LIST = _LAST.tolist()
_FLOAT = np.dtype(np.float64)
_POSE = struct.Struct("12d")
_GROUPS = {"position": AXES[:3], "rotation": AXES[3:]}


class Task(ABC):
    """Something to reach, with targets of any batch axes. `weight` is a number, or a pair
    (position, rotation), of squared errors.

    `gain` is for `Velocity`: the part of the error, up to 1, that a step is to take away. `target`
    may be set again; it is a copy, and cannot be written into.
    """

    version = 0  # of its attributes: `Velocity` looks at those that changed
    settings = 0  # of all of them but the numbers of its target
    back: arrays.Back | None  # from NumPy to the kind of array that the target came as
    _target: np.ndarray

    def __init__(self, target: Numbers, weight: Numbers, gain: float):
        self.target = target
        self.weight, self.gain = weight, gain

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        own = self.__dict__
        own["version"] = own.get("version", 0) + 1
        if name != "target":
            own["settings"] = own.get("settings", 0) + 1

    @property
    def target(self) -> Any:
        """What the task aims at, as an array; set it between steps."""
        return self._target

    @target.setter
    def target(self, value: Any) -> None:
        # set in every round of a control loop: arrays that need no conversion take the short way
        if type(value) is np.ndarray and value.dtype == _FLOAT:
            given, back = value, None
        else:
            given, back = arrays.to_numpy(self.what, value)
        copy = given.copy()
        copy.setflags(write=False)
        own = self.__dict__
        if "_target" not in own or own["_target"].shape != copy.shape or own["back"] is not back:
            own["settings"] = own.get("settings", 0) + 1
        own["_target"], own["back"] = copy, back

    @property
    @abstractmethod
    def what(self) -> str:
        """What errors call it."""

    @abstractmethod
    def term(self, model: Model) -> Term:
        """What is compiled of it."""

    @property
    def shape(self) -> Shape:
        """Of one target."""
        return (3,)

    @property
    def batch(self) -> Shape:
        """Batch axes of the target."""
        shape, given = self.shape, self.target.shape
        if given[len(given) - len(shape) :] != shape or len(given) < len(shape):
            raise InputError(
                f"{self.what} has shape {given}; expected {self._expected}, with any batch axes in"
                " front"
            )
        axes: Shape = given[: len(given) - len(shape)]
        return axes

    _expected = "(…, 3)"

    @property
    def weighted(self) -> bool:
        """Whether the weight is other than 1."""
        return not (isinstance(self.weight, int | float) and self.weight == 1)

    def numbers(self, term: Term) -> np.ndarray:
        """The target's numbers as terms have them, (…, size), without its weights."""
        numbers: np.ndarray = self.target.astype(float, copy=False)
        return numbers

    def write(self, rows: np.ndarray, place: int, term: Term) -> None:
        """Its numbers into rows (…, n), from a column on."""
        rows[..., place : place + term.size] = self.numbers(term)

    def roots(self, term: Term) -> np.ndarray:
        """Roots of the weights, one for each part of the term."""
        if isinstance(self.weight, int | float) and 0 < self.weight < math.inf:
            position = rotation = self.weight
        else:
            position, rotation = self._pair()
        return np.sqrt([position if unit == "m" else rotation for unit in term.units])

    def _pair(self) -> tuple[float, float]:
        try:
            given = np.asarray(self.weight, dtype=float)
        except (TypeError, ValueError):
            given = np.array(np.nan)
        if (
            given.shape not in ((), (2,))
            or not np.isfinite(given).all()
            or (given < 0).any()
            or not given.any()
        ):
            raise InputError(
                f"the weight of {self.what} is {self.weight!r}; it is a positive number, or a pair"
                " (position, rotation)"
            )
        position, rotation = np.broadcast_to(given, (2,)).tolist()
        return position, rotation


class Frame(Task):
    """A frame of the robot at a pose (…, 4, 4), or a point in it at a point (…, 3), of the world or
    of the frame `base`.

    `free` are axes of the target that do not count: "x" "y" "z" (along it), "rx" "ry" "rz" (about
    it; one of them, or all), "position", "rotation", as one name or several. `offset` is the point
    of the frame that goes there.
    """

    def __init__(
        self,
        frame: str,
        target: Numbers,
        *,
        weight: Numbers = 1.0,
        free: str | Iterable[str] = (),
        offset: Numbers = ORIGIN,
        base: str | None = None,
        gain: float = 1.0,
    ):
        self.frame, self.base = frame, base
        self.offset = three(f"the offset of frame {frame!r}", offset)
        super().__init__(target, weight, gain)
        self.free = free_axes(self.what, free)
        if not self.pose and self.free & set(AXES[3:]):
            raise InputError(f"{self.what} is a point: rotation is free anyway")
        if 1 < len(self.free & set(AXES[3:])) < 3:
            raise InputError(
                f"rotations of {self.what} are free about one axis of the target, or about all"
                " three"
            )
        if len(self.free) == (6 if self.pose else 3):
            raise InputError(f"all axes of {self.what} are free; leave it out")

    _expected = "a pose (…, 4, 4) or a point (…, 3)"

    @property
    def pose(self) -> bool:
        """Whether the target is a pose (4, 4), not a point."""
        is_pose: bool = self.target.shape[-2:] == (4, 4)
        return is_pose

    @property
    def what(self) -> str:
        return f"the target of frame {self.frame!r}"

    @property
    def shape(self) -> Shape:
        return (4, 4) if self.pose else (3,)

    def term(self, model: Model) -> FrameTerm:
        moving(model, self.frame)
        if self.base is not None:
            model.frame(self.base)
            if model.frame(self.base).body == model.frame(self.frame).body:
                raise InputError(
                    f"frames {self.frame!r} and {self.base!r} are on the same body, and do not move"
                    " against each other"
                )
        return FrameTerm(self.frame, self.base, self.pose, self.free, self.offset, self.weighted)

    def numbers(self, term: Term) -> np.ndarray:
        T = self.target
        if not self.pose:
            point: np.ndarray = T.astype(float, copy=False)
            return point
        if not (T[..., 3, :] == _LAST).all() and np.isfinite(T).all():
            raise InputError(f"the last row of {self.what} must be 0 0 0 1")
        result = np.empty((*T.shape[:-2], 12))
        result[..., :9] = T[..., :3, :3].reshape(*T.shape[:-2], 9)
        result[..., 9:] = T[..., :3, 3]
        return result

    def write(self, rows: np.ndarray, place: int, term: Term) -> None:
        if rows.ndim == 1 and self._target.shape == (4, 4):
            (a, b, c, x), (d, e, f, y), (g, h, i, z), last = self._target.tolist()
            if last == _LAST_LIST:
                _POSE.pack_into(rows.data, 8 * place, a, b, c, d, e, f, g, h, i, x, y, z)
                return
        super().write(rows, place, term)


class CenterOfMass(Task):
    """The centre of mass at a point (…, 3) of the world; `free` are axes that do not count:
    CenterOfMass((0, 0, 0), free="z") stands above the origin.
    """

    def __init__(
        self,
        target: Numbers,
        *,
        weight: Numbers = 1.0,
        free: str | Iterable[str] = (),
        gain: float = 1.0,
    ):
        super().__init__(target, weight, gain)
        self.free = free_axes(self.what, free)
        if self.free & set(AXES[3:]) or len(self.free) == 3:
            raise InputError(
                "of the centre of mass, 'x', 'y' or 'z' can be free, and not all of them"
            )

    @property
    def what(self) -> str:
        return "the target of the centre of mass"

    def term(self, model: Model) -> CenterOfMassTerm:
        return CenterOfMassTerm(self.free, self.weighted)


class LookAt(Task):
    """An axis of a frame, from the point at `offset` in it, towards a point (…, 3) of the world: a
    camera's line of sight. Its error is an angle.
    """

    def __init__(
        self,
        frame: str,
        target: Numbers,
        *,
        axis: Numbers = (0.0, 0.0, 1.0),
        offset: Numbers = ORIGIN,
        weight: Numbers = 1.0,
        gain: float = 1.0,
    ):
        self.frame = frame
        super().__init__(target, weight, gain)
        self.offset = three(f"the offset of frame {frame!r}", offset)
        direction = np.array(three(f"the axis of frame {frame!r}", axis))
        length = float(np.linalg.norm(direction))
        if length < 1e-9:
            raise InputError(f"the axis of frame {frame!r} is zero; it has no direction")
        x, y, z = (direction / length).tolist()
        self.axis: Triple = (x, y, z)

    @property
    def what(self) -> str:
        return f"the point that frame {self.frame!r} looks at"

    def term(self, model: Model) -> LookTerm:
        moving(model, self.frame)
        return LookTerm(self.frame, self.axis, self.offset, self.weighted)


class Posture(Task):
    """Joints towards their places in a configuration (…, nq); joints that fly do not count. For
    `Velocity`; `robot.inverse_kinematics` has `posture=`.
    """

    def __init__(self, target: Numbers, *, weight: float = 1e-3, gain: float = 1.0):
        super().__init__(target, weight, gain)

    @property
    def what(self) -> str:
        return "the posture"

    @property
    def shape(self) -> Shape:
        size: Shape = self.target.shape[-1:]
        return size

    def term(self, model: Model) -> PostureTerm:
        if self.target.ndim < 1 or self.target.shape[-1] != model.nq:
            raise InputError(
                f"the posture has shape {self.target.shape}; expected (…, {model.nq}), with any"
                " batch axes in front"
            )
        return PostureTerm(model.nq)


def moving(model: Model, frame: str) -> None:
    if model.frame(frame).body == WORLD:
        raise InputError(f"frame {frame!r} does not move: no joint is before it")


def free_axes(what: str, free: Any) -> frozenset[str]:
    names = (
        free.replace(",", " ").split()
        if isinstance(free, str)
        else tuple(free)
        if isinstance(free, Iterable)
        else (free,)
    )
    found: set[str] = set()
    for name in names:
        if name not in AXES and name not in _GROUPS:
            raise InputError(
                f"free axes of {what} are some of {', '.join((*AXES, *_GROUPS))}, not {name!r}"
            )
        found |= set(_GROUPS.get(name, (name,)))
    return frozenset(found)


def three(what: str, value: Any) -> Triple:
    if value is ORIGIN:
        origin: Triple = ORIGIN
        return origin
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if array.shape != (3,) or not np.isfinite(array).all():
        raise InputError(f"{what} is {value!r}; it is three finite numbers")
    x, y, z = array.tolist()
    return x, y, z
