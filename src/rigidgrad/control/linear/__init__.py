"""Linear-quadratic subproblems of a horizon, and the ways to solve them."""
