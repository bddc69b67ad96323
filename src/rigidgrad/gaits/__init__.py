"""Gaits of legged robots: `rg.gaits.trot(…)` and its kin build the phases of a motion, `rg.gaits.Walker` steers a controller."""

from rigidgrad.gaits.motions import Gait, bound, jump, pace, stand, trot, walk
from rigidgrad.gaits.rhythm import Rhythm
from rigidgrad.gaits.stance import Stance
from rigidgrad.gaits.standing import standing
from rigidgrad.gaits.walker import Walker
from rigidgrad.gaits.weights import MotionWeights, Weights

__all__ = ["Gait", "MotionWeights", "Rhythm", "Stance", "Walker", "Weights", "bound", "jump", "pace", "stand", "standing", "trot", "walk"]
