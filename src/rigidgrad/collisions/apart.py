"""Signed distances of pairs, their nearest points and gradients, position by position in lanes.

A pair is a link and an object, or two links; its distance is the least of those of their balls and
capsules. With n the direction from the second to the first and x the point of the first at which
∂d/∂q = nᵀ ∂x/∂q, a freedom with angular velocity w and linear velocity u at the world's origin
changes the distance by n·u + (x × n)·w.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.collisions.numbers import BOX, CAPSULE, PLANE, SPHERE, TREE
from rigidgrad.collisions.touching import box_of, three, turning
from rigidgrad.collisions.vectors import anywhere, filled, spread, transpose, vector3, width
from rigidgrad.geometry.boxes import box_box, box_plane
from rigidgrad.geometry.closest import (
    Nearest,
    apart_square,
    flipped,
    nearer,
    on_segment,
    point_box,
    point_box_distance,
    point_box_square,
    point_plane,
    points,
    segment_box,
    segment_plane,
    segment_point,
    segments,
)
from rigidgrad.runtime.loops import kernel
from rigidgrad.scalars import Scalar, less, select, sqrt
from rigidgrad.spatial import Matrix3, Vector3, cross3, dot3

# distances, gradients, nearest points, normals, and how much of these is wanted
Results = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]


def beyond(found: Nearest, theirs: Scalar) -> Nearest:
    """(d, n, x) with the second shape as large as its radius."""
    return found[0] - theirs, found[1], found[2]


def on_surface(found: Nearest, own: Scalar) -> Nearest:
    """(d, n, x) with the first shape as large as its radius, x on its surface: as x moves along n,
    x × n stays the same.
    """
    d, n, x = found
    return d - own, n, (x[0] - own * n[0], x[1] - own * n[1], x[2] - own * n[2])


@kernel
def ball_and_object(kind: int, row: np.ndarray, p: Vector3) -> Nearest:
    """Of a point and an object, with the object's radius."""
    if kind == BOX:
        R, half = turning(row)
        return point_box(p, three(row, 0), R, half)
    if kind == SPHERE:
        return beyond(points(p, three(row, 0)), row[3])
    if kind == CAPSULE:
        return beyond(points(p, on_segment(three(row, 4), three(row, 7), p)), row[10])
    return point_plane(p, three(row, 0), row[3])


@kernel
def capsule_and_object(kind: int, row: np.ndarray, a: Vector3, d: Vector3) -> Nearest:
    if kind == BOX:
        R, half = turning(row)
        return segment_box(a, d, three(row, 0), R, half)
    if kind == SPHERE:
        return beyond(segment_point(a, d, three(row, 0)), row[3])
    if kind == CAPSULE:
        return beyond(segments(a, d, three(row, 4), three(row, 7)), row[10])
    return segment_plane(a, d, three(row, 0), row[3])


@kernel
def box_and_object(kind: int, row: np.ndarray, c: Vector3, R: Matrix3, half: Vector3) -> Nearest:
    if kind == BOX:
        other, theirs = turning(row)
        return box_box(c, R, half, three(row, 0), other, theirs)
    if kind == SPHERE:
        return beyond(flipped(point_box(three(row, 0), c, R, half)), row[3])
    if kind == CAPSULE:
        return beyond(flipped(segment_box(three(row, 4), three(row, 7), c, R, half)), row[10])
    return box_plane(c, R, half, three(row, 0), row[3])


@kernel
def nearest_ball(
    lanes: np.ndarray, link: int, robot: tuple[np.ndarray, ...], row: np.ndarray
) -> tuple[Scalar, Scalar, Vector3]:
    """Of a link's balls and a box, the least distance, the radius and the middle of whose it is:
    which face is nearest to it is asked of that one alone.
    """
    elements, capsules, places, radii = robot[0], robot[1], robot[3], robot[4]
    R, half = turning(row)
    centre = three(row, 0)
    first = elements[link]
    p = vector3(lanes, places[first])
    radius = filled(lanes, radii[first])
    best = point_box_distance(p, centre, R, half) - radius
    for e in range(first + 1, capsules[link]):
        other = vector3(lanes, places[e])
        room = best + radii[e]
        # where a ball is not inside, and further than the best, its root is not needed
        if anywhere((point_box_square(other, centre, R, half) < room * room) | (room < 0)):
            d = point_box_distance(other, centre, R, half) - radii[e]
            closer = less(d, best)
            best, radius = select(closer, d, best), select(closer, filled(lanes, radii[e]), radius)
            p = (
                select(closer, other[0], p[0]),
                select(closer, other[1], p[1]),
                select(closer, other[2], p[2]),
            )
    return best, radius, p


