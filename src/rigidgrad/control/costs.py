"""Terms of a problem, over any scalar, and costs among them. Targets and weights are inputs of the compiled problem and may change at any time.

A Term is a vector of numbers that depends on the state and the control of one knot. A Cost charges ½ Σ w r² for it, with Gauss-Newton's second derivatives,
or w times a value with exact ones (`CustomValue`). Constraints (limits.py) keep a term between bounds.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rigidgrad.algorithms import kinematics, manifold, momentum, rnea, tangent_maps
from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.algorithms.rnea_derivatives import rnea_derivatives
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.errors import InputError, RigidgradError
from rigidgrad.model.pose import IDENTITY_POSE, Pose
from rigidgrad.program.differentiate import differentiate
from rigidgrad.program.nesting import flatten
from rigidgrad.program.program import Program
from rigidgrad.program.recorder import Graph, Value, record
from rigidgrad.rotations import cotangent_rest
from rigidgrad.scalars import Scalar, add, atan2, less, mul, neg, select, sqrt, total
from rigidgrad.spatial import Matrix3, Vector3, add3, cross3, dot3, multiply3, scale3, sub3, transpose

Jacobians = tuple[Matrix | None, Matrix | None]


class Quadratic(NamedTuple):
    """A function of (dx, du) to second order around a knot: lx (ndx,), lu (nu,), lxx (ndx, ndx), lux (nu, ndx), luu (nu, nu); None where it is zero."""

    value: Scalar
    lx: Vector | None
    lu: Vector | None
    lxx: Matrix | None
    lux: Matrix | None
    luu: Matrix | None


class Term(ABC):
    """A residual r(x, u; target). One that uses the control does not act on the last knot, which has none."""

    @property
    def uses_state(self) -> bool:
        return True

    @property
    def uses_control(self) -> bool:
        return False

    @abstractmethod
    def size(self, system: System) -> int:
        """Numbers in the residual."""

    @abstractmethod
    def target_size(self, system: System) -> int:
        """Numbers in the target, possibly none."""

    @abstractmethod
    def targets(self, system: System, knots: int) -> np.ndarray:
        """(knots, target_size). Checks all that can be wrong with the term for this system."""

    @abstractmethod
    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector: ...

    @abstractmethod
    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        """(∂r/∂dx, ∂r/∂du), of shapes (size, ndx) and (size, nu), in the tangent space at x; None where r does not depend on it."""

    def units(self, system: System) -> tuple[str, ...]:
        """Of each number of the residual: "m", "rad", "m/s", "rad/s", or "" where only the user knows."""
        return ("",) * self.size(system)

    def remaining(self, system: System, x: Vector, target: Vector) -> Vector:
        """What a state lacks of the target, in these units and the layout of the residual."""
        return self.residual(system, x, (0.0,) * system.nu, target)

    def key(self) -> str:
        """What distinguishes this term's recorded programs from others'."""
        return type(self).__name__

    def label(self) -> str:
        """What a reader calls it."""
        return type(self).__name__


class Cost(Term):
    """½ Σ w r². `weight` of every knot but the last, `final` of the last: a number, one a residual, or (for `weight`) one set a knot (knots - 1, size)."""

    def __init__(self, weight: Any = 0.0, final: Any = 0.0):
        self.weight, self.final = weight, final

    def weights(self, system: System, knots: int) -> np.ndarray:
        """(knots, size)."""
        size, name = self.size(system), type(self).__name__
        if self.uses_control and np.any(np.asarray(self.final) != 0):
            raise InputError(f"{name} uses the control, which the last knot does not have: leave its final weight out")
        result = np.zeros((knots, size))
        result[:-1] = numbers(f"the weight of {name}", self._spread(self.weight), (knots - 1, size))
        result[-1] = numbers(f"the final weight of {name}", self._spread(self.final), (size,))
        if (result < 0).any():
            raise InputError(f"a weight of {name} is negative; a cost must have a minimum")
        return result

    def _spread(self, weight: Any) -> Any:
        """A weight in a notation of this cost alone, as numbers that broadcast to the residual's."""
        return weight

    def value(self, system: System, x: Vector, u: Vector, target: Vector, weight: Vector) -> Scalar:
        r = self.residual(system, x, u, target)
        return mul(0.5, total(mul(w, mul(a, a)) for w, a in zip(weight, r, strict=True)))

    def expand(self, system: System, x: Vector, u: Vector, target: Vector, weight: Vector) -> Quadratic:
        """The cost with its derivatives."""
        r = self.residual(system, x, u, target)
        charged = tuple(mul(w, a) for w, a in zip(weight, r, strict=True))
        value = mul(0.5, total(mul(a, b) for a, b in zip(charged, r, strict=True)))
        return Quadratic(value, *gauss_newton(self.jacobian(system, x, u, target), charged, weight))


