"""Names and numbers of MuJoCo's models that all readers of them need."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any

from rigidgrad.errors import ModelError, RigidgradError

FREE, BALL, SLIDE, HINGE = range(4)  # mjtJoint


def library() -> Any:
    """MuJoCo, or an error that says how to get it."""
    try:
        return importlib.import_module("mujoco")
    except ImportError:
        raise RigidgradError("this needs MuJoCo: pip install rigidgrad[plants]") from None


def number_of(kind: str, name: str) -> int:
    """A constant, as ("mjtTrn", "JOINT"); -1 where this version has none."""
    group = getattr(library(), kind)
    return int(
        getattr(group, f"{kind.replace('mjt', 'mj').upper().replace('MJ', 'mj')}_{name}", -1)
    )


def name_at(model: Any, at: int) -> str:
    """The name that begins there; empty where there is none."""
    raw = bytes(model.names[at : model.names.index(b"\0", at)])
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ModelError(
            f"the name {raw!r} is not a text in UTF-8; save the MJCF as UTF-8"
        ) from None


def unused(name: str, taken: Collection[str]) -> str:
    """The name, or one like it that is not taken."""
    while name in taken:
        name += "_"
    return name
