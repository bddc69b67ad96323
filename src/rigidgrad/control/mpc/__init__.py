"""Model predictive control: `controller` is what users hold; one file for each thing that it keeps,
decides or believes.
"""

from rigidgrad.control.mpc.controller import MPC

__all__ = ["MPC"]
