"""The command line: what it prints, its exit codes, and that user errors are one line."""

from __future__ import annotations

import json

import pytest

import rigidgrad as rg
from rigidgrad.cli import main


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RIGIDGRAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_info_prints_the_table(capsys):
    assert main(["info", "hyq", "--floating-base"]) == 0
    assert capsys.readouterr().out.strip() == str(rg.load("hyq", floating_base=True))


def test_info_as_json(capsys):
    assert main(["info", "pendulum", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["nv"] == 1 and shown["joints"][0]["type"] == "continuous" and shown["limits"]["lower"] == [None]


@pytest.mark.parametrize("arguments", [["info", "nobody"], ["info", "missing.urdf"]])
def test_user_errors_are_one_line(arguments, capsys):
    assert main(arguments) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("rigidgrad: ") and printed.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["dance"], ["cache", "fill"], ["info"]])
def test_wrong_command_lines_exit_with_two(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_the_cache_is_shown_and_cleared(cache, capsys):
    robot = rg.Builder("shown").link("a").link("b", 1.5, (0, 0, 0.3), (1, 1, 1)).joint("j", "revolute", "a", "b").build()
    robot.rnea([0.1], [0.2], [0.3])
    assert main(["cache"]) == 0
    assert "shown" in (text := capsys.readouterr().out) and "rnea" in text and str(cache) in text
    assert main(["cache", "--json"]) == 0
    assert any(e["robot"] == "shown" and e["bytes"] > 0 for e in json.loads(capsys.readouterr().out)["entries"])
    assert main(["cache", "clear"]) == 0
    assert "removed" in capsys.readouterr().out
    assert main(["cache", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["entries"] == []


def test_a_switched_off_cache_says_so(monkeypatch, capsys):
    monkeypatch.setenv("RIGIDGRAD_CACHE", "off")
    assert main(["cache"]) == 0
    assert "off" in capsys.readouterr().out
