"""rigidgrad: one robot description in; the fastest dynamics, gradients and model predictive control out."""

import importlib
from typing import Any

from rigidgrad import errors
from rigidgrad.model.source import bundled
from rigidgrad.robot import Builder, Robot, load

__version__ = "0.1.0"

# parts that not every program needs, loaded on first use: name -> module, and the name in it (none for the module itself)
_LATER = {
    "generate": ("rigidgrad.codegen", "generate"),
    "Crew": ("rigidgrad.runtime.threads", "Crew"),
    "costs": ("rigidgrad.control.costs", None),
    "PDDP": ("rigidgrad.control.pddp", "PDDP"),
    "Problem": ("rigidgrad.control.problem", "Problem"),
    "Solution": ("rigidgrad.control.solution", "Solution"),
    "solve": ("rigidgrad.control.pddp", "solve"),
}

__all__ = ["PDDP", "Builder", "Crew", "Problem", "Robot", "Solution", "bundled", "costs", "errors", "generate", "load", "solve"]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'rigidgrad' has no attribute {name!r}")
    module, attribute = _LATER[name]
    loaded = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
