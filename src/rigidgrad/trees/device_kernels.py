"""The text of kernels of trees: operators and loops over bodies, as they run on the CPU, recorded
for one body, and put into the loops of `targets.gpu.trees`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from rigidgrad.program.program import Program
from rigidgrad.runtime.loops import AnyKernel
from rigidgrad.targets.gpu.trees import Field, Fields, each, level_kernels, path_kernels, scan
from rigidgrad.trees import crba_euler_tour as mass, operators, rnea_euler_tour as tour, tours
from rigidgrad.trees.algebra import force_to_parent, jet_after
from rigidgrad.trees.operators import Place, State
from rigidgrad.trees.recording import Memory, Shapes, program

IDENTITY = tuple(tour.IDENTITY.tolist())
REST = IDENTITY + (0.0,) * 12
HERE: Place = (0, 0, 1, 0)
NOTHING: Any = Memory("nothing", (0,))
_ENDS = np.array([0]), np.array([1])  # rows of steps where a body is entered and left

# rows of a body's arrays
BODY = {
    "data": (1, 24),
    "q": (1,),
    "v": (1,),
    "a": (1,),
    "X": (1, 12),
    "up": (1, 12),
    "vel": (1, 6),
    "acc": (1, 6),
    "own": (1, 6),
    "total": (1, 6),
    "composite": (1, 10),
    "force": (1, 7),
    "tau": (1,),
    "base": (6,),
    "external": (6, 1),
}


def _fields(shapes: Shapes, **others: Field) -> dict[str, Field]:
    """Bodies' arrays at column i."""
    found = {}
    for name, shape in shapes.items():
        width = shape[-1] if len(shape) == 2 and name != "external" else shape[0]
        at = Field(name, width, ("0",), "0") if name == "base" else Field(name, width, ("i",))
        found[name] = others.get(name, at)
    return found


# loops over bodies, what they read and write, in the order of their arguments
MAPS: dict[str, tuple[AnyKernel, str, str]] = {
    "across_joints": (tour._transforms, "data q", "up"),
    "joint_velocities": (tour._joint_velocities, "data v X", "own"),
    "to_body_vel": (tour._to_body, "X total base", "vel"),
    "to_body_acc": (tour._to_body, "X total base", "acc"),
    "joint_accelerations": (tour._joint_accelerations, "data v a vel X", "own"),
    "forces_in_root": (tour._forces_in_root, "data X vel acc external", "own"),
    "torques": (tour._torques, "data X total", "tau"),
    "to_root": (mass._to_root, "data X", "composite"),
    "momenta": (mass._momenta, "data X composite", "force"),
}


def of_body(name: str, external: bool = False) -> Program:
    """A loop's Program of one body."""
    kernel, reads, writes = MAPS[name]

    def one(m: dict[str, Any]) -> None:
        kernel(0, 0, 1, *(m.get(k, NOTHING) for k in reads.split()), m[writes])

    known = {k: BODY[k] for k in reads.split() if external or k != "external"}
    return program(known, {writes: BODY[writes]}, one)


def of_entry() -> Program:
    """Of an entry of the mass matrix."""

    def entry(m: dict[str, Any]) -> None:
        m["values"][0] = mass.entry(m["X"], m["data"], 0, m["force"].numbers(0, 6))

    rows = {k: BODY[k] for k in ("X", "data", "force")}
    return program(rows, {"values": (1,)}, entry)


def _map(name: str, external: bool = False) -> str:
    recorded = of_body(name, external)
    return each(name, recorded, _fields({k: BODY[k] for k in recorded.inputs | recorded.outputs}))


def binary(width: int, op: AnyKernel) -> Program:
    """An operator of rows."""
    rows = {"x": (width,), "y": (width,)}
    return program(rows, {"out": (width,)}, lambda m: op(m["x"], m["y"], m["out"]))


def unary(width: int, inverse: AnyKernel) -> Program:
    return program({"x": (width,)}, {"out": (width,)}, lambda m: inverse(m["x"], m["out"]))


def _tour(name: str, width: int, op: Any, inverse: Any, neutral: Sequence[float]) -> str:
    """The scan of rows of some width over a tour's steps, with what comes before and after. Step k
    has column k + 1, column 0 is neutral.
    """
    row, two = (1, width), (2, width)
    steps = Field("steps", width, ("lp[i] + 1", "rp[i] + 1"), "2 * n + 1")

    def enter_and_leave(m: dict[str, Any]) -> None:
        tours._enter_and_leave(0, 0, 1, m["rows"], inverse, *_ENDS, m["steps"])

    def enter(m: dict[str, Any]) -> None:
        tours._enter(0, 0, 1, m["rows"], np.array(neutral), *_ENDS, m["steps"])

    def differences(m: dict[str, Any]) -> None:
        held = Memory("held", (width,))
        inverse(m["steps"][0], held)  # as `tours._differences`, whose step before the first is
        op(held, m["steps"][1], m["rows"][0])  # neutral

    ends = Field("steps", width, ("lp[i]", "rp[i] + 1"), "2 * n + 1")
    first = Field("steps", width, ("lp[i] + 1",), "2 * n + 1")
    rows = Field("rows", width, ("i",))
    lists = ("lp", "rp")
    into = program({"rows": row}, {"steps": two}, enter_and_leave)
    up = program({"rows": row}, {"steps": two}, enter)
    out = program({"steps": two}, {"rows": row}, differences)
    copy = program({"steps": row}, {"rows": row}, lambda m: m["rows"].__setitem__(0, m["steps"][0]))
    return "\n".join(
        [
            scan(name, binary(width, op), width, neutral),
            each(f"{name}_down", into, {"rows": rows, "steps": steps}, lists),
            each(f"{name}_take", copy, {"rows": rows, "steps": first}, ("lp",)),
            each(f"{name}_up", up, {"rows": rows, "steps": steps}, lists),
            each(f"{name}_differ", out, {"rows": rows, "steps": ends}, lists),
        ]
    )


