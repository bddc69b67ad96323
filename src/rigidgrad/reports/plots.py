"""Charts of a page as SVG text that reads without a script, with their numbers beside the pixels: a
small script shows values under the pointer and zooms.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from html import escape
from importlib import resources

import numpy as np

from rigidgrad import charts

MOST_LINES = 8  # in a chart; more are spread over several
_MOST_POINTS = 400  # of a line
_WIDTH, _LEFT, _RIGHT, _TOP, _TALL = 460, 60, 12, 30, 180
_ROW, _BELOW, _LETTER = 16, 48, 6.1  # pixels: a row of the legend, under the axis, a letter
_NAMED = 28  # letters of a name in a legend


@dataclass(frozen=True)
class Line:
    """Values y (n,) over x (n,); `levels` are limits, drawn as dashed lines."""

    name: str
    x: np.ndarray
    y: np.ndarray
    levels: tuple[float, ...] = ()


@dataclass(frozen=True)
class Plot:
    """Lines over one scale. `shaded`: from x to x a grey band, and what it means. Charts whose
    `across` are the same share the scale across.
    """

    title: str
    unit: str
    lines: tuple[Line, ...]
    across: str = "time [s]"
    log: bool = False
    shaded: tuple[float, float, str] | None = None
    x: tuple[float, float] = (math.nan, math.nan)  # the scales; NaN: as the lines ask for
    y: tuple[float, float] = (math.nan, math.nan)
    first: int = field(default=0, compare=False)  # which colour the first line has

    @property
    def key(self) -> tuple[str, str]:
        """Charts of several runs with the same key show the same."""
        return self.title, self.unit

    def scaled(self) -> Plot:
        """With scales that hold its lines. A limit is within them where that takes no more than
        half of their height again; others stand in the legend.
        """
        xs = np.concatenate([line.x for line in self.lines])
        x = (float(xs.min()), float(xs.max())) if math.isnan(self.x[0]) else self.x
        return replace(self, x=x, y=self._heights() if math.isnan(self.y[0]) else self.y)

    def _heights(self) -> tuple[float, float]:
        ys = np.concatenate([line.y for line in self.lines])
        ys = ys[np.isfinite(ys) & ((ys > 0) | (not self.log))]
        if not len(ys):
            return (0.1, 1.0) if self.log else (0.0, 1.0)
        low, high = float(ys.min()), float(ys.max())
        if self.log:
            return (low, high) if high > low else (low / 2, 2 * high)
        span = high - low
        if span <= 1e-9 * max(abs(low), abs(high)):  # one value
            span = abs(high) or 1.0
            return min(low - 0.5 * span, 0.0), max(high + 0.5 * span, 0.0)
        reach = (low - 0.5 * span, high + 0.5 * span)
        near = [v for line in self.lines for v in line.levels if reach[0] <= v <= reach[1]]
        low, high = min([low, *near]), max([high, *near])
        margin = 0.04 * (high - low)
        return low - margin, high + margin


def together(plots: Iterable[Plot]) -> list[Plot]:
    """The same with one scale across for all with the same axis, and one scale up for those with
    the same key.
    """
    made = [p.scaled() for p in plots]

    def union(ranges: Iterable[tuple[float, float]]) -> tuple[float, float]:
        lows, highs = zip(*ranges, strict=True)
        return min(lows), max(highs)

    return [
        replace(
            p,
            x=union(o.x for o in made if o.across == p.across),
            y=union(o.y for o in made if o.key == p.key),
        )
        for p in made
    ]


def split(plot: Plot) -> list[Plot]:
    """In charts of at most MOST_LINES lines each, evenly filled, on the same scale up."""
    count = -(-len(plot.lines) // MOST_LINES)
    each = -(-len(plot.lines) // count)
    return [replace(plot, lines=plot.lines[k : k + each]) for k in range(0, len(plot.lines), each)]


def drawing(plots: Sequence[Plot]) -> str:
    """Charts side by side, as many as fit; they are zoomed together."""
    drawn = "".join(_figure(p if math.isfinite(p.x[0]) else p.scaled()) for p in plots)
    return f'<div class="plots">{drawn}</div>' if drawn else ""


@lru_cache(maxsize=1)
def script() -> str:
    """What shows values and zooms. It fetches nothing."""
    return (resources.files("rigidgrad.reports") / "plots.js").read_text("utf-8")


STYLE = (
    ".plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(21rem,100%),1fr));gap:1rem}"
    ".plot{min-width:0;max-width:31rem;margin:0;position:relative}.plot svg{display:block;width:100%}"
    ".plot>svg{touch-action:pan-y;outline-offset:2px}.plot>svg:focus-visible{outline:2px solid #2563eb}.plot>svg:focus:not(:focus-visible){outline:none}.plot .area{cursor:crosshair}"
    ".plot .back{fill:#94a3b8;fill-opacity:.05}.plot .chosen{fill:#2563eb;fill-opacity:.16}"
    ".plot .cursor{stroke:#94a3b8}.plot .key{cursor:pointer}.plot .off{opacity:.3}"
    ".plot .value{position:absolute;pointer-events:none;z-index:1;background:var(--paper);color:var(--ink);border:1px"
    " solid var(--line);border-radius:6px;padding:.3rem .5rem;font-size:12px;line-height:1.35;white-space:nowrap;font-variant-numeric:tabular-nums}"
    ".plot .value i{display:inline-block;width:9px;height:9px;border-radius:2px;margin-right:.35rem}"
    + charts.STYLE
)


def _figure(plot: Plot) -> str:
    axes = charts.Axes("", "", "", plot.x, plot.y, plot.log)
    (x0, x1), (y0, y1) = axes.x, axes.y
    wide = _WIDTH - _LEFT - _RIGHT

    def at(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Pixels of the area (n, 2)."""
        up = (
            np.log(np.maximum(y, y0) / y0) / math.log(y1 / y0) if plot.log else (y - y0) / (y1 - y0)
        )
        return np.stack([wide * (x - x0) / ((x1 - x0) or 1.0), _TALL * (1 - up)], axis=1)

    inside = [f'<rect class="back" width="{wide}" height="{_TALL}"/>']
    if plot.shaded is not None:
        edges = at(np.array(plot.shaded[:2]), np.array([y0, y0]))[:, 0]
        inside.append(
            f'<rect class="band" data-x="{plot.shaded[0]:.9g},{plot.shaded[1]:.9g}"'
            f' x="{edges[0]:.1f}" width="{edges[1] - edges[0]:.1f}" height="{_TALL}"/>'
            f'<text x="{edges[0] + 4:.1f}" y="12">{escape(plot.shaded[2])}</text>'
        )
    names = []
    for k, line in enumerate(plot.lines):
        color, dash = _look(k + plot.first)
        finite = tuple(v for v in line.levels if math.isfinite(v))
        for v in sorted(set(finite)):
            if y0 <= v <= y1:
                height = at(np.array([x0]), np.array([v]))[0, 1]
                inside.append(
                    f'<line class="level" data-y="{v:.9g}" x2="{wide}" y1="{height:.1f}"'
                    f' y2="{height:.1f}" stroke="{color}"/>'
                )
        x, y = _thinned(line.x, line.y)
        points = " ".join(
            f"{a:.1f},{b:.1f}" for (a, b), v in zip(at(x, y), y, strict=True) if math.isfinite(v)
        )
        inside.append(
            f'<polyline class="line" points="{points}" stroke="{color}"{dash}'
            f' data-name="{escape(line.name)}" data-x="{_packed(x)}" data-y="{_packed(y)}"/>'
        )
        beyond = any(not y0 <= v <= y1 for v in finite)
        names.append(_short(line.name) + (_limits(finite) if beyond else ""))
    keys, rows = _legend(names, plot.first)
    tall = _TOP + _TALL + _BELOW + _ROW * rows
    title = plot.title + (f" [{plot.unit}]" if plot.unit else "")
    data = {
        "x": [x0, x1],
        "y": [y0, y1],
        "log": plot.log,
        "unit": plot.unit,
        "axis": plot.across,
        "size": [wide, _TALL],
    }
    return (
        f'<figure class="plot" data-plot="{escape(json.dumps(data, separators=(",", ":")))}">'
        f'<svg viewBox="0 0 {_WIDTH} {tall}" role="img" tabindex="0"'
        f' aria-label="{escape(_said(plot, title))}">'
        f'<text x="{_LEFT}" y="18" class="head">{escape(title)}</text>'
        f'<g transform="translate({_LEFT} {_TOP})"><g class="ticks">{_ticks(axes, wide)}</g>'
        f'<svg class="area" width="{wide}" height="{_TALL}">{"".join(inside)}</svg></g>'
        f'<text x="{_LEFT + wide / 2}" y="{_TOP + _TALL + 32}"'
        f' text-anchor="middle">{escape(plot.across)}</text>'
        f'<g class="keys" transform="translate({_LEFT} {_TOP + _TALL + _BELOW})">{keys}</g>'
        "</svg></figure>"
    )


