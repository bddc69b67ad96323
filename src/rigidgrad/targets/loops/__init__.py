"""Loops over arrays, written as Python functions, as LLVM IR.

`values`, `arrays`: what they compute with; `source`, `cells`, `translate`: their control flow;
`render`: the module.
"""
