"""Kernels of `rigidgrad.kernels` on a GPU, one block of threads a state.

Entries of products, rounds of `each` and the parts of a Program that are alike are shared out among
the threads; what is one piece, one thread does. Scratch is in shared memory as far as there is
room. `block_plan` says where barriers stand. The order of roundings is that of the language,
whatever the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rigidgrad.kernels.language import Array, Call, Index, Kernel, Loop, Product, View
from rigidgrad.program.program import Program
from rigidgrad.targets.cstyle_kernel import (
    At,
    Statements,
    Step as Function,
    array,
    indented,
    product_entry,
    product_result,
    sum_of_steps,
)
from rigidgrad.targets.gpu import thread
from rigidgrad.targets.gpu.block_plan import BlockPlan, Choice, Leaf, Ordered, Step, entries, names
from rigidgrad.targets.gpu.spread import Parts
from rigidgrad.targets.gpu.text import real_number
from rigidgrad.targets.gpu.thread_kernel import Gpu

SHARED_NUMBERS = 48 * 1024 // 8  # that fit every GPU, in float64
_INLINE = 400  # instructions of a Program; of a longer one there is one copy
_GPU = Gpu()


class BlockText(Statements):
    """`functions`, the last of which is `{prefix}(s, arguments…, work)`, for all threads of a
    block: `s` is shared memory, with `numbers` of them; `arguments` are arrays in global memory;
    work, of as many numbers as it says, is left out where it is none. Arrays `shared` come first in
    shared memory, in this order. Who calls it has a barrier before and behind.
    """

    def __init__(
        self, kernel: Kernel, prefix: str, shared: Sequence[str] = (), most: int | None = None
    ):
        self.kernel, self.prefix = kernel, prefix
        self.tables, self.functions = {}, []
        self.plan = BlockPlan(kernel, [kernel.arrays[name] for name in shared], most)
        self.numbers, self.work = self.plan.size, self.plan.work
        self.arguments = [
            a
            for a in kernel.arrays.values()
            if a.role in ("input", "output", "carried") and a not in self.plan.offsets
        ]
        self._bases = {a: f"x{k}" for k, a in enumerate(self.arguments)}
        self._bases |= {a: self.constant_name(k) for k, a in enumerate(kernel.of("constant"))}
        self._bases |= dict.fromkeys(self.plan.outside, "work")
        self._known: dict[tuple[object, ...], str] = {}
        body = [*self._zeros(), *self._steps(self.plan.body)]
        declared = ["LOCAL real *s", *(self._declared(a, self._bases[a]) for a in self.arguments)]
        declared += ["GLOBAL real *work"] if self.work else []
        silent = [
            f"(void){name};"
            for name in ["s", *(self._bases[a] for a in self.arguments)]
            if not thread.named(name, body)
        ]
        self.functions.append(
            "\n".join(
                [f"DEVICE void {prefix}({', '.join(declared)}) {{", *indented(silent + body), "}"]
            )
        )

    def text(self) -> str:
        tables = [
            array(f"TABLE int {name}", [str(x) for x in t.numbers])
            for t, name in self.tables.items()
        ]
        constants = [
            array(f"TABLE real {self.constant_name(k)}", [real_number(x) for x in a.values])
            for k, a in enumerate(self.kernel.of("constant"))
        ]
        return "\n".join([*tables, *constants, *self.functions])

    def call(self, given: Mapping[str, str], work: str = "work") -> str:
        """A call by all threads of a block, with these arrays by name."""
        passed = ["s", *(given[a.name] for a in self.arguments), *([work] if self.work else [])]
        return f"{self.prefix}({', '.join(passed)});"

    # --- statements that threads share out --------------------------------------------------------

    def _zeros(self) -> Iterator[str]:
        for a in self.plan.zeroed:
            zero = self._write(a.at(0, a.size), "0", "t", "(real)0")
            yield f"for (int t = TID; t < {a.size}; t += NTHR) {zero}"

    def _steps(self, body: Sequence[Step]) -> Iterator[str]:
        for step in body:
            if barrier := self.plan.barrier("before", step):
                yield barrier
            match step:
                case Leaf(statement=Product() as product):
                    yield from self._shared_product(product, step.outer)
                case Leaf(statement=Call() as call):
                    yield from self._shared_call(call, step)
                case Leaf(statement=Loop() as loop):
                    i, n = loop.variable.name, self._index(loop.count)
                    yield f"for (int {i} = TID; {i} < {n}; {i} += NTHR) {{"
                    yield from indented(self._statements(loop.body))
                    yield "}"
                case Choice(index, bodies):
                    yield from self._switch(index, [self._steps(inner) for inner in bodies])
                case Ordered():
                    yield from self._ordered(step)

    def _ordered(self, step: Ordered) -> Iterator[str]:
        loop = step.loop
        check = [x for x in [self.plan.barrier("at", step)] if x]
        inner = indented(self._steps(step.body))
        if loop.done and loop.count == Index((), 1) and not names(loop.body, loop.variable):
            yield from check
            yield f"if (!({self._ended(loop.done)})) {{"
        else:
            yield self._loop_head(loop)
            if loop.done:
                yield from indented([*check, f"if ({self._ended(loop.done)}) break;"])
        yield from inner
        yield "}"

    def _shared_product(self, p: Product, outer: Loop | None) -> Iterator[str]:
        rows, columns = p.target.shape
        item = "e" if outer else "t"
        if p.symmetric:
            line, place = _over(item, rows + 1)
            first = f"{place} <= {line}"
            i = f"{first} ? {line} : {rows - 1} - {line}"
            j = f"{first} ? {place} : {place} - {line} - 1"
        else:
            i, j = _over(item, columns)
        inner = self._entry(p)
        known = [f"const int {x} = {y};" for x, y in (("i", i), ("j", j)) if thread.named(x, inner)]
        yield from self._items(outer, len(entries(p)[0]), item, [*known, *inner])

    def _entry(self, p: Product) -> list[str]:
        def at(view: View) -> At:
            return lambda i, j: self._read(view, i, j)

        lines = product_entry(p, _GPU, at(p.target), at(p.left), at(p.right), str(p.left.shape[1]))
        result = product_result(p, _GPU, at(p.target))
        if p.symmetric and result != "sum":
            lines.append(f"sum = {result};")
            result = "sum"
        lines.append(self._write(p.target, "i", "j", result))
        return [*lines, self._write(p.target, "j", "i", result)] if p.symmetric else lines

    def _shared_call(self, call: Call, leaf: Leaf) -> Iterator[str]:
        if not leaf.parts:
            yield f"if (TID == 0) {self._call(call)}"
        for parts in leaf.parts:
            item = "c" if leaf.outer else "t"
            yield from self._items(
                leaf.outer, parts.count, item, [self._call_of_parts(call, parts, item)]
            )

    def _items(
        self, outer: Loop | None, count: int, item: str, inner: Sequence[str]
    ) -> Iterator[str]:
        """A loop of this thread's items: `count` of each round."""
        if outer is None:
            total, known = str(count), []
        else:
            total = f"({self._index(outer.count)}) * {count}"
            both = zip((outer.variable.name, item), _over("t", count), strict=True)
            known = [f"const int {x} = {y};" for x, y in both if thread.named(x, inner)]
        yield f"for (int t = TID; t < {total}; t += NTHR) {{"
        yield from indented([*known, *inner])
        yield "}"

    # --- what one thread does ---------------------------------------------------------------------

    def _ended(self, done: View) -> str:
        return f"{self._read(done, '0', '0')} > 0"

    def _product(self, p: Product) -> str:
        rows, columns = p.target.shape
        return "\n".join(
            [
                f"for (int i = 0; i < {rows}; ++i)",
                f"    for (int j = 0; {'j <= i' if p.symmetric else f'j < {columns}'}; ++j) {{",
                *indented(self._entry(p), 2),
                "    }",
            ]
        )

    def _call(self, call: Call) -> str:
        read, write = (
            {
                (name, k): (name, str(p))
                for name, v in views.items()
                for k, p in enumerate(v.places())
            }
            for views in (call.inputs, call.outputs)
        )
        views = [*call.inputs, *call.outputs]
        return self._call_of(call, call.program, read, write, views, None)

    def _call_of_parts(self, call: Call, parts: Parts, item: str) -> str:
        def place(first: int, step: int) -> str:
            moved = sum_of_steps([step], ["c"])
            return moved if first == 0 else str(first) if moved == "0" else f"{first} + {moved}"

        read = {("x", k): (p.name, place(p.first, p.step)) for k, p in enumerate(parts.reads)}
        write = {("y", k): (p.name, place(p.first, p.step)) for k, p in enumerate(parts.writes)}
        used = {name for name, _ in (*read.values(), *write.values())}
        moves = any(p.step for p in (*parts.reads, *parts.writes))
        chosen = [name for name in (*call.inputs, *call.outputs) if name in used]
        return self._call_of(call, parts.program, read, write, chosen, item if moves else None)

    def _call_of(
        self,
        call: Call,
        program: Program,
        read: Mapping[tuple[str, int], tuple[str, str]],
        write: Mapping[tuple[str, int], tuple[str, str]],
        chosen: Sequence[str],
        item: str | None,
    ) -> str:
        """A call of the function that a Program is; where it may write its own inputs, it writes
        when all of them have been read. Numbers are read and written at places of views by name.
        """
        views = {("in", k): v for k, v in call.inputs.items() if k in chosen}
        views |= {("out", k): v for k, v in call.outputs.items() if k in chosen}
        own = {key: f"a{n}" for n, key in enumerate(views)}
        declared = {
            own[key]: self._declared(v.array, own[key], written=key[0] == "out")
            for key, v in views.items()
        } | ({"c": "int c"} if item else {})
        late = len(write) > 1 and not {v.array for v in call.inputs.values()}.isdisjoint(
            v.array for v in call.outputs.values()
        )
        spaces = {own[key]: v.array in self.plan.offsets for key, v in views.items()}

        def number(key: tuple[str, int]) -> str:
            name, place = read[key]
            a = own["in", name]
            return f"ld({a}, {place})" if spaces[a] else f"{a}[{place}]"

        def written(key: tuple[str, int], x: str) -> str:
            name, place = write[key]
            a = own["out", name]
            return f"st({a}, {place}, {x});" if spaces[a] else f"{a}[{place}] = {x};"

        numbers = {key: k for k, key in enumerate(write)}
        signature = (
            (tuple(program.inputs.items()), tuple(program.outputs.items())),
            (program.nodes, program.results, late),
            (tuple(declared.values()), tuple(spaces.values())),
            (tuple(read.items()), tuple(write.items())),
        )
        if signature not in self._known:
            name = self._known[signature] = f"{self.prefix}_step{len(self._known)}"
            function = Function(
                name,
                program,
                declared,
                lambda key, k: number((key, k)),
                lambda key, k, x: (
                    f"late[{numbers[key, k]}] = {x};" if late else written((key, k), x)
                ),
                late=len(write) if late else 0,
                after=[written(key, f"late[{k}]") for key, k in numbers.items()] if late else [],
            )
            how = "DEVICE" if program.instructions <= _INLINE else "PART"
            self.functions.append(thread.render_step(function, how))
        passed = [*(self._pointer(v) for v in views.values()), *([item] if item else [])]
        return f"{self._known[signature]}({', '.join(passed)});"

    # --- places -----------------------------------------------------------------------------------

    def _declared(self, a: Array, name: str, written: bool | None = None) -> str:
        written = a.role in ("output", "carried") if written is None else written
        space = "LOCAL" if a in self.plan.offsets else "FROM" if a.role == "constant" else "GLOBAL"
        return f"{space} {'' if written else 'const '}real *{name}"

    def _start(self, view: View) -> Index:
        a = view.array
        return view.offset + self.plan.offsets.get(a, self.plan.outside.get(a, 0))

    def _pointer(self, view: View) -> str:
        base = "s" if view.array in self.plan.offsets else self._bases[view.array]
        place = self._index(self._start(view))
        return base if place == "0" else f"{base} + {place}"

    def _place(self, view: View, i: str, j: str) -> str:
        start, steps = self._index(self._start(view)), sum_of_steps(view.strides, (i, j))
        return steps if start == "0" else start if steps == "0" else f"{start} + {steps}"

    def _read(self, view: View, i: str, j: str) -> str:
        place = self._place(view, i, j)
        if view.array in self.plan.offsets:
            return f"ld(s, {place})"
        return f"{self._bases[view.array]}[{place}]"

    def _write(self, view: View, i: str, j: str, x: str) -> str:
        place = self._place(view, i, j)
        if view.array in self.plan.offsets:
            return f"st(s, {place}, {x});"
        return f"{self._bases[view.array]}[{place}] = {x};"


