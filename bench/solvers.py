"""rigidgrad's trajectory optimisation against Crocoddyl's, the same problems, measured in turns.
See bench/README.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import machine
import numpy as np
import report
from cases import Missing
from control_cases import ARM_OPTIMA, LONG, TARGET, Arm, goals, needed
from dynamics import say
from measure import CLOCKS, Timing, ratio
from peers import crocoddyl_process
from peers.crocoddyl_contenders import TheirBatch, Theirs
from peers.crocoddyl_process import Crocoddyl

import rigidgrad as rg
from rigidgrad.control.inverse import FreeRun

# a solver with its buffers, as Crocoddyl's solver objects are
from rigidgrad.control.pddp import Run

METHODS = ("DDP", "FDDP")
ACCURACIES = {"1%": 1e-2, "0.1%": 1e-3, "1e-6": 1e-6}
SLICE = 0.03  # seconds that one timing should last at least
BATCH, SHORT = 64, 10  # problems of a batch; iterations of each where all do the same number


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)

    def listed(*allowed: str):
        def parse(text: str) -> list[str]:
            values = [part.strip() for part in text.split(",") if part.strip()]
            for value in values:
                if value not in allowed:
                    raise argparse.ArgumentTypeError(f"{value!r} is none of {', '.join(allowed)}")
            return values

        return parse

    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="store the results; without a file, print them instead of tables",
    )
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--parts", type=listed("single", "batch"), default=["single", "batch"])
    parser.add_argument(
        "--weights",
        type=listed("code", "text"),
        default=["code", "text"],
        help="of the arm's problem: code,text",
    )
    parser.add_argument(
        "--dtype",
        type=listed("float64", "float32"),
        default=["float64", "float32"],
        help="of ours; Crocoddyl is float64",
    )
    parser.add_argument("--without-ours", action="store_true", help="Crocoddyl alone")
    parser.add_argument("--without-peer", action="store_true", help="ours alone")
    parser.add_argument(
        "--rounds", type=int, default=None, help="timings of each contender (20; 5 of a batch)"
    )
    parser.add_argument(
        "--core", type=int, default=(os.cpu_count() or 1) - 1, help="the core to run on"
    )
    parser.add_argument(
        "--clock", choices=CLOCKS, default="cpu", help="two cores are always wall time"
    )
    options = parser.parse_args()
    options.batch_rounds = options.rounds or (2 if options.quick else 5)
    options.rounds = options.rounds or (5 if options.quick else 20)
    return options


# --- the contenders -------------------------------------------------------------------------------


class Contender(Protocol):
    """A solver bound to one problem."""

    name: str
    dtype: str

    def history(self) -> list[float]:
        """Costs of the first guess and after each iteration of a long solve."""

    def seconds(self, iterations: int, repeats: int, fresh: bool = False) -> float:
        """Of `repeats` solves of exactly so many iterations, each from the first guess, with one
        set of buffers or `fresh` ones each time.
        """

    def phases(self) -> dict[str, float]:
        """µs an iteration, by phase, as seen now."""


class Ours:
    form = "forward"

    def __init__(self, task: Arm, dtype: str, clock: str):
        self.name, self.dtype = f"ours {dtype}", dtype
        self._problem, self._now = task.problem(), CLOCKS[clock]
        self.solutions: list[rg.Solution] = []

    def history(self) -> list[float]:
        self.solutions = [
            rg.solve(self._problem, rg.PDDP(dtype=self.dtype, iterations=LONG, tolerance=1e-13))
        ]
        return list(self.solutions[0].stats["history"])

    def seconds(self, iterations: int, repeats: int, fresh: bool = False) -> float:
        solver = rg.PDDP(dtype=self.dtype, iterations=iterations, tolerance=0.0, form=self.form)
        kept = (Run if self.form == "forward" else FreeRun)(self._problem, solver)
        start = self._now()
        self.solutions = [
            rg.solve(self._problem, solver) if fresh else kept.solve() for _ in range(repeats)
        ]
        taken = self._now() - start
        if any(s.iterations != iterations for s in self.solutions):
            sys.exit(
                f"{self.name}: {self.solutions[0].iterations} iterations instead of {iterations}:"
                f" {self.solutions[0].message}"
            )
        return taken

    def phases(self) -> dict[str, float]:
        """Means over all solves of the last timing."""
        iterations = sum(s.iterations for s in self.solutions)
        return {
            phase: 1e6 * sum(s.stats["seconds"][phase] for s in self.solutions) / iterations
            for phase in self.solutions[0].stats["seconds"]
        }


# --- one problem ----------------------------------------------------------------------------------


def measure_single(weights: str, peer: Crocoddyl | None, options: argparse.Namespace) -> dict:
    task = Arm(weights)
    say(f"{task.label}: solving")
    theirs = [Theirs(peer, task, method, options.clock) for method in METHODS] if peer else []
    ours = (
        []
        if options.without_ours
        else [Ours(task, dtype, options.clock) for dtype in options.dtype]
    )
    contenders: list[Any] = [*theirs, *ours]
    rows = {contender.name: solved(contender, task) for contender in contenders}
    if theirs:
        for mine in ours:
            rows[mine.name] |= {"cost_by_crocoddyl": theirs[0].cost(mine.solutions[0].u)}
    check(task, rows)
    timings, calls, phases = interleaved(contenders, rows, options.rounds, task.label)
    for name, row in rows.items():
        row["us_per_iteration"] = timings[name].summary()
        row["ms_to_target"] = timings[name].best * row["timed_iterations"] / 1e3
        row["ms_to_target_with_new_buffers"] = calls[name].best / 1e3
        row["phases"] = {phase: timing.summary() for phase, timing in phases[name].items()}
    return {
        "problem": task.label,
        "solvers": rows,
        "ratios": compared(rows, timings, calls, phases),
    }


def solved(contender: Any, task: Arm) -> dict:
    history = contender.history()
    known = ARM_OPTIMA[task.weights, task.integrator]
    optimum = min(history[-1], known)
    row: dict[str, Any] = {"guess": history[0], "optimum": history[-1], "history": history[:200]}
    row["iterations"] = {
        label: needed(history, optimum, accuracy) for label, accuracy in ACCURACIES.items()
    }
    row["target"] = TARGET[contender.dtype]
    row["timed_iterations"] = needed(history, optimum, row["target"]) or len(history) - 1
    return row


def check(task: Arm, rows: dict[str, dict]) -> None:
    """All contenders must have solved the same problem; one that did not ends the run."""
    known = ARM_OPTIMA[task.weights, task.integrator]
    guess = next(iter(rows.values()))["guess"]
    for name, row in rows.items():
        found = row.get("cost_by_crocoddyl", row["optimum"])
        if abs(found - known) > max(row["target"], 1e-6) * known:
            sys.exit(f"{name}: {task.label} ended at {found:.9g}; the optimum is {known:.9g}")
        loose = 1e-9 if name != "ours float32" else 1e-5
        if abs(row["guess"] - guess) > loose * guess or abs(found - row["optimum"]) > loose * known:
            sys.exit(
                f"{name}: {task.label} has other costs than {next(iter(rows))} for the same"
                " controls"
            )


def interleaved(
    contenders: list[Any], rows: dict[str, dict], rounds: int, label: str
) -> tuple[Any, Any, Any]:
    """Each round times every contender once, in rotating order: µs an iteration of whole solves, µs
    of a solve with new buffers, µs of the phases.
    """
    taken: dict[str, list[float]] = {c.name: [] for c in contenders}
    calls: dict[str, list[float]] = {c.name: [] for c in contenders}
    seen: dict[str, list[dict[str, float]]] = {c.name: [] for c in contenders}
    counts = {c.name: rows[c.name]["timed_iterations"] for c in contenders}
    for c in contenders:
        c.seconds(counts[c.name], 1)  # compiles, touches pages
    repeats = {
        c.name: max(1, round(SLICE / max(c.seconds(counts[c.name], 1), 1e-6))) for c in contenders
    }
    for turn in range(rounds):
        say(f"{label}: round {turn + 1} of {rounds}")
        shift = turn % len(contenders)
        for c in contenders[shift:] + contenders[:shift]:
            count, often = counts[c.name], repeats[c.name]
            calls[c.name].append(1e6 * c.seconds(count, often, fresh=True) / often)
            taken[c.name].append(1e6 * c.seconds(count, often) / (often * count))
            seen[c.name].append(c.phases())
    phases = {
        name: {phase: timing([row[phase] for row in found]) for phase in found[0]}
        for name, found in seen.items()
    }
    return (
        *({name: timing(times) for name, times in each.items()} for each in (taken, calls)),
        phases,
    )


def timing(times: Sequence[float]) -> Timing:
    return Timing(min(times), float(np.median(times)), tuple(times))


def scaled(each: Timing, factor: float) -> Timing:
    return Timing(factor * each.best, factor * each.median, tuple(factor * x for x in each.rounds))


def compared(
    rows: dict[str, dict],
    timings: dict[str, Timing],
    calls: dict[str, Timing],
    phases: dict[str, dict[str, Timing]],
) -> dict[str, dict]:
    """Ours against the faster of Crocoddyl's two solvers: an iteration, a solve to the target, the
    same with new buffers, the backward pass.
    """
    peers = sorted(
        (name for name in rows if name.startswith("crocoddyl")), key=lambda name: timings[name].best
    )
    found: dict[str, dict] = {}
    for mine in (name for name in rows if name.startswith("ours")) if peers else ():
        theirs = peers[0]
        # a looser target, as float32 has, is theirs too
        theirs_needed = (
            needed(rows[theirs]["history"], rows[theirs]["optimum"], rows[mine]["target"])
            or rows[theirs]["timed_iterations"]
        )
        found[mine] = {
            "peer": theirs,
            "iteration": ratio(timings[theirs], timings[mine]),
            "solve": ratio(
                scaled(timings[theirs], theirs_needed),
                scaled(timings[mine], rows[mine]["timed_iterations"]),
            ),
            "new_buffers": ratio(
                scaled(calls[theirs], theirs_needed / rows[theirs]["timed_iterations"]), calls[mine]
            ),
            "backward": ratio(phases[theirs]["backwardPass"], phases[mine]["backward"]),
        }
    return found


# --- many problems --------------------------------------------------------------------------------


class OurBatch:
    """All problems in one call."""

    def __init__(self, tasks: list[Arm], dtype: str):
        self.problems = [task.problem() for task in tasks]
        self.dtype = dtype
        self.optima = [
            solution.cost for solution in self.solve(1, iterations=LONG, tolerance=1e-13)
        ]
        self.tolerance, self.iterations = self.loosest()

    def solve(self, threads: int, **options: Any) -> list[rg.Solution]:
        return rg.solve(self.problems, rg.PDDP(dtype=self.dtype, **options), threads=threads)

    def loosest(self) -> tuple[float, int]:
        """The tolerance with which every problem still ends as near its optimum as the target says,
        and the iterations of all together.
        """
        for tolerance in (1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12):
            found = self.solve(1, iterations=LONG, tolerance=tolerance)
            if all(
                s.cost <= best * (1 + TARGET[self.dtype])
                for s, best in zip(found, self.optima, strict=True)
            ):
                break
        return tolerance, sum(s.iterations for s in found)

    def seconds(self, iterations: int, tolerance: float, cores: int, clock: str) -> float:
        now = CLOCKS[clock]
        start = now()
        self.solve(cores, iterations=iterations, tolerance=tolerance)
        return now() - start


def measure_batch(python: str | None, options: argparse.Namespace) -> list[dict]:
    """Problems a second on one core and on two: each to its target by the solver's own rule for
    stopping, and all of them a few iterations.

    `known` is Crocoddyl again, told beforehand for each problem how many iterations it needs: no
    rule for stopping can do better.
    """
    say(f"{BATCH} goals: solving")
    tasks = goals(BATCH)
    cores = [options.core, *(core for core in range(os.cpu_count() or 1) if core != options.core)][
        :2
    ]
    theirs = TheirBatch(python, tasks, cores) if python else None
    ours = (
        {}
        if options.without_ours
        else {f"ours {dtype}": OurBatch(tasks, dtype) for dtype in options.dtype}
    )
    results = []
    for count in range(1, len(cores) + 1):
        os.sched_setaffinity(0, cores[:count])
        clock = options.clock if count == 1 else "wall"
        work: dict[tuple[str, str], Any] = {}
        if theirs:
            work["crocoddyl", "target"] = partial(
                theirs.seconds, theirs.stopped, theirs.stop, count, clock
            )
            work["crocoddyl", "known"] = partial(theirs.seconds, theirs.needed, 0.0, count, clock)
            work["crocoddyl", "short"] = partial(theirs.seconds, [SHORT] * BATCH, 0.0, count, clock)
        for name, batch in ours.items():
            work[name, "target"] = partial(batch.seconds, LONG, batch.tolerance, count, clock)
            work[name, "short"] = partial(batch.seconds, SHORT, 0.0, count, clock)
        taken: dict[tuple[str, str], list[float]] = {key: [] for key in work}
        for turn in range(options.batch_rounds):
            for key, run in work.items():
                say(
                    f"{BATCH} goals, {count} of {len(cores)} cores: round {turn + 1} of"
                    f" {options.batch_rounds}, {' '.join(key)}"
                )
                taken[key].append(1e6 * run() / BATCH)
        results.append(
            {"cores": count, "clock": clock}
            | batch_result({key: timing(times) for key, times in taken.items()}, theirs, ours)
        )
    if theirs:
        theirs.close()
    machine.pin_to(options.core)
    return results


def batch_result(
    times: dict[tuple[str, str], Timing], theirs: TheirBatch | None, ours: dict[str, OurBatch]
) -> dict:
    solvers: dict[str, dict[str, Any]] = {}
    ratios: dict[str, dict] = {}
    for (name, kind), each in times.items():
        row = solvers.setdefault(name, {"us_per_problem": {}, "problems_per_second": {}})
        row["us_per_problem"][kind] = each.summary()
        row["problems_per_second"][kind] = 1e6 / each.best
    if theirs:
        solvers["crocoddyl"] |= {
            "stop": theirs.stop,
            "iterations": sum(theirs.stopped),
            "needed": sum(theirs.needed),
            "optima": theirs.optima,
        }
    for name, batch in ours.items():
        solvers[name] |= {
            "tolerance": batch.tolerance,
            "iterations": batch.iterations,
            "optima": batch.optima,
        }
        if theirs:
            solvers[name]["against_crocoddyl"] = agreement(batch.optima, theirs.optima)
            against = {"target": "target", "known": "target", "short": "short"}
            ratios[name] = {
                kind: ratio(times["crocoddyl", kind], times[name, mine])
                for kind, mine in against.items()
            }
    return {"problems": BATCH, "short_iterations": SHORT, "solvers": solvers, "ratios": ratios}


def agreement(ours: list[float], theirs: list[float]) -> dict[str, int]:
    """Problems can have several local optima: how many ended alike, and where ours or theirs is
    lower.
    """
    a, b = np.array(ours), np.array(theirs)
    same = abs(a - b) <= 1e-5 * np.minimum(a, b)
    return {
        "same": int(same.sum()),
        "ours_lower": int((~same & (a < b)).sum()),
        "theirs_lower": int((~same & (b < a)).sum()),
    }


# --- tables ---------------------------------------------------------------------------------------


def single_table(result: dict) -> str:
    kinds = {
        "iteration": "iteration",
        "solve": "solve",
        "new_buffers": "new buffers",
        "backward": "backward pass",
    }
    rows = []
    for name, row in result["solvers"].items():
        us, ratios = row["us_per_iteration"], result["ratios"].get(name, {})
        counts = [str(count) if count is not None else "-" for count in row["iterations"].values()]
        ms = [
            us["best"] / 1e3,
            us["median"] / 1e3,
            row["ms_to_target"],
            row["ms_to_target_with_new_buffers"],
        ]
        cells = [name, f"{row['optimum']:.8g}", *counts, *(report.number(each) for each in ms)]
        rows.append([*cells, *(report.times(ratios.get(kind)) for kind in kinds)])
    header = [
        "solver",
        "J*",
        *ACCURACIES,
        "ms/iteration",
        "median",
        "ms to target",
        "ms, new buffers",
        *kinds.values(),
    ]
    lines = [
        f"{result['problem']}: one thread; target 1e-6 (float32: 1e-5) above the optimum",
        report.table(header, rows),
    ]
    for name, row in result["solvers"].items():
        parts = (
            f"{phase} {t['best']:.0f} ({t['median']:.0f})" for phase, t in row["phases"].items()
        )
        lines.append(f"  {name}, µs minimum (median): {', '.join(parts)}")
    return "\n".join(lines)


def batch_table(results: list[dict]) -> str:
    kinds = {"target": "to target", "known": "known counts", "short": f"{SHORT} iterations"}
    rows = []
    for result in results:
        for name, row in result["solvers"].items():
            rates, ratios = row["problems_per_second"], result["ratios"].get(name, {})
            alike = str(row["against_crocoddyl"]["same"]) if "against_crocoddyl" in row else ""
            cells = [name, str(result["cores"]), str(row["iterations"]), alike]
            rows.append(
                [
                    *cells,
                    *(report.number(rates.get(kind), 1) for kind in kinds),
                    *(report.times(ratios.get(kind)) for kind in kinds),
                ]
            )
    header = [
        "solver",
        "cores",
        "iterations",
        "same optimum",
        *(f"{label}, 1/s" for label in kinds.values()),
        *kinds.values(),
    ]
    return f"{BATCH} different goals, code weights: problems a second\n{report.table(header, rows)}"


def main() -> None:
    options = arguments()
    if options.json == "-":
        sys.stdout = sys.stderr  # tables are for people
    machine.pin_to(options.core)
    missing: dict[str, str] = {}
    python = None
    if not options.without_peer:
        say("looking for Crocoddyl")
        try:
            python = crocoddyl_process.interpreter()
        except Missing as absent:
            missing["crocoddyl"] = str(absent)
    versions = (
        {f"{name} (peer)": version for name, version in crocoddyl_process.VERSIONS.items()}
        if python
        else {}
    )
    result: dict[str, Any] = {
        "machine": machine.describe(versions),
        "clock": options.clock,
        "missing": missing,
    }
    say("")
    for name, advice in missing.items():
        print(f"missing peer {name}: {advice}")
    print(f"{result['machine']['cpu']}\n")
    if "single" in options.parts:
        peer = Crocoddyl(python, options.core) if python else None
        result["single"] = []
        for weights in options.weights:
            result["single"].append(measure_single(weights, peer, options))
            say("")
            print(single_table(result["single"][-1]), end="\n\n")
        if peer:
            peer.close()
    if "batch" in options.parts:
        result["batch"] = measure_batch(python, options)
        say("")
        print(batch_table(result["batch"]))
    text = json.dumps(result, indent=1, default=dataclasses.asdict) + "\n"
    if options.json == "-":
        sys.__stdout__.write(text)
    elif options.json:
        Path(options.json).parent.mkdir(parents=True, exist_ok=True)
        Path(options.json).write_text(text)


if __name__ == "__main__":
    main()
