"""Verilog of the unit for 1/b, rounded once as `Fixed.divide` rounds it.

|b| becomes a mantissa M in [1, 2) times a power of two. A table of 2^k entries gives y₀ = 1/M to k
bits, and y ← y + y·(1 - M·y) doubles them, twice. Shifted back, y₂ is less than an eighth of a unit
off, so that the number q next to it is at most one unit off the rounded quotient; the remainder
2^2F - q·|b| decides which of q - 1, q and q + 1 that is. No table's entry and no width in between
shows in the result.
"""

from __future__ import annotations

from itertools import pairwise

from rigidgrad.fixed.format import Fixed
from rigidgrad.targets.verilog.units import dsps_per_product, product

STAGES = 18  # with the operand's register and the way through the multiplexer
ROUNDED = 4  # fraction bits of y₁ and 1 - M·y₀ beyond what they are good for


class _Widths:
    """k bits of index; y₀ has k + 2 fraction bits, y₁ 2k + 4, y₂ W + 5."""

    def __init__(self, width: int):
        self.k = -(-(width + 4) // 4)
        self.y0, self.y1, self.y2 = self.k + 2, 2 * self.k + ROUNDED, width + 5
        self.e0 = self.k + ROUNDED + 1  # of 1 - M·y₀ with the fraction bits of y₁
        self.e1 = self.y2 - 2 * self.k + 1  # of 1 - M·y₁ with those of y₂


def table(width: int) -> list[int]:
    """1/M in the middle of each cell, with k + 2 fraction bits."""
    n = _Widths(width)
    return [
        round((1 << (n.y0 + n.k + 1)) / ((1 << (n.k + 1)) + 2 * i + 1)) for i in range(1 << n.k)
    ]


def dsps_of_reciprocal(width: int) -> int:
    n = _Widths(width)
    factors = [
        (width + 1, n.y0 + 2),
        (n.y0 + 2, n.e0),
        (width + 1, n.y1 + 2),
        (n.y1 + 2, n.e1),
        (width + 3, width + 1),
    ]
    return sum(dsps_per_product(*pair) for pair in factors)


def reciprocal(name: str, format: Fixed) -> str:
    W, F, n = format.width, format.fraction_bits, _Widths(format.width)
    B = 32 if W <= 32 else 64
    L = B.bit_length() - 1
    K, G, S = n.k, n.y2, 9  # S: signed bits of the way back
    one0, one1 = W - 1 + n.y0, W - 1 + n.y1  # fraction bits of M·y₀ and M·y₁
    p0, sum0 = product("p0_", "m5", W + 1, "y0_5", n.y0 + 2, one0 + 3)
    c0, sum_c0 = product("c0_", "y0_7", n.y0 + 2, "e0", n.e0, n.y0 + n.y1 + 3)
    p1, sum1 = product("p1_", "m9", W + 1, "y1_9", n.y1 + 2, one1 + 3)
    c1, sum_c1 = product("c1_", "y1_11", n.y1 + 2, "e1", n.e1, n.y1 + G + 3)
    r, sum_r = product("r_", "q14", W + 3, "size14", W + 1, W + 3)
    return f"""module {name} (input clk, input signed [{W - 1}:0] a, output [{W - 1}:0] y, output saturated);
    // 2: magnitude
    reg [{W}:0] size2; reg sign2;
    always @(posedge clk) begin size2 <= a[{W - 1}] ? -{{a[{W - 1}], a}} : {{1'b0, a}}; sign2 <= a[{W - 1}]; end
{_carried("size", W + 1, "size2", 2, 16)}
{_carried("sign", 1, "sign2", 2, 16)}
    // 3, 4: its highest one goes to the left end
    wire [{B - 1}:0] n{L} = size2;
{_steps(range(L - 1, L // 2 - 1, -1), B)}
    reg [{B - 1}:0] middle; reg [{L - 1}:{L // 2}] zeros3;
    always @(posedge clk) begin middle <= n{L // 2}; zeros3 <= {{{", ".join(f"z{k}" for k in range(L - 1, L // 2 - 1, -1))}}}; end
{_steps(range(L // 2 - 1, -1, -1), B, "middle")}
    wire [{L - 1}:0] zeros = {{zeros3, {", ".join(f"z{k}" for k in range(L // 2 - 1, -1, -1))}}};
    wire signed [{S - 1}:0] place = {S}'sd{B - 1} - $signed({{1'b0, zeros}});
    reg signed [{S - 1}:0] back4; reg [{W}:0] m4; reg huge4;
    always @(posedge clk) begin
        m4 <= {{1'b0, n0[{B - 1}:{B - W}]}};
        back4 <= place + {_signed(S, G - 2 * F - 1)};  // with one bit that rounds
        huge4 <= ~n0[{B - 1}] | (place < {_signed(S, 2 * F - W)});
    end
{_carried("back", S, "back4", 4, 13, signed=True)}
{_carried("huge", 1, "huge4", 4, 16)}
    // 5: the table
    (* ram_style = "block" *) reg [{n.y0}:0] entries [0:{(1 << K) - 1}];
    initial begin
{_entries(W)}
    end
    reg [{n.y0}:0] entry; reg [{W}:0] m5;
    always @(posedge clk) begin entry <= entries[m4[{W - 2}:{W - 1 - K}]]; m5 <= m4; end
    wire [{n.y0 + 1}:0] y0_5 = {{1'b0, entry}};
{_carried("m", W + 1, "m5", 5, 9)}
{_carried("y0_", n.y0 + 2, "y0_5", 5, 8)}
    // 6, 7: 1 - M·y0
{_lines(p0)}
    wire signed [{one0 + 2}:0] error0 = {one0 + 3}'d{1 << one0} - ({sum0});
    wire signed [{one0 + n.y1 + 2}:0] fine0 = {{error0, {n.y1}'d0}};
    reg signed [{n.e0 - 1}:0] e0;
    always @(posedge clk) e0 <= fine0 >>> {one0};
    // 8, 9: y1 = y0 + y0·e0
{_lines(c0)}
    wire signed [{n.y0 + n.y1 + 2}:0] change0 = {sum_c0};
    wire signed [{n.y1 + 1}:0] step0 = change0 >>> {n.y0};
    reg [{n.y1 + 1}:0] y1_9;
    always @(posedge clk) y1_9 <= {{y0_8, {n.y1 - n.y0}'d0}} + step0;
{_carried("y1_", n.y1 + 2, "y1_9", 9, 12)}
    // 10, 11: 1 - M·y1
{_lines(p1)}
    wire signed [{one1 + 2}:0] error1 = {one1 + 3}'d{1 << one1} - ({sum1});
    wire signed [{one1 + G + 2}:0] fine1 = {{error1, {G}'d0}};
    reg signed [{n.e1 - 1}:0] e1;
    always @(posedge clk) e1 <= fine1 >>> {one1};
    // 12, 13: y2 = y1 + y1·e1
{_lines(c1)}
    wire signed [{n.y1 + G + 2}:0] change1 = {sum_c1};
    wire signed [{G + 1}:0] step1 = change1 >>> {n.y1};
    reg [{G + 1}:0] y2;
    always @(posedge clk) y2 <= {_wider("y1_12", G - n.y1)} + step1;
    // 14: back to the format
    wire [{G + 1}:0] halves = back13[{S - 1}] ? {G + 2}'d0 : y2 >> back13;
    reg [{W + 2}:0] q14;
    always @(posedge clk) q14 <= halves[{G + 1}:1] + halves[0];
{_carried("q", W + 3, "q14", 14, 16)}
    // 15, 16: the remainder
{_lines(r)}
    reg signed [{W + 2}:0] rest;
    always @(posedge clk) rest <= {W + 3}'d{(1 << 2 * F) % (1 << (W + 3))} - ({sum_r});
    // 17: rounded
    wire signed [{W + 3}:0] twice = {{rest, 1'b0}}, divisor = {{3'b0, size16}};
{_decision(format)}
    reg signed [{W + 2}:0] rounded; reg negative, huge;
    always @(posedge clk) begin rounded <= q16 + {{{W + 2}'d0, up}} - {{{W + 2}'d0, down}}; negative <= sign16; huge <= huge16; end
    // 18: sign and range
    wire signed [{W + 2}:0] quotient = negative ? -rounded : rounded;
    wire signed [{W + 2}:0] most = {{3'b0, negative, {{{W - 1}{{~negative}}}}}};
    assign saturated = huge | (rounded > most);
    assign y = saturated ? most[{W - 1}:0] : quotient[{W - 1}:0];
endmodule"""


def _steps(places: range, bits: int, source: str | None = None) -> str:
    """n_k is n_k+1, or that moved by 2^k where its highest 2^k bits are zero (z_k)."""
    lines = []
    for k in places:
        before = source if source and k == places[0] else f"n{k + 1}"
        zero = f"{before}[{bits - 1}:{bits - (1 << k)}] == 0"
        lines.append(f"    wire z{k} = {zero};")
        lines.append(f"    wire [{bits - 1}:0] n{k} = z{k} ? {before} << {1 << k} : {before};")
    return _lines(lines)


def _wider(name: str, zeros: int) -> str:
    return f"{{{name}, {zeros}'d0}}" if zeros else name


def _lines(lines: list[str]) -> str:
    return "\n".join(lines)


def _signed(bits: int, x: int) -> str:
    return f"{bits}'sd{x}" if x >= 0 else f"-{bits}'sd{-x}"


def _entries(width: int) -> str:
    bits = _Widths(width).y0 + 1
    return "\n".join(f"        entries[{i}] = {bits}'h{x:x};" for i, x in enumerate(table(width)))


def _decision(format: Fixed) -> str:
    """Whether the quotient next to the exact one is below or above q; its sign says where halves
    go.
    """
    if format.rounding == "truncate":
        return "    wire down = ~sign16 & rest < 0, up = sign16 & rest > 0;"
    return (
        "    wire down = sign16 ? twice <= -divisor : twice < -divisor;\n"
        "    wire up = sign16 ? twice > divisor : twice >= divisor;"
    )


def _carried(
    name: str, width: int, source: str, first: int, last: int, *, signed: bool = False
) -> str:
    """What is known in stage `first`, for the stages up to `last`."""
    kind = "signed " if signed else ""
    names = [source, *(f"{name}{k}" for k in range(first + 1, last + 1))]
    steps = " ".join(f"{new} <= {old};" for old, new in pairwise(names))
    return (
        f"    reg {kind}[{width - 1}:0] {', '.join(names[1:])};\n"
        f"    always @(posedge clk) begin {steps} end"
    )
