"""Attacks on what reads files of others: URDF, MJCF, task files and logs, damaged at random and
loaded.

    python tools/attack.py --mutations 1000000 --seed 0
    python tools/attack.py --part mjcf --mutations 20000 --seconds 60
    python tools/attack.py --part mpc …            # attack_mpc.py with the remaining arguments;
    likewise --part cluster

A mutation is accepted, or refused with an error of ours; any other exception, a NaN that was let
in, a crash or a hang is a finding, and the exit code is 1. Mutations run in a worker process with
bounded memory, one after the other; where it dies or hangs, the next worker goes on with the next
mutation. The same seed gives the same mutations.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import math
import mmap
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FILES = ("urdf", "mjcf", "toml", "logs")
ELSEWHERE = {"mpc": "attack_mpc", "cluster": "attack_cluster"}
MEMORY = 4 << 30  # bytes of address space of a worker
MEMORY_DISK = "/dev/shm"  # writing many small files to a real disk takes longer than reading them
STRIDE = 10_000_000_000  # between the mutations of one seed and those of the next

ARM = """<mujoco model="arm"><compiler angle="radian"/><option gravity="0 0 -1.62"/>
<default><joint armature="0.1" damping="0.5"/><default class="light"><geom density="100"/></default></default>
<worldbody><geom type="plane" size="1 1 1"/><body name="base" pos="0 0 0.1"><freejoint name="root"/><geom type="box" size="0.1 0.2 0.3"/>
<site name="tip" pos="0 0 1"/><body name="upper" pos="0 0 0.3" euler="0.1 0 0"><joint name="hinge" axis="0 1 0" range="-1 1" ref="0.1"/>
<joint name="slide" type="slide" axis="0 0 1"/><geom type="capsule" fromto="0 0 0 0 0 0.5" size="0.05"/><body name="hand" pos="0 0 0.5">
<joint type="ball" frictionloss="0.1"/><inertial pos="0 0 0.1" mass="1.5" diaginertia="0.01 0.02 0.02"/></body></body></body></worldbody>
<actuator><motor joint="hinge"/></actuator><equality><weld body1="hand" body2="upper"/></equality></mujoco>"""
ROW = """<mujoco><include file="part.xml"/><worldbody><replicate count="4" offset="0.5 0 0"><frame pos="0 0 1"><body><joint axis="1 0 0"/>
<geom size="0.1"/></body></frame></replicate></worldbody></mujoco>"""


class Target(NamedTuple):
    """What is attacked: sound files to damage, how, and what reads them."""

    sound: list[Any]
    damage: Callable[[int, Any], bytes]
    read: Callable[[bytes], object]


# --- what a worker does ---------------------------------------------------------------------------


def urdf() -> Target:
    from hostile.mutations import mutant
    from hostile.robots import VALID

    import rigidgrad as rg

    robots = ROOT / "src" / "rigidgrad" / "model" / "robots"
    small = sorted(robots.glob("*.urdf"), key=lambda path: path.stat().st_size)[:6]
    return Target(
        [VALID, VALID, *(path.read_text() for path in small)],
        mutant,
        lambda data: _finite(rg.load(data).model),
    )


def mjcf() -> Target:
    from hostile.mutations import mutant

    import rigidgrad as rg

    Path("part.xml").write_text(
        '<mujoco><worldbody><body name="part"><joint/><geom'
        ' size="0.1"/></body></worldbody></mujoco>'
    )
    return Target([ARM, ARM, ROW], mutant, lambda data: _finite(rg.load(data).model))


def toml() -> Target:
    from hopper import TASK, hopper
    from hostile.mutations import mutant_task

    import rigidgrad as rg
    from rigidgrad.tasks import load_task
    from rigidgrad.tasks.template import template

    def read(data: bytes) -> None:
        Path("task.toml").write_bytes(data)
        task = load_task("task.toml")
        if task.mpc:
            task.plant()

    Path("hopper.urdf").write_text(hopper().to_urdf())
    ours = [template(rg.load(name), name) for name in ("double_pendulum", "pendulum", "cartpole")]
    return Target([*ours, TASK, TASK], mutant_task, read)


def logs() -> Target:
    import numpy as np
    from hostile.mutations import mutant_log

    from rigidgrad.commands.view import read_motion
    from rigidgrad.control.mpc.log import Log

    log = Log(2, 1)
    for k in range(4):
        log.add_step(0.1 * k, np.array([k, -k]), np.array([2.0 * k]))
        log.add_solve(0.1 * k, 1e-3, 5.0, 3)
    log.counts = {"held": 2}
    log.save("log.npz")

    def read(data: bytes) -> None:
        Path("bad.npz").write_bytes(data)
        read_motion(Path("bad.npz"))
        Log.load("bad.npz")

    return Target([Path("log.npz").read_bytes()], mutant_log, read)


def wrong() -> Target:
    """A reader with every fault, to see that each is noticed: of ten files it accepts six and
    refuses one.
    """

    def read(data: bytes) -> None:
        from rigidgrad.errors import InputError

        match int(data):
            case 1:
                raise InputError("refused")
            case 2:
                raise RecursionError("foreign")
            case 3:
                os.abort()
            case 4:
                time.sleep(1e6)

    return Target(list(range(10)), lambda _, sound: str(sound).encode(), read)


def _finite(model: Any) -> None:
    numbers = (model.inertias, model.placements, model.armature, model.gravity)
    joints = [(j.axis, j.multiplier, j.offset, j.damping, j.friction) for j in model.joints]
    if not all(
        map(math.isfinite, _flat((numbers, joints, [f.placement for f in model.frames.values()])))
    ):
        raise AssertionError("a number that is not finite was accepted")


def _flat(values: Any) -> Iterator[float]:
    for x in values:
        if isinstance(x, int | float):
            yield x
        else:
            yield from _flat(x)


class Tally:
    """What a worker has done so far, in a file that outlives it: the next mutation, how many were
    accepted, refused, foreign.
    """

    FORMAT = struct.Struct("4q")

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(self.FORMAT.size))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), self.FORMAT.size)

    def read(self) -> tuple[int, int, int, int]:
        at, accepted, refused, foreign = self.FORMAT.unpack(self._shared[:])
        return at, accepted, refused, foreign

    def write(self, *numbers: int) -> None:
        self._shared[:] = self.FORMAT.pack(*numbers)


def work(part: str, seed: int, end: int, folder: Path) -> None:
    """Mutations from the tally's next to `end`, in `folder`."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.path.insert(0, str(ROOT / "tests"))
    os.chdir(folder)
    from rigidgrad.errors import ModelWarning, RigidgradError

    target = globals()[part]()
    tally = Tally(folder / "tally")
    at, accepted, refused, foreign = tally.read()
    warnings.simplefilter("error")  # NumPy's complaints are findings, too
    warnings.simplefilter("ignore", ModelWarning)
    for index in range(at, end):
        tally.write(index, accepted, refused, foreign)
        number = STRIDE * seed + index
        data = target.damage(number, target.sound[index % len(target.sound)])
        try:
            target.read(data)
            accepted += 1
        except RigidgradError:
            refused += 1
        except Exception as error:
            foreign += 1
            _keep(folder, part, number, data, f"{type(error).__name__}: {error}")
    tally.write(end, accepted, refused, foreign)


