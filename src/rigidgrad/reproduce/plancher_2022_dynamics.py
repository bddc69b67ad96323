"""Plancher 2022, chapters 5 and 7 and appendix C: dynamics and gradients on CPU, GPU, FPGA and
ASIC.
"""

from __future__ import annotations

from rigidgrad import charts
from rigidgrad.reproduce import plancher_2021, readings
from rigidgrad.reproduce.entry import (
    FPGA,
    GPU,
    Entry,
    Results,
    Row,
    counted_by,
    device,
    fact,
    number,
)

SEED = "Plancher 2022"
OLD = "Intel i7-7700, 4 cores, 3.6 GHz; NVIDIA GTX 2080, 1.7 GHz; float32"
NEW = (
    "Intel i7-10700K, 8 cores, 3.8 GHz, Pinocchio's generated code; NVIDIA RTX 3080, 1.44 GHz;"
    " float32"
)
ROBOTS = {"iiwa14": "iiwa14", "hyq": "HyQ", "atlas": "Atlas"}
FUNCTIONS = {
    "rnea": "ID",
    "minv": "M⁻¹",
    "aba": "FD",
    "rnea_derivatives": "∇ID",
    "aba_derivatives": "∇FD",
}
# µs of one computation: CPU, GPU, by robot
TABLE_5_2 = {
    "rnea": ((0.3, 0.3, 1.1), (3.0, 3.2, 8.0)),
    "minv": ((0.5, 0.8, 3.4), (5.2, 5.6, 17.4)),
    "aba": ((0.9, 1.2, 5.3), (7.7, 6.9, 22.4)),
    "rnea_derivatives": ((1.4, 2.1, 9.8), (6.3, 5.8, 19.5)),
    "aba_derivatives": ((2.9, 4.3, 20.9), (12.9, 11.0, 42.1)),
}
# times longer than iiwa14's: HyQ's and Atlas's on the CPU
SCALING = {"rnea": (1.1, 3.9), "aba_derivatives": (1.5, 7.2)}
# N = 256 gradients of forward dynamics: µs on one core and on eight, how many times as long as N =
# 16, the GPU's gain without and with copies
FIGURE_5_8 = {
    "iiwa14": (742.0, 123.0, 5.4, 5.3, 2.5),
    "hyq": (1091.0, 172.0, 6.2, 7.2, 2.1),
    "atlas": (5355.0, 865.0, 11.8, 5.0, 2.0),
}
# % of timings within 1% of the mean: N = 16, N = 256
SPREAD = {"iiwa14": (54.0, 86.0), "hyq": (73.0, 87.0), "atlas": (81.0, 95.0)}


def _fig_5_4(r: Results) -> list[Row]:
    flops = readings.part(r, "claims", "counts", "iiwa14", "flops") or {}
    barriers = readings.part(r, "claims", "counts", "iiwa14", "barriers") or {}
    steps = readings.part(r, "claims", "steps")
    product = None if not flops else float(4 * 7**3)

    def best(name: str) -> float | None:
        found: float | None = readings.part(steps or {}, name, "best")
        return found

    apart = [best("rnea"), readings.part(steps or {}, "derivatives_alone"), best("product")]
    sums = [t for t in apart if t is not None]
    return [
        number("product with M⁻¹, CPU", 0.44, best("product"), "µs", better="lower"),
        fact("v, a and f, CPU", apart[0], "µs"),
        fact("∂c/∂u, CPU: a call with v, a and f in it, less one of these", apart[1], "µs"),
        fact("∂c/∂u with v, a and f in it, CPU", best("rnea_derivatives"), "µs"),
        fact(
            "the three steps together against one call for all",
            readings.ratio(sum(sums), best("fused_gradient")) if len(sums) == 3 else None,
            "x",
        ),
        device("GPU, times faster than the GPU code before", 6.4, GPU, "x"),
        device("GPU, times slower than the CPU", 2.5, GPU, "x"),
        device("product with M⁻¹ on the GPU", 0.36, GPU, "µs"),
        fact("operations: inverse dynamics", flops.get("rnea")),
        fact("operations: gradient of inverse dynamics, with M", flops.get("rnea_derivatives")),
        fact("operations: product with M⁻¹, twice", product),
        fact(
            "operations: all three steps together, shared and simplified",
            flops.get("fused_gradient"),
        ),
        *(
            fact(f"barriers of our GPU kernel, {name.replace('_', ' ')}", n)
            for name, n in barriers.items()
        ),
    ]


