"""Receipts: what a device computed and how long it took, in a file that says which kernels ran and
that shows when it was changed.

Whoever has a GPU makes one (`rigidgrad prove --device cuda`). A receipt fits a version of the code
if all its kernels are those that this version makes, text by text; its last entry is the hash of
everything before, so that a slip or an edit shows. It is no signature: who makes up all of it can
make up the hash, too.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.model.model import Model
from rigidgrad.reproduce.plancher_2022_dynamics import FUNCTIONS, TABLE_5_2
from rigidgrad.robot import Robot, load
from rigidgrad.runtime import native
from rigidgrad.runtime.gpu import Engine, open_device
from rigidgrad.runtime.gpu_kernels import DTYPES, SHAPES, hash_of, hash_of_model, kernel_of

FORMAT = 1
ROBOTS = ("iiwa14", "hyq", "atlas")  # as in the table
STATES = 128
FACTOR = 4.0  # errors in float32 may be so many times those of the CPU in float32
LOWEST = 2.0**-25  # what the CPU's error counts for at least: half a unit of the largest result
ROUNDING = 1e-9  # errors in float64, relatively
_SECONDS, _WINDOWS = 0.002, 50  # times are the best of so many means over so long, about

Step = Callable[[str], None]


def signature(receipt: Mapping[str, Any]) -> str:
    """The hash of all but itself."""
    rest = {k: v for k, v in receipt.items() if k != "hash"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def make(
    kind: str,
    *,
    device: Any = None,
    robots: Sequence[str] = ROBOTS,
    step: Step = lambda note: None,
) -> dict[str, Any]:
    """A receipt of a device that `robot.to(kind)` finds."""
    engine = open_device(kind, device=device)
    runs = [run for name in robots for run in _runs(kind, engine, name)]
    receipt: dict[str, Any] = {
        "receipt": FORMAT,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "kind": kind,
        "device": engine.device.facts(),
        "host": {"cpu": native.host().cpu, "system": platform.platform()},
        "states": STATES,
        "kernels": [],
    }
    for robot, function, shape, dtype in runs:
        step(f"{robot.name} {function}")
        receipt["kernels"].append(_measured(kind, engine, robot, function, shape, dtype))
    return receipt | {"hash": signature(receipt)}


def total(kind: str, robots: Sequence[str]) -> int:
    """How many kernels a receipt has at most."""
    shapes, dtypes = (1, 1) if kind == "webgpu" else (len(SHAPES), len(DTYPES))
    return len(robots) * len(FUNCTIONS) * shapes * dtypes


def _runs(kind: str, engine: Engine, name: str) -> Iterator[tuple[Robot, str, str, str]]:
    robot, limit = load(name), engine.device.shared_limit()
    for function in FUNCTIONS:
        for dtype in DTYPES:
            if not engine.device.has(dtype):
                continue
            for shape in ("thread",) if kind == "webgpu" else SHAPES:
                if kernel_of(kind, robot.model, function, shape).shared_bytes(dtype) <= limit:
                    yield robot, function, shape, dtype


def _measured(
    kind: str, engine: Engine, robot: Robot, function: str, shape: str, dtype: str
) -> dict[str, Any]:
    kernel = kernel_of(kind, robot.model, function, shape)
    q, v, tau = robot.random(batch=(STATES,), seed=0)
    last = tau if function.startswith("aba") else np.random.default_rng(0).uniform(-1, 1, v.shape)
    given = [x.astype(dtype) for x in ((q,) if function == "minv" else (q, v, last))]
    exact = _listed(getattr(robot, function)(*(x.astype(float) for x in given)))
    single = _listed(getattr(robot, function)(*given))
    outputs = [np.empty(x.shape, dtype) for x in exact]
    loaded = engine.device.load(kernel, dtype)

    def run(count: int) -> None:
        rows = [x[:count].reshape(count, -1) for x in outputs]
        loaded.run([x[:count] for x in given], rows, count)

    run(STATES)
    row: dict[str, Any] = {
        "robot": robot.name,
        "model": hash_of_model(robot.model),
        "function": function,
        "shape": shape,
        "dtype": dtype,
        "kernel": hash_of(kind, kernel, dtype),
        "error": _error(outputs, exact),
        "cpu_error": _error(single, exact),
    }
    for count in (1, STATES):
        # µs of a call from Python, with copies, and of the kernel alone where it can be told
        row[f"call_{count}"] = _time(partial(run, count))
        alone = getattr(loaded, "alone", None)
        if alone is not None:
            repeats = max(1, min(1000, int(_SECONDS * 1e6 / row[f"call_{count}"])))
            best = min(alone(repeats) for _ in range(_WINDOWS)) / repeats
            row[f"kernel_{count}"] = round(1e6 * best, 3)
    one = [x[0] for x in given]
    row["cpu_call_1"] = _time(lambda: getattr(robot, function)(*one))
    return row


def _listed(found: Any) -> list[np.ndarray]:
    return list(found) if isinstance(found, tuple) else [found]


def _error(found: Sequence[np.ndarray], exact: Sequence[np.ndarray]) -> float:
    """The largest of all outputs, relative to an output's largest number."""
    return max(
        float(np.abs(x - y).max() / max(np.abs(y).max(), 1e-300))
        for x, y in zip(found, exact, strict=True)
    )


