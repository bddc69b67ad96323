"""Differential inverse kinematics: for control loops, one small step at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from rigidgrad.errors import InputError, unknown_name
from rigidgrad.ik.differential import Clearance, Given, Tasks, kernel
from rigidgrad.ik.inverse import function, towards
from rigidgrad.ik.tasks import Task, moving, three
from rigidgrad.ik.terms import Term
from rigidgrad.model.model import Model
from rigidgrad.runtime import arrays
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.job import digest

if TYPE_CHECKING:
    from rigidgrad.geometry.scene import Scene
    from rigidgrad.geometry.shapes import Shape
    from rigidgrad.runtime.arrays import Numbers


class Moving(Protocol):
    """What is asked of a robot, which is made of parts that know nothing of it."""

    @property
    def model(self) -> Model: ...

    @property
    def engine(self) -> str: ...

    @property
    def collisions(self) -> Any: ...

    def distances(self, q: np.ndarray, scene: Any = None, *, gradient: bool = False) -> Any: ...


class VelocityStep(NamedTuple):
    """The velocity of a step, and where it leads."""

    v: np.ndarray
    """(…, nv)."""
    q: np.ndarray
    """(…, nq), within the limits."""
    success: np.ndarray
    """(…): all bounds and clearances could be kept."""


class VelocityLimit:
    """How fast joints may move: a number, one for each freedom (nv,), {"joint": number}, or None
    for what the model says. inf is no limit. `maximum` in rad/s or m/s.
    """

    def __init__(self, maximum: Numbers | None = None):
        self.maximum = maximum

    def values(self, model: Model) -> np.ndarray:
        """Of each freedom (nv,)."""
        return _per_freedom(
            "a velocity limit",
            model,
            model.limits.velocity if self.maximum is None else self.maximum,
        )


class AccelerationLimit:
    """How fast velocities may change: a number, one for each freedom (nv,), or {"joint": number}.
    Joints brake in time for their limits of position. `maximum` in rad/s² or m/s².
    """

    def __init__(self, maximum: Numbers):
        self.maximum = maximum

    def values(self, model: Model) -> np.ndarray:
        """Of each freedom (nv,)."""
        return _per_freedom("an acceleration limit", model, self.maximum)


class Halfspace:
    """A point of a frame stays where normal · p ≥ level. A step takes at most `gain` of the
    distance that is left, or brings back `gain` of what is missing. `offset` moves the point in the
    frame's axes.
    """

    def __init__(
        self,
        frame: str,
        normal: Numbers,
        level: float = 0.0,
        *,
        offset: Numbers = (0.0, 0.0, 0.0),
        gain: float = 0.5,
    ):
        direction = np.array(three("the normal of a half-space", normal))
        length = float(np.linalg.norm(direction))
        if length < 1e-9:
            raise InputError("the normal of a half-space is zero; it has no direction")
        self.frame, self.offset = frame, three(f"the offset of frame {frame!r}", offset)
        self.numbers = [
            *(direction / length).tolist(),
            _number("the level of a half-space", level) / length,
            _gain(gain),
        ]

    def clearance(self, model: Model) -> Clearance:
        """What is compiled of it."""
        moving(model, self.frame)
        return Clearance(self.frame, self.offset)


class Apart:
    """A point of a frame stays at least `distance` away from a point of another frame, or of the
    world: spheres that do not touch. `gain` as of `Halfspace`. `other` is a frame, or a point (3,);
    `offset` and `other_offset` move the points in the frames' axes.
    """

    def __init__(
        self,
        frame: str,
        other: Any,
        distance: float,
        *,
        offset: Numbers = (0.0, 0.0, 0.0),
        other_offset: Numbers = (0.0, 0.0, 0.0),
        gain: float = 0.5,
    ):
        self.frame, self.offset = frame, three(f"the offset of frame {frame!r}", offset)
        self.other = other if isinstance(other, str) else None
        self.other_offset = three("the other offset", other_offset)
        place = (
            []
            if isinstance(other, str)
            else list(three(f"what frame {frame!r} keeps away from", other))
        )
        self.numbers = [*place, _number("a distance", distance), _gain(gain)]

    def clearance(self, model: Model) -> Clearance:
        """What is compiled of it."""
        moving(model, self.frame)
        if self.other is not None and model.frame(self.other).body == model.frame(self.frame).body:
            raise InputError(
                f"frames {self.frame!r} and {self.other!r} are on the same body, and do not move"
                " against each other"
            )
        return Clearance(self.frame, self.offset, self.other, self.other_offset, plane=False)


class Clear:
    """Links stay `margin` metres away from a scene and from each other; rg.Scene() is they alone.
    Of all pairs, each step looks at the `pairs` nearest. `gain` as of `Halfspace`.
    """

    def __init__(
        self,
        scene: Scene | Sequence[Shape] | None = None,
        margin: float = 0.01,
        *,
        gain: float = 0.5,
        pairs: int = 8,
    ):
        self.scene, self.margin, self.gain = scene, _number("a margin", margin), _gain(gain)
        if isinstance(pairs, bool) or not isinstance(pairs, int) or not 1 <= pairs <= 64:
            raise InputError(f"pairs is {pairs!r}; it is a whole number from 1 to 64")
        self.pairs = pairs

    def count(self, robot: Moving) -> int:
        """How many rows it takes."""
        self.scene = robot.collisions.clear_of(self.scene)
        return min(self.pairs, len(robot.collisions.pairs_with(self.scene, True)))

    def rows(self, robot: Moving, q: np.ndarray, count: int) -> np.ndarray:
        """(N, count, nv + 1): of the nearest pairs, a and b of a Δ ≤ b."""
        d = robot.distances(q, self.scene)
        nearest = np.argpartition(d.distance, count - 1, axis=1)[:, :count]
        slopes = np.take_along_axis(d.gradient, nearest[:, :, None], axis=1)
        room = self.gain * (np.take_along_axis(d.distance, nearest, axis=1) - self.margin)
        return np.concatenate([-slopes, room[:, :, None]], axis=2)


Limit = VelocityLimit | AccelerationLimit | Halfspace | Apart | Clear


class Velocity:
    """Steps of a control loop that serve weighted tasks within limits: `step = velocity.step(q,
    dt)`, then `step.v`, `step.q`.

    A step Δ minimises ½ Σ weight |gain e - J Δ|² + ½ damping |Δ|², where e is what is left of each
    task. Limits of position always hold; `limits` are those of velocity (`VelocityLimit()`, the
    model's, unless given), of acceleration, half-spaces, distances and clearances of a scene. Set
    `task.target` between steps. q may have batch axes: a robot in each lane.

    Example:

        >>> import rigidgrad as rg
        >>> robot = rg.load("iiwa14")
        >>> velocity = rg.ik.Velocity(robot, [rg.ik.Frame("iiwa_link_7", [0.5, 0.2, 0.6])])
        >>> step = velocity.step(robot.neutral(), 0.01)
        >>> step.v.shape, bool(step.success)
        ((7,), True)
    """

    def __init__(
        self,
        robot: Moving,
        tasks: Task | Iterable[Task],
        limits: Iterable[Limit] | None = None,
        *,
        damping: float = 1e-8,
    ):
        self.robot = robot
        self.tasks = (tasks,) if isinstance(tasks, Task) else tuple(tasks)
        self.limits: tuple[Limit, ...] = (VelocityLimit(),) if limits is None else tuple(limits)
        for what, kind, found in (("task", Task, self.tasks), ("limit", Limit, self.limits)):
            for x in found:
                if not isinstance(x, kind):
                    raise InputError(
                        f"a {what} of Velocity is one of rg.ik, not {type(x).__name__}"
                    )
        if not self.tasks:
            raise InputError("Velocity needs a task: rg.ik.Frame(frame, pose), …")
        self.damping = _number("damping", damping)
        if not self.damping > 0:
            raise InputError(f"damping is {damping!r}; it is a positive number")
        model: Model = robot.model
        fastest = _least(
            model,
            [limit.values(model) for limit in self.limits if isinstance(limit, VelocityLimit)],
        )
        strongest = _least(
            model,
            [limit.values(model) for limit in self.limits if isinstance(limit, AccelerationLimit)],
        )
        self._numbers = [
            limit.numbers for limit in self.limits if isinstance(limit, Halfspace | Apart)
        ]
        self._clearances: tuple[Clearance | Given, ...] = tuple(
            limit.clearance(model) for limit in self.limits if isinstance(limit, Halfspace | Apart)
        )
        self._clear = [
            (limit, count)
            for limit in self.limits
            if isinstance(limit, Clear)
            if (count := limit.count(robot))
        ]
        self._clearances += (Given(model.nv),) * sum(count for _, count in self._clear)
        self._moving = np.isfinite(fastest), np.isfinite(strongest)
        self._bounds = (
            np.where(self._moving[0], fastest, 0.0),
            np.where(self._moving[1], strongest, 0.0),
        )
        self._accelerates = bool(any(self._moving[1]))
        self._nq, self._nv = model.nq, model.nv
        self._functions: dict[Tasks, Any] = {}
        self._prepare()

    def _prepare(self) -> None:
        """Compiles what tasks ask for, and lays their numbers out."""
        model = self.robot.model
        terms = tuple(task.term(model) for task in self.tasks)
        plan = Tasks(
            terms,
            self._clearances,
            tuple(self._moving[0].tolist()),
            tuple(self._moving[1].tolist()),
        )
        try:
            shape = np.broadcast_shapes(*(t.batch for t in self.tasks))
        except ValueError:
            batch = ", ".join(f"{t.what} {t.batch}" for t in self.tasks)
            raise InputError(
                f"the batch axes of targets do not broadcast against each other: {batch}"
            ) from None
        if plan not in self._functions:
            self._functions[plan] = function(
                model,
                "inverse_kinematics_step",
                f"{digest(model)} {plan!r}",
                lambda: kernel(model, plan),
                self.robot.engine,
            )
        numbers: list[Any] = [0.0, self.damping]
        if any(plan.velocity):
            numbers += self._bounds[0].tolist()
        if any(plan.acceleration):
            numbers += [*self._bounds[1].tolist(), *[0.0] * model.nv]
        self._before = slice(len(numbers) - model.nv, len(numbers))
        rows = np.empty((*shape, plan.size(model)))
        rows[..., : len(numbers)] = numbers
        place = len(numbers)
        self._places: list[int] = []
        for task, term in zip(self.tasks, terms, strict=True):
            self._places.append(place)
            place = _lay(rows, place, task, term)
        fixed = [x for own in self._numbers for x in own]
        rows[..., place : place + len(fixed)] = fixed
        self._clear_place = place + len(fixed)
        self._rows, self._step, self._terms = rows, self._functions[plan], terms
        self._versions = [t.version for t in self.tasks]
        self._settings = [t.settings for t in self.tasks]
        self._batches = [t.batch for t in self.tasks]
        # one robot whose numbers all are in the row needs nothing but a native call
        self._alone = rows.ndim == 1 and not self._clear and isinstance(self._step, Compiled)
        self._entry: Any = None

    def _renew(self) -> None:
        """Lays the numbers of tasks out that were changed; all, if they are of another kind or
        shape now.
        """
        for k, task in enumerate(self.tasks):
            if task.version != self._versions[k]:
                if task.settings == self._settings[k]:
                    task.write(self._rows, self._places[k], self._terms[k])
                else:
                    term, batch = task.term(self.robot.model), task.batch
                    if term != self._terms[k] or batch != self._batches[k]:
                        return self._prepare()
                    _lay(self._rows, self._places[k], task, term)
                    self._settings[k] = task.settings
                self._versions[k] = task.version
        return None

    def step(self, q: Numbers, dt: Numbers, v: Numbers | None = None) -> VelocityStep:
        """From q (…, nq), in dt seconds; `v` (…, nv) is the velocity before, which limits of
        acceleration need.
        """
        for task, version in zip(self.tasks, self._versions, strict=True):
            if task.version != version:
                self._renew()
                break
        if self._alone and type(q) is np.ndarray and isinstance(dt, float) and dt > 0.0:
            found = self._one(q, dt, v)
            if found is not None:
                return found
        return self._many(q, dt, v)

    def _one(self, q: np.ndarray, dt: float, v: Any) -> VelocityStep | None:
        """The step of one robot from arrays that need no conversion; None where they do."""
        row = self._rows.copy()  # of this call alone: others may run beside it
        row[0] = dt
        if self._accelerates:
            if type(v) is not np.ndarray or v.shape != (self._nv,) or v.dtype != np.float64:
                return None
            row[self._before] = v
        entry = self._entry
        if entry is None:
            entry = self._entry = self._step.single()
        after, velocity, solved = np.empty(self._nq), np.empty(self._nv), np.empty(1)
        if not entry(q, row, after, velocity, solved):
            return None
        return VelocityStep(velocity, after, solved[0] == 1.0)

    def _many(self, q: Any, dt: Any, v: Any) -> VelocityStep:
        """Any arrays: checked, converted, broadcast."""
        model = self.robot.model
        q, back = arrays.to_numpy("q", q)
        if q.ndim < 1 or q.shape[-1] != model.nq:
            raise InputError(
                f"q has shape {q.shape}; expected (…, {model.nq}), with any batch axes in front"
            )
        if self._accelerates and v is None:
            raise InputError("limits of acceleration need the velocity before: step(q, dt, v)")
        before = arrays.to_numpy("v", v)[0] if self._accelerates else None
        if before is not None and (before.ndim < 1 or before.shape[-1] != model.nv):
            raise InputError(
                f"v has shape {before.shape}; expected (…, {model.nv}), with any batch axes in"
                " front"
            )
        period = arrays.to_numpy("dt", dt)[0]
        if not (period > 0).all():
            raise InputError("dt must be positive")
        batch = [
            q.shape[:-1],
            period.shape,
            self._rows.shape[:-1],
            () if before is None else before.shape[:-1],
        ]
        try:
            shape = np.broadcast_shapes(*batch) if any(batch) else ()
        except ValueError:
            raise InputError(
                "the batch axes of q, dt, targets and v do not broadcast against each other:"
                f" {batch}"
            ) from None
        n = math.prod(shape)
        # one row is two, and runs on the kernel for many: no other is compiled for it
        rows, begin = np.empty((*shape, self._rows.shape[-1])), np.empty((*shape, model.nq))
        rows[...], begin[...] = self._rows, q
        rows[..., 0] = period
        if before is not None:
            rows[..., self._before] = before
        inputs = begin.reshape(n, model.nq), rows.reshape(n, rows.shape[-1])
        place = self._clear_place
        for limit, count in self._clear if n else ():
            given = limit.rows(self.robot, inputs[0], count).reshape(n, -1)
            inputs[1][:, place : place + given.shape[1]] = given
            place += given.shape[1]
        if n == 1:
            inputs = inputs[0].repeat(2, axis=0), inputs[1].repeat(2, axis=0)
        after, velocity, solved = (
            self._step(*inputs) if n else (np.empty((0, k)) for k in (model.nq, model.nv, 1))
        )
        velocity, after = (
            velocity[:n].reshape(*shape, model.nv),
            after[:n].reshape(*shape, model.nq),
        )
        if q.dtype == np.float32:
            velocity, after = velocity.astype(np.float32), towards(model, after)
        found = VelocityStep(velocity, after, (solved[:n, 0] == 1.0).reshape(shape))
        return VelocityStep(*(back(x) for x in found)) if back else found


def _lay(rows: np.ndarray, place: int, task: Task, term: Term) -> int:
    """Writes the numbers of a task; where the next ones begin."""
    rows[..., place : place + term.size] = task.numbers(term)
    place += term.size
    roots = task.roots(term)
    rows[..., place : place + len(roots)] = roots
    rows[..., place + len(roots)] = _gain(task.gain)
    return place + len(roots) + 1


def _least(model: Model, values: list[np.ndarray]) -> np.ndarray:
    least: np.ndarray = np.min([np.full(model.nv, np.inf), *values], axis=0)
    return least


def _per_freedom(what: str, model: Model, value: Any) -> np.ndarray:
    if isinstance(value, Mapping):
        result = np.full(model.nv, np.inf)
        own = {j.name: slice(j.v, j.v + j.nv) for j in model.joints if not j.is_mimic}
        for name, limit in value.items():
            if name not in own:
                raise unknown_name("joint", name, own)
            result[own[name]] = _number(what, limit)
        value = result
    try:
        array = np.broadcast_to(np.asarray(value, dtype=float), (model.nv,))
    except (TypeError, ValueError):
        raise InputError(
            f'{what} is {value!r}; it is a number, {model.nv} of them, or {{"joint": number}}'
        ) from None
    if not (array > 0).all():
        raise InputError(f"{what} must be positive")
    return array


def _number(what: str, value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | np.number)
        or math.isnan(float(value))
    ):
        raise InputError(f"{what} is {value!r}; it is a number")
    return float(value)


def _gain(value: Any) -> float:
    gain = _number("a gain", value)
    if not 0 < gain <= 1:
        raise InputError(f"a gain is {value!r}; it is above 0, and up to 1")
    return gain
