"""rigidgrad: one robot description in; the fastest dynamics, gradients and model predictive control out."""

from typing import Any

from rigidgrad import errors
from rigidgrad.model.source import bundled
from rigidgrad.robot import Builder, Robot, load

__version__ = "0.1.0"

__all__ = ["Builder", "Crew", "Robot", "bundled", "errors", "generate", "load"]


def __getattr__(name: str) -> Any:
    """Parts that not every program needs are loaded on first use."""
    if name == "generate":
        from rigidgrad.codegen import generate

        return generate
    if name == "Crew":
        from rigidgrad.runtime.threads import Crew

        return Crew
    raise AttributeError(f"module 'rigidgrad' has no attribute {name!r}")
