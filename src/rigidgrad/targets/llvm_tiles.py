"""Products of matrices over lanes, as LLVM IR: tiles of a few rows and columns, whose sums stay in
registers while the terms are added up.

A function does all tiles of one size. Where its matrices begin, how many terms their products have
and how many tiles there are, are its arguments: products of equal shape share it, so that code is
small.
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
    """n rows or columns in tiles of `size`; the rest in tiles that are smaller, but not of a single
    one where two can be about equal.
    """
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
class Factors:
    """Strides of a left and a right matrix in numbers, and the factor before their product."""

    left: Strides
    right: Strides
    factor: float

    @property
    def unit(self) -> bool:
        return abs(self.factor) == 1.0


@dataclass(frozen=True)
class Tiles:
    """What a function is compiled for: strides of the target in numbers, the products that are
    added up there, of which several have factors of 1 or -1, and the size of a tile.

    Of a `symmetric` target each tile is written a second time, transposed; of a `triangle` only
    tiles on and below the diagonal are computed.
    """

    target: Strides
    products: tuple[Factors, ...]
    accumulate: bool
    symmetric: bool
    rows: int
    columns: int
    triangle: bool


def tile_size(registers: int) -> tuple[int, int]:
    """Rows and columns of a tile: its sums, the numbers of one column of the left matrix, and one
    of the right fit into the registers.
    """
    return (4, 6) if registers >= 32 else (3, 4)


def best_tile(rows: int, columns: int, terms: int, registers: int) -> tuple[int, int]:
    """The tile, of those that fit into the registers, with which a product takes the least time:
    sums in pairs, after four if they depend on each other, loads in pairs, and a store of each.
    """

    def time(size: tuple[int, int]) -> float:
        total = 0.0
        for down in tiles(rows, size[0]):
            for across in tiles(columns, size[1]):
                r, c = down.size, across.size
                total += (
                    down.count
                    * across.count
                    * (max(r * c / 2, (r + c) / 2, 4.0) * terms + 1.5 * r * c + 10)
                )
        return total

    return min(
        ((r, c) for c in range(1, 9) for r in range(1, 13) if r * c + r + 1 <= registers), key=time
    )


def function(b: Lanes, t: Tiles) -> str:
    """`name(target[, mirrored], down, across, left0, right0, terms0, …)`: pointers to first
    numbers, how many rows of tiles and columns of tiles there are, and how many terms each product
    has.
    """
    b.label("entry")
    down, across = (
        (t.target[0] * t.rows, t.target[1] * t.columns),
        (t.target[1] * t.rows, t.target[0] * t.columns),
    )
    b.do("br label %row")
    b.label("row")
    b.do("%i = phi i64 [ 0, %entry ], [ %i_next, %row_end ]")
    row_targets = [
        _moved(b, "%target", "%i", down[0]),
        *([_moved(b, "%mirrored", "%i", across[0])] if t.symmetric else []),
    ]
    lefts = [_moved(b, f"%left{k}", "%i", p.left[0] * t.rows) for k, p in enumerate(t.products)]
    b.do(f"%width = add i64 {'%i' if t.triangle else '%across'}, {int(t.triangle)}")
    b.do("br label %column")
    b.label("column")
    b.do("%j = phi i64 [ 0, %row ], [ %j_next, %column_end ]")
    targets = [
        _moved(b, pointer, "%j", step)
        for pointer, step in zip(row_targets, (down[1], across[1]), strict=False)
    ]
    rights = [
        _moved(b, f"%right{k}", "%j", p.right[1] * t.columns) for k, p in enumerate(t.products)
    ]
    _tile(b, t, targets, lefts, rights)
    for name, count, done in (("column", "%width", "row_end"), ("row", "%down", "done")):
        variable = "%j" if name == "column" else "%i"
        b.do(f"br label %{name}_end") if name == "column" else None
        b.label(f"{name}_end")
        b.do(f"{variable}_next = add i64 {variable}, 1")
        more = b.emit(f"icmp slt i64 {variable}_next, {count}")
        b.do(f"br i1 {more}, label %{name}, label %{done}")
    b.label("done")
    arguments = [
        "ptr %target",
        *(["ptr %mirrored"] if t.symmetric else []),
        "i64 %down",
        "i64 %across",
    ]
    for k in range(len(t.products)):
        arguments += [f"ptr %left{k}", f"ptr %right{k}", f"i64 %terms{k}"]
    body = "\n".join(b.lines)
    return (
        f"define internal void @{b.name}({', '.join(arguments)}) nounwind noinline {{\n{body}\n "
        " ret void\n}\n"
    )


def _moved(b: Lanes, base: str, tile: str, step: int) -> str:
    return base if step == 0 else _at(b, base, b.emit(f"mul i64 {tile}, {step}"))


def _at(b: Lanes, base: str, place: int | str) -> str:
    return base if place == 0 else b.emit(f"getelementptr {b.vector}, ptr {base}, i64 {place}")


def _tile(
    b: Lanes, t: Tiles, targets: Sequence[str], lefts: Sequence[str], rights: Sequence[str]
) -> None:
    own = [(r, c) for r in range(t.rows) for c in range(t.columns)]
    align = b.bytes * b.width
    target, factor = targets[0], t.products[0]

    def place(r: int, c: int) -> str:
        return _at(b, target, r * t.target[0] + c * t.target[1])

    def load(address: str) -> str:
        return b.emit(f"load {b.vector}, ptr {address}, align {align}")

    def term(p: Factors, sums: Sequence[str] | None, left: str, right: str) -> list[str]:
        a = [load(_at(b, left, r * p.left[0])) for r in range(t.rows)]
        if p.unit and p.factor < 0:
            a = [b.negate(x) for x in a]
        found = {}
        for c in range(t.columns):
            y = load(_at(b, right, c * p.right[1]))
            for r in range(t.rows):
                found[r, c] = (
                    b.binary("fmul", a[r], y)
                    if sums is None
                    else b.fma(a[r], y, sums[r * t.columns + c])
                )
        return [found[x] for x in own]

    if t.accumulate and factor.unit:
        first, sums = 0, [load(place(r, c)) for r, c in own]
    else:
        first, sums = 1, term(factor, None, lefts[0], rights[0])
    for k, p in enumerate(t.products):
        sums = _further_terms(b, k, p, first if k == 0 else 0, sums, lefts[k], rights[k], term)
    if not factor.unit:
        times = b.constant(factor.factor)
        sums = [
            b.fma(times, x, load(place(r, c))) if t.accumulate else b.binary("fmul", times, x)
            for (r, c), x in zip(own, sums, strict=True)
        ]
    value = dict(zip(own, sums, strict=True))
    # of a tile on the diagonal, what is below it is written last and stays
    for r, c in sorted(own, key=lambda rc: rc[0] >= rc[1]) if t.symmetric else own:
        places = [
            place(r, c),
            *(_at(b, mirrored, r * t.target[1] + c * t.target[0]) for mirrored in targets[1:]),
        ]
        for address in places:
            b.do(f"store {b.vector} {value[r, c]}, ptr {address}, align {align}")


def _further_terms(
    b: Lanes,
    product: int,
    p: Factors,
    first: int,
    sums: list[str],
    left: str,
    right: str,
    term: Callable[..., list[str]],
) -> list[str]:
    """The sums after the terms of a product from `first` on, of which there may be none."""
    name = f"sum{product}"
    b.do(f"br label %{name}_entry")
    b.label(f"{name}_entry")
    some = b.emit(f"icmp sgt i64 %terms{product}, {first}")
    b.do(f"br i1 {some}, label %{name}, label %{name}_end")
    b.label(name)
    k = b.emit(f"phi i64 [ {first}, %{name}_entry ], [ %{name}_next, %{name} ]")
    running = [
        b.emit(f"phi {b.vector} [ {x}, %{name}_entry ], [ %{name}_{n}, %{name} ]")
        for n, x in enumerate(sums)
    ]
    found = term(p, running, _moved(b, left, k, p.left[1]), _moved(b, right, k, p.right[0]))
    for n, x in enumerate(found):
        b.do(f"%{name}_{n} = bitcast {b.vector} {x} to {b.vector}")
    b.do(f"%{name}_next = add i64 {k}, 1")
    more = b.emit(f"icmp slt i64 %{name}_next, %terms{product}")
    b.do(f"br i1 {more}, label %{name}, label %{name}_end")
    b.label(f"{name}_end")
    return [
        b.emit(f"phi {b.vector} [ {x}, %{name}_entry ], [ %{name}_{n}, %{name} ]")
        for n, x in enumerate(sums)
    ]
