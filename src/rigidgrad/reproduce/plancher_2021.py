"""Plancher, Neuman, Bourgeat, Kuindersma, Devadas, Reddi 2021: accelerating robot dynamics
gradients on a CPU, GPU and FPGA.
"""

from __future__ import annotations

from statistics import median

from rigidgrad import charts
from rigidgrad.reproduce import readings
from rigidgrad.reproduce.entry import (
    FPGA,
    GPU,
    Entry,
    Results,
    Row,
    device,
    fact,
    number,
    statement,
)

SEED = "Plancher 2021"
CPU_HARDWARE = "Intel i7-7700, 4 cores, 3.6 GHz"
HARDWARE = (
    f"{CPU_HARDWARE}; NVIDIA GTX 2080, 1.7 GHz, PCIe 3; Xilinx VCU118, 55.6 MHz, PCIe 1; float32,"
    " on the FPGA 32-bit fixed point; iiwa14"
)
SIZES = (16, 32, 64, 128)
ON_A_GPU = (
    "rg.generate(rg.load('iiwa14'), ['fused_gradient', 'aba_derivatives'], target='cuda',"
    " out='build/') writes a benchmark that prints these times on your GPU: cmake -S build -B"
    " build/gpu && cmake --build build/gpu && build/gpu/benchmark"
)
ON_A_BOARD = (
    "rigidgrad fpga iiwa14 writes the Verilog, its testbench and a report of cycles; times need a"
    " vendor's place and route, and a board"
)


def _fig_1(r: Results) -> list[Row]:
    cell = readings.cell(r, "iiwa14", "aba_derivatives", 1)
    gain = readings.part(cell or {}, "ratios", "pinocchio", "ratio")
    return [
        number(
            "CPU, times faster than the fastest CPU library before (Pinocchio)",
            1.5,
            gain,
            "x",
            better="higher",
        ),
        fact(
            "one gradient of forward dynamics with M⁻¹, one core, from C",
            readings.one_state(r, "iiwa14", "aba_derivatives"),
            "µs",
        ),
        fact(
            "the same in Pinocchio here", readings.pinocchio(r, "iiwa14", "aba_derivatives"), "µs"
        ),
        fact(
            "from q, v, a and M⁻¹, as the paper's kernel",
            readings.part(r, "claims", "single", "iiwa14", "fused_gradient", "best"),
            "µs",
        ),
        device("GPU, times faster than the GPU code before", 6.4, GPU, "x"),
        device("the same, step ∂c/∂u", 9.2, GPU, "x"),
        device("GPU, times slower than the CPU: v, a, f", 8.0, GPU, "x"),
        device("GPU, times slower than the CPU: ∂c/∂u", 2.0, GPU, "x"),
        device("FPGA, times faster than the CPU", 5.6, FPGA, "x"),
        device("FPGA, times faster than the GPU", 13.8, FPGA, "x"),
        fact("cycles of our circuit, 32 multipliers", circuit_cycles(r)),
    ]


def circuit_cycles(r: Results) -> float | None:
    """Of the gradient from q, v, a and M⁻¹, one state alone."""
    found = readings.one(r, "claims", "folding", function="fused_gradient", multipliers=32)
    return None if found is None else found["cycles"]


def simulated(r: Results) -> Row:
    """Whether the circuit in Verilator gives the bits of the same arithmetic in Python."""
    found = readings.part(r, "fpga", "exact", "iiwa14 fused_gradient", "free")
    return fact(
        "our circuit in Verilator",
        found
        and f"{found['states']} states, {found['mismatches']} of {found['numbers']} numbers wrong",
    )