def gauss_newton(jacobians: Jacobians, first: Vector, second: Vector) -> tuple:
    """(lx, lu, lxx, lux, luu): Jᵀ·first and Jᵀ·diag(second)·J."""
    J_x, J_u = jacobians
    lx, lxx = (None, None) if J_x is None else (_gradient(J_x, first), _square(J_x, second))
    lu, luu = (None, None) if J_u is None else (_gradient(J_u, first), _square(J_u, second))
    lux = None
    if J_x is not None and J_u is not None:
        scaled = [[mul(w, b) for b in row] for w, row in zip(second, J_u, strict=True)]
        columns = list(zip(*J_x, strict=True))
        lux = tuple(tuple(total(map(mul, a, b)) for b in columns) for a in zip(*scaled, strict=True))
    return lx, lu, lxx, lux, luu


def _gradient(J: Matrix, first: Vector) -> Vector:
    return tuple(total(map(mul, first, column)) for column in zip(*J, strict=True))


def _square(J: Matrix, second: Vector) -> Matrix:
    columns = list(zip(*J, strict=True))
    rows = [tuple(map(mul, second, column)) for column in columns]
    lower = [[total(map(mul, rows[i], columns[j])) for j in range(i + 1)] for i in range(len(columns))]
    return tuple(tuple(lower[max(i, j)][min(i, j)] for j in range(len(columns))) for i in range(len(columns)))


class State(Cost):
    """Be at a state: r = x ⊖ goal, with goal (nx,) or one a knot (knots, nx)."""

    def __init__(self, goal: Any, weight: Any = 0.0, final: Any = 0.0):
        super().__init__(weight, final)
        self.goal = goal

    def size(self, system: System) -> int:
        return system.ndx

    def target_size(self, system: System) -> int:
        return system.nx

    def units(self, system: System) -> tuple[str, ...]:
        if not isinstance(system, RobotSystem):
            return super().units(system)
        joints = sorted((j for j in system.model.joints if not j.is_mimic), key=lambda j: j.v)
        of_q = [unit for j in joints for unit in j.kind.units]
        return (*of_q, *(f"{unit}/s" for unit in of_q))

    def remaining(self, system: System, x: Vector, target: Vector) -> Vector:
        r = self.residual(system, x, (), target)
        if not isinstance(system, RobotSystem):
            return r
        return (*manifold.separation(system.model, system.split(target)[0], system.split(x)[0]), *r[system.nv :])

    def targets(self, system: System, knots: int) -> np.ndarray:
        result = numbers("the goal of State", self.goal, (knots, system.nx))
        if isinstance(system, RobotSystem):
            q = tuple(result[:, : system.nq].T)
            with np.errstate(all="ignore"):  # a quaternion of zeros becomes NaN
                unit = np.array(manifold.normalize(system.model, q))
            if not np.allclose(unit, q, rtol=0, atol=1e-6):
                raise InputError(
                    "the goal of State has a quaternion or (cos, sin) whose length is not 1; pass its q through robot.normalize"
                )
        return result

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        return system.minus(x, target)

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        rows: list[list[Any]] = [[0.0] * system.ndx for _ in range(system.ndx)]
        start = 0
        for block in system.minus_jacobian(system.minus(x, target)):
            for i, row in enumerate(block):
                rows[start + i][start : start + len(row)] = row
            start += len(block)
        return tuple(tuple(row) for row in rows), None


