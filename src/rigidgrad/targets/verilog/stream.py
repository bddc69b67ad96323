"""Verilog around the units: input buffer with load lanes, output banks, and the control that starts
states and moves beats.

The circuit never stalls. A state starts when its inputs are complete and an output slot is free for
its results; where a state of the stream is missing, its slots in the schedule pass unused. So
neither a late input nor a consumer that does not read can stop what is under way.
"""

from __future__ import annotations

from itertools import pairwise

from rigidgrad.targets.verilog.circuit import Circuit, bits
from rigidgrad.targets.verilog.converters import INPUT_STAGES
from rigidgrad.targets.verilog.units import stride

FLAG_STAGES = 2  # registers between a unit's overflow and the flags of its state


def load_lane(name: str, circuit: Circuit) -> str:
    """A copy of the input buffer with one word out a cycle, negated on request."""
    W, T, lanes = circuit.format.width, stride(circuit.format.width), circuit.lanes
    B, I, A, N = (
        bits(circuit.input_beats),
        bits(circuit.input_slots),
        bits(circuit.input_beats) + bits(circuit.input_slots),
        bits(lanes),
    )
    gap = f"{{{T - W}'d0, " if T > W else ""
    lowest, highest = f"{{1'b1, {{{W - 1}{{1'b0}}}}}}", f"{{1'b0, {{{W - 1}{{1'b1}}}}}}"
    negative = (
        f"(word == {lowest} ? {highest} : -word)"
        if circuit.format.overflow == "saturate"
        else "(-word)"
    )
    return f"""module {name} (input clk, input write, input [{A - 1}:0] to, input [{lanes * W - 1}:0] beat,
    input [{I - 1}:0] slot, input [{B - 1}:0] from, input [{N - 1}:0] lane, input negate, output [{W - 1}:0] y);
    wire [{(1 << N) * T - 1}:0] words;
    genvar k;
    generate for (k = 0; k < {1 << N}; k = k + 1) begin : bank
        if (k < {lanes}) begin : real_bank
            (* ram_style = "distributed" *) reg [{W - 1}:0] memory [0:{(1 << A) - 1}];
            always @(posedge clk) if (write) memory[to] <= beat[k*{W} +: {W}];
            assign words[k*{T} +: {T}] = {gap}memory[{{slot, from}}]{"}" if gap else ""};
        end else begin : no_bank
            assign words[k*{T} +: {T}] = {T}'d0;
        end
    end endgenerate
    reg [{W - 1}:0] word; reg negate1;
    always @(posedge clk) begin word <= words[lane*{T} +: {W}]; negate1 <= negate; end
    assign y = negate1 ? {negative} : word;
endmodule"""


def output_bank(name: str, circuit: Circuit) -> str:
    """Results of one lane; what is constant is there from the start, in every slot."""
    W, T = circuit.format.width, stride(circuit.format.width)
    A = bits(circuit.output_beats) + bits(circuit.output_slots)
    return f"""module {name} #(parameter S = 1, parameter [(1<<{A})*{W}-1:0] INIT = 0)
   (input clk, input [(1<<S)*{T}-1:0] sources, input [S-1:0] from, input write, input [{A - 1}:0] to, input [{A - 1}:0] read, output [{W - 1}:0] q);
    (* ram_style = "distributed" *) reg [{W - 1}:0] memory [0:(1<<{A})-1];
    integer i;
    initial for (i = 0; i < (1<<{A}); i = i + 1) memory[i] = INIT[i*{W} +: {W}];
    always @(posedge clk) if (write) memory[to] <= sources[from*{T} +: {W}];
    assign q = memory[read];
endmodule"""


