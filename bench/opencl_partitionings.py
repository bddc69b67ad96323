"""The gradient of forward dynamics in its three partitionings, by the generated OpenCL library on
the device that it finds (PoCL, where there is no GPU): errors and times. `bench/gpu.py --parts
partitionings` runs it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import rigidgrad as rg

PARTITIONINGS = ("split", "fused", "completely_fused")
STATES = (16, 32, 64, 128)

_MAIN = """\
#include "robot.hpp"
#include <chrono>
#include <cstdio>
#include <cstdlib>
int main(int, char **arguments) {
  std::vector<float> x;
  std::FILE *file = std::fopen(arguments[2], "rb");
  for (float t; std::fread(&t, sizeof t, 1, file) == 1;) x.push_back(t);
  rigidgrad::Device device(arguments[1], false);
  std::printf("device %s\\n", device.name().c_str());
  const int n = robot::nv, nq = robot::nq, most = MOST;
  const float *q = x.data(), *v = q + most * nq, *a = v + most * n, *minv = a + most * n;
  const float *exact = minv + most * n * n;
  std::vector<float> dq(most * n * n), dv(dq);
  const auto now = [] {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(since).count();
  };
  for (int count : {COUNTS}) {
    RUNS
  }
}
"""

_RUN = """{
      double best = 1e9, error = 0, largest = 0;
      for (int k = 0; k < 60; ++k) {
        const double start = now();
        robot::gradient_HOW(device, count, q, v, a, minv, dq.data(), dv.data());
        best = std::min(best, now() - start);
      }
      for (int k = 0; k < count * n * n; ++k) {
        largest = std::max<double>(largest, std::fabs(exact[k]));
        error = std::max<double>(error, std::fabs(dq[k] - exact[k]));
      }
      std::printf("HOW %d %.3f %.3e\\n", count, 1e6 * best, error / largest);
    }"""


def partitionings(name: str = "iiwa14") -> dict:
    """Microseconds of N gradients with copies, the best of 60, and errors relative to the largest
    entry.
    """
    robot = rg.load(name)
    q, v, _ = robot.random(batch=(max(STATES),), seed=0)
    a = np.random.default_rng(0).uniform(-1, 1, v.shape)
    q, v, a = (x.astype(np.float32) for x in (q, v, a))
    minv = robot.minv(q.astype(float)).astype(np.float32)
    exact = robot.fused_gradient(*(x.astype(float) for x in (q, v, a, minv)))[0]
    text = _MAIN.replace("MOST", str(max(STATES))).replace("COUNTS", ", ".join(map(str, STATES)))
    runs = "\n".join(_RUN.replace("HOW", how) for how in PARTITIONINGS)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        rg.generate(
            robot,
            ["fused_gradient"],
            target="opencl",
            out=folder,
            name="robot",
            dtypes="float32",
            shapes="block",
        )
        (folder / "run.cpp").write_text(text.replace("RUNS", runs))
        data = np.concatenate([x.ravel() for x in (q, v, a, minv, exact)]).astype(np.float32)
        data.tofile(folder / "data")
        compiler = shutil.which("c++")
        if not compiler:
            raise SystemExit("there is no C++ compiler")
        command = [compiler, "-std=c++17", "-O3", "-march=native", "run.cpp", "-o", "run"]
        subprocess.run([*command, "-lOpenCL"], cwd=folder, check=True)
        said = subprocess.run(
            ["./run", "robot.cl", "data"], cwd=folder, check=True, capture_output=True, text=True
        ).stdout
    device = re.search(r"device (.*)", said)
    assert device
    rows = []
    print(f"\n{name}, gradient of FD, float32, on {device.group(1)}: microseconds with copies")
    for how, count, time, error in re.findall(r"^(\w+) (\d+) (\S+) (\S+)$", said, re.MULTILINE):
        rows.append({"how": how, "states": int(count), "us": float(time), "error": float(error)})
        print(f"  N = {count:>3}   {how:<18}{float(time):10.1f}   error {float(error):.1e}")
    return {"robot": name, "device": device.group(1), "rows": rows}
