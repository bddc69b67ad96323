"""Numbers of a robot's dynamics that are inputs of a problem: gravity, payloads, wrenches,
inertias. They may differ from knot to knot, and change at any time.

    {"gravity": (3,), "payload": {frame: mass, or {"mass": …, "offset": (3,)}}, "external": {link:
    wrench (6,)}, "inertia": (bodies, 10)}

Each number may be one per knot: (knots, 3), (knots,), …. A payload is a point mass; a wrench is
force first, on and in the frame of its link; inertias are m, m·c, Ixx Ixy Iyy Ixz Iyz Izz of each
body at its origin, as `robot.compile(…, parameters=("inertia",))` has them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rigidgrad.algorithms.joints import External, Vector
from rigidgrad.control.numeric_input import numbers
from rigidgrad.errors import InputError, unknown_name
from rigidgrad.model.model import WORLD, Model
from rigidgrad.recorded import loaded, wrenches_on

KINDS = ("gravity", "payload", "external", "inertia")


@dataclass(frozen=True)
class Varied:
    """Which numbers vary; `bodies` is 0 where inertias do not. They lie in a row in this order."""

    gravity: bool = False
    payload: tuple[str, ...] = ()
    external: tuple[str, ...] = ()
    bodies: int = 0

    @classmethod
    def of(cls, model: Model, asked: Any) -> Varied:
        """What a user's parameters vary."""
        if not isinstance(asked, Mapping):
            raise InputError(
                f"parameters are a dict of {', '.join(KINDS)}, not {type(asked).__name__}"
            )
        for name in asked:
            if name not in KINDS:
                raise unknown_name("parameter", name, KINDS)
        for name in ("payload", "external"):
            for frame in _table(name, asked.get(name, {})):
                if model.frame(frame).body == WORLD:
                    raise InputError(
                        f"frame {frame!r} does not move, so that {name!r} on it changes nothing"
                    )
        return cls(
            "gravity" in asked,
            tuple(sorted(asked.get("payload", {}))),
            tuple(sorted(asked.get("external", {}))),
            len(model.joints) if "inertia" in asked else 0,
        )

    @property
    def count(self) -> int:
        return 3 * self.gravity + 4 * len(self.payload) + 6 * len(self.external) + 10 * self.bodies

    def __str__(self) -> str:
        named = [
            f"{kind} on {', '.join(names)}"
            for kind, names in (("payload", self.payload), ("wrench", self.external))
            if names
        ]
        return ", ".join(["gravity"] * self.gravity + named + ["inertias"] * (self.bodies > 0))

    def values(self, asked: Mapping[str, Any], knots: int) -> np.ndarray:
        """(knots, count)."""
        columns: list[np.ndarray] = []
        if self.gravity:
            columns.append(numbers("gravity", asked["gravity"], (knots, 3)))
        for frame in self.payload:
            load = asked["payload"][frame]
            load = load if isinstance(load, Mapping) else {"mass": load}
            if not {"mass"} <= set(load) <= {"mass", "offset"}:
                raise InputError(
                    f"the payload on {frame!r} is a mass, or a dict of 'mass' and 'offset'; this"
                    f" has {sorted(map(str, load))}"
                )
            mass = numbers(f"the mass of the payload on {frame!r}", load["mass"], (knots,))
            if (mass < 0).any():
                raise InputError(
                    f"the payload on {frame!r} has a mass of at least 0, not {mass.min():g}"
                )
            columns += [
                mass[:, None],
                numbers(
                    f"the offset of the payload on {frame!r}",
                    load.get("offset", (0.0, 0.0, 0.0)),
                    (knots, 3),
                ),
            ]
        columns += [
            numbers(f"the wrench on {link!r}", asked["external"][link], (knots, 6))
            for link in self.external
        ]
        if self.bodies:
            inertia = numbers("inertia", asked["inertia"], (knots, self.bodies, 10))
            if (inertia[:, :, 0] < 0).any():
                raise InputError("a body's mass, the first of its ten numbers, is not negative")
            columns.append(inertia.reshape(knots, 10 * self.bodies))
        return np.concatenate(columns, axis=1)

    def applied(self, model: Model, row: Vector) -> Model:
        """A model with the numbers of a row, but for wrenches. Without varied inertias it may be
        any that has the same dynamics and frames.
        """
        given = iter(row)
        if self.gravity:
            model = dataclasses.replace(model, gravity=_take(given, 3))
        loads = [(frame, *_take(given, 4)) for frame in self.payload]
        _take(given, 6 * len(self.external))
        if self.bodies:
            bodies = [_take(given, 10) for _ in range(self.bodies)]
            model = dataclasses.replace(
                model, inertias=tuple((x[0], x[1:4], x[4:]) for x in bodies)
            )
        for frame, mass, *offset in loads:
            model = loaded(model, frame, mass, offset)
        return model

    def wrenches(self, model: Model, row: Vector) -> External | None:
        """On the bodies of a model."""
        if not self.external:
            return None
        start = 3 * self.gravity + 4 * len(self.payload)
        return wrenches_on(
            model,
            {link: row[start + 6 * k : start + 6 * k + 6] for k, link in enumerate(self.external)},
        )


def merged(before: Mapping[str, Any], change: Any) -> dict[str, Any]:
    """Parameters with some of them changed; which ones there are stays as it is."""
    if not isinstance(change, Mapping):
        raise InputError(
            f"parameters are a dict of {', '.join(KINDS)}, not {type(change).__name__}"
        )
    result = dict(before)
    for kind, value in change.items():
        if kind not in before:
            raise InputError(
                f"{kind!r} is no parameter of this problem, which was recorded with"
                f" {', '.join(before) or 'none'}; make another one"
            )
        if kind in ("payload", "external"):
            for frame in _table(kind, value):
                if frame not in before[kind]:
                    raise InputError(
                        f"this problem has no {kind} on {frame!r}; it was recorded with"
                        f" {', '.join(before[kind])}: make another one"
                    )
            value = (
                with_loads(before[kind], value) if kind == "payload" else {**before[kind], **value}
            )
        result[kind] = value
    return result


def with_loads(before: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Payloads with some numbers of some of them changed: a mass alone leaves the offset as it
    is.
    """
    result = dict(before)
    for frame, load in change.items():
        known = before.get(frame)
        named = load if isinstance(load, Mapping) else {"mass": load}
        result[frame] = (
            {**known, **named}
            if isinstance(known, Mapping)
            else (
                {"mass": known, **named}
                if isinstance(load, Mapping) and known is not None
                else load
            )
        )
    return result


def leaves(tree: Any) -> Iterator[Any]:
    """The arrays of nested dicts."""
    if isinstance(tree, Mapping):
        for branch in tree.values():
            yield from leaves(branch)
    else:
        yield tree


def row_of(tree: Any, k: int) -> Any:
    """The same dicts with row k of each array."""
    return (
        {name: row_of(branch, k) for name, branch in tree.items()}
        if isinstance(tree, Mapping)
        else tree[k]
    )


def _table(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        what = "{frame: mass}" if name == "payload" else "{link: wrench}"
        raise InputError(f"{name!r} is a dict {what}, not {type(value).__name__}")
    return value


def _take(row: Iterator[Any], count: int) -> tuple[Any, ...]:
    return tuple(next(row) for _ in range(count))
