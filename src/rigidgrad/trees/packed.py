"""A symmetric matrix with the sparsity of a tree: row i holds itself and its ancestors, nothing
else of the lower triangle can be non-zero.
"""

from __future__ import annotations

import importlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.errors import InputError, ModelError, RigidgradError
from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.memory import require
from rigidgrad.trees.tree import Tree

if TYPE_CHECKING:
    from rigidgrad.runtime.arrays import Numbers


class Pattern:
    """Where a tree's packed matrices keep their numbers: row i is values[start[i] : start[i + 1]],
    from i to its parent and on to the root.
    """

    def __init__(self, tree: Tree) -> None:
        topology = tree.topology
        if tree.floating_base:  # the base is a chain of six freedoms
            parents = np.where(topology.parents > 0, topology.parents + 5, 5).astype(np.int32)
            self.parents = np.concatenate([np.arange(-1, 5, dtype=np.int32), parents[1:]])
            self.order = np.concatenate([np.arange(5, dtype=np.int32), topology.order + 5])
            length = np.concatenate([np.arange(1, 7), topology.depth[1:] + 6])
        else:
            self.parents, self.order, length = topology.parents, topology.order, topology.depth + 1
        self.start = np.concatenate([[0], np.cumsum(length, dtype=np.int64)])

    @property
    def size(self) -> int:
        return len(self.parents)

    @property
    def entries(self) -> int:
        return int(self.start[-1])

    @cached_property
    def columns(self) -> np.ndarray:
        result = np.empty(self.entries, np.int32)
        _columns(self.parents, self.start, result)
        return result


def pattern_of(tree: Tree) -> Pattern:
    """The tree's pattern, made once."""
    found = tree.__dict__.get("_pattern")
    if found is None:
        found = tree.__dict__["_pattern"] = Pattern(tree)
    return found


class PackedMatrix:
    """Mass matrices of a tree: `values` (…, entries), of NumPy or JAX, laid out by `pattern`."""

    def __init__(self, pattern: Pattern, values: Any) -> None:
        self.pattern = pattern
        self.values = values
        self._factor: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """(…, nv, nv)."""
        n = self.pattern.size
        return (*self.values.shape[:-1], n, n)

    def __repr__(self) -> str:
        return (
            f"<PackedMatrix {self.shape}: {self.pattern.entries:,} entries of the lower triangle,"
            f" {self.values.dtype}>"
        )

    def diagonal(self) -> np.ndarray:
        """(…, nv)."""
        found: np.ndarray = self.values[..., self.pattern.start[:-1]]
        return found

    def to_dense(self) -> np.ndarray:
        """Both triangles, (…, nv, nv)."""
        size = int(np.prod(self.shape)) * self.values.itemsize
        require(
            f"a dense matrix of shape {self.shape}",
            size,
            "use .to_scipy(), .solve(b) or the packed values",
        )
        dense = np.zeros(self.shape, self.values.dtype)
        rows = np.repeat(np.arange(self.pattern.size), np.diff(self.pattern.start))
        dense[..., rows, self.pattern.columns] = self.values
        dense[..., self.pattern.columns, rows] = self.values
        return dense

    def to_scipy(self) -> Any:
        """Both triangles as a `scipy.sparse.csr_array`; for a single matrix, and where SciPy is
        installed.
        """
        try:
            sparse = importlib.import_module("scipy.sparse")
        except ImportError:
            raise RigidgradError("this needs SciPy: pip install scipy") from None
        if self.values.ndim != 1:
            raise InputError(
                "SciPy has no batches of sparse matrices; this one has batch axes"
                f" {self.values.shape[:-1]}"
            )
        rows = np.repeat(np.arange(self.pattern.size, dtype=np.int32), np.diff(self.pattern.start))
        lower = sparse.coo_array(
            (np.asarray(self.values), (rows, self.pattern.columns)), shape=self.shape
        ).tocsr()
        strict = sparse.tril(lower, -1)
        return sparse.csr_array(lower + strict.T)

    def __matmul__(self, x: Any) -> np.ndarray:
        """H x for x (…, nv)."""
        rows, many, shape = self._operands(x)
        out = np.zeros_like(many)
        _multiply(self.pattern.parents, self.pattern.start, rows, many, out)
        return out.reshape(shape)

    def solve(self, b: Numbers) -> np.ndarray:
        """x with H x = b, for b (…, nv), by the factorisation H = LᵀDL, which fills in nothing
        (Featherstone 2008, table 6.3).

        It takes about Σ depth² operations: quick for shallow trees, not for long chains.
        """
        if self._factor is None:
            factor = np.array(self.values).reshape(-1, self.pattern.entries)
            bad = _factorise(self.pattern.parents, self.pattern.order, self.pattern.start, factor)
            if bad >= 0:
                raise ModelError(
                    f"the matrix is not positive definite: it has no inverse at row {bad}; massless"
                    " bodies may be the reason"
                )
            self._factor = factor
        _, many, shape = self._operands(b)
        out = many.copy()
        _substitute(self.pattern.parents, self.pattern.order, self.pattern.start, self._factor, out)
        return out.reshape(shape)

    def _operands(self, x: Any) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
        array = np.asarray(x, self.values.dtype)
        n, batch = self.pattern.size, self.values.shape[:-1]
        try:
            if array.shape[-1:] != (n,):
                raise ValueError
            shape = (*np.broadcast_shapes(batch, array.shape[:-1]), n)
        except ValueError:
            raise InputError(
                f"the vector has shape {array.shape}; needed is (…, {n}), its batch axes fitting"
                f" {batch}"
            ) from None
        if batch and shape[:-1] != batch:
            raise InputError(
                f"the vector's batch axes {array.shape[:-1]} do not fit the matrix's {batch}"
            )
        values = np.asarray(self.values).reshape(-1, self.pattern.entries)
        return values, np.ascontiguousarray(np.broadcast_to(array, shape)).reshape(-1, n), shape


