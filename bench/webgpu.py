"""Every function as shaders, on whatever adapter there is, against the CPU: its own float32, and
float64 as the truth. Software adapters will do: Mesa's llvmpipe through wgpu, and Chromium's
SwiftShader.

python bench/webgpu.py --json bench/results/webgpu.json              all: an hour on two cores
python bench/webgpu.py --through chromium --json …                   the same in headless Chromium
python bench/webgpu.py --robots iiwa14 --functions rnea,aba          some
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rigidgrad as rg
from rigidgrad.algorithms import catalog
from rigidgrad.errors import InputError
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.gpu import Engine, open_device
from rigidgrad.runtime.job import function_job
from rigidgrad.targets.gpu.wgsl import Shader
from rigidgrad.targets.gpu.wgsl_library import library

ROBOTS = ("iiwa14", "hyq", "atlas", "iiwa14-floating", "hyq-floating", "atlas-floating")
FUNCTIONS = tuple(catalog.FUNCTIONS)
STATES = 67  # a workgroup, and three
ZERO = 1e-12  # smaller results are zero but for rounding in float64
FACTOR = 4.0  # errors may be so many times those of the CPU


@dataclass(frozen=True)
class Case:
    """A function of a robot with inputs in float32."""

    robot: rg.Robot
    name: str
    options: dict[str, Any]
    inputs: tuple[np.ndarray, ...]

    def on_cpu(self, dtype: str) -> list[np.ndarray]:
        job = function_job(self.robot.model, self.name, dtype=dtype, **self.options)
        found = Compiled(job)(*(x.astype(dtype) for x in self.inputs))
        return list(found) if isinstance(found, tuple) else [found]


def load(name: str) -> rg.Robot:
    base, _, floating = name.partition("-")
    return rg.load(base, floating_base=bool(floating))


def case(robot: rg.Robot, name: str, states: int = STATES) -> Case:
    q = robot.random(batch=(states,), seed=3).q
    rng = np.random.default_rng(4)
    # positions within limits, velocities and accelerations as robots move with
    v = rng.uniform(-1, 1, (states, robot.nv))
    values = {
        "q": q,
        "v": v,
        "a": rng.uniform(-3, 3, v.shape),
        "w": rng.uniform(-1, 1, v.shape),
        "dv": rng.uniform(-1, 1, v.shape),
        "restitution": np.full(states, 0.5),
    }
    values["tau"] = robot.rnea(q, v, values["a"])
    values["minv"] = robot.minv(q)
    values["q0"], values["q1"] = q, robot.integrate(q, values["dv"])
    function, frame = catalog.FUNCTIONS[name], robot.frames[-1]
    options: dict[str, Any] = {}
    if function.frame:
        options["frame"] = frame
    if function.contacts:
        contact = rg.Contact(frame, offset=(0.05, 0.0, 0.02))
        options["contacts"] = robot.constraint_set(name, [contact])
    bound = catalog.bind(robot.model, name, **options)
    given = tuple(values[key].astype(np.float32) for key in bound.inputs)
    return Case(robot, name, options, given)


def judged(case: Case, found: list[np.ndarray]) -> dict[str, float]:
    """The largest error of all outputs over what the CPU's float32 has, and both relatively."""
    exact, single = case.on_cpu("float64"), case.on_cpu("float32")
    worst = {"ratio": 0.0, "error": 0.0, "cpu": 0.0}
    for x, y, z in zip(found, single, exact, strict=True):
        if not z.size or not np.abs(z).max():
            assert not np.any(x), case.name
            continue
        if np.abs(z).max() < ZERO:
            continue
        scale = float(np.abs(z).max())
        ours, cpu = (float(np.abs(e.reshape(z.shape) - z).max()) / scale for e in (x, y))
        # a result that float32 has exactly may be off by half a unit of its largest number
        ratio = ours / max(cpu, 2.0**-25)
        if not ratio <= worst["ratio"]:  # NaN too
            worst = {"ratio": ratio, "error": ours, "cpu": cpu}
    return worst


