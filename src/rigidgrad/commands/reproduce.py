"""`rigidgrad reproduce`: the figures, tables and claims of three published works, measured again on
this machine.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rigidgrad.commands.terminal import add_output, plain, progress, show, table, write_text

# a work, as an option calls it, and as its entries do
WORKS = {
    "plancher-2021": "Plancher 2021",
    "plancher-2022": "Plancher 2022",
    "lynghus-2026": "Lynghus 2026",
}


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "reproduce",
        help="measure published figures, tables and claims again, on one page",
        description=(
            "Measures the figures, tables and claims of three works again, as far as this machine"
            " can, and writes a page that puts them beside the published values. What has been"
            " measured before with the same options and sources is not repeated."
        ),
    )
    parser.add_argument(
        "work",
        nargs="?",
        choices=(*WORKS, "all"),
        default="all",
        help=(
            "plancher-2021: accelerating robot dynamics gradients on a CPU, GPU and FPGA (Plancher"
            " and others); plancher-2022: GPU acceleration for real-time, whole-body, nonlinear"
            " model predictive control (Plancher); lynghus-2026: data-parallel rigid body dynamics"
            " (Lynghus); default: all"
        ),
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--fast",
        action="store_true",
        help="small problems and few rounds, about ten minutes (default)",
    )
    way.add_argument("--full", action="store_true", help="everything: hours")
    way.add_argument(
        "--from",
        dest="stored",
        type=Path,
        metavar="FOLDER",
        help="measure nothing, take the results that are in a folder (such as bench/results)",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="M",
        help="end after so long; what has not ended by then is not measured (default: no limit)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("reproduction"),
        help="folder for results and page; default: reproduction",
    )
    parser.add_argument(
        "--bench",
        type=Path,
        metavar="FOLDER",
        help="the scripts that measure, folder bench of the source tree",
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """1 if an entry failed."""
    from rigidgrad import reports
    from rigidgrad.reproduce import catalogue, page, runner
    from rigidgrad.reproduce.catalogue import entries_of, measurements_of
    from rigidgrad.reproduce.entry import FAILED, judge
    from rigidgrad.reproduce.measurements import MEASUREMENTS

    entries = entries_of(
        [name for option, name in WORKS.items() if arguments.work in (option, "all")]
    )
    names = measurements_of(entries)
    fast = not arguments.full and arguments.stored is None
    if arguments.stored is not None:
        measured, mode = runner.stored(arguments.stored, names), "stored results"
        runner.make_folder(arguments.out)
    else:
        bench, mode = runner.bench_folder(arguments.bench), "fast mode" if fast else "full"
        with progress(
            arguments, "measuring", sum(MEASUREMENTS[name].seconds for name in names)
        ) as step:
            measured = runner.measure(
                names,
                bench,
                arguments.out,
                fast,
                lambda note, done: step(note, by=done),
                arguments.minutes,
            )
    findings = [
        judge(entry, measured.results, measured.troubles, fast, measured.unfinished)
        for entry in entries
    ]
    html = reports.write(page.page(findings, measured, mode), arguments.out / "reproduction.html")
    data = page.data(findings, measured, mode) | {"page": html}
    write_text(arguments.out / "reproduction.json", json.dumps(plain(data), indent=1) + "\n")
    rows = [("", "", "verdict"), *((f.entry.key, f.entry.title, f.verdict) for f in findings)]
    failed = [f"{f.entry.key}: {f.reason}" for f in findings if f.verdict == FAILED]
    counted = ", ".join(f"{count} {verdict}" for verdict, count in page.summary(findings).items())
    works = "\n".join(
        work for name, work in catalogue.WORKS.items() if any(e.seed == name for e in entries)
    )
    show(arguments, data, "\n\n".join([works, table(rows), *failed, f"{counted}\nwrote {html}"]))
    return int(bool(failed))
