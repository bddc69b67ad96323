"""Reports: one file that needs no network, with its numbers attached."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.control.mpc_log import Log
from rigidgrad.errors import InputError


def solved():
    robot = rg.load("double_pendulum")
    costs = [rg.costs.State(np.zeros(4), 1.0, 10.0), rg.costs.Effort(0.1)]
    return rg.solve(rg.Problem(robot, start=[0.5, 0.2, 0, 0], steps=20, dt=0.02, costs=costs))


def attached(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


def test_a_solution(tmp_path):
    solution = solved()
    path = rg.report(solution, tmp_path / "report.html", title="<b>Pendulum & co</b>")
    text = path.read_text()
    assert "<b>Pendulum" not in text and "&lt;b&gt;Pendulum &amp; co" in text
    assert text.count("<svg") >= 4 and "converged" in text
    assert "http://" not in text.replace("http://www.w3.org/", "") and "https://" not in text
    data = attached(text)
    np.testing.assert_allclose(data["report"]["x"], solution.x)
    assert data["report"]["cost"] == solution.cost and data["environment"]["rigidgrad"] == rg.__version__


def test_several_things(tmp_path):
    log = Log(4, 2)
    for k in range(30):
        log.add_step(0.01 * k, None if k == 7 else np.full(4, 0.01 * k), np.array([k, np.nan]))
    for k in range(3):
        log.add_solve(0.1 * k, 1e-4, np.nan if k else 1.0, 2)
    log.counts["kept"] = 3
    path = rg.report({"Motion": solved(), "Run": log, "Table": {"a</script>": 1}}, tmp_path / "r.html", robot=rg.load("double_pendulum"))
    data = attached(path.read_text())
    assert data["Run"]["steps"] == 30 and data["Run"]["u"][3] == [3.0, None] and data["Table"] == {"a</script>": 1}
    assert "fallback “kept”" in path.read_text()


def test_what_cannot_be_reported(tmp_path):
    with pytest.raises(InputError, match="not str"):
        rg.report("hello", tmp_path / "r.html")
    with pytest.raises(InputError, match="cannot be written"):
        rg.report(solved(), tmp_path / "no" / "folder" / "r.html")