def _keep(folder: Path, part: str, number: int, data: bytes, what: str) -> None:
    (folder / f"finding_{number}.{part}").write_bytes(data)
    with (folder / "findings.txt").open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{part} {number}: {what!r}\n")


# --- what watches it ------------------------------------------------------------------------------


def attack(
    part: str, count: int, seed: int, until: float, limit: float, keep: Path | None
) -> dict[str, Any]:
    """`count` mutations, or as many as there is time for; a worker that makes no step in `limit`
    seconds hangs.
    """
    crashes = hangs = 0
    with tempfile.TemporaryDirectory(
        dir=MEMORY_DISK if os.access(MEMORY_DISK, os.W_OK) else None
    ) as name:
        folder = Path(name)
        tally = Tally(folder / "tally")
        while tally.read()[0] < count and time.monotonic() < until:
            command = [
                sys.executable,
                __file__,
                "--worker",
                part,
                str(seed),
                str(count),
                str(folder),
            ]
            # a file: MuJoCo's warnings would fill a pipe that nobody reads, and the worker would
            # wait
            with (
                (folder / "said").open("wb") as said,
                subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said) as worker,
            ):
                try:
                    ended = _watch(worker, tally, until, limit)
                finally:
                    # of what has ended, nothing; of what has not, because we are interrupted
                    worker.kill()
            at, *done = tally.read()
            if ended == "stopped" or at >= count:
                break
            if ended == "hangs":
                hangs += 1
            elif worker.returncode:
                crashes += 1
            last = (folder / "said").read_text("utf-8", "replace").strip().splitlines()[-1:]
            _keep(
                folder,
                part,
                STRIDE * seed + at,
                b"",
                f"{ended}, exit code {worker.returncode}: {''.join(last)}",
            )
            tally.write(at + 1, *done)
        at, accepted, refused, foreign = tally.read()
        findings = (
            (folder / "findings.txt").read_text().splitlines()
            if (folder / "findings.txt").exists()
            else []
        )
        if keep is not None and findings:
            keep.mkdir(parents=True, exist_ok=True)
            for path in folder.glob("finding*"):
                shutil.copy(path, keep / path.name)
    return {
        "part": part, "mutations": at, "accepted": accepted, "refused": refused, "foreign": foreign, "crashes": crashes, "hangs": hangs, "findings": findings,
    }  # fmt: skip


