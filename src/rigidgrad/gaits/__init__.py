"""Gaits of legged robots: `rg.gaits.trot(…)` and its kin build the phases of a motion, `rg.gaits.Walker` and `rg.gaits.Balancer` steer a controller."""

from rigidgrad.gaits.balancer import Balancer
from rigidgrad.gaits.motions import Gait, bound, jump, pace, stand, trot, walk
from rigidgrad.gaits.rhythm import Rhythm
from rigidgrad.gaits.stance import Stance
from rigidgrad.gaits.standing import standing
from rigidgrad.gaits.walker import Walker
from rigidgrad.gaits.weights import BalanceWeights, MotionWeights, Weights

__all__ = [
    "BalanceWeights",
    "Balancer",
    "Gait",
    "MotionWeights",
    "Rhythm",
    "Stance",
    "Walker",
    "Weights",
    "bound",
    "jump",
    "pace",
    "stand",
    "standing",
    "trot",
    "walk",
]
