"""Verilog of the arithmetic units and of the memory at a port.

A unit's operands come registered from its ports and its result goes unregistered to the multiplexers of the ports, whose memories are the last register. So a
multiplier of 4 stages registers its operands, its partial products, their sum, and the rounded result; an adder of 2 its operands and the result.
"""

from __future__ import annotations

from rigidgrad.fixed.format import Fixed
from rigidgrad.fixed.trigonometry import GUARD, SineTable
from rigidgrad.targets.verilog.lower import Delays

# a DSP48E2 multiplies signed numbers of 27 and 18 bits, so all but the highest part of a wider factor have 26 and 17
WIDE, NARROW = 27, 18


def dsps_per_product(width: int) -> int:
    return len(_parts(width, WIDE)) * len(_parts(width, NARROW))


def _parts(width: int, most: int) -> list[tuple[int, int]]:
    """(lowest bit, bits) of the parts of a signed number; the last is signed, the others are not."""
    parts, low = [], 0
    while width - low > most:
        parts.append((low, most - 1))
        low += most - 1
    return [*parts, (low, width - low)]


def multiplier(name: str, format: Fixed, delays: Delays) -> str:
    W = format.width
    lines = [
        f"module {name} (input clk, input signed [{W - 1}:0] a, input signed [{W - 1}:0] b, input constant,",
        f"    output [{W - 1}:0] y, output saturated);",
    ]
    for letter, most in (("a", WIDE), ("b", NARROW)):
        for low, size in _parts(W, most)[:-1]:
            lines.append(f"    wire signed [{size}:0] {letter}{low} = {{1'b0, {letter}[{low + size - 1}:{low}]}};")
        low = _parts(W, most)[-1][0]
        lines.append(f"    wire signed [{W - 1 - low}:0] {letter}{low} = {letter}[{W - 1}:{low}];")
    terms = []
    for low_a, size_a in _parts(W, WIDE):
        for low_b, size_b in _parts(W, NARROW):
            p, top = f"p{low_a}_{low_b}", size_a + size_b + 1
            lines.append(f"    reg signed [{top}:0] {p};")
            lines.append(f"    always @(posedge clk) {p} <= a{low_a} * b{low_b};")
            terms.append(f"(product_{low_a}_{low_b} << {low_a + low_b})")
            lines.append(f"    wire signed [{2 * W - 1}:0] product_{low_a}_{low_b} = {p};")
    shifts = [format.fraction_bits, format.constant_fraction]
    lines += [
        f"    reg signed [{2 * W - 1}:0] sum;",
        f"    always @(posedge clk) sum <= {' + '.join(terms)};",
        "    reg constant1, constant2, constant3;",
        "    always @(posedge clk) begin constant1 <= constant; constant2 <= constant1; constant3 <= constant2; end",
        *_rounded("sum", 2 * W, shifts, "constant3", format),
        *_result(2 * W - min(shifts) + 1, format, delays.multiplier - 4),
        "endmodule",
    ]
    return "\n".join(lines)


def _rounded(name: str, width: int, shifts: list[int], choice: str, format: Fixed) -> list[str]:
    """`whole`: the number without its lowest bits, rounded; `shifts[1]` of them where the choice is 1, else `shifts[0]`."""
    kept = width - min(shifts) + 1
    doubled = [f"({name} >>> {shift - 1})" if shift else f"({name} <<< 1)" for shift in shifts]  # one more bit than is kept decides
    lines = [f"    wire signed [{kept}:0] halves = {f'{choice} ? {doubled[1]} : ' if shifts[0] != shifts[1] else ''}{doubled[0]};"]
    up = "" if format.rounding == "truncate" else " + $signed({1'b0, halves[0]})"
    return [*lines, f"    wire signed [{kept - 1}:0] whole = $signed(halves[{kept}:1]){up};"]


def _result(width: int, format: Fixed, more: int) -> list[str]:
    """`whole`, of the given width, in the format, and whether it was too large for it; `more` registers for further stages."""
    W, top = format.width, width - 1
    clipped = f"fits ? whole[{W - 1}:0] : {{whole[{top}], {{{W - 1}{{~whole[{top}]}}}}}}"
    lines = [
        f"    wire fits = (&whole[{top}:{W - 1}]) | ~(|whole[{top}:{W - 1}]);",
        f"    wire [{W - 1}:0] y0 = {clipped if format.overflow == 'saturate' else f'whole[{W - 1}:0]'};",
        "    wire s0 = ~fits;",
    ]
    for k in range(1, more + 1):
        lines += [f"    reg [{W - 1}:0] y{k}; reg s{k};", f"    always @(posedge clk) begin y{k} <= y{k - 1}; s{k} <= s{k - 1}; end"]
    return [*lines, f"    assign y = y{more};", f"    assign saturated = s{more};"]


