"""Distances of balls, capsules, boxes and planes against coal."""

from __future__ import annotations

import numpy as np
import pytest
from coal_oracle import of_shape, random_pose, signed

import rigidgrad as rg
from rigidgrad.geometry import boxes, closest

COUNT = 1500


def pairs(kind, rng):
    """A ball or a capsule, and a shape of a kind; apart, touching and deep inside."""
    for k in range(COUNT):
        reach = (0.3, 0.6, 1.5)[k % 3]
        a, b = rng.uniform(-reach, reach, (2, 3))
        first = (
            rg.Capsule(rng.uniform(0.01, 0.2), start=a, end=b)
            if k % 4
            else rg.Sphere(rng.uniform(0.01, 0.2), a)
        )
        match kind:
            case "sphere":
                other = rg.Sphere(rng.uniform(0.01, 0.4), rng.uniform(-reach, reach, 3))
            case "capsule":
                other = rg.Capsule(
                    rng.uniform(0.01, 0.2), rng.uniform(0.05, 1.0), random_pose(rng, reach)
                )
            case "box":
                other = rg.Box(rng.uniform(0.02, 1.0, 3), random_pose(rng, reach))
            case "plane":
                other = rg.Plane(rng.normal(size=3), rng.uniform(-reach, reach))
        yield first, other


def ours(first, other):
    a, d = (
        (first.center, np.zeros(3))
        if isinstance(first, rg.Sphere)
        else (first.start, first.end - first.start)
    )
    ball = isinstance(first, rg.Sphere)
    match other:
        case rg.Sphere():
            found = (
                closest.points(a, other.center)
                if ball
                else closest.segment_point(a, d, other.center)
            )
        case rg.Capsule():
            c, e = other.start, other.end - other.start
            found = (
                closest.points(a, closest.on_segment(c, e, a))
                if ball
                else closest.segments(a, d, c, e)
            )
        case rg.Box():
            box = other.pose.p, other.pose.R, other.size / 2
            found = closest.point_box(a, *box) if ball else closest.segment_box(a, d, *box)
        case rg.Plane():
            found = (
                closest.point_plane(a, other.normal, other.offset)
                if ball
                else closest.segment_plane(a, d, other.normal, other.offset)
            )
    thick = first.radius + (other.radius if isinstance(other, rg.Sphere | rg.Capsule) else 0.0)
    return found[0] - thick, np.array(found[1]), np.array(found[2])


@pytest.mark.parametrize("kind", ["sphere", "capsule", "box", "plane"])
def test_signed_distances_are_those_of_coal(kind):
    worst, inside = 0.0, 0
    for first, other in pairs(kind, np.random.default_rng(3)):
        d, n, _ = ours(first, other)
        expected = signed(of_shape(first), of_shape(other))
        worst = max(worst, abs(d - expected))
        inside += expected < 0
        assert np.linalg.norm(n) == pytest.approx(1, abs=1e-9)
    # EPA's own tolerance is 1e-9, its convergence on round shapes near 1e-7
    assert worst < 1e-6
    assert COUNT / 20 < inside < COUNT


@pytest.mark.parametrize("kind", ["sphere", "capsule", "box", "plane"])
def test_moving_apart_by_the_depth_is_enough_and_less_is_not(kind):
    """The direction n parts what penetrates, by just the depth: seen by coal."""
    for first, other in list(pairs(kind, np.random.default_rng(4)))[:300]:
        d, n, _ = ours(first, other)
        if not -0.5 < d < -1e-3:
            continue
        for part, touching in ((0.99, True), (1.001, False)):
            step = -d * part * n
            moved = (
                rg.Sphere(first.radius, first.center + step)
                if isinstance(first, rg.Sphere)
                else rg.Capsule(first.radius, start=first.start + step, end=first.end + step)
            )
            assert (signed(of_shape(moved), of_shape(other)) < 0) == touching


def of_box(shape):
    return (
        tuple(shape.pose.p),
        tuple(map(tuple, shape.pose.R)),
        tuple(shape.size / 2),
    )


