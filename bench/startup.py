"""What a user waits for before the first result: the import, the first call with an empty cache, and with a filled one in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

IMPORT = "import time; t = time.perf_counter(); import rigidgrad; print(time.perf_counter() - t)"
FIRST_CALL = """
import json, sys, time
import numpy as np
import rigidgrad as rg
name, floating, function = sys.argv[1], sys.argv[2] == "1", sys.argv[3]
start = time.perf_counter()
robot = rg.load(name, floating_base=floating)
loaded = time.perf_counter()
q = np.tile(robot.neutral(), (256, 1)); v = np.zeros((256, robot.nv))
robot.compile(function)(q, v, v)
done = time.perf_counter()
print(json.dumps({"load": loaded - start, "first_call": done - loaded}))
"""


def _python(code: str, *arguments: str, cache: str | None = None) -> str:
    environment = os.environ | ({"RIGIDGRAD_CACHE": cache} if cache else {})
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"a fresh process failed:\n{done.stderr[-2000:]}")
    return done.stdout


def import_seconds(rounds: int) -> float:
    return min(float(_python(IMPORT)) for _ in range(rounds))


def first_calls(label: str, function: str, rounds: int) -> dict[str, float]:
    """Seconds to compile and call once after the robot is loaded: `cold` with an empty cache, `cached` with what the cold one left; minima."""
    arguments = (label.removesuffix("-floating"), "1" if label.endswith("-floating") else "0", function)
    cold, cached = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(json.loads(_python(FIRST_CALL, *arguments, cache=cache)))
            cached.append(json.loads(_python(FIRST_CALL, *arguments, cache=cache)))
    return {
        "load": min(times["load"] for times in cold),
        "cold": min(times["first_call"] for times in cold),
        "cached": min(times["first_call"] for times in cached),
    }