class Effort(Cost):
    """Spend little control: r = u - reference; the reference is 0 unless given, (nu,) or one a knot (knots - 1, nu).

    With `reference="gravity"` it is what holds a robot where it is, at every knot, so that the weight does not pull it down.
    """

    uses_control = True

    def __init__(self, weight: Any = 0.0, reference: Any = 0.0):
        super().__init__(weight)
        self.reference = reference

    @property
    def against_gravity(self) -> bool:
        return isinstance(self.reference, str)

    @property
    def uses_state(self) -> bool:
        return self.against_gravity

    def key(self) -> str:
        return "Effort against gravity" if self.against_gravity else "Effort"

    def size(self, system: System) -> int:
        return system.nu

    def target_size(self, system: System) -> int:
        return 0 if self.against_gravity else system.nu

    def targets(self, system: System, knots: int) -> np.ndarray:
        result = np.zeros((knots, self.target_size(system)))
        if not self.against_gravity:
            result[:-1] = numbers("the reference of Effort", self.reference, (knots - 1, system.nu))
        elif self.reference != "gravity":
            raise InputError(f'the reference of Effort is numbers or "gravity", not {self.reference!r}')
        else:
            robot_of(system, 'Effort(reference="gravity")')
        return result

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        if self.against_gravity:
            robot = robot_of(system, "gravity")
            target = _apply(self._holding(robot), rnea.gravity_torque(robot.model, robot.split(x)[0]))
        return tuple(a - b for a, b in zip(u, target, strict=True))

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        J_u = tuple(tuple(1.0 if i == j else 0.0 for j in range(system.nu)) for i in range(system.nu))
        if not self.against_gravity:
            return None, J_u
        robot = robot_of(system, "gravity")
        still = (0.0,) * robot.nv
        by_q = rnea_derivatives(robot.model, robot.split(x)[0], still, still).dq
        columns = [_apply(self._holding(robot), column) for column in zip(*by_q, strict=True)]
        return tuple((*(neg(y) for y in row), *still) for row in zip(*columns, strict=True)), J_u

    @staticmethod
    def _holding(robot: RobotSystem) -> Matrix | None:
        """From joint forces to the controls that come nearest to them; None where these are the same."""
        if robot.actuation is None:
            return None
        return tuple(tuple(row) for row in np.linalg.pinv(np.array(robot.actuation)).tolist())


def _apply(matrix: Matrix | None, vector: Vector) -> Vector:
    return tuple(vector) if matrix is None else tuple(total(map(mul, row, vector)) for row in matrix)


class Reach(Cost):
    """Bring a frame, or the point at `offset` in it, to a position or a pose in the world.

    A position is (3,) or one a knot (knots, 3); then r = p - target. A pose is a homogeneous matrix (4, 4) or (knots, 4, 4); then r has three numbers more, the
    rotation vector log(R_targetᵀ R) in the target's axes. Weights of a pose are a number, a pair (position, orientation), or six numbers.
    """

    def __init__(self, frame: str, target: Any, offset: Any = (0.0, 0.0, 0.0), weight: Any = 0.0, final: Any = 0.0):
        super().__init__(weight, final)
        self.frame, self.target = frame, target
        self.offset = tuple(numbers("the offset of Reach", offset, (3,)).tolist())
        self.pose = shape_of(target)[-2:] == (4, 4)

    def key(self) -> str:
        return f"Reach {'pose' if self.pose else 'position'} {self.frame!r} {self.offset}"

    def label(self) -> str:
        return f"Reach {self.frame!r}"

    def size(self, system: System) -> int:
        return 6 if self.pose else 3

    def target_size(self, system: System) -> int:
        return 12 if self.pose else 3

    def units(self, system: System) -> tuple[str, ...]:
        return ("m",) * 3 + ("rad",) * 3 * self.pose

    def targets(self, system: System, knots: int) -> np.ndarray:
        robot = robot_of(system, "Reach")
        point_of(robot, self.frame, self.offset)
        if not self.pose:
            return numbers("the target of Reach (a position)", self.target, (knots, 3))
        T = numbers("the target of Reach (a pose)", self.target, (knots, 4, 4))
        R = T[:, :3, :3]
        if not np.allclose(R @ R.transpose(0, 2, 1), np.eye(3), atol=1e-6) or (np.linalg.det(R) < 0).any():
            raise InputError("the upper left 3x3 part of a target of Reach must be a rotation")
        if not np.allclose(T[:, 3], (0, 0, 0, 1)):
            raise InputError("the last row of a target of Reach must be 0 0 0 1")
        return np.concatenate([T[:, :3, 3], R.reshape(knots, 9)], axis=1)

    def _spread(self, weight: Any) -> Any:
        return np.repeat(weight, 3, axis=-1) if self.pose and shape_of(weight)[-1:] == (2,) else weight

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        robot = robot_of(system, "Reach")
        X = kinematics.frame_transform(robot.model, robot.split(x)[0], point_of(robot, self.frame, self.offset))
        position = sub3(X.r, target[:3])
        return (*position, *self._turn(X.E, target)) if self.pose else position

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        robot = robot_of(system, "Reach")
        q, point = robot.split(x)[0], point_of(robot, self.frame, self.offset)
        J = kinematics.jacobian(robot.model, q, point, "world")
        rows = J[:3]
        if self.pose:
            E = kinematics.frame_transform(robot.model, q, point).E
            rows += tangent_maps.block_times([_turn_jacobian(E, self._turn(E, target))], J[3:])
        return tuple((*row, *((0.0,) * robot.nv)) for row in rows), None

    def _turn(self, E: Matrix3, target: Vector) -> Vector3:
        goal = target[3:6], target[6:9], target[9:12]
        return rotation_vector(multiply3(transpose(goal), transpose(E)))


