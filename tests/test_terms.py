"""Terms and the keys of tasks: what a constructor says is what a file may say, with the same
defaults, and what the page about it lists.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pickle
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad import schema
from rigidgrad.control import limits, terms
from rigidgrad.tasks import Task, keys

PAGE = (Path(__file__).parents[1] / "docs" / "command_line.md").read_text()
# of each cost, what a task must say, in Python
NEEDED = {
    "reach": {"frame": "lower_rod", "target": [0.4, 0.0, -0.9]},
    "state": {"goal": np.zeros(4)},
    "effort": {},
    "control_rate": {},
    "duration": {},
    "center_of_mass": {"target": [0.1, 0.0, -0.5]},
    "centroidal_momentum": {},
    "frame_velocity": {"frame": "lower_rod"},
    "height": {"frame": "lower_rod"},
    "joint_limits": {},
}
# of a contact, which only phases have: tests/test_phase_tasks.py
OF_A_CONTACT = {"friction_cone", "center_of_pressure", "contact_force"}
# of links that have shapes: tests/test_self_avoidance.py
OF_SHAPES = {"clearance"}


def task(*costs, **more) -> Task:
    return Task({"robot": "double_pendulum", "steps": 3, "dt": 0.1, "costs": list(costs)} | more)


def in_a_file(values):
    return {k: "start" if k == "goal" else v for k, v in values.items()}


def arguments(made):
    return inspect.signature(made).parameters


def same(a, b):
    """Equal attributes, with arrays and lists as they are written."""
    assert vars(a).keys() == vars(b).keys()
    for name, value in vars(a).items():
        np.testing.assert_array_equal(value, getattr(b, name), err_msg=name)


# --- one place for names and defaults -------------------------------------------------------------


@pytest.mark.parametrize("kind", NEEDED)
def test_what_a_task_leaves_out_is_what_python_leaves_out(kind):
    limited = {"robot": "iiwa14"} if kind == "joint_limits" else {}
    same(
        task({"type": kind, "weight": 2.0} | in_a_file(NEEDED[kind]), **limited).costs[0],
        keys.COST_TYPES[kind](**NEEDED[kind], weight=2.0),
    )


def test_limits_that_a_task_leaves_out_are_what_python_leaves_out():
    same(task({"type": "effort", "weight": 1.0}, limits={}).limits, rg.Limits())
    around = {
        "obstacles": [{"center": [2.0, 2.0, 2.0], "radius": 0.1}],
        "spheres": [{"frame": "lower_rod", "radius": 0.1}],
    }
    found = task({"type": "effort", "weight": 1.0}, limits=around).limits
    assert found.obstacles == (rg.Obstacle([2.0, 2.0, 2.0], 0.1),) and found.spheres == (
        rg.LinkSphere("lower_rod", 0.1),
    )


def test_tasks_have_every_cost_that_a_file_can_describe():
    assert set(keys.COST_TYPES) == set(NEEDED) | OF_A_CONTACT | OF_SHAPES
    assert not schema.is_described_by_keys(rg.costs.Custom)  # a function is no value of a file


@pytest.mark.parametrize("made", [*keys.COST_TYPES.values(), rg.Obstacle, rg.LinkSphere])
def test_every_argument_is_a_key_and_has_a_line_about_it(made):
    assert list(schema.keys_of(made)) == list(arguments(made))
    assert all(key.about for key in schema.keys_of(made).values())


def test_limits_have_every_argument_as_a_key():
    assert set(keys.LIMITS) == set(arguments(rg.Limits))


# tables whose keys are listed in tasks, and what they become; None leaves a choice to what is made
LISTED = [
    (keys.MPC, rg.MPC),
    (keys.FAULTS, rg.plants.Faults),
    (keys.FRICTION, rg.plants.Friction),
    (keys.PUSH, rg.plants.Push),
    (keys.PLANTS["simulator"], rg.plants.Simulator),
    (keys.PLANTS["mujoco"], rg.plants.MuJoCo),
    (keys.TASK, rg.Problem),
    (keys.TASK, rg.load),
]


@pytest.mark.parametrize(("said", "made"), LISTED, ids=lambda x: getattr(x, "__name__", ""))
def test_defaults_of_other_tables_are_those_of_python(said, made):
    given = {name: key.default for name, key in said.items() if key.default is not None}
    ours = {
        name: a.default for name, a in arguments(made).items() if a.default not in (a.empty, None)
    }
    shared = given.keys() & ours.keys()
    assert shared
    assert json.dumps({name: given[name] for name in shared}) == json.dumps(
        {name: ours[name] for name in shared}
    )


def test_a_term_that_needs_a_weight_says_so():
    with pytest.raises(
        rg.errors.UsageError, match=r"costs\[0\]: all its weights are zero: give it 'weight'$"
    ):
        task({"type": "effort"})


# --- a new cost -----------------------------------------------------------------------------------

HEIGHT = """
from __future__ import annotations

from typing import Annotated, Any

