"""Block-per-state kernels as text.

Stages are written out, one after the other, where no kind of operation returns often. Sweeps from
body to body are loops: each warp walks through a list of its own, of groups of operations of one
kind, with a barrier at the end of each stage; the code of such an operation is there once, whatever
the robot's size. What differs are the tables.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rigidgrad.model.model import Model
from rigidgrad.targets.cstyle_kernel import array
from rigidgrad.targets.gpu.block import BlockFunction, Gather, Matrix, Products, Store
from rigidgrad.targets.gpu.block_algorithms import Work
from rigidgrad.targets.gpu.schedule import LARGEST, SPECIAL, WARP, Group, Number
from rigidgrad.targets.gpu.text import real_table

CODE = Path(__file__).parent / "code"
NOTHING = LARGEST  # the address of a structural zero
# operations that also read the list table
_LISTING = ("along_path", "subtree", "total", "articulated", "solve_back")

_OFTEN = 3  # in so many stages a kind of operation may be written out

Names = Mapping[str, str]


def common_code() -> str:
    """Spatial algebra; what every block function of any robot uses."""
    return (CODE / "spatial.h").read_text(encoding="utf-8")


def robot_code(model: Model) -> str:
    """The robot's constants and the operations over them. The model is canonical."""
    work = Work(model)
    fixed = [
        x
        for pose in model.placements
        for x in (*(pose.R[c][r] for r in range(3) for c in range(3)), *pose.p)
    ]
    parts = [
        real_table("K_FIXED", fixed),
        real_table(
            "K_INERTIA", [x for m, h, I in model.inertias for x in (m, *h, *I)] + [0.0] * 10
        ),
        real_table("K_S", [x for s in work.S for x in s]),
        real_table("K_PITCH", [j.pitch for j in model.joints]),
        real_table("K_ARMATURE", work.armature),
        real_table("K_FOLLOWS", [x for j in model.joints for x in (j.multiplier, j.offset)]),
        *(
            (CODE / f"{name}.h").read_text(encoding="utf-8")
            for name in ("operations", "common_frame")
        ),
    ]
    return "\n".join(parts)


def render(f: BlockFunction, prefix: str, ins: Names, outs: Names) -> str:
    """Tables, the device function `{prefix}_block` for one state and the kernel
    `{prefix}_block_kernel` for n of them.
    """
    return "\n".join(
        [_tables(f, prefix), _device_function(f, prefix, ins, outs), _kernel(f, prefix, ins, outs)]
    )


def render_local(f: BlockFunction, prefix: str, ins: Names, outs: Names) -> str:
    """Tables and `{prefix}_block`, with arguments in shared memory."""
    return "\n".join([_tables(f, prefix), _device_function(f, prefix, ins, outs, local=True)])


def _signature(
    f: BlockFunction, ins: Names, outs: Names, local: bool = False
) -> list[tuple[str, str, int]]:
    """(type, C name, numbers a state) of the arguments: inputs, then outputs."""
    space = "LOCAL" if local else "GLOBAL"
    inputs = [(f"{space} const real *", ins[k], math.prod(s)) for k, s in f.inputs.items()]
    return inputs + [(f"{space} real *", outs[k], math.prod(s)) for k, s in f.outputs.items()]


def _kinds(f: BlockFunction) -> list[str]:
    return [kind for kind in f.schedule.tables if not kind.startswith(SPECIAL)]


@dataclass(frozen=True)
class Part:
    """Stages in a row that are written out, or walked through."""

    stages: list[tuple[Group, ...]]
    rolled: bool


def _parts(f: BlockFunction) -> list[Part]:
    """The stages of operations, without loads and what is made dense for the products."""
    stages = [
        tuple(g for g in stage if not g.kind.startswith(SPECIAL)) for stage in f.schedule.stages
    ]
    stages = [stage for stage in stages if stage]
    returns = Counter(kind for stage in stages for kind in {g.kind for g in stage})
    parts: list[Part] = []
    for stage in stages:
        rolled = any(returns[g.kind] > _OFTEN for g in stage)
        if not parts or parts[-1].rolled != rolled:
            parts.append(Part([], rolled))
        parts[-1].stages.append(stage)
    return parts


def _kinds_of(part: Part) -> list[str]:
    return list(dict.fromkeys(g.kind for stage in part.stages for g in stage))


