"""Tasks with phases: what a file says is what Python says, the commands work on it, and mistakes
are told in the words of the file.
"""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hopper import DRIVEN, START, TASK, foot, hopper
from test_terms import row

import rigidgrad as rg
from rigidgrad.cli import main
from rigidgrad.control.terms.notation import CONTACT, LOOP
from rigidgrad.tasks import Task, TaskError, keys, load_task


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("hopper.urdf").write_text(hopper().to_urdf())
    Path("hop.toml").write_text(TASK)
    return "hop.toml"


def test_a_file_says_what_python_says(file):
    task = load_task(file)
    robot, contact, costs = task.robot, foot(), rg.costs
    same = rg.Problem(
        robot,
        task.start,
        phases=[
            rg.Phase(
                8,
                [contact],
                [
                    costs.CenterOfMass([0.1, 0.0, 0.34], [10.0, 0.0, 10.0]),
                    costs.FrictionCone(contact, 1.0, facets=None),
                ],
                rg.Limits(torque=40.0),
                dt=0.02,
            ),
            rg.Impact([contact], restitution=0.25),
            rg.Phase(
                6,
                costs=[
                    costs.Height("foot", 0.05, 10.0),
                    costs.State(
                        task.start, [0.0] * 4 + [0.1] * 4, 1.0, activation=costs.Huber(0.5)
                    ),
                ],
            ),
        ],
        dt=0.01,
        costs=[costs.Effort(1e-3)],
        actuation=DRIVEN,
    )
    assert task.problem.programs is same.programs
    np.testing.assert_array_equal(task.problem.p, same.p)
    np.testing.assert_array_equal(task.problem.h, same.h)
    np.testing.assert_array_equal(task.problem.bounds, same.bounds)
    assert task.steps == 15 and task.duration == pytest.approx(0.22)


def test_the_commands_take_it(file, capsys):
    assert main(["solve", file, "--report", "page.html"]) == 0
    said = capsys.readouterr().out
    assert "14 steps, 0.22 s, 1 impact" in said and "nothing holds it" not in said
    with np.load("solution.npz") as saved:
        np.testing.assert_allclose(saved["t"], load_task(file).problem.times)
    assert main(["view", file, "solution.npz", "--html", "motion.html"]) == 0
    np.savez("rows.npz", target_2_1=np.array([START, START]))
    assert main(["solve", file, "--rows", "rows.npz", "--out", "many", "--quiet"]) == 0


def test_keys_are_those_of_python():
    def names(made):
        return set(inspect.signature(made).parameters)

    assert set(keys.PHASE) == names(rg.Phase) and set(keys.IMPACT) == names(rg.Impact)
    assert set(CONTACT) == {f.name for f in dataclasses.fields(rg.Contact)}
    assert set(LOOP) == {f.name for f in dataclasses.fields(rg.Loop)}
    page = (Path(__file__).parents[1] / "docs" / "command_line.md").read_text()
    rows = []
    for table, kind in ((keys.PHASE, "phase"), (keys.IMPACT, "impact")):
        for name, key in table.items():
            rows.append(row(kind, name, key=key))
            rows += [
                row(kind, f"{made}.{n}", key=k)
                for made, keys_of in (("contacts", CONTACT), ("loops", LOOP))
                for n, k in keys_of.items()
                if (kind, name) == ("phase", "contacts")
            ]
    assert "\n".join(rows) + "\n\n" in page


def test_a_contact_may_be_the_name_of_its_frame(file):
    data = tomllib.loads(TASK)
    for phase in data["phases"][:2]:
        phase["contacts"] = ["foot"]
    (contact,) = Task(data).phases[0].contacts
    assert (
        contact.constraint == rg.Contact("foot").constraint
        and contact.friction == rg.Contact("foot").friction
    )


def changed(path, value):
    """The task with another value; None takes the key away."""
    data = tomllib.loads(TASK)
    *way, last = path
    place = data
    for key in way:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return data


