"""The page around a report: a heading, what stands under it, the environment, all numbers as JSON.
It fetches nothing.
"""

from __future__ import annotations

import json
import math
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from rigidgrad import charts
from rigidgrad.errors import InputError
from rigidgrad.reports import plots
from rigidgrad.runtime import native
from rigidgrad.viewer.page import without_repeated_meshes

_STYLE = """
:root{color-scheme:light dark;--ink:#0f172a;--soft:#475569;--line:#e2e8f0;--paper:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#f1f5f9;--soft:#cbd5e1;--line:#334155;--paper:#0f172a}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:64rem;margin:0 auto;padding:1rem}
h1{font-size:1.6rem}h2{font-size:1.2rem;border-top:1px solid var(--line);padding-top:1rem;margin-top:2rem}
table{border-collapse:collapse;margin:.8rem 0}td,th{padding:.2rem .9rem .2rem 0;text-align:left;vertical-align:top}th{color:var(--soft);font-weight:500;white-space:nowrap}tr:has(td:last-child:nth-child(2)) th{width:1%}
summary{cursor:pointer;color:var(--soft);margin:.6rem 0}.soft{color:var(--soft);font-size:.85rem}
.charts{display:flex;flex-wrap:wrap;gap:1rem}.charts svg{flex:1 1 20rem;min-width:0;max-width:30rem}footer{color:var(--soft);font-size:.85rem;margin-top:2rem}
"""
_HINT = (
    '<p class="soft">Charts: point for values, drag for a part of the time, double click for all;'
    " names hide their line. Dashed lines are limits; limits beyond the scale are beside names.</p>"
)
# what is in the file is all there is
_POLICY = "default-src 'none'; img-src data:; script-src 'unsafe-inline'; style-src 'unsafe-inline'"


def page(title: str, body: str, attached: dict[str, Any]) -> str:
    """A whole page: a heading, what stands under it, the environment, and `attached` as JSON."""
    data = attached | {"environment": environment()}
    body, live = without_repeated_meshes(body), 'class="plots"' in body
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{plots.STYLE if live else ''}</style></head>"
        f"<body><h1>{escape(title)}</h1>{_HINT if live else ''}{body}"
        f"<h2>Environment</h2>{table(data['environment'])}"
        f'<script type="application/json" id="data">{_json(data)}</script>'
        f"<footer>Made by rigidgrad {version('rigidgrad')}. The numbers are in this file as JSON,"
        " in the element “data”.</footer>"
        + (f"<script>{plots.script()}</script>" if live else "")
        + "</body></html>\n"
    )


def write(text: str, path: Any) -> Path:
    """Writes a page. Gives its path."""
    target = Path(path)
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"the report cannot be written to {str(target)!r}: {error.strerror}"
        ) from None
    return target


def environment() -> dict[str, Any]:
    """What this was computed with."""
    host = native.host()
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "processor": f"{host.cpu}, vectors of {host.vector_bits} bits",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "llvmlite": native.version(),
        "rigidgrad": version("rigidgrad"),
    }


def drawing(drawn: Sequence[str]) -> str:
    """Charts of `charts` side by side, as many as fit."""
    size = f"0 0 {charts.WIDTH} {charts.HEIGHT}"
    body = "".join(
        f'<svg viewBox="{size}" role="img"><style>{charts.STYLE}</style>{chart}</svg>'
        for chart in drawn
    )
    return f'<div class="charts">{body}</div>'


def table(rows: Mapping[str, Any]) -> str:
    """Names and values, one pair per row."""
    cells = (
        f"<tr><th>{escape(str(k))}</th><td>{escape(str(v))}</td></tr>" for k, v in rows.items()
    )
    return f"<table>{''.join(cells)}</table>"


def side_by_side(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """A table with a column for each run, and a row for each fact that any of them has."""
    names = list(dict.fromkeys(name for facts in runs.values() for name in facts))
    head = "".join(f"<th>{escape(run)}</th>" for run in runs)
    rows = "".join(
        f"<tr><th>{escape(name)}</th>"
        + "".join(f"<td>{escape(str(facts.get(name, '–')))}</td>" for facts in runs.values())
        + "</tr>"
        for name in names
    )
    return f"<table><tr><th></th>{head}</tr>{rows}</table>"


def _json(value: Any) -> str:
    """JSON that cannot end the element that it stands in."""
    return json.dumps(_plain(value), separators=(",", ":")).replace("<", "\\u003c")


def _plain(value: Any) -> Any:
    """Arrays as lists, and what JSON has no number for as null."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
