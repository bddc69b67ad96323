"""rigidgrad's dynamics and gradients against its peers, measured in turns on one core. See
bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import machine
import measure
import report
import startup
from cases import (
    FUNCTIONS,
    ROBOTS,
    SIZES,
    Contender,
    Subject,
    Task,
    dense_outputs,
    random_batch,
    worst_error,
)
from peers import PEERS, Peers, ours

TOLERANCE = {"float64": 1e-8, "float32": 5e-2}
BUILDS_AT = 256  # all builds of a peer are timed here; elsewhere only the fastest of them
THREADS = [
    ("iiwa14", "aba_derivatives", 128),
    ("iiwa14", "aba_derivatives", 1024),
    ("atlas", "rnea_derivatives", 4096),
]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    short = {label: name for name, label in FUNCTIONS.items()}

    def listed(convert=str, allowed=None):
        def parse(text: str) -> list:
            values = [convert(part.strip()) for part in text.split(",") if part.strip()]
            for value in values:
                if allowed is not None and value not in allowed:
                    raise argparse.ArgumentTypeError(
                        f"{value!r} is none of {', '.join(map(str, allowed))}"
                    )
            return values

        return parse

    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="store the results; without a file, print them as JSON instead of tables",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="keep what the file of --json has and is not measured now, of the same machine",
    )
    parser.add_argument(
        "--quick", action="store_true", help="N = 1, 256, 4096, few rounds: a minute or two"
    )
    parser.add_argument(
        "--robots",
        type=listed(allowed=ROBOTS),
        default=list(ROBOTS),
        help=f"some of {','.join(ROBOTS)}",
    )
    parser.add_argument(
        "--functions",
        type=listed(lambda part: short.get(part, part), FUNCTIONS),
        default=list(FUNCTIONS),
        help=f"some of {','.join(FUNCTIONS)}, or ID, FD",
    )
    parser.add_argument("--sizes", type=listed(int), default=None, help="batch sizes N")
    parser.add_argument("--rounds", type=int, default=None, help="timings of each contender (20)")
    parser.add_argument(
        "--dtype",
        type=listed(allowed=TOLERANCE),
        default=["float64", "float32"],
        help="of ours; peers are float64",
    )
    parser.add_argument(
        "--peers",
        type=listed(allowed=PEERS),
        default=list(PEERS),
        help=f"some of {','.join(PEERS)}; '' for none",
    )
    parser.add_argument(
        "--parts",
        type=listed(allowed=("cells", "threads", "startup")),
        default=["cells", "threads", "startup"],
    )
    parser.add_argument("--without-ours", action="store_true", help="peers only")
    parser.add_argument(
        "--core", type=int, default=(os.cpu_count() or 1) - 1, help="the core to run on"
    )
    parser.add_argument(
        "--clock",
        choices=measure.CLOCKS,
        default="cpu",
        help="CPU time, which other processes disturb less, or wall time",
    )
    options = parser.parse_args()
    options.sizes = options.sizes or ([1, 256, 4096] if options.quick else list(SIZES))
    options.rounds = options.rounds or (7 if options.quick else 20)
    options.budget = 2.0 if options.quick else 12.0
    return options


def say(text: str) -> None:
    """Progress, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def check(subject: Subject, function: str, contenders: list[Contender]) -> dict[str, float]:
    """Errors of all contenders on a few states; one that is wrong ends the run."""
    errors = {}
    for contender in contenders:
        count = 7 if contender.offers(function, 7) else 1
        if not contender.offers(function, count):
            continue
        batch = random_batch(subject, function, count)
        task = contender.bind(function, batch, dense_outputs(subject, function, count))
        error = worst_error(task, ours.reference(subject, function, batch))
        dtype = "float32" if "float32" in contender.name else "float64"
        if not error < TOLERANCE[dtype]:
            sys.exit(
                f"{contender.name}: {function} of {subject.label} is off by {error:.1e} of its"
                f" largest entry; allowed is {TOLERANCE[dtype]:.0e}"
            )
        errors[contender.name] = error
    return errors


