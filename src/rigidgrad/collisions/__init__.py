"""Distances between a robot's links and what is around them, and whether anything touches, for
whole batches of positions: one in each lane.
"""
