"""Block-per-state kernels as text.

A kernel walks through its stages; in each it walks through groups of operations of one kind, which all threads take from, and then waits at a barrier. The code
of an operation is there once, whatever the robot's size: what differs are the tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from rigidgrad.model.model import Model
from rigidgrad.targets.cstyle_kernel import array
from rigidgrad.targets.gpu.block import BlockFunction, Gather, Matrix, Products, Store
from rigidgrad.targets.gpu.block_algorithms import Work
from rigidgrad.targets.gpu.schedule import LARGEST, SPECIAL, Group, Number
from rigidgrad.targets.gpu.text import real_table

CODE = Path(__file__).parent / "code"
NOTHING = LARGEST  # the address of a structural zero
_LISTING = ("back_sum", "articulated", "solve_back", "composite", "mass_column")  # operations that also read the list table

Names = Mapping[str, str]


def common_code() -> str:
    """Spatial algebra; what every block function of any robot uses."""
    return (CODE / "spatial.h").read_text(encoding="utf-8")


def robot_code(model: Model) -> str:
    """The robot's constants and the operations over them. The model is canonical."""
    work = Work(model)
    fixed = [x for pose in model.placements for x in (*(pose.R[c][r] for r in range(3) for c in range(3)), *pose.p)]
    parts = [
        real_table("K_FIXED", fixed),
        real_table("K_INERTIA", [x for m, h, I in model.inertias for x in (m, *h, *I)] + [0.0] * 10),
        real_table("K_S", [x for s in work.S for x in s]),
        real_table("K_PITCH", [j.pitch for j in model.joints]),
        real_table("K_ARMATURE", model.armature),
        (CODE / "operations.h").read_text(encoding="utf-8"),
    ]
    return "\n".join(parts)


def render(f: BlockFunction, prefix: str, ins: Names, outs: Names) -> str:
    """Tables, the device function `{prefix}_block` for one state and the kernel `{prefix}_block_kernel` for n of them."""
    return "\n".join([_tables(f, prefix), _device_function(f, prefix, ins, outs), _kernel(f, prefix, ins, outs)])


def render_local(f: BlockFunction, prefix: str, ins: Names, outs: Names) -> str:
    """Tables and `{prefix}_block`, with arguments in shared memory."""
    return "\n".join([_tables(f, prefix), _device_function(f, prefix, ins, outs, local=True)])


def _signature(f: BlockFunction, ins: Names, outs: Names, local: bool = False) -> list[tuple[str, str, int]]:
    """(type, C name, numbers a state) of the arguments: inputs, then outputs."""
    space = "LOCAL" if local else "GLOBAL"
    inputs = [(f"{space} const real *", ins[k], math.prod(s)) for k, s in f.inputs.items()]
    return inputs + [(f"{space} real *", outs[k], math.prod(s)) for k, s in f.outputs.items()]


def _kinds(f: BlockFunction) -> list[str]:
    return [kind for kind in f.schedule.tables if not kind.startswith(SPECIAL)]


def _stages(f: BlockFunction) -> list[tuple[Group, ...]]:
    """The stages of operations, between loads and what is made dense for the products."""
    return [stage for stage in f.schedule.stages if not all(g.kind.startswith(SPECIAL) for g in stage)]


def _tables(f: BlockFunction, prefix: str) -> str:
    s = f.schedule
    parts = [real_table(f"{prefix}_constants", f.constants)] if f.constants else []
    for kind in _kinds(f):
        width = 4 * _width(s.tables[kind])
        flat = [str(x) for e in s.tables[kind] for x in (*e, *[0] * (width - len(e)))]
        parts.append(array(f"TABLE_OF_ENTRIES {prefix}_{_plain(kind)}", flat))
    if any(kind.partition("(")[0] in _LISTING for kind in _kinds(f)):
        parts.append(array(f"TABLE unsigned short {prefix}_list", [str(x) for x in s.lists]))
    number = {kind: i for i, kind in enumerate(_kinds(f))}
    stages, groups = [0], []
    for stage in _stages(f):
        groups += [(number[g.kind], g.start, g.count, g.thread) for g in stage]
        stages.append(len(groups))
    parts.append(array(f"TABLE_OF_GROUPS {prefix}_groups", [str(x) for g in groups for x in g]))
    parts.append(array(f"TABLE_OF_GROUPS {prefix}_stages", [str(x) for x in stages]))
    for name, numbers in _gathered(f).items():
        places = [str(NOTHING if x is None else s.place(x)) for x in numbers]
        parts.append(array(f"TABLE unsigned short {prefix}_{name}_from", places))
    if any(not isinstance(store, Gather) for store in f.stores):
        parts.append(array(f"TABLE unsigned short {prefix}_ranges", [str(x) for r in f.ranges for x in r]))
    return "\n".join(parts)