@kernel
def link_and_object(
    kind: int, lanes: np.ndarray, link: int, robot: tuple[np.ndarray, ...], row: np.ndarray
) -> Nearest:
    elements, capsules, boxes = robot[0], robot[1], robot[2]
    places, radii = robot[3], robot[4]
    zero = filled(lanes, 0.0)
    best = (filled(lanes, 1e30), (zero, zero, zero), (zero, zero, zero))
    if kind == BOX and capsules[link] > elements[link]:
        found = nearest_ball(lanes, link, robot, row)
        R, half = turning(row)
        best = on_surface(point_box(found[2], three(row, 0), R, half), found[1])
    elif kind != BOX:
        for e in range(elements[link], capsules[link]):
            best = nearer(
                on_surface(ball_and_object(kind, row, vector3(lanes, places[e])), radii[e]), best
            )
    for e in range(capsules[link], boxes[link]):
        a, d = vector3(lanes, places[e]), vector3(lanes, places[e] + 3)
        best = nearer(on_surface(capsule_and_object(kind, row, a, d), radii[e]), best)
    for e in range(boxes[link], elements[link + 1]):
        m, R, half = box_of(lanes, robot, e)
        room = best[0] + radii[e] + row[3]
        if kind == PLANE or anywhere((apart_square(m, three(row, 0)) < room * room) & (room > 0)):
            best = nearer(box_and_object(kind, row, m, R, half), best)
    return best


@kernel
def link_and_tree(
    lanes: np.ndarray,
    link: int,
    robot: tuple[np.ndarray, ...],
    walk: np.ndarray,
    scene: tuple[np.ndarray, ...],
) -> Nearest:
    elements, capsules, boxes, places = robot[0], robot[1], robot[2], robot[3]
    radii, reach = robot[4], robot[6]
    nodes, steps, balls = scene[4], scene[5], scene[6]
    zero = filled(lanes, 0.0)
    best = (filled(lanes, 1e30), (zero, zero, zero), (zero, zero, zero))
    middle = vector3(lanes, 3 * link)
    node = walk[0]
    while node < walk[1]:
        least_ = sqrt(apart_square(middle, three(nodes[node], 0))) - (reach[link] + nodes[node, 3])
        if nodes[node, 3] > -1e17 and anywhere(least_ < best[0]):
            for b in range(steps[node, 1], steps[node, 1] + steps[node, 2]):
                c = three(balls[b], 0)
                for e in range(elements[link], capsules[link]):
                    best = nearer(
                        on_surface(
                            beyond(points(vector3(lanes, places[e]), c), balls[b, 3]), radii[e]
                        ),
                        best,
                    )
                for e in range(capsules[link], boxes[link]):
                    a, d = vector3(lanes, places[e]), vector3(lanes, places[e] + 3)
                    best = nearer(
                        on_surface(beyond(segment_point(a, d, c), balls[b, 3]), radii[e]), best
                    )
                for e in range(boxes[link], elements[link + 1]):
                    m, R, half = box_of(lanes, robot, e)
                    best = nearer(beyond(flipped(point_box(c, m, R, half)), balls[b, 3]), best)
            node += 1
        else:
            node = steps[node, 0]
    return best


@kernel
def link_and_link(lanes: np.ndarray, i: int, j: int, robot: tuple[np.ndarray, ...]) -> Nearest:
    elements, capsules, boxes = robot[0], robot[1], robot[2]
    places, radii = robot[3], robot[4]
    zero = filled(lanes, 0.0)
    best = (filled(lanes, 1e30), (zero, zero, zero), (zero, zero, zero))
    for e in range(elements[i], boxes[i]):
        a = vector3(lanes, places[e])
        for f in range(elements[j], boxes[j]):
            b, sum_ = vector3(lanes, places[f]), radii[e] + radii[f]
            if e < capsules[i]:
                if f >= capsules[j]:
                    b = on_segment(b, vector3(lanes, places[f] + 3), a)
                room = best[0] + sum_
                if anywhere((apart_square(a, b) < room * room) & (room > 0)):
                    best = nearer(on_surface(beyond(points(a, b), radii[f]), radii[e]), best)
            else:
                d = vector3(lanes, places[e] + 3)
                if f < capsules[j]:
                    best = nearer(
                        on_surface(beyond(segment_point(a, d, b), radii[f]), radii[e]), best
                    )
                else:
                    best = nearer(
                        on_surface(
                            beyond(segments(a, d, b, vector3(lanes, places[f] + 3)), radii[f]),
                            radii[e],
                        ),
                        best,
                    )
        for f in range(boxes[j], elements[j + 1]):
            m, R, half = box_of(lanes, robot, f)
            if e < capsules[i]:
                best = nearer(on_surface(point_box(a, m, R, half), radii[e]), best)
            else:
                d = vector3(lanes, places[e] + 3)
                best = nearer(on_surface(segment_box(a, d, m, R, half), radii[e]), best)
    for e in range(boxes[i], elements[i + 1]):
        m, R, half = box_of(lanes, robot, e)
        for f in range(elements[j], boxes[j]):
            b = vector3(lanes, places[f])
            if f < capsules[j]:
                best = nearer(beyond(flipped(point_box(b, m, R, half)), radii[f]), best)
            else:
                d = vector3(lanes, places[f] + 3)
                best = nearer(beyond(flipped(segment_box(b, d, m, R, half)), radii[f]), best)
        for f in range(boxes[j], elements[j + 1]):
            c, R2, theirs = box_of(lanes, robot, f)
            room = best[0] + radii[e] + radii[f]
            if anywhere((apart_square(m, c) < room * room) & (room > 0)):
                best = nearer(box_box(m, R, half, c, R2, theirs), best)
    return best


