"""`rigidgrad prove --device cuda`: a receipt of what a GPU computed; `--check FILE` verifies it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rigidgrad.commands.terminal import add_output, facts, progress, show, table, write_text
from rigidgrad.errors import InputError, UsageError

DEVICES = ("cuda", "opencl", "webgpu")


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "prove",
        help="run the kernels on a GPU once, and write a receipt of errors and times",
        description=(
            "Runs inverse and forward dynamics, M⁻¹ and both gradients of some robots on a GPU,"
            " compares with the CPU, measures times, and writes all of it with hashes of the"
            " kernels. Such a file can be checked against a version of rigidgrad without a GPU."
        ),
    )
    parser.add_argument("--device", choices=DEVICES, help="whose kernels run")
    parser.add_argument(
        "--number", help="which one of several devices: its number, or a part of its name"
    )
    parser.add_argument(
        "--robots",
        metavar="LIST",
        default="iiwa14,hyq,atlas",
        help="bundled robots; default: iiwa14,hyq,atlas",
    )
    parser.add_argument(
        "--out", metavar="FILE", default="receipt.json", help="default: receipt.json"
    )
    parser.add_argument("--check", metavar="FILE", help="verify a receipt, without a device")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from rigidgrad.reproduce import receipts

    if (arguments.check is None) == (arguments.device is None):
        raise UsageError("either --device, for a new receipt, or --check FILE")
    if arguments.check is not None:
        return _check(arguments)
    robots = [name for name in arguments.robots.split(",") if name]
    number = arguments.number
    with progress(arguments, "running", receipts.total(arguments.device, robots)) as step:
        receipt = receipts.make(
            arguments.device,
            device=int(number) if number and number.isdigit() else number,
            robots=robots,
            step=step,
        )
    path = Path(arguments.out)
    write_text(path, json.dumps(receipt, indent=1) + "\n")
    problems = receipts.check(receipt)
    _show(arguments, receipt, problems, f"wrote {path}")
    return int(bool(problems))


def _check(arguments: argparse.Namespace) -> int:
    from rigidgrad.reproduce import receipts

    path = Path(arguments.check)
    try:
        receipt = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a receipt: {error}") from None
    problems = receipts.check(receipt)
    _show(arguments, receipt, problems, f"{path} fits this version")
    return int(bool(problems))


def _show(
    arguments: argparse.Namespace, receipt: dict[str, Any], problems: list[str], done: str
) -> None:
    from rigidgrad.reproduce import receipts

    lines = [
        facts({**receipt["device"], "made": receipt["date"], "kernels": len(receipt["kernels"])}),
        "",
        "one state, float32, errors relative, times in µs",
        table(receipts.beside_the_table(receipt), right=range(2, 8)),
        "",
        *(problems or [done]),
    ]
    show(arguments, {"receipt": receipt, "problems": problems}, "\n".join(lines))
