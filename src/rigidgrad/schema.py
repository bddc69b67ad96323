"""What a task file may hold: tables of named keys, each with the kind of value that it takes. An
error names the key, what came and what was needed.

The keys of a table that stands for an object come from the constructor of its class (`keys_of`), so
that files and Python have the same names and defaults.
"""

from __future__ import annotations

import datetime
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rigidgrad.errors import UsageError, unknown_name
from rigidgrad.model.xml import LARGEST

_SHOWN = 60  # characters of a wrong value


class TaskError(UsageError):
    """Something in a task file that is wrong; the message names the file and the key."""


class Mismatch(Exception):
    """A value that is not of its kind."""


class Where(NamedTuple):
    """A place in a file: `arm.toml`, and `costs[1].weight` in it."""

    file: str
    key: str = ""

    def __truediv__(self, key: str | int) -> Where:
        if isinstance(key, int):
            return Where(self.file, f"{self.key}[{key}]")
        return Where(self.file, f"{self.key}.{key}" if self.key else key)

    def error(self, problem: object) -> TaskError:
        return TaskError(
            f"{self.file}: {self.key}: {problem}" if self.key else f"{self.file}: {problem}"
        )


@dataclass(frozen=True)
class Kind:
    """What a value must be, in words, and how it is read: `read` gives the value, or raises
    Mismatch, or a TaskError that says more.
    """

    words: str
    read: Callable[[Where, Any], Any]

    def __or__(self, other: Kind) -> Kind:
        def read(where: Where, value: Any) -> Any:
            try:
                return self.read(where, value)
            except Mismatch:
                return other.read(where, value)

        return Kind(f"{self.words}, or {other.words}", read)

    def then(self, convert: Callable[[Any], Any]) -> Kind:
        """The same in a file; the value is what `convert` makes of it."""
        return Kind(self.words, lambda where, value: convert(self.read(where, value)))

    def of_robot(self, convert: Callable[[Any, Any, Any], Any]) -> Kind:
        """The same in a file; what the value means is known once there is a robot."""
        return self.then(lambda value: OfRobot(value, convert))


class OfRobot(NamedTuple):
    """A value that stands for `convert(value, robot, start)`, with the state (nx,) that a task
    starts from.
    """

    value: Any
    convert: Callable[[Any, Any, Any], Any]


def resolved(value: Any, robot: Any, start: Any) -> Any:
    """A value with all that depends on the robot put in."""
    if isinstance(value, OfRobot):
        return value.convert(resolved(value.value, robot, start), robot, start)
    if isinstance(value, list):
        return [resolved(x, robot, start) for x in value]
    if isinstance(value, dict):
        return {name: resolved(x, robot, start) for name, x in value.items()}
    return value


class Key(NamedTuple):
    """A key of a table: its kind, what it is if left out, and a line about it."""

    kind: Kind
    default: Any = None
    required: bool = False
    about: str = ""


Keys = Mapping[str, Key]


def required(kind: Kind) -> Key:
    return Key(kind, required=True)


def keys_of(made: type) -> dict[str, Key]:
    """The keys of a table that stands for an object: the arguments of its constructor that are
    annotated as `Annotated[…, kind, "a line about it"]`.
    """
    keys = {}
    for name, argument in inspect.signature(made, eval_str=True).parameters.items():
        match getattr(argument.annotation, "__metadata__", ()):
            case (Kind() as kind, str(about)):
                needed = argument.default is argument.empty
                keys[name] = Key(kind, None if needed else argument.default, needed, about)
    return keys


def is_described_by_keys(made: type) -> bool:
    """Whether a table can stand for such an object: not where an argument that it needs is for
    Python alone.
    """
    keys = keys_of(made)
    return all(
        name in keys
        for name, a in inspect.signature(made).parameters.items()
        if a.default is a.empty
    )


def read_table(where: Where, value: Any, keys: Keys, what: str = "") -> dict[str, Any]:
    """All keys of a table, those left out at their defaults."""
    if not isinstance(value, Mapping):
        raise Mismatch
    for name in value:
        if name not in keys:
            raise where.error(
                unknown_name(
                    f"key of {what or f'[{where.key}]' if where.key else 'a task'}", name, keys
                )
            )
    result = {}
    for name, key in keys.items():
        if name in value:
            result[name] = read_value(where / name, value[name], key.kind)
        elif key.required:
            raise where.error(f"{name!r} is missing: it is {key.kind.words}")
        else:
            result[name] = key.default
    return result


def read_value(where: Where, value: Any, kind: Kind) -> Any:
    try:
        return kind.read(where, value)
    except Mismatch:
        raise where.error(f"this is {shown(value)}; it must be {kind.words}") from None


def shown(value: Any) -> str:
    """A wrong value, as the file has it, with its type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return f"a table with {', '.join(map(repr, value)) or 'nothing in it'}"
    if isinstance(value, datetime.date | datetime.time):
        return f"the date or time {value}"
    if isinstance(value, int) and abs(value) > 10**_SHOWN:
        return f"a number of {value.bit_length()} bits"
    text = (
        f'"{value}"'
        if isinstance(value, str)
        else str(value)
        if not isinstance(value, list)
        else _shown_array(value)
    )
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _shown_array(value: list[Any]) -> str:
    """Its beginning: an array may be long, and nested."""
    some = ", ".join("[…]" if isinstance(x, list) else shown(x) for x in value[:_SHOWN])
    return f"[{some}]"


# --- kinds of values ------------------------------------------------------------------------------


def _is_number(where: Where, value: Any) -> bool:
    """Finite, and of a size that can be computed with: a whole number in TOML may have any."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or (isinstance(value, float) and not math.isfinite(value))
    ):
        return False
    if abs(value) > LARGEST:
        raise where.error(f"this is {shown(value)}; numbers go up to {LARGEST:g}")
    return True


