"""The attack with damaged files, in short: `tools/attack.py` is the long one."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("mujoco")
pytest.importorskip("resource")  # POSIX
sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import attack


@pytest.mark.parametrize("part", attack.FILES)
def test_damaged_files_are_read_or_refused_with_an_error_of_ours(part, tmp_path):
    result = attack.attack(part, 600, 3, math.inf, 60.0, tmp_path)
    assert (
        result["findings"] == [] and result["foreign"] == result["crashes"] == result["hangs"] == 0
    )
    assert (
        result["mutations"] == 600 == result["accepted"] + result["refused"]
        and result["accepted"] > 20
        and result["refused"] > 20
    )


def test_the_attack_notices_foreign_exceptions_crashes_and_hangs(tmp_path):
    result = attack.attack("wrong", 10, 0, math.inf, 2.0, tmp_path)
    counts = {
        name: result[name]
        for name in ("mutations", "accepted", "refused", "foreign", "crashes", "hangs")
    }
    assert counts == {
        "mutations": 10,
        "accepted": 6,
        "refused": 1,
        "foreign": 1,
        "crashes": 1,
        "hangs": 1,
    }
    assert len(result["findings"]) == 3 and (tmp_path / "finding_2.wrong").read_bytes() == b"2"


def test_findings_are_the_exit_code(monkeypatch, capsys):
    monkeypatch.setattr(attack, "FILES", ("wrong",))
    assert attack.main(["--mutations", "3"]) == 1 and "1 findings" in capsys.readouterr().out
    assert attack.main(["--mutations", "2"]) == 0


@pytest.mark.parametrize("part", attack.ELSEWHERE)
def test_other_attacks_are_called_with_the_remaining_arguments(part, monkeypatch):
    seen = []
    monkeypatch.setitem(
        sys.modules,
        attack.ELSEWHERE[part],
        SimpleNamespace(main=lambda argv: seen.append(argv) or 1),
    )
    assert attack.main(["--part", part, "--minutes", "3", "--seed", "5"]) == 1 and seen == [
        ["--minutes", "3", "--seed", "5"]
    ]