@kernel
def _columns(parents: np.ndarray, start: np.ndarray, columns: np.ndarray) -> None:
    for i in range(len(parents)):
        j = i
        for k in range(start[i], start[i + 1]):
            columns[k] = j
            j = parents[j]


@kernel
def _multiply(
    parents: np.ndarray, start: np.ndarray, values: np.ndarray, x: np.ndarray, out: np.ndarray
) -> None:
    for b in range(len(x)):
        row = values[b % len(values)]
        for i in range(len(parents)):
            total = row[start[i]] * x[b, i]
            j = parents[i]
            for k in range(start[i] + 1, start[i + 1]):
                total += row[k] * x[b, j]
                out[b, j] += row[k] * x[b, i]
                j = parents[j]
            out[b, i] += total


@kernel
def _factorise(
    parents: np.ndarray, order: np.ndarray, start: np.ndarray, values: np.ndarray
) -> int:
    """In place: row i becomes D_i and the row of L. Returns the row where it fails, or -1."""
    for b in range(len(values)):
        row = values[b]
        for o in range(len(order) - 1, -1, -1):
            k: int = order[o]
            first, last = start[k], start[k + 1]
            pivot = row[first]
            if not pivot > 0:
                return k
            i = parents[k]
            for d in range(first + 1, last):
                factor = row[d] / pivot
                to = start[i]
                for e in range(last - d):
                    row[to + e] -= factor * row[d + e]
                i = parents[i]
            for d in range(first + 1, last):
                row[d] /= pivot
    return -1


@kernel
def _substitute(
    parents: np.ndarray, order: np.ndarray, start: np.ndarray, values: np.ndarray, x: np.ndarray
) -> None:
    for b in range(len(x)):
        row = values[b % len(values)]
        for o in range(len(order) - 1, -1, -1):
            i = order[o]
            j = parents[i]
            for k in range(start[i] + 1, start[i + 1]):
                x[b, j] -= row[k] * x[b, i]
                j = parents[j]
        for o in range(len(order)):
            i = order[o]
            total = x[b, i] / row[start[i]]
            j = parents[i]
            for k in range(start[i] + 1, start[i + 1]):
                total -= row[k] * x[b, j]
                j = parents[j]
            x[b, i] = total
