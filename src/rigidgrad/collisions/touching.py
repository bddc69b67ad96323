"""Whether anything touches, position by position in lanes: loops that end a pack once all its lanes
are known to.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.collisions.numbers import BOX, CAPSULE, PLANE, SPHERE, TREE
from rigidgrad.collisions.vectors import (
    anywhere,
    bits,
    everywhere,
    filled,
    transpose,
    vector3,
    width,
)
from rigidgrad.geometry.boxes import box_plane, boxes_overlap, boxes_square
from rigidgrad.geometry.closest import (
    apart_square,
    least,
    on_segment,
    point_box_square,
    point_plane,
    segment_box_square,
    segment_plane,
    segments,
)
from rigidgrad.runtime.loops import kernel
from rigidgrad.scalars import Scalar, less, select
from rigidgrad.spatial import Matrix3, Vector3


@kernel
def three(row: np.ndarray, first: int) -> Vector3:
    return row[first], row[first + 1], row[first + 2]


@kernel
def turning(row: np.ndarray) -> tuple[Matrix3, Vector3]:
    """The matrix of a box, and its half lengths."""
    return (three(row, 4), three(row, 7), three(row, 10)), three(row, 13)


@kernel
def box_of(
    lanes: np.ndarray, robot: tuple[np.ndarray, ...], e: int
) -> tuple[Vector3, Matrix3, Vector3]:
    """The middle, the matrix and the half lengths of a link's box."""
    places, halves = robot[3], robot[5]
    place = places[e]
    R = (vector3(lanes, place + 3), vector3(lanes, place + 6), vector3(lanes, place + 9))
    return vector3(lanes, place), R, three(halves[e], 0)


@kernel
def box_to_box(
    a: Vector3, A: Matrix3, own: Vector3, b: Vector3, B: Matrix3, half: Vector3, margin: Scalar
) -> Scalar:
    """Negative where two boxes are within a margin of each other."""
    apart = boxes_overlap(a, A, own, b, B, half)
    found = apart - margin
    if anywhere((apart > 0) & (found < 0)):
        square = boxes_square(a, A, own, b, B, half)
        found = select(less(0.0, apart), square - margin * margin, found)
    return found


@kernel
def box_to_object(
    kind: int, row: np.ndarray, c: Vector3, R: Matrix3, half: Vector3, margin: Scalar
) -> Scalar:
    """Negative where a box is within a margin of the object."""
    found = margin
    if kind == BOX:
        other, theirs = turning(row)
        found = box_to_box(c, R, half, three(row, 0), other, theirs, margin)
    else:
        if kind == SPHERE:
            sum_ = margin + row[3]
            found = point_box_square(three(row, 0), c, R, half) - sum_ * sum_
        if kind == CAPSULE:
            sum_ = margin + row[10]
            found = segment_box_square(three(row, 4), three(row, 7), c, R, half) - sum_ * sum_
        if kind == PLANE:
            found = box_plane(c, R, half, three(row, 0), row[3])[0] - margin
    return found


@kernel
def ball_to_object(kind: int, row: np.ndarray, p: Vector3, reach: Scalar) -> Scalar:
    """Negative where a ball of that reach about p touches the object; squares of metres, but for
    planes.
    """
    found = reach
    if kind == BOX:
        R, half = turning(row)
        found = point_box_square(p, three(row, 0), R, half) - reach * reach
    else:
        if kind == SPHERE:
            sum_ = reach + row[3]
            found = apart_square(p, three(row, 0)) - sum_ * sum_
        if kind == CAPSULE:
            sum_ = reach + row[10]
            found = apart_square(on_segment(three(row, 4), three(row, 7), p), p) - sum_ * sum_
        if kind == PLANE:
            found = point_plane(p, three(row, 0), row[3])[0] - reach
    return found


