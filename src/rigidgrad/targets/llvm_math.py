"""Sine, cosine and arctangent of W lanes, as functions in LLVM IR.

sincos: the angle is reduced by multiples of π/2 held in three pieces. The first multiply-add is exact, since the difference is a multiple of the
last bit of the first piece and below one; so the reduced angle is right to its last bit for all angles up to the limit, and beyond it a
lane takes the C library's sine and cosine. Kernels of fdlibm (float64) and Cephes (float32) follow.

Functions of the C library are called through a table of addresses, `%libm`, in the order of `C_FUNCTIONS`: object code then needs no linking.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rigidgrad.targets.llvm import Lanes


C_FUNCTIONS = ("sin", "cos", "atan2")


def c_names(dtype: str) -> list[str]:
    """The C library's names of `C_FUNCTIONS` for a dtype."""
    return [name + _PIECES[dtype].c_suffix for name in C_FUNCTIONS]


class _Pieces(NamedTuple):
    magic: float  # adding it rounds to an integer, whose low bits are the quadrant
    limit: float
    half_pi: tuple[float, ...]
    sin: tuple[float, ...]
    cos: tuple[float, ...]
    top_bit: int
    c_suffix: str


_PIECES = {
    "float64": _Pieces(
        magic=1.5 * 2.0**52,
        limit=2.0**30,
        half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33),
        sin=(
            1.58969099521155010221e-10,
            -2.50507602534068634195e-08,
            2.75573137070700676789e-06,
            -1.98412698298579493134e-04,
            8.33333333332248946124e-03,
            -1.66666666666666324348e-01,
        ),
        cos=(
            -1.13596475577881948265e-11,
            2.08757232129817482790e-09,
            -2.75573143513906633035e-07,
            2.48015872894767294178e-05,
            -1.38888888888741095749e-03,
            4.16666666666666019037e-02,
        ),
        top_bit=63,
        c_suffix="",
    ),
    "float32": _Pieces(
        magic=1.5 * 2.0**23,
        limit=2.0**17,
        half_pi=(1.57079637050628662109375, -4.37113882867379e-08, -1.71512451e-15),
        sin=(-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
        cos=(2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
        top_bit=31,
        c_suffix="f",
    ),
}


def functions(lanes: Lanes, used: set[str]) -> str:
    """The functions that a program's operations need."""
    parts = []
    if used & {"sin", "cos"}:
        parts.append(_sincos(type(lanes)(lanes.dtype, lanes.width)))
    if "atan2" in used:
        parts.append(_atan2(type(lanes)(lanes.dtype, lanes.width)))
    return "\n".join(parts)


def _sincos(b: Lanes) -> str:
    p = _PIECES[b.dtype]
    v, c = b.vector, b.constant
    t = b.fma("%x", c(2.0 / math.pi), c(p.magic))
    quadrant = b.bits(t)
    n = b.binary("fsub", t, c(p.magic))
    minus_n = b.negate(n)
    r = "%x"
    for piece in p.half_pi:
        r = b.fma(minus_n, c(piece), r)
    z = b.binary("fmul", r, r)
    s, k = c(p.sin[0]), c(p.cos[0])
    for coefficient in p.sin[1:]:
        s = b.fma(s, z, c(coefficient))
    for coefficient in p.cos[1:]:
        k = b.fma(k, z, c(coefficient))
    sine = b.fma(b.binary("fmul", r, z), s, r)
    # 1 - z/2 is rounded; what the rounding lost is added back with the small terms
    half = b.binary("fmul", c(0.5), z)
    w = b.binary("fsub", c(1.0), half)
    lost = b.binary("fsub", b.binary("fsub", c(1.0), w), half)
    cosine = b.binary("fadd", w, b.fma(b.binary("fmul", z, z), k, lost))
    one = b.integers(1)
    zero = b.integers(0)
    odd = b.emit(f"icmp ne {b.of(b.integer)} {b.integer_binary('and', quadrant, one)}, {zero}")
    sine, cosine = b.select(odd, cosine, sine), b.select(odd, sine, cosine)

    def signed(value: str, count: str) -> str:
        second = b.integer_binary("and", b.integer_binary("lshr", count, one), one)
        return b.from_bits(b.integer_binary("xor", b.bits(value), b.integer_binary("shl", second, b.integers(p.top_bit))))

    sine = signed(sine, quadrant)
    cosine = signed(cosine, b.integer_binary("add", quadrant, one))
    large = b.compare("ogt", b.unary_intrinsic("fabs", "%x"), c(p.limit))
    if b.width == 1:
        any_large = large
    else:
        mask = b.emit(f"bitcast {b.of('i1')} {large} to i{b.width}")
        any_large = b.emit(f"icmp ne i{b.width} {mask}, 0")
    b.do(f"br i1 {any_large}, label %slow, label %done")
    b.label("slow")
    far_sine, far_cosine = (_per_lane(b, name, ["%x"]) for name in ("sin", "cos"))
    far_sine, far_cosine = b.select(large, far_sine, sine), b.select(large, far_cosine, cosine)
    b.do("br label %done")
    b.label("done")
    s_out = b.emit(f"phi {v} [ {sine}, %0 ], [ {far_sine}, %slow ]")
    c_out = b.emit(f"phi {v} [ {cosine}, %0 ], [ {far_cosine}, %slow ]")
    first = b.emit(f"insertvalue {{ {v}, {v} }} undef, {v} {s_out}, 0")
    both = b.emit(f"insertvalue {{ {v}, {v} }} {first}, {v} {c_out}, 1")
    b.do(f"ret {{ {v}, {v} }} {both}")
    return f"define internal {{ {v}, {v} }} @lanes_sincos(ptr %libm, {v} %x) nounwind noinline {{\n" + "\n".join(b.lines) + "\n}\n"


def _atan2(b: Lanes) -> str:
    result = _per_lane(b, "atan2", ["%y", "%x"])
    b.do(f"ret {b.vector} {result}")
    body = "\n".join(b.lines)
    return f"define internal {b.vector} @lanes_atan2(ptr %libm, {b.vector} %y, {b.vector} %x) nounwind noinline {{\n{body}\n}}\n"


def _per_lane(b: Lanes, name: str, operands: list[str]) -> str:
    """A function of the C library, lane after lane."""
    place = b.emit(f"getelementptr ptr, ptr %libm, i64 {C_FUNCTIONS.index(name)}")
    function = b.emit(f"load ptr, ptr {place}")
    if b.width == 1:
        return b.emit(f"call {b.scalar} {function}({', '.join(f'{b.scalar} {x}' for x in operands)})")
    result = "undef"
    for lane in range(b.width):
        scalars = [b.emit(f"extractelement {b.vector} {x}, i32 {lane}") for x in operands]
        value = b.emit(f"call {b.scalar} {function}({', '.join(f'{b.scalar} {x}' for x in scalars)})")
        result = b.emit(f"insertelement {b.vector} {result}, {b.scalar} {value}, i32 {lane}")
    return result
