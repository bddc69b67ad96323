"""Inverse kinematics: what users ask for, checked and laid out in rows; the search; and what comes
back.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.ik.search import Advance, Found, Refused, nothing, search, search_one, settled
from rigidgrad.ik.several import several
from rigidgrad.ik.starts import BLOCK, BLOCKS, configurations, nearest
from rigidgrad.ik.step import RULES, STEPS, Aim, advance
from rigidgrad.ik.tasks import Frame, Posture, Task
from rigidgrad.kernels.interpret import interpret
from rigidgrad.kernels.language import Kernel
from rigidgrad.model.model import Model
from rigidgrad.model.tool_frame import tool_frame
from rigidgrad.runtime import arrays
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.job import Job, digest

Shape = tuple[int, ...]
Rules = tuple[float, float, float]  # the end of a target's numbers
_PIECE = 8192  # targets that are searched for together: their rows stay in the cache
_SKEW = 1e-8  # the sum of squares by which a matrix may differ from a rotation
_RANDOM = 1 << 16  # points between the further starts of one seed and the next
_SINGLE = 6e-7  # by which rounding q to float32 moves frames, in metres and radians
_ROUNDS = 64  # at most, of a start that runs to its end in one call


class InverseKinematics(NamedTuple):
    """Configurations and how near they come, with the batch axes of the targets (and one for `best`
    solutions).
    """

    q: np.ndarray
    """(…, nq), within the limits; NaN where a target is NaN."""
    success: np.ndarray
    """(…): both errors are within the tolerance."""
    error: np.ndarray
    """(…): the larger of both errors' numbers."""
    iterations: np.ndarray
    """(…): steps from the start that led to q."""
    position_error: np.ndarray
    """(…), metres; the largest of several frames."""
    rotation_error: np.ndarray
    """(…), radians."""


class Choice(NamedTuple):
    """Which solutions are wanted."""

    best: int
    seed: int
    refused: Refused | None