@lru_cache
def euler_tour(external: bool) -> str:
    """Inverse dynamics by scans of transforms, and of sums in the root's frame."""
    sums = _tour("sums", 6, tour.add_rows, tour.negate_row, (0.0,) * 6)
    maps = [_map(x, external) for x in list(MAPS)[1:-2]]
    return "\n".join([_transforms(), sums, *maps])


def _transforms() -> str:
    scanned = _tour("transforms", 12, tour.compose_rows, tour.invert_row, IDENTITY)
    return "\n".join([_map("across_joints"), scanned])


@lru_cache
def mass_matrix() -> str:
    """Lynghus (2026), listings 8 to 10: an entry is a thread's."""

    def diagonal(m: dict[str, Any]) -> None:
        m["values"][0] = m["force"][0, 6]

    places = {
        "X": Field("X", 12, ("column[i]",), "bodies"),
        "data": Field("data", 24, ("column[i]",), "bodies"),
        "force": Field("force", 7, ("row[i]",), "bodies"),
        "values": Field("values", 1, ("i",)),
    }
    own = {"force": Field("force", 7, ("i",)), "values": Field("values", 1, ("start[i]",))}
    copy = program({"force": BODY["force"]}, {"values": (1,)}, diagonal)
    return "\n".join(
        [
            _transforms(),
            _tour("inertias", 10, tour.add_rows, tour.negate_row, (0.0,) * 10),
            _map("to_root"),
            _map("momenta"),
            each("entries", of_entry(), places, ("row", "column")),
            each("diagonal", copy, own, ("start",)),
        ]
    )


# --- walks body by body: the operators that the CPU carries in its lanes


def _state(m: dict[str, Any], external: bool) -> State:
    """As `operators` says, of one body."""
    wrench = (m["external"],) if external else ()
    return (
        (),
        m["data"],
        m.get("work"),
        None,
        (0, m.get("q", NOTHING), m.get("v", NOTHING)),
        (m.get("a", NOTHING), _Wrenches(wrench), m.get("tau", NOTHING)),
    )


class _Wrenches(tuple[Any, ...]):
    """Of one state, or none."""

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)


_WALK = BODY | {
    "carried": (12,),
    "force": (6,),
    "work": (1, operators.INVERSE),
    "q": (1, 1),
    "v": (1, 1),
    "a": (1, 1),
    "tau": (1, 1),
}
_PRIVATE = ("carried", "force", "along")


def _step(
    reads: Sequence[str],
    result: int,
    writes: Sequence[str],
    function: Callable[[dict[str, Any]], Any],
    **shapes: tuple[int, ...],
) -> tuple[Program, Fields]:
    """What is carried to a body, to what is carried on."""
    known = _WALK | shapes
    ins = {k: known[k] for k in reads}
    outs = {"result": (result,)} | {k: known[k] for k in writes}
    private = {k: Field(k, known[k][-1]) for k in _PRIVATE if k in ins}
    private["result"] = Field("result", result)
    return program(ins, outs, function), _fields(ins | outs, **private)


def _turned(operator: Any, external: bool, carried: int) -> Callable[[dict[str, Any]], Any]:
    def step(m: dict[str, Any]) -> Any:
        m.setdefault("work", Memory("work", _WALK["work"]))
        state = _state(m, external)
        operators.turn(HERE, state)
        return operator(m["carried"].numbers(0, carried), HERE, state)

    return step


def _bear(external: bool) -> tuple[Program, Fields]:
    some = ["external"] if external else []
    reads = ("carried", "data", "q", "v", "a", *some)
    return _step(reads, 12, ("work",), _turned(operators.bear, external, 12))


def _drive() -> tuple[Program, Fields]:
    def drive(m: dict[str, Any]) -> Any:
        return operators.drive(m["force"].numbers(0, 6), HERE, _state(m, False))

    return _step(("force", "data", "work"), 6, ("tau",), drive)


@lru_cache
def levels(external: bool) -> str:
    """Inverse dynamics by levels."""
    return level_kernels(_bear(external), _drive())


@lru_cache
def heavy_path(external: bool) -> str:
    """Inverse dynamics along heavy paths."""

    def join(m: dict[str, Any]) -> Any:
        z, x = m["along"].numbers(0, 24), m["carried"].numbers(0, 12)
        vel, acc = jet_after(z[0:9], z[9:12], z[12:18], z[18:24], x[0:6], x[6:12])
        return vel + acc

    def shift(m: dict[str, Any]) -> Any:
        z = m["along"].numbers(0, 24)
        return force_to_parent(z[0:9], z[9:12], m["force"].numbers(0, 6))

    def pass_on(m: dict[str, Any]) -> Any:
        state: State = ((), None, m["work"])
        return operators.pass_on(m["force"].numbers(0, 6), HERE, state)

    moving = ("carried", "data", "q", "v", "a")
    return path_kernels(
        _step(moving, 24, (), _turned(operators.extend, False, 24), carried=(24,)),
        _step(("along", "carried"), 12, (), join, along=(24,)),
        _bear(external),
        _step(("force", "work"), 6, (), pass_on),
        _step(("along", "force"), 6, (), shift, along=(24,)),
        _drive(),
        REST,
    )
