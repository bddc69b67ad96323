"""A C++ harness for Verilator: streams records from a file through a circuit, with random stalls on both sides, and writes what comes out."""

from __future__ import annotations

from rigidgrad.targets.verilog.circuit import Circuit
from rigidgrad.targets.verilog.render import MARK, lane_bits


def harness(circuit: Circuit, name: str) -> str:
    """Words in the files are 64-bit integers (with float32 streams their bits), inputs of a state one after the other; each result row ends with its flags.

    usage: V{name} INPUTS OUTPUTS IN_STALL OUT_STALL SEED: stalls in percent of cycles. Prints the numbers of states and cycles, of cycles from a state's first beat
    in to its last beat out (the first state, alone in the circuit), and between the last two states' ends. Exit code 3: nothing moved for a long time.
    """
    word = "uint32_t" if lane_bits(circuit) == 32 else "uint64_t"
    parts = lane_bits(circuit) // 32
    wait = 20 * (circuit.rows + circuit.schedule.cycles + circuit.input_beats + circuit.output_beats) + 1000
    return f"""// {MARK}
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include "V{name}.h"
#include "verilated.h"

static const int LANES = {circuit.lanes}, IN = {circuit.input_words}, OUT = {circuit.output_words};
static const int IN_BEATS = {circuit.input_beats}, OUT_BEATS = {circuit.output_beats}, PARTS = {parts};
static uint64_t random_state;
static unsigned percent() {{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return unsigned((random_state >> 33) % 100);
}}

template <class T> static void put(T &port, int lane, uint64_t x) {{
    for (int p = 0; p < PARTS; ++p) ((uint32_t *)&port)[lane * PARTS + p] = uint32_t(x >> (32 * p));
}}
template <class T> static int64_t get(T &port, int lane) {{
    {word} x = 0;
    for (int p = 0; p < PARTS; ++p) x |= ({word})((uint32_t *)&port)[lane * PARTS + p] << (p ? 32 : 0);
    return {"(int32_t)x" if parts == 1 else "(int64_t)x"};
}}

int main(int argc, char **argv) {{
    if (argc != 6) return 2;
    FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
    if (!in || !out) return 2;
    const unsigned in_stall = atoi(argv[3]), out_stall = atoi(argv[4]);
    random_state = strtoull(argv[5], 0, 10);
    V{name} *dut = new V{name};
    std::vector<int64_t> row(IN), result(OUT + 1);
    long states = 0, cycle = 0, first_in = -1, first_end = 0, last_end = 0, before_last_end = 0, moved = 0, sent = 0;
    int in_beat = 0, out_beat = 0;
    bool have = fread(row.data(), 8, IN, in) == size_t(IN), offering = false;
    dut->reset = 1; dut->in_valid = 0; dut->out_ready = 0;
    for (int k = 0; k < 4; ++k) {{ dut->clk = 0; dut->eval(); dut->clk = 1; dut->eval(); }}
    dut->reset = 0;
    bool drained = !have;
    while (!drained || states < sent) {{
        if (have && !offering) offering = percent() >= in_stall;  // a beat once offered stays until it is taken
        dut->in_valid = offering;
        if (offering)
            for (int lane = 0; lane < LANES; ++lane) {{
                const int k = in_beat * LANES + lane;
                put(dut->in_data, lane, k < IN ? uint64_t(row[k]) : 0);
            }}
        dut->out_ready = percent() >= out_stall;
        dut->clk = 0; dut->eval();
        const bool taken = dut->in_valid && dut->in_ready, given = dut->out_valid && dut->out_ready;
        if (taken) {{
            if (first_in < 0) first_in = cycle;
            moved = cycle; offering = false;
            if (++in_beat == IN_BEATS) {{ in_beat = 0; ++sent; have = fread(row.data(), 8, IN, in) == size_t(IN); drained = !have; }}
        }}
        if (given) {{
            moved = cycle;
            for (int lane = 0; lane < LANES; ++lane) {{
                const int k = out_beat * LANES + lane;
                if (k < OUT) result[k] = get(dut->out_data, lane);
            }}
            if (bool(dut->out_last) != (out_beat == OUT_BEATS - 1)) {{ fprintf(stderr, "out_last at a wrong beat\\n"); return 4; }}
            if (++out_beat == OUT_BEATS) {{
                out_beat = 0; result[OUT] = dut->out_flags; ++states;
                if (states == 1) first_end = cycle;
                before_last_end = last_end; last_end = cycle;
                fwrite(result.data(), 8, OUT + 1, out);
            }}
        }}
        dut->clk = 1; dut->eval(); ++cycle;
        if (cycle - moved > {wait}) {{ fprintf(stderr, "nothing moved for {wait} cycles\\n"); return 3; }}
    }}
    printf("%ld %ld %ld %ld\\n", states, cycle, states ? first_end - first_in + 1 : 0, states > 1 ? last_end - before_last_end : 0);
    fclose(out);
    dut->final();
    return 0;
}}
"""
