"""Dynamics of trees on a device: kernels of `device_kernels` on arrays that stay there.

Tables and bodies' numbers are copied once for a tree; a state's numbers come and go with each call.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from rigidgrad.errors import InputError, unknown_name
from rigidgrad.runtime import gpu_solver
from rigidgrad.targets.gpu.kernel import prelude
from rigidgrad.targets.gpu.trees import LEAVES, THREADS, entries
from rigidgrad.trees import device_kernels as kernels
from rigidgrad.trees.device_paths import segments_of
from rigidgrad.trees.packed import pattern_of
from rigidgrad.trees.tree import Tree

DEVICES = ("cuda", "opencl")
METHODS = ("levels", "heavy_path", "euler_tour")
VARIANTS = ("simulated", "work_efficient", "blocked")
_WIDE = 4 * THREADS  # bodies of a level from which on it has a launch of its own
_WIDTHS = {"data": 24, "q": 1, "v": 1, "a": 1, "tau": 1, "X": 12, "motion": 12, "work": 18}

_loaded: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def rnea(
    tree: Tree,
    q: np.ndarray,
    v: np.ndarray,
    a: np.ndarray,
    base: np.ndarray,
    external: np.ndarray,
    tau: np.ndarray,
    base_force: np.ndarray,
    device: str,
    method: str | None,
    variant: str = "simulated",
    block: int = LEAVES,
) -> None:
    """As `rnea_levels.rnea`, one state after the other."""
    how = method or ("heavy_path" if tree.plan.method == "heavy_path" else "levels")
    if how not in METHODS:
        raise unknown_name("method of inverse dynamics on a device", how, METHODS)
    _check_scan(variant, block)
    some = ["external"] if len(external) else []
    on = _on(tree, device, tau.dtype, getattr(kernels, how)(bool(some)))
    for b in range(len(tau)):
        on("q").write(q[b])
        on("v").write(v[b])
        on("a").write(a[b])
        for name in some:
            on(name).write(external[b])
        if how == "euler_tour":
            load = _euler_tour(on, some, variant, block, base[b])
        else:
            on("base", 12, 1).write(base[b])
            load = (_levels if how == "levels" else _heavy_path)(on, some)
        tau[b] = on("tau").read()[0]
        base_force[b] = load


def crba(
    tree: Tree, q: np.ndarray, out: np.ndarray, device: str, variant: str, block: int
) -> np.ndarray:
    """As `crba_euler_tour.crba`."""
    _check_scan(variant, block)
    on = _on(tree, device, out.dtype, kernels.mass_matrix())
    pattern, n = pattern_of(tree), tree.bodies
    if pattern.entries >= 2**31:
        raise InputError(
            "kernels count the entries of a mass matrix with 32 bits; leave device= out"
        )
    on("q").write(q)
    _transforms(on, variant, block)
    on.each("to_root", "data", "X", ("composite", 10))
    on.leaffix("inertias", 10, on("composite", 10), on("composite", 10), variant, block)
    on.each("momenta", "data", "X", ("composite", 10), ("force", 7))
    force = on("force", 7)
    # every entry between bodies, by its row and column; where a floating base is one of the two, it
    # is a number of the force
    row = np.repeat(np.arange(pattern.size, dtype=np.int32), np.diff(pattern.start))
    column, start = pattern.columns, pattern.start
    between: Any = slice(None)
    if tree.floating_base:
        between = np.flatnonzero(column >= 6)
        row, column = row[between] - 5, column[between] - 5
        start = np.append(len(row), np.searchsorted(row, np.arange(1, n)))
    count = len(row)
    values = on("values", 1, count + 1)
    tables = on.table("row", row), on.table("column", column)
    on.launch("entries", count, count, n, *tables, on("X"), on("data"), force, values)
    on.launch("diagonal", n, n, n, on.table("start", start[:n]), force, values)
    out[between] = values.read()[0, :count]
    if tree.floating_base:
        ends, f = pattern.start[7:] - 6, force.read()[:, 1:]
        for k, c in enumerate((2, 1, 0, 5, 4, 3)):
            out[ends + k] = f[c]
    whole: np.ndarray = on("composite", 10).read()[:, 0].copy()
    return whole


def _check_scan(variant: str, block: int) -> None:
    if variant not in VARIANTS:
        raise unknown_name("variant on a device", variant, VARIANTS)
    if block < 2:
        raise InputError(f"a block on a device has at least two rows, not {block}")


# --- the three ways


def _transforms(on: OnDevice, variant: str, block: int) -> None:
    on.each("across_joints", "data", "q", ("up", 12))
    on.rootfix("transforms", 12, on("up", 12), on("X"), variant, block)


def _euler_tour(
    on: OnDevice, some: list[str], variant: str, block: int, base: np.ndarray
) -> np.ndarray:
    own, total = on("own"), on("total")
    _transforms(on, variant, block)
    on.each("joint_velocities", "data", "v", "X", "own")
    on.rootfix("sums", 6, own, total, variant, block)
    on("base", 6, 1).write(base[:6])
    on.each("to_body_vel", "X", "total", ("base", 6, 1), "vel")
    on.each("joint_accelerations", "data", "v", "a", "vel", "X", "own")
    on.rootfix("sums", 6, own, total, variant, block)
    on("base", 6, 1).write(base[6:])
    on.each("to_body_acc", "X", "total", ("base", 6, 1), "acc")
    on.each("forces_in_root", "data", "X", "vel", "acc", *some, "own")
    on.leaffix("sums", 6, own, total, variant, block)
    on.each("torques", "data", "X", "total", "tau")
    return _of_root(on, total)


def _of_root(on: OnDevice, forces: gpu_solver.Numbers) -> np.ndarray:
    """What the first root bears down on its base."""
    found: np.ndarray = forces.read()[:, on.tree.topology.order[0]]
    return found


def _levels(on: OnDevice, some: list[str]) -> np.ndarray:
    t = on.tree.topology
    widths = np.diff(t.level_start)
    where = on.table("level_start", t.level_start), on.table("order", t.order)
    down = on.table("parents", t.parents), on("base", 12, 1), on("motion")
    arrays = [on(x) for x in ("data", "q", "v", "a", *some, "work")]
    for first, last in _runs(widths):
        items = int(widths[first]) if last == first + 1 else 1
        on.launch("levels_down", items, on.n, first, last, *where, *down, *arrays)
    rise = on.table("child_start", t.child_start), on.table("child", t.child), on("up")
    arrays = [on(x) for x in ("data", "work", "tau")]
    for first, last in reversed(list(_runs(widths))):
        items = int(widths[first]) if last == first + 1 else 1
        on.launch("levels_up", items, on.n, first, last, *where, *rise, *arrays)
    return _of_root(on, on("up"))


def _runs(widths: np.ndarray) -> Iterator[tuple[int, int]]:
    """Levels of a launch: a wide one, or all narrow ones that follow each other."""
    first = 0
    for k in np.flatnonzero(widths >= _WIDE).tolist():
        if first < k:
            yield first, k
        yield k, k + 1
        first = k + 1
    if first < len(widths):
        yield first, len(widths)


def _heavy_path(on: OnDevice, some: list[str]) -> np.ndarray:
    t = on.tree.topology
    p = on.tree.plan.kept(("segments",), lambda: segments_of(on.tree))
    m = len(p.segment_start) - 1
    segments = on.table("segment_start", p.segment_start), on.table("body", p.body)
    paths = on.table("path_start", p.path_start)
    stretch, begin = on("stretch", 24, m), on("begin", 12, m)
    load, late = on("load", 6, m), on("late", 6, m)
    motion, work, up, base = on("motion"), on("work"), on("up"), on("base", 12, 1)
    data, q, v, a, tau = (on(x) for x in ("data", "q", "v", "a", "tau"))
    wrench = [on(x) for x in some]
    children = (
        on.table("child_start", t.child_start),
        on.table("child", t.child),
        on.table("heavy", t.heavy_child),
        work,
        up,
    )
    above, starts = on.table("above", p.above), on.table("starts_path", p.starts_path)

    def launch(name: str, first: int, last: int, *arguments: Any) -> None:
        if last > first:
            on.launch(f"paths_{name}", last - first, on.n, m, first, last, *arguments)

    for d in p.depths:
        launch("fold", d.first, d.cut, *segments, stretch, data, q, v, a)
        launch("enter", d.path, d.path_end, paths, above, base, motion, stretch, begin)
        launch("down", d.first, d.last, *segments, begin, motion, work, data, q, v, a, *wrench)
    for d in reversed(p.depths):
        launch("load", d.first, d.cut, *segments, *children, load)
        launch("leave", d.path, d.path_end, paths, stretch, load, late)
        launch("up", d.first, d.last, *segments, *children, late, starts, data, tau)
    return _of_root(on, up)


# --- arrays, tables and launches


class OnDevice:
    """A tree's arrays on a device, by name, and kernels that run on them."""

    def __init__(self, tree: Tree, session: gpu_solver.Session, arrays: dict[Any, Any]) -> None:
        self.tree, self.session, self.arrays, self.n = tree, session, arrays, tree.bodies
        if ("data", 24, self.n) not in arrays:
            self("data").write(np.ascontiguousarray(tree.data.T))

    def __call__(
        self, name: str, width: int | None = None, columns: int | None = None
    ) -> gpu_solver.Numbers:
        """Numbers (width, columns), a column for each body unless said; the one array of this name
        and shape.
        """
        shape = _WIDTHS.get(name, 6) if width is None else width, columns or self.n
        found: gpu_solver.Numbers | None = self.arrays.get((name, *shape))
        if found is None:
            found = self.arrays[name, *shape] = self.session.array(*shape)
        return found

    def table(self, name: str, values: np.ndarray) -> gpu_solver.Numbers:
        found: gpu_solver.Numbers | None = self.arrays.get(name)
        if found is None:
            found = self.arrays[name] = self.session.table(values)
        return found

    def launch(self, entry: str, items: int, *arguments: Any) -> None:
        """A thread for each item, as far as there may be so many."""
        self.session.launch(entry, -(-items // THREADS), *arguments)

    def each(self, entry: str, *names: str | tuple[Any, ...]) -> None:
        """A kernel over bodies, on arrays of these names."""
        arrays = [self(*x) if isinstance(x, tuple) else self(x) for x in names]
        self.launch(entry, self.n, self.n, self.n, *arrays)

    def rootfix(self, name: str, width: int, rows: Any, out: Any, variant: str, block: int) -> None:
        lp, rp, steps = self._steps(name, width)
        self.launch(f"{name}_down", self.n, self.n, self.n, lp, rp, rows, steps)
        self._scan(name, width, steps, 2 * self.n + 1, variant, block)
        self.launch(f"{name}_take", self.n, self.n, self.n, lp, steps, out)

    def leaffix(self, name: str, width: int, rows: Any, out: Any, variant: str, block: int) -> None:
        lp, rp, steps = self._steps(name, width)
        self.launch(f"{name}_up", self.n, self.n, self.n, lp, rp, rows, steps)
        self._scan(name, width, steps, 2 * self.n + 1, variant, block)
        self.launch(f"{name}_differ", self.n, self.n, self.n, lp, rp, steps, out)

    def _steps(self, name: str, width: int) -> tuple[Any, Any, gpu_solver.Numbers]:
        """Where bodies are entered and left, and the tour's steps; the column before the first is
        neutral, and stays it.
        """
        lp, rp = self.tree.topology.tour
        key = name, width, 2 * self.n + 1
        if key not in self.arrays:
            rows = np.zeros(key[1:])
            if name == "transforms":
                rows[:, 0] = kernels.IDENTITY
            self(*key).write(rows)
        return self.table("lp", lp), self.table("rp", rp), self(*key)

    def _scan(
        self, name: str, width: int, rows: Any, columns: int, variant: str, block: int
    ) -> None:
        length = block if variant == "blocked" else LEAVES
        blocks = -(-columns // length)
        sums = self(f"{name} sums", width, blocks)
        arguments = columns, columns, rows, sums, blocks
        if variant == "blocked":
            self.launch(f"{name}_chunks", blocks, *arguments, length)
        else:
            self.session.launch(f"{name}_sweep", blocks, *arguments)
        if blocks > 1:
            self._scan(name, width, sums, blocks, variant, block)
            self.launch(f"{name}_add", columns - length, *arguments, length)


def _on(tree: Tree, device: str, dtype: np.dtype, source: str) -> OnDevice:
    if device not in DEVICES:
        raise unknown_name("device of trees", device, DEVICES)
    known = _loaded.setdefault(gpu_solver.device_of(device), {})
    session = known.get((dtype.name, source))
    if session is None:
        session = gpu_solver.open_session(device, dtype.name)
        text = f"{prelude(session.language, dtype.name)}\n{source}\n"
        session.load(text, entries(source, dtype.itemsize))
        known[dtype.name, source] = session
    trees = known.setdefault("trees", weakref.WeakKeyDictionary())
    arrays = trees.setdefault(tree.plan, {}).setdefault(dtype.name, {})
    return OnDevice(tree, session, arrays)
