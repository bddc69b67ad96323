"""Forward dynamics of a tree: accelerations from joint forces, refined until inverse dynamics gives
the forces back, and returned with what is left over.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rigidgrad.errors import InputError, unknown_name
from rigidgrad.trees import aba_heavy_path, aba_levels, aba_sequential
from rigidgrad.trees.crba import crba
from rigidgrad.trees.inverse_dynamics import rnea
from rigidgrad.trees.parallel import thread_count
from rigidgrad.trees.states import Joints, base_rotation, external_forces, frozen, joints, result
from rigidgrad.trees.tree import Tree

if TYPE_CHECKING:
    from rigidgrad.runtime.arrays import Numbers
    from rigidgrad.trees.states import External

METHODS = ("crba", "sequential", "levels", "heavy_path")
SHALLOW = 8  # levels up to which forming the mass matrix and factorising it is quicker
_POOR = {"float64": 1e-8, "float32": 1e-3}


class AccuracyWarning(UserWarning):
    """A result that holds fewer digits than its numbers could."""


class ForwardDynamics(NamedTuple):
    """Accelerations, and how well they fulfil the equations of motion."""

    a: np.ndarray
    """(…, nv)."""
    residual: np.ndarray
    """max |rnea(q, v, a) - tau| of each state, relative to max(|tau|, |bias|)."""


def forward_dynamics(
    tree: Tree,
    q: Numbers,
    v: Numbers,
    tau: Numbers,
    *,
    method: str | None = None,
    external: External | None = None,
    external_in: str = "body",
    refinements: int = 2,
    threads: int | None = None,
    check: bool = False,
) -> ForwardDynamics:
    """The accelerations that joint forces tau cause, `.a`, and how well they fulfil the equations
    of motion, `.residual`.

    method: "crba" (mass matrix and LᵀDL, for shallow trees), the articulated-body algorithm
    "sequential" or by "levels", or "heavy_path" (star products of segments); the plan's choice if
    left out. The result is refined up to `refinements` times, as long as that helps. Long chains
    are beyond what their numbers can resolve, whatever the method: an AccuracyWarning then names
    the residual. `tree`, `q`, `v`, `external`, `external_in`, `threads` and `check` as for `rnea`.
    """
    state = joints(tree, check=check, q=q, v=v, tau=tau)
    if method is not None and method not in METHODS:
        raise unknown_name("method", method, METHODS)
    if refinements < 0:
        raise InputError(f"refinements is {refinements}; it is 0 or more")
    how = method or _choice(tree)
    count = thread_count(threads)
    forces = external_forces(tree, external, external_in, state)
    rows = state.batch.rows
    shape = (len(rows["q"]), tree.bodies, 6)
    wrench = (
        np.concatenate(
            [np.moveaxis(forces, 1, 2)[..., 3:], np.moveaxis(forces, 1, 2)[..., :3]], axis=2
        )
        if len(forces)
        else None
    )
    if wrench is not None and tree.turn is not None:
        wrench = np.concatenate(
            [np.einsum("nji,bnj->bni", tree.turn, x) for x in (wrench[..., :3], wrench[..., 3:])],
            axis=2,
        )
    options: dict[str, Any] = {
        "external": None if wrench is None else wrench.reshape(shape),
        "threads": threads,
    }

    def missing(a: np.ndarray) -> np.ndarray:
        rest: np.ndarray = rows["tau"] - rnea(tree, rows["q"], rows["v"], a, **options)
        return rest

    solve = _solver(tree, state, how, count)
    bias = -missing(np.zeros_like(rows["v"])) + rows["tau"]
    scale = np.maximum(np.abs(rows["tau"]).max(axis=1), np.abs(bias).max(axis=1))
    scale[scale == 0] = 1.0
    a = solve(rows["tau"], bias, forces, first=True)
    rest = missing(a)
    residual = np.abs(rest).max(axis=1) / scale
    for _ in range(refinements):
        if not np.any(residual > 4 * np.finfo(a.dtype).eps):
            break
        better = a + solve(rest, np.zeros_like(bias), forces[:0], first=False)
        rest_ = missing(better)
        residual_ = np.abs(rest_).max(axis=1) / scale
        helps = residual_ < residual
        if not np.any(helps):
            break
        a = np.where(helps[:, None], better, a)
        rest = np.where(helps[:, None], rest_, rest)
        residual = np.where(helps, residual_, residual)
    warn_if_poor(tree, residual)
    return ForwardDynamics(result(state.batch, a), result(state.batch, residual))


def warn_if_poor(tree: Tree, residual: np.ndarray) -> None:
    worst = float(residual.max()) if not np.any(np.isnan(residual)) else float("nan")
    if not worst <= _POOR[residual.dtype.name]:
        warnings.warn(
            f"forward dynamics leaves a relative residual of {worst:.1e}: this tree of"
            f" {tree.topology.levels:,} levels is beyond what {residual.dtype.name} can resolve",
            AccuracyWarning,
            stacklevel=3,
        )


def _choice(tree: Tree) -> str:
    if tree.plan.method == "sequential":
        return "sequential"
    return "crba" if tree.topology.levels <= SHALLOW else tree.plan.method


def _solver(tree: Tree, state: Joints, method: str, threads: int) -> Any:
    """A function (tau, bias, forces, first) → accelerations (B, nv); after the first, of the
    equations at rest without gravity.
    """
    q, v, _ = state.inputs
    if method == "crba":
        H = crba(tree, state.batch.rows["q"], threads=threads)
        return lambda tau, bias, forces, first: H.solve(tau - bias)
    armature = tree.armature.astype(q.dtype)
    if tree.floating_base:
        armature[0] = 1  # its joint does not exist, and must not move anything
    still = np.zeros_like(q)
    R = base_rotation(tree, state.batch.rows["q"]) if tree.floating_base else None
    run = {"sequential": aba_sequential, "levels": aba_levels, "heavy_path": aba_heavy_path}[
        method
    ].aba

    def solve(tau: np.ndarray, bias: np.ndarray, forces: np.ndarray, first: bool) -> np.ndarray:
        own = np.ascontiguousarray(tau[:, 5:] if tree.floating_base else tau)
        base = state.base if first else np.zeros_like(state.base)
        base_acceleration = np.zeros((len(q), 6), q.dtype)

        def settle(b: int, J: np.ndarray, p: np.ndarray) -> np.ndarray:
            if tree.floating_base:
                wrench = np.concatenate([tau[b, 3:6], tau[b, 0:3]]) - p
                base_acceleration[b] = np.linalg.solve(dense_inertia(J), wrench)
            else:
                base_acceleration[b] = base[b, 6:]
            acceleration: np.ndarray = base_acceleration[b].copy()
            return acceleration

        out = np.empty_like(q)
        run(
            tree,
            q,
            v if first else frozen(still),
            frozen(own),
            armature,
            base,
            forces,
            settle,
            out,
            threads,
        )
        if R is None:
            return out
        linear = base_acceleration[:, 3:]
        if first:
            linear = linear + np.einsum("bji,j->bi", R, tree.gravity).astype(q.dtype)
        return np.concatenate([linear, base_acceleration[:, :3], out[:, 1:]], axis=1)

    return solve


def dense_inertia(J: np.ndarray) -> np.ndarray:
    """The 6x6 matrix of an articulated inertia's 21 numbers."""
    A, B, M = (
        J[[0, 3, 4, 3, 1, 5, 4, 5, 2]].reshape(3, 3),
        J[6:15].reshape(3, 3),
        J[[15, 18, 19, 18, 16, 20, 19, 20, 17]].reshape(3, 3),
    )
    return np.block([[A, B], [B.T, M]])
