"""What commands share: their common options, and how they print tables, JSON and progress."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigidgrad.errors import InputError, printable
from rigidgrad.model.source import bundled

if TYPE_CHECKING:
    from rigidgrad.robot import Robot

_BAR = 24  # characters
_RULE = 60  # characters, at most, under the head of a column
_REDRAW = 0.1  # seconds


# --- options --------------------------------------------------------------------------------------


def add_output(parser: argparse.ArgumentParser) -> None:
    """What every command offers."""
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    parser.add_argument(
        "--quiet", action="store_true", help="print nothing but errors; the exit code tells"
    )


def add_robot(
    parser: argparse.ArgumentParser,
    default: str | None = None,
    *,
    tasks: bool = False,
    strict: bool | None = False,
) -> None:
    """A robot, and how it is loaded; `tasks`: it may be that of a task file. `strict`: whether
    impossible bodies are refused unless the user says so; None leaves it to the command.
    """
    said = (
        f"a URDF or MJCF file, {'a task file (.toml) for its robot, ' if tasks else ''}or one of"
        f" {', '.join(bundled())}"
    )
    if default is None:
        parser.add_argument("robot", help=said)
    else:
        parser.add_argument("robot", nargs="?", default=default, help=f"{said}; default: {default}")
    parser.add_argument(
        "--floating-base", action="store_true", help="put a free-flyer under the root link"
    )
    parser.add_argument(
        "--strict",
        action=argparse.BooleanOptionalAction,
        default=strict,
        help="refuse physically impossible bodies, or warn about them"
        + ("; default: warn" if strict is False else ""),
    )


def load_robot(arguments: argparse.Namespace) -> Robot:
    """The robot that `add_robot`'s options name."""
    from rigidgrad.robot import load

    return load(arguments.robot, floating_base=arguments.floating_base, strict=arguments.strict)


def positive(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """An option's type: a number above zero."""

    def read(text: str) -> Any:
        value = kind(text)
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(text)
        return value

    # argparse says: invalid … value
    read.__name__ = "positive whole number" if kind is int else "positive number"
    return read


# --- printing -------------------------------------------------------------------------------------


def show(arguments: argparse.Namespace, data: Any, text: str) -> None:
    """A result: for machines, for people, or for nobody."""
    if arguments.json:
        print(json.dumps(plain(data), indent=1), flush=True)
    elif not arguments.quiet:
        print(printable(text, keep="\n"), flush=True)


def complain(problem: object) -> None:
    """One line on stderr."""
    print(f"rigidgrad: {printable(problem)}", file=sys.stderr)


def in_words_of_options(text: str, options: Collection[str]) -> str:
    """Advice that is meant for Python, in the words of a command with these options: `html=` is
    `--html` there.
    """
    if "strict" in options:
        text = text.replace("load it with strict=False", "pass --no-strict")

    def option(said: re.Match[str]) -> str:
        if said[1] not in options:
            return said[0]
        value = said[2].strip("'\"")
        return f"--{said[1].replace('_', '-')}" + (f" {value}" if value not in ("", "True") else "")

    return re.sub(r"\b([a-z_]+)=('[^']*'|\"[^\"]*\"|\w*)", option, text)


def plain(value: Any) -> Any:
    """A result as JSON has it: arrays as lists, and null where a number is not finite."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


def table(
    rows: Iterable[Sequence[str]], *, head: bool = True, right: Sequence[int] = (), indent: str = ""
) -> str:
    """Aligned columns, those in `right` to the right; the first row is the head, underlined."""
    cells = [tuple(map(printable, row)) for row in rows]
    widths = [max(len(row[k]) for row in cells) for k in range(len(cells[0]))]
    lines = []
    for row in cells:
        padded = (
            c.rjust(w) if k in right else c.ljust(w)
            for k, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        lines.append((indent + "  ".join(padded)).rstrip())
    if head:
        lines.insert(1, indent + "  ".join("─" * min(w, _RULE) for w in widths))
    return "\n".join(lines)


def facts(pairs: Mapping[str, object]) -> str:
    """Names and values, one a line."""
    return table([(name, str(value)) for name, value in pairs.items()], head=False)


def seconds(value: float) -> str:
    """A time with a unit that suits it."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if value * factor >= 1 or unit == "µs":
            return f"{value * factor:.3g} {unit}"
    raise AssertionError


class Progress:
    """A bar on stderr, and only where that is a terminal: `with progress(arguments, "measuring",
    12) as step: … step()`.
    """

    def __init__(self, label: str, total: float, shown: bool):
        self.label, self.total, self.shown = label, total, shown
        self._done, self._drawn = 0.0, -math.inf

    def __enter__(self) -> Progress:
        self._draw("")
        return self

    def __exit__(self, *_: object) -> None:
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def __call__(self, note: str = "", *, by: float = 1.0) -> None:
        """So much more is done; `note` says what comes."""
        self._done += by
        self._draw(note)

    def _draw(self, note: str) -> None:
        now = time.monotonic()
        if not self.shown or now - self._drawn < _REDRAW:
            return
        self._drawn = now
        part = min(self._done / self.total, 1.0) if self.total else 1.0
        bar = ("█" * round(_BAR * part)).ljust(_BAR, "░")
        sys.stderr.write("\r\x1b[K" + printable(f"{self.label} {bar} {part:4.0%} {note}"))
        sys.stderr.flush()


def progress(arguments: argparse.Namespace, label: str, total: float) -> Progress:
    """A bar, unless the output is for machines or for nobody."""
    return Progress(
        label, total, sys.stderr.isatty() and not arguments.json and not arguments.quiet
    )


# --- files ----------------------------------------------------------------------------------------


def write_text(path: Path, text: str) -> Path:
    """Writes a file, or says why it cannot."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be written: {error.strerror}") from None
    return path
