"""What is compiled for a problem whose accelerations and contact forces are unknowns
(`inverse`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from rigidgrad.algorithms import manifold
from rigidgrad.algorithms.fast.constraint_rows import Inputs
from rigidgrad.algorithms.fast.contact_residuals import contact_residuals
from rigidgrad.control.integrators import free_base, lasting
from rigidgrad.control.programs import Programs, Shapes, expanded_shapes
from rigidgrad.control.system import RobotSystem
from rigidgrad.errors import InputError
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.job import Job
from rigidgrad.runtime.riccati import Layout
from rigidgrad.scalars import add, mul, sub, total


class FreePrograms:
    """Of the Programs of a robot's problem, the same with a and f as inputs."""

    def __init__(self, programs: Programs):
        system = programs.system
        if not isinstance(system, RobotSystem) or free_base(system, programs.integrator) is None:
            raise InputError(
                'form="inverse" is for robots of which at most the first joint turns freely, moved'
                ' by integrator="semi_implicit_euler"; leave form out'
            )
        self.programs, self.system = programs, system

    @staticmethod
    def of(programs: Programs) -> FreePrograms:
        """Those of some Programs, made once."""
        return programs.once(FreePrograms, programs)

    @property
    def forces(self) -> int:
        """Numbers of all contact forces."""
        return 0 if self.system.held is None else sum(c.rows for c in self.system.held.constraints)

    @property
    def inputs(self) -> Shapes:
        s = self.system
        return {
            "x": (s.nx,),
            "u": (s.nu,),
            "a": (s.nv,),
            "f": (self.forces,),
            "h": (),
            "p": (self.programs.parameters,),
        }

    def layout(self, dtype: str) -> Layout:
        """How the backward pass wants F, l and L: F tells of velocities, and with it how these move
        positions.
        """
        o, base = (
            replace(self.programs.layout_in(dtype), diagonal=False),
            free_base(self.system, self.programs.integrator),
        )
        assert base is not None
        return o if o.form != "dense" else replace(o, form="floating", base=base)

    def expansion(self, dtype: str = "float64") -> Compiled:
        """(x, u, a, f, h, p) → F, l and L, and `offset` and `G` of `kernels.knot`."""
        return self.programs.once(self._expansion, dtype)

    def _expansion(self, dtype: str) -> Compiled:
        s, o, r = self.system, self.layout(dtype), self.forces
        outputs = dict(expanded_shapes(o)) | {"offset": (s.nv + 3 * r,), "G": (r, o.n + o.m)}
        build, identity = (
            self.programs.knot(s, o, self.inputs, outputs),
            self.programs.identity(self.inputs, lambda: None),
        )
        return Compiled(Job(f"free expansion {o}", s.name, identity, build), dtype=dtype, threads=1)

    @cached_property
    def evaluation(self) -> Compiled:
        """(x, a, f, h, p, to) → the controls that a and f need, how far the equations of the knot
        are from being solved, and the cost and the penalty: the state after it less `to`, the
        forces that are lacking then, and what contacts lack, times the time they act.
        """
        s = self.system
        B = np.eye(s.nv) if s.actuation is None else np.array(s.actuation)
        pseudo = np.linalg.pinv(B)
        pseudo[np.abs(pseudo) < 1e-14] = 0.0

        def evaluate(a: dict[str, Any]) -> tuple[Any, ...]:
            own = self.programs.given(a["p"])
            assert isinstance(own, RobotSystem)
            q, v = own.split(a["x"])
            touching = own.touching or Inputs(())
            needed, held = contact_residuals(
                own.canonical_model, q, v, a["a"], a["f"], touching, own.external, gauge=own.gauge
            )
            u = tuple(
                mul(touching.flow, total(mul(b, x) for b, x in zip(row, needed, strict=True)))
                for row in pseudo.tolist()
            )
            lacking = tuple(
                sub(x, mul(touching.flow, y)) for x, y in zip(needed, own.forces(u), strict=True)
            )
            h = lasting(own, a["h"])
            after = tuple(add(x, mul(h, y)) for x, y in zip(v, a["a"], strict=True))
            moved = (
                *manifold.integrate(own.model, q, tuple(mul(a["h"], w) for w in after)),
                *after,
            )
            residuals = (*own.minus(moved, a["to"]), *(mul(h, y) for y in (*lacking, *held)))
            return u, residuals, self.programs.values(a["x"], u, a["p"], own.with_forces(a["f"]))

        inputs = {name: shape for name, shape in self.inputs.items() if name != "u"}
        inputs["to"] = (s.nx,)
        outputs = {"u": (s.nu,), "residuals": (s.ndx + s.nv + self.forces,), "l": (2,)}
        return Compiled(
            self.programs.recording("free evaluation", inputs, outputs, evaluate),
            dtype="float64",
            threads=1,
        )

    @cached_property
    def accelerations(self) -> Compiled:
        """(x, u, p) → accelerations and contact forces; of an impact the change of velocities, and
        impulses.
        """
        s = self.system

        def evaluate(a: dict[str, Any]) -> tuple[Any, ...]:
            own = self.programs.given(a["p"])
            assert isinstance(own, RobotSystem)
            q, v = own.split(a["x"])
            return own.acceleration(q, v, a["u"]), (
                () if own.held is None else own.contact_forces(q, v, a["u"])
            )

        return self.programs.compiled(
            "accelerations", {}, {"a": (s.nv,), "f": (self.forces,)}, evaluate
        )
