"""What is measured: the robots, the functions, the batches, and what a contender offers."""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

import rigidgrad as rg

FUNCTIONS = {
    "rnea": "ID",
    "aba": "FD",
    "rnea_derivatives": "gradient of ID",
    "aba_derivatives": "gradient of FD",
}
ROBOTS = ("iiwa14", "hyq", "atlas", "hyq-floating", "atlas-floating")
SIZES = (1, 16, 64, 256, 4096, 65536)


def is_gradient(function: str) -> bool:
    return function.endswith("derivatives")


@dataclass(frozen=True)
class Subject:
    """One robot, fixed or floating: `hyq`, `hyq-floating`."""

    label: str

    @property
    def name(self) -> str:
        return self.label.removesuffix("-floating")

    @property
    def floating(self) -> bool:
        return self.label.endswith("-floating")

    @property
    def urdf(self) -> Path:
        return Path(
            str(importlib.resources.files("rigidgrad") / "model" / "robots" / f"{self.name}.urdf")
        )

    @cached_property
    def robot(self) -> rg.Robot:
        return rg.load(self.name, floating_base=self.floating)


class Batch(NamedTuple):
    """Inputs of a function, one state a row; `x` is the acceleration or the joint force."""

    q: np.ndarray
    v: np.ndarray
    x: np.ndarray

    @property
    def count(self) -> int:
        return len(self.q)


def random_batch(subject: Subject, function: str, count: int, seed: int = 0) -> Batch:
    state = subject.robot.random((count,), seed=seed)
    x = (
        state.tau
        if function.startswith("aba")
        else np.random.default_rng(seed + 1).uniform(-1, 1, state.v.shape)
    )
    return Batch(*(np.ascontiguousarray(array) for array in (state.q, state.v, x)))


def dense_outputs(
    subject: Subject, function: str, count: int, dtype: str = "float64"
) -> tuple[np.ndarray, ...]:
    nv = subject.robot.nv
    shapes = [(count, nv, nv)] * 3 if is_gradient(function) else [(count, nv)]
    return tuple(np.zeros(shape, dtype) for shape in shapes)


class Task(NamedTuple):
    """A function bound to a batch: `run(repeats)` evaluates it, `results()` shows what came out,
    dense and in our layout.
    """

    run: Callable[[int], None]
    results: Callable[[], tuple[np.ndarray, ...]]


class Contender(Protocol):
    """One way to evaluate a robot's functions."""

    name: str

    def offers(self, function: str, count: int) -> bool: ...

    def bind(self, function: str, batch: Batch, outputs: tuple[np.ndarray, ...]) -> Task: ...


class Missing(Exception):
    """A peer is not on this machine; the message says how to get it."""


def worst_error(task: Task, expected: tuple[np.ndarray, ...]) -> float:
    """Largest error of one run, relative to the largest entry of its array in that state."""
    task.run(1)
    worst = 0.0
    for ours, theirs in zip(expected, task.results(), strict=True):
        axes = tuple(range(1, ours.ndim))
        error = np.abs(theirs - ours).max(axis=axes) / np.abs(ours).max(axis=axes)
        worst = max(worst, float(error.max()))
    return worst