def number(
    *, least: float | None = None, above: float | None = None, most: float | None = None
) -> Kind:
    """A finite number within bounds."""
    bounds = [
        f"{word} {bound:g}"
        for word, bound in (("at least", least), ("above", above), ("at most", most))
        if bound is not None
    ]

    def read(where: Where, value: Any) -> float:
        fits = (
            _is_number(where, value)
            and (least is None or value >= least)
            and (above is None or value > above)
            and (most is None or value <= most)
        )
        if not fits:
            raise Mismatch
        return float(value)

    return Kind(" ".join(["a number", " and ".join(bounds)]).strip(), read)


def whole(least: int, most: int = 1_000_000_000) -> Kind:
    def read(where: Where, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise Mismatch
        return value

    return Kind(f"a whole number of at least {least} and at most {most:,}", read)


def _read_flag(where: Where, value: Any) -> bool:
    if not isinstance(value, bool):
        raise Mismatch
    return value


def _read_text(where: Where, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Mismatch
    return value


def _read_true(where: Where, value: Any) -> bool:
    if value is not True:
        raise Mismatch
    return True


flag = Kind("true or false", _read_flag)
text = Kind("a text in quotes", _read_text)
own = Kind("true for the robot's own", _read_true)


def word(*choices: str) -> Kind:
    """One of several words; the error for another one names the nearest."""

    def read(where: Where, value: Any) -> str:
        if not isinstance(value, str):
            raise Mismatch
        if value not in choices:
            raise where.error(unknown_name("choice", value, choices))
        return value

    return Kind(
        f"one of {', '.join(map(repr, choices))}" if len(choices) > 1 else repr(choices[0]), read
    )


def file(suffix: str) -> Kind:
    """A file of one kind only: a task must not name a start-up file of the shell's, say, as its
    report.
    """

    def read(where: Where, value: Any) -> str:
        if not isinstance(value, str) or not value.endswith(suffix) or "\0" in value:
            raise Mismatch
        return value

    return Kind(f"a file's name in quotes that ends in {suffix}", read)


def only(choice: str) -> Kind:
    """A single word, beside other kinds."""

    def read(where: Where, value: Any) -> str:
        if value != choice:
            raise Mismatch
        return choice

    return Kind(f'"{choice}"', read)


def numbers(count: int | None = None, *, least: float | None = None) -> Kind:
    """An array of finite numbers."""
    words = ("an array of numbers" if count is None else f"an array of {count} numbers") + (
        "" if least is None else f", each at least {least:g}"
    )

    def read(where: Where, value: Any) -> list[float]:
        if not isinstance(value, list) or not value or (count is not None and len(value) != count):
            raise Mismatch
        if not all(_is_number(where, x) and (least is None or x >= least) for x in value):
            raise Mismatch
        return [float(x) for x in value]

    return Kind(words, read)


def matrix(rows: int | None = None, columns: int | None = None) -> Kind:
    """An array of equally long rows of numbers."""
    size = (
        f" of {rows or 'any number of'} rows" + (f" with {columns} numbers each" if columns else "")
        if rows or columns
        else ""
    )

    def read(where: Where, value: Any) -> list[list[float]]:
        if (
            not isinstance(value, list)
            or not value
            or not all(isinstance(row, list) for row in value)
        ):
            raise Mismatch
        if (
            (rows and len(value) != rows)
            or len({len(row) for row in value}) != 1
            or (columns and len(value[0]) != columns)
        ):
            raise Mismatch
        if not all(_is_number(where, x) for row in value for x in row):
            raise Mismatch
        return [[float(x) for x in row] for row in value]

    return Kind(f"a matrix{size}, as an array of arrays", read)


def table(keys: Keys) -> Kind:
    return Kind("a table", lambda where, value: read_table(where, value, keys))


def table_of(kind: Kind) -> Kind:
    """A table with any keys, whose values are of one kind."""

    def read(where: Where, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Mismatch
        return {name: read_value(where / name, x, kind) for name, x in value.items()}

    return Kind(f"a table of names, each with {kind.words}", read)


def tables(keys: Keys) -> Kind:
    """An array of tables with the same keys."""

    def read(where: Where, value: Any) -> list[dict[str, Any]]:
        if not isinstance(value, list) or not all(isinstance(x, Mapping) for x in value):
            raise Mismatch
        return [read_table(where / k, x, keys) for k, x in enumerate(value)]

    return Kind("an array of tables", read)


def objects(made: type) -> Kind:
    """An array of tables, each of which stands for an object."""
    return tables(keys_of(made)).of_robot(lambda rows, robot, start: [made(**row) for row in rows])


def variant(what: str, variants: Mapping[str, Keys], default: str | None = None) -> Kind:
    """A table whose key `type` says which other keys it has; the result has `type`, too."""

    def read(where: Where, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Mismatch
        if "type" not in value and default is None:
            raise where.error(f"'type' is missing: it is one of {', '.join(map(repr, variants))}")
        kind = value.get("type", default)
        if not isinstance(kind, str):
            raise (where / "type").error(
                f"this is {shown(kind)}; it must be one of {', '.join(map(repr, variants))}"
            )
        if kind not in variants:
            raise (where / "type").error(unknown_name(f"type of {what}", kind, variants))
        return read_table(
            where,
            value,
            {"type": Key(text, kind), **variants[kind]},
            what=f"{what} of type {kind!r}",
        )

    return Kind(f"a table with a type ({', '.join(variants)})", read)


def array_of(kind: Kind) -> Kind:
    """An array, with every entry of one kind."""

    def read(where: Where, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise Mismatch
        return [read_value(where / k, x, kind) for k, x in enumerate(value)]

    return Kind(f"an array, each entry {kind.words}", read)