class Solver:
    """Compiled kernels for tasks of one kind; targets are numbers."""

    def __init__(self, model: Model, aim: Aim, engine: str):
        self.model, self.aim = model, aim
        self.library = configurations(model, 0, BLOCKS * BLOCK)
        identity = f"{digest(model)} {aim!r}"
        made = hashlib.sha256(self.library.tobytes()).hexdigest()
        self.advance: Advance = function(
            model, "inverse_kinematics", f"{identity} 1", lambda: advance(model, aim, 1), engine
        )
        self.finish: Advance = function(
            model,
            "inverse_kinematics",
            f"{identity} {_ROUNDS}",
            lambda: advance(model, aim, _ROUNDS),
            engine,
        )
        self.nearest = function(
            model,
            "inverse_kinematics_starts",
            f"{identity} {made}",
            lambda: nearest(model, aim, self.library),
            engine,
        )
        self._tables: dict[tuple[int, int], np.ndarray] = {}

    def order(self, targets: np.ndarray, seed: int) -> np.ndarray:
        """Which configurations of the library the first starts of each target are, (N, BLOCKS); and
        checks that matrices are rotations.
        """
        n = len(targets)
        padded = (
            targets if n >= 8 else np.concatenate([targets, np.zeros((8 - n, targets.shape[1]))])
        )
        near, skew = self.nearest(padded)
        if (skew[:n] > _SKEW).any():
            bad = int(np.flatnonzero(skew[:n, 0] > _SKEW)[0])
            raise InputError(
                f"the upper left 3x3 part of a target must be a rotation; in row {bad} it is none"
            )
        near = near[:n].astype(int)
        return np.roll(near, -(seed % BLOCKS), axis=1) if seed else near

    def table(self, count: int, seed: int) -> np.ndarray:
        """The library, and further points for starts up to `count`."""
        key = (max(0, count - BLOCKS), seed)
        if key not in self._tables:
            more = configurations(self.model, len(self.library) + seed * _RANDOM, key[0])
            self._tables = {key: np.concatenate([self.library, more])}
        return self._tables[key]

    def run(
        self,
        targets: np.ndarray,
        given: np.ndarray | None,
        count: int,
        choice: Choice,
        own: np.ndarray | None,
    ) -> Found:
        """`given` (N, k, nq): the first starts of each target; `own` (N, nq): where the user
        begins, whose base further starts share.
        """
        model = self.model
        first = 0 if given is None else given.shape[1]
        drawn = max(0, count - first)
        near, table = self.order(targets, choice.seed), self.table(drawn, choice.seed)
        further = len(self.library) - BLOCKS
        base = (
            model.joints[0]
            if own is not None and model.joints and model.joints[0].kind.flies
            else None
        )

        def own_starts(rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
            return table[
                np.where(
                    numbers < BLOCKS, near[rows, np.minimum(numbers, BLOCKS - 1)], numbers + further
                )
            ]

        def starts(rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
            if given is None:
                return own_starts(rows, numbers)
            mine = numbers < first
            q = np.empty((len(rows), model.nq))
            q[mine] = given[rows[mine], numbers[mine]]
            q[~mine] = own_starts(rows[~mine], numbers[~mine] - first)
            if base is not None and own is not None:
                place = slice(base.q, base.q + base.kind.plain)
                q[~mine, place] = own[rows[~mine], place]
            return q

        if choice.best > 1:
            return several(
                self.model,
                self.advance,
                targets,
                starts,
                first + drawn,
                choice.best,
                own,
                choice.refused,
            )
        if len(targets) == 1 and targets[0, -1] <= _ROUNDS * STEPS:
            found = search_one(self.finish, targets, starts, first + drawn, choice.refused)
        else:
            found = search(self.advance, targets, starts, first + drawn, choice.refused)
        return settled(self.advance, targets, found, choice.refused)


def function(
    model: Model, name: str, identity: str, build: Callable[[], Kernel], engine: str
) -> Callable[..., Any]:
    """A kernel of rows as a function of arrays, for a robot of that engine."""
    if engine == "numpy":
        return _Interpreted(build())
    return Compiled(Job(name, model.name, identity, build), dtype="float64")


class _Interpreted:
    """A kernel run by NumPy, for robots of that engine."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel

    def __call__(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(
            interpret(self.kernel, dict(zip(self.kernel.inputs, inputs, strict=True))).values()
        )


def inverse_kinematics(
    model: Model,
    solver: Callable[[Aim], Solver],
    targets: Any,
    start: Any,
    *,
    weights: Any,
    free: Any,
    posture: Any,
    tolerance: Any,
    seeds: Any,
    best: Any,
    reject: Any,
    iterations: Any,
    seed: Any,
) -> InverseKinematics:
    """`Robot.inverse_kinematics`; `solver` makes or finds what is compiled for tasks of one
    kind.
    """
    tasks = listed(model, targets, weights, free)
    terms = [t.term(model) for t in tasks]
    inputs: dict[str, np.ndarray] = {}
    back = next((t.back for t in tasks if t.back is not None), None)
    batch = [t.batch for t in tasks]
    for name, value in (("start", start), ("posture", posture)):
        if value is not None:
            inputs[name], own_back = _configurations(model, name, value)
            back = back or own_back
            batch.append(inputs[name].shape[:-1])
    fixed = None
    if not _is_count(seeds):
        fixed, own_back = _configurations(model, "seeds", seeds)
        back = back or own_back
        if fixed.ndim < 2 or not fixed.shape[-2]:
            raise InputError(
                f"seeds has shape {fixed.shape}; it is a number of starts, or starts (…, starts,"
                f" {model.nq})"
            )
        batch.append(fixed.shape[:-2])
    count = (
        _whole("seeds", seeds, 1, _RANDOM)
        if fixed is None
        else fixed.shape[-2] + (start is not None)
    )
    choice = Choice(
        _whole("best", best, 1, count), _whole("seed", seed, 0), _refusing(model, reject)
    )
    try:
        shape = np.broadcast_shapes(*batch) if any(batch) else ()
    except ValueError:
        raise InputError(
            "the batch axes of targets, start, posture and seeds do not broadcast against each"
            f" other: {', '.join(map(str, batch))}"
        ) from None
    everything = (
        [t.target for t in tasks] + list(inputs.values()) + ([fixed] if fixed is not None else [])
    )
    dtype = np.dtype(np.float32 if all(x.dtype == np.float32 for x in everything) else np.float64)

    rules = _rules(
        tolerance, _whole("iterations", iterations, 1), _SINGLE if dtype == np.float32 else 0.0
    )
    n = math.prod(shape)
    aim = Aim(terms, posture is not None)
    rows = _rows(model, tasks, terms, inputs.get("posture"), shape, aim, rules)
    begin = (
        None
        if start is None
        else _inside(
            model, np.broadcast_to(inputs["start"], (*shape, model.nq)).reshape(n, model.nq)
        )
    )
    given = None if begin is None else begin[:, None]
    if fixed is not None:
        more = np.broadcast_to(fixed, (*shape, *fixed.shape[-2:])).reshape(
            n, fixed.shape[-2], model.nq
        )
        given = _inside(model, more if given is None else np.concatenate([given, more], axis=1))
    found = _searched(solver(aim), rows, given, count, choice, begin)
    return _result(model, found, shape if choice.best == 1 else (*shape, choice.best), dtype, back)


def listed(model: Model, targets: Any, weights: Any = None, free: Any = None) -> list[Task]:
    """Tasks of a pose or point of the tool, of {"frame": pose, point or task}, of one task, or of
    several.
    """
    if isinstance(targets, Task):
        tasks = [targets]
    elif isinstance(targets, Mapping):
        tasks = [_framed(frame, target, weights, free) for frame, target in targets.items()]
    elif isinstance(targets, Sequence) and targets and all(isinstance(t, Task) for t in targets):
        tasks = list(targets)
    else:
        tasks = [_framed(tool_frame(model), targets, weights, free)]
    if not tasks:
        raise InputError(
            'there is nothing to reach: targets are a pose, {"frame": pose or point}, or tasks of'
            " rg.ik"
        )
    if any(isinstance(t, Posture) for t in tasks):
        raise InputError("rg.ik.Posture is a task of rg.ik.Velocity; here, posture= is")
    plain = isinstance(targets, Mapping) or not isinstance(targets, Task | Sequence)
    for what, value in (("weights", weights), ("free", free)):
        if value is None:
            continue
        if isinstance(targets, Task) or (not plain and all(isinstance(t, Task) for t in targets)):
            raise InputError(
                f"tasks of rg.ik say {what} of their own:"
                f" {'weight' if what == 'weights' else what}="
            )
        if isinstance(value, Mapping):
            for name in value:
                if not isinstance(targets, Mapping) or name not in targets:
                    raise InputError(f"{what} names {name!r}, which is not among the targets")
    return tasks


def _framed(frame: Any, target: Any, weights: Any, free: Any) -> Task:
    if isinstance(target, Task):
        raise InputError(
            f"a task of rg.ik names its own frame: give a list of tasks, not {{{frame!r}: task}}"
        )
    weight = (
        weights.get(frame, 1.0)
        if isinstance(weights, Mapping)
        else (1.0 if weights is None else weights)
    )
    axes = free.get(frame, ()) if isinstance(free, Mapping) else (() if free is None else free)
    return Frame(frame, target, weight=weight, free=axes)


def _rows(
    model: Model,
    tasks: list[Task],
    terms: list[Any],
    posture: np.ndarray | None,
    shape: Shape,
    aim: Aim,
    rules: Rules,
) -> np.ndarray:
    """The numbers of all targets, (N, size)."""
    rows = np.empty((*shape, aim.size(model)))
    column = 0
    for task, term in zip(tasks, terms, strict=True):
        rows[..., column : column + term.size] = task.numbers(term)
        column += term.size
        if term.weighted:
            roots = task.roots(term)
            rows[..., column : column + len(roots)] = roots
            column += len(roots)
    if posture is not None:
        rows[..., column : column + model.nq] = posture
    rows[..., -RULES:] = rules
    return rows.reshape(math.prod(shape), rows.shape[-1])


def _searched(
    solver: Solver,
    rows: np.ndarray,
    given: np.ndarray | None,
    count: int,
    choice: Choice,
    begin: np.ndarray | None,
) -> Found:
    """The search, piece by piece, of all targets that are numbers."""
    n, nq = len(rows), solver.model.nq
    if n == 1 and given is None and np.isfinite(rows).all():
        return solver.run(rows, given, count, choice, begin)
    fine = np.isfinite(rows).all(axis=1)
    if given is not None:
        fine &= np.isfinite(given).all(axis=(1, 2))
    best = choice.best
    piece = max(1, _PIECE // (count if best > 1 else 1))
    if n <= piece and fine.all():
        return solver.run(rows, given, count, choice, begin) if n else nothing(0, nq)
    found = nothing(n * best, nq)
    where = np.flatnonzero(fine)
    for k in range(0, len(where), piece):
        part = where[k : k + piece]
        some = solver.run(
            rows[part],
            None if given is None else given[part],
            count,
            choice,
            None if begin is None else begin[part],
        )
        for whole, mine in zip(found, some, strict=True):
            whole.reshape(n, best, *whole.shape[1:])[part] = mine.reshape(
                len(part), best, *mine.shape[1:]
            )
    return found


def _result(
    model: Model, found: Found, shape: Shape, dtype: np.dtype, back: Any
) -> InverseKinematics:
    position = np.sqrt(found.left[:, 0])
    rotation = 2 * np.arcsin(np.minimum(1.0, 0.5 * np.sqrt(found.left[:, 1])))
    q = found.q
    if dtype == np.float32:
        q = towards(model, q)
    numbers = (
        q.reshape(*shape, model.nq),
        found.arrived.reshape(shape),
        np.maximum(position, rotation).astype(dtype, copy=False).reshape(shape),
        found.steps.reshape(shape),
        position.astype(dtype, copy=False).reshape(shape),
        rotation.astype(dtype, copy=False).reshape(shape),
    )
    return InverseKinematics(*(map(back, numbers) if back else numbers))


def towards(model: Model, q: np.ndarray) -> np.ndarray:
    """q as float32, within the limits still."""

    def rounded(limit: np.ndarray, inside: float) -> np.ndarray:
        near = limit.astype(np.float32)
        out = near.astype(float) < limit if inside > 0 else near.astype(float) > limit
        return np.where(out, np.nextafter(near, np.float32(inside)), near)

    with np.errstate(over="ignore"):
        return np.clip(
            q.astype(np.float32),
            rounded(model.limits.lower, np.inf),
            rounded(model.limits.upper, -np.inf),
        )


def _inside(model: Model, q: np.ndarray) -> np.ndarray:
    """Starts within the limits."""
    inside: np.ndarray = np.clip(q, model.limits.lower, model.limits.upper)
    return inside


def _configurations(model: Model, name: str, value: Any) -> tuple[np.ndarray, Any]:
    array, back = arrays.to_numpy(name, value)
    if array.ndim < 1 or array.shape[-1] != model.nq:
        raise InputError(
            f"{name} has shape {array.shape}; expected (…, {model.nq}), with any batch axes in"
            " front"
        )
    return array, back


def _rules(tolerance: Any, iterations: int, rounding: float) -> Rules:
    """`rounding` is what is left of the tolerance for that of results."""
    try:
        given = np.array(tolerance, dtype=float)
    except (TypeError, ValueError):
        given = np.array(np.nan)
    pair = (
        given.tolist()
        if given.shape == (2,)
        else [given.item()] * 2
        if given.shape == ()
        else [math.nan]
    )
    if not all(x > 0 for x in pair):
        raise InputError(
            f"tolerance is {tolerance!r}; it is a positive number, or a pair (metres, radians)"
        )
    position, rotation = (max(x - rounding, x / 4) for x in pair)
    return position**2, (2 * math.sin(min(rotation, math.pi) / 2)) ** 2, float(iterations)


def _is_count(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return np.ndim(value) == 0
    return True


def _whole(name: str, value: Any, least: int, most: float = math.inf) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        count = least - 1
    if not least <= count <= most:
        bounds = f"at least {least}" if most == math.inf else f"from {least} to {most:.0f}"
        raise InputError(
            f"{name} is {value!r}; it is a whole number,"
            f" {bounds}{' (seeds)' if name == 'best' and count > most else ''}"
        )
    return count


def _refusing(model: Model, reject: Any) -> Refused | None:
    """A user's function of configurations, whose answers are checked."""
    if reject is None:
        return None
    if not callable(reject):
        raise InputError(
            f"reject is a function of configurations (N, {model.nq}), not {type(reject).__name__}"
        )

    def refused(q: np.ndarray) -> np.ndarray:
        answer = np.asarray(reject(q))
        if answer.shape != q.shape[:1] or answer.dtype != bool:
            raise InputError(
                f"reject gave {answer.dtype}{answer.shape} for {len(q)} configurations; it gives"
                f" one truth value for each, bool({len(q)},)"
            )
        return answer

    return refused
