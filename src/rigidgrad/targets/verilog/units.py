"""Verilog of the arithmetic units and of the memory at a port.

A unit's result goes unregistered to the multiplexers of the ports, whose memories are the last
register. So a multiplier of 4 stages registers its operands, its partial products, their sum, and
the rounded result; an adder of 2 its operands and the result. More stages are registers after
rounding: then the way through the multiplexer has a cycle of its own. With fewer stages the
registers of the operands go last: a multiplier of 3 adds its partial products up in the cycle in
which it rounds, one of 2 and an adder of 1 read their operands and work in one cycle.
"""

from __future__ import annotations

from itertools import pairwise

from rigidgrad.fixed.format import Fixed
from rigidgrad.fixed.trigonometry import GUARD, SineTable
from rigidgrad.targets.verilog.lower import Delays

# a DSP48E2 multiplies signed numbers of 27 and 18 bits, so all but the highest part of a wider
# factor have 26 and 17
WIDE, NARROW = 27, 18


def registered(kind: str, delays: Delays) -> bool:
    """Whether a port of a unit of this kind has a register behind its memory."""
    return delays.of_unit(kind) >= {"multiplier": 3, "adder": 2}.get(kind, 1)


def dsps_per_product(width: int, other: int | None = None) -> int:
    """Of two signed numbers, as wide as each other or not."""
    return len(_parts(width, WIDE)) * len(_parts(other or width, NARROW))


def _parts(width: int, most: int) -> list[tuple[int, int]]:
    """(lowest bit, bits) of the parts of a signed number; the last is signed, the others are
    not.
    """
    parts, low = [], 0
    while width - low > most:
        parts.append((low, most - 1))
        low += most - 1
    return [*parts, (low, width - low)]


def multiplier(name: str, format: Fixed, delays: Delays) -> str:
    W = format.width
    lines = [
        (
            f"module {name} (input clk, input signed [{W - 1}:0] a, input signed [{W - 1}:0] b,"
            " input constant,"
        ),
        f"    output [{W - 1}:0] y, output saturated);",
    ]
    stages = delays.multiplier
    parts, total = product("p", "a", W, "b", W, 2 * W, register=stages >= 2)
    lines += parts
    shifts = [format.fraction_bits, format.constant_fraction]
    lines += _maybe_register("sum", f"[{2 * W - 1}:0]", total, stages >= 4)
    before = min(stages, 4) - 1  # registers between the microcode and the rounding
    names = ["constant", *(f"constant{k}" for k in range(1, before + 1))]
    if before:
        steps = " ".join(f"{new} <= {old};" for old, new in pairwise(names))
        lines.append(f"    reg {', '.join(names[1:])};")
        lines.append(f"    always @(posedge clk) begin {steps} end")
    lines += [
        *_rounded("sum", 2 * W, shifts, names[-1], format),
        *_result(2 * W - min(shifts) + 1, format, max(stages - 4, 0)),
        "endmodule",
    ]
    return "\n".join(lines)


def product(
    name: str, a: str, wa: int, b: str, wb: int, width: int, *, register: bool = True
) -> tuple[list[str], str]:
    """Partial products of two signed numbers, each for one DSP, and the sum of them, of `width`
    bits.
    """
    lines, terms = [], []
    cuts = {}
    for x, w, most in ((a, wa, WIDE), (b, wb, NARROW)):
        side = cuts[most] = _parts(w, most)
        for low, size in side[:-1]:
            lines.append(
                f"    wire signed [{size}:0] {name}_{x}{low} = {{1'b0, {x}[{low + size - 1}:{low}]}};"
            )
        low = side[-1][0]
        lines.append(f"    wire signed [{w - 1 - low}:0] {name}_{x}{low} = {x}[{w - 1}:{low}];")
    for low_a, size_a in cuts[WIDE]:
        for low_b, size_b in cuts[NARROW]:
            part, top = f"{name}{low_a}_{low_b}", size_a + size_b + 1
            value = f"{name}_{a}{low_a} * {name}_{b}{low_b}"
            lines += _maybe_register(part, f"[{top}:0]", value, register)
            lines.append(f"    wire signed [{width - 1}:0] long_{part} = {part};")
            terms.append(f"(long_{part} << {low_a + low_b})")
    return lines, " + ".join(terms)


def _maybe_register(name: str, bits: str, value: str, register: bool) -> list[str]:
    if not register:
        return [f"    wire signed {bits} {name} = {value};"]
    return [f"    reg signed {bits} {name};", f"    always @(posedge clk) {name} <= {value};"]


