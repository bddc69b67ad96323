"""Compiled code of a test run is kept for that run alone, out of the user's cache."""

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