@kernel
def capsule_to_object(kind: int, row: np.ndarray, a: Vector3, d: Vector3, reach: Scalar) -> Scalar:
    found = reach
    if kind == BOX:
        R, half = turning(row)
        found = segment_box_square(a, d, three(row, 0), R, half) - reach * reach
    else:
        if kind == SPHERE:
            sum_ = reach + row[3]
            c = three(row, 0)
            found = apart_square(on_segment(a, d, c), c) - sum_ * sum_
        if kind == CAPSULE:
            sum_ = reach + row[10]
            away = segments(a, d, three(row, 4), three(row, 7))[0]
            found = away * away - sum_ * sum_
        if kind == PLANE:
            found = segment_plane(a, d, three(row, 0), row[3])[0] - reach
    return found


@kernel
def link_to_tree(
    lanes: np.ndarray,
    link: int,
    robot: tuple[np.ndarray, ...],
    walk: np.ndarray,
    scene: tuple[np.ndarray, ...],
    margin: Scalar,
    worst: Scalar,
) -> Scalar:
    """`worst`, or what is less: how far a link is from touching one of the balls of a tree."""
    elements, capsules, boxes, places = robot[0], robot[1], robot[2], robot[3]
    radii, reach = robot[4], robot[6]
    nodes, steps, balls = scene[4], scene[5], scene[6]
    middle, around = vector3(lanes, 3 * link), reach[link] + margin
    node = walk[0]
    while node < walk[1]:
        far = around + nodes[node, 3]
        if far > 0 and anywhere(apart_square(middle, three(nodes[node], 0)) < far * far):
            for b in range(steps[node, 1], steps[node, 1] + steps[node, 2]):
                c = three(balls[b], 0)
                own = balls[b, 3] + margin
                for e in range(elements[link], boxes[link]):
                    p = vector3(lanes, places[e])
                    sum_ = own + radii[e]
                    if e >= capsules[link]:
                        p = on_segment(p, vector3(lanes, places[e] + 3), c)
                    worst = least(worst, apart_square(p, c) - sum_ * sum_)
                for e in range(boxes[link], elements[link + 1]):
                    m, R, half = box_of(lanes, robot, e)
                    worst = least(worst, point_box_square(c, m, R, half) - own * own)
            node += 1
            if everywhere(worst < 0):
                node = walk[1]
        else:
            node = steps[node, 0]
    return worst


@kernel
def link_to_kind(
    kind: int,
    lanes: np.ndarray,
    link: int,
    robot: tuple[np.ndarray, ...],
    scene: tuple[np.ndarray, ...],
    margin: Scalar,
    worst: Scalar,
) -> Scalar:
    """`worst`, or what is less: how far a link is from touching the objects of a kind."""
    elements, capsules, boxes, places = robot[0], robot[1], robot[2], robot[3]
    radii, reach = robot[4], robot[6]
    rows, kinds = scene[0], scene[1]
    middle = vector3(lanes, 3 * link)
    for o in range(kinds[kind], kinds[kind + 1]):
        row = rows[o]
        around = reach[link] + row[3] + margin
        if kind == PLANE or anywhere(apart_square(middle, three(row, 0)) < around * around):
            for e in range(elements[link], capsules[link]):
                worst = least(
                    worst, ball_to_object(kind, row, vector3(lanes, places[e]), radii[e] + margin)
                )
            for e in range(capsules[link], boxes[link]):
                a, d = vector3(lanes, places[e]), vector3(lanes, places[e] + 3)
                worst = least(worst, capsule_to_object(kind, row, a, d, radii[e] + margin))
            for e in range(boxes[link], elements[link + 1]):
                m, R, half = box_of(lanes, robot, e)
                worst = least(worst, box_to_object(kind, row, m, R, half, margin))
    return worst