class CenterOfMass(Cost):
    """Bring the robot's centre of mass to a position in the world: r = c - target, with target (3,) or one a knot (knots, 3)."""

    def __init__(self, target: Any, weight: Any = 0.0, final: Any = 0.0):
        super().__init__(weight, final)
        self.target = target

    def size(self, system: System) -> int:
        return 3

    def target_size(self, system: System) -> int:
        return 3

    def units(self, system: System) -> tuple[str, ...]:
        return ("m",) * 3

    def targets(self, system: System, knots: int) -> np.ndarray:
        momentum.total_mass(robot_of(system, "CenterOfMass").model)
        return numbers("the target of CenterOfMass", self.target, (knots, 3))

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        robot = robot_of(system, "CenterOfMass")
        return sub3(momentum.center_of_mass(robot.model, robot.split(x)[0]), target)

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        robot = robot_of(system, "CenterOfMass")
        J = momentum.center_of_mass_jacobian(robot.model, robot.split(x)[0])
        return tuple((*row, *((0.0,) * robot.nv)) for row in J), None


# --- functions that users write --------------------------------------------------------------------------------------------------


class Function(Term):
    """What a Python function over scalars returns: `function(x, u)`, or `function(x, u, p)` with `parameters`. For a robot x = [q, v].

    It is run once, on recorders, when a problem is made: so no `if` on numbers (use `rg.math.select`), and numbers that change later go into `parameters`,
    (np,) or one set a knot (knots, np). Derivatives are exact, in the tangent space. A term serves systems with one size of x and u.
    """

    def __init__(self, function: Callable[..., Any], parameters: Any = None, name: str | None = None):
        if not callable(function):
            raise InputError(f"a function of x and u is needed, not {type(function).__name__}")
        self.function, self.parameters = function, parameters
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self._program: Program | None = None

    def program(self, system: System) -> Program:
        """The function as recorded: inputs x, u, p; output r."""
        p = 0 if self.parameters is None else (shape_of(self.parameters) or (1,))[-1]
        shapes = {"x": (system.nx,), "u": (system.nu,), "p": (p,)}
        if self._program is None:
            self._program = self._record(shapes)
        if self._program.inputs != shapes:
            raise InputError(f"{self.name} was recorded for the sizes {self._program.inputs}; for {shapes} make another one")
        return self._program

    def _record(self, shapes: dict[str, tuple[int]]) -> Program:
        graph = Graph()
        x, u, p = (tuple(graph.input(name, k) for k in range(size)) for name, (size,) in shapes.items())
        try:
            result = self.function(x, u) if self.parameters is None else self.function(x, u, p)
            scalars = list(flatten(result.ravel().tolist() if isinstance(result, np.ndarray) else result))
            flat = [(s.sign, s.index) if isinstance(s, Value) else float(s) for s in scalars]
        except RigidgradError:
            raise
        except Exception as error:
            advice = "it is run once on recorded numbers: use rg.math for functions, and rg.math.select(condition, a, b) for if"
            raise InputError(f"{self.name} failed ({type(error).__name__}: {error}); {advice}") from error
        if not flat:
            raise InputError(f"{self.name} returned nothing; it must return a number, or a tuple of them")
        if not all(isinstance(r, tuple) or math.isfinite(r) for r in flat):
            raise InputError(f"{self.name} returned NaN or infinity whatever the state")
        program = Program.from_graph(dict(shapes), {"r": (len(flat),)}, graph.nodes, flat)
        if not {node[1] for node in program.nodes if node[0] == "input"} & {"x", "u"}:
            raise InputError(f"{self.name} depends neither on the state nor on the control, so nothing can change it")
        return program

    def _uses(self, name: str) -> bool:
        return any(node[:2] == ("input", name) for node in self._recorded().nodes)

    def _recorded(self) -> Program:
        if self._program is None:
            raise InputError(f"{self.name} is not part of a problem yet")
        return self._program

    @property
    def uses_state(self) -> bool:
        return self._uses("x")

    @property
    def uses_control(self) -> bool:
        return self._uses("u")

    def key(self) -> str:
        return f"{type(self).__name__} {self._recorded()}"

    def label(self) -> str:
        return str(self.name)

    def size(self, system: System) -> int:
        return self.program(system).outputs["r"][0]

    def target_size(self, system: System) -> int:
        return self.program(system).inputs["p"][0]

    def targets(self, system: System, knots: int) -> np.ndarray:
        shape = knots, self.target_size(system)
        return np.zeros(shape) if self.parameters is None else numbers(f"the parameters of {self.name}", self.parameters, shape)

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        return self.program(system).interpret({"x": x, "u": u, "p": target})[0]

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        by_x, by_u = _at_zero(system, differentiate(self._perturbed(system), None, ["dx", "du"], "forward"), x, u, target)
        return by_x if self.uses_state else None, by_u if self.uses_control else None

    def _perturbed(self, system: System) -> Program:
        """The function at x ⊕ dx and u + du."""
        program = self.program(system)

        def evaluate(v: dict[str, Any]) -> tuple:
            u = tuple(add(a, b) for a, b in zip(v["u"], v["du"], strict=True))
            return program.interpret({"x": system.plus(v["x"], v["dx"]), "u": u, "p": v["p"]})

        return record(program.inputs | {"dx": (system.ndx,), "du": (system.nu,)}, program.outputs, evaluate)


