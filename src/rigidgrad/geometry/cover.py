"""A solid within triangles, covered by balls that hold its whole surface and what is deep inside,
and stick out by no more than a stated error.

A ball of radius d + e about an inner point at depth d sticks out by at most e. Candidates lie on
lines that go in from the surface, at the depth at which a ball touches the surface twice and at
smaller ones (N. Ma et al., 3D medial axis point approximation using nearest neighbors, 2012). They
are chosen one after the other, each the one that covers most of what is not covered yet.

The surface is cut into small triangles. One is covered where a ball has its three corners, as balls
are convex. Of the depth a lower bound is taken: the nearest point of the surface is on a face, an
edge or a corner, on which a sample lies within `spacing`, at a right angle or a wider one, so that
d² ≥ D² - spacing², D being the distance to the nearest sample. So the error is a bound, not an
estimate.

A surface of very many triangles is rounded to a grid first, by a part of the error that the cover
then does not have. One that is open has no inside: its triangles alone are covered, by balls about
points on them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.geometry.meshes import Triangles

_MOST_SAMPLES = 60_000
_MOST_VERTICES = 30_000  # of a surface that is taken as it is
_GRID = 0.1  # of the error, by which vertices of others move
_MOST_CELLS = 500_000  # of long and thin triangles
_MOST_LINES = 500  # that candidates lie on
_MOST_GRID = 600_000  # points around
_MOST_TURNS = 200_000_000  # points times triangles, to tell what is inside
_CHUNK = 4_000_000  # distances at a time
_DEPTHS = (0.5, 1.2, 2.2, 4.0)  # of candidates, in errors
_SHRINKS = 8
_ROUNDING = 1e-6  # of squares in single precision, beside the square of the whole size


@dataclass(frozen=True)
class Cover:
    """Balls (n, 3) and (n,). All of the surface, and all that is deeper inside of a closed one than
    the error, is in one of them; none sticks out by more than `error` metres.
    """

    centers: np.ndarray
    radii: np.ndarray
    error: float


class _TooLargeError(Exception):
    """More samples than time and memory are there for."""


def cover(solid: Triangles, error: float) -> Cover:
    try:
        taken = solid
        if len(solid.vertices) > _MOST_VERTICES:
            taken = solid.on_grid(_GRID * error / (math.sqrt(3) / 2))
        own = error - 2 * taken.rounded
        if own < error / 2:
            raise _TooLargeError
        found = _of_closed(taken, own) if not taken.open_edges else _of_open(taken, own)
    except _TooLargeError:
        raise InputError(
            f"{solid.origin} is too large to be covered with an error of {error:g} m: allow a"
            " larger one"
        ) from None
    return Cover(found.centers, found.radii + taken.rounded, error)


def _of_open(solid: Triangles, error: float) -> Cover:
    points, parts = subdivided(solid, error / 2)
    return Cover(*_on_surface(points, parts, error), error)


def _on_surface(
    points: np.ndarray, parts: np.ndarray, error: float
) -> tuple[np.ndarray, np.ndarray]:
    """Balls about small triangles. They reach their corners, which are at most 2/3 of the longest
    edge away.
    """
    centers, radii = np.empty((0, 3)), np.empty(0)
    while len(parts):  # of the triangles that are left, some that are spread over them
        some = np.unique(np.linspace(0, len(parts) - 1, 4 * _MOST_LINES).astype(int))
        middles = points[parts[some]].mean(axis=1)
        more, sizes, parts = _chosen(middles, np.full(len(middles), error), points, parts)
        centers, radii = np.concatenate([centers, more]), np.concatenate([radii, sizes])
    return centers, radii


def _of_closed(solid: Triangles, error: float) -> Cover:
    points, parts = subdivided(solid, error / 2)
    hidden = np.zeros(len(parts), bool)
    # several closed surfaces through each other: what is inside of another one is no surface
    if _overlaps(solid):
        hidden = _hidden(solid, points[parts], error * 1e-3)
        parts = parts[~hidden]
        used, parts = np.unique(parts, return_inverse=True)
        points, parts = points[used], parts.reshape(-1, 3)
    inner, depths = _candidates(points, parts, error)
    centers, radii, left = _chosen(inner, depths + error, points, parts)
    if not (winding(solid, centers) > 0.5).all():  # beyond a wall thinner than samples are apart
        within = winding(solid, inner) > 0.5
        centers, radii, left = _chosen(inner[within], depths[within] + error, points, parts)
    if len(left):
        more, sizes = _on_surface(points, left, error)
        centers, radii = np.concatenate([centers, more]), np.concatenate([radii, sizes])
    holes = _uncovered_inside(solid, points, centers, radii, error)
    if len(holes):
        room = _depth(holes, points, error / 2) + error
        more, sizes, _ = _chosen(
            holes,
            room,
            holes,
            np.repeat(np.arange(len(holes))[:, None], 3, axis=1),
            slack=error * math.sqrt(3) / 2,
        )
        centers, radii = np.concatenate([centers, more]), np.concatenate([radii, sizes])
    return Cover(centers, radii, error)


def subdivided(solid: Triangles, spacing: float) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, 3) and triangles (m, 3) of the same surface, no edge longer than √3 spacing: no
    point is further from a corner on its face, or on its edge, than that.
    """
    corners = solid.corners
    longest = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).max(axis=1)
    steps = np.maximum(np.ceil(longest / (math.sqrt(3) * spacing)), 1).astype(int)
    if int(((steps + 1) * (steps + 2) // 2).sum()) > _MOST_SAMPLES:
        return _in_strips(corners, math.sqrt(3) * spacing)
    points, parts, first = [], [], 0
    for n in np.unique(steps):
        place = {
            (i, j): k
            for k, (i, j) in enumerate((i, j) for i in range(n + 1) for j in range(n + 1 - i))
        }
        weights = np.array([(1 - (i + j) / n, i / n, j / n) for i, j in place])
        cells = [
            (place[i, j], place[i + 1, j], place[i, j + 1]) for i in range(n) for j in range(n - i)
        ]
        cells += [
            (place[i + 1, j], place[i + 1, j + 1], place[i, j + 1])
            for i in range(n)
            for j in range(n - 1 - i)
        ]
        own = np.einsum("sc,tcx->tsx", weights, corners[steps == n])
        points.append(own.reshape(-1, 3))
        starts = first + len(weights) * np.arange(len(own))
        parts.append((starts[:, None, None] + np.array(cells)[None]).reshape(-1, 3))
        first += points[-1].shape[0]
    return _merged(np.concatenate(points), np.concatenate(parts))


def _in_strips(corners: np.ndarray, longest: float) -> tuple[np.ndarray, np.ndarray]:
    """The same by strips along the shortest edge of each triangle, which are cut across: hardly
    more triangles than the area needs, where many are long and thin.
    """
    edges = np.linalg.norm(np.roll(corners, -1, axis=1) - corners, axis=2)
    turned = (edges.argmin(axis=1)[:, None] + np.arange(3)) % 3
    corners = np.take_along_axis(corners, turned[:, :, None], axis=1)
    # no diagonal of a cell is longer than two of its sides
    strips, cells = (
        np.where(edges.max(axis=1) > longest, np.ceil(2 * length / longest), 1).astype(int)
        for length in (edges.max(axis=1), edges.min(axis=1))
    )
    cells = np.maximum(cells, 1)
    if int((strips * (cells + 1)).sum()) > _MOST_CELLS:
        raise _TooLargeError
    found = []
    for n, m in np.unique(np.column_stack([strips, cells]), axis=0).tolist():
        own = np.einsum("tcw,kwx->ktcx", _strips(n, m), corners[(strips == n) & (cells == m)])
        found.append(own.reshape(-1, 3))
    points = np.concatenate(found)
    merged, parts = _merged(points, np.arange(len(points)).reshape(-1, 3))
    if len(merged) > _MOST_SAMPLES:
        raise _TooLargeError
    return merged, parts


def _strips(n: int, m: int) -> np.ndarray:
    """Weights (triangles, 3, 3) of a triangle's corners at those of its parts: n strips along its
    first edge, of m cells each, and fewer towards the tip.
    """
    parts = []
    for k in range(n):
        count = max(math.ceil(m * (n - k) / n), 1)
        low, high = (
            [((1 - t) * (1 - j / count), (1 - t) * j / count, t) for j in range(count + 1)]
            for t in (k / n, (k + 1) / n)
        )
        for j in range(count):
            parts.append((low[j], low[j + 1], high[j]))
            if k < n - 1:
                parts.append((low[j + 1], high[j + 1], high[j]))
    return np.array(parts)


def _merged(points: np.ndarray, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """With points in one place as one."""
    found, which = np.unique(np.round(points, 10), axis=0, return_inverse=True)
    return found, which.reshape(-1)[parts]


def winding(solid: Triangles, points: np.ndarray) -> np.ndarray:
    """How often the surface goes round each point (n,): 1 inside, 0 outside, more where closed
    surfaces overlap. A. Van Oosterom and J. Strackee, 1983.
    """
    result = np.empty(len(points))
    step = max(1, _CHUNK // 8 // len(solid.faces))
    for k in range(0, len(points), step):
        a, b, c = (solid.corners[None, :, i] - points[k : k + step, None] for i in range(3))
        la, lb, lc = (np.linalg.norm(x, axis=2) for x in (a, b, c))
        ab, bc, ca = (
            np.einsum("pti,pti->pt", a, b),
            np.einsum("pti,pti->pt", b, c),
            np.einsum("pti,pti->pt", c, a),
        )
        volume = np.einsum("pti,pti->pt", a, np.cross(b, c))
        result[k : k + step] = np.arctan2(volume, la * lb * lc + ab * lc + bc * la + ca * lb).sum(
            axis=1
        ) / (2 * np.pi)
    return result


def squares(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Squared distances (len(a), len(b)), about a middle, where rounding is least."""
    middle = b.mean(axis=0)
    a, b = a - middle, b - middle
    found: np.ndarray = np.maximum(
        (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None, :] - 2 * a @ b.T, 0.0
    )
    return found


def _nearest(points: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of the others is nearest to each point, and the square of how far."""
    step = max(1, _CHUNK // len(others))
    which, found = np.empty(len(points), int), np.empty(len(points))
    for k in range(0, len(points), step):
        d = squares(points[k : k + step], others)
        which[k : k + step] = d.argmin(axis=1)
        found[k : k + step] = d.min(axis=1)
    return which, found


def _depth(inner: np.ndarray, points: np.ndarray, spacing: float) -> np.ndarray:
    return np.sqrt(np.maximum(_nearest(inner, points)[1] - spacing * spacing, 0.0))


def _overlaps(solid: Triangles) -> bool:
    """Whether the surface has parts that do not hang together."""
    label = np.arange(len(solid.vertices))
    while True:
        least = label[solid.faces].min(axis=1)
        new = label.copy()
        for k in range(3):
            np.minimum.at(new, solid.faces[:, k], least)
        if np.array_equal(new, label):
            return len(np.unique(label[solid.faces[:, 0]])) > 1
        label = new


def _normals(corners: np.ndarray) -> np.ndarray:
    n = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    unit: np.ndarray = n / np.maximum(np.linalg.norm(n, axis=1), 1e-30)[:, None]
    return unit


def _hidden(solid: Triangles, corners: np.ndarray, step: float) -> np.ndarray:
    """Of small triangles, those that are inside of another closed surface with all that was looked
    at: the middle and points near the corners.
    """
    out = step * _normals(corners)
    middle = corners.mean(axis=1)
    hidden = winding(solid, middle + out) > 0.5
    near = 0.98 * corners[hidden] + 0.02 * middle[hidden, None] + out[hidden, None]
    hidden[hidden] = (winding(solid, near.reshape(-1, 3)) > 0.5).reshape(-1, 3).all(axis=1)
    return hidden


def _candidates(
    points: np.ndarray, parts: np.ndarray, error: float
) -> tuple[np.ndarray, np.ndarray]:
    """Inner points and lower bounds of their depths."""
    corners = points[parts]
    area = np.linalg.norm(
        np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1
    )
    at = corners.mean(axis=1)
    rows = np.flatnonzero(area > 1e-14)
    if len(rows) > _MOST_LINES:  # evenly over the area
        total = np.cumsum(area[rows])
        rows = np.unique(
            rows[np.searchsorted(total, (np.arange(_MOST_LINES) + 0.5) / _MOST_LINES * total[-1])]
        )
    at, normal = at[rows], _normals(corners[rows])
    radius = np.full(len(at), float(np.ptp(points, axis=0).max()))
    for _ in range(_SHRINKS):
        centers = at - radius[:, None] * normal
        which, square = _nearest(centers, points)
        away = at - points[which]
        along = np.einsum("ij,ij->i", normal, away)
        smaller = (square < (radius * (1 - 1e-6)) ** 2) & (along > 1e-12)
        if not smaller.any():
            break
        touching = np.einsum("ij,ij->i", away, away) / (2 * np.maximum(along, 1e-12))
        radius = np.where(smaller, np.minimum(touching, radius), radius)
    depths = [radius, *(np.minimum(k * error, radius) for k in _DEPTHS)]
    centers = np.concatenate([at - d[:, None] * normal for d in depths])
    return centers, _depth(centers, points, error / 2)


def _uncovered_inside(
    solid: Triangles, points: np.ndarray, centers: np.ndarray, radii: np.ndarray, error: float
) -> np.ndarray:
    """Points of a grid inside, deeper than half the error, whose cells are not all in one ball."""
    low, high = solid.vertices.min(axis=0), solid.vertices.max(axis=0)
    axes = [np.arange(low[k] + 0.37 * error, high[k], error) for k in range(3)]
    if math.prod(len(a) for a in axes) > _MOST_GRID:
        raise _TooLargeError
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    left = [grid[:0]]  # what is thinner than some of the error has no points of the grid
    step = max(1, _CHUNK // len(centers))
    for k in range(0, len(grid), step):
        rows = grid[k : k + step]
        room = np.maximum(radii - error * math.sqrt(3) / 2, 0.0)
        left.append(rows[~(squares(rows, centers) <= room**2).any(axis=1)])
    rest = np.concatenate(left)
    rest = rest[_depth(rest, points, error / 2) > error / 2] if len(rest) else rest
    if len(rest) * len(solid.faces) > _MOST_TURNS:
        raise _TooLargeError
    return rest[winding(solid, rest) > 0.5] if len(rest) else rest


def _chosen(
    centers: np.ndarray,
    radii: np.ndarray,
    points: np.ndarray,
    parts: np.ndarray,
    slack: float = 0.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Balls that cover parts, each with its three points, and the parts that none covers. Gains
    only fall, so a ball's old one bounds its new one: only the best few are counted again.
    """
    covered = np.zeros((len(centers), (len(parts) + 7) // 8), np.uint8)
    step = max(1, _CHUNK // max(len(points), len(parts)))
    # in single precision, within its rounding on the safe side, unless that is too much
    rounding = _ROUNDING * float(np.ptp(points, axis=0).max()) ** 2
    kind: type = np.float32
    if rounding > 0.05 * float(radii.min(initial=np.inf) - slack) ** 2:
        kind, rounding = np.float64, 1e-8 * rounding
    single, among = (
        (centers - points.mean(axis=0)).astype(kind),
        (points - points.mean(axis=0)).astype(kind),
    )
    room = np.maximum(radii - slack, 0.0) ** 2 - rounding
    for k in range(0, len(centers), step):
        within = squares(single[k : k + step], among) <= room[k : k + step, None].astype(kind)
        covered[k : k + step] = np.packbits(
            within[:, parts[:, 0]] & within[:, parts[:, 1]] & within[:, parts[:, 2]], axis=1
        )
    gains = np.bitwise_count(covered).sum(axis=1, dtype=np.int64)
    left = np.packbits(np.ones(len(parts), bool))  # the last byte is filled with zeros
    chosen: list[int] = []
    while left.any():
        best, most = -1, 0
        for k in np.argsort(-gains, kind="stable"):
            if gains[k] <= most:
                break
            gains[k] = int(np.bitwise_count(covered[k] & left).sum(dtype=np.int64))
            if gains[k] > most:
                best, most = int(k), int(gains[k])
        if best < 0:
            break
        chosen.append(best)
        left &= ~covered[best]
    return centers[chosen], radii[chosen], parts[np.unpackbits(left, count=len(parts)).astype(bool)]
