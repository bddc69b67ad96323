"""Which frame of a robot does its work: what follows a target, and whose path is drawn, where
nobody names another.
"""

from __future__ import annotations

import re
from itertools import combinations

from rigidgrad.model.model import WORLD, Frame, Model

# the first that a robot has is taken
_NAMES = (
    ("tcp",),
    ("tool",),
    ("ee", "eef", "effector", "endeffector"),
    ("grasp", "grasping"),
    ("gripper",),
    ("hand", "palm"),
    ("flange",),
)
_RANK = {word: rank for rank, words in enumerate(_NAMES) for word in words}
_NEUTRAL = {
    "link",
    "frame",
    "body",
    "site",
    "point",
    "center",
    "centre",
    "tip",
    "left",
    "right",
    "l",
    "r",
}  # words that may follow
_FINGER = {"finger", "fingertip", "thumb", "knuckle", "jaw", "mover"}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def tool_frame(model: Model, *, base: bool = True) -> str:
    """The frame of a robot that a task is about.

    Of a free-flying robot its base, unless `base` is False. Else a moving frame named tcp, tool, ee
    (end_effector), grasp, gripper, hand or flange, in this order, as the last word but for words
    such as link, frame, left and numbers (`tool0`); of several the one after most joints. Else the
    last link fixed to the end of the longest chain of joints. Never a finger: one of a pair on
    prismatic joints, or of a joint and its mimic, or a link called so.
    """
    if not model.joints:
        return next(iter(model.frames))
    if base and model.joints[0].kind.flies:
        return model.body_names[0]
    bodies = [i for i in model.bodies if base or not model.joints[i].kind.flies] or list(
        model.bodies
    )
    bodies = [i for i in bodies if i not in fingers(model)] or bodies
    depth = [len(ancestors) for ancestors in model.ancestors]
    found = [
        f
        for f in model.frames.values()
        if f.kind != "joint" and f.body in bodies and _rank(f) is not None
    ]
    if found:
        best = min(found, key=lambda f: (_rank(f), -depth[f.body]))
        fixed = [f for f in found if f.body == best.body and _rank(f) == _rank(best)]
    else:
        last = max(bodies, key=lambda i: depth[i])
        fixed = [f for f in model.frames.values() if f.body == last and f.kind == "link"]
    # of those fixed to one body, the last in the description's order is the furthest out
    return fixed[-1].name


def _words(name: str) -> list[str]:
    """tool0 → tool; leftToolFrame → left, tool, frame."""
    return [word.lower() for word in _WORD.findall(name)]


def _rank(frame: Frame) -> int | None:
    words = _words(frame.name)
    while words and words[-1] in _NEUTRAL:
        words.pop()
    return _RANK.get(words[-1]) if words else None


def fingers(model: Model) -> set[int]:
    """Bodies of fingers: those called so; of two that move together on joints side by side, both;
    and all that hangs on them.
    """
    pairs = {i for i, name in enumerate(model.body_names) if _FINGER & set(_words(name))}
    for i, j in combinations(model.bodies, 2):
        a, b = model.joints[i], model.joints[j]
        side_by_side = i not in model.ancestors[j]
        coupled = a.q == b.q and (a.is_mimic or b.is_mimic)
        sliding = (
            a.kind.units == b.kind.units == ("m",) and model.parents[i] == model.parents[j] != WORLD
        )
        if side_by_side and (coupled or sliding):
            pairs |= {i, j}
    hanging = {i: [k for k in model.bodies if i in model.ancestors[k]] for i in pairs}
    # a bar of a parallel linkage has a mimic, too, but an arm of its own hangs on it
    own = {i for i in pairs if all(k in pairs or model.joints[k].is_mimic for k in hanging[i])}
    return {k for i in own for k in hanging[i]}