def two_boxes(rng, count=COUNT):
    """Apart, touching, deep inside; one in ten with faces or edges that are parallel."""
    for k in range(count):
        reach = (0.3, 0.6, 1.5)[k % 3]
        first, second = random_pose(rng, reach), random_pose(rng, reach)
        if k % 10 == 0:
            second[:3, :3] = first[:3, :3]
        yield rg.Box(rng.uniform(0.02, 1, 3), first), rg.Box(rng.uniform(0.02, 1, 3), second)


def test_signed_distances_of_boxes_are_those_of_coal():
    worst, inside = 0.0, 0
    for first, other in two_boxes(np.random.default_rng(5)):
        d, n, x = boxes.box_box(*of_box(first), *of_box(other))
        expected = signed(of_shape(first), of_shape(other))
        worst = max(worst, abs(d - expected))
        inside += expected < 0
        assert np.linalg.norm(n) == pytest.approx(1, abs=1e-9)
        least = boxes.boxes_overlap(*of_box(first), *of_box(other))
        assert least == d if d < 0 else 0 <= least + 1e-12 <= d + 1e-11
        if d > 0:  # both ends of the way between them are theirs
            for end, box in ((x, first), (x - d * np.array(n), other)):
                assert abs(closest.point_box(tuple(end), *of_box(box))[0]) < 1e-9
    assert worst < 1e-6
    assert COUNT / 20 < inside < COUNT


def test_boxes_that_meet_are_parted_by_their_depth_and_by_no_less():
    for first, other in two_boxes(np.random.default_rng(6), 300):
        d, n, _ = boxes.box_box(*of_box(first), *of_box(other))
        if d > -1e-3:
            continue
        for part, touching in ((0.99, True), (1.001, False)):
            moved = first.pose.matrix()
            moved[:3, 3] -= d * part * np.array(n)
            assert (signed(of_shape(rg.Box(first.size, moved)), of_shape(other)) < 0) == touching


def test_a_box_is_as_far_from_a_plane_as_its_lowest_corner():
    for first, _ in two_boxes(np.random.default_rng(7), 50):
        plane = rg.Plane((0.2, -0.3, 1.0), 0.1)
        d, _, x = boxes.box_plane(*of_box(first), tuple(plane.normal), plane.offset)
        R, half = np.array(first.pose.R), first.size / 2
        signs = 2 * np.array(list(np.ndindex(2, 2, 2))) - 1
        corners = signs * half @ R.T + first.pose.p
        assert d == pytest.approx((corners @ plane.normal).min() - plane.offset, abs=1e-12)
        assert np.abs(corners - x).sum(axis=1).min() < 1e-12
        assert d == pytest.approx(signed(of_shape(first), of_shape(plane)), abs=1e-7)


def test_a_segment_through_a_box_is_as_deep_as_its_least_way_out():
    """The axis of a capsule through a cube, along a diagonal of a face: the way out is across the
    edge, not along a face.
    """
    d, n, _ = closest.segment_box(
        (-3.0, -3.0, 0.4), (6.0, 6.0, 0.0), (0.0, 0.0, 0.0), np.eye(3), (0.5, 0.5, 0.5)
    )
    assert d == pytest.approx(-0.1)
    assert np.allclose(n, (0, 0, 1))
    d, n, _ = closest.segment_box(
        (-3.0, -2.2, 0.0), (6.0, 6.0, 0.0), (0.0, 0.0, 0.0), np.eye(3), (0.5, 0.5, 5.0)
    )
    assert d == pytest.approx(-(2**0.5 / 2) + 0.8 / 2**0.5)
    assert np.allclose(np.abs(n), (0.5**0.5, 0.5**0.5, 0))


def test_points_that_coincide_have_a_direction():
    d, n, _ = closest.points((1.0, 2.0, 3.0), (1.0, 2.0, 3.0))
    assert d == 0
    assert np.linalg.norm(n) == 1
