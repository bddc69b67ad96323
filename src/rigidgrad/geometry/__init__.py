"""Shapes, the meshes that they are read from, how meshes are covered by spheres, and the nearest
points of pairs of shapes.
"""