def adder(name: str, format: Fixed, delays: Delays) -> str:
    W = format.width
    return "\n".join(
        [
            f"module {name} (input clk, input signed [{W - 1}:0] a, input signed [{W - 1}:0] b, input subtract, input double,",
            f"    output [{W - 1}:0] y, output saturated);",
            "    reg subtract1, double1;",
            "    always @(posedge clk) begin subtract1 <= subtract; double1 <= double; end",
            f"    wire [{W}:0] left = {{a[{W - 1}], a}};",
            f"    wire [{W}:0] right = double1 ? left : {{b[{W - 1}], b}} ^ {{{W + 1}{{subtract1}}}};",
            f"    wire signed [{W}:0] whole = left + right + {{{W}'d0, subtract1}};",
            *_result(W + 1, format, delays.adder - 2),
            "endmodule",
        ]
    )


def stride(width: int) -> int:
    """Bits from one word to the next where one of many is chosen: a power of two, so that choosing is no multiplication."""
    return 1 << (width - 1).bit_length()


def port(name: str, width: int) -> str:
    """2^S words to choose from, a memory in LUTs, a registered word out. Constants are in it from the start."""
    return f"""module {name} #(parameter S = 1, parameter A = 5, parameter [(1<<A)*{width}-1:0] INIT = 0)
   (input clk, input [(1<<S)*{stride(width)}-1:0] sources, input [S-1:0] from, input write, input [A-1:0] to, input [A-1:0] read,
    output reg [{width - 1}:0] q);
    (* ram_style = "distributed" *) reg [{width - 1}:0] memory [0:(1<<A)-1];
    integer i;
    initial for (i = 0; i < (1<<A); i = i + 1) memory[i] = INIT[i*{width} +: {width}];
    always @(posedge clk) begin
        if (write) memory[to] <= sources[from*{stride(width)} +: {width}];
        q <= memory[read];
    end
endmodule"""


def trig(name: str, format: Fixed, delays: Delays) -> str:
    """Sine or cosine, by the steps of fixed.trigonometry.SineTable: phase by shifts and additions, table in block RAM, one fits product."""
    table: SineTable = format.trigonometry
    W, P, k, m, shift = format.width, table.phase_bits, table.index_bits, table.rest_bits, table.shift
    sines, slopes = table.entries()
    sine_bits, slope_bits = max(sines).bit_length(), max(slopes).bit_length()
    N = shift + P  # bits of the product that matter
    digits = _signed_digits(table.turn)
    groups = [digits[i : i + 4] for i in range(0, len(digits), 4)]
    entry = sine_bits + slope_bits
    # stage 1 is the port's register; 2 groups of digits; 3 the phase; 4 the table; 5 the product; 6 the sum; 7 sign and rounding
    lines = [
        f"module {name} (input clk, input signed [{W - 1}:0] a, input cosine, output [{W - 1}:0] y, output saturated);",
        f"    wire signed [{N - 1}:0] wide = a;",
    ]
    for g, group in enumerate(groups):
        terms = " ".join(f"{'+' if sign > 0 else '-'} (wide << {place})" for sign, place in group)
        first = f"{N}'d{1 << (shift - 1)} " if g == 0 else f"{N}'d0 "
        lines += [f"    reg [{N - 1}:0] g{g};", f"    always @(posedge clk) g{g} <= {first}{terms};"]
    total = " + ".join(f"g{g}" for g in range(len(groups)))
    lines += [
        "    reg cosine1, cosine2;",
        "    always @(posedge clk) begin cosine1 <= cosine; cosine2 <= cosine1; end",
        f"    wire [{N - 1}:0] turned = {total};",
        f"    reg [{P - 1}:0] phase;",
        f"    always @(posedge clk) phase <= turned[{N - 1}:{shift}] + {{1'b0, cosine2, {P - 2}'d0}};",
        f"    wire mirrored = phase[{P - 2}];",
        f"    wire [{k - 1}:0] index = phase[{P - 3}:{m}] ^ {{{k}{{mirrored}}}};",
        f"    wire signed [{m}:0] rest = $signed({{1'b0, phase[{m - 1}:0]}}) - $signed({m + 1}'d{1 << (m - 1)});",
        f'    (* ram_style = "block" *) reg [{entry - 1}:0] entries [0:{(1 << k) - 1}];',
        "    initial begin",
        *(f"        entries[{i}] = {entry}'h{(s << slope_bits) | d:x};" for i, (s, d) in enumerate(zip(sines, slopes, strict=True))),
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
        f"    wire signed [{slope_bits + m + 1}:0] piece = (product + {slope_bits + m + 2}'sd{1 << (table.slope_bits - 1)}) >>> {table.slope_bits};",
        f"    reg signed [{sine_bits + 1}:0] above;",
        "    always @(posedge clk) above <= $signed({2'b0, sine}) + piece;",
        f"    wire signed [{sine_bits + 2}:0] signed_value = minus6 ? -above : above;",
        f"    wire signed [{max(W, sine_bits + 2)}:0] whole = (signed_value + {sine_bits + 3}'sd{1 << (GUARD - 1)}) >>> {GUARD};",
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
