"""rigidgrad: one robot description in; the fastest dynamics, gradients and model predictive control out."""

from rigidgrad import errors
from rigidgrad.model.source import bundled
from rigidgrad.robot import Builder, Robot, load

__version__ = "0.1.0"

__all__ = ["Builder", "Robot", "bundled", "errors", "load"]
