"""What benchmarks need of others is found where `make bench` puts it."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "bench"))


def test_the_headers_of_eigen_are_found_where_their_package_puts_them(tmp_path, monkeypatch):
    from peers import pinocchio_cpp

    headers = tmp_path / "cmeel.prefix" / "include" / "eigen3"
    (headers / "Eigen").mkdir(parents=True)
    (headers / "Eigen" / "Core").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert pinocchio_cpp._eigen() == headers
    installed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]["test"]
    assert "cmeel-eigen" in installed and "cmeel-eigen" in pinocchio_cpp.ADVICE