def _steps_chart(r: Results) -> list[str]:
    drawn = []
    steps = readings.part(r, "claims", "steps")
    if steps:
        times = {
            "apart": {
                "v, a, f": steps["rnea"]["best"],
                "∂c/∂u": steps["derivatives_alone"],
                "product": steps["product"]["best"],
            },
            "one call": {"all": steps["fused_gradient"]["best"]},
        }
        drawn.append(charts.bars("iiwa14: one gradient by its steps", "", "µs", times))
    flops = readings.part(r, "claims", "counts")
    if not flops:
        return drawn
    bars = {
        ROBOTS[name]: {
            "ours": c["flops"]["fused_gradient"],
            "full 6x6 matrices, more": c["flops_dense"] - c["flops"]["fused_gradient"],
        }
        for name, c in flops.items()
    }
    return [*drawn, charts.bars("Operations of a gradient", "", "flops", bars)]


def _fig_5_7(r: Results) -> list[Row]:
    rows = []
    for function, (hyq, atlas) in SCALING.items():
        base, there = (
            readings.one_state(r, "iiwa14", function),
            readings.pinocchio(r, "iiwa14", function),
        )
        for robot, published in (("hyq", hyq), ("atlas", atlas)):
            gain = readings.ratio(readings.one_state(r, robot, function), base)
            rows.append(
                number(
                    f"{FUNCTIONS[function]}, {ROBOTS[robot]} against iiwa14, CPU",
                    published,
                    gain,
                    "x",
                    better="lower",
                )
            )
            rows.append(
                fact(
                    "the same by Pinocchio here",
                    readings.ratio(readings.pinocchio(r, robot, function), there),
                    "x",
                )
            )
    return [*rows, device("Atlas against iiwa14 on the GPU, ID to ∇FD", (2.7, 3.3), GPU, "x")]


def _scaling_chart(r: Results) -> list[str]:
    bars: dict[str, dict[str, float]] = {}
    for function, label in FUNCTIONS.items():
        times = {ROBOTS[robot]: readings.one_state(r, robot, function) for robot in ROBOTS}
        if all(t is not None for t in times.values()):
            bars |= {
                f"{label} {robot[0]}": {robot: t} for robot, t in times.items() if t is not None
            }
    return [charts.bars("One state, one core, from C", "", "µs", bars)] if bars else []


def _table_5_2(r: Results) -> list[Row]:
    rows = []
    for function, (cpu, gpu) in TABLE_5_2.items():
        for k, (robot, label) in enumerate(ROBOTS.items()):
            name = f"{FUNCTIONS[function]}, {label}"
            row = number(
                f"{name}, CPU", cpu[k], readings.one_state(r, robot, function), "µs", better="lower"
            )
            peer = readings.pinocchio(r, robot, function)
            rows.append(
                row
                if peer is None
                else Row(
                    row.what,
                    row.published,
                    f"{row.ours} (Pinocchio here {peer:.3g} µs)",
                    row.verdict,
                    row.value,
                )
            )
            rows.append(device(f"{name}, GPU", gpu[k], GPU, "µs", _compiled(r, robot, function)))
    return rows


def _compiled(r: Results, robot: str, function: str) -> str:
    """What nvcc says of the block kernel."""
    found = readings.rows(
        r,
        "gpu",
        "resources",
        robot=robot,
        function=function,
        shape="block",
        dtype="float32",
        arch="sm_86",
    )
    return (
        "-"
        if not found
        else (
            f"{found[0]['barriers']} barriers, {found[0]['registers']} registers,"
            f" {found[0]['shared_bytes']} B shared (sm_86)"
        )
    )


