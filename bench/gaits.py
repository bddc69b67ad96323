"""Crocoddyl's own gaits of HyQ, ANYmal and Talos' legs: rigidgrad and Crocoddyl's FDDP on the same
problems from the same guess, measured in turns. See bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import machine
import report
from cases import Missing
from dynamics import say
from gait_cases import FILE_OF, FILES, GAITS, Gait, numbers_of, problem_of, robot_of, trots
from measure import CLOCKS, Timing, ratio
from peers import crocoddyl_process
from solvers import Ours, agreement, interleaved, scaled, timing

import rigidgrad as rg

TARGET = 1e-6  # relatively from the optimum, where a solve counts as done
OPTIMUM = {"float64": 1e-9, "float32": 1e-8}  # how near the published optimum a solve must end
# the same for feet that are surfaces: Crocoddyl holds their spatial acceleration, rigidgrad the
# classical one; they differ while a foot moves
SURFACES = 1e-8
RECOMPUTED = 1e-6  # how near our cost that by Crocoddyl's models must be
METHOD, MOST, STOP = "FDDP", 100, 1e-9  # as in Crocoddyl's example; the last is its default
BATCH = 32


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)

    def listed(text: str) -> list[str]:
        return [part.strip() for part in text.split(",") if part.strip()]

    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="store the results; without a file, print them instead of tables",
    )
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--robots", type=listed, default=list(FILE_OF), help=",".join(FILE_OF))
    parser.add_argument("--gaits", type=listed, default=list(GAITS), help=",".join(GAITS))
    parser.add_argument("--parts", type=listed, default=["single", "batch"], help="single,batch")
    parser.add_argument(
        "--rounds", type=int, default=None, help="timings of each contender (20; 5 of a batch)"
    )
    parser.add_argument(
        "--core", type=int, default=(os.cpu_count() or 1) - 1, help="the core to run on"
    )
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    options = parser.parse_args()
    for asked, known in (
        (options.robots, FILE_OF),
        (options.gaits, GAITS),
        (options.parts, ("single", "batch")),
    ):
        for name in asked:
            if name not in known:
                parser.error(f"{name!r} is none of {', '.join(known)}")
    options.batch_rounds = options.rounds or (2 if options.quick else 5)
    options.rounds = options.rounds or (5 if options.quick else 20)
    return options


# --- the contenders -------------------------------------------------------------------------------


class OurGait(Ours):
    """rigidgrad with the options it has by itself but for the type, or the form of the dynamics."""

    def __init__(self, problem: rg.Problem, kind: str, clock: str):
        self.name = f"ours {kind}"
        self.dtype, self.form = ("float64", "inverse") if kind == "inverse" else (kind, "forward")
        self._problem, self._now = problem, CLOCKS[clock]
        self.solutions = []

    def history(self) -> list[float]:
        self.solutions = [rg.solve(self._problem, rg.PDDP(dtype=self.dtype, form=self.form))]
        return list(self.solutions[0].stats["history"])


class TheirGait:
    """Crocoddyl's FDDP, from the guess of its example: the start at every knot, with quasi-static
    controls.
    """

    name = f"crocoddyl {METHOD}"

    def __init__(self, peer: crocoddyl_process.Gaits, task: Gait, clock: str):
        self._peer, self._clock = peer, clock
        self.problem = peer.open(task.as_data())

    def numbers(self) -> dict[str, Any]:
        return self._peer.ask("numbers", problem=self.problem)

    def history(self) -> dict[str, list[float]]:
        return self._peer.ask(
            "history", problem=self.problem, method=METHOD, iterations=MOST, stop=STOP
        )

    def seconds(self, iterations: int, repeats: int, fresh: bool = False) -> float:
        work = [[self.problem, iterations, 0.0]]
        return self._peer.ask("time", method=METHOD, work=work, repeats=repeats, fresh=fresh)[
            self._clock
        ]

    def phases(self) -> dict[str, float]:
        return self._peer.ask("pieces", problem=self.problem, method=METHOD, repeats=2)

    def recomputed(self, solution: rg.Solution) -> dict[str, float]:
        """What Crocoddyl's models say of a solution."""
        return self._peer.ask(
            "cost", problem=self.problem, x=solution.x.tolist(), u=solution.u.tolist()
        )