@kernel
def give(
    found: Nearest,
    at: int,
    row: int,
    column: int,
    twists: np.ndarray,
    robot: tuple[np.ndarray, ...],
    results: Results,
) -> None:
    """Writes what was found for a pair: `at` is its place in the paths of freedoms."""
    paths, freedoms = robot[9], robot[10]
    distance, gradient, nearest, normals, wants = results
    count = distance.shape[1]
    d, n, x = found
    spread(distance, row * count + column, count, d)
    if wants > 1:
        for k in range(3):
            spread(nearest, (row * count + column) * 3 + k, count * 3, x[k])
            spread(normals, (row * count + column) * 3 + k, count * 3, n[k])
    if wants > 0:
        columns = gradient.shape[2]
        moment = cross3(x, n)
        for k in range(paths[at], paths[at + 1]):
            w = vector3(twists, 6 * freedoms[k, 0])
            u = vector3(twists, 6 * freedoms[k, 0] + 3)
            g = (dot3(n, u) + dot3(moment, w)) * freedoms[k, 2]
            place = (row * count + column) * columns + freedoms[k, 1]
            if freedoms[k, 3] > 0:  # two joints that move by one number
                for j in range(paths[at], k):
                    if freedoms[j, 1] == freedoms[k, 1]:
                        v, y = (
                            vector3(twists, 6 * freedoms[j, 0]),
                            vector3(twists, 6 * freedoms[j, 0] + 3),
                        )
                        g = g + (dot3(n, y) + dot3(moment, v)) * freedoms[j, 2]
            spread(gradient, place, count * columns, g)


@kernel
def apart(
    placed: np.ndarray,
    moving: np.ndarray,
    lanes: np.ndarray,
    twists: np.ndarray,
    robot: tuple[np.ndarray, ...],
    scene: tuple[np.ndarray, ...],
    distance: np.ndarray,
    gradient: np.ndarray,
    nearest: np.ndarray,
    normals: np.ndarray,
    wants: int,
) -> None:
    """Rows of `placed`, and of `moving` where wants > 0, are positions, in packs; the results have
    as many rows.
    """
    order, pairs = robot[7], robot[8]
    columns, objects = scene[2], scene[1][5]
    numbers, rates, wide = placed.shape[1], moving.shape[1], width(placed)
    results = (distance, gradient, nearest, normals, wants)
    for pack in range(placed.shape[0] // wide):
        row = pack * wide
        for k in range(numbers):
            transpose(placed, row, numbers, k, lanes)
        if wants > 0:
            for k in range(rates):
                transpose(moving, row, rates, k, twists)
        for at in range(order.shape[0]):
            link, first = order[at], at * objects
            for o in range(scene[1][BOX], scene[1][PLANE]):
                give(
                    link_and_object(BOX, lanes, link, robot, scene[0][o]),
                    at,
                    row,
                    first + columns[o],
                    twists,
                    robot,
                    results,
                )
            for o in range(scene[1][SPHERE], scene[1][CAPSULE]):
                give(
                    link_and_object(SPHERE, lanes, link, robot, scene[0][o]),
                    at,
                    row,
                    first + columns[o],
                    twists,
                    robot,
                    results,
                )
            for o in range(scene[1][CAPSULE], scene[1][BOX]):
                give(
                    link_and_object(CAPSULE, lanes, link, robot, scene[0][o]),
                    at,
                    row,
                    first + columns[o],
                    twists,
                    robot,
                    results,
                )
            for o in range(scene[1][PLANE], scene[1][TREE]):
                give(
                    link_and_object(PLANE, lanes, link, robot, scene[0][o]),
                    at,
                    row,
                    first + columns[o],
                    twists,
                    robot,
                    results,
                )
            for o in range(scene[1][TREE], objects):
                give(
                    link_and_tree(lanes, link, robot, scene[3][o], scene),
                    at,
                    row,
                    first + columns[o],
                    twists,
                    robot,
                    results,
                )
        for k in range(pairs.shape[0]):
            found = link_and_link(lanes, pairs[k, 0], pairs[k, 1], robot)
            at = order.shape[0] + k
            give(found, at, row, order.shape[0] * objects + k, twists, robot, results)
