"""Our own simulator: one compiled program a step. Inertias, friction and pushes are its inputs, so
that changing them compiles nothing.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.algorithms import ltl
from rigidgrad.algorithms.crba import crba
from rigidgrad.algorithms.fast.newton_euler import newton_euler
from rigidgrad.algorithms.joints import Matrix, Vector, body_transforms
from rigidgrad.algorithms.sparsity import supports
from rigidgrad.control.integrators import check_method, step
from rigidgrad.control.system import CustomSystem, RobotSystem, System
from rigidgrad.errors import InputError
from rigidgrad.model.canonical import canonical
from rigidgrad.model.description import Actuator
from rigidgrad.model.model import WORLD, Model
from rigidgrad.plants.mismatch import Loaded
from rigidgrad.plants.passive import JointServo, spring_forces
from rigidgrad.plants.plant import Plant
from rigidgrad.program.fuse import fuse
from rigidgrad.program.recorder import record
from rigidgrad.robot import Robot
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.job import Job, digest
from rigidgrad.runtime.mass_matrix import require_inverse
from rigidgrad.scalars import Scalar, add, mul, sqrt, sub
from rigidgrad.spatial import Force, Matrix3, multiply_rotations, rotate


class Simulator(Plant):
    """A robot, or a CustomSystem, simulated by a method of `control.integrators`.

    `actuation`: as of a Problem, but a Robot alone takes a force on every freedom. `friction`:
    None, "model" or a Friction. `springs`: None or "model". `servos=True`: controls are the
    commands of the robot's own actuators. `payload`: a Payload. `mass_error`: relative errors of
    masses and inertias, one number or one a body. `pushes`: a list of Push. `clamp`: True for the
    robot's effort limits, or a pair of bounds of u. `log=True` keeps `.log`.

    Friction is taken implicitly, of first order in the step: with k the ratio of friction to
    velocity, (M + h k) a = τ - c - k v, for rk4 with h/2. So any friction is stable, and never
    turns a motion round; likewise the damping of a servo on one joint. All else is of the
    integrator's order. `system` is a Robot, a RobotSystem or a CustomSystem; it starts at `x0`
    (nx,).

    Example:

        >>> import rigidgrad as rg
        >>> plant = rg.plants.Simulator(rg.load("double_pendulum"), [0.1, 0, 0, 0], dt=0.01)
        >>> plant.advance([0, 0])
        >>> plant.x.shape
        (4,)
    """

    def __init__(
        self,
        system: Robot | System,
        x0: ArrayLike,
        dt: float = 1e-3,
        *,
        integrator: str = "rk4",
        **options: Any,
    ):
        super().__init__(system, x0, dt, **options)
        self.integrator = check_method(integrator)
        self._after = np.empty(self.nx)
        self._time_step = np.zeros(())
        self._inputs: list[np.ndarray] = []
        if self.robot is None:
            assert isinstance(system, CustomSystem)
            if system.discrete:
                raise InputError(
                    "discrete dynamics have no time between their steps: a plant needs continuous"
                    " ones"
                )
            self._program = _custom_program(system, self.integrator)
        else:
            self._body = Body(
                self.robot.model,
                self.actuation,
                self._resistance is not None,
                self._springs,
                self._servos,
            )
            self._program = self._body.compiled(self.integrator)
            self._inertia = np.empty((len(self.robot.model.joints), 10))
            self._pressed = np.zeros((len(self.robot.model.joints), 4, 3))
            self._inputs = [self._inertia, self._pressed]
            if self._resistance is not None:
                self._inputs += [
                    self._resistance.viscous,
                    self._resistance.coulomb,
                    np.array(self._resistance.smoothing),
                ]
        self.reset()

    def _place(self, x: np.ndarray) -> None:
        """The state is all there is."""

    def _step(self, h: float) -> np.ndarray:
        self._time_step[()] = h
        after: np.ndarray = self._program(
            self._x, self._u, self._time_step, *self._inputs, out=self._after
        )
        return after

    def _acceleration(self, u: np.ndarray) -> np.ndarray:
        a: np.ndarray = self._body.compiled(None)(self._x, u, np.zeros(()), *self._inputs)
        return a

    def _bear(self, inertias: tuple[tuple[Any, ...], ...]) -> None:
        assert self.robot is not None
        model = dataclasses.replace(self.robot.model, inertias=inertias)
        friction = self._resistance
        added = None if friction is None else friction.viscous + friction.coulomb
        require_inverse(model, "a simulator", added)
        self._inertia[:] = self._body.lean_parameters(inertias)

    def _press(self, pushes: list[Loaded]) -> None:
        self._pressed[:] = 0.0
        for push in pushes:
            self._pressed[push.body] += np.outer(
                [1.0, *self._body.in_lean(push.body, push.point)], push.force
            )


class Body:
    """A robot's programs, with its inertias, friction and forces as inputs.

    They work on the canonical model, whose inertias have fewer numbers; which of them vanish
    depends on the joints alone.
    """

    def __init__(
        self,
        model: Model,
        actuation: np.ndarray | None,
        friction: bool,
        springs: bool = False,
        servos: tuple[Actuator, ...] = (),
    ):
        self.model, self.friction, self.springs, self.servos = model, friction, springs, servos
        self.actuation = (
            None if actuation is None else tuple(tuple(row) for row in actuation.tolist())
        )
        self.nu = model.nv if actuation is None else actuation.shape[1]
        self.canonical_model = canonical(model)
        self._made: dict[str | None, Compiled] = {}
        drawn = np.random.default_rng(0).uniform(1.0, 2.0, (len(model.joints), 10))
        self._kept = (
            self.lean_parameters(tuple((x[0], tuple(x[1:4]), tuple(x[4:])) for x in drawn.tolist()))
            != 0.0
        )

    def lean_parameters(self, inertias: tuple[tuple[Any, ...], ...]) -> np.ndarray:
        """(bodies, 10): inertias of the robot's own bodies as those of the canonical model."""
        found = canonical(dataclasses.replace(self.model, inertias=inertias)).inertias
        return np.array([(m, *h, *rotational) for m, h, rotational in found])

    def compiled(self, method: str | None) -> Compiled:
        """(x, u, h, inertia, push [, viscous, coulomb, smoothing]) → the next state by an
        integrator, or without one the acceleration.
        """
        if method not in self._made:
            m, n = self.model, len(self.model.joints)
            inputs: dict[str, tuple[int, ...]] = {
                "x": (m.nq + m.nv,),
                "u": (self.nu,),
                "h": (),
                "inertia": (n, 10),
                "push": (n, 4, 3),
            }
            if self.friction:
                inputs |= {"viscous": (m.nv,), "coulomb": (m.nv,), "smoothing": ()}
            outputs = {"x": inputs["x"]} if method else {"a": (m.nv,)}

            def evaluate(a: dict[str, Any]) -> tuple[Any, ...]:
                # a step of rk4 multiplies by 1 + z + … + z⁴/24, which is positive, and at most 1
                # for -2.78 < z < 0; the others need |z| < 1
                system = _Disturbed(self, a, 0.5 * a["h"] if method == "rk4" else a["h"])
                if method:
                    return (step(system, method, a["x"], a["u"], a["h"]),)
                return (system.acceleration(*system.split(a["x"]), a["u"]),)

            identity = (
                f"{digest(m)} {self.actuation!r} {self.friction} {self.springs} {self.servos!r}"
                f" {method}"
            )
            recording = Job(
                "plant", m.name, identity, lambda: fuse(record(inputs, outputs, evaluate)), width=1
            )
            self._made[method] = Compiled(recording, dtype="float64", threads=1)
        return self._made[method]

    def inertias(self, parameters: Matrix) -> tuple[tuple[Any, ...], ...]:
        """(m, h, I) of the bodies, with zeros where they always are."""
        rows = (
            tuple(x if k else 0.0 for x, k in zip(row, kept, strict=True))
            for row, kept in zip(parameters, self._kept, strict=True)
        )
        return tuple((x[0], x[1:4], x[4:]) for x in rows)

    def in_lean(self, body: int, point: np.ndarray) -> np.ndarray:
        """A point of a body, in the frame that the canonical model gives it."""
        own = next(f for f in self.model.frames.values() if f.body == body)
        other = self.canonical_model.frames[own.name].placement.matrix() @ np.linalg.inv(
            own.placement.matrix()
        )
        moved: np.ndarray = other[:3, :3] @ point + other[:3, 3]
        return moved


