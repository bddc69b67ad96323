"""How far the links of a robot are from a scene, and from each other, in a problem: the numbers and
Jacobians of all pairs, for constraints and costs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.algorithms import kinematics
from rigidgrad.algorithms.joints import Vector
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.control.terms.elements import (
    Placed,
    Solids,
    between,
    kind_of,
    pairs_of,
    placed,
    solids,
)
from rigidgrad.control.terms.robot import robot_of
from rigidgrad.control.terms.term import Jacobians, Term
from rigidgrad.errors import InputError
from rigidgrad.geometry.closest import Nearest, nearer
from rigidgrad.geometry.links import LinkShape
from rigidgrad.geometry.scene import Scene
from rigidgrad.model.model import WORLD, Frame
from rigidgrad.model.pose import IDENTITY_POSE
from rigidgrad.scalars import add, sub
from rigidgrad.spatial import cross3, dot3

if TYPE_CHECKING:
    from rigidgrad.collisions.checker import CollisionModel, Pair

_MOST = 3000  # pairs of elements: each is some 40 to 300 operations at every knot

Columns = list[Vector]  # of a link's Jacobian at the world's origin, linear first


class Separation:
    """The distance of each pair, in metres, negative inside: each link that moves with each object
    of a scene, then, with `self_pairs`, the pairs of links of `robot.collisions`. A distance is the
    least of those of a link's balls, capsules and boxes.

    The target is the numbers of all solids of the scene. Which solids there are, and what the links
    are, is compiled.
    """

    def __init__(self, scene: Scene, self_pairs: bool):
        self.scene, self.self_pairs = scene, self_pairs
        self._seen: CollisionModel | None = None
        self._shape = ""

    def __reduce__(self) -> Any:
        return Separation, (self.scene, self.self_pairs)

    def key(self) -> str:
        return f"{[(s.name, s.kind, len(s.rows)) for s in self._solids]} {self._shape}"

    def pairs(self, system: System) -> tuple[Pair, ...]:
        """What is compared, by name, in the order of the residual."""
        model = self._checked(robot_of(system, "keeping clear"))
        across = tuple((link.link, s.name) for link in _moving(model) for s in self._solids)
        return across + (model.self_pairs if self.self_pairs else ())

    @property
    def target(self) -> np.ndarray:
        return np.concatenate([np.zeros(0), *(s.rows.ravel() for s in self._solids)])

    def residual(self, system: System, x: Vector, target: Vector) -> Vector:
        return tuple(found[0] for found, _ in self._nearest(system, x, target))

    def jacobian(self, system: System, x: Vector, target: Vector) -> Jacobians:
        """∂d/∂q = n·u + (x × n)·w, for the velocity u at the world's origin, and the angular
        velocity w, of the first of a pair relative to the second.
        """
        rest = (0.0,) * robot_of(system, "keeping clear").nv
        rows = []
        for (_, n, point), columns in self._nearest(system, x, target):
            moment = cross3(point, n)
            rows.append((*(add(dot3(n, c[:3]), dot3(moment, c[3:])) for c in columns), *rest))
        return tuple(rows), None

    # --- what is compared -------------------------------------------------------------------------

    @cached_property
    def _solids(self) -> list[Solids]:
        return [solids(name, self.scene[name]) for name in self.scene.names]

    def _checked(self, robot: RobotSystem) -> CollisionModel:
        model = robot.robot.collisions
        if self._seen is not model:
            self._check(robot, model)
            self._shape = hashlib.sha256(
                repr((model.links, model.pairs if self.self_pairs else ())).encode()
            ).hexdigest()
            self._seen = model
        return model

    def _check(self, robot: RobotSystem, model: CollisionModel) -> None:
        links = _moving(model)
        if not links:
            raise InputError(
                f"{robot.name!r} has no collision shapes on links that move: give it some,"
                " robot.with_collisions(shapes=…)"
            )
        if self.self_pairs and not model.pairs and not self._solids:
            raise InputError(
                f"no links of {robot.name!r} can touch each other, by robot.collisions.self_pairs:"
                " there is nothing to keep apart; robot.with_collisions(pairs=…) names pairs"
            )
        count = sum(
            len(s.rows) * pairs_of(e, s.kind)
            for link in links
            for e in link.elements
            for s in self._solids
        )
        if self.self_pairs:
            count += sum(
                pairs_of(e, kind_of(f))
                for i, j in model.pairs
                for e in model.links[i].elements
                for f in model.links[j].elements
            )
        if count > _MOST:
            raise InputError(
                f"a problem compares at most {_MOST} pairs of a link's ball, capsule or box and"
                f" another or a solid (two boxes count as 12), this would be {count}: allow a"
                " larger error (robot.with_collisions(error=…), rg.Mesh(…, error=…)), leave out"
                " what is far away, or name the links that count (with_collisions(pairs=…))"
            )

    def _nearest(
        self, system: System, x: Vector, target: Vector
    ) -> Iterator[tuple[Nearest, Columns]]:
        """For each pair (d, n, x), and the Jacobian of its first relative to its second."""
        robot = robot_of(system, "keeping clear")
        model, q = self._checked(robot), robot.split(x)[0]
        known: dict[str, tuple[list[Placed], Columns]] = {}

        def moved(link: LinkShape) -> tuple[list[Placed], Columns]:
            if link.link not in known:
                frame = Frame(link.link, link.body, IDENTITY_POSE, "link")
                X = kinematics.frame_transform(robot.model, q, frame)
                J = kinematics.jacobian(robot.model, q, frame, "spatial")
                own = [placed(X, e) for e in link.elements]
                known[link.link] = own, list(zip(*J, strict=True))
            return known[link.link]

        for link in _moving(model):
            own, columns = moved(link)
            first = 0
            for s in self._solids:
                width = s.rows.shape[1]
                rows = [target[first + k * width :][:width] for k in range(len(s.rows))]
                first += s.rows.size
                yield _least(between(a, s.kind, row) for row in rows for a in own), columns
        for i, j in model.pairs if self.self_pairs else ():
            (own, columns), (others, theirs) = moved(model.links[i]), moved(model.links[j])
            relative = [tuple(map(sub, c, o)) for c, o in zip(columns, theirs, strict=True)]
            yield _least(between(a, b.kind, b.row) for a in own for b in others), relative


class LinkTerm(Term):
    """A term whose residual is such distances."""

    scene: Scene
    self_pairs: bool = False
    _separation: Separation | None = None

    @property
    def separation(self) -> Separation:
        """Whose distances they are."""
        found = self._separation
        if found is None or found.scene is not self.scene:
            found = self._separation = Separation(self.scene, self.self_pairs)
        return found

    def key(self) -> str:
        return f"{type(self).__name__} {self.separation.key()}"

    def size(self, system: System) -> int:
        return len(self.separation.pairs(system))

    def target_size(self, system: System) -> int:
        self.separation.pairs(system)
        return self.separation.target.size

    def targets(self, system: System, knots: int) -> np.ndarray:
        self.separation.pairs(system)
        return np.repeat(self.separation.target[None], knots, axis=0)

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        return self.separation.residual(system, x, target)

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        return self.separation.jacobian(system, x, target)


def _moving(model: CollisionModel) -> list[LinkShape]:
    return [link for link in model.links if link.body != WORLD]


def _least(found: Iterator[Nearest]) -> Nearest:
    best = next(found)
    for other in found:
        best = nearer(other, best)
    return best
