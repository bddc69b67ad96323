"""PTX on the CPU: runs what NVRTC or nvcc made of a kernel, warp by warp, and counts what a
profiler would.

`text` reads PTX, `arithmetic` and `blocks` make Python of straight pieces of it, `memory` has the
spaces with their checks, `machine` runs warps between barriers, `counts` is the report. `runner` is
what tests call.
"""
