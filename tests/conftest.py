"""Compiled code of a test run is kept for that run alone, out of the user's cache. And the shim of a CUDA device for solvers."""

from __future__ import annotations

import os
import tempfile

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if "RIGIDGRAD_CACHE" not in os.environ:
        # workers of pytest-xdist inherit it from the process that starts them
        config._rigidgrad_cache = tempfile.TemporaryDirectory(prefix="rigidgrad-test-")  # type: ignore[attr-defined]
        os.environ["RIGIDGRAD_CACHE"] = config._rigidgrad_cache.name  # type: ignore[attr-defined]


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = getattr(config, "_rigidgrad_cache", None)
    if folder is not None:
        folder.cleanup()


@pytest.fixture
def shim(tmp_path_factory, monkeypatch):
    """Opens the shim in place of a CUDA device."""
    from gpu_shim.cuda_device import ShimDevice

    from rigidgrad.control import device_run
    from rigidgrad.runtime import gpu_solver

    folder = tmp_path_factory.getbasetemp() / "solvers"
    folder.mkdir(exist_ok=True)

    def use(order=0, change=lambda text: text, blocks=65535, effort="-O0"):
        device = ShimDevice(folder, order, change, effort)
        monkeypatch.setattr(device_run, "_sessions", type(device_run._sessions)())
        monkeypatch.setattr(gpu_solver, "_device", lambda name: device)
        monkeypatch.setattr(gpu_solver, "compile_cubin", device.compile_cubin)
        monkeypatch.setattr(gpu_solver, "_MOST_BLOCKS", blocks)
        return device

    return use
