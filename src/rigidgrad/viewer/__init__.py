"""Robots and motions to look at: in a browser, live, or as one HTML file that needs nothing
else.
"""

from rigidgrad.viewer.page import fragment
from rigidgrad.viewer.show import view

__all__ = ["fragment", "view"]