def iterations_to(history: list[float], optimum: float, accuracy: float = TARGET) -> int:
    """After which the cost stays this near the optimum; a trajectory with gaps may cost less than
    that.
    """
    return 1 + max(k for k, cost in enumerate(history) if abs(cost - optimum) > accuracy * optimum)


# --- one gait -------------------------------------------------------------------------------------


def measure_gait(
    task: Gait,
    problem: rg.Problem,
    published: dict[str, Any],
    peer: crocoddyl_process.Gaits | None,
    options: Any,
) -> dict:
    """`published`: the file's numbers and optimum."""
    say(f"{task.label}: solving")
    optimum = published["cost"]
    ours = [OurGait(problem, kind, options.clock) for kind in (*OPTIMUM, "inverse")]
    theirs = TheirGait(peer, task, options.clock) if peer else None
    rows: dict[str, dict[str, Any]] = {}
    if theirs:
        same_problem(theirs, published, task)
        history = theirs.history()["costs"]
        rows[theirs.name] = {
            "iterations": len(history) - 1,
            "cost": history[-1],
            "history": history,
        }
    for each in ours:
        history = each.history()
        found = each.solutions[0]
        rows[each.name] = {
            "status": found.status,
            "iterations": found.iterations,
            "cost": found.cost,
            "history": history,
        }
        if theirs:
            rows[each.name]["by_crocoddyl"] = theirs.recomputed(found)
    for row in rows.values():
        row["off_optimum"] = row["cost"] / optimum - 1
        row["iterations_to_target"] = row["timed_iterations"] = iterations_to(
            row["history"], optimum
        )
    check(task, rows, optimum)
    contenders: list[Any] = [*([theirs] if theirs else []), *ours]
    timings, _, phases = interleaved(contenders, rows, options.rounds, task.label)
    for name, row in rows.items():
        row["us_per_iteration"] = timings[name].summary()
        row["ms_to_target"] = timings[name].best * row["timed_iterations"] / 1e3
        row["phases"] = {phase: each.summary() for phase, each in phases[name].items()}
    ratios = (
        {each.name: compared(theirs.name, each.name, rows, timings) for each in ours}
        if theirs
        else {}
    )
    return {
        "robot": task.robot,
        "gait": task.gait,
        "knots": problem.steps,
        "optimum": optimum,
        "solvers": rows,
        "ratios": ratios,
    }


def same_problem(theirs: TheirGait, published: dict[str, Any], task: Gait) -> None:
    """The numbers that ours is built from are those of Crocoddyl's own problem, every bit."""
    found = theirs.numbers()
    if any(found[key] != published[key] for key in ("x0", "knots")):
        sys.exit(f"{task.label}: Crocoddyl builds another problem than bench/data has")


def check(task: Gait, rows: dict[str, dict], optimum: float) -> None:
    """Everybody ends at the published optimum, and Crocoddyl's models agree about what we found."""
    for name, row in rows.items():
        allowed = max(
            OPTIMUM["float32" if name.endswith("float32") else "float64"],
            0.0 if task.robot in FILES else SURFACES,
        )
        if row.get("status", "converged") != "converged" or abs(row["off_optimum"]) > allowed:
            sys.exit(
                f"{name}: {task.label} ended at {row['cost']:.10g}, {row.get('status', '')}; the"
                f" optimum is {optimum:.10g}"
            )
        if (
            "by_crocoddyl" in row
            and abs(row["by_crocoddyl"]["cost"] / row["cost"] - 1) > RECOMPUTED
        ):
            sys.exit(
                f"{name}: {task.label} costs {row['cost']:.10g} by ours and"
                f" {row['by_crocoddyl']['cost']:.10g} by Crocoddyl's models"
            )


def compared(
    theirs: str, mine: str, rows: dict[str, dict], timings: dict[str, Timing]
) -> dict[str, dict]:
    """An iteration, and all of those that each needs to the target."""
    solves = [scaled(timings[name], rows[name]["timed_iterations"]) for name in (theirs, mine)]
    return {"iteration": with_median(timings[theirs], timings[mine]), "solve": with_median(*solves)}


def with_median(slow: Timing, fast: Timing) -> dict[str, float]:
    """The ratio of the minima, and median and quartiles of the rounds' own ratios."""
    each = timing([a / b for a, b in zip(slow.rounds, fast.rounds, strict=True)])
    return ratio(slow, fast) | {"median": each.median}


# --- many trots -----------------------------------------------------------------------------------


