"""Rigid-body algorithms, one file each, over any scalar.

Here is what all of them share; `textbook` has the papers' pages, `fast` what is compiled instead of
them where it takes fewer operations.

Every function takes a Model and flat tuples of scalars in the user's layout (`q` of nq, `v`, `a`,
`tau` of nv numbers) and returns tuples of scalars; an entry that is structurally zero is the plain
float 0.0. The letters are those of the papers: X, S, I, v, a, f, and λ for a parent.
"""
