"""A tensor as a loop over its first axis: a Program of weighted sums, called with one unit vector
after the other.
"""

from __future__ import annotations

import math

from rigidgrad.kernels.language import Kernel
from rigidgrad.program.program import Program


def tensor_kernel(program: Program, weights: str) -> Kernel:
    """From Σ w_i T_i, with w an input of the Program, all T_i."""
    (n,) = program.inputs[weights]
    k = Kernel()
    given = {
        name: k.input(name, *shape).at(0, math.prod(shape))
        for name, shape in program.inputs.items()
        if name != weights
    }
    tensors = {name: k.output(name, n, *shape) for name, shape in program.outputs.items()}
    ones = k.constant("unit", [0.0] * (n - 1) + [1.0] + [0.0] * (n - 1))
    with k.each(n) as i:
        unit = ones.at(i * -1 + (n - 1), n)
        inputs = {name: unit if name == weights else given[name] for name in program.inputs}
        sizes = {name: math.prod(shape) for name, shape in program.outputs.items()}
        k.call(
            program,
            inputs,
            {name: tensors[name].at(i * size, size) for name, size in sizes.items()},
        )
    return k
