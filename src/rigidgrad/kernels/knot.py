"""The derivatives of one knot of a motion with contacts, as a kernel: small Programs, and between
them the products that would make one Program too long for the caches of instructions.

`head` gives the parts of the gradient of dynamics (`contact_dynamics.GradientParts`) and of the
terms what is no product, `tail` makes of ∂a what the backward pass reads. With P = ∂a/∂τ and F =
∂f/∂τ (`contact_gradient`),

    ∂a = a - P r + Fᵀ b,        ∂f = f - F r - X b,

of position and velocity side by side. Terms of the contact forces φ(x, f) are given by the gradient
g and the matrices C = ∂²φ/∂f² and E = ∂²φ/∂f∂x of a knot; with the rows G = ∂f/∂(x, u) they add

    l += Gᵀ g,        L += Gᵀ (C G + E) + Eᵀ G.

Where a and f are unknowns themselves, the equations of motion lack e and those of the contacts c,
and a step that solves them begins with (`offset`)

    a₀ = -P e + Fᵀ c,        f₀ = -F e - X c,        g + C f₀ in the place of g.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rigidgrad.kernels.blocks import Matrix, inverse
from rigidgrad.kernels.contact_gradient import by_torque
from rigidgrad.kernels.language import Array, Kernel, View
from rigidgrad.program.program import Program, Shape
from rigidgrad.program.recorder import record

_LONGEST = 8  # rows that are taken together
# parts by position, and by velocity, which stand beside them
_SIDES = {"a_q": "a_v", "r_q": "r_v", "b_q": "b_v", "f_q": "f_v"}


@dataclass(frozen=True)
class Place:
    """Columns of states and controls in rows of F, l and L: q, v and u begin at `starts`; a row has
    `columns`.
    """

    starts: tuple[int, int, int]
    sizes: tuple[int, int, int]
    columns: int

    def range(self, k: int) -> range:
        return range(self.starts[k], self.starts[k] + self.sizes[k])


class Knot:
    """A kernel being made of a `head`, whose outputs are GradientParts, "v" (what the tail wants to
    know), "L00" … of the lower blocks of L in (q, v, u), "l", and, of forces, "force_g", "force_C",
    "force_E".
    """

    def __init__(self, head: Program, tail: Program, outputs: Mapping[str, Shape], place: Place):
        self.head, self.tail, self.place = head, tail, place
        self.filled = {
            name: np.reshape(marks, head.outputs[name]) for name, marks in head.pattern().items()
        }
        self.k = Kernel()
        self.inputs = {
            name: _row(self.k.input(name, *shape)) for name, shape in head.inputs.items()
        }
        self.out = {name: self.k.output(name, *shape) for name, shape in outputs.items()}
        self.n, self.m, self.rows = (
            head.outputs["W"][0],
            place.sizes[2],
            head.outputs.get("B", (0,))[0],
        )

    def kernel(self) -> Kernel:
        views = self._parts()
        self._begin_cost()
        self.k.call(
            self.head,
            self.inputs,
            {name: views.get(name) or self._own(name) for name in self.head.outputs},
        )
        n, rows, r, b = self.n, self.rows, self.wide["r"], self.wide["b"]
        P, F = (
            self.k.scratch(f"{name} of the gradient", size, n).matrix(size, n)
            for name, size in (("P", n), ("F", rows))
        )
        a, f = self._target("a"), self._target("f")
        made = {"da": a.whole, "P": P, "v": self._own("v"), "F": F}
        if not rows:  # P = M⁻¹
            whole = Matrix.within(P)
            above = tuple(
                tuple(np.flatnonzero(line[:i])[::-1].tolist())
                for i, line in enumerate(self.filled["W"])
            )
            inverse(self.k, above, views["W"], views["scaled_W"], whole)
            self._fill(whole)
        else:
            by_torque(self.k, self.filled, views, P, F)
            self._add(a, F.T, "b", b, 1.0)
            self._add(f, F, "r", r, -1.0)
            self._add(f, views["X"], "b", b, -1.0)
            self._fill(f)
        self._add(a, P, "r", r, -1.0)
        self._fill(a)
        given = {
            name: self.inputs[name] if name in self.inputs else made[name]
            for name in self.tail.inputs
        }
        G_u = self.G.part(range(self.rows), range(2 * self.n, 2 * self.n + self.m))
        results = {
            name: G_u if name == "G_u" else _row(self.out[name]) for name in self.tail.outputs
        }
        self.k.call(self.tail, given, results)
        if "e" in self.head.outputs:
            self._offset(P, F, views)
        if self.touched:
            self._forces()
        return self.k

    @property
    def touched(self) -> bool:
        """Whether there are terms of forces."""
        return "force_g" in self.head.outputs

    # --- where things are -------------------------------------------------------------------------

    def _parts(self) -> dict[str, View]:
        """Parts of the gradient: those by position and velocity side by side, a and f where their
        sums will be.
        """
        n, k = self.n, self.k
        G = self.out["G"] if "G" in self.out else k.scratch("G", self.rows, 2 * n + self.m)
        self.G = G.matrix(self.rows, 2 * n + self.m)
        self.wide = {
            name: k.scratch(f"d{name}", rows, 2 * n).matrix(rows, 2 * n)
            for name, rows in (("a", n), ("r", n), ("b", self.rows))
        }
        self.wide["f"] = self.G.part(range(self.rows), range(2 * n))
        found = {}
        for name, (rows, columns) in (
            (x, s)
            for x, s in self.head.outputs.items()
            if len(s) == 2 and not x.startswith(("L", "force"))
        ):
            beside = next((left for left, right in _SIDES.items() if name in (left, right)), None)
            if beside is None:
                found[name] = k.scratch(f"{name} of the gradient", rows, columns).matrix(
                    rows, columns
                )
            else:
                start = 0 if name == beside else n
                found[name] = self.wide[name[0]].part(range(rows), range(start, start + n))
        return found

    def _own(self, name: str) -> View:
        """Where another output of the head goes."""
        shape = self.head.outputs[name]
        if name == "l":
            return _row(self.out["l"])
        if name.startswith("L"):
            i, j = int(name[1]), int(name[2])
            block = self._block(i, j)
            # of a diagonal, only that
            return (
                View(block.array, block.offset, (1, *shape), (0, sum(block.strides)))
                if len(shape) == 1
                else block
            )
        if name not in self.k.arrays:
            self.k.scratch(name, *shape)
        return _row(self.k.arrays[name]) if len(shape) < 2 else self.k.arrays[name].matrix(*shape)

    def _block(self, i: int, j: int) -> View:
        """A block of L by two of q, v and u."""
        first = sum(self.place.sizes[:i])
        L = self.out["L"].matrix(sum(self.place.sizes), self.place.columns)
        return L.part(range(first, first + self.place.sizes[i]), self.place.range(j))

    def _target(self, name: str) -> Matrix:
        """What is added to; of it, what the head has written."""
        target = Matrix.within(self.wide[name])
        for of, start in (("q", 0), ("v", self.n)):
            if (part := f"{name}_{of}") in self.head.outputs:
                target.written[: self.head.outputs[part][0], start : start + self.n] = True
        return target

    # --- products ---------------------------------------------------------------------------------

    def _add(self, target: Matrix, left: View, name: str, right: View, factor: float) -> None:
        """target += factor · left · right, of which only filled columns are taken."""
        filled = np.zeros(right.shape, dtype=bool)
        for of, start in (("q", 0), ("v", self.n)):
            if (part := f"{name}_{of}") in self.filled:
                filled[:, start : start + self.n] = self.filled[part]
        for rows, columns in _alike(filled):
            for over, across, there in target.blocks(range(target.whole.shape[0]), columns):
                self.k.product(
                    target.whole.part(over, across),
                    left.part(over, rows),
                    right.part(rows, across),
                    factor,
                    accumulate=there,
                )

    def _fill(self, target: Matrix) -> None:
        """Zeros where nothing was added."""
        for over, across, there in target.blocks(
            range(target.whole.shape[0]), range(target.whole.shape[1])
        ):
            if not there:
                self.k.call(
                    _zeros(len(over) * len(across)), {}, {"y": target.whole.part(over, across)}
                )

    def _begin_cost(self) -> None:
        """L is added to from many sides, and begins with zeros."""
        L, columns = self.out["L"], self.place.columns
        if self.touched:
            with self.k.each(L.shape[0]) as i:
                self.k.call(_zeros(columns), {}, {"y": L.at(columns * i, columns)})

    def _offset(self, P: View, F: View, views: Mapping[str, View]) -> None:
        """Where a step begins that solves the equations: a₀, f₀, and for terms of forces g and C
        f₀, which is added to g.
        """
        k, n, r, out = self.k, self.n, self.rows, self.out["offset"]
        e, a, f = self._own("e"), out.at(0, n), out.at(n, r)
        k.product(a, e, P, -1.0)
        if not r:
            return
        c = self._own("c")
        k.product(a, c, F, accumulate=True)
        k.product(f, e, F.T, -1.0)
        k.product(f, c, views["X"], -1.0, accumulate=True)
        if self.touched:
            g, bent = self._own("force_g"), out.at(n + 2 * r, r)
            k.product(bent, f, self._own("force_C"))
            k.call(_added(r, copied=True), {"x": g, "y": bent}, {"sum": g, "x": out.at(n + r, r)})

    def _forces(self) -> None:
        """What terms of forces add to l and L."""
        k, n, m, r = self.k, self.n, self.m, self.rows
        states, controls = range(2 * n), range(2 * n, 2 * n + m)
        G, C, g = self.G, self._own("force_C"), self._own("force_g")
        T = k.scratch("C G", r, 2 * n + m).matrix(r, 2 * n + m)
        k.product(T, C, G)
        E = self._own("force_E") if "force_E" in self.head.outputs else None
        if E is not None:
            added = _added(r * 2 * n)
            k.call(
                added, {"x": T.part(range(r), states), "y": E}, {"sum": T.part(range(r), states)}
            )
        columns = (range(n), range(n, 2 * n), controls)
        for j, of in enumerate(columns):
            own = _row(self.out["l"]).part(range(1), self.place.range(j))
            k.product(own, g, G.part(range(r), of), accumulate=True)
        joined = self.place.starts[1] == self.place.starts[0] + n  # q and v are neighbours
        xx = self.out["L"].matrix(2 * n, 2 * n, stride=self.place.columns)
        if joined and E is None:
            k.product(
                xx,
                G.part(range(r), states).T,
                T.part(range(r), states),
                accumulate=True,
                symmetric=True,
            )
        else:
            for i in range(2):
                for j in range(2):
                    k.product(
                        self._block(i, j),
                        G.part(range(r), columns[i]).T,
                        T.part(range(r), columns[j]),
                        accumulate=True,
                    )
                    if E is not None:
                        k.product(
                            self._block(i, j),
                            E.part(range(r), columns[i]).T,
                            G.part(range(r), columns[j]),
                            accumulate=True,
                        )
        k.product(
            self._block(2, 2),
            G.part(range(r), controls).T,
            T.part(range(r), controls),
            accumulate=True,
            symmetric=True,
        )
        for j in range(2):
            of_x, of_u = T.part(range(r), columns[j]), G.part(range(r), controls)
            k.product(self._block(2, j), of_u.T, of_x, accumulate=True)
            k.product(self._block(j, 2), of_x.T, of_u, accumulate=True)


def _row(array: Array) -> View:
    return array.at(0, array.size)


def _zeros(count: int) -> Program:
    return record({}, {"y": (count,)}, lambda v: ((0.0,) * count,))


def _added(count: int, copied: bool = False) -> Program:
    shapes: dict[str, Shape] = {"x": (count,), "y": (count,)}
    results = {"sum": (count,)} | ({"x": (count,)} if copied else {})
    return record(
        shapes,
        results,
        lambda v: (tuple(a + b for a, b in zip(v["x"], v["y"], strict=True)), v["x"])[
            : len(results)
        ],
    )


def _alike(pattern: np.ndarray) -> list[tuple[range, list[int]]]:
    """Neighbouring rows with the same columns, and these; rows of no columns are left out."""
    found: list[tuple[range, list[int]]] = []
    for row, columns in enumerate(pattern):
        here = np.flatnonzero(columns).tolist()
        if found and found[-1][1] == here and len(found[-1][0]) < _LONGEST:
            found[-1] = range(found[-1][0].start, row + 1), here
        elif here:
            found.append((range(row, row + 1), here))
    return found
