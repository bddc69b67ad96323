"""Formulations with fewer operations: candidates of `runtime.formulation`, and what the dynamics of
solvers and simulators are made of.
"""
