"""Products of matrices over lanes, as LLVM IR: tiles of a few rows and columns, whose sums stay in registers while the terms are added up.

A function does all tiles of one size. Where its matrices begin, how many terms their products have and how many tiles there are, are its arguments: products of equal shape share it, so that code is small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rigidgrad.targets.llvm import Lanes

Strides = tuple[int, int]


@dataclass(frozen=True)
class Group:
    """`count` tiles of `size` rows or columns, from `start` on."""

    start: int
    size: int
    count: int


def tiles(n: int, size: int) -> list[Group]:
    """n rows or columns in tiles of `size`; the rest in tiles that are smaller, but not of a single one where two can be about equal."""
    full, rest = divmod(n, size)
    if rest == 1 and full and size > 2:
        full -= 1
        rest += size
    groups = [Group(0, size, full)] if full else []
    if rest > size:
        groups += [Group(n - rest, -(-rest // 2), 1), Group(n - rest // 2, rest // 2, 1)]
    elif rest:
        groups.append(Group(n - rest, rest, 1))
    return groups


@dataclass(frozen=True)
class Tiles:
    """What a function is compiled for: strides of the three matrices in numbers, the factor, and the size of a tile.

    Of a `symmetric` target each tile is written a second time, transposed; of a `triangle` only tiles on and below the diagonal are computed.
    """

    target: Strides
    left: Strides
    right: Strides
    factor: float
    accumulate: bool
    symmetric: bool
    rows: int
    columns: int
    triangle: bool

    @property
    def unit(self) -> bool:
        return abs(self.factor) == 1.0


def tile_size(registers: int) -> tuple[int, int]:
    """Rows and columns of a tile: its sums, the numbers of one column of the left matrix, and one of the right fit into the registers."""
    return (4, 6) if registers >= 32 else (3, 4)


def function(b: Lanes, t: Tiles) -> str:
    """`name(target, left, right[, mirrored], terms, down, across)`: pointers to first numbers, then how many terms, rows of tiles and columns of tiles there are."""
    b.label("entry")
    steps = ((t.target[0] * t.rows, t.target[1] * t.columns), (t.left[0] * t.rows, 0), (0, t.right[1] * t.columns))
    b.do("br label %row")
    b.label("row")
    b.do("%i = phi i64 [ 0, %entry ], [ %i_next, %row_end ]")
    at_row = [_moved(b, pointer, "%i", step[0]) for pointer, step in zip(("%target", "%left", "%right"), steps, strict=True)]
    other = _moved(b, "%mirrored", "%i", t.target[1] * t.rows) if t.symmetric else ""
    b.do(f"%width = add i64 {'%i' if t.triangle else '%across'}, {int(t.triangle)}")
    b.do("br label %column")
    b.label("column")
    b.do("%j = phi i64 [ 0, %row ], [ %j_next, %column_end ]")
    target, left, right = (_moved(b, pointer, "%j", step[1]) for pointer, step in zip(at_row, steps, strict=True))
    mirrored = _moved(b, other, "%j", t.target[0] * t.columns) if t.symmetric else ""
    _tile(b, t, target, left, right, mirrored)
    for name, count, done in (("column", "%width", "row_end"), ("row", "%down", "done")):
        variable = "%j" if name == "column" else "%i"
        b.do(f"br label %{name}_end") if name == "column" else None
        b.label(f"{name}_end")
        b.do(f"{variable}_next = add i64 {variable}, 1")
        more = b.emit(f"icmp slt i64 {variable}_next, {count}")
        b.do(f"br i1 {more}, label %{name}, label %{done}")
    b.label("done")
    pointers = ["target", "left", "right", *(["mirrored"] if t.symmetric else [])]
    arguments = [*(f"ptr %{x}" for x in pointers), *(f"i64 %{x}" for x in ("terms", "down", "across"))]
    body = "\n".join(b.lines)
    return f"define internal void @{b.name}({', '.join(arguments)}) nounwind noinline {{\n{body}\n  ret void\n}}\n"


def _moved(b: Lanes, base: str, tile: str, step: int) -> str:
    return base if step == 0 else _at(b, base, b.emit(f"mul i64 {tile}, {step}"))


def _at(b: Lanes, base: str, place: int | str) -> str:
    return base if place == 0 else b.emit(f"getelementptr {b.vector}, ptr {base}, i64 {place}")


def _tile(b: Lanes, t: Tiles, target: str, left: str, right: str, mirrored: str) -> None:
    own = [(r, c) for r in range(t.rows) for c in range(t.columns)]
    align = b.bytes * b.width

    def place(r: int, c: int) -> str:
        return _at(b, target, r * t.target[0] + c * t.target[1])

    def load(address: str) -> str:
        return b.emit(f"load {b.vector}, ptr {address}, align {align}")

    def term(sums: Sequence[str] | None, left: str, right: str) -> list[str]:
        a = [load(_at(b, left, r * t.left[0])) for r in range(t.rows)]
        if t.unit and t.factor < 0:
            a = [b.negate(x) for x in a]
        found = {}
        for c in range(t.columns):
            y = load(_at(b, right, c * t.right[1]))
            for r in range(t.rows):
                found[r, c] = b.binary("fmul", a[r], y) if sums is None else b.fma(a[r], y, sums[r * t.columns + c])
        return [found[x] for x in own]

    if t.accumulate and t.unit:
        first, sums = 0, [load(place(r, c)) for r, c in own]
    else:
        first, sums = 1, term(None, left, right)
    sums = _further_terms(b, t, first, sums, left, right, term)
    if not t.unit:
        factor = b.constant(t.factor)
        sums = [
            b.fma(factor, x, load(place(r, c))) if t.accumulate else b.binary("fmul", factor, x)
            for (r, c), x in zip(own, sums, strict=True)
        ]
    value = dict(zip(own, sums, strict=True))
    # of a tile on the diagonal, what is below it is written last and stays
    for r, c in sorted(own, key=lambda rc: rc[0] >= rc[1]) if mirrored else own:
        places = [place(r, c), *([_at(b, mirrored, r * t.target[1] + c * t.target[0])] if mirrored else [])]
        for address in places:
            b.do(f"store {b.vector} {value[r, c]}, ptr {address}, align {align}")


def _further_terms(
    b: Lanes, t: Tiles, first: int, sums: list[str], left: str, right: str, term: Callable[[Sequence[str], str, str], list[str]]
) -> list[str]:
    """The sums after the terms from `first` on, of which there may be none."""
    b.do("br label %sum_entry")
    b.label("sum_entry")
    some = b.emit(f"icmp sgt i64 %terms, {first}")
    b.do(f"br i1 {some}, label %sum, label %column_sums")
    b.label("sum")
    k = b.emit(f"phi i64 [ {first}, %sum_entry ], [ %k_next, %sum ]")
    running = [b.emit(f"phi {b.vector} [ {x}, %sum_entry ], [ %sum{n}, %sum ]") for n, x in enumerate(sums)]
    found = term(running, _moved(b, left, k, t.left[1]), _moved(b, right, k, t.right[0]))
    for n, x in enumerate(found):
        b.do(f"%sum{n} = bitcast {b.vector} {x} to {b.vector}")
    b.do(f"%k_next = add i64 {k}, 1")
    more = b.emit("icmp slt i64 %k_next, %terms")
    b.do(f"br i1 {more}, label %sum, label %column_sums")
    b.label("column_sums")
    return [b.emit(f"phi {b.vector} [ {x}, %sum_entry ], [ %sum{n}, %sum ]") for n, x in enumerate(sums)]
