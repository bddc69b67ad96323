"""What a user waits for before the first result: the import, the first call with an empty cache,
and with a filled one in another process.

    .venv/bin/python bench/startup.py                       # gradients of humanoids and of a
    quadruped with contacts .venv/bin/python bench/startup.py --source OTHER/src    # those of
    another tree

G1 is of `example-robot-data`. CPU time includes that of the process that compiles.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# what code for a new process begins with; its last argument is the clock, "wall" or "cpu". Long
# code is compiled by a process of its own, whose time counts, too
CLOCK = """
import resource, sys, time
def now():
    if sys.argv[-1] == "wall":
        return time.perf_counter()
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(of.ru_utime + of.ru_stime for of in used)
"""
IMPORT = CLOCK + "start = now(); import rigidgrad; print(now() - start)"
FIRST_CALL = f"""{CLOCK}
import json
import numpy as np
import rigidgrad as rg
name, floating, function = sys.argv[1], sys.argv[2] == "1", sys.argv[3]
start = now()
robot = rg.load(name, floating_base=floating)
loaded = now()
q = np.tile(robot.neutral(), (256, 1)); v = np.zeros((256, robot.nv))
robot.compile(function)(q, v, v)
done = now()
print(json.dumps({{"load": loaded - start, "first_call": done - loaded}}))
"""

# prints wall and CPU time, that of children included: of loading and of a first call
HUMANOID = """
import json, os, sys, time, warnings
import numpy as np
import rigidgrad as rg
warnings.simplefilter("ignore")
def now():
    t = os.times()
    return time.perf_counter(), t.user + t.system + t.children_user + t.children_system
start = now()
robot = rg.load(sys.argv[1], floating_base=True, strict=False)
q = np.tile(robot.neutral(), (256, 1)); v = np.zeros((256, robot.nv))
feet = [rg.Contact(name, "point") for name in sys.argv[3].split(",") if name]
loaded = now()
getattr(robot, sys.argv[2])(q, v, v, *([feet] if feet else []))
done = now()
print(json.dumps([done[k] - loaded[k] for k in (0, 1)]))
"""
GRADIENTS = (
    ("atlas", "aba_derivatives", ""),
    ("g1_29dof_rev_1_0", "aba_derivatives", ""),
    ("g1_29dof_with_hand_rev_1_0", "aba_derivatives", ""),
    ("hyq", "aba_derivatives", ""),
    ("hyq", "contact_dynamics_derivatives", "lf_lowerleg,rf_lowerleg,lh_lowerleg,rh_lowerleg"),
)


def fresh_process(code: str, *arguments: str, clock: str = "wall", **environment: str) -> str:
    """What a new interpreter prints."""
    command = [sys.executable, "-c", code, *arguments, clock]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    if done.returncode:
        raise RuntimeError(f"a fresh process failed:\n{done.stderr[-2000:]}")
    return done.stdout


def import_seconds(rounds: int) -> float:
    return min(float(fresh_process(IMPORT)) for _ in range(rounds))


def first_call_arguments(label: str, function: str) -> tuple[str, str, str]:
    return label.removesuffix("-floating"), "1" if label.endswith("-floating") else "0", function


def first_calls(label: str, function: str, rounds: int) -> dict[str, float]:
    """Seconds to compile and call once after the robot is loaded: `cold` with an empty cache,
    `cached` with what the cold one left; minima.
    """
    arguments = first_call_arguments(label, function)
    cold, cached = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(json.loads(fresh_process(FIRST_CALL, *arguments, RIGIDGRAD_CACHE=cache)))
            cached.append(json.loads(fresh_process(FIRST_CALL, *arguments, RIGIDGRAD_CACHE=cache)))
    return {
        "load": min(times["load"] for times in cold),
        "cold": min(times["first_call"] for times in cold),
        "cached": min(times["first_call"] for times in cached),
    }


def described(name: str) -> str:
    """A bundled robot's name, or the file of G1 in `example-robot-data`."""
    if not name.startswith("g1"):
        return name
    import pinocchio  # which that package stands beside

    folder = (
        Path(pinocchio.__file__).parents[4] / "share/example-robot-data/robots/g1_description/urdf"
    )
    return str(folder / f"{name}.urdf")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--source",
        type=Path,
        default=Path(__file__).resolve().parent.parent / "src",
        help="the `src` of the tree that is measured",
    )
    parser.add_argument("--rounds", type=int, default=3, help="minima of so many")
    parser.add_argument(
        "--robots", default="", metavar="TEXT", help="only robots whose names contain this"
    )
    options = parser.parse_args()
    print(f"{'first call on a floating base':60} {'cold, s':>9} {'CPU, s':>9} {'cached, s':>9}")
    for name, function, feet in GRADIENTS:
        if options.robots not in name:
            continue
        cold, cached = [], []
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as cache:
                environment = {"RIGIDGRAD_CACHE": cache, "PYTHONPATH": str(options.source)}
                for times in (cold, cached):
                    times.append(
                        json.loads(
                            fresh_process(HUMANOID, described(name), function, feet, **environment)
                        )
                    )
        wall, cpu = (min(times[k] for times in cold) for k in (0, 1))
        print(
            f"{name + ' ' + function:60} {wall:9.2f} {cpu:9.2f}"
            f" {min(times[0] for times in cached):9.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
