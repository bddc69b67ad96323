"""Paths among obstacles: a search by two trees, shortened, and timed within limits of velocity and
acceleration.
"""

from rigidgrad.planning.path import Path
from rigidgrad.planning.planner import plan

__all__ = ["Path", "plan"]
