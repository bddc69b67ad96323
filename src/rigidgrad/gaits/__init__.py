"""Gaits of legged robots: `rg.gaits.trot(…)` and its kin build the phases of a motion, `rg.gaits.Walker` steers a controller."""

from rigidgrad.gaits.rhythm import Rhythm
from rigidgrad.gaits.stance import Stance
from rigidgrad.gaits.standing import standing
from rigidgrad.gaits.walker import Walker, Weights

__all__ = ["Rhythm", "Stance", "Walker", "Weights", "standing"]
