"""The border between users' arrays and kernels: joints apart from a floating base, external forces,
methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rigidgrad.errors import InputError, unknown_name
from rigidgrad.runtime import arrays
from rigidgrad.trees.tree import Tree

if TYPE_CHECKING:
    from rigidgrad.runtime.arrays import Numbers

    External = Numbers | Mapping[int, Numbers]  # wrenches (…, 6) of all bodies, or by body

# of a state's number, and inertia and bias force of what hangs on its base: the base's acceleration
Settle = Callable[[int, np.ndarray, np.ndarray], np.ndarray]


class Joints(NamedTuple):
    """A batch of states as kernels read it: inputs (B, N) in the bodies' order, and what the roots
    stand on.
    """

    inputs: tuple[np.ndarray, ...]  # q, v, … without the floating base's numbers
    # (B, 12) velocity and acceleration [angular, linear] of the base, gravity included
    base: np.ndarray
    batch: arrays.Batch


def check_tree(tree: Any) -> None:
    if not isinstance(tree, Tree):
        raise InputError(
            f"a Tree is needed, not {type(tree).__name__}; trees.Tree.from_model(robot) makes one"
            " of a robot"
        )


def joints(tree: Tree, *, check: bool = False, gravity: bool = True, **inputs: Any) -> Joints:
    """Checks and broadcasts q and what is laid out like v."""
    check_tree(tree)
    shapes = {name: (tree.nq if name == "q" else tree.nv,) for name in inputs}
    batch = arrays.gather(inputs, shapes)
    if check:
        arrays.check_finite(batch)
        if tree.floating_base:
            length = np.linalg.norm(batch.rows["q"][:, 3:7], axis=1)
            bad = np.flatnonzero(abs(length - 1) > (1e-4 if batch.dtype == np.float32 else 1e-6))
            if bad.size:
                raise InputError(f"q: the base's quaternion has length {length[bad[0]]:.6g}, not 1")
    rows = batch.rows
    count = len(rows["q"])
    base = np.zeros((count, 12), batch.dtype)
    if not tree.floating_base:
        if gravity:
            base[:, 9:] = np.negative(tree.gravity)
        own = tuple(frozen(x) for x in rows.values())
        return Joints(own, base, batch)
    own = tuple(frozen(x[:, 6 if name == "q" else 5 :]) for name, x in rows.items())
    if gravity:
        R = base_rotation(tree, rows["q"])
        base[:, 9:] = -np.einsum("bji,j->bi", R, tree.gravity)
    if "v" in rows:
        base[:, 0:3], base[:, 3:6] = rows["v"][:, 3:6], rows["v"][:, 0:3]
    if "a" in rows:
        base[:, 6:9] += rows["a"][:, 3:6]
        base[:, 9:12] += rows["a"][:, 0:3]
    return Joints(own, base, batch)


def frozen(array: np.ndarray) -> np.ndarray:
    """A contiguous read-only view or copy: one type for all inputs, so that kernels are compiled
    once.
    """
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view


def base_rotation(tree: Tree, q: np.ndarray) -> np.ndarray:
    """(B, 3, 3): the floating base's axes in the world."""
    rows = quaternion_rows(*(q[:, k].astype(float) for k in (3, 4, 5, 6)))
    return tree.base_rotation @ np.moveaxis(np.array(rows), 2, 0)


def quaternion_rows(x: Any, y: Any, z: Any, w: Any) -> list[list[Any]]:
    """The rotation matrix of a quaternion."""
    return [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]


def joint_forces(tree: Tree, own: np.ndarray, base_force: np.ndarray) -> np.ndarray:
    """Forces (B, nv) from those of the joints and the wrench [moment, force] on a floating base."""
    if not tree.floating_base:
        return own
    return np.concatenate([base_force[:, 3:], base_force[:, :3], own[:, 1:]], axis=1)


def target(tree: Tree, state: Joints, out: Any) -> np.ndarray | None:
    """The user's own array as rows (B, N), where kernels can write into it; else None."""
    if out is None or tree.floating_base:
        return None
    array = arrays.allocate(state.batch, {"out": (tree.nv,)}, out)["out"]
    return array.reshape(-1, tree.nv) if array.flags.c_contiguous else None


def result(batch: arrays.Batch, rows: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Rows (B, …) in the user's batch axes and kind of array, or in the user's own array."""
    shape = rows.shape[1:]
    if out is not None:
        array = arrays.allocate(batch, {"out": shape}, out)["out"]
        if not np.may_share_memory(array, rows):
            array[...] = rows.reshape(batch.shape + shape)
        return out
    done = rows.reshape(batch.shape + shape)
    return batch.back(done) if batch.back else done


def external_forces(tree: Tree, external: Any, external_in: str, joints: Joints) -> np.ndarray:
    """(B, 6, N): [moment, force] in the frames that kernels use; empty without any."""
    dtype, count = joints.batch.dtype, len(joints.inputs[0])
    if external is None:
        return np.empty((0, 6, tree.bodies), dtype)
    if external_in not in ("body", "root"):
        raise unknown_name("frame for external forces", external_in, ("body", "root"))
    if isinstance(external, Mapping):
        array = np.zeros((*joints.batch.shape, tree.bodies, 6))
        for body, wrench in external.items():
            if not isinstance(body, int | np.integer) or not 0 <= body < tree.bodies:
                raise InputError(
                    f"external: there is no body {body!r}; there are 0 to {tree.bodies - 1}"
                )
            array[..., body, :] = _wrench(wrench, (*joints.batch.shape, 6))
    else:
        array = _wrench(external, (*joints.batch.shape, tree.bodies, 6))
    f = array[..., :3].reshape(count, tree.bodies, 3)
    n = array[..., 3:].reshape(count, tree.bodies, 3)
    if external_in == "root":
        from rigidgrad.trees.kinematics import placements

        R, p = placements(tree, joints)
        n = np.einsum("bnji,bnj->bni", R, n - np.cross(p, f))
        f = np.einsum("bnji,bnj->bni", R, f)
    elif tree.turn is not None:
        n, f = (np.einsum("nij,bnj->bni", tree.turn, x) for x in (n, f))
    return np.ascontiguousarray(np.moveaxis(np.concatenate([n, f], axis=2), 1, 2), dtype)


def _wrench(value: Any, shape: tuple[int, ...]) -> np.ndarray:
    array, _ = arrays.to_numpy("external", value)
    try:
        return np.broadcast_to(array, shape).astype(float)
    except ValueError:
        raise InputError(
            f"external has shape {array.shape}; expected {shape}, force first, or {{body: wrench"
            " (…, 6)}"
        ) from None
