"""What runs a circuit in a simulator: a C++ harness for Verilator, and a testbench in Verilog for
simulators of four states, which start with every register unknown.

Both stream records from a file through the circuit, with random stalls on both sides and resets of
one cycle at random moments, and write what comes out. A reset loses the states under way: they are
sent again, so the results are those of all states, in order, however often the circuit was reset.
"""

from __future__ import annotations

from rigidgrad.targets.verilog.circuit import Circuit
from rigidgrad.targets.verilog.render import MARK, lane_bits


def harness(circuit: Circuit, name: str) -> str:
    """Words in the files are 64-bit integers (with float32 streams their bits), inputs of a state
    one after the other; each result row ends with its flags.

    usage: V{name} INPUTS OUTPUTS IN_STALL OUT_STALL SEED RESETS: stalls in percent of cycles, mean
    cycles between resets (0: only the first). Prints the numbers of states and cycles, of cycles
    from a state's first beat in to its last beat out (the first state, alone in the circuit), and
    between the last two states' ends. Exit code 3: nothing moved for a long time.
    """
    word = "uint32_t" if lane_bits(circuit) == 32 else "uint64_t"
    parts = lane_bits(circuit) // 32
    wait = _patience(circuit)
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
static unsigned below(unsigned n) {{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return unsigned((random_state >> 33) % n);
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
    if (argc != 7) return 2;
    FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
    if (!in || !out) return 2;
    const unsigned in_stall = atoi(argv[3]), out_stall = atoi(argv[4]), resets = atoi(argv[6]);
    random_state = strtoull(argv[5], 0, 10);
    Verilated::randReset(2);  // registers start with random values
    Verilated::randSeed(int(random_state % 2147483646) + 1);
    V{name} *dut = new V{name};
    std::vector<int64_t> row(IN), result(OUT + 1);
    long states = 0, cycle = 0, first_in = -1, first_end = 0, last_end = 0, before_last_end = 0, moved = 0, sent = 0;
    int in_beat = 0, out_beat = 0;
    auto next = [&] {{ return fread(row.data(), 8, IN, in) == size_t(IN); }};
    bool have = next(), offering = false;
    dut->reset = 0; dut->in_valid = 0; dut->out_ready = 0;
    for (int k = 0; k < 4; ++k) {{ dut->reset = k == 3; dut->clk = 0; dut->eval(); dut->clk = 1; dut->eval(); }}
    dut->reset = 0;
    while (have || states < sent) {{
        if (have && !offering) offering = below(100) >= in_stall;  // a beat once offered stays until it is taken
        dut->in_valid = offering;
        if (offering)
            for (int lane = 0; lane < LANES; ++lane) {{
                const int k = in_beat * LANES + lane;
                put(dut->in_data, lane, k < IN ? uint64_t(row[k]) : 0);
            }}
        dut->out_ready = below(100) >= out_stall;
        dut->reset = resets && !below(resets);
        dut->clk = 0; dut->eval();
        if (dut->reset) {{  // on from the first state that is not back yet
            in_beat = out_beat = 0; offering = false; sent = states; moved = cycle;
            fseek(in, states * long(IN) * 8, SEEK_SET); have = next();
            dut->clk = 1; dut->eval(); ++cycle;
            continue;
        }}
        const bool taken = dut->in_valid && dut->in_ready, given = dut->out_valid && dut->out_ready;
        if (taken) {{
            if (first_in < 0) first_in = cycle;
            moved = cycle; offering = false;
            if (++in_beat == IN_BEATS) {{ in_beat = 0; ++sent; have = next(); }}
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


def testbench(circuit: Circuit, name: str) -> str:
    """Plain Verilog-2005. Words in the files are hexadecimal, one on a line or one after the other.

    STATES is a parameter; +inputs=, +outputs=, +in_stall=, +out_stall=, +seed= and +resets= mean
    what they do for Verilator, and it prints the same four numbers. An unknown bit in a handshake
    stops it; one in a result is written as x.
    """
    bits = lane_bits(circuit)
    return f"""// {MARK}
`timescale 1ns/1ps
module {name}_testbench;
    parameter STATES = 1;
    localparam LANES = {circuit.lanes}, IN = {circuit.input_words}, OUT = {circuit.output_words};
    localparam IN_BEATS = {circuit.input_beats}, OUT_BEATS = {circuit.output_beats}, BITS = {bits};
    reg clk, reset, in_valid, out_ready; reg [LANES*BITS-1:0] in_data;
    wire in_ready, out_valid, out_last; wire [LANES*BITS-1:0] out_data; wire [1:0] out_flags;
    {name} dut (.clk(clk), .reset(reset), .in_valid(in_valid), .in_ready(in_ready), .in_data(in_data),
        .out_valid(out_valid), .out_ready(out_ready), .out_data(out_data), .out_last(out_last), .out_flags(out_flags));

    reg [BITS-1:0] words [0:STATES*IN-1]; reg [BITS-1:0] result [0:OUT-1];
    reg [8*1024-1:0] file;
    integer out, seed, in_stall, out_stall, resets, lane, k;
    integer sent, states, in_beat, out_beat, cycle, moved, first_in, first_end, last_end, before_last_end;
    reg running, offering;

    initial begin
        in_stall = 0; out_stall = 0; resets = 0; seed = 1;
        if (!$value$plusargs("inputs=%s", file)) $finish;
        $readmemh(file, words);
        if (!$value$plusargs("outputs=%s", file)) $finish;
        out = $fopen(file, "w");
        k = $value$plusargs("in_stall=%d", in_stall); k = $value$plusargs("out_stall=%d", out_stall);
        k = $value$plusargs("seed=%d", seed); k = $value$plusargs("resets=%d", resets);
        sent = 0; states = 0; in_beat = 0; out_beat = 0; cycle = 0; moved = 0;
        first_in = -1; first_end = 0; last_end = 0; before_last_end = 0;
        running = 0; offering = 0; clk = 0; reset = 0; in_valid = 0; out_ready = 0; in_data = 0;
        repeat (3) begin #1 clk = 1; #1 clk = 0; end
        reset = 1; #1 clk = 1; #1 clk = 0; reset = 0; running = 1;
        while (running) begin
            drive; #1 sample; clk = 1; #1 clk = 0; cycle = cycle + 1;
            if (cycle - moved > {_patience(circuit)}) begin $display("nothing moved for a long time"); $finish; end
            if (states == STATES) running = 0;
        end
        $fclose(out);
        $display("%0d %0d %0d %0d", states, cycle, first_end - first_in + 1, states > 1 ? last_end - before_last_end : 0);
        $finish;
    end

    task drive; begin
        if (sent < STATES && !offering) offering = {{$random(seed)}} % 100 >= in_stall;
        in_valid = offering;
        if (offering) for (lane = 0; lane < LANES; lane = lane + 1) begin
            k = in_beat * LANES + lane;
            in_data[lane*BITS +: BITS] = k < IN ? words[sent*IN + k] : {{BITS{{1'b0}}}};
        end
        out_ready = {{$random(seed)}} % 100 >= out_stall;
        reset = resets != 0 ? {{$random(seed)}} % resets == 0 : 1'b0;
    end endtask

    task sample; begin
        if ((^{{in_ready, out_valid}}) === 1'bx) begin $display("a handshake is unknown in cycle %0d", cycle); $finish; end
        if (reset) begin in_beat = 0; out_beat = 0; offering = 0; sent = states; moved = cycle; end
        else begin
            if (in_valid && in_ready) begin
                if (first_in < 0) first_in = cycle;
                moved = cycle; offering = 0; in_beat = in_beat + 1;
                if (in_beat == IN_BEATS) begin in_beat = 0; sent = sent + 1; end
            end
            if (out_valid && out_ready) begin
                moved = cycle;
                for (lane = 0; lane < LANES; lane = lane + 1)
                    if (out_beat * LANES + lane < OUT) result[out_beat * LANES + lane] = out_data[lane*BITS +: BITS];
                out_beat = out_beat + 1;
                if (out_last !== (out_beat == OUT_BEATS)) begin $display("out_last at a wrong beat"); $finish; end
                if (out_beat == OUT_BEATS) begin
                    out_beat = 0; states = states + 1;
                    if (states == 1) first_end = cycle;
                    before_last_end = last_end; last_end = cycle;
                    for (k = 0; k < OUT; k = k + 1) $fwrite(out, "%h ", result[k]);
                    $fwrite(out, "%h\\n", out_flags);
                end
            end
        end
    end endtask
endmodule
"""


def _patience(circuit: Circuit) -> int:
    """Cycles without a beat moving after which a circuit is stuck."""
    s = circuit.schedule
    return 20 * (circuit.rows + s.cycles + circuit.input_beats + circuit.output_beats) + 1000