def _rounded(name: str, width: int, shifts: list[int], choice: str, format: Fixed) -> list[str]:
    """`whole`: the number without its lowest bits, rounded; `shifts[1]` of them where the choice is
    1, else `shifts[0]`.
    """
    kept = width - min(shifts) + 1
    # one more bit than is kept decides
    doubled = [f"({name} >>> {shift - 1})" if shift else f"({name} <<< 1)" for shift in shifts]
    lines = [
        f"    wire signed [{kept}:0] halves ="
        f" {f'{choice} ? {doubled[1]} : ' if shifts[0] != shifts[1] else ''}{doubled[0]};"
    ]
    up = "" if format.rounding == "truncate" else " + $signed({1'b0, halves[0]})"
    return [*lines, f"    wire signed [{kept - 1}:0] whole = $signed(halves[{kept}:1]){up};"]


def _result(width: int, format: Fixed, more: int) -> list[str]:
    """`whole`, of the given width, in the format, and whether it was too large for it; `more`
    registers for further stages.
    """
    W, top = format.width, width - 1
    clipped = f"fits ? whole[{W - 1}:0] : {{whole[{top}], {{{W - 1}{{~whole[{top}]}}}}}}"
    lines = [
        f"    wire fits = (&whole[{top}:{W - 1}]) | ~(|whole[{top}:{W - 1}]);",
        (
            f"    wire [{W - 1}:0] y0 ="
            f" {clipped if format.overflow == 'saturate' else f'whole[{W - 1}:0]'};"
        ),
        "    wire s0 = ~fits;",
    ]
    for k in range(1, more + 1):
        lines += [
            f"    reg [{W - 1}:0] y{k}; reg s{k};",
            f"    always @(posedge clk) begin y{k} <= y{k - 1}; s{k} <= s{k - 1}; end",
        ]
    return [*lines, f"    assign y = y{more};", f"    assign saturated = s{more};"]


def adder(name: str, format: Fixed, delays: Delays) -> str:
    W = format.width
    if registered("adder", delays):
        switches = [
            "    reg subtract1, double1;",
            "    always @(posedge clk) begin subtract1 <= subtract; double1 <= double; end",
        ]
    else:
        switches = ["    wire subtract1 = subtract, double1 = double;"]
    return "\n".join(
        [
            (
                f"module {name} (input clk, input signed [{W - 1}:0] a, input signed [{W - 1}:0] b,"
                " input subtract, input double,"
            ),
            f"    output [{W - 1}:0] y, output saturated);",
            *switches,
            f"    wire [{W}:0] left = {{a[{W - 1}], a}};",
            (
                f"    wire [{W}:0] right = double1 ? left : {{b[{W - 1}], b}} ^"
                f" {{{W + 1}{{subtract1}}}};"
            ),
            f"    wire signed [{W}:0] whole = left + right + {{{W}'d0, subtract1}};",
            *_result(W + 1, format, max(delays.adder - 2, 0)),
            "endmodule",
        ]
    )


def stride(width: int) -> int:
    """Bits from one word to the next where one of many is chosen: a power of two, so that choosing
    is no multiplication.
    """
    return 1 << (width - 1).bit_length()


def port(name: str, width: int) -> str:
    """2^S words to choose from, a memory in LUTs, a word out, registered or not. Constants are in
    it from the start.
    """
    return f"""module {name} #(parameter S = 1, parameter A = 5, parameter REGISTERED = 1, parameter [(1<<A)*{width}-1:0] INIT = 0)
   (input clk, input [(1<<S)*{stride(width)}-1:0] sources, input [S-1:0] from, input write, input [A-1:0] to, input [A-1:0] read,
    output [{width - 1}:0] q);
    (* ram_style = "distributed" *) reg [{width - 1}:0] memory [0:(1<<A)-1];
    integer i;
    initial for (i = 0; i < (1<<A); i = i + 1) memory[i] = INIT[i*{width} +: {width}];
    always @(posedge clk) if (write) memory[to] <= sources[from*{stride(width)} +: {width}];
    generate if (REGISTERED) begin : late
        reg [{width - 1}:0] word;
        always @(posedge clk) word <= memory[read];
        assign q = word;
    end else begin : now
        assign q = memory[read];
    end endgenerate
endmodule"""


