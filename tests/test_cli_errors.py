"""What users do wrong: each mistake gets one message that names it and says what to do, an exit
code, and no traceback.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from test_tasks import TASK

from rigidgrad.cli import main

INERTIA = '<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/>'


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(arguments, code, said, capsys):
    """The message, which is one line on stderr that matches."""
    assert main(arguments) == code
    printed = capsys.readouterr()
    assert (
        printed.out == "" and printed.err.startswith("rigidgrad: ") and printed.err.count("\n") == 1
    )
    assert re.search(said, printed.err), printed.err
    return printed.err


# --- command lines that argparse refuses ----------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dance"], "invalid choice: 'dance'"),
        (["chek", "iiwa14"], "did you mean check?"),
        (["cache", "claer"], "did you mean clear?"),
        (["info"], "the following arguments are required: robot"),
        (["info", "iiwa14", "--floating"], None),  # an abbreviation that is clear
        (["info", "iiwa14", "--colour"], "unrecognized arguments: --colour"),
        (["cache", "fill"], "invalid choice: 'fill'"),
        (
            ["check", "iiwa14", "--states", "none"],
            "--states: invalid positive whole number value: 'none'",
        ),
        (
            ["check", "iiwa14", "--states", "0"],
            "--states: invalid positive whole number value: '0'",
        ),
        (["bench", "iiwa14", "--function", "rna"], "invalid choice: 'rna'"),
        (["bench", "iiwa14", "--batch", "-4"], "--batch"),
        (["generate", "iiwa14", "rnea", "--target", "fortran"], "invalid choice: 'fortran'"),
        (
            ["mpc", "task.toml", "--duration", "inf"],
            "--duration: invalid positive number value: 'inf'",
        ),
        (["trees", "--bodies", "1e6"], "--bodies: invalid positive whole number value: '1e6'"),
        (["completion", "tcsh"], "invalid choice: 'tcsh'"),
        (["play", "iiwa14", "--port", "web"], "--port: invalid int value: 'web'"),
    ],
)
def test_wrong_command_lines_exit_with_two_and_the_usage(arguments, said, capsys):
    if said is None:
        assert main([*arguments, "--quiet"]) == 0
        return
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    err = capsys.readouterr().err
    assert caught.value.code == 2 and err.startswith("usage: rigidgrad") and said in err


# --- commands that cannot be done -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["info", "iiwa"], 1, "no bundled robot or file is called 'iiwa'. Did you mean 'iiwa14'"),
        (["info", "missing.urdf"], 1, "missing.urdf"),
        (["info", "broken.urdf"], 1, "line 1"),
        (
            ["info", "heavy.urdf", "--strict"],
            1,
            "negative mass -1 kg; correct its <mass>, or pass --no-strict",
        ),
        (["check", "nobody"], 1, "no bundled robot"),
        (
            [
                "bench",
                "pendulum",
                "--function",
                "rnea",
                "--batch",
                "1",
                "--plot",
                "no/such/folder.svg",
            ],
            1,
            "cannot be written: No such file",
        ),
        (
            ["generate", "pendulum", "rneaa"],
            1,
            "no function is called 'rneaa'. Did you mean 'rnea'",
        ),
        (["generate", "pendulum", "jacobian"], 1, "jacobian needs the name of a frame"),
        (
            ["generate", "pendulum", "jacobian:amr"],
            1,
            "no frame is called 'amr'. Did you mean 'arm'",
        ),
        (
            ["generate", "pendulum", "rnea", "--out", "heavy.urdf"],
            1,
            "heavy.urdf is a file: out names a folder",
        ),
        (
            ["init", "pendulum", "--out", "heavy.urdf"],
            2,
            "'heavy.urdf' exists; --force replaces it",
        ),
        (["init", "pendulum", "--out", "no/such/task.toml"], 1, "cannot be written: No such file"),
        (["init", "still.urdf", "--out", "s.toml"], 1, "'still' has no moving joints"),
        (
            ["trees", "--bodies", "10", "--branching", "0.5"],
            1,
            "branching is 0.5; a tree needs at least 1",
        ),
        (
            ["view", "pendulum", "absent.npz", "--html", "x.html"],
            1,
            "'absent.npz' is no .npz or .npy file",
        ),
        (
            ["view", "log.npz"],
            2,
            "'log.npz' is a motion; name its robot or task first: rigidgrad view task.toml log.npz",
        ),
        (["play", "hyq.urdf"], 1, "hyq.urdf"),
        (
            ["fpga", "pendulum", "--format", "sixteen"],
            2,
            "--format is two numbers of bits, as in 16,16",
        ),
        (
            ["solve", "absent.toml"],
            2,
            "absent.toml: there is no such file; `rigidgrad init ROBOT` writes one",
        ),
        (["solve", "."], 2, "this is a directory"),
        (
            ["solve", "task.toml", "--out", "no/such/x.npz"],
            1,
            "solution cannot be written to 'no/such/x.npz'",
        ),
        (
            ["mpc", "task.toml", "--out", "no/such/x.npz"],
            1,
            "log cannot be written to 'no/such/x.npz'",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments, code, said, capsys, monkeypatch):
    Path("broken.urdf").write_text("<robot name='x'><link")
    mass = (
        '<robot name="heavy"><link name="a"/><link name="b"><inertial><mass value="{}"/>'
        + INERTIA
        + "</inertial></link>{}</robot>"
    )
    joint = '<joint name="j" type="{}"><parent link="a"/><child link="b"/></joint>'
    Path("heavy.urdf").write_text(mass.format(-1, joint.format("continuous")))
    Path("still.urdf").write_text(mass.replace("heavy", "still").format(1, joint.format("fixed")))
    Path("task.toml").write_text(TASK.replace("duration = 0.5", "duration = 0.01"))
    monkeypatch.setattr("rigidgrad.commands.bench.SLICE", 1e-6)
    refused(arguments, code, re.escape(said), capsys)


def test_generate_asks_which_functions_of_a_robot(capsys):
    refused(["generate", "iiwa14"], 2, "which functions.*rigidgrad generate iiwa14 rnea", capsys)


def test_names_are_escaped_before_they_reach_a_terminal(folder, capsys):
    """A name may hold what moves the cursor, hides text or starts a new line."""
    name = "j\x9b2J\u202e&#10;rigidgrad: all is well"
    text = (
        '<robot name="r\x9b"><link name="a"/><link name="b"><inertial><mass value="1"/>'
        + INERTIA
        + f'</inertial></link><joint name="{name}" type="continuous"><parent link="a"/><child'
        ' link="b"/></joint></robot>'
    )
    Path("r.urdf").write_text(text)
    Path("bad.urdf").write_text(text.replace('<child link="b"/>', ""))
    Path("odd.urdf").write_text(text.replace('value="1"', 'value="-1"'))
    assert [
        main(["info", "r.urdf"]),
        main(["info", "bad.urdf"]),
        main(["info", "odd.urdf", "--no-strict"]),
        main(["check", "r.urdf"]),
    ] == [
        0,
        1,
        0,
        0,
    ]
    printed = capsys.readouterr()
    for shown in (printed.out, printed.err):
        assert "j\\x9b2J\\u202e\\nrigidgrad" in shown or "r\\x9b" in shown
        assert all(line.isprintable() for line in shown.split("\n"))
    assert not any(
        line.startswith("rigidgrad: all") for line in (printed.out + printed.err).split("\n")
    )


# --- missing extras -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "module", "said"),
    [
        (
            ["view", "pendulum"],
            "viser",
            r"needs viser: pip install 'rigidgrad\[view\]'; --html saves one without it",
        ),
        (["play", "cartpole"], "viser", r"needs viser: pip install 'rigidgrad\[view\]'"),
        (["mpc", "task.toml"], "mujoco", r"needs MuJoCo: pip install rigidgrad\[plants\]"),
    ],
)
def test_a_missing_extra_is_named_with_how_to_get_it(arguments, module, said, capsys, monkeypatch):
    Path("task.toml").write_text(TASK + '[mpc.plant]\ntype = "mujoco"\n')
    monkeypatch.setitem(sys.modules, module, None)
    refused(arguments, 2 if module == "mujoco" else 1, said, capsys)


def test_any_other_extra_is_found_by_the_module_that_is_missing(capsys, monkeypatch):
    def needs(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("rigidgrad.robot.load", lambda *_, **__: needs("distributed.client"))
    refused(
        ["info", "pendulum"],
        1,
        r"info needs distributed, which is not installed: pip install 'rigidgrad\[cluster\]'",
        capsys,
    )
    monkeypatch.setattr("rigidgrad.robot.load", lambda *_, **__: needs("rigidgrad.nothing"))
    with pytest.raises(ModuleNotFoundError):  # a fault of ours keeps its traceback
        main(["info", "pendulum"])


# --- task files -----------------------------------------------------------------------------------

REACH = 'type = "reach"'


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("steps = 40", "steps = 40 41", r"this is not TOML: .* \(at line 4"),
        ("steps = 40", "steps = 40\nsteps = 41", "this is not TOML: Cannot overwrite"),
        ('robot = "double_pendulum"', "", "'robot' is missing: it is a text in quotes"),
        ('robot = "double_pendulum"', 'robbot = "double_pendulum"', "no key of a task is called 'robbot'. Did you mean 'robot'"),
        ('robot = "double_pendulum"', 'robot = "double_pendulm"', "robot: no bundled robot or file is called 'double_pendulm'. Did you mean 'double_pendulum'"),
        ('robot = "double_pendulum"', 'robot = "mine.urdf"', "robot: .*mine.urdf"),
        ('robot = "double_pendulum"', "robot = 7", "robot: this is 7; it must be a text in quotes"),
        ("steps = 40", 'steps = "many"', 'steps: this is "many"; it must be a whole number of at least 1'),
        ("steps = 40", "steps = 0", "steps: this is 0; it must be a whole number of at least 1"),
        ("steps = 40", "steps = 4.5", "steps: this is 4.5; it must be a whole number"),
        ("duration = 0.8", "", "give either 'dt', seconds of a step, or 'duration'"),
        ("duration = 0.8", "duration = 0.8\ndt = 0.1", "give either 'dt'"),
        ("duration = 0.8", "duration = -1", "duration: this is -1; it must be a number above 0"),
        ("duration = 0.8", "duration = nan", "duration: this is nan; it must be a number above 0"),
        ("start = [0.3, -0.2]", "start = [0.3]", "start: this has 1 numbers; 'double_pendulum' has 2 positions, or with velocities 4"),
        ("start = [0.3, -0.2]", "start = { elbw = 0.3 }", "start: no joint with one position is called 'elbw'. Did you mean 'elbow'"),
        ("start = [0.3, -0.2]", 'start = "here"', 'start: this is "here"; it must be "neutral", or an array of numbers, or a table of names'),
        ("duration = 0.8", 'duration = 0.8\nintegrator = "rk5"', "integrator: no choice is called 'rk5'. Did you mean 'rk4' or 'rk3'"),
        ("duration = 0.8", "duration = 0.8\nactuation = [[1.0]]", r"actuation: actuation is .joints. .* or a matrix \(2, nu\)"),
        (REACH, 'type = "reech"', r"costs\[0\].type: no type of cost is called 'reech'. Did you mean 'reach'"),
        (REACH, "", r"costs\[0\]: 'type' is missing: it is one of 'reach', 'state', 'effort', 'control_rate', .*'center_of_mass'"),
        ('frame = "lower_rod"', 'frame = "lower_rot"', r"costs\[0\].frame: no frame is called 'lower_rot'. Did you mean 'lower_rod'"),
        ('frame = "lower_rod"', "", r"costs\[0\]: 'frame' is missing"),
        ("target = [0.4, 0.0, -0.9165]", "target = [0.4, 0.0]", r"costs\[0\].target: this is \[0.4, 0.0\]; it must be an array of 3 numbers, or a matrix of 4 rows"),
        ("weight = 10.0", "weight = -10.0", r"costs\[0\].weight: this is -10.0; it must be a number at least 0, or an array of numbers"),
        ("weight = 10.0", "weight = [1.0, 2.0]", r"costs\[0\]: the weight of Reach has shape \(2,\)"),
        ("weight = 10.0", "wieght = 10.0", r"costs\[0\]: no key of cost of type 'reach' is called 'wieght'. Did you mean 'weight'"),
        ("weight = 10.0\nfinal = 1000.0", "", r"costs\[0\]: all its weights are zero: give it 'weight', 'final', or both"),
        ("position = 0.0, velocity = 0.01", "positon = 1.0", r"costs\[1\].weight: no key of \[costs\[1\].weight\] is called 'positon'. Did you mean 'position'"),
        ('goal = "start"', "goal = true", r"costs\[1\].goal: this is true; it must be \"start\", or"),
        ('reference = "gravity"', "final = 1.0", r"costs\[2\]: no key of cost of type 'effort' is called 'final'"),
        ("torque = 60.0", 'torque = "own"', "limits.torque: this is \"own\"; it must be true for the robot's own, or a number at least 0"),
        ("torque = 60.0", "torque = false", "limits.torque: this is false; it must be true"),
        ("torque = 60.0", "torque = { lower = 1.0, upper = -1.0 }", "limits: torque limit 0 at knot 0 is from 1 to -1, and nothing lies between"),
        ("velocity = [8.0, 8.0]", "velocity = [8.0, 8.0, 8.0]", r"limits: velocity limit has shape \(3,\)"),
        ("velocity = [8.0, 8.0]", "position = 0.1", "limits: joint 'shoulder' starts at 0.3, outside of its position limits"),
        ("velocity = [8.0, 8.0]", "position = 0.1\n", r"start inside, widen the limits, or write recover = true in \[limits\]"),
        ("[limits]", "[solver]\nsecond_order = true\nbackward_blocks = 4\n[limits]", "use backward_blocks = 1"),
        ("velocity = [8.0, 8.0]", "spheres = [{ frame = 'x', radius = 1 }]", "limits: no frame is called 'x'"),
        ("[limits]", "[solver]\ntype = 'ilqr'\n[limits]", "solver.type: no type of solver is called 'ilqr'. There are: 'direct', 'pddp'"),
        ("[limits]", "[solver]\nblock = 4\n[limits]", "solver: no key of solver of type 'pddp' is called 'block'. Did you mean 'blocks'"),
        ("[limits]", "[solver]\ntype = 'direct'\nlinear_solver = 'pgc'\n[limits]", "solver: no linear solver is called 'pgc'. Did you mean 'pcg'"),
        ("[limits]", "[output]\nsolution = 3\n[limits]", "output.solution: this is 3; it must be a file's name in quotes that ends in .npz"),
        ("period = 0.01", "periodd = 0.01", r"mpc: no key of \[mpc\] is called 'periodd'. Did you mean 'period'"),
        ("period = 0.01", "target = { type = 'square' }", "mpc.target.type: no type of target is called 'square'"),
        ("period = 0.01", "target = { type = 'waypoints', points = [[0, 0, 0]], times = [0, 1] }", "mpc.target: 'points' and 'times' are one each"),
        ("period = 0.01", "target = { type = 'state', goal = 'start' }", "mpc.target: a path is for a cost of type 'reach'"),
        ("period = 0.01", "plant = { type = 'gazebo' }", "mpc.plant.type: no type of plant is called 'gazebo'"),
        ("period = 0.01", "plant = { faults = { drop = 2 } }", "mpc.plant.faults.drop: this is 2; it must be a number at least 0 and at most 1"),
        ("period = 0.01", "plant = { payload = { mass = 1, frame = 'hand' } }", "mpc.plant: no frame is called 'hand'"),
        ('robot = "double_pendulum"', 'robot = "heavy.urdf"\nstrict = true', "negative mass -1 kg; correct its <mass>, or write strict = false"),
        ("[mpc]\nperiod = 0.01\nduration = 0.5", "", r"there is no table \[mpc\], which says how the robot is controlled"),
    ],
)  # fmt: skip
def test_a_wrong_task_names_the_key_what_came_and_what_was_needed(old, new, said, capsys):
    assert old in TASK
    Path("heavy.urdf").write_text(
        '<robot name="heavy"><link name="a"/><link name="b"><inertial><mass value="-1"/>'
        + INERTIA
        + "</inertial></link>"
        '<joint name="j" type="continuous"><parent link="a"/><child link="b"/></joint></robot>'
    )
    Path("bad.toml").write_text(TASK.replace(old, new, 1))
    message = refused(["mpc", "bad.toml"], 2, said, capsys)
    assert message.startswith("rigidgrad: bad.toml: ")


def test_a_file_that_is_no_text_is_refused(capsys):
    Path("bad.toml").write_bytes(b"\xff\xfe\x00robot")
    refused(["solve", "bad.toml"], 2, "this is not a text in UTF-8", capsys)
    Path("bad.toml").write_text("costs = []\nrobot = 'pendulum'\nsteps = 1\ndt = 1\n")
    refused(["solve", "bad.toml"], 2, "costs: a task needs costs", capsys)
    Path("bad.toml").write_text("costs = 1\nrobot = 'pendulum'\nsteps = 1\ndt = 1\n")
    refused(
        ["solve", "bad.toml"],
        2,
        "costs: this is 1; it must be an array, each entry a table with a type",
        capsys,
    )
    Path("bad.toml").write_text(
        "limits = 2020-01-01\nrobot = 'pendulum'\nsteps = 1\ndt = 1\ncosts = [{ type = 'effort',"
        " weight = 1 }]\n"
    )
    refused(
        ["solve", "bad.toml"],
        2,
        "limits: this is the date or time 2020-01-01; it must be a table",
        capsys,
    )
