"""A schedule drawn: one line a unit, one box an operation, cycles from left to right."""

from __future__ import annotations

from rigidgrad.targets.verilog.schedule import Schedule, Unit

COLOURS = {
    "multiplier": "#2f6f9f",
    "adder": "#d98c2b",
    "trig": "#7a4fa3",
    "reciprocal": "#3d8b7a",
    "load": "#8a9a5b",
    "move": "#c0504d",
}
ROW, LEFT, TOP = 7, 84, 26


def svg(schedule: Schedule, width: int = 1100) -> str:
    """Scalable vector graphics; of a stream the first state, with a line where each following one
    starts.
    """
    order = {"load": 0, "trig": 1, "reciprocal": 2, "multiplier": 3, "adder": 4}
    boxes = [(o.unit, o.start, "move" if o.move else o.unit.kind) for o in schedule.operations]
    boxes += [(load.unit, load.start, "load") for load in schedule.loads]
    units = sorted({unit for unit, _, _ in boxes}, key=lambda u: (order[u.kind], u.number))
    line = {unit: k for k, unit in enumerate(units)}
    step = (width - LEFT - 10) / max(schedule.cycles, 1)
    height = TOP + ROW * len(units) + 24
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0'
            f' 0 {width} {height}" font-family="sans-serif" font-size="9">'
        ),
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    x = LEFT
    for name, colour in COLOURS.items():
        if any(kind == name for _, _, kind in boxes):
            parts.append(
                f'<rect x="{x}" y="6" width="9" height="9" fill="{colour}"/><text x="{x + 13}"'
                f' y="14">{name}</text>'
            )
            x += 80
    for cycle in range(0, schedule.cycles + 1, 10):
        at = LEFT + cycle * step
        parts.append(
            f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{height - 20}" stroke="#dddddd"/>'
        )
        parts.append(f'<text x="{at:.1f}" y="{height - 8}" text-anchor="middle">{cycle}</text>')
    if schedule.instances > 1:
        for k in range(1, schedule.instances):
            at = LEFT + k * schedule.interval * step
            parts.append(
                f'<line x1="{at:.1f}" y1="{TOP - 6}" x2="{at:.1f}" y2="{height - 20}"'
                ' stroke="#000000" stroke-dasharray="3 2"/>'
            )
    parts += [_label(units, unit, line[unit]) for unit in units if unit.number == 0]
    for unit, start, kind in boxes:
        y = TOP + ROW * line[unit]
        parts.append(
            f'<rect x="{LEFT + start * step:.1f}" y="{y}" width="{max(step - 0.4, 0.6):.2f}"'
            f' height="{ROW - 1}" fill="{COLOURS[kind]}"/>'
        )
    return "\n".join([*parts, "</svg>"])


def _label(units: list[Unit], unit: Unit, row: int) -> str:
    count = sum(u.kind == unit.kind for u in units)
    return (
        f'<text x="4" y="{TOP + ROW * row + 8}">{count}'
        f" {unit.kind}{'s' if count > 1 else ''}</text>"
    )
