"""`robot.explain` tells what runs: the formulation that it names, recorded on its own, has the
operations of the compiled function.
"""

from __future__ import annotations

import importlib
import inspect
import json
from functools import partial

import pytest

import rigidgrad as rg
from rigidgrad.algorithms import catalog
from rigidgrad.cli import main
from rigidgrad.kernels import structure
from rigidgrad.model.canonical import canonical
from rigidgrad.program.fuse import fuse
from rigidgrad.program.recorder import record
from rigidgrad.runtime import formulation, frames


def options(robot, function):
    return {"frame": robot.frames[-1]} if catalog.FUNCTIONS[function].frame else {}


def named(entry):
    """The algorithm that an explanation, or a part of it, names."""
    module, _, name = entry.formulation.rpartition(".")
    return getattr(importlib.import_module(f"rigidgrad.algorithms.{module}"), name)


def gauge(model, entry):
    """The frames that it names, as the algorithms take them."""
    center = {body: own for own, bodies in entry.frames.items() for body in bodies}
    return tuple(model.body_names.index(center[body]) for body in model.body_names)


def recorded(model, function, entry, **given):
    """Operations of the named algorithm in the named frames, recorded here."""
    algorithm = named(entry)
    if "gauge" in inspect.signature(algorithm).parameters:
        algorithm = partial(algorithm, gauge=gauge(model, entry))
    kernel = catalog.bind(model, function, formulation=algorithm, **given)
    return dict(fuse(record(kernel.inputs, kernel.outputs, kernel.evaluate)).counts())


@pytest.mark.parametrize(
    "function", [name for name, function in catalog.FUNCTIONS.items() if not function.contacts]
)
def test_the_formulation_named_is_the_one_compiled(function):
    robot = rg.load("double_pendulum")
    given = options(robot, function)
    explanation = robot.explain(function, **given)
    assert explanation.counts == robot.compile(function, **given).counts
    own = recorded(
        canonical(robot.model) if explanation.canonical else robot.model,
        function,
        explanation,
        **given,
    )
    # compiled in another order
    assert own | {"live": explanation.counts["live"]} == explanation.counts
    assert explanation.formulation in str(explanation)


@pytest.mark.parametrize("function", ["rnea", "aba", "minv", "rnea_derivatives", "aba_derivatives"])
@pytest.mark.parametrize("name", ["iiwa14", "hyq"])
def test_what_lost_takes_at_least_as_many_instructions(name, function):
    robot = rg.load(name)
    explanation = robot.explain(function)
    assert explanation.counts == robot.compile(function).counts
    assert explanation.lost
    best = explanation.compared[0]
    assert all(
        lost.counts["instructions"] >= best.counts["instructions"] for lost in explanation.lost
    )
    compared = "rnea_derivatives" if "derivatives" in function else function
    for candidate in explanation.compared:
        assert recorded(canonical(robot.model), compared, candidate) == candidate.counts


@pytest.mark.parametrize("function", ["rnea_derivatives", "aba_derivatives", "fused_gradient"])
@pytest.mark.parametrize("name", ["iiwa14", "hyq"])
def test_arms_and_legs_do_not_run_textbook_gradients_which_take_more(name, function):
    robot = rg.load(name)
    explanation = robot.explain(function)
    assert explanation.formulation.startswith("fast.")
    kernel = catalog.bind(canonical(robot.model), function)
    textbook = fuse(record(kernel.inputs, kernel.outputs, kernel.evaluate)).counts()
    assert explanation.counts["instructions"] < textbook.instructions


def test_frames_are_shared_where_it_pays():
    robot = rg.load("iiwa14")
    explanation = robot.explain("aba_derivatives")
    shared = {center: bodies for center, bodies in explanation.frames.items() if len(bodies) > 1}
    assert gauge(robot.model, explanation) in set(frames.gauges(robot.model))
    assert shared == {"iiwa_link_6": ("iiwa_link_6", "iiwa_link_7")}
    assert "iiwa_link_6 + iiwa_link_7" in str(explanation)


@pytest.mark.parametrize("floating", [False, True])
@pytest.mark.parametrize("name", ["hyq", "iiwa14", "double_pendulum"])
def test_frames_counted_by_limbs_are_those_with_the_fewest_operations_of_the_whole_robot(
    name, floating
):
    model = canonical(rg.load(name, floating_base=floating, strict=False).model)
    whole = [candidate.counted().instructions for candidate in formulation.ranked_gauges(model)]
    assert whole == sorted(whole)


def test_equal_limbs_are_counted_once_and_a_limb_is_carried_by_a_chain():
    model = canonical(rg.load("hyq").model)
    counted = []

    def operations(part, gauge):
        counted.append(part)
        assert part.parents == (-1, *range(len(part.joints) - 1))
        return len(set(gauge))

    ranked = frames.ranked(model, operations)
    assert len(counted) < len(frames.limbs(model)) * len(ranked)
    assert len(set(ranked[0].gauge)) == min(len(set(gauge)) for gauge in frames.gauges(model))


def test_options_are_those_of_compile():
    robot = rg.load("double_pendulum")
    given = {
        "parameters": ("gravity",),
        "external": (robot.frames[-1],),
        "width": 2,
        "dtype": "float32",
        "threads": 1,
        "dtau": False,
    }
    explanation = robot.explain("aba_derivatives", **given)
    assert explanation.function == "aba_state_derivatives"
    assert (explanation.width, explanation.dtype, explanation.canonical) == (2, "float32", False)
    assert explanation.counts == robot.compile("aba_derivatives", **given).counts
    with pytest.raises(rg.errors.UnknownNameError, match="aba_derivatives"):
        robot.explain("aba_derivative")
    with pytest.raises(rg.errors.InputError, match="frame"):
        robot.explain("jacobian")


@pytest.mark.parametrize(
    "function", [name for name, function in catalog.FUNCTIONS.items() if not function.contacts]
)
def test_the_numpy_engine_runs_the_function_of_the_catalog(function):
    robot = rg.load("double_pendulum", engine="numpy")
    explanation = robot.explain(function, **options(robot, function))
    assert named(explanation) is catalog.FUNCTIONS[function].evaluate
    assert not explanation.lost
    assert "NumPy" in str(explanation)


def test_tiled_products_are_explained_as_a_kernel(monkeypatch):
    robot = rg.load("hyq")
    monkeypatch.setattr(formulation, "_TILED_FROM", 0)
    explanation = robot.explain("aba_derivatives")
    assert explanation.formulation == "fast.subtree_gradient.solve_parts"
    assert "products of matrices" in explanation.code
    counts = structure.counts(formulation.source_of(robot.model, "aba_derivatives"))
    assert (explanation.counts["flops"], explanation.counts["instructions"]) == (
        counts.flops,
        counts.instructions,
    )


def test_the_command_line_explains(capsys):
    assert main(["info", "double_pendulum", "--explain", "rnea"]) == 0
    assert capsys.readouterr().out == f"{rg.load('double_pendulum').explain('rnea')}\n"
    assert main(["info", "double_pendulum", "--explain", "jacobian:elbow", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["formulation"] == "kinematics.jacobian"
    assert main(["info", "double_pendulum", "--explain", "rnea", "--json"]) == 0
    assert [c["formulation"] for c in json.loads(capsys.readouterr().out)["lost"]] == [
        "textbook.rnea.rnea"
    ]