WRONG = [
    (("phases", 0, "contacts"), ["paw"], r"task: phases\[0\].contacts: .*'paw'"),
    (
        ("phases", 0, "contacts"),
        "foot",
        (
            r"phases\[0\].contacts: this is \"foot\"; it must be an array, each entry the name"
            r" of a frame, or a table"
        ),
    ),
    (
        ("phases", 0, "contacts"),
        [{"frame": "foot", "grip": 1.0}],
        r"phases\[0\].contacts\[0\]: no key of .* is called 'grip'",
    ),
    (
        ("phases", 0, "contacts"),
        [{"kind": "point"}],
        r"phases\[0\].contacts\[0\]: 'frame' is missing",
    ),
    (
        ("phases", 0, "contacts"),
        [{"frame": "foot", "kind": "line"}],
        r"contacts\[0\].kind: no choice is called 'line'",
    ),
    (("phases", 0, "contacts"), [{"frame": "foot", "gains": [1.0, 1.0]}], r"place = \[x, y, z\]"),
    (("phases", 0, "contacts"), ["foot", "foot"], r"phases\[0\].contacts: .*twice"),
    (
        ("phases", 0, "costs", 1, "contact"),
        "body",
        (
            r"phases\[0\].costs\[1\].contact: frame 'body' is in no contact here; contacts are of"
            r" 'foot'"
        ),
    ),
    (
        ("phases", 0, "costs", 1, "facets"),
        2,
        r"phases\[0\].costs\[1\].facets: this is 2; it must be a whole number of at least 3",
    ),
    (
        ("phases", 0, "costs", 0, "final"),
        1.0,
        r"phases\[0\].costs\[0\]: 'final' is for the last knot of the motion",
    ),
    (("phases", 0, "costs", 0, "wieght"), 1.0, r"phases\[0\].costs\[0\]: .*Did you mean 'weight'"),
    (("phases", 0, "steps"), 0, r"phases\[0\].steps: this is 0"),
    (("phases", 0, "steps"), None, r"phases\[0\]: 'steps' is missing"),
    (
        ("phases", 0, "steps"),
        100_000,
        r"phases: these are 100,007 steps; all phases together have at most 100,000",
    ),
    (("phases", 0, "limits"), {"torque": -1.0}, r"phases\[0\].limits.torque: this is -1.0"),
    (("phases", 0, "impact"), True, r"phases\[0\]: no key of an impact is called 'steps'"),
    (
        ("phases", 1, "impact"),
        "yes",
        r"phases\[1\].impact: this is \"yes\"; it must be true or false",
    ),
    (("phases", 1, "contacts"), [], r"phases\[1\].contacts: an impact needs contacts"),
    (("phases", 1, "restitution"), 2.0, r"phases\[1\].restitution: this is 2.0"),
    (
        ("phases", 2, "costs", 1, "activation"),
        {"huber": 0.0},
        r"phases\[2\].costs\[1\].activation.huber: this is 0.0; it must be a number above 0",
    ),
    (
        ("phases", 2, "costs", 1, "activation"),
        {"upper": [1.0, 2.0]},
        r"a Barrier with 2 bounds does not fit a residual of 8 numbers",
    ),
    (
        ("phases", 2, "costs", 1, "activation"),
        {"upper": 1.0, "huber": 1.0},
        "an activation has one of these: huber, smooth_absolute, or lower",
    ),
    (("phases", 2, "costs", 0, "frame"), "paw", r"phases\[2\].costs\[0\].frame: .*'paw'"),
    (("phases",), [], "there is no phase that takes time"),
    (("phases",), 3, "phases: this is 3; it must be an array"),
    (("dt",), None, r"phases\[2\]: 'dt' is missing: give it here, or to the whole task"),
    (("steps",), 5, "steps: a task with phases has none: each phase has its own"),
    (("duration",), 1.0, "duration: a task with phases has none: give 'dt'"),
    (("mpc",), {"repeat": 3}, "repeat: .*from 0 to 2, not 3"),
    (("mpc",), {"repeat": -1}, "repeat: "),
    (
        ("phases", 0, "contacts"),
        [{"frame_a": "foot", "frame_b": "paw"}],
        r"phases\[0\].contacts: .*'paw'",
    ),
    (
        ("phases", 0, "contacts"),
        [{"frame_a": "foot"}],
        r"phases\[0\].contacts\[0\]: 'frame_b' is missing",
    ),
    (("phases", 0, "contacts"), [{"loops": True}], "'hopper' has no loops of its own"),
    (
        ("costs", 0),
        {"type": "friction_cone", "contact": "foot"},
        r"costs\[0\]: all its weights are zero",
    ),
    (
        ("costs", 0),
        {"type": "contact_force", "contact": "foot", "weight": 1.0, "target": [1.0, 2.0]},
        r"costs\[0\]: the target of ContactForce",
    ),
]


def test_a_controller_takes_its_impacts(file):
    """Phases of two lengths with an impact between them, once or again and again."""
    controllers = [
        Task(changed(("mpc",), {"period": 0.01} | m)).controller() for m in ({}, {"repeat": 0})
    ]
    for k in range(20):
        for mpc in controllers:
            mpc.step(mpc.problem.start, 0.01 * k)
    once, again = (mpc.problem.h for mpc in controllers)
    assert once == pytest.approx([0.01] * 15)
    assert again == pytest.approx([0.01] * 3 + [0.02] * 8 + [0.0] + [0.01] * 3)


@pytest.mark.parametrize(
    ("path", "value", "said"), WRONG, ids=lambda x: "" if isinstance(x, str) else None
)
def test_mistakes_are_told_in_the_words_of_the_file(file, path, value, said):
    with pytest.raises(TaskError, match=said):
        Task(changed(path, value))


def test_a_cost_of_a_contact_needs_phases(file):
    data = changed(("phases",), None) | {
        "steps": 5,
        "costs": [{"type": "friction_cone", "contact": "foot", "weight": 1.0}],
    }
    with pytest.raises(
        TaskError,
        match=r"costs\[0\].contact: frame 'foot' is in no contact here; contacts are of no frame",
    ):
        Task(data)
    with pytest.raises(TaskError, match=r"'steps' is missing: give it, or \[\[phases\]\]"):
        Task(changed(("phases",), None))
