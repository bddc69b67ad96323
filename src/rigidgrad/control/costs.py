"""`rg.costs`: what a problem charges for. One cost per file in `terms/`.

The constructor of a cost says which keys it has in a task file.
"""

from rigidgrad.control.terms.activation import Activation, Barrier, Huber, SmoothAbsolute
from rigidgrad.control.terms.center_of_mass import CenterOfMass
from rigidgrad.control.terms.center_of_pressure import CenterOfPressure
from rigidgrad.control.terms.centroidal_momentum import CentroidalMomentum
from rigidgrad.control.terms.clearance import Clearance
from rigidgrad.control.terms.contact_force import ContactForce
from rigidgrad.control.terms.control_rate import ControlRate
from rigidgrad.control.terms.cost import Cost
from rigidgrad.control.terms.custom import Custom
from rigidgrad.control.terms.custom_value import CustomValue
from rigidgrad.control.terms.duration import Duration
from rigidgrad.control.terms.effort import Effort
from rigidgrad.control.terms.frame_velocity import FrameVelocity
from rigidgrad.control.terms.friction_cone import FrictionCone
from rigidgrad.control.terms.function import Function
from rigidgrad.control.terms.height import Height
from rigidgrad.control.terms.joint_limits import JointLimits
from rigidgrad.control.terms.reach import Reach
from rigidgrad.control.terms.state import State
from rigidgrad.control.terms.term import Term

__all__ = [
    "Activation",
    "Barrier",
    "CenterOfMass",
    "CenterOfPressure",
    "CentroidalMomentum",
    "Clearance",
    "ContactForce",
    "ControlRate",
    "Cost",
    "Custom",
    "CustomValue",
    "Duration",
    "Effort",
    "FrameVelocity",
    "FrictionCone",
    "Function",
    "Height",
    "Huber",
    "JointLimits",
    "Reach",
    "SmoothAbsolute",
    "State",
    "Term",
]

# in the order in which they are listed to users; tasks have those that a file can describe
COSTS: tuple[type[Cost], ...] = (
    Reach,
    State,
    Effort,
    ControlRate,
    Duration,
    CenterOfMass,
    CentroidalMomentum,
    FrameVelocity,
    Height,
    JointLimits,
    Clearance,
    FrictionCone,
    CenterOfPressure,
    ContactForce,
    Custom,
    CustomValue,
)
