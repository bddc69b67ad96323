"""`rigidgrad cache`: what is compiled, and where it lies."""

from __future__ import annotations

import argparse
import time
from typing import Any

from rigidgrad.commands.terminal import add_output, show, table


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "cache", help="show or clear compiled code", description="Compiled code is kept on disk for the next process."
    )
    parser.add_argument("action", nargs="?", choices=("show", "clear"), default="show", help="show (default) or clear")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    from rigidgrad.runtime import cache

    folder = cache.folder()
    if arguments.action == "clear":
        removed = cache.clear()
        text = f"removed {_entries(removed)} from {folder}" if folder else "the cache is switched off"
        show(arguments, {"folder": folder, "removed": removed}, text)
        return
    entries = sorted(cache.contents(), key=lambda e: (e.robot, e.function))
    rows = [{"key": e.key, "robot": e.robot, "function": e.function, "bytes": e.bytes, "modified": e.modified} for e in entries]
    if folder is None:
        text = "the cache is switched off (RIGIDGRAD_CACHE)"
    else:
        text = f"{folder}: {_entries(len(entries))}, {sum(e.bytes for e in entries) / 1e6:.1f} MB"
    if entries:
        shown = [("robot", "function", "kB", "made")]
        for e in entries:
            made = time.strftime("%Y-%m-%d %H:%M", time.localtime(e.modified))
            shown.append((e.robot or "-", e.function, f"{e.bytes / 1000:.0f}", made))
        text += "\n\n" + table(shown, right=(2,))
    show(arguments, {"folder": folder, "entries": rows}, text)


def _entries(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"
