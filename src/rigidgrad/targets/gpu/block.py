"""Block-per-state functions: what each records of `block_algorithms`, and where its results are in
shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rigidgrad.errors import InputError, unknown_name
from rigidgrad.model.canonical import canonical
from rigidgrad.model.model import Model
from rigidgrad.program.program import Shape
from rigidgrad.targets.gpu import (
    block_algorithms as algorithms,
    block_dense,
    block_kinematics as kinematics,
)
from rigidgrad.targets.gpu.block_algorithms import Work
from rigidgrad.targets.gpu.block_dynamics import Dynamics
from rigidgrad.targets.gpu.schedule import (
    PROCESSOR,
    WARP,
    Number,
    Schedule,
    Value,
)

# beyond this, less is brought together in shared memory; a block of every GPU since 2018 but one
# can have 99 KB
SHARED_BYTES = 96 * 1024
BLOCKS = 16  # that a processor takes at least
FUNCTIONS = (
    "rnea",
    "bias",
    "gravity_torque",
    "aba",
    "crba",
    "minv",
    "rnea_derivatives",
    "aba_derivatives",
    "fused_gradient",
    "frame_placement",
    "frame_velocity",
    "jacobian",
    "jacobian_derivative",
    "gradient_split",
    "gradient_fused",
    "gradient_with_acceleration",
)


@dataclass(frozen=True)
class Gather:
    """Results that are numbers in shared memory; None is a structural zero."""

    name: str
    numbers: tuple[Number | None, ...]


@dataclass(frozen=True)
class Matrix:
    """A result that is an array (n, n) in shared memory, zero outside each row's range."""

    name: str
    array: Value


@dataclass(frozen=True)
class Products:
    """Results -M⁻¹ D for matrices D of numbers all over shared memory, which the last stage brings
    together as arrays (n, n), if there is room for them. M⁻¹ is zero outside each row's range.
    """

    names: tuple[str, ...]
    inverse: Value
    arrays: tuple[Value, ...]  # or none
    sources: tuple[tuple[Number | None, ...], ...]


Store = Gather | Matrix | Products


@dataclass(frozen=True)
class BlockFunction:
    """A function of one state for a block of threads."""

    name: str
    model: Model
    inputs: dict[str, Shape]
    outputs: dict[str, Shape]
    schedule: Schedule
    stores: tuple[Store, ...]
    loads: dict[str, int]  # where the inputs go
    constants: tuple[float, ...]  # and what goes to the first places after them
    constants_at: int
    ranges: tuple[tuple[int, int], ...]

    @property
    def barriers(self) -> int:
        """Of one state. Those of a single warp cost next to nothing."""
        return self.schedule.barriers + int(self.meets_next)

    @cached_property
    def meets_next(self) -> bool:
        """Whether a barrier has to keep the next state apart: its inputs come to where results may
        still be read.
        """
        places = self.schedule.place

        def numbers(x: Value | Number) -> range:
            return range(places(x), places(x) + (x.size if isinstance(x, Value) else 1))

        read = {k for store in self.stores for x in _read(store) for k in numbers(x)}
        brought = {
            k for key, at in self.loads.items() for k in range(at, at + math.prod(self.inputs[key]))
        }
        constants = range(self.constants_at, self.constants_at + len(self.constants))
        return not read.isdisjoint(brought.union(constants))

    @property
    def states(self) -> int:
        """How many a block of threads works on at once: two where a warp has one and memory would
        take more blocks than a processor does.
        """
        small = self.schedule.size * BLOCKS <= PROCESSOR
        return 2 if self.schedule.threads == WARP and small else 1

    @property
    def threads(self) -> int:
        return self.schedule.threads * self.states

    def shared_bytes(self, dtype: str) -> int:
        return self.schedule.size * self.states * (8 if dtype == "float64" else 4)


def has_block(model: Model) -> bool:
    """Whether `block_function` can compute a model."""
    return bool(model.joints) and all(j.kind.moves_as for j in model.joints)


def block_function(
    model: Model,
    name: str,
    *,
    external: Sequence[str] = (),
    frame: str | None = None,
    expressed_in: str = "world",
    threads: int | None = None,
) -> BlockFunction:
    """A function of `FUNCTIONS`; options as for `catalog.bind`.

    `gradient_split` takes q, v and, per body of the canonical model, the velocities, accelerations
    and forces across joints that inverse dynamics leaves; `gradient_fused` takes q, v, a. Both give
    the gradient of inverse dynamics, without M. `gradient_with_acceleration` is `aba_derivatives`
    with the acceleration.
    """
    if name not in FUNCTIONS:
        raise unknown_name("function for blocks of threads", name, FUNCTIONS)
    if not model.joints:
        raise InputError(f"robot '{model.name}' has no moving joint: there is nothing to compute")
    for joint in model.joints:
        if joint.kind.moves_as is None:
            raise InputError(
                f"joint '{joint.name}' is {joint.type}: kernels with a block a state have no such"
                " joint, use one thread a state"
            )
    options = {"external": external, "frame": frame, "expressed_in": expressed_in}
    reduced = canonical(model)
    function = _recorded(reduced, name, options | {"dense": True}, threads)
    if function.shared_bytes("float64") > SHARED_BYTES:
        function = _recorded(reduced, name, options | {"dense": False}, threads)
    return function


