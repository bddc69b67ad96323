"""Other libraries, where they are installed, one state a Python call. Pinocchio reads a URDF
itself, so that it can tell whether we read it right.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from rigidgrad.errors import RigidgradError
from rigidgrad.interop import pinocchio as to_pinocchio
from rigidgrad.interop.states import states
from rigidgrad.model.mjcf_names import library
from rigidgrad.model.source import bundled
from rigidgrad.model.xml import root_tag
from rigidgrad.robot import Robot


class Absent(Exception):
    """A peer that cannot be asked; the message says why."""


class Peer:
    """A robot in another library, with functions of one state there."""

    name: str
    model: Any
    calls: dict[str, Callable[..., Any]]

    def __init__(self, robot: Robot, source: str):
        try:
            self._open(robot, source)
            self._states = states(robot, self.model)
        except RigidgradError as error:
            raise Absent(str(error)) from None

    def _open(self, robot: Robot, source: str) -> None:
        raise NotImplementedError

    def inputs(self, function: str, *arrays: np.ndarray) -> list[np.ndarray]:
        """A batch of inputs of a function, q, v and a or tau as far as it takes them, in this
        library's layout.
        """
        last = "tau" if function.startswith("aba") else "a"
        given = dict(zip(("q", "v", last), arrays, strict=False))
        return [x for x in self._states.to(**given) if x is not None]


class Pinocchio(Peer):
    name = "Pinocchio"

    def _open(self, robot: Robot, source: str) -> None:
        pin = self.pin = to_pinocchio.library()
        text = _text(source)
        if robot.model.has_mimic or root_tag(text) != "robot":
            self.model = robot.to_pinocchio()
        else:
            root = [pin.JointModelFreeFlyer()] if robot.model.floating_base else []
            try:
                self.model = pin.buildModelFromXML(text, *root)
            except Exception as error:  # Boost's and urdfdom's are of many kinds
                raise Absent(f"Pinocchio does not read it: {error}") from None
            self.model.gravity.linear[:] = robot.model.gravity
            if self.model.nv == robot.nv:
                self.model.armature[:] = robot.model.armature
        model, data = self.model, self.model.createData()
        self.calls = {
            "rnea": lambda q, v, a: pin.rnea(model, data, q, v, a),
            "aba": lambda q, v, tau: pin.aba(model, data, q, v, tau),
            "crba": lambda q: pin.crba(model, data, q),
            "minv": lambda q: pin.computeMinverse(model, data, q),
            "rnea_derivatives": lambda q, v, a: pin.computeRNEADerivatives(model, data, q, v, a),
            "aba_derivatives": lambda q, v, tau: pin.computeABADerivatives(model, data, q, v, tau),
        }

    def results(self, function: str, *arrays: np.ndarray) -> list[np.ndarray]:
        """A function's outputs for a batch, as ours come: full matrices, positions varied in the
        tangent space.
        """
        rows = []
        for state in zip(*self.inputs(function, *arrays), strict=True):
            result = self.calls[function](*state)
            parts = (
                [np.array(x) for x in result]
                if isinstance(result, tuple | list)
                else [np.array(result)]
            )
            symmetric = function in ("crba", "minv")
            rows.append([_filled(x) if symmetric or k == 2 else x for k, x in enumerate(parts)])
        return [np.array(x) for x in zip(*rows, strict=True)]


class MuJoCo(Peer):
    """Its bodies come from us; nothing is in contact, and limits are not felt."""

    name = "MuJoCo"

    def _open(self, robot: Robot, source: str) -> None:
        mujoco = library()
        model = self.model = robot.to_mujoco()
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
        data = mujoco.MjData(model)

        def inverse(q: np.ndarray, v: np.ndarray, a: np.ndarray) -> Any:
            data.qpos, data.qvel, data.qacc = q, v, a
            mujoco.mj_inverse(model, data)
            return data.qfrc_inverse

        def forward(q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> Any:
            data.qpos, data.qvel, data.qfrc_applied = q, v, tau
            mujoco.mj_forward(model, data)
            return data.qacc

        self.calls = {"rnea": inverse, "aba": forward}


PEERS: tuple[type[Peer], ...] = (Pinocchio, MuJoCo)


def _text(source: str) -> str:
    if source in bundled():
        return (resources.files("rigidgrad.model") / "robots" / f"{source}.urdf").read_text(
            encoding="utf-8"
        )
    return Path(source).read_text(encoding="utf-8", errors="replace")


def _filled(matrix: np.ndarray) -> np.ndarray:
    """Pinocchio fills the upper triangle of symmetric matrices."""
    result: np.ndarray = np.triu(matrix) + np.triu(matrix, 1).T
    return result
