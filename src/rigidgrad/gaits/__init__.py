"""Gaits of legged robots: `rg.gaits.trot(…)` and its kin build the phases of a motion,
`rg.gaits.Walker` and `rg.gaits.Balancer` steer a controller, and `rg.gaits.Estimator` says where it
is.
"""

from rigidgrad.gaits.balancer import Balancer
from rigidgrad.gaits.estimator import Estimator, SensorNoise
from rigidgrad.gaits.motions import Gait, bound, jump, pace, stand, trot, walk
from rigidgrad.gaits.rhythm import Rhythm
from rigidgrad.gaits.stance import Stance
from rigidgrad.gaits.standing import standing
from rigidgrad.gaits.walker import Walker
from rigidgrad.gaits.weights import BalanceWeights, BipedWeights, MotionWeights, Weights

__all__ = [
    "BalanceWeights",
    "Balancer",
    "BipedWeights",
    "Estimator",
    "Gait",
    "MotionWeights",
    "Rhythm",
    "SensorNoise",
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
