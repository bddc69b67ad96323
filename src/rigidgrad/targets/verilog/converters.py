"""float32 to fixed point and back, in hardware: three pipeline stages in, four out.

In: rounded as the format says, too large a number or an infinity saturates, NaN becomes 0;
`invalid` marks them. Out: rounded to the nearest float32, ties to even.
"""

from __future__ import annotations

from rigidgrad.fixed.format import Fixed

INPUT_STAGES, OUTPUT_STAGES = 3, 4


def float_to_fixed(name: str, format: Fixed) -> str:
    W, F = format.width, format.fraction_bits
    # a float32 is mantissa · 2^(exponent - 150); as a raw value it is mantissa · 2^shift. One more
    # bit than is kept decides about rounding.
    X = max(W + 2, 26)  # bits of a number that is not too large, and its half
    most = X - 1  # longest shift to the left that can keep a number in range
    up = "" if format.rounding == "truncate" else " + $signed({1'b0, halves[0]})"
    return f"""module {name} (input clk, input [31:0] x, output reg [{W - 1}:0] y, output reg invalid);
    // unpack
    reg signed [24:0] mantissa; reg signed [10:0] shift; reg nan, infinite;
    wire [23:0] magnitude = {{|x[30:23], x[22:0]}};
    always @(posedge clk) begin
        mantissa <= x[31] ? -$signed({{1'b0, magnitude}}) : $signed({{1'b0, magnitude}});
        shift <= $signed({{3'd0, x[30:23] | {{7'd0, ~|x[30:23]}}}}) - 11'sd{150 - F - 1};  // of the doubled number
        nan <= &x[30:23] & |x[22:0];
        infinite <= &x[30:23] & ~|x[22:0];
    end
    // shift, to the left or to the right; longer ways change nothing
    wire [10:0] back = -shift;
    wire [5:0] left = shift > {most} ? 6'd{most} : shift[5:0];
    wire [5:0] right = back > 26 ? 6'd26 : back[5:0];
    wire signed [{X + 25}:0] long_mantissa = mantissa;
    reg signed [{X + 25}:0] halves; reg nan2, huge, negative;
    always @(posedge clk) begin
        halves <= shift[10] ? (long_mantissa >>> right) : (long_mantissa <<< left);
        huge <= infinite | (shift > {most} & |mantissa);
        negative <= mantissa[24];
        nan2 <= nan;
    end
    // round and clip
    wire signed [{X + 24}:0] whole = $signed(halves[{X + 25}:1]){up};
    wire fits = ~huge & ((&whole[{X + 24}:{W - 1}]) | ~(|whole[{X + 24}:{W - 1}]));
    always @(posedge clk) begin
        y <= nan2 ? {W}'d0 : fits ? whole[{W - 1}:0] : {{negative, {{{W - 1}{{~negative}}}}}};
        invalid <= nan2 | ~fits;
    end
endmodule"""


def fixed_to_float(name: str, format: Fixed) -> str:
    W, F = format.width, format.fraction_bits
    B = 32 if W <= 32 else 64
    L = B.bit_length() - 1  # bits of a count below B
    steps = []
    for k in reversed(range(L)):
        n = 1 << k
        steps += [
            (
                f"        if (n{L - 1 - k}[{B - 1}:{B - n}] == 0) begin count[{k}] = 1; n{L - k} ="
                f" n{L - 1 - k} << {n}; end"
            ),
            f"        else begin count[{k}] = 0; n{L - k} = n{L - 1 - k}; end",
        ]
    half = L // 2
    return f"""module {name} (input clk, input enable, input signed [{W - 1}:0] x, output reg [31:0] y);
    // magnitude
    reg [{B - 1}:0] size; reg sign1;
    wire signed [{B}:0] wide = x;
    always @(posedge clk) if (enable) begin size <= x[{W - 1}] ? -wide : wide; sign1 <= x[{W - 1}]; end
    // the highest one goes to the left end, in two stages
    reg [{B - 1}:0] n0, {", ".join(f"n{k}" for k in range(1, L + 1))}; reg [{L - 1}:0] count;
    reg [{B - 1}:0] middle; reg [{L - 1}:0] count2; reg sign2;
    always @* begin
        n0 = size;
{chr(10).join(steps[: 2 * half])}
        n{half + 1} = middle;
{chr(10).join(_from_middle(steps[2 * half :], half))}
    end
    always @(posedge clk) if (enable) begin middle <= n{half}; count2 <= count; sign2 <= sign1; end
    reg [{B - 1}:0] one; reg [{L - 1}:0] count3; reg sign3;
    always @(posedge clk) if (enable) begin one <= n{L}; count3 <= {{count2[{L - 1}:{L - half}], count[{L - half - 1}:0]}}; sign3 <= sign2; end
    // round to the nearest, ties to even; a carry into the exponent is right as it is
    wire up = one[{B - 25}] & (one[{B - 24}] | (|one[{B - 26}:0]));
    wire [8:0] exponent = 9'd{127 + B - 1 - F} - count3;
    wire [31:0] packed_number = {{sign3, exponent[7:0], one[{B - 2}:{B - 24}]}} + {{31'd0, up}};
    always @(posedge clk) if (enable) y <= one[{B - 1}] ? packed_number : 32'd0;
endmodule"""


def _from_middle(steps: list[str], half: int) -> list[str]:
    """The first step after the middle register reads it."""
    return [
        step.replace(f"n{half}[", "middle[")
        .replace(f"= n{half} <<", "= middle <<")
        .replace(f"= n{half};", "= middle;")
        for step in steps
    ]
