"""CUDA and OpenCL: one kernel body, two preludes, two shapes.

*thread per state* (`thread.py`): a Program in the registers of one thread. *block per state*
  (`block*.py`): the threads of a block share the work of one state, level by level of the tree;
  `schedule.py` finds the barriers and the places in shared memory. `library.py` writes the C++ and
  OpenCL files.
"""
