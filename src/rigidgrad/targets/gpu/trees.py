"""Kernels for trees of run-time size: Programs of one body, or of one step of a scan, inside loops
over bodies, steps of a tour, levels of a tree or segments of paths.

Number c of body i is at place c·n + i of an array, so that neighbouring threads have neighbouring
addresses. Threads meet nothing but their own bodies' numbers within a launch, but for scans, whose
blocks of threads sweep in shared memory, and levels, between which blocks wait.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rigidgrad.program.program import Program
from rigidgrad.targets.cstyle_kernel import Step
from rigidgrad.targets.gpu import thread
from rigidgrad.targets.gpu.text import real_number

THREADS = 64  # of a block, a power of two
LEAVES = 2 * THREADS  # of a block's sweep


@dataclass(frozen=True)
class Field:
    """Where a kernel has what a Program calls an input or an output: at columns `rows` of an array
    with `pitch` columns; without rows it is an array of the thread, with pitch "0" alike for all.
    """

    array: str
    width: int
    rows: tuple[str, ...] = ()
    pitch: str = "n"

    def pointers(self, written: bool) -> list[str]:
        """Declarations of arguments, one for each row."""
        constant = "" if written else "const "
        space = "GLOBAL " if self.rows else ""
        return [f"{space}{constant}real *{name}" for name in self.names]

    @property
    def names(self) -> list[str]:
        return [f"{self.array}{k}" for k in range(max(len(self.rows), 1))]

    def place(self, k: int) -> str:
        row, column = divmod(k, self.width)
        if not self.rows or self.pitch == "0":
            return f"{self.names[row]}[{column}]"
        return f"{self.names[row]}[(size_t){column} * ({self.pitch})]"

    @property
    def values(self) -> list[str]:
        """What a kernel passes."""
        return [f"{self.array} + {row}" if row != "0" else self.array for row in self.rows] or [
            self.array
        ]


Fields = Mapping[str, Field]


def entries(text: str, size: int) -> dict[str, tuple[int, int]]:
    """The kernels of a text: threads of a block, and bytes of its shared memory for numbers of this
    size.
    """
    return {m.group(1): (THREADS, size * int(m.group(2) or 0)) for m in _KERNEL.finditer(text)}


_KERNEL = re.compile(r"KERNEL THREADS\(\d+\) (\w+)\([^)]*\) \{\n(?:  ARENA\(s, (\d+)\);)?")


def function(name: str, program: Program, fields: Fields) -> str:
    """A Program as a function of pointers, and of how many columns arrays have."""
    arguments: dict[str, str] = {}
    for key in (*program.inputs, *program.outputs):
        field = fields[key]
        declared = field.pointers(key in program.outputs)
        arguments |= dict(zip(field.names, declared, strict=True))
    step = Step(
        name,
        program,
        arguments | {"n": "const int n", "bodies": "const int bodies"},
        lambda key, k: fields[key].place(k),
        lambda key, k, x: f"{fields[key].place(k)} = {x};",
    )
    return thread.render_step(step)


def call(name: str, program: Program, fields: Fields, bodies: str = "n") -> str:
    values: dict[str, str] = {}
    for key in (*program.inputs, *program.outputs):
        values |= dict(zip(fields[key].names, fields[key].values, strict=True))
    return f"{name}({', '.join([*values.values(), 'n', bodies])});"


def _arguments(programs: Sequence[tuple[Program, Fields]]) -> list[str]:
    """Arrays in global memory that these are called with."""
    found: dict[str, str] = {}
    for program, fields in programs:
        for key in (*program.inputs, *program.outputs):
            field = fields[key]
            if field.rows:
                written = key in program.outputs or "const" not in found.get(field.array, "const")
                found[field.array] = f"GLOBAL {'' if written else 'const '}real *{field.array}"
    return list(found.values())


def each(name: str, program: Program, fields: Fields, tables: Sequence[str] = ()) -> str:
    """A kernel `name(n, bodies, tables…, arrays…)` that runs a Program for every i < n; arrays have
    n columns unless their pitch is another, such as `bodies`.
    """
    given = [f"GLOBAL const int *{t}" for t in tables] + _arguments([(program, fields)])
    return f"""{function(f"{name}_body", program, fields)}
