"""A circuit placed and routed on a Lattice ECP5 by nextpnr: a clock that its timing model says is
met, what is used of the device, and the critical path.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rigidgrad.targets.verilog import tools
from rigidgrad.targets.verilog.design import MARK, Design

DEVICE, PACKAGE, SPEED = "85k", "CABGA756", "8"
USED = ("TRELLIS_COMB", "TRELLIS_FF", "TRELLIS_RAMW", "MULT18X18D", "DP16KD")


@dataclass(frozen=True)
class Placement:
    """Frequencies in Hz; `used` of what the device has, by kind of cell; `path`: from, to and
    nanoseconds of each step of the critical path.
    """

    wanted: float
    reached: float
    used: dict[str, tuple[int, int]]
    path: tuple[tuple[str, str, float], ...]

    @property
    def met(self) -> bool:
        return self.reached >= self.wanted

    def summary(self) -> dict[str, Any]:
        nanoseconds = sum(step[2] for step in self.path)
        return asdict(self) | {
            "tool": f"nextpnr-ecp5 --{DEVICE} --package {PACKAGE} --speed {SPEED}",
            "met": self.met,
            "path_ns": round(nanoseconds, 3),
        }


def constraints(clock: float) -> str:
    """An .lpf file: the clock alone. Pins depend on the board."""
    return f'# {MARK}\nFREQUENCY PORT "clk" {clock / 1e6:g} MHZ;\n'


def place_and_route(
    design: Design, folder: Path, *, clock: float, seed: int = 1, timeout: float = 7200
) -> Placement:
    """Without pins, as a part of a larger design: paths between registers are what is timed."""
    yosys, nextpnr = tools.need("yosys"), tools.need("nextpnr-ecp5")
    folder.mkdir(parents=True, exist_ok=True)
    name = design.name
    (folder / f"{name}.v").write_text(design.files()[f"{name}.v"], encoding="utf-8")
    (folder / f"{name}.lpf").write_text(constraints(clock), encoding="utf-8")
    script = f"read_verilog {name}.v; synth_ecp5 -top {name} -json ecp5.json"
    tools.run([*yosys, "-q", "-p", script], folder, timeout)
    device = [f"--{DEVICE}", "--package", PACKAGE, "--speed", SPEED, "--out-of-context"]
    files = ["--json", "ecp5.json", "--lpf", f"{name}.lpf"]
    files += ["--lpf-allow-unconstrained", "--report", "timing.json"]
    wish = ["--freq", f"{clock / 1e6:g}", "--seed", str(seed), "--timing-allow-fail", "-q"]
    tools.run([*nextpnr, *device, *files, *wish], folder, timeout)
    return read_report((folder / "timing.json").read_text("utf-8"), clock)


def read_report(text: str, clock: float) -> Placement:
    """nextpnr's report of a design with one clock."""
    report = json.loads(text)
    (reached,) = (c["achieved"] * 1e6 for c in report["fmax"].values())
    path = next(
        p["path"]
        for p in report["critical_paths"]
        if p["from"].startswith("posedge") and p["to"].startswith("posedge")
    )
    return Placement(
        clock,
        reached,
        {
            kind: (report["utilization"][kind]["used"], report["utilization"][kind]["available"])
            for kind in USED
        },
        tuple((_cell(x["from"]), _cell(x["to"]), float(x["delay"])) for x in path),
    )


def _cell(end: dict[str, Any]) -> str:
    return f"{end['cell']}.{end['port']}"
