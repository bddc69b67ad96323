"""The forward pass: all step sizes α in lanes, all blocks of knots at once, with their costs
(Plancher 2022, section 4.2 and Algorithm 2).
"""

from __future__ import annotations

import time

import numpy as np
from numpy.lib.stride_tricks import as_strided

from rigidgrad.control.problem import Problem
from rigidgrad.control.riccati import Backward, block_starts
from rigidgrad.runtime.arrays import aligned_zeros
from rigidgrad.runtime.bound import Bound
from rigidgrad.runtime.threads import Crew

_CLOSED = 1e-12  # gaps below are none


class Forward:
    """Buffers of one problem. The reference trajectory x, u is what gains act around; `take`
    replaces it by one of the simulated ones.

    Two may have one `reference`: what one of them takes, the other starts from.
    """

    def __init__(
        self,
        problem: Problem,
        backward: Backward,
        alphas: np.ndarray,
        blocks: int = 1,
        gaps: bool = False,
        reference: tuple[np.ndarray, np.ndarray] | None = None,
    ):
        self.problem, self.backward, self.gaps = problem, backward, gaps
        s, steps = problem.system, problem.steps
        self.kernel = problem.programs.roll_out(gaps)
        self.W = W = self.kernel.lanes
        self.alphas, self.parts = alphas, -(-len(alphas) // W)
        self.starts = block_starts(steps, blocks)
        self.blocks, longest = blocks, int(self.starts[1])
        self.x: np.ndarray
        self.u: np.ndarray
        self.x, self.u = reference or (np.zeros((steps + 1, s.nx)), np.zeros((steps, s.nu)))
        self.gap = np.zeros((steps, s.ndx))  # f(x_k, u_k) ⊖ x_{k+1} of the reference
        self.h = problem.h[:, None].copy()
        self.X = aligned_zeros((self.parts, blocks, longest + 1, s.nx, W))
        self.U = aligned_zeros((self.parts, blocks, longest, s.nu, W))
        self.C = aligned_zeros((self.parts, blocks, longest + 1, 2, W))
        self.J = aligned_zeros((self.parts, 1, 1, 2, W))
        lanes = np.resize(alphas, self.parts * W).reshape(self.parts, 1, 1, 1, W)
        self._alpha = np.broadcast_to(lanes, (self.parts, blocks, longest, 1, W)).copy()
        self._sweeps = [self._bind(part) for part in range(self.parts)]
        self._finals = [self._bind_final(part) for part in range(self.parts)]
        self._copies = [self._copies_of(which) for which in range(len(alphas))]
        self.open = gaps or blocks > 1  # whether there may be defects
        if self.open:
            # of a whole step; other steps are parts of it
            self.dx = aligned_zeros((1, steps + 1, s.ndx, W))
            self._consensus = self._bind_consensus()
        self.sweep_seconds = 0.0

    def _bind(self, part: int) -> list[Bound]:
        """Blocks of one length share a binding."""
        sizes = np.diff(self.starts)
        found, first = [], 0
        while first < self.blocks:
            last = first + int(np.count_nonzero(sizes[first:] == sizes[first]))
            length, own = int(sizes[first]), slice(first, last)
            start, problem = int(self.starts[first]), self.problem
            shared = {
                "x_ref": self.x,
                "u_ref": self.u,
                "gains": self.backward.gains,
                "h": self.h,
                "p": problem.p,
            }
            if problem.programs.bounded:
                shared |= {"lower": self.backward.lower, "upper": self.backward.upper}
            if self.gaps:
                shared |= {"gap": self.gap}
            inputs = {
                name: _windows(array, start, last - first, length) for name, array in shared.items()
            }
            X, U, C = self.X[part, own], self.U[part, own], self.C[part, own]
            inputs |= {
                "x": X[:, :length],
                "cost": C[:, :length],
                "alpha": self._alpha[part, own, :length],
            }
            found.append(
                self.kernel.bind(
                    inputs,
                    {"u": U[:, :length], "x": X[:, 1 : length + 1], "cost": C[:, 1 : length + 1]},
                )
            )
            first = last
        return found

    def _bind_final(self, part: int) -> Bound:
        length = int(np.diff(self.starts)[-1])
        last = slice(length, length + 1)
        inputs = {
            "x": self.X[part, -1:, last],
            "cost": self.C[part, -1:, last],
            "p": self.problem.p[None, -1:],
        }
        return self.problem.programs.final_cost().bind(inputs, {"cost": self.J[part]})

    def _copies_of(self, which: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Parts of the reference, and of one of the simulated trajectories."""
        part, lane = divmod(which, self.W)
        found = []
        for b in range(self.blocks):
            first, last = self.starts[b], self.starts[b + 1]
            knots = last - first + (b == self.blocks - 1)
            found.append((self.x[first : first + knots], self.X[part, b, :knots, :, lane]))
            found.append((self.u[first:last], self.U[part, b, : last - first, :, lane]))
        return found

    def _bind_consensus(self) -> Bound:
        steps = self.problem.steps
        F, _, _, *move = self.backward.expanded
        self._dynamics = [
            (a, a if a.dtype == np.float64 else a.astype(np.float64)) for a in (F, *move)
        ]
        own = dict(zip(("F", "move"), (a for _, a in self._dynamics), strict=False))
        shared = {"F": own["F"], "gains": self.backward.gains, "gap": self.gap, "h": self.h} | own
        inputs = {name: _windows(array, 0, 1, steps) for name, array in shared.items()}
        alpha = np.ones((1, steps, 1, self.W))
        return self.problem.programs.consensus(self.backward.layout).bind(
            inputs | {"dx": self.dx[:, :-1], "alpha": alpha}, {"dx": self.dx[:, 1:]}
        )

    def prepare(self) -> None:
        """Reads the problem's start and dt."""
        self.h[:, 0] = self.problem.h
        self.X[:, 0, 0] = self.problem.start[:, None]

    def run(self, crew: Crew | None = None, tried: int = 0, upto: int | None = None) -> np.ndarray:
        """Simulates; costs with penalties, (alphas,). Without defects the step sizes may come in
        turns: those before `tried` have, those from `upto` on wait.
        """
        if self.open and not self.closed:
            self.sweep()
        if self.blocks > 1:
            self._place_starts()
        for part in range(-(-tried // self.W), self.parts if upto is None else -(-upto // self.W)):
            for sweep in self._sweeps[part]:
                sweep.run(crew)
            self._finals[part].run()
        J = self.J[:, 0, 0]
        if self.blocks > 1:
            lengths = np.diff(self.starts)[:-1]
            J = J + self.C[:, np.arange(self.blocks - 1), lengths].sum(axis=1)
        costs: np.ndarray = (J[:, 0] + J[:, 1]).ravel()[: len(self.alphas)]
        return costs

    def sweep(self) -> None:
        """`dx`, by which a whole step of the linearised problem moves the states."""
        began = time.perf_counter()
        for found, read in self._dynamics:
            if read is not found:  # derivatives in single precision
                read[:] = found
        self._consensus.run()
        self.sweep_seconds += time.perf_counter() - began

    @property
    def closed(self) -> bool:
        """Whether all gaps of a guess of states are closed: from then on it is single shooting."""
        return self.gaps and not self.gap.any()

    def _place_starts(self) -> None:
        """Starts of all blocks but the first, from the consensus sweep (4.7)."""
        inner = self.starts[1:-1]
        # (parts, W, blocks - 1, ndx)
        moved = self._alpha[:, 0, 0, 0, :, None, None] * self.dx[0, inner, :, 0]
        origin = np.broadcast_to(self.x[inner], (*moved.shape[:3], self.x.shape[1]))
        self.X[:, 1:, 0] = self.problem.plus(origin, moved).transpose(0, 2, 3, 1)

    def defects(self) -> np.ndarray:
        """f(x_k, u_k) ⊖ x_{k+1} where it is not zero, (alphas, defects, ndx): between blocks, or
        what is left of the gaps.
        """
        if self.gaps:
            return (1.0 - self.alphas)[:, None, None] * self.gap
        lengths = np.diff(self.starts)[:-1]
        ends = self.X[:, np.arange(self.blocks - 1), lengths].transpose(0, 3, 1, 2)
        found = self.problem.minus(ends, self.X[:, 1:, 0].transpose(0, 3, 1, 2))
        return found.reshape(-1, self.blocks - 1, found.shape[-1])[: len(self.alphas)]

    def model_along_step(self) -> tuple[float, float]:
        """The slope and curvature of the cost along the step of the linearised problem (of the last
        `run`).
        """
        b, o = self.backward, self.backward.layout
        dx, c = self.dx[0, :, :, 0], o.state_columns
        step = np.zeros((self.problem.steps, o.columns))
        step[:, b.state_columns] = dx[:-1]
        step[:, c : c + o.m] = b.correction + (b.gains[:, :, :c] @ step[:, :c, None])[:, :, 0]
        _, l, L, *_ = b.expanded
        final, n = b.end[-1][:, b.state_columns], o.n
        slope = float(np.vdot(l, step) + final[n] @ dx[-1])
        if L.ndim == 2:
            curve = np.einsum("kj,kj,kj", step, L, step)
        else:
            curve = np.vdot(step[:, b.own_columns], np.matmul(L, step[:, :, None]))
        return slope, float(curve + dx[-1] @ final[:n] @ dx[-1])

    def take(self, which: int) -> None:
        """Makes a simulated trajectory the reference."""
        for own, simulated in self._copies[which]:
            own[...] = simulated
        if self.gaps:
            self.gap *= 1.0 - self.alphas[which]
            self.gap[np.abs(self.gap) < _CLOSED] = 0.0
        elif self.blocks > 1:
            self.gap[self.starts[1:-1] - 1] = self.defects()[which]


def _windows(array: np.ndarray, start: int, count: int, length: int) -> np.ndarray:
    """(count, length, numbers): consecutive rows of an array, from `start` on."""
    flat = array.reshape(len(array), -1)[start : start + count * length]
    row, number = flat.strides
    return as_strided(flat, (count, length, flat.shape[1]), (length * row, row, number))
