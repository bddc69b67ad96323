"""Writes the tables of README.md, docs/performance.md, docs/accuracy.md, docs/contacts.md,
docs/inverse_kinematics.md, docs/phases.md, docs/generate_solver.md, docs/worlds.md and docs/fpga.md
from bench/results/*.json: what stands between markers comes from these files alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / name
    for name in (
        "README.md",
        "docs/performance.md",
        "docs/accuracy.md",
        "docs/contacts.md",
        "docs/inverse_kinematics.md",
        "docs/phases.md",
        "docs/generate_solver.md",
        "docs/worlds.md",
        "docs/fpga.md",
    )
]
MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.S)
FUNCTIONS = {
    "rnea": "inverse dynamics",
    "aba": "forward dynamics",
    "rnea_derivatives": "gradient of inverse dynamics",
    "aba_derivatives": "gradient of forward dynamics",
}
NAMES = {"pinocchio": "Pinocchio", "mujoco": "MuJoCo", "casadi": "CasADi"}
Result = dict[str, Any]


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(header), *(list(row) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ratio(of: Result | None) -> str:
    """A ratio of minima, and the quartiles of those of single rounds."""
    return f"{of['ratio']:.1f}x ({of['low']:.1f} to {of['high']:.1f})" if of else ""


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def fastest(cell: Result, peer: str) -> float | None:
    found = [
        t["best"]
        for name, t in cell["times"].items()
        if name.startswith(peer) and not name.endswith("python")
    ]
    return min(found, default=None)


def ours(cell: Result, way: str) -> float | None:
    timing = cell["times"].get(f"ours {way}")
    return timing and timing["best"]


def dynamics(result: Result) -> str:
    rows = [
        [
            cell["robot"],
            FUNCTIONS[cell["function"]],
            *(number(fastest(cell, peer)) for peer in ("pinocchio", "mujoco", "casadi")),
            *(number(ours(cell, way)) for way in ("float64 out", "float64 packed", "float32 out")),
            ratio(cell["ratios"].get("pinocchio")),
            ratio(cell["ratios"].get("fastest")),
        ]
        for cell in result["cells"]
        if cell["count"] == 4096
    ]
    header = [
        "robot",
        "function",
        "Pinocchio",
        "MuJoCo",
        "CasADi",
        "float64",
        "packed",
        "float32",
        "against Pinocchio",
        "against the fastest peer",
    ]
    return table(header, rows)


def supported(theirs: Result, ours: Result) -> float:
    """How many times faster one is than the other, by the fastest rounds and by the median ones
    alike: the smaller of both ratios.
    """
    return min(theirs[key] / ours[key] for key in ("best", "median"))


def times(value: float) -> str:
    """Rounded down."""
    return f"{int(value)}x" if value >= 4 else f"{int(10 * value) / 10:.1f}x"


def against_fastest(result: Result) -> str:
    """What both minimum and median support against the fastest peer of each cell, one row per
    robot.
    """
    rows: dict[str, list[str]] = {}
    for cell in result["cells"]:
        if cell["count"] == 4096:
            ours = cell["times"]["ours float64 out"]
            peers = {
                n: supported(t, ours)
                for n, t in cell["times"].items()
                if not n.startswith("ours") and not n.endswith("python")
            }
            peer = min(peers, key=lambda n: peers[n])
            name, _, base = cell["robot"].partition("-")
            label = f"{name}, floating base" if base else f"{name}, {cell['nv']} joints"
            rows.setdefault(label, []).append(f"{times(peers[peer])} ({NAMES[peer.split()[0]]})")
    return table(["", *FUNCTIONS.values()], ([label, *row] for label, row in rows.items()))


def one_state_ratios(result: Result) -> str:
    cells = [
        c["times"] for c in result["cells"] if c["count"] == 1 and "pinocchio python" in c["times"]
    ]
    found = {
        way: [supported(t["pinocchio python"], t[f"ours float64 {way}"]) for t in cells]
        for way in ("out", "method")
    }
    fast, plain = (f"{times(min(x))} to {times(max(x))}" for x in (found["out"], found["method"]))
    return (
        "One state per call, from Python, against Pinocchio's Python binding, over the same robots"
        f" and functions: `robot.compile` with `out=` is {fast} as fast, the plain method {plain}:"
        " below 1x it is slower. Use batches where you can."
    )


def one_state(result: Result) -> str:
    rows = []
    for cell in result["cells"]:
        if cell["count"] == 1 and "pinocchio python" in cell["times"]:
            theirs = cell["times"]["pinocchio python"]["best"]
            values = [theirs, ours(cell, "float64 out"), ours(cell, "float64 method")]
            rows.append(
                [
                    cell["robot"],
                    FUNCTIONS[cell["function"]],
                    *map(number, values),
                    *(f"{theirs / x:.2f}x" for x in values[1:] if x),
                ]
            )
    return table(
        ["robot", "function", "Pinocchio", "`robot.compile`", "method", "compiled", "method"], rows
    )


def errors(result: Result) -> str:
    ways = {
        "Pinocchio": ("pinocchio clang", "pinocchio gcc"),
        "MuJoCo": ("mujoco",),
        "CasADi": ("casadi clang", "casadi gcc"),
        "ours, float64": ("ours float64 out",),
        "ours, float32": ("ours float32 out",),
    }
    rows = []
    for cell in result["cells"]:
        if cell["count"] == 4096:
            worst = [
                max(
                    (cell["errors"][name] for name in names if name in cell["errors"]), default=None
                )
                for names in ways.values()
            ]
            rows.append(
                [
                    cell["robot"],
                    FUNCTIONS[cell["function"]],
                    *("" if x is None else f"{x:.0e}" for x in worst),
                ]
            )
    return table(["robot", "function", *ways], rows)


def threads(result: Result) -> str:
    rows = [
        [
            t["robot"],
            FUNCTIONS[t["function"]],
            f"{t['count']:,}",
            number(t["one"]),
            number(t["two"]),
            ratio(t["ratio"]),
        ]
        for t in result["threads"]
    ]
    return table(["robot", "function", "states", "one", "two", "gain"], rows)


def startup(result: Result) -> str:
    rows = [
        [robot, FUNCTIONS[f], *(f"{t[key]:.3f}" for key in ("cold", "cached"))]
        for robot, f, t in result["startup"]["first_calls"]
    ]
    return f"`import rigidgrad` takes {result['startup']['import']:.2f} s.\n\n" + table(
        ["robot", "function", "cold", "cached"], rows
    )


def solvers(result: Result) -> str:
    rows = [
        [
            case["problem"],
            name,
            r["peer"],
            *(ratio(r[what]) for what in ("iteration", "backward", "solve")),
        ]
        for case in result["single"]
        for name, r in case["ratios"].items()
    ]
    return table(["problem", "", "against", "an iteration", "its backward pass", "a solve"], rows)


def batches(result: Result) -> str:
    rows = [
        [
            f"{case['cores']} ({case['clock']} time)",
            name,
            number(solver["problems_per_second"]["target"]),
            ratio(case["ratios"].get(name, {}).get("target")),
        ]
        for case in result["batch"]
        for name, solver in case["solvers"].items()
    ]
    return table(["cores", "", "problems a second", "against Crocoddyl"], rows)


def gaits(result: Result) -> str:
    """Iterations: Crocoddyl's own counter shows one less than it does."""
    rows = []
    for case in result["single"]:
        forms = ("ours float64", "ours float32", "ours inverse")
        theirs, *mine = (case["solvers"][name] for name in ("crocoddyl FDDP", *forms))
        double, single, inverse = (case["ratios"][name] for name in forms)
        cells = [
            case["robot"],
            f"{case['gait']} ({case['knots']})",
            *(str(row["iterations"]) for row in (theirs, *mine)),
        ]
        cells += [f"{case['optimum']:.10g}", f"{max(abs(row['off_optimum']) for row in mine):.0e}"]
        cells += [number(row["us_per_iteration"]["best"] / 1e3) for row in (theirs, *mine)]
        ratios = (
            double["iteration"],
            double["solve"],
            single["iteration"],
            inverse["iteration"],
            inverse["solve"],
        )
        rows.append([*cells, *map(ratio, ratios)])
    header = [
        "robot",
        "gait (steps)",
        "iterations, Crocoddyl",
        "float64",
        "float32",
        "inverse",
        "optimum",
        "ours off it",
        "ms an iteration, Crocoddyl",
    ]
    header += [
        "float64",
        "float32",
        "inverse",
        "an iteration, float64",
        "a solve, float64",
        "an iteration, float32",
    ]
    return table([*header, "an iteration, inverse", "a solve, inverse"], rows)


