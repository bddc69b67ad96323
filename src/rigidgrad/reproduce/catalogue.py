"""All entries, by work."""

from __future__ import annotations

from collections.abc import Sequence

from rigidgrad.reproduce import seed_002, seed_003, seed_004_control, seed_004_direct, seed_004_dynamics
from rigidgrad.reproduce.entry import Entry
from rigidgrad.reproduce.measurements import MEASUREMENTS

WORKS = {
    "003": "Plancher, Neuman, Bourgeat, Kuindersma, Devadas, Reddi 2021: accelerating robot dynamics gradients on a CPU, GPU and FPGA",
    "004": "Plancher 2022: GPU acceleration for real-time, whole-body, nonlinear model predictive control (dissertation)",
    "002": "Lynghus 2026: data-parallel rigid body dynamics (thesis)",
}


def _order(entry: Entry) -> tuple[int, int]:
    """By chapter: 4.3 before 4.11 before 5.1; appendices and claims last."""
    chapter, _, figure = entry.label.split()[1].rstrip(":").partition(".")
    return (int(chapter) if chapter.isdigit() else 99, int(figure) if figure.isdigit() else 0)


ENTRIES: tuple[Entry, ...] = (
    *seed_003.ENTRIES,
    *sorted((*seed_004_control.ENTRIES, *seed_004_direct.ENTRIES, *seed_004_dynamics.ENTRIES), key=_order),
    *seed_002.ENTRIES,
)


def entries_of(seeds: Sequence[str]) -> list[Entry]:
    return [entry for entry in ENTRIES if entry.seed in seeds]


def measurements_of(entries: Sequence[Entry]) -> list[str]:
    """The measurements that entries need, each once."""
    needed = {name for entry in entries for name in entry.measurements}
    return [name for name in MEASUREMENTS if name in needed]