def _tables(f: BlockFunction, prefix: str) -> str:
    s = f.schedule
    parts = [real_table(f"{prefix}_constants", f.constants)] if f.constants else []
    for kind in _kinds(f):
        width = 4 * _width(s.tables[kind])
        flat = [str(x) for e in s.tables[kind] for x in (*e, *[0] * (width - len(e)))]
        parts.append(array(f"TABLE_OF_ENTRIES {prefix}_{_plain(kind)}", flat))
    if any(kind.partition("(")[0] in _LISTING for kind in _kinds(f)):
        parts.append(array(f"TABLE unsigned short {prefix}_list", [str(x) for x in s.lists]))
    for n, part in enumerate(_parts(f)):
        if part.rolled:
            groups, starts = _walks(part, s.threads // WARP)
            parts.append(array(f"TABLE_OF_GROUPS {prefix}_groups{n}", [str(x) for x in groups]))
            parts.append(array(f"TABLE_OF_GROUPS {prefix}_starts{n}", [str(x) for x in starts]))
    for name, numbers in _gathered(f).items():
        places = [str(NOTHING if x is None else s.place(x)) for x in numbers]
        parts.append(array(f"TABLE unsigned short {prefix}_{name}_from", places))
    if any(not isinstance(store, Gather) for store in f.stores):
        parts.append(
            array(f"TABLE unsigned short {prefix}_ranges", [str(x) for r in f.ranges for x in r])
        )
    return "\n".join(parts)


def _walks(part: Part, warps: int) -> tuple[list[int], list[int]]:
    """The groups of each warp in each stage, one after the other, and where each of these lists
    starts. A group is one number: kind and count in 6 and 7 bits, then start.
    """
    number = {kind: i for i, kind in enumerate(_kinds_of(part))}
    groups: list[int] = []
    starts = [0]
    for stage in part.stages:
        shares: list[list[int]] = [[] for _ in range(warps)]
        for g in stage:
            for k, first in enumerate(range(0, g.count, WARP)):
                count = min(WARP, g.count - first)
                packed = number[g.kind] | count << 6 | (g.start + first) << 13
                shares[(g.thread // WARP + k) % warps].append(packed)
        for share in shares:
            groups += share
            starts.append(len(groups))
    return groups, starts


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


def _device_function(
    f: BlockFunction, prefix: str, ins: Names, outs: Names, local: bool = False
) -> str:
    declared = _signature(f, ins, outs, local)
    arguments = ", ".join(f"{kind}{name}" for kind, name, _ in declared)
    passed = ", ".join(name for _, name, _ in declared)
    s = f.schedule
    lines = [
        f"DEVICE void {prefix}_team(const int team, LOCAL real *s, {arguments}) {{",
        *_loads(f, prefix, ins, local),
        "  MEET(team)",
    ]
    for n, part in enumerate(_parts(f)):
        lines += _rolled(f, prefix, n, part) if part.rolled else _written_out(f, prefix, part)
    lines += [line for store in f.stores for line in _store(f, prefix, outs, store, local)]
    lines += [
        "}",
        f"/* {f.name} of one state, by all threads of a block, a power of two of at least",
        f"   {s.threads}; {s.barriers} barriers. s: {s.size} numbers of shared memory, to be used",
        "   again only after a barrier. */",
        f"DEVICE void {prefix}_block(LOCAL real *s, {arguments}) {{",
        f"  {prefix}_team(NTHR, s, {passed});",
        "}",
    ]
    return "\n".join(lines)


def _loads(f: BlockFunction, prefix: str, ins: Names, local: bool) -> list[str]:
    """The first stage brings inputs and constants into shared memory."""
    lines = []
    for key, place in f.loads.items():
        number = f"ld({ins[key]}, t)" if local else f"{ins[key]}[t]"
        lines.append(
            f"  for (int t = FIRST(0, team); t < {math.prod(f.inputs[key])}; t += team) st(s, {place} + t,"
            f" {number});"
        )
    if f.constants:
        lines.append(
            f"  for (int t = FIRST(0, team); t < {len(f.constants)}; t += team) st(s, {f.constants_at} + t,"
            f" {prefix}_constants[t]);"
        )
    return lines


def _written_out(f: BlockFunction, prefix: str, part: Part) -> list[str]:
    lines = []
    for stage in part.stages:
        for g in stage:
            lines += [
                f"  for (int t = FIRST({g.thread}, team); t < {g.count}; t += team) {{",
                *_operation(f, prefix, g.kind, f"{g.start} + t" if g.start else "t", "    "),
                "  }",
            ]
        lines.append("  MEET(team)")
    return lines


def _rolled(f: BlockFunction, prefix: str, n: int, part: Part) -> list[str]:
    warps, starts = f.schedule.threads // WARP, f"{prefix}_starts{n}"
    lines = [
        "  ROLLED",
        f"  for (int stage = 0; stage < {len(part.stages)}; ++stage) {{",
        f"    const int warp = FIRST(0, team) / {WARP}, share = {warps} * stage + warp;",
        f"    const int end = warp < {warps} ? (int){starts}[share + 1] : 0;",
        "    ROLLED",
        f"    for (int at = warp < {warps} ? (int){starts}[share] : 0; at < end; ++at) {{",
        f"      const unsigned group = {prefix}_groups{n}[at];",
        f"      if (TID % {WARP} < (int)(group >> 6 & 127)) {{",
        f"        const int k = (int)(group >> 13) + TID % {WARP};",
        "        switch (group & 63) {",
    ]
    for i, kind in enumerate(_kinds_of(part)):
        lines += [f"          case {i}: {{", *_operation(f, prefix, kind, "k", " " * 12)]
        lines += ["            break;", "          }"]
    return [*lines, "        }", "      }", "    }", "    MEET(team)", "  }"]


def _operation(f: BlockFunction, prefix: str, kind: str, k: str, indent: str) -> list[str]:
    """One operation, number k of its kind."""
    width = _width(f.schedule.tables[kind])
    name, _, flags = kind.partition("(")
    arguments = [
        "s",
        "e",
        *filter(None, [flags.rstrip(")")]),
        *([f"{prefix}_list"] if name in _LISTING else []),
    ]
    table = f"{prefix}_{_plain(kind)}"
    place = f"{width} * ({k})" if width > 1 else k
    read = [
        f"entry4({table}, {place}{f' + {i}' if i else ''}, e{f' + {4 * i}' if i else ''});"
        for i in range(width)
    ]
    lines = [f"int e[{4 * width}];", *read, f"{name}({', '.join(arguments)});"]
    return [indent + line for line in lines]


def _written(name: str, x: str, local: bool) -> str:
    return f"st({name}, t, {x});" if local else f"{name}[t] = {x};"


def _store(f: BlockFunction, prefix: str, outs: Names, store: Store, local: bool) -> list[str]:
    n = f.model.nv
    match store:
        case Gather(name, numbers):
            zero = f"from == {NOTHING} ? (real)0 : " if any(x is None for x in numbers) else ""
            return [
                f"  for (int t = FIRST(0, team); t < {len(numbers)}; t += team) {{",
                f"    const int from = {prefix}_{name}_from[t];",
                f"    {_written(outs[name], f'{zero}ld(s, from)', local)}",
                "  }",
            ]
        case Matrix(name, matrix):
            return [
                f"  for (int t = FIRST(0, team); t < {n * n}; t += team) {{",
                f"    const int i = t / {n}, j = t - {n} * i;",
                (
                    f"    const int inside = j >= {prefix}_ranges[2 * i] && j < {prefix}_ranges[2 *"
                    " i + 1];"
                ),
                (
                    f"    {_written(outs[name], f'inside ? ld(s, {f.schedule.place(matrix)} + t) : (real)0', local)}"
                ),
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
            f"  for (int t = FIRST(0, team); t < {len(numbers)}; t += team) {{",
            f"    const int from = {prefix}_{key}_from[t];",
            (
                f"    st(s, {f.schedule.place(matrix)} + t, from == {NOTHING} ? (real)0 : ld(s,"
                " from));"
            ),
            "  }",
        ]
    return [*lines, "  MEET(team)"] if lines else []


def _products(
    f: BlockFunction, prefix: str, outs: Names, store: Products, local: bool
) -> list[str]:
    n, count = f.model.nv, len(store.names)
    terms = []
    for k in range(count):
        if store.arrays:
            terms.append(
                f"        x{k} -= m * ld(s, {f.schedule.place(store.arrays[k])} + {n} * k + j);"
            )
        else:
            terms.append(
                f"        const int from{k} = {prefix}_{store.names[k]}_from[{n} * k + j];"
            )
            terms.append(f"        if (from{k} != {NOTHING}) x{k} -= m * ld(s, from{k});")
    return [
        f"  for (int t = FIRST(0, team); t < {n * n}; t += team) {{",
        (
            f"    const int i = t / {n}, j = t - {n} * i, low = {prefix}_ranges[2 * i], high ="
            f" {prefix}_ranges[2 * i + 1];"
        ),
        f"    real {', '.join(f'x{k} = 0' for k in range(count))};",
        "    if (j >= low && j < high)",
        "      for (int k = low; k < high; ++k) {",
        f"        const real m = ld(s, {f.schedule.place(store.inverse)} + {n} * i + k);",
        *terms,
        "      }",
        *(f"    {_written(outs[key], f'x{k}', local)}" for k, key in enumerate(store.names)),
        "  }",
    ]


def _many(f: BlockFunction) -> int:
    """Threads that a processor shall have: 64 registers each, or 80 where articulated inertias have
    to fit (ptxas spills some on sm_75 and sm_80 otherwise).
    """
    return 768 if any(kind.startswith("articulated") for kind in f.schedule.tables) else 1024


def _kernel(f: BlockFunction, prefix: str, ins: Names, outs: Names) -> str:
    arguments = _signature(f, ins, outs)
    moved = ", ".join(f"{name} + {size} * (size_t)k" for _, name, size in arguments)
    declared = ", ".join(f"{kind}{name}" for kind, name, _ in arguments)
    team, states, size = f.schedule.threads, f.states, f.schedule.size
    lines = [
        f"KERNEL TEAM({f.threads}, {_many(f)}) {prefix}_block_kernel(int n, {declared}) {{",
        f"  ARENA(s, {size * states});",
        f"  for (int base = {states} * BID; base < n; base += {states} * NBLK) {{",
    ]
    if states > 1:
        lines += [
            f"    const int mine = TID / {team}, k = base + mine < n ? base + mine : n - 1; /* beyond"
            " the last state it is computed once more */",
            f"    {prefix}_team({team}, s + {size} * mine, {moved});",
        ]
    else:
        lines += ["    const int k = base;", f"    {prefix}_team({team}, s, {moved});"]
    apart = [f"    MEET({team})"] if f.meets_next else []
    return "\n".join([*lines, *apart, "  }", "}"])