def gait_batches(result: Result) -> str:
    rows = []
    for case in result["batch"]:
        for name, solver in case["solvers"].items():
            found, rates = case["ratios"].get(name, {}), solver["problems_per_second"]
            known = number(rates.get("known"))
            rows.append(
                [
                    case["robot"],
                    name,
                    number(rates["target"]),
                    known,
                    *(ratio(found.get(kind)) for kind in ("target", "known")),
                ]
            )
    header = [
        "robot",
        "",
        "problems a second",
        "with known iterations",
        "against Crocoddyl",
        "against it with known iterations",
    ]
    return table(header, rows)


def motions(result: Result) -> str:
    rows = [
        [
            case["weights"],
            f"{case['count']:,}",
            f"{case['converged']:.1%}",
            *(number(case["ms"][key]) for key in ("median", "p99", "max")),
        ]
        for case in result["moves"]
    ]
    return table(["weights", "motions", "converged", "ms, median", "ms, 99%", "ms, most"], rows)


def linear_solvers(result: Result) -> str:
    rows = [
        [
            name,
            str(r["iterations"]),
            number(r["ms_per_iteration"]),
            number(r["lq_ms"]),
            number(r["inner_iterations"]),
        ]
        for name, r in result["solve"].items()
    ]
    return table(
        [
            "linear solver",
            "iterations",
            "ms an iteration",
            "ms a linear system",
            "inner iterations",
        ],
        rows,
    )


