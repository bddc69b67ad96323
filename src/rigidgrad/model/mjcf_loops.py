"""Equality constraints of MuJoCo's models that close loops: `connect` holds a point of a body on
another body, `weld` a whole frame.

MuJoCo states them by two bodies, with anchors in the axes of each, or by two sites. A loop of ours
holds two frames together; where a body's or a site's own frame is not the one that is held, a frame
`name:body` is added.
"""

from __future__ import annotations

import importlib
from typing import Any

from rigidgrad.model.description import FrameDescription, LoopDescription
from rigidgrad.model.pose import IDENTITY_POSE, Pose, pose_from_quaternion
from rigidgrad.model.xml import quoted

Held = tuple[int, Pose]  # a body, and the held frame in it


def read_loops(
    model: Any, bodies: list[str], names: list[str], frames: list[FrameDescription], taken: set[str]
) -> tuple[tuple[LoopDescription, ...], list[str]]:
    """The loops that are active, and what other equality constraints of bodies are called; frames
    that loops need are added to `frames`. Those of joints and tendons are for `mjcf_couplings`.

    names: of the constraints, empty where there is none; taken: names of all that is there already.
    """
    taken = {*taken, *(f.name for f in frames)}
    loops: list[LoopDescription] = []
    left_out: list[str] = []

    def placed(name: str, held: Held) -> str:
        """The name of a frame in this place: the body's own, a site's, or a new one."""
        body, pose = bodies[held[0]], held[1]
        if pose == IDENTITY_POSE:
            return body
        known = next((f.name for f in frames if f.parent == body and f.placement == pose), None)
        if known is None:
            known = f"{name}:{body}"
            while known in taken:
                known += "_"
            taken.add(known)
            frames.append(FrameDescription(known, body, pose))
        return known

    for k, given in enumerate(names):
        ends = _ends(model, k)
        if ends is None:
            kind = int(model.eq_type[k])
            if kind not in (_enum("mjtEq").mjEQ_JOINT, _enum("mjtEq").mjEQ_TENDON):
                left_out.append(f"equality constraint {quoted(given or str(k))}")
            continue
        name = given or f"{'weld' if _is_full(model, k) else 'connect'}{k}"
        first, second = (body for body, _ in ends)
        if not model.eq_active0[k]:
            left_out.append(f"inactive equality constraint {quoted(name)}")
        elif model.body_weldid[first] == model.body_weldid[second]:
            left_out.append(
                f"equality constraint {quoted(name)} between bodies that do not move against each"
                " other"
            )
        else:
            loops.append(
                LoopDescription(
                    name, placed(name, ends[0]), placed(name, ends[1]), _is_full(model, k)
                )
            )
    return tuple(loops), left_out


def _is_full(model: Any, k: int) -> bool:
    """Whether rotations are held, too; a weld whose torques have no scale is a connection."""
    return bool(int(model.eq_type[k]) == _enum("mjtEq").mjEQ_WELD and model.eq_data[k, 10] != 0)


def _ends(model: Any, k: int) -> tuple[Held, Held] | None:
    """The two frames that a constraint holds together; None for one that holds something else."""
    if int(model.eq_type[k]) not in (_enum("mjtEq").mjEQ_CONNECT, _enum("mjtEq").mjEQ_WELD):
        return None
    pair, data = (int(model.eq_obj1id[k]), int(model.eq_obj2id[k])), model.eq_data[k]
    full = _is_full(model, k)
    if int(model.eq_objtype[k]) == _enum("mjtObj").mjOBJ_SITE:
        first, second = (
            (int(model.site_bodyid[s]), _pose(model.site_pos[s], model.site_quat[s])) for s in pair
        )
        return first, second
    if int(model.eq_type[k]) == _enum("mjtEq").mjEQ_CONNECT:
        return (pair[0], _pose(data[:3])), (pair[1], _pose(data[3:6]))
    # of a weld, the second body's anchor comes first, then the pose of what it meets in the first
    # body
    return (pair[0], _pose(data[3:6], data[6:10] if full else None)), (pair[1], _pose(data[:3]))


def _pose(position: Any, quaternion: Any = None) -> Pose:
    w, x, y, z = (1.0, 0.0, 0.0, 0.0) if quaternion is None else quaternion.tolist()
    return pose_from_quaternion(tuple(p + 0.0 for p in position.tolist()), (x, y, z, w))


def _enum(name: str) -> Any:
    return getattr(importlib.import_module("mujoco"), name)