@kernel
def link_to_link(
    i: int, j: int, lanes: np.ndarray, robot: tuple[np.ndarray, ...], margin: Scalar, worst: Scalar
) -> Scalar:
    elements, capsules, boxes, places = robot[0], robot[1], robot[2], robot[3]
    radii = robot[4]
    for e in range(elements[i], boxes[i]):
        a, own = vector3(lanes, places[e]), radii[e] + margin
        for f in range(boxes[j], elements[j + 1]):
            m, R, half = box_of(lanes, robot, f)
            if e < capsules[i]:
                worst = least(worst, point_box_square(a, m, R, half) - own * own)
            else:
                d = vector3(lanes, places[e] + 3)
                worst = least(worst, segment_box_square(a, d, m, R, half) - own * own)
        for f in range(elements[j], boxes[j]):
            b, sum_ = vector3(lanes, places[f]), radii[f] + own
            if e < capsules[i]:
                if f >= capsules[j]:
                    b = on_segment(b, vector3(lanes, places[f] + 3), a)
                worst = least(worst, apart_square(a, b) - sum_ * sum_)
            else:
                d = vector3(lanes, places[e] + 3)
                if f < capsules[j]:
                    worst = least(worst, apart_square(on_segment(a, d, b), b) - sum_ * sum_)
                else:
                    away = segments(a, d, b, vector3(lanes, places[f] + 3))[0]
                    worst = least(worst, away * away - sum_ * sum_)
    for e in range(boxes[i], elements[i + 1]):
        m, R, half = box_of(lanes, robot, e)
        for f in range(elements[j], boxes[j]):
            b, sum_ = vector3(lanes, places[f]), radii[f] + margin
            if f < capsules[j]:
                worst = least(worst, point_box_square(b, m, R, half) - sum_ * sum_)
            else:
                d = vector3(lanes, places[f] + 3)
                worst = least(worst, segment_box_square(b, d, m, R, half) - sum_ * sum_)
        for f in range(boxes[j], elements[j + 1]):
            c, R2, theirs = box_of(lanes, robot, f)
            worst = least(worst, box_to_box(m, R, half, c, R2, theirs, margin))
    return worst


@kernel
def touching(
    part: int,
    start: int,
    stop: int,
    placed: np.ndarray,
    lanes: np.ndarray,
    robot: tuple[np.ndarray, ...],
    scene: tuple[np.ndarray, ...],
    margin: float,
    result: np.ndarray,
) -> None:
    """result[pack] for packs from `start` to `stop`: a bit for each of its positions, set where a
    link is within `margin` of an object or of a link that it is paired with.

    `placed` (rows, numbers), rows a multiple of the width; `lanes` has room for the numbers of one
    pack.
    """
    reach, order, pairs = robot[6], robot[7], robot[8]
    numbers, wide = placed.shape[1], width(placed)
    objects = scene[1][5]
    for pack in range(start, stop):
        for k in range(numbers):
            transpose(placed, pack * wide, numbers, k, lanes)
        worst = filled(placed, 1e30)
        done = 0
        if objects > 0:
            for at in range(order.shape[0]):
                link = order[at]
                if done == 0:
                    worst = link_to_kind(BOX, lanes, link, robot, scene, margin, worst)
                    worst = link_to_kind(SPHERE, lanes, link, robot, scene, margin, worst)
                    worst = link_to_kind(CAPSULE, lanes, link, robot, scene, margin, worst)
                    worst = link_to_kind(PLANE, lanes, link, robot, scene, margin, worst)
                    for o in range(scene[1][TREE], objects):
                        worst = link_to_tree(lanes, link, robot, scene[3][o], scene, margin, worst)
                    if everywhere(worst < 0):
                        done = 1
        for k in range(pairs.shape[0]):
            if done == 0:
                i, j = pairs[k, 0], pairs[k, 1]
                around = reach[i] + reach[j] + margin
                if anywhere(
                    apart_square(vector3(lanes, 3 * i), vector3(lanes, 3 * j)) < around * around
                ):
                    worst = link_to_link(i, j, lanes, robot, margin, worst)
                    if everywhere(worst < 0):
                        done = 1
        result[pack] = bits(worst < 0)
