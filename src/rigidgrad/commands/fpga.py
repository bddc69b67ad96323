"""`rigidgrad fpga ROBOT`: a robot's gradient as a circuit, generated, simulated bit for bit,
synthesised, and reported on one page.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from rigidgrad.commands.terminal import add_output, show
from rigidgrad.errors import UsageError

FUNCTIONS = ("fused_gradient", "aba_derivatives", "aba", "minv", "rnea_derivatives", "rnea")


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "fpga",
        help="a robot's gradient as a circuit",
        description=(
            "Generates Verilog for a robot, simulates it bit for bit (Verilator), synthesises it"
            " (yosys) and writes a report."
        ),
    )
    parser.add_argument("robot", help="a URDF file or the name of a bundled robot")
    parser.add_argument(
        "--function", choices=FUNCTIONS, default=FUNCTIONS[0], help=f"default: {FUNCTIONS[0]}"
    )
    parser.add_argument(
        "--multipliers",
        type=int,
        default=None,
        metavar="K",
        help="pipelined multipliers (default 32)",
    )
    parser.add_argument(
        "--dsps", type=int, default=None, metavar="N", help="or as many as N DSPs pay for"
    )
    parser.add_argument(
        "--datapaths",
        choices=("shared", "columns"),
        default="shared",
        help="units for all (default), or for each column of the gradient its own",
    )
    parser.add_argument(
        "--stages",
        default="4,2",
        metavar="M,A",
        help="pipeline stages of a multiplier and of an adder (default 4,2; 2,1 for slow clocks)",
    )
    parser.add_argument(
        "--adders", type=int, default=None, metavar="L", help="pipelined adders (default: as many)"
    )
    parser.add_argument(
        "--lanes", type=int, default=16, metavar="N", help="words of a beat (default 16)"
    )
    parser.add_argument(
        "--format", default="16,16", metavar="I,F", help="integer and fraction bits (default 16,16)"
    )
    parser.add_argument(
        "--trig",
        choices=("inputs", "table"),
        default="inputs",
        help="sines and cosines as inputs (default) or by a table inside",
    )
    parser.add_argument(
        "--interval",
        default=None,
        metavar="CYCLES",
        help="cycles between states of a stream, or 'shortest'; default: least latency",
    )
    parser.add_argument(
        "--floats", action="store_true", help="float32 in the stream, converted inside"
    )
    parser.add_argument(
        "--states", type=int, default=200, help="random states to simulate (default 200)"
    )
    parser.add_argument(
        "--clock",
        type=float,
        default=200.0,
        metavar="MHZ",
        help="the clock to report times at (default 200; only --place says whether one is met)",
    )
    parser.add_argument(
        "--out",
        default="build/fpga",
        metavar="FOLDER",
        help="where the files go (default build/fpga)",
    )
    parser.add_argument(
        "--area", action="store_true", help="count the cells of a generic library too"
    )
    parser.add_argument(
        "--place", action="store_true", help="place and route it on an ECP5 (nextpnr)"
    )
    parser.add_argument("--no-simulation", action="store_true", help="leave Verilator out")
    parser.add_argument("--no-synthesis", action="store_true", help="leave yosys out")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from rigidgrad.codegen import write
    from rigidgrad.fpga import build, check, format_report, page, summary
    from rigidgrad.robot import load
    from rigidgrad.targets.verilog.package import package

    robot = load(arguments.robot)
    integer, fraction = _two("--format", arguments.format, "two numbers of bits, as in 16,16")
    stages = _two("--stages", arguments.stages, "two numbers of stages, as in 4,2")
    interval = arguments.interval
    if interval not in (None, "shortest"):
        if not interval.isdigit():
            raise UsageError(f"--interval is a number of cycles or 'shortest', not {interval!r}")
        interval = int(interval)
    say = (
        _progress
        if sys.stderr.isatty() and not (arguments.json or arguments.quiet)
        else lambda text: None
    )
    say("scheduling")
    circuit = build(
        robot,
        arguments.function,
        multipliers=arguments.multipliers,
        adders=arguments.adders,
        format=(integer, fraction),
        trig=arguments.trig,
        interval=interval,
        floats=arguments.floats,
        lanes=arguments.lanes,
        multiplier_stages=stages[0],
        adder_stages=stages[1],
        dsps=arguments.dsps,
        datapaths=arguments.datapaths,
    )
    folder = Path(arguments.out)
    files = write(folder, circuit.files())
    files += write(folder / "ip", package(circuit, arguments.clock * 1e6))
    report = check(
        robot,
        circuit,
        folder,
        count=arguments.states,
        clock=arguments.clock * 1e6,
        simulation=not arguments.no_simulation,
        synthesis=not arguments.no_synthesis,
        area=arguments.area,
        place=arguments.place,
        say=say,
    )
    files += write(folder, {f"{circuit.name}.html": page(report)})
    show(
        arguments,
        summary(report) | {"files": files},
        format_report(report) + "\nwrote " + ", ".join(str(f) for f in files),
    )
    return int(any(s.mismatches for s in report.simulations.values()))


def _two(option: str, text: str, wanted: str) -> tuple[int, int]:
    try:
        first, second = (int(x) for x in text.split(","))
    except ValueError:
        raise UsageError(f"{option} is {wanted}, not {text!r}") from None
    return first, second


def _progress(text: str) -> None:
    print(text, file=sys.stderr)
