"""The attack of tools/attack_mpc.py, for some seconds of simulated time; and that it would
notice.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
attack_mpc = pytest.importorskip("attack_mpc")


@pytest.mark.parametrize("name", ["pendulum", "cartpole", "iiwa14", "quadrotor", "hyq"])
def test_every_control_is_finite_and_within_bounds(name, capsys):
    if name == "hyq":
        pytest.importorskip(
            "mujoco", reason="MuJoCo is not installed: pip install 'rigidgrad[plants]'"
        )
    assert attack_mpc.main(["--minutes", "0.15", "--scenes", name, "--seed", "3"]) == 0
    assert "every control finite and within bounds" in capsys.readouterr().out


def test_a_wrong_control_is_noticed(monkeypatch, capsys):
    step = attack_mpc.rg.MPC.step
    monkeypatch.setattr(attack_mpc.rg.MPC, "step", lambda *a: step(*a) * np.nan)
    assert attack_mpc.main(["--minutes", "0.01", "--scenes", "pendulum"]) == 1
    assert "not finite" in capsys.readouterr().out