def partitioning(r: Results) -> list[Row]:
    """Split against completely fused; without a device there is only an estimate, which is not
    judged.
    """
    found = []
    for count, published in ((16, 1.9), (128, 2.8)):
        row = readings.one(r, "gpu", "estimate", "iiwa14", states=count)
        ours = (
            "-"
            if row is None
            else (
                f"estimated {row['split']['total'] / row['completely fused']['total']:.1f}x, not"
                " measured"
            )
        )
        found.append(
            device(f"completely fused against split, N = {count}", published, GPU, "x", ours)
        )
    on = readings.part(r, "gpu", "partitionings")
    for count in SIZES if on else ():
        us = {row["how"]: row["us"] for row in on["rows"] if row["states"] == count}
        said = ", ".join(f"{how.replace('_', ' ')} {t:,.0f} µs" for how, t in us.items())
        found.append(fact(f"by OpenCL on {on['device']}, N = {count}, with copies", said))
    return found


def partitioning_chart(r: Results) -> list[str]:
    rows = readings.rows(r, "gpu", "estimate", "iiwa14")
    if not rows:
        return []
    ways = {"split": "s", "fused": "f", "completely fused": "c"}
    bars = {
        f"{row['states']}{short}": {
            key: row[way][key] for key in ("kernel", "copies", "host", "launch")
        }
        for row in rows
        for way, short in ways.items()
    }
    return [
        charts.bars("Estimate, not measured", "N, split / fused / completely fused", "µs", bars)
    ]


def cpu_batches(r: Results) -> list[Row]:
    return [
        fact(
            f"our CPU, N = {count}: gradients of forward dynamics with M⁻¹",
            readings.batch_us(r, "iiwa14", count),
            "µs",
        )
        for count in SIZES
    ]


def batches_chart(r: Results) -> list[str]:
    known = {count: row for count in SIZES if (row := readings.batch(r, "iiwa14", count))}
    if not known:
        return []
    ways = {"one": "one thread", "kept": "kept threads", "launched": "launched threads"}
    series = {
        label: (list(known), [row["us"][way]["best"] for row in known.values()])
        for way, label in ways.items()
    }
    return [charts.lines("iiwa14: N gradients", "N", "µs", series)]


def _fig_3(r: Results) -> list[Row]:
    designs = readings.part(r, "fpga", "designs") or {}
    stream = [
        f"{title}: one state every {d['design']['interval']} cycles" for title, d in designs.items()
    ]
    return [
        *cpu_batches(r),
        device("GPU, times faster than the CPU, N = 16 to 128", (1.2, 3.0), GPU, "x"),
        device("FPGA, times faster than the CPU, N = 16 to 128", (1.6, 1.9), FPGA, "x"),
        simulated(r),
        *(fact("our circuits", text) for text in stream),
    ]


def _table_1(r: Results) -> list[Row]:
    c = readings.part(r, "claims", "counts", "iiwa14")
    get = (lambda *path: None) if c is None else (lambda *path: readings.part(c, *path))
    one, many = readings.batch_us(r, "iiwa14", 16), readings.batch_us(r, "iiwa14", 256)
    coarse = readings.ratio(one and one / 16, many and many / 256)
    alone = readings.one_state(r, "iiwa14", "aba_derivatives")
    gain = readings.ratio(alone, many and many / 256)
    parallel, zeros, live = get("parallelism"), get("zeros_of_transforms"), get("live_numbers")
    kilobytes = None if live is None else 8 * live / 1024
    io = None if c is None else 4 * (c["input_numbers"] + c["output_numbers"])
    dense = readings.ratio(get("flops_dense"), get("flops", "fused_gradient"))
    return [
        statement(
            "coarse-grained: N states are independent, a CPU gains from some",
            None if gain is None else gain > 1.5,
            _x(gain, "a state of 256 against one alone"),
        ),
        fact("the same, N = 16 to 256", coarse, "x"),
        statement(
            "fine-grained: many operations could run at once",
            None if parallel is None else parallel > 10,
            _n(parallel, "on average, by the longest chain"),
        ),
        statement(
            "structured sparsity: transforms are about half zeros",
            None if zeros is None else zeros > 0.4,
            _n(None if zeros is None else 100 * zeros, "% zeros"),
        ),
        fact("operations with full 6x6 matrices against ours", dense, "x"),
        fact(
            "irregular data: addresses that a GPU block looks up for a state",
            get("addresses", "fused_gradient"),
        ),
        fact("sequential dependencies: longest chain of operations", get("longest_chain")),
        fact("the same on a GPU: barriers", get("barriers", "fused_gradient")),
        statement(
            "small working set: fits the first cache (32 KB)",
            None if kilobytes is None else kilobytes < 32,
            _n(kilobytes, "KB alive at most, float64"),
        ),
        fact("I/O of a state, float32", io, "bytes"),
        fact("operations for each byte of it", readings.ratio(get("flops", "fused_gradient"), io)),
    ]


