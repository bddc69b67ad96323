"""Sine, cosine and arctangent of W lanes, as functions in LLVM IR.

sincos: the angle is reduced by multiples of π/2 held in three pieces. The first multiply-add is
exact, since the difference is a multiple of the last bit of the first piece and below one; so the
reduced angle is right to its last bit for all angles up to the limit, and beyond it a lane takes
the C library's sine and cosine. Kernels of fdlibm (float64) and Cephes (float32) follow.

Functions of the C library are called through a table of addresses, `%libm`, in the order of
`C_FUNCTIONS`: object code then needs no linking.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rigidgrad.program.program import Program
    from rigidgrad.targets.llvm import Lanes


C_FUNCTIONS = ("sin", "cos", "atan2")


def c_names(dtype: str) -> list[str]:
    """The C library's names of `C_FUNCTIONS` for a dtype."""
    return [name + PIECES[dtype].c_suffix for name in C_FUNCTIONS]


class Pieces(NamedTuple):
    """Numbers of the polynomials, for one type."""

    magic: float  # adding it rounds to an integer, whose low bits are the quadrant
    limit: float
    half_pi: tuple[float, ...]
    sin: tuple[float, ...]
    cos: tuple[float, ...]
    top_bit: int
    c_suffix: str


PIECES = {
    "float64": Pieces(
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
    "float32": Pieces(
        magic=1.5 * 2.0**23,
        limit=2.0**17,
        half_pi=(1.57079637050628662109375, -4.37113882867379e-08, -1.71512451e-15),
        sin=(-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
        cos=(2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
        top_bit=31,
        c_suffix="f",
    ),
}


def angle_groups(program: Program) -> list[list[int]]:
    """Nodes whose sine or cosine is wanted, in pairs where both are inputs and so known from the
    start: more to do at once, and constants are loaded for both.
    """
    angles = dict.fromkeys(node[1] for node in program.nodes if node[0] in ("sin", "cos"))
    inputs = [i for i in angles if program.nodes[i][0] == "input"]
    others = [[i] for i in angles if program.nodes[i][0] != "input"]
    return [inputs[k : k + 2] for k in range(0, len(inputs), 2)] + others


def sincos(b: Lanes, angles: list[str]) -> list[tuple[str, str]]:
    """A call: the sine and cosine of one angle or two."""
    kind, v = _several(b, 2 * len(angles)), b.vector
    all_of = b.emit(
        f"call {kind} @lanes_sincos{len(angles)}(ptr %libm,"
        f" {', '.join(f'{v} {x}' for x in angles)})"
    )
    parts = [b.emit(f"extractvalue {kind} {all_of}, {k}") for k in range(2 * len(angles))]
    return list(zip(parts[::2], parts[1::2], strict=True))


def functions(lanes: Lanes, *programs: Program) -> str:
    """The functions that the operations of programs need."""
    sizes = {len(group) for program in programs for group in angle_groups(program)}
    parts = [_sincos(lanes.another(f"sincos{count}"), count) for count in sorted(sizes)]
    if any(node[0] == "atan2" for program in programs for node in program.nodes):
        parts.append(_atan2(lanes.another("atan2")))
    return "\n".join(parts)


def _several(b: Lanes, count: int) -> str:
    return f"{{ {', '.join([b.vector] * count)} }}"


def _sincos(b: Lanes, count: int) -> str:
    """The sines and cosines of some angles, step by step for all of them."""
    p = PIECES[b.dtype]
    v, c = b.vector, b.fetched
    xs = [f"%x{k}" for k in range(count)]

    def horner(zs: list[str], coefficients: tuple[float, ...]) -> list[str]:
        sums = [c(coefficients[0])] * count
        for x in coefficients[1:]:
            constant = c(x)
            sums = [b.fma(s, z, constant) for s, z in zip(sums, zs, strict=True)]
        return sums

    per_angle, magic = c(2.0 / math.pi), c(p.magic)
    turns = [b.fma(x, per_angle, magic) for x in xs]
    quadrants = [b.bits(t) for t in turns]
    backwards = [b.negate(b.binary("fsub", t, magic)) for t in turns]
    rs = xs
    for piece in map(c, p.half_pi):
        rs = [b.fma(n, piece, r) for n, r in zip(backwards, rs, strict=True)]
    zs = [b.binary("fmul", r, r) for r in rs]
    sines = [
        b.fma(b.binary("fmul", r, z), s, r)
        for r, z, s in zip(rs, zs, horner(zs, p.sin), strict=True)
    ]
    cosines = horner(zs, (*p.cos, -0.5, 1.0))
    one, zero = b.integers(1), b.integers(0)

    def signed(value: str, quadrant: str) -> str:
        second = b.integer_binary("and", b.integer_binary("lshr", quadrant, one), one)
        return b.from_bits(
            b.integer_binary(
                "xor", b.bits(value), b.integer_binary("shl", second, b.integers(p.top_bit))
            )
        )

    near: list[str] = []
    for quadrant, sine, cosine in zip(quadrants, sines, cosines, strict=True):
        odd = b.emit(f"icmp ne {b.of(b.integer)} {b.integer_binary('and', quadrant, one)}, {zero}")
        near.append(signed(b.select(odd, cosine, sine), quadrant))
        near.append(signed(b.select(odd, sine, cosine), b.integer_binary("add", quadrant, one)))
    limit = c(p.limit)
    large = [b.compare("ogt", b.unary_intrinsic("fabs", x), limit) for x in xs]
    some = large[0] if count == 1 else b.emit(f"or {b.of('i1')} {large[0]}, {large[1]}")
    if b.width > 1:
        mask = b.emit(f"bitcast {b.of('i1')} {some} to i{b.width}")
        some = b.emit(f"icmp ne i{b.width} {mask}, 0")
    b.do(f"br i1 {some}, label %slow, label %done")
    b.label("slow")
    far = [
        b.select(large[k], _per_lane(b, name, [xs[k]]), near[2 * k + n])
        for k in range(count)
        for n, name in enumerate(("sin", "cos"))
    ]
    b.do("br label %done")
    b.label("done")
    kind, result = _several(b, 2 * count), "undef"
    values = [
        b.emit(f"phi {v} [ {x}, %0 ], [ {y}, %slow ]") for x, y in zip(near, far, strict=True)
    ]
    for k, value in enumerate(values):
        result = b.emit(f"insertvalue {kind} {result}, {v} {value}, {k}")
    b.do(f"ret {kind} {result}")
    arguments = ", ".join(f"{v} {x}" for x in xs)
    body = "\n".join(b.lines)
    return (
        f"{b.constants()}define internal {kind} @lanes_{b.name}(ptr %libm, {arguments}) nounwind"
        f" noinline {{\n{body}\n}}\n"
    )


def _atan2(b: Lanes) -> str:
    result = _per_lane(b, "atan2", ["%y", "%x"])
    b.do(f"ret {b.vector} {result}")
    body = "\n".join(b.lines)
    return (
        f"define internal {b.vector} @lanes_atan2(ptr %libm, {b.vector} %y, {b.vector} %x) nounwind"
        f" noinline {{\n{body}\n}}\n"
    )


def _per_lane(b: Lanes, name: str, operands: list[str]) -> str:
    """A function of the C library, lane after lane."""
    place = b.emit(f"getelementptr ptr, ptr %libm, i64 {C_FUNCTIONS.index(name)}")
    function = b.emit(f"load ptr, ptr {place}")
    if b.width == 1:
        return b.emit(
            f"call {b.scalar} {function}({', '.join(f'{b.scalar} {x}' for x in operands)})"
        )
    result = "undef"
    for lane in range(b.width):
        scalars = [b.emit(f"extractelement {b.vector} {x}, i32 {lane}") for x in operands]
        value = b.emit(
            f"call {b.scalar} {function}({', '.join(f'{b.scalar} {x}' for x in scalars)})"
        )
        result = b.emit(f"insertelement {b.vector} {result}, {b.scalar} {value}, i32 {lane}")
    return result
