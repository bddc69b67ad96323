"""Whose distances are asked for: a robot's links as balls, capsules and boxes, the pairs of links
that may meet, and the calls of compiled code.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from rigidgrad.algorithms import manifold
from rigidgrad.collisions import numbers
from rigidgrad.collisions.apart import apart
from rigidgrad.collisions.covers import covered
from rigidgrad.collisions.placing import placing
from rigidgrad.collisions.touching import touching
from rigidgrad.collisions.vectors import lanes_of
from rigidgrad.errors import InputError, ModelWarning, unknown_name, warn
from rigidgrad.geometry.files import Roots
from rigidgrad.geometry.links import LINK_ERROR, LinkShape, ground_of, link_shapes
from rigidgrad.geometry.scene import Scene, as_scene
from rigidgrad.geometry.shapes import size
from rigidgrad.model.model import WORLD, Model
from rigidgrad.runtime import arrays
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.job import Job, digest

_SAMPLES = 4096  # positions that tell which links never meet, and which always touch
_NEAR = 0.02  # metres: links that no sample brings closer than this are not looked at
_CHUNK_BYTES = 1 << 20  # of what is placed at a time: it stays in the second cache

_NO_SHAPES = (
    "has no collision shapes and touches nothing; give it some: robot.with_collisions(shapes=…)"
)

Pair = tuple[str, str]


@dataclass(frozen=True)
class Distances:
    """Of pairs at each position. `.pairs`: (link, object) for each link that moves and each object
    of the scene, then (link, link).

    `.distance` (…, pairs) in metres, negative by the least translation that parts them; `.gradient`
    (…, pairs, nv), in the tangent space; `.point` (…, pairs, 3) on the first of the pair and
    `.other` (…, pairs, 3) on the second, nearest to each other, and `.normal` (…, pairs, 3) from
    the second to the first. What was not asked for is None.
    """

    pairs: tuple[Pair, ...]
    distance: np.ndarray
    gradient: np.ndarray | None = None
    point: np.ndarray | None = None
    other: np.ndarray | None = None
    normal: np.ndarray | None = None

    @property
    def least(self) -> np.ndarray:
        """The distance of the nearest pair (…)."""
        nearest: np.ndarray = self.distance.min(axis=-1, initial=np.inf)
        return nearest

    def of(self, first: str, second: str) -> np.ndarray:
        """The distance of one pair (…), named either way."""
        for pair in ((first, second), (second, first)):
            if pair in self.pairs:
                return self.distance[..., self.pairs.index(pair)]
        raise unknown_name("pair", f"{first}, {second}", (f"{a}, {b}" for a, b in self.pairs))


@dataclass(frozen=True, eq=False)
class CollisionModel:
    """A robot's links as balls, capsules and boxes: `links`, each with its `.error`, and the
    `pairs` of links that are looked at.
    """

    model: Model = field(repr=False)
    links: tuple[LinkShape, ...]
    pairs: tuple[tuple[int, int], ...] = field(repr=False)
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def error(self) -> float:
        """Metres that the cover of a link sticks out at most: a distance is less than the true one
        by no more than this for each link of the pair.
        """
        return max((link.error for link in self.links), default=0.0)

    @property
    def self_pairs(self) -> tuple[Pair, ...]:
        return tuple((self.links[i].link, self.links[j].link) for i, j in self.pairs)

    @property
    def moving(self) -> tuple[str, ...]:
        """Links that scenes can meet, in the order of pairs; those fixed to the world never move
        against it.
        """
        return tuple(self.links[k].link for k in self._numbers(np.dtype(np.float64)).order)

    @cached_property
    def scene(self) -> Scene:
        """Planes and height fields of the robot's file that are fixed to the world."""
        return Scene(ground_of(self.model))

    def pairs_with(self, scene: Scene, self_pairs: bool = True) -> tuple[Pair, ...]:
        return (
            *((link, name) for link in self.moving for name in scene.names),
            *(self.self_pairs if self_pairs else ()),
        )

    # --- what is asked ----------------------------------------------------------------------------

    def clear_of(self, scene: Any) -> Scene:
        """The scene, for whoever keeps clear of it: an error for a robot without shapes, which is
        clear of everything.
        """
        if not self.links:
            raise InputError(f"{self.model.name!r} {_NO_SHAPES}")
        return as_scene(scene)

    def _asked(self, scene: Any) -> Scene:
        """The scene of a question, with a warning where the answer is that nothing can touch."""
        if not self.links:
            warn(f"{self.model.name!r} {_NO_SHAPES}", ModelWarning)
        return as_scene(scene)

    def in_collision(
        self, q: Any, scene: Any = None, *, margin: float = 0.0, self_pairs: bool = True
    ) -> Any:
        """Whether a link is within `margin` of an object, or of a link that it is paired with
        (…).
        """
        scene = self._asked(scene)
        batch = arrays.gather({"q": q}, {"q": (self.model.nq,)})
        result = self.check(scene, margin=margin, self_pairs=self_pairs, dtype=batch.dtype)(
            batch.rows["q"]
        ).reshape(batch.shape)
        return batch.back(result) if batch.back else result if batch.shape else bool(result)

    def check(
        self,
        scene: Any = None,
        *,
        margin: float = 0.0,
        self_pairs: bool = True,
        dtype: Any = np.float64,
    ) -> Check:
        """`in_collision` of one scene, for many calls with positions (n, nq) of one dtype."""
        return Check(self, as_scene(scene), _margin(margin), self_pairs, np.dtype(dtype))

    def distances(
        self,
        q: Any,
        scene: Any = None,
        *,
        gradient: bool = True,
        points: bool = False,
        self_pairs: bool = True,
    ) -> Distances:
        scene = self._asked(scene)
        batch = arrays.gather({"q": q}, {"q": (self.model.nq,)})
        rows, dtype = batch.rows["q"], batch.dtype
        count, pairs, nv = len(rows), self.pairs_with(scene, self_pairs), self.model.nv
        robot, world = self._robot(dtype, self_pairs), self._scene(scene, dtype)
        wide = lanes_of(dtype)
        padded = -(-count // wide) * wide
        distance = np.empty((padded, len(pairs)), dtype)
        slopes = np.zeros((padded, len(pairs), nv) if gradient or points else (0, 0, 0), dtype)
        at, normal = (
            np.zeros((padded, len(pairs), 3) if points else (0, 0, 0), dtype) for _ in range(2)
        )
        if count and pairs:
            place, width = self._placing(True), numbers_of(self.links)
            room, rates = np.zeros(width * wide, dtype), np.zeros(6 * self.model.dofs * wide, dtype)
            none = np.zeros((0, 0, 0), dtype)
            for start, stop in self._pieces(
                count, (width + 6 * self.model.dofs) * dtype.itemsize, wide
            ):
                placed, moving = place(_filled(rows[start:stop], wide))
                piece = slice(start, start + len(placed))
                apart(
                    placed,
                    moving.reshape(len(placed), -1),
                    room,
                    rates,
                    robot,
                    world,
                    distance[piece],
                    slopes[piece] if gradient or points else none,
                    at[piece] if points else none,
                    normal[piece] if points else none,
                    2 if points else int(gradient),
                )

        def shaped(array: np.ndarray) -> Any:
            found = array[:count].reshape(*batch.shape, *array.shape[1:])
            return batch.back(found) if batch.back else found

        found = Distances(pairs, shaped(distance), shaped(slopes) if gradient else None)
        if not points:
            return found
        return Distances(
            pairs,
            found.distance,
            found.gradient,
            shaped(at),
            shaped(at - distance[:, :, None] * normal),
            shaped(normal),
        )

    # --- what is kept -----------------------------------------------------------------------------

    def _pieces(self, count: int, bytes_: int, wide: int) -> Iterable[tuple[int, int]]:
        step = max(1, _CHUNK_BYTES // max(bytes_, 1) // wide) * wide
        return ((start, min(start + step, count)) for start in range(0, count, step))

    def _placing(self, twists: bool) -> Compiled:
        found: Compiled | None = self._kept.get(twists)
        if found is None:
            identity = f"{digest(self.model)} {self.links!r}"
            recording = Job(
                "placing",
                self.model.name,
                f"{identity} {twists}",
                lambda: placing(self.model, self.links, twists),
            )
            found = self._kept[twists] = Compiled(recording, threads=1)
        return found

    def _numbers(self, dtype: np.dtype) -> numbers.LinkNumbers:
        found: numbers.LinkNumbers | None = self._kept.get(dtype)
        if found is None:
            found = numbers.link_numbers(self.model, self.links, self.pairs, dtype)
            self._kept[dtype] = found
        return found

    def _robot(self, dtype: np.dtype, self_pairs: bool) -> tuple[np.ndarray, ...]:
        found = self._numbers(dtype)
        return tuple(found if self_pairs else found._replace(pairs=np.zeros((0, 2), np.int64)))

    @staticmethod
    def _scene(scene: Scene, dtype: np.dtype) -> tuple[np.ndarray, ...]:
        if dtype not in scene._numbers:
            scene._numbers[dtype] = tuple(numbers.scene_numbers(scene, dtype, covered))
        return scene._numbers[dtype]


class Check:
    """What `in_collision` does, ready for positions (n, nq): whether each one touches (n,). Its
    memory is its own: one thread at a time.
    """

    def __init__(
        self,
        collisions: CollisionModel,
        scene: Scene,
        margin: float,
        self_pairs: bool,
        dtype: np.dtype,
    ):
        self.count = 0  # positions that were looked at
        self._dtype, self._wide, width = dtype, lanes_of(dtype), numbers_of(collisions.links)
        self._place = collisions._placing(False) if collisions.links else None
        self._rows = (
            max(1, _CHUNK_BYTES // max(width * dtype.itemsize, 1) // self._wide) * self._wide
        )
        self._placed = np.empty((self._rows, width), dtype)
        self._bits = np.zeros(self._rows // self._wide, np.int64)
        room = np.zeros(width * self._wide, dtype)
        robot, world = collisions._robot(dtype, self_pairs)[:9], collisions._scene(scene, dtype)
        self._call = touching.over(self._placed, room, robot, world, margin, self._bits)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        count, wide = len(rows), self._wide
        self.count += count
        result = np.zeros(count, bool)
        if self._place is None:
            return result
        rows = np.asarray(rows, self._dtype)
        for start in range(0, count, self._rows):
            piece = _filled(rows[start : start + self._rows], wide)
            packs = len(piece) // wide
            self._place(piece, out=self._placed[: len(piece)])
            self._call(0, 0, packs)
            found = np.unpackbits(
                self._bits[:packs].view(np.uint8).reshape(packs, 8), axis=1, bitorder="little"
            )[:, :wide].reshape(-1)
            result[start : start + self._rows] = found[: count - start]
        if not np.isfinite(rows.sum()):  # of NaN nothing is known to be free
            result |= ~np.isfinite(rows).all(axis=1)
        return result


def collision_model(
    model: Model,
    *,
    error: float = LINK_ERROR,
    roots: Roots = (),
    shapes: Mapping[str, Any] | None = None,
    pairs: Sequence[Pair] | None = None,
) -> CollisionModel:
    """Of a model's links; see `Robot.collision_model`."""
    links = link_shapes(model, size("the error of a link's cover", error), covered, roots, shapes)
    if pairs is not None:
        place = {link.link: k for k, link in enumerate(links)}
        for name in (name for pair in pairs for name in pair):
            if name not in place:
                raise unknown_name("link with a collision shape", name, place)
        return CollisionModel(model, links, tuple((place[a], place[b]) for a, b in pairs))
    possible = [
        (i, j)
        for i in range(len(links))
        for j in range(i)
        if links[i].body != links[j].body and not _adjacent(model, links[i].body, links[j].body)
    ]
    whole = CollisionModel(model, links, tuple(possible))
    if not possible:
        return whole
    least = whole.distances(_positions(model), gradient=False).distance
    kept, unclear = [], []
    for (i, j), d in zip(possible, least.T, strict=True):
        error = links[i].error + links[j].error
        if d.max() > error and d.min() < _NEAR:
            kept.append((i, j))
        elif d.min() < _NEAR and error > 0:
            unclear.append(f"{links[i].link}, {links[j].link}")
    if unclear:
        warnings.warn(
            f"{model.name}: covers are too coarse to tell whether these links touch, so they are"
            f" not looked at: {'; '.join(unclear)}. with_collisions(error=…) makes finer ones,"
            " pairs=[…] says what counts",
            ModelWarning,
            stacklevel=4,
        )
    return CollisionModel(model, links, tuple(kept))


def _adjacent(model: Model, i: int, j: int) -> bool:
    """Whether one joint is all that is between two bodies. A body between them without a shape of
    its own counts as part of its joint.
    """
    return (i != WORLD and model.parents[i] == j) or (j != WORLD and model.parents[j] == i)


def _positions(model: Model) -> np.ndarray:
    """Positions all over the range, the same for every run."""
    rng = np.random.default_rng(0)
    q = np.tile(np.array(manifold.neutral(model)), (_SAMPLES, 1))
    for j in model.joints:
        if not j.is_mimic:
            own = slice(j.q, j.q + j.nq)
            q[:, own] = j.kind.random(
                rng, (_SAMPLES,), model.limits.lower[own], model.limits.upper[own]
            )
    return q


def numbers_of(links: Sequence[LinkShape]) -> int:
    return 3 * len(links) + sum(e.numbers for link in links for e in link.elements)


def _filled(rows: np.ndarray, wide: int) -> np.ndarray:
    """Whole packs: the last position again and again."""
    more = -len(rows) % wide
    return (
        np.concatenate([rows, np.repeat(rows[-1:], more, axis=0)])
        if more
        else np.ascontiguousarray(rows)
    )


def _margin(margin: Any) -> float:
    try:
        found = float(margin)
    except (TypeError, ValueError):
        found = math.nan
    if not 0 <= found < 1e4:
        raise InputError(
            f"margin is a distance to keep in metres, not negative; this is {margin!r}"
        )
    return found
