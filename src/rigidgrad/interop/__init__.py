"""Models and states of other programs: Pinocchio, MuJoCo, URDF text; and the rules by which JAX and
PyTorch differentiate our functions.
"""

from rigidgrad.interop.states import States, states

__all__ = ["States", "states"]