def measure_batch(
    name: str, robot: rg.Robot, peer: crocoddyl_process.Gaits, options: argparse.Namespace
) -> dict:
    """Problems a second on one core: each solver's loosest threshold for stopping with which all
    end within the target of their optima; `known`: Crocoddyl told beforehand how many iterations
    each needs.
    """
    say(f"{BATCH} trots of {name}: solving")
    tasks = trots(name, BATCH)
    theirs = [TheirGait(peer, task, options.clock) for task in tasks]
    problems = [problem_of(robot, each.numbers()) for each in theirs]
    runs = [each.history() for each in theirs]
    optima = [run["costs"][-1] for run in runs]
    needed = [iterations_to(run["costs"], best) for run, best in zip(runs, optima, strict=True)]
    stop, stopped = loosest_of_theirs(runs, optima)
    solvers: dict[str, dict[str, Any]] = {
        "crocoddyl": {
            "stop": stop,
            "iterations": sum(stopped),
            "needed": sum(needed),
            "optima": optima,
        },
    }
    work: dict[tuple[str, str], Any] = {}
    for kind, counts, threshold in (("target", stopped, stop), ("known", needed, 0.0)):
        parts = [
            [each.problem, count, threshold] for each, count in zip(theirs, counts, strict=True)
        ]
        work["crocoddyl", kind] = lambda parts=parts: peer.ask(
            "time", method=METHOD, work=parts, repeats=1
        )[options.clock]
    for dtype in OPTIMUM:
        best = rg.solve(problems, rg.PDDP(dtype=dtype), threads=1)
        tolerance, found = loosest_of_ours(problems, dtype, [s.cost for s in best])
        solvers[f"ours {dtype}"] = {
            "tolerance": tolerance,
            "iterations": sum(s.iterations for s in found),
            "converged": sum(s.converged for s in best),
            "optima": [s.cost for s in best],
            "against_crocoddyl": agreement([s.cost for s in best], optima),
        }
        solver = rg.PDDP(dtype=dtype, tolerance=tolerance)
        work[f"ours {dtype}", "target"] = lambda solver=solver: elapsed(
            problems, solver, options.clock
        )
    taken: dict[tuple[str, str], list[float]] = {key: [] for key in work}
    for turn in range(options.batch_rounds):
        for key, run in work.items():
            say(
                f"{BATCH} trots of {name}: round {turn + 1} of {options.batch_rounds},"
                f" {' '.join(key)}"
            )
            taken[key].append(1e6 * run() / BATCH)
    times = {key: timing(each) for key, each in taken.items()}
    for (who, kind), each in times.items():
        solvers[who].setdefault("us_per_problem", {})[kind] = each.summary()
        solvers[who].setdefault("problems_per_second", {})[kind] = 1e6 / each.best
    ratios = {
        who: {
            kind: with_median(times["crocoddyl", kind], times[who, "target"])
            for kind in ("target", "known")
        }
        for who in solvers
        if who != "crocoddyl"
    }
    return {"robot": name, "problems": BATCH, "solvers": solvers, "ratios": ratios}


def elapsed(problems: list[rg.Problem], solver: rg.PDDP, clock: str) -> float:
    now = CLOCKS[clock]
    start = now()
    rg.solve(problems, solver, threads=1)
    return now() - start


def loosest_of_theirs(runs: list[dict], optima: list[float]) -> tuple[float, list[int]]:
    """The threshold with which every problem ends at its target, and the iterations that each then
    takes.
    """
    for stop in (10.0**-k for k in range(10)):
        counts = [
            next((k for k, value in enumerate(run["stops"], 1) if value < stop), len(run["stops"]))
            for run in runs
        ]
        if all(
            abs(run["costs"][k] - best) <= TARGET * best
            for run, k, best in zip(runs, counts, optima, strict=True)
        ):
            break
    return stop, counts


def loosest_of_ours(
    problems: list[rg.Problem], dtype: str, optima: list[float]
) -> tuple[float, list[rg.Solution]]:
    for tolerance in (10.0**-k for k in range(2, 9)):
        found = rg.solve(problems, rg.PDDP(dtype=dtype, tolerance=tolerance), threads=1)
        if all(abs(s.cost - best) <= TARGET * best for s, best in zip(found, optima, strict=True)):
            break
    return tolerance, found


# --- tables ---------------------------------------------------------------------------------------


