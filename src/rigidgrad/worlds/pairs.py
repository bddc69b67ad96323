"""Which shapes may touch, and how softly: MuJoCo's filters, and how it mixes two shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rigidgrad.model import mjcf
from rigidgrad.model.model import WORLD, Model
from rigidgrad.model.pose import Pose
from rigidgrad.worlds.grids import MOST_CELLS, MOST_SLOTS, Grid, grid_of
from rigidgrad.worlds.impedance import Softness, softness, stiffness
from rigidgrad.worlds.narrow import FIELD, MESH, NAMES, PLANE
from rigidgrad.worlds.physics import Physics
from rigidgrad.worlds.plane_mesh import Mesh, mesh_of
from rigidgrad.worlds.touching import FUNCTIONS

_LEAST_FRICTION = 1e-5


@dataclass(frozen=True)
class Geom:
    """A shape on a body of ours."""

    name: str
    kind: int
    size: tuple[float, ...]
    body: int
    mujoco_body: int
    pose: Pose
    reach: float  # of a ball around it
    mesh: Mesh | None = None
    grid: Grid | None = None


@dataclass(frozen=True)
class Pair:
    """Two shapes, `first` and `second` among `geoms`. `friction`: two of sliding, one of spinning,
    two of rolling; `weights`: of translation and rotation, of both bodies together. `drag` is B
    along the surface of elliptic cones.
    """

    first: int
    second: int
    slots: int
    dim: int
    margin: float
    gap: float
    friction: tuple[float, ...]
    soft: Softness
    drag: float
    weights: tuple[float, float]
    window: tuple[int, int] = (0, 0)  # of a height field: its rows and columns of cells


def geoms_of(m: Any, physics: Physics) -> tuple[Geom, ...]:
    found = []
    for g in range(m.ngeom):
        body = int(m.geom_bodyid[g])
        ours, mount = physics.mounts[body]
        w, x, y, z = (float(a) for a in m.geom_quat[g])
        own = Pose(tuple(map(tuple, _rotation(w, x, y, z))), tuple(m.geom_pos[g].tolist()))
        found.append(
            Geom(
                m.geom(g).name or f"geom {g}",
                int(m.geom_type[g]),
                tuple(float(s) for s in m.geom_size[g]),
                ours,
                body,
                mount @ own,
                float(m.geom_rbound[g]),
                mesh_of(m, g) if int(m.geom_type[g]) == MESH else None,
                grid_of(m, g) if int(m.geom_type[g]) == FIELD else None,
            )
        )
    return tuple(found)


def _rotation(w: float, x: float, y: float, z: float) -> list[list[float]]:
    return [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]


def chain(model: Model, body: int) -> tuple[int, ...]:
    """The velocities that move a body, in order."""
    if body == WORLD:
        return ()
    joints = (model.joints[i] for i in model.ancestors[body])
    return tuple(sorted(v for j in joints for v in range(j.v, j.v + j.nv)))


def columns_of(model: Model, first: int, second: int) -> tuple[int, ...]:
    """The velocities that move one of two bodies against the other."""
    return tuple(sorted({*chain(model, first)} ^ {*chain(model, second)}))


def find_pairs(
    m: Any, physics: Physics, geoms: tuple[Geom, ...], safe: bool
) -> tuple[tuple[Pair, ...], Counter[str]]:
    """The pairs that may touch, and by name of their kinds those for which there is no function."""
    library = mjcf.library()
    flags = library.mjtDisableBit
    unknown: Counter[str] = Counter()
    if m.opt.disableflags & int(flags.mjDSBL_CONTACT) or m.opt.disableflags & int(
        flags.mjDSBL_CONSTRAINT
    ):
        return (), unknown
    pairs: list[Pair] = []
    for a, b, given in _candidates(m, flags):
        if geoms[a].kind > geoms[b].kind:
            a, b = b, a
        if not columns_of(physics.model, geoms[a].body, geoms[b].body):
            continue
        kinds = geoms[a].kind, geoms[b].kind
        if kinds == (PLANE, PLANE):
            continue
        if not _known(geoms[a], geoms[b]):
            unknown[f"{NAMES.get(kinds[0], '?')} and {NAMES.get(kinds[1], '?')}"] += 1
            continue
        pair = _pair(m, physics.dt, safe, a, b, given, FUNCTIONS[kinds][1])
        if kinds[0] == FIELD:
            grid, shape = geoms[a].grid, geoms[b]
            window = grid.window(shape.reach + max(pair.margin, 0.0)) if grid else (0, 0)
            if geoms[a].body != WORLD or max(window) > MOST_CELLS:
                why = (
                    "that moves" if geoms[a].body != WORLD else "of cells that are small beside it"
                )
                unknown[f"height field ({why}) and {NAMES[kinds[1]]}"] += 1
                continue
            slots = min(2 * window[0] * window[1], MOST_SLOTS)
            pair = replace(pair, slots=slots, window=window)
        pairs.append(pair)
    return tuple(pairs), unknown


def _known(a: Geom, b: Geom) -> bool:
    """Whether there is a function of their kinds, and meshes are small enough for it."""
    if (a.kind, b.kind) not in FUNCTIONS:
        return False
    meshes = [g.mesh for g in (a, b) if g.mesh is not None]
    return all(x.small if a.kind == PLANE else x.walkable for x in meshes)


def _candidates(m: Any, flags: Any) -> Iterator[tuple[int, int, int | None]]:
    """Two geoms, and the number of the <pair> that names them."""
    named = {}
    for k in range(m.npair):
        key = tuple(sorted((int(m.pair_geom1[k]), int(m.pair_geom2[k]))))
        named[key] = k
    excluded = {int(x) for x in m.exclude_signature}
    parents = not m.opt.disableflags & int(flags.mjDSBL_FILTERPARENT)
    weld = m.body_weldid
    for a in range(m.ngeom):
        for b in range(a + 1, m.ngeom):
            if (a, b) in named:
                continue
            if not (
                m.geom_contype[a] & m.geom_conaffinity[b]
                or m.geom_contype[b] & m.geom_conaffinity[a]
            ):
                continue
            one, two = int(m.geom_bodyid[a]), int(m.geom_bodyid[b])
            low, high = min(one, two), max(one, two)
            if (low << 16) + high in excluded:
                continue
            w1, w2 = int(weld[one]), int(weld[two])
            if w1 == w2:
                continue
            p1, p2 = int(weld[m.body_parentid[w1]]), int(weld[m.body_parentid[w2]])
            if parents and w1 and w2 and (w1 == p2 or w2 == p1):
                continue
            yield a, b, None
    for (a, b), k in named.items():
        yield a, b, k


def _pair(m: Any, dt: float, safe: bool, a: int, b: int, given: int | None, slots: int) -> Pair:
    one, two = int(m.geom_bodyid[a]), int(m.geom_bodyid[b])
    weights = m.body_invweight0[one] + m.body_invweight0[two]
    if given is not None:
        dim = int(m.pair_dim[given])
        ref, imp, friction = m.pair_solref[given], m.pair_solimp[given], m.pair_friction[given]
        sliding = m.pair_solreffriction[given]
        margin, gap = float(m.pair_margin[given]), float(m.pair_gap[given])
    else:
        dim, ref, imp, three = _mixed(m, a, b)
        friction = three[[0, 0, 1, 2, 2]]
        sliding = np.zeros(2)
        margin = float(m.geom_margin[a] + m.geom_margin[b])
        gap = float(m.geom_gap[a] + m.geom_gap[b])
    soft = softness(ref, imp, dt, safe)
    drag = soft.B
    if np.any(sliding) and (sliding[0] > 0) == (sliding[1] > 0):
        drag = stiffness([float(x) for x in sliding], soft.far, dt, safe)[1]
    return Pair(
        a,
        b,
        slots,
        dim,
        margin,
        gap,
        tuple(max(_LEAST_FRICTION, float(f)) for f in friction),
        soft,
        drag,
        (float(weights[0]), float(weights[1])),
    )


def _mixed(m: Any, a: int, b: int) -> tuple[int, Any, Any, Any]:
    """Of two shapes: that of higher priority, or a mixture."""
    one, two = int(m.geom_priority[a]), int(m.geom_priority[b])
    if one != two:
        g = a if one > two else b
        return int(m.geom_condim[g]), m.geom_solref[g], m.geom_solimp[g], m.geom_friction[g]
    x, y = float(m.geom_solmix[a]), float(m.geom_solmix[b])
    mix = (
        x / (x + y)
        if x >= 1e-15 and y >= 1e-15
        else 0.5
        if x < 1e-15 and y < 1e-15
        else float(x >= 1e-15)
    )
    ra, rb = m.geom_solref[a], m.geom_solref[b]
    standard = ra[0] > 0 and rb[0] > 0
    ref = mix * ra + (1 - mix) * rb if standard else np.minimum(ra, rb)
    imp = mix * m.geom_solimp[a] + (1 - mix) * m.geom_solimp[b]
    friction = np.maximum(m.geom_friction[a], m.geom_friction[b])
    return max(int(m.geom_condim[a]), int(m.geom_condim[b])), ref, imp, friction
