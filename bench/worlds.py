"""Worlds against MuJoCo: the same models, states and controls, in turns. Parts:

    accuracy    accelerations of random states in contact against mj_forward, float64, converged
    first       a first step from a new process with an empty cache
    speed       CPU time of a step on one core, against MuJoCo's rollout at the tolerance with which
                its accelerations are as near to the converged ones as ours are
    cores       wall time of both on one thread and on two
    soak        random controls, pushes and resets: crashes, memory, worlds that see each other,
                gradients that are no numbers

Robots stand on a flat floor under position servos whose targets wander, so that feet come and go.
Both sides use the model's solver, cone and time step. What a part finds replaces what it had found
in the `--json`.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import machine
import mujoco
import numpy as np
import worlds_cases
from mujoco import rollout
from worlds_cases import Case, cases, controls, in_contact

import rigidgrad as rg
from rigidgrad.worlds import Worlds

RESULT = Path(__file__).parent / "results" / "worlds.json"
PARTS = ("accuracy", "first", "speed", "cores", "soak")
FEW = 32  # worlds of MuJoCo's


def converged(m: Any) -> Any:
    m = copy.copy(m)
    m.opt.tolerance, m.opt.iterations = 0.0, 200
    m.opt.ls_tolerance, m.opt.ls_iterations = 1e-10, 200
    return m


def accelerations(m: Any, states: Any, u: np.ndarray) -> np.ndarray:
    """Of mj_forward, from the warm starts that are the states' third part."""
    data, found = mujoco.MjData(m), []
    for q, v, warm, x in zip(*states, u, strict=True):
        mujoco.mj_resetData(m, data)
        data.qpos[:], data.qvel[:], data.qacc_warmstart[:], data.ctrl[:] = q, v, warm, x
        mujoco.mj_forward(m, data)
        found.append(data.qacc.copy())
    return np.array(found)


