"""What a problem and a solver's options give to generated C: recorded functions of a knot, sizes,
and the numbers that may be set at run time with those that they have at first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rigidgrad.kernels.language import Kernel
from rigidgrad.program.program import Program
from rigidgrad.targets.riccati_layout import Layout

WIDTH = 4  # columns of a matrix in a vector of the backward pass


@dataclass(frozen=True)
class Field:
    """Some numbers of a knot that may be set: a member of a structure in C. `kind` is "target",
    "weight", "input", or one of the numbers of a constraint.
    """

    name: str
    size: int
    kind: str
    about: str


@dataclass(frozen=True)
class Parts:
    """A solver. `wide` functions run on vectors, `narrow` ones on single numbers; of a roll-out all
    lanes share the inputs `shared`. `policies` are those of `kernels.search`. `options` are macros
    with their values. `defaults` are numbers of the problem: `start`, `h`, `u`, `x`, `lower`,
    `upper` and `knot`, the rows of parameters. `controlled`: of each number of a constraint whether
    it uses the control.
    """

    name: str
    about: Sequence[str]
    layout: Layout
    steps: int
    nx: int
    wide: Mapping[str, Program | Kernel]
    narrow: Mapping[str, Program | Kernel]
    policies: Mapping[str, Program]
    shared: frozenset[str]
    fields: Sequence[Field]
    options: Mapping[str, str]
    alphas: Sequence[float]
    messages: Sequence[str]
    defaults: Mapping[str, np.ndarray]
    flat: bool
    gaps: bool
    strides: Sequence[int]  # knots where those of penalties begin
    controlled: Sequence[bool] = ()
    hold: Program | None = None
    direct: bool = False  # the direct method, not parallel DDP
    # of an MPC: its period, latency and so on, as the header and macros have them
    controller: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, np.ndarray] = field(default_factory=dict)  # more constants of that
    # of a state, its tangent and a control: what their numbers are
    states: Sequence[str] = ()
    sample: Mapping[str, np.ndarray] = field(default_factory=dict)  # what Python found

    @property
    def nu(self) -> int:
        return self.layout.m

    @property
    def ndx(self) -> int:
        return self.layout.n

    @property
    def parameters(self) -> int:
        """Numbers of a knot."""
        return sum(f.size for f in self.fields)

    def places(self, *kinds: str) -> list[int]:
        """Where in a knot's numbers those of some kinds are."""
        found: list[int] = []
        at = 0
        for f in self.fields:
            if f.kind in kinds:
                found += range(at, at + f.size)
            at += f.size
        return found
