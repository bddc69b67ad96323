"""A scene, and a robot's links, as the arrays that compiled loops read. Counts are data there, so
that another scene compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from rigidgrad.collisions.tree import ball_tree
from rigidgrad.geometry.cover import Cover
from rigidgrad.geometry.links import BoxElement, LinkShape
from rigidgrad.geometry.meshes import Triangles
from rigidgrad.geometry.scene import Scene, bounding_ball
from rigidgrad.geometry.shapes import Box, Capsule, Mesh, Plane, Points, Sphere
from rigidgrad.model.model import WORLD, Model

# objects in the order of kinds; a row of numbers each
SPHERE, CAPSULE, BOX, PLANE, TREE = range(5)
ROW = 20


class SceneNumbers(NamedTuple):
    """`rows` (objects, ROW): a ball around it (4), then what its kind needs; `kinds` (6,): where
    each kind begins; `columns` (objects,): the place of each in the scene; `walks` (objects, 2):
    nodes of trees.
    """

    rows: np.ndarray
    kinds: np.ndarray
    columns: np.ndarray
    walks: np.ndarray
    nodes: np.ndarray
    steps: np.ndarray
    balls: np.ndarray


def scene_numbers(
    scene: Scene, dtype: Any, covering: Callable[[Triangles, float], Cover]
) -> SceneNumbers:
    rows: list[list[np.ndarray]] = [[] for _ in range(5)]
    columns: list[list[int]] = [[] for _ in range(5)]
    walks: list[tuple[int, int]] = []
    nodes, steps, balls = [], [], []
    first_node = first_ball = 0

    def add(kind: int, column: int, *parts: Any) -> None:
        row = np.zeros(ROW)
        numbers = np.concatenate([np.ravel(p) for p in parts])
        row[: len(numbers)] = numbers
        rows[kind].append(row)
        columns[kind].append(column)

    for column, shape in enumerate(scene.shapes):
        match shape:
            case Sphere():
                add(SPHERE, column, shape.center, shape.radius)
            case Capsule():
                way = shape.end - shape.start
                around = (shape.start + shape.end) / 2, np.linalg.norm(way) / 2 + shape.radius
                add(CAPSULE, column, *around, shape.start, way, shape.radius)
            case Box():
                add(
                    BOX,
                    column,
                    shape.pose.p,
                    np.linalg.norm(shape.size) / 2,
                    shape.pose.R,
                    shape.size / 2,
                )
            case Plane():
                add(PLANE, column, shape.normal, shape.offset)
            case Mesh() | Points():
                if isinstance(shape, Mesh):
                    cover = shape.cover(covering)
                    centers, radii = (
                        cover.centers @ np.array(shape.pose.R).T + np.array(shape.pose.p),
                        cover.radii,
                    )
                else:
                    centers, radii = shape.xyz, shape.radius
                tree = ball_tree(centers, radii)
                add(TREE, column, *bounding_ball(centers, radii))
                tree.steps[:, 0] += first_node
                tree.steps[:, 1] += first_ball
                walks.append((first_node, first_node + len(tree.nodes)))
                nodes.append(tree.nodes)
                steps.append(tree.steps)
                balls.append(tree.balls)
                first_node += len(tree.nodes)
                first_ball += len(tree.balls)
    counts = [len(r) for r in rows]
    plain = np.zeros((sum(counts[:TREE]), 2), np.int64)
    return SceneNumbers(
        np.array([r for kind in rows for r in kind], dtype).reshape(-1, ROW),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.array([c for kind in columns for c in kind], np.int64),
        np.concatenate([plain, np.array(walks, np.int64).reshape(-1, 2)]),
        _stacked(nodes, 4, dtype),
        _stacked(steps, 3, np.int64),
        _stacked(balls, 4, dtype),
    )


def _stacked(arrays: Sequence[np.ndarray], columns: int, dtype: Any) -> np.ndarray:
    return np.ascontiguousarray(np.concatenate([*arrays, np.zeros((1, columns))]).astype(dtype))


class LinkNumbers(NamedTuple):
    """`elements` (links + 1,): where those of each link begin; `capsules` and `boxes` (links,):
    where its capsules and its boxes do; `places` (elements,): numbers before each in what the
    Program places; `radii` (elements,), of a box that of the ball around it; `halves` (elements,
    3): half lengths of boxes; `reach` (links,); `order` (moving links,): those that a scene can
    meet, the last ones first; `paths` and `freedoms` (…, 4): dof, column of the gradient, sign, and
    1 where an earlier one has that column, too; link after link and then pair after pair.
    """

    elements: np.ndarray
    capsules: np.ndarray
    boxes: np.ndarray
    places: np.ndarray
    radii: np.ndarray
    halves: np.ndarray
    reach: np.ndarray
    order: np.ndarray
    pairs: np.ndarray
    paths: np.ndarray
    freedoms: np.ndarray


def link_numbers(
    model: Model, links: Sequence[LinkShape], pairs: Sequence[tuple[int, int]], dtype: Any
) -> LinkNumbers:
    elements, capsules, boxes, places, radii, halves = [0], [], [], [], [], []
    place = 3 * len(links)
    for link in links:
        balls = sum(e.is_ball for e in link.elements)
        capsules.append(elements[-1] + balls)
        boxes.append(elements[-1] + sum(not e.is_box for e in link.elements))
        elements.append(elements[-1] + len(link.elements))
        for e in link.elements:
            places.append(place)
            radii.append(e.radius)
            halves.append(e.half if isinstance(e, BoxElement) else (0.0,) * 3)
            place += e.numbers
    order = [k for k, link in enumerate(links) if link.body != WORLD]
    order.sort(key=lambda k: -len(path(model, links[k].body)))
    paths, freedoms = [0], []
    for k in order:
        freedoms += [(dof, column, 1) for dof, column in path(model, links[k].body)]
        paths.append(len(freedoms))
    for i, j in pairs:  # what moves both moves them as one
        one, other = path(model, links[i].body), path(model, links[j].body)
        freedoms += [(*x, 1) for x in one if x not in other] + [
            (*x, -1) for x in other if x not in one
        ]
        paths.append(len(freedoms))
    again = [
        int(any(other[1] == mine[1] for other in freedoms[first:k]))
        for first, last in pairwise(paths)
        for k, mine in enumerate(freedoms[first:last], first)
    ]

    def whole(x: Any, columns: int = 0) -> np.ndarray:
        found = np.array(x, np.int64)
        return found.reshape(-1, columns) if columns else found

    return LinkNumbers(
        whole(elements),
        whole(capsules),
        whole(boxes),
        whole(places),
        np.array(radii, dtype),
        np.array(halves, dtype).reshape(-1, 3),
        np.array([link.reach for link in links], dtype),
        whole(order),
        whole(pairs, 2),
        whole(paths),
        whole([(*x, y) for x, y in zip(freedoms, again, strict=True)], 4),
    )


def path(model: Model, body: int) -> list[tuple[int, int]]:
    """The freedoms that move a body, each with its column of v."""
    bodies = reversed(model.ancestors[body]) if body != WORLD else ()
    return [
        (model.joints[i].dof + k, model.joints[i].v + k)
        for i in bodies
        for k in range(model.joints[i].nv)
    ]