def _ticks(axes: charts.Axes, wide: float) -> str:
    parts = []
    for value in charts.ticks(*axes.y, axes.log):
        (low, high) = axes.y
        share = (
            math.log(value / low) / math.log(high / low)
            if axes.log
            else (value - low) / (high - low)
        )
        y = _TALL * (1 - share)
        parts.append(
            f'<line class="grid" x2="{wide}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{value + 0.0:g}</text>'
        )
    low, high = axes.x
    for value in charts.ticks(low, high, False):
        x = wide * (value - low) / ((high - low) or 1.0)
        parts.append(
            f'<text x="{x:.1f}" y="{_TALL + 15}" text-anchor="middle">{value + 0.0:g}</text>'
        )
    return "".join(parts)


def _look(k: int) -> tuple[str, str]:
    """Of the k-th line: its colour, and dots where all colours were used before."""
    return charts.COLORS[k % len(charts.COLORS)], (
        "" if k < len(charts.COLORS) else ' stroke-dasharray="2 3"'
    )


def _legend(names: Sequence[str], first: int) -> tuple[str, int]:
    parts, x, row = [], 0.0, 0
    for k, name in enumerate(names):
        wide = 26 + _LETTER * len(name)
        if x and x + wide > _WIDTH - _LEFT:
            x, row = 0.0, row + 1
        parts.append(
            f'<g class="key" data-line="{k}" transform="translate({x:.0f} {_ROW * row})">'
            f'<rect width="9" height="9" rx="2" fill="{_look(k + first)[0]}"/>'
            f'<text x="13" y="9">{escape(name)}</text></g>'
        )
        x += wide
    return "".join(parts), row + 1