def _at_zero(system: System, program: Program, x: Vector, u: Vector, p: Vector) -> tuple:
    """A perturbed program at dx = 0 and du = 0: what depends on them alone folds away."""
    return program.interpret({"x": x, "u": u, "p": p, "dx": (0.0,) * system.ndx, "du": (0.0,) * system.nu})


class Custom(Function, Cost):
    """½ Σ w r² of a residual r that a Python function returns, a number or a tuple of them (see `Function`)."""

    def __init__(
        self, function: Callable[..., Any], weight: Any = 0.0, final: Any = 0.0, *, parameters: Any = None, name: str | None = None
    ):
        Function.__init__(self, function, parameters, name)
        Cost.__init__(self, weight, final)


class CustomValue(Custom):
    """w times the one number that a Python function returns (see `Function`), with exact second derivatives.

    Where these are indefinite, a solver regularises; a sum of squares converges better as `Custom`. On joints with quaternions, second derivatives are those
    along the exponential map.
    """

    def size(self, system: System) -> int:
        size = super().size(system)
        if size != 1:
            raise InputError(f"{self.name} returned {size} numbers; a CustomValue is one, and Custom squares and adds several")
        return size

    def value(self, system: System, x: Vector, u: Vector, target: Vector, weight: Vector) -> Scalar:
        return mul(weight[0], self.residual(system, x, u, target)[0])

    def expand(self, system: System, x: Vector, u: Vector, target: Vector, weight: Vector) -> Quadratic:
        gradient = differentiate(self._perturbed(system), None, ["dx", "du"], "forward")
        hessian = differentiate(gradient, None, ["dx", "du"], "forward", values=True)
        (lx,), (lu,), (lxx,), _, (lux,), (luu,) = _at_zero(system, hessian, x, u, target)
        w, of_x, of_u = weight[0], self.uses_state, self.uses_control
        return Quadratic(
            self.value(system, x, u, target, weight),
            _scaled(w, lx) if of_x else None,
            _scaled(w, lu) if of_u else None,
            tuple(_scaled(w, row) for row in lxx) if of_x else None,
            tuple(_scaled(w, row) for row in lux) if of_x and of_u else None,
            tuple(_scaled(w, row) for row in luu) if of_u else None,
        )