def contacts(result: Result) -> str:
    names = {"contact_dynamics": "dynamics", "contact_dynamics_derivatives": "with derivatives"}
    rows = []
    for cell in result["cells"]:
        times = {name: number(timing["best"]) for name, timing in cell["times"].items()}
        begin = [cell["robot"], names[cell["function"]]]
        rows.append(
            [
                *begin,
                f"{cell['count']:,}",
                *(times[x] for x in ("pinocchio clang", "rigidgrad", "rigidgrad float32")),
                ratio(cell["faster"]),
            ]
        )
        if "faster from C" in cell:
            rows.append(
                [
                    *begin,
                    "1 from C",
                    times["pinocchio clang"],
                    times["rigidgrad from C"],
                    "",
                    ratio(cell["faster from C"]),
                ]
            )
    return table(
        (
            "robot",
            "function",
            "states",
            "Pinocchio, µs",
            "float64, µs",
            "float32, µs",
            "float64 against Pinocchio",
        ),
        rows,
    )


def walking(result: Result) -> str:
    """Speeds are means from the third second on; plans by CPU time and by the clock."""
    rows = []
    for name, case in result["cases"].items():
        told = (
            f"{case['survived']} of {case['pushes']} pushes"
            if case["pushes"]
            else "yes"
            if not case["falls"]
            else f"fell after {case['seconds']:.0f} s"
        )
        speeds = [
            "; ".join(f"{v:.2f}" if abs(v) > 5e-3 else "0" for v in case[key])
            for key in ("asked", "speed")
        ]
        times = [number(ms) for ms in (*case["plan_ms"], *case["wall_ms"])]
        outside = f"{case['outside']} of {case['plans']:,}"
        counted = ", ".join(f"{k} {n}" for k, n in case["counts"].items()) or "none"
        rows.append([name, told, *speeds, *times, f"{case['torque']:.0%}", outside, counted])
    header = [
        "robot, scene",
        "stands",
        "asked, m/s; m/s; rad/s",
        "held",
        "a plan, ms of CPU time",
        "99%",
        "by the clock",
        "99%",
        "most torque",
        "plans out of cones",
        "fallbacks",
    ]
    return table(header, rows)


def inverse_kinematics(result: Result) -> str:
    def cell(case: Result, name: str) -> str:
        return f"{case['per second'][name]:,.0f} ({case['solved'][name]:.2%})"

    ways = {
        "float64": "float64",
        "float32": "float32",
        "optik": "OptIK",
        "mink": "mink",
        "pink": "pink",
    }
    rows = [
        [
            case["robot"],
            *(cell(case, name) for name in ways),
            f"{case['one']['median']:.0f} µs",
            f"{case['unreachable']['us']:.0f} µs",
        ]
        for case in result["reaching"]
    ]
    many = result["humanoid"]
    rows.append([many["robot"], f"{many['per second']:,.0f} ({many['solved']:.2%})", *[""] * 6])
    header = [
        "targets a second (solved)",
        *ways.values(),
        "one target from Python, 32 seeds",
        "one out of reach, in a batch",
    ]
    return table(header, rows)


