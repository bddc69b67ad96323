"""A controller uses its solver by verbs, and its parts by what they offer: no file of control/mpc
reaches into another's fields.
"""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from test_mpc import drive, eight, reaching

import rigidgrad as rg
from rigidgrad.control import mpc
from rigidgrad.control.mpc import iterations
from rigidgrad.control.pddp import Run

FILES = sorted(Path(mpc.__file__).parent.glob("*.py"))
VERBS = {"forget", "warm_start", "cold_start", "follow", "linearize", "iterate", "result"}
VERBS |= {"count_from"}
OFFERED = VERBS | {"problem"}  # whose numbers the controller changes


def attributes(path):
    return [
        node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)
    ]


def name_of(node):
    """The last name of an expression: `run` of both `run` and `self.run`."""
    return (
        node.id
        if isinstance(node, ast.Name)
        else node.attr
        if isinstance(node, ast.Attribute)
        else ""
    )


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_an_underscore_belongs_to_one_file(path):
    found = attributes(path)
    own = {node.attr for node in found if name_of(node.value) in ("self", "cls")}
    for node in found:
        if node.attr.startswith("_") and not node.attr.startswith("__"):
            assert node.attr in own, f"{path.name}, line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_a_run_is_used_by_its_verbs_alone(path):
    for node in attributes(path):
        if name_of(node.value) in ("run", "_run"):
            assert node.attr in OFFERED, f"{path.name}, line {node.lineno}: {ast.unparse(node)}"


class VerbsOnly:
    """A run of which nothing else can be seen or set, whatever a caller names it."""

    __slots__ = ("_hidden",)

    def __init__(self, *arguments):
        object.__setattr__(self, "_hidden", Run(*arguments))

    def __getattribute__(self, name):
        if name.startswith("__") and name.endswith("__"):
            return object.__getattribute__(self, name)
        assert name in OFFERED, f"run.{name}"
        return getattr(object.__getattribute__(self, "_hidden"), name)

    def __setattr__(self, name, value):
        raise AssertionError(f"run.{name} = {value!r}")


@pytest.mark.parametrize(
    "limits", [None, rg.Limits(torque=True, position=True)], ids=["free", "limits"]
)
def test_verbs_are_all_that_a_controller_needs(monkeypatch, limits):
    """From cold, warm, prepared, with multipliers renewed: the controls are those of a run that
    hides nothing.
    """

    def controls():
        problem = reaching(steps=20, dt=0.025, limits=limits)
        controller = rg.MPC(
            problem, rg.PDDP(iterations=2), period=0.004, latency=0.004, target=eight
        )
        plant = rg.plants.Simulator(problem.system.robot, problem.start, dt=2e-3)
        drive(controller, plant, 0.1, lambda plant: controller.prepare(plant.time))
        assert not any(controller.counts.values()), controller.trouble
        return controller.log.u

    expected = controls()
    monkeypatch.setattr(iterations, "Run", VerbsOnly)
    np.testing.assert_array_equal(controls(), expected)
