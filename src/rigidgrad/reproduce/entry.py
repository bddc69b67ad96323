"""A published figure beside our numbers: rows of quantities, each judged by itself, and the verdict
of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from rigidgrad.reproduce.measurements import MEASUREMENTS

REPRODUCED, BETTER, DIFFERS, NOT_MEASURED, FAILED = (
    "reproduced",
    "better",
    "differs",
    "not measured",
    "failed",
)
GPU, FPGA = "needs a GPU", "needs an FPGA board"
ELSEWHERE = "judged elsewhere"  # by the entry that counts the measurement
SHOWN = "shown"  # measured, and nothing published to judge it by
VERDICTS = (REPRODUCED, BETTER, DIFFERS, SHOWN, GPU, FPGA, ELSEWHERE, NOT_MEASURED, FAILED)
SLACK = (
    0.15  # relative: published values have two digits, and were read by others on other hardware
)

Better = Literal["", "higher", "lower"]
Span = tuple[float, float]
Reading = dict[str, Any]  # one row of a measurement
Results = Mapping[str, Any]  # what a measurement wrote, by its name; absent if there is none


@dataclass(frozen=True)
class Row:
    """One quantity as it was published, ours, and what this row says; an empty verdict is no
    judgement.
    """

    what: str
    published: str
    ours: str
    verdict: str = ""
    value: Any = None  # ours, for machines


def number(
    what: str,
    published: float | Span,
    ours: float | Span | None,
    unit: str = "",
    *,
    better: Better = "",
    slack: float = SLACK,
) -> Row:
    """A number, or the least and the largest of several. Without `better` it must be the published
    one; with it, it may lie beyond on that side.
    """
    said = _text(published, unit)
    if ours is None:
        return Row(what, said, "-", NOT_MEASURED)
    (low, high), (least, most) = _span(published), _span(ours)
    low, high = low - slack * abs(low), high + slack * abs(high)
    if low <= least and most <= high:
        verdict = REPRODUCED
    elif (better == "higher" and least >= low) or (better == "lower" and most <= high):
        verdict = BETTER
    else:
        verdict = DIFFERS
    return Row(what, said, _text(ours, unit), verdict, ours)


def statement(what: str, holds: bool | None, ours: str = "") -> Row:
    """Something that was found, and whether we find it too; None if that is not known."""
    if holds is None:
        return Row(what, "yes", ours or "-", NOT_MEASURED)
    answer = "yes" if holds else "no"
    return Row(
        what,
        "yes",
        f"{answer}: {ours}" if ours else answer,
        REPRODUCED if holds else DIFFERS,
        bool(holds),
    )


def device(
    what: str, published: float | Span | str, needs: str, unit: str = "", ours: str = "-"
) -> Row:
    """What only a device can tell; `ours` may be an estimate that says so."""
    return Row(
        what, published if isinstance(published, str) else _text(published, unit), ours, needs
    )


def fact(what: str, ours: float | Span | str | None, unit: str = "", published: str = "") -> Row:
    """Something of ours that nothing published is compared with."""
    return Row(
        what,
        published,
        "-" if ours is None else ours if isinstance(ours, str) else _text(ours, unit),
        "",
        ours,
    )


def trend(
    what: str,
    values: Mapping[int, float | None],
    *,
    up: bool,
    unit: str = "",
    slack: float = SLACK,
    counts: bool = True,
) -> Row:
    """Whether a curve over M goes up, or down, as the published one does: every value lies within
    the slack of the one before it or beyond, and the last lies beyond the first by more than that.
    What was never reached is None, above all numbers. A curve that does not count is shown.
    """
    said = ", ".join(
        f"M={at}: {'never' if v is None else _text(v, unit)}" for at, v in values.items()
    )
    if not counts or len(values) < 2 or all(v is None for v in values.values()):
        return statement(what, None, said)
    curve = [math.inf if v is None else v for v in values.values()]
    if not up:
        curve = curve[::-1]
    steps = all(b >= a * (1 - slack) for a, b in pairwise(curve))
    return statement(what, steps and curve[-1] > curve[0] * (1 + slack), said)


def verdict_of(rows: Sequence[Row]) -> str:
    """One row that differs decides; then what was measured, or could have been; then what a device
    would have to tell.
    """
    seen = {row.verdict for row in rows}
    if seen == {""} and any(row.ours != "-" for row in rows):
        return SHOWN
    return next(
        (
            v
            for v in (FAILED, DIFFERS, BETTER, REPRODUCED, NOT_MEASURED, GPU, FPGA, ELSEWHERE)
            if v in seen
        ),
        NOT_MEASURED,
    )


def _span(x: float | Span) -> Span:
    return x if isinstance(x, tuple) else (x, x)


def _text(x: float | Span, unit: str) -> str:
    low, high = (_short(v) for v in _span(x))
    gap = "" if unit in ("x", "%") or not unit else " "
    return f"{low}{gap}{unit}" if low == high else f"{low} to {high}{gap}{unit}"


def _short(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}"


@dataclass(frozen=True)
class Entry:
    """A figure, a table or a claim of one of the works."""

    seed: str
    label: str  # "Fig. 4.3", "Table I", "Claim: …"
    title: str
    hardware: str  # of the published values
    measurements: tuple[str, ...]
    rows: Callable[[Results], list[Row]]
    because: str  # what is not the same here as there, and where that leads
    source: str  # where its text has the published values
    charts: Callable[[Results], list[str]] = lambda _: []
    device: str = ""  # how the rest is measured where there is such a device

    @property
    def key(self) -> str:
        return f"{self.seed} {self.label}"


def counted_by(other: Entry, seed: str, label: str, title: str, source: str) -> Entry:
    """What another work, or chapter, says of the same measurement: one counts once, and the other
    entry judges it.
    """

    def rows(_: Results) -> list[Row]:
        return [Row("the same measurement", "see there", f"judged at {other.key}", ELSEWHERE)]

    because = f"The same measurement as {other.key}, which is where it counts."
    return Entry(seed, label, title, other.hardware, (), rows, because, source)


@dataclass(frozen=True)
class Finding:
    """An entry with our numbers."""

    entry: Entry
    verdict: str
    reason: str
    rows: tuple[Row, ...] = ()
    charts: tuple[str, ...] = field(default=(), repr=False)

    def data(self) -> dict[str, Any]:
        """For machines."""
        e = self.entry
        rows = [
            {
                "what": r.what,
                "published": r.published,
                "ours": r.ours,
                "verdict": r.verdict,
                "value": r.value,
            }
            for r in self.rows
        ]
        return {
            "seed": e.seed,
            "label": e.label,
            "title": e.title,
            "verdict": self.verdict,
            "reason": self.reason,
            "hardware": e.hardware,
            "source": e.source,
        } | {
            "measurements": e.measurements,
            "rows": rows,
        }


def judge(
    entry: Entry,
    results: Results,
    troubles: Mapping[str, str],
    fast: bool = False,
    unfinished: Mapping[str, str] | None = None,
) -> Finding:
    """`troubles`: of measurements that failed, how they ended; `unfinished`: of those that there
    was no time for, how far they came.
    """
    ended = [
        f"bench/{MEASUREMENTS[name].script} ended with an error:\n{troubles[name]}"
        for name in entry.measurements
        if name in troubles
    ]
    try:
        rows = tuple(entry.rows(results))
        charts = tuple(entry.charts(results))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        files = " or ".join(f"{name}.json" for name in entry.measurements)
        ended.append(
            f"{files} is not laid out as this version expects ({type(error).__name__}: {error});"
            " measure again"
        )
        rows, charts = (), ()
    if ended:
        return Finding(entry, FAILED, "\n".join(ended), rows, charts)
    verdict, waits = verdict_of(rows), unfinished or {}
    reason = _reason(entry, verdict, rows, fast)
    late = [f" {name}: {waits[name]}." for name in entry.measurements if name in waits]
    return Finding(entry, verdict, reason + "".join(late), rows, charts)


def _reason(entry: Entry, verdict: str, rows: Sequence[Row], fast: bool) -> str:
    """What the verdict rests on."""
    unknown = any(row.verdict == NOT_MEASURED and row.ours == "-" for row in rows)
    left = (
        ""
        if not unknown
        else (
            " Rows without a number of ours are not measured in fast mode."
            if fast
            else " Rows without a number of ours were not measured."
        )
    )
    if verdict == DIFFERS:
        off = "; ".join(row.what for row in rows if row.verdict == DIFFERS)
        return f"differs ({off}) because: {entry.because}{left}"
    if verdict == NOT_MEASURED:
        return left.strip() or entry.because
    return f"{entry.because}{left}"