def differential_kinematics(result: Result) -> str:
    names = {
        "rigidgrad": "one robot",
        "rigidgrad, many": "1,024 robots at once",
        "mink": "mink",
        "pink": "pink",
    }
    rows = [
        [
            case["robot"],
            *(f"{case['us'][name]['best']:.3g} µs" for name in names),
            *(f"{1e3 * case['error'][name]['m']:.3f} mm" for name in ("rigidgrad", "mink", "pink")),
        ]
        for case in result["tracking"]
    ]
    header = ["a step of", *names.values(), "furthest off: rigidgrad", "mink", "pink"]
    return table(header, rows)


def c_solver(result: Result) -> str:
    rows = [
        [
            case["case"],
            f"{case['same']:,} of {case['starts']:,}",
            *(f"{case['iteration_us'][who]:.0f} µs" for who in ("python", "c")),
        ]
        for case in result["cases"]
    ]
    return table(["", "starts with Python's bits", "an iteration, Python", "C"], rows)


def c_controller(result: Result) -> str:
    mpc = result["mpc"]
    names = ("p50", "p99", "p99.9", "worst")
    rows = [
        [label, *(f"{mpc['step_us'][who][name]:.0f} µs" for name in names)]
        for label, who in (("Python", "python"), ("C", "c"))
    ]
    rows.append(["C / Python", *(f"{mpc['c_over_python'][name]:.2f}" for name in names[:3]), ""])
    how = "at real-time priority" if mpc["real_time_priority"] else "without real-time priority"
    locked = "memory locked" if mpc["memory_locked"] else "memory not locked"
    head = f"{mpc['steps']:,} steps, {how}, {locked}"
    return table([head, "median", "99%", "99.9%", "worst"], rows)


WORLDS = {
    "cartpole": "cart-pole",
    "hopper": "hopper",
    "hyq": "HyQ",
    "go2": "Go2",
    "g1": "G1",
    "humanoid": "humanoid (Gymnasium)",
}


def worlds_accuracy(result: Result) -> str:
    rows = [
        (
            WORLDS[name],
            f"{x['states']:,}",
            f"{x['contacts']:.1f}",
            f"{x['worst']:.0e}",
            f"{x['median']:.0e}",
        )
        for name, x in result["accuracy"].items()
    ]
    return table(("robot", "states", "contacts, mean", "worst error", "median"), rows)


def worlds_speed(result: Result) -> str:
    rows = []
    for name, x in result["speed"].items():
        first, cores = (result.get(part, {}).get(name) for part in ("first", "cores"))
        row = [WORLDS[name], str(x["nv"]), f"{x['contacts']:.1f}"]
        for dtype in ("float32", "float64"):
            y = x[dtype]
            row += [f"{y['µs']:.2f}", f"{y['MuJoCo µs']:.1f}", f"{y['ratio']:.1f}x"]
        row.append(f"{x['float32']['error']['90 %']:.0e}")
        row.append(f"{first['seconds']:.1f} s" if first else "")
        row.append(f"{cores['worlds']['faster']:.2f}x" if cores else "")
        rows.append(row)
    header = ("robot", "freedoms", "contacts", "float32, µs", "MuJoCo", "")
    header += ("float64, µs", "MuJoCo", "", "error, float32", "first step", "two threads")
    return table(header, rows)


def circuit_curve(result: Result) -> str:
    rows = [
        [
            str(row["multipliers"]),
            str(row["dsps"]),
            f"{row['cycles']} (chain {row['critical_path']})",
            f"{row['stream_interval']} cycles",
            f"{row['stream_cycles']} cycles",
        ]
        for row in result["curve"]
    ]
    header = ("multipliers", "DSPs", "cycles, least latency", "a stream: one result every")
    return table([*header, "first after"], rows)


def circuit_synthesis(result: Result) -> str:
    rows = []
    for title, design in result["designs"].items():
        found = design["synthesis"]
        levels = f"{found['bram36']:g}", str(found["lut_levels"])
        counts = (f"{found[key]:,}" for key in ("dsp", "lut", "ff"))
        rows.append([title, str(design["design"]["cycles"]), *counts, *levels])
    return table(["", "cycles", "DSP", "LUT", "FF", "BRAM36", "LUT levels, at most"], rows)


def circuit_latency(result: Result) -> str:
    found = result["latency"]
    rows = []
    for title, d in found["designs"].items():
        behind = (f"{us:.2f} µs" for us in d["us_behind_link"].values())
        chain = f"{d['cycles']} (chain {d['critical_path']})"
        rows.append([title, str(d["dsps"]), chain, f"{d['us']:.2f} µs", *behind])
    links = next(iter(found["designs"].values()))["us_behind_link"]
    rows.append(
        [
            "our C on one core",
            "",
            "",
            f"{result['cpu']['us_per_state']:.2f} µs",
            *([""] * len(links)),
        ]
    )
    return table(["", "DSPs", "cycles", "one state", *(f"behind {x}" for x in links)], rows)


