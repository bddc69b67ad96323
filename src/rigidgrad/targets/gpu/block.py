"""Block-per-state functions: what each records of `block_algorithms`, and where its results are in shared memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rigidgrad.errors import InputError, unknown_name
from rigidgrad.model.canonical import canonical
from rigidgrad.model.model import Model
from rigidgrad.program.program import Shape
from rigidgrad.targets.gpu import block_algorithms as algorithms, block_kinematics as kinematics
from rigidgrad.targets.gpu.block_algorithms import Work
from rigidgrad.targets.gpu.schedule import Number, Schedule, Value

SHARED_BYTES = 96 * 1024  # beyond this, less is brought together in shared memory; a block of every GPU since 2018 but one can have 99 KB
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
    """Results -M⁻¹ D for matrices D of numbers all over shared memory, which the last stage brings together as arrays (n, n), if there is room for them. M⁻¹ is zero
    outside each row's range."""

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
        """Of one state; one more keeps the next state apart."""
        return self.schedule.barriers + 1

    def shared_bytes(self, dtype: str) -> int:
        return self.schedule.size * (8 if dtype == "float64" else 4)


def has_block(model: Model) -> bool:
    """Whether `block_function` can compute a model."""
    return bool(model.joints) and not model.has_mimic and all(j.kind.moves_as for j in model.joints)


def block_function(
    model: Model,
    name: str,
    *,
    external: Sequence[str] = (),
    frame: str | None = None,
    expressed_in: str = "world",
    threads: int | None = None,
) -> BlockFunction:
    """A function of `FUNCTIONS` for a model without mimic joints; options as for `catalog.bind`.

    `gradient_split` takes q, v and, per body of the canonical model, the velocities, accelerations and forces that inverse dynamics leaves;
    `gradient_fused` takes q, v, a. Both give the gradient of inverse dynamics, without M. `gradient_with_acceleration` is `aba_derivatives` with the acceleration.
    """
    if name not in FUNCTIONS:
        raise unknown_name("function for blocks of threads", name, FUNCTIONS)
    if model.has_mimic:
        raise InputError(f"robot '{model.name}' has mimic joints: kernels with a block a state have none, use one thread a state")
    if not model.joints:
        raise InputError(f"robot '{model.name}' has no moving joint: there is nothing to compute")
    for joint in model.joints:
        if joint.kind.moves_as is None:
            raise InputError(
                f"joint '{joint.name}' is {joint.type}: kernels with a block a state have no such joint, use one thread a state"
            )
    options = {"external": external, "frame": frame, "expressed_in": expressed_in}
    reduced = canonical(model)
    function = _recorded(reduced, name, options | {"dense": True}, threads)
    if function.shared_bytes("float64") > SHARED_BYTES:
        function = _recorded(reduced, name, options | {"dense": False}, threads)
    return function


def _recorded(model: Model, name: str, options: Mapping[str, Any], threads: int | None) -> BlockFunction:
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
    return BlockFunction(name, model, inputs, outputs, schedule, tuple(stores), loads, constants, at, tuple(w.ranges))


# --- what each function records --------------------------------------------------------------------------------------------------------


def _wrenches(take: Any, options: Mapping[str, Any]) -> dict[str, Value]:
    return {link: take(f"external:{link}", 6) for link in options["external"]}