def fits(subject: Subject, function: str, count: int) -> bool:
    """Whether the outputs of all contenders, some fresh, leave memory to others."""
    size = sum(array.nbytes for array in dense_outputs(subject, function, 1)) * count
    return 4 * size < 0.6 * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def fastest_builds(timings: dict[str, measure.Timing]) -> set[str]:
    """Of each peer's compiled builds ("pinocchio clang", "pinocchio gcc"), the fastest."""
    best: dict[str, str] = {}
    for name in timings:
        peer = name.split()[0]
        if (
            peer != "ours"
            and not name.endswith("python")
            and (peer not in best or timings[name].best < timings[best[peer]].best)
        ):
            best[peer] = name
    return set(best.values())


def compared(timings: dict[str, measure.Timing]) -> dict[str, dict]:
    """How many times faster ours is (float64; out=, or C against C for one state) than Pinocchio
    and than the fastest peer; packed, fresh too.
    """
    peers = sorted(fastest_builds(timings), key=lambda name: timings[name].best)
    pinocchio = next((name for name in peers if name.startswith("pinocchio")), None)
    found = {}
    main = "C" if "ours float64 C" in timings else "out"
    mine = timings.get(f"ours float64 {main}")
    if mine and peers:
        found["fastest"] = measure.ratio(timings[peers[0]], mine) | {"peer": peers[0]}
    if pinocchio:
        ways = {"pinocchio": main} | (
            {way: way for way in ("fresh", "packed", "factored")} if main == "out" else {}
        )
        for label, way in ways.items():
            if f"ours float64 {way}" in timings:
                found[label] = measure.ratio(timings[pinocchio], timings[f"ours float64 {way}"]) | {
                    "peer": pinocchio
                }
    return found


def cells_of(
    subject: Subject,
    function: str,
    contenders: list[Contender],
    options: argparse.Namespace,
    peak: dict[str, float],
) -> list[dict]:
    say(f"{subject.label} {FUNCTIONS[function]}: checking")
    errors = check(subject, function, contenders)
    flops = None if options.without_ours else ours.flops(subject.robot, function)
    chosen: set[str] | None = None
    cells = []
    for count in sorted(options.sizes, key=lambda size: size != BUILDS_AT):
        if not fits(subject, function, count):
            print(
                f"{subject.label} {FUNCTIONS[function]}, N = {count}: skipped, too little free"
                " memory"
            )
            continue
        say(f"{subject.label} {FUNCTIONS[function]}, N = {count}")
        batch, outputs = (
            random_batch(subject, function, count),
            dense_outputs(subject, function, count),
        )
        tasks: dict[str, Task] = {}
        for contender in contenders:
            compiled_peer = not contender.name.startswith("ours") and not contender.name.endswith(
                "python"
            )
            if contender.offers(function, count) and not (
                compiled_peer and chosen is not None and contender.name not in chosen
            ):
                tasks[contender.name] = contender.bind(function, batch, outputs)
        if not tasks:
            continue
        timings = measure.interleaved(tasks, count, options.rounds, options.budget, options.clock)
        chosen = fastest_builds(timings) if chosen is None else chosen
        cell = {
            "robot": subject.label,
            "function": function,
            "count": count,
            "nv": subject.robot.nv,
        }
        cell |= {
            "times": {name: timing.summary() for name, timing in timings.items()},
            "ratios": compared(timings),
            "errors": errors,
        }
        if flops and (mine := timings.get("ours float64 C") or timings.get("ours float64 out")):
            gflops = flops / mine.best / 1e3
            cell |= {"flops": flops, "gflops": gflops} | (
                {"of_peak": gflops / peak["float64"]} if peak else {}
            )
        cells.append(cell)
    return sorted(cells, key=lambda cell: cell["count"])


def measure_cells(peers: Peers, options: argparse.Namespace, peak: dict[str, float]) -> list[dict]:
    cells = []
    for label in options.robots:
        subject = Subject(label)
        contenders: list[Contender] = [*peers.contenders(subject)]
        if not options.without_ours:
            contenders += ours.contenders(subject, options.dtype)
        for function in options.functions:
            cells += cells_of(subject, function, contenders, options, peak)
    return cells