def _time(call: Callable[[], Any]) -> float:
    """Microseconds of a call, the best of some means."""
    start = time.perf_counter()
    call()
    repeats = max(1, min(1000, int(_SECONDS / max(time.perf_counter() - start, 1e-7))))
    means = []
    for _ in range(_WINDOWS):
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        means.append((time.perf_counter() - start) / repeats)
    return round(1e6 * min(means), 3)


def check(receipt: Any) -> list[str]:
    """What is wrong with a receipt, by this version of the code; empty if nothing is."""
    if not isinstance(receipt, dict) or receipt.get("receipt") != FORMAT:
        raise InputError(f"this is no receipt of format {FORMAT}")
    problems = []
    if receipt.get("hash") != signature(receipt):
        problems.append("it was changed after it was made: its hash is another")
    if not receipt.get("kernels"):
        problems.append("it has no kernels")
    models: dict[str, Model] = {}
    for row in receipt.get("kernels", ()):
        kind = receipt["kind"]
        what = "{robot} {function}, {dtype} by {shape}".format(**row)
        model = models.setdefault(row["robot"], load(row["robot"]).model)
        if row["model"] != hash_of_model(model):
            problems.append(f"{what}: the robot has other numbers now")
        elif row["kernel"] != hash_of(
            kind, kernel_of(kind, model, row["function"], row["shape"]), row["dtype"]
        ):
            problems.append(f"{what}: the kernel is another one now")
        limit = FACTOR * max(row["cpu_error"], LOWEST) if row["dtype"] == "float32" else ROUNDING
        if not row["error"] <= limit:
            problems.append(f"{what}: its error is {row['error']:.1e}, more than {limit:.1e}")
    return problems


def beside_the_table(receipt: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One state in float32 by blocks (threads on WebGPU): our times and the dissertation's Table
    5.2, in microseconds.
    """
    rows: list[tuple[str, ...]] = [
        ("robot", "", "error", "CPU's", "kernel", "with copies", "Table 5.2: GPU", "CPU")
    ]
    wanted = "thread" if receipt["kind"] == "webgpu" else "block"
    for row in receipt["kernels"]:
        if (row["shape"], row["dtype"]) != (wanted, "float32"):
            continue
        cpu, gpu = TABLE_5_2[row["function"]]
        place = ROBOTS.index(row["robot"]) if row["robot"] in ROBOTS else None
        rows.append(
            (
                row["robot"],
                FUNCTIONS[row["function"]],
                f"{row['error']:.1e}",
                f"{row['cpu_error']:.1e}",
                f"{row['kernel_1']:.1f}" if "kernel_1" in row else "–",
                f"{row['call_1']:.1f}",
                "–" if place is None else f"{gpu[place]:.1f}",
                "–" if place is None else f"{cpu[place]:.1f}",
            )
        )
    return rows
