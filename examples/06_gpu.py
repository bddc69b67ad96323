"""A robot's gradients on a GPU: CUDA where there is one, else OpenCL (PoCL runs it on the CPU),
else what is missing; and the code that would run there.
"""

import tempfile
from pathlib import Path

import numpy as np

import rigidgrad as rg
from rigidgrad.targets.gpu import block

robot = rg.load("iiwa14")
q, v, tau = robot.random(batch=(256,), seed=0)

device = None
for kind in ("cuda", "opencl"):
    try:
        device = robot.to(kind)
        break
    except rg.errors.InputError as error:
        print(f"{error}\n")

if device is not None:
    print(f"running: {device!r}")
    for name in ("aba", "aba_derivatives"):
        there, here = getattr(device, name)(q, v, tau), getattr(robot, name)(q, v, tau)
        pairs = zip(there, here, strict=True) if isinstance(here, tuple) else [(there, here)]
        error = max(np.abs(x - y).max() / np.abs(y).max() for x, y in pairs)
        print(f"  {name:<20} {len(q)} states, differs from the CPU by {error:.0e}")
        assert error < 1e-10

print("\nkernels with a block of threads a state:")
for which, floating in (("iiwa14", False), ("hyq", False), ("atlas", False), ("atlas", True)):
    function = block.block_function(rg.load(which, floating_base=floating).model, "aba_derivatives")
    print(
        f"  gradient of forward dynamics, {which + (' floating' if floating else ''):<15}"
        f" {function.barriers:3d} barriers, {function.shared_bytes('float32') / 1024:5.1f} KB of"
        " shared memory in float32"
    )

with tempfile.TemporaryDirectory() as folder:
    print("\ngenerated C++:")
    for path in rg.generate(
        robot, ["rnea", "aba_derivatives"], target="cuda", out=Path(folder), dtypes=["float32"]
    ):
        print(f"  {path.name:<20} {len(path.read_text().splitlines()):6d} lines")