def trig(name: str, format: Fixed, delays: Delays) -> str:
    """Sine or cosine, by the steps of fixed.trigonometry.SineTable: phase by shifts and additions,
    table in block RAM, one fits product.
    """
    table: SineTable = format.trigonometry
    W, P, k, m, shift = (
        format.width,
        table.phase_bits,
        table.index_bits,
        table.rest_bits,
        table.shift,
    )
    sines, slopes = table.entries()
    sine_bits, slope_bits = max(sines).bit_length(), max(slopes).bit_length()
    N = shift + P  # bits of the product that matter
    digits = _signed_digits(table.turn)
    groups = [digits[i : i + 4] for i in range(0, len(digits), 4)]
    entry = sine_bits + slope_bits
    # stage 1 is the port's register; 2 groups of digits; 3 the phase; 4 the table; 5 the product; 6
    # the sum; 7 sign and rounding
    lines = [
        (
            f"module {name} (input clk, input signed [{W - 1}:0] a, input cosine, output"
            f" [{W - 1}:0] y, output saturated);"
        ),
        f"    wire signed [{N - 1}:0] wide = a;",
    ]
    for g, group in enumerate(groups):
        terms = " ".join(f"{'+' if sign > 0 else '-'} (wide << {place})" for sign, place in group)
        first = f"{N}'d{1 << (shift - 1)} " if g == 0 else f"{N}'d0 "
        lines += [
            f"    reg [{N - 1}:0] g{g};",
            f"    always @(posedge clk) g{g} <= {first}{terms};",
        ]
    total = " + ".join(f"g{g}" for g in range(len(groups)))
    lines += [
        "    reg cosine1, cosine2;",
        "    always @(posedge clk) begin cosine1 <= cosine; cosine2 <= cosine1; end",
        f"    wire [{N - 1}:0] turned = {total};",
        f"    reg [{P - 1}:0] phase;",
        (
            f"    always @(posedge clk) phase <= turned[{N - 1}:{shift}] + {{1'b0, cosine2,"
            f" {P - 2}'d0}};"
        ),
        f"    wire mirrored = phase[{P - 2}];",
        f"    wire [{k - 1}:0] index = phase[{P - 3}:{m}] ^ {{{k}{{mirrored}}}};",
        (
            f"    wire signed [{m}:0] rest = $signed({{1'b0, phase[{m - 1}:0]}}) -"
            f" $signed({m + 1}'d{1 << (m - 1)});"
        ),
        f'    (* ram_style = "block" *) reg [{entry - 1}:0] entries [0:{(1 << k) - 1}];',
        "    initial begin",
        *(
            f"        entries[{i}] = {entry}'h{(s << slope_bits) | d:x};"
            for i, (s, d) in enumerate(zip(sines, slopes, strict=True))
        ),
        "    end",
        f"    reg [{entry - 1}:0] entry; reg signed [{m}:0] distance; reg minus4, minus5, minus6;",
        "    always @(posedge clk) begin",
        "        entry <= entries[index];",
        "        distance <= mirrored ? -rest : rest;",
        f"        minus4 <= phase[{P - 1}]; minus5 <= minus4; minus6 <= minus5;",
        "    end",
        f"    reg signed [{slope_bits + m + 1}:0] product; reg [{sine_bits - 1}:0] sine;",
        "    always @(posedge clk) begin",
        f"        product <= $signed({{1'b0, entry[{slope_bits - 1}:0]}}) * distance;",
        f"        sine <= entry[{entry - 1}:{slope_bits}];",
        "    end",
        (
            f"    wire signed [{slope_bits + m + 1}:0] piece = (product +"
            f" {slope_bits + m + 2}'sd{1 << (table.slope_bits - 1)}) >>> {table.slope_bits};"
        ),
        f"    reg signed [{sine_bits + 1}:0] above;",
        "    always @(posedge clk) above <= $signed({2'b0, sine}) + piece;",
        f"    wire signed [{sine_bits + 2}:0] signed_value = minus6 ? -above : above;",
        (
            f"    wire signed [{max(W, sine_bits + 2)}:0] whole = (signed_value +"
            f" {sine_bits + 3}'sd{1 << (GUARD - 1)}) >>> {GUARD};"
        ),
        *_result(max(W, sine_bits + 2) + 1, format, delays.trig - 7),
        "endmodule",
    ]
    return "\n".join(lines)


def _signed_digits(x: int) -> list[tuple[int, int]]:
    """x as a sum of few ±2^place (canonical signed digits)."""
    digits, place = [], 0
    while x:
        if x & 1:
            sign = 2 - (x & 3)
            digits.append((sign, place))
            x -= sign
        x >>= 1
        place += 1
    return digits
