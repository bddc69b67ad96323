"""Optimal control: systems, costs, problems and the solvers for them."""