def _x(value: float | None, what: str) -> str:
    return "" if value is None else f"{value:.2g}x, {what}"


def _n(value: float | None, what: str) -> str:
    return "" if value is None else f"{value:.3g} {what}"


def _gradient_share(r: Results) -> list[Row]:
    """Of iLQR with one block, over the experiments."""
    shares = {
        e["experiment"]: 100 * row["gradient_share"]
        for e in readings.rows(r, "parallel_ddp", "experiments")
        for m, row in e["blocks"].items()
        if m == "1" and row["gradient_share"] is not None
    }
    return [
        number(
            "gradients' share of the time of a solve",
            (30.0, 90.0),
            readings.span(shares.values()),
            "%",
        ),
        *(fact(name.replace("_", ", "), share, "%") for name, share in shares.items()),
    ]


def _share_chart(r: Results) -> list[str]:
    found = []
    for e in readings.rows(r, "parallel_ddp", "experiments"):
        shares = {
            m: {"": 100 * row["gradient_share"]}
            for m, row in e["blocks"].items()
            if row["gradient_share"] is not None
        }
        if shares:
            found.append(
                charts.bars(f"{e['problem']}"[:44], "blocks M", "gradients' share, %", shares)
            )
    return found


SHARE_BECAUSE = (
    "Gradients of dynamics and costs together, by rigidgrad's own iLQR on one core, whose gradients"
    " are faster than Pinocchio's (Fig. 1 of the paper of 2021); the 30 to 90% are of other solvers"
    " and robots."
)


def _threads(r: Results) -> list[Row]:
    rows = readings.rows(r, "claims", "batches", "rows")
    gains = {
        (row["robot"], row["count"]): row["kept_against_launched"]["ratio"]
        for row in rows
        if row["count"] <= 128 and row["shared"]
    }
    return [
        number(
            "threads that stay against threads launched and joined, median of the batches",
            1.9,
            median(gains.values()) if gains else None,
            "x",
            better="higher",
        ),
        *(fact(f"{robot}, N = {count}", gain, "x") for (robot, count), gain in gains.items()),
    ]


def _folding(r: Results) -> list[Row]:
    rows = readings.rows(r, "claims", "folding")
    shared = readings.span(row["multiplications_each"] for row in rows)
    dsps = readings.span(row["dsps_of_multipliers"] for row in rows)
    texts = [
        f"{row['function']} on {row['multipliers']} multipliers: {row['cycles']} cycles, longest"
        f" chain {row['critical_path']}"
        for row in rows
    ]
    return [
        number("multiplications that share a multiplier", 7.0, shared, "x", better="higher"),
        number("DSPs of the circuit", 0.775 * 6840, dsps, better="lower"),
        *(fact("cycles", text) for text in texts),
    ]


def _formats(r: Results) -> dict[tuple[int, int], float]:
    """By integer and fraction bits, the cost as a multiple of float64's."""
    best = readings.part(r, "data_types", "optimum")
    return {
        (t["integer_bits"], t["fraction_bits"]): t["cost"] / best
        for t in readings.rows(r, "data_types", "types")
        if "integer_bits" in t
    }


def _fixed_point(r: Results) -> list[Row]:
    costs = _formats(r)
    rows = [
        number(
            f"cost with {i} + {f} bits, as a multiple of floating point's", 1.0, costs.get((i, f))
        )
        for i, f in ((16, 16), (12, 5))
    ]
    for near in (1e-1, 1e-2, 1e-3):
        passed = [bits for bits, cost in costs.items() if cost <= 1 + near]
        least = min(passed, key=sum, default=None)
        said = (
            f"{least[0]} + {least[1]}; at least {min(i for i, _ in passed)} before and"
            f" {min(f for _, f in passed)} after the point; {len(passed)} of {len(costs)} formats"
            if least
            else None
        )
        rows.append(fact(f"fewest bits for a cost within {100 * near:g}%", said))
    return rows


