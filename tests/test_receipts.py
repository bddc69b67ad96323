"""`rigidgrad prove`: receipts of devices fit the kernels of this version, and show when they were
changed.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from gpu_shim.runner import CXX

from rigidgrad import errors
from rigidgrad.cli import main
from rigidgrad.reproduce import receipts

SHOWN = sorted((Path(__file__).parents[1] / "bench/results/receipts").glob("*.json"))


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.stem)
def test_receipts_that_are_shown_fit_the_kernels_of_this_version(path):
    """Kernels that change need new receipts: `rigidgrad prove --device … --out` this file."""
    receipt = json.loads(path.read_text())
    assert receipts.check(receipt) == []
    assert {row["function"] for row in receipt["kernels"]} == set(receipts.FUNCTIONS)


def test_there_is_a_receipt_to_show():
    assert SHOWN


@pytest.fixture
def receipt(mock_cuda, monkeypatch):
    if not CXX:
        pytest.skip("there is no C++ compiler for the CUDA shim")
    # little, since the shim is slow
    monkeypatch.setattr(receipts, "FUNCTIONS", {"rnea": "ID"})
    monkeypatch.setattr(receipts, "STATES", 5)
    monkeypatch.setattr(receipts, "_WINDOWS", 1)
    return receipts.make("cuda", robots=["pendulum"])


def test_a_receipt_says_what_ran_and_how_exactly(receipt, tmp_path, capsys):
    assert receipt["device"]["name"] == "the shim" and receipt["device"]["driver"] == "CUDA 13.4"
    assert len(receipt["kernels"]) == receipts.total("cuda", ["pendulum"]) == 4
    assert len({row["kernel"] for row in receipt["kernels"]}) == 4
    for row in receipt["kernels"]:
        assert row["kernel_1"] > 0 and row["call_1"] > 0 and row["error"] < 1e-5
    assert receipts.check(receipt) == []
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(receipt))
    assert main(["prove", "--check", str(path)]) == 0
    assert "fits this version" in capsys.readouterr().out


def test_what_was_changed_or_fits_no_longer_is_said(receipt, tmp_path, capsys):
    slower = copy.deepcopy(receipt)
    slower["kernels"][1]["call_1"] = 0.1
    (problem,) = receipts.check(slower)
    assert "changed after it was made" in problem
    for key, value, said in (
        ("kernel", "0" * 64, "the kernel is another one now"),
        ("model", "0" * 64, "the robot has other numbers now"),
        ("error", 1e-2, "its error is 1.0e-02"),
        ("error", float("nan"), "its error is nan"),
    ):
        other = copy.deepcopy(receipt)
        other["kernels"][0][key] = value
        other["hash"] = receipts.signature(other)  # whoever makes it up can do that
        (problem,) = receipts.check(other)
        assert said in problem
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(slower))
    assert main(["prove", "--check", str(path)]) == 1
    assert "changed" in capsys.readouterr().out
    with pytest.raises(errors.InputError, match="no receipt"):
        receipts.check({"kernels": []})
    assert main(["prove", "--check", str(tmp_path / "none.json")]) == 1
    assert main(["prove"]) == 2
