"""Inverse dynamics of a tree: joint forces from positions, velocities and accelerations, by the
method that suits its shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.errors import InputError, unknown_name
from rigidgrad.trees import (
    rnea_euler_tour,
    rnea_heavy_path,
    rnea_levels,
    rnea_sequential,
)
from rigidgrad.trees.parallel import thread_count
from rigidgrad.trees.scans import BLOCK
from rigidgrad.trees.states import Joints, external_forces, joint_forces, joints, result, target
from rigidgrad.trees.tree import Tree

if TYPE_CHECKING:
    from rigidgrad.runtime.arrays import Numbers
    from rigidgrad.trees.states import External

METHODS = ("sequential", "levels", "heavy_path", "euler_tour")


def rnea(
    tree: Tree,
    q: Numbers,
    v: Numbers,
    a: Numbers,
    *,
    method: str | None = None,
    device: str | None = None,
    external: External | None = None,
    external_in: str = "body",
    threads: int | None = None,
    out: np.ndarray | None = None,
    check: bool = False,
    variant: str = "simulated",
    block: int = BLOCK,
) -> np.ndarray:
    """The joint forces tau (…, nv) that cause the accelerations a; q (…, nq), v and a (…, nv), any
    batch axes in front.

    method: "sequential", "levels", "heavy_path" or "euler_tour", which loses digits; the plan's
    choice if left out. external: wrenches (…, N, 6) on all bodies, or {body: wrench (…, 6)}, force
    first, in body frames, or in the root's with external_in="root". float32 in gives float32 out.
    variant, block: the scan of the Euler tour: "simulated", "native", "work_efficient" or
    "blocked". device: "cuda" or "opencl" computes there, by all but "sequential". `threads`: all
    cores unless given; `check` raises on numbers of `tree`'s state that are not finite.

    Example:

        >>> import rigidgrad as rg
        >>> tree = rg.trees.auto_tree(1000, branching=2)
        >>> still = np.zeros(tree.nv)
        >>> rg.trees.rnea(tree, still, still, still).shape
        (1000,)
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
    if device is not None:
        extra |= {"device": device, "method": method}
    tau, base_force = _newton_euler(
        tree, state, forces, how, count, target(tree, state, out), **extra
    )
    if tree.has_armature:
        tau += tree.armature.astype(tau.dtype) * state.inputs[2]
    return result(state.batch, joint_forces(tree, tau, base_force), out)


def bias(tree: Tree, q: Numbers, v: Numbers, **options: Any) -> np.ndarray:
    """Coriolis, centrifugal and gravity forces, minus external ones: `rnea` with a = 0, and its
    options. `tree`, `q` and `v` as for `rnea`.
    """
    state = joints(tree, q=q, v=v)
    zero = np.zeros(tree.nv, state.batch.dtype)
    return rnea(tree, q, v, zero, **options)


def _chosen(tree: Tree, method: str | None) -> str:
    if method is not None and method not in METHODS:
        raise unknown_name("method", method, METHODS)
    return method or tree.plan.method


def _newton_euler(
    tree: Tree,
    state: Joints,
    forces: np.ndarray,
    how: str,
    threads: int,
    out: np.ndarray | None,
    **extra: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """tau (B, N) of the joints, armature aside, and the wrench (B, 6) on the base."""
    q, v, a = state.inputs
    tau = np.empty(q.shape, q.dtype) if out is None else out
    base_force = np.empty((len(q), 6), q.dtype)
    if "device" in extra:
        from rigidgrad.trees import device as on_device

        on_device.rnea(tree, q, v, a, state.base, forces, tau, base_force, **extra)
    elif how == "euler_tour":
        rnea_euler_tour.rnea(
            tree,
            tree.plan.rows(q.dtype),
            q,
            v,
            a,
            state.base,
            forces,
            tau,
            base_force,
            threads,
            **extra,
        )
    else:
        walks = {"sequential": rnea_sequential, "levels": rnea_levels}
        walked = walks.get(how, rnea_heavy_path).rnea
        walked(tree.plan, q, v, a, state.base, forces, tau, base_force, threads)
    return tau, base_force