def control(name: str, circuit: Circuit, floats: bool) -> str:
    """Counts beats and slots, starts states, and steps through the microcode; `row` is the row to
    fetch, as many cycles before it is executed as the microcode has registers.
    """
    s = circuit.schedule
    n, interval, rows = s.instances, s.interval, circuit.rows
    R, N, I, O = bits(rows), bits(n), bits(circuit.input_slots), bits(circuit.output_slots)
    IB, OB = bits(circuit.input_beats), bits(circuit.output_beats)
    done, done_age = (s.cycles - 1) % interval, (s.cycles - 1) // interval
    read, read_age = s.last_load % interval, s.last_load // interval
    P, D = bits(interval), FLAG_STAGES
    stages = INPUT_STAGES if floats else 0
    in_full, out_full = circuit.input_slots, circuit.output_slots
    late = s.delays.code - 1  # more cycles from a fetch to its execution
    return f"""module {name} (input clk, input reset,
    input in_valid, output in_ready,
    output in_write, output [{IB + I - 1}:0] in_to, input in_bad,
    output reg [{R - 1}:0] row,
    output [{n * I - 1}:0] in_slots, output [{n * O - 1}:0] out_slots, output reg [{n - 1}:0] alive,
    input [{n - 1}:0] overflow,
    output out_there, output [{OB + O - 1}:0] out_from, output out_final, output [1:0] out_marks, input out_taken);
    wire sent;
    // --- inputs: beats fill slots in turn ---
    reg [{IB - 1}:0] in_beat; reg [{I - 1}:0] in_slot; reg [{I}:0] in_used, waiting;
    wire accept = in_valid & in_ready, accept_last = accept & (in_beat == {circuit.input_beats - 1});
    assign in_ready = in_used < {in_full};
    wire [{stages}:0] accepted, accepted_last; wire [{(stages + 1) * (IB + I) - 1}:0] place;
    assign accepted[0] = accept; assign accepted_last[0] = accept_last; assign place[{IB + I - 1}:0] = {{in_slot, in_beat}};
    genvar g;
    generate for (g = 0; g < {stages}; g = g + 1) begin : converting
        reg a, l; reg [{IB + I - 1}:0] p;
        always @(posedge clk) begin a <= accepted[g] & ~reset; l <= accepted_last[g] & ~reset; p <= place[g*{IB + I} +: {IB + I}]; end
        assign accepted[g+1] = a; assign accepted_last[g+1] = l; assign place[(g+1)*{IB + I} +: {IB + I}] = p;
    end endgenerate
    assign in_write = accepted[{stages}]; assign in_to = place[{stages * (IB + I)} +: {IB + I}];
    wire complete = accepted_last[{stages}];
    reg [{in_full - 1}:0] bad; reg bad_so_far;
    wire [{I - 1}:0] write_slot = in_to[{IB + I - 1}:{IB}];
    always @(posedge clk) begin
        if (reset) bad_so_far <= 0;
        else if (in_write) bad_so_far <= ~complete & (bad_so_far | in_bad);
        if (complete) bad[write_slot] <= bad_so_far | in_bad;
    end
    // --- states ---
    reg [{P - 1}:0] phase; reg [{N - 1}:0] state;                          // of the row to fetch
    reg [{P - 1}:0] {", ".join(f"phase{k}" for k in range(1, late + 2))}; reg [{N - 1}:0] {", ".join(f"state{k}" for k in range(1, late + 2))};  // the last are of the row in execution
    reg [{n * I - 1}:0] in_slots_r; reg [{n * O - 1}:0] out_slots_r;
    assign in_slots = in_slots_r; assign out_slots = out_slots_r;
    reg [{I - 1}:0] next_in; reg [{O - 1}:0] next_out; reg [{O}:0] out_used;
    wire [{N - 1}:0] done_state = {_earlier(f"state{late + 1}", done_age, n)};
    wire [{N - 1}:0] read_state = {_earlier(f"state{late + 1}", read_age, n)};
    wire done = (phase{late + 1} == {done}) & alive[done_state];
    wire loaded = (phase{late + 1} == {read}) & alive[read_state];
    wire [{n - 1}:0] done_mask = done ? {n}'d1 << done_state : {n}'d0;
    wire at_start = phase == 0;
    wire start = at_start & (waiting != 0) & (out_used < {out_full});
    wire [{n - 1}:0] start_mask = start ? {n}'d1 << state : {n}'d0;
    // a state is alive from the execution of its first row on
    wire [{(late + 1) * n - 1}:0] coming; wire [{(late + 1) * I - 1}:0] coming_in; wire [{(late + 1) * O - 1}:0] coming_out;
    assign coming[{n - 1}:0] = start_mask; assign coming_in[{I - 1}:0] = next_in; assign coming_out[{O - 1}:0] = next_out;
    generate for (g = 0; g < {late}; g = g + 1) begin : fetching
        reg [{n - 1}:0] m; reg [{I - 1}:0] i; reg [{O - 1}:0] o;
        always @(posedge clk) begin
            m <= reset ? {n}'d0 : coming[g*{n} +: {n}]; i <= coming_in[g*{I} +: {I}]; o <= coming_out[g*{O} +: {O}];
        end
        assign coming[(g+1)*{n} +: {n}] = m; assign coming_in[(g+1)*{I} +: {I}] = i; assign coming_out[(g+1)*{O} +: {O}] = o;
    end endgenerate
    wire [{n - 1}:0] begin_mask = coming[{late * n} +: {n}];
    wire [{I - 1}:0] begin_in = coming_in[{late * I} +: {I}]; wire [{O - 1}:0] begin_out = coming_out[{late * O} +: {O}];
    wire idle = ~|(alive & ~done_mask) & ~|coming;
    integer k;
    initial row = 0;
    always @(posedge clk) begin
        {_chain("phase", late)} {_chain("state", late)}
        alive <= (alive & ~done_mask) | begin_mask;
        for (k = 0; k < {n}; k = k + 1) if (begin_mask[k]) begin
            in_slots_r[k*{I} +: {I}] <= begin_in; out_slots_r[k*{O} +: {O}] <= begin_out;
        end
        if (start) begin next_in <= next_in + 1'b1; next_out <= next_out + 1'b1; end
        if (idle) begin phase <= 0; state <= 0; row <= 0; end
        else begin
            phase <= phase == {interval - 1} ? {P}'d0 : phase + 1'b1;
            if (phase == {interval - 1}) state <= state == {n - 1} ? {N}'d0 : state + 1'b1;
            row <= row == {rows - 1} ? {R}'d0 : row + 1'b1;
        end
        in_used <= in_used + {{{I}'d0, accept_last}} - {{{I}'d0, loaded}};
        waiting <= waiting + {{{I}'d0, complete}} - {{{I}'d0, start}};
        out_used <= out_used + {{{O}'d0, start}} - {{{O}'d0, sent}};
        if (accept) in_beat <= in_beat == {circuit.input_beats - 1} ? {IB}'d0 : in_beat + 1'b1;
        if (accept_last) in_slot <= in_slot + 1'b1;
        if (reset) begin
            alive <= 0; phase <= 0; state <= 0; row <= 0; in_used <= 0; waiting <= 0; out_used <= 0; in_beat <= 0; in_slot <= 0;
            next_in <= 0; next_out <= 0; {" ".join(f"phase{k} <= 0; state{k} <= 0;" for k in range(1, late + 2))}
        end
    end
    // --- flags: an overflow is known {D} cycles after its operation, so starts and ends wait as long for them ---
    reg [{n - 1}:0] saturated, invalid; reg [{D * n - 1}:0] starts; reg [{D - 1}:0] dones; reg [{D * N - 1}:0] done_states;
    reg [{D * n - 1}:0] starts_bad;
    wire [{N - 1}:0] ended = done_states[{D * N - 1}:{(D - 1) * N}];
    wire end_now = dones[{D - 1}];
    reg [{O}:0] ready; reg [{out_full - 1}:0] out_saturated, out_invalid;
    reg [{O - 1}:0] end_slot;
    always @(posedge clk) begin
        starts <= {{starts[{(D - 1) * n - 1}:0], begin_mask}};
        starts_bad <= {{starts_bad[{(D - 1) * n - 1}:0], bad[begin_in] ? begin_mask : {n}'d0}};
        dones <= {{dones[{D - 2}:0], done & ~reset}};
        done_states <= {{done_states[{(D - 1) * N - 1}:0], done_state}};
        saturated <= (saturated | overflow) & ~starts[{D * n - 1}:{(D - 1) * n}];
        invalid <= (invalid & ~starts[{D * n - 1}:{(D - 1) * n}]) | starts_bad[{D * n - 1}:{(D - 1) * n}];
        if (end_now) begin
            out_saturated[end_slot] <= saturated[ended] | overflow[ended];
            out_invalid[end_slot] <= invalid[ended];
            end_slot <= end_slot + 1'b1;
        end
        ready <= ready + {{{O}'d0, end_now}} - {{{O}'d0, sent}};
        if (reset) begin ready <= 0; end_slot <= 0; dones <= 0; end
    end
    // --- outputs: slots are sent in turn ---
    reg [{OB - 1}:0] out_beat; reg [{O - 1}:0] out_slot;
    assign sent = out_taken & out_there & out_final;
    assign out_there = ready != 0;
    assign out_from = {{out_slot, out_beat}};
    assign out_final = out_beat == {circuit.output_beats - 1};
    assign out_marks = {{out_invalid[out_slot], out_saturated[out_slot]}};
    always @(posedge clk) begin
        if (out_taken & out_there) begin
            out_beat <= out_final ? {OB}'d0 : out_beat + 1'b1;
            if (out_final) out_slot <= out_slot + 1'b1;
        end
        if (reset) begin out_beat <= 0; out_slot <= 0; end
    end
endmodule"""


def _chain(name: str, late: int) -> str:
    names = [name, *(f"{name}{k}" for k in range(1, late + 2))]
    return " ".join(f"{new} <= {old};" for old, new in pairwise(names))


def _earlier(state: str, age: int, count: int) -> str:
    return f"{state} >= {age} ? {state} - {age} : {state} + {count - age}" if age else state
