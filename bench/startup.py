"""What a user waits for before the first result: the import, the first call with an empty cache, and with a filled one in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

# the clock, a function of `time`, is the last argument
IMPORT = "import sys, time; now = getattr(time, sys.argv[-1]); start = now(); import rigidgrad; print(now() - start)"
FIRST_CALL = """
import json, sys, time
import numpy as np
import rigidgrad as rg
name, floating, function = sys.argv[1], sys.argv[2] == "1", sys.argv[3]
now = getattr(time, sys.argv[-1])
start = now()
robot = rg.load(name, floating_base=floating)
loaded = now()
q = np.tile(robot.neutral(), (256, 1)); v = np.zeros((256, robot.nv))
robot.compile(function)(q, v, v)
done = now()
print(json.dumps({"load": loaded - start, "first_call": done - loaded}))
"""


def fresh_process(code: str, *arguments: str, clock: str = "perf_counter", **environment: str) -> str:
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
    """Seconds to compile and call once after the robot is loaded: `cold` with an empty cache, `cached` with what the cold one left; minima."""
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
