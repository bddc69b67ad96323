"""Small charts as SVG text: lines over a scale that may be logarithmic, stacked bars, and a page of
several.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

COLORS = ("#2563eb", "#f59e0b", "#10b981", "#ef4444", "#8b5cf6", "#0ea5e9", "#84cc16", "#ec4899")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 430, 270, 62, 34, 14, 62
STYLE = (
    "text{font:11px"
    " system-ui,sans-serif;fill:#475569}.title{font-size:15px;font-weight:600;fill:#0f172a}.head{font-size:12px;font-weight:600;fill:#0f172a}"
    ".grid{stroke:#94a3b8;stroke-opacity:.3}.line{fill:none;stroke-width:1.6}.level{stroke-dasharray:5"
    " 4;stroke-opacity:.7}.band{fill:#94a3b8;fill-opacity:.22}"
    "@media(prefers-color-scheme:dark){text{fill:#cbd5e1}.title,.head{fill:#f8fafc}}"
)


def ticks(low: float, high: float, log: bool) -> list[float]:
    """Round numbers within a range, few enough to label."""
    if log:
        found = [
            m * 10.0**e
            for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            for m in (1, 2, 5)
        ]
        found = [x for x in found if low <= x <= high]
        return found if len(found) <= 7 else [x for x in found if f"{x:e}".startswith("1.")]
    step = 10.0 ** math.floor(math.log10((high - low) / 4 or 1))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (m * step) <= 6)
    return [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


class Axes:
    """A frame and its scales."""

    def __init__(
        self,
        title: str,
        across: str,
        up: str,
        x: tuple[float, float],
        y: tuple[float, float],
        log: bool = False,
    ):
        self.title, self.across, self.up = title, across, up
        self.x, self.log = x, log
        self.y = (y[0], y[1] if y[1] > y[0] else y[0] + 1.0)

    def at(self, x: float, y: float) -> tuple[float, float]:
        (x0, x1), (y0, y1) = self.x, self.y
        if self.log:
            y, y0, y1 = (math.log(max(v, self.y[0])) for v in (y, y0, y1))
        across = LEFT + (WIDTH - LEFT - RIGHT) * (x - x0) / ((x1 - x0) or 1)
        return across, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y - y0) / (y1 - y0)

    def frame(self, label_x: bool = True) -> list[str]:
        parts = [f'<text x="{LEFT}" y="20" class="head">{escape(self.title)}</text>']
        for value in ticks(*self.y, self.log):
            _, y = self.at(self.x[0], value)
            parts.append(
                f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
            )
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
        bottom = HEIGHT - BOTTOM
        for value in ticks(*self.x, False) if label_x else ():
            x, _ = self.at(value, self.y[0])
            parts.append(
                f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{value:g}</text>'
            )
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(
            f'<text x="{middle}" y="{bottom + 30}"'
            f' text-anchor="middle">{escape(self.across)}</text>'
        )
        parts.append(
            f'<text transform="translate(14 {(TOP + bottom) / 2}) rotate(-90)"'
            f' text-anchor="middle">{escape(self.up)}</text>'
        )
        return parts


def legend(labels: Sequence[str]) -> list[str]:
    parts, x = [], float(LEFT)
    for color, label in zip(COLORS, labels, strict=False):
        parts.append(
            f'<rect x="{x:.0f}" y="{HEIGHT - 20}" width="9" height="9" rx="2" fill="{color}"/>'
        )
        parts.append(f'<text x="{x + 13:.0f}" y="{HEIGHT - 12}">{escape(label)}</text>')
        x += 22 + 6.2 * len(label)
    return parts


def lines(
    title: str,
    across: str,
    up: str,
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    log: bool = True,
    shaded: tuple[float, float, str] | None = None,
    levels: Mapping[str, Sequence[float]] | None = None,
) -> str:
    """One line per label: its x and its y. `shaded`: from x to x a grey band, and what it means.
    `levels` of a label are dashed lines across, in its colour.
    """
    levels = levels or {}
    xs = [x for across_, _ in series.values() for x in across_]
    ys = [
        y
        for ys_ in (*(up_ for _, up_ in series.values()), *levels.values())
        for y in ys_
        if math.isfinite(y) and (y > 0 or not log)
    ]
    axes = Axes(
        title,
        across,
        up,
        (min(xs), max(xs)),
        (min(ys), max(ys)) if log else (min(0.0, *ys), max(ys)),
        log,
    )
    parts = axes.frame()
    if shaded is not None:
        (left, bottom), (right, top) = axes.at(shaded[0], axes.y[0]), axes.at(shaded[1], axes.y[1])
        parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}"'
            f' height="{bottom - top:.1f}" class="band"/>'
        )
        parts.append(f'<text x="{left + 4:.1f}" y="{top + 12:.1f}">{escape(shaded[2])}</text>')
    for color, label in zip(COLORS, series, strict=False):
        for _, y in (
            axes.at(axes.x[0], level) for level in levels.get(label, ()) if math.isfinite(level)
        ):
            parts.append(
                f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="level"'
                f' stroke="{color}"/>'
            )
    for color, (x_values, y_values) in zip(COLORS, series.values(), strict=False):
        points = " ".join(
            f"{x:.1f},{y:.1f}"
            for x, y in (
                axes.at(*p) for p in zip(x_values, y_values, strict=True) if math.isfinite(p[1])
            )
        )
        parts.append(f'<polyline points="{points}" class="line" stroke="{color}"/>')
    return "".join(parts + legend(list(series)))


def bars(title: str, across: str, up: str, stacks: Mapping[str, Mapping[str, float]]) -> str:
    """One bar a label, made of named parts."""
    names = list(dict.fromkeys(name for parts in stacks.values() for name in parts))
    highest = max((sum(parts.values()) for parts in stacks.values()), default=0.0)
    axes = Axes(title, across, up, (0.0, float(len(stacks))), (0.0, 1.05 * highest))
    drawn = axes.frame(label_x=False)
    for k, (label, parts) in enumerate(stacks.items()):
        below = 0.0
        for name, value in parts.items():
            x0, y0 = axes.at(k + 0.18, below)
            x1, y1 = axes.at(k + 0.82, below + value)
            color = COLORS[names.index(name) % len(COLORS)]
            drawn.append(
                f'<rect x="{x0:.1f}" y="{y1:.1f}" width="{x1 - x0:.1f}" height="{y0 - y1:.1f}"'
                f' fill="{color}"/>'
            )
            below += value
        x, _ = axes.at(k + 0.5, 0.0)
        drawn.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 15}"'
            f' text-anchor="middle">{escape(label)}</text>'
        )
    return "".join(drawn + (legend(names) if len(names) > 1 else []))


def page(title: str, charts: Sequence[str], foot: str, columns: int = 2) -> str:
    rows = -(-len(charts) // columns)
    placed = "".join(
        f'<g transform="translate({WIDTH * (k % columns)}'
        f' {40 + HEIGHT * (k // columns)})">{chart}</g>'
        for k, chart in enumerate(charts)
    )
    wide, high = WIDTH * columns, 40 + HEIGHT * rows + 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img"'
        f' aria-label="{escape(title)}"><style>{STYLE}</style><text x="16" y="26"'
        f' class="title">{escape(title)}</text>{placed}<text x="16"'
        f' y="{high - 8}">{escape(foot)}</text></svg>\n'
    )
