"""The page: every entry with its verdict, what was published, ours, and how to measure the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rigidgrad import reports
from rigidgrad.reproduce import readings
from rigidgrad.reproduce.catalogue import WORKS
from rigidgrad.reproduce.entry import VERDICTS, Finding, Row
from rigidgrad.reproduce.measurements import MEASUREMENTS, Measurement
from rigidgrad.reproduce.runner import Measured

TITLE = "Three works, measured again"
_COLORS = {
    "reproduced": "#15803d",
    "better": "#1d4ed8",
    "differs": "#b45309",
    "shown": "#475569",
    "needs a GPU": "#6d28d9",
    "needs an FPGA board": "#6d28d9",
    "judged elsewhere": "#475569",
    "not measured": "#475569",
    "failed": "#b91c1c",
}
_STYLE = (
    "<style>.v{display:inline-block;border-radius:.3rem;padding:0"
    " .5rem;color:#fff;font-size:.85rem;white-space:nowrap}"
    + "".join(f".{name.replace(' ', '-')}{{background:{color}}}" for name, color in _COLORS.items())
    + ".small{color:var(--soft);font-size:.9rem}h3{margin:1.8rem 0"
    " .3rem;font-size:1.05rem}a{color:inherit}ul{padding-left:1.2rem}body,code,pre{overflow-wrap:anywhere}pre{white-space:pre-wrap;font-size:.85rem}td,th{overflow-wrap:break-word}@media(max-width:40rem){.rows"
    " tr{display:flex;flex-wrap:wrap;border-top:1px solid var(--line);padding:.3rem 0}.rows"
    " td:first-child{flex:1 0 100%}.rows .head{display:none}.rows"
    " td[data-label]:not(:empty)::before{content:attr(data-label) ' ';color:var(--soft)}}</style>"
)


def summary(findings: Sequence[Finding]) -> dict[str, int]:
    """How many entries have each verdict."""
    counted = Counter(f.verdict for f in findings)
    return {verdict: counted[verdict] for verdict in VERDICTS if counted[verdict]}


def data(findings: Sequence[Finding], measured: Measured, mode: str) -> dict[str, Any]:
    """Everything on the page, for machines."""
    origins = {name: readings.origin(result) for name, result in measured.results.items()}
    how = {name: {"how": text} | origins.get(name, {}) for name, text in measured.how.items()}
    return {
        "mode": mode,
        "summary": summary(findings),
        "measurements": how,
        "entries": [f.data() for f in findings],
    }


def page(findings: Sequence[Finding], measured: Measured, mode: str) -> str:
    """The page as HTML that needs nothing else."""
    attached = data(findings, measured, mode)
    counted = ", ".join(
        f"{count} {_badge(verdict)}" for verdict, count in attached["summary"].items()
    )
    parts = [
        _STYLE,
        (
            "<p>What three works published, beside what this software gives on this hardware"
            f" ({escape(mode)}). {len(findings)} figures, tables and claims: {counted}.</p>"
        ),
        (
            '<p class="small">A row is <em>reproduced</em> where our number is the published one'
            " within 15%, <em>better</em> where it lies beyond it on the good side, and"
            " <em>differs</em> otherwise; an entry differs if one of its rows does. A curve goes up"
            " or down if no step of it goes the other way by more than 15% and its ends are"
            " farther apart than that. What only a device can tell is not judged, and a"
            " measurement that several texts speak of counts once. Behind “because” stand the differences that we know"
            " of; how much each of them does was not measured one by one.</p>"
        ),
        _contents(findings),
    ]
    for seed, work in WORKS.items():
        own = [f for f in findings if f.entry.seed == seed]
        if own:
            parts.append(f"<h2>{escape(work)}</h2>")
            parts += [_section(f, attached["measurements"]) for f in own]
    parts.append("<h2>Measurements</h2>" + _measurements(attached["measurements"]))
    return reports.page(TITLE, "".join(parts), attached)


def _badge(verdict: str) -> str:
    return (
        f'<span class="v {verdict.replace(" ", "-")}">{escape(verdict)}</span>' if verdict else ""
    )


def _anchor(finding: Finding) -> str:
    return "".join(c if c.isalnum() else "-" for c in finding.entry.key.lower())


def _contents(findings: Sequence[Finding]) -> str:
    rows = "".join(
        f'<tr><td><a href="#{_anchor(f)}">{escape(f.entry.seed)}'
        f" {escape(f.entry.label)}</a></td><td>{escape(f.entry.title)}</td><td>{_badge(f.verdict)}</td></tr>"
        for f in findings
    )
    return f'<table class="rows">{rows}</table>'


def _section(f: Finding, how: Mapping[str, Mapping[str, Any]]) -> str:
    e = f.entry
    body = f'<h3 id="{_anchor(f)}">{escape(e.label)}: {escape(e.title)} {_badge(f.verdict)}</h3>'
    body += (
        f"<pre>{escape(f.reason)}</pre>" if f.verdict == "failed" else f"<p>{escape(f.reason)}</p>"
    )
    if f.rows:
        head = '<tr class="head"><th></th><th>published</th><th>ours</th><th></th></tr>'
        body += f'<table class="rows">{head}{"".join(_row(row) for row in f.rows)}</table>'
    body += f'<p class="small">Published in {escape(e.source)}, on: {escape(e.hardware)}.'
    if e.measurements:
        commands = [command(MEASUREMENTS[name]) for name in e.measurements]
        body += (
            f"<br>Ours on: {escape(_hardware(e.measurements, how))}; by"
            f" {', '.join(f'<code>{escape(text)}</code>' for text in commands)}."
        )
    body += f"<br>Where there is such a device: {escape(e.device)}</p>" if e.device else "</p>"
    return body + (reports.drawing(list(f.charts)) if f.charts else "")


def command(measurement: Measurement) -> str:
    """What measures it, in full."""
    options = (" ".join(measurement.full)).replace("{out}", "reproduction")
    name = measurement.name
    return " ".join(f"bench/{measurement.script} {options} --json {name}.json".split())


def _hardware(names: Sequence[str], how: Mapping[str, Mapping[str, Any]]) -> str:
    """The machines that an entry's measurements ran on, as far as they say."""
    parts = []
    for name in names:
        found = how.get(name, {})
        if "cpu" in found:
            parts.append(
                f"{found['cpu']}, {found['cores']} cores" if "cores" in found else str(found["cpu"])
            )
    return "; ".join(dict.fromkeys(parts)) or "not measured"


def _row(row: Row) -> str:
    named = "".join(
        f'<td data-label="{name}">{escape(text)}</td>'
        for name, text in (("published", row.published), ("ours", row.ours))
    )
    return f"<tr><td>{escape(row.what)}</td>{named}<td>{_badge(row.verdict)}</td></tr>"


def _measurements(how: Mapping[str, Mapping[str, Any]]) -> str:
    items = []
    for name, found in how.items():
        parts = [str(found[key]) for key in ("cpu", "date", "commit", "command") if key in found]
        parts += [f"load before it {found['load']:.1f}"] if "load" in found else []
        items.append(
            f"<li><code>bench/{escape(MEASUREMENTS[name].script)}</code>:"
            f" {escape(found['how'])}{escape('; ' + ', '.join(parts)) if parts else ''}</li>"
        )
    return f"<ul>{''.join(items)}</ul>"
