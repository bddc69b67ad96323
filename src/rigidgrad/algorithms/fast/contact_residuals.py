"""How far an acceleration and contact forces are from solving the equations of motion with
contacts.

    τ(a, f) = M a + c - Jᵀ f,        γ(a, f) = J a + γ,  and f of a contact that does not hold.

Where both are what they are to be, joint forces τ and zero, (a, f) is what `contact_dynamics`
finds. They are linear in (a, f): no equations are solved. Of an impact as there.
"""

from __future__ import annotations

from rigidgrad.algorithms.fast import constraint_rows as constraint
from rigidgrad.algorithms.fast.constraint_rows import Inputs
from rigidgrad.algorithms.fast.contact_dynamics import moving_parts, setting
from rigidgrad.algorithms.fast.gauge import Gauge
from rigidgrad.algorithms.fast.newton_euler import newton_euler
from rigidgrad.algorithms.joints import External, Vector
from rigidgrad.model.model import Model
from rigidgrad.scalars import add, mul, sub, total


def contact_residuals(
    model: Model,
    q: Vector,
    v: Vector,
    a: Vector,
    force: Vector,
    inputs: Inputs,
    external: External | None = None,
    *,
    gauge: Gauge | None = None,
) -> tuple[Vector, Vector]:
    """τ (nv) and γ (rows), the latter and the forces in world axes."""
    m = moving_parts(model, v, (0.0,) * model.nv, external, inputs.flow)
    s = setting(m.model, q, inputs, gauge, m.external)
    own = constraint.in_points(s.rows, force)
    c = newton_euler(s.model, q, m.v, (0.0,) * model.nv, m.external)
    needed = []
    for i, row in enumerate(s.M):
        pushed = total(mul(line[i], f) for line, f in zip(s.J, own, strict=True))
        needed.append(sub(add(c[i], total(map(mul, row, a))), pushed))
    moving, speeds = (
        constraint.motions(s.model, s.tree, m.v, a),
        constraint.motions(s.model, s.tree, v),
    )
    held = constraint.acceleration(s.rows, moving, speeds)
    active = [row.active for row in s.rows for _ in range(row.constraint.rows)]
    found = [add(x, mul(sub(1.0, on), f)) for x, on, f in zip(held, active, own, strict=True)]
    return tuple(needed), constraint.in_world(s.rows, found)
