"""`rigidgrad` alone, and `rigidgrad new`: what a newcomer types first leads to a script that
runs.
"""

from __future__ import annotations

import io
import runpy
import shlex

import pytest
from test_tool_frame import robots

from rigidgrad.cli import FIRST_STEPS, main, parser
from rigidgrad.commands.new import JOBS

PANDA, GO2 = "panda_description/urdf/panda.urdf", "go2_description/urdf/go2.urdf"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def answers(monkeypatch):
    def type_(*lines: str) -> None:
        monkeypatch.setattr("sys.stdin", Terminal("".join(f"{line}\n" for line in lines)))

    return type_


def ran(folder, job, capsys) -> str:
    capsys.readouterr()
    runpy.run_path(str(folder / f"{job}.py"), run_name="__main__")
    return capsys.readouterr().out


def test_the_command_alone_says_what_to_type_next(capsys):
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert all(line in printed for line, _ in FIRST_STEPS)
    for line, _ in FIRST_STEPS:
        parser().parse_args(shlex.split(line)[1:])  # each is a command line that exists


@pytest.mark.parametrize("job", JOBS)
def test_each_script_of_a_bundled_robot_runs(job, tmp_path, capsys):
    folder = tmp_path / "mine"
    assert main(["new", "iiwa14", "--job", job, "--out", str(folder)]) == 0
    assert f"python {job}.py" in capsys.readouterr().out
    printed = ran(folder, job, capsys)
    expected = {
        "motion": "converged",
        "control": "fallbacks: none",
        "reach": "reached 100.0 %",
        "dynamics": "gradients (4096, 7, 7)",
    }
    assert expected[job] in printed
    if job in ("motion", "control"):
        assert (folder / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize(("robot", "options"), [(PANDA, []), (GO2, ["--floating-base"])])
@pytest.mark.parametrize("job", ["reach", "dynamics"])
def test_scripts_of_robots_from_files_find_them(robot, options, job, tmp_path, capsys):
    source = robots() / robot
    assert main(["new", str(source), "--job", job, "--out", str(tmp_path / "a b"), *options]) == 0
    printed = ran(tmp_path / "a b", job, capsys)
    assert "reached" in printed if job == "reach" else "gradients" in printed


def test_three_answers_are_enough(answers, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    answers("no_such_robot", "pendulum", "9", "4", "")
    assert main(["new"]) == 0
    shown = capsys.readouterr()
    assert "no bundled robot is called 'no_such_robot'" in shown.err  # asked again
    assert "'9' is none of 1 to 4" in shown.err
    assert "gradients" in ran(tmp_path / "my_pendulum", "dynamics", capsys)


def test_without_a_terminal_nothing_is_asked(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("pendulum\n"))
    assert main(["new"]) == 2
    assert "name the robot, --job and --out" in capsys.readouterr().err


def test_an_end_of_input_is_no_answer(answers, capsys):
    answers()
    assert main(["new"]) == 2


def test_files_are_not_replaced_unasked(tmp_path, capsys):
    line = ["new", "pendulum", "--job", "dynamics", "--out", str(tmp_path)]
    assert main(line) == 0
    (tmp_path / "dynamics.py").write_text("mine")
    assert main(line) == 2
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "dynamics.py").read_text() == "mine"
    assert main([*line, "--force"]) == 0
    assert (tmp_path / "dynamics.py").read_text() != "mine"
