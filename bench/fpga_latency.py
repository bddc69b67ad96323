"""The parts `latency` and `cpu` of fpga.py: designs for the least latency beside our own CPU code
for one state, and what the conversion of numbers costs on the host and in the circuit.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import rigidgrad as rg
from rigidgrad import fpga
from rigidgrad.targets.verilog.converters import INPUT_STAGES, OUTPUT_STAGES
from rigidgrad.targets.verilog.driver import BATCHES, LINKS, Coprocessor
from rigidgrad.targets.verilog.simulate import Icarus

CLOCK = 55.6e6  # of Plancher et al. (2021)
BUDGET = 5000
SLOW = {"multiplier_stages": 2, "adder_stages": 1, "dsps": BUDGET}
DESIGNS: dict[str, dict[str, Any]] = {
    "a datapath for each column": SLOW | {"datapaths": "columns"},
    "shared units": SLOW,
    "shared units, one stage each": SLOW | {"multiplier_stages": 1},
}
STATES = 20  # compared bit for bit
MAIN = """
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "iiwa14.h"
enum { IN = 77, OUT = 98, ROUNDS = 300, CALLS = 2000 };
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }
float in[IN], out[OUT]; int32_t raw[IN], back[OUT];  // visible from outside: what is stored stays
__attribute__((noinline)) static void convert(void) {
    for (int k = 0; k < IN; ++k) {
        float x = floorf(in[k] * 65536.0f + 0.5f);
        raw[k] = x >= 2147483648.0f ? INT32_MAX : x < -2147483648.0f ? INT32_MIN : (int32_t)x;
    }
    for (int k = 0; k < OUT; ++k) out[k] = (float)back[k] * (1.0f / 65536.0f);
    __asm__ volatile("" ::: "memory");
}
int main(void) {
    double q[7], v[7], a[7], minv[49], dq[49], dv[49], best = 1e9, conversion = 1e9;
    for (int k = 0; k < 7; ++k) { q[k] = 0.1 * k; v[k] = 0.2 * k; a[k] = 1; }
    for (int k = 0; k < 49; ++k) minv[k] = 0.5;
    for (int k = 0; k < IN; ++k) in[k] = 0.37f * k;
    for (int k = 0; k < OUT; ++k) back[k] = 12345 * k;
    for (int r = 0; r < ROUNDS; ++r) {
        double t = now();
        for (int c = 0; c < CALLS; ++c) { iiwa14_fused_gradient(q, v, a, minv, dq, dv); q[0] += 1e-9 * dv[0]; }
        t = (now() - t) / CALLS; if (t < best) best = t;
        t = now();
        for (int c = 0; c < CALLS; ++c) convert();
        t = (now() - t) / CALLS; if (t < conversion) conversion = t;
    }
    printf("%.3e %.3e\\n", best, conversion);
    return 0;
}
"""


def on_the_cpu() -> tuple[float, float]:
    """Seconds of one state of our generated C, and of converting its numbers there and back."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rg.generate(rg.load("iiwa14"), ["fused_gradient"], target="c", out=folder)
        (folder / "time.c").write_text(MAIN)
        flags = ["-O3", "-march=native", "-ffp-contract=fast"]
        subprocess.run(
            ["clang", *flags, "time.c", "iiwa14.c", "-lm", "-o", "time"], cwd=folder, check=True
        )
        said = subprocess.run([folder / "time"], check=True, capture_output=True, text=True).stdout
    state, conversion = (float(x) for x in said.split())
    return state, conversion


def latency() -> dict[str, Any]:
    robot, designs = rg.load("iiwa14"), {}
    for title, options in DESIGNS.items():
        circuit = fpga.build(robot, "fused_gradient", **options)
        d = circuit.describe()
        words = Coprocessor(circuit, CLOCK).stream(fpga.states(robot, circuit, STATES))
        with tempfile.TemporaryDirectory() as folder:
            compared = Icarus(circuit, Path(folder)).compare(words, resets=2000)
        keys = ("cycles", "critical_path", "multipliers", "adders", "operations", "interval")
        designs[title] = {key: d[key] for key in (*keys, "port_sources_mean")} | {
            "dsps": circuit.dsps,
            "us": d["cycles"] / CLOCK * 1e6,
            "us_behind_link": {
                link.name: Coprocessor(circuit, CLOCK, link).timing(1).total * 1e6
                for link in LINKS.values()
            },
            "Icarus": compared.summary(),
        }
        print(title, designs[title], flush=True)
    return {"clock_hz": CLOCK, "budget_dsps": BUDGET, "designs": designs}


def cpu() -> dict[str, Any]:
    """One state of our C on one core; conversion there, and in the circuit once for a batch."""
    state, conversion = on_the_cpu()
    cycles = INPUT_STAGES + OUTPUT_STAGES - 1
    found = {
        "us_per_state": state * 1e6,
        "conversion": {
            "host_ns_per_state": conversion * 1e9,
            "circuit_cycles": cycles,
            "circuit_ns": cycles / CLOCK * 1e9,
            "host_over_circuit": {str(n): n * conversion / (cycles / CLOCK) for n in (1, *BATCHES)},
        },
    }
    print(found, flush=True)
    return found
