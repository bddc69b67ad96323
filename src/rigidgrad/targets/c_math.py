"""Sine and cosine in C by the polynomials of lanes (`llvm_math`), so that generated code has the
bits of this process: of a double, and of a vector of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import Template

from rigidgrad.targets.llvm_math import PIECES

OWN = "own_"  # begins the names of the functions of a double

_SCALAR = Template("""\
/* The sine (turned = 0) or cosine (1) of x: the angle is reduced by multiples of pi/2 held in three
 * pieces, then come the polynomials of fdlibm; very large angles are left to libm. */
static double own_turned(double x, unsigned turned)
{
    const double turns = fma(x, $per_angle, $magic), n = -(turns - $magic);
$reduced
    const double z = r * r;
$polynomials
    uint64_t quadrant, bits;
    double y;
    if (fabs(x) > $limit) return turned ? cos(x) : sin(x);
    memcpy(&quadrant, &turns, sizeof quadrant);
    y = (quadrant & 1) == turned ? s : c;
    memcpy(&bits, &y, sizeof bits);
    bits ^= (((quadrant + turned) >> 1) & 1) << 63;
    memcpy(&y, &bits, sizeof y);
    return y;
}
OWN double own_sin(double x) { return own_turned(x, 0); }
OWN double own_cos(double x) { return own_turned(x, 1); }
""")

_LANES = Template("""\
typedef unsigned long long bits_lanes64 __attribute__((vector_size(LANES)));

/* The same for a vector. */
static lanes64 turned_lanes64(lanes64 x, unsigned turned)
{
    const lanes64 turns = fma_lanes64(x, ALL($per_angle), ALL($magic)), n = -(turns - $magic);
$reduced
    const lanes64 z = r * r;
$polynomials
    const bits_lanes64 quadrant = (bits_lanes64)turns;
    const bits_lanes64 odd = (quadrant & 1) - 1, first = turned ? ~odd : odd;
    const bits_lanes64 sign = (((quadrant + turned) >> 1) & 1) << 63;
    lanes64 y = (lanes64)(((first & (bits_lanes64)s) | (~first & (bits_lanes64)c)) ^ sign);
    int k;
    for (k = 0; k < LANES64; ++k)
        if (fabs(x[k]) > $limit) y[k] = turned ? cos(x[k]) : sin(x[k]);
    return y;
}
OWN lanes64 sin_lanes64(lanes64 x) { return turned_lanes64(x, 0); }
OWN lanes64 cos_lanes64(lanes64 x) { return turned_lanes64(x, 1); }
""")


def scalar() -> str:
    """own_sin and own_cos; needs math.h, stdint.h, string.h and the macro OWN."""
    return _SCALAR.substitute(_words("double", "fma", "{}"))


def lanes() -> str:
    """sin_lanes64 and cos_lanes64, for `c_types.lanes`."""
    all_ = "#define ALL(x) ((x) - (lanes64){0})\n"
    text = _LANES.substitute(_words("lanes64", "fma_lanes64", "ALL({})"))
    return f"{all_}{text}#undef ALL"


def _words(real: str, fma: str, constant: str) -> dict[str, str]:
    p = PIECES["float64"]

    def number(x: float) -> str:
        return constant.format(repr(x) if x >= 0 else f"({x!r})")

    def horner(name: str, numbers: Sequence[float]) -> list[str]:
        found = [f"{real} {name} = {number(numbers[0])};"]
        return found + [f"{name} = {fma}({name}, z, {number(x)});" for x in numbers[1:]]

    reduced = [f"{real} r = x;"] + [f"r = {fma}(n, {number(x)}, r);" for x in p.half_pi]
    sine, cosine = horner("s", p.sin), horner("c", (*p.cos, -0.5, 1.0))
    steps = [*_in_turn(sine, cosine), f"s = {fma}(r * z, s, r);"]
    return {
        "per_angle": repr(2.0 / math.pi),
        "magic": repr(p.magic),
        "limit": repr(p.limit),
        "reduced": "\n".join(f"    {x}" for x in reduced),
        "polynomials": "\n".join(f"    {x}" for x in steps),
    }


def _in_turn(a: Sequence[str], b: Sequence[str]) -> list[str]:
    """Steps of both polynomials in turn."""
    return [x[k] for k in range(max(len(a), len(b))) for x in (a, b) if k < len(x)]
