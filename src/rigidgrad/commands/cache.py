"""`rigidgrad cache`: what is compiled, and where it lies."""

from __future__ import annotations

import argparse
import textwrap
import time
from itertools import groupby
from typing import Any

from rigidgrad.commands.terminal import add_output, show, table

_WIDE = 50  # characters of the functions that are named


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "cache",
        help="show or clear compiled code",
        description="Compiled code is kept on disk for the next process.",
    )
    parser.add_argument(
        "action",
        nargs="?",
        choices=("show", "clear"),
        default="show",
        help="show (default) or clear",
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    from rigidgrad.runtime import cache

    folder = cache.folder()
    if arguments.action == "clear":
        removed = cache.clear()
        text = (
            f"removed {_entries(removed)} from {folder}" if folder else "the cache is switched off"
        )
        show(arguments, {"folder": folder, "removed": removed}, text)
        return
    entries = sorted(cache.contents(), key=lambda e: (e.robot, e.function))
    rows = [
        {
            "key": e.key,
            "robot": e.robot,
            "function": e.function,
            "bytes": e.bytes,
            "modified": e.modified,
        }
        for e in entries
    ]
    if folder is None:
        text = "the cache is switched off (RIGIDGRAD_CACHE)"
    else:
        text = f"{folder}: {_entries(len(entries))}, {sum(e.bytes for e in entries) / 1e6:.1f} MB"
    if entries:
        shown = [("robot", "entries", "functions", "kB", "last made")]
        for robot, of in groupby(entries, key=lambda e: e.robot):
            own = list(of)
            last = time.strftime("%Y-%m-%d %H:%M", time.localtime(max(e.modified for e in own)))
            some = textwrap.shorten(
                ", ".join(dict.fromkeys(e.function for e in own)), _WIDE, placeholder=" …"
            )
            shown.append(
                (
                    textwrap.shorten(robot or "-", 30, placeholder=" …"),
                    str(len(own)),
                    some,
                    f"{sum(e.bytes for e in own) / 1000:.0f}",
                    last,
                )
            )
        text += "\n\n" + table(shown, right=(1, 3))
    show(arguments, {"folder": folder, "entries": rows}, text)


def _entries(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"
