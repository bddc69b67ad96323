"""What instructions without memory compute, over the lanes of a warp: each is an expression of
Python over arrays.
"""

from __future__ import annotations

import numpy as np

from ptx.text import TYPES, Statement

FLOAT = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "min": "np.fmin({0}, {1})",
    "max": "np.fmax({0}, {1})",
    "neg": "-{0}",
    "abs": "np.abs({0})",
    "rcp": "one / {0}",
    "sqrt": "np.sqrt({0})",
    "rsqrt": "one / np.sqrt({0})",
    "copysign": "np.copysign({1}, {0})",
}
WHOLE = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "mad": "{0} * {1} + {2}",
    "div": "divided({0}, {1})",
    "rem": "remainder({0}, {1})",
    "min": "np.minimum({0}, {1})",
    "max": "np.maximum({0}, {1})",
    "neg": "-{0}",
    "abs": "np.abs({0})",
    "not": "~{0}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "bfi": "inserted({0}, {1}, {2}, {3})",
    "bfe": "extracted({0}, {1}, {2})",
}
COMPARE = {
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "ltu": "~({0} >= {1})",
    "leu": "~({0} > {1})",
    "gtu": "~({0} <= {1})",
    "geu": "~({0} < {1})",
    "neu": "{0} != {1}",
    "equ": "~(({0} < {1}) | ({0} > {1}))",
    "num": "~(np.isnan({0}) | np.isnan({1}))",
    "nan": "np.isnan({0}) | np.isnan({1})",
    "lo": "{0} < {1}",
    "ls": "{0} <= {1}",
    "hi": "{0} > {1}",
    "hs": "{0} >= {1}",
}
ROUND = {"rni": "np.rint", "rzi": "np.trunc", "rmi": "np.floor", "rpi": "np.ceil"}
_FLOATING = ("add", "sub", "mul", "fma", "div", "min", "max", "rcp", "sqrt", "rsqrt", "neg", "abs")


def counts_as(s: Statement) -> str:
    """The class of an instruction in a report."""
    parts = s.operation.split(".")
    if s.name in ("ld", "st", "red", "atom"):
        space = next(
            (p for p in parts if p in ("global", "const", "shared", "local", "param")), "generic"
        )
        return f"{s.name} {space}"
    if s.type in ("f32", "f64") and s.name in _FLOATING:
        return "floating point"
    if s.name in ("bra", "call", "ret", "exit", "brx"):
        return "branch"
    return "barrier" if s.name in ("bar", "barrier") else "other"


def expression(s: Statement, value) -> tuple[str, str]:
    """(the expression, the type of its result); `value(operand, type)` names an operand."""
    parts, kind = s.operation.split("."), s.type
    dtype = TYPES.get(kind)
    match s.name:
        case "mov" | "cvta":
            return value(s.operands[1], kind), kind
        case "setp":
            x, y = (value(o, kind) for o in s.operands[1:3])
            compared = COMPARE[parts[1]].format(x, y)
            if len(s.operands) == 4:
                with_, joined = value(s.operands[3], "pred"), {"and": "&", "or": "|", "xor": "^"}
                compared = f"({compared}) {joined[parts[2]]} {with_}"
            return compared, "pred"
        case "selp":
            x, y = (value(o, kind) for o in s.operands[1:3])
            return f"np.where({value(s.operands[3], 'pred')}, {x}, {y})", kind
        case "shl" | "shr":
            x, n = value(s.operands[1], kind), value(s.operands[2], "u32")
            return f"shifted_{'left' if s.name == 'shl' else 'right'}({x}, {n})", kind
        case "shf":
            low, high, n = (value(o, "u32") for o in s.operands[1:])
            return f"funnel({low}, {high}, {n}, {parts[1] == 'l'}, {'wrap' in parts})", "b32"
        case "cvt":
            return _converted(s, parts, value)
        case "clz" | "popc":
            count = "x.bit_length()" if s.name == "clz" else "x.bit_count()"
            begin = f"{8 * dtype.itemsize} - " if s.name == "clz" else ""
            x = value(s.operands[1], kind)
            return f"np.array([{begin}int({count}) for x in {x}.tolist()], np.uint32)", "u32"
        case "mul" | "mad" if "wide" in parts:
            wide = f"{kind[0]}{2 * int(kind[1:])}"
            x, y = (f"{value(o, kind)}.astype({TYPES[wide].name!r})" for o in s.operands[1:3])
            more = f" + {value(s.operands[3], wide)}" if s.name == "mad" else ""
            return f"{x} * {y}{more}", wide
        case "mul" | "mad" if "hi" in parts and kind in ("s32", "u32"):
            wide = "i8" if kind[0] == "s" else "u8"
            x, y = (f"{value(o, kind)}.astype({wide!r})" for o in s.operands[1:3])
            more = f" + {value(s.operands[3], kind)}" if s.name == "mad" else ""
            return (
                f"({x} * {y} >> np.{TYPES[f'{kind[0]}64'].name}(32)).astype({TYPES[kind].name!r}){more}",
                kind,
            )
        case "fma":
            x, y, z = (value(o, kind) for o in s.operands[1:])
            return f"fma_{kind}({x}, {y}, {z})", kind
        case "tanh" | "sin" | "cos" | "ex2" | "lg2":
            raise NotImplementedError(f"{s.operation}: our kernels use no approximations")
    table = FLOAT if kind[0] == "f" else WHOLE
    if s.name not in table or "cc" in parts or dtype is None:
        raise NotImplementedError(s.operation)
    text = table[s.name].format(
        *(
            value(
                o,
                "u32" if s.name in ("bfi", "bfe") and k >= (2 if s.name == "bfi" else 1) else kind,
            )
            for k, o in enumerate(s.operands[1:])
        )
    )
    return text.replace("one", f"np.{dtype.name}(1)") if kind[0] == "f" else text, kind


