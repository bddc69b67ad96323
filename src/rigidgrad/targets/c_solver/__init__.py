"""Whole solvers as C99: `parts` are what a problem gives, `source`, `header`, `wrapper` and
`package` the files; `code/` is what is the same for all.
"""