def _over(item: str, columns: int) -> tuple[str, str]:
    """Row and column of an item."""
    return (item, "0") if columns == 1 else (f"{item} / {columns}", f"{item} % {columns}")


# --- a kernel of its own --------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockLoops:
    """A kernel with what its launch needs: blocks of `threads`, one a state."""

    name: str
    kernel: Kernel
    threads: int = 64
    most: int = SHARED_NUMBERS

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        return self.kernel.inputs

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        return self.kernel.outputs

    @cached_property
    def text(self) -> BlockText:
        return BlockText(self.kernel, f"{self.name}_loops", most=self.most)

    def shared_bytes(self, dtype: str) -> int:
        return max(self.text.numbers, 1) * (8 if dtype == "float64" else 4)

    @property
    def work(self) -> int:
        """Numbers in global memory that each block needs."""
        return self.text.work


def render(f: BlockLoops, prefix: str, ins: Mapping[str, str], outs: Mapping[str, str]) -> str:
    """The kernel `{prefix}_block_kernel(n, inputs, outputs, work)` and its functions."""
    sizes = {a.name: math.prod(a.shape) for a in f.text.arguments}
    given = dict(ins) | dict(outs)
    rows = {k: f"{given[k]} + (size_t)row * {size}" for k, size in sizes.items()}
    call = f.text.call(rows, f"work + (size_t)BID * {f.work}")
    arguments = [f"GLOBAL const real *{ins[k]}" for k in f.inputs]
    arguments += [f"GLOBAL real *{outs[k]}" for k in f.outputs]
    zeros = [
        f"for (int t = TID; t < {sizes[k]}; t += NTHR) {outs[k]}[(size_t)row * {sizes[k]} + t] = 0;"
        for k in f.outputs
    ]
    body = [
        f"ARENA(s, {max(f.text.numbers, 1)});",
        *([] if f.work else ["(void)work;"]),
        "for (int row = BID; row < n; row += NBLK) {",
        *indented([*zeros, "SYNC_ALL", call, "SYNC_ALL"]),
        "}",
    ]
    entry = (
        f"KERNEL THREADS({f.threads}) {prefix}_block_kernel(int n, {', '.join(arguments)},"
        " GLOBAL real *work) {"
    )
    return "\n".join([f.text.text(), entry, *indented(body), "}"])