def _converted(s: Statement, parts: list[str], value) -> tuple[str, str]:
    to, source = parts[-2], parts[-1]
    x = value(s.operands[1], source)
    if source[0] == "f" and to[0] != "f":
        how = next(ROUND[p] for p in parts if p in ROUND)
        return f"whole({how}({x}), np.{TYPES[to].name})", to
    if source[0] == "f" and (rounding := next((ROUND[p] for p in parts if p in ROUND), None)):
        x = f"{rounding}({x})"
    return f"{x}.astype({TYPES[to].name!r})", to


# --- functions that expressions call --------------------------------------------------------------


def fma_f32(x, y, z):
    return (np.multiply(x, y, dtype=np.float64) + z).astype(np.float32)


def fma_f64(x, y, z):
    return (np.multiply(x, y, dtype=np.longdouble) + z).astype(np.float64)


def divided(x, y):
    y = np.where(y == 0, y.dtype.type(1), y)
    return x // y if x.dtype.kind == "u" else ((x - np.fmod(x, y)) // y).astype(x.dtype)


def remainder(x, y):
    y = np.where(y == 0, y.dtype.type(1), y)
    return np.fmod(x, y).astype(x.dtype)


def shifted_left(x, n):
    bits = 8 * x.dtype.itemsize
    moved = x << np.minimum(n, bits - 1).astype(x.dtype)
    return np.where(n >= bits, x.dtype.type(0), moved)


def shifted_right(x, n):
    bits = 8 * x.dtype.itemsize
    moved = x >> np.minimum(n, bits - 1).astype(x.dtype)
    return moved if x.dtype.kind == "i" else np.where(n >= bits, x.dtype.type(0), moved)


def funnel(low, high, n, left, wrap):
    n = (n & np.uint32(31) if wrap else np.minimum(n, np.uint32(32))).astype(np.uint64)
    both = (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
    moved = (both << n) >> np.uint64(32) if left else both >> n
    return (moved & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def inserted(x, y, start, count):
    mask = shifted_left(_ones(x, count), start)
    return (y & ~mask) | (shifted_left(x, start) & mask)


def extracted(x, start, count):
    bits = 8 * x.dtype.itemsize
    left = np.uint32(bits) - start - count
    return shifted_right(shifted_left(x, left), np.uint32(bits) - count + np.zeros_like(start))


def _ones(x, count):
    one = np.ones(np.broadcast(x, count).shape, x.dtype)
    return shifted_left(one, count) - one


def whole(x, to):
    limits = np.iinfo(to)
    return np.clip(np.nan_to_num(x.astype(np.float64)), limits.min, limits.max).astype(to)


def carried(name, high, carry, x, y, z=None):
    """32 bits of a sum, and what goes over."""
    x, y = x.astype(np.uint64), y.astype(np.uint64)
    if name == "mad":
        product = x * y
        x = product >> np.uint64(32) if high else product & np.uint64(0xFFFFFFFF)
        y = z.astype(np.uint64)
    if name == "sub":
        found = x.astype(np.int64) - y.astype(np.int64) - np.asarray(carry, np.int64)
        return (found & 0xFFFFFFFF).astype(np.uint32), (found < 0).astype(np.uint64)
    found = x + y + np.asarray(carry, np.uint64)
    return (found & np.uint64(0xFFFFFFFF)).astype(np.uint32), found >> np.uint64(32)