def _watch(worker: subprocess.Popen[bytes], tally: Tally, until: float, limit: float) -> str:
    """How it ended: by itself, or because of us."""
    last, since = tally.read()[0], time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(0.2)
            return "ended"
        now, at = time.monotonic(), tally.read()[0]
        if at != last:
            last, since = at, now
        if now > until or now - since > limit:
            return "stopped" if now > until else "hangs"


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["--worker"]:
        part, seed, end, folder = arguments[1:]
        work(part, int(seed), int(end), Path(folder))
        return 0
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no worker outlives us
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--part",
        choices=(*FILES, *ELSEWHERE),
        action="append",
        help="what to attack; default: all that read files",
    )
    parser.add_argument(
        "--mutations", type=int, default=100_000, help="of all parts together; default: 100,000"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="of all parts together; default: no end"
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=20.0,
        help="seconds after which one mutation hangs; default: 20",
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where to put what was found")
    chosen, rest = parser.parse_known_args(arguments)
    parts = chosen.part or list(FILES)
    if elsewhere := [part for part in parts if part in ELSEWHERE]:
        if len(parts) > 1:
            parser.error(f"--part {elsewhere[0]} stands alone")
        sys.path.insert(0, str(Path(__file__).parent))
        kept = [
            a
            for k, a in enumerate(arguments)
            if a != "--part" and (k == 0 or arguments[k - 1] != "--part")
        ]
        return int(importlib.import_module(ELSEWHERE[elsewhere[0]]).main(kept) or 0)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    began, found = time.monotonic(), []
    for k, part in enumerate(parts):
        left = began + chosen.seconds - time.monotonic()
        share = -(-chosen.mutations // len(parts))
        result = attack(
            part,
            share,
            chosen.seed,
            time.monotonic() + left / (len(parts) - k),
            chosen.limit,
            chosen.keep,
        )
        found.append(result)
        print(
            ", ".join(
                f"{name} {value:,}" if isinstance(value, int) else value
                for name, value in result.items()
                if name != "findings"
            ),
            flush=True,
        )
        for line in result["findings"][:20]:
            print(f"  {line}", flush=True)
    bad = sum(r[kind] for r in found for kind in ("foreign", "crashes", "hangs"))
    total = sum(r["mutations"] for r in found)
    print(f"{total:,} mutations, {bad} findings, {time.monotonic() - began:.0f} s", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