def _scaled(w: Scalar, row: Vector) -> Vector:
    return tuple(mul(w, a) for a in row)


# --- frames, rotations, numbers --------------------------------------------------------------------------------------------------


def rotation_vector(R: Matrix3) -> Vector3:
    """log R, of length up to π. Of four multiples of its quaternion the one with the longest divisor is taken (Shepperd 1978), so it is right near π, too."""
    (a, b, c), (d, e, f), (g, h, i) = R
    best: Vector = (1 + a + e + i, h - f, c - g, d - b)
    largest = best[0]
    others: list[Vector] = [
        (h - f, 1 + a - e - i, b + d, c + g),
        (c - g, b + d, 1 - a + e - i, f + h),
        (d - b, c + g, f + h, 1 - a - e + i),
    ]
    for k, other in enumerate(others, 1):
        better = less(largest, other[k])
        best = tuple(select(better, y, x) for x, y in zip(best, other, strict=True))
        largest = select(better, other[k], largest)
    w, v = best[0], best[1:]
    sign = select(less(w, 0.0), -1.0, 1.0)
    w, n2 = sign * w, dot3(v, v)
    tiny = less(n2, 1e-30)
    n = sqrt(select(tiny, 1 + 0 * n2, n2))
    ratio = select(tiny, 1 / select(tiny, w, 1 + 0 * w), atan2(n, w) / n)
    return scale3(2 * sign * ratio, v)


def _turn_jacobian(E: Matrix3, r: Vector3) -> Matrix3:
    """Takes an angular velocity in world axes to the rate of r = log(R_targetᵀ R): J_r(r)⁻¹ E with E = Rᵀ and J_r⁻¹ = 1 + ½ r× + (1 - θ/2 cot θ/2)/θ² r×r×."""
    rest = cotangent_rest(dot3(r, r))
    columns = []
    for e in transpose(E):
        re = cross3(r, e)
        columns.append(add3(e, add3(scale3(0.5, re), scale3(rest, cross3(r, re)))))
    return transpose(tuple(columns))


def robot_of(system: System, what: str) -> RobotSystem:
    if not isinstance(system, RobotSystem):
        raise InputError(f"{what} needs a robot, and the system is {system.name!r}; use a function (Custom, Inequality, Equality) instead")
    return system


def point_of(robot: RobotSystem, frame: str, offset: tuple[float, ...]) -> Any:
    """A frame moved to a point in it."""
    found = robot.model.frame(frame)
    return dataclasses.replace(found, placement=found.placement @ Pose(IDENTITY_POSE.R, offset))


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of what may be an array; of what is none, the empty one."""
    try:
        return np.shape(value)
    except ValueError:  # rows of different lengths
        return ()


def plain(value: Any) -> np.ndarray:
    """As an array of float64; a TypeError, ValueError or OverflowError where it is none. Complex numbers and texts are none."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiubO":
        raise TypeError(array.dtype)
    return array.astype(float, copy=False)


def numbers(what: str, value: Any, shape: tuple[int, ...], *, infinite: bool = False) -> np.ndarray:
    """Numbers broadcast to a shape: finite ones, unless infinities are allowed."""
    try:
        array = plain(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{what} must be numbers, not {type(value).__name__}") from None
    if np.isnan(array).any() or not (infinite or np.isfinite(array).all()):
        raise InputError(f"{what} holds NaN{'' if infinite else ' or infinity'}")
    try:
        return np.array(np.broadcast_to(array, shape))
    except ValueError:
        raise InputError(f"{what} has shape {array.shape}; it must be, or broadcast to, {shape}") from None
