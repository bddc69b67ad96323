"""Dynamics for the threads of a block, in one frame for each tree (`code/common_frame.h`): inverse
dynamics, its gradient and the mass matrix.

In one frame nothing is carried from body to body: poses come by doubling, velocities and
accelerations are sums along paths, inertias and forces sums over subtrees. The gradient is that of
`algorithms/fast/subtree_gradient.py` (Singh, Russell and Wensing 2022): columns of whole subtrees
instead of columns that each body hands on (Plancher 2022, Algorithm 4), and products of two
freedoms' vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from rigidgrad.model.model import WORLD, Frame
from rigidgrad.targets.gpu.block_algorithms import IDENTITY, Work, offset
from rigidgrad.targets.gpu.schedule import Number, Value

# numbers of a freedom's record, of a body's, of what a freedom leaves: odd pairs, so that
# neighbouring threads meet different banks
_FREEDOM, _BODY, _COLUMN = 26, 30, 22
Entries = dict[tuple[int, int], Number]


class Dynamics:
    """What one function records of a tree; what several need is recorded once. `graded`: whether a
    gradient is wanted.
    """

    def __init__(
        self,
        w: Work,
        X: Mapping[int, Value],
        v: Value | None = None,
        external: Mapping[str, Value] | None = None,
        graded: bool = False,
    ):
        self.w, self.X, self.v, self.external, self.graded = w, X, v, external or {}, graded
        self.zero = w.constant((0.0,) * 6)
        # J, J', w, J'' of a freedom; inertia, Coriolis factor, force of a body
        freedom, body = (6, 6, 6, 6, _FREEDOM - 24), (10, 12, 6, _BODY - 28)
        record = w.block.piece if graded else lambda sizes: [w.block.value(n) for n in sizes]
        self._records = [record(freedom) for _ in range(w.model.dofs)]
        self._bodies = [record(body) for _ in w.model.bodies]

    # --- poses ------------------------------------------------------------------------------------

    @cached_property
    def _from_root(self) -> list[Value]:
        """From the root of its tree to each body, by doubling."""
        w, parents = self.w, self.w.model.parents
        found = {i: w.constant(IDENTITY) for i in w.model.bodies if parents[i] == WORLD}
        reach = {i: (self.X[i], parents[i]) for i in w.model.bodies if parents[i] != WORLD}
        while any(above in reach for _, above in reach.values()):
            reach = {
                i: (w.one("compose", (T, reach[above][0]), 12), reach[above][1])
                if above in reach
                else (T, above)
                for i, (T, above) in reach.items()
            }
        found |= {i: T for i, (T, _) in reach.items()}
        return [found[i] for i in w.model.bodies]

    @cached_property
    def Y(self) -> list[Value]:
        """From the common frame to each body."""
        w, T = self.w, self._from_root
        return [
            T[i]
            if self._centre(i) == self.root(i)
            else w.one("centred", (T[i], T[self._centre(i)]), 12, together="centred")
            for i in w.model.bodies
        ]

    def root(self, body: int) -> int:
        return self.w.model.ancestors[body][-1]

    def _centre(self, body: int) -> int:
        """The middle of what all leaves of a tree hang on: in single precision, what is far from
        the origin loses digits.
        """
        trunk = [self.root(body)]
        while len(self.w.model.children[trunk[-1]]) == 1:
            trunk += self.w.model.children[trunk[-1]]
        return trunk[len(trunk) // 2]

    @cached_property
    def J(self) -> list[Value]:
        """The axis of each freedom."""
        w = self.w
        for k, body in enumerate(w.body_of):
            reads, target = (self.Y[body], k), self._records[k][0]
            w.block.add(w.call("axis", w.z), reads, (target,), together="axis")
        return [self._records[k][0] for k in range(w.model.dofs)]

    @cached_property
    def inertias(self) -> list[Value]:
        w = self.w
        for i in w.model.bodies:
            w.block.add("inertia", (self.Y[i], i), (self._bodies[i][0],), together="inertia")
        return [self._bodies[i][0] for i in w.model.bodies]

    # --- motions ----------------------------------------------------------------------------------

    @cached_property
    def _gravity(self) -> dict[int, Value]:
        """For each root, the acceleration that stands for gravity."""
        w = self.w
        up = w.constant((0.0, 0.0, 0.0, *(-g for g in w.model.gravity)))
        return {
            i: w.one("turned", (self.X[i], up), 6)
            for i in w.model.bodies
            if w.model.parents[i] == WORLD
        }

    def above(self, vectors: Sequence[Value], body: int, otherwise: Value) -> Value:
        parent = self.w.model.parents[body]
        return otherwise if parent == WORLD else vectors[parent]

    def path(self, body: int) -> list[int]:
        """The freedoms that move a body."""
        return [k for i in reversed(self.w.model.ancestors[body]) for k in self.w.freedoms(i)]

    def _weighted(self, own: Value, body: int, rates: Value) -> Value:
        w = self.w
        listed = [(self.J[k], rates[w.source[k]]) for k in self.path(body)]
        return w.one("along_path(1)", (own,), 6, listed=listed, together=f"along {rates.index}")

    @cached_property
    def velocities(self) -> list[Value]:
        if self.v is None:
            return [self.zero] * len(self.w.model.joints)
        return [self._weighted(self.zero, i, self.v) for i in self.w.model.bodies]

    def accelerations(self, gains: Sequence[Value]) -> list[Value]:
        """With gravity; `gains` are what each freedom adds."""
        return [
            self.w.one(
                "along_path(0)",
                (self._gravity[self.root(i)],),
                6,
                listed=[(gains[k],) for k in self.path(i)],
                together=f"along {gains[0].index}",
            )
            for i in self.w.model.bodies
        ]

    def gains(self, a: Value | None) -> list[Value]:
        """J q̈ + J' q̇ of each freedom; with a gradient J' and w go into the records."""
        w, v = self.w, self.v
        assert v is not None
        found = []
        for k, body in enumerate(w.body_of):
            above = self.above(self.velocities, body, self.zero)
            rates = v[w.source[k]], 0 if a is None else a[w.source[k]]
            moves = int(a is not None)
            if self.graded:
                reads = (self.J[k], above, self.velocities[body], *rates)
                targets = (self._records[k][1], self._records[k][2], 6)
                kind = w.call("rate", moves)
                found.append(w.block.add(kind, reads, targets, together="rate")[2])
            else:
                kind, alone = w.call("gain", moves), (self.J[k], above, *rates)
                found.append(w.one(kind, alone, 6, together="gain"))
        return found

    @cached_property
    def at_rest(self) -> list[Value]:
        """Accelerations for q̈ = 0."""
        return self.accelerations(self.gains(None))

    # --- forces -----------------------------------------------------------------------------------

    def own_forces(self) -> list[Value]:
        """The force on each body alone, in its own frame, for q̈ = 0."""
        w = self.w
        forces = []
        for i in w.model.bodies:
            reads = (self.Y[i], self.at_rest[i], self.velocities[i], i)
            forces.append(w.one("own_force", reads, 6, together="own_force"))
        for name, wrench in self.external.items():
            frame = w.model.frame(name)
            if frame.body != WORLD:
                i = frame.body
                forces[i] = w.one("wrench", (forces[i], offset(w, frame), wrench), 6)
        return forces

    def _net_forces(self, accelerations: Sequence[Value], kept: bool = False) -> list[Value]:
        """I a + v ×* I v less what acts from outside; into the bodies' records, if they are `kept`
        for a gradient.
        """
        w, forces = self.w, []
        kind = w.call("net_force", int(self.v is not None))
        acting: dict[int, list[tuple[Frame, Value]]] = {}
        for name, wrench in self.external.items():
            frame = w.model.frame(name)
            acting.setdefault(frame.body, []).append((frame, wrench))
        for i in w.model.bodies:
            reads = (self.inertias[i], accelerations[i], self.velocities[i])
            left = len(acting.get(i, []))
            target: Value | int = self._bodies[i][2] if kept and not left else 6
            label = f"net_force {accelerations[0].index}"
            (f,) = w.block.add(kind, reads, (target,), together=label)
            for frame, wrench in acting.get(i, []):
                left -= 1
                to_frame = w.one("compose", (offset(w, frame), self.Y[i]), 12)
                target = self._bodies[i][2] if kept and not left else 6
                (f,) = w.block.add("wrench", (f, to_frame, wrench), (target,))
            forces.append(f)
        return forces

    def _subtrees(self, size: int, *parts: tuple[int, int, Sequence[Value]]) -> list[Value]:
        """Records of whole subtrees: sums of the parts, which are given by where they begin and
        how many numbers they have.
        """
        w = self.w
        whole = [w.block.value(size, array=True) for _ in w.model.bodies]
        for first, count, values in parts:
            listed: list[tuple[Value | Number | int, ...]] = []
            last = None  # the body whose sum is at hand
            for i in reversed(w.model.bodies):
                children, start = w.model.children[i], whole[i][first]
                listed.append((values[i], start, int(last in children)))
                listed += [(whole[c][first], start, 1) for c in children if c != last]
                last = i
            for c in range(count):
                w.block.add(
                    "subtree",
                    (c,),
                    (),
                    stores=whole,
                    listed=listed,
                    together=f"subtree {whole[0].index}",
                )
        return whole

    # --- functions --------------------------------------------------------------------------------

    def torques(self, a: Value | None) -> list[Number]:
        """Inverse dynamics."""
        if self.v is None:
            moved = [self._gravity[self.root(i)] for i in self.w.model.bodies]
        else:
            moved = self.accelerations(self.gains(a))
        return self._torques(moved, a)

    def torques_at_rest(self) -> list[Number]:
        """Inverse dynamics for q̈ = 0."""
        return self._torques(self.at_rest, None)

    def _torques(self, accelerations: Sequence[Value], a: Value | None) -> list[Number]:
        w = self.w
        forces = self._subtrees(6, (0, 6, self._net_forces(accelerations)))
        parts: list[list[Number]] = [[] for _ in range(w.model.nv)]
        for k, body in enumerate(w.body_of):
            armature = a is not None and w.armature[k] != 0.0
            reads = (self.J[k], forces[body], k, a[w.source[k]] if a and armature else 0)
            parts[w.source[k]].append(w.one(w.call("torque", int(armature)), reads, 1)[0])
        return [w.total(numbers) for numbers in parts]

    def gradient(self, a: Value) -> tuple[Entries, Entries, Entries]:
        """Of inverse dynamics, ∂τ/∂q, ∂τ/∂q̇ and M."""
        accelerations = self.accelerations(self.gains(a))
        return self._columns(
            accelerations, self._of_subtrees(self._net_forces(accelerations, True))
        )

    def gradient_at(self, a: Value) -> tuple[Entries, Entries, Entries]:
        """The same, from accelerations at rest."""
        moved = [self._weighted(self.at_rest[i], i, a) for i in self.w.model.bodies]
        return self._columns(moved, self._of_subtrees(self._net_forces(moved, True)))

    def gradient_of(
        self, v: Sequence[Value | Number], a: Sequence[Value | Number], f: Sequence[Value | Number]
    ) -> tuple[Entries, Entries, Entries]:
        """The same, from what inverse dynamics leaves at each body, in its frame: velocity,
        acceleration, and the force across its joint.
        """
        w = self.w

        def there(kind: str, i: int, x: Value | Number, target: Number | int = 6) -> Value:
            return w.block.add(f"{kind}_to_common", (self.Y[i], x), (target,))[0]

        bodies = w.model.bodies
        self.velocities = [there("motion", i, v[i]) for i in bodies]
        accelerations = [there("motion", i, a[i]) for i in bodies]
        self.gains(None)
        whole = self._of_subtrees()
        for i in bodies:
            there("force", i, f[i], whole[i][22])
        return self._columns(accelerations, whole)

    def _of_subtrees(self, forces: Sequence[Value] = ()) -> list[Value]:
        """Inertias, Coriolis factors and forces of subtrees."""
        w = self.w
        factors = [self._bodies[i][1] for i in w.model.bodies]
        for i in w.model.bodies:
            reads = self.inertias[i], self.velocities[i]
            w.block.add("coriolis", reads, (factors[i],), together="coriolis")
        parts = [(0, 10, self.inertias), (10, 12, factors)]
        return self._subtrees(_BODY, *parts, *([(22, 6, forces)] if forces else []))

    def _columns(
        self, accelerations: Sequence[Value], whole: Sequence[Value]
    ) -> tuple[Entries, Entries, Entries]:
        w = self.w
        columns = []
        for k, body in enumerate(w.body_of):
            axis, rate, _, second = self._records[k][:4]
            above = self.above(accelerations, body, self._gravity.get(body, self.zero))
            before = self.above(self.velocities, body, self.zero)
            reads = axis, rate, before, above
            w.block.add("second_rate", reads, (second,), together="second_rate")
        for k, body in enumerate(w.body_of):
            record = self._records[k]
            columns.append(
                w.one(
                    "freedom",
                    (record[0], whole[body]),
                    _COLUMN,
                    needs=record[1:4],
                    together="freedom",
                )
            )
        dq, dv, M = Sums(w), Sums(w), Sums(w)
        for i, body in enumerate(w.body_of):
            for j in self.path(body):
                record, column = self._records[j], columns[i]
                if w.body_of[j] != body:
                    x = w.one("pair", (record[0], column), 6, needs=record[1:4])
                    for entries, upper, lower in ((dq, 0, 1), (dv, 2, 3), (M, 4, 4)):
                        entries.add(j, i, x[upper])
                        entries.add(i, j, x[lower])
                else:
                    other = self._records[i][0]
                    kind = w.call("own_pair", int(i == j))
                    x = w.one(kind, (record[0], column, whole[body][22], j, other), 4)
                    dq.add(j, i, x[0])
                    dv.add(j, i, x[1])
                    M.add(j, i, x[2])
        return dq.entries(), dv.entries(), M.entries()

    def mass_matrix(self) -> Entries:
        w = self.w
        whole = self._subtrees(10, (0, 10, self.inertias))
        M = Sums(w)
        for i, body in enumerate(w.body_of):
            momentum = w.one("momentum", (self.J[i], whole[body]), 6)
            for j in self.path(body):
                if j > i:  # of the same joint, and there already
                    continue
                x = w.one(w.call("mass", int(i == j)), (self.J[j], momentum, i), 1)[0]
                M.add(j, i, x)
                if i != j:
                    M.add(i, j, x)
        return M.entries()


class Sums:
    """A matrix over the numbers of v: with mimic joints, several freedoms add to one entry."""

    def __init__(self, w: Work):
        self.w = w
        self._parts: dict[tuple[int, int], list[Number]] = {}

    def add(self, row: int, column: int, x: Number) -> None:
        place = self.w.source[row], self.w.source[column]
        self._parts.setdefault(place, []).append(x)

    def entries(self) -> Entries:
        return {place: self.w.total(parts) for place, parts in self._parts.items()}
