"""Other libraries, where they are installed: Pinocchio reads the robot's own file, MuJoCo gets its bodies from us. One state a Python call."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from rigidgrad.model.source import bundled
from rigidgrad.robot import Robot

HOW = {"Pinocchio": "pip install pin", "MuJoCo": "pip install 'rigidgrad[plants]'"}


class Absent(Exception):
    """A peer that cannot be asked; the message says why."""


class Pinocchio:
    """The same URDF, read by Pinocchio."""

    name = "Pinocchio"

    def __init__(self, robot: Robot, source: str):
        pin = self.pin = _library("pinocchio", self.name)
        own = robot.model
        if own.has_mimic:
            raise Absent("the robot has mimic joints, which Pinocchio reads as free ones")
        root = [pin.JointModelFreeFlyer()] if own.floating_base else []
        try:
            self.model = pin.buildModelFromXML(_urdf(source), *root)
        except Exception as error:  # Boost's and urdfdom's are of many kinds
            raise Absent(f"Pinocchio does not read it: {error}") from None
        if tuple(self.model.names)[1:] != robot.joints:
            raise Absent("Pinocchio finds other joints in it")
        self.model.gravity.linear[:] = own.gravity
        self.model.armature[:] = own.armature
        self.data = self.model.createData()
        self._angles = [j.q for j in own.joints if j.type == "continuous"]

    def positions(self, q: np.ndarray) -> np.ndarray:
        """Ours as Pinocchio has them: a continuous joint is (cos, sin) there."""
        columns: list[np.ndarray] = []
        for k in range(q.shape[1]):
            columns += [np.cos(q[:, k]), np.sin(q[:, k])] if k in self._angles else [q[:, k]]
        return np.stack(columns, axis=1)

    def call(self, function: str) -> Callable[..., Any] | None:
        """A function of one state, in Pinocchio's positions."""
        pin, model, data = self.pin, self.model, self.data
        calls: dict[str, Callable[..., Any]] = {
            "rnea": lambda q, v, a: pin.rnea(model, data, q, v, a),
            "aba": lambda q, v, tau: pin.aba(model, data, q, v, tau),
            "crba": lambda q: pin.crba(model, data, q),
            "minv": lambda q: pin.computeMinverse(model, data, q),
            "rnea_derivatives": lambda q, v, a: pin.computeRNEADerivatives(model, data, q, v, a),
            "aba_derivatives": lambda q, v, tau: pin.computeABADerivatives(model, data, q, v, tau),
        }
        return calls.get(function)

    def results(self, function: str, q: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
        """A function's outputs for a batch, as ours come: full matrices, positions varied in the tangent space."""
        call = self.call(function)
        assert call is not None
        rows = []
        for state in zip(self.positions(q), *others, strict=True):
            result = call(*state)
            parts = [np.array(x) for x in result] if isinstance(result, tuple | list) else [np.array(result)]
            rows.append([_filled(x) if x.ndim == 2 and (function in ("crba", "minv") or k == 2) else x for k, x in enumerate(parts)])
        return [np.array(x) for x in zip(*rows, strict=True)]


class MuJoCo:
    """The same bodies in MuJoCo, without contacts."""

    name = "MuJoCo"

    def __init__(self, robot: Robot, source: str):
        from rigidgrad.errors import RigidgradError
        from rigidgrad.plants.mujoco import MuJoCo as Plant

        mujoco = self.mujoco = _library("mujoco", self.name)
        try:
            self.plant = Plant(robot, np.r_[robot.neutral(), np.zeros(robot.nv)])
        except RigidgradError as error:
            raise Absent(str(error)) from None
        if any(j.nq != 1 for j in robot.model.joints):
            raise Absent("positions with quaternions are laid out otherwise there; only robots with joints of one freedom are compared")
        self.model, self.data = self.plant.model, mujoco.MjData(self.plant.model)

    def positions(self, q: np.ndarray) -> np.ndarray:
        return q

    def call(self, function: str) -> Callable[..., Any] | None:
        mujoco, model, data = self.mujoco, self.model, self.data

        def inverse(q: np.ndarray, v: np.ndarray, a: np.ndarray) -> Any:
            data.qpos, data.qvel, data.qacc = q, v, a
            mujoco.mj_inverse(model, data)
            return data.qfrc_inverse

        def forward(q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> Any:
            data.qpos, data.qvel, data.qfrc_applied = q, v, tau
            mujoco.mj_forward(model, data)
            return data.qacc

        calls: dict[str, Callable[..., Any]] = {"rnea": inverse, "aba": forward}
        return calls.get(function)


PEERS: tuple[type[Pinocchio] | type[MuJoCo], ...] = (Pinocchio, MuJoCo)


def _library(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise Absent(f"{name} is not installed: {HOW[name]}") from None


def _urdf(source: str) -> str:
    if source in bundled():
        return (resources.files("rigidgrad.model") / "robots" / f"{source}.urdf").read_text(encoding="utf-8")
    return Path(source).read_text(encoding="utf-8", errors="replace")


def _filled(matrix: np.ndarray) -> np.ndarray:
    """Pinocchio fills the upper triangle of symmetric matrices."""
    upper = np.triu(matrix)
    return upper + np.triu(matrix, 1).T