def circuit_conversion(result: Result) -> str:
    found = result["cpu"]["conversion"]
    cycles = f"{found['circuit_cycles']} cycles, {found['circuit_ns']:.0f} ns"
    rows = [
        [n, f"{int(n) * found['host_ns_per_state']:,.0f} ns", cycles, f"{x:.2g}x"]
        for n, x in found["host_over_circuit"].items()
    ]
    return table(["states", "conversion on the host", "in the circuit", "ratio"], rows)


def circuit_exact(result: Result) -> str:
    """Zero words that differ, everywhere, is a condition."""
    rows = []
    for title, case in result["exact"].items():
        runs = [case.get(k) for k in ("free", "stalled and reset", "Icarus, stalled and reset")]
        cells = [
            f"{run['mismatches']} of {run['numbers']:,} ({run['states']:,} states)" if run else ""
            for run in runs
        ]
        relative = max(case["relative_error"].values())
        rows.append([title, case["format"], str(case["cycles"]), *cells, f"{relative:.1e}"])
    header = ["", "numbers", "cycles", "Verilator, free: words that differ"]
    return table(
        [*header, "with stalls and resets", "Icarus, with stalls and resets", "relative error"],
        rows,
    )


def circuit_placed(result: Result) -> str:
    rows = []
    for title, p in result["ecp5"].items():
        first, last = p["path"][0][0], p["path"][-1][1]
        cells = [f"{n:,} of {total:,}" for n, total in p["used"].values()]
        clock = f"{p['reached'] / 1e6:.1f} of {p['wanted'] / 1e6:g}"
        met = "met" if p["met"] else "not met"
        path = f"{p['path_ns']:.1f} ns, `{first}` to `{last}`"
        rows.append([title, str(p["cycles"]), f"{clock} ({met})", *cells, path])
    kinds = next(iter(result["ecp5"].values()))["used"]
    return table(["", "cycles", "MHz", *(f"`{k}`" for k in kinds), "critical path"], rows)


TABLES: dict[str, tuple[str, Callable[[Result], str]]] = {
    "against_fastest": ("dynamics", against_fastest),
    "dynamics": ("dynamics", dynamics),
    "one_state": ("dynamics", one_state),
    "one_state_ratios": ("dynamics", one_state_ratios),
    "errors": ("dynamics", errors),
    "threads": ("dynamics", threads),
    "startup": ("dynamics", startup),
    "solvers": ("solvers", solvers),
    "batches": ("solvers", batches),
    "gaits": ("gaits", gaits),
    "gait_batches": ("gaits", gait_batches),
    "motions": ("motions", motions),
    "walking": ("walking", walking),
    "linear_solvers": ("preconditioners", linear_solvers),
    "contacts": ("contacts", contacts),
    "c_solver": ("c_solver", c_solver),
    "c_controller": ("c_solver", c_controller),
    "inverse_kinematics": ("ik", inverse_kinematics),
    "differential_kinematics": ("ik", differential_kinematics),
    "worlds_accuracy": ("worlds", worlds_accuracy),
    "worlds_speed": ("worlds", worlds_speed),
    "circuit_curve": ("fpga", circuit_curve),
    "circuit_synthesis": ("fpga", circuit_synthesis),
    "circuit_latency": ("fpga", circuit_latency),
    "circuit_conversion": ("fpga", circuit_conversion),
    "circuit_exact": ("fpga", circuit_exact),
    "circuit_placed": ("fpga", circuit_placed),
}


def source(name: str, result: Result, top: str) -> str:
    """Where a table comes from: file, date, machine, command. `top`: the way from the page to the
    project's folder.
    """
    machine = result["machine"]
    path = f"bench/results/{name}.json"
    later = (
        " Some of it was measured again; the file names the commands."
        if result.get("again")
        else ""
    )
    where = (
        f"{machine['date'][:10]}, {machine['cpu']} ({', '.join(machine['features'])}),"
        f" {machine['cores']} cores"
    )
    return f"[{path}]({top}{path}), {where}: `{machine['command']}`.{later}"


def filled(page: str, top: str) -> str:
    def fill(match: re.Match[str]) -> str:
        name, render = TABLES[match[2]]
        result = json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text())
        return f"{match[1]}{render(result)}\n\n{source(name, result, top)}\n{match[3]}"

    return MARKED.sub(fill, page)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text(), "" if page.parent == ROOT else "../"))