def _fig_5_8(r: Results) -> list[Row]:
    rows = []
    for robot, (alone, cpu, scale, kernel, copied) in FIGURE_5_8.items():
        label, most = ROBOTS[robot], readings.batch_us(r, robot, 256)
        rows.append(number(f"{label}, 256 gradients on the CPU", cpu, most, "µs", better="lower"))
        growth = readings.ratio(most, readings.batch_us(r, robot, 16))
        rows.append(
            number(
                f"{label}, N = 256 takes as many times as long as N = 16, CPU",
                scale,
                growth,
                "x",
                better="lower",
            )
        )
        rows.append(
            number(
                f"{label}, 256 gradients on all cores, times faster than on one, by core",
                alone / cpu / 8,
                _by_core(r, robot),
                better="higher",
            )
        )
        rows.append(device(f"{label}, GPU faster than the CPU, without copies", kernel, GPU, "x"))
        rows.append(device(f"{label}, GPU faster than the CPU, with copies", copied, GPU, "x"))
    return rows


def _by_core(r: Results, robot: str) -> float | None:
    """How many times faster all cores are than one, for each core."""
    row, cores = readings.batch(r, robot, 256), readings.part(r, "claims", "batches", "threads")
    return None if row is None else row["us"]["one"]["best"] / row["us"]["kept"]["best"] / cores


def _batch_chart(r: Results) -> list[str]:
    series = {}
    for robot, label in ROBOTS.items():
        known = {
            n: us
            for n in (16, 32, 64, 128, 256)
            if (us := readings.batch_us(r, robot, n)) is not None
        }
        if known:
            series[label] = ([float(n) for n in known], list(known.values()))
    return [charts.lines("N gradients of forward dynamics", "N", "µs", series)] if series else []


def _memory(r: Results) -> list[Row]:
    found = readings.part(r, "claims", "memory") or {}
    rows = []
    for robot, label in ROBOTS.items():
        counts = readings.part(found, robot, "rnea_derivatives")
        columns = counts and 100 * (1 - counts["columns"] / counts["full"])
        kernel = counts and 100 * (1 - counts["kernel"] / counts["full"])
        if robot == "hyq":
            rows.append(
                number(
                    "HyQ, gradient of ID: shared memory that zero columns would take",
                    (60.0, 100.0),
                    columns,
                    "%",
                    slack=0.0,
                )
            )
        else:
            rows.append(fact(f"the same, {label}", columns, "%"))
        rows.append(fact(f"{label}: saved by zero columns and places used again", kernel, "%"))
    return rows


def _spread(r: Results) -> list[Row]:
    rows = []
    for robot, published in SPREAD.items():
        for count, share in zip((16, 256), published, strict=True):
            found = readings.batch(r, robot, count)
            steady = (
                {way: 100 * found["steady"][way]["of_mean"] for way in ("one", "kept")}
                if found
                else {}
            )
            rows.append(
                number(
                    f"{ROBOTS[robot]}, N = {count}: timings within 1% of the mean, CPU",
                    share,
                    steady.get("kept"),
                    "%",
                    better="higher",
                )
            )
            rows.append(fact("the same on one thread", steady.get("one"), "%"))
    return [*rows, device("the same on the GPU, more than", 90.0, GPU, "%")]


def _fig_7_1(r: Results) -> list[Row]:
    area = readings.part(r, "fpga", "area") or {}
    return [
        device("GPU, times slower than the CPU", 2.5, GPU, "x"),
        device("FPGA, times faster than the CPU", 5.6, FPGA, "x"),
        device("ASIC (12 nm, synthesised), times faster than the FPGA", 7.2, FPGA, "x"),
        fact("cycles of our circuit, 32 multipliers", plancher_2021.circuit_cycles(r)),
        plancher_2021.simulated(r),
        fact(
            "one gradient on our CPU, from q, v, a and M⁻¹",
            readings.part(r, "claims", "single", "iiwa14", "fused_gradient", "best"),
            "µs",
        ),
        fact("our circuit in generic cells, NAND2 equivalents", area.get("nand2")),
    ]