class _Disturbed(RobotSystem):
    """The robot's dynamics over scalars, with what a plant adds."""

    def __init__(self, body: Body, a: dict[str, Any], implicit: Scalar):
        self.model, self.actuation = body.model, body.actuation
        self.nq, self.nv, self.nu = body.model.nq, body.model.nv, body.nu
        self.nx, self.ndx = self.nq + self.nv, 2 * self.nv
        self.touching = None  # a plant of ours has no contacts
        self.canonical_model = dataclasses.replace(
            body.canonical_model, inertias=body.inertias(a["inertia"])
        )
        self._inputs, self._friction, self._implicit = a, body.friction, implicit
        self._springs = body.springs
        self._servos = [JointServo.of(body.model, s) for s in body.servos]

    def acceleration(self, q: Vector, v: Vector, u: Vector) -> Vector:
        M = [list(row) for row in crba(self.canonical_model, q)]
        c = newton_euler(self.canonical_model, q, v, (0.0,) * self.nv, self._forces(q))
        if self._servos:
            found = [s.force(q, v, x) for s, x in zip(self._servos, u, strict=True)]
            u = tuple(force for force, _ in found)
            for servo, (_, damping) in zip(self._servos, found, strict=True):
                if len(servo.arms) == 1:  # on one joint, which takes it as its own damping
                    ((i, arm),) = servo.arms.items()
                    M[i][i] = add(M[i][i], mul(self._implicit, mul(arm * arm, damping)))
        forces = [sub(t, x) for t, x in zip(self.forces(u), c, strict=True)]
        if self._springs:
            forces = [sub(f, x) for f, x in zip(forces, spring_forces(self.model, q), strict=True)]
        if self._friction:
            for i, k in enumerate(self._friction_ratio(v)):
                forces[i] = sub(forces[i], mul(k, v[i]))
                M[i][i] = add(M[i][i], mul(self._implicit, k))
        return ltl.solve(
            ltl.factorize(M, supports(self.canonical_model), self.canonical_model.joints), forces
        )

    def _friction_ratio(self, v: Vector) -> list[Scalar]:
        """k with friction = -k v."""
        a = self._inputs
        soft = a["smoothing"] * a["smoothing"]
        return [
            d + c / sqrt(x * x + soft)
            for d, c, x in zip(a["viscous"], a["coulomb"], v, strict=True)
        ]

    def _forces(self, q: Vector) -> dict[int, Force]:
        """The pushes in the bodies' frames. A body's input is Σ [1, p] fᵀ over its pushes, with the
        point p in its frame and the force f in the world's.
        """
        turns: list[Matrix3] = []
        result = {}
        for i, X in enumerate(body_transforms(self.canonical_model, q)):
            parent = self.canonical_model.parents[i]
            turns.append(X.E if parent == WORLD else multiply_rotations(X.E, turns[parent]))
            force, x, y, z = (rotate(turns[i], row) for row in self._inputs["push"][i])
            result[i] = Force((sub(y[2], z[1]), sub(z[0], x[2]), sub(x[1], y[0])), force)
        return result


def _custom_program(system: CustomSystem, method: str) -> Compiled:
    inputs: dict[str, tuple[int, ...]] = {"x": (system.nx,), "u": (system.nu,), "h": ()}
    program = fuse(
        record(
            inputs, {"x": inputs["x"]}, lambda a: (step(system, method, a["x"], a["u"], a["h"]),)
        )
    )
    # what a Python function does is only known from its recording
    return Compiled(
        Job("plant", system.name, str(program), lambda: program, width=1),
        dtype="float64",
        threads=1,
    )
