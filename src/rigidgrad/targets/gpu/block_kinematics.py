"""Where frames are and how they move, for the threads of a block: placements by pairwise products,
Jacobians by products of all prefixes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rigidgrad.model.model import WORLD, Frame
from rigidgrad.targets.gpu.block_algorithms import Work, offset
from rigidgrad.targets.gpu.schedule import Value


def frame_transform(w: Work, X: Mapping[int, Value], frame: Frame) -> Value:
    """From the world to the frame: neighbours are composed pairwise, in as many stages as the
    path's length has binary digits.
    """
    chain = (
        [offset(w, frame), *(X[i] for i in w.model.ancestors[frame.body])]
        if frame.body != WORLD
        else [offset(w, frame)]
    )
    while len(chain) > 1:
        pairs = [
            w.one("compose", (a, b), 12) for a, b in zip(chain[::2], chain[1::2], strict=False)
        ]
        chain = pairs + chain[len(chain) - len(chain) % 2 :]
    return chain[0]


def prefixes(w: Work, chain: Sequence[Value], after: bool) -> list[Value]:
    """All products chain[k] … chain[0] (`after`) or chain[0] … chain[k], by doubling."""
    done, step = list(chain), 1
    while step < len(done):
        pairs = [
            ((done[k], done[k - step]) if after else (done[k - step], done[k]))
            for k in range(step, len(done))
        ]
        done = done[:step] + [w.one("compose", pair, 12) for pair in pairs]
        step *= 2
    return done


@dataclass
class Columns:
    """Columns of a frame's Jacobian along its path: an array of 6 numbers a freedom, linear first,
    and which freedom each is.
    """

    array: Value
    freedoms: list[int]
    frame: Value  # from the world to the frame


def jacobian(w: Work, X: Mapping[int, Value], frame: Frame, expressed_in: str) -> Columns:
    path = list(reversed(w.model.ancestors[frame.body])) if frame.body != WORLD else []
    freedoms = [k for i in path for k in w.freedoms(i)]
    array = w.block.value(max(6 * len(freedoms), 2), array=True)
    to_frame = offset(w, frame)
    if expressed_in == "local":
        # from body i to the frame: offset · X_last … X_{i+1}
        chain = (
            prefixes(w, [to_frame, *(X[i] for i in reversed(path[1:]))], after=False)
            if path
            else [to_frame]
        )
        poses = dict(zip(reversed(path), chain, strict=False))
    else:
        chain = prefixes(w, [X[i] for i in path], after=True)
        poses = dict(zip(path, chain, strict=True))
        if expressed_in == "world" and path:
            to_frame = w.one("compose", (to_frame, chain[-1]), 12)
    for place, k in enumerate(freedoms):
        pose = poses[w.body_of[k]]
        if expressed_in == "local":
            w.block.add(w.call("jacobian_local", w.z), (pose, k), (array[6 * place],))
        else:
            w.block.add(
                w.call("jacobian_world", w.z, int(expressed_in == "world")),
                (pose, to_frame, k),
                (array[6 * place],),
            )
    return Columns(array, freedoms, to_frame)


def path_rates(w: Work, freedoms: Sequence[int], v: Value) -> Value:
    """The velocities of the path's freedoms as neighbours."""
    rates = w.block.value(max(len(freedoms), 2), array=True)
    for place, k in enumerate(freedoms):
        w.block.add("copy", (v[w.source[k]],), (rates[place],))
    return rates


def jacobian_derivative(
    w: Work, X: Mapping[int, Value], v: Value, frame: Frame, expressed_in: str
) -> Columns:
    """Each column moves with its body: in the world by m × J, in the frame by the body's motion
    against the frame.
    """
    local = int(expressed_in == "local")
    J = jacobian(w, X, frame, expressed_in if local else "spatial")
    if not J.freedoms:
        return J
    rates = path_rates(w, J.freedoms, v)
    to_frame = frame_transform(w, X, frame) if expressed_in == "world" else J.frame
    motion: dict[int, Value] = {}
    for place, k in enumerate(J.freedoms):
        body = w.body_of[k]
        if k == w.freedoms(body).stop - 1:
            motion[body] = w.one("motion_of_columns", (J.array, rates, place + 1), 6)
    last = motion[w.body_of[J.freedoms[-1]]]
    array = w.block.value(6 * len(J.freedoms), array=True)
    for place, k in enumerate(J.freedoms):
        reads = (J.array[6 * place], motion[w.body_of[k]], last, to_frame)
        w.block.add(
            w.call("jacobian_rate", int(expressed_in == "world"), local), reads, (array[6 * place],)
        )
    return Columns(array, J.freedoms, to_frame)