def _gathered(f: BlockFunction) -> dict[str, tuple[Number | None, ...]]:
    """Matrices and vectors that are numbers all over shared memory."""
    found = {}
    for store in f.stores:
        if isinstance(store, Gather):
            found[store.name] = store.numbers
        elif isinstance(store, Products):
            found |= dict(zip(store.names, store.sources, strict=True))
    return found


def _width(entries: Sequence[tuple[int, ...]]) -> int:
    return -(-len(entries[0]) // 4)


def _plain(kind: str) -> str:
    return kind.replace("(", "_").replace(", ", "").replace(")", "")


def _device_function(f: BlockFunction, prefix: str, ins: Names, outs: Names, local: bool = False) -> str:
    arguments = ", ".join(f"{kind}{name}" for kind, name, _ in _signature(f, ins, outs, local))
    s = f.schedule
    lines = [
        f"/* {f.name} of one state, by all threads of a block; {s.barriers} barriers. Their number, NTHR, is a power of two, {s.threads} serve best. s: {s.size} numbers of",
        "   shared memory, to be used again only after a barrier. */",
        f"DEVICE void {prefix}_block(LOCAL real *s, {arguments}) {{",
        *_loads(f, prefix, ins, local),
        "  SYNC",
    ]
    if _stages(f):
        lines += [
            "  ROLLED",
            f"  for (int stage = 0; stage < {len(_stages(f))}; ++stage) {{",
            "    ROLLED",
            f"    for (int g = {prefix}_stages[stage]; g < {prefix}_stages[stage + 1]; ++g) {{",
            f"      const int start = {prefix}_groups[4 * g + 1], count = {prefix}_groups[4 * g + 2], first = FIRST({prefix}_groups[4 * g + 3]);",
            f"      switch ({prefix}_groups[4 * g]) {{",
            *(line for i, kind in enumerate(_kinds(f)) for line in _case(f, prefix, i, kind)),
            "      }",
            "    }",
            "    SYNC",
            "  }",
        ]
    lines += [line for store in f.stores for line in _store(f, prefix, outs, store, local)]
    return "\n".join([*lines, "}"])


def _loads(f: BlockFunction, prefix: str, ins: Names, local: bool) -> list[str]:
    """The first stage brings inputs and constants into shared memory."""
    lines = []
    for key, place in f.loads.items():
        number = f"ld({ins[key]}, t)" if local else f"{ins[key]}[t]"
        lines.append(f"  for (int t = TID; t < {math.prod(f.inputs[key])}; t += NTHR) st(s, {place} + t, {number});")
    if f.constants:
        lines.append(f"  for (int t = TID; t < {len(f.constants)}; t += NTHR) st(s, {f.constants_at} + t, {prefix}_constants[t]);")
    return lines


def _case(f: BlockFunction, prefix: str, number: int, kind: str) -> list[str]:
    width = _width(f.schedule.tables[kind])
    name, _, flags = kind.partition("(")
    arguments = ["s", "e", *filter(None, [flags.rstrip(")")]), *([f"{prefix}_list"] if name in _LISTING else [])]
    k = f"{width} * (start + t)" if width > 1 else "start + t"
    table = f"{prefix}_{_plain(kind)}"
    read = [f"entry4({table}, {k}{f' + {i}' if i else ''}, e{f' + {4 * i}' if i else ''});" for i in range(width)]
    return [
        f"        case {number}:",
        "          ROLLED",
        "          for (int t = first; t < count; t += NTHR) {",
        f"            int e[{4 * width}];",
        *(f"            {line}" for line in read),
        f"            {name}({', '.join(arguments)});",
        "          }",
        "          break;",
    ]


def _written(name: str, x: str, local: bool) -> str:
    return f"st({name}, t, {x});" if local else f"{name}[t] = {x};"


def _store(f: BlockFunction, prefix: str, outs: Names, store: Store, local: bool) -> list[str]:
    n = f.model.nv
    match store:
        case Gather(name, numbers):
            zero = f"from == {NOTHING} ? (real)0 : " if any(x is None for x in numbers) else ""
            return [
                f"  for (int t = TID; t < {len(numbers)}; t += NTHR) {{",
                f"    const int from = {prefix}_{name}_from[t];",
                f"    {_written(outs[name], f'{zero}ld(s, from)', local)}",
                "  }",
            ]
        case Matrix(name, matrix):
            return [
                f"  for (int t = TID; t < {n * n}; t += NTHR) {{",
                f"    const int i = t / {n}, j = t - {n} * i;",
                f"    const int inside = j >= {prefix}_ranges[2 * i] && j < {prefix}_ranges[2 * i + 1];",
                f"    {_written(outs[name], f'inside ? ld(s, {f.schedule.place(matrix)} + t) : (real)0', local)}",
                "  }",
            ]
        case Products():
            return [*_dense(f, prefix, store), *_products(f, prefix, outs, store, local)]
    raise AssertionError(store)


def _dense(f: BlockFunction, prefix: str, store: Products) -> list[str]:
    """The last stage: matrices as arrays."""
    lines = []
    for key, numbers, matrix in zip(store.names, store.sources, store.arrays, strict=False):
        lines += [
            f"  for (int t = TID; t < {len(numbers)}; t += NTHR) {{",
            f"    const int from = {prefix}_{key}_from[t];",
            f"    st(s, {f.schedule.place(matrix)} + t, from == {NOTHING} ? (real)0 : ld(s, from));",
            "  }",
        ]
    return [*lines, "  SYNC"] if lines else []


def _products(f: BlockFunction, prefix: str, outs: Names, store: Products, local: bool) -> list[str]:
    n, count = f.model.nv, len(store.names)
    terms = []
    for k in range(count):
        if store.arrays:
            terms.append(f"        x{k} -= m * ld(s, {f.schedule.place(store.arrays[k])} + {n} * k + j);")
        else:
            terms.append(f"        const int from{k} = {prefix}_{store.names[k]}_from[{n} * k + j];")
            terms.append(f"        if (from{k} != {NOTHING}) x{k} -= m * ld(s, from{k});")
    return [
        f"  for (int t = TID; t < {n * n}; t += NTHR) {{",
        f"    const int i = t / {n}, j = t - {n} * i, low = {prefix}_ranges[2 * i], high = {prefix}_ranges[2 * i + 1];",
        f"    real {', '.join(f'x{k} = 0' for k in range(count))};",
        "    if (j >= low && j < high)",
        "      for (int k = low; k < high; ++k) {",
        f"        const real m = ld(s, {f.schedule.place(store.inverse)} + {n} * i + k);",
        *terms,
        "      }",
        *(f"    {_written(outs[key], f'x{k}', local)}" for k, key in enumerate(store.names)),
        "  }",
    ]


def _kernel(f: BlockFunction, prefix: str, ins: Names, outs: Names) -> str:
    arguments = _signature(f, ins, outs)
    moved = ", ".join(f"{name} + {size} * (size_t)k" for _, name, size in arguments)
    return "\n".join(
        [
            f"KERNEL THREADS({f.schedule.threads}) {prefix}_block_kernel(int n, {', '.join(f'{kind}{name}' for kind, name, _ in arguments)}) {{",
            f"  ARENA(s, {f.schedule.size});",
            "  for (int k = BID; k < n; k += NBLK) {",
            f"    {prefix}_block(s, {moved});",
            "    SYNC",
            "  }",
            "}",
        ]
    )
