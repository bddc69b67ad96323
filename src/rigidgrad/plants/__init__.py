"""Plants: what a controller drives. Our own simulator and MuJoCo, with measurement faults, model
errors, payloads and pushes.
"""

from rigidgrad.plants.faults import Counts, Faults
from rigidgrad.plants.ground import Ground
from rigidgrad.plants.inertial import Inertial, Reading
from rigidgrad.plants.log import Log
from rigidgrad.plants.mismatch import Friction, Payload, Push, random_errors
from rigidgrad.plants.mujoco import MuJoCo
from rigidgrad.plants.plant import Plant
from rigidgrad.plants.simulator import Simulator

__all__ = [
    "Counts",
    "Faults",
    "Friction",
    "Ground",
    "Inertial",
    "Log",
    "MuJoCo",
    "Payload",
    "Plant",
    "Push",
    "Reading",
    "Simulator",
    "random_errors",
]