KERNEL THREADS({THREADS}) {name}(int n, int bodies, {", ".join(given)}) {{
  for (int i = BID * NTHR + TID; i < n; i += NBLK * NTHR)
    {call(f"{name}_body", program, fields, "bodies")}
}}"""


def scan(name: str, op: Program, width: int, neutral: Sequence[float]) -> str:
    """Inclusive scans of m columns of rows with so many numbers, `pitch` columns apart, in place:
    {name}_sweep, of blocks of LEAVES columns, and {name}_chunks, of `length` columns a thread; both
    leave sums of blocks, which are scanned in turn, and which {name}_add puts in front.

    The sweep is Blelloch's (1990), in shared memory: up to the sum of all, and down from what comes
    before; what comes before the next column is the inclusive scan.
    """
    private = {key: Field(key, width) for key in ("x", "y", "out")}
    other = "\n".join(
        f"      st(s, {c} * {LEAVES + 1} + j, {real_number(float(x))});"
        for c, x in enumerate(neutral)
    )
    first = "\n".join(
        f"      st(s, {c} * {LEAVES + 1} + {LEAVES - 1}, {real_number(float(x))});"
        for c, x in enumerate(neutral)
    )
    start = " ".join(f"x[{c}] = {real_number(float(x))};" for c, x in enumerate(neutral))
    shared = f"c * {LEAVES + 1}"
    return f"""{function(f"{name}_op", op, private)}
