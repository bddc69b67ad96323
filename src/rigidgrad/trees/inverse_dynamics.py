"""Inverse dynamics of a tree: joint forces from positions, velocities and accelerations, by the method that suits its shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from rigidgrad.errors import InputError, unknown_name
from rigidgrad.trees import rnea_euler_tour, rnea_heavy_path, rnea_levels, rnea_sequential
from rigidgrad.trees.parallel import parts, spread, thread_count
from rigidgrad.trees.scans import BLOCK
from rigidgrad.trees.states import Joints, external_forces, joint_forces, joints, result, target
from rigidgrad.trees.tree import Tree

METHODS = ("sequential", "levels", "heavy_path", "euler_tour")


def rnea(
    tree: Tree,
    q,
    v,
    a,
    *,
    method: str | None = None,
    external: Any = None,
    external_in: str = "body",
    threads: int | None = None,
    out: Any = None,
    check: bool = False,
    variant: str = "simulated",
    block: int = BLOCK,
) -> Any:
    """The joint forces tau (…, nv) that cause the accelerations a; q (…, nq), v and a (…, nv), any batch axes in front.

    method: "sequential", "levels", "heavy_path" or "euler_tour", which loses digits; the plan's choice if left out. external: wrenches (…, N, 6) on all bodies, or
    {body: wrench (…, 6)}, force first, in body frames, or in the root's with external_in="root". float32 in gives float32 out.
    variant, block: the scan of the Euler tour: "simulated", "native", "work_efficient" or "blocked".
    """
    state = joints(tree, check=check, q=q, v=v, a=a)
    count = thread_count(threads)
    how = _chosen(tree, method)
    if variant not in rnea_euler_tour.VARIANTS:
        raise unknown_name("variant", variant, rnea_euler_tour.VARIANTS)
    if block < 1:
        raise InputError(f"a block has at least one row, not {block}")
    forces = external_forces(tree, external, external_in, state)
    extra = {"variant": variant, "block": block} if how == "euler_tour" else {}
    tau, base_force = _newton_euler(tree, state, forces, how, count, target(tree, state, out), **extra)
    if tree.has_armature:
        tau += tree.armature.astype(tau.dtype) * state.inputs[2]
    return result(state.batch, joint_forces(tree, tau, base_force), out)


def bias(tree: Tree, q, v, **options: Any) -> Any:
    """Coriolis, centrifugal and gravity forces, minus external ones: `rnea` with a = 0, and its options."""
    state = joints(tree, q=q, v=v)
    zero = np.zeros(tree.nv, state.batch.dtype)
    return rnea(tree, q, v, zero, **options)


def _chosen(tree: Tree, method: str | None) -> str:
    if method is not None and method not in METHODS:
        raise unknown_name("method", method, METHODS)
    return method or tree.plan.method


def _newton_euler(
    tree: Tree, state: Joints, forces: np.ndarray, method: str, threads: int, out: np.ndarray | None, **extra: Any
) -> tuple[np.ndarray, np.ndarray]:
    """tau (B, N) of the joints, armature aside, and the wrench (B, 6) on the base."""
    q, v, a = state.inputs
    tau = np.empty(q.shape, q.dtype) if out is None else out
    base_force = np.empty((len(q), 6), q.dtype)
    if method == "levels":
        rnea_levels.rnea(tree.plan, q, v, a, state.base, forces, tau, base_force, threads)
    elif method == "heavy_path":
        rnea_heavy_path.rnea(tree.plan, q, v, a, state.base, forces, tau, base_force, threads)
    elif method == "euler_tour":
        rnea_euler_tour.rnea(tree, tree.plan.rows(q.dtype), q, v, a, state.base, forces, tau, base_force, threads, **extra)
    else:
        _sequential(tree, q, v, a, state.base, forces, tau, base_force, threads)
    return tau, base_force


def _sequential(tree: Tree, q, v, a, base, forces, tau, base_force, threads: int) -> None:
    topology, plan = tree.topology, tree.plan
    ranges = parts(len(q), threads if q.size > 20_000 else 1)
    with plan.workspace((max(1, len(ranges)), tree.bodies, 30), q.dtype) as work:
        tables = topology.parents, topology.order, plan.rows(q.dtype)

        def some(part: int, first: int, last: int) -> None:
            rnea_sequential.rnea(first, last, *tables, q, v, a, base, forces, work[part], tau, base_force)

        spread(threads, some, ranges)
