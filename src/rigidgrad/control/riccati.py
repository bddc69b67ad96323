"""The backward pass over a trajectory: all knots expanded in lanes, then blocks of knots from their
last to their first (Plancher 2022, section 4.2).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rigidgrad.control.problem import Problem
from rigidgrad.control.programs import expanded_shapes
from rigidgrad.runtime.arrays import aligned_zeros
from rigidgrad.runtime.bound import Bound
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.riccati import RESULTS, Layout, bind
from rigidgrad.runtime.threads import Crew


def block_starts(steps: int, blocks: int) -> np.ndarray:
    """Where blocks begin, the longer ones first; the last number is `steps`."""
    sizes = np.full(blocks, steps // blocks)
    sizes[: steps % blocks] += 1
    return np.concatenate([[0], np.cumsum(sizes)])


def active_control_bounds(
    u: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    box: tuple[np.ndarray, np.ndarray],
    active: np.ndarray,
) -> None:
    """Writes into `box` the bounds that a backward pass keeps to: those that controls are at now.
    Other controls may step over theirs, and roll-outs clamp them.

    That is projected Newton's method (Bertsekas 1982). Kept within all bounds, far steps would
    switch feedback off along the whole trajectory.
    """
    low, high = u <= bounds[0], u >= bounds[1]
    box[0][...], box[1][...] = -np.inf, np.inf
    np.copyto(box[0], bounds[0], where=low)
    np.copyto(box[1], bounds[1], where=high)
    active *= low | high


def failure_status(expanded: tuple[np.ndarray, ...]) -> str:
    """Why H_uu is not positive definite whatever the regularisation: its numbers are none, or a
    control does nothing.
    """
    return "singular" if all(np.isfinite(a).all() for a in expanded) else "undefined"


class Backward:
    """Buffers of one problem and the compiled pass over them. `gains` (steps, nu, columns) is what
    roll-outs read.
    """

    def __init__(
        self,
        problem: Problem,
        blocks: int = 1,
        dtype: str = "float64",
        gaps: bool = False,
        second_order: bool = False,
    ):
        self.problem, self.second_order = problem, second_order
        programs, n, steps = problem.programs, problem.system.ndx, problem.steps
        base = self.own_layout(programs.layout_in(dtype))
        self.layout = o = replace(base, gaps=gaps, diagonal=base.diagonal and not second_order)
        self.expansion, self.final_expansion = (
            self.own_expansion(dtype),
            programs.final_expansion(dtype),
        )
        self.dtype = np.dtype(dtype)
        self.starts = block_starts(steps, blocks)
        self.expanded = tuple(
            aligned_zeros((steps, *shape), self.dtype) for shape in expanded_shapes(base).values()
        )
        self.gains = aligned_zeros((steps, o.m, o.columns))
        # cost-to-go at the end of each block
        self.end = aligned_zeros((blocks, n + 1, o.state_columns), self.dtype)
        self.start = aligned_zeros(self.end.shape, self.dtype)  # and at its start, after a pass
        self.numbers, self.results = np.zeros((blocks, 2)), np.zeros((blocks, len(RESULTS)))
        self.defects = np.zeros((steps, n))
        self.x = np.zeros((steps + 1, problem.system.nx))
        self.u, self.active = np.zeros((steps, o.m)), np.zeros((steps, o.m))
        self.lower, self.upper = np.empty((steps, o.m)), np.empty((steps, o.m))
        # the bounds that the pass itself keeps to
        self.box = (np.empty((steps, o.m)), np.empty((steps, o.m)))
        self.h = np.empty(steps, self.dtype)
        self.state_columns = np.array([o.state(i) for i in range(n)])
        # those of states and controls
        self.own_columns = np.concatenate([self.state_columns, o.state_columns + np.arange(o.m)])
        self._whole = self._bind(np.array([0, steps]))
        self._blocks = self._bind(self.starts) if blocks > 1 else self._whole
        # compiles now what the first expansion would, so that solves are timed without
        self.prepare()
        self.expand(np.tile(problem.start, (steps + 1, 1)), problem.guess)

    def own_layout(self, o: Layout) -> Layout:
        """How what is expanded is laid out."""
        return o

    def own_expansion(self, dtype: str) -> Compiled:
        return self.problem.programs.expansion(dtype)

    def _bind(self, starts: np.ndarray) -> Bound:
        blocks = len(starts) - 1
        F, l, L, *move = self.expanded
        if self.second_order:
            self.full = np.zeros(
                (self.problem.steps, self.layout.n + self.layout.m, self.layout.columns), self.dtype
            )
            L = self.full
        end, start = (
            (self.end[-blocks:], self.start[-blocks:])
            if blocks > 1
            else (self.end[-1:], self.start[:1])
        )
        arrays = {
            "ranges": np.stack([starts[:-1], starts[1:]], axis=1).astype(np.int64),
            "F": F,
            "l": l,
            "L": L,
            "gains": self.gains,
            "end": end,
            "start": start,
            "numbers": self.numbers[:blocks],
            "results": self.results[:blocks],
            "defects": self.defects,
            "lower": self.box[0],
            "upper": self.box[1],
            "u": self.u,
            "active": self.active,
            "scratch": aligned_zeros((blocks, self.layout.scratch_size), self.dtype),
        }
        if move:
            arrays["move"] = move[0]
        self.ranges = arrays["ranges"]
        return bind(self.layout, arrays)

    @property
    def feedback(self) -> np.ndarray:
        """K (steps, nu, ndx)."""
        return self.gains.take(self.state_columns, axis=2)

    @property
    def correction(self) -> np.ndarray:
        """κ (steps, nu)."""
        return self.gains[:, :, self.layout.gradient]

    def prepare(self) -> None:
        """Reads the problem's dt and bounds."""
        self.h[:] = self.problem.h
        self.numbers[:, 1] = self.problem.dt
        self.lower[:], self.upper[:] = self.problem.bounds
        self.active[:] = 0.0

    def forget(self) -> None:
        """No gains, and nothing is known of what comes after a block."""
        self.gains[:] = 0.0
        self.end[:-1], self.start[:] = 0.0, 0.0

    def expand(self, x: np.ndarray, u: np.ndarray) -> None:
        """Derivatives of all knots at a trajectory; the cost-to-go at the last one."""
        p = self.problem.p
        self.x, self.u[:] = x, u
        if self.layout.bounded:
            active_control_bounds(u, (self.lower, self.upper), self.box, self.active)
        if self.dtype != np.float64:
            x, u, p = x.astype(self.dtype), u.astype(self.dtype), p.astype(self.dtype)
        self.expand_knots(x[:-1], u, p[:-1])
        self.final_expansion(x[-1:], p[-1:], out=self.end[-1:])

    def expand_knots(self, x: np.ndarray, u: np.ndarray, p: np.ndarray) -> None:
        self.expansion(x, u, self.h, p, out=self.expanded)

    def run(
        self, rho: float, crew: Crew | None = None, serial: bool = False, newton: bool = False
    ) -> tuple[bool, float, float]:
        """(whether H_uu was positive definite everywhere, Σ κᵀg_u, Σ κᵀH_uu κ).

        `serial` passes the cost-to-go through all blocks. `newton`, if `second_order` buffers were
        asked for, bends the dynamics.
        """
        self.numbers[:, 0] = rho
        if newton:
            return self._run_second_order()
        if self.second_order:
            self.full[:] = self._full_cost(slice(None))
        if len(self.starts) == 2:
            self._whole.run()
            slope, curve, fine = self.results[0].tolist()
            return fine == 1.0, slope, curve
        if serial:
            for b in range(len(self.starts) - 2, -1, -1):
                self._blocks.run_group(b)
                if b:
                    self.end[b - 1] = self.start[b]
        else:
            self._blocks.run(crew)
        slope, curve, fine = self.results.sum(axis=0).tolist()
        return fine == len(self.results), slope, curve

    def failure_status(self) -> str:
        """The status of a solve whose pass fails whatever the regularisation."""
        return failure_status(self.expanded)

    def hand_over(self, moved: np.ndarray) -> None:
        """Each block's cost-to-go becomes the next pass's at the end of the block before,
        re-centred by how the knots moved, (steps + 1, ndx) (4.3).
        """
        if len(self.starts) > 2:
            n = self.layout.n
            dx = np.zeros((len(self.starts) - 2, self.layout.state_columns))
            dx[:, self.state_columns] = moved[self.starts[1:-1]]
            self.end[:-1] = self.start[1:]
            self.end[:-1, n] += np.einsum(
                "bij,bi->bj", self.start[1:, :n], dx[:, self.state_columns]
            )

    def _full_cost(self, knots: int | slice) -> np.ndarray:
        """L with all of its entries, where the expansion may have given the diagonal alone."""
        o, L = self.layout, self.expanded[2][knots]
        if self.expanded[2].ndim == 3:
            return L
        own = self.own_columns
        result = np.zeros((*L.shape[:-1], o.n + o.m, o.columns), self.dtype)
        result[..., np.arange(o.n + o.m), own] = L[..., own]
        return result

    def _run_second_order(self) -> tuple[bool, float, float]:
        """Knot by knot, since the second derivatives of the dynamics are weighted by the gradient
        of the cost-to-go.
        """
        problem, o = self.problem, self.layout
        slope = curve = 0.0
        value = self.end[-1].copy()
        bound = self._whole
        window = self.ranges[0]
        last = self.end[-1].copy()
        fine = True
        for k in range(problem.steps - 1, -1, -1):
            self.end[-1] = value
            v = value[o.n, self.state_columns].astype(float)
            if o.gaps:
                v = v + value[: o.n, self.state_columns].astype(float).T @ self.defects[k]
            extra = problem.programs.step_curvature(
                self.x[k], self.u[k], np.array(problem.h[k]), v, *problem.inputs_at(k)
            )
            self.full[k] = extra + self._full_cost(k)
            window[:] = k, k + 1
            bound.run()
            s, c, ok = self.results[0].tolist()
            slope, curve, fine = slope + s, curve + c, ok == 1.0
            if not fine:
                break
            value = self.start[0].copy()
        window[:] = 0, problem.steps
        self.end[-1] = last
        return fine, slope, curve
