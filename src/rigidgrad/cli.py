"""The command line: `rigidgrad info ROBOT`, `view`, `play`, `fpga`, `cache`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import rigidgrad
from rigidgrad import fpga
from rigidgrad.errors import RigidgradError
from rigidgrad.play import command as play
from rigidgrad.runtime import cache
from rigidgrad.viewer import command as viewer


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 something the user can mend, 2 a wrong command line."""
    parsed = _parser().parse_args(arguments)
    try:
        parsed.run(parsed)
    except RigidgradError as error:
        print(f"rigidgrad: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rigidgrad", description="Rigid-body dynamics and gradients for robots.")
    parser.add_argument("--version", action="version", version=f"rigidgrad {rigidgrad.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    info = commands.add_parser("info", help="show a robot: joints, masses, limits", description="Shows a robot as a table.")
    info.add_argument("robot", help=f"a URDF file, or one of {', '.join(rigidgrad.bundled())}")
    info.add_argument("--floating-base", action="store_true", help="put a free-flyer under the root link")
    info.add_argument("--no-strict", action="store_true", help="warn about physically impossible bodies instead of refusing them")
    info.add_argument("--json", action="store_true", help="print JSON for machines")
    info.set_defaults(run=_info)

    viewer.add_parser(commands)
    play.add_parser(commands)
    fpga.add_parser(commands)

    stored = commands.add_parser(
        "cache", help="show or clear compiled code", description="Compiled code is kept on disk for the next process."
    )
    stored.add_argument("action", nargs="?", choices=("show", "clear"), default="show", help="show (default) or clear")
    stored.add_argument("--json", action="store_true", help="print JSON for machines")
    stored.set_defaults(run=_cache)
    return parser


def _info(arguments: argparse.Namespace) -> None:
    robot = rigidgrad.load(arguments.robot, floating_base=arguments.floating_base, strict=not arguments.no_strict)
    if not arguments.json:
        print(robot)
        return
    names = ("lower", "upper", "velocity", "effort")
    limits = {name: [float(x) if abs(x) < float("inf") else None for x in getattr(robot.limits, name)] for name in names}
    _print_json(
        {
            "name": robot.name,
            "nq": robot.nq,
            "nv": robot.nv,
            "joints": [
                {"name": j.name, "type": j.type, "mass": m[0]} for j, m in zip(robot.model.joints, robot.model.inertias, strict=True)
            ],
            "frames": list(robot.frames),
            "limits": limits,
        }
    )


def _cache(arguments: argparse.Namespace) -> None:
    folder = cache.folder()
    if arguments.action == "clear":
        removed = cache.clear()
        if arguments.json:
            _print_json({"folder": str(folder) if folder else None, "removed": removed})
        else:
            print(f"removed {removed} {'entry' if removed == 1 else 'entries'} from {folder}" if folder else "the cache is switched off")
        return
    entries = cache.contents()
    if arguments.json:
        rows = [{"key": e.key, "robot": e.robot, "function": e.function, "bytes": e.bytes, "modified": e.modified} for e in entries]
        _print_json({"folder": str(folder) if folder else None, "entries": rows})
        return
    if folder is None:
        print("the cache is switched off (RIGIDGRAD_CACHE)")
        return
    print(f"{folder}: {len(entries)} {'entry' if len(entries) == 1 else 'entries'}, {sum(e.bytes for e in entries) / 1e6:.1f} MB")
    for e in sorted(entries, key=lambda e: (e.robot, e.function)):
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(e.modified))
        print(f"  {e.robot or '-':<24} {e.function:<24} {e.bytes / 1000:8.0f} kB  {made}")


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1))


if __name__ == "__main__":
    sys.exit(main())
