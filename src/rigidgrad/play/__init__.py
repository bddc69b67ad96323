"""`rigidgrad play`: a robot under live model predictive control, on a page to play with; from
Python `rigidgrad.play.page.play`.
"""
