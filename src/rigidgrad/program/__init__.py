"""Programs: an algorithm recorded for one robot, as straight-line code that targets render.

`record` runs a function on recorder scalars and gives a `Program`; `differentiate` gives the
Program of its derivatives.
"""
