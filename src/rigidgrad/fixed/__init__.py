"""Fixed-point numbers as scalars, and what a Program needs of them: which formats hold its values,
and how far its results are off.
"""

from rigidgrad.fixed.format import Fixed
from rigidgrad.fixed.number import Number

__all__ = ["Fixed", "Number"]