def measure_threads(options: argparse.Namespace) -> list[dict]:
    """One thread against two, on all cores."""
    machine.pin_to(None)
    found = []
    for label, function, count in THREADS:
        say(f"two threads, {label}, N = {count}")
        subject = Subject(label)
        batch, outputs = (
            random_batch(subject, function, count),
            dense_outputs(subject, function, count),
        )
        way = ours.Ours(subject, "float64", "out")
        tasks = {
            name: way.bind(function, batch, outputs, threads)
            for name, threads in (("one", 1), ("two", 2))
        }
        timings = measure.interleaved(tasks, count, options.rounds, options.budget, "wall")
        gain = measure.ratio(timings["one"], timings["two"])
        found.append(
            {
                "robot": label,
                "function": function,
                "count": count,
                "one": timings["one"].best,
                "two": timings["two"].best,
                "ratio": gain,
            }
        )
    machine.pin_to(options.core)
    return found


def measure_startup(options: argparse.Namespace) -> dict:
    rounds = 1 if options.quick else 3
    calls = []
    for label in options.robots:
        for function in options.functions:
            say(f"first call, {label} {FUNCTIONS[function]}")
            calls.append((label, function, startup.first_calls(label, function, rounds)))
    return {"import": startup.import_seconds(5), "first_calls": calls}


def joined(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """An earlier result with what was measured again; `machine` is that of the earlier one, and
    `again` lists those of later ones.
    """
    same = ("cpu", "features", "cores")
    if any(before["machine"][name] != now["machine"][name] for name in same):
        raise SystemExit("--again: the file was measured on another machine")

    def key(cell: dict[str, Any]) -> tuple:
        return cell["robot"], cell["function"], cell["count"]

    newer = {key(cell): cell for cell in now.get("cells", [])}
    cells = [newer.pop(key(cell), cell) for cell in before.get("cells", [])] + list(newer.values())
    again = [*before.get("again", []), now["machine"]]
    return before | now | {"machine": before["machine"], "again": again, "cells": cells}


def main() -> None:
    options = arguments()
    if options.json == "-":
        sys.stdout = sys.stderr  # tables are for people
    machine.pin_to(options.core)
    say("looking for peers")
    peers = Peers(options.peers)
    peak = machine.fma_peak()
    result = {
        "machine": machine.describe(peers.versions),
        "fma_peak_gflops": peak,
        "clock": options.clock,
        "missing": peers.missing,
    }
    say("")
    for name, advice in peers.missing.items():
        print(f"missing peer {name}: {advice}")
    limits = (
        ", ".join(f"{gflops:.0f} GFLOP/s {dtype}" for dtype, gflops in peak.items())
        or "not measured, no C compiler"
    )
    print(f"{result['machine']['cpu']}, one core, FMA peak {limits}\n")
    if "cells" in options.parts:
        cells = result["cells"] = measure_cells(peers, options, peak)
        say("")
        tables = [report.batch_table(cells, count) for count in sorted(options.sizes)]
        tables += [
            report.single_table(cells),
            report.builds_table(
                cells, BUILDS_AT if BUILDS_AT in options.sizes else options.sizes[0]
            ),
        ]
        print("\n\n".join(filter(None, tables)), end="\n\n")
    if "threads" in options.parts and not options.without_ours:
        result["threads"] = measure_threads(options)
        say("")
        print(report.threads_table(result["threads"]), end="\n\n")
    if "startup" in options.parts and not options.without_ours:
        result["startup"] = measure_startup(options)
        say("")
        print(report.startup_table(result["startup"]))
    if options.again and options.json:
        result = joined(json.loads(Path(options.json).read_text()), result)
    text = json.dumps(result, indent=1) + "\n"
    if options.json == "-":
        sys.__stdout__.write(text)
    elif options.json:
        Path(options.json).parent.mkdir(parents=True, exist_ok=True)
        Path(options.json).write_text(text)


if __name__ == "__main__":
    main()
