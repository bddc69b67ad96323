"""Whether anything touches, position by position in lanes: loops that end a pack once all its lanes are known to."""

from __future__ import annotations

from rigidgrad.collisions.numbers import BOX, CAPSULE, PLANE, SPHERE, TREE
from rigidgrad.collisions.vectors import anywhere, bits, everywhere, filled, transpose, vector3, width
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


@kernel
def three(row, first):
    return row[first], row[first + 1], row[first + 2]


@kernel
def turning(row):
    """The matrix of a box, and its half lengths."""
    return (three(row, 4), three(row, 7), three(row, 10)), three(row, 13)


@kernel
def ball_to_object(kind, row, p, reach):
    """Negative where a ball of that reach about p touches the object; squares of metres, but for planes."""
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
def capsule_to_object(kind, row, a, d, reach):
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
def link_to_tree(lanes, link, robot, walk, scene, margin, worst):
    """`worst`, or what is less: how far a link is from touching one of the balls of a tree."""
    elements, capsules, places, radii, reach = robot[0], robot[1], robot[2], robot[3], robot[4]
    nodes, steps, balls = scene[4], scene[5], scene[6]
    middle, around = vector3(lanes, 3 * link), reach[link] + margin
    node = walk[0]
    while node < walk[1]:
        far = around + nodes[node, 3]
        if far > 0 and anywhere(apart_square(middle, three(nodes[node], 0)) < far * far):
            for b in range(steps[node, 1], steps[node, 1] + steps[node, 2]):
                c = three(balls[b], 0)
                own = balls[b, 3] + margin
                for e in range(elements[link], elements[link + 1]):
                    p = vector3(lanes, places[e])
                    sum_ = own + radii[e]
                    if e >= capsules[link]:
                        p = on_segment(p, vector3(lanes, places[e] + 3), c)
                    worst = least(worst, apart_square(p, c) - sum_ * sum_)
            node += 1
            if everywhere(worst < 0):
                node = walk[1]
        else:
            node = steps[node, 0]
    return worst


@kernel
def link_to_kind(kind, lanes, link, robot, scene, margin, worst):
    """`worst`, or what is less: how far a link is from touching the objects of a kind."""
    elements, capsules, places, radii, reach = robot[0], robot[1], robot[2], robot[3], robot[4]
    rows, kinds = scene[0], scene[1]
    middle = vector3(lanes, 3 * link)
    for o in range(kinds[kind], kinds[kind + 1]):
        row = rows[o]
        around = reach[link] + row[3] + margin
        if kind == PLANE or anywhere(apart_square(middle, three(row, 0)) < around * around):
            for e in range(elements[link], capsules[link]):
                worst = least(worst, ball_to_object(kind, row, vector3(lanes, places[e]), radii[e] + margin))
            for e in range(capsules[link], elements[link + 1]):
                a, d = vector3(lanes, places[e]), vector3(lanes, places[e] + 3)
                worst = least(worst, capsule_to_object(kind, row, a, d, radii[e] + margin))
    return worst


@kernel
def link_to_link(i, j, lanes, robot, margin, worst):
    elements, capsules, places, radii = robot[0], robot[1], robot[2], robot[3]
    for e in range(elements[i], elements[i + 1]):
        a, own = vector3(lanes, places[e]), radii[e] + margin
        for f in range(elements[j], elements[j + 1]):
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
    return worst


@kernel
def touching(part, start, stop, placed, lanes, robot, scene, margin, result):
    """result[pack] for packs from `start` to `stop`: a bit for each of its positions, set where a link is within `margin` of an object or of a link that it is paired with.

    `placed` (rows, numbers), rows a multiple of the width; `lanes` has room for the numbers of one pack.
    """
    reach, order, pairs = robot[4], robot[5], robot[6]
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
                if anywhere(apart_square(vector3(lanes, 3 * i), vector3(lanes, 3 * j)) < around * around):
                    worst = link_to_link(i, j, lanes, robot, margin, worst)
                    if everywhere(worst < 0):
                        done = 1
        result[pack] = bits(worst < 0)