def _recorded(
    model: Model, name: str, options: Mapping[str, Any], threads: int | None
) -> BlockFunction:
    w = Work(model)
    inputs: dict[str, Shape] = {}

    def take(key: str, *shape: int) -> Value:
        inputs[key] = shape
        return w.input(key, math.prod(shape))

    take("q", model.nq)
    stores = list(_RECORD[name](w, take, options))
    w.block.keep(x for store in stores for x in _read(store))
    schedule = w.block.schedule(threads)
    constants, at = _constants(w, schedule)
    outputs = {k: v for store in stores for k, v in _shapes(store, model.nv).items()}
    loads = {key: schedule.place(value) for key, value in w.inputs.items()}
    return BlockFunction(
        name, model, inputs, outputs, schedule, tuple(stores), loads, constants, at, tuple(w.ranges)
    )


# --- what each function records -------------------------------------------------------------------


def _wrenches(take: Any, options: Mapping[str, Any]) -> dict[str, Value]:
    return {link: take(f"external:{link}", 6) for link in options["external"]}


def _rnea(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    v, a = take("v", w.model.nv), take("a", w.model.nv)
    dynamics = Dynamics(w, w.transforms(), v, _wrenches(take, options))
    return [Gather("tau", tuple(dynamics.torques(a)))]


def _bias(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    dynamics = Dynamics(w, w.transforms(), take("v", w.model.nv), _wrenches(take, options))
    return [Gather("tau", tuple(dynamics.torques(None)))]


def _gravity_torque(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    return [Gather("tau", tuple(Dynamics(w, w.transforms()).torques(None)))]


def _aba(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    n = w.model.nv
    v, tau = take("v", n), take("tau", n)
    X = w.transforms()
    dynamics = Dynamics(w, X, v, _wrenches(take, options))
    a = _solved(w, X, dynamics, tau, None)
    return [Gather("a", tuple(a[k] for k in range(n)))]


def _solved(
    w: Work, X: dict[int, Value], dynamics: Dynamics, tau: Value, inverse: Value | None
) -> Value:
    """Accelerations; M⁻¹ into an array, where one is given."""
    if w.model.has_mimic:
        rows = block_dense.rows_of(w, dynamics.mass_matrix())
        if inverse is None:
            inverse = w.block.value(w.model.nv**2, array=True)
        block_dense.invert(w, rows, inverse)
        bias = dynamics.torques_at_rest()
        return block_dense.accelerations(w, rows, inverse, tau, bias)
    factor = algorithms.factorize(w, X, inverse)
    if inverse is not None:
        algorithms.minv(w, factor, inverse)
    return algorithms.accelerations(w, factor, dynamics.own_forces(), tau)


def _crba(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    return [_entries("M", w, Dynamics(w, w.transforms()).mass_matrix())]


def _minv(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    X, inverse = w.transforms(), w.block.value(w.model.nv**2, array=True)
    if w.model.has_mimic:
        block_dense.invert(w, block_dense.rows_of(w, Dynamics(w, X).mass_matrix()), inverse)
    else:
        algorithms.minv(w, algorithms.factorize(w, X, inverse), inverse)
    return [Matrix("minv", inverse)]


def _entries(name: str, w: Work, entries: Mapping[tuple[int, int], Number]) -> Gather:
    n = w.model.nv
    return Gather(name, tuple(entries.get((i, j)) for i in range(n) for j in range(n)))


def _rnea_derivatives(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    v, a = take("v", w.model.nv), take("a", w.model.nv)
    dynamics = Dynamics(w, w.transforms(), v, _wrenches(take, options), graded=True)
    names = ("dq", "dv", "da")
    return [_entries(key, w, x) for key, x in zip(names, dynamics.gradient(a), strict=True)]


def _gradient_fused(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    return _rnea_derivatives(w, take, options)[:2]


def _gradient_split(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    bodies = w.model.bodies
    v = take("v", w.model.nv)
    given = [take(key, len(bodies), 6) for key in ("velocities", "accelerations", "forces")]
    dynamics = Dynamics(w, w.transforms(), v, graded=True)
    dq, dv, _ = dynamics.gradient_of(*([x[6 * i] for i in bodies] for x in given))
    return [_entries("dq", w, dq), _entries("dv", w, dv)]


def _products(
    w: Work,
    options: Mapping[str, Any],
    inverse: Value,
    gradients: Sequence[Mapping[tuple[int, int], Number]],
) -> Products:
    """-M⁻¹ times the gradients of inverse dynamics."""
    n = w.model.nv
    names, arrays, sources = ("dq", "dv"), [], []
    for name, entries in zip(names, gradients, strict=True):
        numbers = tuple(entries.get((i, j)) for i in range(n) for j in range(n))
        sources.append(numbers)
        if not options["dense"]:
            continue
        array = w.block.value(n * n, array=True)
        w.block.add(
            f"dense:{name}",
            (),
            (),
            stores=(array,),
            listed=[(x,) for x in numbers if x is not None],
            together="dense",
        )
        arrays.append(array)
    return Products(names, inverse, tuple(arrays), tuple(sources))


def _aba_derivatives(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    return _gradient_with_acceleration(w, take, options)[1:]


def _gradient_with_acceleration(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    n = w.model.nv
    v, tau = take("v", n), take("tau", n)
    wrenches = _wrenches(take, options)
    X = w.transforms()
    inverse = w.block.value(n * n, array=True)
    dynamics = Dynamics(w, X, v, wrenches, graded=True)
    a = _solved(w, X, dynamics, tau, inverse)
    dq, dv, _ = dynamics.gradient_at(a)
    return [
        Gather("a", tuple(a[k] for k in range(n))),
        _products(w, options, inverse, (dq, dv)),
        Matrix("dtau", inverse),
    ]


def _fused_gradient(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    n = w.model.nv
    v, a, inverse = take("v", n), take("a", n), take("minv", n, n)
    dynamics = Dynamics(w, w.transforms(), v, _wrenches(take, options), graded=True)
    dq, dv, _ = dynamics.gradient(a)
    return [_products(w, options, inverse, (dq, dv))]


def _frame(w: Work, options: Mapping[str, Any]) -> Any:
    if options["frame"] is None:
        raise InputError("this function needs the name of a frame")
    return w.model.frame(options["frame"])


def _path(w: Work, frame: Any) -> dict[int, Value]:
    return w.transforms(list(reversed(w.model.ancestors[frame.body]))) if frame.body >= 0 else {}


def _frame_placement(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    frame = _frame(w, options)
    X = kinematics.frame_transform(w, _path(w, frame), frame)
    rows: list[Number | None] = []
    for i in range(3):
        rows += [X[3 * j + i] for j in range(3)] + [X[9 + i]]
    return [Gather("T", (*rows, None, None, None, w.constant((1.0, 0.0))[0]))]


def _columns(name: str, w: Work, columns: kinematics.Columns) -> Gather:
    n = w.model.nv
    parts: dict[int, list[Number]] = {}
    for place, k in enumerate(columns.freedoms):
        for row in range(6):
            parts.setdefault(row * n + w.source[k], []).append(columns.array[6 * place + row])
    return Gather(name, tuple(w.total(parts[k]) if k in parts else None for k in range(6 * n)))


def _jacobian(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    frame = _frame(w, options)
    return [
        _columns("J", w, kinematics.jacobian(w, _path(w, frame), frame, options["expressed_in"]))
    ]


def _jacobian_derivative(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    frame = _frame(w, options)
    v = take("v", w.model.nv)
    return [
        _columns(
            "Jd",
            w,
            kinematics.jacobian_derivative(w, _path(w, frame), v, frame, options["expressed_in"]),
        )
    ]


def _frame_velocity(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    frame = _frame(w, options)
    v = take("v", w.model.nv)
    columns = kinematics.jacobian(w, _path(w, frame), frame, options["expressed_in"])
    if not columns.freedoms:
        return [Gather("velocity", (None,) * 6)]
    rates = kinematics.path_rates(w, columns.freedoms, v)
    motion = w.one("motion_of_columns", (columns.array, rates, len(columns.freedoms)), 6)
    return [Gather("velocity", tuple(motion[k] for k in range(6)))]


_RECORD: dict[str, Any] = {name: globals()[f"_{name}"] for name in FUNCTIONS}


def _read(store: Store) -> list[Value | Number]:
    match store:
        case Gather(_, numbers):
            return [x for x in numbers if x is not None]
        case Matrix(_, array):
            return [array]
        case Products(_, inverse, arrays, sources):
            return (
                [inverse, *arrays]
                if arrays
                else [inverse, *(x for numbers in sources for x in numbers if x is not None)]
            )
    raise AssertionError(store)


def _shapes(store: Store, n: int) -> dict[str, Shape]:
    match store:
        case Gather(name, numbers):
            special: dict[str, Shape] = {"T": (4, 4), "J": (6, n), "Jd": (6, n)}
            shape = special.get(
                name, (n, n) if name in ("M", "dq", "dv", "da") else (len(numbers),)
            )
            return {name: shape}
        case Matrix(name, _):
            return {name: (n, n)}
        case Products(names, _, _, _):
            return dict.fromkeys(names, (n, n))
    raise AssertionError(store)


def _constants(w: Work, schedule: Schedule) -> tuple[tuple[float, ...], int]:
    """Constants as one piece of shared memory: the first stage's group of them was placed in one
    piece.
    """
    placed = sorted((schedule.place(value), numbers) for numbers, value in w.constants.items())
    if not placed:
        return (), 0
    start = placed[0][0]
    flat: list[float] = []
    for address, numbers in placed:
        if address != start + len(flat):
            raise AssertionError("constants are not in one piece")
        flat += [*numbers, *[0.0] * (len(numbers) % 2)]
    return tuple(flat), start