class Wgpu:
    """Through Python's wgpu."""

    def __init__(self) -> None:
        self.engine: Engine = open_device("webgpu")
        self.name = f"wgpu, {self.engine.device.name}"

    def run(self, case: Case) -> tuple[list[np.ndarray], int]:
        function = self.engine.function(case.robot.model, case.name, **case.options)
        found = function(*case.inputs)
        passes = len(Shader(function.source).passes)
        return list(found) if isinstance(found, tuple) else [found], passes


class Chromium:
    """In a page, as whoever generates a library runs it."""

    def __init__(self, browser: Any):
        self.page = browser.new_page()
        # a file: elsewhere browsers hide their GPU
        self.page.goto(Path(__file__).with_name("data").as_uri())
        self.name = f"Chromium {browser.version}, SwiftShader"

    def run(self, case: Case) -> tuple[list[np.ndarray], int]:
        from rigidgrad.program.order import best_order
        from rigidgrad.runtime.formulation import program_of

        shader = Shader(best_order(program_of(case.robot.model, case.name, **case.options), 200))
        module = library("robot", {"f": shader}, {}).replace("export ", "")
        given = {
            key: [float(t) for t in x.ravel()]
            for key, x in zip(shader.inputs, case.inputs, strict=True)
        }
        script = f"""async ([given, n]) => {{ {module}
          const robot = await open();
          const rows = {{}};
          for (const key in given) rows[key] = Float32Array.from(given[key]);
          const found = await robot.f(rows, n);
          robot.device.destroy();
          return Object.values(found).map((x) => Array.from(x));
        }}"""
        found = self.page.evaluate(script, [given, len(case.inputs[0])])
        return [np.array(x, np.float32) for x in found], len(shader.passes)


@contextmanager
def opened(through: str) -> Iterator[Wgpu | Chromium]:
    if through == "wgpu":
        yield Wgpu()
        return
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
    import browser

    with browser.launched(*browser.WEBGPU) as chromium:
        yield Chromium(chromium)


def measured(runner: Wgpu | Chromium, name: str, function: str) -> dict[str, Any]:
    row: dict[str, Any] = {"robot": name, "function": function, "through": runner.name}
    start = time.perf_counter()
    try:
        one = case(load(name), function)
        found, passes = runner.run(one)
        row |= {"passes": passes, **judged(one, found)}
        row["fits"] = row["ratio"] <= FACTOR
    except InputError as refused:
        row["refused"] = str(refused)
    except Exception as error:  # a driver's: the next function may do better
        row["failed"] = f"{type(error).__name__}: {error}"[:300]
    row["seconds"] = round(time.perf_counter() - start, 1)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option, values in (("robots", ROBOTS), ("functions", FUNCTIONS)):
        parser.add_argument(
            f"--{option}", type=lambda text: text.split(","), default=list(values), metavar="LIST"
        )
    parser.add_argument("--through", choices=("wgpu", "chromium"), default="wgpu")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--missing", action="store_true", help="leave out what the file has")
    arguments = parser.parse_args()
    with opened(arguments.through) as runner:
        done = known(arguments.json) if arguments.missing else set()
        for name in arguments.robots:
            for function in arguments.functions:
                if (name, function, runner.name.split()[0].rstrip(",")) in done:
                    continue
                row = measured(runner, name, function)
                save(arguments.json, row)
                said = row.get("refused") or row.get("failed")
                print(
                    f"{name:<16}{function:<32}"
                    + (
                        said
                        or f"{row['passes']:>4} passes  error {row['error']:.1e}, CPU"
                        f" {row['cpu']:.1e}: {row['ratio']:.2f} times"
                        f"{'' if row['fits'] else '  TOO LARGE'}"
                    )
                    + f"  {row['seconds']} s",
                    flush=True,
                )


def identity(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["robot"], row["function"], row["through"].split()[0].rstrip(",")


def known(path: Path | None) -> set[tuple[str, str, str]]:
    if path is None or not path.exists():
        return set()
    return {identity(row) for row in json.loads(path.read_text())["rows"]}


def save(path: Path | None, row: dict[str, Any]) -> None:
    """Adds to what the file has; a row of the same function is replaced."""
    if path is None:
        return
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = [r for r in rows if identity(r) != identity(row)] + [row]
    head = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": "python bench/webgpu.py --json bench/results/webgpu.json",
        "states": STATES,
    }
    path.write_text(json.dumps(head | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