def _fixed_point_chart(r: Results) -> list[str]:
    """Cost against bits after the point, a line for each number of bits before it."""
    series: dict[str, tuple[list[float], list[float]]] = {}
    for (i, f), cost in sorted(_formats(r).items()):
        line = series.setdefault(f"{i} before", ([], []))
        line[0].append(f)
        line[1].append(cost)
    shown = {label: line for label, line in series.items() if len(line[0]) > 1}
    return (
        [charts.lines("Cost by bits", "bits after the point", "of float64's", shown)]
        if shown
        else []
    )


FIXED_BECAUSE = (
    "The arm across its workspace with the weights of the published code; each product is rounded"
    " by itself, and the Program has fewer operations than the paper's."
)

ENTRIES = (
    Entry(
        SEED,
        "Fig. 1",
        "Latency of one gradient",
        HARDWARE,
        ("dynamics", "claims"),
        _fig_1,
        "Ours also computes M⁻¹, which the paper takes as given, in float64, against today's"
        " Pinocchio, C++ against C, one core.",
        "section V-B",
        device=f"{ON_A_GPU}. {ON_A_BOARD}.",
    ),
    Entry(
        SEED,
        "Fig. 2",
        "Split, fused and completely fused kernels",
        HARDWARE,
        ("gpu",),
        partitioning,
        "Our kernels exist in the same three partitionings; what is shown is an estimate from their"
        " flops, bytes and barriers, and what the generated OpenCL library takes on a CPU (PoCL),"
        " with one copy each way but nothing over a bus: neither tells how a GPU would do.",
        "section V-C",
        partitioning_chart,
        ON_A_GPU,
    ),
    Entry(
        SEED,
        "Fig. 3",
        "N gradients on CPU, GPU and FPGA",
        HARDWARE,
        ("claims", "fpga"),
        _fig_3,
        "The paper's own times stand in a picture only; its text has the ratios between its"
        " devices.",
        "section V-D",
        batches_chart,
        f"{ON_A_GPU}. {ON_A_BOARD}.",
    ),
    Entry(
        SEED,
        "Table I",
        "Features of the gradient, as counts",
        "grades by the authors, no measurement",
        ("claims",),
        _table_1,
        "The table grades features from poor to excellent; what can be counted or timed here is,"
        " for iiwa14's gradient from q, v, a and M⁻¹.",
        "sections III-B and IV",
    ),
    Entry(
        SEED,
        "Claim: gradients' share",
        "30 to 90% of the time of MPC",
        "several, from the literature",
        ("parallel_ddp",),
        _gradient_share,
        SHARE_BECAUSE,
        "section I",
        _share_chart,
    ),
    Entry(
        SEED,
        "Claim: persistent threads",
        "Threads that stay",
        CPU_HARDWARE,
        ("claims",),
        _threads,
        "As many threads as there are cores. Launching and joining is done in C, without Python;"
        " ours is called from Python. Batches of up to 128 that ours gives to all threads count;"
        " the text says how much there was at most.",
        "section IV-A",
        batches_chart,
    ),
    Entry(
        SEED,
        "Claim: folding",
        "Multipliers used again",
        "Xilinx VCU118: 77.5% of 6840 DSPs after folding; 7x in the forward passes",
        ("claims",),
        _folding,
        "All multiplications of the whole gradient are scheduled onto a given number of"
        " multipliers, and not the forward passes alone; fewer DSPs, more cycles.",
        "section IV-C",
    ),
    Entry(
        SEED,
        "Claim: fixed-point range",
        "Cost of the solution by number format",
        "simulated on a CPU",
        ("data_types",),
        _fixed_point,
        FIXED_BECAUSE,
        "section IV-C; and Plancher 2022, appendix C",
        _fixed_point_chart,
    ),
)