def _rnea(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    v, a = take("v", w.model.nv), take("a", w.model.nv)
    sweep = algorithms.inverse_dynamics(w, w.transforms(), v, a, _wrenches(take, options))
    return [Gather("tau", tuple(algorithms.joint_forces(w, sweep.f, a)))]


def _bias(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    sweep = algorithms.inverse_dynamics(w, w.transforms(), take("v", w.model.nv), None, _wrenches(take, options))
    return [Gather("tau", tuple(algorithms.joint_forces(w, sweep.f, None)))]


def _gravity_torque(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    sweep = algorithms.inverse_dynamics(w, w.transforms(), None, None)
    return [Gather("tau", tuple(algorithms.joint_forces(w, sweep.f, None)))]


def _aba(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    n = w.model.nv
    v, tau = take("v", n), take("tau", n)
    X = w.transforms()
    sweep = algorithms.outward(w, X, v, None, _wrenches(take, options))
    a = algorithms.accelerations(w, algorithms.factorize(w, X, None), sweep.f, tau)
    return [Gather("a", tuple(a[k] for k in range(n)))]


def _crba(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    return [_symmetric("M", w, algorithms.mass_matrix(w, w.transforms()))]


def _minv(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    inverse = w.block.value(w.model.nv**2, array=True)
    algorithms.minv(w, algorithms.factorize(w, w.transforms(), inverse), inverse)
    return [Matrix("minv", inverse)]


def _symmetric(name: str, w: Work, array: Value) -> Gather:
    """The mass matrix from its upper triangle; entries of freedoms on different branches are zero."""
    n, numbers = w.model.nv, []
    for i in range(n):
        for j in range(n):
            low, high = min(i, j), max(i, j)
            related = w.body_of[low] in w.model.ancestors[w.body_of[high]]
            numbers.append(array[low * n + high] if related else None)
    return Gather(name, tuple(numbers))


def _entries(name: str, n: int, entries: Mapping[tuple[int, int], Number]) -> Gather:
    return Gather(name, tuple(entries.get((i, j)) for i in range(n) for j in range(n)))


def _rnea_derivatives(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    n = w.model.nv
    v, a = take("v", n), take("a", n)
    X = w.transforms()
    dq, dv = algorithms.gradient(w, algorithms.inverse_dynamics(w, X, v, a, _wrenches(take, options)), v)
    return [_entries("dq", n, dq), _entries("dv", n, dv), _symmetric("da", w, algorithms.mass_matrix(w, X))]


def _gradient_fused(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    n = w.model.nv
    v, a = take("v", n), take("a", n)
    dq, dv = algorithms.gradient(w, algorithms.inverse_dynamics(w, w.transforms(), v, a, _wrenches(take, options)), v)
    return [_entries("dq", n, dq), _entries("dv", n, dv)]


def _gradient_split(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    n, bodies = w.model.nv, len(w.model.joints)
    v = take("v", n)
    given = {key: take(key, bodies, 6) for key in ("velocities", "accelerations", "forces", "momenta")}
    # each body's vector becomes a value of its own, so that operations address them as their own results
    parts = {key: [w.block.value(6) for _ in range(bodies)] for key in given}
    for key, value in given.items():
        for i, part in enumerate(parts[key]):
            w.block.add("copy6", (value[6 * i],), (part,))
    sweep = algorithms.Sweep(w.transforms(), parts["velocities"], parts["accelerations"], parts["momenta"], parts["forces"])
    dq, dv = algorithms.gradient(w, sweep, v)
    return [_entries("dq", n, dq), _entries("dv", n, dv)]


def _products(w: Work, options: Mapping[str, Any], inverse: Value, gradients: Sequence[Mapping[tuple[int, int], Number]]) -> Products:
    """-M⁻¹ times the gradients of inverse dynamics."""
    n = w.model.nv
    names, arrays, sources = ("dq", "dv"), [], []
    for name, entries in zip(names, gradients, strict=True):
        numbers = tuple(entries.get((i, j)) for i in range(n) for j in range(n))
        sources.append(numbers)
        if not options["dense"]:
            continue
        array = w.block.value(n * n, array=True)
        w.block.add(f"dense:{name}", (), (), stores=(array,), listed=[(x,) for x in numbers if x is not None], together="dense")
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
    factor = algorithms.factorize(w, X, inverse)
    algorithms.minv(w, factor, inverse)
    a = algorithms.accelerations(w, factor, algorithms.outward(w, X, v, None, wrenches).f, tau)
    dq, dv = algorithms.gradient(w, algorithms.inverse_dynamics(w, X, v, a, wrenches), v)
    return [Gather("a", tuple(a[k] for k in range(n))), _products(w, options, inverse, (dq, dv)), Matrix("dtau", inverse)]


def _fused_gradient(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    n = w.model.nv
    v, a, inverse = take("v", n), take("a", n), take("minv", n, n)
    dq, dv = algorithms.gradient(w, algorithms.inverse_dynamics(w, w.transforms(), v, a, _wrenches(take, options)), v)
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
    numbers: list[Number | None] = [None] * (6 * w.model.nv)
    for place, k in enumerate(columns.freedoms):
        for row in range(6):
            numbers[row * w.model.nv + k] = columns.array[6 * place + row]
    return Gather(name, tuple(numbers))


def _jacobian(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    frame = _frame(w, options)
    return [_columns("J", w, kinematics.jacobian(w, _path(w, frame), frame, options["expressed_in"]))]


def _jacobian_derivative(w: Work, take: Any, options: Mapping[str, Any]) -> list[Store]:
    frame = _frame(w, options)
    v = take("v", w.model.nv)
    return [_columns("Jd", w, kinematics.jacobian_derivative(w, _path(w, frame), v, frame, options["expressed_in"]))]


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
            return [inverse, *arrays] if arrays else [inverse, *(x for numbers in sources for x in numbers if x is not None)]
    raise AssertionError(store)


def _shapes(store: Store, n: int) -> dict[str, Shape]:
    match store:
        case Gather(name, numbers):
            special: dict[str, Shape] = {"T": (4, 4), "J": (6, n), "Jd": (6, n)}
            shape = special.get(name, (n, n) if name in ("M", "dq", "dv", "da") else (len(numbers),))
            return {name: shape}
        case Matrix(name, _):
            return {name: (n, n)}
        case Products(names, _, _, _):
            return dict.fromkeys(names, (n, n))
    raise AssertionError(store)


def _constants(w: Work, schedule: Schedule) -> tuple[tuple[float, ...], int]:
    """Constants as one piece of shared memory: the first stage's group of them was placed in one piece."""
    placed = sorted((schedule.place(value), numbers) for numbers, value in w.constants.items())
    if not placed:
        return (), 0
    start = placed[0][0]
    flat: list[float] = []
    for address, numbers in placed:
        assert address == start + len(flat)
        flat += [*numbers, *[0.0] * (len(numbers) % 2)]
    return tuple(flat), start
