"""The scripts of `bench/` whose results the entries are judged by, with their options for a quick
look and for the real thing.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Measurement:
    """`{out}` in an option is the folder of the results."""

    name: str  # of the file that it writes, and of the script
    fast: tuple[str, ...]
    full: tuple[str, ...]
    seconds: float  # of the fast way on two cores, roughly, for the progress bar
    # options where a command is missing; None: nothing can be measured
    without: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    runs: str = ""  # the script, where several files come from one

    @property
    def script(self) -> str:
        return f"{self.runs or self.name}.py"

    def options(self, fast: bool, out: Path) -> tuple[str, ...] | None:
        """What the script is called with, or None where it cannot run."""
        chosen: tuple[str, ...] | None = self.fast if fast else self.full
        for command, instead in self.without.items():
            if shutil.which(command) is None:
                chosen = instead
        return (
            None
            if chosen is None
            else tuple(option.replace("{out}", str(out)) for option in chosen)
        )

    def missing(self) -> list[str]:
        """Commands that it would use, and which are not here."""
        return [command for command in self.without if shutil.which(command) is None]


_ALL = (
    Measurement("claims", ("--quick",), (), 60),
    Measurement(
        "dynamics",
        (
            "--quick",
            "--parts",
            "cells",
            "--robots",
            "iiwa14,hyq,atlas",
            "--sizes",
            "1,256",
            "--dtype",
            "float64",
            "--peers",
            "pinocchio",
        ),
        (),
        40,
    ),
    Measurement("parallel_ddp", ("--trials", "5", "--experiments", "quadrotor,arm_text"), (), 20),
    Measurement("preconditioners", ("--parts", "study"), ("--parts", "study"), 15),
    Measurement(
        "mpc",
        ("--quick", "--parts", "figure,swing_up,blocks", "--without-peer"),
        ("--parts", "figure,swing_up,blocks"),
        110,
    ),
    Measurement(
        "gpu",
        (
            "--parts",
            "resources,estimate",
            "--robots",
            "iiwa14",
            "--shapes",
            "block",
            "--dtypes",
            "float32",
            "--architectures",
            "sm_86",
        ),
        ("--parts", "resources,estimate"),
        8,
        {"nvcc": ("--parts", "estimate")},
    ),
    Measurement(
        "fpga",
        ("--quick", "--states", "200", "--only", "exact"),
        (),
        25,
        {"verilator": None, "yosys": None},
    ),
    Measurement(
        "data_types",
        ("--quick", "--plot", "{out}/data_types.svg"),
        ("--plot", "{out}/data_types.svg"),
        30,
    ),
    Measurement(
        "trees",
        (
            "--largest",
            "1000000",
            "--scans",
            "100000",
            "--entries",
            "100000000",
            "--budget",
            "0.1",
            "--parts",
            "figure_10,figure_11,figure_12,figures_13_14,figures_15_16",
        ),
        ("--parts", "figure_10,figure_11,figure_12,figures_13_14,figures_15_16"),
        110,
    ),
    Measurement(
        "trees_work",
        ("--largest", "100000", "--scans", "100000", "--budget", "0.1", "--parts", "work"),
        ("--parts", "scan_times,blocks,work,devices"),
        60,
        runs="trees",
    ),
    Measurement("globalization", (), (), 40),
)
MEASUREMENTS = {m.name: m for m in _ALL}