CPU_BECAUSE = (
    "One core of this machine in float64, called from C, no code generated by Pinocchio; the"
    " published CPU column is Pinocchio's generated code."
)

_2021 = {entry.label: entry for entry in plancher_2021.ENTRIES}

ENTRIES = (
    counted_by(
        _2021["Claim: gradients' share"],
        SEED,
        "Fig. 5.1",
        "Gradients' share of MPC",
        "chapter 5, before section 5.1",
    ),
    Entry(
        SEED,
        "Fig. 5.4",
        "One gradient by its steps",
        OLD,
        ("claims",),
        _fig_5_4,
        "Three compiled calls, float64, one core, from C. The recursion of ∂c/∂u needs v, a and f"
        " and computes them itself: the step alone is a difference. As one call the steps share"
        " operations.",
        "section 5.5.1",
        _steps_chart,
        plancher_2021.ON_A_GPU,
    ),
    counted_by(
        _2021["Fig. 2"],
        SEED,
        "Fig. 5.5",
        "Split, fused and completely fused kernels",
        "section 5.5.1",
    ),
    counted_by(_2021["Fig. 3"], SEED, "Fig. 5.6", "N gradients on CPU and GPU", "section 5.5.1"),
    Entry(
        SEED,
        "Fig. 5.7",
        "Scaling from iiwa14 to HyQ and Atlas",
        NEW,
        ("dynamics", "claims"),
        _fig_5_7,
        f"{CPU_BECAUSE} What ours gains over it is largest for the smallest robot (Table 5.2), and"
        " so the ratio between robots grows.",
        "section 5.5.2",
        _scaling_chart,
        plancher_2021.ON_A_GPU,
    ),
    Entry(
        SEED,
        "Table 5.2",
        "One computation by algorithm and robot",
        NEW,
        ("dynamics", "claims", "gpu"),
        _table_5_2,
        CPU_BECAUSE,
        "section 5.5.2",
        device=plancher_2021.ON_A_GPU,
    ),
    Entry(
        SEED,
        "Fig. 5.8",
        "16 to 256 gradients by robot",
        NEW,
        ("claims",),
        _fig_5_8,
        "As many threads as cores, called from Python; there eight threads on eight cores. Starting"
        " a batch costs little here, so that time grows nearly with N, and the ratio to small"
        " batches is larger although each is faster.",
        "section 5.5.2",
        _batch_chart,
        plancher_2021.ON_A_GPU,
    ),
    Entry(
        SEED,
        "Claim: HyQ's shared memory",
        "Columns that the topology makes zero",
        "counted by GRiD's generator",
        ("claims",),
        _memory,
        "Counted in our block kernels: a place for every column of ∂v, ∂a and ∂f against places for"
        " those that are not zero.",
        "section 5.4.2",
    ),
    Entry(
        SEED,
        "Claim: spread of timings",
        "How many timings are within 1% of the mean",
        NEW,
        ("claims",),
        _spread,
        "A virtual machine with two cores that it shares with others, and a system that was not"
        " told to leave them alone; there a workstation with its clock fixed. 1% of a batch of a"
        " few microseconds is some tens of nanoseconds.",
        "section 5.5.2",
        device=plancher_2021.ON_A_GPU,
    ),
    Entry(
        SEED,
        "Fig. 7.1",
        "One gradient on CPU, GPU, FPGA and ASIC",
        f"{OLD}; Xilinx VCU118, 55.6 MHz; Global Foundries 12 nm",
        ("claims", "fpga"),
        _fig_7_1,
        "Cycles and cells are counted; no clock is claimed that was not met.",
        "chapter 7",
        device=f"{plancher_2021.ON_A_GPU}. {plancher_2021.ON_A_BOARD}.",
    ),
    counted_by(
        _2021["Claim: fixed-point range"],
        SEED,
        "Fig. C.1",
        "Number formats that solve the arm's problem",
        "appendix C",
    ),
)
