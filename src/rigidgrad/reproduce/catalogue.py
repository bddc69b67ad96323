"""All entries, by work."""

from __future__ import annotations

from collections.abc import Sequence

from rigidgrad.reproduce import (
    lynghus_2026,
    plancher_2021,
    plancher_2022_control,
    plancher_2022_direct,
    plancher_2022_dynamics,
    plancher_2022_mpc,
)
from rigidgrad.reproduce.entry import Entry
from rigidgrad.reproduce.measurements import MEASUREMENTS

# how entries call a work: its authors, year and title
WORKS = {
    "Plancher 2021": (
        "Plancher, Neuman, Bourgeat, Kuindersma, Devadas, Reddi 2021: accelerating robot dynamics"
        " gradients on a CPU, GPU and FPGA"
    ),
    "Plancher 2022": (
        "Plancher 2022: GPU acceleration for real-time, whole-body, nonlinear model predictive"
        " control (dissertation)"
    ),
    "Lynghus 2026": "Lynghus 2026: data-parallel rigid body dynamics (thesis)",
}


def _order(entry: Entry) -> tuple[int, int]:
    """By chapter: 4.3 before 4.11 before 5.1; appendices and claims last."""
    chapter, _, figure = entry.label.split()[1].rstrip(":").partition(".")
    return (int(chapter) if chapter.isdigit() else 99, int(figure) if figure.isdigit() else 0)


ENTRIES: tuple[Entry, ...] = (
    *plancher_2021.ENTRIES,
    *sorted(
        (
            *plancher_2022_control.ENTRIES,
            *plancher_2022_mpc.ENTRIES,
            *plancher_2022_direct.ENTRIES,
            *plancher_2022_dynamics.ENTRIES,
        ),
        key=_order,
    ),
    *lynghus_2026.ENTRIES,
)


def entries_of(seeds: Sequence[str]) -> list[Entry]:
    return [entry for entry in ENTRIES if entry.seed in seeds]


def measurements_of(entries: Sequence[Entry]) -> list[str]:
    """The measurements that entries need, each once."""
    needed = {name for entry in entries for name in entry.measurements}
    return [name for name in MEASUREMENTS if name in needed]
