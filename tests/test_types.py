"""What a type checker tells a user about results."""

from __future__ import annotations

import subprocess
import sys

import pytest

USER = """
import numpy as np
import rigidgrad as rg

robot = rg.load("iiwa14")
q = robot.neutral()
reveal_type(q)
forward = robot.aba_derivatives(q, q, q)
reveal_type(forward.dq)
reveal_type(forward.dtau)
reveal_type(robot.rnea_derivatives(q, q, q).da)
reveal_type(robot.fused_gradient(q, q, q, np.eye(7)).dv)
reveal_type(robot.energy(q, q).kinetic)
print(forward.dq.shape, forward.dq @ q)
dq, dv, dtau = forward
reveal_type(dv)
"""


def test_results_are_arrays_to_a_type_checker(tmp_path):
    pytest.importorskip("mypy")
    file = tmp_path / "user.py"
    file.write_text(USER)
    command = [sys.executable, "-m", "mypy", "--config-file=", "--follow-imports=silent", f"--cache-dir={tmp_path}", str(file)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    revealed = [line for line in run.stdout.splitlines() if "Revealed type" in line]
    assert run.returncode == 0, run.stdout + run.stderr
    assert len(revealed) == 7
    assert all("numpy.ndarray[" in line for line in revealed), revealed