def errors(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """The largest error of each state over its largest number."""
    worst: np.ndarray = np.abs(found - expected).max(axis=1) / np.abs(expected).max(axis=1)
    return worst


def spread(x: np.ndarray) -> dict[str, float]:
    return {
        "worst": float(x.max()),
        "90 %": float(np.quantile(x, 0.9)),
        "median": float(np.median(x)),
    }


def accuracy(c: Case, options: Any) -> dict[str, Any]:
    qpos, qvel, u = in_contact(c, options.states)
    m = converged(c.model)
    worlds = Worlds(m, len(qpos), dt=None, dtype="float64", tolerance=1e-17, iterations=200)
    worlds.reset(qpos=qpos, qvel=qvel)
    found = worlds.forward(u)
    expected = accelerations(m, (qpos, qvel, np.zeros_like(qvel)), u)
    return {
        "nv": m.nv,
        "states": len(qpos),
        "contacts": float(found.contacts.touching.sum(axis=1).mean()),
        "unfinished": int(worlds.unfinished.sum()),
        **spread(errors(found.qacc, expected)),
    }


_FIRST = """
import time; begin = time.perf_counter()
import warnings; warnings.simplefilter("ignore")
import worlds_cases
from rigidgrad.worlds import Worlds
c = worlds_cases.case({name!r})
loaded = time.perf_counter()
worlds = Worlds(c.model, {count}, dt=None)
worlds.reset(qpos=c.start)
worlds.step()
end = time.perf_counter()
print(end - begin, end - loaded)
"""


def first(c: Case, options: Any) -> dict[str, Any]:
    """Seconds from the start of Python, and without imports and the reading of the model; the best
    of some processes, each with an empty cache.
    """
    runs = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as cache:
            environment = os.environ | {"RIGIDGRAD_CACHE": cache}
            ran = subprocess.run(
                [sys.executable, "-c", _FIRST.format(name=c.name, count=options.count)],
                env=environment,
                cwd=Path(__file__).parent,
                capture_output=True,
                text=True,
                check=True,
            )
        runs.append([float(x) for x in ran.stdout.split()])
    return dict(zip(("seconds", "of them worlds"), np.min(runs, axis=0).tolist(), strict=True))


class Race:
    """Worlds of both dtypes, and states in the middle of a motion from which all begin."""

    def __init__(self, c: Case, options: Any, threads: int):
        rng = np.random.default_rng(0)
        self.m, self.steps, self.count = c.model, options.steps, options.count
        self.u = controls(c, self.count, 2 * self.steps, rng)
        self.worlds, self.plans, self.states = {}, {}, {}
        for dtype in ("float32", "float64"):
            w = Worlds(c.model, self.count, dt=None, dtype=dtype, threads=threads)
            w.reset(qpos=c.start)
            plan = np.ascontiguousarray(np.moveaxis(self.u, 1, 0), dtype)
            for x in plan[: self.steps]:  # until feet come and go
                w.step(x)
            self.worlds[dtype], self.plans[dtype] = w, plan
            self.states[dtype] = [x.copy() for x in (w.qpos, w.qvel, w.qacc)]
        few = [x[:FEW] for x in self.states["float64"]]
        size = mujoco.mj_stateSize(self.m, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        self.start = np.zeros((FEW, size))
        self.start[:, 1 : 1 + self.m.nq] = few[0]
        self.start[:, 1 + self.m.nq : 1 + self.m.nq + self.m.nv] = few[1]
        self.warm = np.array(few[2])

    def ours(self, dtype: str) -> None:
        w = self.worlds[dtype]
        w.qpos[:], w.qvel[:], w.qacc[:] = self.states[dtype]
        for x in self.plans[dtype][self.steps :]:
            w.step(x)

    def theirs(self, m: Any, roll: Any, data: Any) -> None:
        plan = np.ascontiguousarray(self.u[:FEW, self.steps :])
        roll.rollout(m, data, self.start, plan, initial_warmstart=self.warm)

    def matched(self, dtype: str) -> tuple[Any, dict[str, Any]]:
        """MuJoCo's model with the loosest tolerance at which it is as accurate as we are."""
        states = [np.array(x, float)[:256] for x in self.states["float64"]]
        u = self.u[:256, self.steps]
        expected = accelerations(converged(self.m), states, u)
        w = Worlds(self.m, len(u), dt=None, dtype=dtype)
        w.qpos[:], w.qvel[:], w.qacc[:] = states
        mine = spread(errors(w.forward(u).qacc, expected))
        m = copy.copy(self.m)
        for exponent in range(2, 13):
            m.opt.tolerance = 10.0**-exponent
            other = spread(errors(accelerations(m, states, u), expected))
            if other["90 %"] <= mine["90 %"]:
                break
        return m, {"error": mine, "MuJoCo's": other, "MuJoCo's tolerance": m.opt.tolerance}


def speed(c: Case, options: Any) -> dict[str, Any]:
    race = Race(c, options, threads=1)
    contacts = race.worlds["float64"].forward().contacts.touching.sum(axis=1).mean()
    found: dict[str, Any] = {"nv": c.model.nv, "dt": c.model.opt.timestep}
    found |= {"contacts": float(contacts), "count": race.count}
    models = {}
    for dtype in race.worlds:
        models[dtype], found[dtype] = race.matched(dtype)
    times: dict[str, list[float]] = {}
    data = mujoco.MjData(c.model)
    for _ in range(options.rounds):
        for dtype, m in models.items():
            before = time.process_time()
            race.ours(dtype)
            between = time.process_time()
            race.theirs(m, rollout, data)
            after = time.process_time()
            times.setdefault(dtype, []).append((between - before) / (race.steps * race.count))
            times.setdefault(f"{dtype} MuJoCo", []).append((after - between) / (race.steps * FEW))
    for dtype in models:
        mine, other = (1e6 * np.array(times[x]) for x in (dtype, f"{dtype} MuJoCo"))
        found[dtype] |= {"µs": mine.min(), "MuJoCo µs": other.min()}
        found[dtype] |= {"ratio": other.min() / mine.min(), "low": (other / mine).min()}
    return found


def cores(c: Case, options: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    races = {n: Race(c, options, threads=n) for n in (1, 2)}
    times: dict[tuple[str, int], list[float]] = {}
    with rollout.Rollout(nthread=1) as one, rollout.Rollout(nthread=2) as two:
        rolls = {1: one, 2: two}
        data = [mujoco.MjData(c.model) for _ in range(2)]
        for _ in range(options.rounds):
            for n, race in races.items():
                before = time.perf_counter()
                race.ours("float32")
                between = time.perf_counter()
                race.theirs(c.model, rolls[n], data[:n])
                after = time.perf_counter()
                mine, other = between - before, after - between
                times.setdefault(("worlds", n), []).append(mine / (race.steps * race.count))
                times.setdefault(("MuJoCo", n), []).append(other / (race.steps * FEW))
    for who in ("worlds", "MuJoCo"):
        one_, two_ = (1e6 * min(times[who, n]) for n in (1, 2))
        found[who] = {"one µs": one_, "two µs": two_, "faster": one_ / two_}
    found["ratio on two"] = found["MuJoCo"]["two µs"] / found["worlds"]["two µs"]
    return found


def resident() -> float:
    """MB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def soak(c: Case, options: Any) -> dict[str, Any]:
    """`--soak` steps of `--count` worlds; a part of them runs in a batch of their own as well, and
    the gradient of every `--gradient`-th step is taken.
    """
    rng = np.random.default_rng(0)
    body = c.model.body(1).name
    worlds = Worlds(c.model, options.count, dt=None, push=body, threads=options.threads)
    rows = rng.permutation(options.count)[:61]
    some = Worlds(c.model, len(rows), dt=None, push=body, threads=1)
    both = (worlds, slice(None)), (some, rows)
    for w, _ in both:
        w.start[:] = c.start
        w.reset()
    weight = 9.81 * c.model.body_mass.sum()
    found = dict.fromkeys(("unfinished", "gradients", "not finite", "different"), 0)
    memory, begin = [], time.perf_counter()
    for k in range(options.soak):
        if k % 50 == 0:
            u = controls(c, options.count, 1, rng)[:, 0] + rng.normal(
                size=(options.count, worlds.nu)
            )
            push = (
                weight
                * rng.normal(size=(options.count, 3))
                * (rng.random((options.count, 1)) < 0.1)
            )
            again = rng.random(options.count) < 0.02
            for w, which in both:
                w.reset(again[which])
                w.push[:, :3] = push[which]
        before = [x.copy() for x in (worlds.qpos, worlds.qvel)] if k % options.gradient == 0 else []
        for w, which in both:
            w.step(u[which])
        if before:
            weights = [rng.normal(size=x.shape) for x in before]
            lost = worlds.time == 0
            gradients = worlds.pullback(*before, worlds.u, worlds.qacc, *weights)
            good = [np.isfinite(x).reshape(len(lost), -1).all(axis=1) for x in gradients.values()]
            found["gradients"] += int((~lost).sum())
            found["not finite"] += int((~np.all(good, axis=0) & ~lost).sum())
        found["unfinished"] += int(worlds.unfinished.sum())
        if k % 100 == 99:
            found["different"] += int((worlds.qpos[rows] != some.qpos).any(axis=1).sum())
            found["different"] += int((worlds.qvel[rows] != some.qvel).any(axis=1).sum())
        if k % max(options.soak // 10, 1) == 0:
            memory.append(resident())
    return {
        "worlds": options.count,
        "steps": options.soak,
        "seconds": time.perf_counter() - begin,
        "lost": int(worlds.lost.sum()),
        "compared": len(rows),
        "megabytes": [round(x, 1) for x in (*memory, resident())],
        **found,
    }


def rounded(x: Any) -> Any:
    if isinstance(x, dict):
        return {name: rounded(y) for name, y in x.items()}
    return float(f"{x:.5g}") if isinstance(x, float) else x


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default="accuracy,first,speed,cores")
    names = ",".join(worlds_cases.NAMES)
    parser.add_argument("--robots", default=names, help=f"of {names}, or the path of an MJCF")
    for name, default, what in (
        ("count", 1024, "worlds"),
        ("steps", 50, "before and after the state from which time counts"),
        ("rounds", 5, "of which the best counts"),
        ("states", 2000, "of which accelerations are compared"),
        ("soak", 100_000, "steps"),
        ("gradient", 400, "steps from gradient to gradient in a soak"),
        ("threads", 2, "of a soak"),
        ("core", 0, "for what runs on one"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{what} ({default})")
    parser.add_argument("--json", type=Path, default=RESULT)
    options = parser.parse_args()
    warnings.simplefilter("ignore", rg.errors.ModelWarning)
    for part in options.parts.split(","):
        machine.pin_to(options.core if part in ("accuracy", "speed") else None)
        for c in cases(options.robots):
            if part == "accuracy" and c.name == "cartpole":
                continue  # touches nothing
            found = rounded(globals()[part](c, options))
            print(part, c.name, json.dumps(found, ensure_ascii=False), flush=True)
            keep(options.json, part, c.name, found)


def keep(path: Path, part: str, name: str, found: dict[str, Any]) -> None:
    """Into the file as it is now: parts may run in several processes."""
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    described = machine.describe({})
    kept.setdefault("machine", described)
    if kept["machine"]["command"] != described["command"]:
        again = [x for x in kept.get("again", []) if x != described["command"]]
        kept["again"] = [*again, described["command"]]
    else:
        kept["machine"] = described
    kept.setdefault(part, {})[name] = found
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