def _short(name: str) -> str:
    return name if len(name) <= _NAMED else name[: _NAMED - 1] + "…"


def _limits(values: Sequence[float]) -> str:
    """Those of a line, for the legend."""
    if len(values) == 2 and values[0] == -values[1]:
        return f" (±{abs(values[0]):.3g})"
    return f" ({', '.join(f'{v:.3g}' for v in values)})"


def _said(plot: Plot, title: str) -> str:
    """A description for readers who do not see the chart."""
    parts = []
    for line in plot.lines:
        y = line.y[np.isfinite(line.y)]
        if len(y):
            parts.append(f"{line.name} from {y.min():.4g} to {y.max():.4g}")
    return f"{title} over {plot.across}: {'; '.join(parts)}"


def _thinned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most so many points: the lowest and the highest of each stretch, so that no peak is
    lost.
    """
    if len(x) <= _MOST_POINTS:
        return x, y
    known = np.where(np.isfinite(y), y, np.nanmean(y) if np.isfinite(y).any() else 0.0)
    kept = {0, len(x) - 1}
    for part in np.array_split(np.arange(len(x)), _MOST_POINTS // 2 - 1):
        kept |= {int(part[known[part].argmin()]), int(part[known[part].argmax()])}
    rows = np.array(sorted(kept))
    return x[rows], y[rows]


def _packed(array: np.ndarray) -> str:
    """As base64 of little-endian float32."""
    return base64.b64encode(np.ascontiguousarray(array, dtype="<f4").tobytes()).decode("ascii")