from rigidgrad.control.terms.center_of_mass import CenterOfMass
from rigidgrad.control.terms.cost import Final, Weight
from rigidgrad.control.terms.notation import FRAME
from rigidgrad.schema import number


class MassHeight(CenterOfMass):
    def __init__(
        self,
        height: Annotated[float, number(least=0), "metres"],
        above: Annotated[str, FRAME, "the frame that it is above of"] = "world",
        weight: Weight = 0.0,
        final: Final = 0.5,
    ):
        super().__init__((0.0, 0.0, height), weight, final)
"""
USE = """
from rigidgrad.tasks import Task

def problem(**cost):
    try:
        cost = Task({"robot": "double_pendulum", "steps": 3, "dt": 0.1, "costs": [{"type": "mass_height"} | cost]}).costs[0]
        print(type(cost).__name__, cost.target, cost.weight, cost.final)
    except Exception as error:
        print(error)

problem(height=1)
problem(height=-1)
problem()
problem(height=1, abov="x")
problem(height=1, above="lower_rot")
"""


def test_a_file_with_a_new_cost_is_all_that_tasks_need(tmp_path):
    package = Path(rg.__file__).parent
    shutil.copytree(package, tmp_path / "rigidgrad", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "rigidgrad/control/terms/mass_height.py").write_text(HEIGHT)
    offered = tmp_path / "rigidgrad/control/costs.py"
    line = "from rigidgrad.control.terms.mass_height import MassHeight\n"
    offered.write_text(
        offered.read_text().replace(
            "from rigidgrad.control.terms.reach", line + "from rigidgrad.control.terms.reach"
        )
    )
    offered.write_text(
        offered.read_text().replace("(\n    Reach,", "(\n    MassHeight,\n    Reach,")
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", USE],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=True,
    )
    assert run.stdout.splitlines() == [
        "MassHeight (0.0, 0.0, 1.0) 0.0 0.5",
        "task: costs[0].height: this is -1; it must be a number at least 0",
        "task: costs[0]: 'height' is missing: it is a number at least 0",
        (
            "task: costs[0]: no key of cost of type 'mass_height' is called 'abov'. Did you mean"
            " 'above'?"
        ),
        (
            "task: costs[0].above: no frame is called 'lower_rot'. Did you mean 'lower_rod' or"
            " 'upper_rod'?"
        ),
    ]


def test_every_cost_and_constraint_has_its_place_among_public_names():
    for module in pkgutil.iter_modules(terms.__path__):
        found = importlib.import_module(f"{terms.__name__}.{module.name}")
        for name, made in inspect.getmembers(found, inspect.isclass):
            if (
                made.__module__ == found.__name__
                and issubclass(made, rg.costs.Cost)
                and not inspect.isabstract(made)
            ):
                assert made in rg.costs.COSTS and getattr(rg.costs, name) is made
            if (
                made.__module__ == found.__name__
                and issubclass(made, limits.Constraint)
                and module.name not in ("constraint", "limit")
            ):
                assert getattr(limits, name) is made


# --- the page about it ----------------------------------------------------------------------------


def row(*cells, key):
    default = (
        "needed"
        if key.required
        else "none"
        if key.default is None
        else f"`{json.dumps(key.default)}`"
    )
    return "| " + " | ".join([*(f"`{cell}`" for cell in cells), default, key.about]) + " |"


def test_the_page_lists_the_keys_of_costs_and_limits_with_their_defaults():
    rows = [
        row(kind, name, key=key)
        for kind, table in keys.COSTS.items()
        for name, key in table.items()
    ]
    assert "\n".join(rows) + "\n\n" in PAGE
    rows = []
    for name, key in keys.LIMITS.items():
        rows.append(row(name, key=key))
        for inner, made in {"obstacles": rg.Obstacle, "spheres": rg.LinkSphere}.items():
            rows += [
                row(f"{name}.{n}", key=k) for n, k in schema.keys_of(made).items() if name == inner
            ]
    rows += [row(f"constraints.{n}", key=k) for n, k in keys.BETWEEN.items()]
    assert "\n".join(rows) + "\n\n" in PAGE


# --- what was stored ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "costs.State",
        "costs.Reach",
        "costs.Custom",
        "limits.Obstacle",
        "limits.Inequality",
        "limits.Position",
    ],
)
def test_pickles_find_public_names(name):
    module, made = name.split(".")
    assert pickle.loads(f"crigidgrad.control.{module}\n{made}\n.".encode()).__name__ == made


def test_terms_survive_pickling():
    for term in (
        rg.costs.Reach("lower_rod", (0.4, 0.0, -0.9), weight=1.0),
        rg.Limits(torque=1.0),
        rg.LinkSphere("lower_rod", 0.1),
    ):
        same(pickle.loads(pickle.dumps(term)), term)
    assert repr(rg.Obstacle((1, 2, 3), 0.5)) == "Obstacle(center=(1, 2, 3), radius=0.5)"