KERNEL THREADS({THREADS}) {name}_sweep(int m, int pitch, GLOBAL real *rows, GLOBAL real *sums, int blocks) {{
  ARENA(s, {width * (LEAVES + 1)});
  real x[{width}], y[{width}], out[{width}];
  for (int b = BID; b < blocks; b += NBLK) {{
    for (int j = TID; j < {LEAVES}; j += NTHR) {{
      const int k = b * {LEAVES} + j;
      if (k < m) {{
        for (int c = 0; c < {width}; ++c) st(s, {shared} + j, rows[(size_t)c * pitch + k]);
      }} else {{
{other}
      }}
    }}
    SYNC
    for (int gap = 1; gap < {LEAVES}; gap *= 2) {{
      if (TID < {LEAVES // 2} / gap) {{
        const int j = (2 * TID + 2) * gap - 1;
        for (int c = 0; c < {width}; ++c) {{
          x[c] = ld(s, {shared} + j - gap);
          y[c] = ld(s, {shared} + j);
        }}
        {name}_op(x, y, out, 0, 0);
        for (int c = 0; c < {width}; ++c) st(s, {shared} + j, out[c]);
      }}
      SYNC
    }}
    if (TID == 0) {{
      for (int c = 0; c < {width}; ++c) {{
        const real sum = ld(s, {shared} + {LEAVES - 1});
        st(s, {shared} + {LEAVES}, sum);
        sums[(size_t)c * blocks + b] = sum;
      }}
{first}
    }}
    SYNC
    for (int gap = {LEAVES // 2}; gap > 0; gap /= 2) {{
      if (TID < {LEAVES // 2} / gap) {{
        const int j = (2 * TID + 2) * gap - 1;
        for (int c = 0; c < {width}; ++c) {{
          y[c] = ld(s, {shared} + j - gap);
          x[c] = ld(s, {shared} + j);
          st(s, {shared} + j - gap, x[c]);
        }}
        {name}_op(x, y, out, 0, 0);
        for (int c = 0; c < {width}; ++c) st(s, {shared} + j, out[c]);
      }}
      SYNC
    }}
    for (int j = TID; j < {LEAVES}; j += NTHR) {{
      const int k = b * {LEAVES} + j;
      if (k < m)
        for (int c = 0; c < {width}; ++c) rows[(size_t)c * pitch + k] = ld(s, {shared} + j + 1);
    }}
    SYNC
  }}
}}
KERNEL THREADS({THREADS}) {name}_chunks(int m, int pitch, GLOBAL real *rows, GLOBAL real *sums, int blocks, int length) {{
  real x[{width}], y[{width}], out[{width}];
  for (int b = BID * NTHR + TID; b < blocks; b += NBLK * NTHR) {{
    {start}
    for (int k = b * length; k < m && k < (b + 1) * length; ++k) {{
      for (int c = 0; c < {width}; ++c) y[c] = rows[(size_t)c * pitch + k];
      {name}_op(x, y, out, 0, 0);
      for (int c = 0; c < {width}; ++c) rows[(size_t)c * pitch + k] = x[c] = out[c];
    }}
    for (int c = 0; c < {width}; ++c) sums[(size_t)c * blocks + b] = x[c];
  }}
}}
KERNEL THREADS({THREADS}) {name}_add(int m, int pitch, GLOBAL real *rows, GLOBAL const real *sums, int blocks, int length) {{
  real x[{width}], y[{width}], out[{width}];
  for (int k = length + BID * NTHR + TID; k < m; k += NBLK * NTHR) {{
    const int b = k / length - 1;
    for (int c = 0; c < {width}; ++c) {{
      x[c] = sums[(size_t)c * blocks + b];
      y[c] = rows[(size_t)c * pitch + k];
    }}
    {name}_op(x, y, out, 0, 0);
    for (int c = 0; c < {width}; ++c) rows[(size_t)c * pitch + k] = out[c];
  }}
}}"""


def level_kernels(bear: tuple[Program, Fields], drive: tuple[Program, Fields]) -> str:
    """levels_down and levels_up, levels first … last - 1: a launch for each wide level, with all
    blocks, or one for many narrow ones, with one block. Children leave their shares in `up`.
    """
    down, rise = _arguments([bear]), _arguments([drive])
    return f"""{function("bear", *bear)}
{function("drive", *drive)}
KERNEL THREADS({THREADS}) levels_down(int n, int first, int last, GLOBAL const int *level_start, GLOBAL const int *order, GLOBAL const int *parents, GLOBAL const real *base, GLOBAL real *motion, {", ".join(down)}) {{
  real carried[12], result[12];
  for (int level = first; level < last; ++level) {{
    for (int k = level_start[level] + BID * NTHR + TID; k < level_start[level + 1]; k += NBLK * NTHR) {{
      const int i = order[k], p = parents[i];
      for (int c = 0; c < 12; ++c) carried[c] = p >= 0 ? motion[(size_t)c * n + p] : base[c];
      {call("bear", *bear)}
      for (int c = 0; c < 12; ++c) motion[(size_t)c * n + i] = result[c];
    }}
    SYNC_ALL
  }}
}}
KERNEL THREADS({THREADS}) levels_up(int n, int first, int last, GLOBAL const int *level_start, GLOBAL const int *order, GLOBAL const int *child_start, GLOBAL const int *child, GLOBAL real *up, {", ".join(rise)}) {{
  real force[6], result[6];
  for (int level = last - 1; level >= first; --level) {{
    for (int k = level_start[level] + BID * NTHR + TID; k < level_start[level + 1]; k += NBLK * NTHR) {{
      const int i = order[k];
      for (int c = 0; c < 6; ++c) force[c] = work[(size_t)(12 + c) * n + i];
      for (int j = child_start[i + 1]; j < child_start[i + 2]; ++j)
        for (int c = 0; c < 6; ++c) force[c] += up[(size_t)c * n + child[j]];
      {call("drive", *drive)}
      for (int c = 0; c < 6; ++c) up[(size_t)c * n + i] = result[c];
    }}
    SYNC_ALL
  }}
}}"""


def path_kernels(
    extend: tuple[Program, Fields],
    join: tuple[Program, Fields],
    bear: tuple[Program, Fields],
    pass_on: tuple[Program, Fields],
    shift: tuple[Program, Fields],
    drive: tuple[Program, Fields],
    rest: Sequence[float],
) -> str:
    """Segments of paths, one thread each, and paths, along whose segments one thread goes: paths_…,
    for segments or paths first … last - 1.

    fold: what each segment makes of rest; enter: where each one starts; down: bodies' motions and
    forces; load: what each segment's bodies bear down on what is before it; leave: what each bears
    behind its last body; up: joint forces. The share of a path's first body is left in `up`.
    """
    still = " ".join(f"carried[{c}] = {real_number(float(x))};" for c, x in enumerate(rest))
    collected = """for (int c = 0; c < 6; ++c) force[c] += work[(size_t)(12 + c) * n + i];
      for (int j = child_start[i + 1]; j < child_start[i + 2]; ++j)
        if (child[j] != heavy[i])
          for (int c = 0; c < 6; ++c) force[c] += up[(size_t)c * n + child[j]];"""
    segments = "GLOBAL const int *segment_start, GLOBAL const int *body"
    children = (
        "GLOBAL const int *child_start, GLOBAL const int *child, GLOBAL const int *heavy,"
        " GLOBAL const real *work, GLOBAL real *up"
    )

    def arrays(part: tuple[Program, Fields]) -> str:
        return ", ".join(x for x in _arguments([part]) if not x.endswith("*work"))

    def head(name: str, more: str) -> str:
        return (
            f"KERNEL THREADS({THREADS}) paths_{name}(int n, int m, int first, int last, {more}) {{"
        )

    each_one = "for (int s = first + BID * NTHR + TID; s < last; s += NBLK * NTHR) {"
    return f"""{function("extend", *extend)}
{function("join", *join)}
{function("bear", *bear)}
{function("pass_on", *pass_on)}
{function("shift", *shift)}
{function("drive", *drive)}
{head("fold", f"{segments}, GLOBAL real *stretch, {arrays(extend)}")}
  real carried[24], result[24];
  {each_one}
    {still}
    for (int k = segment_start[s]; k < segment_start[s + 1]; ++k) {{
      const int i = body[k];
      {call("extend", *extend)}
      for (int c = 0; c < 24; ++c) carried[c] = result[c];
    }}
    for (int c = 0; c < 24; ++c) stretch[(size_t)c * m + s] = carried[c];
  }}
}}
{head("enter", "GLOBAL const int *path_start, GLOBAL const int *above, GLOBAL const real *base, GLOBAL const real *motion, GLOBAL const real *stretch, GLOBAL real *begin")}
  real carried[12], along[24], result[12];
  for (int p = first + BID * NTHR + TID; p < last; p += NBLK * NTHR) {{
    for (int c = 0; c < 12; ++c) carried[c] = above[p] >= 0 ? motion[(size_t)c * n + above[p]] : base[c];
    for (int s = path_start[p]; s < path_start[p + 1]; ++s) {{
      for (int c = 0; c < 12; ++c) begin[(size_t)c * m + s] = carried[c];
      if (s + 1 < path_start[p + 1]) {{
        for (int c = 0; c < 24; ++c) along[c] = stretch[(size_t)c * m + s];
        {call("join", *join)}
        for (int c = 0; c < 12; ++c) carried[c] = result[c];
      }}
    }}
  }}
}}
{head("down", f"{segments}, GLOBAL const real *begin, GLOBAL real *motion, GLOBAL real *work, {arrays(bear)}")}
  real carried[12], result[12];
  {each_one}
    for (int c = 0; c < 12; ++c) carried[c] = begin[(size_t)c * m + s];
    for (int k = segment_start[s]; k < segment_start[s + 1]; ++k) {{
      const int i = body[k];
      {call("bear", *bear)}
      for (int c = 0; c < 12; ++c) motion[(size_t)c * n + i] = carried[c] = result[c];
    }}
  }}
}}
{head("load", f"{segments}, {children}, GLOBAL real *load")}
  real force[6], result[6];
  {each_one}
    for (int c = 0; c < 6; ++c) force[c] = 0;
    for (int k = segment_start[s + 1] - 1; k >= segment_start[s]; --k) {{
      const int i = body[k];
      {collected}
      {call("pass_on", *pass_on)}
      for (int c = 0; c < 6; ++c) force[c] = result[c];
    }}
    for (int c = 0; c < 6; ++c) load[(size_t)c * m + s] = force[c];
  }}
}}
{head("leave", "GLOBAL const int *path_start, GLOBAL const real *stretch, GLOBAL const real *load, GLOBAL real *late")}
  real force[6], along[24], result[6];
  for (int p = first + BID * NTHR + TID; p < last; p += NBLK * NTHR) {{
    for (int c = 0; c < 6; ++c) force[c] = 0;
    for (int s = path_start[p + 1] - 1; s >= path_start[p]; --s) {{
      for (int c = 0; c < 6; ++c) late[(size_t)c * m + s] = force[c];
      if (s > path_start[p]) {{
        for (int c = 0; c < 24; ++c) along[c] = stretch[(size_t)c * m + s];
        {call("shift", *shift)}
        for (int c = 0; c < 6; ++c) force[c] = load[(size_t)c * m + s] + result[c];
      }}
    }}
  }}
}}
{head("up", f"{segments}, {children}, GLOBAL const real *late, GLOBAL const int *starts_path, {arrays(drive)}")}
  real force[6], result[6];
  {each_one}
    for (int c = 0; c < 6; ++c) force[c] = late[(size_t)c * m + s];
    for (int k = segment_start[s + 1] - 1; k >= segment_start[s]; --k) {{
      const int i = body[k];
      {collected}
      {call("drive", *drive)}
      for (int c = 0; c < 6; ++c) force[c] = result[c];
    }}
    if (starts_path[s])
      for (int c = 0; c < 6; ++c) up[(size_t)c * n + body[segment_start[s]]] = force[c];
  }}
}}"""
