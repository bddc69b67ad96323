"""The papers' pages: what the NumPy engine runs, the reference of every other formulation, and
compiled where no other takes fewer operations.
"""