def times(of: dict | None) -> str:
    """5.2x; 5.1x (5.0-5.3)"""
    return (
        ""
        if of is None
        else f"{of['ratio']:.2f}x; {of['median']:.2f}x ({of['low']:.2f}-{of['high']:.2f})"
    )


def single_table(results: list[dict]) -> str:
    rows = []
    for case in results:
        for name, row in case["solvers"].items():
            us, ratios, theirs = (
                row["us_per_iteration"],
                case["ratios"].get(name, {}),
                row.get("by_crocoddyl"),
            )
            cells = [
                f"{case['robot']} {case['gait']}",
                name,
                row.get("status", ""),
                str(row["iterations"]),
                str(row["iterations_to_target"]),
            ]
            cells += [f"{row['cost']:.10g}", f"{row['off_optimum']:.0e}"]
            cells += (
                [f"{theirs['cost'] / row['cost'] - 1:.0e}", f"{theirs['gap']:.0e}"]
                if theirs
                else ["", ""]
            )
            cells += [report.number(us["best"] / 1e3), report.number(us["median"] / 1e3)]
            rows.append([*cells, *(times(ratios.get(kind)) for kind in ("iteration", "solve"))])
    header = [
        "gait",
        "solver",
        "status",
        "iterations",
        "to 1e-6",
        "cost",
        "off optimum",
        "by Crocoddyl",
        "gap",
    ]
    return report.table([*header, "ms/iteration", "median", "iteration", "solve to 1e-6"], rows)


def batch_table(results: list[dict]) -> str:
    rows = []
    for case in results:
        for name, row in case["solvers"].items():
            rates, ratios = row["problems_per_second"], case["ratios"].get(name, {})
            alike = str(row["against_crocoddyl"]["same"]) if "against_crocoddyl" in row else ""
            threshold = row.get("tolerance", row.get("stop"))
            cells = [case["robot"], name, str(row["iterations"]), f"{threshold:.0e}", alike]
            rows.append(
                [
                    *cells,
                    *(report.number(rates.get(k), 1) for k in ("target", "known")),
                    *(times(ratios.get(k)) for k in ("target", "known")),
                ]
            )
    header = [
        "robot",
        "solver",
        "iterations",
        "threshold",
        "same optimum",
        "1/s",
        "known counts, 1/s",
        "to target",
        "against known counts",
    ]
    return f"{BATCH} different trots, one core: problems a second\n{report.table(header, rows)}"


def main() -> None:
    options = arguments()
    if options.json == "-":
        sys.stdout = sys.stderr  # tables are for people
    machine.pin_to(options.core)
    missing: dict[str, str] = {}
    peer = None
    say("looking for Crocoddyl")
    try:
        peer = crocoddyl_process.Gaits(crocoddyl_process.interpreter(), options.core)
    except Missing as absent:
        missing["crocoddyl"] = str(absent)
    versions = (
        {f"{name} (peer)": version for name, version in crocoddyl_process.VERSIONS.items()}
        if peer
        else {}
    )
    result: dict[str, Any] = {
        "machine": machine.describe(versions),
        "clock": options.clock,
        "missing": missing,
        "target": TARGET,
    }
    say("")
    for name, advice in missing.items():
        print(f"missing peer {name}: {advice}")
    print(
        f"{result['machine']['cpu']}; ratios: of the minima; median (quartiles) of those of single"
        " rounds\n"
    )
    robots = {name: robot_of(name) for name in options.robots}
    if "single" in options.parts:
        result["single"] = []
        for name, robot in robots.items():
            all_ = numbers_of(name)
            for gait in (gait for gait in options.gaits if gait in all_):
                problem = problem_of(robot, all_[gait])
                result["single"].append(
                    measure_gait(Gait(name, gait), problem, all_[gait], peer, options)
                )
        say("")
        print(single_table(result["single"]), end="\n\n")
    if "batch" in options.parts and peer:
        result["batch"] = [
            measure_batch(name, robot, peer, options)
            for name, robot in robots.items()
            if name in FILES
        ]
        say("")
        print(batch_table(result["batch"]))
    if peer:
        peer.close()
    text = json.dumps(result, indent=1) + "\n"
    if options.json == "-":
        sys.__stdout__.write(text)
    elif options.json:
        Path(options.json).parent.mkdir(parents=True, exist_ok=True)
        Path(options.json).write_text(text)


if __name__ == "__main__":
    main()
